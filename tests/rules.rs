//! Rules that hold of the data, added and dropped by `sapwood rule` and by ldapmodify.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{program, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, Random, SUFFIX, Slapd, SlapdSetup};

/// Entries of which two share a value of mail and none of uid.
const PEOPLE: &str = "\
dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n\
dn: uid=ann,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann\nsn: x\nmail: a@example.com\n\n\
dn: uid=bob,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: bob\ncn: Bob\nsn: x\nmail: A@example.com\n";

fn peopled() -> Folder {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("people.ldif");
    std::fs::write(&file, PEOPLE).unwrap();
    folder.sapwood_ok("import", &[&file]);
    folder
}

/// One of the clients of ldap-utils as the administrator, with LDIF.
fn client(server: &Running, name: &str, ldif: &str) -> Output {
    let mut command: Command = program(name, "ldap-utils");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ldif).unwrap();
    command
        .args(["-x", "-H", server.ldap(), "-D", ADMIN, "-w", PASSWORD, "-f"])
        .arg(file.path())
        .output()
        .unwrap()
}

/// What a search as the administrator answers.
fn search(server: &Running, arguments: &[&str]) -> String {
    let mut command: Command = program("ldapsearch", "ldap-utils");
    let connect = ["-x", "-LLL", "-o", "ldif-wrap=no", "-H", server.ldap()];
    command.args(connect).args(["-D", ADMIN, "-w", PASSWORD]);
    succeeded(command.args(arguments).output().unwrap())
}

fn modify(dn: &str, lines: &str) -> String {
    format!("dn: {dn}\nchangetype: modify\n{lines}\n")
}

/// What a command says that fails.
#[track_caller]
fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

#[test]
fn unique_values_with_and_without_a_server() {
    let folder = peopled();
    let list = || folder.sapwood_ok("rule", &["list"]);
    assert_eq!(list(), "");
    let uid = ["add", "unique", "--attributes", "uid"];
    assert_eq!(folder.sapwood_ok("rule", &uid), "added: unique\n");
    // The data are against another one: who shares what is told, and nothing is left of it.
    let mail = [
        "add",
        "unique",
        "--attributes",
        "cn,mail",
        "--name",
        "addresses",
    ];
    for serves in [false, true] {
        let server = serves.then(|| folder.serve());
        let said = failure(&folder.sapwood("rule", &mail));
        assert!(said.contains("mail: 'a@example.com' is in 'uid="), "{said}");
        assert!(
            said.contains("against the rule addresses in 1 place"),
            "{said}"
        );
        assert_eq!(list(), "unique unique --attributes uid\n");
        if let Some(server) = server {
            server.stop();
        }
    }
    let server = folder.serve();
    let below = "ou=people,dc=example,dc=com";
    let employees = [
        "add",
        "unique",
        "--attributes",
        "employeeNumber",
        "--base",
        below,
    ];
    let said = folder.sapwood_ok("rule", &employees);
    assert_eq!(said, "added: unique-2 (with the index employeeNumber eq)\n");
    let added = format!("unique-2 unique --attributes employeeNumber --base \"{below}\"\n");
    assert_eq!(list(), format!("unique unique --attributes uid\n{added}"));
    let number = |uid: &str, number: u32| {
        let dn = format!("uid={uid},{below}");
        client(
            &server,
            "ldapmodify",
            &modify(
                &dn,
                &format!("add: employeeNumber\nemployeeNumber: {number}"),
            ),
        )
    };
    succeeded(number("ann", 7));
    let taken = number("bob", 7);
    assert!(text(&taken.stderr).contains("(19)"), "{taken:?}");
    // What ldapmodify adds is listed, too.
    let overlay = "olcOverlay={0}unique,olcDatabase={1}mdb,cn=config";
    let uri = "add: olcUniqueURI\nolcUniqueURI: ldap:///?cn?sub??x-name=names";
    succeeded(client(&server, "ldapmodify", &modify(overlay, uri)));
    assert!(
        list().ends_with("\nnames unique --attributes cn\n"),
        "{}",
        list()
    );
    let shown = search(&server, &["-b", overlay, "-s", "base", "olcUniqueURI"]);
    assert!(
        shown.contains("\nolcUniqueURI: ldap:///?cn?sub??x-name=names\n"),
        "{shown}"
    );
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "unique-2"]),
        "dropped: unique-2\n"
    );
    succeeded(number("bob", 7));
    server.stop();
    let unknown = failure(&folder.sapwood("rule", &["drop", "unique-2"]));
    assert!(unknown.contains("there are unique, names"), "{unknown}");
    for name in ["names", "unique"] {
        folder.sapwood_ok("rule", &["drop", name]);
    }
    assert_eq!(list(), "");
    assert!(
        !folder
            .sapwood_ok("config", &["show"])
            .contains("\nolcUniqueURI:")
    );
}

