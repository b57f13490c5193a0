//! Sorted searches and list views: what an ordering index gives is what gathering the entries gives.

use std::path::PathBuf;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Config, Identity, IndexDefinition, Requester, SearchOptions, SortOptions, Sorted, Step,
    ViewOptions,
};
use sapwood_ldap::controls::{
    Controls, LIST_VIEW_RESPONSE, ListTarget, ListView, ListViewResult, PAGED_RESULTS,
    PagedResults, SortKey, put_sort_keys,
};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Answer, SUFFIX};

use crate::made::{Directory, engine};
use crate::query::{Query, asked, query, steps};

/// A sorted search.
#[derive(Clone, Copy)]
struct Sorting<'s> {
    filter: &'s str,
    attribute: &'s str,
    reverse: bool,
    size_limit: u32,
}

/// By a user attribute, `-` before it for the reverse.
fn by<'s>(filter: &'s str, attribute: &'s str) -> Sorting<'s> {
    let (attribute, reverse) = match attribute.strip_prefix('-') {
        Some(attribute) => (attribute, true),
        None => (attribute, false),
    };
    Sorting {
        filter,
        attribute,
        reverse,
        size_limit: 0,
    }
}

/// What comes of one: names, the result code, and the controls.
struct Came {
    names: Vec<String>,
    code: ResultCode,
    controls: Vec<u8>,
}

impl Came {
    fn control(&self, oid: &str) -> Option<Vec<u8>> {
        let controls = Controls::from_ber(&self.controls).unwrap();
        let found = controls.iter().find(|control| control.oid == oid);
        found.and_then(|control| control.value.map(<[u8]>::to_vec))
    }
}

fn sorted<E: Engine>(
    directory: &sapwood_directory::Directory<E>,
    requester: &Arc<Requester>,
    sorting: Sorting<'_>,
    page: Option<(u32, &[u8])>,
    view: Option<&ListView<'_>>,
) -> Came {
    let mut keys = Vec::new();
    let key = SortKey {
        attribute: sorting.attribute.as_bytes(),
        rule: None,
        reverse: sorting.reverse,
    };
    put_sort_keys(&mut keys, [key]);
    let sort = SortOptions {
        keys,
        is_critical: true,
        folder: PathBuf::from("/nonexistent"),
        view: view.map(|view| {
            let mut value = Vec::new();
            view.encode(&mut value);
            ViewOptions {
                value,
                is_critical: true,
            }
        }),
    };
    let query = Query {
        size_limit: sorting.size_limit,
        options: SearchOptions {
            page: page.map(|(size, cookie)| (size, cookie.to_vec())),
            ..SearchOptions::default()
        },
        step_work: 1 << 20,
        ..query(SUFFIX, Scope::Subtree, sorting.filter)
    };
    let (out, outcome) = asked(&query, |request| {
        let snapshot = directory.snapshot().unwrap();
        let options = query.options.clone();
        let mut search = Sorted::new(snapshot, requester, request, options, Box::new(sort));
        steps(&query, |wire, budget| {
            let step = search.step(wire, budget).unwrap();
            if step == Step::Fetch {
                search.snapshot().fetch().unwrap();
            }
            step
        })
    });
    let entries = Answer::all(&out)
        .into_iter()
        .filter_map(|answer| answer.entry);
    Came {
        names: entries
            .map(|dn| dn.split(['=', ',']).nth(1).unwrap().to_owned())
            .collect(),
        code: outcome.code,
        controls: outcome.controls,
    }
}

/// All entries by pages of so many.
fn paged(
    directory: &Directory,
    requester: &Arc<Requester>,
    sorting: Sorting<'_>,
    size: u32,
) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), Vec::new());
    loop {
        let came = sorted(directory, requester, sorting, Some((size, &cookie)), None);
        assert_eq!(came.code, ResultCode::Success);
        assert!(came.names.len() <= size as usize);
        names.extend(came.names.iter().cloned());
        let value = came.control(PAGED_RESULTS).unwrap();
        cookie = PagedResults::decode(&value).unwrap().cookie.to_vec();
        if cookie.is_empty() {
            return names;
        }
    }
}

fn index(directory: &Directory, attribute: &str) {
    let definition = IndexDefinition {
        attribute: attribute.into(),
        ordering: true,
        ..IndexDefinition::default()
    };
    directory.add_index(&definition, |_| {}).unwrap();
}

