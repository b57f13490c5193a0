//! Servers that keep copies of this one, and how they get here: the administrator makes an invitation, which somebody
//! takes to another machine as a [`Token`]. The server there redeems it, once, within an hour, for an account, with
//! which it may read everything from then on and change nothing.
//!
//! Both are files of the folder `replicas` in that of the directory, readable by its owner alone:
//!
//! | file | what is in it |
//! | --- | --- |
//! | `NAME.invited` | SHA-256 of the secret, when the invitation ends in seconds since 1970 |
//! | `NAME` | the password, hashed |
//!
//! Secrets and passwords are random and long, so that hashes of one round keep them. Removing a file ends what it is
//! of.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64ct::{Base64, Base64UrlUnpadded, Encoding};
use sapwood_ldap::csn::Csn;
use sapwood_ldap::extended::RedeemInvitation;
use sapwood_ldap::url::{LdapUrl, Scheme};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::password::random;

/// The folder inside that of a directory.
const FOLDER: &str = "replicas";
/// The end of the name of an invitation's file.
const INVITED: &str = ".invited";
/// How long an invitation lasts.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Bytes of a name, as text twice as many.
const NAME_BYTES: usize = 8;
/// Bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Bytes that the password of an account has at least, as it is hashed in one round, and at most.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 24..=256;
/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 1024;
/// What the names of accounts begin with, which no entry has.
const DN_START: &str = "cn=replica-";
/// What a token begins with.
const TOKEN_START: &str = "sapwood-";
/// Bytes of a token's text.
const TOKEN_BYTES_MAX: usize = 2048;

/// An invitation that was made.
pub struct Invitation {
    /// The name of the account that is got for it.
    pub name: String,
    /// What is to be shown.
    pub secret: [u8; SECRET_BYTES],
}

/// Makes an invitation to a directory.
///
/// # Errors
/// When it cannot be written.
pub fn invite(folder: &Path) -> io::Result<Invitation> {
    let accounts = folder.join(FOLDER);
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&accounts);
    made?;
    let (mut number, mut secret) = ([0; NAME_BYTES], [0; SECRET_BYTES]);
    random(&mut number);
    random(&mut secret);
    let name: String = number.iter().map(|octet| format!("{octet:02x}")).collect();
    let ends = seconds(SystemTime::now() + LIFETIME);
    let text = format!("{} {ends}\n", hashed(&secret));
    write(&accounts, &format!("{name}{INVITED}"), &text)?;
    Ok(Invitation { name, secret })
}

/// Why an invitation is not redeemed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRedeemed {
    /// Which of these it is, nobody learns who has no secret.
    #[error(
        "there is no such invitation: it was used, or it has expired, or another server has made it"
    )]
    Unknown,
    #[error("the password of an account has {} to {} octets", PASSWORD_BYTES.start(), PASSWORD_BYTES.end())]
    Password,
    #[error("the account cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Makes an account of an invitation, which is gone then.
pub(crate) fn redeem(
    folder: &Path,
    RedeemInvitation {
        name,
        secret,
        password,
    }: RedeemInvitation<'_>,
) -> Result<(), NotRedeemed> {
    if !is_name(name) || secret.len() != SECRET_BYTES {
        return Err(NotRedeemed::Unknown);
    }
    if !PASSWORD_BYTES.contains(&password.len()) {
        return Err(NotRedeemed::Password);
    }
    let accounts = folder.join(FOLDER);
    let invitation = accounts.join(format!("{name}{INVITED}"));
    let text = read(&invitation).ok_or(NotRedeemed::Unknown)?;
    let (hash, ends) = text
        .trim_end()
        .split_once(' ')
        .ok_or(NotRedeemed::Unknown)?;
    let is_it: bool = hash.as_bytes().ct_eq(hashed(secret).as_bytes()).into();
    if !is_it {
        return Err(NotRedeemed::Unknown);
    }
    // Of several at the same time one succeeds.
    fs::remove_file(&invitation).map_err(|_| NotRedeemed::Unknown)?;
    if ends
        .parse()
        .is_ok_and(|ends: u64| ends <= seconds(SystemTime::now()))
    {
        return Err(NotRedeemed::Unknown);
    }
    write(&accounts, name, &format!("{}\n", salted(password)))?;
    Ok(())
}

/// The account that a DN is of, and its hashed password.
pub(crate) fn account(folder: &Path, dn: &str) -> Option<(String, Vec<u8>)> {
    let dn = dn.trim().to_ascii_lowercase();
    let name = dn.strip_prefix(DN_START).filter(|name| is_name(name))?;
    let stored = read(&folder.join(FOLDER).join(name))?;
    let stored = stored.trim_end().as_bytes().to_vec();
    Some((dn, stored))
}

fn is_name(name: &str) -> bool {
    let is_digit = |letter| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
    name.len() == 2 * NAME_BYTES && name.bytes().all(is_digit)
}

fn hashed(secret: &[u8]) -> String {
    Base64::encode_string(&Sha256::digest(secret))
}

/// As a userPassword is stored.
fn salted(password: &[u8]) -> String {
    let mut salt = [0; 16];
    random(&mut salt);
    let digest = Sha256::new().chain_update(password).chain_update(salt);
    let mut both = digest.finalize().to_vec();
    both.extend(salt);
    format!("{{SSHA256}}{}", Base64::encode_string(&both))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Writes a file in one step.
fn write(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let (new, path): (PathBuf, PathBuf) = (folder.join(format!("{name}.new")), folder.join(name));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(folder)?.sync_all()
}

/// What is taken from one server to another, as one word.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Where the server is that has made the invitation: `ldap` (with StartTLS) or `ldaps`, a host and a port.
    pub url: String,
    /// The SHA-256 fingerprint of its certificate.
    pub fingerprint: [u8; 32],
    /// The number of that replica.
    pub sid: u16,
    /// The name of the account.
    pub name: String,
    /// The secret of the invitation.
    pub secret: [u8; SECRET_BYTES],
}

