//! `sapwood store`: dumps that LMDB's own programs read and write, backups, copies, readers.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use sapwood_testkit::program::{Scratch, program, sapwood, sapwood_ok, succeeded, text};

fn store<S: AsRef<OsStr>>(args: &[S]) -> String {
    let all = [OsStr::new("store")].into_iter();
    sapwood_ok(all.chain(args.iter().map(AsRef::as_ref)))
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
    let names: Vec<_> = fs::read_dir(scratch.path(""))
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
        txn.commit().unwrap().wait_durable().unwrap();
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

/// Adds a record to each of three stores, in one transaction.
fn count(env: &sapwood_store::Env) {
    let mut txn = env.write_stores(&[0, 1, 2]).unwrap();
    for store in 0..3 {
        let part = txn.store(store).unwrap();
        let tree = match part.tree("shared").unwrap() {
            Some(tree) => tree,
            None => {
                let own = part.create_tree(format!("own{store}"), sapwood_store::TreeKind::COMPACT);
                part.put(own.unwrap(), b"key", &[7; 3000]).unwrap();
                part.create_tree("shared", sapwood_store::TreeKind::COMPACT)
                    .unwrap()
            }
        };
        let key = format!("{:06}", part.view(tree).unwrap().record().records);
        let value = format!("of store {store}");
        part.put(tree, key.as_bytes(), value.as_bytes()).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
}

/// An environment of three stores.
fn three(scratch: &Scratch, options: sapwood_store::Options) -> sapwood_store::Env {
    let env = sapwood_store::Env::open(scratch.path("env"), &options.stores(3)).unwrap();
    (0..5).for_each(|_| count(&env));
    env
}

/// What a dump of each of the stores says.
fn dumps(folder: &str, stores: usize) -> Vec<String> {
    let dump = |number: usize| store(&["dump", folder, "-p", "--store", &number.to_string()]);
    (0..stores)
        .map(|number| without_sizes(&dump(number)))
        .collect()
}

#[track_caller]
fn refused<S: AsRef<OsStr>>(args: &[S], parts: &[&str]) {
    let all = [OsStr::new("store")].into_iter();
    let refused = sapwood(all.chain(args.iter().map(AsRef::as_ref)));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn backups_and_copies_of_several_stores_hold_all() {
    let scratch = Scratch::new();
    let env = three(&scratch, sapwood_store::Options::new());
    let folder = scratch.arg("env");
    let before = dumps(&folder, 3);
    let (full, small) = (scratch.arg("full"), scratch.arg("small"));
    let (first, second) = (scratch.arg("first"), scratch.arg("second"));
    store(&["backup", &folder, &full]);
    (0..5).for_each(|_| count(&env));
    store(&["backup", &folder, &first, "--since", &full]);
    count(&env);
    let said = store(&["backup", &folder, &second, "--since", &first]);
    assert!(said.contains("second holds commit 12, 12, 12\n"), "{said}");
    store(&["backup", "--compact", &folder, &small]);
    store(&["copy", &folder, &scratch.arg("copied")]);
    store(&["copy", "--compact", &folder, &scratch.arg("compacted")]);
    let restored = scratch.arg("restored");
    store(&["restore", &full, &first, &second, &restored]);
    store(&["restore", &small, &scratch.arg("from small")]);
    store(&["restore", &full, &scratch.arg("old")]);
    let after = dumps(&folder, 3);
    assert_ne!(before, after);
    assert!(after[1].contains("\n 000010\n of store 1\n"), "{after:?}");
    for (name, expected) in [
        ("old", &before),
        ("restored", &after),
        ("from small", &after),
        ("copied", &after),
        ("compacted", &after),
    ] {
        let made = scratch.arg(name);
        assert_eq!(dumps(&made, 3), *expected, "{name}");
        let checked = store(&["check", &made]);
        assert!(checked.contains("Nothing is wrong."), "{checked}");
        let is_compact = checked.matches(", 0 free").count() == 3;
        assert_eq!(is_compact, ["compacted", "from small"].contains(&name));
    }

    // One of them: an environment of its own, whatever its backup is a part of.
    let one = |name: &str| scratch.arg(&format!("one {name}"));
    let second_of = ["--store", "1"];
    store(&[&["copy", &folder, &one("copied")][..], &second_of].concat());
    store(&[&["backup", &folder, &one("file")][..], &second_of].concat());
    store(&["restore", &one("file"), &one("restored")]);
    let since = ["backup", &folder, &one("increment"), "--since", &full];
    store(&[&since[..], &second_of].concat());
    let part = format!("{full}/data-1");
    store(&["restore", &part, &one("increment"), &one("in two")]);
    for name in ["copied", "restored", "in two"] {
        assert_eq!(dumps(&one(name), 1), after[1..2], "{name}");
    }

    let x = scratch.arg("x");
    let since = |base: &str| ["backup", &folder, &x, "--since", base].map(str::to_owned);
    refused(&since(&one("file")), &["one file", "--store"]);
    refused(&since(&small), &["small/data-2", "compacted"]);
    refused(
        &["restore", &full, &second, &x],
        &["second/data-2", "before it"],
    );
    refused(
        &["restore", &full, &one("increment"), &x],
        &["do not go together"],
    );
    refused(
        &["backup", &folder, &x, "--store", "3"],
        &["env", "the last of its 3 is store 2"],
    );
    fs::remove_file(scratch.path("first").join("data-1")).unwrap();
    refused(&since(&first), &["first is of other stores"]);
    refused(&["restore", &full, &first, &x], &["first/data-1: "]);
    fs::remove_file(scratch.path("full").join("data-0")).unwrap();
    refused(
        &["restore", &full, &x],
        &["full is not a backup: it is a folder without a file 'data-0'"],
    );
    assert!(!scratch.path("x").exists());
    fs::write(scratch.path("x.backup"), "another's").unwrap();
    refused(&["copy", &folder, &x], &["x.backup exists"]);
    assert_eq!(fs::read(scratch.path("x.backup")).unwrap(), b"another's");
}

#[test]
fn dumps_of_several_stores_are_loaded_into_as_many() {
    let scratch = Scratch::new();
    let env = three(&scratch, sapwood_store::Options::new());
    let (folder, all) = (scratch.arg("env"), scratch.arg("all"));
    let file = |folder: &str, number: usize| format!("{folder}/data-{number}-of-3.dump");
    refused(
        &["dump", &folder],
        &["env has 3 stores", "--file", "--store"],
    );
    store(&["dump", &folder, "-p", "-f", &all]);
    refused(&["dump", &folder, "-f", &all], &["all exists"]);
    let expected = dumps(&folder, 3);
    for (number, expected) in expected.iter().enumerate() {
        let dumped = fs::read_to_string(file(&all, number)).unwrap();
        assert_eq!(without_sizes(&dumped), *expected);
    }
    // LMDB takes each of them.
    mdb_load(Path::new(&file(&all, 2)), &scratch.path("lmdb"));
    assert!(mdb_dump(&["-p", "-s", "shared"], &scratch.path("lmdb")).contains(" of store 2\n"));

    // Into an environment that is made, into one that is there, and one by one.
    let (made, there) = (scratch.arg("made"), scratch.arg("there"));
    let said = store(&["load", &made, "-f", &all]);
    assert!(said.starts_with("18 records stored"), "{said}");
    assert_eq!(dumps(&made, 3), expected);
    count(&env);
    let newer = scratch.arg("newer");
    store(&["dump", &folder, "-f", &newer, "-s", "own1", "-s", "shared"]);
    let first = fs::read_to_string(file(&newer, 0)).unwrap();
    assert!(first.contains("=shared\n") && !first.contains("=own"));
    assert!(store(&["load", &made, "-f", &newer]).starts_with("19 records"));
    assert_eq!(dumps(&made, 3), dumps(&folder, 3));
    drop(sapwood_store::Env::open(&there, &sapwood_store::Options::new().stores(3)).unwrap());
    for number in 0..3 {
        let which = number.to_string();
        store(&["load", &there, "--store", &which, "-f", &file(&all, number)]);
    }
    assert_eq!(dumps(&there, 3), expected);

    let alone = scratch.arg("alone");
    refused(
        &["load", &there, "-f", "/dev/null"],
        &["there has 3 stores"],
    );
    refused(&["load", &alone, "-f", &file(&all, 3)], &["data-3-of-3"]);
    refused(
        &["load", &there, "-f", &all, "--store", "1"],
        &["all is a folder", "store 1"],
    );
    refused(&["dump", &folder, "-s", "none", "-f", &alone], &["'none'"]);
    assert!(!scratch.path("alone").exists());
    store(&["load", &alone, "-f", &file(&all, 0)]);
    refused(
        &["load", &alone, "-f", &all],
        &["dumps of 3 stores", "alone has 1"],
    );
    assert_eq!(
        sapwood_store::Env::open(&alone, &sapwood_store::Options::new())
            .unwrap()
            .stores(),
        1
    );
    let mut lines = fs::read_to_string(file(&all, 1)).unwrap();
    lines.insert_str(0, "VERSION=2\n");
    fs::write(file(&all, 1), lines).unwrap();
    refused(
        &["load", &made, "-f", &all],
        &["data-1-of-3.dump, line 1: "],
    );
    fs::copy(file(&all, 2), scratch.path("all").join("data-0-of-2.dump")).unwrap();
    refused(&["load", &made, "-f", &all], &["[2, 3] stores"]);
    fs::remove_file(file(&newer, 2)).unwrap();
    refused(
        &["load", &made, "-f", &newer],
        &["data-2-of-3.dump is missing"],
    );
    refused(&["load", &made, "-f", &scratch.arg("env")], &["no dump"]);
}

/// What others write meanwhile does not matter: what one transaction has written to all stores is in all of a dump's
/// files, or in none.
#[test]
fn several_stores_are_dumped_and_copied_as_of_one_moment() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let scratch = Scratch::new();
    let env = three(&scratch, sapwood_store::Options::new());
    let folder = scratch.arg("env");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                count(&env);
            }
        });
        for round in 0..4 {
            let (dumped, copied) = (format!("dumped {round}"), format!("copied {round}"));
            store(&["dump", &folder, "-s", "shared", "-f", &scratch.arg(&dumped)]);
            store(&["copy", &folder, &scratch.arg(&copied)]);
            let lines = |number: usize| {
                let name = format!("data-{number}-of-3.dump");
                let dump = fs::read_to_string(scratch.path(&dumped).join(name)).unwrap();
                dump.lines().count()
            };
            assert_eq!([1, 2].map(lines), [lines(0); 2]);
            let copy = dumps(&scratch.arg(&copied), 3);
            let lines = |number: usize| copy[number].lines().count();
            assert_eq!([1, 2].map(lines), [lines(0); 2]);
        }
        done.store(true, Ordering::Relaxed);
    });
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
        txn.commit().unwrap().wait_durable().unwrap();
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
        txn.commit().unwrap().wait_durable().unwrap();
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

