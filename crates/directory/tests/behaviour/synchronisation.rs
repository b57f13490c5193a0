//! Content synchronisation: who does what they are told has a copy of what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sapwood_directory::{
    Budget, Identity, ReplicatedChange, Requester, SearchOptions, Step, Synchronisation,
    TimedUuids, Wire, renew_feed,
};
use sapwood_ldap::controls::{
    Controls, EntryState, SYNC_DONE, SYNC_STATE, SyncDone, SyncMode, SyncRequest, SyncState,
};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::sync_info::{SYNC_INFO, SyncInfo};
use sapwood_testkit::directories::{
    Ticking, add, apply, delete, modify, person, rename, seed, succeed,
};
use sapwood_testkit::{Answer, SUFFIX};

use crate::On;
use crate::made::{Directory, engine, in_memory, in_stores};
use crate::query::{Query, asked, query, search};
use crate::replicated::{take, told_of};
use crate::several_providers;

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const CONFIG: &str = "olcDatabase={1}mdb,cn=config";

fn dn(uid: &str) -> String {
    format!("uid={uid},{PEOPLE}")
}

fn people(directory: &Directory, uids: &[&str]) {
    seed(directory);
    uids.iter().for_each(|uid| succeed(directory, person(uid)));
}

/// All entries with all that is stored of them.
fn everything<'q>(base: &'q str, scope: Scope, filter: &'q str) -> Query<'q> {
    Query {
        attributes: &["*", "+"],
        options: SearchOptions {
            as_stored: true,
            manage_dsa_it: true,
            ..SearchOptions::default()
        },
        ..query(base, scope, filter)
    }
}

fn user(directory: &Directory, dn: &str) -> Identity {
    let snapshot = directory.snapshot().unwrap();
    let found = snapshot.through(|snapshot| snapshot.credentials(dn, 0));
    let found = found.unwrap().unwrap();
    Identity::User {
        entry: found.entry,
        dn: found.dn,
    }
}

type Uuid = [u8; 16];

/// A copy of what a search finds.
#[derive(Default)]
struct Copy {
    entries: BTreeMap<Uuid, (String, BTreeSet<String>)>,
    cookie: Option<String>,
    /// Entries that a refresh has named.
    present: BTreeSet<Uuid>,
    /// What it was told last, in short.
    told: Vec<String>,
}

impl Copy {
    fn take(&mut self, answer: &Answer) {
        if let Some(dn) = &answer.entry {
            let state = answer.controls.iter().find(|(oid, _)| oid == SYNC_STATE);
            let state = SyncState::decode(&state.expect("a state").1).unwrap();
            self.told.push(format!("{:?} {dn}", state.state));
            if state.state == EntryState::Delete {
                self.entries.remove(&state.entry_uuid);
                return;
            }
            self.present.insert(state.entry_uuid);
            let values = answer.attributes.iter().flat_map(|(name, values)| {
                let text =
                    move |value: &Vec<u8>| format!("{name}: {}", String::from_utf8_lossy(value));
                values.iter().map(text)
            });
            let entry = (dn.clone(), values.collect());
            // What is below a renamed entry goes with it.
            if let Some((before, _)) = self.entries.insert(state.entry_uuid, entry)
                && before != *dn
            {
                let below = format!(",{before}");
                for (at, _) in self.entries.values_mut() {
                    if let Some(rdn) = at.strip_suffix(&below) {
                        *at = format!("{rdn},{dn}");
                    }
                }
            }
            return;
        }
        if answer.name.as_deref() == Some(SYNC_INFO) {
            let value = answer.value.as_deref().unwrap();
            match SyncInfo::decode(value).unwrap() {
                SyncInfo::NewCookie(cookie) => self.set_cookie(Some(cookie)),
                SyncInfo::RefreshDelete { cookie, done } => {
                    assert!(done);
                    self.told.push("refreshDelete".into());
                    self.set_cookie(cookie);
                }
                SyncInfo::RefreshPresent { cookie, done } => {
                    assert!(done);
                    self.told.push("refreshPresent".into());
                    self.end_present();
                    self.set_cookie(cookie);
                }
                SyncInfo::IdSet {
                    refresh_deletes,
                    uuids,
                    ..
                } => {
                    let word = if refresh_deletes { "gone" } else { "present" };
                    self.told.push(format!("{word} {}", uuids.iter().count()));
                    for uuid in uuids.iter() {
                        if refresh_deletes {
                            self.entries.remove(&uuid);
                        } else {
                            assert!(self.entries.contains_key(&uuid), "it has no such entry");
                            self.present.insert(uuid);
                        }
                    }
                }
            }
            return;
        }
        assert!(answer.ends, "{answer:?}");
        if let Some((_, value)) = answer.controls.iter().find(|(oid, _)| oid == SYNC_DONE) {
            let done = SyncDone::decode(value).unwrap();
            self.told.push(format!("done {}", done.refresh_deletes));
            if !done.refresh_deletes {
                self.end_present();
            }
            self.set_cookie(done.cookie);
        }
    }

