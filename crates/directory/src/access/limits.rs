//! How much the searches of somebody may take (slapd.conf(5), "limits"): a list, of which the first that is about who
//! asks counts. Where none is, or none says it, `olcSizeLimit` and `olcTimeLimit` do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::compile::{Asker, Data, Need};
use super::condition::Source;
use super::parse::{Words, who};
use super::policy::{DnScope, GroupStyle, Who};
use super::regex::Regex;
use super::who::CompiledWho;
use super::{Requester, RuleError};
use crate::config::Settings;
use crate::config::ordered::Ordered;
use crate::directory::Snapshot;
use crate::engine::{Engine, Read};
use crate::error::Result;
use crate::schema::Schema;

/// The largest limit (RFC 4511 §4.5.1.4: maxInt).
const LIMIT_MAX: u32 = i32::MAX as u32;

/// What bounds the searches of some, `<who> <limit> …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Whom it is about.
    pub who: Who,
    /// Entries that a search returns.
    pub size: Bound,
    /// Seconds that a search takes.
    pub time: Bound,
}

/// A bound; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// What holds for who asks for no limit, if that is said.
    pub soft: Option<u32>,
    /// What nobody can ask for more than, if that is said.
    pub hard: Option<u32>,
}

/// What bounds the searches of somebody; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchLimits {
    entries: Range,
    seconds: Range,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    soft: u32,
    hard: u32,
}

impl Range {
    fn of(bound: Bound, usual: u32) -> Range {
        let soft = bound.soft.or(bound.hard).unwrap_or(usual);
        let hard = bound.hard.or(bound.soft).unwrap_or(usual);
        let is_within = hard == 0 || soft > 0 && soft <= hard;
        Range {
            soft: if is_within { soft } else { hard },
            hard,
        }
    }

    /// What bounds a search that asks for a limit, or with 0 for none.
    fn most(self, asked: u32) -> u32 {
        match asked {
            0 => self.soft,
            _ => self.hard,
        }
    }
}

impl SearchLimits {
    /// Those of everybody.
    fn usual(settings: &Settings) -> SearchLimits {
        let range = |limit| Range {
            soft: limit,
            hard: limit,
        };
        SearchLimits {
            entries: range(settings.search_entries_max),
            seconds: range(settings.search_seconds_max),
        }
    }

    /// Entries that a search returns whose request has this size limit.
    pub fn entries_max(&self, asked: u32) -> u32 {
        self.entries.most(asked)
    }

