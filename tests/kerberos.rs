//! GSSAPI with MIT's Kerberos on the one side and Cyrus SASL, as OpenLDAP's clients have it, on the other.

#![allow(clippy::unwrap_used)]

use std::process::Output;

use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{Process, Scratch, fed, program, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, free_address};

const REALM: &str = "SAPWOOD.TEST";

/// A realm with its key distribution centre, which is stopped when this value is dropped.
struct Kerberos {
    files: Scratch,
    _kdc: Process,
}

impl Kerberos {
    /// One with the service ldap on localhost, and the users ann and bob, whose passwords are their names.
    fn start() -> Self {
        let files = Scratch::new();
        let path = |name| files.arg(name);
        let address = free_address();
        let client = format!(
            "[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\n\
             dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\n\
             [realms]\n{REALM} = {{\nkdc = {address}\n}}\n[domain_realm]\nlocalhost = {REALM}\n\
             [logging]\nkdc = STDERR\n"
        );
        let server = format!(
            "[kdcdefaults]\nkdc_listen = \"\"\nkdc_tcp_listen = {address}\n\
             [realms]\n{REALM} = {{\ndatabase_name = {}\nkey_stash_file = {}\nacl_file = {}\n}}\n",
            path("database"),
            path("stash"),
            path("acl")
        );
        std::fs::write(files.path("krb5.conf"), client).unwrap();
        std::fs::write(files.path("kdc.conf"), server).unwrap();
        let within = |name, package| {
            let mut command = program(name, package);
            command.env("KRB5_CONFIG", files.arg("krb5.conf"));
            command.env("KRB5_KDC_PROFILE", files.arg("kdc.conf"));
            command
        };
        let mut create = within("/usr/sbin/kdb5_util", "krb5-kdc");
        succeeded(
            create
                .args(["create", "-s", "-P", "master"])
                .output()
                .unwrap(),
        );
        let keys = path("keytab");
        for question in [
            "addprinc -pw ann ann",
            "addprinc -pw bob bob",
            "addprinc -randkey ldap/localhost",
            &format!("ktadd -k {keys} ldap/localhost"),
        ] {
            let mut ask = within("/usr/sbin/kadmin.local", "krb5-admin-server");
            succeeded(ask.args(["-q", question]).output().unwrap());
        }
        let kdc = Process::start(within("/usr/sbin/krb5kdc", "krb5-kdc").arg("-n"));
        kdc.wait_for("commencing operation");
        Self { files, _kdc: kdc }
    }

    /// What its services and clients have in their environment.
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("KRB5_CONFIG", self.files.arg("krb5.conf")),
            ("KRB5CCNAME", self.files.arg("tickets")),
            (
                "KRB5RCACHENAME",
                format!("file2:{}", self.files.arg("replays")),
            ),
        ]
    }

    /// Has the clients' next tickets be of this user.
    fn log_in(&self, user: &str) {
        let mut kinit = program("kinit", "krb5-user");
        kinit.envs(self.environment()).arg(user);
        succeeded(fed(&mut kinit, &format!("{user}\n")));
    }

    /// What a client of OpenLDAP says with these arguments more.
    fn ldap_util(&self, name: &str, server: &Running, more: &[&str]) -> Output {
        let mut command = program(name, "ldap-utils");
        command.envs(self.environment());
        command.env("LDAPTLS_CACERT", server.certificate());
        command.args(["-Q", "-N", "-Y", "GSSAPI"]).args(more);
        command.output().unwrap()
    }
}

/// A path as TOML has it.
fn toml(path: &str) -> String {
    format!("{path:?}")
}

#[test]
fn a_ticket_says_who_somebody_is() {
    let kerberos = Kerberos::start();
    let environment = kerberos.environment();
    let environment: Vec<_> = environment
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let folder = Folder::init(&[]);
    let keytab = toml(&kerberos.files.arg("keytab"));
    folder.configure(&[
        ("\nservice = \"\"", "\nservice = \"ldap@localhost\""),
        ("\"/etc/krb5.keytab\"", &keytab),
    ]);
    let server = folder.serve_with(&environment);

    let mut search = program("ldapsearch", "ldap-utils");
    search.args(["-x", "-LLL", "-H", server.ldap(), "-s", "base", "-b", ""]);
    let root = succeeded(search.arg("supportedSASLMechanisms").output().unwrap());
    assert!(root.contains("supportedSASLMechanisms: GSSAPI\n"), "{root}");

    let url = server.ldap_by_name();
    let who_am_i = |more: &[&str]| {
        let args = [&["-H", &*url], more].concat();
        kerberos.ldap_util("ldapwhoami", &server, &args)
    };
    kerberos.log_in("ann");
    for more in [&[][..], &["-ZZ"], &["-O", "maxssf=0"]] {
        let told = succeeded(who_am_i(more));
        assert_eq!(told, "dn:uid=ann,cn=gssapi,cn=auth\n", "{more:?}");
    }
    // A layer that is not offered is not used.
    assert!(!who_am_i(&["-O", "minssf=56"]).status.success());

    // Whom the names stand for is data, as for other mechanisms.
    let changes = "dn: dc=example,dc=com\nchangetype: add\nobjectClass: domain\n\n\
                   dn: uid=ann,dc=example,dc=com\nchangetype: add\nobjectClass: account\n\
                   authzTo: dn.exact:uid=bob,dc=example,dc=com\n\n\
                   dn: uid=bob,dc=example,dc=com\nchangetype: add\nobjectClass: account\n\n\
                   dn: cn=config\nchangetype: modify\nadd: olcAuthzPolicy\nolcAuthzPolicy: to\n-\n\
                   add: olcAuthzRegexp\n\
                   olcAuthzRegexp: uid=([^,]+),cn=gssapi,cn=auth uid=$1,dc=example,dc=com\n";
    let mut modify = program("ldapmodify", "ldap-utils");
    modify.args(["-x", "-D", ADMIN, "-w", PASSWORD, "-H", server.ldap()]);
    succeeded(fed(&mut modify, changes));
    assert_eq!(succeeded(who_am_i(&[])), "dn:uid=ann,dc=example,dc=com\n");
    let bob = "dn:uid=bob,dc=example,dc=com";
    assert_eq!(succeeded(who_am_i(&["-X", bob])), format!("{bob}\n"));
    kerberos.log_in("bob");
    assert_eq!(succeeded(who_am_i(&[])), format!("{bob}\n"));
    let denied = who_am_i(&["-X", "dn:uid=ann,dc=example,dc=com"]);
    assert_eq!(denied.status.code(), Some(49), "{}", text(&denied.stderr));
}

/// Without the keys nothing begins: the operator is told where they belong.
#[test]
fn a_service_without_keys_is_refused_with_the_remedy() {
    let folder = Folder::init(&[]);
    let nothing = folder.name_beside("nothing");
    folder.configure(&[
        ("\nservice = \"\"", "\nservice = \"ldap@localhost\""),
        ("\"/etc/krb5.keytab\"", &toml(&nothing)),
    ]);
    let output = folder.sapwood("serve", &[]);
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains("gssapi.service 'ldap@localhost'"), "{told}");
    assert!(
        told.contains(&format!("gssapi.keytab: {nothing}")),
        "{told}"
    );
}
