//! The running server: its listeners, the threads that serve connections, starting and stopping.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::{Directory, Needs, Offered, RootDse};
use sapwood_ldap::controls::KnownControl;
use sapwood_ldap::extended::LBURP_INCREMENTAL;
use sapwood_ldap::result::ResultCode;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use crate::account_keeper::AccountKeeper;
use crate::acknowledgements::Acknowledgements;
use crate::admission::{Full, Newcomer};
use crate::auth;
use crate::closing::Reason;
use crate::committed::CommitWaiter;
use crate::config::{Config, Flags, Reloaded, Replication};
use crate::connection::{self, OpenSessions};
use crate::consumer::{ConsumerStatus, Consumers};
use crate::dispatch::{Dispatch, Handed, Loads, Place};
use crate::endpoint::Endpoint;
use crate::expiry::Expiry;
use crate::extensions;
use crate::index_builder::IndexBuilder;
use crate::journal::{JournalError, Journals};
use crate::listen::{self, ListenUrl};
use crate::password::HasherPool;
use crate::peer::Peer;
use crate::processors::Processors;
use crate::proxy_protocol;
use crate::session::{Parts, Service, extended, notice_of_disconnection};
use crate::settings::{Settings, SettingsError, tls_files};
use crate::slices;
use crate::stream::{Detached, Stream};
use crate::tls::watch::CertificateWatcher;
use crate::tls::{self, Stamps, Tls};
use crate::workers::Workers;
use crate::writer::{Writer, WriterThreads};

/// Seconds that connections have when the server stops, to finish updates under way and to take their last answers.
pub const STOP_SECONDS_MAX: u64 = 10;
/// So many threads serve connections at least where there is less memory than data: most of them wait for the disk.
const THREADS_WAITING: usize = 16;
/// One thread makes long requests ready for so many that serve connections, and one more those that are not much longer
/// than others: all of them get half of the processors at most while short ones want the rest.
const PREPARER_PART: usize = 2;
/// So many newcomers who are not served at once are met before those who are connected have their turn.
const NEWCOMERS_MAX: u64 = 32;
/// Connections of proxies that one thread waits for to be told whose they are.
const HEADERS_MAX: usize = 256;
/// Milliseconds without accepting after the system refused a connection, as for lack of file descriptors.
const ACCEPT_PAUSE_MS: u64 = 50;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Certificate or key.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {url}: {source}{}", hint(source))]
    Listen {
        /// The address.
        url: ListenUrl,
        /// What the system says.
        source: io::Error,
    },
    /// A journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need root or CAP_NET_BIND_SERVICE; try --listen ldap://127.0.0.1:3890)"
        }
        io::ErrorKind::AddrInUse => " (is another server running?)",
        _ => "",
    }
}

/// What the root DSE says about a server with this configuration, for [`sapwood_directory::Options`].
#[must_use]
pub fn root_dse(version: &str, config: &Config) -> RootDse {
    let controls = KnownControl::ALL.iter().flat_map(|known| {
        let needs = extensions::of_control(*known).map(Needs::Extension);
        known
            .oids()
            .iter()
            .map(move |oid| Offered::everywhere(oid, needs))
    });
    // Their names are the same on every engine.
    let operations = extended::all::<Embedded>().flat_map(|operation| {
        let names = [Some(operation.oid), operation.response];
        let offered = |name: &str| Offered {
            name: name.to_owned(),
            works_on: operation.works_on,
            needs: operation.needs,
        };
        names.into_iter().flatten().map(offered)
    });
    let set_up = auth::MECHANISMS
        .iter()
        .filter(|mechanism| (mechanism.is_set_up)(config));
    let mechanisms = set_up.map(|mechanism| Offered {
        name: mechanism.name.to_owned(),
        works_on: mechanism.works_on,
        needs: None,
    });
    let features = FEATURES.iter().map(|oid| (*oid, None));
    let own_features = extensions::FEATURES.iter();
    let features = features
        .chain(own_features.map(|(oid, extension)| (*oid, Some(Needs::Extension(*extension)))));
    RootDse {
        controls: controls.collect(),
        extensions: operations.collect(),
        features: features
            .map(|(oid, needs)| Offered::everywhere(oid, needs))
            .collect(),
        sasl_mechanisms: mechanisms.collect(),
        vendor_version: version.to_owned(),
    }
}

