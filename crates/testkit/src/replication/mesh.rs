//! The simulator: servers that are updated while their clocks are wrong, links are cut, lose and delay, and they crash,
//! forget, come from old backups, stay away for too long and join anew. A seed decides everything, also whether an
//! entry is one register or many.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;

use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    Bundle, Change, EntryChanges, Horizon, Members, MergeError, Place, RejoinError, Replica,
    Resolution, Seen, Settled, Stamp, Uuid, Value, Vector, What, merge, prune, rejoin, update,
};

use super::model::Model;
use super::{check, client};
use crate::Random;

/// The entry of the naming context.
pub(super) const ROOT: Uuid = Uuid([0xff; 16]);
/// When it all begins, in microseconds since 1970.
const BEGIN: u64 = 1_800_000_000_000_000;
const SECOND: u64 = 1_000_000;
const SERVERS_MAX: usize = 5;
/// Exchanges of everybody with everybody until all must be equal.
const ROUNDS_MAX: usize = 30;

/// A replica that can be simulated.
pub trait Server: Replica<Error = Infallible> + Clone {
    /// One with nothing in it.
    fn begin(resolution: Resolution) -> Self;

    /// What it has written.
    fn model(&self) -> &Model;
}

impl Server for Model {
    fn begin(resolution: Resolution) -> Model {
        Model::new(resolution)
    }

    fn model(&self) -> &Model {
        self
    }
}

/// What servers do wrong on purpose, so that a test sees the simulator find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// They answer an update before it is on the disk.
    AnswersTooEarly,
    /// They tell others what is not on the disk.
    TellsTooEarly,
    /// One that is restored goes on under its old number.
    KeepsItsNumber,
    /// One that joins with a copy of another one uses the number of that one.
    SharesANumber,
    /// They forget what only they are sure to have.
    ForgetsTooEarly,
    /// One that is suspended joins anew at once, with a copy of a server that may still be told what it brings.
    RejoinsTooEarly,
}

impl Flaw {
    /// All of them.
    pub const ALL: &[Flaw] = &[
        Flaw::AnswersTooEarly,
        Flaw::TellsTooEarly,
        Flaw::KeepsItsNumber,
        Flaw::SharesANumber,
        Flaw::ForgetsTooEarly,
        Flaw::RejoinsTooEarly,
    ];
}

/// What has happened in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Updates that were answered.
    pub updates: usize,
    /// Bundles that were applied.
    pub bundles: usize,
    /// Lines of the conflict log.
    pub conflicts: usize,
    /// Crashes.
    pub crashes: usize,
    /// Servers that were restored from a backup.
    pub restores: usize,
    /// Servers that joined.
    pub joins: usize,
    /// Servers that joined anew after they were suspended.
    pub rejoins: usize,
    /// Updates of these that were made anew.
    pub made_anew: usize,
    /// How often changes were forgotten.
    pub trims: usize,
}

/// An update whose client was told that it has succeeded.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) told: EntryChanges,
    /// What its server had before.
    pub(super) knew: Vector,
    server: usize,
    /// Whether it was made anew, as far as it had not lost, when its server joined anew.
    pub(super) came_late: bool,
    /// Whether the disk that it was on was replaced by a copy that lacks it.
    pub(super) may_be_lost: bool,
}

struct Site<S> {
    replica: u16,
    disk: S,
    /// The disk, and what is not on it yet.
    memory: S,
    unanswered: Vec<Answered>,
    /// With the number that it had then.
    backup: Option<(u16, S)>,
    horizon: Horizon,
    /// How far its clock is ahead of the right time.
    ahead: i64,
    is_up: bool,
}

enum Message {
    /// Somebody asks for what it does not have.
    Ask { asker: usize, since: Vector },
    /// The answer.
    Tell {
        replica: u16,
        bundle: Bundle,
        members: Members,
    },
}

pub(super) struct Mesh<S> {
    random: Random,
    flaw: Option<Flaw>,
    now: u64,
    sites: Vec<Site<S>>,
    /// When they arrive, where, and what.
    messages: VecDeque<(u64, usize, Message)>,
    cut: BTreeSet<(usize, usize)>,
    /// How many messages of a hundred are lost.
    loss: usize,
    entries: u64,
    /// Who replicates, as an administrator has told all. Others are suspended.
    members: Members,
    last_replica: u16,
    pub(super) answered: Vec<Answered>,
    outcome: Outcome,
}

