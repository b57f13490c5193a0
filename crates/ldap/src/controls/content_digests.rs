//! Content digests, Sapwood's own (`docs/reference/protocol-extensions.md`): a search answers with digests of what it
//! finds, so that two servers can compare a million entries with a MiB between them. Entries are spread over
//! [`BUCKETS`]. A first search asks for the sum of each bucket, a second one for the entries of those that differ.
//!
//! controlValue:
//!
//! ```text
//! ContentDigestsRequest ::= SEQUENCE {
//!     key     OCTET STRING (SIZE(32)),
//!     buckets OCTET STRING (SIZE(8192)) OPTIONAL }
//! ```
//!
//! The answers are intermediate responses. Their responseName is the OID of the control, their responseValue:
//!
//! ```text
//! ContentDigests ::= CHOICE {
//!     sums  [0] OCTET STRING,   -- 18 octets a bucket: its number, the sum
//!     entry [1] SEQUENCE {
//!         entryUUID OCTET STRING (SIZE(16)),
//!         digest    OCTET STRING (SIZE(16)),
//!         entryDN   LDAPDN,
//!         entryCSN  OCTET STRING OPTIONAL } }
//! ```

use super::{Control, Fault, Layer, Spec, sequence, sync_uuid};
use crate::ber::{self, Reader, utf8};
use crate::csn::Csn;
use crate::error::{PartError, Violation};
use crate::operation::Operation;

/// OID of the control, and responseName of its answers.
pub const CONTENT_DIGESTS: &str = "2.25.247559974777422354725474802785135427850";

/// Buckets that entries are spread over.
pub const BUCKETS: usize = 1 << 16;
/// Bytes of a key.
pub const DIGEST_KEY_BYTES: usize = 32;
/// Bytes of a sum in an answer, with the number of its bucket.
pub const SUM_BYTES: usize = 18;

const SUMS: u8 = ber::context(0);
const ENTRY: u8 = ber::context_constructed(1);

pub(super) const SPEC: Spec = Spec {
    oids: &[CONTENT_DIGESTS],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What is wanted.
pub(super) type Value<'m> = ContentDigests<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<ContentDigests<'m>, Fault> {
    if !control.critical {
        return Err(Fault::NotCritical);
    }
    Ok(ContentDigests::decode(control.value()?)?)
}

/// The control value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDigests<'a> {
    /// What digests are keyed with. Who asks draws it anew each time: so nobody can have made entries whose digests
    /// collide.
    pub key: &'a [u8; DIGEST_KEY_BYTES],
    /// The buckets whose entries are told one by one; `None` asks for the sums of all.
    pub buckets: Option<Buckets<'a>>,
}

impl<'a> ContentDigests<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "contentDigestsRequest")?;
        let key = reader.octets("key")?.try_into();
        let key = key.map_err(|_| Violation::OutOfRange { field: "key" })?;
        let buckets = match reader.optional(ber::OCTET_STRING, "buckets")? {
            None => None,
            Some(bits) => {
                let bits = bits.try_into();
                let bits = bits.map_err(|_| Violation::OutOfRange { field: "buckets" })?;
                Some(Buckets { bits })
            }
        };
        reader.skip_extensions()?;
        Ok(ContentDigests { key, buckets })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_octets(out, ber::OCTET_STRING, self.key);
        if let Some(buckets) = self.buckets {
            ber::put_octets(out, ber::OCTET_STRING, buckets.bits);
        }
        ber::close(out, element);
    }
}

/// A set of buckets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Buckets<'a> {
    /// A bit for each; bucket 0 is the lowest of the first octet.
    bits: &'a [u8; BUCKETS / 8],
}

impl Buckets<'_> {
    /// Whether it has this one.
    pub fn has(self, bucket: u16) -> bool {
        let octet = self.bits.get(usize::from(bucket / 8));
        octet.is_some_and(|octet| octet >> (bucket % 8) & 1 == 1)
    }

    /// The same, owned.
    pub fn to_buf(self) -> BucketsBuf {
        BucketsBuf {
            bits: Box::new(*self.bits),
        }
    }
}

impl std::fmt::Debug for Buckets<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = (0..=u16::MAX).filter(|bucket| self.has(*bucket));
        f.debug_set().entries(all).finish()
    }
}

/// Owns [`Buckets`].
#[derive(Clone, PartialEq, Eq)]
pub struct BucketsBuf {
    bits: Box<[u8; BUCKETS / 8]>,
}

impl Default for BucketsBuf {
    fn default() -> Self {
        BucketsBuf {
            bits: Box::new([0; BUCKETS / 8]),
        }
    }
}

impl BucketsBuf {
    /// Adds one.
    pub fn insert(&mut self, bucket: u16) {
        if let Some(octet) = self.bits.get_mut(usize::from(bucket / 8)) {
            *octet |= 1 << (bucket % 8);
        }
    }

    /// The set.
    pub fn view(&self) -> Buckets<'_> {
        Buckets { bits: &self.bits }
    }
}

impl std::fmt::Debug for BucketsBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view().fmt(f)
    }
}

/// An answer: a responseValue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentDigestsAnswer<'a> {
    /// Buckets that have entries.
    Sums(BucketSums<'a>),
    /// An entry of a bucket that was asked for.
    Entry(EntryDigest<'a>),
}

/// The digest of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryDigest<'a> {
    /// Its entryUUID.
    pub uuid: [u8; 16],
    /// Of all that is stored of it.
    pub digest: [u8; 16],
    /// Its DN.
    pub dn: &'a str,
    /// Its entryCSN, if it has one.
    pub csn: Option<Csn>,
}

