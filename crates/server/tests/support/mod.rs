//! A server on a scratch directory and a client that speaks raw messages.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Directory, Identity, Options, Ticket, Update, UpdateRequest};
use sapwood_ldap::control::{Controls, ControlsBuf};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf, OctetStringsBuf};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, ExtendedRequest, Frame, Message, ModifyRequest,
    Request, Response, ResponseMessage, Scope, SearchRequest, frame,
};
use sapwood_ldap::result::ResultCode;
use sapwood_server::listen::ListenUrl;
use sapwood_server::{Config, Flags, Server, password, root_dse, tls};
use tempfile::TempDir;

pub const SUFFIX: &str = "dc=example,dc=com";
pub const ADMIN: &str = "cn=admin,dc=example,dc=com";
pub const PASSWORD: &[u8] = b"the admin's password";
/// Threads that serve connections, whatever machine it is.
pub const THREADS: usize = 3;

pub struct TestServer {
    pub server: Option<Server>,
    pub directory: Directory,
    pub folder: TempDir,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with("")
    }

    /// `config` is more TOML: whole tables.
    pub fn with(config: &str) -> Self {
        Self::on(config, |path| {
            Embedded::open(path, &sapwood_store::Options::new().create(true)).unwrap()
        })
    }

    /// A server whose directory is on this engine, which gets the path of a folder it may use.
    pub fn on(config: &str, engine: impl FnOnce(&Path) -> Embedded) -> Self {
        let contents = sapwood_directory::Config {
            naming_contexts: vec![SUFFIX.into()],
            ..sapwood_directory::Config::default()
        };
        Self::of(&contents, config, engine)
    }

    /// A server that stores any password, as it may be there from before some were refused.
    pub fn with_any_passwords(config: &str) -> Self {
        let contents = sapwood_directory::Config {
            naming_contexts: vec![SUFFIX.into()],
            ..sapwood_directory::Config::default()
        };
        let engine = |_: &Path| Embedded::in_memory().unwrap();
        Self::make(&contents, config, engine, false)
    }

    /// The same as [`on`](Self::on), of a directory that is defined so.
    pub fn of(
        contents: &sapwood_directory::Config,
        config: &str,
        engine: impl FnOnce(&Path) -> Embedded,
    ) -> Self {
        Self::make(contents, config, engine, true)
    }

    fn make(
        contents: &sapwood_directory::Config,
        config: &str,
        engine: impl FnOnce(&Path) -> Embedded,
        checks_passwords: bool,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(
            path.join("sapwood.toml"),
            format!("threads = {THREADS}\n[admin]\ndn = '{ADMIN}'\n{config}"),
        )
        .unwrap();
        std::fs::write(path.join("admin.password"), password::hash(PASSWORD)).unwrap();
        tls::create_self_signed(&path.join("tls-cert.pem"), &path.join("tls-key.pem"), 2026)
            .unwrap();
        let mut options = Options::new(Schema::standard());
        let config = Config::load(path).unwrap();
        options.root_dse = root_dse("test", config.extensions);
        let limits = config.limits.passwords();
        if checks_passwords {
            options.passwords = Some(Arc::new(password::Hasher { limits }));
        }
        let directory =
            Directory::create_on(engine(&path.join("data")), contents, options).unwrap();
        let listen = vec![
            "ldap://127.0.0.1:0".parse().unwrap(),
            "ldaps://127.0.0.1:0".parse().unwrap(),
            ListenUrl::Ldapi(path.join("ldapi.sock")),
        ];
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

    fn port(&self, index: usize) -> u16 {
        match &self.server.as_ref().unwrap().urls()[index] {
            ListenUrl::Ldap(_, port) | ListenUrl::Ldaps(_, port) => *port,
            ListenUrl::Ldapi(_) => panic!("no port"),
        }
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port(0))).unwrap())
    }

    pub fn connect_tls(&self) -> Client {
        Client::new(tls_client(
            TcpStream::connect(("127.0.0.1", self.port(1))).unwrap(),
        ))
    }

    pub fn connect_local(&self) -> Client {
        Client::new(UnixStream::connect(self.folder.path().join("ldapi.sock")).unwrap())
    }

    pub fn tcp(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port(0))).unwrap()
    }

    /// A connection from an address of this machine to the listener with this number.
    pub fn tcp_from(&self, address: [u8; 4], listener: usize) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        use std::net::SocketAddr;
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((address, 0))).unwrap();
        let server = SocketAddr::from(([127, 0, 0, 1], self.port(listener)));
        connect(&socket, &server).unwrap();
        TcpStream::from(socket)
    }

    /// A connection bound as the administrator.
    pub fn admin(&self) -> Client {
        let mut client = self.connect();
        assert_eq!(client.bind(ADMIN, PASSWORD).code, ResultCode::Success);
        client
    }

    /// Adds entries below the wire.
    pub fn add(&self, entries: &[(&str, &[(&str, &str)])]) {
        let entries = entries.iter();
        self.add_messages(entries.map(|(dn, attributes)| add_request(1, dn, attributes)));
    }

    /// The same, of add requests.
    pub fn add_messages(&self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let identity = Identity::Admin { dn: ADMIN.into() };
        let updates: Vec<_> = messages
            .into_iter()
            .map(|message| Update {
                identity: identity.clone(),
                request: UpdateRequest::Message(message),
            })
            .collect();
        let applied = self.directory.apply(&updates).unwrap();
        for outcome in &applied.outcomes {
            assert_eq!(outcome.code, ResultCode::Success, "{}", outcome.diagnostic);
        }
        applied.ticket.unwrap().wait().unwrap();
    }

    /// Adds `count` people with a description of `bytes` bytes.
    pub fn add_people(&self, count: usize, bytes: usize) {
        let description = "x".repeat(bytes);
        let people: Vec<_> = (0..count)
            .map(|number| (format!("cn=p{number},{SUFFIX}"), format!("p{number}")))
            .collect();
        let attributes: Vec<_> = people
            .iter()
            .map(|(_, name)| {
                [
                    ("objectClass", "person"),
                    ("cn", name.as_str()),
                    ("sn", "x"),
                    ("description", &description),
                ]
            })
            .collect();
        let entries: Vec<_> = people
            .iter()
            .zip(&attributes)
            .map(|((dn, _), attributes)| (dn.as_str(), attributes.as_slice()))
            .collect();
        entries.chunks(500).for_each(|entries| self.add(entries));
    }

    pub fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// TLS over a TCP connection that trusts any certificate: what is tested is the server.
