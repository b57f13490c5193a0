//! LDAP URLs (RFC 4516), and the `ldaps` and `ldapi` ones that servers and tools know besides.

#![deny(clippy::indexing_slicing)]

use std::fmt;
use std::net::Ipv6Addr;

use crate::attribute::{is_descriptor, is_numeric_oid};
use crate::dn::{Dn, DnError};

/// The longest URL that is read.
pub const URL_BYTES_MAX: usize = 64 << 10;

/// An LDAP URL, percent-encoding undone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LdapUrl {
    /// How to reach the server.
    pub scheme: Scheme,
    /// The host name or address, an IPv6 address without its brackets; for `ldapi` the path of the socket. Empty:
    /// the client knows which server to ask.
    pub host: String,
    /// The port, if one is given.
    pub port: Option<u16>,
    /// The distinguished name, checked, as written.
    pub dn: String,
    /// The attributes to return; none means all user attributes (RFC 4516 §2).
    pub attributes: Vec<String>,
    /// The scope, if one is given; `base` is meant otherwise.
    pub scope: Option<Scope>,
    /// The search filter, as text and not checked.
    pub filter: Option<String>,
    /// Extensions.
    pub extensions: Vec<UrlExtension>,
}

/// The scheme of an LDAP URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scheme {
    /// TCP, port 389.
    #[default]
    Ldap,
    /// TLS from the first byte, port 636.
    Ldaps,
    /// A local socket.
    Ldapi,
}

/// The scope of an LDAP URL (RFC 4511 §4.5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `base`
    Base,
    /// `one`
    One,
    /// `sub`
    Sub,
    /// `subord` (draft-sermersheim-ldap-subordinate-scope §3.1), read also as `subordinate`, OpenLDAP's word.
    Subordinates,
}

/// An extension of an LDAP URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlExtension {
    /// Whether the URL must not be used where the extension is not known.
    pub critical: bool,
    /// Its object identifier or name.
    pub name: String,
    /// Its value.
    pub value: Option<String>,
}

/// Why text is not an LDAP URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Not an LDAP URL at all.
    #[error("the URL must begin with ldap://, ldaps:// or ldapi://")]
    UnknownScheme,
    /// A host that is neither a name nor an address, or whose brackets hold no IPv6 address.
    #[error("{0:?} is not a host")]
    BadHost(String),
    /// Not a port.
    #[error("{0:?} is not a port")]
    BadPort(String),
    /// A percent sign without two hexadecimal digits, or not UTF-8 behind them.
    #[error("bad percent-encoding in {0:?}")]
    BadEncoding(String),
    /// A character that a URL cannot hold.
    #[error("a URL cannot hold {0:?}; it must be percent-encoded")]
    BadCharacter(char),
    /// The distinguished name does not parse.
    #[error("the distinguished name: {0}")]
    BadDn(#[from] DnError),
    /// Something other than attribute selectors.
    #[error("{0:?} is not an attribute")]
    BadAttribute(String),
    /// Not a scope.
    #[error("{0:?} is not a scope: base, one or sub")]
    BadScope(String),
    /// Not an extension name.
    #[error("{0:?} is not the name of an extension")]
    BadExtension(String),
    /// A fifth question mark.
    #[error("text after the extensions")]
    TrailingText,
}

