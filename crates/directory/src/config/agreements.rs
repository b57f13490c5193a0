//! Agreements: which servers this one is a consumer of (RFC 4533), as values of `olcSyncrepl` in OpenLDAP's words. What
//! an agreement is about is read-only here, and updates are answered with a referral to where they can be made, unless
//! both servers take them.
//!
//! ```text
//! rid=001 provider=ldap://a.example bindmethod=simple binddn="cn=replica" credentials=secret
//!     searchbase="dc=example,dc=com" type=refreshAndPersist retry="5 10 60 +"
//! ```
//!
//! Seven words are this server's own: `passwordfile` names a file whose first line is the password, `tls_fingerprint`
//! pins the provider's certificate, `plaintext=yes` lets the password go over the network without TLS, with
//! `multiprovider=yes` updates are made here as well, as slapd's directive of that name says, `resolution=values` keeps
//! values apart then, with `updates=forward` updates of what is copied are made at the provider for who asks here, and
//! with `suspended=yes` nothing is copied for now.

use std::fmt;
use std::str::FromStr;

use sapwood_ldap::url::{LdapUrl, Scheme};
use sapwood_replication::Resolution;

use super::ordered::Ordered;
use crate::schema::{NormalDn, Schema};

/// The attribute that has them.
pub(crate) const SYNCREPL: &str = "olcSyncrepl";
/// The attribute that says where updates can be made, if not at the provider.
pub(crate) const UPDATE_REF: &str = "olcUpdateRef";

/// The greatest number of an agreement: three decimal digits.
const RID_MAX: u16 = 999;
/// Seconds between two tries that can be asked for: a day.
const RETRY_SECONDS_MAX: u32 = 86_400;
/// Pairs of seconds and tries.
const RETRIES_MAX: usize = 16;

/// What a server copies from another one.
#[derive(Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Its number among those of this directory, 0 to 999.
    pub rid: u16,
    /// The URL of the server: `ldap`, `ldaps` or `ldapi`, and no more than a host and a port.
    pub provider: String,
    /// Who binds there; empty for nobody.
    pub bind_dn: String,
    /// With what.
    pub password: AgreementPassword,
    /// The DN at and below which entries are copied.
    pub base: String,
    /// Whether the provider goes on with each change; if not, it is asked again from time to time.
    pub persists: bool,
    /// Seconds between two refreshes, if it does not.
    pub interval: u32,
    /// Seconds to wait after a failure, and how often; 0 for always.
    pub retry: Vec<(u32, u32)>,
    /// Whether the connection is protected by StartTLS.
    pub start_tls: bool,
    /// A file with the authorities whose certificates are trusted.
    pub authorities: Option<String>,
    /// The SHA-256 fingerprint of the only certificate that is trusted, in hexadecimal.
    pub fingerprint: Option<String>,
    /// Whether a password may go over the network in clear text.
    pub plaintext: bool,
    /// Whether updates are made here as well: what comes is weighed against what is here.
    pub multi_provider: bool,
    /// How much of an entry loses against a later change then.
    pub resolution: Resolution,
    /// Whether updates of what is copied are made at the provider for clients of this server, instead of telling them
    /// where they can be made.
    pub forwards: bool,
    /// Whether nothing is copied for the time being. What was copied stays read-only, if it was.
    pub suspended: bool,
}

/// The password of an agreement.
#[derive(Clone, PartialEq, Eq)]
pub enum AgreementPassword {
    /// None.
    None,
    /// As it is.
    Text(String),
    /// The first line of a file.
    File(String),
}

/// The same without the password.
impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agreement {:03} with {}", self.rid, self.provider)
    }
}

impl fmt::Debug for AgreementPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a password")
    }
}

impl Ordered for Agreement {
    const ATTRIBUTE: &'static str = SYNCREPL;
    /// Each keeps a connection.
    const VALUES_MAX: usize = 100;
    const WHAT: &'static str = "agreement";
}

impl Default for Agreement {
    fn default() -> Agreement {
        Agreement {
            rid: 0,
            provider: String::new(),
            bind_dn: String::new(),
            password: AgreementPassword::None,
            base: String::new(),
            persists: false,
            // slapd's: a day.
            interval: 86_400,
            retry: vec![(1, 5), (5, 10), (60, 0)],
            start_tls: false,
            authorities: None,
            fingerprint: None,
            plaintext: false,
            multi_provider: false,
            resolution: Resolution::Entry,
            forwards: false,
            suspended: false,
        }
    }
}

