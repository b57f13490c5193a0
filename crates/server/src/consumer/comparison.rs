//! Compares a copy with what its provider has. Another Sapwood answers with digests (`search/digests.rs` of the
//! directory): both sides make the sums of their buckets at the same time, and only buckets that differ are looked at
//! entry by entry. Other providers tell entryUUID and entryCSN of all their entries.
//!
//! A copy that follows is always a little behind. So what differs is looked at again, after the copy has got all that
//! the provider had the time before: what differs then, and has not changed there meanwhile, does so for good.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use sapwood_client::Connection;
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Agreement, Budget, Digests, Directory, Requester, SearchOptions, Step, Wire,
};
use sapwood_ldap::controls::{
    BUCKETS, Buckets, BucketsBuf, CONTENT_DIGESTS, ContentDigests, ContentDigestsAnswer, Control,
    Controls, ControlsBuf, DIGEST_KEY_BYTES, MANAGE_DSA_IT, SYNC_REQUEST, SYNC_STATE, SyncMode,
    SyncRequest, SyncState,
};
use sapwood_ldap::csn::Csn;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    Frame, Message, Request, Response, ResponseMessage, Scope, SearchRequest, frame,
};
use sapwood_ldap::result::{LdapResult, ResultCode};
use sapwood_ldap::sync_info::SYNC_INFO;
use sapwood_replication::{Cookie, Vector};
use tokio::time::timeout;

use super::lag::{Lag, lags};
use super::link::connect;
use crate::password;

/// How long a copy is waited for that is behind.
const CATCH_UP: Duration = Duration::from_secs(10);
/// How often it is looked whether it has caught up.
const LOOK: Duration = Duration::from_millis(200);
/// Seconds that a provider may be silent: it sends nothing while it goes through its entries.
const SILENCE_SECONDS_MAX: u64 = 600;
/// Entries of this directory between two looks at the time.
const STEP_ENTRIES: u32 = 1000;
/// Bytes of messages between this directory and its reader.
const STEP_BYTES: usize = 1 << 20;
const MESSAGE_ID: u32 = 2;

/// What a comparison has found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Whether contents were compared: the provider knows digests. Otherwise these are entryUUID and entryCSN.
    pub of_contents: bool,
    /// Entries of the copy.
    pub entries: u64,
    /// What differs, by entryUUID.
    pub differences: Vec<Difference>,
}

/// An entry that is not the same here and there.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its entryUUID.
    pub uuid: [u8; 16],
    /// Its DN here or, if it is not here, there.
    pub dn: String,
    /// In which way it differs.
    pub kind: DifferenceKind,
    /// Whether the copy may have it yet: it has not got all that the provider has.
    pub is_behind: bool,
}

/// In which way an entry differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The provider does not have it.
    OnlyHere,
    /// The copy does not have it.
    OnlyThere,
    /// It has another entryCSN.
    Version {
        /// That of the copy.
        here: Option<Csn>,
        /// That of the provider.
        there: Option<Csn>,
    },
    /// It has the same entryCSN, and other values or another name.
    Content,
}

impl DifferenceKind {
    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            DifferenceKind::OnlyHere => "onlyHere",
            DifferenceKind::OnlyThere => "onlyThere",
            DifferenceKind::Version { .. } => "version",
            DifferenceKind::Content => "content",
        }
    }
}

impl fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |csn: Option<Csn>| csn.map_or("none".to_owned(), |csn| csn.to_string());
        match *self {
            DifferenceKind::OnlyHere => f.write_str("only here"),
            DifferenceKind::OnlyThere => f.write_str("only there"),
            DifferenceKind::Version { here, there } => {
                write!(f, "entryCSN {} here, {} there", text(here), text(there))
            }
            DifferenceKind::Content => f.write_str("other content"),
        }
    }
}

