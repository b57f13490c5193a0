//! Controls and the values of controls and extended operations: what is accepted reads the same when written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::control::{
    Controls, ControlsBuf, PagedResults, ReadEntry, SortKeys, SortResult, put_queue_length,
    put_sort_keys, queue_length,
};
use sapwood_ldap::extended::{
    EndTransaction, PasswordModify, TransactionEnded, cancel_id, generated_password, put_cancel_id,
    put_generated_password, put_transaction_ended,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(controls) = Controls::from_ber(bytes) {
        let mut again = ControlsBuf::default();
        controls.iter().for_each(|control| again.push(control));
        assert!(controls.iter().eq(again.view().iter()));
    }
    let mut out = Vec::new();
    if let Ok(paged) = PagedResults::decode(bytes) {
        paged.encode(&mut out);
        assert_eq!(PagedResults::decode(&out), Ok(paged));
    }
    out.clear();
    if let Ok(read) = ReadEntry::decode(bytes) {
        read.encode(&mut out);
        assert_eq!(ReadEntry::decode(&out), Ok(read));
    }
    out.clear();
    if let Ok(keys) = SortKeys::decode(bytes) {
        put_sort_keys(&mut out, keys.iter());
        assert!(
            SortKeys::decode(&out)
                .expect("just written")
                .iter()
                .eq(keys.iter())
        );
    }
    out.clear();
    if let Ok(result) = SortResult::decode(bytes) {
        result.encode(&mut out);
        assert_eq!(SortResult::decode(&out), Ok(result));
    }
    out.clear();
    if let Ok(modify) = PasswordModify::decode(Some(bytes)) {
        modify.encode(&mut out);
        assert_eq!(PasswordModify::decode(Some(&out)), Ok(modify));
    }
    out.clear();
    if let Ok(Some(password)) = generated_password(bytes) {
        put_generated_password(&mut out, password);
        assert_eq!(generated_password(&out), Ok(Some(password)));
    }
    out.clear();
    if let Ok(end) = EndTransaction::decode(bytes) {
        end.encode(&mut out);
        assert_eq!(EndTransaction::decode(&out), Ok(end));
    }
    out.clear();
    if let Ok(ended) = TransactionEnded::decode(bytes) {
        let controls = ended.controls.iter();
        let controls = controls.map(|(id, controls)| (id, controls.as_ber()));
        put_transaction_ended(&mut out, ended.failed, controls);
        let again = TransactionEnded::decode(&out).expect("just written");
        assert_eq!(again.failed, ended.failed);
        assert!(again.controls.iter().eq(ended.controls.iter()));
    }
    out.clear();
    if let Ok(length) = queue_length(bytes) {
        put_queue_length(&mut out, length);
        assert_eq!(queue_length(&out), Ok(length));
    }
    out.clear();
    if let Ok(id) = cancel_id(bytes) {
        put_cancel_id(&mut out, id);
        assert_eq!(cancel_id(&out), Ok(id));
    }
});
