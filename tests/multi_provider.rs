//! Servers that all take updates of the same entries: sapwoods, and sapwoods with OpenLDAP's slapd.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::{ModifyDnRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::copies::{self, Entries, PEOPLE, dn, person};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{sapwood, sapwood_ok, text};
use sapwood_testkit::requests::{self, message};
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, Slapd, SlapdSetup};

/// A sapwood that is one of several replicas, which finds it at an address that stays.
struct Replica {
    folder: Folder,
    server: Option<Running>,
}

impl Replica {
    fn new(sid: usize) -> Replica {
        let folder = Folder::init(&[]);
        let path = folder.path();
        let sid = sid.to_string();
        sapwood_ok(["replica", "enable", path.to_str().unwrap(), "--sid", &sid]);
        let server = Some(folder.serve());
        Replica { folder, server }
    }

    fn url(&self) -> String {
        let socket = self.folder.name_beside("ldapi.sock");
        format!("ldapi://{}", socket.replace('/', "%2F"))
    }

    fn client(&self) -> Client {
        Client::admin(self.server.as_ref().unwrap().address())
    }

    fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    fn start(&mut self) {
        self.server = Some(self.folder.serve());
    }

    /// Has it take the updates of another server.
    #[track_caller]
    fn take_from(&self, rid: usize, url: &str) {
        self.take_by("entry", rid, url);
    }

    /// The same, where so much of an entry loses against a later change.
    #[track_caller]
    fn take_by(&self, resolution: &str, rid: usize, url: &str) {
        let more = ["--multi-provider", "--resolution", resolution];
        let added = add(&self.folder, rid, url, &more);
        assert!(added.status.success(), "{}", text(&added.stderr));
    }

    fn command(&self, words: &[&str]) -> String {
        let path = self.folder.path();
        let args = ["replica", words[0], path.to_str().unwrap()];
        sapwood_ok(args.iter().chain(&words[1..]))
    }

    /// Stops it, and has all of its data checked.
    fn end(mut self) {
        self.server.take().unwrap().stop();
        self.folder.sapwood_ok("check", &[]);
    }
}

fn add(folder: &Folder, rid: usize, url: &str, more: &[&str]) -> std::process::Output {
    let (path, password) = (folder.path(), folder.name_beside("provider-password"));
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let (path, rid) = (path.to_str().unwrap(), rid.to_string());
    let args = [
        "replica",
        "add",
        path,
        url,
        "--rid",
        &rid,
        "--bind-dn",
        ADMIN,
    ];
    sapwood(
        args.iter()
            .chain(&["--password-file", &password])
            .chain(more),
    )
}

fn unit(name: &str) -> String {
    format!("ou={name},{SUFFIX}")
}

fn add_unit(client: &mut Client, dn: &str, name: &str) {
    let attributes = [("objectClass", "organizationalUnit"), ("ou", name)];
    client.tell(&requests::add(1, dn, &attributes)).succeeded();
}

/// What the servers have before they change the same.
fn fill(client: &mut Client) {
    copies::add_top(client);
    for uid in ["p0", "p1", "p2", "p3", "p4"] {
        client.tell(&person(uid)).succeeded();
    }
    for name in ["Empty", "North", "South"] {
        add_unit(client, &unit(name), name);
    }
}