/// Without the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an invitation to {}", self.url)
    }
}

impl Token {
    /// The DN of the account.
    pub fn dn(&self) -> String {
        format!("{DN_START}{}", self.name)
    }
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token of 'sapwood replica invite'; was all of it copied?")]
pub struct NoToken;

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Token, NoToken> {
        let text = text.strip_prefix(TOKEN_START).ok_or(NoToken)?;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(NoToken);
        }
        let octets = Base64UrlUnpadded::decode_vec(text).map_err(|_| NoToken)?;
        // The last four tell a token that was cut off.
        let (octets, sum) = octets.split_last_chunk::<4>().ok_or(NoToken)?;
        if Sha256::digest(octets).first_chunk() != Some(sum) {
            return Err(NoToken);
        }
        let (fingerprint, rest) = octets.split_first_chunk().ok_or(NoToken)?;
        let (secret, rest) = rest.split_first_chunk().ok_or(NoToken)?;
        let (number, rest) = rest.split_first_chunk::<NAME_BYTES>().ok_or(NoToken)?;
        let (sid, url) = rest.split_first_chunk().ok_or(NoToken)?;
        let sid = u16::from_be_bytes(*sid);
        let url = std::str::from_utf8(url).map_err(|_| NoToken)?;
        let read = LdapUrl::parse(url).map_err(|_| NoToken)?;
        let plain = LdapUrl {
            scheme: read.scheme,
            host: read.host.clone(),
            port: read.port,
            ..LdapUrl::default()
        };
        let is_of_network = matches!(read.scheme, Scheme::Ldap | Scheme::Ldaps);
        if read != plain || !is_of_network || !(1..=Csn::REPLICA_MAX).contains(&sid) {
            return Err(NoToken);
        }
        Ok(Token {
            url: url.to_owned(),
            fingerprint: *fingerprint,
            sid,
            name: number.iter().map(|octet| format!("{octet:02x}")).collect(),
            secret: *secret,
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut octets = self.fingerprint.to_vec();
        octets.extend(self.secret);
        let digits = self.name.as_bytes().chunks(2);
        octets.extend(digits.filter_map(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        }));
        octets.extend(self.sid.to_be_bytes());
        octets.extend(self.url.as_bytes());
        let sum = Sha256::digest(&octets);
        octets.extend(sum.iter().take(4));
        write!(
            f,
            "{TOKEN_START}{}",
            Base64UrlUnpadded::encode_string(&octets)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &[u8] = b"correct horse battery staple";

    fn redeems(folder: &Path, name: &str, secret: &[u8]) -> bool {
        let request = RedeemInvitation {
            name,
            secret,
            password: PASSWORD,
        };
        redeem(folder, request).is_ok()
    }

    #[test]
    fn an_invitation_is_redeemed_once_by_who_has_its_secret() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let Invitation { name, secret } = invite(folder).unwrap();
        let dn = format!("CN=replica-{name}");
        assert!(account(folder, &dn).is_none());
        assert!(!redeems(folder, &name, &[0; 32]));
        assert!(!redeems(folder, "0123456789abcdef", &secret));
        assert!(!redeems(folder, &format!("../{name}"), &secret));
        assert!(redeems(folder, &name, &secret));
        let (known, stored) = account(folder, &dn).unwrap();
        assert_eq!(known, dn.to_lowercase());
        assert!(crate::password::verify(PASSWORD, [&*stored]));
        assert!(!crate::password::verify(
            b"another one of that length",
            [&*stored]
        ));
        assert!(!redeems(folder, &name, &secret));
        // What is written is for the owner alone.
        let kept = fs::metadata(folder.join(FOLDER).join(&name)).unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_invitation_ends_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let Invitation { name, secret } = invite(folder).unwrap();
        let path = folder.join(FOLDER).join(format!("{name}{INVITED}"));
        let text = fs::read_to_string(&path).unwrap();
        let (hash, ends) = text.trim_end().split_once(' ').unwrap();
        let left = ends.parse::<u64>().unwrap() - seconds(SystemTime::now());
        assert!((3590..=3600).contains(&left), "{left}");
        let now = seconds(SystemTime::now());
        fs::write(&path, format!("{hash} {now}\n")).unwrap();
        assert!(!redeems(folder, &name, &secret));
        assert!(account(folder, &format!("cn=replica-{name}")).is_none());
    }

    #[test]
    fn a_token_is_what_it_was_and_nothing_when_it_is_cut_off() {
        let token = Token {
            url: "ldaps://provider.example:3636".into(),
            fingerprint: [7; 32],
            sid: 5,
            name: "0123456789abcdef".into(),
            secret: [9; 32],
        };
        let text = token.to_string();
        assert_eq!(text.parse(), Ok(token.clone()));
        for length in 0..text.len() {
            assert_eq!(text[..length].parse::<Token>(), Err(NoToken));
        }
        for url in ["ldapi://%2Fx", "ldap://a/o=x", "http://a", ""] {
            let url = url.to_owned();
            let other = Token {
                url,
                ..token.clone()
            };
            assert_eq!(other.to_string().parse::<Token>(), Err(NoToken));
        }
    }
}
