//! Controls, asked for by the clients that people use: those of ldap-utils, python-ldap, and the
//! UnboundID LDAP SDK.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{fed, program, succeeded};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX, Slapd, SlapdSetup};

const PEOPLE: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: cn=Ann,dc=example,dc=com
objectClass: inetOrgPerson
cn: Ann
sn: Harbor
mail: ann@example.com
mail: ann@example.org

dn: cn=Bob,dc=example,dc=com
objectClass: inetOrgPerson
cn: Bob
sn: Anchor
mail: bob@example.com

dn: cn=Cyd,dc=example,dc=com
objectClass: inetOrgPerson
cn: Cyd
sn: Cable

dn: cn=sailors,dc=example,dc=com
objectClass: groupOfNames
cn: sailors
member: cn=Ann,dc=example,dc=com
member: cn=Bob,dc=example,dc=com
";

fn serve() -> (Folder, Running) {
    let folder = Folder::init(&[]);
    let people = folder.beside("people.ldif");
    std::fs::write(&people, PEOPLE).unwrap();
    folder.sapwood_ok("import", &[people.to_str().unwrap()]);
    let server = folder.serve();
    (folder, server)
}

/// What ldapsearch prints of the entries below the suffix, without comments.
fn found(server: &Running, extension: &str, args: &[&str]) -> String {
    let args = [&["-LLL", "-b", SUFFIX, "-E", extension], args].concat();
    let (status, output) = run(server, "ldapsearch", &args, "");
    assert_eq!(status, Some(0), "{output}");
    output
}

/// The values of an attribute, in the order in which they come.
fn values<'o>(output: &'o str, attribute: &str) -> Vec<&'o str> {
    let lines = output.lines();
    let values = lines.filter_map(|line| line.strip_prefix(attribute)?.strip_prefix(": "));
    values.collect()
}

