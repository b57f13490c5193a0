//! Who is in a group: whom it names, whom groups that it names have, or whom its URLs find.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;

use super::condition::{FINDING_WORK, entry_matches, group_filter, matches};
use super::evaluate::Evaluate;
use super::found::Url;
use super::set::VALUES_MAX;
use super::values::{VALUE_WORK, ValueReader};
use crate::engine::EntryId;
use crate::error::Result;
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// Most URLs of a group that are looked at.
const URLS_MAX: usize = 64;

/// Which members a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Members {
    /// Those that an attribute names.
    Named,
    /// The same, and the members of groups that it names.
    Nested(AttributeTypeId),
    /// Those that a search by one of its URLs would find.
    ByUrls(AttributeTypeId),
}

/// What of a group is looked at, and for whom.
#[derive(Debug)]
pub(super) struct GroupTest {
    /// That it is a group of its class, and for named members that they are one.
    filter: FilterBuf,
    members: Members,
    /// Who asks.
    dn: Arc<NormalDn>,
    entry: Option<EntryId>,
}

impl GroupTest {
    /// Class and attribute are OIDs.
    pub(super) fn new(
        (class, attribute): (&str, &str),
        members: Members,
        (dn, entry): (&Arc<NormalDn>, Option<EntryId>),
    ) -> std::result::Result<GroupTest, String> {
        let filter = match members {
            Members::Named => group_filter(class, attribute, &dn.to_text())?,
            Members::Nested(_) | Members::ByUrls(_) => {
                let filter = filter_text::parse(&format!("(objectClass={class})"));
                filter.map_err(|error| error.to_string())?
            }
        };
        Ok(GroupTest {
            filter,
            members,
            dn: dn.clone(),
            entry,
        })
    }

    /// Whether they are a member of the group with a DN. What that takes is added to `work`.
    pub(super) fn holds<R: Evaluate>(
        &self,
        (view, schema): (&R, &Schema),
        state: &State,
        group: &NormalDn,
        work: &mut u64,
    ) -> Result<bool> {
        match self.members {
            Members::Named => entry_matches((view, schema), state, group, &self.filter, work),
            Members::Nested(attribute) => {
                let reader = ValueReader::new(view, schema, state);
                self.is_nested(&reader, group, attribute, work)
            }
            Members::ByUrls(attribute) => {
                let reader = ValueReader::new(view, schema, state);
                self.is_found(&reader, group, attribute, work)
            }
        }
    }

    /// The group with a DN, if it is one of the class.
    fn group<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        dn: &NormalDn,
        work: &mut u64,
    ) -> Result<Option<EntryId>> {
        *work = work.saturating_add(FINDING_WORK);
        let Some(id) = reader.find(dn)? else {
            return Ok(None);
        };
        let reading = (reader.view, reader.schema);
        let is_group = matches(reading, reader.state, id, &self.filter, work)?;
        Ok(is_group.then_some(id))
    }

    /// Whether they are a member of a group, or of one that it names, and so on. Groups are looked for among so many
    /// members in all.
    fn is_nested<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        group: &NormalDn,
        attribute: AttributeTypeId,
        work: &mut u64,
    ) -> Result<bool> {
        let own = self.dn.to_text().into_bytes();
        let mut groups = VecDeque::from([group.clone()]);
        let mut known = HashSet::new();
        let mut left = VALUES_MAX;
        while let Some(dn) = groups.pop_front() {
            let Some(id) = self.group(reader, &dn, work)? else {
                continue;
            };
            if !known.insert(id) {
                continue;
            }
            if reader.has(id, attribute, &own, work)? {
                return Ok(true);
            }
            reader.each(id, attribute, &mut |value| {
                let mut member = NormalDn::new();
                let Some(fewer) = left.checked_sub(1) else {
                    return Ok(false);
                };
                left = fewer;
                *work = work.saturating_add(VALUE_WORK);
                if member.parse(reader.schema, value).is_ok() {
                    groups.push_back(member);
                }
                Ok(true)
            })?;
        }
        Ok(false)
    }

    /// Whether a search by one of the URLs of a group would find their entry, as slapd decides it.
    fn is_found<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        group: &NormalDn,
        attribute: AttributeTypeId,
        work: &mut u64,
    ) -> Result<bool> {
        let (Some(own), Some(id)) = (self.entry, self.group(reader, group, work)?) else {
            return Ok(false);
        };
        let (mut left, mut is_found) = (URLS_MAX, false);
        reader.each(id, attribute, &mut |value| {
            let Some(fewer) = left.checked_sub(1) else {
                return Ok(false);
            };
            left = fewer;
            is_found = self.is_found_by(reader, value, own, work)?;
            Ok(!is_found)
        })?;
        Ok(is_found)
    }

    fn is_found_by<R: Evaluate>(
        &self,
        reader: &ValueReader<'_, R>,
        url: &[u8],
        own: EntryId,
        work: &mut u64,
    ) -> Result<bool> {
        match Url::read(reader.schema, url, work) {
            Some(url) => url.finds(reader, (own, &self.dn), work),
            None => Ok(false),
        }
    }
}
