//! What a running server reads again: its configuration and its certificates.

use rustix::process::Signal;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{Process, sapwood_command, text};

#[test]
fn a_hang_up_reloads_or_keeps_what_was() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let hang_up = |expected: &str| {
        server.signal(Signal::HUP);
        server.wait_for(expected);
    };
    hang_up("configuration and certificates reloaded");
    std::fs::write(server.certificate(), "no certificate").unwrap();
    hang_up("not reloaded, all stays as it was");
    server.wait_for("tls-cert.pem");
    server.stop();
}

/// A renewal was not noticed until somebody told the server.
#[test]
fn a_certificate_that_was_replaced_is_read_by_itself() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let before = std::fs::read(server.certificate()).unwrap();
    std::fs::write(server.certificate(), "no certificate").unwrap();
    server.wait_for("and cannot be used: ");
    std::fs::write(server.certificate(), before).unwrap();
    server.wait_for("have changed, and were read again");
    server.stop();
}

#[test]
fn a_reload_tells_what_is_in_force_and_what_needs_a_restart() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let reload = || folder.sapwood_ok("reload", &[]);
    let said = reload();
    assert!(
        said.contains("no other setting") && !said.contains("restart"),
        "{said}"
    );
    let path = folder.path().join("sapwood.toml");
    let template = std::fs::read_to_string(&path).unwrap();
    folder.configure(&[
        ("connections_max = 1000", "connections_max = 999"),
        ("threads = 0", "threads = 7"),
        ("hashers_max = 1", "hashers_max = 2"),
    ]);
    let waiting = "needs a restart: limits.hashers_max = 2, threads = 7";
    let first = reload();
    assert!(
        first.contains("in force now: limits.connections_max = 999; "),
        "{first}"
    );
    assert!(first.contains(waiting), "{first}");
    // What waits is told each time, until it has been.
    let second = reload();
    assert!(
        second.contains("no other setting") && second.contains(waiting),
        "{second}"
    );
    server.wait_for(waiting);
    server.stop();
    let server = folder.serve();
    assert!(!reload().contains("restart"));
    // What was started with limits what goes with it.
    let larger = template
        .replace("message_bytes_max = 4194304", "message_bytes_max = 8388608")
        .replace("input_bytes_max = 5242880", "input_bytes_max = 9388608");
    std::fs::write(&path, larger).unwrap();
    let refused = text(&folder.sapwood("reload", &[]).stderr);
    assert!(
        refused.contains("input_bytes_max, which needs a restart"),
        "{refused}"
    );
    server.stop();
}

/// What a command line names is relative to where it is given; what the configuration names, to its own folder.
#[test]
fn a_certificate_on_the_command_line_is_looked_for_in_the_current_folder() {
    let folder = Folder::init(&[]);
    let here = folder.beside("here");
    std::fs::create_dir(&here).unwrap();
    for (from, to) in [("tls-cert.pem", "own.pem"), ("tls-key.pem", "own.key")] {
        std::fs::rename(folder.path().join(from), here.join(to)).unwrap();
    }
    let mut command = sapwood_command();
    command.current_dir(&here);
    command.args(["serve", "../directory", "--listen", "ldaps://127.0.0.1:0"]);
    command.args(["--tls-cert", "own.pem", "--tls-key", "./own.key"]);
    let server = Process::start(&mut command);
    server.wait_for("listening on ldaps:");
    assert!(folder.sapwood_ok("reload", &[]).contains("reloaded"));
}
