//! The overlay of referential integrity: its entry.

use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::message::AddRequest;
use sapwood_ldap::result::ResultCode;

use super::{Target, make};
use crate::config::entries::REFINT;
use crate::config::{RefintRule, refint};
use crate::engine::Write;
use crate::outcome::Stop;
use crate::state::State;
use crate::update::Run;

impl<T: Write> Run<'_, T> {
    /// Adds the overlay of referential integrity, with what is set in its entry.
    pub(super) fn add_refint(&mut self, request: &AddRequest<'_>) -> Result<(), Stop> {
        let mut state = State::clone(self.state);
        if state.settings.refint.is_some() {
            let diagnostic = format!("{REFINT} is there already: modify it");
            return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
        }
        state.settings.refint = Some(RefintRule::default());
        for attribute in request.attributes {
            let known = self.schema.attribute_type(attribute.description);
            if known.is_some_and(|known| ["objectClass", "olcOverlay"].contains(&known.name())) {
                continue;
            }
            let change = |kind| Change { kind, attribute };
            match self.configured(attribute.description)? {
                Target::Referring => {
                    refint::change(&mut state.settings, &change(ChangeKind::Add))?;
                }
                Target::Refint(setting) => {
                    make(setting, &mut state.settings, &change(ChangeKind::Replace))?;
                }
                _ => {
                    let name = String::from_utf8_lossy(attribute.description);
                    let diagnostic = format!("{name} is not set in {REFINT}");
                    return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
                }
            }
        }
        self.put(state)
    }
}
