//! Directories that one server copies from another one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{ModifyDnRequest, Request, Scope, SearchRequest};

use crate::requests::message;
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

/// Adds, changes, renames and deletes, with names of their own in each round. There is somebody named `p0`.
pub fn change(client: &mut Client, round: &str) {
    let new = format!("new-{round}");
    client.tell(&person(&new)).succeeded();
    let gone = format!("gone-{round}");
    client.tell(&person(&gone)).succeeded();
    let changes: &[requests::Change<'_>] = &[
        (Replace, "sn", &["second"]),
        (Add, "description", &[round]),
        (
            Replace,
            "userPassword",
            &["{SSHA}BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"],
        ),
    ];
    let modify = requests::modify(1, &dn("p0"), changes);
    client.tell(&modify).succeeded();
    let delete = message(1, Request::Delete(&dn(&gone)));
    client.tell(&delete).succeeded();
    // Another entry gets the name of one that has gone.
    client.tell(&person(&gone)).succeeded();
    let (unit, renamed) = (
        format!("ou=Unit {round},{SUFFIX}"),
        format!("ou=Renamed {round}"),
    );
    let attributes = [("objectClass", "organizationalUnit"), ("ou", round)];
    let add = requests::add(1, &unit, &attributes);
    client.tell(&add).succeeded();
    let below = format!("ou=Below,{unit}");
    let attributes = [("objectClass", "organizationalUnit"), ("ou", "Below")];
    let add = requests::add(1, &below, &attributes);
    client.tell(&add).succeeded();
    let rename = message(1, requests::rename(&unit, &renamed));
    client.tell(&rename).succeeded();
    let moved = format!("uid=moved-{round}");
    let rename = message(1, requests::rename(&dn(&new), &moved));
    client.tell(&rename).succeeded();
    // Last, as slapd 2.5 cannot rename an entry after another one was moved below it.
    let name = dn(&format!("moved-{round}"));
    let Request::ModifyDn(request) = requests::rename(&name, &moved) else {
        panic!("no rename")
    };
    let unit = format!("{renamed},{SUFFIX}");
    let request = ModifyDnRequest {
        new_superior: Some(&unit),
        ..request
    };
    let rename = message(1, Request::ModifyDn(request));
    client.tell(&rename).succeeded();
}

/// By name, lines of an attribute and a value.
pub type Entries = BTreeMap<String, BTreeSet<String>>;

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

/// Waits until several servers that all take updates have the same; what that is, by name.
#[track_caller]
pub fn all_become_equal(servers: &mut [&mut Client]) -> Entries {
    let mut found = Vec::new();
    for _ in 0..1200 {
        let all = servers.iter_mut();
        found = all
            .map(|server| {
                let entries = entries(server, &["structuralObjectClass"]).into_iter();
                entries.map(|(dn, lines)| (in_order(&dn), lines)).collect()
            })
            .collect::<Vec<Entries>>();
        if found.windows(2).all(|pair| pair[0] == pair[1]) {
            return found.swap_remove(0);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for other in &found[1..] {
        assert_eq!(other, &found[0]);
    }
    found.swap_remove(0)
}

/// A DN with the parts of each RDN in the order that slapd writes them in. No part has an escaped comma or plus.
fn in_order(dn: &str) -> String {
    let rdns = dn.split(',').map(|rdn| {
        let mut parts: Vec<&str> = rdn.split('+').collect();
        parts.sort_unstable();
        parts.join("+")
    });
    rdns.collect::<Vec<_>>().join(",")
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
