//! Following the aliases that a search covers (RFC 4511 §4.5.1.3): what they name is searched, too.
//!
//! Every alias of the directory is looked at, in the order of ids, and followed when it is covered. What it leads to
//! may cover aliases that were passed over before. So if one leads out of the scope, all are looked at a second time,
//! and those that are not covered are remembered, with the entries above them: a tree. When an entry of it becomes
//! covered, the aliases below are found by going down. Each alias is followed twice at most and each entry passed once,
//! however aliases lead to each other. A loop ends where it leads to nothing new.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use sapwood_ldap::result::ResultCode;

use super::scope::Covered;
use crate::access::Asked;
use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::locate::{Locator, Manner};
use crate::names::{DnCache, IdHasher, Superior, if_named, normal_dn_of};
use crate::outcome::Outcome;
use crate::plan::stream::{Pace, Stream};
use crate::plan::{Planner, Term, classes};
use crate::steps;

/// Most entries that are remembered: those that aliases lead to, and those on the way to aliases that are not covered.
/// Some 40 bytes each while the search begins.
const REMEMBERED_MAX: usize = 1 << 17;

/// Work of looking at an alias, or at an entry above it, in about as many nanoseconds.
const LOOK_WORK: u64 = 1 << 10;
/// Work of following an alias, besides its length.
const FOLLOW_WORK: u64 = 1 << 12;
/// Work for each byte of the DN that an alias names.
const BYTE_WORK: u64 = 1 << 4;

/// How far following aliases has come.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// The next alias is the first from here on.
    next: EntryId,
    /// Whether an alias has led to anything that was not covered.
    has_led: bool,
    /// In the second pass: aliases that were not covered, and the entries above them.
    outside: Option<Outside>,
    /// Places in it that have become covered, each with those that are linked to it: they are to be passed.
    covered: Vec<EntryId>,
}

type Outside = HashMap<EntryId, Place, BuildHasherDefault<IdHasher>>;

/// A place in the tree of what is not covered.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The child that came last; the root stands for none.
    child: EntryId,
    /// The child of the same entry that came before.
    sibling: EntryId,
    is_alias: bool,
    /// It has become covered.
    is_passed: bool,
}

/// How following ends.
#[derive(Debug)]
pub(super) enum Followed {
    /// All that is covered is known.
    All,
    /// The work is used up.
    Part,
    /// There is more to remember than may be.
    TooMany(Outcome),
}

impl Following {
    /// Goes on for so much work. On an error, which may be that something is not here, what was done before stays done
    /// and the rest can be done again.
    pub(super) fn go_on<R: Read>(
        &mut self,
        covered: &mut Covered,
        planner: &Planner<'_, R>,
        locator: &Locator<'_, R>,
        names: &mut DnCache,
        work: u64,
    ) -> Result<Followed> {
        let aliases = aliases(planner)?;
        let pace = Pace::new(work);
        let mut stream = Stream::open(planner.view, &aliases, None, &pace);
        let mut left = work;
        loop {
            if self.remembered(covered) > REMEMBERED_MAX {
                return Ok(Followed::TooMany(too_many()));
            }
            if left == 0 {
                return Ok(Followed::Part);
            }
            let spent = if let Some(entry) = self.covered.pop() {
                let passed = self.pass(entry, covered, locator, names);
                if passed.is_err() {
                    self.covered.push(entry);
                }
                passed?
            } else if let Some(alias) = stream.find(self.next)? {
                let spent = self.look(alias, covered, locator, names)?;
                self.next = EntryId(alias.0.saturating_add(1));
                spent
            } else if self.has_led && self.outside.is_none() && covered.adds_subtrees() {
                self.outside = Some(HashMap::default());
                self.next = EntryId::ROOT;
                stream = Stream::open(planner.view, &aliases, None, &pace);
                0
            } else {
                return Ok(Followed::All);
            };
            left = left.saturating_sub(spent);
        }
    }

    fn remembered(&self, covered: &Covered) -> usize {
        let outside = self.outside.as_ref().map_or(0, HashMap::len);
        outside + self.covered.len() + covered.added()
    }

