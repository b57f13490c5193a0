//! Who changed an entry and when: the operational attributes of RFC 4512 §3.4, entryUUID and entryCSN.

use sapwood_ldap::csn::Csn;
use sapwood_ldap::time::push_digits;
pub(crate) use sapwood_ldap::time::{generalized_time, seconds_of};
use uuid::Uuid;

/// The time of a change, as text.
#[derive(Debug, Default)]
pub(crate) struct Stamp {
    /// GeneralizedTime, in seconds.
    pub(crate) time: String,
    /// `YYYYmmddHHMMSS.uuuuuuZ#count#replica#modification` (draft-chu-ldap-csn).
    pub(crate) csn: String,
}

impl From<Csn> for Stamp {
    fn from(csn: Csn) -> Stamp {
        let time = generalized_time(csn.micros);
        let csn = csn.text_at(&time);
        Stamp { time, csn }
    }
}

/// A moment, in microseconds since 1970, as GeneralizedTime in microseconds.
pub(crate) fn precise_time(micros: u64) -> String {
    let mut time = generalized_time(micros);
    time.pop();
    time.push('.');
    push_digits::<10, 6>(&mut time, micros % 1_000_000);
    time.push('Z');
    time
}

/// entryUUID as text (RFC 4530).
pub fn uuid_text(bytes: [u8; 16]) -> String {
    Uuid::from_bytes(bytes).hyphenated().to_string()
}

/// The UUID that a text stands for: to be compared with [`uuid_text`], which writes it in one of the possible ways.
pub(crate) fn uuid_of(text: &str) -> Option<[u8; 16]> {
    Uuid::try_parse(text).ok().map(Uuid::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_calendar_times() {
        let stamp = |micros, count, replica| {
            Stamp::from(Csn {
                micros,
                count,
                replica,
            })
        };
        let first = stamp(951_827_696_000_123, 0, 0);
        assert_eq!(first.time, "20000229123456Z");
        assert_eq!(first.csn, "20000229123456.000123Z#000000#000#000000");
        let later = stamp(951_827_696_999_999, 0x1a2b, 0xabc);
        assert_eq!(later.csn, "20000229123456.999999Z#001a2b#abc#000000");
    }

    #[test]
    fn what_was_written_is_read() {
        let uuid = uuid_text([7; 16]);
        assert_eq!(uuid_of(&uuid), Some([7; 16]));
        assert_eq!(uuid_of("7"), None);
    }
}
