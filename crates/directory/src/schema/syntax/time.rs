//! Generalized Time and UTC Time (RFC 4517 §3.3.13, §3.3.34), and the key that orders them.

use super::super::Schema;
use super::Reason;

/// RFC 4517 §3.3.13
pub(super) fn generalized_time(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    Time::parse(value, Form::Generalized).map(|_| ())
}

/// RFC 4517 §3.3.34
pub(super) fn utc_time(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    Time::parse(value, Form::Utc).map(|_| ())
}

/// Appends the moment in UTC as `YYYYMMDDHHMMSS`, then the decimal places without trailing zeros: earlier is less.
pub(in super::super) fn generalized_time_key(
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    Time::parse(value, Form::Generalized)?.key(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Generalized,
    Utc,
}

/// A time as written.
struct Time<'a> {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    /// Decimal digits of a part of `fraction_seconds`.
    fraction: &'a [u8],
    /// What the fraction is a part of, in seconds: an hour, a minute or a second.
    fraction_seconds: u32,
    /// What to subtract for UTC.
    offset_minutes: i32,
}

impl<'a> Time<'a> {
    fn parse(value: &'a [u8], form: Form) -> Result<Time<'a>, Reason> {
        let mut rest = value;
        let year = match form {
            Form::Generalized => number(&mut rest, 4),
            // Two digits are read as X.509 does (RFC 5280 §4.1.2.5.1).
            Form::Utc => {
                number(&mut rest, 2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })
            }
        };
        let year = year.ok_or("it does not begin with a year")?;
        let month = number(&mut rest, 2)
            .filter(|month| (1..=12).contains(month))
            .ok_or("it has no valid month")?;
        let day = number(&mut rest, 2)
            .filter(|day| (1..=days_of_month(year, month)).contains(day))
            .ok_or("it has no valid day of the month")?;
        let hour = number(&mut rest, 2)
            .filter(|hour| *hour < 24)
            .ok_or("it has no valid hour")?;
        let mut time = Time {
            year,
            month,
            day,
            hour,
            minute: 0,
            second: 0,
            fraction: b"",
            fraction_seconds: 3600,
            offset_minutes: 0,
        };
        if form == Form::Utc || starts_with_digit(rest) {
            time.minute = number(&mut rest, 2)
                .filter(|minute| *minute < 60)
                .ok_or("it has no valid minute")?;
            time.fraction_seconds = 60;
            if starts_with_digit(rest) {
                let second_max = if form == Form::Generalized { 60 } else { 59 };
                time.second = number(&mut rest, 2)
                    .filter(|second| *second <= second_max)
                    .ok_or("it has no valid second")?;
                time.fraction_seconds = 1;
            }
        }
        if form == Form::Generalized
            && let [b'.' | b',', digits @ ..] = rest
        {
            let count = digits
                .iter()
                .take_while(|digit| digit.is_ascii_digit())
                .count();
            let (fraction, after) = digits.split_at_checked(count).unwrap_or((digits, b""));
            if fraction.is_empty() {
                return Err("no digits follow the decimal point");
            }
            time.fraction = fraction;
            rest = after;
        }
        match rest {
            [b'Z'] => {}
            [] if form == Form::Utc => {}
            [sign @ (b'+' | b'-'), differential @ ..] => {
                let mut rest = differential;
                let hours = number(&mut rest, 2).filter(|hour| *hour < 24);
                let minutes = if rest.is_empty() && form == Form::Generalized {
                    Some(0)
                } else {
                    number(&mut rest, 2).filter(|minute| *minute < 60)
                };
                let (Some(hours), Some(minutes), true) = (hours, minutes, rest.is_empty()) else {
                    return Err("the time differential is not valid");
                };
                let offset = i32::try_from(hours * 60 + minutes).unwrap_or_default();
                time.offset_minutes = if *sign == b'-' { -offset } else { offset };
            }
            _ => return Err("it does not end with Z or a time differential"),
        }
        Ok(time)
    }

