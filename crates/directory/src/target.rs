//! From the DN of a request to its entry, or to the result that says why there is none to work on.

use sapwood_ldap::dn::Dn;
use sapwood_ldap::result::ResultCode;

use crate::access::{Requester, as_seen};
use crate::engine::{EntryId, Read};
use crate::entry::EntryFlags;
use crate::names::{self, Child};
use crate::operational::Vocabulary;
use crate::outcome::{Outcome, Stop};
use crate::referral;
use crate::schema::{NormalDn, OperationalAttribute, Schema};
use crate::state::State;

/// The entry an operation works on.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The entry.
    pub(crate) entry: Child,
    /// Its parent; the root of its store for a naming context.
    pub(crate) parent: EntryId,
    /// Its DN in normal form.
    pub(crate) normal: NormalDn,
    /// The position of its naming context.
    pub(crate) context: usize,
}

/// A DN that names no entry yet, and what it would be below.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    /// The entry above; `None` for a naming context.
    pub(crate) parent: Option<Child>,
    /// The root of the store that the naming context is in.
    pub(crate) root: EntryId,
    /// The DN in normal form.
    pub(crate) normal: NormalDn,
}

impl Vacancy {
    /// What the name table files it under.
    pub(crate) fn parent_id(&self) -> EntryId {
        self.parent.map_or(self.root, |parent| parent.id)
    }

    /// The normal form that stands in the name table.
    pub(crate) fn normal_rdn(&self) -> &[u8] {
        match self.parent {
            Some(_) => self.normal.rdns().next_back().unwrap_or_default(),
            None => self.normal.bytes(),
        }
    }
}

impl Target {
    /// The normal form that stands in the name table.
    pub(crate) fn normal_rdn(&self) -> &[u8] {
        if self.is_context() {
            self.normal.bytes()
        } else {
            self.normal.rdns().next_back().unwrap_or_default()
        }
    }

    /// Whether it is a naming context's own entry.
    pub(crate) fn is_context(&self) -> bool {
        self.parent.is_root()
    }
}

/// Reads a DN.
pub(crate) fn parse(schema: &Schema, dn: &str) -> Result<NormalDn, Stop> {
    let mut normal = NormalDn::new();
    match normal.parse(schema, dn.as_bytes()) {
        Ok(()) => Ok(normal),
        Err(error) => Err(Stop::refuse(
            ResultCode::InvalidDnSyntax,
            format!("'{dn}' is not a DN: {error}"),
        )),
    }
}

/// Finds the entry that an update or a comparison works on, as somebody sees it if that makes a difference.
pub(crate) fn find<R: Read>(
    view: &R,
    schema: &Schema,
    state: &State,
    dn: &str,
    normal: NormalDn,
    manage_dsa_it: bool,
    viewer: Option<&Requester>,
) -> Result<Target, Stop> {
    let context = names::context_of(&state.contexts, &normal).ok_or_else(|| outside(state, dn))?;
    let walk = names::walk(view, &state.contexts, &normal)?;
    let leads_by = |flags: EntryFlags| {
        let leads = flags.is_referral() && !manage_dsa_it;
        leads.then(|| schema.operational(OperationalAttribute::Ref))
    };
    let walk = match viewer {
        Some(viewer) => {
            let seen = |walk| as_seen((view, schema), walk, &normal, viewer, leads_by);
            walk.map(seen).transpose()?.flatten()
        }
        None => walk,
    };
    let Some(walk) = walk else {
        return Err(empty_context(&state.contexts[context].dn));
    };
    let first_rdns = state.contexts[context].normal.len();
    // With ManageDsaIT referral objects are plain entries (RFC 3296 §3).
    let referral = walk
        .entries
        .iter()
        .position(|entry| entry.flags.is_referral());
    if let Some(at) = referral.filter(|_| !manage_dsa_it) {
        let below = normal.len() - first_rdns - at;
        let attributes = &state.attributes;
        let vocabulary = Vocabulary { schema, attributes };
        return Err(
            referral::outcome(view, vocabulary, walk.entries[at].id, dn, below, None)?.into(),
        );
    }
    let Some(entry) = walk.found() else {
        let nearest = names::dn_of(view, walk.last().id)?;
        let diagnostic = format!("there is no entry '{dn}'; the nearest above it is '{nearest}'");
        return Err(missing(diagnostic, nearest));
    };
    let parent = match walk.entries.as_slice() {
        [.., parent, _] => parent.id,
        _ => state.contexts[context].root,
    };
    Ok(Target {
        entry,
        parent,
        normal,
        context,
    })
}

