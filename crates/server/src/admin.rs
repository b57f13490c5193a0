//! The control socket: how `sapwood reload`, `index` and `config` talk to the server that runs on their folder.
//!
//! A client sends one command, a word and its arguments, each ended by a zero byte, and closes its side. The server
//! answers lines: any number of `note TEXT`, then `done TEXT` or `failed TEXT`. The socket's folder and its mode let
//! nobody connect but the user that runs the server, and root.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::server::bind_local;

/// The socket's name inside a directory's folder.
pub const CONTROL_SOCKET: &str = "control.sock";
/// Bytes of a command.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Seconds that a client may take to send its command.
const COMMAND_SECONDS_MAX: u64 = 10;

/// Does a command: its word and its arguments, and where notes go. The text is what `done` or `failed` say.
pub type Handler = dyn Fn(&[String], &mut dyn FnMut(&str)) -> Result<String, String> + Send + Sync;

/// The control socket of a running server. Dropping it ends it.
#[derive(Debug)]
pub struct ControlSocket {
    path: SocketPath,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Opens the control socket of a folder; `handler` does the commands, one after the other.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when a server runs on this folder already.
    pub fn open(folder: &Path, handler: Box<Handler>) -> io::Result<Self> {
        let path = SocketPath::new(folder)?;
        let listener = bind_local(&path.path)?;
        std::fs::set_permissions(&path.path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(false)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&listener, &stopping, &*handler))?;
        Ok(Self {
            path,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread out of its wait for a client.
        let _ = UnixStream::connect(&self.path.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path.path);
    }
}

/// The path of the socket through an open folder: socket paths have 107 bytes at most, folders may have more.
#[derive(Debug)]
struct SocketPath {
    path: PathBuf,
    _folder: File,
}

impl SocketPath {
    fn new(folder: &Path) -> io::Result<Self> {
        let folder = File::open(folder)?;
        let path = PathBuf::from(format!(
            "/proc/self/fd/{}/{CONTROL_SOCKET}",
            folder.as_raw_fd()
        ));
        Ok(Self {
            path,
            _folder: folder,
        })
    }
}

fn serve(listener: &UnixListener, stopping: &AtomicBool, handler: &Handler) {
    for client in listener.incoming() {
        if stopping.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = client.and_then(|client| answer(&client, handler)) {
            tracing::warn!("control socket: {error}");
        }
    }
}

fn answer(mut client: &UnixStream, handler: &Handler) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(COMMAND_SECONDS_MAX)))?;
    let mut command = String::new();
    client
        .take(COMMAND_BYTES_MAX as u64)
        .read_to_string(&mut command)?;
    if command.is_empty() {
        // A look whether somebody is here.
        return Ok(());
    }
    let words: Vec<String> = command.split_terminator('\0').map(str::to_owned).collect();
    // A file is not for the log.
    let is_short = |word: &&String| !word.contains('\n');
    let told: Vec<&str> = words.iter().filter(is_short).map(String::as_str).collect();
    tracing::info!(command = %told.join(" "), "control");
    let mut notes = |note: &str| {
        let _ = writeln!(client, "note {}", one_line(note));
    };
    let line = match handler(&words, &mut notes) {
        Ok(text) => format!("done {}\n", one_line(&text)),
        Err(text) => format!("failed {}\n", one_line(&text)),
    };
    client.write_all(line.as_bytes())
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// How asking a running server went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The server could not do it, and says why.
    #[error("{0}")]
    Failed(String),
    /// The connection to the server failed.
    #[error("the server's control socket: {0}")]
    Io(#[from] io::Error),
}

/// Asks the server that runs on a folder to do a command; `None` when no server runs there.
///
/// # Errors
/// What the server says, or that it went away.
pub fn ask(
    folder: &Path,
    command: &[&str],
    mut note: impl FnMut(&str),
) -> Result<Option<String>, AskError> {
    let path = SocketPath::new(folder)?;
    let mut server = match UnixStream::connect(&path.path) {
        Ok(server) => server,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let command: String = command.iter().flat_map(|word| [word, "\0"]).collect();
    server.write_all(command.as_bytes())?;
    server.shutdown(Shutdown::Write)?;
    for line in BufReader::new(server).lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("note", text)) => note(text),
            Some(("done", text)) => return Ok(Some(text.to_owned())),
            Some(("failed", text)) => return Err(AskError::Failed(text.to_owned())),
            _ => {}
        }
    }
    Err(AskError::Io(io::ErrorKind::UnexpectedEof.into()))
}

/// Whether a server runs on this folder.
#[must_use]
pub fn is_running(folder: &Path) -> bool {
    SocketPath::new(folder).is_ok_and(|path| UnixStream::connect(&path.path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_reach_the_handler_and_answers_come_back() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_running(folder.path()));
        assert!(ask(folder.path(), &["echo"], |_| ()).unwrap().is_none());
        let handler = |words: &[String], note: &mut dyn FnMut(&str)| {
            note("two\nlines");
            if words[0] == "fail" {
                Err("no".to_owned())
            } else {
                Ok(words.join("+"))
            }
        };
        let socket = ControlSocket::open(folder.path(), Box::new(handler)).unwrap();
        assert!(is_running(folder.path()));
        let mut notes = Vec::new();
        let answer = ask(folder.path(), &["index", "cn,sn eq", ""], |note| {
            notes.push(note.to_owned())
        })
        .unwrap();
        assert_eq!(answer.as_deref(), Some("index+cn,sn eq+"));
        assert_eq!(notes, ["two lines"]);
        assert!(
            matches!(ask(folder.path(), &["fail"], |_| ()), Err(AskError::Failed(text)) if text == "no")
        );
        let second = ControlSocket::open(folder.path(), Box::new(handler)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!is_running(folder.path()));
        assert!(!folder.path().join(CONTROL_SOCKET).exists());
    }

    #[test]
    fn a_socket_left_behind_by_a_killed_server_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(folder.path().join(CONTROL_SOCKET)).unwrap());
        let handler = |_: &[String], _: &mut dyn FnMut(&str)| Ok(String::new());
        ControlSocket::open(folder.path(), Box::new(handler)).unwrap();
    }
}