/// Runs one of the tools as the administrator; its exit status, which is the result code, and what it prints.
fn run(server: &Running, tool: &str, args: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = program(tool, "ldap-utils");
    command
        .env("LDAPCONF", "/dev/null")
        .env("LDAPRC", "none")
        .args(["-H", server.ldap(), "-x", "-D", ADMIN, "-w", PASSWORD])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

/// All that `-E` and `-e` know is understood, or refused where it is critical. What is understood has tests of what it
/// does; here the tools read the answers.
#[test]
fn every_extension_of_ldap_utils() {
    let (_folder, server) = serve();
    const REFUSED: i32 = 12;
    let searches = [
        (&["-E", "!accountUsability"][..], 0, "dn: cn=Ann"),
        (&["-E", "!domainScope"], 0, "dn: cn=Ann"),
        (&["-E", "!dontUseCopy"], 0, "dn: cn=Ann"),
        (&["-E", "!mv=(mail=ann@*.org)"], 0, "mail: ann@example.org"),
        (&["-E", "!pr=1/noprompt"], 0, "# numEntries: 5"),
        (&["-E", "!sss=sn"], 0, "sortResult: (0) Success"),
        // Without input the tool asks for one view after the other, until one is behind the end.
        (
            &["-E", "!sss=sn", "-E", "!vlv=0/1/2/0"],
            76,
            "pos=2 count=5",
        ),
        (&["-E", "!subentries"], 0, "result: 0 Success"),
        (&["-E", "subentries=false"], 0, "dn: cn=Ann"),
        (&["-E", "!deref=member:cn"], 0, "# member: <cn=Ann>"),
        // Only a replica provides.
        (&["-E", "!sync=ro"], 53, "sapwood replica enable"),
        (&["-E", "!dirSync=0/0"], REFUSED, "1.2.840.113556.1.4.841"),
        (&["-E", "!extendedDn=1"], REFUSED, "1.2.840.113556.1.4.529"),
        (&["-E", "!showDeleted"], REFUSED, "1.2.840.113556.1.4.417"),
        (&["-E", "!serverNotif"], REFUSED, "1.2.840.113556.1.4.528"),
        (&["-E", "showDeleted"], 0, "dn: cn=Ann"),
        (&["-e", "!assert=(dc=example)"], 0, "dn: cn=Ann"),
        (&["-e", "!assert=(dc=other)"], 122, "assertion control"),
        (
            &["-e", "!authzid=dn:cn=Ann,dc=example,dc=com"],
            0,
            "dn: cn=Ann",
        ),
        (&["-e", "!bauthzid"], 0, "dn: cn=Ann"),
        (&["-e", "!manageDSAit"], 0, "dn: cn=Ann"),
        (&["-e", "ppolicy"], 0, "dn: cn=Ann"),
        (&["-e", "sessiontracking=ann"], 0, "dn: cn=Ann"),
        (&["-e", "!chaining"], REFUSED, "1.3.6.1.4.1.4203.666.11.3"),
        // These are of updates.
        (&["-e", "!noop"], REFUSED, "1.3.6.1.4.1.4203.666.5.2"),
        (&["-e", "!preread"], REFUSED, "1.3.6.1.1.13.1"),
        (&["-e", "!postread"], REFUSED, "1.3.6.1.1.13.2"),
        (&["-e", "!relax"], REFUSED, "1.3.6.1.4.1.4203.666.5.12"),
        (&["-e", "noop"], 0, "dn: cn=Ann"),
    ];
    for (extensions, code, text) in searches {
        let args = [
            &["-b", SUFFIX],
            extensions,
            &["-s", "sub", "(objectClass=*)"],
        ]
        .concat();
        let (status, output) = run(&server, "ldapsearch", &args, "");
        assert_eq!(status, Some(code), "{extensions:?}: {output}");
        assert!(output.contains(text), "{extensions:?}: {output}");
    }
    // A persistent search goes on: it ends with the fifth entry.
    let persistent = ["-b", SUFFIX, "-E", "!ps=15/0/1", "-z", "4", "dn"];
    let (status, output) = run(&server, "ldapsearch", &persistent, "");
    assert_eq!(status, Some(4), "{output}");

    let change = |sn: &str| {
        format!("dn: cn=Ann,dc=example,dc=com\nchangetype: modify\nreplace: sn\nsn: {sn}\n\n")
    };
    let nobody = change("x").replace("Ann", "nobody");
    let reads = ["-e", "!preread=sn", "-e", "!postread=sn"];
    let asserts = ["-e", "!assert=(sn=Harbor)", "-e", "!manageDSAit"];
    for (extensions, changes, code, texts, sn) in [
        (&["-e", "!noop"][..], change("1"), 14, &[][..], "Harbor"),
        (&reads, change("2"), 0, &["sn: Harbor", "sn: 2"], "2"),
        (&asserts, change("3"), 122, &[], "2"),
        (&["-E", "!txn=abort"], change("4"), 0, &[], "2"),
        (&["-E", "!txn=commit"], change("5") + &nobody, 32, &[], "2"),
        (
            &["-E", "!txn=commit"],
            change("6") + &change("7"),
            0,
            &[],
            "7",
        ),
    ] {
        let (status, output) = run(&server, "ldapmodify", extensions, &changes);
        assert_eq!(status, Some(code), "{extensions:?}: {output}");
        for text in texts {
            assert!(output.contains(text), "{extensions:?}: {output}");
        }
        let ann = ["-LLL", "-b", SUFFIX, "(cn=Ann)", "sn"];
        let (_, output) = run(&server, "ldapsearch", &ann, "");
        assert_eq!(values(&output, "sn"), [sn], "{extensions:?}");
    }
}

#[test]
fn matched_values() {
    let (_folder, server) = serve();
    let output = found(&server, "!mv=(mail=*.org)", &["(cn=Ann)", "mail", "sn"]);
    assert_eq!(values(&output, "mail"), ["ann@example.org"]);
    assert!(values(&output, "sn").is_empty());
}

#[test]
fn server_side_sorting() {
    let (_folder, server) = serve();
    let people = "(objectClass=person)";
    let output = found(&server, "!sss=sn", &[people, "cn"]);
    assert_eq!(values(&output, "cn"), ["Bob", "Cyd", "Ann"]);
    let output = found(&server, "!sss=-sn:caseIgnoreOrderingMatch", &[people, "cn"]);
    assert_eq!(values(&output, "cn"), ["Ann", "Cyd", "Bob"]);
    let pages = ["-E", "pr=2/noprompt", people, "cn"];
    let output = found(&server, "!sss=mail/cn", &pages);
    assert_eq!(values(&output, "cn"), ["Ann", "Bob", "Cyd"]);
}

#[test]
fn range_retrieval() {
    let (_folder, server) = serve();
    for (asked, name, member) in [
        (
            "member;range=0-0",
            "member;range=0-0",
            "cn=Ann,dc=example,dc=com",
        ),
        (
            "member;range=1-1",
            "member;range=1-*",
            "cn=Bob,dc=example,dc=com",
        ),
    ] {
        let output = found(&server, "!domainScope", &["(cn=sailors)", asked]);
        assert_eq!(values(&output, name), [member]);
    }
}

#[test]
fn what_failed() {
    let (_folder, server) = serve();
    let asked = ["-e", "1.3.6.1.4.1.4203.666.5.17", "-e", "!1.2.3.4"];
    let (status, output) = run(
        &server,
        "ldapsearch",
        &[&["-b", SUFFIX], &asked[..]].concat(),
        "",
    );
    // unavailableCriticalExtension
    assert_eq!(status, Some(12));
    assert!(
        output.contains("control: 1.3.6.1.4.1.4203.666.5.17"),
        "{output}"
    );
}

/// What views of the people sorted by surname hold, as python-ldap reads it.
const LIST_VIEW: &str = r#"
import sys, ldap
from ldap.controls.sss import SSSRequestControl
from ldap.controls.vlv import VLVRequestControl, VLVResponseControl
url, who, password, base = sys.argv[1:]
connection = ldap.initialize(url)
connection.simple_bind_s(who, password)
order = SSSRequestControl(criticality=True, ordering_rules=['sn'])

def view(**target):
    control = VLVRequestControl(criticality=True, before_count=0, after_count=1, **target)
    asked = connection.search_ext(
        base, ldap.SCOPE_SUBTREE, '(objectClass=person)', ['cn'], serverctrls=[order, control])
    _, entries, _, controls = connection.result3(asked)
    told = [c for c in controls if c.controlType == VLVResponseControl.controlType][0]
    names = [entry['cn'][0].decode() for _, entry in entries]
    print(*names, told.targetPosition, told.contentCount, int(told.result))
    return told.context_id

context = view(offset=1, content_count=0)
view(offset=3, content_count=3, context_id=context)
view(greater_than_or_equal='B')
"#;

#[test]
fn virtual_list_view() {
    let (_folder, server) = serve();
    let mut python = program("/usr/bin/python3", "python3");
    python.args(["-c", LIST_VIEW, server.ldap(), ADMIN, PASSWORD, SUFFIX]);
    let output = succeeded(python.output().unwrap());
    let views: Vec<_> = output.lines().collect();
    assert_eq!(views, ["Bob Cyd 1 3 0", "Ann 3 3 0", "Cyd Ann 2 3 0"]);
}

#[test]
fn tree_delete() {
    let (_folder, server) = serve();
    let delete = |extensions: &[&str]| {
        let args = [extensions, &[SUFFIX]].concat();
        run(&server, "ldapdelete", &args, "").0
    };
    // notAllowedOnNonLeaf
    assert_eq!(delete(&[]), Some(66));
    assert_eq!(delete(&["-e", "!1.2.840.113556.1.4.805"]), Some(0));
    // noSuchObject
    assert_eq!(delete(&[]), Some(32));
}

#[test]
fn relaxed_rules() {
    let (_folder, server) = serve();
    let change = "dn: cn=Ann,dc=example,dc=com\n\
                  changetype: modify\n\
                  replace: createTimestamp\n\
                  createTimestamp: 20060101000000Z\n";
    let moved = |extensions: &[&str]| run(&server, "ldapmodify", extensions, change).0;
    // constraintViolation
    assert_eq!(moved(&[]), Some(19));
    assert_eq!(moved(&["-e", "!relax"]), Some(0));
    let output = found(
        &server,
        "!mv=(createTimestamp=20060101000000Z)",
        &["(cn=Ann)", "+"],
    );
    assert_eq!(values(&output, "createTimestamp"), ["20060101000000Z"]);
}

/// What ldapsearch prints of controls that come with entries; those of an entry in the order of their lines.
fn dereferenced(address: &str, specs: &str, filter: &str) -> Vec<String> {
    let mut command = program("ldapsearch", "ldap-utils");
    command
        .env("LDAPCONF", "/dev/null")
        .env("LDAPRC", "none")
        .args(["-H", address, "-x", "-D", ADMIN, "-w", PASSWORD])
        .args(["-o", "ldif-wrap=no", "-LL", "-b", SUFFIX])
        .args(["-E", &format!("!deref={specs}"), filter, "1.1"]);
    let output = succeeded(command.output().unwrap());
    let lines = output.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn dereference_as_slapd_does() {
    let (_folder, server) = serve();
    let setup = SlapdSetup {
        global: "modulepath /usr/lib/ldap\nmoduleload deref",
        database: "overlay deref",
        ..SlapdSetup::default()
    };
    let slapd = Slapd::with(&setup);
    let slapd_url = format!("ldap://{}", slapd.address());
    let groups = "\
dn: cn=captains,dc=example,dc=com
objectClass: groupOfNames
cn: captains
member: cn=sailors,dc=example,dc=com
member: cn=Cyd,dc=example,dc=com
member: cn=nobody,dc=example,dc=com
owner: cn=Ann,dc=example,dc=com
";
    for (url, ldif) in [
        (slapd_url.as_str(), format!("{PEOPLE}\n{groups}")),
        (server.ldap(), groups.to_owned()),
    ] {
        let mut command = program("ldapadd", "ldap-utils");
        command.args(["-H", url, "-x", "-D", ADMIN, "-w", PASSWORD]);
        succeeded(fed(&mut command, &ldif));
    }
    for (specs, filter) in [
        ("member:cn,sn,mail", "(cn=sailors)"),
        ("member:mail", "(cn=*)"),
        ("member:member,description,cn;owner:CN", "(cn=captains)"),
        ("owner:description,member", "(cn=captains)"),
        ("seeAlso:cn", "(cn=*)"),
        ("creatorsName:cn", "(cn=Ann)"),
        ("member:entryUUID,name,displayName", "(cn=Ann)"),
    ] {
        let ours = dereferenced(server.ldap(), specs, filter);
        assert_eq!(ours, dereferenced(&slapd_url, specs, filter), "{specs}");
        assert!(!ours.is_empty());
    }
    let told = dereferenced(server.ldap(), "member:sn", "(cn=sailors)").join(" ");
    assert!(told.contains("Harbor"), "{told}");
}

/// Asks libldap whether passwords are right, on a connection that is bound as the administrator.
const VERIFY_CREDENTIALS: &str = r#"
import ctypes, sys
url, who, password, name = [argument.encode() for argument in sys.argv[1:]]
ldap = ctypes.CDLL('libldap-2.5.so.0')
class Value(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ulong), ('octets', ctypes.c_char_p)]
connection = ctypes.c_void_p()
assert ldap.ldap_initialize(ctypes.byref(connection), url) == 0
version = ctypes.c_int(3)
ldap.ldap_set_option(connection, 0x11, ctypes.byref(version))
bound = Value(len(password), password)
assert ldap.ldap_sasl_bind_s(connection, who, None, ctypes.byref(bound), None, None, None) == 0
for tried in [b'first password', b'another one']:
    value = Value(len(tried), tried)
    code, diagnostic = ctypes.c_int(-1), ctypes.c_char_p()
    outputs = [ctypes.c_void_p() for _ in range(3)]
    result = ldap.ldap_verify_credentials_s(
        connection, None, name, None, ctypes.byref(value), None, None, None, ctypes.byref(code),
        ctypes.byref(diagnostic), *[ctypes.byref(output) for output in outputs])
    identity = ctypes.POINTER(Value)()
    assert ldap.ldap_whoami_s(connection, ctypes.byref(identity), None, None) == 0
    print(result, code.value, identity[0].octets[:identity[0].length].decode())
"#;

#[test]
fn verify_credentials() {
    let (_folder, server) = serve();
    let name = "cn=Cyd,dc=example,dc=com";
    let mut command = program("ldappasswd", "ldap-utils");
    command
        .args(["-H", server.ldap(), "-x", "-D", ADMIN, "-w", PASSWORD])
        .args(["-s", "first password", name]);
    succeeded(command.output().unwrap());
    let mut python = program("python3", "python3");
    python.args([
        "-c",
        VERIFY_CREDENTIALS,
        server.ldap(),
        ADMIN,
        PASSWORD,
        name,
    ]);
    let output = succeeded(python.output().unwrap());
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(
        lines,
        [format!("0 0 dn:{ADMIN}"), format!("0 49 dn:{ADMIN}")]
    );
}

#[test]
fn in_chain() {
    let (_folder, server) = serve();
    let crew = "dn: cn=crew,dc=example,dc=com\nobjectClass: groupOfNames\ncn: crew\n\
                member: cn=sailors,dc=example,dc=com\n";
    let mut command = program("ldapadd", "ldap-utils");
    command.args(["-H", server.ldap(), "-x", "-D", ADMIN, "-w", PASSWORD]);
    succeeded(fed(&mut command, crew));
    let filter = "(member:1.2.840.113556.1.4.1941:=cn=Ann,dc=example,dc=com)";
    let output = found(&server, "!domainScope", &[filter, "cn"]);
    assert_eq!(values(&output, "cn"), ["sailors", "crew"]);
}

#[test]
fn attribute_scoped_query() {
    let (_folder, server) = serve();
    // The attribute is member.
    let control = "!1.2.840.113556.1.4.1504=::MAgEBm1lbWJlcg==";
    let group = ["-b", "cn=sailors,dc=example,dc=com", "-s", "base"];
    let all = found(&server, control, &[&group[..], &["(sn=*)", "cn"]].concat());
    assert_eq!(values(&all, "cn"), ["Ann", "Bob"]);
    let one = found(
        &server,
        control,
        &[&group[..], &["(sn=Anchor)", "cn"]].concat(),
    );
    assert_eq!(values(&one, "cn"), ["Bob"]);
}

#[test]
fn controls_of_pingdirectory() {
    let (folder, server) = serve();
    folder.sapwood_ok("rule", &["add", "dds"]);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let jar = tests.join("target/jars/unboundid-ldapsdk-7.0.1.jar");
    assert!(
        jar.is_file(),
        "{} is missing: cargo xtask test fetches it",
        jar.display()
    );
    let mut java = program("java", "default-jdk-headless");
    java.arg("-cp").arg(jar);
    java.arg(tests.join("tests/java/Controls.java"));
    let port = server.port().to_string();
    java.args(["127.0.0.1", &port, ADMIN, PASSWORD, SUFFIX]);
    assert!(succeeded(java.output().unwrap()).contains("all is well"));
}
