//! Finding the entry that a DN names, with aliases and referrals on the way (RFC 4511 §4.1.10, §4.5.1.3; RFC 3296 §5).

use std::borrow::Cow;

use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url;

use crate::access::{Requester, as_seen};
use crate::engine::{EntryId, Read, Table};
use crate::entry::{Entry, EntryFlags};
use crate::error::{Error, Result};
use crate::names::{self, Child, Walk};
use crate::operational::Vocabulary;
use crate::outcome::Outcome;
use crate::referral;
use crate::schema::{AttributeTypeId, NormalDn, OperationalAttribute, Schema};
use crate::state::State;

/// Most aliases that one DN may lead through.
const ALIASES_MAX: usize = 16;

/// How to treat what is met on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Aliases are followed, on the way and at the end.
    pub(crate) follow_aliases: bool,
    /// ManageDsaIT: referral objects are plain entries.
    pub(crate) manage_dsa_it: bool,
    /// The scope to put into referrals, for a search.
    pub(crate) referral_scope: Option<url::Scope>,
}

impl Manner {
    /// The attribute that says where an entry leads, if it is not a plain one to who looks in this manner.
    fn leads_by(self, schema: &Schema, flags: EntryFlags) -> Option<AttributeTypeId> {
        if flags.is_referral() && !self.manage_dsa_it {
            return Some(schema.operational(OperationalAttribute::Ref));
        }
        let is_followed = flags.is_alias() && self.follow_aliases;
        is_followed.then(|| schema.well_known().aliased_object_name)
    }
}

/// Looks for entries in one snapshot or transaction.
pub(crate) struct Locator<'l, R: Read> {
    pub(crate) schema: &'l Schema,
    pub(crate) state: &'l State,
    pub(crate) view: &'l R,
    /// Who looks, if that makes a difference to what is there.
    pub(crate) viewer: Option<&'l Requester>,
}

