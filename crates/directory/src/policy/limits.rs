//! Limits of searches in their written form (slapd.conf(5), "limits"): `<who> <limit> …`.

use std::fmt;
use std::str::FromStr;

use super::parse::{RuleError, Words, who};
use super::{GroupStyle, Who};

/// The largest limit (RFC 4511 §4.5.1.4: maxInt).
const LIMIT_MAX: u32 = i32::MAX as u32;

/// A limit: it bounds the searches of the identities that its selector matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The selector.
    pub who: Who,
    /// The bounds.
    pub bounds: SearchBounds,
}

/// The bounds of a search. `None` leaves a bound to the settings of the directory; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchBounds {
    /// Entries that a search may return.
    pub size: Bound,
    /// Seconds that a search may take.
    pub time: Bound,
    /// Candidates that a search may look at.
    pub candidates: Option<u32>,
    /// Entries of one page.
    pub page: Option<u32>,
    /// Entries of all pages of a search.
    pub pages: Option<PagesBound>,
    /// Operations of one identity under way at the same time, over all its connections.
    pub operations: Option<u32>,
}

/// The bound of all pages of a search together. Without one, the bound of a search without pages holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagesBound {
    /// Paged searches are refused.
    Disabled,
    /// The hard limit of entries, even if the request asks for no limit.
    Hard,
    /// This many entries, instead of the limits of a search without pages; 0 means unlimited.
    Entries(u32),
}