/// All operational attributes (RFC 3673), attributes by object class (RFC 4529), true and false filters (RFC 4526),
/// language tags and ranges (RFC 3866), modify-increment (RFC 4525), LBURP's incremental update style (RFC 4373).
const FEATURES: &[&str] = &[
    "1.3.6.1.4.1.4203.1.5.1",
    "1.3.6.1.4.1.4203.1.5.2",
    "1.3.6.1.4.1.4203.1.5.3",
    "1.3.6.1.4.1.4203.1.5.4",
    "1.3.6.1.4.1.4203.1.5.5",
    "1.3.6.1.1.14",
    LBURP_INCREMENTAL,
];

/// A server that is running. Dropping it stops it.
pub struct Server<E: Engine = Embedded> {
    urls: Vec<ListenUrl>,
    service: Option<Arc<Service<E>>>,
    loads: Arc<Loads>,
    stop: watch::Sender<bool>,
    runtimes: Vec<JoinHandle<()>>,
    writer: Option<WriterThreads>,
    index_builder: Option<IndexBuilder>,
    expiry: Option<Expiry>,
    account_keeper: Option<AccountKeeper>,
    consumers: Option<Consumers>,
    certificate_watcher: Option<CertificateWatcher>,
    journals: Journals,
    /// Socket files to remove at the end.
    socket_files: Vec<PathBuf>,
}

/// A listener before it belongs to a runtime.
enum Listener {
    Tcp(std::net::TcpListener, Arc<Endpoint>),
    Local(std::os::unix::net::UnixListener, Arc<Endpoint>),
}

/// A connection that one thread has accepted and another is to serve.
struct Accepted {
    stream: Detached,
    newcomer: Newcomer,
    peer: Peer,
    endpoint: Arc<Endpoint>,
}

