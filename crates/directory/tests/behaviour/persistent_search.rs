//! Persistent searches: what there is, then each change, as what it came to.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sapwood_directory::{
    Budget, Error, Identity, Persistent, Requester, SearchOptions, Step, TimedUuids, Wire,
    renew_feed,
};
use sapwood_ldap::controls::{
    ChangeType, ChangeTypes, Controls, ENTRY_CHANGE_NOTIFICATION, EntryChange, PersistentSearch,
};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{
    Ticking, add, apply, as_admin, delete, modify, person, rename, seed, succeed,
};
use sapwood_testkit::{Answer, SUFFIX};

use crate::On;
use crate::made::{Directory, engine, in_memory, in_stores};
use crate::query::{Query, asked, query};

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const CONFIG: &str = "olcDatabase={1}mdb,cn=config";

const ALL: PersistentSearch = PersistentSearch {
    types: ChangeTypes::ALL,
    changes_only: true,
    notifies: true,
};

fn dn(uid: &str) -> String {
    format!("uid={uid},{PEOPLE}")
}

/// An entry as it is told: what has happened to it, its DN, and what that was before.
type Told = (Option<ChangeType>, String, Option<String>);

fn told(kind: ChangeType, dn: String) -> Told {
    (Some(kind), dn, None)
}

/// A persistent search of a directory, and all that it has answered.
struct Watch<'d> {
    directory: &'d Directory,
    requester: Arc<Requester>,
    search: Persistent<On>,
    /// Bytes that a step may send.
    room: usize,
    ended: Option<ResultCode>,
}

impl<'d> Watch<'d> {
    fn new(directory: &'d Directory, query: &Query<'_>, wanted: PersistentSearch) -> Watch<'d> {
        let requester = directory.requester(query.identity.clone());
        let snapshot = directory.snapshot().unwrap();
        let search = asked(query, |request| {
            let options = query.options.clone();
            Persistent::new(snapshot, &requester, request, options, wanted)
        });
        Watch {
            directory,
            requester,
            search,
            room: 1 << 20,
            ended: None,
        }
    }

    /// All that it tells until it waits or ends.
    fn answers(&mut self) -> Result<Vec<Answer>, Error> {
        let mut out = Vec::new();
        let mut room = self.room;
        loop {
            let budget = Budget {
                entries: 2,
                work: 1 << 20,
                out_bytes: out.len() + room,
            };
            room = self.room;
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            match self.search.step(&mut wire, budget)? {
                Step::More => {}
                Step::Room(bytes) => room = bytes,
                Step::Fetch => self.search.snapshot().unwrap().fetch()?,
                Step::Wait => break,
                Step::Done(outcome) => {
                    self.ended = Some(outcome.code);
                    break;
                }
            }
        }
        Ok(Answer::all(&out))
    }

    fn told(&mut self) -> Vec<Told> {
        let answers = self.answers().unwrap().into_iter();
        let entries = answers.map(|answer| {
            let mut controls = answer.controls.iter();
            let notification = controls.find(|(oid, _)| oid == ENTRY_CHANGE_NOTIFICATION);
            let change = notification.map(|(_, value)| EntryChange::decode(value).unwrap());
            let previous = change.and_then(|change| change.previous_dn.map(str::to_owned));
            let kind = change.map(|change| change.kind);
            (kind, answer.entry.unwrap(), previous)
        });
        entries.collect()
    }

    /// The same of what has changed since it was last asked.
    fn news(&mut self) -> Vec<Told> {
        assert!(self.search.waits());
        let snapshot = self.directory.snapshot().unwrap();
        self.search.go_on(snapshot, &self.requester);
        self.told()
    }
}

fn people(directory: &Directory, uids: &[&str]) {
    seed(directory);
    uids.iter().for_each(|uid| succeed(directory, person(uid)));
}

