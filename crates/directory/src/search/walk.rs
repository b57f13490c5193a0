//! Going through the candidates of a search, one after the other, so that it can stop anywhere and go on later.

use std::ops::Bound;

use sapwood_ldap::message::Scope;
use sapwood_ldap::url;

use crate::access::{DecidedCandidate, Decider, Visible};
use crate::collective::Collective;
use crate::engine::{Cursor, Direction, EntryId, Place, Range, Read, Table};
use crate::entry::{Entry, EntryFlags};
use crate::error::{Error, Result};
use crate::examined::Known;
use crate::matching::candidate::{Candidate, Place as EntryPlace};
use crate::matching::evaluate::Evaluator;
use crate::matching::filter::{Node, Truth};
use crate::matching::sender::Sender;
use crate::matching::sink::{Admission, Sink};
use crate::names::{self, Child, DnCache, Superior};
use crate::operational::Vocabulary;
use crate::plan::Term;
use crate::plan::stream::{Lists, Next, Pace, Stream};
use crate::referral;
use crate::schema::{OperationalAttribute, Schema};
use crate::search::beside::{Beside, Sending};
use crate::search::expansion::Expansion;
use crate::search::page::{LEVELS_MAX, Level, Position};
use crate::search::scope::Covered;
use crate::search::{Budget, Flow, Source, sees};
use crate::state::State;

/// Work of making a byte of an entry with its collective attributes, in about as many nanoseconds.
const MERGED_BYTE_WORK: u64 = 1;

/// Looks at candidates and sends those that match.
pub(crate) struct Visitor<'v, R: Read, S: Sink> {
    pub(super) schema: &'v Schema,
    pub(super) state: &'v State,
    pub(super) view: &'v R,
    pub(super) manage_dsa_it: bool,
    pub(super) domain_scope: bool,
    pub(super) subentries: Option<bool>,
    /// As in [`SearchOptions`](super::SearchOptions).
    pub(super) as_stored: bool,
    /// The flags of entries that are results if they match; with any others [`Treatment`] says.
    pub(super) usual: Option<EntryFlags>,
    /// Decides what is seen of each entry, where that is not known for all of them.
    pub(super) decider: Option<&'v mut Decider>,
    pub(super) filter: &'v Node,
    pub(super) covered: &'v mut Covered,
    /// No entry from here on is covered.
    pub(super) end: EntryId,
    /// An entry that was fetched ahead, and where it is.
    pub(super) fetched: Option<(EntryId, Place)>,
    pub(super) known: Known<'v>,
    pub(super) collective: Option<&'v Collective>,
    /// Finds the values of dynamic groups and lists.
    pub(super) expansion: Option<&'v mut Expansion>,
    /// An entry with its collective attributes.
    pub(super) merged: Vec<u8>,
    pub(super) names: &'v mut DnCache,
    pub(super) evaluator: Evaluator<'v>,
    pub(super) sender: Sender<'v>,
    pub(super) sink: &'v mut S,
    /// What is done with what matches beside sending it, or instead of that.
    pub(super) beside: Option<Beside<'v, R>>,
    pub(super) sent: u32,
    /// When so many are sent, the next that matches is told `full` of.
    pub(super) sent_max: u32,
    pub(super) full: Flow,
    pub(super) looked_at: u32,
    /// Whether it stopped at the last of them, which is looked at again.
    pub(super) looks_again: bool,
    pub(super) budget: Budget,
}

#[inline]
fn read_entry(id: EntryId, record: &[u8]) -> Result<Entry<'_>> {
    Entry::new(record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))
}

/// What becomes of a candidate whose superior is not known: if that has too long a name, so has the candidate.
#[cold]
fn pass_over(error: Error) -> Result<Flow> {
    names::if_named(Err(error)).map(|named| named.unwrap_or(Flow::Next))
}

/// Restricts a candidate to what is granted on it; false when nothing is. `is_stored`: its record is the one that is
/// stored.
#[inline(never)]
fn restrict<'c, R: Read>(
    candidate: &mut Candidate<'c, R>,
    (id, is_stored): (EntryId, bool),
    decider: &'c mut Decider,
    reading: (&R, &Schema),
    superior: Option<&Superior>,
) -> Result<bool> {
    let entry = *candidate.entry();
    let decided = DecidedCandidate {
        id,
        rdn: entry.rdn_bytes(),
        superior,
        record: is_stored.then_some(entry),
    };
    Ok(match decider.decide(reading, decided)? {
        Some((grants, on_entry)) if on_entry.visible() != Visible::Nothing => {
            candidate.restrict(grants, Some(on_entry));
            true
        }
        _ => false,
    })
}

