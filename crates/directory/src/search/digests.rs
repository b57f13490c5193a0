//! Digests of what a search finds (`docs/reference/protocol-extensions.md`): of all entries the sums of their buckets,
//! or of some buckets each entry by itself. Two servers that hold copies of the same are compared by them.
//!
//! Hashes are BLAKE3, keyed, cut to 128 bits; what goes into each begins with a number of its own:
//!
//! ```text
//! bucket of an entry  0 entryUUID                                          its first two octets
//! value               1 description in lower case, 0, value
//! entry               2 entryUUID entryCSN 0 (sum of its values) (DN in lower case)
//! bucket              the sum of its entries
//! ```
//!
//! Sums are modulo 2^128, so that no order matters.

use std::sync::Arc;

use sapwood_ldap::controls::{
    BUCKETS, BucketSumsBuf, BucketsBuf, CONTENT_DIGESTS, ContentDigests, ContentDigestsAnswer,
    DIGEST_KEY_BYTES, EntryDigest, SUM_BYTES,
};
use sapwood_ldap::list::{Attributes, OctetStrings};
use sapwood_ldap::message::SearchRequest;
use sapwood_ldap::result::ResultCode;

use super::{Admission, Budget, EntrySink, Search, SearchOptions, Sink, Step, Wire};
use crate::access::{Requester, Sight};
use crate::directory::Snapshot;
use crate::engine::{Embedded, Engine};
use crate::error::Result;
use crate::operational::EntryVersion;
use crate::outcome::Outcome;

/// Bytes of entries that a step makes digests of: less than a millisecond.
const STEP_BYTES: usize = 256 << 10;
/// Sums that are told together.
const TOLD_SUMS_MAX: usize = 512;
/// Bytes that a message has at most around its sums, or around the DN of an entry.
const ENVELOPE_BYTES_MAX: usize = 256;

/// A search that tells digests, under way.
pub struct Digests<E: Engine = Embedded> {
    search: Search<E>,
    requester: Arc<Requester>,
    key: [u8; DIGEST_KEY_BYTES],
    wanted: Wanted,
    stage: Stage,
    /// Bytes of the next entry, when it is longer than a step is.
    needed: usize,
}

enum Wanted {
    /// The sum of each bucket.
    Sums(Box<[u128]>),
    /// The entries of these.
    Entries(BucketsBuf),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Whether who asks may is to be found out.
    Unbegun,
    Searching,
    /// Sums are told, from this bucket on.
    Telling(usize),
}

impl<E: Engine> Digests<E> {
    /// Bytes of memory that one takes besides its search.
    pub const BYTES_MAX: usize = BUCKETS * size_of::<u128>();

    /// Begins one. What is wrong is told by the first step. The attributes that the request names take part.
    pub fn new(
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
        wanted: &ContentDigests<'_>,
    ) -> Digests<E> {
        let options = of_what_is_stored(options);
        Digests {
            search: Search::new(snapshot, requester, request, options),
            requester: requester.clone(),
            key: *wanted.key,
            wanted: match wanted.buckets {
                None => Wanted::Sums(vec![0; BUCKETS].into()),
                Some(buckets) => Wanted::Entries(buckets.to_buf()),
            },
            stage: Stage::Unbegun,
            needed: 0,
        }
    }

    /// The snapshot that it reads.
    pub fn snapshot(&self) -> &Snapshot<E> {
        self.search.snapshot()
    }

    /// Entries that it has looked at so far.
    pub fn entries(&self) -> u32 {
        self.search.sent()
    }

    /// Whether a part of an entry is gathered: see [`Search::is_gathering`].
    pub fn is_gathering(&self) -> bool {
        self.search.is_gathering()
    }

    /// Goes on in a newer snapshot, as [`Search::renew`] does. Entries that were looked at before are not looked at
    /// again.
    pub fn renew(
        &mut self,
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
    ) {
        let options = of_what_is_stored(options);
        self.search.renew(snapshot, requester, request, options);
    }

