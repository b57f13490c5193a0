//! Updates of what is copied from another server, which this one forwards there for its clients, where the agreement
//! says so (`updates=forward`): with the account of the agreement, and in the name of who has asked (RFC 4370).
//!
//! One update after the other is sent, in the order in which they came, and none a second time: if the answer does not
//! come, nobody knows what has become of it, and the client is told so. After a success it is waited for until the
//! change is here, so that who has made it finds it here as well, but for [`HERE_SECONDS_MAX`] only.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sapwood_client::Client;
use sapwood_directory::engine::Engine;
use sapwood_directory::{Agreement, Directory, Outcome, StoreSet};
use sapwood_ldap::controls::{
    Control, ControlsBuf, PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1,
};
use sapwood_ldap::message::RequestMessage;
use sapwood_ldap::result::ResultCode;
use sapwood_replication::{Cookie, Vector};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::Recipient;
use crate::committed::Committed;
use crate::consumer::{connect, context_csns};
use crate::memory::Share;

/// Updates that wait to be forwarded.
const WAITING_MAX: usize = 1024;
/// Seconds that connecting and binding may take.
const CONNECT_SECONDS_MAX: u64 = 10;
/// Seconds that the other server may take for an update.
const ANSWER_SECONDS_MAX: u64 = 60;
/// Seconds that the answer to an update waits for the change to be here.
const HERE_SECONDS_MAX: u64 = 5;

/// An update that is made elsewhere.
pub(super) struct Forwarded<R: Recipient> {
    pub(super) what: Forwardable,
    /// Who is answered.
    pub(super) recipient: R,
    pub(super) reply: R::Reply,
    pub(super) shards: StoreSet,
}

/// What is forwarded of an update.
pub(super) struct Forwardable {
    /// The request.
    pub(super) message: Vec<u8>,
    /// In whose name.
    pub(super) dn: String,
    /// The agreement that covers the entry.
    pub(super) rid: u16,
    /// What the client is told if that has ended.
    pub(super) refusal: Outcome,
}

impl<R: Recipient> Forwarded<R> {
    fn answer(self, outcome: Outcome) {
        let answers = vec![(self.reply, outcome)];
        self.recipient
            .answer(self.shards, answers, Share::default());
    }
}

/// Forwards updates. Its thread is there from the first of them on.
pub(super) struct Forwarder<E: Engine, R: Recipient> {
    directory: Directory<E>,
    committed: Committed,
    running: Mutex<Option<Running<R>>>,
}

struct Running<R: Recipient> {
    queue: Sender<Forwarded<R>>,
    thread: JoinHandle<()>,
}

impl<E: Engine, R: Recipient> Forwarder<E, R> {
    pub(super) fn new(directory: Directory<E>, committed: Committed) -> Forwarder<E, R> {
        Forwarder {
            directory,
            committed,
            running: Mutex::default(),
        }
    }

    /// Has an update be forwarded, and answered then.
    pub(super) fn forward(&self, update: Forwarded<R>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            match self.start() {
                Ok(started) => *running = Some(started),
                Err(error) => {
                    let why = format!("updates cannot be forwarded: {error}");
                    return update.answer(Outcome::new(ResultCode::Unavailable, why));
                }
            }
        }
        let Some(running) = &*running else {
            return;
        };
        if let Err(full) = running.queue.try_send(update) {
            let why = format!("{WAITING_MAX} updates wait to be forwarded: try again later");
            full.into_inner()
                .answer(Outcome::new(ResultCode::Busy, why));
        }
    }

    fn start(&self) -> io::Result<Running<R>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let (directory, committed) = (self.directory.clone(), self.committed.clone());
        let thread = thread::Builder::new()
            .name("forwarder".into())
            .spawn(move || {
                let forwarding = forward_all(&directory, &committed, waiting);
                LocalSet::new().block_on(&runtime, forwarding);
            })?;
        Ok(Running { queue, thread })
    }
}

impl<E: Engine, R: Recipient> Drop for Forwarder<E, R> {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        if let Some(Running { queue, thread }) =
            running.unwrap_or_else(PoisonError::into_inner).take()
        {
            drop(queue);
            let _ = thread.join();
        }
    }
}

/// The connections that there are, by agreement.
type Connections = HashMap<u16, (Agreement, Client)>;

async fn forward_all<E: Engine, R: Recipient>(
    directory: &Directory<E>,
    committed: &Committed,
    mut waiting: Receiver<Forwarded<R>>,
) {
    let mut connections = Connections::new();
    // Those that are made, and wait to be here.
    let mut made = JoinSet::new();
    while let Some(update) = waiting.recv().await {
        let done = forward(directory, &mut connections, &update.what).await;
        let (outcome, vector) = match done {
            Ok((outcome, Some(vector))) => (outcome, vector),
            Ok((outcome, None)) | Err(outcome) => {
                update.answer(outcome);
                continue;
            }
        };
        let (directory, committed) = (directory.clone(), committed.clone());
        made.spawn_local(async move {
            be_here(&directory, &committed, update.what.rid, &vector).await;
            update.answer(outcome);
        });
        while made.try_join_next().is_some() {}
    }
    while made.join_next().await.is_some() {}
}

