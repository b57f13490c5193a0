//! A Sapwood server in the process of the test, on a scratch folder and free ports of the loopback interface.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::schema::Schema;
use sapwood_directory::{Clock, Directory, Options, Requester, Ticket, Update, UpdateRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_server::listen::ListenUrl;
use sapwood_server::{Config, Flags, Server, password, root_dse, tls};
use tempfile::TempDir;

use crate::directories::TestEngine;
use crate::{ADMIN, Client, PASSWORD, SUFFIX, requests};

/// Threads that serve connections, whatever machine it is.
pub const THREADS: usize = 3;

/// A server of the example directory, with the entry of the naming context. It ends with this value.
pub type TestServer = TestServerOn<Embedded>;

/// The same on another engine.
pub struct TestServerOn<E: Engine> {
    /// The server, until it is stopped.
    pub server: Option<Server<E>>,
    /// What it serves.
    pub directory: Directory<E>,
    /// Where its files are.
    pub folder: TempDir,
}

impl<E: TestEngine> TestServerOn<E> {
    /// A server with the default configuration, whose directory is on files.
    pub fn start() -> Self {
        Self::with("")
    }

    /// The same with more in its configuration: whole tables of TOML.
    pub fn with(config: &str) -> Self {
        Self::on(config, |path| {
            Embedded::open(path, &sapwood_store::Options::new().create(true)).unwrap()
        })
    }

    /// A server whose directory is on this engine, or on another one above it. It gets the path of a folder it may use.
    pub fn on(config: &str, engine: impl FnOnce(&Path) -> Embedded) -> Self {
        Self::of(&example(), config, engine)
    }

    /// A server that stores any password, as it may be there from before some were refused.
    pub fn with_any_passwords(config: &str) -> Self {
        let engine = |_: &Path| Embedded::in_memory().unwrap();
        Self::make(&example(), ("", config), engine, (false, None))
    }

    /// A server that listens where its configuration says, a line of TOML, on addresses of the same kinds as otherwise.
    pub fn listening(listen: &str, config: &str) -> Self {
        let engine = |_: &Path| Embedded::in_memory().unwrap();
        Self::make(&example(), (listen, config), engine, (true, None))
    }

    /// The same as [`on`](Self::on), of a directory that is defined so.
    pub fn of(
        contents: &sapwood_directory::Config,
        config: &str,
        engine: impl FnOnce(&Path) -> Embedded,
    ) -> Self {
        Self::make(contents, ("", config), engine, (true, None))
    }

    /// A server in memory with a clock of the test's, and with more in its configuration.
    pub fn at(clock: Arc<dyn Clock>, config: &str) -> Self {
        let engine = |_: &Path| Embedded::in_memory().unwrap();
        Self::make(&example(), ("", config), engine, (true, Some(clock)))
    }

    fn make(
        contents: &sapwood_directory::Config,
        (listen, config): (&str, &str),
        engine: impl FnOnce(&Path) -> Embedded,
        (checks_passwords, clock): (bool, Option<Arc<dyn Clock>>),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(
            path.join("sapwood.toml"),
            format!("threads = {THREADS}\n{listen}\n[admin]\ndn = '{ADMIN}'\n{config}"),
        )
        .unwrap();
        std::fs::write(
            path.join("admin.password"),
            password::hash(PASSWORD.as_bytes()),
        )
        .unwrap();
        tls::create_self_signed(&path.join("tls-cert.pem"), &path.join("tls-key.pem"), 2026)
            .unwrap();
        let mut options = Options::new(Schema::standard());
        if let Some(clock) = clock {
            options.clock = clock;
        }
        let config = Config::load(path).unwrap();
        options.root_dse = root_dse("test", &config);
        let limits = config.limits.passwords();
        let has_saslauthd = config.passwords.saslauthd().is_some();
        if checks_passwords {
            options.passwords = Some(Arc::new(password::Hasher {
                limits,
                has_saslauthd,
                ..password::Hasher::default()
            }));
        }
        let directory = Directory::create_on(
            E::from_embedded(engine(&path.join("data"))),
            contents,
            options,
        )
        .unwrap();
        let addresses = vec![
            "ldap://127.0.0.1:0".parse().unwrap(),
            "ldaps://127.0.0.1:0".parse().unwrap(),
            ListenUrl::Ldapi(path.join("ldapi.sock")),
        ];
        let is_configured = !listen.is_empty();
        let listen = if is_configured { Vec::new() } else { addresses };
        let server = Server::start(
            path,
            directory.clone(),
            config,
            Flags {
                listen,
                ..Flags::default()
            },
        )
        .unwrap();
        let this = Self {
            server: Some(server),
            directory,
            folder,
        };
        this.add(&[(SUFFIX, &[("objectClass", "domain"), ("dc", "example")])]);
        this
    }

    /// The port of the listener with this number.
    pub fn port(&self, index: usize) -> u16 {
        match &self.server.as_ref().unwrap().urls()[index] {
            ListenUrl::Ldap(_, port) | ListenUrl::Ldaps(_, port) => *port,
            ListenUrl::Ldapi(_) => panic!("no port"),
        }
    }

    /// A client over `ldap://`.
    pub fn connect(&self) -> Client {
        Client::new(self.tcp())
    }

    /// A client over `ldaps://`.
    pub fn connect_tls(&self) -> Client {
        Client::new(tls_client(
            TcpStream::connect(("127.0.0.1", self.port(1))).unwrap(),
        ))
    }

    /// A client over `ldapi://`.
    pub fn connect_local(&self) -> Client {
        Client::new(UnixStream::connect(self.path("ldapi.sock")).unwrap())
    }

    /// A connection to `ldap://`.
    pub fn tcp(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port(0))).unwrap()
    }

    /// A connection from an address of this machine to the listener with this number: 0 is `ldap://`, 1 is `ldaps://`.
    pub fn tcp_from(&self, address: [u8; 4], listener: usize) -> TcpStream {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((address, 0))).unwrap();
        let server = SocketAddr::from(([127, 0, 0, 1], self.port(listener)));
        connect(&socket, &server).unwrap();
        TcpStream::from(socket)
    }

    /// A connection bound as the administrator.
    pub fn admin(&self) -> Client {
        let mut client = self.connect();
        client.bind(ADMIN, PASSWORD).succeeded();
        client
    }

    /// Adds entries, not over a connection.
    pub fn add(&self, entries: &[(&str, &[(&str, &str)])]) {
        let entries = entries.iter();
        self.add_messages(entries.map(|(dn, attributes)| requests::add(1, dn, attributes)));
    }

    /// The same, of add requests.
    pub fn add_messages(&self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let requester = Requester::administrator(ADMIN);
        let updates: Vec<_> = messages
            .into_iter()
            .map(|message| Update {
                requester: requester.clone(),
                request: UpdateRequest::Message(message),
            })
            .collect();
        let applied = self.directory.apply(&updates).unwrap();
        for outcome in &applied.outcomes {
            assert_eq!(outcome.code, ResultCode::Success, "{}", outcome.diagnostic);
        }
        applied.ticket.unwrap().wait().unwrap();
    }

    /// Adds `cn=p0`, `cn=p1` and so on with a description of so many bytes.
    pub fn add_people(&self, count: usize, bytes: usize) {
        let description = "x".repeat(bytes);
        let person = |number: usize| {
            let name = format!("p{number}");
            let attributes = [
                ("objectClass", "person"),
                ("cn", &name),
                ("sn", "x"),
                ("description", &description),
            ];
            requests::add(1, &format!("cn={name},{SUFFIX}"), &attributes)
        };
        for first in (0..count).step_by(500) {
            self.add_messages((first..count.min(first + 500)).map(person));
        }
    }

    /// Changes what is configured with the data, as the administrator.
    #[track_caller]
    pub fn configure(&self, changes: &[requests::Change<'_>]) {
        let change = requests::modify(1, "olcDatabase={1}mdb,cn=config", changes);
        self.admin().tell(&change).succeeded();
    }

    /// Stops the server.
    pub fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The definition of the example directory.
fn example() -> sapwood_directory::Config {
    sapwood_directory::Config {
        naming_contexts: vec![SUFFIX.into()],
        ..sapwood_directory::Config::default()
    }
}

/// TLS over a TCP connection that trusts any certificate: what is tested is the server.
pub fn tls_client(stream: TcpStream) -> TlsStream {
    tls_client_with(stream, rustls::ALL_VERSIONS, None)
}

/// TLS over TCP.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The same with one of these versions, and with a certificate and its key in DER.
pub fn tls_client_with(
    stream: TcpStream,
    versions: &[&'static SupportedProtocolVersion],
    certificate: Option<(&[u8], &[u8])>,
) -> TlsStream {
    tls_client_asking(stream, "localhost", versions, certificate)
}

/// The same that asks for a name.
pub fn tls_client_asking(
    stream: TcpStream,
    name: &'static str,
    versions: &[&'static SupportedProtocolVersion],
    certificate: Option<(&[u8], &[u8])>,
) -> TlsStream {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust::Anything));
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from(certificate.to_vec())];
            let key = PrivatePkcs8KeyDer::from(key.to_vec());
            builder.with_client_auth_cert(chain, key.into()).unwrap()
        }
    };
    let name = ServerName::try_from(name).unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        stream,
    )
}

mod trust {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    #[derive(Debug)]
    pub(super) struct Anything;

    impl ServerCertVerifier for Anything {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            rustls::crypto::aws_lc_rs::default_provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }
}