#[test]
fn values_follow_with_and_without_a_server() {
    let folder = peopled();
    let group = "dn: cn=g,dc=example,dc=com\nobjectClass: groupOfNames\ncn: g\n\
                 member: uid=ann,ou=people,dc=example,dc=com\nmember: uid=gone,ou=people,dc=example,dc=com\n";
    let file = folder.name_beside("group.ldif");
    std::fs::write(&file, group).unwrap();
    folder.sapwood_ok("import", &[&file]);
    let add = ["add", "refint", "--attributes", "member,seeAlso"];
    let dn = "cn=g,dc=example,dc=com";
    let said = failure(&folder.sapwood("rule", &add));
    assert!(
        said.contains(
            "member: 'uid=gone,ou=people,dc=example,dc=com' in 'cn=g,dc=example,dc=com' is no"
        ),
        "{said}"
    );
    assert_eq!(folder.sapwood_ok("rule", &["list"]), "");
    let server = folder.serve();
    let gone = "delete: member\nmember: uid=gone,ou=people,dc=example,dc=com";
    succeeded(client(&server, "ldapmodify", &modify(dn, gone)));
    assert_eq!(folder.sapwood_ok("rule", &add), "added: refint\n");
    let again = failure(&folder.sapwood("rule", &add));
    assert!(again.contains("drop it first"), "{again}");
    let rename =
        "dn: ou=people,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=staff\ndeleteoldrdn: 1\n";
    succeeded(client(&server, "ldapmodify", rename));
    let members = |server: &Running| search(server, &["-b", dn, "-s", "base", "member"]);
    let followed = format!("dn: {dn}\nmember: uid=ann,ou=staff,dc=example,dc=com\n\n");
    assert_eq!(members(&server), followed);
    let listed = "refint refint --attributes member,seeAlso\n";
    assert_eq!(folder.sapwood_ok("rule", &["list"]), listed);
    server.stop();
    assert_eq!(folder.sapwood_ok("rule", &["list"]), listed);
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "refint"]),
        "dropped: refint\n"
    );
    let with_nothing = [&add[..], &["--nothing", "cn=nobody,dc=example,dc=com"]].concat();
    assert_eq!(folder.sapwood_ok("rule", &with_nothing), "added: refint\n");
    let server = folder.serve();
    let delete = "dn: uid=ann,ou=staff,dc=example,dc=com\nchangetype: delete\n";
    succeeded(client(&server, "ldapmodify", delete));
    assert_eq!(
        members(&server),
        format!("dn: {dn}\nmember: cn=nobody,dc=example,dc=com\n\n")
    );
    server.stop();
}

#[test]
fn groups_are_shown_with_and_without_a_server() {
    let folder = peopled();
    let (ann, dn) = (
        "uid=ann,ou=people,dc=example,dc=com",
        "cn=g,dc=example,dc=com",
    );
    let group = format!("dn: {dn}\nobjectClass: groupOfNames\ncn: g\nmember: {ann}\n");
    let file = folder.name_beside("group.ldif");
    std::fs::write(&file, group).unwrap();
    folder.sapwood_ok("import", &[&file]);
    let server = folder.serve();
    let filter = format!("(memberOf={dn})");
    let found =
        |server: &Running| search(server, &["-b", "dc=example,dc=com", &filter, "memberOf"]);
    assert_eq!(found(&server), "");
    assert_eq!(
        folder.sapwood_ok("rule", &["add", "memberof"]),
        "added: memberof\n"
    );
    let expected = format!("dn: {ann}\nmemberOf: {dn}\n\n");
    assert_eq!(found(&server), expected);
    let again = failure(&folder.sapwood("rule", &["add", "memberof"]));
    assert!(again.contains("drop it first"), "{again}");
    server.stop();
    assert_eq!(folder.sapwood_ok("rule", &["list"]), "memberof memberof\n");
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "memberof"]),
        "dropped: memberof\n"
    );
    let unique = [
        "add",
        "memberof",
        "--class",
        "groupOfUniqueNames",
        "--member",
        "uniqueMember",
    ];
    let said = folder.sapwood_ok("rule", &unique);
    assert_eq!(said, "added: memberof (with the index uniqueMember eq)\n");
    let listed = "memberof memberof --class groupOfUniqueNames --member uniqueMember\n";
    assert_eq!(folder.sapwood_ok("rule", &["list"]), listed);
    let server = folder.serve();
    assert_eq!(found(&server), "");
    server.stop();
}

