//! Stored passwords: whatever is parsed keeps to the limits, says so in its cost, and a password can be checked with
//! it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_server::password::{
    StoredPassword, VALUE_MEMORY_KIB_MAX, VALUE_WORK_MAX, Work, scheme_of,
};

/// Checks that cost more are left out: the fuzzer would do little else.
const MATCHED_WORK_MAX: Work = Work::from_millis(5);

fuzz_target!(|bytes: &[u8]| {
    let Some((&length, rest)) = bytes.split_first() else {
        return;
    };
    let (password, stored) = rest.split_at(rest.len().min(length.into()));
    let parsed = match StoredPassword::parse(stored) {
        Ok(parsed) => parsed,
        Err(refused) => {
            assert!(scheme_of(stored).is_some());
            assert!(refused.to_string().len() < 300);
            return;
        }
    };
    if matches!(parsed, StoredPassword::Clear(_)) {
        assert!(scheme_of(stored).is_none());
        assert_eq!(parsed.matches(password), stored == password);
        return;
    }
    assert!(parsed.work(0) <= VALUE_WORK_MAX && parsed.work(0) <= parsed.work(password.len()));
    assert!(parsed.memory_kib() <= VALUE_MEMORY_KIB_MAX.into());
    if parsed.work(password.len()) <= MATCHED_WORK_MAX {
        let _ = parsed.matches(password);
    }
});
