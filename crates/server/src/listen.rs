//! Addresses to listen on, as LDAP URLs: `ldap://host:port`, `ldaps://host:port`, `ldapi://%2Fpath`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::proxy_protocol::Network;
use crate::tls::ClientCertificates;

/// The port of `ldap://` when the URL names none.
pub const LDAP_PORT: u16 = 389;
/// The port of `ldaps://` when the URL names none.
pub const LDAPS_PORT: u16 = 636;
/// The path of `ldapi://` when the URL names none.
pub const LDAPI_PATH: &str = "/run/sapwood.sock";
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// One address to listen on. Port 0 takes any free port.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum ListenUrl {
    /// TCP, in the clear until StartTLS.
    Ldap(String, u16),
    /// TCP, with TLS from the first byte.
    Ldaps(String, u16),
    /// A socket in the file system.
    Ldapi(PathBuf),
}

/// An address to listen on, with what holds there alone: in the configuration a URL, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub url: ListenUrl,
    /// Whether clients are asked for a certificate; `None` leaves it to `tls.client_certificates`.
    pub client_certificates: Option<ClientCertificates>,
    /// Where proxies connect from that say for whom, by a header of the PROXY protocol.
    pub proxies: Vec<Network>,
}

impl From<ListenUrl> for Listener {
    fn from(url: ListenUrl) -> Self {
        Self {
            url,
            client_certificates: None,
            proxies: Vec::new(),
        }
    }
}

impl<'de> Deserialize<'de> for Listener {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: ListenUrl,
            client_certificates: Option<ClientCertificates>,
            #[serde(default)]
            proxies: Vec<Network>,
        }

        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Listener;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, or { url = URL, client_certificates = \"demand\", proxies = [NETWORK] }")
            }

            fn visit_str<E: serde::de::Error>(self, url: &str) -> Result<Listener, E> {
                let url = url.parse::<ListenUrl>().map_err(E::custom)?;
                Ok(url.into())
            }

            fn visit_map<M: MapAccess<'de>>(self, table: M) -> Result<Listener, M::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(table))?;
                if matches!(table.url, ListenUrl::Ldapi(_)) && !table.proxies.is_empty() {
                    let why = format!("{}: no proxy comes from a network there", table.url);
                    return Err(serde::de::Error::custom(why));
                }
                Ok(Listener {
                    url: table.url,
                    client_certificates: table.client_certificates,
                    proxies: table.proxies,
                })
            }
        }

        from.deserialize_any(Form)
    }
}

impl Serialize for Listener {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.client_certificates.is_none() && self.proxies.is_empty() {
            return self.url.serialize(to);
        }
        let mut table = to.serialize_map(None)?;
        table.serialize_entry("url", &self.url)?;
        if let Some(asked) = self.client_certificates {
            table.serialize_entry("client_certificates", &asked)?;
        }
        if !self.proxies.is_empty() {
            table.serialize_entry("proxies", &self.proxies)?;
        }
        table.end()
    }
}

/// A URL that is not an address to listen on.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{url}' is not an address to listen on: {reason} (ldap://HOST:PORT, ldaps://HOST:PORT or ldapi://%2Fpath%2Fto%2Fsocket)"
)]
pub struct UrlError {
    url: String,
    reason: &'static str,
}

impl FromStr for ListenUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let wrong = |reason| UrlError {
            url: url.into(),
            reason,
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if scheme.eq_ignore_ascii_case("ldapi") {
            if rest.is_empty() {
                return Ok(Self::Ldapi(LDAPI_PATH.into()));
            }
            let path = percent_decode(rest).ok_or_else(|| wrong("a bad %XX in the path"))?;
            return if Path::new(&path).is_absolute() {
                Ok(Self::Ldapi(path.into()))
            } else {
                Err(wrong("the path must be absolute, with %2F for each slash"))
            };
        }
        let (default, make): (u16, fn(String, u16) -> Self) = if scheme.eq_ignore_ascii_case("ldap")
        {
            (LDAP_PORT, Self::Ldap)
        } else if scheme.eq_ignore_ascii_case("ldaps") {
            (LDAPS_PORT, Self::Ldaps)
        } else {
            return Err(wrong("the scheme is none of ldap, ldaps, ldapi"));
        };
        // The colons of an IPv6 address are inside its brackets.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (
                host,
                port.parse()
                    .map_err(|_| wrong("the port is not a number up to 65535"))?,
            ),
            _ => (rest, default),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        if host.contains(['/', '?', '[', ']', '%']) {
            return Err(wrong("the host is not a name or an address"));
        }
        Ok(make(
            if host.is_empty() {
                "0.0.0.0".into()
            } else {
                host.into()
            },
            port,
        ))
    }
}

