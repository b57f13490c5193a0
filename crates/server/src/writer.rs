//! The way of an update from a session to the disk and back.
//!
//! Sessions put *units* (the updates of one burst) into a [queue] that is fair to identities. The writer thread takes
//! everything that waits, applies it as one batch, each update succeeding or failing alone. A batch of several
//! identities, or one that others wait for, ends when it has taken some milliseconds; what is left of it goes back to
//! its place in the queue. Only when its commit is durable are the outcomes sent back to the sessions. When more
//! updates wait by then, the acknowledging thread gets the batch with its commit ticket and waits for the disk, so that
//! the next batch is applied meanwhile; otherwise the writer itself does, which spares the processor the change of
//! threads and gathers what comes until then in one batch. What else an answer may wait for, says [answers].
//!
//! A directory in several stores has a queue and a writer thread for each of them. A unit is divided by the *shards* of
//! its updates, the stores that they are to be applied in; those of several stores go to the writer of the first of
//! these.

mod answers;
mod forwarding;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sapwood_directory::engine::{self, Engine};
use sapwood_directory::{
    Allowance, Commit, Directory, Identity, Outcome, StoreSet, Update, UpdateRequest,
};
use sapwood_ldap::result::ResultCode;

use self::answers::{Answers, ForwardedUpdates};
use self::forwarding::Forwardable;
use self::queue::{Next, QueueReceiver, QueueSender, SLOW, Whose, queue};
use crate::accounts::Holder;
use crate::acknowledgements::Acknowledgements;
use crate::committed::Committed;
use crate::memory::{AnswerRoom, Share};
use crate::slices;

/// Updates that become one batch at most, which some milliseconds apply. While it is on its way to the disk the next
/// one is applied: if all that a client has under way were one batch, disk and processor would wait for each other.
const BATCH_UPDATES_MAX: usize = 256;
/// Batches that are applied and wait until the acknowledging thread is done with another one, besides the last: more of
/// them would only be smaller, and each costs a commit.
const BATCHES_UNSYNCED_MAX: usize = 0;

/// When no update has come for so long, what the last ones put off is done.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

/// Who is told what has become of updates, such as a session.
pub(crate) trait Recipient: Clone + Send + 'static {
    /// What it needs to answer one update: the writer hands it back as it came.
    type Reply: Send;

    /// Takes the outcomes of updates with the same shards, which are durable if they are a success, and the memory that
    /// their response controls hold.
    fn answer(&self, shards: StoreSet, answers: Vec<(Self::Reply, Outcome)>, room: Share);
}

/// The updates of one burst of one session.
pub(crate) struct Unit<R: Recipient> {
    pub(crate) updates: Vec<Update>,
    /// One for each update.
    pub(crate) replies: Vec<R::Reply>,
    /// One for each update: the stores that it is to be applied in.
    pub(crate) shards: Vec<StoreSet>,
    /// The unit's share of the queue's bytes, given back when the unit has been applied, as is what its transactions
    /// hold.
    pub(crate) share: Share,
    pub(crate) transactions: Vec<Share>,
    /// Where response controls get their memory; none if no update has asked for any.
    pub(crate) answer_room: Option<AnswerRoom>,
}

impl<R: Recipient> Default for Unit<R> {
    fn default() -> Self {
        Self {
            updates: Vec::new(),
            replies: Vec::new(),
            shards: Vec::new(),
            share: Share::default(),
            transactions: Vec::new(),
            answer_room: None,
        }
    }
}

struct Batch<E: Engine, R: Recipient> {
    units: Vec<(Vec<R::Reply>, R, Share)>,
    shards: StoreSet,
    outcomes: Vec<Outcome>,
    forwarded: ForwardedUpdates,
    ticket: Option<Commit<E>>,
}

/// Where batches go that are applied while more updates wait.
struct Applied<E: Engine, R: Recipient> {
    batches: SyncSender<Batch<E, R>>,
    /// Those that were sent there and are not answered yet.
    unanswered: Arc<AtomicUsize>,
    answers: Answers<E, R>,
}

/// The entrance of the queues. The threads end when the last one is dropped.
#[derive(Clone)]
pub(crate) struct Writer<R: Recipient> {
    /// By store.
    queues: Arc<[QueueSender<Part<R>>]>,
    committed: Committed,
    acknowledgements: Option<Arc<Acknowledgements>>,
}

/// The updates of a unit that have the same shards.
struct Part<R: Recipient> {
    shards: StoreSet,
    updates: Vec<Update>,
    replies: Vec<R::Reply>,
    /// Who gets the answers.
    session: R,
    /// What the unit holds of the shared memory, until all its parts are applied.
    shares: Arc<(Share, Vec<Share>)>,
    answer_room: Option<AnswerRoom>,
}