    fn end_present(&mut self) {
        let present = std::mem::take(&mut self.present);
        self.entries.retain(|uuid, _| present.contains(uuid));
    }

    fn set_cookie(&mut self, cookie: Option<&[u8]>) {
        self.cookie = Some(String::from_utf8(cookie.unwrap().to_vec()).unwrap());
    }

    /// As slapd gives a cookie back: without the position.
    fn forget_position(&mut self) {
        if let Some(cookie) = &mut self.cookie {
            cookie.truncate(cookie.find(",pos=").unwrap_or(cookie.len()));
        }
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    fn seen(&self) -> BTreeMap<&str, &BTreeSet<String>> {
        let entries = self.entries.values();
        let seen: BTreeMap<_, _> = entries.map(|(dn, lines)| (&**dn, lines)).collect();
        assert_eq!(seen.len(), self.entries.len());
        seen
    }

    #[track_caller]
    fn assert_is(&self, directory: &Directory, query: &Query<'_>) {
        let found = search(directory, query);
        let there = found.entries.iter().map(|(dn, lines)| (&**dn, lines));
        assert_eq!(self.seen(), there.collect());
    }
}

/// A consumer: a copy, and the search that keeps it.
struct Consumer<'d, 'q> {
    directory: &'d Directory,
    query: &'q Query<'q>,
    requester: Arc<Requester>,
    copy: Copy,
    search: Option<Synchronisation<On>>,
    reload_hint: bool,
}

impl<'d, 'q> Consumer<'d, 'q> {
    fn new(directory: &'d Directory, query: &'q Query<'q>) -> Consumer<'d, 'q> {
        Consumer {
            directory,
            query,
            requester: directory.requester(query.identity.clone()),
            copy: Copy::default(),
            search: None,
            reload_hint: false,
        }
    }

    /// Begins a search with the cookie that it has, and takes all that this tells; how that has ended.
    fn synchronise(&mut self, mode: SyncMode) -> Option<ResultCode> {
        let snapshot = self.directory.snapshot().unwrap();
        let cookie = self.copy.cookie.clone();
        let wanted = SyncRequest {
            mode,
            cookie: cookie.as_deref().map(str::as_bytes),
            reload_hint: self.reload_hint,
        };
        self.copy.present.clear();
        let options = SearchOptions {
            entries_max: self.query.size_limit,
            ..SearchOptions::default()
        };
        let begun = asked(self.query, |request| {
            Synchronisation::new(snapshot, &self.requester, request, options, &wanted)
        });
        match begun {
            Ok(search) => {
                self.search = Some(search);
                self.take()
            }
            Err(outcome) => Some(outcome.code),
        }
    }

    fn refresh(&mut self) {
        assert_eq!(
            self.synchronise(SyncMode::RefreshOnly),
            Some(ResultCode::Success)
        );
    }

    /// Takes what is told until the search waits or ends.
    fn take(&mut self) -> Option<ResultCode> {
        let search = self.search.as_mut()?;
        let (mut out, mut ended) = (Vec::new(), None);
        let mut room = self.query.step_bytes;
        loop {
            let budget = Budget {
                entries: self.query.step_entries,
                work: self.query.step_work,
                out_bytes: out.len() + room,
            };
            room = self.query.step_bytes;
            let mut wire = Wire::new(&mut out, 7, Controls::EMPTY);
            let step = search.step(&mut wire, budget).unwrap();
            assert!(out.len() <= budget.out_bytes);
            match step {
                Step::More => {}
                Step::Room(bytes) => room = bytes,
                Step::Fetch => search.snapshot().unwrap().fetch().unwrap(),
                Step::Wait => break,
                Step::Done(outcome) => {
                    ended = Some(outcome);
                    break;
                }
            }
        }
        let answers = Answer::all(&out);
        answers.iter().for_each(|answer| self.copy.take(answer));
        let outcome = ended?;
        self.search = None;
        let controls = Controls::from_ber(&outcome.controls).unwrap();
        for control in controls.iter().filter(|control| control.oid == SYNC_DONE) {
            let done = SyncDone::decode(control.value.unwrap()).unwrap();
            self.copy
                .told
                .push(format!("done {}", done.refresh_deletes));
            if !done.refresh_deletes {
                self.copy.end_present();
            }
            self.copy.set_cookie(done.cookie);
        }
        Some(outcome.code)
    }

