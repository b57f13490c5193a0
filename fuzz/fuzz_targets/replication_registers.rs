//! The registers of an entry as another server tells them: what is accepted reads the same when written again, and does
//! not grow when it is joined or shortened.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_replication::{EntryRegisters, REGISTERS_BYTES_MAX};

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = EntryRegisters::from_bytes(bytes) else {
        return;
    };
    let written = read.to_bytes();
    assert!(written.len() <= REGISTERS_BYTES_MAX.max(bytes.len()));
    assert_eq!(EntryRegisters::from_bytes(&written).as_ref(), Ok(&read));
    assert_eq!(read.joined(&read), read);
    let mut short = read.clone();
    short.shorten(u64::MAX / 2);
    assert!(short.to_bytes().len() <= written.len());
    assert_eq!(short.joined(&read), short);
});
