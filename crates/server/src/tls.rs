//! Certificates and keys: loading, reloading, and the self-signed pair that a new directory starts with.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

/// Years that a self-signed certificate is valid.
pub const SELF_SIGNED_YEARS: i16 = 10;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is missing, unreadable or not PEM.
    #[error("{}: {reason}; it must hold PEM (set tls.cert and tls.key, or --tls-cert and --tls-key)", path.display())]
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

/// The server's side of TLS, with certificates that can be replaced while connections come in.
#[derive(Debug)]
pub struct Tls {
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Loads a certificate chain and its private key from PEM files.
    ///
    /// # Errors
    /// Names the file that is missing or wrong.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, Error> {
        Ok(Self {
            current: RwLock::new(server_config(cert, key)?),
        })
    }

    /// Reads the files again; connections that are open keep what they have. On an error the old pair stays in use.
    ///
    /// # Errors
    /// As [`Tls::load`].
    pub fn reload(&self, cert: &Path, key: &Path) -> Result<(), Error> {
        let fresh = server_config(cert, key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// What a new connection shakes hands with.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current))
    }
}

fn server_config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, Error> {
    let wrong = |path: &Path, reason: &dyn std::fmt::Display| Error::File {
        path: path.into(),
        reason: reason.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| wrong(cert, &error))?;
    if chain.is_empty() {
        return Err(wrong(cert, &"no certificate in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let pair = |source| Error::Pair {
        cert: cert.into(),
        key: key.into(),
        source,
    };
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(pair)?;
    Ok(Arc::new(config))
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
    let wrong = |reason: &dyn std::fmt::Display| Error::File {
        path: cert.into(),
        reason: reason.to_string(),
    };
    let pem = fs::read(cert).map_err(|error| wrong(&error))?;
    Ok(fingerprint(
        &CertificateDer::from_pem_slice(&pem).map_err(|error| wrong(&error))?,
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
        let tls = Tls::load(&cert, &key).unwrap();
        tls.reload(&cert, &key).unwrap();
        assert!(
            create_self_signed(&cert, &key, 2026).is_err(),
            "never overwrites a key"
        );
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        fs::write(&cert, "not PEM").unwrap();
        let error = Tls::load(&cert, &key).unwrap_err().to_string();
        assert!(error.contains("cert.pem"), "{error}");
    }
}
