//! The differences that stay, by kind, and those that must not be.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::answer::{Answer, describe_difference};
use super::operation::Operation;

/// A kind of difference that `docs/differences-from-openldap.md` explains under this heading.
struct Kind {
    heading: &'static str,
    /// Takes the difference away where it is one of this kind, by changing either answer.
    excuse: fn(&Operation, &mut Answer, &mut Answer),
}

const KINDS: [Kind; 1] = [Kind {
    heading: "Superclasses are added to objectClass",
    excuse: add_superclasses,
}];

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

    pub(crate) fn add(&mut self, operation: &Operation, mut slapd: Answer, mut sapwood: Answer) {
        let mut kinds = Vec::new();
        for kind in &KINDS {
            let before = (slapd.clone(), sapwood.clone());
            (kind.excuse)(operation, &mut slapd, &mut sapwood);
            if before != (slapd.clone(), sapwood.clone()) {
                kinds.push(kind.heading);
            }
        }
        if slapd.same_as(&sapwood) {
            for kind in kinds {
                *self.known.entry(kind).or_default() += 1;
            }
            return;
        }
        let mut text = format!("{operation}\n");
        describe_difference(&mut text, &slapd, &sapwood).unwrap();
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

/// The direct superclasses of the classes of the test data, other than top.
const SUPERCLASSES: [(&str, &str); 5] = [
    ("inetorgperson", "organizationalperson"),
    ("organizationalperson", "person"),
    ("oddchild", "oddthing"),
    ("oddother", "oddabstract"),
    ("residentialperson", "person"),
];

fn add_superclasses(_: &Operation, slapd: &mut Answer, _: &mut Answer) {
    for attributes in slapd.entries.values_mut() {
        let Some(classes) = attributes
            .get_mut("objectclass")
            .filter(|classes| !classes.is_empty())
        else {
            continue;
        };
        classes.insert(b"top".to_vec());
        let mut class = 0;
        while let Some(name) = classes.iter().nth(class) {
            let superclass = SUPERCLASSES.iter().find(|(sub, _)| sub.as_bytes() == name);
            let is_new = superclass
                .is_some_and(|(_, superclass)| classes.insert(superclass.as_bytes().to_vec()));
            class = if is_new { 0 } else { class + 1 };
        }
    }
}
