//! Each rule of merging, by an example: two servers change the same without knowing of each other, and then they do.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    AHEAD_MICROS_MAX, Bundle, Change, EntryChanges, Lost, MergeError, Place, RejoinError, Replica,
    Resolution, Rule, Seen, Settled, SinceError, Stamp, Uuid, Value, What, merge, prune, rejoin,
    update,
};
use sapwood_testkit::replication::Model;

const ROOT: Uuid = Uuid([0xff; 16]);
const ANN: Uuid = Uuid([1; 16]);
const BEN: Uuid = Uuid([2; 16]);

/// Servers 1 and 2. Each has entries `cn=ann` and `cn=ben`, added by server 1.
struct Two {
    servers: [Model; 2],
}

fn csn(micros: u64, replica: u16) -> Csn {
    Csn {
        micros,
        count: 0,
        replica,
    }
}

fn place(parent: Uuid, rdn: &str) -> Place {
    Place {
        parent,
        rdn: rdn.as_bytes().into(),
    }
}

fn text(value: &str) -> Value {
    value.as_bytes().into()
}

fn value(attribute: &str, value: &str, is_present: bool) -> What {
    What::Value {
        attribute: attribute.into(),
        value: text(value),
        is_present,
    }
}

fn whole(attribute: &str, value: &str) -> What {
    What::Whole(attribute.into(), vec![text(value)])
}

/// An update at a server.
fn make(server: &mut Model, csn: Csn, entry: Uuid, whats: &[What]) {
    let changes = whats.iter().map(|what| Change {
        csn,
        what: what.clone(),
    });
    let told = EntryChanges {
        entry,
        stamp: Stamp {
            csn,
            modifier: text("somebody"),
        },
        changes: changes.collect(),
    };
    update(server, vec![told]).unwrap();
}

/// A server tells another one everything.
fn tell(from: &Model, to: &mut Model) {
    let bundle = Bundle::since(from, &to.vector().unwrap()).unwrap();
    merge(to, &bundle, 0).unwrap();
}

impl Two {
    fn new() -> Two {
        Two::of(Resolution::Values)
    }

    fn of(resolution: Resolution) -> Two {
        let mut two = Two {
            servers: [Model::new(resolution), Model::new(resolution)],
        };
        two.at(1, 1, ROOT, &[What::Born(place(Uuid::NIL, "dc=example"))]);
        two.at(1, 2, ANN, &[What::Born(place(ROOT, "cn=ann"))]);
        two.at(1, 3, BEN, &[What::Born(place(ROOT, "cn=ben"))]);
        two.meet();
        two
    }

    /// An update at a server, at some time.
    fn at(&mut self, server: u16, micros: u64, entry: Uuid, whats: &[What]) -> Csn {
        let csn = csn(micros, server);
        make(
            &mut self.servers[usize::from(server) - 1],
            csn,
            entry,
            whats,
        );
        csn
    }

    /// Both tell each other everything. They are equal then.
    fn meet(&mut self) {
        let [one, other] = &mut self.servers;
        tell(one, other);
        tell(other, one);
        assert_eq!(one, other);
    }

    fn seen(&self, entry: Uuid) -> Option<Seen> {
        Seen::of(&self.servers[0], entry).unwrap()
    }

    fn values(&self, entry: Uuid, attribute: &str) -> Vec<String> {
        let seen = self.seen(entry).unwrap();
        let attributes = seen.attributes.iter();
        let mut attributes = attributes.filter(|(known, _)| **known == *attribute);
        let values = attributes.next().map(|(_, values)| values.clone());
        let values = values.unwrap_or_default().into_iter();
        values
            .map(|value| String::from_utf8_lossy(&value).into_owned())
            .collect()
    }

    /// The log: what has lost, to what, and why.
    fn log(&self) -> Vec<(Csn, Lost, Csn, Rule)> {
        let lines = self.servers[0].conflicts();
        let lines = lines.map(|line| (line.loser, line.lost.clone(), line.winner, line.rule));
        lines.collect()
    }
}

