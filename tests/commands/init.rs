//! A folder for a directory: made by `init`, named when it is none, served by one server.

use std::os::unix::fs::PermissionsExt;

use sapwood_testkit::SUFFIX;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{sapwood, sapwood_ok, text};

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

#[test]
fn the_demo_runs_once_and_ends() {
    let said = sapwood_ok(["demo", "--once"]);
    assert!(
        said.contains("URL:") && said.contains("ldapsearch -x"),
        "{said}"
    );
    assert!(said.matches("\ndn: ").count() > 3, "{said}");
}
