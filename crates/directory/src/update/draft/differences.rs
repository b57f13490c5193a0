//! What a draft has become of what was stored.

use super::{Draft, DraftAttribute, Stored};
use crate::schema::AttributeTypeId;
use crate::update::large_change::LargeDraft;

/// An attribute that is not as it was stored.
pub(in crate::update) struct Difference<'d> {
    pub(in crate::update) attribute_type: AttributeTypeId,
    pub(in crate::update) options: &'d str,
    /// The values before and now, in some order; not those that a large one had.
    pub(in crate::update) before: Vec<&'d [u8]>,
    pub(in crate::update) now: Vec<&'d [u8]>,
    /// What was stored, if it was large.
    pub(in crate::update) large: Option<&'d LargeDraft>,
}

/// All values of an attribute.
pub(in crate::update) struct Current<'d> {
    pub(in crate::update) attribute_type: AttributeTypeId,
    pub(in crate::update) options: &'d str,
    /// What it has now; not those of a large one that were not read.
    pub(in crate::update) values: Vec<&'d [u8]>,
}

impl Draft<'_> {
    /// What it has become of what was stored, for the attributes that are not the same: the type, the options, and the
    /// values.
    pub(in crate::update) fn differences(&self) -> Vec<Difference<'_>> {
        let mut found = Vec::new();
        for known in &self.attributes {
            let Some(values) = &known.values else {
                continue;
            };
            let [mut before, mut now] = [Vec::new(), values.iter().collect::<Vec<_>>()];
            if let Stored::Attribute(stored) = known.stored {
                before.extend(stored.values().iter());
            }
            let large = match known.stored {
                Stored::Large(large) => self.large.get(large),
                _ => None,
            };
            before.sort_unstable();
            now.sort_unstable();
            if large.is_some() || before != now {
                found.push(Difference {
                    attribute_type: known.attribute_type,
                    options: &known.options,
                    before,
                    now,
                    large,
                });
            }
        }
        found
    }

    /// Large attributes of which single values were added or removed: the type, the options, and what is changed.
    pub(in crate::update) fn large_differences(
        &self,
    ) -> impl Iterator<Item = (AttributeTypeId, &str, &LargeDraft)> {
        self.attributes.iter().filter_map(|known| {
            let Stored::Large(large) = known.stored else {
                return None;
            };
            let large = self.large.get(large).filter(|_| known.values.is_none())?;
            Some((known.attribute_type, known.options.as_str(), large))
        })
    }

    /// The large attributes of which not all values were read.
    pub(in crate::update) fn unread(&self) -> Vec<(AttributeTypeId, String)> {
        let large = |known: &&DraftAttribute<'_>| {
            matches!(known.stored, Stored::Large(_)) && known.values.is_none()
        };
        let unread = self.attributes.iter().filter(large);
        unread
            .map(|known| (known.attribute_type, known.options.clone()))
            .collect()
    }

    /// What all attributes have now.
    pub(in crate::update) fn current(&self) -> impl Iterator<Item = Current<'_>> {
        let there = self.attributes.iter().filter(|known| !known.is_gone());
        there.map(|known| Current {
            attribute_type: known.attribute_type,
            options: &known.options,
            values: known.current(),
        })
    }
}
