//! Beginning a search: what it asks for is made ready, its base is found, and a plan is chosen.

use std::sync::Arc;

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url;
use xxhash_rust::xxh3::Xxh3;

use super::aliases::{Followed, Following};
use super::attribute_scope::AttributeScope;
use super::base::{Base, SyntheticBase};
use super::counting::Counting;
use super::dereference::Dereferencing;
use super::effective_rights::EffectiveRights;
use super::expansion::Expansion;
use super::page::{self, Level, Position};
use super::scope::Covered;
use super::value_order::ValueOrder;
use super::{Limits, Running, SearchOptions, Source};
use crate::access::{Asked, Decider, Everywhere, Identity, Requester, Rights, Sight, Slot};
use crate::directory::Snapshot;
use crate::engine::{Engine, EntryId, Index, POSTINGS_FEW_MAX, Range, Read, Table};
use crate::error::{Error, Result};
use crate::locate::{Locator, Manner};
use crate::matching::evaluate::Interrupted;
use crate::matching::filter::Compiler;
use crate::matching::in_chain::{CHAIN_ENTRIES_MAX, CHAINS_MAX};
use crate::matching::selection::Selection;
use crate::names::Child;
use crate::operational::Vocabulary;
use crate::outcome::Outcome;
use crate::plan::classes::{class_term, subentry_term};
use crate::plan::stream::Lists;
use crate::plan::{self, Planner, Progress, Term};
use crate::schema::{NormalDn, Schema};
use crate::state::State;

/// Work of planning before the first step, in about as many nanoseconds: hardly any filter needs more.
const BEGIN_WORK: u64 = 1 << 20;

/// What a search has come to, or the outcome that it ends with before it has looked at any entry.
pub(super) type Begun<T> = std::result::Result<T, Outcome>;

/// Begins one search by itself.
pub(super) fn begin<E: Engine>(
    snapshot: &Snapshot<E>,
    requester: &Arc<Requester>,
    request: &SearchRequest<'_>,
    options: SearchOptions,
) -> Result<Begun<Planned>> {
    let draft = match Draft::prepare(snapshot, requester, request, options)? {
        Ok(Drafted::Below(draft)) => draft,
        Ok(Drafted::Synthetic(running)) => return Ok(Ok(Planned::Whole(running))),
        Err(outcome) => return Ok(Err(outcome)),
    };
    match draft.locate(snapshot)? {
        Ok(base) => draft.plan(snapshot, base),
        Err(outcome) => Ok(Err(outcome)),
    }
}

/// Begins one that looks at no candidates but those that it is [told](Running::aim) one by one.
pub(super) fn begin_for_told<E: Engine>(
    snapshot: &Snapshot<E>,
    requester: &Arc<Requester>,
    request: &SearchRequest<'_>,
    options: SearchOptions,
) -> Result<Begun<Box<Running>>> {
    let draft = match Draft::prepare(snapshot, requester, request, options)? {
        Ok(Drafted::Below(draft)) => draft,
        Ok(Drafted::Synthetic(_)) => {
            let diagnostic = "changes of what the server makes itself are not told";
            let code = ResultCode::UnwillingToPerform;
            return Ok(Err(Outcome::new(code, diagnostic)));
        }
        Err(outcome) => return Ok(Err(outcome)),
    };
    let base = draft.locate(snapshot)?;
    Ok(base.map(|base| draft.for_told(base)))
}

/// A search that was made ready as far as its request alone tells.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each search an allocation"
)]
pub(super) enum Drafted<'r> {
    /// One of the tree: its base is to be found.
    Below(Draft<'r>),
    /// One of a synthetic entry, which can begin.
    Synthetic(Box<Running>),
}

/// A search of the tree whose base is not known yet.
pub(super) struct Draft<'r> {
    pub(super) request: SearchRequest<'r>,
    options: SearchOptions,
    running: Box<Running>,
}

