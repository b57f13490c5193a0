//! The command line as people and other programs use it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use sapwood_server::IMPLICIT_START;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{
    Process, Scratch, program, sapwood, sapwood_command, sapwood_ok, succeeded, text,
};
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX};

#[test]
fn init_refuses_what_is_not_empty_and_keeps_secrets_private() {
    let folder = Folder::init(&[]);
    let again = sapwood([
        "init".as_ref(),
        folder.path().as_os_str(),
        "--suffix".as_ref(),
        SUFFIX.as_ref(),
    ]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("is not empty"),
        "{}",
        text(&again.stderr)
    );
    let mode = |name: &str| {
        folder
            .path()
            .join(name)
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("admin.password"), mode("tls-key.pem")),
        (0o600, 0o600)
    );
    assert_eq!(
        folder.path().metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn init_takes_back_what_it_began_when_it_fails() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("directory");
    let failed = sapwood([
        "init".as_ref(),
        path.as_os_str(),
        "--suffix".as_ref(),
        "no DN".as_ref(),
    ]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        text(&failed.stderr).contains("no DN"),
        "{}",
        text(&failed.stderr)
    );
    assert!(!path.exists());
}

#[test]
fn init_prints_a_generated_password_and_the_fingerprint_once() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("directory");
    let said = sapwood_ok([
        "init".as_ref(),
        path.as_os_str(),
        "--suffix".as_ref(),
        "o=X".as_ref(),
    ]);
    assert!(said.contains("cn=admin,o=X"), "{said}");
    let password = said
        .lines()
        .find_map(|line| line.strip_prefix("Password:"))
        .unwrap();
    assert_eq!(password.split_whitespace().next().unwrap().len(), 20);
    assert!(
        said.lines()
            .any(|line| line.trim().split(':').count() == 32),
        "{said}"
    );
    let changed = sapwood_ok(["passwd".as_ref(), path.as_os_str()]);
    assert!(!changed.contains(password.split_whitespace().next().unwrap()));
    // One that looks like a stored one would not be what the administrator types.
    let file = scratch.path().join("password");
    std::fs::write(&file, "{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==\n").unwrap();
    let stored = std::fs::read(path.join("admin.password")).unwrap();
    let args = ["--password-file".as_ref(), file.as_os_str()];
    let output = sapwood(
        ["passwd".as_ref(), path.as_os_str()]
            .into_iter()
            .chain(args),
    );
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("a scheme in braces"), "{said}");
    assert_eq!(std::fs::read(path.join("admin.password")).unwrap(), stored);
}

#[test]
fn a_mistake_in_the_configuration_is_told_with_its_line() {
    let folder = Folder::init(&[]);
    let path = folder.path().join("sapwood.toml");
    let config = std::fs::read_to_string(&path)
        .unwrap()
        .replace("threads = 0", "threats = 0");
    let line = config
        .lines()
        .position(|line| line == "threats = 0")
        .unwrap()
        + 1;
    std::fs::write(&path, config).unwrap();
    for command in ["serve", "check", "stat", "export", "reload"] {
        let output = sapwood([command.as_ref(), folder.path().as_os_str()]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("sapwood.toml:{line}")) && said.contains("threats"),
            "{said}"
        );
    }
}