impl LdapUrl {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<LdapUrl, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if let Some(bad) = text
            .chars()
            .find(|&c| !c.is_ascii_graphic() || matches!(c, '"' | '<' | '>'))
        {
            return Err(UrlError::BadCharacter(bad));
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::UnknownScheme)?;
        let schemes = [Scheme::Ldap, Scheme::Ldaps, Scheme::Ldapi];
        let known = schemes
            .into_iter()
            .find(|known| known.as_str().eq_ignore_ascii_case(scheme));
        let mut url = LdapUrl {
            scheme: known.ok_or(UrlError::UnknownScheme)?,
            ..LdapUrl::default()
        };
        let (host, rest) = rest
            .split_at_checked(rest.find(['/', '?']).unwrap_or(rest.len()))
            .unwrap_or_default();
        url.read_host(host)?;
        let mut parts = rest.strip_prefix('/').unwrap_or(rest).split('?');
        url.dn = decode(parts.next().unwrap_or_default())?;
        Dn::parse(&url.dn)?;
        url.read_attributes(parts.next().unwrap_or_default())?;
        url.read_scope(parts.next().unwrap_or_default())?;
        url.filter = parts
            .next()
            .filter(|filter| !filter.is_empty())
            .map(decode)
            .transpose()?;
        url.read_extensions(parts.next().unwrap_or_default())?;
        match parts.next() {
            None => Ok(url),
            Some(_) => Err(UrlError::TrailingText),
        }
    }

    /// The port, or the usual one of the scheme; `None` for a local socket.
    pub fn port_or_default(&self) -> Option<u16> {
        match self.scheme {
            Scheme::Ldap => self.port.or(Some(389)),
            Scheme::Ldaps => self.port.or(Some(636)),
            Scheme::Ldapi => None,
        }
    }

    fn read_host(&mut self, text: &str) -> Result<(), UrlError> {
        let bad_host = || UrlError::BadHost(text.to_owned());
        if self.scheme == Scheme::Ldapi {
            self.host = decode(text)?;
            return Ok(());
        }
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, after) = rest.split_once(']').ok_or_else(bad_host)?;
            address.parse::<Ipv6Addr>().map_err(|_| bad_host())?;
            self.host = address.to_owned();
            (
                None,
                after
                    .strip_prefix(':')
                    .or(after.is_empty().then_some(""))
                    .ok_or_else(bad_host)?,
            )
        } else {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            (Some(host), port)
        };
        if let Some(host) = host {
            self.host = decode(host)?;
            if self.host.contains(|c: char| {
                c.is_whitespace() || c.is_control() || matches!(c, ':' | '[' | ']' | '/' | '@')
            }) {
                return Err(bad_host());
            }
        }
        if !port.is_empty() {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.then(|| port.parse().ok()).flatten();
            self.port = Some(number.ok_or_else(|| UrlError::BadPort(port.to_owned()))?);
        }
        Ok(())
    }

    fn read_attributes(&mut self, text: &str) -> Result<(), UrlError> {
        for attribute in text.split(',').filter(|_| !text.is_empty()) {
            let attribute = decode(attribute)?;
            let allowed = |byte: u8| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'-' | b'.' | b';' | b'@' | b'*' | b'+')
            };
            if attribute.is_empty() || !attribute.bytes().all(allowed) {
                return Err(UrlError::BadAttribute(attribute));
            }
            self.attributes.push(attribute);
        }
        Ok(())
    }

    fn read_scope(&mut self, text: &str) -> Result<(), UrlError> {
        let scopes = [Scope::Base, Scope::One, Scope::Sub, Scope::Subordinates];
        let text = if text.eq_ignore_ascii_case("subordinate") {
            "subord"
        } else {
            text
        };
        self.scope = scopes
            .into_iter()
            .find(|scope| scope.as_str().eq_ignore_ascii_case(text));
        match self.scope {
            None if !text.is_empty() => Err(UrlError::BadScope(text.to_owned())),
            _ => Ok(()),
        }
    }

    fn read_extensions(&mut self, text: &str) -> Result<(), UrlError> {
        for extension in text.split(',').filter(|_| !text.is_empty()) {
            let (critical, rest) = match extension.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, extension),
            };
            let (name, value) = match rest.split_once('=') {
                Some((name, value)) => (decode(name)?, Some(decode(value)?)),
                None => (decode(rest)?, None),
            };
            if !is_descriptor(&name) && !is_numeric_oid(&name) {
                return Err(UrlError::BadExtension(name));
            }
            self.extensions.push(UrlExtension {
                critical,
                name,
                value,
            });
        }
        Ok(())
    }
}

impl std::str::FromStr for LdapUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<LdapUrl, UrlError> {
        LdapUrl::parse(text)
    }
}

impl fmt::Display for LdapUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        match self.host.contains(':') && self.scheme != Scheme::Ldapi {
            true => write!(f, "[{}]", self.host)?,
            false => encode(f, &self.host, "/?,")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        // Question marks at the end can be left out, and with them the slash (RFC 4516 §2).
        let parts = [
            !self.dn.is_empty(),
            !self.attributes.is_empty(),
            self.scope.is_some(),
            self.filter.is_some(),
            !self.extensions.is_empty(),
        ];
        let Some(last) = parts.iter().rposition(|&given| given) else {
            return Ok(());
        };
        f.write_str("/")?;
        encode(f, &self.dn, "?")?;
        if last >= 1 {
            f.write_str("?")?;
            f.write_str(&self.attributes.join(","))?;
        }
        if last >= 2 {
            write!(f, "?{}", self.scope.map(Scope::as_str).unwrap_or_default())?;
        }
        if last >= 3 {
            f.write_str("?")?;
            encode(f, self.filter.as_deref().unwrap_or_default(), "?")?;
        }
        for (index, extension) in self.extensions.iter().enumerate() {
            f.write_str(if index == 0 { "?" } else { "," })?;
            f.write_str(if extension.critical { "!" } else { "" })?;
            f.write_str(&extension.name)?;
            if let Some(value) = &extension.value {
                f.write_str("=")?;
                encode(f, value, "?,")?;
            }
        }
        Ok(())
    }
}

