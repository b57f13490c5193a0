//! PAM meets password policies: Debian's pam_ldap and its daemon nslcd, called by pamtester as `login` would.
//!
//! They have fixed places for their files. So each call runs in a mount namespace of its own, with an `/etc` that it
//! may write and an empty `/run`. Nothing of the machine changes.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{Scratch, fed, program, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX};

const ANN: &str = "uid=ann,dc=example,dc=com";
const PEOPLE: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: cn=policy,dc=example,dc=com
objectClass: device
objectClass: pwdPolicy
cn: policy
pwdAttribute: userPassword
pwdLockout: TRUE
pwdMaxFailure: 2
pwdMustChange: TRUE

dn: uid=ann,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: posixAccount
uid: ann
cn: Ann
sn: Harbor
uidNumber: 4711
gidNumber: 4711
homeDirectory: /home/ann
userPassword: a first password
";

/// Starts the daemon in the namespace, and calls PAM for `ann`. The arguments are what is done, one after the other.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs tmpfs "$SCRATCH/upper"
mkdir "$SCRATCH/upper/changes" "$SCRATCH/upper/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$SCRATCH/upper/changes,workdir=$SCRATCH/upper/work" overlay /etc
mount -t tmpfs tmpfs /run
mkdir /run/nslcd
cp "$SCRATCH/nslcd.conf" /etc/nslcd.conf
chmod 600 /etc/nslcd.conf
cp "$SCRATCH/sapwood" /etc/pam.d/sapwood
"$DEBS/nslcd/usr/sbin/nslcd" --nofork > "$SCRATCH/nslcd.log" 2>&1 &
daemon=$!
until [ -S /run/nslcd/socket ]; do kill -0 "$daemon"; sleep 0.1; done
status=0
"$DEBS/pamtester/usr/bin/pamtester" sapwood ann "$@" || status=$?
kill "$daemon"
exit "$status"
"#;

/// Where `cargo xtask test` has unpacked them.
fn debs() -> PathBuf {
    let debs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debs");
    assert!(
        debs.join("pamtester").is_dir(),
        "{} is missing: cargo xtask test fetches it",
        debs.display()
    );
    debs.canonicalize().unwrap()
}

/// What PAM says to somebody who types this, doing these.
fn pam(server: &Running, typed: &[&str], does: &[&str]) -> (bool, String) {
    let (files, debs) = (Scratch::new(), debs());
    let module = debs.join("libpam-ldapd/lib/x86_64-linux-gnu/security/pam_ldap.so");
    // The daemon looks for the user by a search when the bind was good, unless it is told not to; who must change the
    // password may not search.
    let configuration = format!(
        "uri {}\nbase {SUFFIX}\nbinddn {ADMIN}\nbindpw {PASSWORD}\npam_authc_search NONE\n",
        server.ldap()
    );
    std::fs::write(files.path("nslcd.conf"), configuration).unwrap();
    let lines = ["auth", "account", "password"];
    let lines = lines.map(|kind| format!("{kind} required {} minimum_uid=0\n", module.display()));
    std::fs::write(files.path("sapwood"), lines.concat()).unwrap();
    std::fs::create_dir(files.path("upper")).unwrap();
    let mut command = program("unshare", "util-linux");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args(does)
        .env("SCRATCH", files.arg("."))
        .env("DEBS", &debs);
    let typed: String = typed.iter().map(|line| format!("{line}\n")).collect();
    let output = fed(&mut command, &typed);
    let told = text(&output.stdout) + &text(&output.stderr);
    (output.status.success(), told)
}

fn set_password(server: &Running, password: &str) {
    let mut command = program("ldappasswd", "ldap-utils");
    command.args(["-H", server.ldap(), "-x", "-D", ADMIN, "-w", PASSWORD]);
    succeeded(command.args(["-s", password, ANN]).output().unwrap());
}

#[test]
fn pam_meets_lockout_and_passwords_that_must_be_changed() {
    let folder = Folder::init(&[]);
    let people = folder.beside("people.ldif");
    std::fs::write(&people, PEOPLE).unwrap();
    folder.sapwood_ok("import", &[people.to_str().unwrap()]);
    let policy = format!("cn=policy,{SUFFIX}");
    folder.sapwood_ok("policy", &["--default", &policy]);
    let server = folder.serve();
    let signs_in = |password: &str| pam(&server, &[password], &["authenticate", "acct_mgmt"]);

    let (may, told) = signs_in("a first password");
    assert!(may, "{told}");
    // Two wrong ones lock the account: the right one does not help any more.
    for password in ["wrong", "wronger", "a first password"] {
        let (may, told) = signs_in(password);
        assert!(!may && told.contains("Authentication failure"), "{told}");
    }
    // The helpdesk ends that. What it has set lets her change it, and nothing else.
    set_password(&server, "from the helpdesk");
    let (may, told) = signs_in("from the helpdesk");
    assert!(!may && told.contains("Password must be changed"), "{told}");
    let own = "a password of my own";
    let typed = ["from the helpdesk", own, own];
    let (may, told) = pam(&server, &typed, &["authenticate", "chauthtok"]);
    assert!(may, "{told}");
    let (may, told) = signs_in(own);
    assert!(may, "{told}");
    assert!(!signs_in("from the helpdesk").0);
}
