//! Get Effective Rights: what somebody may do with each entry that a search finds, by the rules in force.
//!
//! ```text
//! entryLevelRights      v the entry is found and read      d it is deleted
//!                       a entries are added below it       n it is renamed
//! attributeLevelRights  of each attribute: r read, s searched, c compared, w values added, o values deleted
//! ```
//!
//! These are the letters of 389 Directory Server. Everybody may ask for the own rights; who asks for those of others
//! needs `manage` on the entry, or the entry tells nothing of them.

use std::sync::Arc;

use sapwood_ldap::result::ResultCode;

use crate::access::{Asked, Identity, Requester, Rights, Slot};
use crate::directory::Snapshot;
use crate::engine::{Engine, EntryId};
use crate::error::Result;
use crate::names;
use crate::outcome::Outcome;
use crate::schema::{AttributeTypeId, NormalDn};

/// Bytes that an entry takes besides, for what it tells.
pub(super) const TELLING_BYTES_MAX: usize = 8 << 10;
/// Bytes of the list of attributes.
const LIST_BYTES_MAX: usize = TELLING_BYTES_MAX - 256;

/// Work of finding the DN of an entry and of telling, and of each attribute that it is asked for besides.
const TELLING_WORK: u64 = 10_000;
const NAMED_WORK: u64 = 100;

/// Whose rights are asked for, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightsQuestion {
    /// Whose they are.
    pub of: RightsOf,
    /// Attributes that are told of besides those of the entry that who asks may read. Unknown ones are passed over.
    pub attributes: Vec<Vec<u8>>,
}

/// Whose rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RightsOf {
    /// Of who asks.
    #[default]
    Asker,
    /// Of who is not bound.
    Anonymous,
    /// Of the administrator, with this DN.
    Administrator(String),
    /// Of somebody with a DN, who need not have an entry. Over no connection: clauses about addresses and TLS do not
    /// hold.
    Named(String),
}

/// A question that was made ready.
#[derive(Debug)]
pub(super) struct EffectiveRights {
    /// `None` for who asks.
    subject: Option<Arc<Requester>>,
    named: Vec<AttributeTypeId>,
}

/// What an entry tells.
#[derive(Debug)]
pub(super) struct RightsTold {
    entry: String,
    attributes: String,
}

impl RightsTold {
    /// As attributes and their values.
    pub(super) fn attributes(&self) -> [(&'static str, &str); 2] {
        [
            ("entryLevelRights", &self.entry),
            ("attributeLevelRights", none_if_empty(&self.attributes)),
        ]
    }
}

impl EffectiveRights {
    /// Finds whom a question is about.
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

    /// What an entry tells that has attributes of these types which `asker` may read; `None` if it tells nothing. What
    /// it takes is taken from `work`.
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