    /// Seconds that a search takes whose request has this time limit, and a compare with 0.
    pub fn seconds_max(&self, asked: u32) -> u32 {
        self.seconds.most(asked)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.who.fmt(f)?;
        for (name, bound) in [("size", self.size), ("time", self.time)] {
            for (kind, limit) in [("soft", bound.soft), ("hard", bound.hard)] {
                match limit {
                    None => {}
                    Some(0) => write!(f, " {name}.{kind}=unlimited")?,
                    Some(limit) => write!(f, " {name}.{kind}={limit}")?,
                }
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
            size: Bound::default(),
            time: Bound::default(),
        };
        while let Some(word) = words.next() {
            let field = word.field()?;
            let name = field.name.to_ascii_lowercase();
            let bound = match name.as_str() {
                "size" => &mut limits.size,
                "time" => &mut limits.time,
                _ => return Err(word.error("write size= or time=, with .soft or .hard")),
            };
            let limit = limit(field.value).ok_or_else(|| {
                word.error(format!(
                    "write a number from 1 to {LIMIT_MAX}, or unlimited"
                ))
            })?;
            let kind = field.style.map(str::to_ascii_lowercase);
            match kind.as_deref() {
                None => (bound.soft, bound.hard) = (Some(limit), Some(limit)),
                Some("soft") => bound.soft = Some(limit),
                Some("hard") => bound.hard = Some(limit),
                Some(kind) => {
                    let why =
                        format!("{name}.{kind} is no limit here: write {name}, or .soft, or .hard");
                    return Err(word.error(why));
                }
            }
        }
        if limits.size == Bound::default() && limits.time == Bound::default() {
            return Err(words.error("no limit is given: write size= or time="));
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

/// Limits with their names looked up.
#[derive(Debug)]
pub(super) struct CompiledLimits {
    who: CompiledWho,
    size: Bound,
    time: Bound,
}

impl CompiledLimits {
    pub(super) fn new(
        schema: &Schema,
        limits: &Limits,
    ) -> std::result::Result<CompiledLimits, String> {
        let who = match &limits.who {
            // Nothing stands for anything in it.
            Who::Dn(pattern) if pattern.scope == DnScope::Regex => {
                CompiledWho::Matches(Box::new(Regex::new(&pattern.dn)?))
            }
            who => CompiledWho::new(schema, who, &Source::Whole)?,
        };
        Ok(CompiledLimits {
            who,
            size: limits.size,
            time: limits.time,
        })
    }

    pub(super) fn needs_data(&self) -> bool {
        self.who.needs_data()
    }
}

impl CompiledLimits {
    /// What the first of some limits says that are about somebody.
    pub(super) fn first<R: Read>(
        all: &[CompiledLimits],
        asker: &Asker<'_>,
        data: Data<'_, R>,
        work: &mut u64,
    ) -> Result<Option<(Bound, Bound)>> {
        for limits in all {
            let mut need = Need::default();
            let is_meant = limits.who.may_be(asker, data, &mut need)?;
            *work = work.saturating_add(need.work);
            // What would be asked of an entry is true of none here.
            if is_meant && need.conditions.is_empty() {
                return Ok(Some((limits.size, limits.time)));
            }
        }
        Ok(None)
    }
}

impl<E: Engine> Snapshot<E> {
    /// What bounds the searches of somebody: nothing those of the administrator.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn search_limits(&self, requester: &Arc<Requester>) -> Result<SearchLimits> {
        let settings = self.settings();
        if requester.grants().is_unlimited() {
            return Ok(SearchLimits::default());
        }
        let usual = SearchLimits::usual(settings);
        if settings.limits.is_empty() {
            return Ok(usual);
        }
        let requester = self.current(requester)?;
        Ok(match requester.grants().limits() {
            Some((size, time)) => SearchLimits {
                entries: Range::of(size, settings.search_entries_max),
                seconds: Range::of(time, settings.search_seconds_max),
            },
            None => usual,
        })
    }
}

impl Ordered for Limits {
    const ATTRIBUTE: &'static str = LIMITS;
    /// Each may be tried on who binds.
    const VALUES_MAX: usize = 100;
    const WHAT: &'static str = "limit";
}

/// The attribute that has them.
pub(crate) const LIMITS: &str = "olcLimits";

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
            assert_eq!((limits.size.soft, limits.size.hard), size, "{text}");
            assert_eq!((limits.time.soft, limits.time.hard), time, "{text}");
            assert_eq!(read(&limits.to_string()), limits);
        }
        for wrong in [
            "",
            "size=5",
            "users",
            "self size=5",
            "users size=0",
            "users size=x",
            "users size.unchecked=5",
            "users size.pr=5",
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

    #[test]
    fn who_asks_for_no_limit_has_the_soft_one() {
        let range = |soft, hard| Range::of(Bound { soft, hard }, 10);
        for (soft, hard, (unasked, asked)) in [
            (None, None, (10, 10)),
            (Some(5), None, (5, 5)),
            (None, Some(5), (5, 5)),
            (Some(5), Some(8), (5, 8)),
            (Some(5), Some(0), (5, 0)),
            (Some(0), Some(0), (0, 0)),
            // The smaller one counts.
            (Some(9), Some(8), (8, 8)),
            (Some(0), Some(8), (8, 8)),
        ] {
            let range = range(soft, hard);
            assert_eq!(
                (range.most(0), range.most(3)),
                (unasked, asked),
                "{soft:?} {hard:?}"
            );
        }
    }
}
