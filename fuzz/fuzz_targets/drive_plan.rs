//! Plans of the load client: understood or refused with a line, whatever they say.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_drive::{Plan, PlanOptions};

fuzz_target!(|bytes: &[u8]| {
    // Lists come from files or are made, which takes its time and is not the parser's.
    let makes_lists = [b"file".as_slice(), b"org"]
        .iter()
        .any(|word| bytes.windows(word.len()).any(|window| window == *word));
    if !makes_lists {
        let _ = Plan::read(bytes, &PlanOptions::default());
    }
});
