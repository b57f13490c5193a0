//! The conflict log: each change that was acknowledged and then lost against another one that did not know of it.
//!
//! The replica that has both changes first writes the line; the others get it with the later of the two. So a replica
//! that has both has the line. A change that was made in knowledge of another one is no conflict.
//!
//! Rings, names and glue follow from more than two changes: each replica finds them by itself. So a loss may have a
//! line by each of several rules, and none of them stands for another one.

use std::fmt;

use sapwood_ldap::csn::Csn;

use crate::{Attribute, Attributes, Uuid, Value, What};

/// What has lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// A move or a new name.
    Place,
    /// The plain form of a name.
    Name,
    /// A delete, in part: the entry stays for those below it.
    Delete,
    /// A value that was added.
    Value(Attribute, Value),
    /// The values of an attribute that is one register; `None` if nobody may see them.
    Whole(Attribute, Option<Vec<Value>>),
    /// All attributes of an entry that is one register, without those that nobody may see.
    All(Attributes),
}

impl Lost {
    /// What is lost if a change has no effect; `None` if there was nothing to be lost. `is_secret` tells of which
    /// attributes nobody may see values.
    pub(crate) fn of(what: &What, is_secret: impl Fn(&Attribute) -> bool) -> Option<Lost> {
        match what {
            What::Moved(_) => Some(Lost::Place),
            What::Value {
                attribute,
                value,
                is_present: true,
            } => Some(Lost::Value(attribute.clone(), value.clone())),
            What::Whole(attribute, values) if !values.is_empty() => {
                let values = (!is_secret(attribute)).then(|| values.clone());
                Some(Lost::Whole(attribute.clone(), values))
            }
            What::All(attributes) => {
                let mut seen = attributes.clone();
                seen.retain(|(attribute, _)| !is_secret(attribute));
                Some(Lost::All(seen))
            }
            What::Value { .. } | What::Whole(..) | What::Cleared(_) => None,
            What::Born(_) | What::Deleted => None,
        }
    }
}

/// Why it has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The later change wins.
    Later,
    /// A delete wins over all that did not know of it.
    Deleted,
    /// A move that would put an entry below itself is left out.
    Ring,
    /// The earlier claim keeps a name; the other entry shows its entryUUID in it.
    NameTaken,
    /// An entry stays as glue until the last one below it has gone.
    Glue,
    /// Its server was away for too long, and the entry was changed meanwhile, or has gone.
    Late,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The change that has lost.
    pub loser: Csn,
    /// The entry that it has changed.
    pub entry: Uuid,
    /// What of it has lost.
    pub lost: Lost,
    /// The change that has won; [`Csn::default`] if nobody knows its number any more.
    pub winner: Csn,
    /// Why.
    pub rule: Rule,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Value| value.escape_ascii().to_string();
        write!(f, "{}: ", self.entry)?;
        match &self.lost {
            Lost::Place => write!(f, "move"),
            Lost::Name => write!(f, "name"),
            Lost::Delete => write!(f, "delete"),
            Lost::Value(attribute, value) => write!(f, "{attribute} \"{}\"", shown(value)),
            Lost::Whole(attribute, None) => write!(f, "{attribute} (not shown)"),
            Lost::Whole(attribute, Some(values)) => {
                write!(f, "{attribute}")?;
                let mut values = values.iter();
                values.try_for_each(|value| write!(f, " \"{}\"", shown(value)))
            }
            Lost::All(attributes) => {
                write!(f, "the entry with")?;
                let mut values = attributes.iter().flat_map(|(attribute, values)| {
                    values.iter().map(move |value| (attribute, value))
                });
                values.try_for_each(|(attribute, value)| {
                    write!(f, " {attribute} \"{}\"", shown(value))
                })
            }
        }?;
        let rule = match self.rule {
            Rule::Later => "later change wins",
            Rule::Deleted => "delete wins",
            Rule::Ring => "it would be below itself",
            Rule::NameTaken => "earlier claim keeps the name",
            Rule::Glue => "stays until the last entry below it has gone",
            Rule::Late => "its server was away for too long",
        };
        write!(f, " ({}) lost to {}: {rule}", self.loser, self.winner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_lost_and_why_and_shows_no_password() {
        let csn = |micros, replica| Csn {
            micros,
            count: 0,
            replica,
        };
        let one: Value = b"1"[..].into();
        let mut conflict = Conflict {
            loser: csn(5, 2),
            entry: Uuid([0x1f; 16]),
            lost: Lost::Whole("telephoneNumber".into(), Some(vec![one])),
            winner: csn(6, 1),
            rule: Rule::Later,
        };
        let entry = "1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f";
        let (loser, winner) = (conflict.loser, conflict.winner);
        assert_eq!(
            conflict.to_string(),
            format!("{entry}: telephoneNumber \"1\" ({loser}) lost to {winner}: later change wins")
        );
        conflict.lost = Lost::Whole("userPassword".into(), None);
        assert!(conflict.to_string().contains("userPassword (not shown)"));
    }
}