/// What becomes of a candidate.
enum Treatment {
    /// It is a result if it matches.
    Result,
    /// References stand in its place.
    Reference,
    /// Nothing.
    None,
}

impl Treatment {
    /// That of an entry with such flags.
    #[cold]
    fn of(
        flags: EntryFlags,
        id: EntryId,
        subentries: Option<bool>,
        (manage_dsa_it, domain_scope): (bool, bool),
        covered: &Covered,
    ) -> Treatment {
        if !sees(subentries, covered.scope(), flags.is_subentry()) {
            Treatment::None
        } else if flags.is_referral() && !manage_dsa_it {
            match domain_scope {
                true => Treatment::None,
                false => Treatment::Reference,
            }
        } else if flags.is_alias() && covered.follows_aliases() && id != covered.base() {
            Treatment::None
        } else {
            Treatment::Result
        }
    }
}

/// Goes through the candidates from `position` on, which is moved past each that was dealt with; `lists` is what is
/// kept of their lists. `None`: there are no more.
pub(super) fn walk<R: Read, S: Sink>(
    visitor: &mut Visitor<'_, R, S>,
    source: &Source,
    (position, lists): (&mut Position, &mut Lists),
) -> Result<Option<Flow>> {
    match (source, position) {
        (Source::Base, Position::Id(at)) => {
            if *at != EntryId::ROOT {
                return Ok(None);
            }
            let base = visitor.covered.base();
            match visitor.visit_id(base)? {
                Flow::Next | Flow::Pause => Ok(None),
                flow => Ok(Some(flow)),
            }
        }
        (Source::Entries, Position::Id(at)) => entries(visitor, at),
        (Source::Postings(term), Position::Id(at)) => postings(visitor, term, at, lists),
        (Source::Names, Position::Levels(levels)) => names(visitor, levels),
        // A search begins with the position that fits its source, and a resumed one takes the source that fits its
        // position.
        _ => Ok(None),
    }
}

/// The candidates of posting lists.
fn postings<R: Read, S: Sink>(
    visitor: &mut Visitor<'_, R, S>,
    term: &Term,
    at: &mut EntryId,
    lists: &mut Lists,
) -> Result<Option<Flow>> {
    let (view, pace) = (visitor.view, Pace::new(visitor.budget.work));
    let mut stream = Stream::open(view, term, lists.kept.take(), &pace);
    let mut visited = None;
    let begun = begin(visitor, &mut stream, *at, &pace);
    lists.is_beginning = !matches!(begun, Ok(true));
    let flow = match begun {
        Ok(true) => candidates(visitor, &mut stream, at, &mut visited),
        Ok(false) => Ok(Some(Flow::Pause)),
        Err(error) => Err(error),
    };
    if let Ok(None) = flow {
        return flow;
    }
    lists.kept = stream.close();
    if let (Err(error), Some(id)) = (&flow, visited)
        && R::PREFETCHED_CANDIDATES > 0
        && error.is_not_here()
    {
        // The next step has to go on from here: what follows is looked at in a copy of the stream.
        let mut following = Stream::open(view, term, lists.kept.clone(), &pace);
        want_next(view, id, |id| match following.seek(EntryId(id.0 + 1))? {
            Next::At(id) => Ok(Some(id)),
            Next::From(_) | Next::End => Ok(None),
        });
    }
    flow
}

/// Has lists asked for their first ids; false when there are more of them.
#[inline]
fn begin<R: Read, S: Sink>(
    visitor: &mut Visitor<'_, R, S>,
    stream: &mut Stream<'_, R>,
    at: EntryId,
    pace: &Pace,
) -> Result<bool> {
    let before = pace.left();
    let begun = stream.begin(at);
    let spent = before - pace.left();
    if spent > 0 {
        let left = visitor.evaluator.work_left();
        *left = left.saturating_sub(spent);
    }
    begun
}

/// Goes through the candidates of lists that have begun; `visited` becomes the one whose visit has failed.
#[inline]
fn candidates<R: Read, S: Sink>(
    visitor: &mut Visitor<'_, R, S>,
    stream: &mut Stream<'_, R>,
    at: &mut EntryId,
    visited: &mut Option<EntryId>,
) -> Result<Option<Flow>> {
    loop {
        let id = match stream.seek(*at)? {
            Next::At(id) if id < visitor.end => id,
            Next::From(id) if id < visitor.end => {
                *at = id;
                return Ok(Some(Flow::Pause));
            }
            _ => return Ok(None),
        };
        let flow = visitor.visit_id(id).inspect_err(|_| *visited = Some(id))?;
        move_past(at, id, flow);
        if flow != Flow::Next {
            return Ok(Some(flow));
        }
    }
}