impl TryFrom<String> for ListenUrl {
    type Error = UrlError;

    fn try_from(url: String) -> Result<Self, UrlError> {
        url.parse()
    }
}

impl From<ListenUrl> for String {
    fn from(url: ListenUrl) -> Self {
        url.to_string()
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (high, low) = (
                char::from(rest.next()?).to_digit(16)?,
                char::from(rest.next()?).to_digit(16)?,
            );
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let path = String::from_utf8(bytes).ok()?;
    (!path.contains('\0')).then_some(path)
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Ldap(host, port) => ("ldap", host, port),
            Self::Ldaps(host, port) => ("ldaps", host, port),
            Self::Ldapi(path) => {
                return write!(
                    f,
                    "ldapi://{}",
                    path.display()
                        .to_string()
                        .replace('%', "%25")
                        .replace('/', "%2F")
                );
            }
        };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// The address that a host name and port stand for.
///
/// # Errors
/// When the name is unknown.
pub(crate) fn resolve(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    (host, port).to_socket_addrs()?.next().ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("no address for '{host}'"),
        )
    })
}

/// Takes an address for this process: fails when any other socket listens there, which sockets that share a port would
/// not notice.
///
/// Returns the address with its port filled in. The port is shared (`SO_REUSEPORT`), one listener per runtime.
pub(crate) fn claim(address: SocketAddr) -> std::io::Result<(SocketAddr, std::net::TcpListener)> {
    if address.port() != 0 {
        drop(socket(address, false)?.bind_and_listen()?);
    }
    let listener = socket(address, true)?.bind_and_listen()?;
    Ok((listener.local_addr()?, listener))
}

/// One more listener on an address that [`claim`] took.
pub(crate) fn share(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    socket(address, true)?.bind_and_listen()
}

struct Unbound {
    fd: rustix::fd::OwnedFd,
    address: SocketAddr,
}

fn socket(address: SocketAddr, shared: bool) -> Result<Unbound, Errno> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, shared)?;
    Ok(Unbound { fd, address })
}

impl Unbound {
    fn bind_and_listen(self) -> std::io::Result<std::net::TcpListener> {
        rustix::net::bind(&self.fd, &self.address)?;
        rustix::net::listen(&self.fd, BACKLOG)?;
        Ok(self.fd.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_parse_and_print() {
        for (url, expected, printed) in [
            (
                "ldap://127.0.0.1:3890",
                ListenUrl::Ldap("127.0.0.1".into(), 3890),
                "ldap://127.0.0.1:3890",
            ),
            (
                "LDAP://ldap.example.com/",
                ListenUrl::Ldap("ldap.example.com".into(), 389),
                "ldap://ldap.example.com:389",
            ),
            (
                "ldaps://[::1]",
                ListenUrl::Ldaps("::1".into(), 636),
                "ldaps://[::1]:636",
            ),
            (
                "ldaps://[::]:0",
                ListenUrl::Ldaps("::".into(), 0),
                "ldaps://[::]:0",
            ),
            (
                "ldap://",
                ListenUrl::Ldap("0.0.0.0".into(), 389),
                "ldap://0.0.0.0:389",
            ),
            (
                "ldapi://%2Frun%2Fx.sock",
                ListenUrl::Ldapi("/run/x.sock".into()),
                "ldapi://%2Frun%2Fx.sock",
            ),
            (
                "ldapi://",
                ListenUrl::Ldapi(LDAPI_PATH.into()),
                "ldapi://%2Frun%2Fsapwood.sock",
            ),
        ] {
            let parsed: ListenUrl = url.parse().unwrap();
            assert_eq!(parsed, expected);
            assert_eq!(parsed.to_string(), printed);
            assert_eq!(printed.parse::<ListenUrl>().unwrap(), parsed);
        }
    }

    #[test]
    fn wrong_urls_say_what_is_wrong() {
        for url in [
            "127.0.0.1:389",
            "http://x",
            "ldap://x:99999",
            "ldapi://relative",
            "ldapi://%2",
            "ldap://a/b",
            "ldapi://%2Fa%00b",
        ] {
            let error = url.parse::<ListenUrl>().unwrap_err().to_string();
            assert!(error.contains(url), "{error}");
        }
    }

    #[test]
    fn a_taken_port_is_refused_but_shared_within() {
        let (address, _first) = claim("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(address.port(), 0);
        share(address).unwrap();
        assert_eq!(
            claim(address).unwrap_err().kind(),
            std::io::ErrorKind::AddrInUse
        );
    }
}