    /// Has a search that waits go on.
    fn go_on(&mut self) -> Option<ResultCode> {
        let snapshot = self.directory.snapshot().unwrap();
        let requester = self.requester.clone();
        self.search.as_mut().unwrap().go_on(snapshot, &requester);
        self.take()
    }
}

#[test]
fn an_older_change_that_was_joined_with_a_later_one_is_told_without_the_feed() {
    let mut all = several_providers::peopled_by(1, "values");
    let change = |member: &several_providers::Member, attribute| {
        succeed(
            &member.directory,
            modify(&dn("a"), &[(Replace, attribute, &["new"])]),
        );
    };
    change(&all[0], "title");
    change(&all[1], "displayName");
    let query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
    let (copy, title) = {
        let mut consumer = Consumer::new(&all[1].directory, &query);
        consumer.refresh();
        consumer.refresh();
        consumer.copy.told();
        consumer.copy.forget_position();
        consumer.refresh();
        let told = consumer.copy.told();
        // Nothing has changed: all are named.
        assert!(
            told.iter().all(|told| !told.starts_with("Add ")),
            "{told:?}"
        );
        let title = |copy: &Copy| copy.seen()[&*dn("a")].contains("title: new");
        assert!(!title(&consumer.copy));
        (consumer.copy, title)
    };
    assert!(several_providers::tell(&mut all, 0, 1));
    let mut consumer = Consumer::new(&all[1].directory, &query);
    consumer.copy = copy;
    consumer.copy.forget_position();
    consumer.refresh();
    assert!(title(&consumer.copy), "{:?}", consumer.copy.told());
    consumer.copy.assert_is(&all[1].directory, &query);
}

#[test]
fn a_cookie_is_answered_by_what_has_changed_since() {
    for directory in [in_memory, in_stores] {
        let directory = directory();
        people(&directory, &["a", "b", "c"]);
        let query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
        let mut consumer = Consumer::new(&directory, &query);
        consumer.refresh();
        let told = consumer.copy.told();
        assert_eq!(told.len(), 6, "{told:?}");
        assert!(
            told[..5].iter().all(|told| told.starts_with("Add ")),
            "{told:?}"
        );
        assert_eq!(told[5], "done false");
        consumer.copy.assert_is(&directory, &query);
        let context = search(
            &directory,
            &Query {
                attributes: &["contextCSN"],
                ..crate::query::query(SUFFIX, Scope::Base, "(dc=*)")
            },
        );
        let context = context.entries[0].1.first().unwrap();
        let csn = context.strip_prefix("contextCSN: ").unwrap();
        let cookie = consumer.copy.cookie.clone().unwrap();
        assert!(
            cookie.starts_with(&format!("rid=000,sid=000,csn={csn},pos=")),
            "{cookie}"
        );

        consumer.refresh();
        assert_eq!(consumer.copy.told(), ["done true"]);
        succeed(&directory, delete(&dn("a")));
        succeed(&directory, modify(&dn("b"), &[(Replace, "sn", &["new"])]));
        succeed(&directory, person("d"));
        succeed(&directory, person("e"));
        succeed(&directory, delete(&dn("e")));
        succeed(&directory, modify(&dn("b"), &[(Replace, "sn", &["newer"])]));
        consumer.refresh();
        let told = consumer.copy.told();
        let expected = [
            &format!("Delete {}", dn("a")),
            &format!("Add {}", dn("d")),
            &format!("Delete {}", dn("e")),
            &format!("Add {}", dn("b")),
            "done true",
        ];
        assert_eq!(told, expected);
        consumer.copy.assert_is(&directory, &query);

        // Without the position, what is unchanged is named, and the rest has gone.
        succeed(&directory, delete(&dn("b")));
        succeed(&directory, modify(&dn("c"), &[(Replace, "sn", &["new"])]));
        consumer.copy.forget_position();
        consumer.refresh();
        let told = consumer.copy.told();
        let expected = [&format!("Add {}", dn("c")), "present 3", "done false"];
        assert_eq!(told, expected);
        consumer.copy.assert_is(&directory, &query);
    }
}

#[test]
fn who_stays_is_told_each_change() {
    for directory in [in_memory, in_stores] {
        let directory = directory();
        people(&directory, &["a", "b"]);
        let query = everything(PEOPLE, Scope::OneLevel, "(sn=*)");
        let mut consumer = Consumer::new(&directory, &query);
        assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None);
        let told = consumer.copy.told();
        assert_eq!((told.len(), &*told[2]), (3, "refreshPresent"));
        succeed(&directory, modify(&dn("a"), &[(Replace, "sn", &["new"])]));
        succeed(&directory, person("c"));
        succeed(&directory, delete(&dn("b")));
        succeed(&directory, rename(&dn("c"), "uid=d", true, None));
        assert_eq!(consumer.go_on(), None);
        let expected = ["a", "b", "d"].map(dn);
        let states = ["Modify", "Delete", "Add"];
        let expected: Vec<_> = states
            .iter()
            .zip(&expected)
            .map(|(state, dn)| format!("{state} {dn}"))
            .collect();
        assert_eq!(consumer.copy.told(), expected);
        // The base itself is not covered; who moves below it leaves, and so does who does not match any more.
        succeed(
            &directory,
            modify(PEOPLE, &[(Replace, "description", &["x"])]),
        );
        let group = |name: &str, below: &str| {
            add(
                &format!("ou={name},{below}"),
                &format!("objectClass: organizationalUnit\nou: {name}"),
            )
        };
        succeed(&directory, group("g", PEOPLE));
        let below = format!("ou=g,{PEOPLE}");
        succeed(&directory, rename(&dn("a"), "uid=a", false, Some(&below)));
        assert_eq!(consumer.go_on(), None);
        assert_eq!(consumer.copy.told(), [format!("Delete {}", dn("a"))]);
        consumer.copy.assert_is(&directory, &query);
        let cookie = consumer.copy.cookie.clone();
        assert_eq!(consumer.go_on(), None);
        assert_eq!(
            (consumer.copy.told().len(), &consumer.copy.cookie),
            (0, &cookie)
        );
    }
}

