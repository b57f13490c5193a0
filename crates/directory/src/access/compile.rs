//! From rules as they are written to what they grant to one identity.
//!
//! That goes in two steps. [`AccessRules`] have the names of the rules looked up in the schema, and are made when the
//! rules change. [`Grants`] are what is left of them for an identity, and are made when it binds: clauses about others
//! are gone. What depends on the entry remains, and is asked of each entry.

use std::sync::Arc;

use super::Identity;
use super::grants::{Bounds, Clause, Grants, RuleFor};
use super::policy::{Attributes, DnPattern, DnScope, Grant, Policy, Then, Who};
use crate::engine::EntryId;
use crate::schema::{AttributeTypeId, NormalDn, Schema, TypeSet};

/// Why rules cannot be used: they name what is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access rule {rule}: {why}")]
pub struct PolicyError {
    /// The number of the rule, counted from 1.
    pub rule: usize,
    /// What is wrong with it.
    pub why: String,
}

/// What rights are given on: an attribute type that a rule names, what stands for all others, the entry itself, or what
/// is directly below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The entry itself.
    pub(crate) const ENTRY: Slot = Slot(0);
    /// What is directly below it.
    pub(crate) const CHILDREN: Slot = Slot(1);
    /// All attribute types that no rule names.
    const OTHERS: Slot = Slot(2);

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Rules with their names looked up. Shared by the grants of all identities.
#[derive(Debug)]
pub(crate) struct AccessRules {
    /// The rules as written.
    pub(super) policy: Policy,
    /// Greater than that of all sets before it.
    pub(super) version: u64,
    rules: Vec<CompiledRule>,
    /// By the position of a type in the schema.
    by_type: Vec<Slot>,
    pub(super) slots: usize,
    /// The slot of protected attributes, if rules name them.
    pub(super) protected: Option<Slot>,
}

#[derive(Debug)]
struct CompiledRule {
    entries: Option<EntryTest>,
    /// By slot, whether it is about it.
    slots: Box<[bool]>,
    by: Vec<(CompiledWho, Grant, Then)>,
}

#[derive(Debug)]
enum CompiledWho {
    Anyone,
    Anonymous,
    Users,
    SelfEntry,
    Dn(EntryTest),
}

/// The identity that grants are made for.
struct Asks<'i> {
    is_bound: bool,
    entry: Option<EntryId>,
    dn: Option<&'i NormalDn>,
}

/// Whether a DN stands in a relation to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryTest {
    scope: DnScope,
    dn: NormalDn,
}

impl EntryTest {
    /// Whether it does.
    pub(super) fn holds(&self, dn: &NormalDn) -> bool {
        match self.scope {
            DnScope::Base => *dn == self.dn,
            DnScope::One => dn.len() == self.dn.len() + 1 && dn.is_at_or_below(&self.dn),
            DnScope::Subtree => dn.is_at_or_below(&self.dn),
            DnScope::Children => dn.len() > self.dn.len() && dn.is_at_or_below(&self.dn),
        }
    }

    /// Whether it may tell one child of an entry from the others.
    pub(super) fn tells_children_apart(&self, parent: &NormalDn) -> bool {
        let tells = matches!(self.scope, DnScope::Base | DnScope::Subtree);
        tells && self.dn.len() == parent.len() + 1 && self.dn.is_at_or_below(parent)
    }

    /// The child that it may tell from the others: its DN, and its RDN.
    pub(super) fn child_told_apart(&self, parent: &NormalDn) -> Option<(&NormalDn, &[u8])> {
        let rdn = self.dn.rdns().next_back()?;
        self.tells_children_apart(parent).then_some((&self.dn, rdn))
    }

    /// Whether it holds for the other children of an entry.
    pub(super) fn holds_for_children(&self, parent: &NormalDn) -> bool {
        match self.scope {
            DnScope::Base => false,
            DnScope::One => *parent == self.dn,
            DnScope::Subtree | DnScope::Children => parent.is_at_or_below(&self.dn),
        }
    }

    fn new(schema: &Schema, pattern: &DnPattern) -> Result<EntryTest, String> {
        let mut dn = NormalDn::new();
        let named = dn.parse(schema, pattern.dn.as_bytes());
        named.map_err(|invalid| format!("{:?} is not a DN: {invalid}", pattern.dn))?;
        let scope = pattern.scope;
        Ok(EntryTest { scope, dn })
    }
}

impl AccessRules {
    /// No rules, for who is above them.
    pub(super) fn none() -> AccessRules {
        AccessRules {
            policy: Policy { rules: Vec::new() },
            version: 0,
            rules: Vec::new(),
            by_type: Vec::new(),
            slots: Slot::OTHERS.index() + 1,
            protected: None,
        }
    }