#[test]
fn what_there_is_comes_first_and_then_each_change() {
    for directory in [in_memory, in_stores] {
        let directory = directory();
        people(&directory, &["a", "b"]);
        let wanted = PersistentSearch {
            changes_only: false,
            ..ALL
        };
        let query = query(PEOPLE, Scope::OneLevel, "(objectClass=person)");
        let mut watch = Watch::new(&directory, &query, wanted);
        let mut existing = watch.told();
        existing.sort_by(|one, other| one.1.cmp(&other.1));
        assert_eq!(existing, [(None, dn("a"), None), (None, dn("b"), None)]);
        assert_eq!(watch.news(), []);
        succeed(&directory, person("c"));
        assert_eq!(watch.news(), [told(ChangeType::Add, dn("c"))]);
        succeed(&directory, modify(&dn("a"), &[(Replace, "sn", &["x"])]));
        assert_eq!(watch.news(), [told(ChangeType::Modify, dn("a"))]);
        succeed(&directory, rename(&dn("b"), "uid=d", true, None));
        let renamed = (Some(ChangeType::ModDn), dn("d"), Some(dn("b")));
        assert_eq!(watch.news(), [renamed]);
        succeed(&directory, delete(&dn("d")));
        assert_eq!(watch.news(), [told(ChangeType::Delete, dn("d"))]);
        assert_eq!(watch.news(), []);
    }
}

#[test]
fn changes_are_told_as_what_they_came_to() {
    let directory = in_memory();
    people(&directory, &["a", "b", "c"]);
    let query = query(SUFFIX, Scope::Subtree, "(objectClass=*)");
    let mut watch = Watch::new(&directory, &query, ALL);
    assert_eq!(watch.told(), [], "what there is was not asked for");
    let describe = |uid: &str| modify(&dn(uid), &[(Replace, "description", &["x"])]);
    // Added and changed: added.
    succeed(&directory, person("d"));
    succeed(&directory, describe("d"));
    // Changed twice, and changed and deleted.
    succeed(&directory, describe("a"));
    succeed(&directory, describe("b"));
    succeed(&directory, modify(&dn("a"), &[(Replace, "sn", &["y"])]));
    succeed(&directory, delete(&dn("b")));
    // Added and deleted: nothing.
    succeed(&directory, person("e"));
    succeed(&directory, delete(&dn("e")));
    // Renamed twice, and changed.
    succeed(&directory, rename(&dn("c"), "uid=f", true, None));
    succeed(&directory, describe("f"));
    succeed(&directory, rename(&dn("f"), "uid=g", true, None));
    let expected = [
        told(ChangeType::Add, dn("d")),
        told(ChangeType::Modify, dn("a")),
        told(ChangeType::Delete, dn("b")),
        (Some(ChangeType::ModDn), dn("g"), Some(dn("c"))),
    ];
    assert_eq!(watch.news(), expected);
}

#[test]
fn only_what_is_asked_for_is_told() {
    let directory = in_memory();
    people(&directory, &["a", "b"]);
    let other = "ou=Other,dc=example,dc=com";
    succeed(
        &directory,
        add(other, "objectClass: organizationalUnit\nou: Other"),
    );
    let query = query(PEOPLE, Scope::Subtree, "(sn=a*)");
    let mut watch = Watch::new(&directory, &query, ALL);
    let only_deleted = PersistentSearch {
        types: ChangeType::Delete.into(),
        notifies: false,
        ..ALL
    };
    let mut deletions = Watch::new(&directory, &query, only_deleted);
    assert_eq!((watch.told(), deletions.told()), (vec![], vec![]));
    let give = |uid: &str, sn: &str| modify(&dn(uid), &[(Replace, "sn", &[sn])]);
    succeed(&directory, give("b", "c"));
    succeed(&directory, person("a2"));
    let outside = format!("uid=a3,{other}");
    let lines = "objectClass: inetOrgPerson\nuid: a3\ncn: a\nsn: a3";
    succeed(&directory, add(&outside, lines));
    assert_eq!(watch.news(), [told(ChangeType::Add, dn("a2"))]);
    // It comes into the scope, and another one comes to match.
    succeed(&directory, rename(&outside, "uid=a3", true, Some(PEOPLE)));
    succeed(&directory, give("b", "ab"));
    let expected = [
        (Some(ChangeType::ModDn), dn("a3"), Some(outside)),
        told(ChangeType::Modify, dn("b")),
    ];
    assert_eq!(watch.news(), expected);
    // What was deleted is held against the filter as it was.
    succeed(&directory, give("a", "z"));
    assert_eq!(watch.news(), []);
    succeed(&directory, delete(&dn("a")));
    succeed(&directory, delete(&dn("b")));
    assert_eq!(watch.news(), [told(ChangeType::Delete, dn("b"))]);
    // To the other one `a` is gone as it was when it asked last, before all that.
    let gone = [(None, dn("a"), None)];
    assert_eq!(deletions.news(), gone, "and without notifications");
}