impl<'r> Draft<'r> {
    /// Makes the filter and the selection ready.
    pub(super) fn prepare<E: Engine>(
        snapshot: &Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'r>,
        options: SearchOptions,
    ) -> Result<Begun<Drafted<'r>>> {
        let (schema, state) = (snapshot.schema(), snapshot.state());
        let requester = snapshot.current(requester)?;
        let grants = requester.grants();
        let base = match Base::of(snapshot, grants, request.base, options.channel)? {
            Base::InTree => None,
            Base::Synthetic(base) => Some(base),
            Base::Nowhere(outcome) => return Ok(Err(outcome)),
        };
        // Below the root DSE are the naming contexts.
        let searches_it = |base: &&SyntheticBase| request.scope == Scope::Base || !base.is_root();
        let is_synthetic = base.as_ref().filter(searches_it).is_some();
        let of_synthetic = (
            grants.of_synthetic().unwrap_or(grants),
            grants.sight_of_synthetic(),
        );
        let sight = match is_synthetic {
            true => of_synthetic.1,
            // What is told of a password, and of which attributes there are, depends on what is granted on the entry.
            false if options.tells_of_entries() && !grants.is_unlimited() => match grants.sight() {
                Sight::All | Sight::Public | Sight::Decided => Sight::Decided,
                Sight::Nothing => Sight::Nothing,
            },
            false => grants.sight(),
        };
        // Told without a look, so that it tells nothing.
        if sight == Sight::Nothing {
            return Ok(Err(nothing_to_search(requester.identity())));
        }
        let of_base = base.as_ref().map(|base| base.context.attributes());
        let of_base = of_base.unwrap_or(&state.attributes);
        let attributes = match is_synthetic {
            true => of_base,
            false => &state.attributes,
        };
        let granted = match is_synthetic {
            true => of_synthetic,
            false => (grants, sight),
        };
        let compiler = Compiler::new(schema, attributes, granted);
        let filter = compiler.compile(request.filter);
        let granted_on_base = match &base {
            Some(_) => of_synthetic,
            None => granted,
        };
        let assertion = options.assertion.as_ref().map(|filter| {
            let compiler = Compiler::new(schema, of_base, granted_on_base);
            compiler.compile(filter.as_filter())
        });
        let mut selection = Selection::new(
            schema,
            attributes,
            request.attributes,
            request.types_only,
            sight,
        );
        if let Some(only) = options.only {
            selection.set_only(schema, attributes, only);
        }
        if let Some(values) = &options.values {
            let compiler = Compiler::new(schema, attributes, granted);
            let items = values.iter().map(FilterBuf::as_filter);
            let items = items.filter_map(|filter| compiler.compile_for_values(filter));
            selection.set_matching(items.collect());
        }
        selection.read_ranges(schema, attributes, request.attributes);
        if options.as_stored {
            selection.leave_out_computed();
        }
        let question = options.effective_rights.as_deref();
        let effective_rights = match question.filter(|_| !is_synthetic) {
            None => None,
            Some(question) => match EffectiveRights::of(snapshot, question)? {
                Ok(ready) => Some(Box::new(ready)),
                Err(outcome) => return Ok(Err(outcome)),
            },
        };
        let is_raw = is_synthetic || options.as_stored || options.raw_values;
        let value_order = match is_raw || state.settings.value_sorts.is_empty() {
            true => None,
            false => ValueOrder::of(snapshot.view(), schema, state)?.map(Box::new),
        };
        if is_synthetic && (options.count.is_some() || options.attribute_scope.is_some()) {
            let diagnostic = "what the server makes itself is neither counted nor followed";
            let code = ResultCode::UnwillingToPerform;
            return Ok(Err(Outcome::new(code, diagnostic)));
        }
        let dereferences = options.dereferences.as_deref().filter(|_| !is_synthetic);
        let dereferencing = match dereferences.map(|asked| Dereferencing::of(schema, asked)) {
            None => None,
            Some(Ok(ready)) => ready.map(Box::new),
            Some(Err(outcome)) => return Ok(Err(outcome)),
        };
        let expansion = match is_synthetic || options.as_stored || options.manage_dsa_it {
            true => None,
            false => Expansion::of_search((schema, attributes), &filter, &selection),
        };
        let mut running = Box::new(Running {
            synthetic: None,
            manage_dsa_it: options.manage_dsa_it,
            domain_scope: options.domain_scope || options.count.is_some(),
            subentries: options.subentries,
            assertion,
            filter,
            interrupted: Interrupted::default(),
            gathered: None,
            as_stored: options.as_stored,
            collective: match options.as_stored {
                true => None,
                false => snapshot.collective()?,
            },
            expansion,
            selection,
            covered: Covered::new(EntryId::ROOT, request.scope),
            ids: (EntryId::ROOT, EntryId(u64::MAX)),
            source: Source::Base,
            position: Position::Id(EntryId::ROOT),
            lists: Lists::default(),
            fetched: None,
            limits: Limits::of(request, &options, || snapshot.now_micros()),
            paged: None,
            sent: 0,
            sent_before: 0,
            looked_at: 0,
            decider: (sight == Sight::Decided && !is_synthetic)
                .then(|| Box::new(Decider::new(requester.clone(), snapshot.whole_commit()))),
            requester,
            tells_usability: options.tells_usability && !is_synthetic,
            collector: None,
            in_place: None,
            counting: options.count.map(|asked| Box::new(Counting::new(asked))),
            dereferencing,
            value_order,
            is_attribute_scoped: options.attribute_scope.is_some(),
            effective_rights,
        });
        running.synthetic = base;
        if !is_synthetic {
            return Ok(Ok(Drafted::Below(Draft {
                request: *request,
                options,
                running,
            })));
        }
        running.source = Source::Synthetic;
        if let Some((page_max, cookie)) = options.page {
            let hash = request_hash(request, options.subentries, running.requester.identity());
            running.limits.page_max = page_max;
            running.paged = Some(hash);
            if !cookie.is_empty() {
                let key = snapshot.directory().cookie_key();
                let Some((sent, position @ Position::Id(_))) =
                    page::from_cookie(key, hash, &cookie)
                else {
                    return Ok(Err(foreign_cookie()));
                };
                running.sent_before = sent;
                running.position = position;
            }
        }
        Ok(Ok(Drafted::Synthetic(running)))
    }

    /// How the base is looked for.
    pub(super) fn manner(&self) -> Manner {
        Manner {
            follow_aliases: matches!(
                self.request.deref_aliases,
                DerefAliases::FindingBase | DerefAliases::Always
            ),
            manage_dsa_it: self.options.manage_dsa_it,
            referral_scope: Some(match self.request.scope {
                Scope::Base => url::Scope::Base,
                Scope::OneLevel => url::Scope::One,
                Scope::Subtree => url::Scope::Sub,
                Scope::Subordinates => url::Scope::Subordinates,
            }),
        }
    }

    /// Finds the base.
    pub(super) fn locate<E: Engine>(&self, snapshot: &Snapshot<E>) -> Result<Begun<Child>> {
        let (dn, manner) = (self.request.base, self.manner());
        if dn.is_empty() {
            return Ok(Ok(Child::ROOT));
        }
        if self.may_use_known(manner)
            && let Some(base) = snapshot.learned().base(dn, manner)
        {
            return Ok(Ok(base));
        }
        let found = match self.is_decided() {
            true => self.locate_as(snapshot, dn, manner)?,
            false => locator(snapshot, None).locate(dn, manner)?,
        };
        // Searches for one entry hardly ever are for the same.
        if let Ok(base) = found
            && self.request.scope != Scope::Base
            && self.may_use_known(manner)
        {
            snapshot.learned().learn_base(dn, manner, base);
        }
        Ok(found)
    }

    /// Whether what others have found holds for who asks, too.
    pub(super) fn may_use_known(&self, manner: Manner) -> bool {
        !self.is_decided() || self.begins_anywhere() && !manner.follow_aliases
    }

    /// Whether a search may begin at every entry that does not lead elsewhere.
    pub(super) fn begins_anywhere(&self) -> bool {
        let grants = self.running.requester.grants();
        let begins = Rights::DISCLOSE | Rights::SEARCH;
        !self.is_decided() || grants.everywhere(Slot::ENTRY, begins) == Everywhere::Always
    }

    /// Whether each entry is decided by itself.
    fn is_decided(&self) -> bool {
        self.running.decider.is_some()
    }

    /// Finds the base as who asks sees it.
    #[cold]
    fn locate_as<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        dn: &str,
        manner: Manner,
    ) -> Result<Begun<Child>> {
        let requester = &self.running.requester;
        let mut normal = NormalDn::new();
        let found = locator(snapshot, Some(requester)).locate_named(dn, manner, &mut normal)?;
        Ok(match found {
            Ok(base) => may_begin_at(snapshot, requester, (base.id, &normal))?.map(|()| base),
            Err(outcome) => Err(outcome),
        })
    }

    /// The lists that the plan is going to ask the indexes for first.
    pub(super) fn lists<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        each: &mut impl FnMut(Index, Vec<u8>),
    ) {
        if self.request.scope != Scope::Base {
            planner(snapshot).equal_lists(&self.running.filter, each);
        }
    }

    /// Goes without a plan, now that the base is known. Aliases lead nowhere.
    fn for_told(self, base: Child) -> Box<Running> {
        let Draft {
            request,
            mut running,
            ..
        } = self;
        running.covered = Covered::new(base.id, request.scope);
        running.source = Source::Postings(Term::NOTHING);
        running
    }

    /// Chooses where the candidates come from, now that the base is known.
    pub(super) fn plan<E: Engine>(
        self,
        snapshot: &Snapshot<E>,
        base: Child,
    ) -> Result<Begun<Planned>> {
        let Draft {
            request,
            options,
            mut running,
        } = self;
        running.covered = Covered::new(base.id, request.scope);
        let mut attribute_scope = None;
        if let Some(attribute) = &options.attribute_scope {
            let at = (request.scope, base.id);
            match AttributeScope::begin(snapshot, &running, at, attribute)? {
                Ok(scope) => attribute_scope = Some(scope),
                Err(outcome) => return Ok(Err(outcome)),
            }
            running.covered = Covered::new(EntryId::ROOT, Scope::Subtree);
        } else if request.scope == Scope::Base && options.page.is_none() {
            // The base is the only candidate, and where a search begins.
            return Ok(Ok(Planned::Whole(running)));
        }
        let following = matches!(
            request.deref_aliases,
            DerefAliases::InSearching | DerefAliases::Always
        );
        let following = (following && request.scope != Scope::Base).then(|| {
            running.covered.follow_aliases();
            Box::<Following>::default()
        });
        let page = options.page.map(|(page_max, cookie)| {
            let identity = running.requester.identity();
            let hash = request_hash(&request, options.subentries, identity);
            (page_max, cookie, hash)
        });
        let planning = Planning {
            running,
            page,
            following,
            attribute_scope,
            progress: Progress::default(),
        };
        match planning.go_on(snapshot, BEGIN_WORK) {
            Ok(begun) => Ok(begun),
            // The first step finds out what is not here.
            Err((planning, error)) if E::REMOTE && error.is_not_here() => {
                Ok(Ok(Planned::Part(planning)))
            }
            Err((_, error)) => Err(error),
        }
    }
}

