//! Entries that come, are looked for and go: import, explain, export, backup.

use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{program, sapwood_command, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX};

use crate::{LDIF, records};

#[test]
fn what_is_imported_comes_out_again_and_what_is_wrong_is_told() {
    let folder = Folder::init(&[]);
    let ldif = folder.name_beside("people.ldif");
    std::fs::write(&ldif, LDIF).unwrap();
    let rejects = folder.name_beside("rejects.ldif");
    let output = folder.sapwood("import", &[&ldif, "--reject-file", &rejects]);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{told}");
    assert!(said.contains("4 entries added, 2 rejected"), "{said}");
    assert!(
        told.contains("people.ldif:17: ") && told.contains("sn"),
        "{told}"
    );
    assert!(told.contains("people.ldif:21: "), "{told}");
    let rejected = std::fs::read_to_string(&rejects).unwrap();
    assert!(
        rejected.contains("dn: cn=Bad,ou=People") && rejected.contains("people.ldif:17:"),
        "{rejected}"
    );

    let exported = folder.sapwood_ok("export", &[]);
    assert_eq!(records(&exported).len(), 4, "{exported}");
    assert!(
        exported.contains("entryUUID: ") && exported.contains("description: second"),
        "{exported}"
    );
    assert!(!exported.contains("secret"), "a password is not hashed");
    assert_eq!(
        records(&folder.sapwood_ok("export", &["--base", "ou=People,dc=example,dc=com"])).len(),
        3
    );
    assert_eq!(
        records(&folder.sapwood_ok("export", &["--filter", "(cn=ann)"])).len(),
        1
    );

    // Into a new directory.
    let copy = Folder::init(&[]);
    let whole = copy.name_beside("whole.ldif");
    std::fs::write(&whole, &exported).unwrap();
    copy.sapwood_ok("import", &[&whole]);
    assert_eq!(records(&copy.sapwood_ok("export", &[])), records(&exported));
    for folder in [&folder, &copy] {
        assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
    }

    // What is corrected is added to what is there.
    let corrected = rejected
        .replace("cn: Bad", "cn: Bad\nsn: Not any more")
        .replace("ou=Nowhere", "ou=People");
    std::fs::write(&ldif, corrected).unwrap();
    assert!(
        folder
            .sapwood_ok("import", &[&ldif])
            .contains("2 entries added")
    );
    let server = folder.serve();
    let refused = folder.sapwood("import", &[&ldif]);
    assert!(
        text(&refused.stderr).contains("stop it first"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(
        records(&folder.sapwood_ok("export", &[])).len(),
        6,
        "beside a running server"
    );
    server.stop();
}

#[test]
fn a_reader_that_has_had_enough_is_no_reason_to_complain() {
    let folder = Folder::init(&[]);
    for command in ["stat", "check", "export"] {
        let mut child = sapwood_command();
        // A pipe whose other end is closed before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = child
            .arg(command)
            .arg(folder.path())
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "", "{command}");
    }
}

#[test]
fn an_export_has_parents_before_their_children() {
    let folder = Folder::init(&[]);
    let ldif = folder.name_beside("people.ldif");
    std::fs::write(&ldif, LDIF.split("dn: cn=Bad").next().unwrap()).unwrap();
    folder.sapwood_ok("import", &[&ldif]);
    let server = folder.serve();
    // A new unit, and the older one moved below it.
    let change = "dn: ou=New,dc=example,dc=com\nchangetype: add\nobjectClass: organizationalUnit\nou: New\n\n\
        dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=People\ndeleteoldrdn: 0\n\
        newsuperior: ou=New,dc=example,dc=com\n";
    let changes = folder.name_beside("changes.ldif");
    std::fs::write(&changes, change).unwrap();
    let mut modify = program("ldapmodify", "ldap-utils");
    modify.args([
        "-x",
        "-H",
        server.ldap(),
        "-D",
        ADMIN,
        "-w",
        PASSWORD,
        "-f",
        &changes,
    ]);
    succeeded(modify.output().unwrap());
    let exported = folder.sapwood_ok("export", &[]);
    let names: Vec<&str> = exported
        .lines()
        .filter_map(|line| line.strip_prefix("dn: "))
        .collect();
    let expected = [
        SUFFIX,
        "ou=New,dc=example,dc=com",
        "ou=People,ou=New,dc=example,dc=com",
        "cn=Ann,ou=People,ou=New,dc=example,dc=com",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_backup_beside_a_running_server_can_be_restored() {
    let folder = Folder::init(&[]);
    let ldif = folder.name_beside("people.ldif");
    std::fs::write(&ldif, LDIF.split("dn: cn=Bad").next().unwrap()).unwrap();
    folder.sapwood_ok("import", &[&ldif]);
    let exported = folder.sapwood_ok("export", &[]);
    let server = folder.serve();
    let file = folder.name_beside("backup");
    folder.sapwood_ok("backup", &[&file]);
    let again = folder.sapwood("backup", &[&file]);
    assert!(
        text(&again.stderr).contains("exists"),
        "{}",
        text(&again.stderr)
    );
    assert!(text(&folder.sapwood("restore", &[&file]).stderr).contains("stop it first"));
    server.stop();
    assert!(text(&folder.sapwood("restore", &[&file]).stderr).contains("move it away"));
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    folder.sapwood_ok("restore", &[&file]);
    assert_eq!(folder.sapwood_ok("export", &[]), exported);
    assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
    folder.serve().stop();
}

#[test]
fn how_a_search_finds_its_entries_is_explained() {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("people.ldif");
    let people = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
                  dn: cn=Ann,dc=example,dc=com\nobjectClass: person\ncn: Ann\nsn: x\ndescription: y\n";
    std::fs::write(&file, people).unwrap();
    folder.sapwood_ok("import", &[&file]);
    let explain = |arguments: &[&str]| folder.sapwood_ok("explain", arguments);
    let said = explain(&["--filter", "(cn=ann)"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("dc=example,dc=com: "), "{said}");
    assert!(said.contains("[ann]=1"), "{said}");
    let said = explain(&["--filter", "(|(cn=ann)(description=x*)(nonsense=y))"]);
    assert!(said.contains(": all entries\n"), "{said}");
    assert!(
        said.contains("no index: description sub ('sapwood index "),
        "{said}"
    );
    let said = explain(&[
        "--filter",
        "(cn=ann)",
        "--scope",
        "base",
        "--base",
        "cn=ann,dc=example,dc=com",
    ]);
    assert_eq!(said, "cn=ann,dc=example,dc=com: base\n");
    let output = folder.sapwood("explain", &["--filter", "(cn=ann)", "--base", "o=x"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
