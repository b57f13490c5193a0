//! Overlays whose rules are the values of one attribute: their entries, and the changes of these values.

use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::message::AddRequest;
use sapwood_ldap::result::ResultCode;

use crate::config::Settings;
use crate::config::listed::{ListedRule, RULES_MAX};
use crate::engine::Write;
use crate::outcome::Stop;
use crate::state::State;
use crate::update::Run;

impl<T: Write> Run<'_, T> {
    /// Adds the entry of a kind of rules, with its rules.
    pub(super) fn add_listed<R: ListedRule>(
        &mut self,
        request: &AddRequest<'_>,
    ) -> Result<(), Stop> {
        let (entry, own) = (R::ENTRY, R::ATTRIBUTE);
        let mut state = State::clone(self.state);
        if !R::list(&mut state.settings).is_empty() {
            let diagnostic = format!("{entry} is there already: add values of {own} to it");
            return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
        }
        for attribute in request.attributes {
            let known = self.schema.attribute_type(attribute.description);
            match known.map(|known| known.name()) {
                Some("objectClass" | "olcOverlay") => {}
                Some(name) if name == own => {
                    let kind = ChangeKind::Add;
                    change::<R>(&mut state.settings, &Change { kind, attribute })?;
                }
                _ => {
                    let name = String::from_utf8_lossy(attribute.description);
                    let diagnostic = format!("{name}: what {entry} is for is said by {own} alone");
                    return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
                }
            }
        }
        if R::list(&mut state.settings).is_empty() {
            let diagnostic = format!("{own}: give a rule, such as {}", R::EXAMPLE);
            return Err(Stop::refuse(ResultCode::ObjectClassViolation, diagnostic));
        }
        self.put(state)
    }
}

/// Makes one change of the rules of a kind.
pub(super) fn change<R: ListedRule>(
    settings: &mut Settings,
    change: &Change<'_>,
) -> Result<(), Stop> {
    let rules = R::list(settings);
    let refuse = |code, why: &str| Stop::refuse(code, format!("{}: {why}", R::ATTRIBUTE));
    let too_many = || refuse(ResultCode::AdminLimitExceeded, "there are too many rules");
    if change.attribute.values.iter().count() > RULES_MAX {
        return Err(too_many());
    }
    let mut given = Vec::new();
    for value in change.attribute.values {
        let value = std::str::from_utf8(value);
        let value = value
            .map_err(|_| refuse(ResultCode::InvalidAttributeSyntax, "a value is not UTF-8"))?;
        let rule = R::read(value).map_err(|why| refuse(ResultCode::ConstraintViolation, &why))?;
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
    match rules.len() > RULES_MAX {
        true => Err(too_many()),
        false => Ok(()),
    }
}