/// The threads of the writer of one store.
fn start_one<E: Engine, R: Recipient>(
    directory: &Directory<E>,
    (committed, acknowledgements): (&Committed, Option<&Arc<Acknowledgements>>),
    threads: &mut Vec<JoinHandle<()>>,
) -> std::io::Result<QueueSender<Part<R>>> {
    let (queue, waiting) = queue();
    let (applied, unsynced) = mpsc::sync_channel(BATCHES_UNSYNCED_MAX);
    let spawn = |name: &str| thread::Builder::new().name(name.into());
    let answers = Answers::start(directory, committed, acknowledgements, threads)?;
    let directory = directory.clone();
    let applied = Applied {
        batches: applied,
        unanswered: Arc::default(),
        answers: answers.clone(),
    };
    let unanswered = Arc::clone(&applied.unanswered);
    let apply = move || {
        slices::shorten();
        apply(&directory, &waiting, &applied);
    };
    threads.push(spawn("writer").spawn(apply)?);
    let acknowledge = move || {
        slices::shorten();
        acknowledge(&unsynced, &unanswered, &answers);
    };
    threads.push(spawn("acknowledger").spawn(acknowledge)?);
    Ok(queue)
}

impl<R: Recipient> Writer<R> {
    /// Starts, for each store, the writer and the acknowledging thread, and one that waits for other servers if these
    /// have to have a change before its client is told.
    pub(crate) fn start<E: Engine>(
        directory: Directory<E>,
        acknowledgements: Option<Arc<Acknowledgements>>,
    ) -> std::io::Result<(Self, WriterThreads)> {
        let mut threads = Vec::new();
        let committed = Committed::new();
        let queues = (0..directory.stores())
            .map(|_| {
                let told = (&committed, acknowledgements.as_ref());
                start_one(&directory, told, &mut threads)
            })
            .collect::<Result<_, _>>()?;
        let writer = Self {
            queues,
            committed,
            acknowledgements,
        };
        Ok((writer, WriterThreads { threads }))
    }

    /// What other servers have, if updates wait for that.
    pub(crate) fn acknowledgements(&self) -> Option<&Arc<Acknowledgements>> {
        self.acknowledgements.as_ref()
    }

    /// What announces commits.
    pub(crate) fn committed(&self) -> &Committed {
        &self.committed
    }

    pub(crate) fn submit(&self, unit: Unit<R>, session: R) {
        let shares = Arc::new((unit.share, unit.transactions));
        let part = |shards, updates, replies| Part {
            shards,
            updates,
            replies,
            session: session.clone(),
            shares: Arc::clone(&shares),
            answer_room: unit.answer_room.clone(),
        };
        let mut shards = unit.shards.iter().copied();
        let first = shards.next().unwrap_or(StoreSet::FIRST);
        if shards.all(|shards| shards == first) {
            return self.send(part(first, unit.updates, unit.replies));
        }
        let mut parts: Vec<Part<R>> = Vec::new();
        for ((update, reply), shards) in unit.updates.into_iter().zip(unit.replies).zip(unit.shards)
        {
            let at = parts.iter().position(|part| part.shards == shards);
            let at = at.unwrap_or_else(|| {
                parts.push(part(shards, Vec::new(), Vec::new()));
                parts.len() - 1
            });
            parts[at].updates.push(update);
            parts[at].replies.push(reply);
        }
        parts.into_iter().for_each(|part| self.send(part));
    }

    fn send(&self, part: Part<R>) {
        let store = usize::from(part.shards.least()).min(self.queues.len() - 1);
        // All updates of a unit are of the one who is bound, whomever they act as.
        let whose = part.updates.first().and_then(whose);
        if let Err(part) = self.queues[store].push(whose, part) {
            // The writer thread is gone: only after a panic in it.
            let outcomes = vec![
                Outcome::new(
                    ResultCode::Unavailable,
                    "the writer has stopped; restart the server"
                );
                part.updates.len()
            ];
            let answers = part.replies.into_iter().zip(outcomes).collect();
            part.session.answer(part.shards, answers, Share::default());
        }
    }
}

/// The threads behind a [`Writer`].
#[derive(Debug)]
pub(crate) struct WriterThreads {
    threads: Vec<JoinHandle<()>>,
}