#[test]
fn a_folder_that_is_none_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("nothing");
    let output = sapwood(["serve".as_ref(), path.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("sapwood init"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn one_server_for_each_folder() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let second = sapwood(["serve".as_ref(), folder.path().as_os_str()]);
    assert!(
        text(&second.stderr).contains("already"),
        "{}",
        text(&second.stderr)
    );
    assert!(sapwood_ok(["reload".as_ref(), folder.path().as_os_str()]).contains("reloaded"));
    assert!(sapwood_ok(["stat".as_ref(), folder.path().as_os_str()]).contains("running"));
    server.stop();
    let without = sapwood(["reload".as_ref(), folder.path().as_os_str()]);
    assert!(text(&without.stderr).contains("no server runs"));
}

const LDIF: &str = "version: 1

dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=People,dc=example,dc=com
objectClass: organizationalUnit
ou: People

dn: cn=Ann,ou=People,dc=example,dc=com
objectClass: person
cn: Ann
sn: Arbor
userPassword: secret

dn: cn=Bad,ou=People,dc=example,dc=com
objectClass: person
cn: Bad

dn: cn=Lost,ou=Nowhere,dc=example,dc=com
objectClass: device
cn: Lost

dn: cn=J\u{fc}rgen,ou=People,dc=example,dc=com
objectClass: person
cn: J\u{fc}rgen
sn: M
description: second
description: first
";

fn person(name: &str) -> String {
    format!("dn: cn={name},dc=example,dc=com\nobjectClass: person\ncn: {name}\nsn: {name}\n")
}

#[test]
fn a_directory_in_memory_is_saved_when_its_server_stops() {
    let folder = Folder::init(&["--in-memory"]);
    let file = |name: &str, text: &str| {
        let path = folder.name_beside(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let suffix = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n";
    let first = file("first.ldif", &format!("{suffix}{}", person("first")));
    folder.sapwood_ok("import", &[&first]);
    assert!(!folder.path().join("data").exists());
    let password = folder.name_beside("password");
    let serve_and_add = |name: &str| {
        let server = folder.serve();
        let refused = folder.sapwood("export", &[]);
        assert!(text(&refused.stderr).contains("memory"), "{refused:?}");
        let more = file("more.ldif", &person(name));
        let admin = format!("cn=admin,{SUFFIX}");
        let online = ["import", "--online", server.ldap(), &more];
        let bind = ["--bind-dn", &admin, "--password-file", &password];
        sapwood_ok(online.into_iter().chain(bind));
        server.stop();
    };
    serve_and_add("second");
    let exported = folder.sapwood_ok("export", &[]);
    assert!(exported.contains("cn=first") && exported.contains("cn=second"));
    assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
    // Unless it is not to be saved.
    folder.configure(&[("save = true", "save = false")]);
    serve_and_add("third");
    assert!(!folder.sapwood_ok("export", &[]).contains("cn=third"));
    folder.sapwood_ok("index", &["add", "sn eq"]);
    assert!(folder.sapwood_ok("index", &["list"]).contains("sn eq"));
    // Damage is told, not loaded.
    let memory = folder.path().join("memory");
    let mut bytes = std::fs::read(&memory).unwrap();
    for page in bytes.chunks_exact_mut(4096).skip(2) {
        page[100] ^= 1;
    }
    std::fs::write(&memory, bytes).unwrap();
    let damaged = folder.sapwood("check", &[]);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
}

/// Without its file a directory in memory is none; the way back is a backup in its place.
#[test]
fn a_directory_in_memory_without_its_file_is_told_what_it_needs() {
    let folder = Folder::init(&["--in-memory"]);
    let (memory, backup) = (folder.path().join("memory"), folder.name_beside("backup"));
    folder.sapwood_ok("backup", &[&backup]);
    std::fs::remove_file(&memory).unwrap();
    for command in ["serve", "stat", "export"] {
        let output = folder.sapwood(command, &[]);
        let said = text(&output.stderr);
        assert!(
            !output.status.success()
                && said.contains("neither a folder 'data' nor")
                && said.contains("backup"),
            "{said}"
        );
    }
    std::fs::copy(&backup, &memory).unwrap();
    folder.sapwood_ok("check", &[]);
}

/// What stands in its place is told with its name and what helps.
#[test]
fn a_directory_in_memory_with_an_unusable_file_is_told_what_it_needs() {
    let folder = Folder::init(&["--in-memory"]);
    let (memory, backup) = (folder.path().join("memory"), folder.name_beside("backup"));
    folder.sapwood_ok("backup", &[&backup]);
    let refused = |reason: &str| {
        for command in ["serve", "export"] {
            let output = folder.sapwood(command, &[]);
            let said = text(&output.stderr);
            assert!(
                !output.status.success()
                    && said.contains("directory/memory")
                    && said.contains("A backup of the directory can take its place")
                    && said.contains(reason),
                "{said}"
            );
        }
    };
    std::fs::write(&memory, "").unwrap();
    refused("memory is empty");
    std::fs::write(&memory, "x").unwrap();
    refused("is a file of another kind");
    std::fs::copy(&backup, &memory).unwrap();
    folder.sapwood_ok("check", &[]);

    // A directory on disk does not become another one by a file of that name.
    let folder = Folder::init(&[]);
    std::fs::write(folder.path().join("memory"), "").unwrap();
    let said = text(&folder.sapwood("export", &[]).stderr);
    assert!(said.contains("has both a folder 'data'"), "{said}");
}

/// Its entries are nowhere else: a server that cannot save them does not end before it can, or is told again.
#[test]
fn a_directory_in_memory_that_cannot_be_saved_is_kept() {
    let folder = Folder::init(&["--in-memory"]);
    let suffix = folder.name_beside("suffix.ldif");
    let text_of_suffix = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n";
    std::fs::write(&suffix, text_of_suffix).unwrap();
    let (admin, password) = (format!("cn=admin,{SUFFIX}"), folder.name_beside("password"));
    let away = folder.beside("away");
    let serve_and_stop = || {
        let server = folder.serve();
        let online = ["import", "--online", server.ldap(), &suffix];
        let bind = ["--bind-dn", &admin, "--password-file", &password];
        sapwood_ok(online.into_iter().chain(bind));
        // As if its disk had failed.
        std::fs::rename(folder.path(), &away).unwrap();
        server.signal(Signal::TERM);
        server.wait_for("cannot be saved");
        server
    };
    // The one that insists ends it, and what was saved before stays.
    let mut server = serve_and_stop();
    assert!(server.child.try_wait().unwrap().is_none());
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
    std::fs::rename(&away, folder.path()).unwrap();
    assert!(!folder.sapwood_ok("export", &[]).contains("dn:"));

    // Otherwise it goes on until it succeeds.
    let mut server = serve_and_stop();
    std::fs::rename(&away, folder.path()).unwrap();
    assert!(server.child.wait().unwrap().success(), "{}", server.log());
    assert!(folder.sapwood_ok("export", &[]).contains("dc: example"));
}

/// The records of an export, each sorted by line: the order of attributes does not matter.
fn records(ldif: &str) -> Vec<Vec<&str>> {
    let records = ldif
        .split("\n\n")
        .map(|record| record.lines().filter(|line| !line.starts_with("version")));
    let mut records: Vec<Vec<&str>> = records
        .map(|lines| {
            let mut lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            lines[..].sort_unstable();
            lines
        })
        .filter(|record| !record.is_empty())
        .collect();
    records.sort();
    records
}

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
fn a_hang_up_reloads_or_keeps_what_was() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let hang_up = |expected: &str| {
        server.signal(Signal::HUP);
        server.wait_for(expected);
    };
    hang_up("configuration and certificates reloaded");
    std::fs::write(server.certificate(), "no certificate").unwrap();
    hang_up("not reloaded, all stays as it was");
    server.wait_for("tls-cert.pem");
    server.stop();
}

/// A renewal was not noticed until somebody told the server.
#[test]
fn a_certificate_that_was_replaced_is_read_by_itself() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let before = std::fs::read(server.certificate()).unwrap();
    std::fs::write(server.certificate(), "no certificate").unwrap();
    server.wait_for("and cannot be used: ");
    std::fs::write(server.certificate(), before).unwrap();
    server.wait_for("have changed, and were read again");
    server.stop();
}

#[test]
fn a_reload_tells_what_is_in_force_and_what_needs_a_restart() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let reload = || folder.sapwood_ok("reload", &[]);
    let said = reload();
    assert!(
        said.contains("no other setting") && !said.contains("restart"),
        "{said}"
    );
    let path = folder.path().join("sapwood.toml");
    let template = std::fs::read_to_string(&path).unwrap();
    folder.configure(&[
        ("connections_max = 1000", "connections_max = 999"),
        ("threads = 0", "threads = 7"),
        ("hashers_max = 1", "hashers_max = 2"),
    ]);
    let waiting = "needs a restart: limits.hashers_max = 2, threads = 7";
    let first = reload();
    assert!(
        first.contains("in force now: limits.connections_max = 999; "),
        "{first}"
    );
    assert!(first.contains(waiting), "{first}");
    // What waits is told each time, until it has been.
    let second = reload();
    assert!(
        second.contains("no other setting") && second.contains(waiting),
        "{second}"
    );
    server.wait_for(waiting);
    server.stop();
    let server = folder.serve();
    assert!(!reload().contains("restart"));
    // What was started with limits what goes with it.
    let larger = template
        .replace("message_bytes_max = 4194304", "message_bytes_max = 8388608")
        .replace("input_bytes_max = 5242880", "input_bytes_max = 9388608");
    std::fs::write(&path, larger).unwrap();
    let refused = text(&folder.sapwood("reload", &[]).stderr);
    assert!(
        refused.contains("input_bytes_max, which needs a restart"),
        "{refused}"
    );
    server.stop();
}

/// What a command line names is relative to where it is given; what the configuration names, to its own folder.
#[test]
fn a_certificate_on_the_command_line_is_looked_for_in_the_current_folder() {
    let folder = Folder::init(&[]);
    let here = folder.beside("here");
    std::fs::create_dir(&here).unwrap();
    for (from, to) in [("tls-cert.pem", "own.pem"), ("tls-key.pem", "own.key")] {
        std::fs::rename(folder.path().join(from), here.join(to)).unwrap();
    }
    let mut command = sapwood_command();
    command.current_dir(&here);
    command.args(["serve", "../directory", "--listen", "ldaps://127.0.0.1:0"]);
    command.args(["--tls-cert", "own.pem", "--tls-key", "./own.key"]);
    let server = Process::start(&mut command);
    server.wait_for("listening on ldaps:");
    assert!(folder.sapwood_ok("reload", &[]).contains("reloaded"));
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
fn the_demo_runs_once_and_ends() {
    let said = sapwood_ok(["demo", "--once"]);
    assert!(
        said.contains("URL:") && said.contains("ldapsearch -x"),
        "{said}"
    );
    assert!(said.matches("\ndn: ").count() > 3, "{said}");
}

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

#[test]
fn how_a_search_finds_its_entries_is_explained() {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("people.ldif");
    let people = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
                  dn: cn=Ann,dc=example,dc=com\nobjectClass: person\ncn: Ann\nsn: x\ndescription: y\n";
    fs::write(&file, people).unwrap();
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
        fs::write(&file, entries).unwrap();
        let output = folder.sapwood("import", &[&file]);
        let said = text(&output.stdout);
        assert!(
            said.contains(&format!("{added} entries added")),
            "{output:?}"
        );
    }
}
