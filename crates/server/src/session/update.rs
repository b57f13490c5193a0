//! Add, modify, delete and modify DN: from the request to the writer's queue, and back.

use std::ops::ControlFlow;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Identity, Outcome, PasswordHashing, RequestView, Requester, StoreSet, Update, UpdateRequest,
};
use sapwood_ldap::controls::{PasswordValidation, PasswordValidationDetails, RequestControls};
use sapwood_ldap::list::{Attribute, ChangeKind};
use sapwood_ldap::message::{Request, RequestMessage};

use super::bind::{Hashing, stopped};
use super::fetch::Reader;
use super::log::{self, LoggedName};
use super::password_policy::{governed, not_validated, told};
use super::tree_delete::COPIES;
use super::{Burst, Completion, Hashed, Session, Wanted};
use crate::memory::{AnswerRoom, Share};
use crate::password::{self, Hasher, Work};
use crate::session::reply::{Reply, ReplyKind, Unit};
use crate::workers::Turn;
use crate::writer::refusal;

/// Bytes of the queue that each update counts for besides its own.
pub(super) const UPDATE_BYTES: usize = 256;

impl<E: Engine> Session<E> {
    /// `false` when the queue has no room for the update yet, or when it would overtake others.
    pub(super) fn update(
        &mut self,
        bytes: &[u8],
        message: &RequestMessage<'_>,
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
        burst: &mut Burst<'_, E>,
    ) -> bool {
        let (id, operation) = (message.id, message.op.operation());
        let transaction = match self.transaction_of(controls, by) {
            Ok(transaction) => transaction,
            Err(outcome) => {
                self.log_update(message);
                self.answer(id, operation, &outcome);
                return true;
            }
        };
        let shards = self.service.directory.shards_of(&message.op);
        if transaction.is_none() && self.overtakes(shards, &burst.unit) {
            return false;
        }
        let by = &match transaction {
            Some(at) => self.transaction_by((id, at), by),
            None => by.clone(),
        };
        // The writer refuses who has not bound: nothing is hashed for them.
        let is_bound = *by.identity() != Identity::Anonymous;
        let mut tree_delete = None;
        if controls.tree_delete.is_some() && transaction.is_none() && is_bound {
            let deadline = self.tree_delete_deadline(by, burst);
            if self.waits_for_fetch(Reader::Request) {
                return false;
            }
            match deadline {
                Ok(deadline) => tree_delete = Some(deadline),
                Err(outcome) => {
                    self.log_update(message);
                    self.answer(id, operation, &outcome);
                    return true;
                }
            }
        }
        let has_cleartext = is_bound && self.is_to_be_hashed(&message.op);
        if controls.password_validation_details.is_some() {
            self.count_passwords(id, passwords_of(&message.op).given);
        }
        let share = match transaction.map(|at| self.tried_bytes(at)) {
            // It only waits, in the memory of transactions.
            Some(None) if !has_cleartext => Share::default(),
            tried => {
                // What is tried together with it is copied.
                let tried_bytes = tried.flatten().unwrap_or_default();
                let copies = if tree_delete.is_some() { COPIES } else { 1 };
                let wanted = Wanted::Update(copies * bytes.len() + UPDATE_BYTES + tried_bytes);
                let Some(share) = self.share(wanted) else {
                    return false;
                };
                share
            }
        };
        self.log_update(message);
        let request = || UpdateRequest::Message(bytes.to_vec());
        let reply = Reply::new(id, ReplyKind::Response(operation));
        if has_cleartext {
            // What came before goes first; what comes after waits.
            self.submit(std::mem::take(&mut burst.unit));
            let transaction = transaction.map(|at| self.transaction_identifier(at));
            self.hash((request(), by), reply, transaction, share);
        } else if let Some(at) = transaction {
            let request = RequestView::Message(bytes);
            self.join(at, request, reply, shards, share, &mut burst.unit);
        } else {
            if controls.pre_read.is_some() || controls.post_read.is_some() {
                burst.unit.answer_room = Some(self.answer_room());
            }
            let (reply, share) = match tree_delete {
                None => (reply, share),
                Some(deadline) => {
                    let reply = self.begin_tree_delete((id, bytes), by, (shards, deadline), share);
                    (reply, Share::default())
                }
            };
            self.push((request(), by), reply, shards, share, &mut burst.unit);
        }
        true
    }