impl<'a> ContentDigestsAnswer<'a> {
    /// Reads a responseValue.
    ///
    /// # Errors
    /// When it is not of its form.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut outer = Reader::new(value);
        if outer.peek() == Some(SUMS) {
            let octets = outer.expect(SUMS, "sums")?;
            outer.end()?;
            if octets.len() % SUM_BYTES != 0 {
                return Err(Violation::OutOfRange { field: "sums" }.into());
            }
            return Ok(ContentDigestsAnswer::Sums(BucketSums { octets }));
        }
        let content = outer.expect(ENTRY, "entry")?;
        outer.end()?;
        let mut reader = Reader::new(content);
        let uuid = sync_uuid(&mut reader, "entryUUID")?;
        let digest = sync_uuid(&mut reader, "digest")?;
        let dn = utf8(reader.octets("entryDN")?, "entryDN")?;
        let csn = match reader.optional(ber::OCTET_STRING, "entryCSN")? {
            None => None,
            Some(text) => {
                let csn = Csn::parse(utf8(text, "entryCSN")?);
                Some(csn.ok_or(Violation::OutOfRange { field: "entryCSN" })?)
            }
        };
        reader.skip_extensions()?;
        Ok(ContentDigestsAnswer::Entry(EntryDigest {
            uuid,
            digest,
            dn,
            csn,
        }))
    }

    /// Appends the responseValue.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ContentDigestsAnswer::Sums(sums) => ber::put_octets(out, SUMS, sums.octets),
            ContentDigestsAnswer::Entry(entry) => {
                let element = ber::open(out, ENTRY, entry.dn.len());
                ber::put_octets(out, ber::OCTET_STRING, &entry.uuid);
                ber::put_octets(out, ber::OCTET_STRING, &entry.digest);
                ber::put_octets(out, ber::OCTET_STRING, entry.dn.as_bytes());
                if let Some(csn) = entry.csn {
                    ber::put_octets(out, ber::OCTET_STRING, csn.to_string().as_bytes());
                }
                ber::close(out, element);
            }
        }
    }
}

/// Sums of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSums<'a> {
    octets: &'a [u8],
}

impl BucketSums<'_> {
    /// The buckets and their sums.
    pub fn iter(self) -> impl Iterator<Item = (u16, u128)> {
        self.octets.chunks_exact(SUM_BYTES).filter_map(|sum| {
            let (bucket, sum) = sum.split_first_chunk::<2>()?;
            let sum = u128::from_be_bytes(sum.try_into().ok()?);
            Some((u16::from_be_bytes(*bucket), sum))
        })
    }
}

/// Owns [`BucketSums`].
#[derive(Debug, Clone, Default)]
pub struct BucketSumsBuf {
    octets: Vec<u8>,
}

impl BucketSumsBuf {
    /// Adds the sum of a bucket.
    pub fn push(&mut self, bucket: u16, sum: u128) {
        self.octets.extend(bucket.to_be_bytes());
        self.octets.extend(sum.to_be_bytes());
    }

    /// The sums.
    pub fn view(&self) -> BucketSums<'_> {
        BucketSums {
            octets: &self.octets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

    #[test]
    fn a_request_is_what_it_was() {
        let mut value = Vec::new();
        let sums = ContentDigests {
            key: KEY,
            buckets: None,
        };
        sums.encode(&mut value);
        assert_eq!(value, [&b"\x30\x22\x04\x20"[..], KEY].concat());
        assert_eq!(ContentDigests::decode(&value), Ok(sums));
        let mut buckets = BucketsBuf::default();
        [0, 9, u16::MAX].iter().for_each(|at| buckets.insert(*at));
        let some = ContentDigests {
            key: KEY,
            buckets: Some(buckets.view()),
        };
        value.clear();
        some.encode(&mut value);
        let read = ContentDigests::decode(&value).unwrap();
        assert_eq!(read, some);
        let has: Vec<u16> = (0..=u16::MAX)
            .filter(|at| read.buckets.unwrap().has(*at))
            .collect();
        assert_eq!(has, [0, 9, u16::MAX]);
        for refused in [
            &b""[..],
            b"\x30\x00",
            &[&b"\x30\x21\x04\x1f"[..], &KEY[1..]].concat(),
            &[&b"\x30\x25\x04\x20"[..], KEY, b"\x04\x01\xff"].concat(),
        ] {
            assert!(ContentDigests::decode(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn it_is_critical() {
        let control = |critical| Control {
            oid: CONTENT_DIGESTS,
            critical,
            value: Some(b"\x30\x00"),
        };
        assert_eq!(decode(&control(false)), Err(Fault::NotCritical));
        assert!(matches!(decode(&control(true)), Err(Fault::Value(_))));
    }

    #[test]
    fn an_answer_is_what_it_was() {
        let mut sums = BucketSumsBuf::default();
        sums.push(7, 1);
        sums.push(u16::MAX, u128::MAX);
        let entry = EntryDigest {
            uuid: *b"0123456789abcdef",
            digest: *b"fedcba9876543210",
            dn: "o=a",
            csn: Csn::parse("20261124100001.000002Z#000000#001#000000"),
        };
        for answer in [
            ContentDigestsAnswer::Sums(sums.view()),
            ContentDigestsAnswer::Entry(entry),
            ContentDigestsAnswer::Entry(EntryDigest { csn: None, ..entry }),
        ] {
            let mut value = Vec::new();
            answer.encode(&mut value);
            assert_eq!(ContentDigestsAnswer::decode(&value), Ok(answer));
        }
        let told: Vec<_> = sums.view().iter().collect();
        assert_eq!(told, [(7, 1), (u16::MAX, u128::MAX)]);
        for refused in [&b""[..], b"\x80\x01x", b"\xa1\x00", b"\x30\x00"] {
            assert!(
                ContentDigestsAnswer::decode(refused).is_err(),
                "{refused:?}"
            );
        }
    }
}
