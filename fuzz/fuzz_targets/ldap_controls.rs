//! Controls and the values of controls and extended operations: what is accepted reads the same when written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_ldap::controls::{
    ContentDigests, ContentDigestsAnswer, Controls, ControlsBuf, EntryChange, ListView,
    ListViewResult, MatchedValues, PagedResults, PersistentSearch, ReadEntry, SortKeys, SortResult,
    SyncDone, SyncRequest, SyncState, put_queue_length, put_sort_keys, put_what_failed,
    queue_length, what_failed,
};
use sapwood_ldap::extended::{
    Acknowledge, BackupPart, EndLburp, EndTransaction, LburpUpdate, OperationResults, OperationResultsBuf,
    PasswordModify, RedeemInvitation, Refresh, StartLburp, TransactionEnded, UpdateOperationsBuf,
    cancel_id, generated_password, max_operations, put_cancel_id, put_generated_password,
    put_max_operations, put_transaction_ended,
};
use sapwood_ldap::message::RequestMessage;
use sapwood_ldap::sync_info::{SyncInfo, SyncUuidsBuf};

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
    if let Ok(values) = MatchedValues::decode(bytes) {
        values.encode(&mut out);
        assert_eq!(MatchedValues::decode(&out), Ok(values));
    }
    out.clear();
    if let Ok(wanted) = PersistentSearch::decode(bytes) {
        wanted.encode(&mut out);
        assert_eq!(PersistentSearch::decode(&out), Ok(wanted));
    }
    out.clear();
    if let Ok(change) = EntryChange::decode(bytes) {
        change.encode(&mut out);
        assert_eq!(EntryChange::decode(&out), Ok(change));
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
    if let Ok(refresh) = Refresh::decode(bytes) {
        refresh.encode(&mut out);
        assert_eq!(Refresh::decode(&out), Ok(refresh));
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
    if let Ok(view) = ListView::decode(bytes) {
        view.encode(&mut out);
        assert_eq!(ListView::decode(&out), Ok(view));
    }
    out.clear();
    if let Ok(result) = ListViewResult::decode(bytes) {
        result.encode(&mut out);
        assert_eq!(ListViewResult::decode(&out), Ok(result));
    }
    out.clear();
    if let Ok(oids) = what_failed(bytes) {
        put_what_failed(&mut out, oids.iter().copied());
        assert_eq!(what_failed(&out), Ok(oids));
    }
    out.clear();
    if let Ok(id) = cancel_id(bytes) {
        put_cancel_id(&mut out, id);
        assert_eq!(cancel_id(&out), Ok(id));
    }
    joining(bytes);
    bulk_update(bytes);
    synchronization(bytes);
});

fn joining(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Ok(told) = Acknowledge::decode(bytes) {
        told.encode(&mut out);
        assert_eq!(Acknowledge::decode(&out), Ok(told));
    }
    out.clear();
    if let Ok(redeem) = RedeemInvitation::decode(bytes) {
        redeem.encode(&mut out);
        assert_eq!(RedeemInvitation::decode(&out), Ok(redeem));
    }
    out.clear();
    if let Ok(part) = BackupPart::decode(bytes) {
        part.encode(&mut out);
        assert_eq!(BackupPart::decode(&out), Ok(part));
    }
}

fn synchronization(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Ok(request) = SyncRequest::decode(bytes) {
        request.encode(&mut out);
        assert_eq!(SyncRequest::decode(&out), Ok(request));
    }
    out.clear();
    if let Ok(state) = SyncState::decode(bytes) {
        state.encode(&mut out);
        assert_eq!(SyncState::decode(&out), Ok(state));
    }
    out.clear();
    if let Ok(done) = SyncDone::decode(bytes) {
        done.encode(&mut out);
        assert_eq!(SyncDone::decode(&out), Ok(done));
    }
    out.clear();
    if let Ok(wanted) = ContentDigests::decode(bytes) {
        wanted.encode(&mut out);
        assert_eq!(ContentDigests::decode(&out), Ok(wanted));
    }
    out.clear();
    if let Ok(answer) = ContentDigestsAnswer::decode(bytes) {
        answer.encode(&mut out);
        assert_eq!(ContentDigestsAnswer::decode(&out), Ok(answer));
    }
    out.clear();
    if let Ok(info) = SyncInfo::decode(bytes) {
        info.encode(&mut out);
        let mut again = SyncUuidsBuf::default();
        match (info, SyncInfo::decode(&out)) {
            // Lengths may have been written in more bytes than they need.
            (SyncInfo::IdSet { uuids, .. }, Ok(SyncInfo::IdSet { uuids: read, .. })) => {
                uuids.iter().for_each(|uuid| again.push(uuid));
                assert!(read.iter().eq(again.view().iter()));
            }
            (info, read) => assert_eq!(read, Ok(info)),
        }
    }
}

fn bulk_update(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Ok(start) = StartLburp::decode(bytes) {
        start.encode(&mut out);
        assert_eq!(StartLburp::decode(&out), Ok(start));
    }
    out.clear();
    if let Ok(operations) = max_operations(bytes) {
        put_max_operations(&mut out, operations);
        assert_eq!(max_operations(&out), Ok(operations));
    }
    out.clear();
    if let Ok(end) = EndLburp::decode(bytes) {
        end.encode(&mut out);
        assert_eq!(EndLburp::decode(&out), Ok(end));
    }
    out.clear();
    if let Ok(update) = LburpUpdate::decode(bytes) {
        assert_eq!(
            LburpUpdate::sequence_number(bytes),
            Ok(update.sequence_number)
        );
        let mut operations = UpdateOperationsBuf::default();
        for operation in update.operations.iter().flatten() {
            let mut message = Vec::new();
            operation.put_message(&mut message, 7);
            let message = RequestMessage::decode(&message).expect("it was accepted");
            assert_eq!(message.op, operation.op);
            assert_eq!(message.controls, operation.controls);
            operations.push(&operation.op, operation.controls);
        }
        let again = LburpUpdate {
            operations: operations.view(),
            ..update
        };
        again.encode(&mut out);
        assert_eq!(LburpUpdate::decode(&out), Ok(again));
        let accepted = update.operations.iter().flatten();
        let written = again.operations.iter().map(|operation| {
            let operation = operation.expect("just written");
            (operation.op, operation.controls)
        });
        assert!(written.eq(accepted.map(|operation| (operation.op, operation.controls))));
    }
    out.clear();
    if let Ok(results) = OperationResults::decode(bytes) {
        let mut again = OperationResultsBuf::default();
        results
            .iter()
            .for_each(|(number, result)| again.push(number, &result));
        again.encode(&mut out);
        let again = OperationResults::decode(&out).expect("just written");
        assert!(again.iter().eq(results.iter()));
    }
}