/// More changes than are read from the feed at once, with one of an entry above at their end.
#[test]
fn an_entry_is_told_before_those_below_it_however_late_it_was_changed() {
    for (directory, stays) in [
        (in_memory(), true),
        (in_stores(), true),
        (in_memory(), false),
        (in_stores(), false),
    ] {
        let uids: Vec<String> = (0..300).map(|number| format!("p{number}")).collect();
        let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
        people(&directory, &uids);
        let query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
        let mut consumer = Consumer::new(&directory, &query);
        match stays {
            true => assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None),
            false => consumer.refresh(),
        }
        consumer.copy.told();
        for uid in &uids {
            succeed(&directory, modify(&dn(uid), &[(Replace, "sn", &["new"])]));
        }
        succeed(
            &directory,
            add(
                &format!("ou=New,{SUFFIX}"),
                "objectClass: organizationalUnit\nou: New",
            ),
        );
        succeed(
            &directory,
            rename(PEOPLE, "ou=Folk", true, Some(&format!("ou=New,{SUFFIX}"))),
        );
        match stays {
            true => assert_eq!(consumer.go_on(), None),
            false => consumer.refresh(),
        }
        let told = consumer.copy.told();
        let told: Vec<&str> = told
            .iter()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(word, dn)| ["Add", "Modify"].contains(&word).then_some(dn))
            .collect();
        let first = [
            format!("ou=New,{SUFFIX}"),
            format!("ou=Folk,ou=New,{SUFFIX}"),
        ];
        assert_eq!(told[..2], first);
        // Each is told once.
        assert_eq!(told.len(), 302);
        consumer.copy.assert_is(&directory, &query);
    }
}

