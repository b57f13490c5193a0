//! Lists are gone through a step at a time, also where they give nothing.

use std::sync::Arc;

use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{AddRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, requests};

use super::*;
use crate::access::Sight;
use crate::engine::{Embedded, Engine, Shy, Ticket as _};
use crate::matching::filter::Compiler;
use crate::plan::{Planned, Planner, Progress};
use crate::schema::Schema;
use crate::steps::counted;
use crate::{
    Budget, Config, Directory, IndexDefinition, Options, Requester, Search, SearchOptions, Step,
    Update, UpdateRequest, Wire,
};

const SUFFIX: &str = "dc=example,dc=com";
/// More than are looked at one by one, of more people each than are kept with a plan.
const GROUPS: usize = 9;

fn admin() -> Arc<Requester> {
    Requester::administrator("cn=admin")
}

fn apply<E: Engine>(directory: &Directory<E>, messages: Vec<Vec<u8>>) {
    let update = |message| Update {
        requester: admin(),
        request: UpdateRequest::Message(message),
    };
    let updates: Vec<Update> = messages.into_iter().map(update).collect();
    let applied = directory.apply(&updates).unwrap();
    for outcome in &applied.outcomes {
        assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    }
    applied.ticket.unwrap().wait().unwrap();
}

fn person(name: &str, descriptions: &[String]) -> Vec<u8> {
    let mut list = requests::attributes(&[("objectClass", "person"), ("cn", name), ("sn", "x")]);
    if !descriptions.is_empty() {
        let descriptions = descriptions.iter().map(String::as_bytes);
        list.push(b"description", descriptions);
    }
    let (dn, attributes) = (format!("cn={name},{SUFFIX}"), list.view());
    requests::message(
        1,
        Request::Add(AddRequest {
            dn: &dn,
            attributes,
        }),
    )
}

/// So many people, whose descriptions are indexed.
fn directory<E: Engine>(
    engine: E,
    people: usize,
    descriptions: impl Fn(usize) -> Vec<String>,
) -> Directory<E> {
    let config = Config {
        naming_contexts: vec![SUFFIX.into()],
        indexes: vec![IndexDefinition {
            attribute: "description".into(),
            equality: true,
            ..IndexDefinition::default()
        }],
        ..Config::default()
    };
    let options = Options::new(Schema::standard());
    let directory = Directory::create_on(engine, &config, options).unwrap();
    let attributes = [("objectClass", "domain"), ("dc", "example")];
    apply(&directory, vec![requests::add(1, SUFFIX, &attributes)]);
    let people: Vec<Vec<u8>> = (0..people)
        .map(|number| person(&format!("p{number}"), &descriptions(number)))
        .collect();
    for some in people.chunks(16) {
        apply(&directory, some.to_vec());
    }
    directory
}

/// Half of them in three kinds that have hardly anybody in common.
fn kinds() -> Directory {
    directory(Embedded::in_memory().unwrap(), 900, |number| {
        match (number, number % 4) {
            (790, _) => vec!["odd".into(), "even".into(), "group 0".into()],
            (..800, 1) => vec!["odd".into()],
            (..800, 2) => vec!["even".into()],
            (..800, 3) => vec![format!("group {}", number / 4 % GROUPS)],
            (..200, _) => vec!["low".into()],
            _ => Vec::new(),
        }
    })
}

/// Filters, and how many they find of [`kinds`].
fn filters() -> Vec<(FilterBuf, usize)> {
    let both = "(&(description=odd)(description=even))";
    let groups: String = (0..GROUPS)
        .map(|group| format!("(description=group {group})"))
        .collect();
    // Nobody is in two groups.
    let pairs: String = (0..GROUPS)
        .map(|group| {
            let next = (group + 1) % GROUPS;
            format!("(&(description=group {group})(description=group {next}))")
        })
        .collect();
    let all = [
        (both.to_owned(), 1),
        (format!("(|{both}(description=low))"), 51),
        (format!("(|{both}{pairs})"), 1),
        (
            format!("(|(&(description=odd)(|{pairs}))(description=low))"),
            50,
        ),
        (
            format!("(&(description=even)(|{groups})(description=odd))"),
            1,
        ),
        (format!("(|{pairs}(&(|{groups})(description=even)))"), 1),
    ];
    all.into_iter()
        .map(|(text, found)| (filter_text::parse(&text).unwrap(), found))
        .collect()
}

/// What a term has, in steps of so much work; the longest one, and all of them.
fn in_steps<R: Read>(view: &R, term: &Term, work: u64) -> (Vec<EntryId>, u64, u64) {
    let (mut ids, mut longest, mut all) = (Vec::new(), 0, 0);
    let (mut kept, mut at) = (None, EntryId::ROOT);
    for _ in 0..100_000 {
        let pace = Pace::new(work);
        let mut stream = Stream::open(view, term, kept.take(), &pace);
        let (next, steps) = counted(|| match stream.begin(at).unwrap() {
            true => Some(stream.seek(at).unwrap()),
            false => None,
        });
        kept = stream.close();
        longest = longest.max(steps);
        all += steps;
        match next {
            // Asked for the same again: what is kept says how far it was.
            None | Some(Next::From(_)) => {}
            Some(Next::At(id)) => {
                ids.push(id);
                at = EntryId(id.0 + 1);
            }
            Some(Next::End) => return (ids, longest, all),
        }
    }
    panic!("{term} has no end");
}