/// Compares the copy of an agreement with its provider. `is_followed`: a server runs here, and copies. `looked_at` is
/// told how many entries of the copy were looked at so far, with each look from the beginning.
///
/// # Errors
/// When the provider cannot be asked or refuses, or this directory cannot be read: for people.
pub fn compare<E: Engine>(
    directory: &Directory<E>,
    administrator: &str,
    agreement: &Agreement,
    is_followed: bool,
    looked_at: &mut dyn FnMut(u64),
) -> Result<Comparison, String> {
    let mut key = [0; DIGEST_KEY_BYTES];
    password::random(&mut key);
    let mut comparer = Comparer {
        directory,
        administrator,
        agreement,
        key,
        of_contents: true,
        entries: 0,
        looked_at,
    };
    let mut buckets = None;
    let mut before = comparer.look(&mut buckets)?;
    let waits = is_followed && !agreement.suspended;
    let until = Instant::now() + CATCH_UP;
    let mut differences = BTreeMap::new();
    while !before.is_empty() {
        let (is_complete, has) = comparer.catch_up(waits.then_some(until))?;
        let is_over = !waits || Instant::now() >= until;
        let mut now = comparer.look(&mut buckets)?;
        now.retain(|uuid, _| before.contains_key(uuid));
        before = std::mem::take(&mut before)
            .into_iter()
            .filter_map(|(uuid, earlier)| {
                let pair = now.remove(&uuid)?;
                let csn = pair.there.as_ref().and_then(|there| there.csn);
                let has_got = is_complete || csn.is_some_and(|csn| has.covers(csn));
                let is_settled = has_got && pair.there == earlier.there;
                if !is_settled && !is_over {
                    return Some((uuid, pair));
                }
                differences.extend(pair.difference(uuid, !is_settled).map(|one| (uuid, one)));
                None
            })
            .collect();
    }
    Ok(Comparison {
        of_contents: comparer.of_contents,
        entries: comparer.entries,
        differences: differences.into_values().collect(),
    })
}

type Uuid = [u8; 16];

/// What is known of an entry of one side.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    csn: Option<Csn>,
    /// None of a provider that knows no digests.
    digest: Option<[u8; 16]>,
    dn: String,
}

/// An entry of both sides, at least one of which has it.
struct Pair {
    here: Option<Known>,
    there: Option<Known>,
}

impl Pair {
    /// In which way it differs, if it does.
    fn kind(&self) -> Option<DifferenceKind> {
        match (&self.here, &self.there) {
            (None, None) => None,
            (Some(_), None) => Some(DifferenceKind::OnlyHere),
            (None, Some(_)) => Some(DifferenceKind::OnlyThere),
            (Some(here), Some(there)) if here.csn != there.csn => Some(DifferenceKind::Version {
                here: here.csn,
                there: there.csn,
            }),
            (Some(here), Some(there)) => {
                let differs = there.digest.is_some() && here.digest != there.digest;
                differs.then_some(DifferenceKind::Content)
            }
        }
    }

    fn difference(self, uuid: Uuid, is_behind: bool) -> Option<Difference> {
        let kind = self.kind()?;
        let known = self.here.or(self.there)?;
        Some(Difference {
            uuid,
            dn: known.dn,
            kind,
            is_behind,
        })
    }
}

/// What one side has answered.
struct Answers {
    sums: Box<[u128]>,
    entries: HashMap<Uuid, Known>,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            sums: vec![0; BUCKETS].into(),
            entries: HashMap::new(),
        }
    }
}