/// More changes than are read from the feed at once, between the two of it.
#[test]
fn an_entry_that_has_come_and_gone_is_told_as_gone() {
    for directory in [in_memory(), in_stores()] {
        people(&directory, &["a"]);
        let query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
        let mut consumer = Consumer::new(&directory, &query);
        consumer.refresh();
        consumer.copy.told();
        succeed(&directory, person("b"));
        for number in 0..300 {
            let new = number.to_string();
            succeed(&directory, modify(&dn("a"), &[(Replace, "sn", &[&new])]));
        }
        succeed(&directory, delete(&dn("b")));
        consumer.refresh();
        let told = consumer.copy.told();
        let last = [format!("Delete {}", dn("b")), "done true".to_owned()];
        assert_eq!(told[told.len() - 2..], last);
        consumer.copy.assert_is(&directory, &query);
    }
}

/// Another server's change has brought it back, and it is told early, for what is below it now.
#[test]
fn an_entry_that_is_there_again_is_not_told_as_gone() {
    for directory in [in_memory(), in_stores()] {
        people(&directory, &["a"]);
        let top = format!("ou=Top,{SUFFIX}");
        succeed(
            &directory,
            add(&top, "objectClass: organizationalUnit\nou: Top"),
        );
        let query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
        let mut consumer = Consumer::new(&directory, &query);
        consumer.refresh();
        let mut told = told_of(&directory);
        told.retain(|change| matches!(change, ReplicatedChange::Entry { dn, .. } if *dn == top));
        succeed(&directory, modify(&dn("a"), &[(Replace, "sn", &["new"])]));
        succeed(&directory, delete(&top));
        take(&directory, told);
        succeed(&directory, rename(PEOPLE, "ou=People", true, Some(&top)));
        consumer.refresh();
        consumer.copy.assert_is(&directory, &query);
    }
}

#[test]
fn who_has_a_cookie_that_does_not_do_begins_anew() {
    let directory = in_memory();
    people(&directory, &["a"]);
    let query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
    let mut consumer = Consumer::new(&directory, &query);
    consumer.refresh();
    consumer.copy.told();
    // Another generation of the feed.
    renew_feed(directory.engine(), &TimedUuids).unwrap();
    consumer.refresh();
    assert_eq!(consumer.copy.told(), ["present 3", "done false"]);
    let cookie = consumer.copy.cookie.clone().unwrap();
    let csn = cookie
        .split("csn=")
        .nth(1)
        .unwrap()
        .split('#')
        .next()
        .unwrap();
    let later = cookie.replace(csn, "20991231235959.000000Z");
    for wrong in [&*later, "csn=now", "rid=1,rid=2"] {
        for (hint, code) in [
            (false, ResultCode::SyncRefreshRequired),
            (true, ResultCode::Success),
        ] {
            consumer.copy.cookie = Some(wrong.to_owned());
            consumer.reload_hint = hint;
            assert_eq!(
                consumer.synchronise(SyncMode::RefreshOnly),
                Some(code),
                "{wrong}"
            );
        }
        let told = consumer.copy.told();
        assert_eq!((told.len(), &*told[3]), (4, "done false"), "{told:?}");
    }
}

#[test]
fn limits_are_for_the_refresh_and_aliases_are_not_followed() {
    let directory = in_memory();
    people(&directory, &["a", "b"]);
    let mut query = everything(PEOPLE, Scope::OneLevel, "(uid=*)");
    query.size_limit = 1;
    let mut consumer = Consumer::new(&directory, &query);
    let ended = consumer.synchronise(SyncMode::RefreshOnly);
    assert_eq!(ended, Some(ResultCode::SizeLimitExceeded));
    query.size_limit = 2;
    let mut consumer = Consumer::new(&directory, &query);
    assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None);
    ["c", "d", "e"]
        .iter()
        .for_each(|uid| succeed(&directory, person(uid)));
    assert_eq!(consumer.go_on(), None);
    assert_eq!(consumer.copy.entries.len(), 5);
    query.deref = DerefAliases::Always;
    let mut consumer = Consumer::new(&directory, &query);
    let ended = consumer.synchronise(SyncMode::RefreshOnly);
    assert_eq!(ended, Some(ResultCode::ProtocolError));
    let query = everything("ou=Nowhere,dc=example,dc=com", Scope::Subtree, "(uid=*)");
    let mut consumer = Consumer::new(&directory, &query);
    let ended = consumer.synchronise(SyncMode::RefreshAndPersist);
    assert_eq!(ended, Some(ResultCode::NoSuchObject));
}

