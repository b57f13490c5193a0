//! The connection of a consumer to its provider: it sends the search, hands the [`Machine`] what comes, and does what
//! that says. What fails is tried again after a while.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::time::{Duration, SystemTime};

use sapwood_client::{Connection, Options, Trust};
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Agreement, AgreementPassword, Directory, NamedEntries, Replicated, Requester, Ticket as _,
    Update, UpdateRequest,
};
use sapwood_ldap::controls::{
    Control, ControlsBuf, MANAGE_DSA_IT, SYNC_REQUEST, SyncMode, SyncRequest,
};
use sapwood_ldap::extended::{ACKNOWLEDGE, Acknowledge};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    ExtendedRequest, Message, Request, ResponseMessage, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::machine::{Machine, Stage, Step, Trouble};
use super::status::{Board, ConsumerState};
use crate::committed::Committed;

/// Seconds that connecting and binding may take.
const CONNECT_SECONDS_MAX: u64 = 30;
/// After so many seconds of silence something is sent that has no answer: where the provider is not there any more, the
/// connection fails then.
const SILENCE_SECONDS: u64 = 60;
/// Bytes of a message of the provider: one entry.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Bytes of a file with a password.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;
/// The message ID of the search, and one that no operation has.
const SEARCH_ID: u32 = 2;
const NO_ID: u32 = 1;
/// That of what tells the provider what is on the disk here.
const ACKNOWLEDGE_ID: u32 = 4;

/// A consumer.
pub(super) struct Link<E: Engine> {
    directory: Directory<E>,
    committed: Committed,
    agreement: Agreement,
    board: Board,
    stopped: watch::Receiver<bool>,
    /// Whether the next refresh begins without a cookie.
    starts_over: bool,
    acknowledging: Acknowledging,
    /// The cookie of the last commit, if the provider was not told of it.
    committed_cookie: Option<Vec<u8>>,
}

/// Whether the provider of the connection is told what is on the disk here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acknowledging {
    /// It may be told.
    Ready,
    /// It has not answered yet.
    Sent,
    /// It does not want to know, or is no Sapwood.
    Refused,
}

/// Why a search has ended.
enum End {
    /// The server stops, or the agreement has gone.
    Stopped,
    /// All was told.
    Complete,
    Trouble(Trouble),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> End {
        End::Trouble(trouble)
    }
}

impl From<sapwood_client::Error> for Trouble {
    fn from(error: sapwood_client::Error) -> Trouble {
        Trouble::Failed(error.to_string())
    }
}

impl From<sapwood_client::Error> for End {
    fn from(error: sapwood_client::Error) -> End {
        End::Trouble(error.into())
    }
}

impl From<sapwood_directory::Error> for End {
    fn from(error: sapwood_directory::Error) -> End {
        End::Trouble(Trouble::Failed(format!("this directory: {error}")))
    }
}

impl<E: Engine> Link<E> {
    pub(super) fn new(
        directory: Directory<E>,
        committed: Committed,
        agreement: Agreement,
        board: Board,
        stopped: watch::Receiver<bool>,
    ) -> Link<E> {
        Link {
            directory,
            committed,
            agreement,
            board,
            stopped,
            starts_over: false,
            acknowledging: Acknowledging::Ready,
            committed_cookie: None,
        }
    }

    /// Follows the provider until it is stopped.
    pub(super) async fn run(&mut self) {
        let mut failures = 0;
        loop {
            let rest = match self.follow(&mut failures).await {
                End::Stopped => return,
                End::Complete => {
                    failures = 0;
                    self.board
                        .say(|status| status.state = ConsumerState::Resting);
                    Duration::from_secs(self.agreement.interval.into())
                }
                End::Trouble(trouble) => {
                    let rid = self.agreement.rid;
                    tracing::warn!("agreement {rid:03}: {trouble}. This is tried again");
                    self.board.say(|status| {
                        status.state = ConsumerState::Failing;
                        status.last_error = trouble.to_string();
                    });
                    let wait = wait(&self.agreement.retry, failures);
                    failures = failures.saturating_add(1);
                    match wait {
                        Some(wait) => wait,
                        None => {
                            tracing::error!("agreement {rid:03}: given up, as 'retry' says");
                            let _ = self.stopped.wait_for(|stop| *stop).await;
                            return;
                        }
                    }
                }
            };
            if self.or_stopped(sleep(rest)).await.is_none() {
                return;
            }
        }
    }

