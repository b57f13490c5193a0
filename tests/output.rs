//! What becomes of a command whose output nobody reads, or that cannot be written: no panic, and nothing that was done
//! is lost.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{program, sapwood_command, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX};

/// Where standard output of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stdout {
    /// To a pipe that nobody reads any more.
    NoReader,
    /// It is closed when the command begins, as by `>&-` in a shell.
    Closed,
    /// To a disk that is full.
    Full,
}

const ALL: [Stdout; 3] = [Stdout::NoReader, Stdout::Closed, Stdout::Full];

fn run(stdout: Stdout, args: &[&str]) -> Output {
    let mut command = sapwood_command();
    match stdout {
        Stdout::NoReader => {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.stdout(OwnedFd::from(writer));
        }
        Stdout::Full => {
            command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
        }
        Stdout::Closed => {
            command = Command::new("sh");
            command.args([
                "-c",
                "exec \"$0\" \"$@\" >&-",
                env!("CARGO_BIN_EXE_sapwood"),
            ]);
        }
    }
    let output = command.args(args).stderr(Stdio::piped()).spawn();
    let output = output.unwrap().wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert!(
        !told.contains("panicked") && output.status.code().is_some_and(|code| code < 2),
        "{stdout:?} {args:?}: {}\n{told}",
        output.status
    );
    output
}

/// A command that changes something has succeeded even if nobody reads its output. One that only prints has not.
#[test]
fn commands_end_well_without_a_reader() {
    for stdout in ALL {
        let folder = Folder::init(&[]);
        let name = |name: &str| folder.name_beside(name);
        let directory = folder.path().to_str().unwrap().to_owned();
        let entries = format!(
            "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\ndn: cn=a,{SUFFIX}\nobjectClass: person\n"
        );
        fs::write(name("ldif"), entries).unwrap();
        let directory = directory.as_str();
        let done = |status: i32, args: &[&str]| {
            let output = run(stdout, args);
            assert_eq!(
                output.status.code(),
                Some(status),
                "{stdout:?} {args:?} {output:?}"
            );
        };
        let password = name("password");
        let another = name("another");
        done(
            0,
            &[
                "init",
                &another,
                "--suffix",
                "o=x",
                "--admin-password-file",
                &password,
            ],
        );
        assert!(Path::new(&another).join("data").exists());
        done(0, &["suffix", directory, "add", "o=y"]);
        done(
            1,
            &[
                "import",
                directory,
                &name("ldif"),
                "--reject-file",
                &name("rejected"),
            ],
        );
        done(0, &["index", directory, "add", "sn eq"]);
        done(0, &["backup", directory, &name("backup")]);
        done(0, &["restore", &name("restored"), &name("backup")]);
        done(0, &["passwd", directory, "--password-file", &password]);
        done(0, &["store", "copy", directory, &name("copy")]);
        done(0, &["store", "backup", directory, &name("backup 2")]);
        done(
            0,
            &["store", "restore", &name("backup 2"), &name("restored 2")],
        );
        done(0, &["store", "compact", directory]);
        fs::write(
            name("dump"),
            "VERSION=3\nformat=print\nHEADER=END\n a\n b\nDATA=END\n",
        )
        .unwrap();
        done(0, &["store", "load", &name("loaded"), "-f", &name("dump")]);

        // Who is told nothing that could be missed ends well; a closed descriptor is taken for one of /dev/null.
        let shown = i32::from(stdout != Stdout::Closed);
        done(shown, &["suffix", directory, "list"]);
        done(shown, &["index", directory, "list"]);
        done(shown, &["export", directory]);
        done(shown, &["check", directory]);
        done(shown, &["stat", directory]);
        for command in ["stat", "check", "readers", "dump"] {
            done(shown, &["store", command, directory]);
        }
        done(shown, &["drive", "generate", "--entries", "10"]);
        done(shown, &["demo", "--once"]);
        let server = folder.serve();
        done(0, &["reload", directory]);
        done(0, &["index", directory, "drop", "sn eq"]);
        server.stop();
        let exported = folder.sapwood_ok("export", &[]);
        assert_eq!(exported.matches("\ndn: ").count(), 1, "{exported}");
    }
}

/// A password that was made up and that nobody has seen would lock everybody out.
#[test]
fn a_generated_password_that_cannot_be_shown_is_not_set() {
    for stdout in ALL {
        let folder = Folder::init(&[]);
        let stored = || fs::read(folder.path().join("admin.password")).unwrap();
        let before = stored();
        let output = run(stdout, &["passwd", folder.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{stdout:?} {output:?}");
        assert!(
            text(&output.stderr).contains("shown"),
            "{stdout:?} {output:?}"
        );
        assert_eq!(stored(), before);
        assert!(!folder.path().join("admin.new").exists());

        let made = folder.name_beside("made");
        let output = run(stdout, &["init", &made, "--suffix", "o=x"]);
        assert_eq!(output.status.code(), Some(1), "{stdout:?} {output:?}");
        assert!(
            text(&output.stderr).contains("shown"),
            "{stdout:?} {output:?}"
        );
        assert!(!Path::new(&made).exists());
        // What was there before stays, and nothing else.
        fs::create_dir(&made).unwrap();
        run(stdout, &["init", &made, "--suffix", "o=x"]);
        assert_eq!(fs::read_dir(&made).unwrap().count(), 0);
    }
}

/// A log is to be read, but a server does not depend on it.
#[test]
fn a_server_whose_log_nobody_reads_goes_on() {
    let folder = Folder::init(&[]);
    folder.configure(&[("access = false", "access = true")]);
    let mut child = sapwood_command()
        .arg("serve")
        .arg(folder.path())
        .args(["--listen", "ldap://127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on ") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0);
    }
    let url = line
        .split_once("listening on ")
        .unwrap()
        .1
        .trim()
        .to_owned();
    drop(log);
    for _ in 0..3 {
        let mut search = program("ldapsearch", "ldap-utils");
        search.args([
            "-x", "-H", &url, "-D", ADMIN, "-w", PASSWORD, "-s", "base", "-b", "",
        ]);
        succeeded(search.output().unwrap());
        folder.sapwood_ok("reload", &[]);
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// What a demonstration makes goes with the terminal that it runs in.
#[test]
fn a_hang_up_ends_the_demo_and_removes_what_it_made() {
    let scratch = tempfile::tempdir().unwrap();
    let mut child = sapwood_command()
        .arg("demo")
        .env("TMPDIR", scratch.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    while !said.next().unwrap().unwrap().contains("Ctrl-C") {}
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// Signals that are sent by mistake, or by a program that means another one.
#[test]
fn signals_without_a_meaning_end_no_server() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::IO, "SIGIO"),
        (Signal::POWER, "SIGPWR"),
    ] {
        server.signal(signal);
        server.wait_for(&format!("{name} means nothing here"));
    }
    server.signal(Signal::PIPE);
    assert!(folder.sapwood_ok("reload", &[]).contains("reloaded"));
    server.stop();
}
