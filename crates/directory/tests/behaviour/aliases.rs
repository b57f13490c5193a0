//! Aliases in the scope of a search: what they lead to, however they lead to each other (RFC 4511 §4.5.1.3).

use std::collections::BTreeSet;

use crate::made::{Directory, engine};
use proptest::prelude::*;
use sapwood_directory::engine::Engine;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Config, Options, Ticket};
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{self, as_admin};

use crate::query::{Found, Query, query, search};

const SUFFIX: &str = "dc=example,dc=com";
/// Aliases that one name may lead through.
const ALIASES_MAX: usize = 16;

/// A tree of units with aliases in it. Entry 0 is the naming context's, the others are units.
#[derive(Debug)]
struct Tree {
    /// The parent of each unit, which comes before it.
    parents: Vec<usize>,
    /// Where each alias is, and what it names.
    aliases: Vec<(usize, Target)>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Entry(usize),
    Alias(usize),
    Nothing,
}

impl Tree {
    fn dn(&self, entry: usize) -> String {
        match entry {
            0 => SUFFIX.to_owned(),
            unit => format!("ou=u{unit},{}", self.dn(self.parents[unit - 1])),
        }
    }

    fn alias_dn(&self, alias: usize) -> String {
        format!("cn=a{alias},{}", self.dn(self.aliases[alias].0))
    }

    fn target_dn(&self, target: Target) -> String {
        match target {
            Target::Entry(entry) => self.dn(entry),
            Target::Alias(alias) => self.alias_dn(alias),
            Target::Nothing => format!("cn=nothing,{SUFFIX}"),
        }
    }

    fn directory(&self) -> Directory {
        let config = Config {
            naming_contexts: vec![SUFFIX.to_owned()],
            ..Config::default()
        };
        let engine = engine();
        let directory =
            Directory::create_on(engine, &config, Options::new(Schema::standard())).unwrap();
        let domain = [(
            SUFFIX.to_owned(),
            "objectClass: domain\ndc: example".to_owned(),
        )];
        let units = (1..=self.parents.len()).map(|unit| {
            (
                self.dn(unit),
                format!("objectClass: organizationalUnit\nou: u{unit}"),
            )
        });
        let aliases = self.aliases.iter().enumerate().map(|(alias, (_, target))| {
            let lines = format!(
                "objectClass: alias\nobjectClass: extensibleObject\ncn: a{alias}\naliasedObjectName: {}",
                self.target_dn(*target)
            );
            (self.alias_dn(alias), lines)
        });
        let updates: Vec<_> = domain
            .into_iter()
            .chain(units)
            .chain(aliases)
            .map(|(dn, lines)| as_admin(directories::add(&dn, &lines)))
            .collect();
        let applied = directory.apply(&updates).unwrap();
        for outcome in &applied.outcomes {
            assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
        }
        applied.ticket.unwrap().wait().unwrap();
        directory
    }

    fn parent(&self, entry: usize) -> Option<usize> {
        entry.checked_sub(1).map(|unit| self.parents[unit])
    }

    fn is_at_or_below(&self, entry: usize, above: usize) -> bool {
        std::iter::successors(Some(entry), |at| self.parent(*at)).any(|at| at == above)
    }

    /// The entry that an alias leads to at last.
    fn leads_to(&self, alias: usize) -> Option<usize> {
        let mut target = self.aliases[alias].1;
        for _ in 0..=ALIASES_MAX {
            match target {
                Target::Entry(entry) => return Some(entry),
                Target::Alias(alias) => target = self.aliases[alias].1,
                Target::Nothing => return None,
            }
        }
        None
    }