impl<E: Engine> Server<E> {
    /// Starts serving the directory of `folder` with its configuration; `flags` win over it.
    ///
    /// # Errors
    /// When the configuration cannot be used or an address cannot be listened on. Nothing is left running.
    pub fn start(
        folder: &Path,
        directory: Directory<E>,
        mut config: Config,
        flags: Flags,
    ) -> Result<Self, StartError> {
        flags.override_in(&mut config);
        let settings = Settings::new(folder, config.clone(), &directory.schema())?;
        let files = tls_files(folder, &config);
        let mut urls = config.listen.iter().map(|listener| &listener.url);
        let wants_tls = urls.any(|url| matches!(url, ListenUrl::Ldaps(..)));
        let mut stamps = Stamps::of(&files);
        let tls = if wants_tls || files.cert.exists() || files.key.exists() {
            Some(Tls::load(&files)?)
        } else {
            None
        };
        let threads = match config.threads {
            0 => {
                let cores = thread::available_parallelism().map_or(1, usize::from);
                let waiting = directory.exceeds_memory().then_some(THREADS_WAITING);
                cores.max(waiting.unwrap_or_default())
            }
            threads => threads,
        };

        let mut urls = Vec::new();
        let mut socket_files = Vec::new();
        let mut listeners: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
        for address in &config.listen {
            let bound = bind(address, &mut listeners, &mut socket_files);
            urls.push(bound.map_err(|source| StartError::Listen {
                url: address.url.clone(),
                source,
            })?);
        }
        let journals = Journals::start(config.log.journals(folder))?;
        let askers = match config.passwords.saslauthd() {
            Some(_) => config.limits.saslauthd_max.max(1),
            None => 0,
        };
        let hashers = HasherPool::start(config.limits.hashers_max, askers)?;
        let preparers = threads.div_ceil(PREPARER_PART);
        let preparers = Workers::start("preparer", preparers, preparers)?;
        let Replication {
            acknowledge_peers,
            acknowledge_seconds,
            ..
        } = config.replication;
        let acknowledgements = Acknowledgements::new(acknowledge_peers, acknowledge_seconds);
        let (writer, writer_threads) = Writer::start(directory.clone(), acknowledgements)?;
        let index_builder = IndexBuilder::start(directory.clone(), writer.committed().clone())?;
        let expiry = Expiry::start(directory.clone(), writer.committed().clone())?;
        let account_keeper = AccountKeeper::start(directory.clone())?;
        let consumers = Consumers::start(directory.clone(), writer.committed().clone())?;
        let folder = folder.to_owned();
        let service = Arc::new(Service::new(Parts {
            folder,
            directory,
            writer,
            hashers,
            preparers,
            tls,
            journals: journals.writers(),
            settings,
            flags,
        }));
        let certificate_watcher = match &service.tls {
            Some(_) => {
                let service = Arc::clone(&service);
                let look = move || service.renew_certificates(&mut stamps);
                Some(CertificateWatcher::start(look)?)
            }
            None => None,
        };
        let (stop, stopping) = watch::channel(false);
        let loads = Loads::new(threads);
        let dispatches = Dispatch::of_threads(&loads);
        let mut server = Self {
            urls,
            service: Some(Arc::clone(&service)),
            loads,
            stop,
            runtimes: Vec::new(),
            writer: Some(writer_threads),
            index_builder: Some(index_builder),
            expiry: Some(expiry),
            account_keeper: Some(account_keeper),
            consumers: Some(consumers),
            certificate_watcher,
            journals,
            socket_files,
        };
        let seats = Processors::seats(threads);
        for (index, ((listeners, (dispatch, handed)), seat)) in
            listeners.into_iter().zip(dispatches).zip(seats).enumerate()
        {
            let (service, stopping) = (Arc::clone(&service), stopping.clone());
            let sleeper = seat.clone();
            let runtime = runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .on_thread_park(move || sleeper.sleep())
                .build()?;
            let serve = move || {
                slices::shorten();
                seat.take();
                let sessions = Sessions {
                    service,
                    open: OpenSessions::new(seat),
                    dispatch,
                    headers: Arc::new(Semaphore::new(HEADERS_MAX)),
                };
                LocalSet::new().block_on(&runtime, run(sessions, listeners, handed, stopping));
            };
            server.runtimes.push(
                thread::Builder::new()
                    .name(format!("sessions-{index}"))
                    .spawn(serve)?,
            );
        }
        Ok(server)
    }

    /// Where it listens, with the ports that were found.
    #[must_use]
    pub fn urls(&self) -> &[ListenUrl] {
        &self.urls
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.service
            .as_ref()
            .map_or(0, |service| service.connections.count())
    }

    /// Connections now of each thread that serves them.
    #[must_use]
    pub fn connections_of_threads(&self) -> Vec<usize> {
        self.loads.connections()
    }

    /// Waits for commits to the directory; `None` when the server has stopped.
    #[must_use]
    pub fn commits(&self) -> Option<CommitWaiter<E>> {
        let service = self.service.as_ref()?;
        Some(service.writer.committed().waiter(&service.directory))
    }

    /// What each consumer of other servers is doing, by the numbers of their agreements.
    #[must_use]
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        self.consumers
            .as_ref()
            .map_or_else(Vec::new, Consumers::statuses)
    }

    /// The administrator's DN; empty when the server has stopped.
    pub fn administrator(&self) -> String {
        let settings = self.service.as_ref().map(|service| service.settings());
        settings.map_or(String::new(), |settings| settings.config.admin.dn.clone())
    }

    /// Reads configuration and certificates again. On an error everything stays as it was.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn reload(&self) -> Result<Reloaded, SettingsError> {
        match &self.service {
            Some(service) => service.reload(),
            None => Ok(Reloaded::default()),
        }
    }

    /// Stops: no new connections, updates under way are finished (within [`STOP_SECONDS_MAX`]) and answered, searches
    /// end with `unavailable`, each client gets a Notice of Disconnection, and every update that was taken is on the
    /// disk when this returns.
    pub fn stop(self) {
        drop(self);
    }
}