    /// Looks at an alias in its turn; the work of that.
    fn look<R: Read>(
        &mut self,
        alias: EntryId,
        covered: &mut Covered,
        locator: &Locator<'_, R>,
        names: &mut DnCache,
    ) -> Result<u64> {
        steps::count(1);
        // Aliases are looked for below the base: the base itself stays what it is.
        if alias == covered.base() {
            return Ok(LOOK_WORK);
        }
        let key = alias.to_key();
        let record = locator.view.get(Table::Entry, &key)?;
        let record = record.ok_or_else(|| {
            Error::corrupt(format!("alias {alias} is indexed but does not exist"))
        })?;
        let parent = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {alias}: {damaged}")))?
            .parent();
        let Some(superior) = if_named(names.superior(locator.view, parent))? else {
            return Ok(LOOK_WORK);
        };
        let superior = superior.map(|superior| &**superior);
        if covered.contains(alias, parent, superior) {
            let (work, vertex) = lead(alias, locator, names)?;
            self.cover(vertex, covered);
            return Ok(LOOK_WORK + work);
        }
        let Some(outside) = &mut self.outside else {
            return Ok(LOOK_WORK);
        };
        let mut work = LOOK_WORK;
        let mut below = alias;
        let mut is_known = outside.contains_key(&alias);
        outside.entry(alias).or_default().is_alias = true;
        let mut above = superior.into_iter().flat_map(Superior::line);
        while !is_known && let Some(entry) = above.next() {
            steps::count(1);
            work += LOOK_WORK;
            let slot = outside.entry(entry);
            is_known = matches!(slot, Slot::Occupied(_));
            let sibling = std::mem::replace(&mut slot.or_default().child, below);
            outside.entry(below).or_default().sibling = sibling;
            below = entry;
        }
        Ok(work)
    }

    /// Passes an entry that has become covered, and follows it if it is an alias; the work of that.
    fn pass<R: Read>(
        &mut self,
        entry: EntryId,
        covered: &mut Covered,
        locator: &Locator<'_, R>,
        names: &mut DnCache,
    ) -> Result<u64> {
        steps::count(1);
        let place = self
            .outside
            .as_ref()
            .and_then(|outside| outside.get(&entry));
        // All that is read, before anything is changed.
        let led = match place {
            Some(place) if place.is_alias && !place.is_passed => lead(entry, locator, names)?,
            _ => (0, None),
        };
        let outside = self.outside.as_mut();
        let Some(place) = outside.and_then(|outside| outside.get_mut(&entry)) else {
            return Ok(LOOK_WORK);
        };
        let was_passed = std::mem::replace(&mut place.is_passed, true);
        let Place { child, sibling, .. } = *place;
        self.push(sibling);
        if was_passed {
            return Ok(LOOK_WORK);
        }
        self.push(child);
        let (work, vertex) = led;
        self.cover(vertex, covered);
        Ok(LOOK_WORK + work)
    }

    fn push(&mut self, entry: EntryId) {
        if !entry.is_root() {
            self.covered.push(entry);
        }
    }

    /// Covers what an alias that is covered leads to.
    fn cover(&mut self, vertex: Option<Arc<Superior>>, covered: &mut Covered) {
        let Some(vertex) = vertex.filter(|vertex| covered.add(vertex)) else {
            return;
        };
        self.has_led = true;
        let outside = self.outside.as_mut();
        let place = outside.and_then(|outside| outside.get_mut(&vertex.id));
        if let Some(place) = place.filter(|place| !place.is_passed) {
            place.is_passed = true;
            let child = place.child;
            self.push(child);
        }
    }
}

/// Where an alias leads, and the work of finding that: to nothing if it names no entry.
fn lead<R: Read>(
    alias: EntryId,
    locator: &Locator<'_, R>,
    names: &mut DnCache,
) -> Result<(u64, Option<Arc<Superior>>)> {
    steps::count(1);
    let manner = Manner {
        follow_aliases: true,
        manage_dsa_it: true,
        referral_scope: None,
    };
    if let Some(viewer) = locator.viewer {
        let Some(dn) = if_named(normal_dn_of(locator.view, locator.schema, alias))? else {
            return Ok((FOLLOW_WORK, None));
        };
        let by = locator.schema.well_known().aliased_object_name;
        let asked = Asked {
            view: locator.view,
            schema: locator.schema,
            dn: &dn,
            id: alias,
        };
        if !viewer.grants().follows(&asked, by)? {
            return Ok((FOLLOW_WORK, None));
        }
    }
    let Some(target) = locator.alias_target(alias)? else {
        return Ok((FOLLOW_WORK, None));
    };
    let vertex = match locator.locate(&target, manner)? {
        Ok(found) => if_named(names.superior(locator.view, found.id))?
            .flatten()
            .cloned(),
        Err(_) => None,
    };
    let work = FOLLOW_WORK + BYTE_WORK * target.len() as u64;
    Ok((work, vertex))
}

/// The ids of all aliases.
fn aliases<R: Read>(planner: &Planner<'_, R>) -> Result<Term> {
    let alias = planner.schema.class_of(planner.schema.well_known().alias);
    classes::class_term(planner, alias.name())
}

fn too_many() -> Outcome {
    let diagnostic = format!(
        "aliases lead out of the scope to more than {REMEMBERED_MAX} entries, or past as many others"
    );
    Outcome::new(ResultCode::AdminLimitExceeded, diagnostic)
}
