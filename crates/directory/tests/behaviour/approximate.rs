//! Approximate matches: with an index and without, a search finds the entries with words that sound like those that it
//! asks for.

use std::collections::BTreeSet;

use crate::made::{Directory, engine};
use sapwood_directory::{Config, IndexDefinition};
use sapwood_ldap::list::ChangeKind::{Add, Delete};
use sapwood_ldap::message::Scope;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Random, SUFFIX};

use crate::query::{query, search};

/// Words of which some sound alike.
const WORDS: [&str; 10] = [
    "John", "Jon", "Joan", "Smith", "Smyth", "Schmidt", "Philip", "filip", "Müller", "muller",
];

fn directory(is_indexed: bool) -> Directory {
    let index = IndexDefinition {
        attribute: "description".into(),
        approximate: is_indexed,
        ..IndexDefinition::default()
    };
    let config = Config {
        naming_contexts: vec![SUFFIX.into()],
        indexes: vec![index],
        ..Config::default()
    };
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    directory
}

fn dn(number: usize) -> String {
    format!("cn={number},{SUFFIX}")
}

fn found(directory: &Directory, filter: &str) -> BTreeSet<String> {
    let found = search(directory, &query(SUFFIX, Scope::Subordinates, filter));
    found.entries.into_iter().map(|(dn, _)| dn).collect()
}

#[test]
fn an_index_finds_what_is_found_without_it() {
    let directories = [directory(false), directory(true)];
    let mut random = Random::new(7);
    let text = |random: &mut Random| {
        let words: Vec<&str> = (0..1 + random.below(3))
            .map(|_| random.of(&WORDS))
            .collect();
        words.join(" ")
    };
    for number in 0..40 {
        let lines = format!(
            "objectClass: device\ncn: {number}\ndescription: {}",
            text(&mut random)
        );
        for directory in &directories {
            succeed(directory, add(&dn(number), &lines));
        }
    }
    for _ in 0..60 {
        let (number, value) = (random.below(40), text(&mut random));
        let kind = if random.below(2) == 0 { Add } else { Delete };
        for directory in &directories {
            // A value that is there, or not there, is refused.
            apply(
                directory,
                modify(&dn(number), &[(kind, "description", &[&value])]),
            );
        }
    }
    let mut any = 0;
    for _ in 0..60 {
        let filter = format!("(description~={})", text(&mut random));
        let [without, with] = [0, 1].map(|at| found(&directories[at], &filter));
        assert_eq!(without, with, "{filter}");
        any += with.len();
        let opposite = format!("(!{filter})");
        assert_eq!(
            found(&directories[0], &opposite),
            found(&directories[1], &opposite)
        );
    }
    assert!(any > 60, "{any}");
    assert_eq!(
        directories[1].check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn words_are_compared_by_sound_and_other_values_by_their_rule() {
    let directory = directory(true);
    let lines = "objectClass: posixGroup\ncn: 1\ngidNumber: 7\ndescription: John A. Smith";
    succeed(&directory, add(&dn(1), lines));
    for (filter, is_found) in [
        ("(description~=smyth, jon)", true),
        ("(description~=jon jones)", false),
        ("(description~=John A. Smith)", true),
        ("(name~=1)", true),
        ("(gidNumber~=7)", true),
        ("(gidNumber~=8)", false),
        ("(gidNumber~=seven)", false),
        ("(nonsense~=x)", false),
    ] {
        assert_eq!(
            found(&directory, filter).len(),
            usize::from(is_found),
            "{filter}"
        );
    }
}