    /// Looks the names of rules up.
    ///
    /// # Errors
    /// When a rule names an attribute type or object class that the schema does not know, or what is not a DN.
    pub(super) fn new(
        schema: &Schema,
        policy: Policy,
        version: u64,
    ) -> Result<AccessRules, PolicyError> {
        let mut by_type = vec![Slot::OTHERS; schema.attribute_types().len()];
        let mut slots = Slot::OTHERS.index() + 1;
        let mut named = Vec::with_capacity(policy.rules.len());
        let at = |rule: usize| {
            move |why| PolicyError {
                rule: rule + 1,
                why,
            }
        };
        for (number, rule) in policy.rules.iter().enumerate() {
            let types = types_of(schema, &rule.to.attributes).map_err(at(number))?;
            // Rules of userPassword hold for authPassword, and nothing else does.
            let types: Vec<_> = types
                .iter()
                .filter(|known| *known != schema.well_known().auth_password)
                .collect();
            for known in types.iter().copied() {
                let slot = &mut by_type[known.index()];
                if *slot == Slot::OTHERS {
                    // No schema has more types than a number of them says.
                    *slot = Slot(u16::try_from(slots).unwrap_or(Slot::OTHERS.0));
                    slots += 1;
                }
            }
            named.push(types);
        }
        // What is a secret in one form is one in the other.
        let known = schema.well_known();
        by_type[known.auth_password.index()] = by_type[known.user_password.index()];
        let mut rules = Vec::with_capacity(policy.rules.len());
        for (number, (rule, types)) in policy.rules.iter().zip(&named).enumerate() {
            let attributes = &rule.to.attributes;
            let mut is_about = vec![attributes.is_empty(); slots].into_boxed_slice();
            for known in types.iter().copied() {
                is_about[by_type[known.index()].index()] = true;
            }
            is_about[Slot::ENTRY.index()] |= attributes.contains(&Attributes::Entry);
            is_about[Slot::CHILDREN.index()] |= attributes.contains(&Attributes::Children);
            let entries = rule.to.entries.as_ref();
            let entries = entries.map(|pattern| EntryTest::new(schema, pattern));
            let mut by = Vec::with_capacity(rule.by.len());
            for clause in &rule.by {
                let who = CompiledWho::new(schema, &clause.who).map_err(at(number))?;
                by.push((who, clause.grant, clause.then));
            }
            rules.push(CompiledRule {
                entries: entries.transpose().map_err(at(number))?,
                slots: is_about,
                by,
            });
        }
        let protected = by_type[schema.well_known().user_password.index()];
        Ok(AccessRules {
            policy,
            version,
            rules,
            protected: Some(protected).filter(|slot| *slot != Slot::OTHERS),
            by_type,
            slots,
        })
    }

    /// What rights on a type are given on.
    #[inline]
    pub(crate) fn slot(&self, attribute_type: AttributeTypeId) -> Slot {
        let slot = self.by_type.get(attribute_type.index());
        slot.copied().unwrap_or(Slot::OTHERS)
    }

    /// What is granted to an identity.
    pub(super) fn grants(self: &Arc<AccessRules>, schema: &Schema, identity: &Identity) -> Grants {
        let entry = match identity {
            Identity::Admin { .. } => return Grants::unlimited(),
            Identity::User { entry, .. } => Some(*entry),
            Identity::External { .. } | Identity::Anonymous => None,
        };
        let is_bound = *identity != Identity::Anonymous;
        let mut dn = NormalDn::new();
        let is_named = is_bound && dn.parse(schema, identity.dn().as_bytes()).is_ok();
        let asks = Asks {
            is_bound,
            entry,
            dn: is_named.then_some(&dn),
        };
        let rules = self.rules.iter().map(|rule| rule.for_one(&asks));
        let rules: Vec<RuleFor> = rules.collect();
        let bounds = Bounds::of(&rules, self.slots);
        Grants {
            sight: bounds.sight(self.protected),
            rules,
            set: self.clone(),
            entry,
            bounds,
            is_unlimited: false,
        }
    }
}

impl CompiledRule {
    /// What of the rule is about one identity.
    fn for_one(&self, asks: &Asks<'_>) -> RuleFor {
        let mut clauses = Vec::new();
        for (who, grant, then) in &self.by {
            let of_self = match who {
                CompiledWho::Anyone => Some(false),
                CompiledWho::Anonymous => (!asks.is_bound).then_some(false),
                CompiledWho::Users => asks.is_bound.then_some(false),
                CompiledWho::SelfEntry => asks.entry.is_some().then_some(true),
                CompiledWho::Dn(test) => asks.dn.filter(|dn| test.holds(dn)).map(|_| false),
            };
            let Some(of_self) = of_self else { continue };
            clauses.push(Clause {
                of_self,
                grant: *grant,
                then: *then,
            });
            if !of_self && *then != Then::Continue {
                break;
            }
        }
        // Who is none of those that a rule names has no rights by it.
        let always = |clause: &Clause| !clause.of_self && clause.then != Then::Continue;
        if !clauses.last().is_some_and(always) {
            clauses.push(Clause::NOTHING);
        }
        RuleFor {
            entries: self.entries.clone(),
            slots: self.slots.clone(),
            clauses,
        }
    }
}

impl CompiledWho {
    fn new(schema: &Schema, who: &Who) -> Result<CompiledWho, String> {
        Ok(match who {
            Who::Anyone => CompiledWho::Anyone,
            Who::Anonymous => CompiledWho::Anonymous,
            Who::Users => CompiledWho::Users,
            Who::SelfEntry => CompiledWho::SelfEntry,
            Who::Dn(pattern) => CompiledWho::Dn(EntryTest::new(schema, pattern)?),
        })
    }
}

/// The types that a rule names.
fn types_of(schema: &Schema, attributes: &[Attributes]) -> Result<TypeSet, String> {
    let mut types = TypeSet::default();
    for attribute in attributes {
        match attribute {
            Attributes::Type(name) => {
                let known = schema.attribute_type(name.as_bytes());
                let known = known.ok_or_else(|| format!("there is no attribute type {name:?}"))?;
                types.extend(known.subtypes());
            }
            Attributes::Class(name) => {
                let class = schema.object_class(name.as_bytes());
                let class = class.ok_or_else(|| format!("there is no object class {name:?}"))?;
                for known in class.must().iter().chain(class.may().iter()) {
                    types.extend(schema.type_of(known).subtypes());
                }
            }
            Attributes::Entry | Attributes::Children => {}
        }
    }
    Ok(types)
}