    /// Where the response controls of updates get their memory.
    pub(super) fn answer_room(&self) -> AnswerRoom {
        AnswerRoom {
            answers: self.service.memory.answers.clone(),
            claimant: Arc::clone(&self.context.claimant),
        }
    }

    /// Whether an update with these shards could be applied before one that came earlier and that it may depend on.
    /// Those of different partitions do not depend on each other; all depend on what is in the first store, above the
    /// partitions.
    pub(super) fn overtakes(&self, shards: StoreSet, unit: &Unit<E>) -> bool {
        !shards.is_empty()
            && self.service.directory.stores() > 1
            && (self
                .operations
                .shards
                .iter()
                .any(|(other, _)| may_depend(*other, shards))
                || unit.shards.iter().any(|other| may_depend(*other, shards)))
    }

    /// Updates with these shards have been applied.
    pub(super) fn left(&mut self, shards: StoreSet, count: usize) {
        if let Some(at) = self
            .operations
            .shards
            .iter()
            .position(|(known, _)| *known == shards)
        {
            self.operations.shards[at].1 -= count;
            if self.operations.shards[at].1 == 0 {
                self.operations.shards.swap_remove(at);
            }
        }
    }

    /// Makes an update part of a unit, and says for whom it is done.
    pub(super) fn push(
        &mut self,
        (request, by): (UpdateRequest, &Arc<Requester>),
        mut reply: Reply,
        shards: StoreSet,
        share: Share,
        unit: &mut Unit<E>,
    ) {
        if self.settings.is_logged && reply.record.is_none() {
            reply.record = self.records.take(reply.id);
        }
        let requester = by.clone();
        unit.shards.push(shards);
        unit.updates.push(Update { requester, request });
        unit.replies.push(reply);
        unit.share.add(share);
        self.output.answers_due += 1;
    }

    /// Says of an update that is to tell what came of looking at its password that it brings none, or several.
    fn count_passwords(&mut self, id: u32, count: usize) {
        let validation = match count {
            0 => PasswordValidation::NoPassword,
            1 => return,
            _ => PasswordValidation::SeveralPasswords,
        };
        if let Some(wish) = self.operations.wishes.get_mut(&id) {
            wish.validation = Some(Box::new(not_validated(validation)));
        }
    }

    /// Puts updates into the writer's queue.
    pub(super) fn submit(&mut self, unit: Unit<E>) {
        if unit.updates.is_empty() {
            return;
        }
        self.operations
            .updating
            .extend(unit.replies.iter().map(|reply| reply.id));
        if self.service.directory.stores() > 1 {
            for shards in &unit.shards {
                match self
                    .operations
                    .shards
                    .iter_mut()
                    .find(|(known, _)| known == shards)
                {
                    Some((_, count)) => *count += 1,
                    None => self.operations.shards.push((*shards, 1)),
                }
            }
        }
        self.service.writer.submit(unit, self.completions.clone());
    }

    /// Passwords have been checked and hashed: their update goes on its way.
    pub(super) fn hashed(&mut self, hashed: Hashed) {
        self.end_hashing();
        let Hashed {
            request,
            details,
            reply,
            by,
            transaction,
            share,
        } = hashed;
        if let (Some(details), Some(wish)) = (details, self.operations.wishes.get_mut(&reply.id)) {
            wish.validation = Some(Box::new(told(details, request.as_ref().err())));
        }
        let mut unit = Unit::default();
        match (request, transaction) {
            (Err(outcome), _) => self.answer_update(reply, outcome),
            (Ok(request), Some(identifier)) => {
                self.join_identified(&identifier, request, reply, share, &mut unit);
            }
            (Ok(request), None) => {
                let shards = self.service.directory.shards(&request);
                // It may have read controls.
                unit.answer_room = Some(self.answer_room());
                self.push((request, &by), reply, shards, share, &mut unit);
            }
        }
        self.submit(unit);
    }

