//! The searches of a burst begun together: what they read next is brought from memory for all of them at the same time.
//! In a large directory each has a name, a place in an index and an entry on pages of its own, which no cache holds, so
//! that searches that begin one after the other mostly wait.
//!
//! It goes in steps: the names of all bases, then the lists of all filters, then the entries that they lead to.

use std::sync::Arc;

use sapwood_ldap::message::SearchRequest;

use super::begin::{Begun, Draft, Drafted};
use super::unbegun::Unbegun;
use super::{Running, Search, SearchOptions, Source, Stage};
use crate::access::Requester;
use crate::directory::{Found, Snapshot};
use crate::engine::{Embedded, Engine, EntryId, Index, Read, Table};
use crate::error::Result;
use crate::names::{self, Child, name_key};
use crate::plan::Term;
use crate::schema::Siblings;

/// The searches of a burst, all of one snapshot.
pub struct Searches<E: Engine = Embedded> {
    snapshot: Snapshot<E>,
    siblings: Siblings,
    /// The normal DN above the base that came last, and its entry, if no alias and no referral is on the way.
    above: Vec<u8>,
    parent: Option<EntryId>,
    /// The last base that had to be looked for by itself.
    found: Option<Found>,
    /// Keys of names; more than are in use.
    names: Vec<Vec<u8>>,
    /// The entries that they were found to stand for.
    children: Vec<Option<Child>>,
    lists: Vec<Vec<u8>>,
    ids: Vec<[u8; 8]>,
}

/// A search whose base is looked for.
enum Sought<'r> {
    Draft(Draft<'r>, Lookup),
    /// It needs none, or has ended.
    Stage(Stage),
}

/// What finds a base.
#[derive(Clone, Copy)]
enum Lookup {
    Known(Child),
    /// The name under a key, by its number.
    Name(usize),
    /// All that may be on the way to it.
    Walk,
}

/// A search whose base was found.
enum Placed<'r> {
    Draft(Draft<'r>, Child),
    Stage(Stage),
}

