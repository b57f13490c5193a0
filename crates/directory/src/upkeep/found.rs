//! Finding entries for what a directory does by itself, whatever access rules say.

use sapwood_ldap::filter_text;
use sapwood_ldap::list::{OctetStrings, OctetStringsBuf};
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest};

use crate::access::Requester;
use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::matching::sink::{EntrySink, Sink};
use crate::search::{Budget, Search, SearchOptions, Step};

/// The DNs of what a search finds.
#[derive(Default)]
struct Found {
    dns: Vec<String>,
}

/// One of them, of which nothing else is wanted.
struct Passed;

impl Sink for Found {
    type Entry<'s> = Passed;

    fn bytes(&self) -> usize {
        0
    }

    fn envelope_bytes_max(&self) -> usize {
        0
    }

    fn begin_entry(&mut self, dn: &[u8], _: usize) -> Passed {
        self.dns.push(String::from_utf8_lossy(dn).into_owned());
        Passed
    }

    fn put_reference(&mut self, _: OctetStrings<'_>) {}
}

impl EntrySink for Passed {
    fn put_ber(&mut self, _: &[u8]) {}

    fn put_attribute<'v>(&mut self, _: &[u8], _: impl IntoIterator<Item = &'v [u8]>) {}

    fn put_values(&mut self, _: &[u8], _: &[u8]) {}

    fn finish(self) {}
}

/// The DNs of the entries at and below a base that a filter finds, up to so many; 0 is no limit.
pub(super) fn find<E: Engine>(
    snapshot: Snapshot<E>,
    (base, filter): (&str, &str),
    most: u32,
) -> Result<Vec<String>> {
    let filter = filter_text::parse(filter);
    let filter = filter.map_err(|error| Error::State(error.to_string()))?;
    let attributes = OctetStringsBuf::from_iter(["1.1"]);
    let request = SearchRequest {
        base,
        scope: Scope::Subtree,
        deref_aliases: DerefAliases::Never,
        size_limit: most,
        time_limit: 0,
        types_only: false,
        filter: filter.as_filter(),
        attributes: attributes.view(),
    };
    let options = SearchOptions {
        manage_dsa_it: true,
        ..SearchOptions::default()
    };
    let requester = Requester::administrator("");
    let mut search = Search::new(snapshot, &requester, &request, options);
    let mut found = Found::default();
    let budget = Budget {
        entries: u32::MAX,
        work: u64::MAX,
        out_bytes: usize::MAX,
    };
    loop {
        match search.step(&mut found, budget)? {
            Step::Done(_) => return Ok(found.dns),
            Step::Fetch => search.snapshot().fetch()?,
            Step::More | Step::Room(_) | Step::Wait => {}
        }
    }
}
