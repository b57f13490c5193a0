//! What is configured with the data, shown and changed with `sapwood config`.

use sapwood_server::IMPLICIT_START;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::text;
use sapwood_testkit::{ADMIN, Client};

#[test]
fn a_rule_without_its_index_is_refused_with_the_remedy() {
    let folder = Folder::init(&["--index", "cn eq"]);
    let rule = folder.name_beside("rule.ldif");
    let overlay = "dn: olcOverlay=unique,olcDatabase={1}mdb,cn=config\nobjectClass: olcOverlayConfig\n\
        objectClass: olcUniqueConfig\nolcOverlay: unique\nolcUniqueURI: ldap:///?mail?sub\n";
    std::fs::write(&rule, overlay).unwrap();
    let refused = folder.sapwood("config", &["apply", &rule]);
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("sapwood index DIR add mail eq"), "{said}");
    // What mends it works.
    folder.sapwood_ok("index", &["add", "mail eq"]);
    folder.sapwood_ok("config", &["apply", &rule]);
    let shown = folder.sapwood_ok("config", &["show"]);
    assert!(
        shown.contains("\nolcUniqueURI: ldap:///?mail?sub\n"),
        "{shown}"
    );
    let file = folder.name_beside("entries.ldif");
    let person = |name: &str| {
        format!(
            "\ndn: cn={name},dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: {name}\nsn: x\nmail: a@example.com\n"
        )
    };
    let entries = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n".to_owned();
    std::fs::write(&file, entries + &person("ann") + &person("bob")).unwrap();
    let rejects = folder.name_beside("rejects.ldif");
    let imported = folder.sapwood("import", &[&file, "--reject-file", &rejects]);
    assert_eq!(imported.status.code(), Some(1));
    let rejected = std::fs::read_to_string(&rejects).unwrap();
    assert!(
        rejected.contains("cn=bob") && !rejected.contains("cn=ann"),
        "{rejected}"
    );
    let server = folder.serve();
    let refused = folder.sapwood("index", &["drop", "mail eq"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("rule"), "{said}");
    server.stop();
}

/// A file of changes below `cn=config`.
fn changes(folder: &Folder, name: &str, limit: &str) -> String {
    let path = folder.name_beside(name);
    let data = "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\n";
    let changes = format!(
        "{data}replace: olcTimeLimit\nolcTimeLimit: 9\n\n{data}replace: olcSizeLimit\nolcSizeLimit: {limit}\n"
    );
    std::fs::write(&path, changes).unwrap();
    path
}

#[test]
fn the_configuration_is_shown_and_changed_with_and_without_a_server() {
    let folder = Folder::init(&[]);
    let shown = |line: &str| {
        let all = folder.sapwood_ok("config", &["show"]);
        assert!(all.starts_with("dn: cn=config\n"), "{all}");
        assert!(all.lines().any(|known| known == line), "{line}\n{all}");
    };
    shown("olcSizeLimit: unlimited");
    shown(&format!("olcRootDN: {ADMIN}"));
    let apply =
        |limit: &str| folder.sapwood_ok("config", &["apply", &changes(&folder, limit, limit)]);
    assert_eq!(apply("500"), "2 changes applied\n");
    shown("olcSizeLimit: 500");
    let server = folder.serve();
    shown("olcSizeLimit: 500");
    assert_eq!(apply("600"), "2 changes applied\n");
    shown("olcSizeLimit: 600");
    // What is wrong is told with its line, and what came before it stays.
    let wrong = |text: &str| {
        let path = folder.name_beside("wrong");
        std::fs::write(&path, text).unwrap();
        let failed = folder.sapwood("config", &["apply", &path]);
        assert_eq!(failed.status.code(), Some(1));
        self::text(&failed.stderr)
    };
    for (change, part) in [
        (
            "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nreplace: olcTimeLimit\nolcTimeLimit: 11\n\ndn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nreplace: olcRootPW\nolcRootPW: x\n",
            "line 6: olcDatabase={1}mdb,cn=config: ",
        ),
        (
            "dn: dc=example,dc=com\nchangetype: delete\n",
            "not in cn=config",
        ),
        (
            "dn: cn=config\nchangetype: modrdn\nnewrdn: cn=x\ndeleteoldrdn: 1\n",
            "keep their names",
        ),
        ("nothing\n", "line 1"),
        ("", "no change"),
    ] {
        let told = wrong(change);
        assert!(told.contains(part), "{told}");
    }
    shown("olcTimeLimit: 11");
    server.stop();
    // Without a server an index is complete when the command ends.
    let path = folder.name_beside("index");
    let index = "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nadd: olcDbIndex\nolcDbIndex: title eq\n";
    std::fs::write(&path, index).unwrap();
    folder.sapwood_ok("config", &["apply", &path]);
    let listed = folder.sapwood_ok("index", &["list"]);
    assert!(listed.contains("title eq\n"), "{listed}");
    shown("olcTimeLimit: 11");
    shown("olcSizeLimit: 600");
    // Nor is one needed to switch on what clients are told of.
    let path = folder.name_beside("extensions");
    let extensions = "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nadd: sapwoodExtensions\nsapwoodExtensions: implicit_start\n";
    std::fs::write(&path, extensions).unwrap();
    folder.sapwood_ok("config", &["apply", &path]);
    shown("sapwoodExtensions: implicit_start");
    let server = folder.serve();
    let root_dse = Client::connect(server.address()).root_dse();
    let features = root_dse.values("supportedFeatures");
    let is_there = features.iter().any(|oid| oid == IMPLICIT_START);
    assert!(is_there, "{features:?}");
    server.stop();
}

#[test]
fn the_configuration_of_a_directory_in_memory_is_kept() {
    let folder = Folder::init(&["--in-memory"]);
    folder.sapwood_ok("config", &["apply", &changes(&folder, "offline", "5")]);
    let server = folder.serve();
    let shown = folder.sapwood_ok("config", &["show"]);
    assert!(shown.contains("\nolcSizeLimit: 5\n"), "{shown}");
    folder.sapwood_ok("config", &["apply", &changes(&folder, "online", "6")]);
    server.stop();
    let shown = folder.sapwood_ok("config", &["show"]);
    assert!(shown.contains("\nolcSizeLimit: 6\n"), "{shown}");
}

#[test]
fn keys_that_are_configured_with_the_data_are_refused_at_the_start() {
    let folder = Folder::init(&[]);
    for (moved, attribute) in [
        ("[limits]\nsearch_entries_max = 500\n", "olcSizeLimit"),
        ("[extensions]\n\n[limits]\n", "sapwoodExtensions"),
    ] {
        folder.configure(&[("[limits]\n", moved)]);
        let refused = folder.sapwood("serve", &[]);
        assert_eq!(refused.status.code(), Some(1));
        let told = text(&refused.stderr);
        let is_told = told.contains("sapwood.toml:") && told.contains(attribute);
        assert!(is_told, "{told}");
        folder.configure(&[(moved, "[limits]\n")]);
    }
}