#[test]
fn a_rule_that_cannot_be_is_refused_with_what_is_wrong() {
    let folder = peopled();
    for (arguments, word) in [
        (&["--attributes", "nonsense"][..], "nonsense"),
        (&["--attributes", "userPassword"], "userPassword"),
        (
            &["--attributes", "uid", "--base", "no dn"],
            "distinguished name",
        ),
        (
            &["--attributes", "uid", "--base", "o=elsewhere"],
            "o=elsewhere",
        ),
        (&["--attributes", "uid", "--name", "two words"], "two words"),
    ] {
        let refused = folder.sapwood("rule", &[&["add", "unique"], arguments].concat());
        let said = failure(&refused);
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(folder.sapwood_ok("rule", &["list"]), "");
}

#[test]
fn constraints_with_and_without_a_server() {
    let folder = peopled();
    let list = || folder.sapwood_ok("rule", &["list"]);
    let form = [
        "add",
        "constraint",
        "--attributes",
        "mail",
        "--regex",
        "^[a-z]+@example\\.com$",
    ];
    let said = failure(&folder.sapwood("rule", &form));
    assert!(
        said.contains("'uid=bob,ou=people,dc=example,dc=com': mail: "),
        "{said}"
    );
    assert!(
        said.contains("against the rule constraint in 1 place"),
        "{said}"
    );
    assert_eq!(list(), "");
    let people = "ldap:///ou=people,dc=example,dc=com??sub?(cn=A*)";
    let some = [&form[..], &["--restrict", people, "--name", "addresses"]].concat();
    assert_eq!(folder.sapwood_ok("rule", &some), "added: addresses\n");
    let server = folder.serve();
    let count = ["add", "constraint", "--attributes", "cn,sn", "--count", "1"];
    assert_eq!(folder.sapwood_ok("rule", &count), "added: constraint\n");
    let all = list();
    let lines: Vec<&str> = all.lines().collect();
    let shown = format!(
        "addresses constraint --attributes mail --regex \"^[a-z]+@example\\.com$\" --restrict \"{people}\""
    );
    assert_eq!(
        lines,
        [
            shown.as_str(),
            "constraint constraint --attributes cn,sn --count 1"
        ]
    );
    let change = |uid: &str, lines: &str| {
        let dn = format!("uid={uid},ou=people,dc=example,dc=com");
        client(&server, "ldapmodify", &modify(&dn, lines))
    };
    let refused = |output: Output| {
        let said = text(&output.stderr);
        assert!(said.contains("Constraint violation (19)"), "{said}");
        said
    };
    let said = refused(change("ann", "replace: mail\nmail: Ann@example.com"));
    assert!(said.contains("mail: a value is not of the form"), "{said}");
    succeeded(change("ann", "replace: mail\nmail: ann@example.com"));
    succeeded(change("bob", "replace: mail\nmail: B@example.com"));
    refused(change("bob", "add: sn\nsn: y"));
    // As OpenLDAP writes them.
    let overlay = "olcOverlay={5}constraint,olcDatabase={1}mdb,cn=config";
    let size = "add: olcConstraintAttribute\nolcConstraintAttribute: description size 3";
    succeeded(client(&server, "ldapmodify", &modify(overlay, size)));
    refused(change("bob", "add: description\ndescription: four"));
    for name in ["addresses", "constraint-2", "constraint"] {
        folder.sapwood_ok("rule", &["drop", name]);
    }
    assert_eq!(list(), "");
    succeeded(change("bob", "add: description\ndescription: four"));
}

#[test]
fn dynamic_entries_are_refreshed_and_end() {
    let folder = peopled();
    let add = ["add", "dds", "--default-ttl", "1", "--interval", "1"];
    let said = folder.sapwood_ok("rule", &add);
    assert_eq!(
        said,
        "added: dds (with the index entryExpireTimestamp ord)\n"
    );
    let listed = "dds dds --default-ttl 1 --interval 1\n";
    assert_eq!(folder.sapwood_ok("rule", &["list"]), listed);
    let server = folder.serve();
    let entry = |name: &str| {
        let dn = format!("cn={name},dc=example,dc=com");
        let lines = "objectClass: device\nobjectClass: dynamicObject\n";
        succeeded(client(
            &server,
            "ldapadd",
            &format!("dn: {dn}\n{lines}cn: {name}\n"),
        ));
        dn
    };
    let (short, long) = (entry("short"), entry("long"));
    let exop = |dn: &str, ttl: &str| {
        let mut command: Command = program("ldapexop", "ldap-utils");
        command.args(["-x", "-H", server.ldap(), "-D", ADMIN, "-w", PASSWORD]);
        command.args(["refresh", dn, ttl]).output().unwrap()
    };
    // The first may have ended before the second was refreshed, never the second.
    let told = succeeded(exop(&long, "1000"));
    assert!(told.contains("newttl=1000"), "{told}");
    let refused = exop("uid=ann,ou=people,dc=example,dc=com", "1000");
    assert!(text(&refused.stderr).contains("(65)"), "{refused:?}");
    let there = || {
        search(
            &server,
            &[
                "-b",
                "dc=example,dc=com",
                "(objectClass=dynamicObject)",
                "1.1",
            ],
        )
    };
    while there().contains(&short) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(there(), format!("dn: {long}\n\n"));
    let ttl = search(&server, &["-b", &long, "-s", "base", "entryTtl"]);
    let ttl = ttl.split("entryTtl: ").nth(1).unwrap().trim();
    assert!((1..=1000).contains(&ttl.parse::<u32>().unwrap()), "{ttl}");
    let offered = [
        "-b",
        "",
        "-s",
        "base",
        "supportedExtension",
        "dynamicSubtrees",
    ];
    let offers =
        |server: &Running| search(server, &offered).contains("1.3.6.1.4.1.1466.101.119.1\n");
    assert!(offers(&server));
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "dds"]),
        "dropped: dds\n"
    );
    assert!(!offers(&server));
    server.stop();
}

