//! Cookies (RFC 4533 §2.1.2): what a consumer gives back to say how far it is.
//!
//! The text is slapd's, with one more part that only Sapwood writes:
//!
//! ```text
//! rid=001,sid=002,csn=<csn>;<csn>,pos=<position>
//! ```
//!
//! `rid` numbers an agreement of the consumer, in decimal; `sid` is the replica that made the cookie, in hexadecimal;
//! `csn` has a number for each replica, in their order. `pos` is a place in the feed of the replica that made it, which
//! can go on from there without a search for what has changed. A reader skips parts that it does not know, as this
//! one does slapd's `delcsn`.
//!
//! slapd takes a `;` behind the last number for the beginning of another one, so a position has none.

#![deny(clippy::indexing_slicing)]

use std::fmt;

use sapwood_ldap::csn::Csn;

use crate::Vector;

/// Most bytes of a cookie: a number for each possible replica, and a position.
pub const COOKIE_BYTES_MAX: usize = 192 * 1024;
/// Most bytes of the position in a cookie.
pub const POSITION_BYTES_MAX: usize = 4096;
/// The greatest number of an agreement: three decimal digits.
pub const RID_MAX: u16 = 999;

/// What a cookie says. One that says nothing asks for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookie {
    /// The consumer's agreement; at most [`RID_MAX`].
    pub rid: Option<u16>,
    /// The replica that made the cookie.
    pub sid: Option<u16>,
    /// What the consumer has.
    pub vector: Vector,
    /// A place in the feed of `sid`: no more than [`POSITION_BYTES_MAX`] letters, digits and points.
    pub position: Option<String>,
}

/// Why a text is no cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// It is longer than [`COOKIE_BYTES_MAX`].
    #[error("the cookie is longer than {COOKIE_BYTES_MAX} bytes")]
    TooLong,
    /// It is not UTF-8.
    #[error("the cookie is no text")]
    NotText,
    /// A part that is known is there twice.
    #[error("the cookie has the part {0} twice")]
    Repeated(&'static str),
    /// A part is not of its form.
    #[error("the part {0} of the cookie is not of its form")]
    Malformed(&'static str),
    /// Two change sequence numbers are of one replica.
    #[error("the cookie has two change sequence numbers of replica {0:03x}")]
    TwoOfOne(u16),
}

impl Cookie {
    /// Reads a cookie. The time this takes grows with its length.
    ///
    /// # Errors
    /// When it is none; a consumer that sends such a one is told to begin anew (RFC 4533 §3.8).
    pub fn parse(cookie: &[u8]) -> Result<Cookie, CookieError> {
        if cookie.len() > COOKIE_BYTES_MAX {
            return Err(CookieError::TooLong);
        }
        let text = std::str::from_utf8(cookie).map_err(|_| CookieError::NotText)?;
        let (mut rid, mut sid, mut vector, mut position) = (None, None, None, None);
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("rid", text)) => once(&mut rid, "rid", number(text, 10, RID_MAX))?,
                Some(("sid", text)) => once(&mut sid, "sid", number(text, 16, Csn::REPLICA_MAX))?,
                Some(("csn", text)) => once(&mut vector, "csn", Some(csns(text)?))?,
                Some(("pos", text)) => once(&mut position, "pos", position_of(text))?,
                _ => {}
            }
        }
        Ok(Cookie {
            rid,
            sid,
            vector: vector.unwrap_or_default(),
            position,
        })
    }
}

/// Keeps what a part says; `None` if that is not of its form.
fn once<T>(slot: &mut Option<T>, part: &'static str, read: Option<T>) -> Result<(), CookieError> {
    if slot.is_some() {
        return Err(CookieError::Repeated(part));
    }
    *slot = Some(read.ok_or(CookieError::Malformed(part))?);
    Ok(())
}

/// One to three digits.
fn number(digits: &str, radix: u32, max: u16) -> Option<u16> {
    let is_number = digits.len() <= 3 && digits.chars().all(|digit| digit.is_digit(radix));
    let number = u16::from_str_radix(digits, radix);
    number.ok().filter(|number| is_number && *number <= max)
}

fn csns(text: &str) -> Result<Vector, CookieError> {
    let mut vector = Vector::default();
    for csn in text.split(';').filter(|csn| !csn.is_empty()) {
        // What is no time is read as any number, and would be written otherwise.
        let read = Csn::parse(csn).filter(|read| read.to_string().eq_ignore_ascii_case(csn));
        let csn = read.ok_or(CookieError::Malformed("csn"))?;
        if vector.of(csn.replica) != Csn::default() {
            return Err(CookieError::TwoOfOne(csn.replica));
        }
        vector.advance(csn);
    }
    Ok(vector)
}

