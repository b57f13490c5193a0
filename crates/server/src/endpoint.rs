//! What all connections of a listener have in common.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use crate::listen::{ListenUrl, Listener};
use crate::proxy_protocol::Network;
use crate::tls::TlsUse;

/// A listener, as its connections know it.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) tls_use: TlsUse,
    /// Where connections come from that begin with a header of the [PROXY protocol](crate::proxy_protocol).
    proxies: Vec<Network>,
    /// As access rules name it (`sockname`): `IP=127.0.0.1:389`, `PATH=/run/ldapi`.
    pub(crate) name: Arc<str>,
    /// Its URL, with the port that was found (`sockurl`).
    pub(crate) url: Arc<str>,
}

impl Endpoint {
    /// That of an IP address.
    pub(crate) fn tcp(listener: &Listener, address: SocketAddr, url: &ListenUrl) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            tls_use: TlsUse {
                is_first: matches!(url, ListenUrl::Ldaps(..)),
                client_certificates: listener.client_certificates,
            },
            proxies: listener.proxies.clone(),
            name: format!("IP={address}").into(),
            url: url.to_string().into(),
        })
    }

    /// That of a socket in the file system.
    pub(crate) fn local(path: &Path, url: &ListenUrl) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            tls_use: TlsUse::default(),
            proxies: Vec::new(),
            name: format!("PATH={}", path.display()).into(),
            url: url.to_string().into(),
        })
    }

    /// Whether who comes from an address has to say for whom, and is believed.
    pub(crate) fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.has(address))
    }
}
