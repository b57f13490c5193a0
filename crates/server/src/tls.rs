//! Certificates and keys: loading, reloading, and the self-signed pair that a new directory starts with.

mod certificates;
mod established;
mod policy;
pub(crate) mod watch;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use self::certificates::Certificates;
pub(crate) use self::established::{Bindings, Established};
pub use self::policy::MinVersion;
pub(crate) use self::policy::Policy;
pub(crate) use self::watch::Stamps;

/// Years that a self-signed certificate is valid.
pub const SELF_SIGNED_YEARS: i16 = 10;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is missing, unreadable or not PEM.
    #[error(
        "{}: {reason}; it must hold PEM (set tls.cert, tls.key, tls.certificates, tls.client_ca and tls.client_crl, or \
         --tls-cert and --tls-key)",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key do not go together, or rustls does not take them.
    #[error("{} and {}: {source}", cert.display(), key.display())]
    Pair {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// There is no such cipher suite.
    #[error("tls.cipher_suites: there is no {name}; there are {known}")]
    CipherSuite {
        /// What is configured.
        name: String,
        /// The names that could be.
        known: String,
    },
    /// Versions and ciphers do not go together.
    #[error("tls.min_version and tls.cipher_suites: {0}")]
    Policy(rustls::Error),
    /// The self-signed certificate could not be made.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(#[from] rcgen::Error),
    /// The self-signed certificate could not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// They are not.
    #[default]
    Never,
    /// They are, and may come without. A certificate that no authority vouches for is refused.
    Try,
    /// They are, and without one there is no connection.
    Demand,
}

/// How connections of a listener use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsUse {
    /// The handshake comes before everything else.
    pub(crate) is_first: bool,
    /// Whether clients are asked for a certificate; `None` leaves it to the configuration of all.
    pub(crate) client_certificates: Option<ClientCertificates>,
}

/// What TLS is made of: files, in PEM, and what is spoken.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The certificate chain, the server's own first.
    pub(crate) cert: PathBuf,
    /// The private key.
    pub(crate) key: PathBuf,
    /// Files that each hold another chain and its key.
    pub(crate) others: Vec<PathBuf>,
    /// The authorities of client certificates; `None` if none are asked for.
    pub(crate) client_ca: Option<PathBuf>,
    /// What they have revoked; `None` if nobody asks for that.
    pub(crate) client_crl: Option<PathBuf>,
    /// Versions and ciphers.
    pub(crate) policy: Policy,
}

/// The server's side of TLS, with certificates that can be replaced while connections come in.
#[derive(Debug)]
pub(crate) struct Tls {
    current: RwLock<Arc<Loaded>>,
}

/// What was made of the files.
#[derive(Debug)]
struct Loaded {
    asks_nobody: Arc<ServerConfig>,
    asking: Option<Asking>,
    certificates: Arc<Certificates>,
}

/// The same with authorities of client certificates.
#[derive(Debug)]
struct Asking {
    tries: Arc<ServerConfig>,
    demands: Arc<ServerConfig>,
}

/// What a new connection shakes hands with.
pub(crate) struct Acceptor {
    pub(crate) tls: TlsAcceptor,
    certificates: Arc<Certificates>,
}

impl Acceptor {
    /// What a handshake with it has established.
    pub(crate) fn established(&self, connection: &ServerConnection) -> Established {
        let shown = self.certificates.of(connection.server_name());
        Established::of(connection, shown.server_end_point.clone())
    }
}

impl Tls {
    /// Loads certificates and the private key.
    ///
    /// # Errors
    /// Names the file that is missing or wrong.
    pub(crate) fn load(files: &Files) -> Result<Self, Error> {
        Ok(Self {
            current: RwLock::new(Arc::new(Loaded::from(files)?)),
        })
    }

