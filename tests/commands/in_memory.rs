//! Directories in memory, which are saved when their server stops.

use rustix::process::Signal;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{sapwood_ok, text};

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
