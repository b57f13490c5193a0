//! How many of an entry's children somebody may know of.
//!
//! Rules tell few children apart: each of them names one at most, and one more may be the identity's own entry. These
//! are looked up, and all others are decided at once. So it costs the same however many children there are.

use std::collections::HashSet;

use super::compile::Slot;
use super::condition::Asked;
use super::evaluate::Evaluate;
use super::grants::Grants;
use super::rule_for::{OwnValues, RuleFor, decide};
use crate::engine::{EntryId, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::policy::Rights;
use crate::schema::{NormalDn, Schema};

impl Grants {
    /// The number of children of an entry whose existence may be told. `dn` is the entry's.
    pub(crate) fn children_count<R: Evaluate>(
        &self,
        schema: &Schema,
        view: &R,
        dn: &NormalDn,
        id: EntryId,
    ) -> Result<u64> {
        let mut others = view.children(id)?;
        if self.is_unlimited || others == 0 {
            return Ok(others);
        }
        let mut disclosed = 0;
        let mut apart = HashSet::new();
        let mut key = Vec::new();
        // The roots of other naming contexts are no children.
        let list = self.set.list_of(dn);
        for test in self
            .rules_of_entries(list)
            .filter_map(|rule| rule.entries.as_ref())
        {
            if let Some((name, rdn)) = test.child_told_apart(dn)
                && let Some(child) = names::child(view, id, rdn, &mut key)?
                && apart.insert(child.id)
            {
                others -= 1;
                let asked = Asked {
                    view,
                    schema,
                    dn: name,
                    id: child.id,
                };
                disclosed += u64::from(self.discloses(&asked)?);
            }
        }
        if let Some(own) = self.entry
            && parent_of(view, own)? == Some(id)
            && apart.insert(own)
        {
            others -= 1;
            let name = names::normal_dn_of(view, schema, own)?;
            let asked = Asked {
                view,
                schema,
                dn: &name,
                id: own,
            };
            disclosed += u64::from(self.discloses(&asked)?);
        }
        if others > 0 && self.discloses_other_children(dn, list) {
            disclosed += others;
        }
        Ok(disclosed)
    }

    /// The rules that are about entries which obey a list.
    fn rules_of_entries(&self, list: Option<usize>) -> impl Iterator<Item = &RuleFor> {
        let rules = self.rules.iter();
        rules.filter(move |rule| rule.slots[Slot::ENTRY.index()] && rule.is_in(list))
    }

    /// Whether the existence of those children may be told that no rule tells apart.
    ///
    /// Where that depends on more than their names, none of them is counted whose existence may be hidden.
    fn discloses_other_children(&self, dn: &NormalDn, list: Option<usize>) -> bool {
        if !self.conditions.is_empty() {
            return self.bounds.least[Slot::ENTRY.index()].has(Rights::DISCLOSE);
        }
        let holds = |rule: &&RuleFor| {
            let test = rule.entries.as_ref();
            test.is_none_or(|test| test.holds_for_children(dn))
        };
        // No clause asks for a condition.
        let rights = decide(
            self.rules_of_entries(list).filter(holds),
            (false, OwnValues::default()),
            |_| Ok(false),
        );
        rights.is_ok_and(|rights| rights.has(Rights::DISCLOSE))
    }
}

/// The entry above one that may have been deleted.
fn parent_of<R: Evaluate>(view: &R, id: EntryId) -> Result<Option<EntryId>> {
    let Some(record) = view.get(Table::Entry, &id.to_key())? else {
        return Ok(None);
    };
    let entry = Entry::new(&record);
    let entry = entry.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    Ok(Some(entry.parent()))
}
