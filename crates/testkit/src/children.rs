//! Other processes: a test program starts itself once more, and its test `child` plays a role there.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};

const ROLE: &str = "SAPWOOD_TEST_ROLE";
const FOLDER: &str = "SAPWOOD_TEST_FOLDER";
/// What a child says when it has come as far as it should. The harness may have begun the line.
const REACHED: &str = "reached";

/// What this process is to play, and in which folder: `None` in the test itself. The test `child` asks for it, and does
/// nothing without a role.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(FOLDER).unwrap().into()))
}

/// Tells the one that started this process that it has come as far as it should, and waits for permission to go on.
pub fn pause() {
    println!("{REACHED}");
    let read = stdin().read(&mut [0]).unwrap();
    assert!(read <= 1);
}

/// Runs this program's test `child` in a role.
pub fn command(role: &str, folder: &Path) -> Command {
    command_of(&std::env::current_exe().unwrap(), role, folder)
}

/// The same with a copy of this program.
pub fn command_of(program: &Path, role: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Plays a role to its end, which has to be a good one.
pub fn play(role: &str, folder: &Path) {
    let status = Child::start(&mut command(role, folder)).end();
    assert!(status.success(), "{role}: {status}");
}

/// Has a command run where `mount`, a line for the shell to which `$0` is the folder, has been done, which nobody else
/// sees. `None`, and a word about it, where this process may not mount anything.
pub fn mounted(mount: &str, folder: &Path, command: &Command) -> Option<Command> {
    let inside = |program: &OsStr| {
        let mut inside = Command::new("unshare");
        inside
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .arg(format!("{mount} && exec \"$@\""))
            .args([folder.as_os_str(), program]);
        inside
    };
    let probe = inside("true".as_ref()).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("left out: this process may not mount a file system");
        return None;
    }
    let mut inside = inside(command.get_program());
    inside
        .args(command.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    for (name, value) in command.get_envs() {
        inside.env(name, value.unwrap_or_default());
    }
    Some(inside)
}

/// A child, which is killed when this value is dropped.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts a [`command`].
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the child has paused.
    pub fn wait(&mut self) {
        let mut line = String::new();
        while !line.contains(REACHED) {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the child ended early");
        }
    }

    /// Lets the child go on to its next pause.
    pub fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Lets the child go on to its end.
    pub fn end(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        // What it still says is of no interest, but it must not have to wait for a reader.
        self.output.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