pub fn tls_client(stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust::Anything))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
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
            rustls::crypto::ring::default_provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }
}

/// A response, taken out of the buffer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub id: u32,
    /// DN of a search result entry.
    pub entry: Option<String>,
    /// Attributes of a search result entry.
    pub attributes: Vec<(String, Vec<Vec<u8>>)>,
    /// The name of an extended response.
    pub name: Option<String>,
    /// The value of an extended response.
    pub value: Option<Vec<u8>>,
    pub code: ResultCode,
    pub diagnostic: String,
    /// Response controls.
    pub controls: Vec<(String, Vec<u8>)>,
    /// Whether it ends its operation.
    pub ends: bool,
}

pub struct Client {
    pub stream: Box<dyn Stream>,
    received: Vec<u8>,
    next_id: u32,
}

impl Client {
    pub fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            received: Vec::new(),
            next_id: 1,
        }
    }

    pub fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// The next response; `None` when the server has closed the connection.
    pub fn receive(&mut self) -> Option<Answer> {
        loop {
            if let Frame::Complete(length) = frame(&self.received, 64 << 20).unwrap() {
                let answer = answer(&ResponseMessage::decode(&self.received[..length]).unwrap());
                self.received.drain(..length);
                return Some(answer);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return None,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Takes what has come, which need not be LDAP; whether the connection is open.
    pub fn receive_raw(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0; 4096]), Ok(0) | Err(_))
    }

    /// Responses up to the one that ends operation `id`; all must be of it.
    pub fn finish(&mut self, id: u32) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            let answer = self.receive().expect("the connection was closed");
            assert_eq!(answer.id, id, "{answer:?}");
            let ends = answer.ends;
            answers.push(answer);
            if ends {
                return answers;
            }
        }
    }

    pub fn ask(&mut self, op: Request<'_>) -> Answer {
        let id = self.id();
        self.send(&message(id, op));
        self.finish(id).pop().unwrap()
    }

    pub fn bind(&mut self, dn: &str, password: &[u8]) -> Answer {
        self.ask(Request::Bind(BindRequest {
            version: 3,
            name: dn,
            authentication: Authentication::Simple(password),
        }))
    }

    pub fn extended(&mut self, name: &str, value: Option<&[u8]>) -> Answer {
        self.ask(Request::Extended(ExtendedRequest { name, value }))
    }

    pub fn search(&mut self, base: &str, scope: Scope, filter: &str) -> Vec<Answer> {
        let id = self.id();
        self.send(&search_request(id, base, scope, filter, &[]));
        self.finish(id)
    }

    /// The root DSE with its operational attributes.
    pub fn root_dse(&mut self) -> Answer {
        let id = self.id();
        let attributes = OctetStringsBuf::from_iter([b"+".as_slice()]);
        let request = SearchRequest {
            attributes: attributes.view(),
            ..SearchRequest::new("", Scope::Base, Filter::OBJECT_CLASS_PRESENT)
        };
        self.send(&message(id, Request::Search(request)));
        self.finish(id).remove(0)
    }

    pub fn who_am_i(&mut self) -> String {
        let answer = self.extended(sapwood_ldap::extended::WHO_AM_I, None);
        assert_eq!(answer.code, ResultCode::Success);
        String::from_utf8(answer.value.unwrap_or_default()).unwrap()
    }
}

