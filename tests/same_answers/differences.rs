//! The differences that stay, by kind, and those that must not be.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::answer::{Answer, describe_difference};
use super::operation::Operation;

/// A kind of difference that `docs/differences-from-openldap.md` explains under this heading.
struct Kind {
    heading: &'static str,
    is: fn(&Operation, &Answer, &Answer) -> bool,
}

const KINDS: [Kind; 0] = [];

/// As many kinds as there may be.
const KINDS_MAX: usize = 20;

/// As many differences are shown.
const SHOWN: usize = 60;

pub(crate) struct Differences {
    seed: u64,
    known: BTreeMap<&'static str, usize>,
    unknown: Vec<String>,
}

impl Differences {
    pub(crate) fn new(seed: u64) -> Differences {
        Differences {
            seed,
            known: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, operation: &Operation, slapd: &Answer, sapwood: &Answer) {
        if let Some(kind) = KINDS
            .iter()
            .find(|kind| (kind.is)(operation, slapd, sapwood))
        {
            *self.known.entry(kind.heading).or_default() += 1;
            return;
        }
        let mut text = format!("{operation}\n");
        describe_difference(&mut text, slapd, sapwood).unwrap();
        self.unknown.push(text);
    }

    /// Fails if there is a difference of no known kind.
    pub(crate) fn report(self) {
        let mut text = String::new();
        for (kind, count) in &self.known {
            writeln!(text, "{count:6} {kind}").unwrap();
        }
        println!("differences of known kinds:\n{text}");
        let shown = self
            .unknown
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            self.unknown.is_empty(),
            "seed {}: {} differences of no known kind, the first of them:\n{shown}",
            self.seed,
            self.unknown.len(),
        );
    }
}

/// Each kind is a heading of the document, each heading a kind, and each section names the RFC that decides.
pub(crate) fn check_document(document: &str) {
    assert!(KINDS.len() <= KINDS_MAX);
    let sections: BTreeMap<&str, &str> = document
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap_or((section, "")))
        .collect();
    for kind in &KINDS {
        let section = sections.get(kind.heading);
        let section = section.unwrap_or_else(|| panic!("{:?} is not explained", kind.heading));
        assert!(
            section.contains("RFC "),
            "{:?} does not name an RFC",
            kind.heading
        );
    }
    for heading in sections.keys() {
        assert!(
            KINDS.iter().any(|kind| kind.heading == *heading),
            "{heading:?} is of no kind that the test knows"
        );
    }
}