#[test]
fn numbers_are_given_with_and_without_a_server() {
    let folder = peopled();
    let filter = "(objectClass=posixAccount)";
    let attributes = "uidNumber,gidNumber";
    let add = [
        "add",
        "numbers",
        "--attributes",
        attributes,
        "--filter",
        filter,
        "--range",
        "10000-59999",
    ];
    let said = folder.sapwood_ok("rule", &add);
    let made = "added: numbers (with the index uidNumber eq; gidNumber eq)\n";
    assert!(said == made || said == "added: numbers\n", "{said}");
    let listed = format!(
        "numbers numbers --attributes {attributes} --filter \"{filter}\" --range 10000-59999\n"
    );
    assert_eq!(folder.sapwood_ok("rule", &["list"]), listed);
    let server = folder.serve();
    let account = |uid: &str, more: &str| {
        let dn = format!("uid={uid},ou=people,dc=example,dc=com");
        let lines = "objectClass: account\nobjectClass: posixAccount\nhomeDirectory: /\n";
        let ldif = format!("dn: {dn}\n{lines}uid: {uid}\ncn: {uid}\n{more}");
        (dn, client(&server, "ldapadd", &ldif))
    };
    let of = |dn: &str| search(&server, &["-b", dn, "-s", "base", "uidNumber", "gidNumber"]);
    let (dn, added) = account("one", "");
    succeeded(added);
    assert_eq!(
        of(&dn),
        format!("dn: {dn}\nuidNumber: 10000\ngidNumber: 10000\n\n")
    );
    let (dn, added) = account("two", "gidNumber: 10000\n");
    succeeded(added);
    let lines = of(&dn);
    assert!(lines.contains("\nuidNumber: 10001\n") && lines.contains("\ngidNumber: 10000\n"));
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "numbers"]),
        "dropped: numbers\n"
    );
    let (_, added) = account("three", "");
    assert!(text(&added.stderr).contains("(65)"), "{added:?}");
    let wrong = folder.sapwood("rule", &[&add[..7], &["60000-1"]].concat());
    assert!(
        text(&wrong.stderr).contains("no range of numbers"),
        "{wrong:?}"
    );
    server.stop();
}

