//! pwdHistory: passwords that were used, each as `time#syntax#length#stored form`
//! (draft-behera-ldap-password-policy §5.3.6).

/// Stored passwords that are kept at most, whatever a policy asks for: all are tried when a password is changed.
pub(crate) const HISTORY_MAX: u64 = 100;

/// A value.
pub(crate) fn value(time: &str, syntax: &str, stored: &[u8]) -> Vec<u8> {
    let mut value = format!("{time}#{syntax}#{}#", stored.len()).into_bytes();
    value.extend_from_slice(stored);
    value
}

/// The time and the stored form of a value; none if it is no such value.
pub(crate) fn parse(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = value.splitn(4, |byte| *byte == b'#');
    let (time, _, length, stored) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    (stored.len() == length).then_some((time, stored))
}

/// The values in the order of their times; what is no such value is left out.
pub(crate) fn ordered(values: &[Vec<u8>]) -> Vec<&[u8]> {
    let mut ordered: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    ordered.retain(|value| parse(value).is_some());
    // All are written in the same form.
    ordered.sort_by_key(|value| parse(value).map(|(time, _)| time));
    ordered
}

/// The values after one more was used, of which the last so many are kept.
pub(crate) fn with(values: &[Vec<u8>], used: Option<Vec<u8>>, kept: u64) -> Vec<Vec<u8>> {
    let kept = kept.min(HISTORY_MAX) as usize;
    if kept == 0 {
        return Vec::new();
    }
    let mut after: Vec<Vec<u8>> = ordered(values).into_iter().map(<[u8]>::to_vec).collect();
    after.extend(used.filter(|used| !values.contains(used)));
    let surplus = after.len().saturating_sub(kept);
    after.drain(..surplus);
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        let written = value("20250102030405Z", "1.2", b"{X}a#b");
        assert_eq!(written, b"20250102030405Z#1.2#6#{X}a#b");
        assert_eq!(
            parse(&written),
            Some((&b"20250102030405Z"[..], &b"{X}a#b"[..]))
        );
        for wrong in ["", "a#b#c", "t#s#x#v", "t#s#2#v"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_oldest_go_first() {
        let at = |time: &str, stored: &str| value(time, "1.2", stored.as_bytes());
        let (one, two, three) = (at("1", "a"), at("2", "b"), at("3", "c"));
        let values = [two.clone(), b"damaged".to_vec(), one.clone()];
        assert_eq!(
            with(&values, Some(three.clone()), 2),
            [two.clone(), three.clone()]
        );
        assert_eq!(
            with(&values, Some(three.clone()), 9),
            [one, two.clone(), three]
        );
        assert_eq!(with(&values, None, 1), [two]);
        assert!(with(&values, Some(at("4", "d")), 0).is_empty());
    }
}