impl Scheme {
    /// The scheme without its colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Ldap => "ldap",
            Scheme::Ldaps => "ldaps",
            Scheme::Ldapi => "ldapi",
        }
    }
}

impl Scope {
    /// The word of RFC 4516 §2.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Base => "base",
            Scope::One => "one",
            Scope::Sub => "sub",
            Scope::Subordinates => "subord",
        }
    }
}

/// Undoes percent-encoding (RFC 3986 §2.1).
///
/// # Errors
/// When a percent sign has not two hexadecimal digits behind it, or what comes of it is not UTF-8.
pub fn decode(text: &str) -> Result<String, UrlError> {
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let bad = || UrlError::BadEncoding(text.to_owned());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = digit().zip(digit()).ok_or_else(bad)?;
        decoded.push(u8::try_from(high << 4 | low).map_err(|_| bad())?);
    }
    String::from_utf8(decoded).map_err(|_| bad())
}

/// Writes `text`, percent-encoding what a URL or this part of it cannot hold (RFC 4516 §2.1).
fn encode(f: &mut fmt::Formatter<'_>, text: &str, reserved_here: &str) -> fmt::Result {
    for c in text.chars() {
        let plain = c.is_ascii_alphanumeric() || "-._~:/?#@!$&'()*+,;=".contains(c);
        if plain && c != '#' && !reserved_here.contains(c) {
            write!(f, "{c}")?;
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> LdapUrl {
        LdapUrl::parse(text).unwrap()
    }

    /// RFC 4516 §4.
    #[test]
    fn examples_of_the_rfc() {
        assert_eq!(
            parse("ldap:///o=University%20of%20Michigan,c=US").dn,
            "o=University of Michigan,c=US"
        );
        let url = parse("ldap://ldap1.example.net/o=University%20of%20Michigan,c=US?postalAddress");
        assert_eq!(
            (url.host.as_str(), url.attributes),
            ("ldap1.example.net", vec!["postalAddress".to_owned()])
        );
        let url = parse(
            "ldap://ldap1.example.net:6666/o=University%20of%20Michigan,c=US??sub?(cn=Babs%20Jensen)",
        );
        assert_eq!(
            (url.port, url.scope, url.filter.as_deref()),
            (Some(6666), Some(Scope::Sub), Some("(cn=Babs Jensen)"))
        );
        assert_eq!(
            parse("LDAP://ldap1.example.com/c=GB?objectClass?ONE").scope,
            Some(Scope::One)
        );
        assert_eq!(
            parse("ldap://ldap2.example.com/o=Question%3f,c=US?mail").dn,
            "o=Question?,c=US"
        );
        let url =
            parse("ldap://ldap3.example.com/o=Babsco,c=US???(four-octet=%5c00%5c00%5c00%5c04)");
        assert_eq!(url.filter.as_deref(), Some(r"(four-octet=\00\00\00\04)"));
        assert_eq!(
            parse(r"ldap://ldap.example.com/o=An%20Example%5C2C%20Inc.,c=US").dn,
            r"o=An Example\2C Inc.,c=US"
        );
        for same in [
            "ldap://ldap.example.net",
            "ldap://ldap.example.net/",
            "ldap://ldap.example.net/?",
        ] {
            assert_eq!(parse(same), parse("ldap://ldap.example.net"));
        }
        let url = parse("ldap:///??sub??e-bindname=cn=Manager%2cdc=example%2cdc=com");
        let extension = UrlExtension {
            critical: false,
            name: "e-bindname".to_owned(),
            value: Some("cn=Manager,dc=example,dc=com".to_owned()),
        };
        assert_eq!(url.extensions, [extension]);
        assert_eq!(
            url.to_string(),
            "ldap:///??sub??e-bindname=cn=Manager%2Cdc=example%2Cdc=com"
        );
        assert!(
            parse("ldap:///??sub??!e-bindname=cn=Manager%2cdc=example%2cdc=com").extensions[0]
                .critical
        );
    }

    #[test]
    fn addresses_and_sockets() {
        let url = parse("ldaps://[::1]:1636");
        assert_eq!(
            (url.scheme, url.host.as_str(), url.port_or_default()),
            (Scheme::Ldaps, "::1", Some(1636))
        );
        let url = parse("ldapi://%2Frun%2Fsapwood.sock/dc=x");
        assert_eq!(
            (url.host.as_str(), url.port_or_default(), url.dn.as_str()),
            ("/run/sapwood.sock", None, "dc=x")
        );
        assert_eq!(parse("ldap://").port_or_default(), Some(389));
        assert_eq!(parse("ldaps://[::1]").port_or_default(), Some(636));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| LdapUrl::parse(text).unwrap_err();
        assert_eq!(error("http://x"), UrlError::UnknownScheme);
        assert_eq!(error("dc=x"), UrlError::UnknownScheme);
        assert_eq!(error("ldap://[x]"), UrlError::BadHost("[x]".to_owned()));
        assert_eq!(error("ldap://[::1"), UrlError::BadHost("[::1".to_owned()));
        assert_eq!(
            error("ldap://x:65536"),
            UrlError::BadPort("65536".to_owned())
        );
        assert_eq!(error("ldap://x:+1"), UrlError::BadPort("+1".to_owned()));
        assert_eq!(
            error("ldap:///dc=%zz"),
            UrlError::BadEncoding("dc=%zz".to_owned())
        );
        assert_eq!(
            error("ldap:///dc=%ff"),
            UrlError::BadEncoding("dc=%ff".to_owned())
        );
        assert_eq!(error("ldap:///dc=a b"), UrlError::BadCharacter(' '));
        assert_eq!(error("ldap:///x"), UrlError::BadDn(DnError::MissingEquals));
        assert_eq!(
            error("ldap:///?a,,b"),
            UrlError::BadAttribute(String::new())
        );
        assert_eq!(error("ldap:///??all"), UrlError::BadScope("all".to_owned()));
        assert_eq!(
            error("ldap:///????=x"),
            UrlError::BadExtension(String::new())
        );
        assert_eq!(error("ldap:///?????"), UrlError::TrailingText);
        assert_eq!(
            error(&format!("ldap://{}", "x".repeat(URL_BYTES_MAX))),
            UrlError::TooLong
        );
    }

    fn url() -> impl Strategy<Value = LdapUrl> {
        let host = prop_oneof![
            "[a-z0-9.-]{0,12}",
            Just("::1".to_owned()),
            Just("fe80::a:b".to_owned())
        ];
        let extension = (
            any::<bool>(),
            "[a-z][a-z0-9-]{0,5}",
            prop::option::of(".{0,12}"),
        )
            .prop_map(|(critical, name, value)| UrlExtension {
                critical,
                name,
                value,
            });
        let dn = prop::collection::vec(("[a-z]{1,3}", ".{0,8}"), 0..3).prop_map(|rdns| {
            let mut dn = String::new();
            for (attribute, value) in rdns {
                dn.push_str(if dn.is_empty() { "" } else { "," });
                crate::dn::write_ava(&mut dn, &attribute, value.as_bytes());
            }
            dn
        });
        let scope = prop::option::of(prop::sample::select(vec![
            Scope::Base,
            Scope::One,
            Scope::Sub,
        ]));
        let scheme = prop::sample::select(vec![Scheme::Ldap, Scheme::Ldaps]);
        (
            scheme,
            host,
            prop::option::of(any::<u16>()),
            dn,
            prop::collection::vec("[a-z]{1,5}", 0..3),
            scope,
            prop::option::of(".{1,20}"),
            prop::collection::vec(extension, 0..3),
        )
            .prop_map(
                |(scheme, host, port, dn, attributes, scope, filter, extensions)| LdapUrl {
                    scheme,
                    host,
                    port,
                    dn,
                    attributes,
                    scope,
                    filter,
                    extensions,
                },
            )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn urls_survive_printing(url in url()) {
            prop_assert_eq!(parse(&url.to_string()), url);
        }

        #[test]
        fn no_text_panics(text in "(ldap[si]?://)?[a-c0-9=%?,/:!\\[\\].-]{0,40}|\\PC{0,40}") {
            if let Ok(url) = LdapUrl::parse(&text) {
                prop_assert_eq!(parse(&url.to_string()), url);
            }
        }
    }
}