    pub(super) fn answer_update(&mut self, mut reply: Reply, mut outcome: Outcome) {
        if let Some(change) = outcome.awaits.take() {
            return self.have_wait(reply, change);
        }
        // That of an operation of a bulk update is written now, that of a tree delete at its end.
        let mut record = reply.record.take();
        let is_kept = matches!(reply.kind, ReplyKind::TreeDelete(_));
        if !matches!(reply.kind, ReplyKind::LburpUpdate { .. })
            && !is_kept
            && let Some(record) = record.take()
        {
            self.records.put(reply.id, record);
        }
        match reply.kind {
            ReplyKind::Response(operation) => self.answer(reply.id, operation, &outcome),
            ReplyKind::TreeDelete(tree) => {
                self.tree_delete_answered((reply.id, record), *tree, outcome)
            }
            ReplyKind::PasswordModify(generated) => {
                self.answer_password_modify(reply.id, generated, &outcome);
            }
            ReplyKind::Refresh(seconds) => self.answer_refresh(reply.id, seconds, &outcome),
            ReplyKind::Bind(end) => self.bind_ends(reply.id, *end, outcome),
            ReplyKind::EndTransaction => self.answer_end_transaction(reply.id, &outcome),
            ReplyKind::LburpUpdate { request, operation } => {
                self.operation_done(request, operation, outcome);
            }
            ReplyKind::Trial(trial) => self.tried(reply.id, *trial, outcome),
        }
    }

    /// Has the cleartext passwords of an update hashed.
    fn hash(
        &mut self,
        (request, by): (UpdateRequest, &Arc<Requester>),
        reply: Reply,
        transaction: Option<Vec<u8>>,
        share: Share,
    ) {
        let (id, session, whose) = (reply.id, self.completions.clone(), by.clone());
        let done = move |request, details| {
            let _ = session.send(Completion::Hashed(Box::new(Hashed {
                request,
                details,
                by: whose,
                reply,
                transaction,
                share,
            })));
        };
        self.hash_request(id, (request, by), done);
    }

    /// Has the cleartext passwords of a request hashed, one in each step; `done` takes what comes of it to the session.
    pub(super) fn hash_request(
        &mut self,
        id: u32,
        (request, by): (UpdateRequest, &Arc<Requester>),
        done: impl FnOnce(Result<UpdateRequest, Outcome>, Option<PasswordValidationDetails>)
        + Send
        + 'static,
    ) {
        let directory = self.service.directory.clone();
        let hasher = self.hasher();
        let count = match &request {
            UpdateRequest::Message(bytes) => RequestMessage::decode(bytes)
                .map_or(1, |message| passwords_of(&message.op).cleartext),
            _ => 1,
        };
        // More than an entry may have are refused before one is hashed.
        let count = count.clamp(1, hasher.limits.values_max) as u64;
        let mut work = hasher.work().times(count);
        let mut judged_for = self.has_policies().then(|| by.clone());
        if judged_for.is_some() {
            // The old one and the one that there is are compared, and what was used before, as the policy says.
            work = work.and(password::hash_work().times(2));
        }
        let wish = self.operations.wishes.get(&id);
        let wants_details = wish.is_some_and(|wish| wish.validation.is_some());
        let mut details = None;
        let mut waits = Some((PasswordHashing::new(request), done));
        self.have_hashed(id, work, move |turn| {
            let Some((hashing, done)) = waits.take() else {
                return ControlFlow::Break(());
            };
            let stepped = match (turn, judged_for.take()) {
                (Turn::Stop, _) => Err(stopped()),
                (Turn::Step, None) => hashing.step(&directory.schema(), &hasher),
                // Here it may wait for what is not at hand.
                (Turn::Step, Some(requester)) => {
                    let values_max = hasher.limits.values_max;
                    let change = governed(&directory, &requester, hashing.request(), values_max);
                    change.map_err(|error| refusal(&error)).map(|change| {
                        let hashing = hashing.governed(change);
                        if wants_details {
                            details = hashing.details(&directory.schema(), &hasher);
                        }
                        ControlFlow::Continue(hashing)
                    })
                }
            };
            let hashed = match stepped {
                Ok(ControlFlow::Continue(hashing)) => {
                    waits = Some((hashing, done));
                    return ControlFlow::Continue(());
                }
                Ok(ControlFlow::Break(request)) => Ok(request),
                Err(outcome) => Err(outcome),
            };
            done(hashed, details.take());
            ControlFlow::Break(())
        });
    }

    /// Whether an update is to be looked at by a hasher: it has a password in clear text, or one that policies ask for.
    pub(super) fn is_to_be_hashed(&self, op: &Request<'_>) -> bool {
        let passwords = passwords_of(op);
        passwords.cleartext > 0 || passwords.has_any && self.has_policies()
    }

