//! What a URL in rules finds (RFC 4516), as slapd searches by one: as the administrator, and without following aliases.
//!
//! Whether a URL finds one entry is told by that entry. All that it finds is told by indexes, or by going through its
//! scope; where that would take too many entries, it is not told.

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;
use sapwood_ldap::url::{LdapUrl, Scheme, Scope};

use super::condition::{FINDING_WORK, above_rules, matches};
use super::evaluate::Evaluate;
use super::values::ValueReader;
use crate::engine::{Cursor as _, Direction, EntryId, Range, Table};
use crate::error::Result;
use crate::names::{self, Child};
use crate::policy::DnScope;
use crate::policy::entry_test::EntryTest;
use crate::schema::{NormalDn, Schema};

/// Bytes of a URL that is looked at.
const URL_BYTES_MAX: usize = 4 << 10;
/// Work of reading a byte of a URL.
const URL_BYTE_WORK: u64 = 100;
/// What a URL of this server's entries begins with, which need not be in small letters.
const START: &[u8] = b"ldap:///";

/// Whether a text means what it finds, rather than what it names.
pub(super) fn is_url(text: &[u8]) -> bool {
    let start = text.get(..START.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(START))
}

/// A URL of entries here.
pub(super) struct Url {
    scope: DnScope,
    base: NormalDn,
    filter: FilterBuf,
    attributes: Vec<String>,
}

impl Url {
    /// Reads one; `None` for what is none. What that takes is added to `work`.
    pub(super) fn read(schema: &Schema, text: &[u8], work: &mut u64) -> Option<Url> {
        if text.len() > URL_BYTES_MAX {
            return None;
        }
        *work = work.saturating_add(URL_BYTE_WORK * text.len() as u64);
        let url = LdapUrl::parse(std::str::from_utf8(text).ok()?).ok()?;
        if url.scheme != Scheme::Ldap || !url.host.is_empty() || url.port.is_some() {
            return None;
        }
        let mut base = NormalDn::new();
        base.parse(schema, url.dn.as_bytes()).ok()?;
        Some(Url {
            scope: match url.scope.unwrap_or(Scope::Base) {
                Scope::Base => DnScope::Base,
                Scope::One => DnScope::One,
                Scope::Sub => DnScope::Subtree,
                Scope::Subordinates => DnScope::Children,
            },
            base,
            filter: filter_text::parse(url.filter.as_deref().unwrap_or("(objectClass=*)")).ok()?,
            attributes: url.attributes,
        })
    }

    /// The attributes that it names, the last first.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.attributes.iter().rev().map(String::as_str)
    }

    /// Whether it finds an entry.
    pub(super) fn finds<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        (id, dn): (EntryId, &NormalDn),
        work: &mut u64,
    ) -> Result<bool> {
        let reading = (reader.view, reader.schema);
        Ok(EntryTest::of(self.scope, self.base.clone()).holds(dn)
            && matches(reading, reader.state, id, &self.filter, work)?)
    }

    /// The entries that it finds; `None` where more than `left` would have to be looked at. Those that were are taken
    /// from that.
    pub(super) fn entries<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        left: &mut usize,
        work: &mut u64,
    ) -> Result<Option<Vec<EntryId>>> {
        let (view, schema) = (reader.view, reader.schema);
        // No naming context is above all of them.
        let base = match self.base.is_empty() {
            true => None,
            false => reader.find(&self.base)?,
        };
        let Some(base) = base else {
            return Ok(Some(Vec::new()));
        };
        if self.scope == DnScope::Base {
            let found = matches((view, schema), reader.state, base, &self.filter, work)?;
            return Ok(Some(found.then_some(base).into_iter().collect()));
        }
        let filter = self.filter.as_filter();
        let indexed = view.indexed((schema, reader.state), above_rules(), filter, *left)?;
        let candidates = match indexed {
            Some(ids) => Some(ids),
            None => self.in_scope(reader, base, *left)?,
        };
        let fewer = candidates
            .as_ref()
            .and_then(|ids| left.checked_sub(ids.len()));
        let (Some(candidates), Some(fewer)) = (candidates, fewer) else {
            return Ok(None);
        };
        *left = fewer;
        let mut found = Vec::new();
        for id in candidates {
            *work = work.saturating_add(FINDING_WORK);
            view.rely_on(Table::Entry, &id.to_key());
            let dn = names::normal_dn_of(view, schema, id)?;
            if self.finds(reader, (id, &dn), work)? {
                found.push(id);
            }
        }
        Ok(Some(found))
    }

    /// All entries of its scope, unless there are more than `most`.
    fn in_scope<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        base: EntryId,
        most: usize,
    ) -> Result<Option<Vec<EntryId>>> {
        let mut entries = match self.scope {
            DnScope::Subtree => vec![base],
            _ => Vec::new(),
        };
        let mut parents = vec![base];
        while let Some(parent) = parents.pop() {
            let (from, to) = parent.children_bounds();
            let range = Range::between(&from, &to);
            let mut children = reader.view.scan(Table::Name, range, Direction::Forward)?;
            while let Some((_, value)) = children.next()? {
                if entries.len() >= most {
                    return Ok(None);
                }
                let child = Child::from_value(value)?;
                entries.push(child.id);
                if self.scope != DnScope::One {
                    parents.push(child.id);
                }
            }
        }
        Ok(Some(entries))
    }
}
