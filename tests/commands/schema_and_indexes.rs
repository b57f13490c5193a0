//! Schema files and indexes.

use sapwood_testkit::SUFFIX;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{Scratch, sapwood, sapwood_ok, text};

use crate::LDIF;

#[test]
fn indexes_change_with_and_without_a_server() {
    let folder = Folder::init(&["--index", "cn eq"]);
    let ldif = folder.name_beside("people.ldif");
    std::fs::write(&ldif, LDIF.split("dn: cn=Bad").next().unwrap()).unwrap();
    folder.sapwood_ok("import", &[&ldif]);
    let kept = "objectClass eq\nentryUUID eq\n";
    let sorted = |list: &str| {
        let mut lines: Vec<String> = list.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(&folder.sapwood_ok("index", &["list"])),
        sorted(&format!("{kept}cn eq\n"))
    );
    assert!(
        folder
            .sapwood_ok("index", &["add", "sn,mail eq,sub"])
            .contains("added: sn eq,sub; mail eq,sub")
    );
    let server = folder.serve();
    assert!(
        folder
            .sapwood_ok("index", &["add", "cn pres"])
            .contains("added")
    );
    assert!(
        folder
            .sapwood_ok("index", &["drop", "mail eq"])
            .contains("dropped")
    );
    // The running server did it.
    server.wait_for("index drop mail eq");
    let refused = folder.sapwood("index", &["drop", "objectClass eq"]);
    assert_eq!(refused.status.code(), Some(1));
    let unknown = folder.sapwood("index", &["add", "nonsense eq"]);
    assert!(
        text(&unknown.stderr).contains("nonsense"),
        "{}",
        text(&unknown.stderr)
    );
    let expected = format!("{kept}cn eq\ncn pres\nsn eq\nsn sub\nmail sub\n");
    assert_eq!(
        sorted(&folder.sapwood_ok("index", &["list"])),
        sorted(&expected)
    );
    server.stop();
    assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
}

#[test]
fn the_figures_of_an_index_have_its_name() {
    let folder = Folder::init(&[
        "--index",
        "cn,sn eq,sub",
        "--index",
        "uidNumber ord",
        "--index",
        "mail pres",
    ]);
    let ldif = folder.name_beside("people.ldif");
    std::fs::write(&ldif, LDIF.split("dn: cn=Bad").next().unwrap()).unwrap();
    folder.sapwood("import", &[&ldif]);
    let said = folder.sapwood_ok("stat", &[]);
    for index in ["cn eq", "cn sub", "sn eq", "objectClass eq", "entryUUID eq"] {
        let line = said
            .lines()
            .find(|line| line.ends_with(&format!("  {index}")));
        assert!(
            line.is_some_and(|line| line.contains("index/")),
            "{index}: {said}"
        );
    }
    let index = said.lines().filter(|line| line.contains("index/"));
    assert!(
        index
            .clone()
            .all(|line| line.split_whitespace().count() == 4),
        "{said}"
    );
}

#[test]
fn schema_files_of_ones_own_are_loaded() {
    let scratch = Scratch::new();
    let file = scratch.arg("own.schema");
    std::fs::write(&file, "attributetype ( 1.3.6.1.4.1.99999.1 NAME 'hatSize' SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 EQUALITY integerMatch )\n\
        objectclass ( 1.3.6.1.4.1.99999.2 NAME 'hatted' SUP person STRUCTURAL MUST hatSize )\n").unwrap();
    let folder = Folder::init(&["--schema", &file]);
    let ldif = folder.name_beside("hats.ldif");
    let record = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
        dn: cn=Ann,dc=example,dc=com\nobjectClass: hatted\ncn: Ann\nsn: A\nhatSize: ";
    std::fs::write(&ldif, format!("{record}large\n")).unwrap();
    let refused = folder.sapwood(
        "import",
        &[&ldif, "--reject-file", &folder.name_beside("rejects")],
    );
    assert!(
        text(&refused.stderr).contains("hats.ldif:5"),
        "{}",
        text(&refused.stderr)
    );
    std::fs::write(&ldif, format!("{record}57\n")).unwrap();
    folder.sapwood(
        "import",
        &[&ldif, "--reject-file", &folder.name_beside("rejects")],
    );
    assert!(
        folder
            .sapwood_ok("export", &["--filter", "(hatSize=57)"])
            .contains("dn: cn=Ann")
    );
    let wrong = "attributetype ( 1.3.6.1.4.1.99999.1 NAME 'hatSize' SUP nonsense )\n";
    std::fs::write(&file, wrong).unwrap();
    let new = scratch.arg("new");
    let init = ["init", &new, "--suffix", SUFFIX, "--schema", &file];
    let told = text(&sapwood(init).stderr);
    assert!(
        told.contains("cn=own,cn=schema,cn=config") && told.contains("nonsense"),
        "{told}"
    );
    assert!(!std::path::Path::new(&new).exists());
}

/// Entries would lack what they define.
#[test]
fn schema_files_beside_the_data_are_refused_with_what_to_do() {
    let folder = Folder::init(&[]);
    let schema = folder.path().join("schema");
    let server = folder.serve();
    std::fs::create_dir(&schema).unwrap();
    std::fs::write(schema.join("README"), "nothing").unwrap();
    folder.sapwood_ok("reload", &[]);
    std::fs::write(schema.join("own.ldif"), "dn: cn=own\n").unwrap();
    let refused = |command: &str| {
        let told = folder.sapwood(command, &[]);
        assert_eq!(told.status.code(), Some(1), "{command}");
        let told = text(&told.stderr);
        let remedies = [
            "schema/own.ldif",
            "olcAttributeTypes",
            "apply",
            "init --schema",
        ];
        assert!(remedies.iter().all(|part| told.contains(part)), "{told}");
    };
    refused("reload");
    server.stop();
    for command in ["serve", "export", "check", "stat"] {
        refused(command);
    }
    std::fs::remove_dir_all(&schema).unwrap();
    folder.serve().stop();
}

#[test]
fn a_group_of_names_is_a_group_of_accounts_where_that_schema_is_asked_for() {
    let list = sapwood_ok(["schema", "list"]);
    assert!(list.contains("rfc2307bis  "), "{list}");
    let entries = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
                   dn: cn=g,dc=example,dc=com\nobjectClass: groupOfNames\nobjectClass: posixGroup\ncn: g\n\
                   gidNumber: 7\nmember: cn=x\n";
    for (arguments, added) in [(&["--schema", "rfc2307bis"][..], "2"), (&[], "1")] {
        let folder = Folder::init(arguments);
        let file = folder.name_beside("group.ldif");
        std::fs::write(&file, entries).unwrap();
        let output = folder.sapwood("import", &[&file]);
        let said = text(&output.stdout);
        assert!(
            said.contains(&format!("{added} entries added")),
            "{output:?}"
        );
    }
}
