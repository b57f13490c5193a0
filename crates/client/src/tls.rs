//! Decides which servers are trusted.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use crate::error::Error;

/// The servers that are trusted with TLS.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Trust {
    /// None: TLS cannot be used.
    #[default]
    Nobody,
    /// Servers with a certificate in their name that one of these authorities has signed, directly or not.
    Authorities(Vec<CertificateDer<'static>>),
    /// The server whose certificate has this SHA-256 fingerprint, whatever name is in it.
    Fingerprint([u8; 32]),
}

impl Trust {
    /// Reads the certificates of authorities from a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or has no certificate.
    pub fn authorities(file: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::Tls(format!("{}: {why}", file.display()));
        let certificates = CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(error.to_string()))?;
        match certificates.is_empty() {
            true => Err(wrong("there is no certificate in it".to_owned())),
            false => Ok(Trust::Authorities(certificates)),
        }
    }

    /// Reads a fingerprint as `sapwood init` and `openssl x509 -fingerprint -sha256` print it: 32 octets in
    /// hexadecimal, with or without colons.
    ///
    /// # Errors
    /// When the text is something else.
    pub fn fingerprint(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Tls("a fingerprint is 32 octets in hexadecimal".to_owned());
        let digits: Vec<u32> = (text.chars().filter(|c| *c != ':'))
            .map(|c| c.to_digit(16).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        let octets: Vec<u8> = digits
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |n, d| n << 4 | *d as u8))
            .collect();
        match octets.try_into() {
            Ok(octets) if digits.len() == 64 => Ok(Trust::Fingerprint(octets)),
            _ => Err(wrong()),
        }
    }

    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Tls(error.to_string()))?;
        let config = match self {
            Trust::Nobody => {
                return Err(Error::Tls(
                    "no server is trusted: name authorities or a fingerprint".to_owned(),
                ));
            }
            Trust::Authorities(certificates) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates {
                    roots
                        .add(certificate.clone())
                        .map_err(|error| Error::Tls(error.to_string()))?;
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            Trust::Fingerprint(fingerprint) => {
                let pinned = Pinned {
                    fingerprint: *fingerprint,
                    provider,
                };
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(pinned))
                    .with_no_client_auth()
            }
        };
        Ok(Arc::new(config))
    }
}

/// Trusts one certificate. The signatures of the handshake are checked as always: they prove that the peer has its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Sha256::digest(end_entity).as_slice() == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_with_and_without_colons() {
        let plain = "00".repeat(31) + "aF";
        let mut expected = [0; 32];
        expected[31] = 0xaf;
        let colons = ["00"; 31].join(":") + ":AF";
        for text in [plain, colons] {
            assert!(
                matches!(Trust::fingerprint(&text), Ok(Trust::Fingerprint(octets)) if octets == expected)
            );
        }
        for wrong in ["", "00", "zz", &"0".repeat(63), &"0".repeat(66)] {
            assert!(Trust::fingerprint(wrong).is_err(), "{wrong}");
        }
    }
}