fn position_of(text: &str) -> Option<String> {
    let is_one = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
    let is_position = text.len() <= POSITION_BYTES_MAX && text.chars().all(is_one);
    is_position.then(|| text.to_owned())
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        if let Some(rid) = self.rid {
            write!(f, "rid={rid:03}")?;
            comma = ",";
        }
        if let Some(sid) = self.sid {
            write!(f, "{comma}sid={sid:03x}")?;
            comma = ",";
        }
        let mut before = "csn=";
        for csn in self.vector.iter() {
            write!(f, "{comma}{before}{csn}")?;
            (comma, before) = ("", ";");
        }
        if !self.vector.is_empty() {
            comma = ",";
        }
        match &self.position {
            Some(position) => write!(f, "{comma}pos={position}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: &str = "20261124100001.000002Z#000000#001#000000";
    const SECOND: &str = "20261124100000.123456Z#00000a#abc#000000";

    fn parse(text: &str) -> Result<Cookie, CookieError> {
        Cookie::parse(text.as_bytes())
    }

    #[test]
    fn cookies_of_both_forms_are_read() {
        let slapd = format!("rid=007,sid=abc,csn={FIRST};{SECOND}");
        let cookie = parse(&slapd).unwrap();
        assert_eq!((cookie.rid, cookie.sid), (Some(7), Some(0xabc)));
        assert_eq!(cookie.vector.len(), 2);
        assert_eq!(cookie.vector.of(0xabc), Csn::parse(SECOND).unwrap());
        assert_eq!((cookie.to_string(), cookie.position), (slapd.clone(), None));

        let sapwood = format!("{slapd},pos=1f00c0ffee.12.7");
        let cookie = parse(&sapwood).unwrap();
        assert_eq!(cookie.position.as_deref(), Some("1f00c0ffee.12.7"));
        assert_eq!(cookie.to_string(), sapwood);
    }

    #[test]
    fn what_says_little_is_read_and_what_is_unknown_is_skipped() {
        assert_eq!(parse(""), Ok(Cookie::default()));
        assert_eq!(parse("rid=1").unwrap().rid, Some(1));
        let deleted = format!("rid=001,delcsn={FIRST},csn={SECOND};,what");
        let cookie = parse(&deleted).unwrap();
        assert_eq!(cookie.to_string(), format!("rid=001,csn={SECOND}"));
        let only = Cookie {
            position: Some("0.1".to_owned()),
            ..Cookie::default()
        };
        assert_eq!(
            (parse("pos=0.1"), only.to_string()),
            (Ok(only), "pos=0.1".to_owned())
        );
    }

    #[test]
    fn what_is_no_cookie_is_refused() {
        use CookieError::*;
        for (text, error) in [
            ("rid=", Malformed("rid")),
            ("rid=1000", Malformed("rid")),
            ("rid=+1", Malformed("rid")),
            ("sid=1000", Malformed("sid")),
            ("sid=xyz", Malformed("sid")),
            ("csn=now", Malformed("csn")),
            (
                "csn=20269924100001.000002Z#000000#001#000000",
                Malformed("csn"),
            ),
            ("pos=a;b", Malformed("pos")),
            ("sid=001,sid=001", Repeated("sid")),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        let two = format!("csn={FIRST};{FIRST}");
        assert_eq!(parse(&two), Err(TwoOfOne(1)));
        assert_eq!(Cookie::parse(b"rid=\xff"), Err(NotText));
        assert_eq!(parse(&"x".repeat(COOKIE_BYTES_MAX + 1)), Err(TooLong));
        let long = format!("pos={}", "x".repeat(POSITION_BYTES_MAX + 1));
        assert_eq!(parse(&long), Err(Malformed("pos")));
    }

    #[test]
    fn a_cookie_of_all_replicas_is_short_enough() {
        let csns = (0..=Csn::REPLICA_MAX).map(|replica| Csn {
            micros: 4_102_444_799_999_999,
            count: 1,
            replica,
        });
        let cookie = Cookie {
            rid: Some(RID_MAX),
            sid: Some(Csn::REPLICA_MAX),
            vector: csns.collect(),
            position: Some("1".repeat(POSITION_BYTES_MAX)),
        };
        let text = cookie.to_string();
        assert!(text.len() <= COOKIE_BYTES_MAX);
        assert_eq!(parse(&text), Ok(cookie));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_read_is_written_the_same(
            parts in prop::collection::vec(
                prop_oneof![
                    "rid=[0-9]{0,4}",
                    "sid=[0-9a-f]{0,4}",
                    "pos=[0-9a-f.]{0,9}",
                    "csn=(20[0-9]{2}0[1-9]1[0-9]1[0-9]{5}\\.[0-9]{6}Z#[0-9a-f]{6}#[0-9a-f]{3}#000000;?){0,3}",
                    ".{0,9}",
                ],
                0..6,
            ),
        ) {
            if let Ok(cookie) = parse(&parts.join(",")) {
                prop_assert_eq!(parse(&cookie.to_string()), Ok(cookie));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Cookie::parse(&bytes);
        }
    }
}