/// Runs the simulation of a seed, of so many steps.
///
/// # Errors
/// What does not hold at its end.
pub fn simulate<S: Server>(seed: u64, steps: usize, flaw: Option<Flaw>) -> Result<Outcome, String> {
    let mut mesh = Mesh::<S>::begin(seed, flaw);
    for _ in 0..steps {
        mesh.step()?;
    }
    mesh.calm()?;
    let states: Vec<&S> = mesh.sites.iter().map(|site| &site.disk).collect();
    check::check(&mesh, &states)?;
    mesh.outcome.updates = mesh.answered.len();
    mesh.outcome.conflicts = mesh.sites[0].disk.model().conflicts().count();
    mesh.forget_all()?;
    Ok(mesh.outcome)
}

impl<S: Server> Mesh<S> {
    fn begin(seed: u64, flaw: Option<Flaw>) -> Mesh<S> {
        let mut random = Random::new(seed);
        let count = 2 + random.below(4);
        let loss = random.of(&[0, 5, 30]);
        let resolution = match random.once_in(4) {
            true => Resolution::Entry,
            false => Resolution::Values,
        };
        let mut mesh: Mesh<S> = Mesh {
            random,
            flaw,
            now: BEGIN,
            sites: Vec::new(),
            messages: VecDeque::new(),
            cut: BTreeSet::new(),
            loss,
            entries: 0,
            members: Members::default(),
            last_replica: 0,
            answered: Vec::new(),
            outcome: Outcome::default(),
        };
        let first = mesh.first(resolution);
        for _ in 0..count {
            let replica = mesh.new_replica();
            mesh.members.now.insert(replica);
            mesh.join(replica, first.clone());
        }
        mesh
    }

    /// A directory with nothing but its naming context.
    fn first(&mut self, resolution: Resolution) -> S {
        let csn = Csn {
            micros: BEGIN - SECOND,
            count: 0,
            replica: 0,
        };
        let place = Place {
            parent: Uuid::NIL,
            rdn: b"dc=example"[..].into(),
        };
        let told = EntryChanges {
            entry: ROOT,
            stamp: Stamp {
                csn,
                modifier: Value::default(),
            },
            changes: vec![Change {
                csn,
                what: What::Born(place),
            }],
        };
        self.answered.push(Answered {
            told: told.clone(),
            knew: Vector::default(),
            server: 0,
            came_late: false,
            may_be_lost: false,
        });
        let mut first = S::begin(resolution);
        update(&mut first, vec![told]).unwrap();
        first
    }

    /// A number that no replica has had.
    fn new_replica(&mut self) -> u16 {
        self.last_replica += 1;
        self.last_replica
    }

    fn is_member(&self, at: usize) -> bool {
        self.members.now.contains(&self.sites[at].replica)
    }

    /// Nobody listens to a replica any more. Who has something of it has that on the disk before.
    fn suspend(&mut self, replica: u16) {
        (0..self.sites.len()).for_each(|at| self.commit(at));
        self.members.suspend(replica);
    }

    fn join(&mut self, replica: u16, copy: S) {
        let ahead = self.skew();
        self.sites.push(Site {
            replica,
            disk: copy.clone(),
            memory: copy,
            unanswered: Vec::new(),
            backup: None,
            horizon: Horizon::default(),
            ahead,
            is_up: true,
        });
    }

    /// Ten minutes at most, and now and then more.
    fn skew(&mut self) -> i64 {
        let minutes = match self.random.below(30) {
            0 => 40,
            1 => 100,
            2 => -24 * 60,
            _ => self.random.below(21) as i64 - 10,
        };
        minutes * 60 * SECOND as i64
    }

    fn step(&mut self) -> Result<(), String> {
        let pause = if self.random.once_in(50) { 300 } else { 2 };
        self.now += self.random.number() % (pause * SECOND);
        let (one, other) = (
            self.random.below(self.sites.len()),
            self.random.below(self.sites.len()),
        );
        match self.random.below(204) {
            0..90 => self.update(one)?,
            90..115 => self.commit(one),
            115..160 if one != other => self.ask(one, other),
            160..165 => self.crash(one),
            165..172 => self.sites[one].is_up = true,
            172..178 => self.cut_or_heal(one, other),
            178..182 => self.sites[one].ahead = self.skew(),
            182..188 => self.trim(one),
            188..190 => {
                let site = &mut self.sites[one];
                site.backup = Some((site.replica, site.disk.clone()));
            }
            190 => self.restore(one),
            191 if self.sites.len() < SERVERS_MAX && self.is_member(one) => {
                let replica = match self.flaw {
                    Some(Flaw::SharesANumber) => self.sites[one].replica,
                    _ => self.new_replica(),
                };
                self.members.now.insert(replica);
                self.join(replica, self.sites[one].disk.clone());
                self.outcome.joins += 1;
            }
            192 if self.members.now.len() > 1 => {
                self.suspend(self.sites[one].replica);
                if self.flaw == Some(Flaw::RejoinsTooEarly) {
                    self.rejoin(one, other)?;
                }
            }
            193..196 => drop(self.rejoin(one, other)?),
            196.. => self.beat(one),
            _ => {}
        }
        self.deliver()
    }