impl WriterThreads {
    /// Waits until all that was submitted is on the disk; every [`Writer`] must have been dropped.
    pub(crate) fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn apply<E: Engine, R: Recipient>(
    directory: &Directory<E>,
    waiting: &QueueReceiver<Part<R>>,
    applied: &Applied<E, R>,
) {
    // The stores with updates that may have put something off.
    let mut unsettled = StoreSet::default();
    while let Some((whose, first)) = receive(directory, waiting, &mut unsettled) {
        let shards = first.shards;
        unsettled = unsettled.with(shards);
        let mut gathered = Gathered::new();
        gathered.add(whose, first);
        // Updates of other stores, too, make a batch of their own: it waits for the writers of these.
        while gathered.count < BATCH_UPDATES_MAX
            && let Some((whose, part)) = waiting.take_with(whose, |part| part.shards == shards)
        {
            gathered.add(whose, part);
        }
        let batch = gathered.apply(directory, shards, waiting);
        // Nothing is answered before what came before it.
        if !waiting.has_next() && applied.unanswered.load(Ordering::Acquire) == 0 {
            applied.answers.finish(batch);
            continue;
        }
        applied.unanswered.fetch_add(1, Ordering::Relaxed);
        if applied.batches.send(batch).is_err() {
            return;
        }
    }
}

/// What is to become one batch.
struct Gathered<R: Recipient> {
    updates: Vec<Update>,
    parts: Vec<PartOf<R>>,
    /// Updates, those of transactions included.
    count: usize,
}

/// A part without its updates.
struct PartOf<R: Recipient> {
    whose: Whose,
    /// Where its updates end among all.
    end: usize,
    replies: Vec<R::Reply>,
    session: R,
    shares: Arc<(Share, Vec<Share>)>,
    answer_room: Option<AnswerRoom>,
    /// What the response controls of its updates hold, by their numbers in the batch.
    controls: Vec<(usize, Share)>,
}

impl<R: Recipient> PartOf<R> {
    /// What is left of it when its updates have been applied.
    fn answered(self) -> (Vec<R::Reply>, R, Share) {
        let mut room = Share::default();
        for (_, share) in self.controls {
            room.add(share);
        }
        (self.replies, self.session, room)
    }
}

/// What a batch may do while it is applied.
struct Turns<'g, R: Recipient, G> {
    goes_on: G,
    parts: &'g mut [PartOf<R>],
}

impl<R: Recipient, G: FnMut(&[PartOf<R>]) -> bool> Allowance for Turns<'_, R, G> {
    fn goes_on(&mut self) -> bool {
        (self.goes_on)(self.parts)
    }

    fn has_room(&mut self, update: usize, bytes: usize) -> bool {
        let at = self.parts.partition_point(|part| part.end <= update);
        let Some(part) = self.parts.get_mut(at) else {
            return true;
        };
        let Some(AnswerRoom { answers, claimant }) = &part.answer_room else {
            return true;
        };
        // A batch may be run again.
        part.controls.retain(|(known, _)| *known != update);
        let share = answers.try_take(claimant, bytes);
        let has_room = share.is_some();
        part.controls.extend(share.map(|share| (update, share)));
        has_room
    }
}

impl<R: Recipient> Gathered<R> {
    fn new() -> Self {
        Self {
            updates: Vec::new(),
            parts: Vec::new(),
            count: 0,
        }
    }

    fn add(&mut self, whose: Whose, mut part: Part<R>) {
        let requests = part.updates.iter().map(|update| &update.request);
        self.count += requests.map(UpdateRequest::updates).sum::<usize>();
        if self.updates.is_empty() {
            self.updates = part.updates;
        } else {
            self.updates.append(&mut part.updates);
        }
        self.parts.push(PartOf {
            whose,
            end: self.updates.len(),
            replies: part.replies,
            session: part.session,
            shares: part.shares,
            answer_room: part.answer_room,
            controls: Vec::new(),
        });
    }