    /// Reads the files again; connections that are open keep what they have. On an error what was loaded before stays
    /// in use.
    ///
    /// # Errors
    /// As [`Tls::load`].
    pub(crate) fn reload(&self, files: &Files) -> Result<(), Error> {
        let fresh = Arc::new(Loaded::from(files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Reads the files again if they are not as they were when they had these stamps, which become those that they have
    /// now. `None` if they are; otherwise as [`Tls::reload`].
    pub(crate) fn renew(&self, files: &Files, known: &mut Stamps) -> Option<Result<(), Error>> {
        let now = Stamps::of(files);
        if now == *known {
            return None;
        }
        // What is written meanwhile is seen the next time.
        *known = now;
        Some(self.reload(files))
    }

    /// What a new connection shakes hands with. `None` if it should ask for certificates, and there are no authorities
    /// that could vouch for them.
    pub(crate) fn acceptor(&self, asks: ClientCertificates) -> Option<Acceptor> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let config = match asks {
            ClientCertificates::Never => &current.asks_nobody,
            ClientCertificates::Try => &current.asking.as_ref()?.tries,
            ClientCertificates::Demand => &current.asking.as_ref()?.demands,
        };
        Some(Acceptor {
            tls: TlsAcceptor::from(Arc::clone(config)),
            certificates: Arc::clone(&current.certificates),
        })
    }
}

impl Loaded {
    fn from(files: &Files) -> Result<Self, Error> {
        let provider = Arc::new(files.policy.provider()?);
        let shown = Arc::new(Certificates::load(files, &provider)?);
        let config = |verifier: Option<Arc<dyn ClientCertVerifier>>| -> Result<_, Error> {
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(files.policy.versions())
                .map_err(Error::Policy)?;
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            let mut config = builder.with_cert_resolver(shown.clone());
            config.ignore_client_order = files.policy.has_own_order();
            Ok(Arc::new(config))
        };
        let asking = match &files.client_ca {
            Some(client_ca) => {
                let mut authorities = RootCertStore::empty();
                for authority in certificates(client_ca)? {
                    let added = authorities.add(authority);
                    added.map_err(|error| wrong(client_ca, &error))?;
                }
                let authorities = Arc::new(authorities);
                let revoked = match &files.client_crl {
                    Some(client_crl) => revocation_lists(client_crl)?,
                    None => Vec::new(),
                };
                let builder = || {
                    let authorities = Arc::clone(&authorities);
                    let builder = WebPkiClientVerifier::builder_with_provider(
                        authorities,
                        Arc::clone(&provider),
                    );
                    // With lists, each certificate up to the authority is to be in none that is in force.
                    builder
                        .with_crls(revoked.clone())
                        .enforce_revocation_expiration()
                };
                let made = |verifier: Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError>| {
                    verifier.map_err(|error| match (&error, &files.client_crl) {
                        (VerifierBuilderError::InvalidCrl(_), Some(client_crl)) => {
                            wrong(client_crl, &error)
                        }
                        _ => wrong(client_ca, &error),
                    })
                };
                Some(Asking {
                    tries: config(Some(made(builder().allow_unauthenticated().build())?))?,
                    demands: config(Some(made(builder().build())?))?,
                })
            }
            None => None,
        };
        Ok(Self {
            asks_nobody: config(None)?,
            asking,
            certificates: shown,
        })
    }
}

/// The certificates in a PEM file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| wrong(path, &error))?;
    match chain.is_empty() {
        true => Err(wrong(path, &"no certificate in it")),
        false => Ok(chain),
    }
}

/// The revocation lists (RFC 5280 §5) in a PEM file, of which there is at least one.
fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    let lists = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(|lists| lists.collect::<Result<Vec<_>, _>>())
        .map_err(|error| wrong(path, &error))?;
    match lists.is_empty() {
        true => Err(wrong(path, &"no revocation list in it")),
        false => Ok(lists),
    }
}

fn wrong(path: &Path, reason: &dyn std::fmt::Display) -> Error {
    Error::File {
        path: path.into(),
        reason: reason.to_string(),
    }
}

/// Makes a self-signed certificate for this machine's names and writes it with its key (mode 0600).
/// `first_year` is when its validity begins.
///
/// Returns the certificate's SHA-256 fingerprint, as [`fingerprint`] writes it.
///
/// # Errors
/// When a file exists already or cannot be written.
pub fn create_self_signed(cert: &Path, key: &Path, first_year: i16) -> Result<String, Error> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut names: Vec<String> = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
    if !host.is_empty() && host != "localhost" {
        names.push(host.clone());
    }
    let mut params = rcgen::CertificateParams::new(names)?;
    params.distinguished_name.push(
        rcgen::DnType::CommonName,
        if host.is_empty() { "localhost" } else { &host },
    );
    params.not_before = rcgen::date_time_ymd(i32::from(first_year), 1, 1);
    params.not_after = rcgen::date_time_ymd(i32::from(first_year + SELF_SIGNED_YEARS), 1, 1);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let pair = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&pair)?;
    write_new(key, pair.serialize_pem().as_bytes(), 0o600)?;
    write_new(cert, certificate.pem().as_bytes(), 0o644)?;
    Ok(fingerprint(certificate.der()))
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| Error::Write {
        path: path.into(),
        source,
    })
}