/// A search whose scope is being extended by what aliases name, and whose candidates are being looked for in the
/// indexes.
pub(super) struct Planning {
    running: Box<Running>,
    /// With paged results: entries of a page, the cookie, and the hash of the request.
    page: Option<(u32, Vec<u8>, u64)>,
    /// While the entries are found that the base names.
    attribute_scope: Option<AttributeScope>,
    /// While aliases are followed, before anything else.
    following: Option<Box<Following>>,
    progress: Progress,
}

/// How far the planning has come.
pub(super) enum Planned {
    /// The search can run.
    Whole(Box<Running>),
    /// The work was used up before.
    Part(Box<Planning>),
}

impl Planning {
    pub(super) fn limits(&self) -> &Limits {
        &self.running.limits
    }

    /// Goes on choosing, with so much work. An error comes with how far it has come.
    pub(super) fn go_on<E: Engine>(
        mut self,
        snapshot: &Snapshot<E>,
        work: u64,
    ) -> std::result::Result<Begun<Planned>, (Box<Planning>, Error)> {
        let source = match self.find_source(snapshot, work) {
            Ok(Ok(Some(source))) => source,
            Ok(Ok(None)) => return Ok(Ok(Planned::Part(Box::new(self)))),
            Ok(Err(outcome)) => return Ok(Err(outcome)),
            Err(error) => return Err((Box::new(self), error)),
        };
        let Planning {
            mut running, page, ..
        } = self;
        running.source = source;
        running.position = first_position(&running, snapshot.state());
        if let Some((page_max, cookie, hash)) = page {
            running.limits.page_max = page_max;
            running.paged = Some(hash);
            if !cookie.is_empty() {
                match page::from_cookie(snapshot.directory().cookie_key(), hash, &cookie) {
                    Some((sent, position)) => running.resume(sent, position),
                    None => return Ok(Err(foreign_cookie())),
                }
            }
        }
        Ok(Ok(Planned::Whole(running)))
    }
}

