//! A directory whose file is damaged does not begin to serve without a word.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use sapwood_testkit::SUFFIX;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{sapwood_command, text};

const PAGE_BYTES: usize = 4096;

fn folder(more: &[&str]) -> Folder {
    let folder = Folder::init(more);
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    for number in 0..60 {
        let text = "x".repeat(400);
        ldif += &format!(
            "dn: cn={number},{SUFFIX}\nobjectClass: device\ncn: {number}\ndescription: {text}\n\n"
        );
    }
    let file = folder.name_beside("import.ldif");
    fs::write(&file, ldif).unwrap();
    folder.sapwood_ok("import", &[&file]);
    // What is in the log is in the data file afterwards.
    folder.serve().stop();
    folder
}

/// Changes one byte of a page; doing so again undoes it.
fn flip(file: &Path, page: usize, byte: usize) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let at = (page * PAGE_BYTES + byte) as u64;
    let mut bytes = [0];
    file.read_exact_at(&mut bytes, at).unwrap();
    file.write_all_at(&[bytes[0] ^ 0x10], at).unwrap();
}

fn refused(folder: &Folder, what: &str) {
    let mut child = sapwood_command()
        .arg("serve")
        .arg(folder.path())
        .args(["--listen", "ldap://127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        told += &line.unwrap();
        if told.contains("listening") {
            child.kill().unwrap();
            panic!("{what}: {told}");
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{what}: {told}");
    assert!(
        told.contains("damaged")
            && told.contains("Keep a copy")
            && told.contains("sapwood restore"),
        "{what}: {told}"
    );
}

/// Of a small directory the sample is all trees and records: what `check` finds in them, `serve` refuses.
#[test]
fn no_damaged_page_is_served() {
    let partition = format!("2:{SUFFIX}");
    for (more, name) in [
        (&[][..], "data-0"),
        (&["--partition", &partition][..], "data-1"),
    ] {
        let folder = folder(more);
        let data = folder.path().join("data").join(name);
        let bytes = fs::read(&data).unwrap();
        let mut damaged = 0;
        for (number, page) in bytes.chunks(PAGE_BYTES).enumerate().skip(2) {
            if page.iter().all(|byte| *byte == 0) {
                continue;
            }
            flip(&data, number, 30);
            let check = folder.sapwood("check", &[]);
            let found = text(&check.stdout);
            // The header of a segment of records says nothing that reading needs.
            if check.status.code() == Some(1) && !found.contains("is not the segment") {
                damaged += 1;
                refused(&folder, &format!("page {number}: {found}"));
            }
            fs::write(&data, &bytes).unwrap();
        }
        assert!(damaged > 10, "{damaged}");
        folder.serve().stop();
    }
}

/// One meta page is enough, but the loss of one is told; without both there is no store.
#[test]
fn damaged_meta_pages_are_told() {
    let folder = folder(&[]);
    let data = folder.path().join("data/data-0");
    for page in [0, 1] {
        flip(&data, page, 200);
        let server = folder.serve();
        server.wait_for("one of both meta pages");
        server.wait_for("data-0");
        server.stop();
        assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
    }
    let server = folder.serve();
    assert!(!server.log().contains("meta"), "{}", server.log());
    server.stop();
    flip(&data, 0, 200);
    flip(&data, 1, 300);
    refused(&folder, "both");
    for command in ["check", "export", "stat"] {
        let told = text(&folder.sapwood(command, &[]).stderr);
        assert!(
            told.contains("neither meta page") && told.contains("restore"),
            "{told}"
        );
    }
}
