//! A filter that is accepted can be walked, and written again from what was seen is the same filter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::filter::Filter;

#[path = "../../crates/ldap/tests/model/mod.rs"]
mod model;

use model::FilterModel;

fuzz_target!(|bytes: &[u8]| {
    let Ok(filter) = Filter::from_ber(bytes) else {
        return;
    };
    let seen = FilterModel::of(filter);
    let mut again = Vec::new();
    seen.write(&mut again);
    let read = Filter::from_ber(&again).expect("what was written can be read");
    assert_eq!(FilterModel::of(read), seen);
});
