//! Access rules as values of olcAccess. Their order counts: each is shown with its number, and a value that is added
//! with a number goes to that place (draft-chu-ldap-xordered).

use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::result::ResultCode;

use super::Settings;
use crate::access::{RULES_MAX, Rule};
use crate::outcome::Stop;

/// The attribute that says who may do what.
pub(crate) const ACCESS: &str = "olcAccess";

/// A list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessList {
    /// Of the entries of the naming contexts.
    Data,
    /// Of all entries, behind the other one.
    Global,
}

impl AccessList {
    /// The word of a list in the definition.
    pub(crate) fn word(self) -> &'static str {
        match self {
            AccessList::Data => "data",
            AccessList::Global => "global",
        }
    }

    /// All of them.
    pub(crate) const ALL: [AccessList; 2] = [AccessList::Data, AccessList::Global];

    /// The rules of the list.
    pub(crate) fn of(self, settings: &Settings) -> &[Rule] {
        match self {
            AccessList::Data => &settings.access,
            AccessList::Global => &settings.global_access,
        }
    }

    /// The same, to be changed.
    pub(crate) fn of_mut(self, settings: &mut Settings) -> &mut Vec<Rule> {
        match self {
            AccessList::Data => &mut settings.access,
            AccessList::Global => &mut settings.global_access,
        }
    }
}

/// Rules as values with their numbers.
pub(crate) fn values(rules: &[Rule]) -> Vec<String> {
    let numbered = rules.iter().enumerate();
    numbered
        .map(|(at, rule)| format!("{{{at}}}{rule}"))
        .collect()
}

fn refuse(code: ResultCode, why: impl std::fmt::Display) -> Stop {
    Stop::refuse(code, format!("{ACCESS}: {why}"))
}

/// A value: its number, if it has one, and what stands behind it.
fn numbered(value: &[u8]) -> Result<(Option<usize>, &str), Stop> {
    let invalid = |why| refuse(ResultCode::InvalidAttributeSyntax, why);
    let value = std::str::from_utf8(value).map_err(|_| invalid("a value is not UTF-8"))?;
    let Some(rest) = value.strip_prefix('{') else {
        return Ok((None, value));
    };
    let numbered = rest
        .split_once('}')
        .and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
    let (number, rest) = numbered.ok_or_else(|| invalid("write a number in the braces"))?;
    Ok((Some(number), rest))
}

fn rule(text: &str) -> Result<Rule, Stop> {
    text.parse()
        .map_err(|why| refuse(ResultCode::ConstraintViolation, why))
}

/// Makes one change of a list.
pub(crate) fn change(rules: &mut Vec<Rule>, change: &Change<'_>) -> Result<(), Stop> {
    let values = change.attribute.values;
    let too_many = || {
        refuse(
            ResultCode::AdminLimitExceeded,
            format!("more than {RULES_MAX} rules"),
        )
    };
    if values.iter().count() > RULES_MAX {
        return Err(too_many());
    }
    match change.kind {
        ChangeKind::Add if values.iter().next().is_none() => {
            return Err(refuse(
                ResultCode::ProtocolError,
                "there is no value to add",
            ));
        }
        ChangeKind::Add => {
            for value in values {
                let (number, text) = numbered(value)?;
                let at = number.unwrap_or(rules.len()).min(rules.len());
                rules.insert(at, rule(text)?);
            }
        }
        ChangeKind::Replace => {
            let mut given = Vec::new();
            for value in values {
                let (number, text) = numbered(value)?;
                given.push((number, rule(text)?));
            }
            // Those with numbers come in the order of these, and the others behind them.
            given.sort_by_key(|(number, _)| number.unwrap_or(usize::MAX));
            *rules = given.into_iter().map(|(_, rule)| rule).collect();
        }
        ChangeKind::Delete if values.iter().next().is_none() => rules.clear(),
        ChangeKind::Delete => delete(rules, change)?,
        ChangeKind::Increment => {
            return Err(refuse(
                ResultCode::ConstraintViolation,
                "it cannot be incremented",
            ));
        }
    }
    match rules.len() > RULES_MAX {
        true => Err(too_many()),
        false => Ok(()),
    }
}

/// Deletes rules that are named by their number, by their text, or by both. The numbers are those before the change.
fn delete(rules: &mut Vec<Rule>, change: &Change<'_>) -> Result<(), Stop> {
    let no_such = || refuse(ResultCode::NoSuchAttribute, "there is no such rule");
    let mut is_left = vec![true; rules.len()];
    for value in change.attribute.values {
        let (number, text) = numbered(value)?;
        let wanted = match text {
            "" if number.is_some() => None,
            text => Some(rule(text)?),
        };
        let is_it = |at: usize| {
            number.is_none_or(|number| number == at)
                && wanted.as_ref().is_none_or(|wanted| rules[at] == *wanted)
        };
        let at = (0..rules.len()).find(|at| is_left[*at] && is_it(*at));
        is_left[at.ok_or_else(no_such)?] = false;
    }
    let mut left = is_left.into_iter();
    rules.retain(|_| left.next().unwrap_or(true));
    Ok(())
}
