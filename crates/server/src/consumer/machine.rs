//! What a consumer makes of what its provider tells (RFC 4533), without a network, a clock or a directory: messages
//! come in, and steps come out, each of which is done before the next is asked for.
//!
//! Changes are gathered in bundles. Each is one commit, and the cookie that the provider gives for what has come so far
//! is written with the last of them: not before all of it is there. So whatever fails, the provider tells from the
//! cookie on what may be missing, and what is there already changes nothing.
//!
//! A cookie that comes with a change of a slapd has the number of that change alone, whichever of several servers has
//! made it: the numbers of the other servers stay what they were. Without them the provider would tell everything anew.
//!
//! A change that waits for another one, such as an entry for the one above it, is kept for the bundles that follow. As
//! long as one is kept no cookie is written.

use std::collections::VecDeque;
use std::fmt;

use sapwood_directory::{AgreementPosition, Outcome, Replicated, ReplicatedChange, Settlement};
use sapwood_ldap::controls::{Controls, EntryState, SYNC_DONE, SYNC_STATE, SyncDone, SyncState};
use sapwood_ldap::csn::Csn;
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::message::{Frame, Response, ResponseMessage, frame};
use sapwood_ldap::result::{LdapResult, ResultCode};
use sapwood_ldap::sync_info::{SYNC_INFO, SyncInfo};
use sapwood_replication::{COOKIE_BYTES_MAX, Cookie, Vector};

/// Changes of a bundle, and about how many bytes they take: nobody else's update goes on while it is applied. A single
/// entry may be longer.
const BUNDLE_CHANGES_MAX: usize = 512;
const BUNDLE_BYTES_MAX: usize = 4 << 20;
/// entryUUIDs that are noted together.
const NAMES_MAX: usize = 1024;
/// Changes that wait for others, and their bytes.
const PARKED_MAX: usize = 100_000;
const PARKED_BYTES_MAX: usize = 64 << 20;

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Wait for a message, and [take](Machine::take) it.
    Receive,
    /// Apply these changes, and tell [what came of it](Machine::applied).
    Apply(Box<Replicated>),
    /// Note that these entries were named, and tell [how many are not here](Machine::named).
    Name(Vec<[u8; 16]>),
    /// Find the entries that were not named, and tell [which these are](Machine::not_named).
    FindOthers,
    /// The provider has told everything, and has nothing more to say.
    End,
}

/// Why it does not go on. To be tried again later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What is here does not fit to what the provider tells: it is to tell everything anew.
    StartOver(String),
    /// Something else.
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::StartOver(why) | Trouble::Failed(why) => f.write_str(why),
        }
    }
}

/// How far the search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The provider tells what the consumer lacks.
    Refresh,
    /// It tells what changes.
    Persist,
    /// The search has ended.
    Over,
}

/// One search of a consumer.
#[derive(Debug)]
pub struct Machine {
    rid: u16,
    /// Whether whole naming contexts are copied.
    is_whole: bool,
    stage: Stage,
    changes: Vec<ReplicatedChange>,
    bytes: usize,
    /// Those that wait for others, in the order in which they came.
    parked: Vec<ReplicatedChange>,
    /// Whether those are left out of the next bundle, as they could not be made with its changes just now.
    are_held: bool,
    /// What the provider has given for all that has come.
    cookie: Option<Vec<u8>>,
    /// Up to which change of each server all has come, by all cookies together.
    has: Vector,
    /// Entries that were named and are not noted yet.
    names: Vec<[u8; 16]>,
    /// Entries that were named and are not here.
    lacking: usize,
    /// Whether those that were not named have gone.
    others_have_gone: bool,
    /// Those that have gone so.
    gone: VecDeque<[u8; 16]>,
}

impl Machine {
    /// One of an agreement with this number that goes on from a cookie, if it has one; `is_whole` says whether whole
    /// naming contexts are copied.
    pub fn new(rid: u16, is_whole: bool, cookie: Option<&[u8]>) -> Machine {
        let had = cookie.and_then(|cookie| Cookie::parse(cookie).ok());
        Machine {
            rid,
            is_whole,
            stage: Stage::Refresh,
            changes: Vec::new(),
            bytes: 0,
            parked: Vec::new(),
            are_held: false,
            cookie: None,
            has: had.map(|had| had.vector).unwrap_or_default(),
            names: Vec::new(),
            lacking: 0,
            others_have_gone: false,
            gone: VecDeque::new(),
        }
    }

