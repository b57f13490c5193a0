//! What a consumer makes of messages.

use sapwood_ldap::controls::{Control, ControlsBuf};
use sapwood_ldap::message::{IntermediateResponse, Message, SearchResultEntry};
use sapwood_ldap::sync_info::SyncUuidsBuf;

use super::*;

const UUIDS: [[u8; 16]; 4] = [[1; 16], [2; 16], [3; 16], [4; 16]];

fn encoded(op: Response<'_>, control: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut controls = ControlsBuf::default();
    if let Some((oid, value)) = control {
        controls.push(Control {
            oid,
            critical: false,
            value: Some(value),
        });
    }
    let mut bytes = Vec::new();
    Message {
        id: 2,
        op,
        controls: controls.view(),
    }
    .encode(&mut bytes);
    bytes
}

fn entry(state: EntryState, uuid: [u8; 16], cookie: Option<&[u8]>) -> Vec<u8> {
    let mut value = Vec::new();
    SyncState {
        state,
        entry_uuid: uuid,
        cookie,
    }
    .encode(&mut value);
    let dn = format!("cn={},o=x", uuid[0]);
    let attributes = AttributesBuf::default();
    let entry = SearchResultEntry {
        dn: &dn,
        attributes: attributes.view(),
    };
    encoded(Response::SearchEntry(entry), Some((SYNC_STATE, &value)))
}

fn info(info: &SyncInfo<'_>) -> Vec<u8> {
    let mut value = Vec::new();
    info.encode(&mut value);
    let info = IntermediateResponse {
        name: Some(SYNC_INFO),
        value: Some(&value),
    };
    encoded(Response::Intermediate(info), None)
}

fn end(code: ResultCode, done: Option<SyncDone<'_>>) -> Vec<u8> {
    let mut value = Vec::new();
    if let Some(done) = &done {
        done.encode(&mut value);
    }
    let result = LdapResult {
        code,
        matched_dn: "",
        diagnostic: "",
        referral: None,
    };
    let control = done.map(|_| (SYNC_DONE, &*value));
    encoded(Response::SearchDone(result), control)
}

fn tell(machine: &mut Machine, message: &[u8]) -> Result<(), Trouble> {
    machine.take(&ResponseMessage::decode(message).unwrap())
}

/// Does what is to be done when nothing more is at hand, on a directory that has no other entries than `others`; in
/// short what that was.
fn settle(machine: &mut Machine, others: &[[u8; 16]]) -> Result<Vec<String>, Trouble> {
    let mut done = Vec::new();
    loop {
        match machine.next(false)? {
            Step::Receive => return Ok(done),
            Step::End => {
                done.push("end".into());
                return Ok(done);
            }
            Step::Name(uuids) => {
                done.push(format!("name {}", uuids.len()));
                machine.named(0);
            }
            Step::FindOthers => {
                done.push("find others".into());
                machine.not_named(others.iter().map(|uuid| (*uuid, None)).collect());
            }
            Step::Apply(changes) => {
                let cookie = changes.position.as_ref();
                let cookie = cookie.and_then(|position| position.cookie.as_deref());
                let cookie = cookie.map_or("-", |cookie| std::str::from_utf8(cookie).unwrap());
                done.push(format!("apply {} {cookie}", changes.changes.len()));
                machine.applied(*changes, &Outcome::SUCCESS)?;
            }
        }
    }
}

#[test]
fn a_refresh_by_what_is_there_ends_with_what_is_not() {
    let mut machine = Machine::new(1, false, None);
    tell(&mut machine, &entry(EntryState::Add, UUIDS[0], None)).unwrap();
    assert_eq!(settle(&mut machine, &[]).unwrap(), ["apply 1 -", "name 1"]);
    let mut uuids = SyncUuidsBuf::default();
    uuids.push(UUIDS[1]);
    let set = SyncInfo::IdSet {
        cookie: None,
        refresh_deletes: false,
        uuids: uuids.view(),
    };
    tell(&mut machine, &info(&set)).unwrap();
    let present = SyncInfo::RefreshPresent {
        cookie: Some(b"one"),
        done: true,
    };
    tell(&mut machine, &info(&present)).unwrap();
    assert_eq!(machine.stage(), Stage::Persist);
    let done = settle(&mut machine, &UUIDS[2..]).unwrap();
    assert_eq!(done, ["name 1", "find others", "apply 2 one"]);
    // From then on each change comes with its cookie, and those that come together are one bundle.
    tell(
        &mut machine,
        &entry(EntryState::Modify, UUIDS[0], Some(b"two")),
    )
    .unwrap();
    assert!(matches!(machine.next(true), Ok(Step::Receive)));
    tell(
        &mut machine,
        &entry(EntryState::Delete, UUIDS[1], Some(b"three")),
    )
    .unwrap();
    assert_eq!(settle(&mut machine, &[]).unwrap(), ["apply 2 three"]);
    tell(&mut machine, &info(&SyncInfo::NewCookie(b"four"))).unwrap();
    assert_eq!(settle(&mut machine, &[]).unwrap(), ["apply 0 four"]);
}