#[test]
fn values_that_two_servers_add_both_stay() {
    let mut two = Two::new();
    two.at(1, 10, ANN, &[value("member", "x", true)]);
    two.at(2, 11, ANN, &[value("member", "y", true)]);
    two.meet();
    assert_eq!(two.values(ANN, "member"), ["x", "y"]);
    assert!(two.log().is_empty());
}

#[test]
fn of_a_value_the_later_change_counts() {
    let mut two = Two::new();
    let added = two.at(1, 10, ANN, &[value("member", "x", true)]);
    let deleted = two.at(2, 11, ANN, &[value("member", "x", false)]);
    two.meet();
    assert_eq!(two.values(ANN, "member"), [""; 0]);
    let lost = Lost::Value("member".into(), text("x"));
    assert_eq!(two.log(), [(added, lost, deleted, Rule::Later)]);
    // One that knows of what it deletes is no conflict, nor is an add that comes later.
    two.at(2, 20, ANN, &[value("member", "x", true)]);
    two.meet();
    two.at(1, 21, ANN, &[value("member", "x", false)]);
    two.at(2, 22, ANN, &[value("member", "x", true)]);
    two.meet();
    assert_eq!(two.values(ANN, "member"), ["x"]);
    assert_eq!(two.log().len(), 1);
}

#[test]
fn a_replace_takes_what_others_have_added_before_it() {
    let mut two = Two::new();
    let before = two.at(1, 10, ANN, &[value("member", "x", true)]);
    let whats = [What::Cleared("member".into()), value("member", "z", true)];
    let cleared = two.at(2, 11, ANN, &whats);
    two.at(1, 12, ANN, &[value("member", "y", true)]);
    two.meet();
    assert_eq!(two.values(ANN, "member"), ["y", "z"]);
    let lost = Lost::Value("member".into(), text("x"));
    assert_eq!(two.log(), [(before, lost, cleared, Rule::Later)]);
}

#[test]
fn of_a_single_value_the_later_one_wins_and_of_a_password_the_log_tells_nothing() {
    let mut two = Two::new();
    let first = two.at(
        2,
        10,
        ANN,
        &[whole("title", "1"), whole("password", "secret")],
    );
    let last = two.at(
        1,
        11,
        ANN,
        &[whole("title", "2"), whole("password", "other")],
    );
    two.meet();
    assert_eq!(two.values(ANN, "title"), ["2"]);
    assert_eq!(two.values(ANN, "password"), ["other"]);
    let hidden = Lost::Whole("password".into(), None);
    let title = Lost::Whole("title".into(), Some(vec![text("1")]));
    assert_eq!(
        two.log(),
        [
            (first, hidden, last, Rule::Later),
            (first, title, last, Rule::Later)
        ]
    );
    let stamp = two.seen(ANN).unwrap().stamp;
    assert_eq!(stamp.csn, last);
}

#[test]
fn a_delete_wins_over_all_that_did_not_know_of_it() {
    let mut two = Two::new();
    let deleted = two.at(1, 10, ANN, &[What::Deleted]);
    let later = two.at(2, 11, ANN, &[value("member", "x", true)]);
    let moved = two.at(2, 12, ANN, &[What::Moved(place(BEN, "cn=ann"))]);
    two.meet();
    assert_eq!(two.seen(ANN), None);
    let lost = Lost::Value("member".into(), text("x"));
    assert_eq!(
        two.log(),
        [
            (later, lost, deleted, Rule::Deleted),
            (moved, Lost::Place, deleted, Rule::Deleted)
        ]
    );
}

#[test]
fn who_moves_what_stays_of_an_entry_knows_of_its_delete() {
    let mut two = Two::new();
    let deleted = two.at(1, 10, ANN, &[What::Deleted]);
    two.at(2, 11, BEN, &[What::Moved(place(ANN, "cn=ben"))]);
    two.meet();
    assert!(two.seen(ANN).unwrap().is_glue);
    let before = two.log();
    assert!(before.iter().any(|line| line.0 == deleted), "{before:?}");
    two.at(1, 20, ANN, &[What::Moved(place(ROOT, "cn=anne"))]);
    two.meet();
    assert_eq!(two.log(), before);
}