    /// How far the search has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Takes a message of the search.
    ///
    /// # Errors
    /// When the search has ended early, or the message is not what a provider sends.
    pub fn take(&mut self, message: &ResponseMessage<'_>) -> Result<(), Trouble> {
        let malformed = |error: &dyn fmt::Display| {
            Trouble::Failed(format!("what the provider sends is malformed: {error}"))
        };
        match &message.op {
            Response::SearchEntry(entry) => {
                let Some(value) = value(message.controls, SYNC_STATE) else {
                    let why = "the provider does not say which entry it sends: it does not synchronise (RFC 4533)";
                    return Err(Trouble::Failed(why.into()));
                };
                let told = SyncState::decode(value).map_err(|error| malformed(&error))?;
                let uuid = told.entry_uuid;
                match told.state {
                    EntryState::Present => self.names.push(uuid),
                    EntryState::Add | EntryState::Modify => {
                        let mut attributes = AttributesBuf::default();
                        for attribute in entry.attributes {
                            attributes.push(attribute.description, attribute.values);
                        }
                        let dn = entry.dn.to_owned();
                        self.push(ReplicatedChange::Entry {
                            uuid,
                            dn,
                            attributes,
                        });
                    }
                    EntryState::Delete => {
                        let csn = told.cookie.and_then(of_one_change);
                        self.push(ReplicatedChange::Gone { uuid, csn });
                    }
                }
                // In a refresh the cookie comes at its end.
                match self.stage {
                    Stage::Persist => self.set_cookie(told.cookie),
                    _ => Ok(()),
                }
            }
            Response::Intermediate(info) if info.name == Some(SYNC_INFO) => {
                let info = SyncInfo::decode(info.value.unwrap_or_default());
                self.take_info(&info.map_err(|error| malformed(&error))?)
            }
            Response::SearchDone(result) => {
                let done = value(message.controls, SYNC_DONE).map(SyncDone::decode);
                let done = done.transpose().map_err(|error| malformed(&error))?;
                self.take_end(result, done)
            }
            _ => Ok(()),
        }
    }

    fn take_info(&mut self, info: &SyncInfo<'_>) -> Result<(), Trouble> {
        match *info {
            SyncInfo::NewCookie(cookie) => match self.stage {
                Stage::Persist => self.set_cookie(Some(cookie)),
                _ => Ok(()),
            },
            SyncInfo::RefreshDelete { cookie, done } => self.end_phase(cookie, done),
            SyncInfo::RefreshPresent { cookie, done } => {
                self.others_have_gone |= self.stage == Stage::Refresh;
                self.end_phase(cookie, done)
            }
            SyncInfo::IdSet {
                cookie,
                refresh_deletes,
                uuids,
            } => {
                for uuid in uuids.iter() {
                    match refresh_deletes {
                        true => self.push(ReplicatedChange::Gone { uuid, csn: None }),
                        false => self.names.push(uuid),
                    }
                }
                match self.stage {
                    Stage::Persist => self.set_cookie(cookie),
                    _ => Ok(()),
                }
            }
        }
    }

    fn end_phase(&mut self, cookie: Option<&[u8]>, is_done: bool) -> Result<(), Trouble> {
        if is_done && self.stage == Stage::Refresh {
            self.stage = Stage::Persist;
        }
        self.set_cookie(cookie)
    }

    fn take_end(
        &mut self,
        result: &LdapResult<'_>,
        done: Option<SyncDone<'_>>,
    ) -> Result<(), Trouble> {
        let before = std::mem::replace(&mut self.stage, Stage::Over);
        match result.code {
            ResultCode::Success => {}
            ResultCode::SyncRefreshRequired => {
                let why = format!("the provider asks to begin anew: {}", result.diagnostic);
                return Err(match before {
                    // While it told what changes the cookie was good: what it may show has changed.
                    Stage::Persist => Trouble::Failed(why),
                    _ => Trouble::StartOver(why),
                });
            }
            ResultCode::NoSuchObject => {
                let why =
                    "the provider does not have (or does not show) the entry that copies begin at";
                return Err(Trouble::Failed(why.into()));
            }
            code => {
                let why = format!("the provider has ended the search: {code}");
                let diagnostic = match result.diagnostic {
                    "" => String::new(),
                    diagnostic => format!(" ({diagnostic})"),
                };
                return Err(Trouble::Failed(why + &diagnostic));
            }
        }
        let Some(done) = done else {
            return match before {
                Stage::Refresh => Err(Trouble::Failed(
                    "the search has ended without what a synchronisation ends with (RFC 4533)"
                        .into(),
                )),
                _ => Ok(()),
            };
        };
        self.others_have_gone |= before == Stage::Refresh && !done.refresh_deletes;
        self.set_cookie(done.cookie)
    }

