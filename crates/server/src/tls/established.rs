//! What TLS has established on a connection: how strong it is, and who the client is.

use rustls::ServerConnection;
use rustls_pki_types::CertificateDer;

/// What TLS has established.
#[derive(Debug)]
pub(crate) struct Established {
    /// The security strength factor: bits of the cipher's key.
    pub(crate) ssf: u16,
    /// The client's own certificate, which one of the configured authorities vouches for.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl Established {
    /// Takes the facts from a connection whose handshake is over.
    pub(crate) fn of(tls: &ServerConnection) -> Self {
        let own = tls.peer_certificates().and_then(|chain| chain.first());
        Self {
            ssf: key_bits(tls),
            certificate: own.cloned(),
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
