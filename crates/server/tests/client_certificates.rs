//! Clients with certificates: where they are asked for one, and whose entry it stands for.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use sapwood_ldap::extended::START_TLS;
use sapwood_ldap::list::{AttributesBuf, ChangeKind};
use sapwood_ldap::message::{AddRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{ADMIN, Client, SUFFIX, TestServer, requests, tls_client_with};
use tempfile::TempDir;

const ANN: &str = "cn=Ann,dc=example,dc=com";

/// An authority with its file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

/// A client's certificate with its key, in DER.
struct Certificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
    serial: SerialNumber,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), own.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { issuer, folder }
    }

    /// Its file, as a line of the configuration.
    fn setting(&self) -> String {
        format!(
            "client_ca = '{}'\n",
            self.folder.path().join("ca.pem").display()
        )
    }

    /// The certificate of a subject, named from the root.
    fn issue(&self, subject: &[(DnType, &str)], mail: &[&str]) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        for address in mail {
            let address = Ia5String::try_from(*address).unwrap();
            params.subject_alt_names.push(SanType::Rfc822Name(address));
        }
        let key = KeyPair::generate().unwrap();
        // The beginning of the key is another one each time.
        let serial = SerialNumber::from(key.serialize_der()[40..48].to_vec());
        params.serial_number = Some(serial.clone());
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        Certificate {
            certificate: signed.der().to_vec(),
            key: key.serialize_der(),
            serial,
        }
    }

    /// A list of certificates that it has revoked, which is in force up to the beginning of a year.
    fn revoke(&self, revoked: &[&Certificate], year: i32) -> String {
        let revoked = revoked.iter().map(|certificate| RevokedCertParams {
            serial_number: certificate.serial.clone(),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// The certificate of the entry with a common name below the suffix, whose last RDN it leaves out: a name has each
    /// type once here.
    fn issue_entry(&self, name: &str) -> Certificate {
        let domain = DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]);
        self.issue(&[(domain, "example"), (DnType::CommonName, name)], &[])
    }
}

/// Maps the certificates of entries.
const BY_SUBJECT: &str = "client_certificates = 'try'\nclient_identity = ['{subject},dc=com']\n";

/// A connection over `ldaps://` with a certificate or without, if the server lets it in.
fn connect(server: &TestServer, certificate: Option<&Certificate>) -> Option<Client> {
    over_tls(server.tcp_from([127, 0, 0, 1], 1), certificate)
}

fn over_tls(stream: TcpStream, certificate: Option<&Certificate>) -> Option<Client> {
    let pair = certificate.map(|pair| (pair.certificate.as_slice(), pair.key.as_slice()));
    let mut stream = tls_client_with(stream, rustls::ALL_VERSIONS, pair);
    stream.conn.complete_io(&mut stream.sock).ok()?;
    // With TLS 1.3 a client learns later that it is refused.
    stream
        .write_all(&requests::search(1, "", Scope::Base, "(objectClass=*)"))
        .ok()?;
    let mut first = [0];
    match stream.read(&mut first) {
        Ok(1) => {}
        Ok(_) | Err(_) => return None,
    }
    let mut client = Client::new(Begun {
        first: Some(first[0]),
        stream,
    });
    client.finish(1);
    Some(client)
}

/// A stream of which the first byte was read.
struct Begun {
    first: Option<u8>,
    stream: sapwood_testkit::TlsStream,
}

impl Read for Begun {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match (self.first.take(), buffer.first_mut()) {
            (Some(first), Some(to)) => {
                *to = first;
                Ok(1)
            }
            _ => self.stream.read(buffer),
        }
    }
}