    fn set_cookie(&mut self, cookie: Option<&[u8]>) -> Result<(), Trouble> {
        let Some(cookie) = cookie else {
            return Ok(());
        };
        if cookie.len() > COOKIE_BYTES_MAX {
            let why = "the provider's cookie is too long to be kept";
            return Err(Trouble::Failed(why.into()));
        }
        self.cookie = Some(match Cookie::parse(cookie) {
            Ok(mut read) => {
                let before = read.vector.clone();
                self.has.join(&before);
                read.vector = self.has.clone();
                match read.vector == before {
                    true => cookie.to_vec(),
                    false => read.to_string().into_bytes(),
                }
            }
            // Whatever it means to a server of another kind.
            Err(_) => cookie.to_vec(),
        });
        Ok(())
    }

    fn push(&mut self, change: ReplicatedChange) {
        self.bytes += change.bytes();
        self.changes.push(change);
    }

    /// What is to be done next; `more_at_hand` says whether a message has come that was not taken yet.
    ///
    /// # Errors
    /// When what was told does not go together.
    pub fn next(&mut self, more_at_hand: bool) -> Result<Step, Trouble> {
        let is_full = self.changes.len() >= BUNDLE_CHANGES_MAX || self.bytes >= BUNDLE_BYTES_MAX;
        let is_due = self.others_have_gone || self.stage == Stage::Over || !more_at_hand;
        if is_full || is_due && !self.changes.is_empty() {
            return Ok(self.bundle());
        }
        if self.names.len() >= NAMES_MAX || is_due && !self.names.is_empty() {
            return Ok(Step::Name(std::mem::take(&mut self.names)));
        }
        if self.others_have_gone {
            if self.lacking > 0 {
                let lacking = self.lacking;
                let why =
                    format!("{lacking} entries are missing that the provider takes for known");
                return Err(Trouble::StartOver(why));
            }
            self.require_all_placed()?;
            self.others_have_gone = false;
            return Ok(Step::FindOthers);
        }
        if !self.gone.is_empty() {
            let count = self.gone.len().min(BUNDLE_CHANGES_MAX);
            let gone: Vec<[u8; 16]> = self.gone.drain(..count).collect();
            for uuid in gone {
                self.push(ReplicatedChange::Gone { uuid, csn: None });
            }
            return Ok(self.bundle());
        }
        if self.cookie.is_some() && (!more_at_hand || self.stage == Stage::Over) {
            self.require_all_placed()?;
            return Ok(self.bundle());
        }
        match self.stage {
            Stage::Over => {
                self.require_all_placed()?;
                Ok(Step::End)
            }
            _ => Ok(Step::Receive),
        }
    }

    /// Refuses to go on as if all was well while changes wait for what has not come.
    fn require_all_placed(&self) -> Result<(), Trouble> {
        let Some(first) = self.parked.first() else {
            return Ok(());
        };
        let why = match first {
            ReplicatedChange::Entry { dn, .. } => {
                format!("the provider tells of '{dn}', and not of what is above it")
            }
            ReplicatedChange::Gone { .. } => {
                "the provider says that an entry has gone, and not what has become of those below it".into()
            }
        };
        Err(Trouble::Failed(why))
    }

    /// All that was gathered, with the cookie for it if nothing is missing.
    fn bundle(&mut self) -> Step {
        let mut changes = match std::mem::take(&mut self.are_held) {
            true => Vec::new(),
            false => std::mem::take(&mut self.parked),
        };
        changes.append(&mut self.changes);
        self.bytes = 0;
        let is_all = !self.others_have_gone
            && self.gone.is_empty()
            && self.names.is_empty()
            && self.parked.is_empty();
        let cookie = self
            .cookie
            .take_if(|_| is_all && self.stage != Stage::Refresh);
        let position = cookie.map(|cookie| {
            let read = match self.is_whole {
                true => Cookie::parse(&cookie).ok(),
                false => None,
            };
            AgreementPosition {
                rid: self.rid,
                complete: read.map(|read| read.vector).unwrap_or_default(),
                cookie: Some(cookie),
            }
        });
        Step::Apply(Box::new(Replicated { changes, position }))
    }

