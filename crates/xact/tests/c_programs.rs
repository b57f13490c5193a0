//! The programs of the tutorial for C, built as it says: with pkg-config, and against the static library. Their
//! processes share what they store, and are killed.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

use sapwood_xact::{Mode, Options, Space};
use tempfile::TempDir;

/// Where the crate is.
fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A library of this build: it lies beside this test, perhaps under a name with a number; of several the newest is it.
fn library(ending: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let age = |path: &PathBuf| -> SystemTime { path.metadata().unwrap().modified().unwrap() };
    std::fs::read_dir(test.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libsapwood_xact") && name.ends_with(ending)
        })
        .max_by_key(age)
        .expect("the libraries are built with the crate")
}

/// A program of the tutorial, linked with the shared library where that was installed.
struct Built {
    folder: TempDir,
    program: PathBuf,
}

impl Built {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (libraries, prefix) = (
            folder.path().join("libraries"),
            folder.path().join("prefix"),
        );
        std::fs::create_dir(&libraries).unwrap();
        std::fs::copy(library(".a"), libraries.join("libsapwood_xact.a")).unwrap();
        std::fs::copy(library(".so"), libraries.join("libsapwood_xact.so")).unwrap();
        let installed = Command::new(crate_folder().join("install.sh"))
            .args([&libraries, &prefix])
            .status();
        assert!(installed.unwrap().success());
        let asked = |questions: &[&str]| {
            let answer = Command::new("pkg-config")
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                .args(questions)
                .arg("sapwood_xact")
                .output();
            succeeded(answer.expect("pkg-config, of the package pkgconf"))
        };
        let version = asked(&["--modversion"]);
        assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
        let flags = asked(&["--cflags", "--libs"]);
        let program = folder.path().join(name);
        let source = crate_folder()
            .join("examples")
            .join(name)
            .with_extension("c");
        compile(&program, &source, flags.split_whitespace());
        Self { folder, program }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path().join("prefix/lib"))
            .arg(self.folder.path().join("space"))
            .args(args)
            .stdout(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn told(&self, args: &[&str]) -> String {
        succeeded(self.run(args))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a program that must have succeeded.
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn compile<'a>(program: &Path, source: &Path, flags: impl Iterator<Item = &'a str>) {
    let mut compiler = Command::new("cc");
    compiler
        .args([
            "-std=c11",
            "-D_DEFAULT_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-o",
        ])
        .args([program, source])
        .args(flags);
    assert!(compiler.status().expect("a C compiler").success());
}

/// Kills a process when it has said so many lines; gives what it had said by then.
fn kill_after(mut child: Child, lines: usize) -> Vec<String> {
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut all = said.lines();
    let mut heard: Vec<_> = all.by_ref().take(lines).map(Result::unwrap).collect();
    child.kill().unwrap();
    heard.extend(all.map_while(Result::ok));
    child.wait().unwrap();
    heard
}

#[test]
fn processes_in_c_count_together() {
    let counter = Built::new("counter");
    let children: Vec<_> = (0..3)
        .map(|_| counter.command(&["40"]).spawn().unwrap())
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_eq!(counter.told(&["1"]), "121\n");
    let refused = Command::new(&counter.program)
        .env("LD_LIBRARY_PATH", counter.folder.path().join("prefix/lib"))
        .args(["/dev/null/space", "1"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("cannot open the space: "));
}

#[test]
fn a_program_in_c_is_linked_with_the_static_library() {
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("counter");
    let include = format!("-I{}", crate_folder().join("include").display());
    let library = library(".a");
    let flags = [
        &*include,
        library.to_str().unwrap(),
        "-lpthread",
        "-ldl",
        "-lm",
    ];
    compile(
        &counter,
        &crate_folder().join("examples/counter.c"),
        flags.into_iter(),
    );
    let counted = Command::new(&counter)
        .arg(folder.path().join("space"))
        .arg("5")
        .output();
    assert_eq!(succeeded(counted.unwrap()), "5\n");
}

#[test]
fn a_bank_in_c_has_all_of_its_money_after_kills() {
    let bank = Built::new("bank");
    for round in 0..6 {
        let tellers: Vec<_> = (0..3)
            .map(|_| bank.command(&["1000000"]).spawn().unwrap())
            .collect();
        let made = tellers
            .into_iter()
            .map(|teller| kill_after(teller, 5 + 7 * round).len());
        assert!(made.sum::<usize>() >= 3 * (5 + 7 * round));
        assert_eq!(bank.told(&["audit"]), "100000\n");
    }
    // Another program's space is not a bank.
    let space = Options::new().mode(Mode::Tracked).layout("shop", 1);
    Space::open(bank.folder.path().join("shop"), &space).unwrap();
    let refused = Command::new(&bank.program)
        .env("LD_LIBRARY_PATH", bank.folder.path().join("prefix/lib"))
        .arg(bank.folder.path().join("shop"))
        .arg("audit")
        .output()
        .unwrap();
    let told = text(&refused.stderr);
    let expected = ["holds layout shop version 1", "made otherwise"];
    assert!(expected.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn a_hash_map_in_c_has_what_it_said_after_kills() {
    let map = Built::new("hash_map");
    for round in 0..4 {
        let names = ["a", "b", "c"].map(|name| format!("{name}{round}"));
        let children = names
            .clone()
            .map(|name| map.command(&["fill", &name, "100000"]).spawn().unwrap());
        for (name, child) in names.iter().zip(children) {
            // What was said is there.
            for number in kill_after(child, 10 + 5 * round).iter().rev().take(4) {
                assert_eq!(
                    map.told(&["get", &format!("{name}.{number}")]),
                    format!("{number}\n")
                );
            }
        }
    }
    map.told(&["set", "colour", "green"]);
    map.told(&["set", "colour", "blue"]);
    assert_eq!(map.told(&["get", "colour"]), "blue\n");
    assert_eq!(map.told(&["get", "shape"]), "(none)\n");
    assert_eq!(map.run(&["get"]).status.code(), Some(2));
}

#[test]
fn trees_in_c_are_those_of_rust() {
    let words = "the quick brown fox jumps over the lazy dog the end";
    let counted = "brown 1\ndog 1\nend 1\nfox 1\njumps 1\nlazy 1\nover 1\nquick 1\nthe 3\n";
    for kind in ["bplus", "oblivious"] {
        let tree = Built::new("tree");
        let input = tree.folder.path().join("words");
        std::fs::write(&input, words).unwrap();
        let read = || std::fs::File::open(&input).unwrap();
        let shown = tree.command(&[kind]).stdin(read()).output().unwrap();
        assert_eq!(succeeded(shown), counted, "{kind}");
    }
    let tree = Built::new("tree");
    std::fs::write(tree.folder.path().join("words"), words).unwrap();
    let words = std::fs::File::open(tree.folder.path().join("words")).unwrap();
    let mut counting = tree.command(&["hash"]);
    let walked = counting
        .stdin(words)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(walked.status.code(), Some(1));
    let told = text(&walked.stderr);
    assert!(
        told.starts_with("cannot walk: ") && told.contains("has no order"),
        "{told}"
    );
}