impl Planning {
    /// Where the candidates come from; `None` when the work was used up before that is known.
    #[inline]
    fn find_source<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        work: u64,
    ) -> Result<Begun<Option<Source>>> {
        if let Some(scope) = &mut self.attribute_scope {
            let found = scope.go_on(snapshot, work)?;
            return Ok(Ok(found.map(|ids| Source::Postings(Term::Ids(ids)))));
        }
        if let Some(following) = &mut self.following {
            match follow(snapshot, &mut self.running, following, work)? {
                Followed::All => self.following = None,
                Followed::Part => return Ok(Ok(None)),
                Followed::TooMany(outcome) => return Ok(Err(outcome)),
            }
        }
        let covered = &self.running.covered;
        if !covered.is_extended() && !covered.base().is_root() {
            self.running.ids = snapshot.state().ids_around(covered.base());
        }
        let mut work = work;
        if !(self.running).follow_chains(snapshot, &mut work)? {
            return Ok(match self.running.filter.exceeds_chain() {
                true => Err(chain_too_long()),
                false => Ok(None),
            });
        }
        choose(snapshot, &self.running, &mut self.progress, work).map(Ok)
    }
}

impl Running {
    /// Follows the names of in-chain items as far as that can be done before there are candidates; whether it is done.
    fn follow_chains<E: Engine>(&self, snapshot: &Snapshot<E>, work: &mut u64) -> Result<bool> {
        if self.covered.scope() == Scope::Base {
            return Ok(true);
        }
        let vocabulary = Vocabulary {
            schema: snapshot.schema(),
            attributes: &snapshot.state().attributes,
        };
        let viewer = self.decider.as_ref().map(|_| self.requester.grants());
        let reading = (snapshot.view(), vocabulary);
        self.filter.follow_chains(reading, viewer, work)
    }
}