    /// What a site's clock shows.
    fn clock(&self, site: usize) -> u64 {
        self.now.saturating_add_signed(self.sites[site].ahead)
    }

    /// The number of a change that is made now.
    fn csn(&self, site: usize) -> Csn {
        let Ok(vector) = self.sites[site].memory.vector();
        next_csn(
            self.clock(site),
            self.sites[site].replica,
            vector.iter().max(),
        )
    }

    fn update(&mut self, at: usize) -> Result<(), String> {
        if !self.sites[at].is_up {
            return Ok(());
        }
        self.entries += 1;
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.random.number().to_be_bytes());
        uuid[8..].copy_from_slice(&self.entries.to_be_bytes());
        let csn = self.csn(at);
        let site = &mut self.sites[at];
        let Ok(knew) = site.memory.vector();
        let made = client::update(&mut self.random, &site.memory, csn, Uuid(uuid));
        let Some(told) = made else {
            return Ok(());
        };
        update(&mut site.memory, vec![told.clone()])
            .map_err(|error| format!("an update is refused: {error}"))?;
        let answered = Answered {
            told,
            knew,
            server: at,
            came_late: false,
            may_be_lost: false,
        };
        match self.flaw {
            Some(Flaw::AnswersTooEarly) => self.answered.push(answered),
            _ => site.unanswered.push(answered),
        }
        Ok(())
    }

    fn commit(&mut self, at: usize) {
        let site = &mut self.sites[at];
        site.disk = site.memory.clone();
        self.answered.append(&mut site.unanswered);
    }

    /// Promises that later changes are later.
    fn beat(&mut self, at: usize) {
        let csn = self.csn(at);
        let site = &mut self.sites[at];
        if site.is_up {
            let Ok(mut vector) = site.memory.vector();
            vector.advance(csn);
            let Ok(()) = site.memory.put_vector(&vector);
            self.commit(at);
        }
    }

    fn crash(&mut self, at: usize) {
        let site = &mut self.sites[at];
        site.memory = site.disk.clone();
        site.unanswered.clear();
        site.horizon = Horizon::default();
        site.is_up = false;
        self.outcome.crashes += 1;
    }

    fn cut_or_heal(&mut self, one: usize, other: usize) {
        match self.random.below(3) {
            0 => self.cut.clear(),
            1 => drop(self.cut.insert((one, other))),
            _ => self.cut.extend([(one, other), (other, one)]),
        }
    }

    /// Forgets what everybody has.
    fn trim(&mut self, at: usize) {
        self.commit(at);
        let site = &mut self.sites[at];
        let Ok(vector) = site.disk.vector();
        let settled = match self.flaw {
            Some(Flaw::ForgetsTooEarly) => Some(Settled::all_of(&vector, vector.of(site.replica))),
            _ => site.horizon.settled(site.replica, &vector, &self.members),
        };
        if let Some(settled) = settled {
            let Ok(()) = prune(&mut site.memory, &settled);
            self.outcome.trims += 1;
            self.commit(at);
        }
    }

    /// Replaces the disk of a site by a backup, and gives it a new number. If the backup is not of a member, or others
    /// have forgotten what it lacks, it is suspended. The only member is not restored: all that others lack would go.
    fn restore(&mut self, at: usize) {
        let Some((number, copy)) = self.sites[at].backup.clone() else {
            return;
        };
        if self.members.now.len() == 1 && self.is_member(at) {
            return;
        }
        let Ok(vector) = copy.vector();
        if self.flaw != Some(Flaw::KeepsItsNumber) {
            let was_member = self.members.now.contains(&number);
            self.suspend(self.sites[at].replica);
            let lacks = |(other, site): (usize, &Site<S>)| {
                let Ok(pruned) = site.disk.pruned();
                other != at && !vector.covers_all(&pruned)
            };
            let is_current = was_member && !self.sites.iter().enumerate().any(lacks);
            let replica = self.new_replica();
            self.sites[at].replica = replica;
            if is_current {
                self.members.now.insert(replica);
            }
        }
        let lost = self.answered.iter_mut();
        let lost = lost.filter(|answered| answered.server == at);
        for answered in lost {
            answered.may_be_lost |= !vector.covers(answered.told.stamp.csn);
        }
        let site = &mut self.sites[at];
        site.horizon = Horizon::default();
        site.disk = copy.clone();
        site.memory = copy;
        site.unanswered.clear();
        self.outcome.restores += 1;
    }

    /// A site that is suspended begins anew, with a copy of a member and what it alone has; whether it can.
    fn rejoin(&mut self, at: usize, from: usize) -> Result<bool, String> {
        let are_up = self.sites[at].is_up && self.sites[from].is_up;
        if !are_up || self.is_member(at) || !self.is_member(from) {
            return Ok(false);
        }
        self.commit(at);
        self.commit(from);
        let member = &self.sites[from];
        let mut copy = member.disk.clone();
        let (Ok(has), Ok(had)) = (copy.vector(), self.sites[at].disk.vector());
        let settled = member.horizon.settled(member.replica, &has, &self.members);
        if settled.is_none() && self.flaw != Some(Flaw::RejoinsTooEarly) {
            return Ok(false);
        }
        let replica = self.new_replica();
        let csn = next_csn(self.clock(at), replica, has.iter().chain(had.iter()).max());
        let made = match rejoin(&mut copy, &self.sites[at].disk, &self.members.now, csn) {
            Ok(made) => made,
            Err(RejoinError::Behind) => return Ok(false),
            Err(error) => return Err(format!("a server cannot join anew: {error}")),
        };
        let mut knew = has.clone();
        let is_former = |csn: &Csn| !self.members.now.contains(&csn.replica);
        had.iter()
            .filter(is_former)
            .for_each(|csn| knew.advance(csn));
        for answered in &mut self.answered {
            let csn = answered.told.stamp.csn;
            answered.came_late |= knew.covers(csn) && !has.covers(csn);
        }
        for told in made {
            let csn = told.stamp.csn;
            self.answered.push(Answered {
                told,
                knew: knew.clone(),
                server: at,
                came_late: false,
                may_be_lost: false,
            });
            knew.advance(csn);
            self.outcome.made_anew += 1;
        }
        self.members.now.insert(replica);
        let site = &mut self.sites[at];
        site.replica = replica;
        site.horizon = Horizon::default();
        site.disk = copy.clone();
        site.memory = copy;
        self.outcome.rejoins += 1;
        Ok(true)
    }

    fn ask(&mut self, asker: usize, teller: usize) {
        let site = &self.sites[asker];
        if site.is_up {
            let Ok(since) = site.memory.vector();
            self.send(asker, teller, Message::Ask { asker, since });
        }
    }

    /// Sends a message, which may be lost, late, and behind later ones.
    fn send(&mut self, from: usize, to: usize, message: Message) {
        if !self.cut.contains(&(from, to)) && self.random.below(100) >= self.loss {
            let delay = self.random.of(&[1, 1, 1, 10, 600]) * SECOND;
            let at = self.now + self.random.number() % delay;
            self.messages.push_back((at, to, message));
        }
    }

    fn deliver(&mut self) -> Result<(), String> {
        for _ in 0..self.messages.len() {
            let Some((at, to, message)) = self.messages.pop_front() else {
                break;
            };
            if at > self.now {
                self.messages.push_back((at, to, message));
            } else if self.sites[to].is_up {
                self.receive(to, message)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, at: usize, message: Message) -> Result<(), String> {
        match message {
            Message::Ask { asker, since } => {
                let site = &self.sites[at];
                let state = match self.flaw {
                    Some(Flaw::TellsTooEarly) => &site.memory,
                    _ => &site.disk,
                };
                // Who asked may have lost its disk since then.
                if let Ok(bundle) = Bundle::since(state, &since) {
                    let answer = Message::Tell {
                        replica: site.replica,
                        bundle,
                        members: self.members.clone(),
                    };
                    self.send(at, asker, answer);
                }
            }
            Message::Tell {
                replica,
                bundle,
                members,
            } => {
                // Nobody listens to a replica that is none any more. Nor does that one listen to others: what it alone
                // has may have been made anew already, by another one that had it as well.
                if self.members.now.contains(&replica) && self.is_member(at) {
                    self.apply(at, replica, &bundle, members)?;
                }
            }
        }
        Ok(())
    }

    /// Applies a bundle, unless it has to wait.
    fn apply(
        &mut self,
        at: usize,
        replica: u16,
        bundle: &Bundle,
        members: Members,
    ) -> Result<(), String> {
        let now = self.clock(at);
        let site = &mut self.sites[at];
        let mut state = site.memory.clone();
        match merge(&mut state, bundle, now) {
            Ok(()) => {
                site.memory = state;
                let vector = bundle.upto.clone();
                site.horizon.hear(replica, vector, members);
                self.outcome.bundles += 1;
                Ok(())
            }
            // The last: it was on its way for so long that what it begins with is forgotten by now.
            Err(MergeError::Ahead(_) | MergeError::Gap | MergeError::Expired) => Ok(()),
            Err(error) => Err(format!("a bundle is refused: {error}")),
        }
    }

    /// Everything heals, and everybody asks everybody until nobody has anything to tell.
    fn calm(&mut self) -> Result<(), String> {
        self.cut.clear();
        self.loss = 0;
        self.now += 4 * 3600 * SECOND;
        for at in 0..self.sites.len() {
            let site = &mut self.sites[at];
            (site.is_up, site.ahead) = (true, 0);
        }
        self.deliver()?;
        self.messages.clear();
        loop {
            self.agree()?;
            let mut sites = 0..self.sites.len();
            let Some(at) = sites.clone().find(|at| !self.is_member(*at)) else {
                return Ok(());
            };
            let from = sites.find(|from| self.is_member(*from)).unwrap_or(at);
            if !self.rejoin(at, from)? {
                return Err("a server that was suspended cannot join anew".to_owned());
            }
        }
    }

    /// All members tell each other everything.
    fn agree(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            if self.round()? {
                return Ok(());
            }
        }
        Err(format!("not equal after {ROUNDS_MAX} rounds"))
    }

    /// Every member asks every other one; whether all had everything before.
    fn round(&mut self) -> Result<bool, String> {
        let mut is_calm = true;
        let sites = 0..self.sites.len();
        let members: Vec<usize> = sites.filter(|at| self.is_member(*at)).collect();
        for &at in &members {
            for &from in members.iter().filter(|from| **from != at) {
                self.commit(at);
                self.commit(from);
                let Ok(since) = self.sites[at].disk.vector();
                let Ok(theirs) = self.sites[from].disk.vector();
                is_calm &= since.covers_all(&theirs);
                let replica = self.sites[from].replica;
                let members = self.members.clone();
                let bundle = Bundle::since(&self.sites[from].disk, &since)
                    .map_err(|error| format!("nothing is told: {error}"))?;
                self.apply(at, replica, &bundle, members)?;
                self.commit(at);
            }
        }
        Ok(is_calm)
    }

    /// When all have told each other that they have everything, nothing is kept of what led there.
    fn forget_all(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            for at in 0..self.sites.len() {
                self.now += SECOND;
                self.beat(at);
            }
            self.calm()?;
        }
        for at in 0..self.sites.len() {
            let Ok(before) = entries_of(&self.sites[at].disk);
            self.trim(at);
            let state = &self.sites[at].disk;
            let Ok(after) = entries_of(state);
            if before != after {
                return Err("forgetting what is settled has changed an entry".to_owned());
            }
            let glue = after.iter().filter(|(_, seen)| seen.is_glue).count();
            let kept = state.model().records();
            if kept != glue {
                return Err(format!(
                    "{kept} records are kept for {glue} deleted entries"
                ));
            }
        }
        Ok(())
    }
}

/// A hybrid logical clock: it shows the time, but is always behind the last change.
fn next_csn(now: u64, replica: u16, last: Option<Csn>) -> Csn {
    match last {
        Some(last) if now <= last.micros => Csn {
            replica,
            ..last.next()
        },
        _ => Csn {
            micros: now,
            count: 0,
            replica,
        },
    }
}

/// The entries that are seen.
pub(super) fn entries_of<S: Server>(state: &S) -> Result<Vec<(Uuid, Seen)>, Infallible> {
    let mut seen = Vec::new();
    for entry in state.entries()? {
        seen.extend(Seen::of(state, entry)?.map(|one| (entry, one)));
    }
    Ok(seen)
}
