//! Virtual list views (draft-ietf-ldapext-ldapv3-vlv).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    LIST_VIEW_REQUEST, LIST_VIEW_RESPONSE, ListTarget, ListView, ListViewResult, PAGED_RESULTS,
    PagedResults, SORT_REQUEST, SortKey, put_sort_keys,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_server::password;
use sapwood_testkit::requests::Control;
use sapwood_testkit::{Answer, Client, PASSWORD, SUFFIX, TestServer};

const BEHIND: u32 = 2;

fn view_of(before: u32, target: ListTarget<'_>) -> ListView<'_> {
    ListView {
        before,
        after: BEHIND,
        target,
        context: None,
    }
}

fn offset(offset: u32, content_count: u32) -> ListTarget<'static> {
    ListTarget::Offset {
        offset,
        content_count,
    }
}

fn keys(attribute: &str, reverse: bool) -> Vec<u8> {
    let mut keys = Vec::new();
    let key = SortKey {
        attribute: attribute.as_bytes(),
        rule: None,
        reverse,
    };
    put_sort_keys(&mut keys, [key]);
    keys
}

fn search(client: &mut Client, controls: &[Control<'_>]) -> Vec<Answer> {
    let filter = filter_text::parse("(objectClass=person)").unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client.ask_all(Request::Search(request), controls)
}

/// The names that a view sends.
fn names(answers: &[Answer]) -> Vec<String> {
    let entries = answers.iter().filter_map(|answer| answer.entry.as_deref());
    let name = |dn: &str| dn.split(['=', ',']).nth(1).unwrap().to_owned();
    entries.map(name).collect()
}

/// The value of the response control.
fn told(answers: &[Answer]) -> Vec<u8> {
    let controls = &answers.last().unwrap().controls;
    let told = controls.iter().find(|(oid, _)| oid == LIST_VIEW_RESPONSE);
    told.unwrap().1.clone()
}

/// The names, the position and the count of a view of a list that is sorted by these keys.
fn seen(client: &mut Client, keys: &[u8], view: &ListView<'_>) -> (Vec<String>, u32, u32) {
    let mut value = Vec::new();
    view.encode(&mut value);
    let sort = (SORT_REQUEST, true, Some(keys));
    let answers = search(client, &[sort, (LIST_VIEW_REQUEST, true, Some(&value))]);
    answers.last().unwrap().succeeded();
    let told = told(&answers);
    let result = ListViewResult::decode(&told).unwrap();
    assert_eq!(result.code, ResultCode::Success);
    (names(&answers), result.position, result.content_count)
}

fn people(count: usize) -> TestServer {
    let server = TestServer::start();
    server.add_people(count, 1);
    server
}

#[test]
fn a_view_is_around_its_offset_or_value() {
    let server = people(10);
    let mut client = server.admin();
    let ascending = keys("cn", false);
    let descending = keys("cn", true);
    for (keys, before, target, expected, position) in [
        (
            &ascending,
            1,
            offset(5, 0),
            &["p3", "p4", "p5", "p6"][..],
            5,
        ),
        (&ascending, 1, offset(5, 10), &["p3", "p4", "p5", "p6"], 5),
        (&ascending, 1, offset(50, 100), &["p3", "p4", "p5", "p6"], 5),
        (&ascending, 5, offset(1, 0), &["p0", "p1", "p2"], 1),
        (&ascending, 1, offset(7, 7), &["p8", "p9"], 10),
        (&descending, 0, offset(2, 0), &["p8", "p7", "p6"], 2),
        (
            &ascending,
            1,
            ListTarget::Value(b"P5"),
            &["p4", "p5", "p6", "p7"],
            6,
        ),
        (
            &ascending,
            1,
            ListTarget::Value(b"p55"),
            &["p5", "p6", "p7", "p8"],
            7,
        ),
        (&ascending, 1, ListTarget::Value(b"z"), &["p9"], 11),
        (&ascending, 0, ListTarget::Value(b"z"), &[], 11),
        (
            &ascending,
            0,
            ListTarget::Value(b"a"),
            &["p0", "p1", "p2"],
            1,
        ),
        (
            &descending,
            1,
            ListTarget::Value(b"p5"),
            &["p6", "p5", "p4", "p3"],
            5,
        ),
        (
            &descending,
            1,
            ListTarget::Value(b"p55"),
            &["p6", "p5", "p4", "p3"],
            5,
        ),
    ] {
        let found = seen(&mut client, keys, &view_of(before, target));
        let expected = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(found, (expected, position, 10), "{before} {target:?}");
    }
}

/// More than fits into the memory of a sorted search.
#[test]
fn a_list_that_is_sorted_in_a_file_has_views() {
    const PEOPLE: usize = 6000;
    let server = people(PEOPLE);
    let mut client = server.admin();
    let mut sorted: Vec<String> = (0..PEOPLE).map(|number| format!("p{number}")).collect();
    sorted.sort_unstable();
    let keys = keys("cn", false);
    for place in [1_usize, 2999, 6000] {
        let view = view_of(1, offset(place as u32, 0));
        let found = seen(&mut client, &keys, &view);
        let part = &sorted[place.saturating_sub(2)..(place + BEHIND as usize).min(PEOPLE)];
        assert_eq!(found, (part.to_vec(), place as u32, PEOPLE as u32));
    }
}

#[test]
fn positions_and_counts_tell_nothing_of_hidden_entries() {
    let server = people(10);
    let hidden = "{0}to dn.regex=\"^cn=p[0-3],\" by * none";
    let shown = "{1}to * by users read by anonymous auth";
    server.configure(&[(ChangeKind::Replace, "olcAccess", &[hidden, shown])]);
    let anne = format!("cn=anne,{SUFFIX}");
    let stored = String::from_utf8(password::hash(PASSWORD.as_bytes())).unwrap();
    let person = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", stored.as_str()),
    ];
    server.add(&[(&anne, &person)]);
    let mut client = server.connect();
    client.bind(&anne, PASSWORD).succeeded();
    let found = seen(
        &mut client,
        &keys("cn", false),
        &view_of(3, ListTarget::Value(b"p5")),
    );
    let expected = ["anne", "p4", "p5", "p6", "p7"].map(str::to_owned);
    assert_eq!(found, (expected.to_vec(), 3, 7));
}