impl Answers {
    /// Takes a message; the result of the search with the last.
    fn take<'m>(
        &mut self,
        message: &ResponseMessage<'m>,
    ) -> Result<Option<LdapResult<'m>>, String> {
        match &message.op {
            Response::SearchDone(result) => return Ok(Some(*result)),
            Response::Intermediate(told) if told.name == Some(CONTENT_DIGESTS) => {
                let answer = ContentDigestsAnswer::decode(told.value.unwrap_or_default());
                match answer.map_err(|error| format!("digests that are none: {error}"))? {
                    ContentDigestsAnswer::Sums(sums) => {
                        for (bucket, sum) in sums.iter() {
                            if let Some(at) = self.sums.get_mut(usize::from(bucket)) {
                                *at = sum;
                            }
                        }
                    }
                    ContentDigestsAnswer::Entry(entry) => {
                        let known = Known {
                            csn: entry.csn,
                            digest: Some(entry.digest),
                            dn: entry.dn.to_owned(),
                        };
                        self.entries.insert(entry.uuid, known);
                    }
                }
            }
            Response::Intermediate(told) if told.name == Some(SYNC_INFO) => {}
            Response::SearchEntry(entry) => {
                let state = message.controls.find(SYNC_STATE);
                let state = state.and_then(|state| SyncState::decode(state.value?).ok());
                let state = state.ok_or("an entry comes without its entryUUID")?;
                let csn = entry.attributes.iter().find_map(|attribute| {
                    let is_it = attribute.description.eq_ignore_ascii_case(b"entryCSN");
                    let value = attribute.values.into_iter().next().filter(|_| is_it)?;
                    Csn::parse(std::str::from_utf8(value).ok()?)
                });
                let known = Known {
                    csn,
                    digest: None,
                    dn: entry.dn.to_owned(),
                };
                self.entries.insert(state.entry_uuid, known);
            }
            _ => {}
        }
        Ok(None)
    }
}

/// What is asked of a side.
#[derive(Clone, Copy)]
enum Question<'q> {
    Sums,
    Entries(Buckets<'q>),
    /// entryUUID and entryCSN of all entries.
    Versions,
}

/// Both sides.
struct Comparer<'c, E: Engine> {
    directory: &'c Directory<E>,
    administrator: &'c str,
    agreement: &'c Agreement,
    key: [u8; DIGEST_KEY_BYTES],
    of_contents: bool,
    entries: u64,
    looked_at: &'c mut dyn FnMut(u64),
}

