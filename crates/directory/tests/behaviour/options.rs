//! Attribute options: language tags and what is registered; all others are not recognised (RFC 4512 §2.5).

use crate::made::{Directory, over, peopled};
use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Config, Options};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{
    add, apply, compare, config, modify, options, refused, succeed,
};

use crate::query::{Query, query, search};

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

#[test]
fn what_is_not_recognised_is_refused_in_updates() {
    let directory = peopled();
    for (description, value) in [
        ("cn;y-z", "x"),
        ("description;binary", "x"),
        ("cn;lang-de;y", "x"),
        ("cn;lang-", "x"),
        ("cn;lang-en-", "x"),
        ("cn;lang-123456789", "x"),
        ("userCertificate", "x"),
    ] {
        for kind in [Add, Replace, Delete] {
            let changed = modify(ANNE, &[(kind, description, &[value])]);
            let outcome = refused(&directory, changed, ResultCode::UndefinedAttributeType);
            assert!(
                outcome.diagnostic.contains(description),
                "{}",
                outcome.diagnostic
            );
        }
        let lines = format!("objectClass: inetOrgPerson\ncn: x\nsn: x\n{description}: {value}");
        let added = add("cn=x,ou=People,dc=example,dc=com", &lines);
        refused(&directory, added, ResultCode::UndefinedAttributeType);
    }
    for description in [
        "cn;lang-de",
        "cn;LANG-en-US;x-any",
        "description;x-any",
        "userPKCS12;binary",
    ] {
        succeed(&directory, modify(ANNE, &[(Add, description, &["x"])]));
    }
    // A certificate with the option is judged as a certificate.
    let certificate = modify(ANNE, &[(Add, "userCertificate;binary", &["x"])]);
    refused(&directory, certificate, ResultCode::InvalidAttributeSyntax);
}

#[test]
fn what_is_not_recognised_finds_nothing() {
    let directory = peopled();
    succeed(
        &directory,
        modify(
            ANNE,
            &[(Add, "cn;lang-de", &["Anna"]), (Add, "cn;x-a", &["An"])],
        ),
    );
    let finds = |filter: &str| {
        let found = search(&directory, &query(ANNE, Scope::Base, filter));
        assert_eq!(found.code, ResultCode::Success, "{filter}");
        found.entries.len() == 1
    };
    for filter in [
        "(cn;y-z=*)",
        "(!(cn;y-z=*))",
        "(cn;binary=anna)",
        "(!(cn;binary=anna))",
    ] {
        assert!(!finds(filter), "{filter} is Undefined");
    }
    for filter in [
        "(cn;lang-=anna)",
        "(cn;lang-de=anna)",
        "(cn;x-a=an)",
        "(!(cn;lang-fr=*))",
    ] {
        assert!(finds(filter), "{filter}");
    }
    let asked = Query {
        attributes: &["cn;y-z", "cn;binary", "cn;lang-"],
        ..query(ANNE, Scope::Base, "(objectClass=*)")
    };
    let lines = &search(&directory, &asked).entries[0].1;
    assert_eq!(lines.iter().collect::<Vec<_>>(), ["cn;lang-de: Anna"]);
    let compared =
        |description: &str| compare(&directory, ANNE, description, "anna", Default::default()).code;
    for (description, code) in [
        ("cn;lang-", ResultCode::CompareTrue),
        ("cn;lang-de-", ResultCode::CompareTrue),
        ("cn;lang-fr-", ResultCode::NoSuchAttribute),
        ("cn;x-a", ResultCode::CompareFalse),
        ("cn;y-z", ResultCode::UndefinedAttributeType),
    ] {
        assert_eq!(compared(description), code, "{description}");
    }
}

/// An option is taken from the list while values are stored with it.
#[test]
fn what_was_recognised_once_is_read_and_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let open = |create| {
        let store = sapwood_store::Options::new().create(create);
        over(Embedded::open(&path, &store).unwrap())
    };
    let config = Config {
        indexes: Vec::new(),
        ..config()
    };
    let directory = Directory::create_on(open(true), &config, options()).unwrap();
    sapwood_testkit::directories::seed(&directory);
    succeed(&directory, sapwood_testkit::directories::person("anne"));
    succeed(
        &directory,
        modify(ANNE, &[(Add, "cn;x-old", &["Anna", "Anni"])]),
    );
    drop(directory);

    let directory = Directory::open_on(open(false), Options::new(Schema::standard())).unwrap();
    let whole = || {
        search(&directory, &query(ANNE, Scope::Base, "(objectClass=*)")).entries[0]
            .1
            .clone()
    };
    assert!(whole().contains("cn;x-old: Anna"));
    succeed(&directory, modify(ANNE, &[(Replace, "sn", &["other"])]));
    assert!(whole().contains("cn;x-old: Anni"));
    let added = modify(ANNE, &[(Add, "cn;x-old", &["x"])]);
    refused(&directory, added, ResultCode::UndefinedAttributeType);
    succeed(&directory, modify(ANNE, &[(Delete, "cn;x-old", &["anna"])]));
    succeed(&directory, modify(ANNE, &[(Delete, "CN;X-OLD", &[])]));
    assert!(!whole().iter().any(|line| line.contains("x-old")));
    let never = apply(&directory, modify(ANNE, &[(Delete, "cn;x-never", &[])]));
    assert_eq!(never.code, ResultCode::UndefinedAttributeType);
}