#[test]
fn members_come_and_go_with_and_without_a_server() {
    let folder = peopled();
    let dn = "cn=g,dc=example,dc=com";
    let add = [
        "add",
        "automember",
        "--group",
        dn,
        "--filter",
        "(objectClass=inetOrgPerson)",
    ];
    let said = failure(&folder.sapwood("rule", &add));
    assert!(said.contains("the rule automember is not added"), "{said}");
    assert_eq!(folder.sapwood_ok("rule", &["list"]), "");
    let group = format!(
        "dn: {dn}\nobjectClass: groupOfNames\ncn: g\nmember: cn=nobody,dc=example,dc=com\n"
    );
    let file = folder.name_beside("group.ldif");
    std::fs::write(&file, group).unwrap();
    folder.sapwood_ok("import", &[&file]);
    assert_eq!(
        folder.sapwood_ok("rule", &add),
        "added: automember (members: 2)\n"
    );
    let server = folder.serve();
    let members = || search(&server, &["-b", dn, "-s", "base", "member"]);
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    assert!(
        members().contains(&format!("member: {ann}\n")),
        "{}",
        members()
    );
    let delete = format!("dn: {ann}\nchangetype: delete\n");
    succeeded(client(&server, "ldapmodify", &delete));
    assert!(!members().contains(ann), "{}", members());
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "automember"]),
        "dropped: automember\n"
    );
    server.stop();
}

#[test]
fn links_have_links_back_with_and_without_a_server() {
    let folder = peopled();
    let (ann, bob) = (
        "uid=ann,ou=people,dc=example,dc=com",
        "uid=bob,ou=people,dc=example,dc=com",
    );
    let add = [
        "add",
        "linked",
        "--link",
        "secretary",
        "--managed",
        "seeAlso",
    ];
    assert_eq!(folder.sapwood_ok("rule", &add), "added: linked\n");
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "linked"]),
        "dropped: linked\n"
    );
    let server = folder.serve();
    let link = format!("replace: secretary\nsecretary: {bob}");
    succeeded(client(&server, "ldapmodify", &modify(ann, &link)));
    let said = failure(&folder.sapwood("rule", &add));
    assert!(
        said.contains(&format!("'{ann}' names '{bob}' in secretary")),
        "{said}"
    );
    succeeded(client(
        &server,
        "ldapmodify",
        &modify(ann, "delete: secretary"),
    ));
    assert_eq!(folder.sapwood_ok("rule", &add), "added: linked\n");
    let listed = "linked linked --link secretary --managed seeAlso\n";
    assert_eq!(folder.sapwood_ok("rule", &["list"]), listed);
    succeeded(client(&server, "ldapmodify", &modify(ann, &link)));
    let back = || search(&server, &["-b", bob, "-s", "base", "seeAlso"]);
    assert_eq!(back(), format!("dn: {bob}\nseeAlso: {ann}\n\n"));
    server.stop();
}

