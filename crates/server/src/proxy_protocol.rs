//! The PROXY protocol, version 2 (HAProxy's proxy-protocol.txt §2.2): a header by which a proxy says for whom it
//! connects. Only who listens says from which networks such a header is taken; from others it is none.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What every header begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes up to and with the length of what follows.
const FIXED_BYTES: usize = 16;
/// Bytes of a header: what proxies add of a connection, such as a name that TLS was asked for, takes some hundred.
pub const HEADER_BYTES_MAX: usize = 4096;
/// Bytes of the addresses and ports of TCP over IPv4 and over IPv6.
const IPV4_BYTES: usize = 12;
const IPV6_BYTES: usize = 36;

/// What is read of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// It goes on: so many bytes are needed before more can be said.
    Needs(usize),
    /// It is read.
    Whole {
        /// Its bytes.
        length: usize,
        /// For whom the proxy connects; `None` where it connects for itself, such as to see whether the server lives,
        /// or for somebody who has no IP address.
        client: Option<SocketAddr>,
    },
}

/// What is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It does not begin as one of version 2.
    #[error("it does not begin with the signature of version 2")]
    Signature,
    /// Of another version.
    #[error("its version is {0}, and 2 is spoken")]
    Version(u8),
    /// Neither LOCAL nor PROXY.
    #[error("there is no command {0}")]
    Command(u8),
    /// An address family or a transport that there is not.
    #[error("there is no address family and transport {0:#04x}")]
    Family(u8),
    /// The addresses do not fit in it.
    #[error("{0} bytes are too few for its addresses")]
    Short(usize),
    /// It is longer than [`HEADER_BYTES_MAX`].
    #[error("{0} bytes are more than {HEADER_BYTES_MAX}")]
    Long(usize),
}

impl Header {
    /// Reads what has come of a header, behind which other bytes may stand.
    ///
    /// # Errors
    /// When it cannot become one.
    pub fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            let is_one = SIGNATURE.iter().zip(bytes).all(|(one, other)| one == other);
            return match is_one {
                true => Ok(Header::Needs(FIXED_BYTES)),
                false => Err(HeaderError::Signature),
            };
        };
        let [signature @ .., version_and_command, family, high, low] = fixed;
        if *signature != SIGNATURE {
            return Err(HeaderError::Signature);
        }
        let (version, command) = (version_and_command >> 4, version_and_command & 0xf);
        if version != 2 {
            return Err(HeaderError::Version(version));
        }
        let following = usize::from(u16::from_be_bytes([*high, *low]));
        let length = FIXED_BYTES + following;
        if length > HEADER_BYTES_MAX {
            return Err(HeaderError::Long(length));
        }
        let Some(rest) = rest.get(..following) else {
            return Ok(Header::Needs(length));
        };
        let client = match (command, *family) {
            // What stands in it is to be passed over.
            (0, _) => None,
            (1, 0x11) => Some(ipv4_source(rest).ok_or(HeaderError::Short(following))?),
            (1, 0x21) => Some(ipv6_source(rest).ok_or(HeaderError::Short(following))?),
            // Nothing that is known, UDP, and sockets in a file system.
            (1, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => None,
            (1, family) => return Err(HeaderError::Family(family)),
            (command, _) => return Err(HeaderError::Command(command)),
        };
        Ok(Header::Whole { length, client })
    }
}

fn ipv4_source(bytes: &[u8]) -> Option<SocketAddr> {
    let addresses = bytes.first_chunk::<IPV4_BYTES>()?;
    let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
    let address = Ipv4Addr::new(a, b, c, d);
    Some((address, u16::from_be_bytes([high, low])).into())
}

fn ipv6_source(bytes: &[u8]) -> Option<SocketAddr> {
    let addresses = bytes.first_chunk::<IPV6_BYTES>()?;
    let (source, _) = addresses.split_first_chunk::<16>()?;
    let (_, ports) = addresses.split_last_chunk::<4>()?;
    let [high, low, _, _] = *ports;
    let address = Ipv6Addr::from(*source);
    Some((address, u16::from_be_bytes([high, low])).into())
}

/// Reads a header from a stream, and nothing of what comes behind it.
///
/// # Errors
/// When the stream ends in it or fails, and when it is no header.
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut bytes = Vec::with_capacity(FIXED_BYTES + IPV6_BYTES);
    loop {
        match Header::read(&bytes).map_err(io::Error::other)? {
            Header::Needs(length) => {
                let known = bytes.len();
                bytes.resize(length, 0);
                let rest = bytes.get_mut(known..).unwrap_or_default();
                stream.read_exact(rest).await?;
            }
            Header::Whole { client, .. } => return Ok(client),
        }
    }
}