/// Makes an update at the other server: what came of it, and what that server had after a success. An error is what the
/// client is told of one that was not made, or of which nobody knows.
async fn forward<E: Engine>(
    directory: &Directory<E>,
    connections: &mut Connections,
    what: &Forwardable,
) -> Result<(Outcome, Option<Vector>), Outcome> {
    let agreement = directory.ask_settings(|settings| {
        let mut agreements = settings.agreements.iter();
        agreements.find(|one| one.rid == what.rid).cloned()
    });
    let agreement = agreement
        .map_err(|error| Outcome::new(ResultCode::UnknownError, error.to_string()))?
        .filter(|agreement| agreement.forwards)
        .ok_or_else(|| what.refusal.clone())?;
    let client = client_of(connections, &agreement).await?;
    let message = RequestMessage::decode(&what.message)
        .map_err(|error| Outcome::new(ResultCode::ProtocolError, error.to_string()))?;
    let mut controls = ControlsBuf::default();
    let is_own = |control: &Control<'_>| {
        // As whom the client acts is in the name already.
        ![PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1].contains(&control.oid)
    };
    let own = message.controls.iter().filter(is_own);
    own.for_each(|control| controls.push(control));
    let name = format!("dn:{}", what.dn);
    controls.push(Control {
        oid: PROXIED_AUTHORIZATION,
        critical: true,
        value: Some(name.as_bytes()),
    });
    let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
    let answered = timeout(limit, client.request(message.op, controls.view())).await;
    let provider = &agreement.provider;
    let lost = |why: String| {
        let diagnostic = format!(
            "whether {provider} has made the update is not known, and it is not sent again: {why}"
        );
        Outcome::new(ResultCode::UnknownError, diagnostic)
    };
    let reply = match answered {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            connections.remove(&what.rid);
            return Err(lost(error.to_string()));
        }
        Err(_) => {
            connections.remove(&what.rid);
            return Err(lost(format!("no answer within {ANSWER_SECONDS_MAX} s")));
        }
    };
    let message = reply.message().map_err(|error| lost(error.to_string()))?;
    let Some(result) = message.op.result() else {
        return Err(lost("an answer that is none".into()));
    };
    let referrals = result.referral.map(|urls| {
        let urls = urls
            .iter()
            .map(|url| String::from_utf8_lossy(url).into_owned());
        urls.collect()
    });
    let outcome = Outcome {
        matched_dn: result.matched_dn.to_owned(),
        referrals,
        controls: message.controls.as_ber().to_vec(),
        ..Outcome::new(result.code, result.diagnostic)
    };
    if outcome.code != ResultCode::Success {
        return Ok((outcome, None));
    }
    let told = timeout(limit, context_csns(&client, &agreement.base)).await;
    Ok((outcome, told.ok().and_then(Result::ok)))
}

/// The connection to the provider of an agreement, a new one if there is none.
async fn client_of(
    connections: &mut Connections,
    agreement: &Agreement,
) -> Result<Client, Outcome> {
    if let Some((of, client)) = connections.get(&agreement.rid)
        && of == agreement
        && !client.has_ended()
    {
        return Ok(client.clone());
    }
    let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
    let connected = timeout(limit, connect(agreement)).await;
    let why = match connected {
        Ok(Ok(connection)) => {
            let client = Client::over(connection);
            connections.insert(agreement.rid, (agreement.clone(), client.clone()));
            return Ok(client);
        }
        Ok(Err(why)) => why.to_string(),
        Err(_) => format!("no answer within {CONNECT_SECONDS_MAX} s"),
    };
    let provider = &agreement.provider;
    let diagnostic = format!("updates are made at {provider}, which cannot be reached: {why}");
    Err(Outcome::new(ResultCode::Unavailable, diagnostic))
}

/// Waits until a copy has what its provider had, or some seconds.
async fn be_here<E: Engine>(
    directory: &Directory<E>,
    committed: &Committed,
    rid: u16,
    vector: &Vector,
) {
    let until = Instant::now() + Duration::from_secs(HERE_SECONDS_MAX);
    let mut commits = committed.waiter(directory);
    loop {
        let Ok(cookie) = directory.newest_cookie(rid) else {
            return;
        };
        let has = cookie.and_then(|cookie| Cookie::parse(&cookie).ok());
        if has.is_some_and(|has| has.vector.covers_all(vector)) {
            return;
        }
        if !matches!(timeout_at(until, commits.wait()).await, Ok(true)) {
            return;
        }
    }
}
