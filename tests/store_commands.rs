//! `sapwood store`: dumps that LMDB's own programs read and write, backups, copies, readers.

#![allow(clippy::unwrap_used)]

mod support;

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use support::{program, sapwood, sapwood_ok, succeeded, text};
use tempfile::TempDir;

fn store<S: AsRef<OsStr>>(args: &[S]) -> String {
    let all = [OsStr::new("store")].into_iter();
    sapwood_ok(all.chain(args.iter().map(AsRef::as_ref)))
}

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same as text, for a command line.
    fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// A dump with trees of every kind that LMDB has, as `mdb_load` takes it.
fn every_kind() -> String {
    let mut dump = String::new();
    let mut tree = |name: &str, flags: &[&str], records: &[(&str, &str)]| {
        let flags: String = flags.iter().map(|flag| format!("{flag}=1\n")).collect();
        write!(
            dump,
            "VERSION=3\nformat=print\ndatabase={name}\ntype=btree\nmapsize=10485760\n{flags}HEADER=END\n"
        )
        .unwrap();
        for (key, value) in records {
            writeln!(dump, " {key}\n {value}").unwrap();
        }
        dump.push_str("DATA=END\n");
    };
    let duplicates = ["duplicates", "dupsort"];
    tree(
        "plain",
        &[],
        &[
            ("a", "1"),
            ("b\\00\\ff", ""),
            ("b ", "\\0a=END"),
            ("c", " two  blanks "),
        ],
    );
    let long = "long value ".repeat(800);
    tree("long", &[], &[("one", &long), ("two", "short")]);
    tree("empty", &[], &[]);
    tree(
        "duplicates",
        &duplicates,
        &[("k", "b"), ("k", "a"), ("k", "ab"), ("l", "z")],
    );
    tree(
        "reverse",
        &["reversekey"],
        &[("ab", "1"), ("ba", "2"), ("bb", "3")],
    );
    tree(
        "integer",
        &["integerkey"],
        &[("\\00\\01\\00\\00", "256"), ("\\ff\\00\\00\\00", "255")],
    );
    let fixed = [&duplicates[..], &["dupfixed", "integerdup"]].concat();
    tree(
        "fixed",
        &fixed,
        &[("k", "\\00\\01\\00\\00"), ("k", "\\02\\00\\00\\00")],
    );
    let backwards = [&duplicates[..], &["reversedup"]].concat();
    tree(
        "backwards",
        &backwards,
        &[("k", "az"), ("k", "za"), ("k", "mm")],
    );
    dump
}

fn mdb_load(file: &Path, folder: &Path) {
    fs::create_dir(folder).unwrap();
    let mut load = program("mdb_load", "lmdb-utils");
    succeeded(load.arg("-f").args([file, folder]).output().unwrap());
}

fn mdb_dump(options: &[&str], folder: &Path) -> String {
    let mut dump = program("mdb_dump", "lmdb-utils");
    succeeded(dump.args(options).arg(folder).output().unwrap())
}