fn answer(message: &ResponseMessage<'_>) -> Answer {
    let result = message.op.result();
    let mut answer = Answer {
        id: message.id,
        entry: None,
        attributes: Vec::new(),
        name: None,
        value: None,
        code: result.map_or(ResultCode::Success, |result| result.code),
        diagnostic: result.map_or(String::new(), |result| result.diagnostic.to_owned()),
        controls: message
            .controls
            .iter()
            .map(|control| {
                (
                    control.oid.to_owned(),
                    control.value.unwrap_or_default().to_vec(),
                )
            })
            .collect(),
        ends: result.is_some(),
    };
    match message.op {
        Response::SearchEntry(entry) => {
            answer.entry = Some(entry.dn.to_owned());
            for attribute in entry.attributes.iter() {
                let description = String::from_utf8(attribute.description.to_vec()).unwrap();
                answer.attributes.push((
                    description,
                    attribute.values.iter().map(<[u8]>::to_vec).collect(),
                ));
            }
        }
        Response::Extended(extended) => {
            answer.name = extended.name.map(str::to_owned);
            answer.value = extended.value.map(<[u8]>::to_vec);
        }
        _ => {}
    }
    answer
}

pub fn message(id: u32, op: Request<'_>) -> Vec<u8> {
    with_controls(id, op, Controls::EMPTY)
}

pub fn with_controls(id: u32, op: Request<'_>, controls: Controls<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message { id, op, controls }.encode(&mut bytes);
    bytes
}

pub fn add_request(id: u32, dn: &str, attributes: &[(&str, &str)]) -> Vec<u8> {
    let mut list = AttributesBuf::default();
    for (description, value) in attributes {
        list.push(description.as_bytes(), [value.as_bytes()]);
    }
    message(
        id,
        Request::Add(AddRequest {
            dn,
            attributes: list.view(),
        }),
    )
}

/// An attribute for [`modify_request`]: what is done, its description, its values.
pub type Changed<'c> = (ChangeKind, &'c str, &'c [&'c str]);

pub fn modify_request(id: u32, dn: &str, changed: &[Changed<'_>]) -> Vec<u8> {
    let mut changes = ChangesBuf::default();
    for (kind, description, values) in changed {
        let values = values.iter().map(|value| value.as_bytes());
        changes.push(*kind, description.as_bytes(), values);
    }
    let changes = changes.view();
    message(id, Request::Modify(ModifyRequest { dn, changes }))
}

pub fn search_request(
    id: u32,
    base: &str,
    scope: Scope,
    filter: &str,
    controls: &[(&str, bool, &[u8])],
) -> Vec<u8> {
    let filter = filter_text::parse(filter).unwrap();
    let mut list = ControlsBuf::default();
    for (oid, critical, value) in controls {
        let value = (!value.is_empty()).then_some(*value);
        list.push(sapwood_ldap::control::Control {
            oid,
            critical: *critical,
            value,
        });
    }
    let request = SearchRequest::new(base, scope, filter.as_filter());
    with_controls(id, Request::Search(request), list.view())
}
