//! While a change of the schema is coming, no update brings a use of what would change: what was not found in an entry
//! does not come to it later ([`crate::schema_change`]). That holds for the updates of other
//! replicas, too.

use std::sync::Arc;

use sapwood_ldap::result::ResultCode;

use super::{After, Origin, Rule};
use crate::engine::{Index, Read};
use crate::error::{Error, Result};
use crate::operational::Vocabulary;
use crate::outcome::Stop;
use crate::schema::Schema;
use crate::schema_change::SchemaChange;
use crate::state::State;

/// The rule of a change.
#[derive(Debug)]
pub(super) struct ComingSchema(pub(super) Arc<SchemaChange>);

impl Rule for ComingSchema {
    fn is_local(&self) -> bool {
        true
    }

    fn heeds(&self, _: Origin) -> bool {
        true
    }

    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let uses = &self.0.uses;
        let vocabulary = Vocabulary {
            schema: update.schema,
            attributes: &update.state.attributes,
        };
        let damaged = |damaged| Error::corrupt(format!("entry {}: {damaged}", update.id));
        let Some(used) = uses.of_side(vocabulary, update.new).map_err(damaged)? else {
            return Ok(());
        };
        // An entry that had a use is one for which the change is given up, when it is looked at.
        match uses.of_side(vocabulary, update.old).map_err(damaged)? {
            Some(_) => Ok(()),
            None => Err(Stop::refuse(
                ResultCode::UnwillingToPerform,
                uses.refused(&used),
            )),
        }
    }
}
