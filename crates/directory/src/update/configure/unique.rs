//! The overlay of unique values: its entry, and the rules that are its values.

use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::message::AddRequest;
use sapwood_ldap::result::ResultCode;

use crate::config::UniqueRule;
use crate::config::entries::UNIQUE;
use crate::config::unique::{self, UNIQUE_URI};
use crate::engine::Write;
use crate::outcome::Stop;
use crate::state::State;
use crate::update::Run;

impl<T: Write> Run<'_, T> {
    /// Adds the entry of the rules of unique values, with its rules.
    pub(super) fn add_unique(&mut self, request: &AddRequest<'_>) -> Result<(), Stop> {
        let mut state = State::clone(self.state);
        if !state.settings.unique.is_empty() {
            let diagnostic = format!("{UNIQUE} is there already: add values of {UNIQUE_URI} to it");
            return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
        }
        for attribute in request.attributes {
            let known = self.schema.attribute_type(attribute.description);
            match known.map(|known| known.name()) {
                Some("objectClass" | "olcOverlay") => {}
                Some(UNIQUE_URI) => {
                    let kind = ChangeKind::Add;
                    change(&mut state.settings.unique, &Change { kind, attribute })?;
                }
                _ => {
                    let name = String::from_utf8_lossy(attribute.description);
                    let diagnostic =
                        format!("{name}: what is unique is said by {UNIQUE_URI} alone");
                    return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
                }
            }
        }
        if state.settings.unique.is_empty() {
            let diagnostic = format!("{UNIQUE_URI}: give a rule, such as ldap:///?uid?sub");
            return Err(Stop::refuse(ResultCode::ObjectClassViolation, diagnostic));
        }
        self.put(state)
    }
}

/// Makes one change of the rules of unique values.
pub(super) fn change(rules: &mut Vec<UniqueRule>, change: &Change<'_>) -> Result<(), Stop> {
    let refuse = |code, why: &str| Stop::refuse(code, format!("{UNIQUE_URI}: {why}"));
    if change.attribute.values.iter().count() > unique::RULES_MAX {
        return Err(refuse(
            ResultCode::AdminLimitExceeded,
            "there are too many rules",
        ));
    }
    let mut given = Vec::new();
    for value in change.attribute.values {
        let value = std::str::from_utf8(value);
        let value = value
            .map_err(|_| refuse(ResultCode::InvalidAttributeSyntax, "a value is not UTF-8"))?;
        let rule =
            unique::rule(value).map_err(|why| refuse(ResultCode::ConstraintViolation, &why))?;
        given.push(rule);
    }
    match change.kind {
        ChangeKind::Add => {
            if given.is_empty() {
                return Err(refuse(
                    ResultCode::ProtocolError,
                    "there is no value to add",
                ));
            }
            for rule in given {
                if rules.contains(&rule) {
                    let why = "a rule is there already";
                    return Err(refuse(ResultCode::AttributeOrValueExists, why));
                }
                rules.push(rule);
            }
        }
        ChangeKind::Delete if given.is_empty() => rules.clear(),
        ChangeKind::Delete => {
            for rule in given {
                let Some(at) = rules.iter().position(|known| *known == rule) else {
                    return Err(refuse(ResultCode::NoSuchAttribute, "there is no such rule"));
                };
                rules.remove(at);
            }
        }
        ChangeKind::Replace => *rules = given,
        ChangeKind::Increment => {
            return Err(refuse(
                ResultCode::ConstraintViolation,
                "it cannot be incremented",
            ));
        }
    }
    match rules.len() > unique::RULES_MAX {
        true => Err(refuse(
            ResultCode::AdminLimitExceeded,
            "there are too many rules",
        )),
        false => Ok(()),
    }
}