#[test]
fn accounts_have_groups_with_and_without_a_server() {
    let folder = peopled();
    let ldif = "\
dn: ou=groups,dc=example,dc=com\nobjectClass: organizationalUnit\nou: groups\n\n\
dn: cn=template,dc=example,dc=com\nobjectClass: applicationProcess\nobjectClass: mepTemplateEntry\ncn: template\n\
mepRDNAttr: cn\nmepStaticAttr: objectClass: posixGroup\nmepMappedAttr: cn: $uid\n\
mepMappedAttr: gidNumber: $gidNumber\n\n\
dn: uid=eve,ou=people,dc=example,dc=com\nobjectClass: account\nobjectClass: posixAccount\nuid: eve\ncn: Eve\n\
uidNumber: 7\ngidNumber: 7\nhomeDirectory: /\n";
    let file = folder.name_beside("groups.ldif");
    std::fs::write(&file, ldif).unwrap();
    folder.sapwood_ok("import", &[&file]);
    let add = |template| {
        let below = ["--below", "ou=groups,dc=example,dc=com"];
        let filter = ["--filter", "(objectClass=posixAccount)"];
        [["add", "managed"], ["--template", template], below, filter].concat()
    };
    let said = failure(&folder.sapwood("rule", &add("cn=nothing,dc=example,dc=com")));
    assert!(
        said.contains("'cn=nothing,dc=example,dc=com' is not there"),
        "{said}"
    );
    let added = folder.sapwood_ok("rule", &add("cn=template,dc=example,dc=com"));
    assert!(added.starts_with("added: managed (made: 1)"), "{added}");
    let server = folder.serve();
    let groups = || {
        let asked = ["-b", "ou=groups,dc=example,dc=com", "-s", "one"];
        search(
            &server,
            &[&asked[..], &["gidNumber", "mepManagedBy"]].concat(),
        )
    };
    let eve = "dn: cn=eve,ou=groups,dc=example,dc=com\ngidNumber: 7\n\
               mepManagedBy: uid=eve,ou=people,dc=example,dc=com\n\n";
    assert_eq!(groups(), eve);
    let rename = "dn: uid=eve,ou=people,dc=example,dc=com\nchangetype: modrdn\nnewrdn: uid=liz\ndeleteoldrdn: 1\n";
    succeeded(client(&server, "ldapmodify", rename));
    assert_eq!(groups(), eve.replace("eve", "liz"));
    let delete = |dn: &str| {
        client(
            &server,
            "ldapmodify",
            &format!("dn: {dn}\nchangetype: delete\n"),
        )
    };
    let kept = delete("cn=liz,ou=groups,dc=example,dc=com");
    assert!(
        text(&kept.stderr).contains("managed by 'uid=liz"),
        "{kept:?}"
    );
    succeeded(delete("uid=liz,ou=people,dc=example,dc=com"));
    assert_eq!(groups(), "");
    assert_eq!(
        folder.sapwood_ok("rule", &["drop", "managed"]),
        "dropped: managed\n"
    );
    server.stop();
}

/// The orders of values, and the organisational units of those that they are about.
const ORDERS: [(&str, &str); 6] = [
    ("up", "alpha-ascend"),
    ("down", "alpha-descend"),
    ("weighted", "weighted"),
    ("both", "weighted alpha-ascend"),
    ("both-down", "weighted alpha-descend"),
    ("none", ""),
];

/// Entries with values in no order, of the same description but for case.
fn unordered(random: &mut Random) -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    for (unit, order) in ORDERS {
        let above = format!("ou={unit},{SUFFIX}");
        ldif += &format!("dn: {above}\nobjectClass: organizationalUnit\nou: {unit}\n\n");
        for number in 0..6 {
            ldif +=
                &format!("dn: cn=p{number},{above}\nobjectClass: person\ncn: p{number}\nsn: x\n");
            let mut words = std::collections::BTreeSet::new();
            for _ in 0..random.below(9) {
                let letter = |random: &mut Random| random.of(&["a", "B", "bb", "z", "Ab"]);
                words.insert(format!(
                    "{}{}{}",
                    letter(random),
                    letter(random),
                    letter(random)
                ));
            }
            // Equal values would be refused.
            let mut known = std::collections::BTreeSet::new();
            words.retain(|word| known.insert(word.to_lowercase()));
            let mut words: Vec<String> = words.into_iter().collect();
            for at in 0..words.len() {
                let other = random.below(words.len());
                words.swap(at, other);
            }
            for (at, word) in words.iter().enumerate() {
                let weight = match order {
                    "weighted" => format!("{{{}}}", (at * 7) % 10 + 10 * (at % 2)),
                    order if order.starts_with("weighted") => format!("{{{}}}", random.below(3)),
                    _ => String::new(),
                };
                ldif += &format!("description: {weight}{word}\n");
            }
            ldif.push('\n');
        }
    }
    ldif
}

