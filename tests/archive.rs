//! What a running server archives brings a backup to any moment behind it, also when the server was killed, and of
//! several stores.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{program, sapwood_ok, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX};

/// A directory with a few entries that archives to the folder beside it; its stores are made as `more` says.
fn folder(more: &[&str]) -> Folder {
    let folder = Folder::init(more);
    fs::create_dir(folder.beside("archive")).unwrap();
    folder.configure(&[
        ("\nfolder = \"\"", "\nfolder = \"../archive\""),
        ("\nseconds_max = 60", "\nseconds_max = 1"),
    ]);
    let ldif = folder.name_beside("first.ldif");
    let suffix = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    fs::write(&ldif, suffix + &entry("first")).unwrap();
    folder.sapwood_ok("import", &[&ldif]);
    folder
}

fn entry(name: &str) -> String {
    format!("dn: cn={name},{SUFFIX}\nobjectClass: device\ncn: {name}\n\n")
}

/// Adds a few entries, so that each of several stores has some.
fn add(server: &Running, name: &str) {
    let mut child = program("ldapadd", "ldap-utils")
        .args(["-x", "-H", server.ldap(), "-D", ADMIN, "-w", PASSWORD])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let entries: String = (0..8).map(|n| entry(&format!("{name}-{n}"))).collect();
    let mut input = child.stdin.take().unwrap();
    input.write_all(entries.as_bytes()).unwrap();
    drop(input);
    succeeded(child.wait_with_output().unwrap());
}

/// Puts what these restore in place of the directory's data, and tells which of the names are there: each wholly or not
/// at all.
fn names_in(folder: &Folder, sources: &[&str]) -> Vec<&'static str> {
    whole_names_in(folder, sources).expect("each wholly or not at all")
}

/// The same; `None` if some are there in part, as while an archive is written.
fn whole_names_in(folder: &Folder, sources: &[&str]) -> Option<Vec<&'static str>> {
    let data = folder.path().join("data");
    if data.exists() {
        fs::remove_dir_all(&data).unwrap();
    }
    folder.sapwood_ok("restore", sources);
    assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
    let exported = folder.sapwood_ok("export", &[]);
    let count = |name: &str| exported.matches(&format!("\ndn: cn={name}-")).count();
    let names = ["one", "two", "three"];
    let is_whole = names.iter().all(|name| [0, 8].contains(&count(name)));
    is_whole.then(|| names.into_iter().filter(|name| count(name) > 0).collect())
}

/// Waits until what another folder restores from the archive has these names.
fn wait_for(folder: &Folder, full: &str, archive: &str, names: &[&str]) {
    // Of the same configuration, but for the archive: that belongs to the other one.
    let twin = Folder::init(&[]);
    while whole_names_in(&twin, &[full, "--archive", archive]).is_none_or(|found| found != names) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(folder.path().join("data").exists());
}

fn a_backup_is_brought_to_any_moment(more: &[&str]) {
    let folder = folder(more);
    let path = |name: &str| folder.name_beside(name);
    let (full, increment, archive) = (path("full"), path("increment"), path("archive"));
    let server = folder.serve();
    folder.sapwood_ok("backup", &[&full]);
    add(&server, "one");
    folder.sapwood_ok("backup", &[&increment, "--since", &full]);
    add(&server, "two");
    wait_for(&folder, &full, &archive, &["one", "two"]);
    let noon = jiff::Timestamp::now() + Duration::from_secs(1);
    let noon = noon.to_string();
    std::thread::sleep(Duration::from_millis(2100));
    add(&server, "three");
    server.kill();
    // What the server was killed before it could archive gets there when the directory is opened the next time.
    folder.serve().stop();

    assert_eq!(names_in(&folder, &[&full]), [""; 0]);
    assert_eq!(names_in(&folder, &[&full, &increment]), ["one"]);
    for sources in [vec![full.as_str()], vec![&full, &increment]] {
        let with = |more: &[&str]| names_in(&folder, &[&sources, more].concat());
        assert_eq!(with(&["--archive", &archive]), ["one", "two", "three"]);
        let until = ["--archive", &archive, "--until", &noon];
        assert_eq!(with(&until), ["one", "two"]);
    }
    // It goes on from there.
    let server = folder.serve();
    add(&server, "three");
    server.stop();
    let again = path("again");
    folder.sapwood_ok("backup", &[&again]);
    assert_eq!(names_in(&folder, &[&again]), ["one", "two", "three"]);
    let late = folder.sapwood("backup", &[&path("late"), "--since", &full]);
    assert!(text(&late.stderr).contains("not the backup"), "{late:?}");
}

#[test]
fn a_backup_of_one_store_is_brought_to_any_moment() {
    a_backup_is_brought_to_any_moment(&[]);
}

#[test]
fn a_backup_of_several_stores_is_brought_to_any_moment() {
    let partition = format!("3:{SUFFIX}");
    a_backup_is_brought_to_any_moment(&["--partition", &partition]);
}

#[test]
fn a_missing_archive_is_named() {
    let folder = folder(&[]);
    fs::remove_dir_all(folder.beside("archive")).unwrap();
    let refused = folder.sapwood("serve", &[]);
    assert_eq!(refused.status.code(), Some(1));
    let told = text(&refused.stderr);
    assert!(
        told.contains("the archive") && told.contains("/archive"),
        "{told}"
    );
    // Who only looks needs none.
    assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
}

/// Commands that write beside the server, or instead of it, keep the archive up.
#[test]
fn the_archive_has_no_gap_where_commands_have_written() {
    let folder = folder(&[]);
    let (full, archive) = (folder.name_beside("full"), folder.name_beside("archive"));
    folder.sapwood_ok("backup", &[&full]);
    let server = folder.serve();
    add(&server, "one");
    sapwood_ok([
        "store".as_ref(),
        "compact".as_ref(),
        folder.path().as_os_str(),
    ]);
    add(&server, "two");
    server.stop();
    let ldif = folder.name_beside("three.ldif");
    let entries: String = (0..8).map(|n| entry(&format!("three-{n}"))).collect();
    fs::write(&ldif, entries).unwrap();
    folder.sapwood_ok("import", &[&ldif]);
    assert_eq!(
        names_in(&folder, &[&full, "--archive", &archive]),
        ["one", "two", "three"]
    );
}