/// A dump without what depends on the size of the environment.
fn without_sizes(dump: &str) -> String {
    dump.lines()
        .filter(|line| !line.starts_with("mapsize=") && !line.starts_with("maxreaders="))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn dumps_go_to_lmdb_and_come_back() {
    let scratch = Scratch::new();
    let given = scratch.path("given");
    fs::write(&given, every_kind()).unwrap();
    mdb_load(&given, &scratch.path("lmdb"));
    for (options, ours) in [(&["-a"][..], &[][..]), (&["-a", "-p"][..], &["-p"][..])] {
        let name = format!("with {} options", options.len());
        let theirs = mdb_dump(options, &scratch.path("lmdb"));
        let file = scratch.path(&name);
        fs::write(&file, &theirs).unwrap();
        // From LMDB to us.
        let folder = scratch.arg(&format!("{name}, ours"));
        let loaded = store(&["load", &folder, "-f", file.to_str().unwrap()]);
        assert!(loaded.starts_with("20 records"), "{loaded}");
        let dumped = store(&[&["dump", folder.as_str()], ours].concat());
        assert_eq!(without_sizes(&dumped), without_sizes(&theirs));
        assert!(store(&["check", &folder]).contains("Nothing is wrong."));
        // And back.
        fs::write(&file, &dumped).unwrap();
        let back = scratch.path(&format!("{name}, back"));
        mdb_load(&file, &back);
        assert_eq!(
            without_sizes(&mdb_dump(options, &back)),
            without_sizes(&theirs)
        );
    }
}

#[test]
fn what_lmdb_does_not_have_survives_a_dump_and_does_not_trouble_it() {
    let scratch = Scratch::new();
    let file = scratch.path("file");
    let header = |flags: &str| {
        format!("VERSION=3\nformat=print\ndatabase=t\ntype=btree\n{flags}HEADER=END\n")
    };
    fs::write(&file, header("counted=1\n") + " a\n 1\nDATA=END\n").unwrap();
    let ours = scratch.arg("ours");
    store(&["load", &ours, "-f", file.to_str().unwrap()]);
    let dumped = store(&["dump", &ours, "--tree", "t"]);
    assert!(dumped.contains("\ncounted=1\n"), "{dumped}");
    fs::write(&file, dumped).unwrap();
    mdb_load(&file, &scratch.path("lmdb"));
    let theirs = mdb_dump(&["-s", "t"], &scratch.path("lmdb"));
    assert!(theirs.contains("\n 61\n 31\n"), "{theirs}");
}

#[test]
fn a_bad_dump_is_refused_with_its_line() {
    let scratch = Scratch::new();
    let header = "VERSION=3\nformat=bytevalue\nHEADER=END\n";
    for (input, line, what) in [
        ("nonsense\n".into(), 1, "NAME=VALUE"),
        ("VERSION=2\n".into(), 1, "version 3"),
        ("VERSION=3\n".into(), 1, "within a header"),
        (format!("{header} 6\n"), 4, "two hexadecimal digits"),
        (format!("{header}61\n"), 4, "begins with a blank"),
        (format!("{header} 61\n"), 4, "between a key and its value"),
        (format!("{header} 61\n 61\n"), 5, "without DATA=END"),
        (
            format!("{header} {}\n 61\nDATA=END\n", "61".repeat(1301)),
            5,
            "1301 bytes",
        ),
        (
            "VERSION=3\ncounted=1\ndupsort=1\nHEADER=END\nDATA=END\n".into(),
            4,
            "go together",
        ),
    ] {
        let file = scratch.path("bad");
        fs::write(&file, &input).unwrap();
        let output = sapwood([
            "store",
            "load",
            &scratch.arg("env"),
            "-f",
            file.to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(1), "{input}");
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains(&format!("line {line}: ")),
            "{input}{stderr}"
        );
        assert!(stderr.contains(what), "{input}{stderr}");
    }
}

#[test]
fn records_that_are_there_can_be_kept() {
    let scratch = Scratch::new();
    let (file, folder) = (scratch.arg("file"), scratch.arg("env"));
    let dump = |value: &str| {
        format!("VERSION=3\nformat=print\ntype=btree\nHEADER=END\n k\n {value}\nDATA=END\n")
    };
    let shown = || store(&["dump", &folder, "-p", "-s", "main"]);
    for (value, options, expected) in [
        ("1", &[][..], "1"),
        ("2", &["-n"][..], "1"),
        ("3", &[][..], "3"),
    ] {
        fs::write(&file, dump(value)).unwrap();
        store(&[&["load", &folder, "-f", &file], options].concat());
        assert!(
            shown().contains(&format!("\n k\n {expected}\n")),
            "{}",
            shown()
        );
    }
}

#[test]
fn backups_and_copies_hold_what_was_there() {
    let scratch = Scratch::new();
    let (file, folder) = (scratch.arg("file"), scratch.arg("env"));
    fs::write(&file, every_kind()).unwrap();
    store(&["load", &folder, "-f", &file]);
    let (full, increment) = (scratch.arg("full"), scratch.arg("increment"));
    store(&["backup", &folder, &full]);
    fs::write(
        &file,
        "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n k\n v\nDATA=END\n",
    )
    .unwrap();
    store(&["load", &folder, "-f", &file]);
    store(&["backup", &folder, &increment, "--since", &full]);
    store(&["restore", &full, &increment, &scratch.arg("restored")]);
    store(&["copy", &folder, &scratch.arg("copied")]);
    store(&["copy", "--compact", &folder, &scratch.arg("compacted")]);
    let dump = |folder: &str| without_sizes(&store(&["dump", folder]));
    let all = dump(&folder);
    assert!(all.contains("\ndatabase=main\n"), "{all}");
    for name in ["restored", "copied", "compacted"] {
        assert_eq!(dump(&scratch.arg(name)), all, "{name}");
        assert!(store(&["check", &scratch.arg(name)]).contains("Nothing is wrong."));
    }
    assert!(store(&["check", &scratch.arg("compacted")]).contains(", 0 free"));
    let names: Vec<_> = fs::read_dir(scratch.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".backup"))
        .collect();
    assert!(names.is_empty(), "{names:?} were left");
    let refused = sapwood(["store", "backup", &folder, &full]);
    assert!(text(&refused.stderr).contains("exists"), "{refused:?}");
    let refused = sapwood(["store", "restore", &increment, &scratch.arg("wrong")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(!scratch.path("wrong").exists());
    let stat = store(&["stat", &folder]);
    assert!(stat.contains("  duplicates"), "{stat}");
}

#[test]
fn all_stores_of_an_environment_are_looked_after() {
    let scratch = Scratch::new();
    let folder = scratch.path("env");
    let options = sapwood_store::Options::new().stores(2);
    let env = sapwood_store::Env::open(&folder, &options).unwrap();
    for number in 0..2 {
        let mut txn = env.store(number).unwrap().write().unwrap();
        let name = format!("tree{number}");
        let tree = txn.create_tree(&name, sapwood_store::TreeKind::COMPACT);
        txn.put(tree.unwrap(), b"key", &[1; 1000]).unwrap();
        txn.commit().unwrap().wait().unwrap();
    }
    env.checkpoint().unwrap();
    env.store(1).unwrap().checkpoint().unwrap();
    let snapshot = env.store(1).unwrap().read().unwrap();
    let folder = scratch.arg("env");
    let stat = store(&["stat", &folder]);
    for part in ["Store 0\n", "Store 1\n", "  tree0\n", "  tree1\n"] {
        assert!(stat.contains(part), "{stat}");
    }
    let pid = std::process::id().to_string();
    let readers = store(&["readers", &folder]);
    let of_second = readers.split("Store 1\n").nth(1).unwrap();
    assert!(of_second.contains(&pid), "{readers}");
    drop((snapshot, env));
    assert!(store(&["check", &folder]).contains("Nothing is wrong."));
    let file = scratch.arg("file");
    for args in [
        &["copy", &folder, &file][..],
        &["backup", &folder, &file],
        &["dump", &folder],
        &["load", &folder, "-f", "/dev/null"],
    ] {
        let refused = sapwood([&["store"], args].concat());
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        assert!(text(&refused.stderr).contains("2 stores"), "{refused:?}");
    }
    // The record's page.
    let data = scratch.path("env").join("data-1");
    let mut bytes = fs::read(&data).unwrap();
    let at = bytes.windows(500).position(|window| window == [1; 500]);
    bytes[at.unwrap()] = 2;
    fs::write(&data, bytes).unwrap();
    let damaged = sapwood(["store", "check", &folder]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged.stdout).contains("WRONG"), "{damaged:?}");
}

#[test]
fn readers_are_shown_with_what_they_keep() {
    let scratch = Scratch::new();
    let folder = scratch.path("env");
    let options = sapwood_store::Options::new().idle_checkpoint(None);
    let env = sapwood_store::Env::open(&folder, &options).unwrap();
    let change = |value: &[u8]| {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("t").unwrap() {
            Some(tree) => tree,
            None => txn
                .create_tree("t", sapwood_store::TreeKind::default())
                .unwrap(),
        };
        txn.put(tree, b"key", value).unwrap();
        txn.commit().unwrap().wait().unwrap();
    };
    change(&[1; 40_000]);
    let snapshot = env.read().unwrap();
    (0..5).for_each(|n| change(&[n; 100]));
    let folder = folder.to_str().unwrap();
    let shown = store(&["readers", folder, "--clear"]);
    let line = shown.lines().last().unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[0], std::process::id().to_string(), "{shown}");
    assert_eq!(fields[2], snapshot.commit().0.to_string(), "{shown}");
    assert_eq!(fields[3], "5", "{shown}");
    // The large value alone has ten pages.
    assert!(fields[4].parse::<u64>().unwrap() >= 10, "{shown}");
    let status = |max: &str| {
        sapwood(["store", "readers", folder, "--max-age", max])
            .status
            .code()
    };
    assert_eq!((status("5"), status("4")), (Some(0), Some(1)));
    drop(snapshot);
    assert_eq!(status("0"), Some(0));
}

