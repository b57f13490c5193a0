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
//!
//! Where both servers take updates, changes are weighed by what the provider has, which it says with its cookie. What
//! it says to have gone without a number waits for that, and so does what follows from more than one change.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use sapwood_directory::{
    AgreementPosition, Outcome, Peer, Replicated, ReplicatedChange, Settlement, read_registers,
};
use sapwood_ldap::controls::{Controls, EntryState, SYNC_DONE, SYNC_STATE, SyncDone, SyncState};
use sapwood_ldap::csn::Csn;
use sapwood_ldap::list::{Attributes, AttributesBuf, OctetStrings};
use sapwood_ldap::message::{Frame, Response, ResponseMessage, frame};
use sapwood_ldap::result::{LdapResult, ResultCode};
use sapwood_ldap::sync_info::{SYNC_INFO, SyncInfo};
use sapwood_replication::{COOKIE_BYTES_MAX, Cookie, EntryRegisters, Resolution, Vector};

/// Changes of a bundle, and about how many bytes they take: nobody else's update goes on while it is applied. A single
/// entry may be longer.
const BUNDLE_CHANGES_MAX: usize = 512;
const BUNDLE_BYTES_MAX: usize = 4 << 20;
/// entryUUIDs that are noted together.
const NAMES_MAX: usize = 1024;
/// Changes that wait for others, and their bytes.
const PARKED_MAX: usize = 100_000;
const PARKED_BYTES_MAX: usize = 64 << 20;
/// Entries that have gone without a number, which wait for the cookie.
const GONE_MAX: usize = 4_000_000;

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
    /// Whether both servers take updates.
    is_weighed: bool,
    /// Whether both keep values apart.
    keeps_values_apart: bool,
    /// Whether the provider tells all that it has, as it was not told what is here.
    begins_anew: bool,
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
    /// The same by those cookies whose changes are made.
    had: Vector,
    /// Entries that were named and are not noted yet.
    names: Vec<[u8; 16]>,
    /// Entries that were named and are not here.
    lacking: usize,
    /// Whether those that were not named have gone.
    others_have_gone: bool,
    /// Those that have gone so, with the number of the delete if it is to have one.
    gone: VecDeque<([u8; 16], Option<Csn>)>,
}

impl Machine {
    /// One of an agreement with this number that goes on from a cookie, if it has one; `is_whole` says whether whole
    /// naming contexts are copied.
    pub fn new(rid: u16, is_whole: bool, cookie: Option<&[u8]>) -> Machine {
        let had = cookie.and_then(|cookie| Cookie::parse(cookie).ok());
        let had = had.map(|had| had.vector).unwrap_or_default();
        Machine {
            rid,
            is_whole,
            is_weighed: false,
            keeps_values_apart: false,
            begins_anew: cookie.is_none(),
            stage: Stage::Refresh,
            changes: Vec::new(),
            bytes: 0,
            parked: Vec::new(),
            are_held: false,
            cookie: None,
            has: had.clone(),
            had,
            names: Vec::new(),
            lacking: 0,
            others_have_gone: false,
            gone: VecDeque::new(),
        }
    }

    /// The same for two servers that both take updates.
    #[must_use]
    pub fn weighed(mut self, resolution: Resolution) -> Machine {
        self.is_weighed = true;
        self.keeps_values_apart = resolution == Resolution::Values;
        self
    }

    /// The numbers of an entry's registers, as the provider has told them. Servers that go by different rules never
    /// become equal, so they do not begin.
    fn registers(&self, told: Option<&[u8]>) -> Result<Option<Box<EntryRegisters>>, Trouble> {
        let why = match (told, self.keeps_values_apart) {
            (None, false) => return Ok(None),
            (Some(_), false) if !self.is_weighed => return Ok(None),
            (Some(told), true) => match read_registers(told) {
                Some(registers) => return Ok(Some(Box::new(registers))),
                None => "what the provider sends is malformed: entryRegisters",
            },
            (None, true) => {
                "the provider does not keep values apart: all servers have to say resolution=values, and be Sapwoods, \
                 and show each other all"
            }
            (Some(_), false) => {
                "the provider keeps values apart, and this server does not: all servers have to say resolution=values"
            }
        };
        Err(Trouble::Failed(why.into()))
    }