impl Write for Begun {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

fn serve(tls: &str) -> TestServer {
    let server = TestServer::with(&format!("[tls]\n{tls}"));
    let person = [
        ("objectClass", "inetOrgPerson"),
        ("sn", "x"),
        ("mail", "ann@example.com"),
    ];
    server.add(&[(ANN, &person)]);
    server
}

fn external(client: &mut Client) -> sapwood_testkit::Answer {
    client.tell(&requests::bind_external(900))
}

#[test]
fn a_certificate_stands_for_the_entry_of_its_subject() {
    let authority = Authority::new("Authority");
    let server = serve(&(authority.setting() + BY_SUBJECT));
    let ann = authority.issue_entry("ANN");
    let mut client = connect(&server, Some(&ann)).unwrap();
    assert_eq!(client.who_am_i(), "", "a certificate is not a bind");
    let mechanisms = client.root_dse().values("supportedSASLMechanisms");
    assert!(
        mechanisms.contains(&"EXTERNAL".to_owned()),
        "{mechanisms:?}"
    );
    external(&mut client).succeeded();
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    // She reads as users do, and writes no more than they do.
    assert_eq!(client.search(SUFFIX, Scope::Subtree, "(cn=ann)").len(), 2);
    client
        .tell(&requests::describe(901, ANN, "x"))
        .expect(ResultCode::InsufficientAccessRights);
    // Nobody needs a certificate here, but without one there is nothing to vouch for a client.
    let mut without = connect(&server, None).unwrap();
    let mechanisms = without.root_dse().values("supportedSASLMechanisms");
    assert!(
        !mechanisms.contains(&"EXTERNAL".to_owned()),
        "{mechanisms:?}"
    );
    external(&mut without).refused(
        ResultCode::InappropriateAuthentication,
        "client_certificates",
    );
    // StartTLS asks as well.
    let mut stream = server.tcp();
    stream
        .write_all(&requests::extended(1, START_TLS, None))
        .unwrap();
    let mut answer = [0; 256];
    assert!(stream.read(&mut answer).unwrap() > 0);
    let mut client = over_tls(stream, Some(&ann)).unwrap();
    external(&mut client).succeeded();
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
}

#[test]
fn only_authorities_that_are_configured_vouch_for_clients() {
    let (authority, other) = (Authority::new("Authority"), Authority::new("Authority"));
    let server = serve(&(authority.setting() + BY_SUBJECT));
    assert!(connect(&server, Some(&other.issue_entry("Ann"))).is_none());
    let ann = authority.issue_entry("Ann");
    assert!(connect(&server, Some(&ann)).is_some());
    // A reload puts others in their place.
    let path = server.path("sapwood.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        config.replace(&authority.setting(), &other.setting()),
    )
    .unwrap();
    server.server.as_ref().unwrap().reload().unwrap();
    assert!(connect(&server, Some(&ann)).is_none());
    assert!(connect(&server, Some(&other.issue_entry("Ann"))).is_some());
    // Without authorities nobody can be asked, and everything stays as it was.
    std::fs::write(&path, config.replace(&authority.setting(), "")).unwrap();
    let error = server
        .server
        .as_ref()
        .unwrap()
        .reload()
        .unwrap_err()
        .to_string();
    assert!(error.contains("tls.client_ca"), "{error}");
    assert!(connect(&server, Some(&other.issue_entry("Ann"))).is_some());
}

#[test]
fn what_was_revoked_vouches_for_nobody() {
    let (authority, other) = (Authority::new("Authority"), Authority::new("Other"));
    let list = authority.folder.path().join("crl.pem");
    let put = |text: &str| std::fs::write(&list, text).unwrap();
    let (ann, bert) = (authority.issue_entry("Ann"), authority.issue_entry("Bert"));
    put(&authority.revoke(&[&bert], 4000));
    let setting = format!("client_crl = '{}'\n", list.display());
    let server = serve(&(authority.setting() + &setting + BY_SUBJECT));
    let are_let_in = || [&ann, &bert].map(|pair| connect(&server, Some(pair)).is_some());
    assert_eq!(are_let_in(), [true, false]);
    assert!(connect(&server, None).is_some());
    let reload = || server.server.as_ref().unwrap().reload();
    put(&authority.revoke(&[&ann, &bert], 4000));
    reload().unwrap();
    assert_eq!(are_let_in(), [false, false]);
    // One that should have been replaced says nothing any more, and that of another authority never did.
    for silent in [authority.revoke(&[], 2001), other.revoke(&[], 4000)] {
        put(&silent);
        reload().unwrap();
        assert_eq!(are_let_in(), [false, false]);
    }
    put(&(other.revoke(&[], 4000) + &authority.revoke(&[&bert], 4000)));
    reload().unwrap();
    assert_eq!(are_let_in(), [true, false]);
    // What is no list is told, and the one before stays.
    put("nothing");
    let error = reload().unwrap_err().to_string();
    assert!(error.contains("crl.pem"), "{error}");
    assert_eq!(are_let_in(), [true, false]);
}

#[test]
fn a_listener_demands_a_certificate_and_another_does_not_ask() {
    let authority = Authority::new("Authority");
    let listen = "listen = ['ldap://127.0.0.1:0', \
                  { url = 'ldaps://127.0.0.1:0', client_certificates = 'demand' }, 'ldaps://127.0.0.1:0']";
    let server = TestServer::listening(listen, &format!("[tls]\n{}", authority.setting()));
    let ann = authority.issue_entry("Ann");
    assert!(connect(&server, None).is_none());
    assert!(connect(&server, Some(&ann)).is_some());
    let mut other = over_tls(server.tcp_from([127, 0, 0, 1], 2), Some(&ann)).unwrap();
    external(&mut other).expect(ResultCode::InappropriateAuthentication);
}

#[test]
fn entries_are_found_by_mail_and_by_certificate() {
    let authority = Authority::new("Authority");
    let identity = "client_identity = ['ldap:///dc=example,dc=com??sub?(mail={san.email})', \
                    'ldap:///dc=example,dc=com??sub?(userCertificate={certificate})', \
                    'cn={uid},dc=example,dc=com']\n";
    let server = serve(&format!(
        "{}client_certificates = 'try'\n{identity}",
        authority.setting()
    ));
    let who = |certificate: &Certificate| {
        let mut client = connect(&server, Some(certificate)).unwrap();
        let answer = external(&mut client);
        (answer.code, client.who_am_i(), answer.diagnostic)
    };
    let is_ann = (ResultCode::Success, format!("dn:{ANN}"), String::new());
    let cn = |name| [(DnType::CommonName, name)];
    assert_eq!(
        who(&authority.issue(&cn("x"), &["ann@example.com"])),
        is_ann
    );
    let uid = DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 1]);
    assert_eq!(who(&authority.issue(&[(uid.clone(), "ann")], &[])), is_ann);
    // A certificate cannot say more than one value.
    for (subject, mail) in [
        (cn("x"), vec!["*"]),
        (cn("x"), vec!["ann@example.com", "x@example.com"]),
        ([(uid, "Ann,dc=example")], vec![]),
    ] {
        let (code, name, why) = who(&authority.issue(&subject, &mail));
        assert_eq!((code, name.as_str()), (ResultCode::InvalidCredentials, ""));
        assert!(
            why.contains("stands for no entry here (tls.client_identity)"),
            "{why}"
        );
    }
    // That of another authority of the same name, with the same number, is another one.
    let own = authority.issue(&cn("Bob"), &[]);
    let (code, ..) = who(&own);
    assert_eq!(code, ResultCode::InvalidCredentials);
    let bob = format!("cn=Bob,{SUFFIX}");
    let mut attributes = AttributesBuf::default();
    attributes.push(b"objectClass", [b"inetOrgPerson".as_slice()]);
    attributes.push(b"sn", [b"x".as_slice()]);
    attributes.push(b"userCertificate;binary", [own.certificate.as_slice()]);
    let request = AddRequest {
        dn: &bob,
        attributes: attributes.view(),
    };
    let mut admin = server.admin();
    admin.ask(Request::Add(request)).succeeded();
    assert_eq!(
        who(&own),
        (ResultCode::Success, format!("dn:{bob}"), String::new())
    );
    // Two entries with one address: neither.
    let person = [
        ("objectClass", "inetOrgPerson"),
        ("sn", "x"),
        ("mail", "ann@example.com"),
    ];
    server.add(&[(&format!("cn=Twin,{SUFFIX}"), &person)]);
    let (code, ..) = who(&authority.issue(&cn("x"), &["ann@example.com"]));
    assert_eq!(code, ResultCode::InvalidCredentials);
}