fn entries<R: Read, S: Sink>(
    visitor: &mut Visitor<'_, R, S>,
    at: &mut EntryId,
) -> Result<Option<Flow>> {
    let (from, to) = (at.to_key(), visitor.end.to_key());
    let view = visitor.view;
    let mut records = view.scan(Table::Entry, Range::between(&from, &to), Direction::Forward)?;
    while let Some((key, record)) = records.next()? {
        let id = EntryId::from_key(key)
            .ok_or_else(|| Error::corrupt("a key of the entry table is not an id"))?;
        let flow = visitor.visit(id, record)?;
        move_past(at, id, flow);
        if flow != Flow::Next {
            return Ok(Some(flow));
        }
    }
    Ok(None)
}

/// Wants the entries of the candidates behind one that is not here, as far as they are known: all that is wanted comes
/// with one fetch.
#[cold]
fn want_next<R: Read>(
    view: &R,
    mut last: EntryId,
    mut next: impl FnMut(EntryId) -> Result<Option<EntryId>>,
) {
    for _ in 0..R::PREFETCHED_CANDIDATES {
        // What is not here of them is told in its turn.
        let Ok(Some(id)) = next(last) else {
            return;
        };
        view.want(Table::Entry, &[id.to_key()]);
        last = id;
    }
}

/// Moves a position past an entry that was dealt with. The next page begins with the very entry that it is to send, as
/// the client learns the position: it must not tell of others before it.
#[inline]
fn move_past(at: &mut EntryId, id: EntryId, flow: Flow) {
    match flow {
        Flow::Next | Flow::Pause => *at = EntryId(id.0.saturating_add(1)),
        Flow::PageFull => *at = id,
        _ => {}
    }
}

/// Children in the order of their names, each followed by what is below it. The base itself comes first.
fn names<R: Read, S: Sink>(
    visitor: &mut Visitor<'_, R, S>,
    levels: &mut Vec<Level>,
) -> Result<Option<Flow>> {
    let deep = visitor.covered.scope() != Scope::OneLevel;
    let view = visitor.view;
    if let [base] = &mut levels[..]
        && base.last_key.is_empty()
    {
        if visitor.covered.scope() == Scope::Subtree {
            let flow = visitor.visit_id(base.parent)?;
            if !matches!(flow, Flow::Next | Flow::Pause) {
                return Ok(Some(flow));
            }
        }
        base.last_key = base.parent.children_bounds().0.to_vec();
    }
    while let Some(level) = levels.last_mut() {
        let (_, to) = level.parent.children_bounds();
        let range = Range {
            from: match level.is_due {
                true => Bound::Included(&level.last_key),
                false => Bound::Excluded(&level.last_key),
            },
            to: Bound::Excluded(&to),
        };
        let mut children = view.scan(Table::Name, range, Direction::Forward)?;
        let mut below = None;
        while let Some((key, value)) = children.next()? {
            let child = Child::from_value(value)?;
            // Asked first: a child that was dealt with is not visited again when this is not here.
            let has_children = deep && view.has_children(child.id)?;
            let flow = match visitor.visit_id(child.id) {
                Err(error) if R::PREFETCHED_CANDIDATES > 0 && error.is_not_here() => {
                    want_next(view, child.id, |_| match children.next()? {
                        Some((_, value)) => Ok(Some(Child::from_value(value)?.id)),
                        None => Ok(None),
                    });
                    return Err(error);
                }
                flow => flow?,
            };
            // As in `move_past`.
            let is_done = matches!(flow, Flow::Next | Flow::Pause);
            if is_done || flow == Flow::PageFull {
                level.last_key.clear();
                level.last_key.extend_from_slice(key);
                level.is_due = !is_done;
                if is_done && has_children {
                    below = Some(child.id);
                }
            }
            if flow != Flow::Next {
                push_level(levels, below)?;
                return Ok(Some(flow));
            }
            if below.is_some() {
                break;
            }
        }
        drop(children);
        match below {
            Some(_) => push_level(levels, below)?,
            None => {
                levels.pop();
            }
        }
    }
    Ok(None)
}