impl<E: Engine> Drop for Server<E> {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.consumers = None;
        self.journals.give_up();
        for runtime in self.runtimes.drain(..) {
            let _ = runtime.join();
        }
        self.index_builder = None;
        self.expiry = None;
        self.certificate_watcher = None;
        // Nobody binds any more.
        self.account_keeper = None;
        // The last writer goes with the service.
        self.service = None;
        if let Some(writer) = self.writer.take() {
            writer.join();
        }
        for path in &self.socket_files {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens the listeners of one address, one for each runtime. Returns the address with its port filled in.
fn bind(
    configured: &listen::Listener,
    listeners: &mut [Vec<Listener>],
    socket_files: &mut Vec<PathBuf>,
) -> io::Result<ListenUrl> {
    let (host, port, is_first) = match &configured.url {
        ListenUrl::Ldap(host, port) => (host, *port, false),
        ListenUrl::Ldaps(host, port) => (host, *port, true),
        ListenUrl::Ldapi(path) => {
            // Anybody may connect, as with TCP; who they are the kernel tells.
            let socket = bind_local(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
            socket_files.push(path.clone());
            let endpoint = Endpoint::local(path, &configured.url);
            for listeners in listeners {
                listeners.push(Listener::Local(socket.try_clone()?, Arc::clone(&endpoint)));
            }
            return Ok(configured.url.clone());
        }
    };
    let (address, first) = listen::claim(listen::resolve(host, port)?)?;
    let (host, port) = (host.clone(), address.port());
    let url = if is_first {
        ListenUrl::Ldaps(host, port)
    } else {
        ListenUrl::Ldap(host, port)
    };
    let endpoint = Endpoint::tcp(configured, address, &url);
    let mut first = Some(first);
    for listeners in listeners {
        let listener = first.take().map_or_else(|| listen::share(address), Ok)?;
        listeners.push(Listener::Tcp(listener, Arc::clone(&endpoint)));
    }
    Ok(url)
}

/// Listens on a socket file. One that no server listens on any more is replaced.
pub(crate) fn bind_local(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::net::{UnixListener, UnixStream};
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The sessions of one thread.
struct Sessions<E: Engine> {
    service: Arc<Service<E>>,
    open: OpenSessions<E>,
    dispatch: Dispatch<Accepted>,
    /// A permit for each connection whose proxy is to say for whom it is.
    headers: Arc<Semaphore>,
}

impl<E: Engine> Clone for Sessions<E> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            open: self.open.clone(),
            dispatch: self.dispatch.clone(),
            headers: Arc::clone(&self.headers),
        }
    }
}

/// One runtime: accepts and serves connections until the server stops. Hundreds may wait in the kernel's queue, and to
/// begin a connection takes longer than a request. So those who are connected have a turn before each newcomer who is
/// served, and newcomers overtake those of addresses with many connections.
async fn run<E: Engine>(
    sessions: Sessions<E>,
    listeners: Vec<Listener>,
    handed: Handed<Accepted>,
    mut stopping: watch::Receiver<bool>,
) {
    let open = sessions.open.clone();
    let mut taking = vec![tokio::task::spawn_local(take(sessions.clone(), handed))];
    taking.extend(
        listeners
            .into_iter()
            .map(|listener| tokio::task::spawn_local(accept(sessions.clone(), listener))),
    );
    drop(sessions);
    // An error means that the server was dropped, which is a stop as well.
    let _ = stopping.wait_for(|&stop| stop).await;
    taking.iter().for_each(tokio::task::JoinHandle::abort);
    open.stop();
    let deadline = Instant::now() + Duration::from_secs(STOP_SECONDS_MAX);
    while !open.is_empty() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Serves what this thread and others hand over. Many of an address with many connections may have left while they
/// waited, or be refused by a full server.
async fn take<E: Engine>(sessions: Sessions<E>, mut handed: Handed<Accepted>) {
    let mut not_served = 0;
    loop {
        let (accepted, place) = handed.next().await;
        let Accepted {
            stream,
            newcomer,
            peer,
            endpoint,
        } = accepted;
        let is_served = match newcomer.is_of_many && has_left(&stream) {
            true => false,
            false => match stream.attach() {
                Ok(stream) => sessions.begin(stream, newcomer, peer, endpoint, place),
                Err(error) => {
                    tracing::warn!(%peer, "a connection failed: {error}");
                    false
                }
            },
        };
        not_served = end_turn(not_served, is_served).await;
    }
}

async fn accept<E: Engine>(sessions: Sessions<E>, listener: Listener) {
    let result = match listener {
        Listener::Tcp(listener, endpoint) => accept_tcp(sessions, listener, endpoint).await,
        Listener::Local(listener, endpoint) => accept_local(sessions, listener, endpoint).await,
    };
    if let Err(error) = result {
        tracing::error!("a listener failed: {error}");
    }
}

async fn accept_tcp<E: Engine>(
    sessions: Sessions<E>,
    listener: std::net::TcpListener,
    endpoint: Arc<Endpoint>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut not_served = 0;
    loop {
        let is_served = match listener.accept().await {
            Ok((stream, _)) if has_left(&stream) => false,
            Ok((stream, address)) => {
                // Answers are written in one piece: waiting for more would only delay them.
                let _ = stream.set_nodelay(true);
                match endpoint.is_proxy(address.ip()) {
                    true => sessions.meet_proxy(stream, address, Arc::clone(&endpoint)),
                    false => {
                        let peer = Peer::Tcp(address);
                        sessions.meet(Stream::Tcp(stream), peer, Arc::clone(&endpoint))
                    }
                }
            }
            Err(error) => {
                pause(&error).await;
                false
            }
        };
        not_served = end_turn(not_served, is_served).await;
    }
}

async fn accept_local<E: Engine>(
    sessions: Sessions<E>,
    listener: std::os::unix::net::UnixListener,
    endpoint: Arc<Endpoint>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let mut not_served = 0;
    loop {
        let is_served = match listener.accept().await {
            Ok((stream, _)) if has_left(&stream) => false,
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) => {
                    let (uid, gid) = (peer.uid(), peer.gid());
                    let peer = Peer::Local { uid, gid };
                    sessions.meet(Stream::Local(stream), peer, Arc::clone(&endpoint))
                }
                Err(error) => {
                    tracing::warn!("a local peer without credentials: {error}");
                    false
                }
            },
            Err(error) => {
                pause(&error).await;
                false
            }
        };
        not_served = end_turn(not_served, is_served).await;
    }
}