/// A network: `10.1.0.0/16`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    /// The bits of an address that count.
    bits: u32,
}

/// What is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a network: write 10.1.0.0/16, 2001:db8::/32 or an address, with zeros behind the bits that count"
)]
pub struct NetworkError(String);

impl Network {
    /// Whether an address is in it.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && (bits_of(address) ^ bits_of(self.address)) & self.mask() == 0
    }

    /// The bits that count, of the 128 that [`bits_of`] makes of an address.
    fn mask(&self) -> u128 {
        let behind = 128_u32.saturating_sub(self.bits);
        u128::MAX.checked_shl(behind).unwrap_or_default()
    }
}

/// The bits of an address; those of IPv4 are the first 32.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| wrong())?,
            None => most,
        };
        let network = Network { address, bits };
        let is_whole = bits <= most && bits_of(address) & !network.mask() == 0;
        match is_whole && address.to_canonical() == address {
            true => Ok(network),
            false => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Network, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([version_and_command, family]);
        bytes.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    const OF_IPV4: [u8; IPV4_BYTES] = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 1, 133];

    #[test]
    fn a_header_says_for_whom_a_proxy_connects() {
        let mut more = OF_IPV4.to_vec();
        more.extend([1, 0, 4, b'l', b'd', b'a', b'p']);
        let mut of_ipv6 = Ipv6Addr::LOCALHOST.octets().to_vec();
        of_ipv6.extend([0; 16]);
        of_ipv6.extend([0, 9, 1, 133]);
        for (bytes, client) in [
            (header(0x21, 0x11, &OF_IPV4), Some("192.0.2.1:4660")),
            (header(0x21, 0x11, &more), Some("192.0.2.1:4660")),
            (header(0x21, 0x21, &of_ipv6), Some("[::1]:9")),
            (header(0x20, 0x11, &OF_IPV4), None),
            (header(0x20, 0x00, b""), None),
            (header(0x21, 0x00, b""), None),
            (header(0x21, 0x31, &[0; 216]), None),
        ] {
            let length = bytes.len();
            let client = client.map(|client| client.parse().unwrap());
            let whole = Ok(Header::Whole { length, client });
            assert_eq!(Header::read(&bytes), whole);
            let mut behind = bytes.clone();
            behind.extend(b"\x30\x0c");
            assert_eq!(Header::read(&behind), whole);
            for known in 0..length {
                let needed = if known < FIXED_BYTES {
                    FIXED_BYTES
                } else {
                    length
                };
                assert_eq!(Header::read(&bytes[..known]), Ok(Header::Needs(needed)));
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused_as_soon_as_that_is_known() {
        assert_eq!(Header::read(b"\x30"), Err(HeaderError::Signature));
        assert_eq!(Header::read(b"PROXY TCP4 "), Err(HeaderError::Signature));
        for (bytes, error) in [
            (header(0x11, 0x11, &OF_IPV4), HeaderError::Version(1)),
            (header(0x22, 0x11, &OF_IPV4), HeaderError::Command(2)),
            (header(0x21, 0x13, &OF_IPV4), HeaderError::Family(0x13)),
            (header(0x21, 0x41, &OF_IPV4), HeaderError::Family(0x41)),
            (header(0x21, 0x11, &OF_IPV4[1..]), HeaderError::Short(11)),
            (header(0x21, 0x21, &OF_IPV4), HeaderError::Short(12)),
            (header(0x20, 0x00, &[0; 4081]), HeaderError::Long(4097)),
        ] {
            assert_eq!(Header::read(&bytes), Err(error));
        }
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.1", "10.2.0.1"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.1.2.2/31", "::ffff:10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "192.0.2.1", "::1"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::"),
            ("::/0", "::1", "127.0.0.1"),
            ("::1", "::1", "::2"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.has(inside.parse().unwrap()), "{network} {inside}");
            assert!(
                !network.has(outside.parse().unwrap()),
                "{network} {outside}"
            );
            assert_eq!(network.to_string().parse(), Ok(network));
        }
        for wrong in [
            "",
            "10.1.0.0/8",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/",
            "::/129",
            "::ffff:10.0.0.0/120",
            "localhost",
            "10.0.0.0/255.0.0.0",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
