//! The other end of a connection, and where it comes from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sapwood_directory::access::Connection;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// TCP.
    Tcp(SocketAddr),
    /// A socket in the file system, with the user and group ids that the kernel vouches for.
    Local { uid: u32, gid: u32 },
}

impl Peer {
    /// Whether it is root or the user that runs the server, whom SASL EXTERNAL makes the administrator.
    pub(crate) fn is_trusted(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Local { uid, .. } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
        }
    }

    /// What access rules may ask of a connection of it.
    pub(crate) fn connection(&self, tls_strength: u32) -> Arc<Connection> {
        /// What slapd counts for a local socket.
        const LOCAL_STRENGTH: u32 = 71;
        let (address, peer_name) = match self {
            Self::Tcp(address) => {
                // An IPv4 address is written as one, also where it came to a listener of both kinds.
                let known = SocketAddr::new(address.ip().to_canonical(), address.port());
                (Some(known), format!("IP={known}"))
            }
            Self::Local { .. } => (None, "PATH=".to_owned()),
        };
        Arc::new(Connection {
            transport_strength: if address.is_none() { LOCAL_STRENGTH } else { 0 },
            tls_strength,
            address,
            peer_name,
        })
    }

    /// Where its work comes from, for what is shared by address.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Tcp(address) => Origin::of_address(address.ip()),
            Self::Local { uid, .. } => Origin::Local(*uid),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
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
