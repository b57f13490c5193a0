//! What of the data a rule does not hold of that has just been added: all entries are looked at, some thousand at a
//! time, each part in the newest snapshot. Since the rule is in force, what it holds of when it is looked at stays so.

use std::ops::Bound;

use super::{Directory, Snapshot};
use crate::config::DataRule;
use crate::engine::{Cursor, Direction, Engine, EntryId, Range, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::large;
use crate::names::DnCache;
use crate::operational::{self, Vocabulary};
use crate::reindex::Side;
use crate::update::RuleViolations;
use crate::update::rules::{Existing, RuleSet};

/// Entries that are looked at in one snapshot, and values of their large attributes: a few milliseconds.
const ENTRIES_AT_ONCE: u64 = 4096;
const VALUES_AT_ONCE: usize = 65_536;

impl<E: Engine> Directory<E> {
    /// Looks at all entries for what a rule that is in force does not hold of, because it was there before; up to the
    /// first [`VIOLATIONS_TOLD_MAX`](crate::VIOLATIONS_TOLD_MAX). `progress` is told how many entries were looked at.
    ///
    /// # Errors
    /// When the engine fails. A rule that was dropped meanwhile is violated by nothing.
    pub fn rule_violations(
        &self,
        name: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<RuleViolations> {
        let (mut after, mut entries) = (None, 0);
        let mut violations = RuleViolations::default();
        loop {
            let snapshot = self.waiting_snapshot()?;
            let mut rules = snapshot.settings().rules().into_iter();
            let Some(rule) = rules.find(|rule| rule.name == name) else {
                return Ok(RuleViolations::default());
            };
            let looked = snapshot.look(&rule, &mut after, &mut violations)?;
            entries += looked;
            progress(entries);
            if looked == 0 || violations.is_full() {
                return Ok(violations);
            }
        }
    }
}

impl<E: Engine> Snapshot<E> {
    /// Has a rule look at the next entries, which `after` goes on with; how many there were.
    fn look(
        &self,
        rule: &DataRule,
        after: &mut Option<EntryId>,
        violations: &mut RuleViolations,
    ) -> Result<u64> {
        let (view, mut state) = (self.view(), (**self.state()).clone());
        state.settings = state.settings.with_only(rule);
        state.coming = None;
        let schema = &state.schema;
        let rules = RuleSet::new(schema, &state)?;
        let vocabulary = Vocabulary {
            schema,
            attributes: &state.attributes,
        };
        let from = after.map(EntryId::to_key);
        let range = Range {
            from: from
                .as_ref()
                .map_or(Bound::Unbounded, |from| Bound::Excluded(from.as_slice())),
            to: Bound::Unbounded,
        };
        let mut cursor = view.scan(Table::Entry, range, Direction::Forward)?;
        let (mut names, mut spelled) = (DnCache::default(), Vec::new());
        let (mut looked, mut values) = (0, 0);
        while looked < ENTRIES_AT_ONCE
            && values < VALUES_AT_ONCE
            && !violations.is_full()
            && let Some((key, record)) = cursor.next()?
        {
            let id = EntryId::from_key(key)
                .ok_or_else(|| Error::corrupt("a key of the entry table is no id"))?;
            let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            let user = Entry::new(record).map_err(damaged)?;
            let operational =
                operational::spell(&user, vocabulary, &mut spelled).map_err(damaged)?;
            let large = large::all(view, id, &user)?;
            values += large.iter().map(|values| values.rows.len()).sum::<usize>();
            let side = Side {
                records: Some([user, operational]),
                large: &large,
            };
            rules.look(&mut Existing {
                view,
                schema,
                state: &state,
                id,
                side: &side,
                names: &mut names,
                violations,
            })?;
            *after = Some(id);
            looked += 1;
        }
        Ok(looked)
    }
}