#[test]
fn of_two_moves_that_make_a_ring_the_later_is_left_out() {
    let mut two = Two::new();
    let first = two.at(1, 10, ANN, &[What::Moved(place(BEN, "cn=ann"))]);
    let second = two.at(2, 11, BEN, &[What::Moved(place(ANN, "cn=ben"))]);
    two.meet();
    assert_eq!(two.seen(ANN).unwrap().place.parent, BEN);
    assert_eq!(two.seen(BEN).unwrap().place.parent, ROOT);
    assert_eq!(two.log(), [(second, Lost::Place, first, Rule::Ring)]);
}

#[test]
fn a_move_that_was_left_out_is_followed_when_nothing_is_in_its_way_after_all() {
    let [mut one, mut other] = Two::new().servers;
    let mut third = one.clone();
    let (below_ben, below_ann) = (place(BEN, "cn=ann"), place(ANN, "cn=ben"));
    make(&mut one, csn(10, 1), ANN, &[What::Moved(below_ben)]);
    make(&mut other, csn(12, 2), BEN, &[What::Moved(below_ann)]);
    let away = place(ROOT, "cn=anne");
    make(&mut third, csn(11, 3), ANN, &[What::Moved(away)]);
    tell(&other, &mut one);
    let parent = |server: &Model, entry| server.node(entry).unwrap().unwrap().place.parent;
    assert_eq!((parent(&one, ANN), parent(&one, BEN)), (BEN, ROOT));
    tell(&third, &mut one);
    tell(&one, &mut other);
    for server in [&one, &other] {
        assert_eq!((parent(server, ANN), parent(server, BEN)), (ROOT, ANN));
    }
}

#[test]
fn of_two_moves_of_an_entry_the_later_counts() {
    let mut two = Two::new();
    let second = two.at(1, 11, ANN, &[What::Moved(place(BEN, "cn=ann"))]);
    let first = two.at(2, 10, ANN, &[What::Moved(place(ROOT, "cn=anne"))]);
    two.meet();
    assert_eq!(two.seen(ANN).unwrap().place, place(BEN, "cn=ann"));
    assert_eq!(two.log(), [(first, Lost::Place, second, Rule::Later)]);
}

#[test]
fn the_earlier_claim_keeps_a_name_until_the_name_is_free() {
    let mut two = Two::new();
    let (one, other) = (Uuid([3; 16]), Uuid([4; 16]));
    let second = two.at(1, 11, one, &[What::Born(place(ROOT, "cn=new"))]);
    let first = two.at(2, 10, other, &[What::Born(place(ROOT, "cn=new"))]);
    two.meet();
    let is_qualified = |two: &Two, entry| two.seen(entry).unwrap().is_qualified;
    assert!(is_qualified(&two, one) && !is_qualified(&two, other));
    assert_eq!(two.log(), [(second, Lost::Name, first, Rule::NameTaken)]);
    two.at(1, 20, other, &[What::Moved(place(ROOT, "cn=newer"))]);
    two.meet();
    assert!(!is_qualified(&two, one));
}

#[test]
fn a_deleted_entry_stays_as_glue_until_the_last_below_it_has_gone() {
    let mut two = Two::new();
    let child = Uuid([3; 16]);
    let deleted = two.at(1, 10, ANN, &[What::Deleted]);
    let whats = [What::Born(place(ANN, "cn=child"))];
    let born = two.at(2, 9, child, &whats);
    two.meet();
    let glue = two.seen(ANN).unwrap();
    assert!(glue.is_glue && glue.attributes.is_empty());
    assert_eq!(two.log(), [(deleted, Lost::Delete, born, Rule::Glue)]);
    // Its name is free for an entry that was not deleted.
    let new = Uuid([4; 16]);
    two.at(1, 20, new, &[What::Born(place(ROOT, "cn=ann"))]);
    assert!(two.seen(ANN).unwrap().is_qualified && !two.seen(new).unwrap().is_qualified);
    two.at(1, 21, child, &[What::Moved(place(BEN, "cn=child"))]);
    two.meet();
    assert_eq!(two.seen(ANN), None);
}

