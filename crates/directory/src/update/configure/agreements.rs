//! Whether agreements can be kept together, and what goes with one that ends.

use sapwood_ldap::result::ResultCode;

use super::Run;
use crate::changes::{agreement, registers};
use crate::config::Agreement;
use crate::config::agreements::SYNCREPL;
use crate::engine::Write;
use crate::names;
use crate::outcome::Stop;
use crate::schema::{NormalDn, Schema};
use crate::state::State;

impl<T: Write> Run<'_, T> {
    /// Forgets how far agreements had come that are not there any more, or were not there before: another provider, or
    /// another part of one, makes nothing of it. Also writes down whether values are kept apart.
    pub(super) fn forget_positions(&mut self, state: &State) -> Result<(), Stop> {
        let (before, now) = (&self.state.settings.agreements, &state.settings.agreements);
        let is_same = |one: &Agreement, other: &Agreement| {
            (one.rid, &one.provider, &one.base) == (other.rid, &other.provider, &other.base)
        };
        let lacks = |list: &[Agreement], one: &Agreement| !list.iter().any(|own| is_same(own, one));
        let ended = before.iter().filter(|one| lacks(now, one));
        let begun = now.iter().filter(|one| lacks(before, one));
        for changed in ended.chain(begun) {
            agreement::put(self.txn, changed.rid, None)?;
        }
        registers::keep(self.txn, state.settings.keeps_values_apart())?;
        Ok(())
    }
}

/// Refuses agreements of one number, of one part of the directory, and of what is in no naming context.
pub(super) fn check(schema: &Schema, state: &State) -> Result<(), Stop> {
    let refuse = |why: String| {
        let diagnostic = format!("{SYNCREPL}: {why}");
        Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
    };
    let mut several = state.settings.agreements.iter();
    let mut several = several.by_ref().filter(|one| one.multi_provider);
    if let Some(first) = several.next()
        && let Some(other) = several.find(|one| one.resolution != first.resolution)
    {
        return refuse(format!(
            "rid={:03} and rid={:03} have another resolution: servers that all take updates say the same",
            first.rid, other.rid
        ));
    }
    let mut before: Vec<(u16, NormalDn, bool)> = Vec::new();
    for agreement in &state.settings.agreements {
        let Agreement {
            rid,
            base,
            multi_provider,
            ..
        } = agreement;
        let mut normal = NormalDn::new();
        if let Err(error) = normal.parse(schema, base.as_bytes()) {
            return refuse(format!("searchbase: '{base}' is not a DN: {error}"));
        }
        if names::context_of(&state.contexts, &normal).is_none() {
            let contexts = names::listed(&state.contexts);
            return refuse(format!(
                "searchbase: '{base}' is in none of the naming contexts of this server: {contexts}"
            ));
        }
        if before.iter().any(|(other, ..)| other == rid) {
            return refuse(format!("there are two agreements with rid={rid:03}"));
        }
        let overlaps =
            |other: &NormalDn| other.is_at_or_below(&normal) || normal.is_at_or_below(other);
        let is_copy_of_two =
            |(_, other, is_weighed): &&_| overlaps(other) && !(*is_weighed && *multi_provider);
        if let Some((other, ..)) = before.iter().find(is_copy_of_two) {
            return refuse(format!(
                "rid={other:03} and rid={rid:03} are about the same entries: an entry is copied from one server, or \
                 updated on all of them (multiprovider=yes)"
            ));
        }
        if *multi_provider && !state.contexts.iter().any(|one| one.normal == normal) {
            return refuse(format!(
                "rid={rid:03}: servers that all take updates have whole naming contexts in common (searchbase)"
            ));
        }
        before.push((*rid, normal, *multi_provider));
    }
    Ok(())
}