    /// Up to which changes the provider has all, as far as it has told.
    pub fn provider_has(&self) -> &Vector {
        &self.has
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
                    // What slapd has deleted and keeps above others.
                    EntryState::Add | EntryState::Modify
                        if self.is_weighed && is_glue(entry.attributes) => {}
                    EntryState::Add | EntryState::Modify => {
                        let mut attributes = AttributesBuf::default();
                        let (mut parent, mut registers) = (None, None);
                        for attribute in entry.attributes {
                            match attribute.description {
                                b"parentUUID" => parent = first_uuid(attribute.values),
                                b"entryRegisters" => registers = attribute.values.iter().next(),
                                known => attributes.push(known, attribute.values),
                            }
                        }
                        let dn = entry.dn.to_owned();
                        self.push(ReplicatedChange::Entry {
                            uuid,
                            dn,
                            parent,
                            attributes,
                            registers: self.registers(registers)?,
                        });
                    }
                    EntryState::Delete => {
                        let mut own = entry.attributes.iter();
                        let own = own.find(|attribute| attribute.description == b"entryCSN");
                        let own = own
                            .and_then(|own| first_text(own.values))
                            .and_then(Csn::parse);
                        let csn = own.or_else(|| told.cookie.and_then(of_one_change));
                        let dn = entry.dn.to_owned();
                        match csn {
                            None if self.is_weighed => self.has_gone(uuid, None)?,
                            csn => self.push(ReplicatedChange::Gone { uuid, csn, dn }),
                        }
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
                        true if self.is_weighed => self.has_gone(uuid, None)?,
                        true => self.push(gone(uuid, None)),
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
            // slapd ends a refresh that begins anew as one that has told what has gone.
            self.others_have_gone |= self.is_weighed && self.begins_anew;
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
        let tells_all = !done.refresh_deletes || self.is_weighed && self.begins_anew;
        self.others_have_gone |= before == Stage::Refresh && tells_all;
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

    /// Notes that an entry has gone, for when the cookie has come.
    fn has_gone(&mut self, uuid: [u8; 16], csn: Option<Csn>) -> Result<(), Trouble> {
        if self.gone.len() >= GONE_MAX {
            let why = "the provider tells of too many entries that have gone";
            return Err(Trouble::Failed(why.into()));
        }
        self.gone.push_back((uuid, csn));
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
            // slapd names what it is about to tell, too: what waits is not here yet.
            let mut names = std::mem::take(&mut self.names);
            if !self.parked.is_empty() {
                let parked = self.parked_entries();
                names.retain(|uuid| !parked.contains(uuid));
            }
            return Ok(Step::Name(names));
        }
        if self.others_have_gone {
            if self.lacking > 0 {
                let lacking = self.lacking;
                let why =
                    format!("{lacking} entries are missing that the provider takes for known");
                return Err(Trouble::StartOver(why));
            }
            if !self.is_weighed {
                self.require_all_placed()?;
            }
            self.others_have_gone = false;
            return Ok(Step::FindOthers);
        }
        // Those that were not named are found when the refresh is over.
        let is_told = !self.is_weighed || self.stage != Stage::Refresh && self.cookie.is_some();
        if !self.gone.is_empty() && is_told {
            let count = self.gone.len().min(BUNDLE_CHANGES_MAX);
            let some: Vec<_> = self.gone.drain(..count).collect();
            for (uuid, csn) in some {
                self.push(gone(uuid, csn));
            }
            return Ok(self.bundle());
        }
        if self.cookie.is_some() && (!more_at_hand || self.stage == Stage::Over) {
            // What waits still is decided with the cookie, where it is weighed.
            if !self.is_weighed {
                self.require_all_placed()?;
            }
            if self.stage != Stage::Refresh || !self.is_weighed {
                return Ok(self.bundle());
            }
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
            && self.stage != Stage::Refresh;
        let is_told = is_all && self.cookie.is_some();
        let cookie = self.cookie.take_if(|_| is_all && self.parked.is_empty());
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
        let peer = self.is_weighed.then(|| Peer {
            has: self.has.clone(),
            had: self.had.clone(),
            is_all: is_told,
            parked: self.parked.iter().map(ReplicatedChange::uuid).collect(),
        });
        Step::Apply(Box::new(Replicated {
            changes,
            position,
            peer,
        }))
    }

    /// Takes what came of changes.
    ///
    /// # Errors
    /// When they cannot be made here.
    pub fn applied(&mut self, changes: Replicated, outcome: &Outcome) -> Result<(), Trouble> {
        let Replicated {
            changes, position, ..
        } = changes;
        if outcome.code == ResultCode::Success {
            if position.is_some() {
                self.had.clone_from(&self.has);
            }
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
        let was_all = position.is_some();
        if let Some(position) = position
            && self.cookie.is_none()
        {
            self.cookie = position.cookie;
        }
        self.are_held = !self.changes.is_empty();
        // Alone they would wait for ever. Where they are weighed, they wait for the cookie.
        let waits_in_vain = self.stage != Stage::Refresh && (was_all || !self.is_weighed);
        if self.changes.is_empty() && waits_in_vain {
            return self.require_all_placed();
        }
        Ok(())
    }

    /// Takes how many of the entries that were named are not here.
    pub fn named(&mut self, lacking: usize) {
        self.lacking += lacking;
    }

    fn parked_entries(&self) -> HashSet<[u8; 16]> {
        self.parked.iter().map(ReplicatedChange::uuid).collect()
    }

    /// Takes the entries that were not named, those that lie deepest first, with what their deletes count as.
    pub fn not_named(&mut self, others: Vec<([u8; 16], Option<Csn>)>) {
        // Those that wait were told.
        let told = self.parked_entries();
        let others = others.into_iter().filter(|(uuid, _)| !told.contains(uuid));
        self.gone.extend(others);
    }
}

fn gone(uuid: [u8; 16], csn: Option<Csn>) -> ReplicatedChange {
    ReplicatedChange::Gone {
        uuid,
        csn,
        dn: String::new(),
    }
}

fn first_text<'a>(values: OctetStrings<'a>) -> Option<&'a str> {
    std::str::from_utf8(values.iter().next()?).ok()
}

fn is_glue(attributes: Attributes<'_>) -> bool {
    let mut classes = attributes.iter().filter(|attribute| {
        let description = attribute.description;
        description.eq_ignore_ascii_case(b"structuralObjectClass")
    });
    classes.any(|class| first_text(class.values) == Some("glue"))
}

/// An entryUUID (RFC 4530).
fn first_uuid(values: OctetStrings<'_>) -> Option<[u8; 16]> {
    let digits = first_text(values)?.replace('-', "");
    let is_uuid = digits.len() == 32;
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_uuid);
    number.map(u128::to_be_bytes)
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
/// target. Every other length is of servers that both take updates.
pub fn use_messages(bytes: &[u8]) {
    let mut machine = Machine::new(1, true, None);
    if !bytes.len().is_multiple_of(2) {
        machine = machine.weighed(Resolution::Entry);
    }
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
                Ok(Step::FindOthers) => machine.not_named(vec![([1; 16], None), ([2; 16], None)]),
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
mod tests;
