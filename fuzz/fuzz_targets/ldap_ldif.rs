//! LDIF: each record that is accepted is written as a record that reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::ldif::{Block, Options, Reader, Record, write_record};

fuzz_target!(|bytes: &[u8]| {
    let options = Options {
        record_bytes_max: 4096,
        line_bytes_max: 512,
        load_url: None,
    };
    let mut reader = Reader::new(bytes, options);
    while let Some(record) = reader.next_record().unwrap() {
        let Ok(record) = record else { continue };
        let mut written = Vec::new();
        write_record(&mut written, &record);
        let block = Block::new(written);
        let reread = block.records(Options::default()).next().unwrap().unwrap();
        let record = Record {
            line: reread.line,
            text: reread.text,
            ..record
        };
        assert_eq!(reread, record);
    }
});