    /// How passwords in clear text are stored now.
    pub(super) fn hasher(&self) -> Hasher {
        let directory = &self.service.directory;
        let schemes = directory.ask_settings(|settings| settings.password_schemes);
        Hasher {
            limits: self.settings.config.limits.passwords(),
            // If the directory cannot be read the update that asks will fail, too.
            schemes: schemes.unwrap_or_default(),
            breached: self.settings.breached_passwords.clone(),
            has_saslauthd: self.settings.saslauthd.is_some(),
            strength_min: self.settings.config.passwords.strength_min,
        }
    }

    /// Has a hasher work for the request with this message id, which nothing overlaps until `job` has sent what came of
    /// it.
    pub(super) fn have_hashed(
        &mut self,
        id: u32,
        work: Work,
        job: impl FnMut(Turn) -> ControlFlow<()> + Send + 'static,
    ) {
        let claim = self.claim(self.context.requester.real());
        self.operations.hashing = Some(Hashing::Job {
            _ticket: self.service.hashers.submit(claim, work, job),
            failure: None,
        });
        self.operations.exclusive = Some(id);
        self.output.answers_due += 1;
    }

    /// What a hasher has done for the session has come.
    pub(super) fn end_hashing(&mut self) {
        self.operations.hashing = None;
        self.operations.exclusive = None;
        self.output.answers_due -= 1;
    }

    fn log_update(&self, message: &RequestMessage<'_>) {
        if self.settings.config.log.access {
            let schema = self.service.directory.schema();
            let dn = LoggedName::dn(&schema, target_dn(&message.op));
            let operation = message.op.operation().name();
            tracing::info!(target: "access", conn = self.context.number, id = message.id, %dn, "{operation}");
        }
    }
}

/// Whether updates with such shards, which are not the same, may depend on each other.
pub(super) fn may_depend(one: StoreSet, other: StoreSet) -> bool {
    one != other && (one.meets(other) || one.contains(0) || other.contains(0))
}

/// The DN of the entry that an update is about.
pub(super) fn target_dn<'m>(op: &Request<'m>) -> &'m str {
    match op {
        Request::Add(request) => request.dn,
        Request::Modify(request) => request.dn,
        Request::Delete(dn) => dn,
        Request::ModifyDn(request) => request.dn,
        _ => "",
    }
}

/// Whether an attribute description is userPassword, by name or OID, with any options.
pub(super) fn is_password(description: &[u8]) -> bool {
    let base = log::base(description);
    base.eq_ignore_ascii_case(b"userPassword") || base == b"2.5.4.35"
}

/// Values in clear text of a password attribute.
fn cleartext_of(attribute: &Attribute<'_>) -> usize {
    let values = attribute.values.iter();
    values.filter(|value| !password::is_hashed(value)).count()
}

/// What an update has of passwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Passwords {
    /// Those in clear text that it adds or replaces with. (A value to delete is compared with what is stored.)
    cleartext: usize,
    /// Those that it adds or replaces with, in whatever form.
    given: usize,
    /// Whether it touches any.
    has_any: bool,
}

fn passwords_of(request: &Request<'_>) -> Passwords {
    let mut passwords = Passwords::default();
    let mut count = |attribute: Attribute<'_>, is_given: bool| {
        if is_password(attribute.description) {
            passwords.has_any = true;
            if is_given {
                passwords.given += attribute.values.iter().count();
                passwords.cleartext += cleartext_of(&attribute);
            }
        }
    };
    match request {
        Request::Add(add) => add
            .attributes
            .iter()
            .for_each(|attribute| count(attribute, true)),
        Request::Modify(modify) => {
            for change in modify.changes.iter() {
                count(change.attribute, change.kind != ChangeKind::Delete);
            }
        }
        _ => {}
    }
    passwords
}

#[cfg(test)]
mod tests {
    use super::*;
    use sapwood_directory::schema::Schema;
    use sapwood_ldap::controls::Controls;
    use sapwood_ldap::list::{AttributesBuf, ChangesBuf};
    use sapwood_ldap::message::{AddRequest, Message, ModifyRequest};

    const STORED: &[u8] = b"{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==";

