//! Range retrieval, as Active Directory has it: a search asks for some of the values of an attribute by their places,
//! as in `member;range=0-999` or `member;range=1000-*`, where a star is the last one there is. What is sent has the
//! range that it is in its description, with a star where it goes to the last value. A range behind the last value
//! comes without values.
//!
//! Places are those in the order in which the values are stored, which changes of other values may shift. They are
//! counted among the values that are sent otherwise: with matched values (RFC 3876), among those that match.

/// The places of some values of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueRange {
    pub(super) first: u64,
    /// None is the last that there is.
    pub(super) last: Option<u64>,
}

/// Bytes that a range adds to a description at most.
pub(super) const RANGE_BYTES_MAX: usize = ";range=".len() + 2 * 20 + "-".len();

impl ValueRange {
    /// Reads what stands behind `range=`.
    fn parse(text: &str) -> Option<ValueRange> {
        let number = |digits: &str| -> Option<u64> {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        let (first, last) = text.split_once('-')?;
        let first = number(first)?;
        let last = match last {
            "*" => None,
            last => Some(number(last).filter(|last| *last >= first)?),
        };
        Some(ValueRange { first, last })
    }

    /// Appends it to a description. `goes_on` says that there are values behind it.
    pub(super) fn describe(self, description: &mut String, goes_on: bool) {
        let last = self.last.filter(|_| goes_on);
        let last = last.map_or_else(|| "*".to_owned(), |last| last.to_string());
        description.push_str(&format!(";range={}-{last}", self.first));
    }
}

/// Divides a description with a range into one without, and the range.
pub(super) fn ranged(description: &str) -> Option<(String, ValueRange)> {
    let mut range = None;
    let mut parts = description.split(';');
    let mut without = parts.next()?.to_owned();
    for option in parts {
        match option.split_at_checked("range=".len()) {
            Some((name, text)) if name.eq_ignore_ascii_case("range=") => {
                if range.replace(ValueRange::parse(text)?).is_some() {
                    return None;
                }
            }
            _ => {
                without.push(';');
                without.push_str(option);
            }
        }
    }
    Some((without, range?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_from_other_options() {
        let range = |first, last| ValueRange { first, last };
        for (description, without, expected) in [
            ("member;range=0-999", "member", range(0, Some(999))),
            ("member;Range=1000-*", "member", range(1000, None)),
            ("cn;range=7-7;lang-de", "cn;lang-de", range(7, Some(7))),
            ("2.5.4.31;x;RANGE=0-0", "2.5.4.31;x", range(0, Some(0))),
        ] {
            let found = ranged(description);
            assert_eq!(found, Some((without.to_owned(), expected)), "{description}");
        }
        for other in [
            "member",
            "member;range",
            "member;range=",
            "member;range=-",
            "member;range=1",
            "member;range=1-",
            "member;range=*-1",
            "member;range=2-1",
            "member;range=+1-2",
            "member;range=0-99999999999999999999",
            "member;range=0-1;range=2-3",
            "member;ranges=0-1",
            "member;r\u{e4}nge=0-1",
        ] {
            assert_eq!(ranged(other), None, "{other}");
        }
    }

    #[test]
    fn a_range_to_the_last_value_ends_with_a_star() {
        for (last, goes_on, expected) in [
            (Some(9), true, "cn;range=3-9"),
            (Some(9), false, "cn;range=3-*"),
            (None, false, "cn;range=3-*"),
        ] {
            let mut description = "cn".to_owned();
            ValueRange { first: 3, last }.describe(&mut description, goes_on);
            assert_eq!(description, expected);
            assert!(description.len() <= "cn".len() + RANGE_BYTES_MAX);
        }
    }
}