    /// Goes on: gives messages to `wire`.
    ///
    /// # Errors
    /// When the engine fails or stored data are damaged; the search cannot go on then, nor after its end.
    pub fn step(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        match self.stage {
            Stage::Unbegun => match self.sees_all() {
                Ok(true) => {
                    self.stage = Stage::Searching;
                    Ok(Step::More)
                }
                Ok(false) => Ok(Step::Done(Outcome::new(
                    ResultCode::InsufficientAccessRights,
                    "digests are for those who may read every attribute of every entry, as copies need it",
                ))),
                Err(error) if E::REMOTE && error.is_not_here() => Ok(Step::Fetch),
                Err(error) => Err(error),
            },
            Stage::Searching => self.search(wire, budget),
            Stage::Telling(bucket) => Ok(self.tell(wire, budget, bucket)),
        }
    }

    fn sees_all(&self) -> Result<bool> {
        let requester = self.search.snapshot().current(&self.requester)?;
        Ok(requester.grants().sight() == Sight::All)
    }

    fn search(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step> {
        let room = wire.room(budget.out_bytes);
        let budget = Budget {
            out_bytes: room.min(STEP_BYTES.max(self.needed)),
            ..budget
        };
        let mut sink = Digesting {
            wire,
            key: &self.key,
            wanted: &mut self.wanted,
            bytes: 0,
            version: None,
            hashed: Vec::new(),
        };
        let step = self.search.step(&mut sink, budget)?;
        let is_first = sink.bytes == 0;
        match step {
            Step::Done(outcome) if outcome.code == ResultCode::Success => match self.wanted {
                Wanted::Entries(_) => Ok(Step::Done(outcome)),
                Wanted::Sums(_) => {
                    self.stage = Stage::Telling(0);
                    Ok(Step::More)
                }
            },
            Step::Room(bytes) => {
                self.needed = bytes;
                match is_first && bytes > room {
                    true => Ok(Step::Room(bytes)),
                    false => Ok(Step::More),
                }
            }
            step => {
                self.needed = 0;
                Ok(step)
            }
        }
    }

    /// Tells the sums of buckets from this one on.
    fn tell(&mut self, wire: &mut Wire<'_>, budget: Budget, mut bucket: usize) -> Step {
        let Wanted::Sums(sums) = &self.wanted else {
            return Step::Done(Outcome::SUCCESS);
        };
        let mut step = Step::Done(Outcome::SUCCESS);
        while bucket < sums.len() {
            let bytes = TOLD_SUMS_MAX * SUM_BYTES + ENVELOPE_BYTES_MAX;
            if wire.bytes() + bytes > budget.out_bytes {
                step = Step::Room(bytes);
                break;
            }
            let mut told = BucketSumsBuf::default();
            let rest = sums.iter().zip(0..=u16::MAX).skip(bucket);
            let with_entries = rest.filter(|(sum, _)| **sum != 0);
            bucket = sums.len();
            for (at, (sum, number)) in with_entries.enumerate() {
                if at == TOLD_SUMS_MAX {
                    bucket = number.into();
                    break;
                }
                told.push(number, *sum);
            }
            put(wire, &ContentDigestsAnswer::Sums(told.view()));
        }
        self.stage = Stage::Telling(bucket);
        step
    }
}

/// Options of a search for entries as copies have them: all kinds of them, and nothing but what is stored.
fn of_what_is_stored(options: SearchOptions) -> SearchOptions {
    SearchOptions {
        as_stored: true,
        manage_dsa_it: true,
        tells_usability: false,
        page: None,
        ..options
    }
}

fn put(wire: &mut Wire<'_>, answer: &ContentDigestsAnswer<'_>) {
    let mut value = Vec::new();
    answer.encode(&mut value);
    wire.put_intermediate(CONTENT_DIGESTS, &value);
}

/// The hash of some bytes.
fn hash(key: &[u8; DIGEST_KEY_BYTES], bytes: &[u8]) -> [u8; 16] {
    let hash = blake3::keyed_hash(key, bytes);
    let half = hash.as_bytes().first_chunk::<16>();
    // A hash has 32 octets.
    half.copied().unwrap_or_default()
}

/// The bucket of an entry.
fn bucket(key: &[u8; DIGEST_KEY_BYTES], uuid: [u8; 16]) -> u16 {
    let mut hashed = [0; 17];
    hashed[1..].copy_from_slice(&uuid);
    let [high, low, ..] = hash(key, &hashed);
    u16::from_be_bytes([high, low])
}

/// Makes digests of entries.
struct Digesting<'s, 'o> {
    wire: &'s mut Wire<'o>,
    key: &'s [u8; DIGEST_KEY_BYTES],
    wanted: &'s mut Wanted,
    /// Bytes of the entries that it has had, which are more than those of what it tells of them.
    bytes: usize,
    /// The entry that comes next, and its bucket.
    version: Option<(EntryVersion, u16)>,
    /// What a hash is made of.
    hashed: Vec<u8>,
}

impl<'o> Sink for Digesting<'_, 'o> {
    type Entry<'e>
        = DigestedEntry<'e, 'o>
    where
        Self: 'e;