#[test]
fn values_are_sent_in_the_order_in_which_slapd_sends_them() {
    let mut random = Random::new(7);
    let rules: String = ORDERS
        .iter()
        .filter(|(_, order)| !order.is_empty())
        .map(|(unit, order)| format!("valsort-attr description ou={unit},{SUFFIX} {order}\n"))
        .collect();
    let slapd = Slapd::with(&SlapdSetup {
        global: "modulepath /usr/lib/ldap\nmoduleload valsort",
        database: &format!("overlay valsort\n{rules}"),
        ..SlapdSetup::default()
    });
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let urls = [
        format!("ldap://{}", slapd.address()),
        server.ldap().to_owned(),
    ];
    let at = |url: &str, tool: &str, ldif: &str, arguments: &[&str]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ldif).unwrap();
        let mut command: Command = program(tool, "ldap-utils");
        command.args(["-x", "-H", url, "-D", ADMIN, "-w", PASSWORD]);
        if !ldif.is_empty() {
            command.arg("-f").arg(file.path());
        }
        command.args(arguments).output().unwrap()
    };
    let ldif = unordered(&mut random);
    for url in &urls {
        succeeded(at(url, "ldapadd", &ldif, &[]));
    }
    for (unit, order) in ORDERS.iter().filter(|(_, order)| !order.is_empty()) {
        let base = format!("ou={unit},{SUFFIX}");
        let rule = [
            "add",
            "valsort",
            "--attribute",
            "description",
            "--base",
            &base,
        ];
        folder.sapwood_ok(
            "rule",
            &[&rule[..], &["--sort", order, "--name", unit]].concat(),
        );
    }
    let told = |url: &String, control: &[&str]| {
        let mut told = Vec::new();
        for (unit, _) in ORDERS.iter().filter(|(_, order)| !order.is_empty()) {
            let base = format!("ou={unit},{SUFFIX}");
            let all = ["-LLL", "-o", "ldif-wrap=no", "-b", &base, "description"];
            let output = succeeded(at(url, "ldapsearch", "", &[control, &all].concat()));
            told.extend(output.lines().map(str::to_owned));
        }
        told
    };
    let [theirs, ours] = [&urls[0], &urls[1]].map(|url| told(url, &[]));
    assert_eq!(ours, theirs);
    let has_weights = |told: &[String]| told.iter().any(|line| line.contains("{1}"));
    assert!(!has_weights(&ours) && ours.iter().any(|line| line.starts_with("description: ")));
    // As they are stored, which is in no order.
    let raw = ["-E", "!1.3.6.1.4.1.4203.666.5.14=::MAMBAf8="];
    let [theirs, ours] = [&urls[0], &urls[1]].map(|url| {
        let mut lines = told(url, &raw);
        lines.sort_unstable();
        lines
    });
    assert_eq!(ours, theirs);
    assert!(has_weights(&ours));
    // A value needs its weight.
    let name = format!("cn=p1,ou=both,{SUFFIX}");
    for (value, status) in [("light", 19), ("{x}light", 19), ("{4}heavy", 0)] {
        let ldif = modify(&name, &format!("add: description\ndescription: {value}"));
        for url in &urls {
            assert_eq!(
                at(url, "ldapmodify", &ldif, &[]).status.code(),
                Some(status),
                "{value}"
            );
        }
    }
    let [theirs, ours] = [&urls[0], &urls[1]].map(|url| told(url, &[]));
    assert_eq!(ours, theirs);
    // The data are against another one.
    let none = format!("ou=none,{SUFFIX}");
    let rule = [
        "add",
        "valsort",
        "--attribute",
        "description",
        "--base",
        &none,
        "--sort",
    ];
    let said = failure(&folder.sapwood("rule", &[&rule[..], &["weighted"]].concat()));
    assert!(
        said.contains("description: a value has no weight"),
        "{said}"
    );
    let said = failure(&folder.sapwood("rule", &[&rule[..], &["numeric-ascend"]].concat()));
    assert!(said.contains("no numbers"), "{said}");
    let listed = folder.sapwood_ok("rule", &["list"]);
    let line = format!(
        "both valsort --attribute description --base \"ou=both,{SUFFIX}\" --sort \"weighted alpha-ascend\""
    );
    assert!(listed.lines().any(|known| known == line), "{listed}");
    folder.sapwood_ok("rule", &["drop", "both"]);
    assert!(has_weights(&told(&urls[1], &[])));
    server.stop();
}
