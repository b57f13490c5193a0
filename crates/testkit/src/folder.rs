//! Directories that `sapwood init` makes and `sapwood serve` serves.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;

use crate::program::{Process, Scratch, sapwood, sapwood_command, sapwood_ok, succeeded};
use crate::{PASSWORD, SUFFIX};

/// The folder of an example directory, made by `sapwood init`.
#[derive(Debug)]
pub struct Folder {
    scratch: Scratch,
}

impl Folder {
    /// Makes one, with more arguments.
    pub fn init(more: &[&str]) -> Self {
        let scratch = Scratch::new();
        let (path, password) = (scratch.arg("directory"), scratch.arg("password"));
        std::fs::write(&password, PASSWORD).unwrap();
        let init = ["init", &path, "--suffix", SUFFIX];
        let password = ["--admin-password-file", &password];
        sapwood_ok(init.iter().chain(&password).chain(more));
        Self { scratch }
    }

    /// Where it is.
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
        self.scratch.arg(name)
    }

    /// A path outside of the directory's folder that goes away with it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Changes its configuration: each of these, which must be there, into the other.
    #[track_caller]
    pub fn configure(&self, changes: &[(&str, &str)]) {
        let path = self.path().join("sapwood.toml");
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (before, after) in changes {
            assert!(text.contains(before), "{before}");
            text = text.replace(before, after);
        }
        std::fs::write(&path, text).unwrap();
    }

    /// Serves it on free ports: ldap, ldaps and ldapi.
    pub fn serve(&self) -> Running {
        self.serve_folder(&self.path())
    }

    /// The same with another directory.
    pub fn serve_folder(&self, folder: &Path) -> Running {
        self.serve_in(folder, &[])
    }

    /// Serves it, with more in its environment.
    pub fn serve_with(&self, environment: &[(&str, &str)]) -> Running {
        self.serve_in(&self.path(), environment)
    }

    fn serve_in(&self, folder: &Path, environment: &[(&str, &str)]) -> Running {
        let socket = self.name_beside("ldapi.sock").replace('/', "%2F");
        let mut command = sapwood_command();
        command.arg("serve").arg(folder);
        command.envs(environment.iter().copied());
        command.args(["--listen", "ldap://127.0.0.1:0"]);
        command.args(["--listen", "ldaps://127.0.0.1:0"]);
        command.args(["--listen", &format!("ldapi://{socket}")]);
        let process = Process::start(&mut command);
        let urls = process.wait_until(|log| {
            let lines = log.lines();
            let urls =
                lines.filter_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
            // Only the last line may not be whole yet.
            let whole = log.ends_with('\n');
            urls.collect::<Vec<_>>().try_into().ok().filter(|_| whole)
        });
        Running {
            process,
            urls,
            certificate: folder.join("tls-cert.pem"),
        }
    }
}

/// A running server, which is a process; killed when dropped.
#[derive(Debug)]
pub struct Running {
    process: Process,
    urls: [String; 3],
    certificate: PathBuf,
}

impl Deref for Running {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Running {
    /// The URL with `ldap://`.
    pub fn ldap(&self) -> &str {
        &self.urls[0]
    }

    /// The URL with `ldapi://`.
    pub fn ldapi(&self) -> &str {
        &self.urls[2]
    }

    /// The address of `ldap://`.
    pub fn address(&self) -> (&str, u16) {
        ("127.0.0.1", self.port())
    }

    /// The port of `ldap://`.
    pub fn port(&self) -> u16 {
        self.urls[0].rsplit(':').next().unwrap().parse().unwrap()
    }

    /// The address of `ldaps://`.
    pub fn ldaps_address(&self) -> SocketAddr {
        let address = self.urls[1].trim_start_matches("ldaps://");
        address.parse().unwrap()
    }

    /// The URL with `ldaps://` and the name that is in the certificate.
    pub fn ldaps_by_name(&self) -> String {
        self.urls[1].replace("127.0.0.1", "localhost")
    }

    /// The URL with `ldap://` and the name that is in the certificate.
    pub fn ldap_by_name(&self) -> String {
        self.urls[0].replace("127.0.0.1", "localhost")
    }

    /// Where its certificate is.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Stops it as a service manager does.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.process.wait();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// kill -9.
    pub fn kill(self) {
        self.process.kill();
    }
}

/// How many entries [`flat`] has, as an argument.
pub const ENTRIES: &str = "1000";

/// A server with the entries of the shape `flat`.
pub fn flat() -> (Folder, Running) {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("flat.ldif");
    let generate = ["drive", "generate", "--shape", "flat"];
    sapwood_ok(
        generate
            .iter()
            .chain(&["--entries", ENTRIES, "--output", &file]),
    );
    let said = folder.sapwood_ok("import", &[&file]);
    assert!(said.contains("1000 entries added, 0 rejected"), "{said}");
    let server = folder.serve();
    (folder, server)
}