#[test]
fn a_value_that_the_name_says_is_always_there() {
    let mut two = Two::new();
    let renamed = [
        What::Moved(place(ROOT, "cn=anne")),
        value("cn", "ann", false),
        value("cn", "anne", true),
    ];
    two.at(1, 10, ANN, &renamed);
    two.at(
        2,
        11,
        ANN,
        &[What::Cleared("cn".into()), value("cn", "ann", true)],
    );
    two.meet();
    assert_eq!(two.values(ANN, "cn"), ["ann", "anne"]);
}

#[test]
fn what_lies_too_far_in_the_future_waits() {
    let mut two = Two::new();
    let ahead = two.at(1, AHEAD_MICROS_MAX + 5, ANN, &[value("member", "x", true)]);
    let since = two.servers[1].vector().unwrap();
    let bundle = Bundle::since(&two.servers[0], &since).unwrap();
    assert_eq!(
        merge(&mut two.servers[1], &bundle, 4),
        Err(MergeError::Ahead(ahead))
    );
    assert_eq!(merge(&mut two.servers[1], &bundle, 5), Ok(()));
    // What was made for somebody who has more is refused.
    let bundle = Bundle::since(&two.servers[0], &two.servers[0].vector().unwrap()).unwrap();
    let mut old = Two::new();
    assert_eq!(merge(&mut old.servers[1], &bundle, 5), Err(MergeError::Gap));
}

#[test]
fn who_lacks_what_was_forgotten_is_told_so() {
    let mut two = Two::new();
    let last = two.at(1, 10, ANN, &[What::Deleted]);
    two.at(2, 9, ANN, &[value("member", "x", true)]);
    let vector = two.servers[0].vector().unwrap();
    prune(&mut two.servers[0], &Settled::all_of(&vector, last)).unwrap();
    assert_eq!(two.servers[0].records(), 0);
    let since = two.servers[1].vector().unwrap();
    assert_eq!(
        Bundle::since(&two.servers[0], &since),
        Err(SinceError::Expired)
    );
    let bundle = Bundle::since(&two.servers[1], &vector).unwrap();
    assert_eq!(
        merge(&mut two.servers[0], &bundle, 0),
        Err(MergeError::Expired)
    );
}

#[test]
fn an_entry_that_was_forgotten_does_not_come_back_with_a_late_bundle() {
    let mut two = Two::new();
    let asked = two.servers[1].vector().unwrap();
    let new = Uuid([3; 16]);
    two.at(1, 10, new, &[What::Born(place(ROOT, "cn=new"))]);
    let last = two.at(1, 11, new, &[What::Deleted]);
    let late = Bundle::since(&two.servers[0], &asked).unwrap();
    two.meet();
    let vector = two.servers[1].vector().unwrap();
    prune(&mut two.servers[1], &Settled::all_of(&vector, last)).unwrap();
    merge(&mut two.servers[1], &late, 0).unwrap();
    assert_eq!(two.servers[1].node(new), Ok(None));
}

#[test]
fn what_is_above_a_delete_that_is_not_settled_is_not_forgotten() {
    let [mut one, mut other] = Two::new().servers;
    let mut third = one.clone();
    let (child, below) = (Uuid([3; 16]), Uuid([4; 16]));
    let born = [What::Born(place(ANN, "cn=child"))];
    make(&mut other, csn(9, 2), child, &born);
    let deleted = csn(10, 1);
    make(&mut one, deleted, ANN, &[What::Deleted]);
    // All know of the child and of the delete, which leaves its entry as glue.
    tell(&other, &mut one);
    tell(&one, &mut other);
    make(&mut other, csn(11, 2), BEN, &[value("member", "x", true)]);
    tell(&other, &mut third);
    // The child is deleted, and somebody adds an entry below it.
    make(&mut other, csn(20, 2), child, &[What::Deleted]);
    let born = [What::Born(place(child, "cn=below"))];
    make(&mut third, csn(21, 3), below, &born);
    let vector = other.vector().unwrap();
    prune(&mut other, &Settled::all_of(&vector, deleted)).unwrap();
    tell(&third, &mut other);
    for entry in [ANN, child] {
        assert!(Seen::of(&other, entry).unwrap().unwrap().is_glue);
    }
}

