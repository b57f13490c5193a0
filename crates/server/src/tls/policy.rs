//! Which versions of TLS are spoken, with which ciphers.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ALL_VERSIONS, SupportedProtocolVersion, version};
use serde::{Deserialize, Serialize};

use super::Error;

/// The oldest version that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum MinVersion {
    /// TLS 1.2, which is the oldest that there is here.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// The newest version alone.
static NEWEST: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// What is spoken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) min_version: MinVersion,
    /// Names of cipher suites, the best first; all that are good if there are none.
    pub(crate) cipher_suites: Vec<String>,
}

impl Policy {
    /// The versions.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.min_version {
            MinVersion::Tls12 => ALL_VERSIONS,
            MinVersion::Tls13 => NEWEST,
        }
    }

    /// The cryptography, with the ciphers that are wanted.
    ///
    /// # Errors
    /// Names the cipher suite that there is not.
    pub(super) fn provider(&self) -> Result<CryptoProvider, Error> {
        let mut provider = aws_lc_rs::default_provider();
        if self.has_own_order() {
            let suites = self.cipher_suites.iter().map(|wanted| {
                let mut all = provider.cipher_suites.iter();
                let found = all.find(|known| has_name(known.suite().as_str(), wanted));
                found.copied().ok_or_else(|| Error::CipherSuite {
                    name: wanted.clone(),
                    known: names(&provider),
                })
            });
            provider.cipher_suites = suites.collect::<Result<_, _>>()?;
        }
        Ok(provider)
    }

    /// Whether the server says which of the ciphers is best, and not the client.
    pub(super) fn has_own_order(&self) -> bool {
        !self.cipher_suites.is_empty()
    }
}

/// Whether a cipher suite has a name: that of IANA, or of TLS 1.3 also the one that tells the version.
fn has_name(known: Option<&str>, name: &str) -> bool {
    known.is_some_and(|known| {
        iana(known).eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(name)
    })
}

/// The name of IANA, which does not tell the version.
fn iana(known: &str) -> String {
    match known.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => known.to_owned(),
    }
}

fn names(provider: &CryptoProvider) -> String {
    let suites = provider.cipher_suites.iter();
    let names = suites.filter_map(|suite| suite.suite().as_str().map(iana));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(suites: &[&str]) -> Policy {
        Policy {
            min_version: MinVersion::Tls12,
            cipher_suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
        }
    }

    #[test]
    fn ciphers_are_named_as_iana_does_and_keep_their_order() {
        let wanted = [
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "tls_aes_256_gcm_sha384",
            "TLS13_CHACHA20_POLY1305_SHA256",
        ];
        let provider = policy(&wanted).provider().unwrap();
        assert_eq!(
            names(&provider),
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256"
        );
        let all = policy(&[]).provider().unwrap();
        assert!(all.cipher_suites.len() > wanted.len());
    }

    #[test]
    fn a_cipher_that_there_is_not_is_told_with_those_that_there_are() {
        let refused = policy(&["TLS_RSA_WITH_RC4_128_SHA"])
            .provider()
            .unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("RC4") && refused.contains("TLS_AES_128_GCM_SHA256"),
            "{refused}"
        );
    }
}
