//! The server's certificates, and which of them a client is shown: one that is valid for the name which it asks for
//! (Server Name Indication, RFC 6066 §3), or else the first.

use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};

use super::{Error, Files, certificates, established, wrong};

/// All of them, of which there is at least one.
#[derive(Debug)]
pub(super) struct Certificates {
    first: Shown,
    others: Vec<Shown>,
}

/// A certificate with its chain and its key.
#[derive(Debug)]
pub(super) struct Shown {
    key: Arc<CertifiedKey>,
    /// What binds a channel to it.
    pub(super) server_end_point: Option<Arc<[u8]>>,
}

impl Certificates {
    /// Loads them.
    ///
    /// # Errors
    /// Names the file that is missing or wrong.
    pub(super) fn load(files: &Files, provider: &CryptoProvider) -> Result<Self, Error> {
        let others = files.others.iter();
        Ok(Self {
            first: Shown::load((&files.cert, &files.key), provider)?,
            others: others
                .map(|both| Shown::load((both, both), provider))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The one for a client that asks for a name.
    pub(super) fn of(&self, name: Option<&str>) -> &Shown {
        // Mostly there is one.
        if self.others.is_empty() {
            return &self.first;
        }
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let Some(name) = name.filter(|name| !self.first.is_valid_for(name)) else {
            return &self.first;
        };
        let found = self.others.iter().find(|shown| shown.is_valid_for(&name));
        found.unwrap_or(&self.first)
    }
}

impl Shown {
    fn load((cert, key): (&Path, &Path), provider: &CryptoProvider) -> Result<Self, Error> {
        let chain = certificates(cert)?;
        let server_end_point = chain
            .first()
            .and_then(|own| established::server_end_point(own));
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let loaded = CertifiedKey::from_der(chain, private, provider);
        let loaded = loaded.map_err(|source| Error::Pair {
            cert: cert.into(),
            key: key.into(),
            source,
        })?;
        Ok(Self {
            key: Arc::new(loaded),
            server_end_point,
        })
    }

    /// Whether its names say so; when it is valid, the client looks.
    fn is_valid_for(&self, name: &ServerName<'_>) -> bool {
        let own = self.key.cert.first().map(ParsedCertificate::try_from);
        own.is_some_and(|own| own.is_ok_and(|own| verify_server_name(&own, name).is_ok()))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.of(hello.server_name()).key.clone())
    }
}
