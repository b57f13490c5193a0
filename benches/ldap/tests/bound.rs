//! A benchmark that is killed leaves nothing running.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The state of a process, as the kernel names it, and its program; nothing when there is none.
fn state(process: &str) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (program, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let state = rest.split_ascii_whitespace().next()?;
    Some((state.to_owned(), program.to_owned()))
}

#[test]
fn what_is_bound_ends_with_a_parent_that_is_killed() {
    let script = r#""$0" bound $$ sleep infinity & echo $!; wait"#;
    let mut parent = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_sapwood-bench")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut process = String::new();
    let said = parent.stdout.take().expect("it is piped");
    BufReader::new(said)
        .read_line(&mut process)
        .expect("the number of a process");
    let process = process.trim();
    while state(process).expect("it runs").1 != "sleep" {
        std::thread::yield_now();
    }
    parent.kill().expect("the shell runs");
    parent.wait().expect("the shell was killed");
    // The one that inherits it may not look after it.
    while state(process).is_some_and(|(state, _)| state != "Z") {
        std::thread::yield_now();
    }
}
