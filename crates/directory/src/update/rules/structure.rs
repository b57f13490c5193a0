//! DIT structure rules (RFC 4512 §4.1.7.1): which entries may be below which others. They are in force where the schema
//! has some. Name forms and content rules, which look at nothing but the entry, are asked with the schema.

use sapwood_ldap::result::ResultCode;

use super::{After, Rule};
use crate::engine::{Index, Read};
use crate::error::Result;
use crate::operational::Vocabulary;
use crate::outcome::Stop;
use crate::schema::{Governed, Schema};
use crate::state::State;
use crate::structure::{place_of, structural_class};

/// The rule, which has nothing of its own.
#[derive(Debug)]
pub(super) struct Structure;

impl Rule for Structure {
    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let Some([new, _]) = &update.new.records else {
            return Ok(());
        };
        let old = update.old.records.as_ref().map(|[old, _]| old);
        let stays = |old: &crate::entry::Entry<'_>| {
            old.parent() == new.parent() && old.rdn_bytes() == new.rdn_bytes()
        };
        // A modify changes neither the name nor the structural class.
        if old.is_some_and(stays) || new.flags().is_subentry() {
            return Ok(());
        }
        let (id, schema) = (update.id, update.schema);
        let vocabulary = Vocabulary {
            schema,
            attributes: &update.state.attributes,
        };
        let place = place_of(update.view, vocabulary, (id, new))?;
        let class = structural_class(vocabulary, (id, new))?;
        let name = class.map_or("", |class| schema.class_of(class).name());
        let below = match place.above {
            Governed::By(rule) => format!("below an entry that the structure rule {rule} governs"),
            Governed::Free | Governed::Nowhere => {
                "below an entry that no structure rule governs".to_owned()
            }
        };
        let refuse = |why: String| Err(Stop::refuse(ResultCode::NamingViolation, why));
        match (place.own, class) {
            (Governed::Nowhere, Some(class)) => {
                let rules = schema.structure_rules_of(class);
                return refuse(format!(
                    "an entry of the object class {name} cannot have this name {below}: its structure rules are {rules}"
                ));
            }
            (Governed::Free, _) if matches!(place.above, Governed::By(_)) => {
                return refuse(format!(
                    "an entry of the object class {name}, which has no structure rule, cannot be {below}"
                ));
            }
            _ => {}
        }
        let Some(old) = old else {
            return Ok(());
        };
        let was = place_of(update.view, vocabulary, (id, old))?;
        if was.own != place.own && update.view.has_children(id)? {
            let told = |governed| match governed {
                Governed::By(rule) => format!("the structure rule {rule}"),
                Governed::Free | Governed::Nowhere => "no structure rule".to_owned(),
            };
            return refuse(format!(
                "there are entries below this one, which {} governs, and {} would",
                told(was.own),
                told(place.own)
            ));
        }
        Ok(())
    }
}