/// The outcome when an in-chain item reaches more entries than are kept in memory.
pub(super) fn chain_too_long() -> Outcome {
    let diagnostic = format!(
        "a filter may have {CHAINS_MAX} items by inchainMatch, and none that leads to more than {CHAIN_ENTRIES_MAX} \
         entries"
    );
    Outcome::new(ResultCode::AdminLimitExceeded, diagnostic)
}

/// Goes on following aliases, with so much work.
fn follow<E: Engine>(
    snapshot: &Snapshot<E>,
    running: &mut Running,
    following: &mut Following,
    work: u64,
) -> Result<Followed> {
    let mut names = snapshot.take_names();
    let viewer = running.decider.as_ref().map(|_| &*running.requester);
    let (planner, locator) = (planner(snapshot), locator(snapshot, viewer));
    let covered = &mut running.covered;
    let followed = following.go_on(covered, &planner, &locator, &mut names, work);
    snapshot.put_back_names(names);
    followed
}

fn locator<'s, E: Engine>(
    snapshot: &'s Snapshot<E>,
    viewer: Option<&'s Requester>,
) -> Locator<'s, E::Snapshot> {
    Locator {
        schema: snapshot.schema(),
        state: snapshot.state(),
        view: snapshot.view(),
        viewer,
    }
}

