//! The conflict log (`cn=conflicts`): the latest changes that were acknowledged and have lost against others that did
//! not know of them, where several servers take updates. It exists for the administrator alone.

use sapwood_replication::{Rule, Uuid};

use super::{Content, Definition, Follows, Server};
use crate::changes::{LostChange, LostWhat};
use crate::stamp::generalized_time;

/// How many it shows.
pub(crate) const CONFLICTS_SHOWN_MAX: usize = 1000;

pub(super) const CONTEXT: Definition = Definition {
    suffix: "cn=conflicts",
    what: "the conflict log",
    remedy: "'sapwood replica restore' makes a change again that has lost",
    is_hidden: true,
    follows: Follows::Conflicts,
    make,
};

fn one(value: impl Into<String>) -> Vec<String> {
    vec![value.into()]
}

fn make(server: &Server<'_>) -> Vec<Vec<Content>> {
    let about = format!(
        "changes that have lost, the latest {CONFLICTS_SHOWN_MAX}: 'sapwood replica conflicts' lists all"
    );
    let top = Content {
        dn: CONTEXT.suffix.to_owned(),
        also: Vec::new(),
        attributes: vec![
            ("objectClass", one("sapwoodConflicts")),
            ("cn", one("conflicts")),
            ("description", one(about)),
            ("structuralObjectClass", one("sapwoodConflicts")),
            ("createTimestamp", one(server.opened)),
        ],
    };
    let lines = server.conflicts.iter().map(content);
    vec![std::iter::once(top).chain(lines).collect()]
}

/// The entry of a line.
fn content(line: &LostChange) -> Content {
    let (loser, entry) = (line.loser, Uuid(line.entry));
    let cn = format!("{loser} {entry} {}", line.rule as u8);
    let rule = match line.rule {
        Rule::Later => "the later change wins",
        Rule::Deleted => "the entry was deleted",
        Rule::Ring => "the entry would be below itself",
        Rule::NameTaken => "another entry has the name",
        Rule::Glue => "there are entries below it",
        Rule::Late => "its server was away for too long",
    };
    Content {
        dn: format!("cn={cn},{}", CONTEXT.suffix),
        also: Vec::new(),
        attributes: vec![
            ("objectClass", one("sapwoodConflict")),
            ("cn", one(cn)),
            ("seeAlso", one(line.dn.as_str())),
            ("sapwoodConflictEntry", one(Uuid(line.entry).to_string())),
            ("sapwoodConflictLoser", one(line.loser.to_string())),
            ("sapwoodConflictWinner", one(line.winner.to_string())),
            ("sapwoodConflictRule", one(rule)),
            ("sapwoodConflictLost", lost(&line.what)),
            ("structuralObjectClass", one("sapwoodConflict")),
            ("createTimestamp", one(generalized_time(line.found))),
        ],
    }
}

/// What has lost: a value for each value.
fn lost(what: &LostWhat) -> Vec<String> {
    let attributes = match what {
        LostWhat::Delete => return one("delete"),
        LostWhat::Name => return one("name"),
        LostWhat::Place => return one("move"),
        LostWhat::Attributes(attributes) => attributes,
    };
    let mut lost = Vec::new();
    for attribute in attributes {
        let name = &attribute.name;
        match &attribute.values {
            None => lost.push(format!("{name} (not shown)")),
            Some(values) if values.is_empty() => lost.push(format!("{name} (taken away)")),
            Some(values) => {
                let value = |value: &Vec<u8>| format!("{name}: {}", value.escape_ascii());
                lost.extend(values.iter().map(value));
            }
        }
    }
    lost
}
