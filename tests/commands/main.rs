//! The command line as people and other programs use it.

#![allow(clippy::unwrap_used)]

mod configuration;
mod data;
mod in_memory;
mod init;
mod reload;
mod schema_and_indexes;

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
