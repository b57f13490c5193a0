//! Which extensions of the protocol are on, changed value by value.

use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::result::ResultCode;

use crate::config::extensions::{EXTENSIONS, Extension, Extensions};
use crate::outcome::Stop;

/// Makes one change of the extensions that are on.
pub(super) fn change(on: &mut Extensions, change: &Change<'_>) -> Result<(), Stop> {
    let mut given = Extensions::default();
    for value in change.attribute.values {
        let value = std::str::from_utf8(value)
            .map_err(|_| refuse(ResultCode::InvalidAttributeSyntax, "a value is not UTF-8"))?;
        let extension: Extension = value
            .parse()
            .map_err(|why: String| refuse(ResultCode::ConstraintViolation, &why))?;
        if given.has(extension) {
            let why = format!("{} is given twice", extension.name());
            return Err(refuse(ResultCode::AttributeOrValueExists, &why));
        }
        given = given.with(extension);
    }
    let is_empty = given == Extensions::default();
    match change.kind {
        ChangeKind::Add if is_empty => {
            let why = "there is no value to add";
            return Err(refuse(ResultCode::ProtocolError, why));
        }
        ChangeKind::Add => {
            for extension in given.iter() {
                if on.has(extension) {
                    let why = format!("{} is on already", extension.name());
                    return Err(refuse(ResultCode::AttributeOrValueExists, &why));
                }
                *on = on.with(extension);
            }
        }
        ChangeKind::Delete if is_empty => *on = given,
        ChangeKind::Delete => {
            for extension in given.iter() {
                if !on.has(extension) {
                    let why = format!("{} is not on", extension.name());
                    return Err(refuse(ResultCode::NoSuchAttribute, &why));
                }
                *on = on.without(extension);
            }
        }
        ChangeKind::Replace => *on = given,
        ChangeKind::Increment => {
            let why = "it cannot be incremented";
            return Err(refuse(ResultCode::ConstraintViolation, why));
        }
    }
    Ok(())
}

fn refuse(code: ResultCode, why: &str) -> Stop {
    Stop::refuse(code, format!("{EXTENSIONS}: {why}"))
}
