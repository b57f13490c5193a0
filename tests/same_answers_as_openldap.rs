//! OpenLDAP's slapd and sapwood hold the same data and are asked the same: searches and compares of every scope, alias
//! mode, filter type and selection, then updates, valid and not. Result codes, matched names, referrals and entries
//! must be the same, and at the end the whole trees. Differences that stay are of a kind that
//! `docs/reference/differences-from-openldap.md` explains.
//!
//! The questions come from seeds, which `SAME_ANSWERS_SEED` overrides with another one.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "same_answers/answer.rs"]
mod answer;
#[path = "same_answers/differences.rs"]
mod differences;
#[path = "same_answers/discovery.rs"]
mod discovery;
#[path = "same_answers/operation.rs"]
mod operation;
#[path = "same_answers/questions.rs"]
mod questions;
#[path = "same_answers/servers.rs"]
mod servers;
#[path = "same_answers/vocabulary.rs"]
mod vocabulary;

use answer::Answer;
use differences::Differences;
use operation::Operation;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Client, Random, SUFFIX};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;
const SEARCHES: usize = 4000;
const UPDATES: usize = 2000;

/// Updates between two looks at the trees.
const UPDATES_PER_LOOK: usize = 100;

#[test]
fn searches_and_updates_give_the_same_answers() {
    match std::env::var("SAME_ANSWERS_SEED") {
        Ok(seed) => ask_both(seed.parse().unwrap()),
        Err(_) => SEEDS.for_each(ask_both),
    }
}

fn ask_both(seed: u64) {
    let (slapd, sapwood) = (servers::slapd(), servers::sapwood());
    let mut pair = Pair {
        slapd: Client::admin(slapd.address()),
        sapwood: Client::admin(sapwood.1.address()),
        differences: Differences::new(seed),
    };
    for add in Operation::adds(include_str!("same_answers/directory.ldif")) {
        let expected = pair.ask(&add);
        assert_eq!(
            expected.code,
            ResultCode::Success,
            "{add}: {}",
            expected.diagnostic
        );
    }
    pair.ask(&Operation::whole_tree(SUFFIX));
    for change in Operation::changes(include_str!("same_answers/mistakes.ldif")) {
        pair.ask(&change);
    }
    pair.ask(&Operation::whole_tree(SUFFIX));
    let mut random = Random::new(seed);
    for _ in 0..SEARCHES {
        pair.ask_generated(&questions::read(&mut random));
    }
    for count in 1..=UPDATES {
        pair.ask_generated(&questions::update(&mut random));
        if count % UPDATES_PER_LOOK == 0 {
            pair.ask(&Operation::whole_tree(SUFFIX));
        }
    }
    for _ in 0..SEARCHES / 4 {
        pair.ask_generated(&questions::read(&mut random));
    }
    pair.ask(&Operation::whole_tree(SUFFIX));
    pair.differences.report();
}

#[test]
fn clients_discover_the_same() {
    let (slapd, sapwood) = (servers::slapd(), servers::sapwood());
    discovery::compare(
        &mut Client::admin(slapd.address()),
        &mut Client::admin(sapwood.1.address()),
    );
}

#[test]
fn the_document_of_differences_is_that_of_this_test() {
    differences::check_document(include_str!(
        "../docs/reference/differences-from-openldap.md"
    ));
}

/// Both servers, asked together.
struct Pair {
    slapd: Client,
    sapwood: Client,
    differences: Differences,
}

impl Pair {
    /// Asks both and notes what differs; gives slapd's answer.
    fn ask(&mut self, operation: &Operation) -> Answer {
        self.compare(operation, false)
    }

    /// The same for an operation that may be wrong in several ways at once.
    fn ask_generated(&mut self, operation: &Operation) {
        self.compare(operation, true);
    }

    fn compare(&mut self, operation: &Operation, generated: bool) -> Answer {
        let answer = operation.ask(&mut self.slapd);
        let mut expected = answer.clone();
        let mut found = operation.ask(&mut self.sapwood);
        // Which entries come before the size limit is not said: they must be entries of the unlimited answer.
        if let Some(unlimited) = operation.without_size_limit() {
            for (client, answer) in [
                (&mut self.slapd, &mut expected),
                (&mut self.sapwood, &mut found),
            ] {
                let all = unlimited.ask(client);
                let count = answer.entries.len();
                answer
                    .entries
                    .retain(|dn, attributes| all.entries.get(dn) != Some(attributes));
                answer
                    .references
                    .retain(|uris, _| !all.references.contains_key(uris));
                answer.limited_to = Some(count);
            }
        }
        if !expected.same_as(&found) {
            self.differences.add(operation, generated, expected, found);
        }
        answer
    }
}
