//! `dynlist`: entries have values that LDAP URLs find, which are [computed](crate::dynamic_groups). The rule takes part
//! in no update: it sees that what it names is there.

use super::{Origin, Rule};
use crate::config::DynlistRule;
use crate::config::dynlist::ATTRIBUTE;
use crate::engine::Index;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::state::State;

/// The rule.
#[derive(Debug)]
pub(super) struct Dynlist;

impl Dynlist {
    pub(super) fn new(schema: &Schema, rule: &DynlistRule) -> Result<Dynlist> {
        let wrong = |why: String| Error::Config(format!("{ATTRIBUTE}: {why}"));
        let known = |name: &str| {
            let known = schema.attribute_type(name.as_bytes());
            known.ok_or_else(|| wrong(format!("the schema does not define '{name}'")))
        };
        let DynlistRule { class, url, member } = rule;
        if schema.object_class(class.as_bytes()).is_none() {
            return Err(wrong(format!(
                "the schema does not define the class '{class}'"
            )));
        }
        let labeled = known("labeledURI")?;
        if !known(url)?.is_subtype_of(labeled.id()) {
            return Err(wrong(format!(
                "{url} has no URLs: it is no subtype of labeledURI"
            )));
        }
        if let Some(member) = member {
            let known = known(member)?;
            if !known.syntax().is_some_and(|syntax| syntax.is_name()) {
                return Err(wrong(format!(
                    "{member} names no members: its values are no DNs"
                )));
            }
            if known.is_operational() {
                return Err(wrong(format!("{member} is kept by the server")));
            }
        }
        Ok(Dynlist)
    }
}

impl Rule for Dynlist {
    fn is_local(&self) -> bool {
        true
    }

    fn heeds(&self, _: Origin) -> bool {
        false
    }

    fn sees_adds(&self) -> bool {
        false
    }

    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }
}