#[test]
fn who_may_not_see_an_entry_hears_nothing_of_it() {
    let directory = in_memory();
    people(&directory, &["a", "hidden"]);
    let rules = [
        "{0}to dn.regex=\"^uid=hidden\" by * none",
        "{1}to * by users read",
    ];
    succeed(
        &directory,
        modify(CONFIG, &[(Replace, "olcAccess", &rules)]),
    );
    let snapshot = directory.snapshot().unwrap();
    let found = snapshot.through(|snapshot| snapshot.credentials(&dn("a"), 0));
    let found = found.unwrap().unwrap();
    let identity = Identity::User {
        entry: found.entry,
        dn: found.dn,
    };
    let query = Query {
        identity,
        ..query(PEOPLE, Scope::OneLevel, "(objectClass=*)")
    };
    let mut watch = Watch::new(&directory, &query, ALL);
    assert_eq!(watch.told(), []);
    succeed(&directory, person("hidden2"));
    succeed(
        &directory,
        modify(&dn("hidden"), &[(Replace, "sn", &["x"])]),
    );
    succeed(&directory, delete(&dn("hidden2")));
    succeed(&directory, person("b"));
    assert_eq!(watch.news(), [told(ChangeType::Add, dn("b"))]);
    succeed(&directory, person("hidden3"));
    assert_eq!(watch.news(), []);
    succeed(&directory, delete(&dn("hidden3")));
    assert_eq!(watch.news(), []);
    // What it was called before is hidden, too.
    succeed(&directory, rename(&dn("hidden"), "uid=c", true, None));
    let shown = [told(ChangeType::ModDn, dn("c"))];
    assert_eq!(watch.news(), shown);
    succeed(&directory, rename(&dn("c"), "uid=hidden", true, None));
    assert_eq!(watch.news(), []);
    // The rules that are in force by then count.
    succeed(
        &directory,
        modify(
            CONFIG,
            &[(Replace, "olcAccess", &["{0}to * by self read by * none"])],
        ),
    );
    succeed(&directory, person("d"));
    watch.news();
    let refused = Some(ResultCode::InsufficientAccessRights);
    assert!(watch.ended == refused || watch.ended.is_none());
    succeed(&directory, person("e"));
    if watch.ended.is_none() {
        assert_eq!(watch.news(), []);
    }
}