/// Finds the place of a new entry.
pub(crate) fn find_vacancy<R: Read>(
    view: &R,
    schema: &Schema,
    state: &State,
    dn: &str,
    normal: NormalDn,
) -> Result<Vacancy, Stop> {
    let context = names::context_of(&state.contexts, &normal).ok_or_else(|| outside(state, dn))?;
    let first_rdns = state.contexts[context].normal.len();
    let root = state.contexts[context].root;
    let Some(walk) = names::walk(view, &state.contexts, &normal)? else {
        if normal.len() == first_rdns {
            return Ok(Vacancy {
                parent: None,
                root,
                normal,
            });
        }
        return Err(empty_context(&state.contexts[context].dn));
    };
    if walk.is_complete {
        return Err(Stop::refuse(
            ResultCode::EntryAlreadyExists,
            format!("there is an entry '{dn}' already"),
        ));
    }
    if let Some(at) = walk
        .entries
        .iter()
        .position(|entry| entry.flags.is_referral())
    {
        let below = normal.len() - first_rdns - at;
        let attributes = &state.attributes;
        let vocabulary = Vocabulary { schema, attributes };
        return Err(
            referral::outcome(view, vocabulary, walk.entries[at].id, dn, below, None)?.into(),
        );
    }
    if walk.matched_rdns + 1 < normal.len() {
        let nearest = names::dn_of(view, walk.last().id)?;
        let parent = Dn::parse(dn).ok().and_then(Dn::parent).unwrap_or_default();
        let diagnostic = format!(
            "there is no entry '{parent}' to add it below; the nearest that there is is '{nearest}': add what is between them first"
        );
        return Err(missing(diagnostic, nearest));
    }
    if walk.last().flags.is_alias() {
        let outcome = Outcome::new(
            ResultCode::AliasProblem,
            "the entry above is an alias; aliases have no children",
        );
        return Err(outcome.matched(names::dn_of(view, walk.last().id)?).into());
    }
    if walk.last().flags.is_subentry() {
        let parent = names::dn_of(view, walk.last().id)?;
        let diagnostic =
            format!("'{parent}' is a subentry; subentries have no children (RFC 3672 §1)");
        return Err(Stop::refuse(ResultCode::ObjectClassViolation, diagnostic));
    }
    Ok(Vacancy {
        parent: Some(walk.last()),
        root,
        normal,
    })
}

fn outside(state: &State, dn: &str) -> Stop {
    let contexts = names::listed(&state.contexts);
    let diagnostic = format!("'{dn}' is in none of the naming contexts of this server: {contexts}");
    Stop::refuse(ResultCode::UnwillingToPerform, diagnostic)
}

fn missing(diagnostic: String, matched: String) -> Stop {
    Outcome::new(ResultCode::NoSuchObject, diagnostic)
        .matched(matched)
        .into()
}

fn empty_context(context: &str) -> Stop {
    let diagnostic = format!("the naming context '{context}' is empty: add its own entry first");
    missing(diagnostic, String::new())
}

/// The RDN of a DN as written; of a naming context the whole DN.
pub(crate) fn rdn_as_written(dn: &str, is_context: bool) -> String {
    let Ok(parsed) = Dn::parse(dn) else {
        return dn.to_owned();
    };
    match parsed.rdn() {
        Some(rdn) if !is_context => rdn.as_str().to_owned(),
        _ => parsed.as_str().to_owned(),
    }
}