    /// What comes of something, unless this is stopped before.
    async fn or_stopped<T>(&mut self, done: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // An error means that nobody is there any more, which is a stop as well.
            _ = self.stopped.wait_for(|stop| *stop) => None,
            done = done => Some(done),
        }
    }

    /// Connects, and follows as long as that lasts.
    async fn follow(&mut self, failures: &mut usize) -> End {
        match self.search(failures).await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn search(&mut self, failures: &mut usize) -> Result<End, End> {
        self.board
            .say(|status| status.state = ConsumerState::Connecting);
        let cookie = self.directory.newest_cookie(self.agreement.rid)?;
        let cookie = cookie.filter(|_| !self.starts_over);
        self.starts_over = false;
        let had_cookie = cookie.is_some();
        if let Some(cookie) = &cookie {
            let told = String::from_utf8_lossy(cookie).into_owned();
            self.board.say(|status| status.cookie = told);
        }
        let agreement = self.agreement.clone();
        let connecting = timeout(
            Duration::from_secs(CONNECT_SECONDS_MAX),
            connect(&agreement),
        );
        let Some(connected) = self.or_stopped(connecting).await else {
            return Ok(End::Stopped);
        };
        let mut connection = connected.map_err(|_| {
            Trouble::Failed(format!(
                "{} has not answered within {CONNECT_SECONDS_MAX} s",
                agreement.provider
            ))
        })??;
        self.acknowledging = Acknowledging::Ready;
        self.committed_cookie.clone_from(&cookie);
        let message = request(&agreement, cookie.as_deref());
        connection.send(&message).await?;
        self.board
            .say(|status| status.state = ConsumerState::Refreshing);
        let is_whole = self.directory.is_naming_context(&agreement.base)?;
        if !is_whole {
            // Who has a part has not what clients of the provider change.
            self.acknowledging = Acknowledging::Refused;
        }
        let mut machine = Machine::new(agreement.rid, is_whole, cookie.as_deref());
        if agreement.multi_provider {
            if self.directory.options().replica == 0 {
                let why = "updates that are made here have no number: 'sapwood replica enable' this server first";
                return Err(Trouble::Failed(why.into()).into());
            }
            machine = machine.weighed(agreement.resolution);
        }
        let followed = self.steps(&mut connection, &mut machine, failures).await;
        if let Err(End::Trouble(Trouble::StartOver(_))) = &followed {
            self.starts_over = had_cookie;
        }
        followed
    }

    async fn steps(
        &mut self,
        connection: &mut Connection,
        machine: &mut Machine,
        failures: &mut usize,
    ) -> Result<End, End> {
        let requester = Requester::replica(self.agreement.bind_dn.clone());
        let mut named = NamedEntries::default();
        loop {
            // What has come is taken before anything is applied, so that bundles are long where much comes.
            let at_hand = match connection.received()? {
                Some(bytes) => {
                    self.take(machine, bytes)?;
                    true
                }
                None => false,
            };
            loop {
                match machine.next(at_hand)? {
                    Step::Receive => break,
                    Step::Apply(changes) => {
                        if *self.stopped.borrow() {
                            return Ok(End::Stopped);
                        }
                        self.apply(machine, &requester, *changes)?;
                    }
                    Step::Name(uuids) => {
                        machine.named(self.directory.name_entries(&mut named, &uuids)?);
                    }
                    Step::FindOthers => {
                        let base = &self.agreement.base;
                        let has = machine.provider_has();
                        let has = self.agreement.multi_provider.then_some(has);
                        let others = self.directory.entries_not_named(&named, base, has)?;
                        machine.not_named(others);
                        named = NamedEntries::default();
                    }
                    Step::End => {
                        self.is_complete();
                        if self.agreement.persists {
                            let why = "the provider does not go on with what changes";
                            return Err(Trouble::Failed(why.into()).into());
                        }
                        return Ok(End::Complete);
                    }
                }
            }
            if at_hand {
                continue;
            }
            if machine.stage() == Stage::Persist {
                *failures = 0;
                self.is_complete();
                self.board
                    .say(|status| status.state = ConsumerState::Following);
                self.acknowledge(connection).await?;
            }
            let silence = Duration::from_secs(SILENCE_SECONDS);
            let Some(received) = self
                .or_stopped(timeout(silence, connection.receive()))
                .await
            else {
                return Ok(End::Stopped);
            };
            match received {
                Ok(bytes) => self.take(machine, bytes?)?,
                Err(_) => {
                    let mut nothing = Vec::new();
                    Message {
                        id: SEARCH_ID + 1,
                        op: Request::Abandon(NO_ID),
                        controls: ControlsBuf::default().view(),
                    }
                    .encode(&mut nothing);
                    connection.send(&nothing).await?;
                }
            }
        }
    }

    /// Makes changes, and waits until they are on the disk.
    fn apply(
        &mut self,
        machine: &mut Machine,
        requester: &std::sync::Arc<Requester>,
        changes: Replicated,
    ) -> Result<(), End> {
        // It ends soon after its agreement does. Until then nothing overwrites what clients update by now.
        let is_agreed = |agreements: &[Agreement]| agreements.contains(&self.agreement);
        if !(self.directory).ask_settings(|settings| is_agreed(&settings.agreements))? {
            return Err(Trouble::Failed("the agreement has ended or changed".into()).into());
        }
        let updates = [Update {
            requester: requester.clone(),
            request: UpdateRequest::Replicated(Box::new(changes)),
        }];
        let mut applied = self.directory.apply(&updates)?;
        if let Some(ticket) = applied.ticket {
            ticket.wait().map_err(sapwood_directory::Error::from)?;
            self.committed.announce();
        }
        let outcome = applied
            .outcomes
            .pop()
            .unwrap_or(sapwood_directory::Outcome::SUCCESS);
        let [
            Update {
                request: UpdateRequest::Replicated(changes),
                ..
            },
        ] = updates
        else {
            return Ok(());
        };
        if outcome.code.is_success() {
            let count = changes.changes.len() as u64;
            let position = changes.position.as_ref();
            let cookie = position.and_then(|position| position.cookie.clone());
            if cookie.is_some() {
                self.committed_cookie.clone_from(&cookie);
            }
            self.board.say(|status| {
                status.changes += count;
                if let Some(cookie) = cookie {
                    status.cookie = String::from_utf8_lossy(&cookie).into_owned();
                }
            });
        }
        machine.applied(*changes, &outcome)?;
        Ok(())
    }

    /// Tells the provider what is on the disk here, unless it is told already or does not want to know. While its
    /// answer is awaited what comes is gathered.
    async fn acknowledge(&mut self, connection: &mut Connection) -> Result<(), End> {
        if self.acknowledging != Acknowledging::Ready {
            return Ok(());
        }
        let Some(cookie) = self.committed_cookie.take() else {
            return Ok(());
        };
        let (mut value, mut message) = (Vec::new(), Vec::new());
        Acknowledge {
            replica: self.directory.options().replica,
            cookie: &cookie,
        }
        .encode(&mut value);
        Message {
            id: ACKNOWLEDGE_ID,
            op: Request::Extended(ExtendedRequest {
                name: ACKNOWLEDGE,
                value: Some(&value),
            }),
            controls: ControlsBuf::default().view(),
        }
        .encode(&mut message);
        self.acknowledging = Acknowledging::Sent;
        Ok(connection.send(&message).await?)
    }

    /// Hands a message of the search to the machine. Others, such as an unsolicited notification, end the connection by
    /// themselves, or mean nothing.
    fn take(&mut self, machine: &mut Machine, bytes: &[u8]) -> Result<(), End> {
        let message = ResponseMessage::decode(bytes).map_err(|error| {
            Trouble::Failed(format!(
                "what the provider sends is no LDAP message: {error}"
            ))
        })?;
        match message.id {
            SEARCH_ID => machine.take(&message)?,
            ACKNOWLEDGE_ID => {
                let result = message.op.result();
                self.acknowledging = match result.map(|result| result.code) {
                    Some(ResultCode::Success) => Acknowledging::Ready,
                    _ => Acknowledging::Refused,
                };
            }
            _ => {}
        }
        Ok(())
    }

    fn is_complete(&self) {
        self.board.say(|status| {
            status.complete_at = Some(SystemTime::now());
            status.last_error.clear();
        });
    }
}