    /// What a search is to find that follows aliases, in the words of the RFC.
    fn expected(&self, base: usize, scope: Scope) -> BTreeSet<String> {
        let all = 0..=self.parents.len();
        let found: BTreeSet<usize> = match scope {
            Scope::Base => [base].into(),
            Scope::OneLevel => {
                let aliases = (0..self.aliases.len()).filter(|at| self.aliases[*at].0 == base);
                let below = all.filter(|entry| self.parent(*entry) == Some(base));
                below
                    .chain(aliases.filter_map(|at| self.leads_to(at)))
                    .collect()
            }
            Scope::Subtree | Scope::Subordinates => {
                let mut vertices = BTreeSet::from([base]);
                loop {
                    let is_covered = |parent| {
                        vertices
                            .iter()
                            .any(|vertex| self.is_at_or_below(parent, *vertex))
                    };
                    let covered =
                        (0..self.aliases.len()).filter(|at| is_covered(self.aliases[*at].0));
                    let more: BTreeSet<usize> =
                        covered.filter_map(|at| self.leads_to(at)).collect();
                    let before = vertices.len();
                    vertices.extend(more);
                    if vertices.len() == before {
                        break;
                    }
                }
                all.filter(|entry| {
                    vertices.iter().any(|vertex| {
                        self.is_at_or_below(*entry, *vertex)
                            && (scope == Scope::Subtree || entry != vertex)
                    })
                })
                .collect()
            }
        };
        found.into_iter().map(|entry| self.dn(entry)).collect()
    }
}

fn found<E: Engine>(directory: &Directory<E>, base: &str, scope: Scope) -> Found {
    let deref = DerefAliases::InSearching;
    search(
        directory,
        &Query {
            deref,
            ..query(base, scope, "(objectClass=*)")
        },
    )
}

fn tree() -> impl Strategy<Value = Tree> {
    let units = prop::collection::vec(any::<prop::sample::Index>(), 1..12);
    let alias = (
        any::<prop::sample::Index>(),
        0..8u8,
        any::<prop::sample::Index>(),
    );
    (units, prop::collection::vec(alias, 0..12)).prop_map(|(units, aliases)| {
        let parents: Vec<usize> = units
            .iter()
            .enumerate()
            .map(|(at, parent)| parent.index(at + 1))
            .collect();
        let (entries, count) = (parents.len() + 1, aliases.len());
        let aliases = aliases
            .into_iter()
            .map(|(parent, kind, target)| {
                let target = match kind {
                    0 => Target::Nothing,
                    1 | 2 => Target::Alias(target.index(count)),
                    _ => Target::Entry(target.index(entries)),
                };
                (parent.index(entries), target)
            })
            .collect();
        Tree { parents, aliases }
    })
}

proptest! {
    #![proptest_config(crate::made::random(150))]

    #[test]
    fn what_aliases_lead_to_is_found_once(tree in tree()) {
        let directory = tree.directory();
        for base in 0..=tree.parents.len() {
            for scope in [Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Subordinates] {
                let found = found(&directory, &tree.dn(base), scope);
                prop_assert_eq!(found.code, ResultCode::Success);
                let dns: BTreeSet<String> = found.dns().into_iter().map(str::to_owned).collect();
                prop_assert_eq!(dns.len(), found.entries.len());
                prop_assert_eq!(dns, tree.expected(base, scope), "{} {:?}", tree.dn(base), scope);
            }
        }
    }
}

/// RFC 4511 §4.5.1.3: "Servers MUST detect looping while dereferencing aliases".
#[test]
fn a_base_that_leads_in_a_loop_is_an_alias_problem() {
    let tree = Tree {
        parents: vec![0],
        aliases: vec![
            (0, Target::Alias(1)),
            (0, Target::Alias(0)),
            (0, Target::Entry(1)),
        ],
    };
    let directory = tree.directory();
    let base = |dn: &str| {
        let deref = DerefAliases::FindingBase;
        let query = Query {
            deref,
            ..query(dn, Scope::Base, "(objectClass=*)")
        };
        search(&directory, &query)
    };
    for dn in [tree.alias_dn(0), format!("cn=x,{}", tree.alias_dn(1))] {
        let found = base(&dn);
        assert_eq!(found.code, ResultCode::AliasProblem, "{dn}");
        assert!(tree.alias_dn(0) == found.matched || tree.alias_dn(1) == found.matched);
    }
    assert_eq!(base(&tree.alias_dn(2)).dns(), [&*tree.dn(1)].into());
    // An alias that is passed twice, each time with fewer names below it, leads on.
    let upward = Tree {
        parents: vec![0],
        aliases: vec![(0, Target::Entry(0))],
    };
    let directory = upward.directory();
    let dn = format!("ou=u1,cn=a0,cn=a0,{SUFFIX}");
    let deref = DerefAliases::FindingBase;
    let query = Query {
        deref,
        ..query(&dn, Scope::Base, "(objectClass=*)")
    };
    assert_eq!(search(&directory, &query).dns(), [&*upward.dn(1)].into());
}
