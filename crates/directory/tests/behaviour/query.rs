//! A search as a test puts it, and what it finds.

use std::collections::BTreeSet;
use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Budget, Directory, Identity, Outcome, Requester, Search, SearchOptions, Searches, Snapshot,
    Step, Wire,
};
use sapwood_ldap::controls::{Controls, PagedResults};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::Answer;
use sapwood_testkit::directories::admin;

const MESSAGE_ID: u32 = 7;

pub(crate) struct Query<'q> {
    pub(crate) base: &'q str,
    pub(crate) scope: Scope,
    pub(crate) deref: DerefAliases,
    pub(crate) filter: &'q str,
    pub(crate) attributes: &'q [&'q str],
    pub(crate) size_limit: u32,
    pub(crate) types_only: bool,
    pub(crate) options: SearchOptions,
    pub(crate) identity: Identity,
    pub(crate) step_entries: u32,
    /// Work of a step.
    pub(crate) step_work: u64,
    /// Room for the answers of a step; a step that asks for more gets as much as it asks for.
    pub(crate) step_bytes: usize,
}

/// By the admin, for all attributes, without limits, in steps of two entries.
pub(crate) fn query<'q>(base: &'q str, scope: Scope, filter: &'q str) -> Query<'q> {
    Query {
        base,
        scope,
        deref: DerefAliases::Never,
        filter,
        attributes: &[],
        size_limit: 0,
        types_only: false,
        options: SearchOptions::default(),
        identity: admin(),
        step_entries: 2,
        step_work: 1 << 10,
        step_bytes: 1 << 16,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) code: ResultCode,
    pub(crate) matched: String,
    /// DN and attributes as `name: value`.
    pub(crate) entries: Vec<(String, BTreeSet<String>)>,
    pub(crate) references: BTreeSet<String>,
    pub(crate) cookie: Vec<u8>,
}

impl Found {
    pub(crate) fn dns(&self) -> BTreeSet<&str> {
        self.entries.iter().map(|entry| entry.0.as_str()).collect()
    }
}

pub(crate) fn search<E: Engine>(directory: &Directory<E>, query: &Query<'_>) -> Found {
    search_in(directory.snapshot().unwrap(), query)
}

pub(crate) fn search_in<E: Engine>(snapshot: Snapshot<E>, query: &Query<'_>) -> Found {
    asked(query, |request| {
        let options = query.options.clone();
        let requester = snapshot.directory().requester(query.identity.clone());
        finish(Search::new(snapshot, &requester, request, options), query)
    })
}

/// Begins searches together, and finishes them one after the other.
pub(crate) fn search_together<E: Engine>(
    directory: &Directory<E>,
    queries: &[Query<'_>],
) -> Vec<Found> {
    let mut searches = Searches::new(directory.snapshot().unwrap());
    let mut found = Vec::new();
    for burst in queries.chunks(5) {
        let begun = begin(&mut searches, burst, Vec::new());
        assert_eq!(begun.len(), burst.len());
        found.extend(
            begun
                .into_iter()
                .zip(burst)
                .map(|(search, query)| finish(search, query)),
        );
    }
    found
}

/// Hands all requests of a burst over at once, each of which borrows from its own call.
fn begin<'r, E: Engine>(
    searches: &mut Searches<E>,
    queries: &[Query<'_>],
    before: Vec<(&'r Arc<Requester>, &'r SearchRequest<'r>, SearchOptions)>,
) -> Vec<Search<E>> {
    let Some((first, rest)) = queries.split_first() else {
        return searches.begin(before.into_iter());
    };
    let directory = searches.snapshot().directory();
    let requester = directory.requester(first.identity.clone());
    asked(first, |request| {
        let mut requests: Vec<(&Arc<Requester>, &SearchRequest<'_>, _)> = before;
        requests.push((&requester, request, first.options.clone()));
        begin(searches, rest, requests)
    })
}

/// Calls `ask` with the request.
pub(crate) fn asked<T>(query: &Query<'_>, ask: impl FnOnce(&SearchRequest<'_>) -> T) -> T {
    let filter = filter_text::parse(query.filter).unwrap();
    let attributes: OctetStringsBuf = query.attributes.iter().collect();
    ask(&SearchRequest {
        base: query.base,
        scope: query.scope,
        deref_aliases: query.deref,
        size_limit: query.size_limit,
        time_limit: 0,
        types_only: query.types_only,
        filter: filter.as_filter(),
        attributes: attributes.view(),
    })
}

fn finish<E: Engine>(mut search: Search<E>, query: &Query<'_>) -> Found {
    let (out, outcome) = steps(query, |wire, budget| {
        let step = search.step(wire, budget).unwrap();
        if step == Step::Fetch {
            search.snapshot().fetch().unwrap();
        }
        step
    });
    let mut found = Found {
        code: outcome.code,
        matched: outcome.matched_dn,
        entries: Vec::new(),
        references: outcome.referrals.into_iter().flatten().collect(),
        cookie: Vec::new(),
    };
    if !outcome.controls.is_empty() {
        let controls = Controls::from_ber(&outcome.controls).unwrap();
        let value = controls.iter().next().unwrap().value.unwrap();
        found.cookie = PagedResults::decode(value).unwrap().cookie.to_vec();
    }
    for answer in Answer::all(&out) {
        assert_eq!(answer.id, MESSAGE_ID);
        assert!(!answer.ends, "{answer:?}");
        found.references.extend(answer.uris);
        let Some(dn) = answer.entry else { continue };
        let mut lines = BTreeSet::new();
        for (name, values) in answer.attributes {
            if values.is_empty() {
                lines.insert(name.clone());
            }
            for value in values {
                let value = String::from_utf8_lossy(&value);
                assert!(lines.insert(format!("{name}: {value}")));
            }
        }
        found.entries.push((dn, lines));
    }
    found
}

/// Steps a search to its end: the messages of its entries and references, and the outcome. `step` fetches what is not
/// here.
pub(crate) fn steps(
    query: &Query<'_>,
    mut step: impl FnMut(&mut Wire<'_>, Budget) -> Step,
) -> (Vec<u8>, Outcome) {
    let mut out = Vec::new();
    let mut room = query.step_bytes;
    let outcome = loop {
        let budget = Budget {
            entries: query.step_entries,
            work: query.step_work,
            out_bytes: out.len() + room,
        };
        let mut wire = Wire::new(&mut out, MESSAGE_ID, Controls::EMPTY);
        let step = step(&mut wire, budget);
        assert!(out.len() <= budget.out_bytes);
        room = match step {
            Step::More | Step::Fetch => query.step_bytes,
            Step::Room(bytes) => bytes,
            Step::Wait => panic!("it is no persistent search"),
            Step::Done(outcome) => break outcome,
        };
    };
    (out, outcome)
}