    /// Applies what was gathered, or as much as is the turn of those whose it is; the rest goes back.
    fn apply<E: Engine>(
        mut self,
        directory: &Directory<E>,
        shards: StoreSet,
        waiting: &QueueReceiver<Part<R>>,
    ) -> Batch<E, R> {
        let first = self.parts.first().and_then(|part| part.whose);
        let is_of_one = self.parts.iter().all(|part| part.whose == first);
        let start = Instant::now();
        // When the last update of each part was done.
        let mut ends: Vec<Instant> = Vec::new();
        let mut done = 0;
        let goes_on = |parts: &[PartOf<R>]| {
            let now = Instant::now();
            done += 1;
            // A batch may be run again, after the end of its last part.
            let part = parts.get(ends.len()).filter(|_| !is_of_one);
            if part.is_some_and(|part| part.end == done) {
                ends.push(now);
            }
            now - start < SLOW || is_of_one && !waiting.others_wait(first)
        };
        let mut turns = Turns {
            goes_on,
            parts: &mut self.parts,
        };
        let (outcomes, ticket) = match directory.apply_while(&self.updates, shards, &mut turns) {
            Ok(batch) => (batch.outcomes, batch.ticket),
            Err(error) => {
                tracing::error!(
                    updates = self.updates.len(),
                    "a batch of updates failed: {error}"
                );
                (vec![refusal(&error); self.updates.len()], None)
            }
        };
        self.put_back(outcomes.len(), shards, waiting);
        let forwarded = self.forwarded(&outcomes);
        let now = Instant::now();
        if ends.len() == self.parts.len() {
            // The commit is charged like what it is of.
            let applying = ends.last().map_or(Duration::ZERO, |end| *end - start);
            let all = (now - start).as_secs_f64() / applying.as_secs_f64().max(1e-9);
            let (mut begin, mut before) = (start, 0);
            for (part, end) in self.parts.iter().zip(ends) {
                let time = (end - begin).mul_f64(all);
                waiting.charge(part.whose, part.end - before, time, now);
                (begin, before) = (end, part.end);
            }
        } else {
            waiting.charge(first, outcomes.len(), now - start, now);
        }
        let units = self.parts.into_iter();
        Batch {
            units: units.map(PartOf::answered).collect(),
            shards,
            outcomes,
            forwarded,
            ticket,
        }
    }

    /// The updates that are made elsewhere: those of users, who can be named there.
    fn forwarded(&mut self, outcomes: &[Outcome]) -> ForwardedUpdates {
        let mut forwarded = ForwardedUpdates::new();
        for (at, outcome) in outcomes.iter().enumerate() {
            if let Some(agreement) = outcome.forwards_to
                && let Some(Update { requester, request }) = self.updates.get_mut(at)
                && let (UpdateRequest::Message(message), Identity::User { dn, .. }) =
                    (request, requester.identity())
            {
                let what = Forwardable {
                    message: std::mem::take(message),
                    dn: dn.clone(),
                    rid: agreement.rid(),
                    refusal: outcome.clone(),
                };
                forwarded.insert(at, what);
            }
        }
        forwarded
    }

    /// Puts back what is behind the first `count` updates, in its order.
    fn put_back(&mut self, count: usize, shards: StoreSet, waiting: &QueueReceiver<Part<R>>) {
        while let Some(mut part) = self.parts.pop() {
            let begin = self.parts.last().map_or(0, |before| before.end);
            if part.end <= count {
                self.parts.push(part);
                return;
            }
            let rest = Part {
                shards,
                updates: self.updates.split_off(begin.max(count)),
                replies: part.replies.split_off(count.saturating_sub(begin)),
                session: part.session.clone(),
                shares: Arc::clone(&part.shares),
                answer_room: part.answer_room.clone(),
            };
            waiting.put_back(part.whose, rest);
            if begin < count {
                part.end = count;
                self.parts.push(part);
                return;
            }
        }
    }
}

/// The next part of a unit; `None` when there will be no more. While none comes, does what was put off.
fn receive<E: Engine, R: Recipient>(
    directory: &Directory<E>,
    waiting: &QueueReceiver<Part<R>>,
    unsettled: &mut StoreSet,
) -> Option<(Whose, Part<R>)> {
    if !unsettled.is_empty() {
        if let Next::Part(whose, part) = waiting.wait(Some(Instant::now() + SETTLE_AFTER)) {
            return Some((whose, part));
        }
        if let Err(error) = directory.settle(std::mem::take(unsettled)) {
            tracing::warn!("what updates have put off stays so: {error}");
        }
    }
    match waiting.wait(None) {
        Next::Part(whose, part) => Some((whose, part)),
        Next::Nothing | Next::Closed => None,
    }
}

fn acknowledge<E: Engine, R: Recipient>(
    unsynced: &Receiver<Batch<E, R>>,
    unanswered: &AtomicUsize,
    answers: &Answers<E, R>,
) {
    while let Ok(batch) = unsynced.recv() {
        answers.finish(batch);
        unanswered.fetch_sub(1, Ordering::Release);
    }
}

/// Whose an update is. What the server keeps of binds is nobody's, not of those who tried: the administrator, in whose
/// name it is done, does not wait for it.
fn whose(update: &Update) -> Whose {
    match update.request {
        UpdateRequest::Account { .. } => None,
        _ => Holder::of_identity(update.requester.real()),
    }
}