/// Whether the peer has closed its connection already. To find out later costs many times as much, and a client that
/// connects and leaves as fast as it can has hundreds of such connections in the kernel's queue.
fn has_left(stream: impl AsFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(stream, &mut [0_u8], flags) {
        Ok((_, length)) => length == 0,
        Err(error) => error == Errno::CONNRESET,
    }
}

/// Ends a turn with a newcomer who is served, or with as many who are not as there may be in one. Returns how many of
/// them there were in this one.
async fn end_turn(not_served: u64, is_served: bool) -> u64 {
    if !is_served && not_served + 1 < NEWCOMERS_MAX {
        return not_served + 1;
    }
    tokio::task::yield_now().await;
    0
}

impl<E: Engine> Sessions<E> {
    /// Serves a new connection on this thread, or hands it over to one that has fewer. Returns whether this thread
    /// serves it now.
    fn meet(&self, stream: Stream, peer: Peer, endpoint: Arc<Endpoint>) -> bool {
        let count_max = self.service.settings().config.limits.connections_max;
        let newcomer = self.service.connections.newcomer(&peer, count_max);
        let place = self.dispatch.place();
        let is_of_many = newcomer.is_of_many;
        if self.dispatch.is_own(&place) && !is_of_many {
            return self.begin(stream, newcomer, peer, endpoint, place);
        }
        let stream = match stream.detach() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%peer, "a connection failed: {error}");
                return false;
            }
        };
        let origin = peer.origin();
        let accepted = Accepted {
            stream,
            newcomer,
            peer,
            endpoint,
        };
        if !is_of_many {
            self.dispatch.hand_over(accepted, place);
        } else if let Some(other) = self.dispatch.hand_over_of_many(accepted, place, origin) {
            let why = "too many connections of addresses with many wait to be served";
            self.refuse(other.stream, &other.peer, &other.endpoint, why);
        }
        false
    }

    /// Meets a connection as soon as its proxy has said for whom it is. Until then it is none of those that are
    /// counted, and so there are not many at once: a proxy says it with its first bytes.
    fn meet_proxy(
        &self,
        mut stream: TcpStream,
        proxy: SocketAddr,
        endpoint: Arc<Endpoint>,
    ) -> bool {
        let close = move |sessions: &Self, why: &str| {
            let close_log = &sessions.service.close_log;
            close_log.log(Reason::Handshake, &Peer::Tcp(proxy), why);
        };
        let Ok(permit) = Arc::clone(&self.headers).try_acquire_owned() else {
            close(
                self,
                "too many connections of proxies have not said whose they are",
            );
            return false;
        };
        let sessions = self.clone();
        tokio::task::spawn_local(async move {
            let seconds = sessions
                .service
                .settings()
                .config
                .limits
                .handshake_seconds_max;
            let read = proxy_protocol::read(&mut stream);
            let told = timeout(Duration::from_secs(seconds), read).await;
            drop(permit);
            match told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(client) => {
                    let proxied = |client| Peer::Proxied {
                        client,
                        proxy: proxy.ip(),
                    };
                    let peer = client.map_or(Peer::Tcp(proxy), proxied);
                    sessions.meet(Stream::Tcp(stream), peer, endpoint);
                }
                Err(error) => {
                    let why = format!("no header of the PROXY protocol came: {error}");
                    close(&sessions, &why);
                }
            }
        });
        true
    }

    /// Serves a connection on this thread, or returns false where there is no place for it.
    fn begin(
        &self,
        stream: Stream,
        newcomer: Newcomer,
        peer: Peer,
        endpoint: Arc<Endpoint>,
        place: Place,
    ) -> bool {
        let admission = newcomer.admit();
        if matches!(admission, Err(Full::NoneWaits)) {
            self.refuse_full(stream, &peer, &endpoint);
            return false;
        }
        let sessions = self.clone();
        tokio::task::spawn_local(async move {
            let admission = match admission {
                Err(_) => newcomer.wait().await,
                admitted => admitted,
            };
            drop(newcomer);
            let Ok(admission) = admission else {
                return sessions.refuse_full(stream, &peer, &endpoint);
            };
            let Sessions { service, open, .. } = sessions;
            connection::serve(service, admission, stream, peer, endpoint, open).await;
            drop(place);
        });
        true
    }

    fn refuse_full(&self, stream: Stream, peer: &Peer, endpoint: &Endpoint) {
        let count_max = self.service.settings().config.limits.connections_max;
        let why = format!(
            "{count_max} connections are open (limits.connections_max), and none of them can make room"
        );
        match stream.detach() {
            Ok(stream) => self.refuse(stream, peer, endpoint, &why),
            Err(error) => tracing::warn!(%peer, "a connection failed: {error}"),
        }
    }

    /// Closes a connection for which there is no place.
    fn refuse(&self, stream: Detached, peer: &Peer, endpoint: &Endpoint, why: &str) {
        self.service.close_log.log(Reason::Full, peer, why);
        if !endpoint.tls_use.is_first {
            let mut notice = Vec::new();
            notice_of_disconnection(&mut notice, ResultCode::Unavailable, why);
            stream.end_with(&notice);
        }
    }
}

async fn pause(error: &io::Error) {
    // What concerns the one connection that just went away is no reason to wait.
    if !matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    ) {
        tracing::warn!("cannot accept a connection: {error}");
        sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// A connection after its peer did something, as the one that accepts it sees it.
    fn accepted(peer_does: impl FnOnce(TcpStream)) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer_does(peer);
        listener.accept().unwrap().0
    }

    #[test]
    fn those_who_have_left_are_known_when_they_are_accepted() {
        assert!(has_left(accepted(drop)));
        let resets = |peer: TcpStream| {
            rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        };
        assert!(has_left(accepted(resets)));

        let mut kept = None;
        let stays = accepted(|peer| kept = Some(peer));
        assert!(!has_left(&stays));
        (&mut kept.as_ref().unwrap()).write_all(b"x").unwrap();
        assert!(!has_left(&stays));
        let asks_once = |mut peer: TcpStream| {
            peer.write_all(b"x").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            kept = Some(peer);
        };
        assert!(!has_left(accepted(asks_once)), "its request is answered");
    }
}