/// The SHA-256 fingerprint of the first certificate in a PEM file.
///
/// # Errors
/// When the file cannot be read or holds no certificate.
pub fn fingerprint_of_file(cert: &Path) -> Result<String, Error> {
    let pem = fs::read(cert).map_err(|error| wrong(cert, &error))?;
    Ok(fingerprint(
        &CertificateDer::from_pem_slice(&pem).map_err(|error| wrong(cert, &error))?,
    ))
}

/// `AB:CD:...`: 32 bytes in hex, as `openssl x509 -fingerprint -sha256` prints them.
#[must_use]
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::digest(certificate.as_ref());
    digest
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect::<Vec<_>>()
        .join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn files(cert: &Path, key: &Path) -> Files {
        Files {
            cert: cert.into(),
            key: key.into(),
            others: Vec::new(),
            client_ca: None,
            client_crl: None,
            policy: Policy::default(),
        }
    }

    #[test]
    fn nobody_is_let_in_for_want_of_authorities() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create_self_signed(&path("cert.pem"), &path("key.pem"), 2026).unwrap();
        let mut files = files(&path("cert.pem"), &path("key.pem"));
        let tls = Tls::load(&files).unwrap();
        assert!(tls.acceptor(ClientCertificates::Never).is_some());
        assert!(tls.acceptor(ClientCertificates::Try).is_none());
        assert!(tls.acceptor(ClientCertificates::Demand).is_none());
        files.client_ca = Some(path("missing.pem"));
        let error = tls.reload(&files).unwrap_err().to_string();
        assert!(error.contains("missing.pem"), "{error}");
        files.client_ca = Some(path("cert.pem"));
        tls.reload(&files).unwrap();
        assert!(tls.acceptor(ClientCertificates::Demand).is_some());
    }

    #[test]
    fn a_self_signed_pair_loads_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        let printed = create_self_signed(&cert, &key, 2026).unwrap();
        assert_eq!(printed.len(), 32 * 3 - 1);
        assert_eq!(fingerprint_of_file(&cert).unwrap(), printed);
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let files = files(&cert, &key);
        let tls = Tls::load(&files).unwrap();
        tls.reload(&files).unwrap();
        assert!(
            create_self_signed(&cert, &key, 2026).is_err(),
            "never overwrites a key"
        );
    }

    #[test]
    fn what_was_replaced_is_read_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["one", "two"] {
            fs::create_dir(path(version)).unwrap();
            let pair = [format!("{version}/cert.pem"), format!("{version}/key.pem")];
            create_self_signed(&path(&pair[0]), &path(&pair[1]), 2026).unwrap();
        }
        let link = |version: &str| {
            let next = path("next");
            std::os::unix::fs::symlink(path(version), &next).unwrap();
            fs::rename(next, path("current")).unwrap();
        };
        link("one");
        let files = files(&path("current/cert.pem"), &path("current/key.pem"));
        let tls = Tls::load(&files).unwrap();
        let mut known = Stamps::of(&files);
        let own = || {
            let acceptor = tls.acceptor(ClientCertificates::Never).unwrap();
            acceptor
                .certificates
                .of(None)
                .server_end_point
                .clone()
                .unwrap()
        };
        let one = own();
        assert!(tls.renew(&files, &mut known).is_none());
        // As certbot and Kubernetes do it.
        link("two");
        tls.renew(&files, &mut known).unwrap().unwrap();
        let two = own();
        assert_ne!(one, two);
        assert!(tls.renew(&files, &mut known).is_none());
        // One file after the other: what does not go together changes nothing.
        fs::copy(path("one/cert.pem"), path("two/cert.pem")).unwrap();
        assert!(tls.renew(&files, &mut known).unwrap().is_err());
        assert_eq!(own(), two);
        assert!(tls.renew(&files, &mut known).is_none(), "it is told once");
        fs::copy(path("one/key.pem"), path("two/key.pem")).unwrap();
        tls.renew(&files, &mut known).unwrap().unwrap();
        assert_eq!(own(), one);
        fs::remove_file(path("two/key.pem")).unwrap();
        assert!(tls.renew(&files, &mut known).unwrap().is_err());
        assert_eq!(own(), one);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        fs::write(&cert, "not PEM").unwrap();
        let error = Tls::load(&files(&cert, &key)).unwrap_err().to_string();
        assert!(error.contains("cert.pem"), "{error}");
    }
}