    fn message(op: Request<'_>) -> UpdateRequest {
        let mut bytes = Vec::new();
        Message {
            id: 7,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut bytes);
        UpdateRequest::Message(bytes)
    }

    /// An update with this number of cleartext passwords, after each was hashed in a step of its own: a stop is heeded
    /// between two steps.
    fn hashed(update: UpdateRequest, passwords: usize) -> UpdateRequest {
        let (mut hashing, mut steps) = (PasswordHashing::new(update), 0);
        loop {
            let step = hashing.step(&Schema::standard(), &Hasher::default());
            match step.unwrap() {
                ControlFlow::Continue(next) => hashing = next,
                // The first step looks for them, and the last one puts them into the request.
                ControlFlow::Break(update) => {
                    assert_eq!(steps, passwords + 1);
                    return update;
                }
            }
            steps += 1;
        }
    }

    #[test]
    fn the_passwords_of_one_request_are_hashed_one_by_one() {
        let mut attributes = AttributesBuf::default();
        let passwords = [&b"one"[..], STORED, b"two"];
        attributes.push(b"userPassword", passwords);
        attributes.push(b"userPassword;lang-de", [b"three".as_slice()]);
        let update = hashed(
            message(Request::Add(AddRequest {
                dn: "cn=Ann",
                attributes: attributes.view(),
            })),
            3,
        );
        let Request::Add(add) = RequestMessage::decode(bytes(&update)).unwrap().op else {
            panic!("not an add")
        };
        let values: Vec<_> = add.attributes.iter().flat_map(|one| one.values).collect();
        assert!(password::verify(b"one", [values[0]]));
        assert_eq!(values[1], STORED);
        assert!(password::verify(b"two", [values[2]]));
        assert!(password::verify(b"three", [values[3]]));
    }

    fn has_cleartext_password(op: &Request<'_>) -> bool {
        passwords_of(op).cleartext > 0
    }

    fn bytes(request: &UpdateRequest) -> &[u8] {
        match request {
            UpdateRequest::Message(bytes) => bytes,
            _ => panic!("not a message"),
        }
    }

    #[test]
    fn cleartext_passwords_of_an_add_are_hashed_and_nothing_else_changes() {
        let mut attributes = AttributesBuf::default();
        attributes.push(b"cn", [b"Ann".as_slice()]);
        attributes.push(b"USERPASSWORD;x-y", [b"secret".as_slice(), STORED]);
        let op = Request::Add(AddRequest {
            dn: "cn=Ann",
            attributes: attributes.view(),
        });
        assert!(has_cleartext_password(&op));
        let update = hashed(message(op), 1);
        let decoded = RequestMessage::decode(bytes(&update)).unwrap();
        assert_eq!(decoded.id, 7);
        let Request::Add(add) = decoded.op else {
            panic!("not an add")
        };
        assert_eq!(add.dn, "cn=Ann");
        let attributes: Vec<_> = add.attributes.iter().collect();
        assert_eq!(attributes[0].values.iter().collect::<Vec<_>>(), [b"Ann"]);
        let values: Vec<_> = attributes[1].values.iter().collect();
        assert!(password::verify(b"secret", [values[0]]) && values[0] != b"secret");
        assert_eq!(values[1], STORED);
        assert!(!has_cleartext_password(&decoded.op));
    }

    #[test]
    fn a_modify_hashes_what_it_adds_but_not_what_it_deletes() {
        let mut changes = ChangesBuf::default();
        changes.push(ChangeKind::Delete, b"userPassword", [b"old".as_slice()]);
        changes.push(ChangeKind::Add, b"2.5.4.35", [b"new".as_slice()]);
        let op = Request::Modify(ModifyRequest {
            dn: "cn=Ann",
            changes: changes.view(),
        });
        assert!(has_cleartext_password(&op));
        let update = hashed(message(op), 1);
        let Request::Modify(modify) = RequestMessage::decode(bytes(&update)).unwrap().op else {
            panic!("not a modify")
        };
        let changes: Vec<_> = modify.changes.iter().collect();
        assert_eq!(
            changes[0].attribute.values.iter().collect::<Vec<_>>(),
            [b"old"]
        );
        let new = changes[1].attribute.values.iter().next().unwrap();
        assert!(password::verify(b"new", [new]) && password::is_hashed(new));
    }
}