const PEOPLE: u32 = 40;

/// People of all kinds: with several values, with options, without the attribute, with values that have no normal form,
/// and long ones.
fn people() -> Directory {
    let config = Config {
        naming_contexts: vec![SUFFIX.into()],
        indexes: Vec::new(),
        ..config()
    };
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    for number in 0..PEOPLE {
        let letter = |salt: u32| char::from(b'a' + ((number * 7 + salt * 5) % 11) as u8);
        let mut lines = format!(
            "objectClass: inetOrgPerson\ncn: p{number}\nsn: {}{number}",
            letter(0)
        );
        if number % 3 == 0 {
            lines += &format!("\nsn: {} other", letter(3));
        }
        if number % 5 == 0 {
            lines += &format!("\nsn;lang-de: {} deutsch", letter(4));
        }
        match number % 8 {
            0 => {}
            1 => lines += "\ntitle: \u{e000}",
            2 => lines += &format!("\ntitle: {}{}", letter(1), "long".repeat(100)),
            _ => lines += &format!("\ntitle: {}", letter(1)),
        }
        lines += &format!(
            "\nobjectClass: posixAccount\nuid: p{number}\ngidNumber: 1\nhomeDirectory: /\nuidNumber: {}",
            i64::from(number * 17 % PEOPLE) - 9
        );
        succeed(&directory, add(&format!("cn=p{number},{SUFFIX}"), &lines));
    }
    directory
}

/// Somebody who may search what the rules do not hide.
fn somebody() -> Identity {
    Identity::External {
        dn: "cn=somebody".into(),
    }
}

const SEARCHES: [(&str, &str); 16] = [
    ("(objectClass=*)", "sn"),
    ("(objectClass=inetOrgPerson)", "sn"),
    ("(objectClass=inetOrgPerson)", "-sn"),
    ("(sn=*)", "sn"),
    ("(sn>=c)", "sn"),
    ("(sn=c*)", "-sn"),
    ("(&(objectClass=*)(sn=*e*))", "-sn"),
    ("(|(sn=a*)(sn=b*))", "-sn"),
    ("(objectClass=*)", "title"),
    ("(objectClass=*)", "-title"),
    ("(title=*)", "title"),
    ("(title=*)", "-title"),
    ("(uidNumber=*)", "uidNumber"),
    ("(uidNumber=*)", "-uidNumber"),
    ("(uidNumber<=4)", "-uidNumber"),
    ("(!(uidNumber=3))", "uidNumber"),
];

#[test]
fn an_index_gives_the_order_that_gathering_gives() {
    let directory = people();
    succeed(
        &directory,
        modify(
            "olcDatabase={1}mdb,cn=config",
            &[(
                Replace,
                "olcAccess",
                &[
                    "{0}to dn.exact=\"cn=p3,dc=example,dc=com\" attrs=sn by * none",
                    "{1}to dn.exact=\"cn=p5,dc=example,dc=com\" by * none",
                    "{2}to attrs=sn val.regex=\"other\" by * none",
                    "{3}to * by * read",
                ],
            )],
        ),
    );
    let askers = [admin(), somebody()].map(|identity| directory.requester(identity));
    let all = |size: u32| {
        let mut all = Vec::new();
        for asker in &askers {
            for (filter, attribute) in SEARCHES {
                all.push(paged(&directory, asker, by(filter, attribute), size));
            }
        }
        all
    };
    let gathered = all(1000);
    assert_eq!(gathered[0].len(), PEOPLE as usize + 1);
    for attribute in ["sn", "title", "uidNumber"] {
        index(&directory, attribute);
    }
    for size in [1, 2, 7, 1000] {
        let indexed = all(size);
        for (at, (gathered, indexed)) in gathered.iter().zip(&indexed).enumerate() {
            assert_eq!(
                gathered,
                indexed,
                "{:?}, pages of {size}",
                SEARCHES[at % 16]
            );
        }
    }
}

#[test]
fn an_entry_of_several_values_counts_once() {
    let directory = people();
    index(&directory, "sn");
    let admin = directory.requester(admin());
    let people = sorted(&directory, &admin, by("(sn=*)", "sn"), None, None);
    assert_eq!(people.names.len(), PEOPLE as usize);
    for (size_limit, code) in [
        (PEOPLE, ResultCode::Success),
        (PEOPLE - 1, ResultCode::SizeLimitExceeded),
    ] {
        let sorting = Sorting {
            size_limit,
            ..by("(sn=*)", "sn")
        };
        let came = sorted(&directory, &admin, sorting, None, None);
        assert_eq!(came.code, code);
        assert_eq!(came.names, people.names[..size_limit as usize]);
    }
}

