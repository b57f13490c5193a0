//! `mdb_stat`, `mdb_dump`, `mdb_load` and `mdb_copy`, beside the originals where these are installed.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const OURS: [(&str, &str); 4] = [
    ("mdb_stat", env!("CARGO_BIN_EXE_mdb_stat")),
    ("mdb_dump", env!("CARGO_BIN_EXE_mdb_dump")),
    ("mdb_load", env!("CARGO_BIN_EXE_mdb_load")),
    ("mdb_copy", env!("CARGO_BIN_EXE_mdb_copy")),
];

/// Whose tools.
#[derive(Clone, Copy, PartialEq)]
enum Tools {
    Original,
    Ours,
}

/// Ours, and the originals if they are installed.
fn all() -> Vec<Tools> {
    let is_installed = |(name, _): &(&str, &str)| Path::new("/usr/bin").join(name).exists();
    match OURS.iter().all(is_installed) {
        true => vec![Tools::Original, Tools::Ours],
        false => vec![Tools::Ours],
    }
}

impl Tools {
    fn run(self, folder: &Path, name: &str, arguments: &[&str]) -> Output {
        let program = match self {
            Self::Original => format!("/usr/bin/{name}"),
            Self::Ours => OURS
                .iter()
                .find(|(ours, _)| *ours == name)
                .unwrap()
                .1
                .into(),
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    fn ok(self, folder: &Path, name: &str, arguments: &[&str]) -> String {
        let output = self.run(folder, name, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says where it fails.
    fn refusal(self, folder: &Path, name: &str, arguments: &[&str]) -> String {
        let output = self.run(folder, name, arguments);
        assert!(!output.status.success(), "{name} {arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Databases of several kinds.
fn text() -> String {
    let mut text = String::new();
    for (name, flags, values) in [
        ("fixed", "duplicates=1\ndupsort=1\ndupfixed=1\n", 300),
        ("numbers", "integerkey=1\n", 1),
        ("plain", "", 1),
        ("reverse", "reversekey=1\n", 1),
        ("sorted", "duplicates=1\ndupsort=1\n", 3),
    ] {
        write!(
            text,
            "VERSION=3\nformat=bytevalue\ndatabase={name}\ntype=btree\n"
        )
        .unwrap();
        write!(
            text,
            "mapsize=16777216\nmaxreaders=126\n{flags}HEADER=END\n"
        )
        .unwrap();
        for key in 0_u32..40 {
            for value in 0..values {
                let value = format!("{:08x}", value * 7 + key);
                let value = match name {
                    "plain" => value.repeat(1 + 200 * key as usize),
                    "sorted" => value.repeat(1 + key as usize % 3),
                    _ => value,
                };
                writeln!(text, " {:08x}\n {value}", key << 16 | key).unwrap();
            }
        }
        text.push_str("DATA=END\n");
    }
    text
}

/// Without what the two file formats differ in, and what is shown in another order where keys are native integers.
fn records(dump: &str) -> Vec<&str> {
    dump.lines()
        .filter(|line| !line.starts_with("db_pagesize="))
        .collect()
}

#[test]
fn what_is_loaded_is_dumped_copied_and_counted() {
    let mut said = Vec::new();
    for tools in all() {
        let folder = tempfile::tempdir().unwrap();
        let ok = |name: &str, arguments: &[&str]| tools.ok(folder.path(), name, arguments);
        let dump = |arguments: &[&str]| records(&ok("mdb_dump", arguments)).join("\n");
        for name in ["env", "copy", "small", "again"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("text"), text()).unwrap();
        ok("mdb_load", &["-f", "text", "env"]);
        let whole = dump(&["-a", "env"]);
        assert_eq!(whole.lines().count(), records(&text()).len());
        assert_eq!(
            ok("mdb_dump", &["-l", "env"]),
            "fixed\nnumbers\nplain\nreverse\nsorted\n"
        );
        ok("mdb_load", &["-N", "-f", "text", "env"]);
        assert_eq!(dump(&["-a", "env"]), whole, "all was there");
        ok("mdb_copy", &["env", "copy"]);
        ok("mdb_copy", &["-c", "env", "small"]);
        assert_eq!(dump(&["-a", "copy"]), whole);
        assert_eq!(dump(&["-a", "small"]), whole);
        ok("mdb_dump", &["-a", "-f", "again.text", "env"]);
        ok("mdb_load", &["-f", "again.text", "again"]);
        assert_eq!(dump(&["-a", "again"]), whole);
        fs::write(
            folder.path().join("plain"),
            "key\nvalue\n\\0a\\5c\ntwo words\n",
        )
        .unwrap();
        ok("mdb_load", &["-n", "-T", "-f", "plain", "file"]);
        let counts = |stat: String| {
            let kept = [
                "Status of",
                "Entries:",
                "Map size:",
                "Max readers:",
                "active readers",
            ];
            let is_kept = |line: &&str| kept.iter().any(|kept| line.contains(kept));
            stat.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
        };
        ok("mdb_stat", &["-fff", "env"]);
        said.push([
            whole,
            dump(&["-p", "-s", "sorted", "env"]),
            dump(&["-s", "numbers", "env"]),
            dump(&["-n", "-p", "file"]).replace("\\5c", "\\"),
            counts(ok("mdb_stat", &["-a", "-e", "-rr", "env"])),
            counts(ok("mdb_stat", &["-s", "fixed", "env"])),
        ]);
    }
    if let [original, ours] = &said[..] {
        assert_eq!(original, ours);
    }
}

/// Each reads what the other has written.
#[test]
fn dumps_go_from_one_library_to_the_other_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("text"), text()).unwrap();
    for from in all() {
        for to in all() {
            for name in ["from", "to"] {
                let _ = fs::remove_dir_all(folder.join(name));
                fs::create_dir(folder.join(name)).unwrap();
            }
            from.ok(folder, "mdb_load", &["-f", "text", "from"]);
            // As text the original writes a backslash in a way that it does not read itself.
            let form = if from == Tools::Ours { "-ap" } else { "-a" };
            let dump = from.ok(folder, "mdb_dump", &[form, "from"]);
            fs::write(folder.join("dump"), &dump).unwrap();
            to.ok(folder, "mdb_load", &["-f", "dump", "to"]);
            let plain = |tools: Tools, name| tools.ok(folder, "mdb_dump", &["-a", name]);
            let (before, after) = (plain(from, "from"), plain(to, "to"));
            assert_eq!(records(&after), records(&before));
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ours = Tools::Ours;
    let refused = |name: &str, arguments: &[&str]| ours.refusal(folder, name, arguments);
    for (name, _) in OURS {
        assert!(refused(name, &[]).starts_with(&format!("usage: {name} [-V]")));
        assert!(refused(name, &["-x", "env"]).starts_with("usage: "));
        assert!(ours.ok(folder, name, &["-V"]).starts_with("LMDB "));
        if name != "mdb_load" {
            assert!(refused(name, &["missing"]).contains("failed, error 2 No such file"));
        }
    }
    assert!(refused("mdb_stat", &["-a", "-s", "name", "env"]).starts_with("usage: "));
    fs::create_dir(folder.join("env")).unwrap();
    for (text, said) in [
        ("", "unexpected end of input"),
        ("VERSION=4\n", "line 1: unsupported VERSION 4"),
        ("format=xml\n", "line 1: unsupported FORMAT"),
        ("type=hash\n", "line 1: unsupported type"),
        ("mapsize=many\n", "line 1: invalid mapsize"),
        ("something\n", "line 1: unexpected format"),
        (
            "HEADER=END\n 6b\n 7\nDATA=END\n",
            "line 3: unexpected format",
        ),
        (
            "HEADER=END\n 6b\nDATA=END\n",
            "line 3: failed to read key value",
        ),
        ("HEADER=END\n 6b\n 76\n", "line 3: unexpected end of input"),
        ("HEADER=END\n 6b\n 76", "line 3: unexpected end of input"),
    ] {
        fs::write(folder.join("text"), text).unwrap();
        let refusal = refused("mdb_load", &["-f", "text", "env"]);
        assert!(refusal.contains(said), "{text:?}: {refusal}");
    }
    assert!(refused("mdb_dump", &["-a", "env"]).contains("does not contain multiple databases"));
    // The beginning of a file of LMDB itself.
    let own = [&[0; 16][..], &0xBEEF_C0DE_u32.to_le_bytes(), &[0; 8192]].concat();
    fs::write(folder.join("lmdb"), own).unwrap();
    let refusal = refused("mdb_stat", &["-n", "lmdb"]);
    assert!(refusal.contains("is a file of LMDB itself"), "{refusal}");
    assert!(refusal.contains("mdb_dump -a"), "{refusal}");
}