/// A soft and a hard bound; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The bound of a request that asks for no limit.
    pub soft: Option<u32>,
    /// The most that a request can ask for.
    pub hard: Option<u32>,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.who.fmt(f)?;
        let SearchBounds {
            size,
            time,
            candidates,
            page,
            pages,
            operations,
        } = self.bounds;
        match pages {
            None => {}
            Some(PagesBound::Disabled) => f.write_str(" size.prtotal=disabled")?,
            Some(PagesBound::Hard) => f.write_str(" size.prtotal=hard")?,
            Some(PagesBound::Entries(0)) => f.write_str(" size.prtotal=unlimited")?,
            Some(PagesBound::Entries(limit)) => write!(f, " size.prtotal={limit}")?,
        }
        for (name, limit) in [
            ("size.soft", size.soft),
            ("size.hard", size.hard),
            ("size.unchecked", candidates),
            ("size.pr", page),
            ("time.soft", time.soft),
            ("time.hard", time.hard),
            ("operations", operations),
        ] {
            match limit {
                None => {}
                Some(0) => write!(f, " {name}=unlimited")?,
                Some(limit) => write!(f, " {name}={limit}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Limits {
    type Err = RuleError;

    fn from_str(text: &str) -> std::result::Result<Limits, RuleError> {
        let mut words = Words::read(text, 1)?;
        let missing = "limits begin with whom they are about, such as users or dn.exact=";
        let word = words.next().ok_or_else(|| RuleError {
            line: 1,
            column: 1,
            why: missing.to_owned(),
        })?;
        let found = who(word)?.filter(is_selector);
        let found = found.ok_or_else(|| word.error(missing))?;
        let mut limits = Limits {
            who: found,
            bounds: SearchBounds::default(),
        };
        while let Some(word) = words.next() {
            let field = word.field()?;
            let name = field.name.to_ascii_lowercase();
            let is_size = name == "size";
            let is_operations = name == "operations" && field.style.is_none();
            if !is_size && !is_operations && name != "time" {
                let why = "write size= or time=, with .soft or .hard, or operations=";
                return Err(word.error(why));
            }
            let bounds = &mut limits.bounds;
            let is_of_pages = |style: &str| style.eq_ignore_ascii_case("prtotal");
            if is_size && field.style.is_some_and(is_of_pages) {
                let special = match field.value {
                    "disabled" => Some(PagesBound::Disabled),
                    "hard" => Some(PagesBound::Hard),
                    _ => None,
                };
                if special.is_some() {
                    bounds.pages = special;
                    continue;
                }
            }
            let limit = limit(field.value).ok_or_else(|| {
                word.error(format!(
                    "write a number from 1 to {LIMIT_MAX}, or unlimited"
                ))
            })?;
            if is_operations {
                bounds.operations = Some(limit);
                continue;
            }
            let kind = field.style.map(str::to_ascii_lowercase);
            let bound = match is_size {
                true => &mut bounds.size,
                false => &mut bounds.time,
            };
            match kind.as_deref() {
                None => (bound.soft, bound.hard) = (Some(limit), Some(limit)),
                Some("soft") => bound.soft = Some(limit),
                Some("hard") => bound.hard = Some(limit),
                Some("unchecked") if is_size => bounds.candidates = Some(limit),
                Some("pr") if is_size => bounds.page = Some(limit),
                Some("prtotal") if is_size => bounds.pages = Some(PagesBound::Entries(limit)),
                Some(kind) => {
                    let more = if is_size {
                        ", .unchecked, .pr or .prtotal"
                    } else {
                        ""
                    };
                    let why = format!(
                        "{name}.{kind} is no limit here: write {name}, or .soft, or .hard{more}"
                    );
                    return Err(word.error(why));
                }
            }
        }
        if limits.bounds == SearchBounds::default() {
            return Err(words.error("no limit is given: write size=, time= or operations="));
        }
        Ok(limits)
    }
}

fn limit(value: &str) -> Option<u32> {
    if ["unlimited", "none", "-1"].contains(&value) {
        return Some(0);
    }
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| is_number);
    number.filter(|number| (1..=LIMIT_MAX).contains(number))
}

/// Whether limits can be about them: what is known of who asks without an entry.
fn is_selector(who: &Who) -> bool {
    match who {
        Who::Anyone | Who::Anonymous | Who::Users | Who::Dn(_) | Who::Peer(_) => true,
        Who::Group(group) => group.style != GroupStyle::Expand,
        Who::Real(who) => is_selector(who),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Limits {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        for (text, size, time) in [
            ("* size=5", (Some(5), Some(5)), (None, None)),
            ("users time=unlimited", (None, None), (Some(0), Some(0))),
            (
                "anonymous size.soft=5 size.hard=7 time.soft=3",
                (Some(5), Some(7)),
                (Some(3), None),
            ),
            (
                "dn.exact=\"cn=a b,o=x\" size=-1",
                (Some(0), Some(0)),
                (None, None),
            ),
            (
                "dn.regex=\"^cn=.*,o=x$\" size.hard=none",
                (None, Some(0)),
                (None, None),
            ),
            (
                "group/groupOfNames/member.exact=cn=g,o=x time=9",
                (None, None),
                (Some(9), Some(9)),
            ),
            (
                "peername.ip=10.0.0.0%255.0.0.0 size=1",
                (Some(1), Some(1)),
                (None, None),
            ),
        ] {
            let limits = read(text);
            let SearchBounds {
                size: of_size,
                time: of_time,
                ..
            } = limits.bounds;
            assert_eq!((of_size.soft, of_size.hard), size, "{text}");
            assert_eq!((of_time.soft, of_time.hard), time, "{text}");
            assert_eq!(read(&limits.to_string()), limits);
        }
        let of_candidates = read("users size.unchecked=5000 size.pr=100");
        let SearchBounds {
            candidates, page, ..
        } = of_candidates.bounds;
        assert_eq!((candidates, page), (Some(5000), Some(100)));
        assert_eq!(read(&of_candidates.to_string()), of_candidates);
        for (text, pages) in [
            ("users size.prtotal=5", PagesBound::Entries(5)),
            ("users size.prtotal=unlimited", PagesBound::Entries(0)),
            ("users size.prtotal=hard", PagesBound::Hard),
            ("users size.prTotal=disabled", PagesBound::Disabled),
        ] {
            let of_pages = read(text);
            assert_eq!(of_pages.bounds.pages, Some(pages));
            assert_eq!(read(&of_pages.to_string()), of_pages);
        }
        let of_operations = read("dn.exact=\"cn=a,o=x\" operations=10 time=3");
        assert_eq!(of_operations.bounds.operations, Some(10));
        assert_eq!(read(&of_operations.to_string()), of_operations);
        for wrong in [
            "",
            "size=5",
            "users",
            "self size=5",
            "users size=0",
            "users size=x",
            "users size.unchecked=disabled",
            "users size.prtotal=0",
            "users size.hard=disabled",
            "users time.prtotal=5",
            "users operations=0",
            "users operations.soft=5",
            "users operations=hard",
            "users time.unchecked=5",
            "set=\"this\" size=5",
            "dnattr=member size=5",
            "users read",
            "group.expand=cn=$1 size=5",
            "users size=99999999999",
            "users time+5",
        ] {
            assert!(wrong.parse::<Limits>().is_err(), "{wrong}");
        }
    }
}