/// What a client is told when the directory itself failed.
pub(crate) fn refusal(error: &sapwood_directory::Error) -> Outcome {
    use sapwood_directory::Error;
    let code = match error {
        Error::Engine(engine::Error::Conflict) => ResultCode::Busy,
        Error::Engine(engine::Error::TooLarge { .. }) | Error::NameTooLong(_) => {
            ResultCode::AdminLimitExceeded
        }
        Error::Engine(engine::Error::Unavailable(_)) => ResultCode::Unavailable,
        // What a search reads is kept no longer.
        Error::Engine(engine::Error::TooOld) => ResultCode::TimeLimitExceeded,
        _ => ResultCode::UnknownError,
    };
    Outcome::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sapwood_directory::engine::{Embedded, EntryId, Shy};
    use sapwood_directory::{AccountChange, Requester};
    use sapwood_testkit::directories::{as_admin, config, options, person, seed};

    #[derive(Clone)]
    struct Nobody;

    impl Recipient for Nobody {
        /// A message id.
        type Reply = u32;

        fn answer(&self, _: StoreSet, _: Vec<(u32, Outcome)>, _: Share) {}
    }

    fn part(ids: std::ops::Range<u32>) -> Part<Nobody> {
        let update = |_| Update {
            requester: Requester::administrator(""),
            request: UpdateRequest::Message(Vec::new()),
        };
        Part {
            shards: StoreSet::FIRST,
            updates: ids.clone().map(update).collect(),
            replies: ids.collect(),
            session: Nobody,
            shares: Arc::default(),
            answer_room: None,
        }
    }

    /// The message ids of a part, which has as many updates.
    fn ids(next: Next<Part<Nobody>>) -> Vec<u32> {
        let Next::Part(_, part) = next else {
            panic!("nothing is there");
        };
        assert_eq!(part.updates.len(), part.replies.len());
        part.replies
    }

    #[test]
    fn what_is_kept_of_binds_waits_in_nobodys_queue() {
        let update = |request| Update {
            requester: Requester::administrator("cn=admin"),
            request,
        };
        let of_bind = UpdateRequest::Account {
            entry: EntryId(5),
            change: AccountChange::Unlock,
        };
        assert_eq!(whose(&update(of_bind)), None);
        let own = UpdateRequest::Message(Vec::new());
        assert_eq!(whose(&update(own)), Some(Holder::Admin));
    }

    #[test]
    fn a_batch_of_several_users_may_be_run_again() {
        let engine = Shy::over(Embedded::in_memory().unwrap());
        let directory = Directory::create_on(engine, &config(), options()).unwrap();
        seed(&directory);
        let (_entrance, exit) = queue();
        let mut gathered = Gathered::new();
        for (whose, uid) in [
            (Some(Holder::User(EntryId(1))), "a"),
            (Some(Holder::Admin), "b"),
        ] {
            let update = as_admin(person(uid));
            let part = Part {
                updates: vec![update],
                ..part(1..2)
            };
            gathered.add(whose, part);
        }
        let mut codes = Vec::new();
        loop {
            let batch = gathered.apply(&directory, StoreSet::FIRST, &exit);
            codes.extend(batch.outcomes.iter().map(|outcome| outcome.code));
            if codes.len() >= 2 {
                break;
            }
            // The first took all the time of a batch, as it may on a busy machine: the second waits again.
            let Next::Part(whose, part) = exit.wait(None) else {
                panic!("the second update is neither applied nor waiting");
            };
            gathered = Gathered::new();
            gathered.add(whose, part);
        }
        assert_eq!(codes, [ResultCode::Success; 2]);
    }

    #[test]
    fn what_is_left_of_a_batch_goes_back_to_its_place() {
        let one = Some(Holder::User(EntryId(1)));
        let (entrance, exit) = queue();
        assert!(entrance.push(one, part(20..21)).is_ok());
        let mut gathered = Gathered::new();
        gathered.add(one, part(1..4));
        gathered.add(Some(Holder::Admin), part(4..7));
        gathered.add(one, part(7..10));
        gathered.add(one, part(10..13));
        gathered.put_back(5, StoreSet::FIRST, &exit);
        assert_eq!(gathered.updates.len(), 5);
        let done = gathered.parts.iter().map(|part| part.replies.len());
        assert_eq!(done.collect::<Vec<_>>(), [3, 2]);
        let ends = gathered.parts.iter().map(|part| part.end);
        assert_eq!(ends.collect::<Vec<_>>(), [3, 5]);
        let mut left: Vec<_> = (0..4).map(|_| ids(exit.wait(None))).collect();
        let of_admin = left.iter().position(|ids| *ids == [6]).unwrap();
        left.remove(of_admin);
        assert_eq!(left, [vec![7, 8, 9], vec![10, 11, 12], vec![20]]);
        assert!(!exit.has_next());
    }
}
