//! Change sequence numbers (draft-chu-ldap-csn): when a change was made, and by which replica.

use std::cmp::Ordering;
use std::fmt;

use crate::time::{generalized_time, number, push_digits, seconds_of};

/// A change sequence number. Later changes have greater ones; no two changes of a replica have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Csn {
    /// Microseconds since 1970.
    pub micros: u64,
    /// Which of the changes of this microsecond it is; 24 bits.
    pub count: u32,
    /// The replica that made the change; 12 bits, 0 for a directory that is not replicated.
    pub replica: u16,
}

impl Csn {
    /// Bytes of the stored form.
    pub const BYTES: usize = 13;
    /// Changes that one microsecond can count.
    const COUNTS_MAX: u32 = 0xFF_FFFF;
    /// The greatest number of a replica: three hexadecimal digits.
    pub const REPLICA_MAX: u16 = 0xFFF;

    /// The one right behind it.
    #[must_use]
    #[inline]
    pub fn next(self) -> Csn {
        match self.count < Self::COUNTS_MAX {
            true => Csn {
                count: self.count + 1,
                ..self
            },
            false => Csn {
                micros: self.micros.saturating_add(1),
                count: 0,
                ..self
            },
        }
    }

    /// The one so many changes behind it.
    #[must_use]
    #[inline]
    pub fn plus(self, changes: u64) -> Csn {
        let counts = u64::from(Self::COUNTS_MAX) + 1;
        let count = u64::from(self.count) + changes % counts;
        Csn {
            micros: (self.micros)
                .saturating_add(changes / counts)
                .saturating_add(count / counts),
            count: (count % counts) as u32,
            ..self
        }
    }

    /// Reads one that is written as [`Display`](fmt::Display) writes it: `YYYYmmddHHMMSS.uuuuuuZ#count#replica#000000`.
    /// Of what is written otherwise `None`, or a number that is not written so.
    pub fn parse(text: &str) -> Option<Csn> {
        let (time, rest) = text.split_at_checked(14)?;
        let (micros, rest) = rest.strip_prefix('.')?.split_at_checked(6)?;
        let (count, rest) = rest.strip_prefix("Z#")?.split_at_checked(6)?;
        let (replica, _) = rest.strip_prefix('#')?.split_at_checked(3)?;
        Some(Csn {
            micros: seconds_of(time)?.checked_mul(1_000_000)? + number(micros, 10)?,
            count: number(count, 16)? as u32,
            replica: number(replica, 16)? as u16,
        })
    }

    /// Its text, given its time as GeneralizedTime in seconds.
    pub fn text_at(self, time: &str) -> String {
        let mut text = String::with_capacity(time.len() + 25);
        text.push_str(time.strip_suffix('Z').unwrap_or_default());
        text.push('.');
        push_digits::<10, 6>(&mut text, self.micros % 1_000_000);
        text.push_str("Z#");
        push_digits::<16, 6>(&mut text, u64::from(self.count));
        text.push('#');
        push_digits::<16, 3>(&mut text, u64::from(self.replica));
        text.push_str("#000000");
        text
    }

    /// Its stored form: `micros:8 count:3 replica:2`, little-endian.
    #[inline]
    pub fn to_bytes(self) -> [u8; Csn::BYTES] {
        let [m0, m1, m2, m3, m4, m5, m6, m7] = self.micros.to_le_bytes();
        let [c0, c1, c2, _] = self.count.to_le_bytes();
        let [r0, r1] = self.replica.to_le_bytes();
        [m0, m1, m2, m3, m4, m5, m6, m7, c0, c1, c2, r0, r1]
    }

    /// The one with this stored form.
    #[inline]
    pub fn from_bytes(bytes: [u8; Csn::BYTES]) -> Csn {
        let [m0, m1, m2, m3, m4, m5, m6, m7, c0, c1, c2, r0, r1] = bytes;
        Csn {
            micros: u64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]),
            count: u32::from_le_bytes([c0, c1, c2, 0]),
            replica: u16::from_le_bytes([r0, r1]),
        }
    }
}

impl Ord for Csn {
    /// By time, then by count, then by replica.
    #[inline]
    fn cmp(&self, other: &Csn) -> Ordering {
        let order = |csn: &Csn| {
            (
                csn.micros,
                u64::from(csn.count) << 16 | u64::from(csn.replica),
            )
        };
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for Csn {
    #[inline]
    fn partial_cmp(&self, other: &Csn) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text_at(&generalized_time(self.micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for day in 0..150_000 {
            let seconds = day * 86_400 + day % 86_400;
            let csn = Csn {
                micros: seconds * 1_000_000 + day % 1_000_000,
                count: day as u32,
                replica: day as u16 % (Csn::REPLICA_MAX + 1),
            };
            assert_eq!(Csn::parse(&csn.to_string()), Some(csn));
            assert_eq!(Csn::from_bytes(csn.to_bytes()), csn);
        }
        for none in [
            "",
            "20000229123456",
            "2000+229123456.000123Z#000001#000#000000",
            "20000229123456.000123Z#000001#00",
        ] {
            assert_eq!(Csn::parse(none), None);
        }
    }

    #[test]
    fn the_next_ones_ascend() {
        let last = Csn {
            micros: 7,
            count: Csn::COUNTS_MAX,
            replica: 3,
        };
        let (micros, replica) = (8, 3);
        let next = Csn {
            micros,
            count: 0,
            replica,
        };
        assert_eq!((last.next(), last.plus(1)), (next, next));
        assert_eq!(next.plus(5), next.next().next().next().next().next());
        assert_eq!(next.plus(3 << 24).micros, 11);
        assert_eq!(last.plus(0), last);
    }
}