/// Connects to a provider, and binds there.
pub(crate) async fn connect(agreement: &Agreement) -> Result<Connection, Trouble> {
    let trust = match (&agreement.fingerprint, &agreement.authorities) {
        (Some(fingerprint), _) => Trust::fingerprint(fingerprint)?,
        (None, Some(file)) => Trust::authorities(Path::new(file))?,
        (None, None) => Trust::Nobody,
    };
    let options = Options {
        trust,
        start_tls: agreement.start_tls,
        message_bytes_max: MESSAGE_BYTES_MAX,
    };
    let password = password(&agreement.password)?;
    let mut connection = Connection::open(&agreement.provider, &options).await?;
    if !agreement.bind_dn.is_empty() {
        connection.bind(&agreement.bind_dn, &password).await?;
    }
    Ok(connection)
}

/// The password of an agreement.
fn password(password: &AgreementPassword) -> Result<Vec<u8>, Trouble> {
    let path = match password {
        AgreementPassword::None => return Ok(Vec::new()),
        AgreementPassword::Text(text) => return Ok(text.clone().into_bytes()),
        AgreementPassword::File(path) => path,
    };
    let read = || {
        use std::io::Read as _;
        let mut text = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(PASSWORD_BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    let text =
        read().map_err(|error: std::io::Error| Trouble::Failed(format!("{path}: {error}")))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
}

/// The search that asks for what has changed since a cookie.
fn request(agreement: &Agreement, cookie: Option<&[u8]>) -> Vec<u8> {
    let first = format!("rid={:03}", agreement.rid);
    let mut value = Vec::new();
    SyncRequest {
        mode: match agreement.persists {
            true => SyncMode::RefreshAndPersist,
            false => SyncMode::RefreshOnly,
        },
        cookie: Some(cookie.unwrap_or(first.as_bytes())),
        reload_hint: false,
    }
    .encode(&mut value);
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: SYNC_REQUEST,
        critical: true,
        value: Some(&value),
    });
    controls.push(Control {
        oid: MANAGE_DSA_IT,
        critical: false,
        value: None,
    });
    let mut attributes = OctetStringsBuf::from_iter(["*", "+"]);
    if agreement.multi_provider {
        attributes.push(b"parentUUID");
        attributes.push(b"entryRegisters");
    }
    let mut message = Vec::new();
    // The text is one of a filter.
    if let Ok(filter) = filter_text::parse("(objectClass=*)") {
        let search = SearchRequest {
            attributes: attributes.view(),
            ..SearchRequest::new(&agreement.base, Scope::Subtree, filter.as_filter())
        };
        Message {
            id: SEARCH_ID,
            op: Request::Search(search),
            controls: controls.view(),
        }
        .encode(&mut message);
    }
    message
}

/// How long to wait after so many failures before this one; none to give up. A little less than is asked for, by
/// chance, so that many consumers of a provider do not come at once.
fn wait(retry: &[(u32, u32)], failures: usize) -> Option<Duration> {
    let mut before = 0;
    let due = retry.iter().find(|(_, tries)| {
        before += *tries as usize;
        *tries == 0 || failures < before
    });
    let (seconds, _) = due?;
    let millis = u64::from(*seconds) * 1000;
    let chance = RandomState::new().build_hasher().finish();
    Some(Duration::from_millis(millis - chance % (millis / 4 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_again_as_the_agreement_says() {
        let retry = [(4, 2), (60, 1)];
        for (failures, seconds) in [(0, Some(4)), (1, Some(4)), (2, Some(60)), (3, None)] {
            let wait = wait(&retry, failures);
            assert_eq!(wait.is_some(), seconds.is_some());
            if let (Some(wait), Some(seconds)) = (wait, seconds) {
                assert!(wait <= Duration::from_secs(seconds));
                assert!(wait >= Duration::from_secs(seconds) * 3 / 4);
            }
        }
        assert!(wait(&[(1, 0)], usize::MAX).is_some());
    }
}