#[test]
fn a_ring_that_was_seen_for_a_while_keeps_no_other_line_from_being_told() {
    let [mut one, mut other] = Two::new().servers;
    let (mut third, mut fourth) = (one.clone(), one.clone());
    make(
        &mut one,
        csn(10, 1),
        ANN,
        &[What::Moved(place(BEN, "cn=ann"))],
    );
    let moved = csn(12, 2);
    make(&mut other, moved, BEN, &[What::Moved(place(ANN, "cn=ben"))]);
    make(
        &mut third,
        csn(13, 3),
        BEN,
        &[What::Moved(place(ROOT, "cn=benny"))],
    );
    // The fourth sees a ring, and then that the move was overtaken.
    tell(&one, &mut fourth);
    tell(&other, &mut fourth);
    tell(&third, &mut fourth);
    // The first sees no ring, as it had moved its entry away before that.
    make(
        &mut one,
        csn(11, 1),
        ANN,
        &[What::Moved(place(ROOT, "cn=anne"))],
    );
    tell(&other, &mut one);
    assert!(!one.tells(moved, BEN, Lost::Place));
    tell(&fourth, &mut one);
    assert!(one.tells(moved, BEN, Lost::Place));
}

/// An update of Ann, who is one register.
fn left(title: &str) -> [What; 2] {
    let title = ("title".into(), vec![text(title)]);
    [
        What::Moved(place(ROOT, "cn=ann")),
        What::All(vec![title, ("password".into(), vec![text("secret")])]),
    ]
}

#[test]
fn an_entry_that_is_one_register_is_what_the_later_update_has_left() {
    let mut two = Two::of(Resolution::Entry);
    let first = two.at(1, 10, ANN, &left("1"));
    let last = two.at(2, 11, ANN, &left("2"));
    two.meet();
    assert_eq!(two.values(ANN, "title"), ["2"]);
    // The log tells no passwords.
    let lost = Lost::All(vec![("title".into(), vec![text("1")])]);
    assert_eq!(two.log(), [(first, lost, last, Rule::Later)]);
    // Who changes single values resolves conflicts otherwise.
    let mut other = Two::new();
    other.at(2, 20, ANN, &[whole("title", "3")]);
    let since = two.servers[0].vector().unwrap();
    let mut bundle = Bundle::since(&other.servers[1], &since).unwrap();
    bundle.since = since;
    let refused = merge(&mut two.servers[0], &bundle, 0);
    assert_eq!(refused, Err(MergeError::Resolution(ANN)));
}

#[test]
fn an_update_brings_back_an_entry_that_is_one_register_and_a_later_delete_takes_it() {
    let mut two = Two::of(Resolution::Entry);
    let deleted = two.at(1, 10, ANN, &[What::Deleted]);
    let last = two.at(2, 11, ANN, &left("2"));
    two.meet();
    assert_eq!(two.values(ANN, "title"), ["2"]);
    assert_eq!(two.log(), [(deleted, Lost::Delete, last, Rule::Later)]);
    two.at(1, 21, ANN, &[What::Deleted]);
    two.at(2, 20, ANN, &left("3"));
    two.meet();
    assert_eq!(two.seen(ANN), None);
}

