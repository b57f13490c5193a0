//! The other end of a connection, and where it comes from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sapwood_directory::access::Connection;

use crate::endpoint::Endpoint;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// TCP.
    Tcp(SocketAddr),
    /// TCP, by way of a proxy that is believed to say whose connection it is.
    Proxied { client: SocketAddr, proxy: IpAddr },
    /// A socket in the file system, with the user and group ids that the kernel vouches for.
    Local { uid: u32, gid: u32 },
}

impl Peer {
    /// Whether it is root or the user that runs the server, whom SASL EXTERNAL makes the administrator.
    pub(crate) fn is_trusted(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Proxied { .. } => false,
            Self::Local { uid, .. } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
        }
    }

    /// Its address; none of one on this machine's file system.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address)
            | Self::Proxied {
                client: address, ..
            } => Some(*address),
            Self::Local { .. } => None,
        }
    }

    /// Whether nothing between it and the server leaves this machine.
    pub(crate) fn is_near(&self) -> bool {
        let is_near = |address: IpAddr| address.to_canonical().is_loopback();
        match self {
            Self::Tcp(address) => is_near(address.ip()),
            Self::Proxied { client, proxy } => is_near(client.ip()) && is_near(*proxy),
            Self::Local { .. } => true,
        }
    }

    /// What access rules may ask of a connection of it.
    pub(crate) fn connection(&self, endpoint: &Endpoint, tls_strength: u32) -> Arc<Connection> {
        /// What slapd counts for a local socket.
        const LOCAL_STRENGTH: u32 = 71;
        // An IPv4 address is written as one, also where it came to a listener of both kinds.
        let known = |address: SocketAddr| (address.ip().to_canonical(), address.port()).into();
        let address: Option<SocketAddr> = self.address().map(known);
        Arc::new(Connection {
            transport_strength: if address.is_none() { LOCAL_STRENGTH } else { 0 },
            tls_strength,
            address,
            peer_name: match address {
                Some(known) => format!("IP={known}"),
                // A client's socket has no path of its own.
                None => endpoint.name.as_ref().to_owned(),
            },
            socket_name: endpoint.name.clone(),
            socket_url: endpoint.url.clone(),
        })
    }

    /// Where its work comes from, for what is shared by address.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Tcp(address)
            | Self::Proxied {
                client: address, ..
            } => Origin::of_address(address.ip()),
            Self::Local { uid, .. } => Origin::Local(*uid),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Proxied { client, proxy } => write!(f, "{client} by {proxy}"),
            Self::Local { uid, .. } => write!(f, "local, user id {uid}"),
        }
    }
}

/// Where somebody comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// An address; of IPv6 the network that one customer has.
    Address(IpAddr),
    /// A user of this machine.
    Local(u32),
}

impl Origin {
    pub(crate) fn of_address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            address => address,
        })
    }
}