#[test]
fn a_change_of_what_may_be_seen_ends_the_search() {
    let directory = in_memory();
    people(&directory, &["a", "b"]);
    let mut query = everything(SUFFIX, Scope::Subtree, "(objectClass=*)");
    query.identity = user(&directory, &dn("a"));
    let mut consumer = Consumer::new(&directory, &query);
    assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None);
    consumer.copy.assert_is(&directory, &query);
    succeed(&directory, modify(&dn("b"), &[(Replace, "sn", &["x"])]));
    assert_eq!(consumer.go_on(), None);
    consumer.copy.assert_is(&directory, &query);
    let rules: &[&str] = &["{0}to * by users read", "{1}to * by * none"];
    succeed(&directory, modify(CONFIG, &[(Replace, "olcAccess", rules)]));
    assert_eq!(consumer.go_on(), Some(ResultCode::SyncRefreshRequired));
}

#[test]
fn a_base_that_goes_ends_the_search() {
    let directory = in_memory();
    people(&directory, &["a"]);
    let query = everything(PEOPLE, Scope::Subtree, "(objectClass=*)");
    let mut consumer = Consumer::new(&directory, &query);
    assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None);
    succeed(&directory, rename(PEOPLE, "ou=Folk", true, None));
    assert_eq!(consumer.go_on(), Some(ResultCode::SyncRefreshRequired));
    assert_eq!(
        consumer.synchronise(SyncMode::RefreshOnly),
        Some(ResultCode::NoSuchObject)
    );
}

#[test]
fn a_replica_knows_which_numbers_it_has() {
    let directory = Directory::create_on(engine(), &sapwood_testkit::directories::config(), {
        let mut options = sapwood_testkit::directories::options();
        options.clock = Arc::new(Ticking::default());
        options
    });
    let directory = directory.unwrap();
    people(&directory, &["a"]);
    let contexts = || {
        let query = Query {
            attributes: &["contextCSN"],
            ..query(SUFFIX, Scope::Base, "(dc=*)")
        };
        search(&directory, &query).entries[0].1.len()
    };
    assert_eq!(contexts(), 1);
    assert!(directory.become_replica(0).is_err() && directory.become_replica(4096).is_err());
    directory.become_replica(5).unwrap();
    assert_eq!(contexts(), 1);
    succeed(&directory, person("b"));
    assert_eq!(contexts(), 1);
}

/// One update of few names, so that many collide, or what a consumer does.
#[derive(Clone, Debug)]
enum Event {
    Add(u8, u8),
    Delete(u8),
    Modify(u8, u8),
    Rename(u8, u8),
    Move(u8, u8),
    RenameGroup(u8),
    MoveGroup(u8),
    GoOn,
    Refresh,
    RefreshWithoutPosition,
    Stay,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..6u8, 0..3u8).prop_map(|(uid, group)| Event::Add(uid, group)),
        2 => (0..6u8).prop_map(Event::Delete),
        3 => (0..6u8, 0..3u8).prop_map(|(uid, sn)| Event::Modify(uid, sn)),
        2 => (0..6u8, 0..6u8).prop_map(|(from, to)| Event::Rename(from, to)),
        2 => (0..6u8, 0..3u8).prop_map(|(uid, group)| Event::Move(uid, group)),
        1 => (0..2u8).prop_map(Event::RenameGroup),
        1 => (0..2u8).prop_map(Event::MoveGroup),
        3 => Just(Event::GoOn),
        1 => Just(Event::Refresh),
        1 => Just(Event::RefreshWithoutPosition),
        1 => Just(Event::Stay),
    ];
    prop::collection::vec(event, 1..40)
}

/// The entries that the events are about, as they are by now.
struct World {
    groups: [String; 2],
    people: BTreeMap<u8, String>,
    names: u32,
}

impl World {
    fn group(&self, number: u8) -> &str {
        self.groups
            .get(usize::from(number))
            .map_or(PEOPLE, |group| group)
    }

