//! Moments as text: GeneralizedTime (RFC 4517 §3.3.13), to the second and in UTC.

#![deny(clippy::indexing_slicing)]

/// A moment, in microseconds since 1970, as GeneralizedTime in seconds (RFC 4517 §3.3.13).
pub fn generalized_time(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let mut time = String::with_capacity(15);
    match year {
        ..=9999 => push_digits::<10, 4>(&mut time, year),
        _ => push_digits::<10, 6>(&mut time, year),
    }
    for part in [month, day, of_day / 3600, of_day / 60 % 60, of_day % 60] {
        push_digits::<10, 2>(&mut time, part);
    }
    time.push('Z');
    time
}

/// Seconds since 1970 of a GeneralizedTime that begins with `YYYYmmddHHMMSS` and is in UTC. What is no time gives any
/// number: writing it again tells.
pub fn seconds_of(time: &str) -> Option<u64> {
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

/// The number that digits stand for.
pub fn number(digits: &str, radix: u32) -> Option<u64> {
    let is_number = digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Appends the last `WIDTH` digits of a number.
pub fn push_digits<const RADIX: u64, const WIDTH: usize>(out: &mut String, number: u64) {
    let mut digits = ['0'; WIDTH];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = char::from_digit((rest % RADIX) as u32, RADIX as u32).unwrap_or_default();
        rest /= RADIX;
    }
    digits.into_iter().for_each(|digit| out.push(digit));
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
    fn what_was_written_is_read() {
        assert_eq!(generalized_time(0), "19700101000000Z");
        assert_eq!(generalized_time(4_102_444_799_000_000), "20991231235959Z");
        for day in 0..150_000 {
            let seconds = day * 86_400 + day % 86_400;
            let time = generalized_time(seconds * 1_000_000 + day % 1_000_000);
            assert_eq!(seconds_of(&time), Some(seconds));
        }
    }
}