/// Whoever has no entry is named by the subject in access rules, and in answers.
#[test]
fn a_subject_may_be_a_name_without_an_entry() {
    let authority = Authority::new("Authority");
    let identity = "client_certificates = 'try'\nclient_identity = ['name:{subject},dc=com']\n";
    let server = serve(&(authority.setting() + identity));
    let rules = [
        "to * by dn.exact=\"cn=backup,dc=example,dc=com\" read by dn.regex=\"^cn=r[0-9]+,\" search by self write",
    ];
    let data = "olcDatabase={1}mdb,cn=config";
    let change = requests::modify(902, data, &[(ChangeKind::Replace, "olcAccess", &rules)]);
    server.admin().tell(&change).succeeded();
    let bound = |certificate: &Certificate| {
        let mut client = connect(&server, Some(certificate)).unwrap();
        let code = external(&mut client).code;
        (client, code)
    };
    let (mut backup, _) = bound(&authority.issue_entry("Backup"));
    // The spelling is the certificate's.
    let own = backup.who_am_i();
    assert!(
        own.eq_ignore_ascii_case("dn:cn=Backup,dc=example,dc=com"),
        "{own}"
    );
    assert_eq!(backup.search(SUFFIX, Scope::Subtree, "(sn=x)").len(), 2);
    backup
        .tell(&requests::describe(903, ANN, "x"))
        .expect(ResultCode::InsufficientAccessRights);
    // What is found may not be read, and the filter was.
    let (mut reporter, _) = bound(&authority.issue_entry("R2"));
    let found = reporter.search(SUFFIX, Scope::Subtree, "(sn=x)");
    assert_eq!(found.last().unwrap().code, ResultCode::Success);
    assert_eq!(found.len(), 1);
    let (mut other, code) = bound(&authority.issue_entry("Other"));
    assert_eq!(code, ResultCode::Success);
    let found = other.search(SUFFIX, Scope::Subtree, "(sn=x)");
    assert_eq!(
        found.last().unwrap().code,
        ResultCode::InsufficientAccessRights
    );
    // Who has an entry is that entry.
    let (mut ann, _) = bound(&authority.issue_entry("Ann"));
    assert_eq!(ann.who_am_i(), format!("dn:{ANN}"));
    ann.tell(&requests::describe(904, ANN, "x")).succeeded();
    // No authority gives the administrator's name, nor one of those that other mechanisms give.
    let (_, code) = bound(&authority.issue_entry("admin"));
    assert_eq!(code, ResultCode::InvalidCredentials);
    let identity = "client_certificates = 'try'\nclient_identity = ['name:{subject}']\n";
    let server = serve(&(authority.setting() + identity));
    for (above, code) in [
        ("auth", ResultCode::InvalidCredentials),
        ("machines", ResultCode::Success),
    ] {
        let subject = [(DnType::CommonName, above), (DnType::OrganizationName, "x")];
        let mut client = connect(&server, Some(&authority.issue(&subject, &[]))).unwrap();
        external(&mut client).expect(code);
    }
}

#[test]
fn no_authority_makes_the_administrator() {
    let authority = Authority::new("Authority");
    let server = serve(&(authority.setting() + BY_SUBJECT));
    server.add(&[(ADMIN, &[("objectClass", "person"), ("sn", "x")])]);
    let mut client = connect(&server, Some(&authority.issue_entry("admin"))).unwrap();
    external(&mut client).refused(ResultCode::InvalidCredentials, "stands for no entry here");
    assert_eq!(client.who_am_i(), "");
    let mut client = connect(&server, Some(&authority.issue_entry("Nobody"))).unwrap();
    external(&mut client).refused(ResultCode::InvalidCredentials, "cn=Nobody");
}

#[test]
fn what_is_no_way_to_an_entry_is_refused() {
    let authority = Authority::new("Authority");
    let server = serve(&(authority.setting() + BY_SUBJECT));
    let path = server.path("sapwood.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace("{subject}", "uid={nothing}")).unwrap();
    let error = server
        .server
        .as_ref()
        .unwrap()
        .reload()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tls.client_identity: 'uid={nothing},dc=com'"),
        "{error}"
    );
}