    /// Does what an event says, if it is an update.
    fn update(&mut self, directory: &Directory, event: &Event) {
        let done = |request| apply(directory, request).code == ResultCode::Success;
        let mut moved = None;
        match *event {
            Event::Add(uid, group) => {
                let dn = format!("uid=u{uid},{}", self.group(group));
                let lines = format!("objectClass: inetOrgPerson\nuid: u{uid}\ncn: x\nsn: 1");
                if !self.people.contains_key(&uid) && done(add(&dn, &lines)) {
                    self.people.insert(uid, dn);
                }
            }
            Event::Delete(uid) => {
                if let Some(dn) = self.people.remove(&uid) {
                    assert!(done(delete(&dn)));
                }
            }
            Event::Modify(uid, sn) => {
                if let Some(dn) = self.people.get(&uid) {
                    assert!(done(modify(dn, &[(Replace, "sn", &[&sn.to_string()])])));
                }
            }
            Event::Rename(from, to) => {
                if let Some(dn) = self.people.get(&from).cloned()
                    && !self.people.contains_key(&to)
                {
                    let (_, above) = dn.split_once(',').unwrap();
                    assert!(done(rename(&dn, &format!("uid=u{to}"), true, None)));
                    self.people.remove(&from);
                    self.people.insert(to, format!("uid=u{to},{above}"));
                }
            }
            Event::Move(uid, group) => {
                let above = self.group(group).to_owned();
                if let Some(dn) = self.people.get_mut(&uid) {
                    let (rdn, _) = dn.split_once(',').unwrap();
                    let new = format!("{rdn},{above}");
                    if done(rename(dn, rdn, false, Some(&above))) {
                        *dn = new;
                    }
                }
            }
            Event::RenameGroup(number) | Event::MoveGroup(number) => {
                self.names += 1;
                let group = &mut self.groups[usize::from(number)];
                let (_, above) = group.split_once(',').unwrap();
                let above = match (event, above) {
                    (Event::MoveGroup(_), PEOPLE) => SUFFIX,
                    (Event::MoveGroup(_), _) => PEOPLE,
                    _ => above,
                };
                let rdn = format!("ou=g{}", self.names);
                let new = format!("{rdn},{above}");
                assert!(done(rename(group, &rdn, true, Some(above))));
                moved = Some((std::mem::replace(group, new.clone()), new));
            }
            Event::GoOn | Event::Refresh | Event::RefreshWithoutPosition | Event::Stay => {}
        }
        if let Some((before, now)) = moved {
            for dn in self.people.values_mut() {
                *dn = dn.replace(&before, &now);
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::made::random(48))]

    /// However a consumer asks, and after every change, its copy is what a search finds.
    #[test]
    fn a_consumer_has_what_there_is(
        events in events(),
        stores in any::<bool>(),
        which in 0..4usize,
        is_user in any::<bool>(),
    ) {
        let directory = if stores { in_stores() } else { in_memory() };
        people(&directory, &["reader"]);
        let group = |name: &str| format!("ou={name},{PEOPLE}");
        for name in ["g-a", "g-b"] {
            let lines = format!("objectClass: organizationalUnit\nou: {name}");
            succeed(&directory, add(&group(name), &lines));
        }
        let mut world = World {
            groups: ["g-a", "g-b"].map(group),
            people: BTreeMap::new(),
            names: 0,
        };
        let mut query = [
            everything(SUFFIX, Scope::Subtree, "(objectClass=*)"),
            everything(SUFFIX, Scope::Subtree, "(|(sn=1)(ou=*))"),
            everything(PEOPLE, Scope::Subtree, "(objectClass=*)"),
            everything(PEOPLE, Scope::OneLevel, "(|(sn=1)(sn=2))"),
        ].into_iter().nth(which).unwrap();
        if is_user {
            query.identity = user(&directory, &dn("reader"));
        }
        let mut consumer = Consumer::new(&directory, &query);
        prop_assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None);
        consumer.copy.assert_is(&directory, &query);
        for event in events.into_iter().chain([Event::GoOn, Event::Refresh]) {
            world.update(&directory, &event);
            match event {
                Event::GoOn => match consumer.search.is_some() {
                    true => {
                        if let Some(code) = consumer.go_on() {
                            prop_assert_eq!(code, ResultCode::SyncRefreshRequired);
                            prop_assert!(which >= 2 || is_user);
                            // As slapd does, with the cookie that it has.
                            consumer.refresh();
                        }
                    }
                    false => continue,
                },
                Event::Refresh => consumer.refresh(),
                Event::RefreshWithoutPosition => {
                    consumer.copy.forget_position();
                    consumer.refresh();
                }
                Event::Stay => {
                    prop_assert_eq!(consumer.synchronise(SyncMode::RefreshAndPersist), None);
                }
                _ => continue,
            }
            consumer.copy.assert_is(&directory, &query);
        }
    }
}
