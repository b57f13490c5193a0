//! What TLS has established on a connection: how strong it is, who the client is, and what binds an authentication to
//! it.

use std::sync::Arc;

use rustls::{ProtocolVersion, ServerConnection};
use rustls_pki_types::CertificateDer;
use sapwood_ldap::x509::Certificate;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

/// Bytes of the channel binding tls-exporter (RFC 9266 §2).
const EXPORTER_BYTES: usize = 32;
/// Its label.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// What TLS has established.
#[derive(Debug)]
pub(crate) struct Established {
    /// The security strength factor: bits of the cipher's key.
    pub(crate) ssf: u16,
    /// The client's own certificate, which one of the configured authorities vouches for.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    pub(crate) bindings: Bindings,
}

/// Channel bindings, by which both ends tell that they are ends of the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    /// tls-exporter (RFC 9266). Only TLS 1.3 has it always, and unique.
    pub(crate) exporter: Option<[u8; EXPORTER_BYTES]>,
    /// tls-server-end-point (RFC 5929 §4). `None` for a certificate whose signature has no hash of its own.
    pub(crate) server_end_point: Option<Arc<[u8]>>,
}

impl Established {
    /// Takes the facts from a connection whose handshake is over.
    pub(super) fn of(tls: &ServerConnection, server_end_point: Option<Arc<[u8]>>) -> Self {
        let is_newest = tls.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let exported = || {
            let output = [0; EXPORTER_BYTES];
            let exported = tls.export_keying_material(output, EXPORTER_LABEL, Some(&[]));
            exported.ok()
        };
        let own = tls.peer_certificates().and_then(|chain| chain.first());
        Self {
            ssf: key_bits(tls),
            certificate: own.cloned(),
            bindings: Bindings {
                exporter: is_newest.then(exported).flatten(),
                server_end_point,
            },
        }
    }
}

/// Bits of the key of the cipher in use; 0 for a cipher that is not known.
fn key_bits(tls: &ServerConnection) -> u16 {
    let suite = tls.negotiated_cipher_suite().map(|known| known.suite());
    let name = suite.and_then(|suite| suite.as_str());
    match name.unwrap_or_default() {
        name if name.contains("AES_128") => 128,
        name if name.contains("AES_256") || name.contains("CHACHA20") => 256,
        _ => 0,
    }
}

/// The hash of a server's certificate that binds channels (RFC 5929 §4.1): the hash of its signature, or SHA-256 in the
/// place of MD5 and SHA-1. Signatures without a hash, such as Ed25519, have no such binding.
pub(super) fn server_end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
    let algorithm = Certificate::parse(certificate)?.signature_algorithm()?;
    let hash = match algorithm.as_str() {
        // RSA with MD5, SHA-1 and SHA-256, ECDSA with SHA-1 and SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Sha256::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" => Sha224::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Sha384::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Sha512::digest(certificate).to_vec(),
        _ => return None,
    };
    Some(hash.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_hashed_with_the_hash_of_its_signature() {
        for (algorithm, bytes) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let certificate = params.self_signed(&key).unwrap();
            let hash = server_end_point(certificate.der());
            assert_eq!(hash.map(|hash| hash.len()), bytes, "{algorithm:?}");
        }
        assert!(server_end_point(b"no certificate").is_none());
    }
}
