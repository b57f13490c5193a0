//! Attributes whose values are in an order that counts: each is shown with its number, and a value that is added with a
//! number goes to that place (draft-chu-ldap-xordered).

use std::fmt;
use std::str::FromStr;

use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::result::ResultCode;

use crate::outcome::Stop;

/// What stands in a list of values.
pub(crate) trait Ordered: fmt::Display + FromStr<Err: fmt::Display> + PartialEq {
    /// The attribute that has them.
    const ATTRIBUTE: &'static str;
    /// The most of them.
    const VALUES_MAX: usize;
    /// What one of them is.
    const WHAT: &'static str;
}

/// Values with their numbers.
pub(crate) fn values<T: Ordered>(list: &[T]) -> Vec<String> {
    let numbered = list.iter().enumerate();
    numbered
        .map(|(at, value)| format!("{{{at}}}{value}"))
        .collect()
}

fn refuse<T: Ordered>(code: ResultCode, why: impl fmt::Display) -> Stop {
    Stop::refuse(code, format!("{}: {why}", T::ATTRIBUTE))
}

/// A value: its number, if it has one, and what stands behind it.
fn numbered<T: Ordered>(value: &[u8]) -> Result<(Option<usize>, &str), Stop> {
    let invalid = |why| refuse::<T>(ResultCode::InvalidAttributeSyntax, why);
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

fn read<T: Ordered>(text: &str) -> Result<T, Stop> {
    text.parse()
        .map_err(|why| refuse::<T>(ResultCode::ConstraintViolation, why))
}

/// Makes one change of a list.
pub(crate) fn change<T: Ordered>(list: &mut Vec<T>, change: &Change<'_>) -> Result<(), Stop> {
    let values = change.attribute.values;
    let too_many = || {
        refuse::<T>(
            ResultCode::AdminLimitExceeded,
            format!("more than {} {}s", T::VALUES_MAX, T::WHAT),
        )
    };
    if values.iter().count() > T::VALUES_MAX {
        return Err(too_many());
    }
    match change.kind {
        ChangeKind::Add if values.iter().next().is_none() => {
            return Err(refuse::<T>(
                ResultCode::ProtocolError,
                "there is no value to add",
            ));
        }
        ChangeKind::Add => {
            for value in values {
                let (number, text) = numbered::<T>(value)?;
                let at = number.unwrap_or(list.len()).min(list.len());
                list.insert(at, read(text)?);
            }
        }
        ChangeKind::Replace => {
            let mut given = Vec::new();
            for value in values {
                let (number, text) = numbered::<T>(value)?;
                given.push((number, read(text)?));
            }
            // Those with numbers come in the order of these, and the others behind them.
            given.sort_by_key(|(number, _)| number.unwrap_or(usize::MAX));
            *list = given.into_iter().map(|(_, value)| value).collect();
        }
        ChangeKind::Delete if values.iter().next().is_none() => list.clear(),
        ChangeKind::Delete => delete(list, change)?,
        ChangeKind::Increment => {
            return Err(refuse::<T>(
                ResultCode::ConstraintViolation,
                "it cannot be incremented",
            ));
        }
    }
    match list.len() > T::VALUES_MAX {
        true => Err(too_many()),
        false => Ok(()),
    }
}

/// Deletes values that are named by their number, by their text, or by both. The numbers are those before the change.
fn delete<T: Ordered>(list: &mut Vec<T>, change: &Change<'_>) -> Result<(), Stop> {
    let no_such = || {
        let why = format!("there is no such {}", T::WHAT);
        refuse::<T>(ResultCode::NoSuchAttribute, why)
    };
    let mut is_left = vec![true; list.len()];
    for value in change.attribute.values {
        let (number, text) = numbered::<T>(value)?;
        let wanted = match text {
            "" if number.is_some() => None,
            text => Some(read::<T>(text)?),
        };
        let is_it = |at: usize| {
            number.is_none_or(|number| number == at)
                && wanted.as_ref().is_none_or(|wanted| list[at] == *wanted)
        };
        let at = (0..list.len()).find(|at| is_left[*at] && is_it(*at));
        is_left[at.ok_or_else(no_such)?] = false;
    }
    let mut left = is_left.into_iter();
    list.retain(|_| left.next().unwrap_or(true));
    Ok(())
}