#[test]
fn what_gives_nothing_is_gone_through_in_steps_that_go_on_where_the_one_before_stopped() {
    let directory = kinds();
    let schema = Schema::standard();
    let snapshot = directory.snapshot().unwrap();
    let (state, view) = (snapshot.state(), snapshot.view());
    for (filter, found) in filters() {
        let asks = admin();
        let compiler = Compiler::new(&schema, &state.attributes, (asks.grants(), Sight::All));
        let node = compiler.compile(filter.as_filter());
        let planner = Planner {
            schema: &schema,
            state,
            view,
        };
        let planned = planner.plan(&node, &mut Progress::default(), u64::MAX);
        let Ok(Planned::Term(term)) = planned else {
            panic!("{planned:?}");
        };
        let (at_once, _, all_at_once) = in_steps(view, &term, u64::MAX);
        assert!(at_once.len() >= found, "{term}: {}", at_once.len());
        let (ids, longest, all) = in_steps(view, &term, 1);
        assert_eq!(ids, at_once, "{term}");
        assert!(longest <= 8, "{term}: {longest} at once");
        let most = all_at_once * 2 + 100;
        assert!(all <= most, "{term}: {all}, {all_at_once} at once");
    }
}

#[test]
fn a_search_of_lists_that_do_not_meet_stops_on_the_way() {
    let directory = kinds();
    for (filter, expected) in filters() {
        let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
        let snapshot = directory.snapshot().unwrap();
        let mut search = Search::new(snapshot, &admin(), &request, SearchOptions::default());
        let (mut out, mut longest) = (Vec::new(), 0);
        for steps_taken in 0.. {
            let budget = Budget {
                entries: 1,
                work: SEEK_WORK * 16,
                out_bytes: usize::MAX,
            };
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            let (step, steps) = counted(|| search.step(&mut wire, budget).unwrap());
            longest = longest.max(steps);
            match step {
                Step::More => assert!(steps_taken < 10_000, "no end"),
                Step::Done(outcome) => {
                    assert_eq!(outcome.code, ResultCode::Success);
                    break;
                }
                step => panic!("{step:?}"),
            }
        }
        assert_eq!(Answer::all(&out).len(), expected, "{filter:?}");
        assert!(longest < 100, "{longest} at once");
    }
}

/// A search that goes on in another snapshot has to ask all lists again.
#[test]
fn a_search_stays_in_its_snapshot_until_all_lists_have_begun() {
    const LISTS: usize = 12;
    // The engine tells a third of a number that three divides.
    const EACH: usize = 18;
    let engine = Shy::over(Embedded::in_memory().unwrap());
    let directory = directory(engine, 3 * LISTS * EACH, |number| {
        let group = || format!("group {}", number % LISTS);
        (number < LISTS * EACH).then(group).into_iter().collect()
    });
    let items: String = (0..LISTS)
        .map(|list| format!("(description=group {list})"))
        .collect();
    let filter = filter_text::parse(&format!("(|{items})")).unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    let begun_on = directory.snapshot().unwrap();
    let old = begun_on.commit();
    let mut search = Search::new(begun_on, &admin(), &request, SearchOptions::default());
    apply(&directory, vec![person("new", &[])]);
    let mut out = Vec::new();
    // Lists that were asked for their first ids, or more.
    let mut asked = 0;
    let mut renewals = 0;
    for _ in 0..100_000 {
        let budget = Budget {
            entries: u32::MAX,
            work: u64::MAX,
            out_bytes: usize::MAX,
        };
        let is_planned = search.is_planned();
        let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
        let (step, steps) = counted(|| search.step(&mut wire, budget).unwrap());
        match step {
            Step::Done(outcome) => {
                assert_eq!(outcome.code, ResultCode::Success);
                assert_eq!(Answer::all(&out).len(), LISTS * EACH);
                assert!(renewals > 0);
                return;
            }
            Step::Fetch if is_planned && asked < LISTS as u64 => {
                asked += steps;
                let snapshot = directory.snapshot().unwrap();
                assert_ne!(snapshot.commit(), old);
                if asked < LISTS as u64 {
                    renewals += 1;
                    search.renew(snapshot, &admin(), &request, SearchOptions::default());
                    assert_eq!(search.snapshot().commit(), old, "after {asked} lists");
                }
                search.snapshot().fetch().unwrap();
            }
            Step::Fetch => search.snapshot().fetch().unwrap(),
            Step::More => {}
            step => panic!("{step:?}"),
        }
    }
    panic!("no end");
}