    /// Takes what came of changes.
    ///
    /// # Errors
    /// When they cannot be made here.
    pub fn applied(&mut self, changes: Replicated, outcome: &Outcome) -> Result<(), Trouble> {
        let Replicated { changes, position } = changes;
        if outcome.code == ResultCode::Success {
            if self.stage == Stage::Refresh || self.others_have_gone {
                let told = changes.iter().filter_map(|change| match change {
                    ReplicatedChange::Entry { uuid, .. } => Some(*uuid),
                    ReplicatedChange::Gone { .. } => None,
                });
                self.names.extend(told);
            }
            return Ok(());
        }
        let waiting = outcome.settlement.as_ref();
        let waiting = waiting.map_or(&[][..], |settlement| &settlement.waiting);
        if waiting.is_empty() {
            return Err(Trouble::Failed(outcome.diagnostic.clone()));
        }
        // The others are made now, as if these had not come yet.
        let mut waiting = waiting.iter().map(|at| *at as usize).peekable();
        let mut parked_bytes = 0;
        for (at, change) in changes.into_iter().enumerate() {
            match waiting.next_if_eq(&at) {
                Some(_) => {
                    parked_bytes += change.bytes();
                    self.parked.push(change);
                }
                None => self.push(change),
            }
        }
        if self.parked.len() > PARKED_MAX || parked_bytes > PARKED_BYTES_MAX {
            let why = "too many entries came before those above them";
            return Err(Trouble::Failed(why.into()));
        }
        if let Some(position) = position
            && self.cookie.is_none()
        {
            self.cookie = position.cookie;
        }
        self.are_held = !self.changes.is_empty();
        // Alone they would wait for ever.
        if self.changes.is_empty() && self.stage != Stage::Refresh {
            return self.require_all_placed();
        }
        Ok(())
    }

    /// Takes how many of the entries that were named are not here.
    pub fn named(&mut self, lacking: usize) {
        self.lacking += lacking;
    }

    /// Takes the entries that were not named, those that lie deepest first.
    pub fn not_named(&mut self, others: Vec<[u8; 16]>) {
        self.gone = others.into();
    }
}

/// The number of the change that a cookie comes with, if it is slapd's for a single one.
fn of_one_change(cookie: &[u8]) -> Option<Csn> {
    let Cookie {
        vector, position, ..
    } = Cookie::parse(cookie).ok()?;
    let is_one = vector.len() == 1 && position.is_none();
    vector.iter().next().filter(|_| is_one)
}

/// The value of a control.
fn value<'a>(controls: Controls<'a>, oid: &str) -> Option<&'a [u8]> {
    controls.find(oid)?.value
}

/// Takes messages, one behind the other, as a consumer does whose directory makes every third bundle wait: for the fuzz
/// target.
pub fn use_messages(bytes: &[u8]) {
    let mut machine = Machine::new(1, true, None);
    let (mut rest, mut bundles) = (bytes, 0_u32);
    while let Ok(Frame::Complete(length)) = frame(rest, bytes.len()) {
        let (message, behind) = rest.split_at(length);
        rest = behind;
        let Ok(message) = ResponseMessage::decode(message) else {
            continue;
        };
        if machine.take(&message).is_err() {
            return;
        }
        // Each step leaves less to be done.
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 100_000, "it does not come to an end");
            match machine.next(steps % 2 == 1) {
                Err(_) | Ok(Step::End) => return,
                Ok(Step::Receive) if steps % 2 == 0 => break,
                Ok(Step::Receive) => {}
                Ok(Step::Name(_)) => machine.named(0),
                Ok(Step::FindOthers) => machine.not_named(vec![[1; 16], [2; 16]]),
                Ok(Step::Apply(changes)) => {
                    bundles += 1;
                    let mut outcome = Outcome::SUCCESS;
                    if bundles.is_multiple_of(3) && !changes.changes.is_empty() {
                        outcome = Outcome::new(ResultCode::NoSuchObject, "");
                        outcome.settlement = Some(Box::new(Settlement {
                            waiting: vec![0],
                            ..Settlement::default()
                        }));
                    }
                    if machine.applied(*changes, &outcome).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
                    machine.not_named(others.to_vec());
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
        let csn = |second: u32, sid: u32| {
            format!("202611241000{second:02}.000000Z#000000#{sid:03x}#000000")
        };
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
}
