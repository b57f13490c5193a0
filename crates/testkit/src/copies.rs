//! Directories that one server copies from another one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Request, Scope, SearchRequest};

use crate::{Client, SUFFIX, requests};

/// The entry above the people.
pub const PEOPLE: &str = "ou=People,dc=example,dc=com";

/// What a copy has to have besides what users may change.
const OPERATIONAL: [&str; 6] = [
    "entryUUID",
    "entryCSN",
    "creatorsName",
    "createTimestamp",
    "modifiersName",
    "modifyTimestamp",
];

/// The name of one of the people.
pub fn dn(uid: &str) -> String {
    format!("uid={uid},{PEOPLE}")
}

/// The request that adds one of them, with a password that no server hashes.
pub fn person(uid: &str) -> Vec<u8> {
    let attributes = [
        ("objectClass", "inetOrgPerson"),
        ("uid", uid),
        ("cn", uid),
        ("sn", "first"),
        ("userPassword", "{SSHA}AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    ];
    requests::add(1, &dn(uid), &attributes)
}

/// Adds the two entries above the people.
pub fn add_top(client: &mut Client) {
    let top = [("objectClass", "domain"), ("dc", "example")];
    client.tell(&requests::add(1, SUFFIX, &top)).succeeded();
    let unit = [("objectClass", "organizationalUnit"), ("ou", "People")];
    client.tell(&requests::add(1, PEOPLE, &unit)).succeeded();
}

/// By name, lines of an attribute and a value.
type Entries = BTreeMap<String, BTreeSet<String>>;

/// All entries of a server, with all that a copy has to have.
fn entries(client: &mut Client, besides: &[&str]) -> Entries {
    let attributes = ["*"].iter().chain(&OPERATIONAL).chain(besides);
    let list: OctetStringsBuf = attributes.collect();
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest {
        attributes: list.view(),
        ..SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter())
    };
    let answers = client.ask_all(Request::Search(request), &[]);
    let found = answers.iter().filter_map(|answer| {
        let dn = answer.entry.clone()?;
        let lines = answer.attributes.iter().flat_map(|(name, values)| {
            let text = move |value: &Vec<u8>| format!("{name}: {}", String::from_utf8_lossy(value));
            values.iter().map(text)
        });
        Some((dn, lines.collect()))
    });
    found.collect()
}

/// Waits until a copy has what its provider has, with these attributes besides. One that does not get there is waited
/// for in vain.
#[track_caller]
pub fn become_equal(provider: &mut Client, copy: &mut Client, besides: &[&str]) {
    let expected = entries(provider, besides);
    assert!(!expected.is_empty());
    let mut found = Entries::new();
    for _ in 0..1200 {
        found = entries(copy, besides);
        if found == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(found, expected);
}