#[test]
fn a_view_that_cannot_be_says_why() {
    let server = people(3);
    let mut client = server.admin();
    let by_name = keys("cn", false);
    let sort = (SORT_REQUEST, true, Some(by_name.as_slice()));
    let unknown = keys("none", false);
    let no_sort = (SORT_REQUEST, false, Some(unknown.as_slice()));
    let by_time = keys("createTimestamp", false);
    let of_time = (SORT_REQUEST, true, Some(by_time.as_slice()));
    let mut page = Vec::new();
    PagedResults {
        size: 2,
        cookie: &[],
    }
    .encode(&mut page);
    let pages = (PAGED_RESULTS, true, Some(page.as_slice()));
    let first = view_of(0, offset(1, 0));
    let foreign = ListView {
        context: Some(b"x"),
        ..first
    };
    for (view, others, expected) in [
        (first, &[][..], ResultCode::SortControlMissing),
        (
            view_of(0, offset(0, 0)),
            &[sort],
            ResultCode::OffsetRangeError,
        ),
        (
            view_of(0, offset(4, 3)),
            &[sort],
            ResultCode::OffsetRangeError,
        ),
        (first, &[no_sort], ResultCode::NoSuchAttribute),
        (first, &[sort, pages], ResultCode::UnwillingToPerform),
        (foreign, &[sort], ResultCode::ProtocolError),
        (
            view_of(0, ListTarget::Value(b"yesterday")),
            &[of_time],
            ResultCode::InappropriateMatching,
        ),
    ] {
        let mut value = Vec::new();
        view.encode(&mut value);
        let mut controls = others.to_vec();
        controls.push((LIST_VIEW_REQUEST, true, Some(&value)));
        let answers = search(&mut client, &controls);
        assert_eq!(names(&answers), Vec::<String>::new());
        let last = answers.last().unwrap();
        assert_eq!(last.code, ResultCode::ListViewError, "{view:?}");
        assert!(!last.diagnostic.is_empty());
        let told = told(&answers);
        assert_eq!(ListViewResult::decode(&told).unwrap().code, expected);
    }
    // One that is not critical is left out where the entries cannot be sorted.
    let mut value = Vec::new();
    first.encode(&mut value);
    let view = (LIST_VIEW_REQUEST, false, Some(value.as_slice()));
    let answers = search(&mut client, &[no_sort, view]);
    answers.last().unwrap().succeeded();
    assert_eq!(names(&answers).len(), 3);
    // Malformed, and on another operation.
    let malformed = (LIST_VIEW_REQUEST, false, Some(b"\x30\x00".as_slice()));
    let answers = search(&mut client, &[sort, malformed]);
    assert_eq!(answers[0].code, ResultCode::ProtocolError);
    let misplaced = (LIST_VIEW_REQUEST, true, Some(value.as_slice()));
    let answer = client.ask_with(Request::Delete(SUFFIX), &[misplaced]);
    assert_eq!(answer.code, ResultCode::UnavailableCriticalExtension);
}

#[test]
fn a_context_belongs_to_its_list() {
    let server = people(5);
    let mut client = server.admin();
    let (by_name, reverse) = (keys("cn", false), keys("cn", true));
    let mut value = Vec::new();
    view_of(0, offset(1, 0)).encode(&mut value);
    let ask = |client: &mut Client, keys: &[u8], value: &[u8]| {
        let sort = (SORT_REQUEST, true, Some(keys));
        search(client, &[sort, (LIST_VIEW_REQUEST, true, Some(value))])
    };
    let told = told(&ask(&mut client, &by_name, &value));
    let context = ListViewResult::decode(&told).unwrap().context;
    assert!(context.is_some());
    let next = ListView {
        context,
        ..view_of(0, offset(4, 5))
    };
    assert_eq!(seen(&mut client, &by_name, &next).0, ["p3", "p4"]);
    let mut value = Vec::new();
    next.encode(&mut value);
    let answers = ask(&mut client, &reverse, &value);
    assert_eq!(answers.last().unwrap().code, ResultCode::ListViewError);
}