/// Whether a search may begin at an entry that may be disclosed, whose DN in normal form is given.
pub(super) fn may_begin_at<E: Engine>(
    snapshot: &Snapshot<E>,
    requester: &Requester,
    (base, dn): (EntryId, &NormalDn),
) -> Result<Begun<()>> {
    let asked = Asked {
        view: snapshot.view(),
        schema: snapshot.schema(),
        dn,
        id: base,
    };
    let rights = requester.grants().rights(&asked, Slot::ENTRY)?;
    Ok(match rights.has(Rights::SEARCH) {
        true => Ok(()),
        false => {
            let diagnostic = "you may not search from this entry on";
            let code = ResultCode::InsufficientAccessRights;
            Err(Outcome::new(code, diagnostic))
        }
    })
}

/// The outcome for who may find no entry at all.
pub(super) fn nothing_to_search(identity: &Identity) -> Outcome {
    let diagnostic = match identity {
        Identity::Anonymous => "bind first: anonymous connections may read the root DSE only",
        _ => "you may search no entry of this server",
    };
    Outcome::new(ResultCode::InsufficientAccessRights, diagnostic)
}

pub(super) fn planner<E: Engine>(snapshot: &Snapshot<E>) -> Planner<'_, E::Snapshot> {
    Planner {
        schema: snapshot.schema(),
        state: snapshot.state(),
        view: snapshot.view(),
    }
}

pub(super) fn foreign_cookie() -> Outcome {
    let diagnostic = "the cookie of the paged results control does not belong to this search";
    Outcome::new(ResultCode::UnwillingToPerform, diagnostic)
}

/// What makes a request the one that a cookie belongs to, and who asks.
pub(super) fn request_hash(
    request: &SearchRequest<'_>,
    subentries: Option<bool>,
    identity: &Identity,
) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(identity.dn().as_bytes());
    hash.update(&[0]);
    hash.update(request.base.as_bytes());
    hash.update(&[
        0,
        request.scope as u8,
        request.deref_aliases as u8,
        u8::from(request.types_only),
        subentries.map_or(2, u8::from),
    ]);
    hash.update(request.filter.as_ber());
    hash.update(request.attributes.as_ber());
    hash.digest()
}