fn push_level(levels: &mut Vec<Level>, below: Option<EntryId>) -> Result<()> {
    let Some(parent) = below else {
        return Ok(());
    };
    if levels.len() == LEVELS_MAX {
        return Ok(());
    }
    let last_key = parent.children_bounds().0.to_vec();
    levels.push(Level {
        parent,
        last_key,
        is_due: false,
    });
    Ok(())
}

impl<R: Read, S: Sink> Visitor<'_, R, S> {
    fn visit_id(&mut self, id: EntryId) -> Result<Flow> {
        let (view, key) = (self.view, id.to_key());
        let record = match self.fetched {
            Some((fetched, place)) if fetched == id => view.get_at(Table::Entry, place, &key)?,
            _ => view.get(Table::Entry, &key)?,
        };
        match record {
            Some(record) => self.visit(id, &record),
            None => Err(Error::corrupt(format!(
                "entry {id} is named or indexed but does not exist"
            ))),
        }
    }

    /// Looks at one candidate.
    #[inline]
    fn visit(&mut self, id: EntryId, record: &[u8]) -> Result<Flow> {
        self.looked_at += 1;
        match self.look(id, record) {
            Ok(Flow::Next) => Ok(self.paused()),
            stopped => {
                self.looks_again = true;
                stopped
            }
        }
    }

    #[inline]
    fn look(&mut self, id: EntryId, record: &[u8]) -> Result<Flow> {
        match (self.collective, &self.expansion) {
            (None, None) => self.look_at(id, record),
            (None, Some(_)) => self.look_expanded(id, record),
            (Some(collective), _) => self.look_with(collective, id, record),
        }
    }

    /// The same with the values that its URLs find, if it is a dynamic group or list.
    #[cold]
    fn look_expanded(&mut self, id: EntryId, record: &[u8]) -> Result<Flow> {
        let vocabulary = Vocabulary {
            schema: self.schema,
            attributes: &self.state.attributes,
        };
        let entry = read_entry(id, record)?;
        let Some(expansion) = &mut self.expansion else {
            return self.look_at(id, record);
        };
        if expansion.begins(vocabulary, (id, &entry))? {
            return Ok(Flow::Interrupted);
        }
        let expanded = expansion.take_record(vocabulary, (id, &entry))?;
        let flow = self.look_at(id, expanded.as_deref().unwrap_or(record));
        if let Some(expansion) = &mut self.expansion {
            match (&flow, expanded) {
                (Ok(Flow::Next), _) => expansion.forget(),
                (_, Some(expanded)) => expansion.put_back(id, expanded),
                (_, None) => {}
            }
        }
        flow
    }

    /// The same with its collective attributes.
    #[cold]
    fn look_with(&mut self, collective: &Collective, id: EntryId, record: &[u8]) -> Result<Flow> {
        let entry = read_entry(id, record)?;
        let superior = match self.names.superior(self.view, entry.parent()) {
            Ok(superior) => superior.map(|superior| &**superior),
            Err(error) => return pass_over(error),
        };
        if !self.covered.contains(id, entry.parent(), superior) {
            return Ok(Flow::Next);
        }
        let vocabulary = Vocabulary {
            schema: self.schema,
            attributes: &self.state.attributes,
        };
        let mut merged = std::mem::take(&mut self.merged);
        let reading = (self.view, vocabulary);
        let has_any = collective.read(reading, id, &entry, superior, &mut merged);
        let flow = match has_any {
            Ok(true) => {
                let flow = self.look_expanded(id, &merged);
                // Charged when the entry was looked at, so that each step gets on with one at least.
                let left = self.evaluator.work_left();
                *left = left.saturating_sub(MERGED_BYTE_WORK * merged.len() as u64);
                flow
            }
            Ok(false) => self.look_expanded(id, record),
            Err(error) => Err(error),
        };
        self.merged = merged;
        flow
    }

    // Once in the way of every entry, and once in the cold.
    #[inline(always)]
    fn look_at(&mut self, id: EntryId, record: &[u8]) -> Result<Flow> {
        let entry = read_entry(id, record)?;
        let superior = match self.names.superior(self.view, entry.parent()) {
            Ok(superior) => superior.map(|superior| &**superior),
            Err(error) => return pass_over(error),
        };
        if !self.covered.contains(id, entry.parent(), superior) {
            return Ok(Flow::Next);
        }
        let vocabulary = Vocabulary {
            schema: self.schema,
            attributes: &self.state.attributes,
        };
        let flags = entry.flags();
        let place = EntryPlace::Tree(superior, self.collective);
        let mut candidate = Candidate::in_tree(self.view, vocabulary, id, entry, place);
        let is_stored = self.collective.is_none() && self.expansion.is_none();
        if let Some(decider) = &mut self.decider
            && !restrict(
                &mut candidate,
                (id, is_stored),
                decider,
                (self.view, self.schema),
                superior,
            )?
        {
            return Ok(Flow::Next);
        }
        if Some(flags) != self.usual {
            let treatment = match self.as_stored && self.subentries.is_none() {
                true => Treatment::Result,
                false => Treatment::of(
                    flags,
                    id,
                    self.subentries,
                    (self.manage_dsa_it, self.domain_scope),
                    self.covered,
                ),
            };
            match treatment {
                Treatment::Result => {}
                Treatment::None => return Ok(Flow::Next),
                Treatment::Reference => {
                    let reference = self.schema.operational(OperationalAttribute::Ref);
                    if candidate
                        .seen()
                        .is_some_and(|seen| !seen.reads_type(reference))
                    {
                        return Ok(Flow::Next);
                    }
                    let mut dn = String::new();
                    candidate.append_dn(&mut dn);
                    drop(candidate);
                    return self.refer(id, &dn);
                }
            }
        }
        match self.evaluator.evaluate(self.filter, &mut candidate)? {
            Some(Truth::True) => {}
            Some(_) => return Ok(Flow::Next),
            None => return Ok(Flow::Interrupted),
        }
        if self.sent >= self.sent_max {
            let work = self.evaluator.work_left();
            let is_sent = match &mut self.beside {
                Some(beside) => beside.sends(self.schema, &mut candidate, work)?,
                None => true,
            };
            if is_sent {
                return Ok(self.full);
            }
        }
        if !self.known.has(id) {
            candidate.examine(vocabulary)?;
            self.known.note(id);
        }
        if let Some(beside) = &mut self.beside
            && beside.takes(self.schema, id, &mut candidate, self.evaluator.work_left())?
        {
            return Ok(Flow::Next);
        }
        if let Some(expansion) = &mut self.expansion
            && expansion.is_wanted(vocabulary, (id, candidate.entry()))?
        {
            self.evaluator.keep_match();
            return Ok(Flow::Interrupted);
        }
        if S::IS_ASKED {
            match self.sink.admit(candidate.version()?, self.budget.out_bytes) {
                Admission::Send => {}
                Admission::Noted => {
                    self.sent += 1;
                    return Ok(Flow::Next);
                }
                Admission::Room(bytes) => {
                    self.evaluator.keep_match();
                    return Ok(Flow::Room(bytes));
                }
            }
        }
        let sending = Sending {
            schema: self.schema,
            state: self.state,
            evaluator: &mut self.evaluator,
            sender: &mut self.sender,
            sink: self.sink,
            out_bytes: self.budget.out_bytes,
        };
        let stopped = match &mut self.beside {
            None => sending.send(&mut candidate)?,
            Some(beside) => beside.send(sending, (id, superior), &mut candidate)?,
        };
        if let Some(stopped) = stopped {
            return Ok(stopped);
        }
        self.sent += 1;
        Ok(Flow::Next)
    }

    fn paused(&mut self) -> Flow {
        if let Some(decider) = &mut self.decider {
            let left = self.evaluator.work_left();
            *left = left.saturating_sub(decider.take_work());
        }
        if self.looked_at >= self.budget.entries
            || self.sink.bytes() >= self.budget.out_bytes
            || self.evaluator.is_exhausted()
        {
            Flow::Pause
        } else {
            Flow::Next
        }
    }

    /// Sends the references of a referral object (RFC 3296 §5.5), if there is room for them.
    #[cold]
    fn refer(&mut self, id: EntryId, dn: &str) -> Result<Flow> {
        let scope = match self.covered.scope() {
            Scope::OneLevel => url::Scope::Base,
            Scope::Base => url::Scope::Base,
            Scope::Subtree | Scope::Subordinates => url::Scope::Sub,
        };
        let (schema, attributes) = (self.schema, &self.state.attributes);
        let vocabulary = Vocabulary { schema, attributes };
        let urls = referral::in_place_of(self.view, vocabulary, id, dn, scope)?;
        let urls = urls.view();
        if urls.is_empty() {
            return Ok(Flow::Next);
        }
        let bytes = self.sink.envelope_bytes_max() + urls.as_ber().len();
        let room = self.budget.out_bytes.saturating_sub(self.sink.bytes());
        if bytes > room {
            return Ok(Flow::Room(bytes));
        }
        self.sink.put_reference(urls);
        Ok(Flow::Next)
    }
}