    fn key(&self, out: &mut Vec<u8>) -> Result<(), Reason> {
        // The fraction times its unit: whole seconds and, with as many digits as before, the decimal places.
        let mut places = self.fraction.to_vec();
        let mut carry = 0;
        for digit in places.iter_mut().rev() {
            let product = u32::from(*digit - b'0') * self.fraction_seconds + carry;
            *digit = b'0' + (product % 10) as u8;
            carry = product / 10;
        }
        // A leap second keeps its own number: it carries nothing.
        let seconds = self.second + carry % 60;
        let minutes = i64::from(self.minute + carry / 60) + i64::from(self.hour) * 60
            - i64::from(self.offset_minutes);
        let days =
            days_from_year_zero(self.year, self.month, self.day) + minutes.div_euclid(24 * 60);
        let minutes = minutes.rem_euclid(24 * 60);
        let (year, month, day) = date_of_day(days)
            .filter(|(year, ..)| *year <= 9999)
            .ok_or("it is outside the years 0000 to 9999 in UTC")?;
        for (number, width) in [
            (year, 4),
            (month, 2),
            (day, 2),
            ((minutes / 60) as u32, 2),
            ((minutes % 60) as u32, 2),
            (seconds, 2),
        ] {
            let mut divisor = 10u32.pow(width - 1);
            while divisor > 0 {
                out.push(b'0' + (number / divisor % 10) as u8);
                divisor /= 10;
            }
        }
        let significant = places
            .iter()
            .rposition(|digit| *digit != b'0')
            .map_or(0, |at| at + 1);
        out.extend_from_slice(places.get(..significant).unwrap_or_default());
        Ok(())
    }
}

fn starts_with_digit(rest: &[u8]) -> bool {
    rest.first().is_some_and(u8::is_ascii_digit)
}

/// Takes a number of `width` digits.
fn number(rest: &mut &[u8], width: usize) -> Option<u32> {
    let (digits, after) = rest.split_at_checked(width)?;
    let number = digits.iter().try_fold(0, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + u32::from(*digit - b'0'))
    })?;
    *rest = after;
    Some(number)
}

fn is_leap_year(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_month(year: u32, month: u32) -> u32 {
    match month {
        2 if is_leap_year(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the first of January of the year 0.
fn days_from_year_zero(year: u32, month: u32, day: u32) -> i64 {
    let before =
        |year: u32| 365 * year + year.div_ceil(4) - year.div_ceil(100) + year.div_ceil(400);
    let days = before(year)
        + (1..month)
            .map(|month| days_of_month(year, month))
            .sum::<u32>()
        + day
        - 1;
    i64::from(days)
}

/// The date of a day counted since the first of January of the year 0; `None` before it.
fn date_of_day(days: i64) -> Option<(u32, u32, u32)> {
    let days = u32::try_from(days).ok()?;
    let mut year = days / 366;
    while i64::from(days) >= days_from_year_zero(year + 1, 1, 1) {
        year += 1;
    }
    let mut rest = days - u32::try_from(days_from_year_zero(year, 1, 1)).ok()?;
    let mut month = 1;
    while rest >= days_of_month(year, month) {
        rest -= days_of_month(year, month);
        month += 1;
    }
    Some((year, month, rest + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(value: &str) -> String {
        let mut out = Vec::new();
        generalized_time_key(value.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_moments_in_utc() {
        assert_eq!(key("199412161032Z"), "19941216103200");
        assert_eq!(key("199412160532-0500"), "19941216103200");
        assert_eq!(key("1994121610Z"), "19941216100000");
        assert_eq!(key("1994121610.5Z"), "19941216103000");
        assert_eq!(key("1994121610,50Z"), "19941216103000");
        assert_eq!(key("199412161032.25Z"), "19941216103215");
        assert_eq!(key("19941216103200.2500Z"), "1994121610320025");
        assert_eq!(key("1994121610.0001Z"), "1994121610000036");
        assert_eq!(key("20000101003000+01"), "19991231233000");
        assert_eq!(key("20000228233000-0100"), "20000229003000");
        assert_eq!(key("19991231235960Z"), "19991231235960");
        assert_eq!(key("99991231230000-0059"), "99991231235900");
        let mut out = Vec::new();
        assert!(generalized_time_key(b"99991231233000-0100", &mut out).is_err());
        assert!(generalized_time_key(b"00000101000000+0100", &mut out).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn days_and_dates_agree(days in 0i64..3_652_424) {
            let (year, month, day) = date_of_day(days).unwrap();
            prop_assert!(day >= 1 && day <= days_of_month(year, month));
            prop_assert_eq!(days_from_year_zero(year, month, day), days);
        }

        #[test]
        fn any_bytes(value in "[0-9]{8,16}[.,]?[0-9]{0,5}[Z+-]?[0-9]{0,5}") {
            let mut out = Vec::new();
            if generalized_time_key(value.as_bytes(), &mut out).is_ok() {
                prop_assert!(Time::parse(value.as_bytes(), Form::Generalized).is_ok());
                // The key written as a time is itself that moment.
                let mut again = out.clone();
                if again.len() > 14 { again.insert(14, b'.'); }
                again.push(b'Z');
                let mut twice = Vec::new();
                generalized_time_key(&again, &mut twice).unwrap();
                prop_assert_eq!(out, twice);
            }
        }
    }
}