#[test]
fn a_refresh_by_what_has_gone_looks_for_nothing_else() {
    let mut machine = Machine::new(1, false, None);
    tell(&mut machine, &entry(EntryState::Delete, UUIDS[0], None)).unwrap();
    let done = SyncDone {
        cookie: Some(b"one"),
        refresh_deletes: true,
    };
    tell(&mut machine, &end(ResultCode::Success, Some(done))).unwrap();
    assert_eq!(
        settle(&mut machine, &UUIDS).unwrap(),
        ["apply 1 one", "end"]
    );
}

#[test]
fn a_cookie_of_one_change_keeps_what_the_others_have_made() {
    const BEFORE: &str = "rid=001,sid=001,csn=20261124100000.000000Z#000000#001#000000;\
                          20261124100001.000000Z#000000#002#000000";
    let csn =
        |second: u32, sid: u32| format!("202611241000{second:02}.000000Z#000000#{sid:03x}#000000");
    let mut machine = Machine::new(1, true, Some(BEFORE.as_bytes()));
    let done = SyncInfo::RefreshDelete {
        cookie: None,
        done: true,
    };
    tell(&mut machine, &info(&done)).unwrap();
    let cookie = format!("rid=001,sid=001,csn={}", csn(9, 1));
    let gone = entry(EntryState::Delete, UUIDS[0], Some(cookie.as_bytes()));
    tell(&mut machine, &gone).unwrap();
    let Ok(Step::Apply(bundle)) = machine.next(false) else {
        panic!("no bundle")
    };
    // The delete has the number that it was made with, and goes on to others with that.
    let [ReplicatedChange::Gone { csn: told, .. }] = &bundle.changes[..] else {
        panic!("{bundle:?}")
    };
    assert_eq!(told.map(|told| told.to_string()), Some(csn(9, 1)));
    let position = bundle.position.clone().unwrap();
    let both = format!("rid=001,sid=001,csn={};{}", csn(9, 1), csn(1, 2));
    assert_eq!(position.cookie.as_deref(), Some(both.as_bytes()));
    let complete: Vec<String> = position
        .complete
        .iter()
        .map(|csn| csn.to_string())
        .collect();
    assert_eq!(complete, [csn(9, 1), csn(1, 2)]);
    machine.applied(*bundle, &Outcome::SUCCESS).unwrap();
    // One that comes late, of a server that has told more, takes nothing back.
    let late = format!("rid=001,sid=002,csn={};{}", csn(5, 1), csn(7, 2));
    tell(&mut machine, &info(&SyncInfo::NewCookie(late.as_bytes()))).unwrap();
    let joined = format!("apply 0 rid=001,sid=002,csn={};{}", csn(9, 1), csn(7, 2));
    assert_eq!(settle(&mut machine, &[]).unwrap(), [joined]);
    // A number of several says of no delete when it was made, and begun anew nothing is kept.
    assert_eq!(of_one_change(both.as_bytes()), None);
    let mut anew = Machine::new(1, true, None);
    tell(&mut anew, &info(&done)).unwrap();
    tell(&mut anew, &info(&SyncInfo::NewCookie(cookie.as_bytes()))).unwrap();
    assert_eq!(
        settle(&mut anew, &[]).unwrap(),
        [format!("apply 0 {cookie}")]
    );
}

