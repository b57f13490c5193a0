//! The `sapwood` command under test: folders, running servers, and the other programs that talk to them.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const SUFFIX: &str = "dc=example,dc=com";
pub const ADMIN: &str = "cn=admin,dc=example,dc=com";
pub const PASSWORD: &str = "the admin's password";

/// Runs `sapwood` with these arguments.
pub fn sapwood<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sapwood"))
        .args(args)
        .output()
        .unwrap()
}

/// The same, for what must succeed. Gives standard output.
#[track_caller]
pub fn sapwood_ok<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    succeeded(sapwood(args))
}

#[track_caller]
pub fn succeeded(output: Output) -> String {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program of another package; the failure names what to install.
#[track_caller]
pub fn program(name: &str, package: &str) -> Command {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
        || Path::new(name).is_file();
    assert!(
        found,
        "{name} is not installed: apt-get install {package} (cargo xtask test does it)"
    );
    Command::new(name)
}

/// A folder made by `sapwood init`.
pub struct Folder {
    scratch: TempDir,
}

impl Folder {
    pub fn init(more: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("password"), PASSWORD).unwrap();
        let folder = Self { scratch };
        let path = folder.path();
        let password = folder.beside("password");
        let mut args = vec![
            "init".as_ref(),
            path.as_os_str(),
            "--suffix".as_ref(),
            SUFFIX.as_ref(),
        ];
        args.extend(["--admin-password-file".as_ref(), password.as_os_str()]);
        args.extend(more.iter().map(OsStr::new));
        sapwood_ok(args);
        folder
    }

    pub fn path(&self) -> PathBuf {
        self.beside("directory")
    }

    /// Runs `sapwood COMMAND DIR ...`.
    pub fn sapwood(&self, command: &str, more: &[&str]) -> Output {
        let path = self.path();
        let mut args: Vec<&OsStr> = vec![command.as_ref(), path.as_os_str()];
        args.extend(more.iter().map(OsStr::new));
        sapwood(args)
    }

    /// The same, for what must succeed. Gives standard output.
    #[track_caller]
    pub fn sapwood_ok(&self, command: &str, more: &[&str]) -> String {
        succeeded(self.sapwood(command, more))
    }

    /// A path outside of the directory's folder that goes away with it, as text.
    pub fn name_beside(&self, name: &str) -> String {
        self.beside(name).to_str().unwrap().to_owned()
    }

    /// A path outside of the directory's folder that goes away with it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Serves it on free ports: ldap, ldaps and ldapi.
    pub fn serve(&self) -> Running {
        self.serve_folder(&self.path())
    }

    /// The same with another directory.
    pub fn serve_folder(&self, folder: &Path) -> Running {
        let socket = self.beside("ldapi.sock");
        let ldapi = format!(
            "ldapi://{}",
            socket.display().to_string().replace('/', "%2F")
        );
        let mut child = Command::new(env!("CARGO_BIN_EXE_sapwood"))
            .arg("serve")
            .arg(folder)
            .args([
                "--listen",
                "ldap://127.0.0.1:0",
                "--listen",
                "ldaps://127.0.0.1:0",
                "--listen",
                &ldapi,
            ])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut urls = Vec::new();
        let mut seen = String::new();
        while urls.len() < 3 {
            let line = log
                .next()
                .unwrap_or_else(|| panic!("the server did not start:\n{seen}"))
                .unwrap();
            if let Some((_, url)) = line.split_once("listening on ") {
                urls.push(url.to_owned());
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        let all = Arc::new(Mutex::new(seen));
        let rest = Arc::clone(&all);
        // Somebody has to read the log, or the server would wait for it.
        std::thread::spawn(move || {
            for line in log.map_while(Result::ok) {
                let mut rest = rest.lock().unwrap();
                rest.push_str(&line);
                rest.push('\n');
            }
        });
        Running {
            child,
            urls,
            log: all,
            certificate: folder.join("tls-cert.pem"),
        }
    }
}

/// A running server; killed when dropped.
pub struct Running {
    pub child: Child,
    urls: Vec<String>,
    log: Arc<Mutex<String>>,
    certificate: PathBuf,
}

impl Running {
    pub fn ldap(&self) -> &str {
        &self.urls[0]
    }

    pub fn ldapi(&self) -> &str {
        &self.urls[2]
    }

    /// The port of `ldap://`.
    pub fn port(&self) -> u16 {
        self.urls[0].rsplit(':').next().unwrap().parse().unwrap()
    }

    /// The URL with the name that is in the certificate.
    pub fn ldaps_by_name(&self) -> String {
        self.urls[1].replace("127.0.0.1", "localhost")
    }

    pub fn ldap_by_name(&self) -> String {
        self.urls[0].replace("127.0.0.1", "localhost")
    }

    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as a service manager does.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many entries [`flat`] has, as an argument.
pub const ENTRIES: &str = "1000";

/// A server with the entries of the shape `flat`.
pub fn flat() -> (Folder, Running) {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("flat.ldif");
    sapwood_ok([
        "drive",
        "generate",
        "--shape",
        "flat",
        "--entries",
        ENTRIES,
        "--output",
        &file,
    ]);
    let said = folder.sapwood_ok("import", &[&file]);
    assert!(said.contains("1000 entries added, 0 rejected"), "{said}");
    let server = folder.serve();
    (folder, server)
}