impl Agreement {
    /// Whether a DN is in what it copies. What is no DN is in nothing.
    pub(crate) fn covers(&self, schema: &Schema, normal: &NormalDn) -> bool {
        let mut base = NormalDn::new();
        let parsed = base.parse(schema, self.base.as_bytes());
        parsed.is_ok() && normal.is_at_or_below(&base)
    }

    /// Refuses what cannot be, such as a password that anybody on the network could read.
    fn check(&self) -> Result<(), String> {
        let url = LdapUrl::parse(&self.provider).map_err(|error| format!("provider: {error}"))?;
        let plain = LdapUrl {
            scheme: url.scheme,
            host: url.host.clone(),
            port: url.port,
            ..LdapUrl::default()
        };
        if url != plain {
            return Err("provider is a URL with a host and a port, and nothing behind".to_owned());
        }
        if self.base.is_empty() {
            return Err("searchbase is missing: the DN of what is copied".to_owned());
        }
        if self.forwards && self.multi_provider {
            return Err("updates=forward is for what is not updated here".to_owned());
        }
        if self.resolution == Resolution::Values && !self.multi_provider {
            return Err(
                "resolution=values is for servers that all take updates (multiprovider=yes)"
                    .to_owned(),
            );
        }
        if self.start_tls && url.scheme == Scheme::Ldaps {
            return Err("with ldaps:// there is TLS already: leave starttls out".to_owned());
        }
        let is_here = url.scheme == Scheme::Ldapi
            || ["localhost", "::1"].contains(&url.host.as_str())
            || url.host.starts_with("127.");
        let is_protected = self.start_tls || url.scheme == Scheme::Ldaps || is_here;
        if !is_protected && !self.plaintext && self.password != AgreementPassword::None {
            return Err(
                "the password would go over the network in clear text: use ldaps:// or starttls=critical \
                 (plaintext=yes says that this is wanted)"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Words with a value each: `key=value` or `key="value with spaces"`.
fn words(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, behind) = rest
            .split_once('=')
            .ok_or_else(|| format!("'{rest}' is not of the form key=value"))?;
        let (value, behind) = match behind.strip_prefix('"') {
            None => behind
                .split_once(char::is_whitespace)
                .unwrap_or((behind, "")),
            Some(_) => quoted(behind).ok_or_else(|| format!("the quotes of {key} do not end"))?,
        };
        let value = match value.strip_prefix('"') {
            Some(inner) => {
                let inner = inner.strip_suffix('"').unwrap_or(inner);
                inner.replace("\\\"", "\"").replace("\\\\", "\\")
            }
            None => value.to_owned(),
        };
        words.push((key.trim().to_ascii_lowercase(), value));
        rest = behind.trim_start();
    }
    Ok(words)
}

/// What is in quotes, with them, and what is behind.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return Some(text.split_at(at + 1)),
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// A value as it is written: in quotes where that is needed.
fn written(value: &str) -> String {
    let is_plain = |letter: char| !letter.is_whitespace() && letter != '"' && letter != '\\';
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

impl FromStr for Agreement {
    type Err = String;

    fn from_str(text: &str) -> Result<Agreement, String> {
        if text.contains(['\n', '\0']) {
            return Err("it stands on one line".to_owned());
        }
        let mut read = Agreement::default();
        let mut has_rid = false;
        for (key, value) in words(text)? {
            match key.as_str() {
                "rid" => {
                    let rid = value.parse().ok().filter(|rid| *rid <= RID_MAX);
                    read.rid = rid.ok_or_else(|| format!("rid is a number from 0 to {RID_MAX}"))?;
                    has_rid = true;
                }
                "provider" => read.provider = value,
                "bindmethod" if value.eq_ignore_ascii_case("simple") => {}
                "bindmethod" => return Err("bindmethod is simple here".to_owned()),
                "binddn" => read.bind_dn = value,
                "credentials" => read.password = AgreementPassword::Text(value),
                "passwordfile" => read.password = AgreementPassword::File(value),
                "searchbase" => read.base = value,
                "type" if value.eq_ignore_ascii_case("refreshAndPersist") => read.persists = true,
                "type" if value.eq_ignore_ascii_case("refreshOnly") => read.persists = false,
                "type" => return Err("type is refreshAndPersist or refreshOnly".to_owned()),
                "interval" => read.interval = interval(&value)?,
                "retry" => read.retry = retry(&value)?,
                "starttls" if ["yes", "critical"].contains(&value.as_str()) => {
                    // What was asked for is never left out.
                    read.start_tls = true;
                }
                "starttls" if value == "no" => read.start_tls = false,
                "starttls" => return Err("starttls is critical, yes or no".to_owned()),
                "tls_cacert" => read.authorities = Some(value),
                "tls_fingerprint" => read.fingerprint = Some(fingerprint(&value)?),
                "plaintext" => read.plaintext = value == "yes",
                "multiprovider" => read.multi_provider = value == "yes",
                "resolution" if value == "values" => read.resolution = Resolution::Values,
                "resolution" if value == "entry" => read.resolution = Resolution::Entry,
                "resolution" => return Err("resolution is values or entry".to_owned()),
                "updates" if value == "forward" => read.forwards = true,
                "updates" if value == "refer" => read.forwards = false,
                "updates" => return Err("updates is forward or refer".to_owned()),
                "suspended" => read.suspended = value == "yes",
                // What is done in any case.
                "scope" if value.eq_ignore_ascii_case("sub") => {}
                "filter" if value.eq_ignore_ascii_case("(objectClass=*)") => {}
                "attrs" if value == "*,+" => {}
                "schemachecking" if value.eq_ignore_ascii_case("off") => {}
                "tls_reqcert" if ["demand", "hard"].contains(&value.as_str()) => {}
                _ => {
                    return Err(format!(
                        "{key}={} is not known here: whole entries of a subtree are copied, without a filter",
                        written(&value)
                    ));
                }
            }
        }
        match has_rid {
            true => read.check().map(|()| read),
            false => Err(format!("rid is missing: a number from 0 to {RID_MAX}")),
        }
    }
}

/// 32 octets in hexadecimal, with or without colons.
fn fingerprint(value: &str) -> Result<String, String> {
    let digits = value.chars().filter(|letter| *letter != ':');
    match digits.clone().count() == 64 && digits.clone().all(|letter| letter.is_ascii_hexdigit()) {
        true => Ok(digits.collect()),
        false => Err("tls_fingerprint is 32 octets in hexadecimal: a SHA-256".to_owned()),
    }
}

/// `dd:hh:mm:ss`, in seconds.
fn interval(value: &str) -> Result<u32, String> {
    let invalid = || "interval is of the form dd:hh:mm:ss".to_owned();
    let parts: Vec<u32> = value
        .split(':')
        .map(|part| part.parse::<u32>().ok().filter(|part| *part < 1000))
        .collect::<Option<_>>()
        .ok_or_else(invalid)?;
    let [days, hours, minutes, seconds] = *parts else {
        return Err(invalid());
    };
    let all = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    match all {
        0 => Err("interval is at least a second".to_owned()),
        all => Ok(all),
    }
}

/// Pairs of seconds and tries, of which `+` is no end.
fn retry(value: &str) -> Result<Vec<(u32, u32)>, String> {
    let invalid = || "retry has pairs of seconds and tries, such as \"5 10 60 +\"".to_owned();
    let parts: Vec<&str> = value.split_whitespace().collect();
    let (pairs, []) = parts.as_chunks::<2>() else {
        return Err(invalid());
    };
    if pairs.is_empty() || pairs.len() > RETRIES_MAX {
        return Err(invalid());
    }
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    let pairs = pairs.iter().map(|[seconds, tries]| {
        let seconds = number(seconds).filter(|seconds| *seconds <= RETRY_SECONDS_MAX)?;
        match *tries {
            "+" => Some((seconds, 0)),
            tries => Some((seconds, number(tries)?)),
        }
    });
    pairs.collect::<Option<_>>().ok_or_else(invalid)
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rid={:03} provider={}",
            self.rid,
            written(&self.provider)
        )?;
        f.write_str(" bindmethod=simple")?;
        if !self.bind_dn.is_empty() {
            write!(f, " binddn={}", written(&self.bind_dn))?;
        }
        match &self.password {
            AgreementPassword::None => {}
            AgreementPassword::Text(text) => write!(f, " credentials={}", written(text))?,
            AgreementPassword::File(path) => write!(f, " passwordfile={}", written(path))?,
        }
        write!(f, " searchbase={}", written(&self.base))?;
        match self.persists {
            true => f.write_str(" type=refreshAndPersist")?,
            false => {
                let (minutes, seconds) = (self.interval / 60, self.interval % 60);
                let (hours, minutes) = (minutes / 60, minutes % 60);
                let (days, hours) = (hours / 24, hours % 24);
                let interval = format!("{days:02}:{hours:02}:{minutes:02}:{seconds:02}");
                write!(f, " type=refreshOnly interval={interval}")?;
            }
        }
        let pairs = self.retry.iter().map(|(seconds, tries)| match tries {
            0 => format!("{seconds} +"),
            tries => format!("{seconds} {tries}"),
        });
        write!(f, " retry=\"{}\"", pairs.collect::<Vec<_>>().join(" "))?;
        if self.start_tls {
            f.write_str(" starttls=critical")?;
        }
        if let Some(file) = &self.authorities {
            write!(f, " tls_cacert={}", written(file))?;
        }
        if let Some(fingerprint) = &self.fingerprint {
            write!(f, " tls_fingerprint={}", written(fingerprint))?;
        }
        if self.plaintext {
            f.write_str(" plaintext=yes")?;
        }
        if self.multi_provider {
            f.write_str(" multiprovider=yes")?;
        }
        if self.resolution == Resolution::Values {
            f.write_str(" resolution=values")?;
        }
        if self.forwards {
            f.write_str(" updates=forward")?;
        }
        match self.suspended {
            true => f.write_str(" suspended=yes"),
            false => Ok(()),
        }
    }
}

/// Where updates can be made: a URL, which clients are given as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateRef(pub String);

impl Ordered for UpdateRef {
    const ATTRIBUTE: &'static str = UPDATE_REF;
    const VALUES_MAX: usize = 20;
    const WHAT: &'static str = "URL";
}

impl FromStr for UpdateRef {
    type Err = String;