#[test]
fn a_search_ends_when_it_may_not_go_on() {
    let directory = in_memory();
    people(&directory, &["a"]);
    let ended = |query: &Query<'_>| {
        let mut watch = Watch::new(&directory, query, ALL);
        watch.told();
        watch.ended
    };
    let nowhere = query("ou=Nowhere,dc=example,dc=com", Scope::Base, "(cn=*)");
    assert_eq!(ended(&nowhere), Some(ResultCode::NoSuchObject));
    let synthetic = query("cn=config", Scope::Subtree, "(cn=*)");
    assert_eq!(ended(&synthetic), Some(ResultCode::UnwillingToPerform));
    let asserting = |filter: &str| {
        let filter = sapwood_ldap::filter_text::parse(filter).unwrap();
        let options = SearchOptions {
            assertion: Some(filter),
            ..SearchOptions::default()
        };
        Query {
            options,
            ..query(PEOPLE, Scope::Subtree, "(cn=*)")
        }
    };
    let failed = Some(ResultCode::AssertionFailed);
    assert_eq!(ended(&asserting("(ou=Nobody)")), failed);
    assert_eq!(ended(&asserting("(ou=People)")), None);
    let limited = Query {
        size_limit: 2,
        ..query(PEOPLE, Scope::Subtree, "(sn=*)")
    };
    let mut watch = Watch::new(&directory, &limited, ALL);
    watch.told();
    succeed(&directory, person("b"));
    succeed(&directory, person("c"));
    assert_eq!(watch.news().len(), 2);
    succeed(&directory, person("d"));
    assert_eq!(watch.news(), []);
    assert_eq!(watch.ended, Some(ResultCode::SizeLimitExceeded));
    // The feed begins anew.
    let mut watch = Watch::new(&directory, &query(PEOPLE, Scope::Subtree, "(cn=*)"), ALL);
    watch.told();
    renew_feed(directory.engine(), &TimedUuids).unwrap();
    let snapshot = directory.snapshot().unwrap();
    watch.search.go_on(snapshot, &watch.requester.clone());
    let lost = watch.answers().unwrap_err();
    let too_old = sapwood_directory::engine::Error::TooOld;
    assert_eq!(lost.to_string(), Error::Engine(too_old).to_string());
}

#[test]
fn the_base_may_go_and_come_back() {
    let directory = in_memory();
    people(&directory, &[]);
    let query = query(PEOPLE, Scope::Subtree, "(objectClass=*)");
    let mut watch = Watch::new(&directory, &query, ALL);
    watch.told();
    succeed(&directory, delete(PEOPLE));
    assert_eq!(watch.news(), [told(ChangeType::Delete, PEOPLE.to_owned())]);
    let other = "ou=Other,dc=example,dc=com";
    let unit =
        |dn: &str, name: &str| add(dn, &format!("objectClass: organizationalUnit\nou: {name}"));
    succeed(&directory, unit(other, "Other"));
    assert_eq!(watch.news(), []);
    succeed(&directory, unit(PEOPLE, "People"));
    assert_eq!(watch.news(), [told(ChangeType::Add, PEOPLE.to_owned())]);
}

#[test]
fn a_large_commit_is_told_whole_with_little_room() {
    const COUNT: usize = 600;
    let directory = in_memory();
    people(&directory, &[]);
    let query = query(PEOPLE, Scope::OneLevel, "(uid=*)");
    let mut watch = Watch::new(&directory, &query, ALL);
    watch.told();
    watch.room = 100;
    let uids: Vec<String> = (0..COUNT).map(|at| format!("p{at:03}")).collect();
    let updates = uids.iter().map(|uid| as_admin(person(uid)));
    let updates: Vec<_> = updates.collect();
    let mut applied = directory.apply(&updates).unwrap();
    sapwood_directory::Ticket::wait(applied.ticket.take().unwrap()).unwrap();
    let news = watch.news();
    let expected: Vec<_> = uids
        .iter()
        .map(|uid| told(ChangeType::Add, dn(uid)))
        .collect();
    assert_eq!(news, expected);
}

#[test]
fn the_client_s_time_limit_goes_on_while_it_waits() {
    let options = sapwood_directory::Options {
        clock: Arc::new(Ticking::default()),
        ..sapwood_testkit::directories::options()
    };
    let config = sapwood_testkit::directories::config();
    let directory = Directory::create_on(engine(), &config, options).unwrap();
    people(&directory, &["a"]);
    let filter = sapwood_ldap::filter_text::parse("(cn=*)").unwrap();
    let request = sapwood_ldap::message::SearchRequest {
        time_limit: 1_000,
        ..sapwood_ldap::message::SearchRequest::new(PEOPLE, Scope::Subtree, filter.as_filter())
    };
    let requester = directory.requester(sapwood_testkit::directories::admin());
    let snapshot = directory.snapshot().unwrap();
    // That of the server is for what there is.
    let options = SearchOptions {
        deadline_micros: Some(u64::MAX),
        ..SearchOptions::default()
    };
    let search = Persistent::new(snapshot, &requester, &request, options, ALL);
    let deadline = search.deadline_micros().unwrap();
    assert!(deadline < u64::MAX);
    let mut watch = Watch {
        directory: &directory,
        requester,
        search,
        room: 1 << 20,
        ended: None,
    };
    watch.told();
    for uid in 0..1_000 {
        if watch.ended.is_some() {
            break;
        }
        succeed(&directory, person(&format!("p{uid}")));
        watch.news();
    }
    assert_eq!(watch.ended, Some(ResultCode::TimeLimitExceeded));
}