#[test]
fn what_a_server_alone_has_that_was_away_for_too_long_is_made_anew() {
    let [mut one, mut other] = Two::new().servers;
    let new = Uuid([3; 16]);
    let born = [What::Born(place(ANN, "cn=new")), value("cn", "new", true)];
    make(&mut other, csn(20, 2), new, &born);
    let changed = [whole("title", "2"), value("member", "x", true)];
    make(&mut other, csn(21, 2), BEN, &changed);
    make(&mut one, csn(30, 1), ANN, &[What::Deleted]);
    let vector = one.vector().unwrap();
    prune(&mut one, &Settled::all_of(&vector, csn(30, 1))).unwrap();
    assert_eq!(
        Bundle::since(&one, &other.vector().unwrap()),
        Err(SinceError::Expired)
    );
    let made = rejoin(&mut one, &other, &[1].into(), csn(40, 3)).unwrap();
    assert_eq!(made.len(), 2);
    assert!(one.vector().unwrap().covers_all(&other.vector().unwrap()));
    assert!(one.tells(csn(20, 2), new, Lost::Place));
    let two = Two {
        servers: [one, other],
    };
    assert_eq!(two.values(BEN, "title"), ["2"]);
    assert_eq!(two.values(BEN, "member"), ["x"]);
    // What it was below has gone.
    assert_eq!(two.seen(new).unwrap().place, place(ROOT, "cn=new"));
}

#[test]
fn what_was_added_and_deleted_alone_is_known_to_have_been_deleted() {
    let [mut one, mut other] = Two::new().servers;
    let new = Uuid([3; 16]);
    make(
        &mut other,
        csn(20, 2),
        new,
        &[What::Born(place(ROOT, "cn=new"))],
    );
    // Another one that is suspended has heard of the entry.
    let third = other.clone();
    make(&mut other, csn(21, 2), new, &[What::Deleted]);
    // The server joins anew, and is suspended again before anybody has heard of that. So the third adds the entry.
    let mut joined = one.clone();
    let made = rejoin(&mut joined, &other, &[1].into(), csn(40, 3)).unwrap();
    let deleted = made.last().unwrap().stamp.csn;
    assert!(Seen::of(&joined, new).unwrap().is_none());
    rejoin(&mut one, &third, &[1].into(), csn(50, 4)).unwrap();
    rejoin(&mut one, &joined, &[1, 4].into(), csn(60, 5)).unwrap();
    assert!(Seen::of(&one, new).unwrap().is_some());
    assert!(one.tells(deleted, new, Lost::Delete));
}

#[test]
fn to_an_entry_that_was_changed_meanwhile_only_values_are_added() {
    let [mut one, mut other] = Two::new().servers;
    let changed = [whole("title", "2"), value("member", "x", true)];
    make(&mut other, csn(20, 2), BEN, &changed);
    make(&mut other, csn(21, 2), ANN, &[What::Deleted]);
    make(&mut one, csn(10, 1), BEN, &[whole("title", "1")]);
    make(&mut one, csn(11, 1), ANN, &[whole("title", "1")]);
    rejoin(&mut one, &other, &[1].into(), csn(40, 3)).unwrap();
    let lost = Lost::Whole("title".into(), Some(vec![text("2")]));
    assert!(one.tells(csn(20, 2), BEN, lost));
    assert!(one.tells(csn(21, 2), ANN, Lost::Delete));
    let two = Two {
        servers: [one, other],
    };
    assert_eq!(two.values(BEN, "title"), ["1"]);
    assert_eq!(two.values(BEN, "member"), ["x"]);
    assert_eq!(two.values(ANN, "title"), ["1"]);
}

#[test]
fn a_copy_that_is_too_old_and_a_server_that_has_forgotten_too_much_are_refused() {
    let [mut one, mut other] = Two::new().servers;
    let mut early = one.clone();
    make(&mut one, csn(10, 1), ANN, &[whole("title", "1")]);
    tell(&one, &mut other);
    let members = [1].into();
    let refused = rejoin(&mut early, &other, &members, csn(40, 3));
    assert_eq!(refused, Err(RejoinError::Behind));
    make(&mut other, csn(20, 2), ANN, &[whole("title", "2")]);
    let vector = other.vector().unwrap();
    prune(&mut other, &Settled::all_of(&vector, csn(20, 2))).unwrap();
    let refused = rejoin(&mut one, &other, &members, csn(40, 3));
    assert_eq!(refused, Err(RejoinError::Forgotten));
}
