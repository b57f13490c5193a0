//! Attributes that slapd-config(5) has and that are not set in `cn=config` here: what takes their place.

/// What sets an attribute, for the person who tried to set it here; none if nothing is known of it. A name that ends
/// with `*` stands for all that begin so.
pub(crate) fn remedy(attribute: &str) -> Option<&'static str> {
    let is_it = |name: &str| match name.strip_suffix('*') {
        Some(start) => {
            let begins = attribute.get(..start.len());
            begins.is_some_and(|begins| begins.eq_ignore_ascii_case(start))
        }
        None => attribute.eq_ignore_ascii_case(name),
    };
    let found = ELSEWHERE
        .iter()
        .find(|(names, _)| names.iter().any(|name| is_it(name)));
    found.map(|(_, remedy)| *remedy)
}

const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["olcRootPW"],
        "'sapwood passwd DIR' sets the administrator's password",
    ),
    (
        &["olcRootDN"],
        "the key dn under [admin] of sapwood.toml names the administrator",
    ),
    (
        &["olcTLS*"],
        "the keys under [tls] of sapwood.toml name the certificate and its key; 'sapwood reload DIR' reads them anew",
    ),
    (
        &["olcLogLevel", "olcLogFile*"],
        "the keys under [log] of sapwood.toml say what is logged to standard error",
    ),
    (
        &["olcSuffix"],
        "'sapwood suffix DIR add DN' adds a naming context",
    ),
    (
        &["olcDbDirectory"],
        "the data stand in the folder DIR that 'sapwood serve DIR' serves; 'sapwood backup' and 'sapwood restore' move \
         them",
    ),
    (
        &[
            "olcDbMaxSize",
            "olcDbNoSync",
            "olcDbCheckpoint",
            "olcDbMaxReaders",
            "olcDbEnvFlags",
            "olcDbMode",
        ],
        "the store needs no such setting: it grows by itself, and 'sapwood stat DIR' shows its size",
    ),
    (
        &[
            "olcAttributeTypes",
            "olcObjectClasses",
            "olcLdapSyntaxes",
            "olcObjectIdentifier",
        ],
        "cn=schema,cn=config and the entries below it have the schema",
    ),
    (
        &["olcDisallows", "olcRequires"],
        "olcAccess says what who is not bound may do",
    ),
    (
        &["olcThreads", "olcToolThreads", "olcListenerThreads"],
        "the key threads of sapwood.toml says how many threads serve connections",
    ),
    (
        &[
            "olcIdleTimeout",
            "olcWriteTimeout",
            "olcConnMaxPending*",
            "olcSockbufMaxIncoming*",
        ],
        "the keys under [limits] of sapwood.toml bound connections",
    ),
    (
        &["olcServerID"],
        "the key server_id of sapwood.toml names the server",
    ),
    (
        &["olcLastBind*"],
        "the last bind is kept in pwdLastSuccess while the overlay ppolicy is there",
    ),
    (
        &["olcPPolicyCheckModule"],
        "what is asked of new passwords besides their length is built in",
    ),
    (
        &["olcPPolicyForwardUpdates", "olcPPolicyDisableWrite"],
        "what policies keep of binds is kept by the server that has the data",
    ),
    (
        &["olcMemberOfDN", "olcMemberOfDanglingError"],
        "memberOf is computed when it is read, so that nothing is written",
    ),
    (&["olcPasswordHash"], "passwords are hashed with Argon2id"),
];

/// The modules of OpenLDAP whose work is done here without one.
const BUILT_IN: &[&str] = &[
    "back_mdb",
    "unique",
    "constraint",
    "refint",
    "memberof",
    "valsort",
    "deref",
    "dynlist",
    "dds",
    "ppolicy",
    "otp",
    "argon2",
    "pw-argon2",
    "pw-sha2",
    "pw-pbkdf2",
];

/// Whether a value of olcModuleLoad names a module whose work is done here: `{0}back_mdb.la`, also with a path before
/// and arguments behind it.
pub(crate) fn is_built_in(module: &str) -> bool {
    let module = match module.strip_prefix('{') {
        Some(ordered) => ordered.split_once('}').map_or("", |(_, module)| module),
        None => module,
    };
    let path = module.split_whitespace().next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let name = file.split('.').next().unwrap_or_default();
    BUILT_IN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_without_case_and_by_their_beginnings() {
        assert!(remedy("OLCROOTPW").unwrap().contains("sapwood passwd"));
        assert!(remedy("olcTLSCertificateFile").unwrap().contains("[tls]"));
        assert!(
            remedy("olcTL").is_none() && remedy("olcRootPWx").is_none() && remedy("ü").is_none()
        );
    }

    #[test]
    fn modules_are_known_by_their_files() {
        for module in [
            "back_mdb",
            "{0}back_mdb.la",
            "/usr/lib/ldap/back_mdb.so",
            "{12}argon2 m=65536",
        ] {
            assert!(is_built_in(module), "{module}");
        }
        for module in ["", "{0}", "pcache", "back_mdb/x", "{back_mdb"] {
            assert!(!is_built_in(module), "{module}");
        }
    }
}