/// One update of few names, so that many collide.
#[derive(Clone, Debug)]
enum Change {
    Add(u8),
    Delete(u8),
    Modify(u8, u8),
    Rename(u8, u8),
    /// What has changed is told.
    Tell,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => (0..6u8).prop_map(Change::Add),
        2 => (0..6u8).prop_map(Change::Delete),
        3 => (0..6u8, 0..3u8).prop_map(|(uid, sn)| Change::Modify(uid, sn)),
        3 => (0..6u8, 0..6u8).prop_map(|(from, to)| Change::Rename(from, to)),
        2 => Just(Change::Tell),
    ];
    prop::collection::vec(change, 1..40)
}

proptest! {
    #![proptest_config(crate::made::random(24))]

    /// Who does what they are told has what there is, in the end and at each time they were told.
    #[test]
    fn who_follows_has_what_there_is(changes in changes(), stores in any::<bool>()) {
        let directory = if stores { in_stores() } else { in_memory() };
        people(&directory, &["u0", "u1"]);
        let query = query(PEOPLE, Scope::OneLevel, "(uid=*)");
        let wanted = PersistentSearch { changes_only: false, ..ALL };
        let mut watch = Watch::new(&directory, &query, wanted);
        let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut follow = |answers: Vec<Answer>| {
            for answer in answers {
                let dn = answer.entry.clone().unwrap();
                let change = answer.controls.first();
                let change = change.map(|(_, value)| EntryChange::decode(value).unwrap());
                if let Some(previous) = change.and_then(|change| change.previous_dn) {
                    // Another entry may have that name by now, if it was told before.
                    if known.get(previous).is_some_and(|known| *known == answer.values("cn")) {
                        known.remove(previous);
                    }
                }
                match change.map(|change| change.kind) {
                    Some(ChangeType::Delete) => {
                        if known.get(&dn).is_some_and(|known| *known == answer.values("cn")) {
                            known.remove(&dn);
                        }
                    }
                    _ => {
                        known.insert(dn, answer.values("cn"));
                    }
                }
            }
            known.clone()
        };
        follow(watch.answers().unwrap());
        let mut names = 0;
        for change in changes.into_iter().chain([Change::Tell]) {
            let uid = |number: u8| dn(&format!("u{number}"));
            match change {
                Change::Add(number) => {
                    names += 1;
                    let lines = format!(
                        "objectClass: inetOrgPerson\nuid: u{number}\ncn: entry {names}\nsn: x"
                    );
                    apply(&directory, add(&uid(number), &lines));
                }
                Change::Delete(number) => {
                    apply(&directory, delete(&uid(number)));
                }
                Change::Modify(number, sn) => {
                    let sn = sn.to_string();
                    apply(&directory, modify(&uid(number), &[(Replace, "sn", &[&sn])]));
                }
                Change::Rename(from, to) => {
                    apply(&directory, rename(&uid(from), &format!("uid=u{to}"), true, None));
                }
                Change::Tell => {
                    let snapshot = directory.snapshot().unwrap();
                    watch.search.go_on(snapshot, &watch.requester.clone());
                    let known = follow(watch.answers().unwrap());
                    let there = crate::query::search(&directory, &query);
                    let there: BTreeMap<String, Vec<String>> = there
                        .entries
                        .into_iter()
                        .map(|(dn, lines)| {
                            let name = lines.iter().filter_map(|line| line.strip_prefix("cn: "));
                            (dn, name.map(str::to_owned).collect())
                        })
                        .collect();
                    prop_assert_eq!(known, there);
                }
            }
        }
    }
}
