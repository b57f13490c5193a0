//! `{SASL}` in the place of a hash: the value names a user whose password another program knows. That is asked as
//! slapd asks it: saslauthd, of Cyrus SASL, over its local socket.
//!
//! ```text
//! request  user, password, service and realm, each as a length of two octets and so many octets
//! answer   a length of two octets and a text that begins with OK or NO
//! ```

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::stored::{STORED_BYTES_MAX, scheme_of};
use super::{PASSWORD_BYTES_MAX, Password};

/// As which service the server asks: slapd has the same.
const SERVICE: &[u8] = b"ldap";

/// A saslauthd that can be asked.
#[derive(Debug)]
pub(crate) struct Saslauthd {
    pub(crate) socket: PathBuf,
    /// How long a question may take in all.
    pub(crate) time_max: Duration,
}

/// The user whom a stored value names, `{SASL}user` or `{SASL}user@realm`.
pub(crate) fn user_of(stored: &[u8]) -> Option<&str> {
    let (scheme, user) = scheme_of(stored)?;
    let user = std::str::from_utf8(user).ok()?;
    let is_one = !user.is_empty() && stored.len() <= STORED_BYTES_MAX && !user.contains('\0');
    (is_one && scheme.eq_ignore_ascii_case("SASL")).then_some(user)
}

impl Saslauthd {
    /// Whether this is the password of a user.
    ///
    /// # Errors
    /// When saslauthd cannot be reached, takes too long, or says something else than yes or no.
    pub(crate) fn accepts(&self, user: &str, password: &[u8]) -> io::Result<bool> {
        let Some(request) = request(user, password) else {
            return Ok(false);
        };
        let deadline = Instant::now() + self.time_max;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // It holds for connecting, too, which waits while many others wait.
        set_socket_timeout(&socket, Timeout::Send, Some(self.time_max))?;
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        let mut stream = UnixStream::from(socket);
        stream.set_write_timeout(Some(left_until(deadline)?))?;
        stream.write_all(&request)?;
        let mut answer = [0; 4];
        let mut known = 0;
        while let Some(rest) = answer.get_mut(known..).filter(|rest| !rest.is_empty()) {
            stream.set_read_timeout(Some(left_until(deadline)?))?;
            match stream.read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => known += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let [_, _, answer @ ..] = answer;
        match &answer {
            b"OK" => Ok(true),
            b"NO" => Ok(false),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// A question; none about what is no password there: saslauthd reads texts that a zero octet ends.
fn request(user: &str, password: &[u8]) -> Option<Password> {
    if password.len() > PASSWORD_BYTES_MAX || password.contains(&0) {
        return None;
    }
    // What stands behind the last @ is the realm, as in Cyrus SASL.
    let (user, realm) = user.rsplit_once('@').unwrap_or((user, ""));
    let mut request = Password::new(Vec::new());
    for text in [user.as_bytes(), password, SERVICE, realm.as_bytes()] {
        request.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
        request.extend(text);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_stored_value_names_its_user() {
        assert_eq!(user_of(b"{SASL}anne@EXAMPLE.COM"), Some("anne@EXAMPLE.COM"));
        assert_eq!(user_of(b"{sasl}anne"), Some("anne"));
        let long = [b"{SASL}".as_slice(), &[b'a'; STORED_BYTES_MAX]].concat();
        for other in [
            b"{SASL}".as_slice(),
            b"{SHA}anne",
            b"anne",
            b"{SASL}\xff",
            b"{SASL}a\0b",
            &long,
        ] {
            assert_eq!(user_of(other), None);
        }
    }

    #[test]
    fn a_question_has_user_password_service_and_realm() {
        let asked = request("anne@b@EXAMPLE", b"pw").unwrap();
        assert_eq!(
            asked.as_slice(),
            b"\0\x06anne@b\0\x02pw\0\x04ldap\0\x07EXAMPLE"
        );
        let asked = request("anne", b"pw").unwrap();
        assert_eq!(asked.as_slice(), b"\0\x04anne\0\x02pw\0\x04ldap\0\0");
        assert!(request("anne", b"p\0w").is_none());
    }

    /// What comes of a question that is answered so.
    fn answered(answer: &'static [u8]) -> io::Result<bool> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mux");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 16];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(answer).unwrap();
            request
        });
        let saslauthd = Saslauthd {
            socket,
            time_max: Duration::from_secs(60),
        };
        let answer = saslauthd.accepts("anne", b"pw");
        assert!(asked.join().unwrap().starts_with(b"\0\x04anne\0\x02pw"));
        answer
    }

    #[test]
    fn an_answer_is_yes_or_no_or_none() {
        assert!(answered(b"\0\x02OK").unwrap());
        assert!(!answered(b"\0\x0dNO bad password").unwrap());
        assert!(answered(b"\0\x02XX").is_err());
        assert!(answered(b"\0\x02").is_err());
        assert!(answered(b"").is_err());
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mux");
        let saslauthd = Saslauthd {
            socket: socket.clone(),
            time_max: Duration::from_millis(20),
        };
        assert!(saslauthd.accepts("anne", b"pw").is_err(), "nobody is there");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(saslauthd.accepts("anne", b"pw").is_err());
    }
}