fn offset(offset: u32, content_count: u32) -> ListTarget<'static> {
    ListTarget::Offset {
        offset,
        content_count,
    }
}

/// What a view tells: the names, the position, the count, and the context.
type Told = (Vec<String>, u32, u32, Vec<u8>);

fn view(
    directory: &Directory,
    requester: &Arc<Requester>,
    sorting: Sorting<'_>,
    target: ListTarget<'_>,
    context: Option<&[u8]>,
) -> Told {
    let view = ListView {
        before: 2,
        after: 3,
        target,
        context,
    };
    let came = sorted(directory, requester, sorting, None, Some(&view));
    assert_eq!(came.code, ResultCode::Success, "{target:?}");
    let told = came.control(LIST_VIEW_RESPONSE).unwrap();
    let told = ListViewResult::decode(&told).unwrap();
    let context = told.context.unwrap().to_vec();
    (came.names, told.position, told.content_count, context)
}

#[test]
fn views_of_an_index_are_those_of_a_list() {
    let directory = people();
    let admin = directory.requester(admin());
    let numbers = ["-10", "-9", "0", "4", "29", "30", "31"].map(|number| number.as_bytes());
    let targets = || {
        let offsets = [1, 2, 3, 20, 38, 39, 40, 90].map(|at| offset(at, 0));
        offsets.into_iter().chain(numbers.map(ListTarget::Value))
    };
    let all = || {
        let mut all = Vec::new();
        for attribute in ["uidNumber", "-uidNumber"] {
            for target in targets() {
                let sorting = by("(uidNumber=*)", attribute);
                let (names, position, count, _) = view(&directory, &admin, sorting, target, None);
                all.push((names, position, count));
            }
        }
        all
    };
    let listed = all();
    assert_eq!(listed[3].1, 20);
    assert_eq!(listed[3].2, PEOPLE);
    index(&directory, "uidNumber");
    assert_eq!(all(), listed);
    // The index has more than this list.
    let sorting = by("(&(uidNumber=*)(!(cn=p3)))", "uidNumber");
    let (_, _, count, _) = view(&directory, &admin, sorting, offset(1, 0), None);
    assert_eq!(count, PEOPLE - 1);
    // It has what changes at once.
    let (names, _, _, _) = view(
        &directory,
        &admin,
        by("(uidNumber=*)", "uidNumber"),
        offset(1, 0),
        None,
    );
    succeed(&directory, delete(&format!("cn={},{SUFFIX}", names[0])));
    let (left, _, count, _) = view(
        &directory,
        &admin,
        by("(uidNumber=*)", "uidNumber"),
        offset(1, 0),
        None,
    );
    assert_eq!((&left[..3], count), (&names[1..4], PEOPLE - 1));
}

#[test]
fn a_list_is_kept_for_who_names_it() {
    let directory = people();
    let (admin, other) = (directory.requester(admin()), directory.requester(admin()));
    let sorting = by("(cn=p*)", "cn");
    let (names, _, count, context) = view(&directory, &admin, sorting, offset(10, 0), None);
    assert_eq!((names.len(), count), (6, PEOPLE));
    succeed(&directory, delete(&format!("cn={},{SUFFIX}", names[1])));
    let mut left = names.clone();
    left.remove(1);
    let told = |(names, _, count, _): Told| (names, count);
    // The list is as it was; what is gone is not sent.
    let named = |context: &[u8]| {
        told(view(
            &directory,
            &admin,
            sorting,
            offset(10, 0),
            Some(context),
        ))
    };
    assert_eq!(named(&context), (left.clone(), PEOPLE));
    // Who does not name it sees what there is, and so does somebody else who names it.
    let now = told(view(&directory, &admin, sorting, offset(10, 0), None));
    assert_eq!((&now.0[..5], now.1), (&left[..], PEOPLE - 1));
    let others = told(view(
        &directory,
        &other,
        sorting,
        offset(10, 0),
        Some(&context),
    ));
    assert_eq!(others, now);
    // There is one list for each request, the newest.
    assert_eq!(named(&context), now);
}
