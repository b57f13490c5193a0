//! `memberof`: entries have memberOf, which is [computed](crate::member_of). The rule takes part in no update: what it
//! is for is that the index of members stays.

use super::{Origin, Rule, complete_or_refused, equality_of};
use crate::config::MemberOfRule;
use crate::config::member_of::{GROUP_CLASS, MEMBER_ATTRIBUTE};
use crate::engine::{Index, IndexKind};
use crate::error::{Error, Result};
use crate::indexes::can_index;
use crate::schema::{AttributeTypeId, Schema};
use crate::state::State;

/// The rule, ready.
#[derive(Debug)]
pub(super) struct MemberOf {
    member: AttributeTypeId,
}

impl MemberOf {
    pub(super) fn new(schema: &Schema, rule: &MemberOfRule) -> Result<MemberOf> {
        let wrong = |why: String| Error::Config(format!("{MEMBER_ATTRIBUTE}: {why}"));
        let (class, name) = (rule.class(), rule.member());
        if schema.object_class(class.as_bytes()).is_none() {
            let why = format!("{GROUP_CLASS}: the schema does not define the class '{class}'");
            return Err(Error::Config(why));
        }
        let known = schema
            .attribute_type(name.as_bytes())
            .ok_or_else(|| wrong(format!("the schema does not define '{name}'")))?;
        if !known.syntax().is_some_and(|syntax| syntax.is_name()) {
            return Err(wrong(format!(
                "{name} names no members: its values are no DNs"
            )));
        }
        can_index(known, IndexKind::Equality)
            .map_err(|why| wrong(format!("{name} cannot be looked up: {why}")))?;
        Ok(MemberOf { member: known.id() })
    }
}

impl Rule for MemberOf {
    fn is_local(&self) -> bool {
        true
    }

    fn heeds(&self, _: Origin) -> bool {
        false
    }

    fn sees_adds(&self) -> bool {
        false
    }

    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        equality_of(state, std::slice::from_ref(&self.member))
    }

    fn check(&self, schema: &Schema, state: &State) -> Result<()> {
        let member = std::slice::from_ref(&self.member);
        let what = "the groups of an entry";
        complete_or_refused((schema, state), member, (MEMBER_ATTRIBUTE, what))
    }
}