fn set(client: &mut Client, uid: &str, attribute: &str, value: &str) {
    let change: &[requests::Change<'_>] = &[(Replace, attribute, &[value])];
    client
        .tell(&requests::modify(1, &dn(uid), change))
        .succeeded();
}

fn delete(client: &mut Client, dn: &str) {
    client.tell(&message(1, Request::Delete(dn))).succeeded();
}

fn rename(client: &mut Client, dn: &str, rdn: &str, superior: Option<&str>) {
    let Request::ModifyDn(request) = requests::rename(dn, rdn) else {
        panic!("no rename")
    };
    let request = ModifyDnRequest {
        new_superior: superior,
        ..request
    };
    client
        .tell(&message(1, Request::ModifyDn(request)))
        .succeeded();
}

/// What is changed on the first of two servers that do not know of each other.
fn change_first(client: &mut Client) {
    set(client, "p0", "sn", "of the first");
    set(client, "p0", "description", "of the first");
    delete(client, &dn("p1"));
    set(client, "p2", "description", "soon gone");
    client.tell(&person("both")).succeeded();
    set(client, "both", "description", "of the first");
    client.tell(&person("first")).succeeded();
    delete(client, &unit("Empty"));
    rename(client, &dn("p3"), "uid=renamed", None);
}

/// What is changed on the second one after that.
fn change_second(client: &mut Client) {
    set(client, "p0", "sn", "of the second");
    set(client, "p1", "description", "changed later");
    delete(client, &dn("p2"));
    client.tell(&person("both")).succeeded();
    client.tell(&person("second")).succeeded();
    add_unit(client, &format!("ou=Below,{}", unit("Empty")), "Below");
    set(client, "p3", "description", "changed later");
}

/// What both have to become, as far as it does not depend on which servers these are.
#[track_caller]
fn require_joined(joined: &Entries) {
    let has = |dn: &str, line: &str| joined.get(dn).is_some_and(|lines| lines.contains(line));
    let told = format!("{joined:#?}");
    // The later update has the entry whole.
    assert!(has(&dn("p0"), "sn: of the second"), "{told}");
    assert!(!has(&dn("p0"), "description: of the first"), "{told}");
    // The later of a delete and an update.
    assert!(has(&dn("p1"), "description: changed later"), "{told}");
    // The later one has the name, and the other one is there as well.
    assert!(!has(&dn("both"), "description: of the first"), "{told}");
    let other = joined.iter().find(|(dn, _)| {
        dn.starts_with("entryUUID=") && dn.ends_with(&format!("+{}", self::dn("both")))
    });
    let (_, other) = other.unwrap_or_else(|| panic!("{told}"));
    assert!(other.contains("description: of the first"), "{told}");
    for uid in ["first", "second"] {
        assert!(joined.contains_key(&dn(uid)), "{told}");
    }
    // With its name.
    assert!(has(&dn("p3"), "description: changed later"), "{told}");
    assert!(
        joined.contains_key(&format!("ou=Below,{}", unit("Empty"))),
        "{told}"
    );
}

#[test]
fn two_sapwoods_become_equal_whatever_both_have_changed() {
    let [one, other] = [Replica::new(1), Replica::new(2)];
    let (mut first, mut second) = (one.client(), other.client());
    fill(&mut first);
    one.take_from(1, &other.url());
    other.take_from(1, &one.url());
    copies::all_become_equal(&mut [&mut first, &mut second]);
    // Each takes what the other has changed.
    set(&mut first, "p4", "sn", "one");
    copies::all_become_equal(&mut [&mut first, &mut second]);
    set(&mut second, "p4", "sn", "two");
    second.tell(&person("new")).succeeded();
    let joined = copies::all_become_equal(&mut [&mut first, &mut second]);
    assert!(joined[&dn("p4")].contains("sn: two") && joined.contains_key(&dn("new")));
    for server in [&one, &other] {
        server.command(&["suspend", "--rid", "1"]);
    }
    change_first(&mut first);
    change_second(&mut second);
    // Two moves that make a ring together: the later one is not made.
    rename(&mut first, &unit("North"), "ou=North", Some(&unit("South")));
    rename(
        &mut second,
        &unit("South"),
        "ou=South",
        Some(&unit("North")),
    );
    // Below an entry that has no name of its own for long.
    let below = |whose: &str| format!("ou={whose},{}", dn("both"));
    add_unit(&mut first, &below("first"), "first");
    add_unit(&mut second, &below("second"), "second");
    for server in [&one, &other] {
        server.command(&["resume", "--rid", "1"]);
    }
    let joined = copies::all_become_equal(&mut [&mut first, &mut second]);
    require_joined(&joined);
    // A slapd remembers no deletes: it takes what was changed before from others.
    assert!(!joined.contains_key(&dn("p2")), "{joined:#?}");
    // The entry above a new one was deleted elsewhere: it stays as it was.
    assert!(joined[&unit("Empty")].contains("ou: Empty"));
    assert!(
        joined.contains_key(&format!("ou=North,{}", unit("South"))),
        "{joined:#?}"
    );
    assert!(joined.contains_key(&below("second")), "{joined:#?}");
    let of_first = joined
        .keys()
        .find(|dn| dn.starts_with("ou=first,entryUUID="));
    assert!(of_first.is_some(), "{joined:#?}");
    // Nothing more happens: whoever is told again knows it.
    let before = copies::all_become_equal(&mut [&mut first, &mut second]);
    assert_eq!(before, joined);
    let listed = one.command(&["list"]);
    assert!(listed.contains("both take updates"), "{listed}");
    one.end();
    other.end();
}

#[test]
fn a_sapwood_and_a_slapd_become_equal_whatever_both_have_changed() {
    let mut one = Replica::new(1);
    let mut slapd = slapd_with(2, &[one.url()]);
    let url = format!("ldap://{}", slapd.address());
    let (mut first, mut second) = (one.client(), Client::admin(slapd.address()));
    fill(&mut first);
    one.take_from(1, &url);
    copies::all_become_equal(&mut [&mut first, &mut second]);
    set(&mut second, "p4", "sn", "two");
    delete(&mut second, &unit("North"));
    copies::all_become_equal(&mut [&mut first, &mut second]);
    // Neither is there while the other one changes.
    slapd.kill();
    change_first(&mut first);
    one.kill();
    slapd.start_again();
    let mut second = Client::admin(slapd.address());
    change_second(&mut second);
    one.start();
    let mut first = one.client();
    let joined = copies::all_become_equal(&mut [&mut first, &mut second]);
    require_joined(&joined);
    // And on they go.
    set(&mut first, "p4", "sn", "one");
    delete(&mut second, &dn("first"));
    set(&mut second, "second", "sn", "again");
    copies::all_become_equal(&mut [&mut first, &mut second]);
    one.end();
}

/// A slapd with a number, which takes updates of these and provides. It tries again after a while: where it asks first
/// it passes over an entry whose name it has given to another one, and says that it has it.
fn slapd_with(sid: usize, others: &[String]) -> Slapd {
    let follows: String = others
        .iter()
        .enumerate()
        .map(|(at, url)| {
            format!(
                "syncrepl rid={:03} provider={url} bindmethod=simple binddn=\"{ADMIN}\" credentials=\"{PASSWORD}\" \
                 searchbase=\"{SUFFIX}\" type=refreshAndPersist retry=\"5 +\"\n",
                at + 1
            )
        })
        .collect();
    Slapd::with(&SlapdSetup {
        global: &format!("serverID {sid}\nmodulepath /usr/lib/ldap\nmoduleload syncprov\n"),
        database: &format!(
            "index entryUUID,entryCSN eq\n{follows}multiprovider on\noverlay syncprov\nsyncprov-checkpoint 1 1\n"
        ),
        ..SlapdSetup::default()
    })
}

/// Numbers that look as if they came by chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// One update of few names, so that servers change the same. Many are refused.
fn change_by_chance(client: &mut Client, chance: &mut Chance, round: u64) {
    let uid = format!("c{}", chance.below(6));
    let answer = match chance.below(7) {
        0 | 1 => client.tell(&person(&uid)),
        2 => client.tell(&message(1, Request::Delete(&dn(&uid)))),
        3 => {
            let other = format!("uid=c{}", chance.below(6));
            let name = dn(&uid);
            client.tell(&message(1, requests::rename(&name, &other)))
        }
        _ => {
            let value = round.to_string();
            let change: &[requests::Change<'_>] = &[(Replace, "description", &[&value])];
            client.tell(&requests::modify(1, &dn(&uid), change))
        }
    };
    let expected = [
        ResultCode::Success,
        ResultCode::NoSuchObject,
        ResultCode::EntryAlreadyExists,
    ];
    assert!(expected.contains(&answer.code), "{answer:?}");
}

#[test]
fn three_sapwoods_in_a_ring_become_equal_though_they_are_killed() {
    let mut all: Vec<Replica> = (1..=3).map(Replica::new).collect();
    let mut clients: Vec<Client> = all.iter().map(Replica::client).collect();
    copies::add_top(&mut clients[0]);
    for at in 0..3 {
        all[at].take_from(1, &all[(at + 2) % 3].url());
    }
    let mut chance = Chance(25);
    let mut round = 0;
    for killed in [1, 2, 0, 1] {
        for _ in 0..60 {
            let at = chance.below(3) as usize;
            round += 1;
            change_by_chance(&mut clients[at], &mut chance, round);
        }
        all[killed].kill();
        let at = (killed + 1) % 3;
        for _ in 0..20 {
            round += 1;
            change_by_chance(&mut clients[at], &mut chance, round);
        }
        all[killed].start();
        clients[killed] = all[killed].client();
    }
    let mut all_clients: Vec<&mut Client> = clients.iter_mut().collect();
    let joined = copies::all_become_equal(&mut all_clients);
    assert!(joined.contains_key(PEOPLE));
    for replica in all {
        replica.end();
    }
}

/// Makes the change again whose line in the log of one of these has some words.
fn restore(servers: &[&Replica], words: &[&str]) {
    for server in servers {
        for line in server.command(&["conflicts"]).lines() {
            if words.iter().all(|word| line.contains(word)) {
                let (_, number) = line.trim_end_matches(']').rsplit_once('[').unwrap();
                server.command(&["restore", number]);
                return;
            }
        }
    }
    panic!("no line with {words:?}");
}

fn add_value(client: &mut Client, uid: &str, attribute: &str, value: &str) {
    let change: &[requests::Change<'_>] = &[(Add, attribute, &[value])];
    client
        .tell(&requests::modify(1, &dn(uid), change))
        .succeeded();
}

#[test]
fn two_sapwoods_that_keep_values_apart_have_all_that_both_have_changed_of_an_entry() {
    let [mut one, other] = [Replica::new(1), Replica::new(2)];
    let (mut first, mut second) = (one.client(), other.client());
    fill(&mut first);
    one.take_by("values", 1, &other.url());
    other.take_by("values", 1, &one.url());
    copies::all_become_equal(&mut [&mut first, &mut second]);
    for server in [&one, &other] {
        server.command(&["suspend", "--rid", "1"]);
    }
    set(&mut first, "p0", "displayName", "of the first");
    add_value(&mut first, "p0", "description", "of the first");
    set(&mut first, "p1", "displayName", "of the first");
    set(&mut first, "p1", "userPassword", "a first secret");
    delete(&mut first, &dn("p2"));
    set(&mut second, "p0", "title", "of the second");
    add_value(&mut second, "p0", "description", "of the second");
    set(&mut second, "p1", "displayName", "of the second");
    set(&mut second, "p1", "userPassword", "a second secret");
    set(&mut second, "p2", "title", "soon gone");
    for server in [&one, &other] {
        server.command(&["resume", "--rid", "1"]);
    }
    let joined = copies::all_become_equal(&mut [&mut first, &mut second]);
    for line in [
        "displayName: of the first",
        "title: of the second",
        "description: of the first",
        "description: of the second",
    ] {
        assert!(joined[&dn("p0")].contains(line), "{line}: {joined:#?}");
    }
    assert!(joined[&dn("p1")].contains("displayName: of the second"));
    assert!(!joined.contains_key(&dn("p2")), "{joined:#?}");
    for client in [&mut first, &mut second] {
        let bound = requests::bind(1, &dn("p1"), "a second secret");
        client.tell(&bound).succeeded();
    }
    let lines: String = [&one, &other]
        .map(|server| server.command(&["conflicts"]))
        .concat();
    let has = |words: &[&str]| {
        let mut lines = lines.lines();
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(has(&["uid=p1", "displayName \"of the first\""]), "{lines}");
    assert!(has(&["uid=p1", "userPassword (not shown)"]), "{lines}");
    assert!(
        has(&["uid=p2", "title \"soon gone\"", "was deleted"]),
        "{lines}"
    );
    assert!(!lines.contains("uid=p0"), "{lines}");
    // What has lost can be had again, and is shown to the administrator alone.
    let shown = |client: &mut Client| {
        let filter = "(sapwoodConflictLost=displayName: of the first)";
        let mut found = client.search("cn=conflicts", Scope::Subtree, filter);
        (found.pop().unwrap().code, found.len())
    };
    let [mut first, mut second] = [&one, &other].map(Replica::client);
    let found = [&mut first, &mut second].map(|client| shown(client).1);
    // One of them had both first, or both had.
    assert!((1..=2).contains(&found.iter().sum::<usize>()), "{lines}");
    let mut user = Client::connect(one.server.as_ref().unwrap().address());
    user.bind(&dn("p1"), "a second secret").succeeded();
    assert_eq!(shown(&mut user), (ResultCode::NoSuchObject, 0));
    for words in [["uid=p1", "displayName"], ["uid=p2", "soon gone"]] {
        restore(&[&one, &other], &words);
    }
    let joined = copies::all_become_equal(&mut [&mut first, &mut second]);
    assert!(joined[&dn("p1")].contains("displayName: of the first"));
    assert!(joined[&dn("p2")].contains("title: soon gone"));
    let unknown = [
        "replica",
        "restore",
        one.folder.path().to_str().unwrap(),
        "1",
    ]
    .map(str::to_owned);
    assert!(text(&sapwood(unknown).stderr).contains("in brackets"));
    // The numbers are there after a crash.
    one.kill();
    add_value(
        &mut Client::admin(other.server.as_ref().unwrap().address()),
        "p0",
        "mail",
        "a@b.example",
    );
    one.start();
    let (mut first, mut second) = (one.client(), other.client());
    add_value(&mut first, "p0", "mail", "c@d.example");
    let joined = copies::all_become_equal(&mut [&mut first, &mut second]);
    assert!(joined[&dn("p0")].contains("mail: a@b.example"));
    assert!(joined[&dn("p0")].contains("mail: c@d.example"));
    let listed = one.command(&["list"]);
    assert!(listed.contains("both take updates by values"), "{listed}");
    one.end();
    other.end();
}

#[test]
fn three_sapwoods_that_keep_values_apart_lose_no_value_though_they_are_killed() {
    let mut all: Vec<Replica> = (1..=3).map(Replica::new).collect();
    let mut clients: Vec<Client> = all.iter().map(Replica::client).collect();
    copies::add_top(&mut clients[0]);
    clients[0].tell(&person("kept")).succeeded();
    for at in 0..3 {
        all[at].take_by("values", 1, &all[(at + 2) % 3].url());
    }
    copies::all_become_equal(&mut clients.iter_mut().collect::<Vec<_>>());
    let mut chance = Chance(26);
    let mut expected = std::collections::BTreeSet::new();
    for (round, killed) in [1, 2, 0].into_iter().enumerate() {
        for number in 0..60_u64 {
            if number == 45 {
                all[killed].kill();
            }
            let is_down = |at: usize| number >= 45 && at == killed;
            let at = chance.below(3) as usize;
            if is_down(at) {
                continue;
            }
            change_by_chance(&mut clients[at], &mut chance, number);
            let value = format!("{round} {number}");
            add_value(&mut clients[at], "kept", "description", &value);
            expected.insert(format!("description: {value}"));
        }
        all[killed].start();
        clients[killed] = all[killed].client();
    }
    let joined = copies::all_become_equal(&mut clients.iter_mut().collect::<Vec<_>>());
    let kept = &joined[&dn("kept")];
    let lacks: Vec<_> = expected
        .iter()
        .filter(|line| !kept.contains(*line))
        .collect();
    assert!(lacks.is_empty(), "{lacks:?}");
    for replica in all {
        replica.end();
    }
}

#[test]
fn a_success_is_told_when_another_server_has_the_change_on_its_disk() {
    let [mut one, mut other] = [Replica::new(1), Replica::new(2)];
    fill(&mut one.client());
    one.kill();
    one.folder.configure(&[
        ("acknowledge_peers = 0", "acknowledge_peers = 1"),
        ("acknowledge_seconds = 10", "acknowledge_seconds = 1"),
    ]);
    one.start();
    let change: &[requests::Change<'_>] = &[(Replace, "title", &["new"])];
    let modify = requests::modify(1, &dn("p0"), change);
    let told = one.client().tell(&modify);
    assert_eq!(told.code, ResultCode::Success);
    assert!(
        told.diagnostic.contains("no other one follows this server"),
        "{told:?}"
    );
    one.kill();
    one.folder
        .configure(&[("acknowledge_seconds = 1", "acknowledge_seconds = 600")]);
    one.start();
    other.take_from(1, &one.url());
    let mut first = one.client();
    let told = first.tell(&modify);
    assert_eq!((told.code, &*told.diagnostic), (ResultCode::Success, ""));
    for number in 0..20 {
        add_value(&mut first, "p0", "description", &number.to_string());
    }
    // Both are killed, and one of them is lost: the other one has it all.
    one.kill();
    other.kill();
    other.start();
    let mut second = other.client();
    let found = second.search(&dn("p0"), Scope::Base, "(title=new)");
    let values = found[0]
        .attributes
        .iter()
        .find(|(name, _)| name == "description");
    assert_eq!(values.unwrap().1.len(), 20, "{found:?}");
    one.folder
        .configure(&[("acknowledge_seconds = 600", "acknowledge_seconds = 1")]);
    one.start();
    let mut first = one.client();
    while !first.tell(&modify).diagnostic.is_empty() {}
    other.kill();
    let told = loop {
        let told = first.tell(&modify);
        if !told.diagnostic.is_empty() {
            break told;
        }
    };
    assert!(
        told.diagnostic.contains("on 0 of 1 other servers"),
        "{told:?}"
    );
    one.end();
    other.start();
    other.end();
}

#[test]
fn servers_that_go_by_different_rules_do_not_begin() {
    let [one, other] = [Replica::new(1), Replica::new(2)];
    fill(&mut one.client());
    one.take_from(1, &other.url());
    other.take_by("values", 1, &one.url());
    let why = "all servers have to say resolution=values";
    while !other.command(&["status"]).contains(why) {
        std::thread::yield_now();
    }
    let more = ["--multi-provider"];
    let refused = add(&other.folder, 2, &one.url(), &more);
    assert!(
        text(&refused.stderr).contains("another resolution"),
        "{refused:?}"
    );
    // Nor does the other one, once there is something to tell.
    copies::add_top(&mut other.client());
    while !one.command(&["status"]).contains(why) {
        std::thread::yield_now();
    }
    one.end();
    other.end();
}

#[test]
fn who_takes_updates_has_a_number_and_a_whole_naming_context() {
    let folder = Folder::init(&[]);
    let refused = add(&folder, 1, "ldap://localhost:1", &["--multi-provider"]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("replica enable"),
        "{refused:?}"
    );
    let mut one = Replica::new(1);
    one.server.take().unwrap().stop();
    let more = ["--multi-provider", "--base", PEOPLE];
    let refused = add(&one.folder, 1, "ldap://localhost:1", &more);
    assert!(
        text(&refused.stderr).contains("whole naming contexts"),
        "{refused:?}"
    );
    // Of several servers updates are taken, but there is one to copy from.
    one.take_from(1, "ldap://localhost:1");
    one.take_from(2, "ldap://localhost:2");
    let refused = add(&one.folder, 3, "ldap://localhost:3", &[]);
    assert!(
        text(&refused.stderr).contains("same entries"),
        "{refused:?}"
    );
}