#[test]
fn a_backup_is_brought_to_a_later_commit_by_the_archive() {
    use sapwood_store::{Env, Options, TreeKind};

    let scratch = Scratch::new();
    fs::create_dir(scratch.path("archive")).unwrap();
    let options = Options::new().archive(scratch.path("archive")).unwrap();
    let env = Env::open(scratch.path("env"), &options).unwrap();
    env.backup(scratch.path("backup")).unwrap();
    for name in ["one", "two", "three"] {
        let mut txn = env.write().unwrap();
        txn.create_tree(name, TreeKind::COMPACT).unwrap();
        txn.commit().unwrap().wait().unwrap();
    }
    env.archive().unwrap();
    let restore = |dest: &str, until: &[&str]| {
        let [backup, dest, archive] = [
            scratch.arg("backup"),
            scratch.arg(dest),
            scratch.arg("archive"),
        ];
        let args = ["restore", &backup, &dest, "--archive", &archive];
        let all: Vec<&str> = args.into_iter().chain(until.iter().copied()).collect();
        store(&all)
    };
    assert!(restore("end", &[]).contains("commit 4"));
    assert!(restore("third", &["--until", "3"]).contains("commit 3"));
    assert!(restore("then", &["--until", "2000-01-01T00:00:00Z"]).contains("commit 1"));
    let stat = store(&["stat", &scratch.arg("third")]);
    assert!(stat.contains("two") && !stat.contains("three"), "{stat}");
    let refused = sapwood([
        "store",
        "restore",
        &scratch.arg("backup"),
        &scratch.arg("x"),
        "--until",
        "3",
    ]);
    assert!(!refused.status.success());
}
