//! Access rules as they are written: to what, by whom, which rights. The words and their meaning are those of
//! slapd.access(5), so that a parser of `olcAccess` has only to build these.
//!
//! To find the rights on an attribute of an entry, the rules are tried in order. The first whose [`What`] holds for
//! both decides: of its clauses the first whose [`Who`] is the requester gives the rights, and [`Then`] says whether
//! more clauses or rules are tried. When no clause of the rule fits, or no rule does, there are no rights. The
//! administrator is above all rules, as slapd's rootdn is.

use std::ops::{BitAnd, BitOr, Not};

/// Rules in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The rules.
    pub rules: Vec<Rule>,
}

/// What some may do with some attributes of some entries: `to <what> by <who> <access> by …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is about.
    pub to: What,
    /// Who may do what, in order.
    pub by: Vec<By>,
}

/// What a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct What {
    /// The entries; all without it.
    pub entries: Option<DnPattern>,
    /// The attributes; with none, all of them, [`Attributes::Entry`] and [`Attributes::Children`] included.
    pub attributes: Vec<Attributes>,
}

/// The entries whose DN is this one, or stands in a relation to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnPattern {
    /// The relation.
    pub scope: DnScope,
    /// The DN.
    pub dn: String,
}

/// How an entry stands to a DN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnScope {
    /// It has the DN.
    Base,
    /// It is directly below.
    One,
    /// It has the DN or is below.
    Subtree,
    /// It is below.
    Children,
}

/// Attributes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// A type and its subtypes, with whatever options.
    Type(String),
    /// What an object class requires and allows: `@class`.
    Class(String),
    /// The entry itself: that it exists, is found, added and deleted.
    Entry,
    /// What stands directly below the entry: that entries are added and deleted there.
    Children,
}

/// A clause of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Whom it is about.
    pub who: Who,
    /// What it does to the rights that clauses before it gave.
    pub grant: Grant,
    /// What comes after it.
    pub then: Then,
}

/// Whom a clause is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    Anyone,
    /// Who is not bound.
    Anonymous,
    /// Who is bound.
    Users,
    /// Who is bound as the entry itself.
    SelfEntry,
    /// Who was bound under such a DN.
    Dn(DnPattern),
}

/// What a clause does to the rights that clauses before it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Puts these in their place.
    Set(Rights),
    /// Adds these.
    Add(Rights),
    /// Takes these away.
    Remove(Rights),
}

/// What comes after a clause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Nothing: the rights are known.
    #[default]
    Stop,
    /// The clauses behind it.
    Continue,
    /// The rules behind its own.
    Break,
}

/// A set of rights on an attribute of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// None.
    pub const NONE: Rights = Rights(0);
    /// Its existence may be told.
    pub const DISCLOSE: Rights = Rights(1);
    /// It may be used to bind.
    pub const AUTH: Rights = Rights(1 << 1);
    /// It may be compared.
    pub const COMPARE: Rights = Rights(1 << 2);
    /// Filters may ask for it.
    pub const SEARCH: Rights = Rights(1 << 3);
    /// It may be read.
    pub const READ: Rights = Rights(1 << 4);
    /// Values may be added.
    pub const ADD: Rights = Rights(1 << 5);
    /// Values may be deleted.
    pub const DELETE: Rights = Rights(1 << 6);
    /// What rules of the schema forbid may be done.
    pub const MANAGE: Rights = Rights(1 << 7);
    /// Values may be added and deleted.
    pub const WRITE: Rights = Rights(Rights::ADD.0 | Rights::DELETE.0);
    /// All of them.
    pub const ALL: Rights = Rights(u8::MAX);

    /// The level `read`: reading, and whatever needs less.
    pub const UP_TO_READ: Rights = Rights(Rights::ADD.0 - 1);
    /// The level `search`.
    pub const UP_TO_SEARCH: Rights = Rights(Rights::READ.0 - 1);
    /// The level `compare`.
    pub const UP_TO_COMPARE: Rights = Rights(Rights::SEARCH.0 - 1);
    /// The level `auth`.
    pub const UP_TO_AUTH: Rights = Rights(Rights::COMPARE.0 - 1);
    /// The level `write`.
    pub const UP_TO_WRITE: Rights = Rights(Rights::MANAGE.0 - 1);

    /// Whether all of these are among them.
    #[inline]
    pub fn has(self, rights: Rights) -> bool {
        self.0 & rights.0 == rights.0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Rights;

    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl Not for Rights {
    type Output = Rights;

    fn not(self) -> Rights {
        Rights(!self.0)
    }
}

impl Grant {
    /// The rights after it.
    pub(super) fn after(self, before: Rights) -> Rights {
        match self {
            Grant::Set(rights) => rights,
            Grant::Add(rights) => before | rights,
            Grant::Remove(rights) => before & !rights,
        }
    }
}

impl What {
    /// All attributes of all entries.
    pub fn everything() -> What {
        What::default()
    }

    /// All attributes of the entries that stand so to a DN.
    pub fn entries(scope: DnScope, dn: impl Into<String>) -> What {
        What {
            entries: Some(DnPattern::new(scope, dn)),
            ..What::default()
        }
    }

    /// Only these attributes of the same entries.
    pub fn attributes(self, attributes: impl IntoIterator<Item = Attributes>) -> What {
        What {
            attributes: attributes.into_iter().collect(),
            ..self
        }
    }
}

impl DnPattern {
    /// What stands so to a DN.
    pub fn new(scope: DnScope, dn: impl Into<String>) -> DnPattern {
        let dn = dn.into();
        DnPattern { scope, dn }
    }
}

impl Attributes {
    /// A type and its subtypes.
    pub fn of_type(name: impl Into<String>) -> Attributes {
        Attributes::Type(name.into())
    }
}

impl Rule {
    /// A rule with no clauses yet.
    pub fn to(to: What) -> Rule {
        Rule { to, by: Vec::new() }
    }

    /// The same with one more clause: who it is about has these rights and no others.
    pub fn by(self, who: Who, rights: Rights) -> Rule {
        self.by_then(who, Grant::Set(rights), Then::Stop)
    }

    /// The same with one more clause.
    pub fn by_then(mut self, who: Who, grant: Grant, then: Then) -> Rule {
        self.by.push(By { who, grant, then });
        self
    }
}

impl Policy {
    /// The rules without configured ones: who is bound reads everything but passwords and sets the own one; who is not
    /// reads the same if `anonymous_read` says so, and otherwise nothing. Users of this machine who are no entry have
    /// no more rights than who is not bound.
    pub fn standard(anonymous_read: bool) -> Policy {
        let anonymous = match anonymous_read {
            true => Rights::UP_TO_READ,
            false => Rights::NONE,
        };
        let password = [Attributes::of_type("userPassword")];
        let of_this_machine = Who::Dn(DnPattern::new(DnScope::Subtree, EXTERNAL_NAMES));
        let rules = vec![
            Rule::to(What::everything().attributes(password))
                .by(Who::SelfEntry, Rights::WRITE | Rights::UP_TO_AUTH)
                .by(Who::Anyone, Rights::UP_TO_AUTH),
            Rule::to(What::everything())
                .by(of_this_machine, anonymous)
                .by(Who::Users, Rights::UP_TO_READ)
                .by(Who::Anonymous, anonymous),
        ];
        Policy { rules }
    }
}

/// Below it are the names of those who are vouched for from outside, as slapd has them.
const EXTERNAL_NAMES: &str = "cn=external,cn=auth";

impl Default for Policy {
    /// The [standard](Policy::standard) ones, that let only who is bound read.
    fn default() -> Policy {
        Policy::standard(false)
    }
}
