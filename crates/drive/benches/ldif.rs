//! How fast entries are made, written as LDIF and read back: `cargo bench -p sapwood-drive`.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use sapwood_drive::generate::Generator;
use sapwood_ldap::ldif;

const ENTRIES: u64 = 200_000;
const ROUNDS: usize = 3;

fn main() {
    let generator = Generator::new("dc=example,dc=com", ENTRIES, 1).unwrap();
    let mut text = Vec::new();
    report("generate and write", &mut 0, || {
        text.clear();
        generator.write_ldif(&mut text).unwrap();
        text.len()
    });
    report("read", &mut 0, || {
        let mut reader = ldif::Reader::new(text.as_slice(), ldif::Options::default());
        while let Some(record) = reader.next_record().unwrap() {
            black_box(record.unwrap());
        }
        text.len()
    });
    report("cut into blocks", &mut 0, || {
        ldif::Blocks::new(text.as_slice(), ldif::Options::default())
            .map(|block| block.unwrap().text().len())
            .sum()
    });
}

/// Prints the best of a few rounds.
fn report(what: &str, best: &mut u64, mut round: impl FnMut() -> usize) {
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let bytes = round();
        let nanoseconds = start.elapsed().as_nanos().max(1);
        *best = (*best).max((bytes as u128 * 1000 / nanoseconds) as u64);
    }
    println!("{what}: {best} MB/s");
}
