//! Who changed an entry and when: the operational attributes of RFC 4512 §3.4, entryUUID and entryCSN.

use std::fmt::Write as _;

use uuid::Uuid;

/// Makes the change sequence numbers of a batch: each is greater than the one before, as long as the clock does not
/// go back behind the last one by more than [`Stamps::COUNTS_MAX`] changes take.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    micros: u64,
    count: u32,
    /// The second that was written last, and how; thousands of updates share one.
    second: (u64, String),
}

/// The moment of one update.
#[derive(Debug, Default)]
pub(crate) struct Stamp {
    /// GeneralizedTime, in seconds.
    pub(crate) time: String,
    /// `YYYYmmddHHMMSS.uuuuuuZ#count#replica#modification` (draft-chu-ldap-csn).
    pub(crate) csn: String,
}

impl Stamps {
    /// Changes that one microsecond can count.
    const COUNTS_MAX: u32 = 0xFF_FFFF;

    /// The stamp of the next update.
    pub(crate) fn next(&mut self, now_micros: u64) -> Stamp {
        if now_micros > self.micros {
            self.micros = now_micros;
            self.count = 0;
        } else if self.count == Self::COUNTS_MAX {
            self.micros += 1;
            self.count = 0;
        } else {
            self.count += 1;
        }
        let second = self.micros / 1_000_000;
        if self.second.0 != second || self.second.1.is_empty() {
            self.second.0 = second;
            self.second.1.clear();
            write_seconds(&mut self.second.1, second);
        }
        let text = self.second.1.as_str();
        let mut csn = String::with_capacity(text.len() + 26);
        csn.push_str(text);
        csn.push('.');
        push_digits(&mut csn, self.micros % 1_000_000, 10, 6);
        csn.push_str("Z#");
        push_digits(&mut csn, u64::from(self.count), 16, 6);
        csn.push_str("#000#000000");
        let mut time = String::with_capacity(text.len() + 1);
        time.push_str(text);
        time.push('Z');
        Stamp { time, csn }
    }
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
    let mut time = String::with_capacity(15);
    write_seconds(&mut time, micros / 1_000_000);
    time.push('Z');
    time
}

/// entryUUID as text (RFC 4530).
pub(crate) fn uuid_text(bytes: [u8; 16]) -> String {
    Uuid::from_bytes(bytes).hyphenated().to_string()
}

/// Appends `YYYYmmddHHMMSS` in UTC.
fn write_seconds(out: &mut String, seconds: u64) {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let _ = write!(
        out,
        "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}"
    );
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
        let first = stamps.next(951_827_696_000_123);
        assert_eq!(first.time, "20000229123456Z");
        assert_eq!(first.csn, "20000229123456.000123Z#000000#000#000000");
        let second = stamps.next(951_827_696_000_123);
        assert_eq!(second.csn, "20000229123456.000123Z#000001#000#000000");
        let later = stamps.next(951_827_696_999_999);
        assert_eq!(later.csn, "20000229123456.999999Z#000000#000#000000");
        let counted = (0..0x1a2b).map(|_| stamps.next(951_827_696_999_999)).last();
        let csn = counted.map(|stamp| stamp.csn).unwrap_or_default();
        assert_eq!(csn, "20000229123456.999999Z#001a2b#000#000000");
        let next = stamps.next(951_827_697_000_000);
        assert_eq!(next.time, "20000229123457Z");
        let earlier = stamps.next(1);
        assert!(earlier.csn > second.csn);
        assert_eq!(Stamps::default().next(0).time, "19700101000000Z");
        assert_eq!(stamps.next(4_102_444_799_000_000).time, "20991231235959Z");
    }
}