    fn from_str(text: &str) -> Result<UpdateRef, String> {
        match LdapUrl::parse(text) {
            Ok(_) if !text.contains(['\n', '\0']) => Ok(UpdateRef(text.to_owned())),
            Ok(_) => Err("it stands on one line".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for UpdateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Agreement, String> {
        text.parse()
    }

    #[test]
    fn agreements_are_read_as_openldap_writes_them_and_written_so_that_they_are_read() {
        let text = "rid=001 provider=ldap://127.0.0.1:9011/ bindmethod=simple \
                    binddn=\"cn=replicator,dc=example,dc=com\" credentials=\"a \\\"word\\\" \\\\\" \
                    searchbase=\"dc=example,dc=com\" filter=\"(objectClass=*)\" attrs=\"*,+\" schemachecking=off \
                    scope=sub type=refreshAndPersist retry=\"5 10 60 +\"";
        let agreement = read(text).unwrap();
        assert_eq!(agreement.rid, 1);
        assert_eq!(agreement.retry, [(5, 10), (60, 0)]);
        assert!(agreement.persists);
        let AgreementPassword::Text(password) = &agreement.password else {
            panic!("no password")
        };
        assert_eq!(password, "a \"word\" \\");
        assert!(!format!("{agreement:?}").contains("word"));
        let others = [
            "rid=999 provider=ldaps://a.example searchbase=o=x type=refreshOnly interval=00:00:01:05",
            "rid=0 provider=ldap://a.example starttls=critical tls_cacert=/etc/ca.pem passwordfile=/p binddn=cn=a \
             searchbase=\"o=a b\"",
            "rid=5 provider=ldap://a.example plaintext=yes multiprovider=yes suspended=yes credentials=x \
             searchbase=o=x",
            "rid=6 provider=ldaps://a.example searchbase=o=x \
             tls_fingerprint=00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff",
        ];
        for text in others.into_iter().chain([text]) {
            let agreement = read(text).unwrap();
            assert_eq!(read(&agreement.to_string()), Ok(agreement));
        }
        assert_eq!(read(others[0]).unwrap().interval, 65);
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (text, why) in [
            ("provider=ldap://localhost searchbase=o=x", "rid is missing"),
            (
                "rid=1000 provider=ldap://localhost searchbase=o=x",
                "0 to 999",
            ),
            ("rid=1 provider=http://localhost searchbase=o=x", "provider"),
            (
                "rid=1 provider=ldap://localhost/o=x searchbase=o=x",
                "nothing behind",
            ),
            ("rid=1 provider=ldap://localhost", "searchbase"),
            (
                "rid=1 provider=ldap://localhost searchbase=o=x tls_fingerprint=0011",
                "32 octets",
            ),
            (
                "rid=1 provider=ldap://a.example credentials=x searchbase=o=x",
                "clear text",
            ),
            (
                "rid=1 provider=ldap://localhost searchbase=o=x bindmethod=sasl",
                "simple",
            ),
            (
                "rid=1 provider=ldap://localhost searchbase=o=x filter=(a=b)",
                "not known",
            ),
            (
                "rid=1 provider=ldap://localhost searchbase=o=x retry=5",
                "pairs",
            ),
            ("rid=1 provider=ldap://localhost searchbase=\"o=x", "quotes"),
            ("rid", "key=value"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