#[test]
fn several_stores_are_brought_to_a_later_moment_by_the_archive() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("archive")).unwrap();
    let options = sapwood_store::Options::new().archive(scratch.path("archive"));
    let env = three(&scratch, options.unwrap());
    let (folder, backup) = (scratch.arg("env"), scratch.arg("backup"));
    store(&["backup", &folder, &backup]);
    let before = dumps(&folder, 3);
    count(&env);
    let between = dumps(&folder, 3);
    count(&env);
    env.archive().unwrap();
    let after = dumps(&folder, 3);
    let archive = scratch.arg("archive");
    let restore = |from: &str, dest: &str, until: &[&str]| {
        let dest = scratch.arg(dest);
        let args = ["restore", from, &dest, "--archive", &archive];
        store(&[&args[..], until].concat());
        dest
    };
    assert_eq!(dumps(&restore(&backup, "end", &[]), 3), after);
    let then = restore(&backup, "then", &["--until", "2000-01-01T00:00:00Z"]);
    assert_eq!(dumps(&then, 3), before);
    // One of them has a file of its own, and counts its own commits.
    let of_one = restore(&format!("{backup}/data-1"), "one", &["--until", "7"]);
    assert_eq!(dumps(&of_one, 1), between[1..2]);
    let x = scratch.arg("x");
    let of_all = [
        "restore",
        &backup,
        &x,
        "--archive",
        &archive,
        "--until",
        "7",
    ];
    refused(&of_all, &["name a moment instead of commit 7"]);
    assert!(!scratch.path("x").exists());
}

#[test]
fn what_is_no_environment_is_told_for_what_it_is() {
    let scratch = Scratch::new();
    fs::write(scratch.path("given"), every_kind()).unwrap();
    let lmdb = scratch.path("lmdb");
    mdb_load(&scratch.path("given"), &lmdb);
    let before = fs::read(lmdb.join("data.mdb")).unwrap();
    fs::create_dir(scratch.path("empty")).unwrap();
    for command in ["stat", "check", "readers", "dump"] {
        let refused = |name: &str, what: &str| {
            let output = sapwood(["store", command, &scratch.arg(name)]);
            assert_eq!(output.status.code(), Some(1));
            let told = text(&output.stderr);
            assert!(told.contains(what), "{command} {name}: {told}");
        };
        refused("lmdb", "mdb_dump -a");
        refused("lmdb/data.mdb", "mdb_dump -a");
        refused("empty", "no environment");
        refused("nothing", "no environment");
        refused("given", "meta page");
    }
    assert_eq!(fs::read(lmdb.join("data.mdb")).unwrap(), before);
    assert_eq!(fs::read_dir(scratch.path("empty")).unwrap().count(), 0);
    let left = fs::read_dir(scratch.path("")).unwrap().count();
    assert_eq!(left, 3);
}
