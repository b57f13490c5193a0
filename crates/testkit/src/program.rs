//! The `sapwood` command and other programs, as users start them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The `sapwood` command under test.
pub fn sapwood_command() -> Command {
    // Cargo names it to the tests that it runs. A test program that is run by itself has it in the folder above its
    // own.
    let program = std::env::var_os("CARGO_BIN_EXE_sapwood").map_or_else(
        || {
            std::env::current_exe()
                .unwrap()
                .with_file_name("../sapwood")
        },
        PathBuf::from,
    );
    Command::new(program)
}

/// Runs `sapwood` with these arguments.
pub fn sapwood<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    sapwood_command().args(args).output().unwrap()
}

/// The same, for what must succeed. Gives standard output.
#[track_caller]
pub fn sapwood_ok<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    succeeded(sapwood(args))
}

/// Standard output of a program that must have succeeded.
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

/// What a program says that is given an input.
pub fn fed(command: &mut Command, input: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// What a program has said, as text.
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

/// A folder for the files of a test, which goes away with this value.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// An empty folder.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same as text, for a command line.
    pub fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// A running program, which is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    /// Its standard output is there if it was asked for.
    pub child: Child,
    said: Arc<Said>,
}

/// What a program has written to its standard error, which somebody has to read, or the program would wait for that.
#[derive(Debug, Default)]
struct Said {
    /// With whether that is all.
    text: Mutex<(String, bool)>,
    more: Condvar,
}

impl Process {
    /// Starts a program.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let said = Arc::new(Said::default());
        let listening = Arc::clone(&said);
        std::thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                let length = stderr.read_until(b'\n', &mut line).unwrap_or(0);
                let mut text = listening.text.lock().unwrap();
                text.0 += &self::text(&line);
                text.1 = length == 0;
                listening.more.notify_all();
                if text.1 {
                    return;
                }
            }
        });
        Self { child, said }
    }

    /// Waits until it has written this to its standard error.
    #[track_caller]
    pub fn wait_for(&self, wanted: &str) {
        self.wait_until(|log| log.contains(wanted).then_some(()));
    }

    /// Waits until something is found in what it has written to its standard error.
    #[track_caller]
    pub fn wait_until<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        let mut said = self.said.text.lock().unwrap();
        loop {
            if let Some(found) = find(&said.0) {
                return found;
            }
            assert!(!said.1, "it has ended, having said\n{}", said.0);
            said = self.said.more.wait(said).unwrap();
        }
    }

    /// What it has written to its standard error so far.
    pub fn log(&self) -> String {
        self.said.text.lock().unwrap().0.clone()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
