//! Get Effective Rights: with each entry of a search comes what an identity may do with it, by the rules in force.
//!
//! ```text
//! entryLevelRights      v find and read the entry          d delete it
//!                       a add entries below it             n rename it
//! attributeLevelRights  of each attribute: r read, s search, c compare, w add values, o delete values
//! ```
//!
//! These are the letters of 389 Directory Server. Everybody may ask for their own rights. For those of others, the
//! asker needs `manage` on the entry; without it the entry comes without rights.

use std::sync::Arc;

use sapwood_ldap::result::ResultCode;

use crate::access::{Asked, Identity, Requester, Rights, Slot};
use crate::directory::Snapshot;
use crate::engine::{Engine, EntryId};
use crate::error::Result;
use crate::names;
use crate::outcome::Outcome;
use crate::schema::{AttributeTypeId, NormalDn};

/// The most bytes that the rights add to an entry.
pub(super) const TELLING_BYTES_MAX: usize = 8 << 10;
/// The most bytes of attributeLevelRights.
const LIST_BYTES_MAX: usize = TELLING_BYTES_MAX - 256;

/// Work of an entry, and of each attribute that the request names, about one unit a nanosecond.
const TELLING_WORK: u64 = 10_000;
const NAMED_WORK: u64 = 100;

/// A request for effective rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightsQuestion {
    /// Whose rights.
    pub of: RightsOf,
    /// Attributes to include besides those of the entry that the asker may read. Unknown ones are ignored.
    pub attributes: Vec<Vec<u8>>,
}

/// Whose rights a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RightsOf {
    /// The asker's own.
    #[default]
    Asker,
    /// Those of anonymous.
    Anonymous,
    /// Those of the administrator, with this DN.
    Administrator(String),
    /// Those of an identity with this DN, with or without an entry. It has no connection: clauses about addresses and
    /// TLS do not apply.
    Named(String),
}

/// A request for effective rights, with its names looked up.
#[derive(Debug)]
pub(super) struct EffectiveRights {
    /// `None` for the asker.
    subject: Option<Arc<Requester>>,
    named: Vec<AttributeTypeId>,
}

/// The rights that go with an entry.
#[derive(Debug)]
pub(super) struct RightsTold {
    entry: String,
    attributes: String,
}

impl RightsTold {
    /// The attributes to add to the entry, each with its value.
    pub(super) fn attributes(&self) -> [(&'static str, &str); 2] {
        [
            ("entryLevelRights", &self.entry),
            ("attributeLevelRights", none_if_empty(&self.attributes)),
        ]
    }
}

impl EffectiveRights {
    /// Looks up the names of a request.
    pub(super) fn of<E: Engine>(
        snapshot: &Snapshot<E>,
        question: &RightsQuestion,
    ) -> Result<std::result::Result<EffectiveRights, Outcome>> {
        let schema = snapshot.schema();
        let identity = match &question.of {
            RightsOf::Asker => None,
            RightsOf::Anonymous => Some(Identity::Anonymous),
            RightsOf::Administrator(dn) => Some(Identity::Admin { dn: dn.clone() }),
            RightsOf::Named(dn) => {
                let mut normal = NormalDn::new();
                if let Err(invalid) = normal.parse(schema, dn.as_bytes()) {
                    let diagnostic = format!("whose rights are asked for: {invalid}");
                    return Ok(Err(Outcome::new(ResultCode::InvalidDnSyntax, diagnostic)));
                }
                let walk = names::walk(snapshot.view(), &snapshot.state().contexts, &normal)?;
                let dn = dn.clone();
                Some(match walk.and_then(|walk| walk.found()) {
                    Some(found) => Identity::User {
                        entry: found.id,
                        dn,
                    },
                    None => Identity::External { dn },
                })
            }
        };
        let subject = identity.map(|identity| {
            let subject = snapshot.directory().requester(identity);
            snapshot.current(&subject)
        });
        let named = question.attributes.iter();
        let named = named.filter_map(|name| Some(schema.attribute_type(name)?.id()));
        Ok(Ok(EffectiveRights {
            subject: subject.transpose()?,
            named: named.collect(),
        }))
    }

    /// The rights on an entry. `types` are its attribute types that `asker` may read. `None` if the asker may not learn
    /// the rights. The cost is taken from `work`.
    pub(super) fn tell<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        asker: &Requester,
        (id, types): (EntryId, &[AttributeTypeId]),
        work: &mut u64,
    ) -> Result<Option<RightsTold>> {
        let (view, schema) = (snapshot.view(), snapshot.schema());
        let dn = &names::normal_dn_of(view, schema, id)?;
        let asked = Asked {
            view,
            schema,
            dn,
            id,
        };
        let of_named = NAMED_WORK.saturating_mul(self.named.len() as u64);
        *work = work.saturating_sub(TELLING_WORK.saturating_add(of_named));
        let subject: &Requester = match &self.subject {
            None => asker,
            Some(subject) => {
                let rights = asker.grants().rights_within(&asked, Slot::ENTRY, work)?;
                if !rights.has(Rights::MANAGE) {
                    return Ok(None);
                }
                subject
            }
        };
        let granted = subject.grants().on_entry_within(&asked, work)?;
        let granted_of = |slot: Slot, letters: &[(char, Rights)]| -> String {
            let has = |(_, rights): &&(char, Rights)| granted.has(slot, *rights);
            letters
                .iter()
                .filter(has)
                .map(|(letter, _)| *letter)
                .collect()
        };
        let mut entry = granted_of(Slot::ENTRY, &[('v', Rights::READ)]);
        entry += &granted_of(Slot::CHILDREN, &[('a', Rights::ADD)]);
        entry += &granted_of(Slot::ENTRY, &[('d', Rights::DELETE), ('n', Rights::WRITE)]);
        let mut attributes = String::new();
        let mut is_told = vec![false; schema.attribute_types().len()];
        for known in self.named.iter().chain(types) {
            if std::mem::replace(&mut is_told[known.index()], true) {
                continue;
            }
            let of_attribute = [
                ('r', Rights::READ),
                ('s', Rights::SEARCH),
                ('c', Rights::COMPARE),
                ('w', Rights::ADD),
                ('o', Rights::DELETE),
            ];
            let letters = granted_of(subject.grants().slot(*known), &of_attribute);
            let name = schema.type_of(*known).name();
            // What is left out can be asked for by name.
            if attributes.len() + name.len() + 16 > LIST_BYTES_MAX {
                break;
            }
            let comma = if attributes.is_empty() { "" } else { ", " };
            attributes += &format!("{comma}{name}:{}", none_if_empty(&letters));
        }
        Ok(Some(RightsTold {
            entry: none_if_empty(&entry).to_owned(),
            attributes,
        }))
    }
}

fn none_if_empty(letters: &str) -> &str {
    match letters {
        "" => "none",
        letters => letters,
    }
}