/// The cheapest source of candidates; `None` when the work was used up before that is known.
fn choose<E: Engine>(
    snapshot: &Snapshot<E>,
    running: &Running,
    progress: &mut Progress,
    work: u64,
) -> Result<Option<Source>> {
    let covered = &running.covered;
    if covered.scope() == Scope::Base {
        return Ok(Some(Source::Base));
    }
    let planner = &planner(snapshot);
    if running.subentries == Some(true)
        && let Some(term) = subentry_term(planner)?
    {
        return Ok(Some(Source::Postings(term)));
    }
    let mut is_untold = false;
    if let Some(reader) = &mut progress.reader {
        if !reader.has_too_many {
            let read = reader.go_on(planner, work)?;
            if !reader.has_too_many {
                return Ok(read.map(Source::Postings));
            }
        }
        is_untold = true;
    }
    let planned = match is_untold {
        true => plan::Planned::Untold,
        false => planner.plan(&running.filter, progress, work)?,
    };
    let term = match planned {
        plan::Planned::Term(term) => Some(term),
        plan::Planned::Untold => None,
        plan::Planned::Interrupted => return Ok(None),
    };
    let term = match term {
        // Referral objects that are covered are told of whether they match or not.
        Some(term) if !running.manage_dsa_it && !running.domain_scope => Some(with(
            term,
            snapshot
                .learned()
                .referrals(|| class_term(planner, referral_class(planner.schema)))?,
        )),
        term => term,
    };
    let cardinality = term.as_ref().map(Term::cardinality);
    // So few ids are known already. To find out how many entries there are otherwise would cost more than they can.
    let is_known = cardinality.is_some_and(|ids| ids <= POSTINGS_FEW_MAX as u64);
    let term = match term {
        Some(term) if is_known && !term.may_have_ranges() => {
            return Ok(Some(Source::Postings(term)));
        }
        term => term,
    };
    let is_root = covered.base().is_root();
    let below_base = || match is_root {
        true => Ok(planner.state.contexts.len() as u64),
        false => planner.view.children(covered.base()),
    };
    let walked = match covered.scope() {
        Scope::OneLevel if !covered.is_extended() => Some(below_base()?),
        _ => None,
    };
    let (from, to) = (running.ids.0.to_key(), running.ids.1.to_key());
    // How many there are in all is known, while counting up to a key means to add up the children of the pages on the
    // way.
    let range = match snapshot.directory().stores() {
        1 => Range::ALL,
        _ => Range::between(&from, &to),
    };
    let entries = planner.view.estimate(Table::Entry, range)?;
    if let (Some(term), Some(cardinality)) = (term, cardinality) {
        // Reading all entries in order costs about half as much for each as finding them one by one.
        let is_few = cardinality <= walked.unwrap_or(entries / 2);
        if is_few && !term.may_have_ranges() {
            return Ok(Some(Source::Postings(term)));
        }
        if is_few && let Some(mut reader) = planner.with_small_ranges(term) {
            let read = reader.go_on(planner, work);
            if !matches!(read, Ok(Some(_))) {
                progress.reader = Some(Box::new(reader));
            }
            return Ok(read?.map(Source::Postings));
        }
    }
    let below = below_base()?;
    let has_all = running.ids.0.store() > 0 || planner.state.contexts.len() == 1;
    let is_top = is_root || has_all && running.is_at_top(planner)?;
    Ok(Some(match covered.scope() {
        _ if covered.is_extended() => Source::Entries,
        Scope::OneLevel if below <= entries / 2 => Source::Names,
        Scope::OneLevel => Source::Entries,
        _ if is_top || below > entries / 4 => Source::Entries,
        _ => Source::Names,
    }))
}

pub(super) fn referral_class(schema: &Schema) -> &str {
    schema.class_of(schema.well_known().referral).name()
}

fn with(term: Term, more: &Term) -> Term {
    match (term, more.cardinality()) {
        (term, 0) => term,
        (Term::Union(mut terms), _) => {
            terms.push(more.clone());
            Term::Union(terms)
        }
        (term, _) => Term::Union(vec![term, more.clone()]),
    }
}

pub(super) fn first_position(running: &Running, state: &State) -> Position {
    let base = running.covered.base();
    match running.source {
        Source::Names if base.is_root() => {
            let mut roots: Vec<EntryId> = state.contexts.iter().map(|known| known.root).collect();
            roots.sort_unstable();
            roots.dedup();
            let level = |parent| Level {
                parent,
                last_key: parent.children_bounds().0.to_vec(),
                is_due: false,
            };
            Position::Levels(roots.into_iter().map(level).collect())
        }
        Source::Names => Position::Levels(vec![Level {
            parent: base,
            last_key: Vec::new(),
            is_due: false,
        }]),
        Source::Entries | Source::Postings(_) => Position::Id(running.ids.0),
        _ => Position::Id(EntryId::ROOT),
    }
}
