//! Who changed an entry and when: the operational attributes of RFC 4512 §3.4, entryUUID and entryCSN.

use uuid::Uuid;

/// Makes the moments of changes: each is later than the one before, wherever the clock is set to meanwhile.
///
/// So that this holds beyond the end of the process, too, the directory keeps a time *reserved* that no moment has
/// reached, and begins with it when it is opened again. It is renewed once in [`RESERVED_MICROS`], and so far a
/// directory that is opened at once may run ahead of the clock.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    last: Moment,
}

/// How far ahead of a change time is reserved: one second.
pub(crate) const RESERVED_MICROS: u64 = 1_000_000;

/// The moment of one update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// Microseconds since 1970.
    pub(crate) micros: u64,
    /// Which of the updates of this microsecond it is.
    pub(crate) count: u32,
}

/// The same as text.
#[derive(Debug, Default)]
pub(crate) struct Stamp {
    /// GeneralizedTime, in seconds.
    pub(crate) time: String,
    /// `YYYYmmddHHMMSS.uuuuuuZ#count#replica#modification` (draft-chu-ldap-csn).
    pub(crate) csn: String,
}

impl Stamps {
    /// Those that come behind a moment.
    pub(crate) fn behind(last: Moment) -> Stamps {
        Stamps { last }
    }

    /// The moment of the last update.
    pub(crate) fn last(&self) -> Moment {
        self.last
    }

    /// The moment of the next update.
    pub(crate) fn next(&mut self, now_micros: u64) -> Moment {
        self.last = match now_micros > self.last.micros {
            true => Moment {
                micros: now_micros,
                count: 0,
            },
            false => self.last.next(),
        };
        self.last
    }
}

impl From<Moment> for Stamp {
    fn from(moment: Moment) -> Stamp {
        let Moment { micros, count } = moment;
        let time = generalized_time(micros);
        let mut csn = String::with_capacity(time.len() + 25);
        csn.push_str(time.strip_suffix('Z').unwrap_or_default());
        csn.push('.');
        push_digits(&mut csn, micros % 1_000_000, 10, 6);
        csn.push_str("Z#");
        push_digits(&mut csn, u64::from(count), 16, 6);
        csn.push_str("#000#000000");
        Stamp { time, csn }
    }
}

impl Moment {
    /// Changes that one microsecond can count.
    const COUNTS_MAX: u32 = 0xFF_FFFF;

    /// The one right behind it.
    pub(crate) fn next(self) -> Moment {
        let Moment { micros, count } = self;
        match count < Self::COUNTS_MAX {
            true => Moment {
                micros,
                count: count + 1,
            },
            false => Moment {
                micros: micros + 1,
                count: 0,
            },
        }
    }

    /// The moment of an entryCSN, if it is written as [`Stamp`] writes it: to be compared with that.
    pub(crate) fn of_csn(csn: &str) -> Option<Moment> {
        let (time, rest) = csn.split_at_checked(14)?;
        let (micros, rest) = rest.strip_prefix('.')?.split_at_checked(6)?;
        let (count, _) = rest.strip_prefix("Z#")?.split_at_checked(6)?;
        Some(Moment {
            micros: seconds_of(time)?.checked_mul(1_000_000)? + number(micros, 10)?,
            count: number(count, 16)? as u32,
        })
    }
}

/// Seconds since 1970 of a GeneralizedTime that begins with `YYYYmmddHHMMSS` and is in UTC. What is no time gives any number:
/// writing it again tells.
pub(crate) fn seconds_of(time: &str) -> Option<u64> {
    let part = |from: usize, to: usize| time.get(from..to).and_then(|digits| number(digits, 10));
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    // March is the first month, so that a leap day is a year's last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let day_of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    let days =
        (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &str, radix: u32) -> Option<u64> {
    let is_number = digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Appends the last `width` digits of a number.
fn push_digits(out: &mut String, number: u64, radix: u64, width: u32) {
    for place in (0..width).rev() {
        let digit = number / radix.pow(place) % radix;
        out.extend(char::from_digit(digit as u32, radix as u32));
    }
}

/// A moment, in microseconds since 1970, as GeneralizedTime in seconds (RFC 4517 §3.3.13).
pub(crate) fn generalized_time(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let mut time = String::with_capacity(15);
    push_digits(&mut time, year, 10, if year > 9999 { 6 } else { 4 });
    for part in [month, day, of_day / 3600, of_day / 60 % 60, of_day % 60] {
        push_digits(&mut time, part, 10, 2);
    }
    time.push('Z');
    time
}

/// entryUUID as text (RFC 4530).
pub(crate) fn uuid_text(bytes: [u8; 16]) -> String {
    Uuid::from_bytes(bytes).hyphenated().to_string()
}

/// The UUID that a text stands for: to be compared with [`uuid_text`], which writes it in one of the possible ways.
pub(crate) fn uuid_of(text: &str) -> Option<[u8; 16]> {
    Uuid::try_parse(text).ok().map(Uuid::into_bytes)
}

/// Year, month and day of a day counted from 1970-01-01 (the algorithm of days in eras of 400 years).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_calendar_times_and_ascend() {
        let mut stamps = Stamps::default();
        let mut next = |now_micros| Stamp::from(stamps.next(now_micros));
        let first = next(951_827_696_000_123);
        assert_eq!(first.time, "20000229123456Z");
        assert_eq!(first.csn, "20000229123456.000123Z#000000#000#000000");
        let second = next(951_827_696_000_123);
        assert_eq!(second.csn, "20000229123456.000123Z#000001#000#000000");
        let later = next(951_827_696_999_999);
        assert_eq!(later.csn, "20000229123456.999999Z#000000#000#000000");
        let counted = (0..0x1a2b).map(|_| next(951_827_696_999_999)).last();
        let csn = counted.map(|stamp| stamp.csn).unwrap_or_default();
        assert_eq!(csn, "20000229123456.999999Z#001a2b#000#000000");
        assert_eq!(next(951_827_697_000_000).time, "20000229123457Z");
        let earlier = next(1);
        assert!(earlier.csn > second.csn);
        assert_eq!(generalized_time(0), "19700101000000Z");
        assert_eq!(generalized_time(4_102_444_799_000_000), "20991231235959Z");
    }

    #[test]
    fn what_was_written_is_read() {
        for day in 0..150_000 {
            let seconds = day * 86_400 + day % 86_400;
            let (micros, count) = (seconds * 1_000_000 + day % 1_000_000, day as u32);
            let moment = Moment { micros, count };
            let stamp = Stamp::from(moment);
            assert_eq!(seconds_of(&stamp.time), Some(seconds));
            assert_eq!(Moment::of_csn(&stamp.csn), Some(moment));
        }
        for none in [
            "",
            "20000229123456",
            "2000+229123456.000123Z#000001#000#000000",
        ] {
            assert_eq!(Moment::of_csn(none), None);
        }
        let uuid = uuid_text([7; 16]);
        assert_eq!(uuid_of(&uuid), Some([7; 16]));
        assert_eq!(uuid_of("7"), None);
    }
}