impl<E: Engine> Searches<E> {
    /// Of no searches yet.
    pub fn new(snapshot: Snapshot<E>) -> Searches<E> {
        Searches {
            snapshot,
            siblings: Siblings::default(),
            above: Vec::new(),
            parent: None,
            found: None,
            names: Vec::new(),
            children: Vec::new(),
            lists: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// The snapshot that they run on.
    pub fn snapshot(&self) -> &Snapshot<E> {
        &self.snapshot
    }

    /// Begins searches as [`Search::new`] does, all of them together, each of the requester beside it. They should be
    /// few, so that what was fetched for the last is not lost before the first one uses it: about sixteen.
    pub fn begin<'r>(
        &mut self,
        requests: impl Iterator<Item = (&'r Arc<Requester>, &'r SearchRequest<'r>, SearchOptions)>,
    ) -> Vec<Search<E>> {
        let mut unbegun = Vec::new();
        let drafts = requests.map(|(requester, request, options)| {
            if E::REMOTE {
                unbegun.push(Unbegun::new(&self.snapshot, requester, request, &options));
            }
            match Draft::prepare(&self.snapshot, requester, request, options) {
                Ok(Ok(Drafted::Below(draft))) => Sought::Draft(draft, Lookup::Walk),
                Ok(Ok(Drafted::Synthetic(running))) => Sought::Stage(Stage::Running(running)),
                Ok(Err(outcome)) => Sought::Stage(Stage::Ended(outcome)),
                Err(error) => Sought::Stage(Stage::Failed(error)),
            }
        });
        let mut sought = Vec::with_capacity(drafts.size_hint().1.unwrap_or_default());
        sought.extend(drafts);
        self.find_names(&mut sought);
        let placed: Vec<_> = sought
            .into_iter()
            .map(|search| self.place(search))
            .collect();
        self.fetch_lists(&placed);
        let mut searches: Vec<_> = placed.into_iter().map(|search| self.plan(search)).collect();
        self.fetch_entries(&mut searches);
        for (search, unbegun) in searches.iter_mut().zip(unbegun) {
            search.stage.begin_again(unbegun);
        }
        searches
    }

    /// Looks at the DNs, and finds the names of those together that can be found by one key.
    fn find_names(&mut self, searches: &mut [Sought<'_>]) {
        let mut count = 0;
        for search in searches {
            if let Sought::Draft(draft, lookup) = search {
                *lookup = self.lookup(draft, count);
                count += usize::from(matches!(lookup, Lookup::Name(_)));
            }
        }
        self.children.clear();
        self.children.resize(count, None);
        let (view, children) = (self.snapshot.view(), &mut self.children);
        // What fails here is looked for again in the usual way, and is told there.
        let _ = view.get_each(Table::Name, &self.names[..count], |at, value| {
            children[at] = value.and_then(|value| Child::from_value(value).ok());
        });
    }

    fn lookup(&mut self, draft: &Draft<'_>, at: usize) -> Lookup {
        let dn = draft.request.base;
        if !draft.begins_anywhere() {
            return Lookup::Walk;
        }
        let manner = draft.manner();
        let known = self.found.as_ref().filter(|_| draft.may_use_known(manner));
        if let Some(base) = known.and_then(|found| found.of(dn, manner)) {
            return Lookup::Known(base);
        }
        if self.siblings.read(self.snapshot.schema(), dn).is_err() {
            return Lookup::Walk;
        }
        let normal = self.siblings.normal();
        let rdn = normal.rdns().next_back().unwrap_or_default();
        let above = &normal.bytes()[..normal.bytes().len() - rdn.len()];
        if self.above != above {
            let mut superior = normal.clone();
            superior.truncate(normal.len().saturating_sub(1));
            let contexts = &self.snapshot.state().contexts;
            // What fails here is looked for again in the usual way, and is told there.
            let Ok(walk) = names::walk(self.snapshot.view(), contexts, &superior) else {
                return Lookup::Walk;
            };
            self.parent = walk.and_then(|walk| {
                let is_plain =
                    |child: &Child| !child.flags.is_referral() && !child.flags.is_alias();
                let found = walk.found().filter(|_| walk.entries.iter().all(is_plain));
                found.map(|found| found.id)
            });
            self.above.clear();
            self.above.extend_from_slice(above);
        }
        let Some(parent) = self.parent else {
            return Lookup::Walk;
        };
        if self.names.len() == at {
            self.names.push(Vec::new());
        }
        name_key(parent, rdn, &mut self.names[at]);
        Lookup::Name(at)
    }

    fn place<'r>(&mut self, search: Sought<'r>) -> Placed<'r> {
        let (draft, lookup) = match search {
            Sought::Draft(draft, lookup) => (draft, lookup),
            Sought::Stage(stage) => return Placed::Stage(stage),
        };
        let found = match lookup {
            Lookup::Known(base) => Ok(Ok(base)),
            Lookup::Name(name) => self.find(&draft, name),
            Lookup::Walk => self.locate(&draft),
        };
        match found {
            Ok(Ok(base)) => Placed::Draft(draft, base),
            Ok(Err(outcome)) => Placed::Stage(Stage::Ended(outcome)),
            Err(error) => Placed::Stage(Stage::Failed(error)),
        }
    }

    /// The base whose name was found. If it is not simply there, it is looked for in the usual way.
    fn find(&self, draft: &Draft<'_>, name: usize) -> Result<Begun<Child>> {
        match self.children[name] {
            Some(child) if !child.flags.is_referral() && !child.flags.is_alias() => Ok(Ok(child)),
            _ => draft.locate(&self.snapshot),
        }
    }

    fn locate(&mut self, draft: &Draft<'_>) -> Result<Begun<Child>> {
        let found = draft.locate(&self.snapshot)?;
        if let Ok(base) = found
            && draft.may_use_known(draft.manner())
        {
            self.found = Some(Found::new(draft.request.base, draft.manner(), base));
        }
        Ok(found)
    }

    fn fetch_lists(&mut self, searches: &[Placed<'_>]) {
        let (view, lists) = (self.snapshot.view(), &mut self.lists);
        let mut of: Option<Index> = None;
        for search in searches {
            if let Placed::Draft(draft, _) = search {
                draft.lists(&self.snapshot, &mut |index, key| {
                    if let Some(of) = of.replace(index).filter(|of| *of != index) {
                        let _ = view.prefetch_lists(of, lists);
                        lists.clear();
                    }
                    lists.push(key);
                });
            }
        }
        if let Some(of) = of {
            let _ = view.prefetch_lists(of, lists);
        }
        lists.clear();
    }

    fn plan(&self, search: Placed<'_>) -> Search<E> {
        let stage = match search {
            Placed::Draft(draft, base) => Stage::of(draft.plan(&self.snapshot, base)),
            Placed::Stage(stage) => stage,
        };
        Search {
            snapshot: self.snapshot.clone(),
            stage,
            resumed: None,
        }
    }

    fn fetch_entries(&mut self, searches: &mut [Search<E>]) {
        self.ids.clear();
        let mut first = Vec::with_capacity(searches.len());
        for search in searches {
            if let Stage::Running(running) = &mut search.stage
                && let Some(id) = first_id(running)
            {
                self.ids.push(id.to_key());
                first.push((id, &mut running.fetched));
            }
        }
        let view = self.snapshot.view();
        let _ = view.prefetch(Table::Entry, &self.ids, |at, place| {
            let (id, fetched) = &mut first[at];
            **fetched = Some((*id, place));
        });
    }
}

/// The entry that a search looks at first, as far as it is known.
fn first_id(running: &Running) -> Option<EntryId> {
    match &running.source {
        Source::Base => Some(running.covered.base()),
        Source::Postings(Term::List { few, .. }) => few.first().copied(),
        _ => None,
    }
}