impl<E: Engine> Comparer<'_, E> {
    /// What differs now, in buckets that have differed before, if it is asked again.
    fn look(&mut self, buckets: &mut Option<BucketsBuf>) -> Result<BTreeMap<Uuid, Pair>, String> {
        if self.of_contents && buckets.is_none() {
            match self.ask(Question::Sums)? {
                Some((here, there)) => {
                    let mut differ = BucketsBuf::default();
                    let sums = here.sums.iter().zip(&there.sums).zip(0..=u16::MAX);
                    let differing = sums.filter(|((here, there), _)| here != there);
                    let mut count = 0;
                    for (_, bucket) in differing {
                        differ.insert(bucket);
                        count += 1;
                    }
                    if count == 0 {
                        return Ok(BTreeMap::new());
                    }
                    *buckets = Some(differ);
                }
                None => self.of_contents = false,
            }
        }
        let question = match &*buckets {
            Some(buckets) => Question::Entries(buckets.view()),
            None => Question::Versions,
        };
        let (here, mut there) = self
            .ask(question)?
            .ok_or("the provider is another one now")?;
        let mut pairs = BTreeMap::new();
        for (uuid, known) in here.entries {
            let pair = Pair {
                here: Some(known),
                there: there.entries.remove(&uuid),
            };
            pairs.insert(uuid, pair);
        }
        let only_there = there.entries.into_iter().map(|(uuid, known)| {
            let (here, there) = (None, Some(known));
            (uuid, Pair { here, there })
        });
        pairs.extend(only_there);
        pairs.retain(|_, pair| pair.kind().is_some());
        Ok(pairs)
    }

    /// Waits until the copy has all that the provider has now, or until then; whether it has, and what it has.
    fn catch_up(&self, until: Option<Instant>) -> Result<(bool, Vector), String> {
        loop {
            let lag = lags(self.directory, std::slice::from_ref(self.agreement)).pop();
            let is_over = until.is_none_or(|until| Instant::now() >= until);
            let is_known = matches!(lag, Some(Lag::Nothing | Lag::Behind { .. }));
            if lag == Some(Lag::Nothing) || is_over || !is_known {
                let cookie = self.directory.newest_cookie(self.agreement.rid);
                let cookie = cookie.map_err(|error| here(&error))?;
                let cookie = cookie.and_then(|cookie| Cookie::parse(&cookie).ok());
                let has = cookie.map(|cookie| cookie.vector).unwrap_or_default();
                return Ok((lag == Some(Lag::Nothing), has));
            }
            thread::sleep(LOOK);
        }
    }

    /// Asks both sides at once; nothing if the provider knows no digests.
    fn ask(&mut self, question: Question<'_>) -> Result<Option<(Answers, Answers)>, String> {
        let (agreement, key) = (self.agreement, self.key);
        thread::scope(|scope| {
            let there = scope.spawn(move || ask_there(agreement, &key, question));
            let here = self.ask_here(question);
            let there = there.join();
            let there = there.map_err(|_| "asking the provider has failed".to_owned())??;
            there
                .map(|there| here.map(|here| (here, there)))
                .transpose()
        })
    }

    /// Asks this directory.
    fn ask_here(&mut self, question: Question<'_>) -> Result<Answers, String> {
        let mut all = BucketsBuf::default();
        let wanted = ContentDigests {
            key: &self.key,
            buckets: match question {
                Question::Sums => None,
                Question::Entries(buckets) => Some(buckets),
                Question::Versions => {
                    (0..=u16::MAX).for_each(|bucket| all.insert(bucket));
                    Some(all.view())
                }
            },
        };
        let snapshot = self.directory.snapshot().map_err(|error| here(&error))?;
        let requester = Requester::administrator(self.administrator);
        let attributes = OctetStringsBuf::from_iter(["*", "+"]);
        let filter = filter_text::parse("(objectClass=*)").map_err(|error| error.to_string())?;
        let request = SearchRequest {
            attributes: attributes.view(),
            ..SearchRequest::new(&self.agreement.base, Scope::Subtree, filter.as_filter())
        };
        let options = SearchOptions::default();
        let mut digests = Digests::new(snapshot, &requester, &request, options, &wanted);
        let mut answers = Answers::default();
        let (mut messages, mut room) = (Vec::new(), STEP_BYTES);
        loop {
            let budget = Budget {
                entries: STEP_ENTRIES,
                work: u64::MAX,
                out_bytes: room,
            };
            let mut wire = Wire::new(&mut messages, MESSAGE_ID, Controls::EMPTY);
            let step = digests.step(&mut wire, budget);
            let mut rest = &*messages;
            while let Ok(Frame::Complete(length)) = frame(rest, usize::MAX) {
                let (message, behind) = rest.split_at(length);
                let message = ResponseMessage::decode(message).map_err(|error| here(&error))?;
                answers.take(&message)?;
                rest = behind;
            }
            messages.clear();
            self.entries = digests.entries().into();
            (self.looked_at)(self.entries);
            match step.map_err(|error| here(&error))? {
                Step::Room(bytes) => room = bytes,
                Step::Done(outcome) => match outcome.code {
                    // Nothing was copied yet.
                    ResultCode::Success | ResultCode::NoSuchObject => return Ok(answers),
                    code => return Err(here(&format_args!("{code} {}", outcome.diagnostic))),
                },
                Step::Fetch => {
                    let fetched = digests.snapshot().fetch();
                    fetched.map_err(|error| here(&error))?;
                }
                Step::More | Step::Wait => {}
            }
        }
    }
}

fn here(error: &dyn fmt::Display) -> String {
    format!("this directory: {error}")
}

/// Asks a provider; nothing if it knows no digests.
fn ask_there(
    agreement: &Agreement,
    key: &[u8; DIGEST_KEY_BYTES],
    question: Question<'_>,
) -> Result<Option<Answers>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let there = |why: String| format!("{}: {why}", agreement.provider);
    let asked = async {
        let mut connection = connect(agreement).await.map_err(|why| why.to_string())?;
        let message = request(agreement, key, question)?;
        let sent = connection.send(&message).await;
        sent.map_err(|error| there(error.to_string()))?;
        take_all(&mut connection).await.map_err(there)
    };
    let answered = runtime.block_on(asked);
    // Names that are looked up still are not waited for.
    runtime.shutdown_background();
    answered
}