impl<R: Read> Locator<'_, R> {
    /// The entry named by a DN, or the outcome that says why there is none: invalidDNSyntax, noSuchObject with its
    /// matchedDN, referral, aliasProblem.
    pub(crate) fn locate(
        &self,
        dn: &str,
        manner: Manner,
    ) -> Result<std::result::Result<Child, Outcome>> {
        self.locate_named(dn, manner, &mut NormalDn::new())
    }

    /// The same; `normal` becomes the DN of the entry in normal form.
    pub(crate) fn locate_named(
        &self,
        dn: &str,
        manner: Manner,
        normal: &mut NormalDn,
    ) -> Result<std::result::Result<Child, Outcome>> {
        if let Err(invalid) = normal.parse(self.schema, dn.as_bytes()) {
            let diagnostic = format!("{dn:?} is not a DN: {invalid}");
            return Ok(Err(Outcome::new(ResultCode::InvalidDnSyntax, diagnostic)));
        }
        let mut written = Cow::Borrowed(dn);
        let mut passed: Vec<Followed> = Vec::new();
        while passed.len() <= ALIASES_MAX {
            let walk = names::walk(self.view, &self.state.contexts, normal)?;
            let walk = match self.viewer {
                Some(viewer) => {
                    let leads_by = |flags| manner.leads_by(self.schema, flags);
                    let reading = (self.view, self.schema);
                    let seen = |walk| as_seen(reading, walk, normal, viewer, leads_by);
                    walk.map(seen).transpose()?.flatten()
                }
                None => walk,
            };
            let Some(walk) = walk else {
                return Ok(Err(match passed.last() {
                    Some(alias) => self.names_nothing(alias)?,
                    None => self.outside(&written, normal),
                }));
            };
            match self.stops(&walk, &written, normal, manner)? {
                Stop::Arrived(child) => return Ok(Ok(child)),
                Stop::Ended(outcome) => {
                    let misled = passed.last().filter(|alias| {
                        outcome.code == ResultCode::NoSuchObject
                            && walk.matched_rdns < normal.len() - alias.below
                    });
                    return Ok(Err(match misled {
                        Some(alias) => self.names_nothing(alias)?,
                        None => outcome,
                    }));
                }
                Stop::Alias { followed, target } => {
                    // With no fewer names below it than before it leads here again and again (RFC 4511 §4.5.1.3).
                    if passed.iter().any(|before| followed.repeats(before)) {
                        let alias = names::dn_of(self.view, followed.alias)?;
                        let diagnostic = format!("the alias {alias:?} leads back to itself");
                        let outcome = Outcome::new(ResultCode::AliasProblem, diagnostic);
                        return Ok(Err(outcome.matched(alias)));
                    }
                    written = Cow::Owned(match referral::leading_rdns(&written, followed.below) {
                        "" => target,
                        below => format!("{below},{target}"),
                    });
                    passed.push(followed);
                    if normal.parse(self.schema, written.as_bytes()).is_err() {
                        let diagnostic =
                            format!("an alias leads to {written:?}, which is not a DN");
                        return Ok(Err(Outcome::new(ResultCode::AliasProblem, diagnostic)));
                    }
                }
            }
        }
        let diagnostic = format!("{dn:?} leads through more than {ALIASES_MAX} aliases");
        let matched = passed
            .last()
            .map(|last| names::dn_of(self.view, last.alias))
            .transpose()?;
        let outcome = Outcome::new(ResultCode::AliasProblem, diagnostic);
        Ok(Err(outcome.matched(matched.unwrap_or_default())))
    }

    /// The outcome for an alias whose target does not exist; the alias is the last entry on the way (RFC 4511 §4.1.9).
    fn names_nothing(&self, followed: &Followed) -> Result<Outcome> {
        let dn = names::dn_of(self.view, followed.alias)?;
        let diagnostic = format!("the alias {dn:?} names no entry");
        Ok(Outcome::new(ResultCode::AliasProblem, diagnostic).matched(dn))
    }

    fn stops(&self, walk: &Walk, written: &str, normal: &NormalDn, manner: Manner) -> Result<Stop> {
        // The first entry on the way that leads elsewhere decides.
        let first_rdns = walk.matched_rdns - (walk.entries.len() - 1);
        for (step, child) in walk.entries.iter().enumerate() {
            let below = normal.len() - (first_rdns + step);
            if child.flags.is_referral() && !manner.manage_dsa_it {
                let (schema, attributes) = (self.schema, &self.state.attributes);
                let vocabulary = Vocabulary { schema, attributes };
                let scope = manner.referral_scope;
                return referral::outcome(self.view, vocabulary, child.id, written, below, scope)
                    .map(Stop::Ended);
            }
            if child.flags.is_alias() && manner.follow_aliases {
                return self.follow(child.id, below);
            }
        }
        Ok(match walk.found() {
            Some(child) => Stop::Arrived(child),
            None => {
                let matched = names::dn_of(self.view, walk.last().id)?;
                let diagnostic =
                    format!("there is no entry {written:?}; the nearest above it is {matched:?}");
                Stop::Ended(Outcome::new(ResultCode::NoSuchObject, diagnostic).matched(matched))
            }
        })
    }

    fn follow(&self, alias: EntryId, below: usize) -> Result<Stop> {
        let followed = Followed { alias, below };
        Ok(match self.alias_target(alias)? {
            Some(target) => Stop::Alias { followed, target },
            None => Stop::Ended(self.names_nothing(&followed)?),
        })
    }

    /// What an alias names (RFC 4512 §2.6.2), as written.
    pub(crate) fn alias_target(&self, alias: EntryId) -> Result<Option<String>> {
        let record = self.record(alias)?;
        let entry = self.entry(alias, &record)?;
        for known in self
            .state
            .attributes
            .of_type(self.schema.well_known().aliased_object_name)
        {
            let stored = entry
                .attribute(known.number())
                .map_err(|damaged| Error::corrupt(format!("entry {alias}: {damaged}")))?;
            if let Some(value) = stored.and_then(|stored| stored.values().iter().next()) {
                return Ok(std::str::from_utf8(value).ok().map(str::to_owned));
            }
        }
        Ok(None)
    }

    fn outside(&self, dn: &str, normal: &NormalDn) -> Outcome {
        if let Some(context) = names::context_of(&self.state.contexts, normal) {
            let context = &self.state.contexts[context].dn;
            let diagnostic =
                format!("there is no entry {dn:?}: the naming context {context:?} is empty");
            return Outcome::new(ResultCode::NoSuchObject, diagnostic);
        }
        let contexts = names::listed(&self.state.contexts);
        let diagnostic = format!("there is no entry {dn:?}; this server holds {contexts}");
        Outcome::new(ResultCode::NoSuchObject, diagnostic)
    }

    fn record(&self, id: EntryId) -> Result<R::Value<'_>> {
        self.view
            .get(Table::Entry, &id.to_key())?
            .ok_or_else(|| Error::corrupt(format!("entry {id} has a name but does not exist")))
    }

    fn entry<'r>(&self, id: EntryId, record: &'r [u8]) -> Result<Entry<'r>> {
        Entry::new(record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))
    }
}

enum Stop {
    Arrived(Child),
    Ended(Outcome),
    Alias { followed: Followed, target: String },
}

/// An alias that was followed.
struct Followed {
    alias: EntryId,
    /// How many relative names stood below it in the DN.
    below: usize,
}

impl Followed {
    /// Whether it leads where it led before.
    fn repeats(&self, before: &Followed) -> bool {
        self.alias == before.alias && self.below >= before.below
    }
}