    const IS_ASKED: bool = true;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn envelope_bytes_max(&self) -> usize {
        ENVELOPE_BYTES_MAX
    }

    fn admit(&mut self, version: Option<EntryVersion>, _out_bytes: usize) -> Admission {
        // Without entryUUID it could not be copied.
        let Some(version) = version else {
            return Admission::Noted;
        };
        let bucket = bucket(self.key, version.uuid);
        if let Wanted::Entries(buckets) = &self.wanted
            && !buckets.view().has(bucket)
        {
            return Admission::Noted;
        }
        self.version = Some((version, bucket));
        Admission::Send
    }

    fn begin_entry(&mut self, dn: &[u8], bytes: usize) -> DigestedEntry<'_, 'o> {
        DigestedEntry {
            wire: self.wire,
            key: self.key,
            wanted: self.wanted,
            counted: &mut self.bytes,
            bytes: dn.len() + bytes + ENVELOPE_BYTES_MAX,
            version: self.version,
            hashed: &mut self.hashed,
            dn: dn.to_vec(),
            sum: 0,
        }
    }

    fn put_reference(&mut self, _uris: OctetStrings<'_>) {}
}

/// An entry of which a digest is made.
struct DigestedEntry<'e, 'o> {
    wire: &'e mut Wire<'o>,
    key: &'e [u8; DIGEST_KEY_BYTES],
    wanted: &'e mut Wanted,
    counted: &'e mut usize,
    bytes: usize,
    version: Option<(EntryVersion, u16)>,
    hashed: &'e mut Vec<u8>,
    dn: Vec<u8>,
    /// Of its values.
    sum: u128,
}

impl EntrySink for DigestedEntry<'_, '_> {
    fn put_ber(&mut self, attributes: &[u8]) {
        for attribute in Attributes::from_checked(attributes) {
            self.put_attribute(attribute.description, attribute.values);
        }
    }

    fn put_attribute<'v>(
        &mut self,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        self.hashed.clear();
        self.hashed.push(1);
        self.hashed.extend_from_slice(description);
        self.hashed.make_ascii_lowercase();
        self.hashed.push(0);
        let before = self.hashed.len();
        for value in values {
            self.hashed.truncate(before);
            self.hashed.extend_from_slice(value);
            let value = u128::from_be_bytes(hash(self.key, self.hashed));
            self.sum = self.sum.wrapping_add(value);
        }
    }

    fn put_values(&mut self, description: &[u8], values: &[u8]) {
        self.put_attribute(description, OctetStrings::from_checked(values));
    }

    fn finish(self) {
        *self.counted += self.bytes;
        let Some((EntryVersion { uuid, csn }, bucket)) = self.version else {
            return;
        };
        self.hashed.clear();
        self.hashed.push(2);
        self.hashed.extend(uuid);
        let csn_text = csn.map(|csn| csn.to_string()).unwrap_or_default();
        self.hashed.extend_from_slice(csn_text.as_bytes());
        self.hashed.push(0);
        self.hashed.extend(self.sum.to_be_bytes());
        let dn_at = self.hashed.len();
        self.hashed.extend_from_slice(&self.dn);
        self.hashed[dn_at..].make_ascii_lowercase();
        let digest = hash(self.key, self.hashed);
        match self.wanted {
            Wanted::Sums(sums) => {
                if let Some(sum) = sums.get_mut(usize::from(bucket)) {
                    *sum = sum.wrapping_add(u128::from_be_bytes(digest));
                }
            }
            Wanted::Entries(_) => put(
                self.wire,
                &ContentDigestsAnswer::Entry(EntryDigest {
                    uuid,
                    digest,
                    dn: &String::from_utf8_lossy(&self.dn),
                    csn,
                }),
            ),
        }
    }
}