/// The search that asks a question.
fn request(
    agreement: &Agreement,
    key: &[u8; DIGEST_KEY_BYTES],
    question: Question<'_>,
) -> Result<Vec<u8>, String> {
    let digests = |buckets| {
        let mut value = Vec::new();
        ContentDigests { key, buckets }.encode(&mut value);
        (CONTENT_DIGESTS, value)
    };
    let (oid, value) = match question {
        Question::Sums => digests(None),
        Question::Entries(buckets) => digests(Some(buckets)),
        // A refresh without a cookie tells the entries that a copy has, and no others.
        Question::Versions => {
            let mut value = Vec::new();
            SyncRequest {
                mode: SyncMode::RefreshOnly,
                cookie: None,
                reload_hint: false,
            }
            .encode(&mut value);
            (SYNC_REQUEST, value)
        }
    };
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid,
        critical: true,
        value: Some(&value),
    });
    controls.push(Control {
        oid: MANAGE_DSA_IT,
        critical: false,
        value: None,
    });
    let attributes = match question {
        Question::Versions => OctetStringsBuf::from_iter(["entryCSN"]),
        _ => OctetStringsBuf::from_iter(["*", "+"]),
    };
    let filter = filter_text::parse("(objectClass=*)").map_err(|error| error.to_string())?;
    let search = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(&agreement.base, Scope::Subtree, filter.as_filter())
    };
    let mut message = Vec::new();
    Message {
        id: MESSAGE_ID,
        op: Request::Search(search),
        controls: controls.view(),
    }
    .encode(&mut message);
    Ok(message)
}

async fn take_all(connection: &mut Connection) -> Result<Option<Answers>, String> {
    let mut answers = Answers::default();
    loop {
        let silence = Duration::from_secs(SILENCE_SECONDS_MAX);
        let received = timeout(silence, connection.receive()).await;
        let received = received
            .map_err(|_| format!("it has been silent for {SILENCE_SECONDS_MAX} s"))?
            .map_err(|error| error.to_string())?;
        let message = ResponseMessage::decode(received).map_err(|error| error.to_string())?;
        if message.id != MESSAGE_ID {
            continue;
        }
        let Some(result) = answers.take(&message)? else {
            continue;
        };
        return match result.code {
            // Without its base it has nothing.
            ResultCode::Success | ResultCode::NoSuchObject => Ok(Some(answers)),
            ResultCode::UnavailableCriticalExtension => Ok(None),
            code => Err(format!("{code} {}", result.diagnostic)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_differ_by_version_before_content() {
        let known = |micros, digest| {
            Some(Known {
                csn: Some(Csn {
                    micros,
                    ..Csn::default()
                }),
                digest: Some([digest; 16]),
                dn: "o=a".into(),
            })
        };
        let kind = |here, there| Pair { here, there }.kind();
        assert_eq!(kind(known(1, 1), known(1, 1)), None);
        let content = Some(DifferenceKind::Content);
        assert_eq!(kind(known(1, 1), known(1, 2)), content);
        let version = kind(known(1, 1), known(2, 2));
        assert!(matches!(version, Some(DifferenceKind::Version { .. })));
        let only_here = Some(DifferenceKind::OnlyHere);
        assert_eq!(kind(known(1, 1), None), only_here);
        let only_there = Some(DifferenceKind::OnlyThere);
        assert_eq!(kind(None, known(1, 1)), only_there);
        // Of a provider that knows no digests.
        let without = known(1, 1).map(|known| Known {
            digest: None,
            ..known
        });
        assert_eq!(kind(known(1, 1), without), None);
    }
}
