//! Transactions as another project's client speaks them: the UnboundID LDAP SDK for Java, its API and its `ldapmodify`.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{program, sapwood_ok, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX};

/// The SDK, where `cargo xtask test` puts it.
fn sdk() -> PathBuf {
    let jar =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/jars/unboundid-ldapsdk-7.0.1.jar");
    assert!(
        jar.is_file(),
        "{} is missing: cargo xtask test fetches it",
        jar.display()
    );
    jar
}

fn java() -> Command {
    let mut java = program("java", "default-jdk-headless");
    java.arg("-cp").arg(sdk());
    java
}

/// A served directory with the suffix's entry.
fn served() -> (Folder, Running) {
    let folder = Folder::init(&[]);
    let ldif = folder.beside("suffix.ldif");
    std::fs::write(
        &ldif,
        format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n"),
    )
    .unwrap();
    sapwood_ok([
        "import".as_ref(),
        folder.path().as_os_str(),
        ldif.as_os_str(),
    ]);
    let server = folder.serve();
    (folder, server)
}

#[test]
fn unboundid_api() {
    let (_folder, server) = served();
    let mut java = java();
    java.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/java/Transactions.java"));
    java.args([
        "127.0.0.1",
        &server.port().to_string(),
        ADMIN,
        PASSWORD,
        SUFFIX,
    ]);
    assert!(succeeded(java.output().unwrap()).contains("all is well"));
}

#[test]
fn unboundid_ldapmodify_use_transaction() {
    let (folder, server) = served();
    let modify = |ldif: &str| {
        let file = folder.beside("changes.ldif");
        std::fs::write(&file, ldif).unwrap();
        let mut java = java();
        java.arg("com.unboundid.ldap.sdk.unboundidds.tools.LDAPModify");
        java.args([
            "--hostname",
            "127.0.0.1",
            "--port",
            &server.port().to_string(),
        ]);
        java.args([
            "--bindDN",
            ADMIN,
            "--bindPassword",
            PASSWORD,
            "--useTransaction",
        ]);
        java.arg("--ldifFile").arg(&file).arg("--defaultAdd");
        let output = java.output().unwrap();
        (
            output.status.success(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let entries = || folder.sapwood_ok("export", &["--filter", "(objectClass=device)"]);
    let device =
        |name: &str| format!("dn: cn={name},{SUFFIX}\nobjectClass: device\ncn: {name}\n\n");
    let rename = format!("dn: cn=a,{SUFFIX}\nchangetype: moddn\nnewrdn: cn=c\ndeleteoldrdn: 1\n\n");
    let (succeeds, said) = modify(&(device("a") + &device("b") + &rename));
    assert!(succeeds, "{said}");
    let all = entries();
    assert!(all.contains("dn: cn=b,") && all.contains("dn: cn=c,") && !all.contains("dn: cn=a,"));
    // The second update fails, so that the first one does not take place.
    let (succeeds, said) = modify(&(device("d") + &device("b") + &device("e")));
    assert!(!succeeds, "{said}");
    assert_eq!(entries(), all, "{said}");
}