#[test]
fn what_is_weighed_waits_for_the_cookie() {
    let mut machine = Machine::new(1, true, None).weighed(Resolution::Entry);
    // Without a number, it waits for what the provider has.
    tell(&mut machine, &entry(EntryState::Delete, UUIDS[3], None)).unwrap();
    for uuid in &UUIDS[..2] {
        tell(&mut machine, &entry(EntryState::Add, *uuid, None)).unwrap();
    }
    let Ok(Step::Apply(first)) = machine.next(false) else {
        panic!("no bundle")
    };
    let peer = first.peer.clone().unwrap();
    assert!(first.changes.len() == 2 && !peer.is_all && peer.parked.is_empty());
    let mut waits = Outcome::new(ResultCode::NoSuchObject, "");
    waits.settlement = Some(Box::new(Settlement {
        waiting: vec![1],
        ..Settlement::default()
    }));
    machine.applied(*first, &waits).unwrap();
    assert_eq!(settle(&mut machine, &[]).unwrap(), ["apply 1 -", "name 1"]);
    // slapd ends what begins anew like this; what it has named besides waits here, and is not missing.
    let mut uuids = SyncUuidsBuf::default();
    uuids.push(UUIDS[1]);
    let set = SyncInfo::IdSet {
        cookie: None,
        refresh_deletes: false,
        uuids: uuids.view(),
    };
    tell(&mut machine, &info(&set)).unwrap();
    let cookie = "rid=001,sid=002,csn=20261124100009.000000Z#000000#002#000000";
    let done = SyncInfo::RefreshDelete {
        cookie: Some(cookie.as_bytes()),
        done: true,
    };
    tell(&mut machine, &info(&done)).unwrap();
    assert!(matches!(machine.next(false), Ok(Step::Name(names)) if names.is_empty()));
    machine.named(0);
    assert!(matches!(machine.next(false), Ok(Step::FindOthers)));
    assert_eq!(machine.provider_has().len(), 1);
    // What waits was told; the other has gone.
    machine.not_named(vec![(UUIDS[1], None), (UUIDS[2], None)]);
    let Ok(Step::Apply(last)) = machine.next(false) else {
        panic!("no bundle")
    };
    let told: Vec<_> = last.changes.iter().map(ReplicatedChange::uuid).collect();
    assert_eq!(told, [UUIDS[1], UUIDS[3], UUIDS[2]]);
    let peer = last.peer.clone().unwrap();
    assert!(peer.is_all && peer.has.len() == 1 && peer.had.is_empty());
    let position = last.position.as_ref().unwrap();
    assert_eq!(position.cookie.as_deref(), Some(cookie.as_bytes()));
    machine.applied(*last, &Outcome::SUCCESS).unwrap();
    // A later change alone waits for its cookie, and in vain behind that.
    let later = cookie.replace("09.", "10.");
    let told = entry(EntryState::Modify, UUIDS[0], None);
    tell(&mut machine, &told).unwrap();
    let Ok(Step::Apply(change)) = machine.next(false) else {
        panic!("no bundle")
    };
    let mut waits = waits.clone();
    waits.settlement.as_mut().unwrap().waiting = vec![0];
    machine.applied(*change, &waits).unwrap();
    assert!(matches!(machine.next(false), Ok(Step::Receive)));
    tell(&mut machine, &info(&SyncInfo::NewCookie(later.as_bytes()))).unwrap();
    let Ok(Step::Apply(change)) = machine.next(false) else {
        panic!("no bundle")
    };
    assert!(change.peer.as_ref().unwrap().is_all && change.position.is_some());
    assert!(machine.applied(*change, &waits).is_err());
}

#[test]
fn what_is_named_and_not_here_has_all_told_anew() {
    let mut machine = Machine::new(1, false, None);
    tell(&mut machine, &entry(EntryState::Present, UUIDS[0], None)).unwrap();
    let done = SyncDone {
        cookie: Some(b"one"),
        refresh_deletes: false,
    };
    tell(&mut machine, &end(ResultCode::Success, Some(done))).unwrap();
    assert!(matches!(machine.next(false), Ok(Step::Name(_))));
    machine.named(1);
    assert!(matches!(machine.next(false), Err(Trouble::StartOver(_))));
    let required = end(ResultCode::SyncRefreshRequired, None);
    let told = tell(&mut Machine::new(1, false, None), &required);
    assert!(matches!(told, Err(Trouble::StartOver(_))));
}

#[test]
fn what_waits_is_kept_and_no_cookie_is_written_meanwhile() {
    let mut machine = Machine::new(1, false, None);
    let waits = |at: u32| {
        let mut outcome = Outcome::new(ResultCode::NoSuchObject, "");
        outcome.settlement = Some(Box::new(Settlement {
            waiting: vec![at],
            ..Settlement::default()
        }));
        outcome
    };
    for uuid in &UUIDS[..2] {
        tell(&mut machine, &entry(EntryState::Add, *uuid, None)).unwrap();
    }
    let Ok(Step::Apply(both)) = machine.next(false) else {
        panic!("no bundle")
    };
    machine.applied(*both, &waits(0)).unwrap();
    // The other one by itself, and the first again with the next.
    assert_eq!(settle(&mut machine, &[]).unwrap(), ["apply 1 -", "name 1"]);
    tell(&mut machine, &entry(EntryState::Add, UUIDS[2], None)).unwrap();
    let Ok(Step::Apply(next)) = machine.next(false) else {
        panic!("no bundle")
    };
    let told: Vec<_> = next.changes.iter().map(ReplicatedChange::uuid).collect();
    assert_eq!(told, [UUIDS[0], UUIDS[2]]);
    machine.applied(*next, &waits(0)).unwrap();
    assert_eq!(settle(&mut machine, &[]).unwrap(), ["apply 1 -", "name 1"]);
    let done = SyncInfo::RefreshDelete {
        cookie: Some(b"one"),
        done: true,
    };
    tell(&mut machine, &info(&done)).unwrap();
    let Err(Trouble::Failed(why)) = settle(&mut machine, &[]) else {
        panic!("a cookie was written")
    };
    assert!(why.contains("cn=1,o=x"), "{why}");
}
