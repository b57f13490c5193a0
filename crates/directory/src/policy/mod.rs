//! Access rules as they are written: to what, by whom, which rights. The words and their meaning are those of
//! slapd.access(5); their text is read in `parse` and written in `print`.
//!
//! To find the rights on an attribute of an entry, the rules are tried in order. The first whose [`What`] holds for
//! both decides: of its clauses the first whose [`Who`] is the requester gives the rights, and [`Then`] says whether
//! more clauses or rules are tried. When no clause of the rule fits, or no rule does, there are no rights. The
//! administrator is above all rules, as slapd's rootdn is.

pub(crate) mod entry_test;
pub(crate) mod expansion;
pub(crate) mod limits;
pub(crate) mod mapping;
pub(crate) mod parse;
mod print;
pub(crate) mod regex;
pub(crate) mod set;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{BitAnd, BitOr, Not};

use sapwood_ldap::list::ChangeKind;

pub use self::limits::{Bound, Limits, PagesBound, SearchBounds};
pub use self::mapping::{AuthzRegexp, Mapped, UserName, user_name};
pub use self::parse::{RULES_MAX, RuleError, parse_rules};

/// Lists of rules, which are tried one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The lists; those of all entries are the last.
    pub lists: Vec<RuleList>,
    /// What bounds the searches of some.
    pub limits: Vec<Limits>,
}

/// Rules in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleList {
    /// The entries that they are about.
    pub of: ListScope,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// The entries that a list of rules is about. A naming context that lies in another one is not part of that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// Those of the naming contexts with these DNs.
    Contexts(Vec<String>),
    /// Those of all naming contexts.
    Data,
    /// All, and the root DSE and the schema, which no others are about.
    Global,
}

impl From<Vec<Rule>> for Policy {
    /// Rules of all naming contexts.
    fn from(rules: Vec<Rule>) -> Policy {
        let of = ListScope::Data;
        Policy {
            lists: vec![RuleList { of, rules }],
            limits: Vec::new(),
        }
    }
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
    /// The filter that an entry must match, as RFC 4515 writes it.
    pub filter: Option<String>,
    /// The attributes; with none, all of them, [`Attributes::Entry`] and [`Attributes::Children`] included.
    pub attributes: Vec<Attributes>,
}

/// The entries whose DN is this one, or stands in a relation to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnPattern {
    /// The relation.
    pub scope: DnScope,
    /// The DN, or the regular expression that it matches.
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
    /// So many names below: an entry directly below is one. Of requesters alone.
    Level(u32),
    /// It matches a regular expression.
    Regex,
}

/// Attributes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// A type and its subtypes, with whatever options.
    Type(String),
    /// What an object class requires and allows: `@class`.
    Class(String),
    /// What an object class neither requires nor allows: `!class`.
    NotClass(String),
    /// The entry itself: that it exists, is found, added and deleted.
    Entry,
    /// What stands directly below the entry: that entries are added and deleted there.
    Children,
}

/// A clause of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Whom it is about: all of these must hold.
    pub who: Vec<Who>,
    /// Only changes of values that name who asks, if that is given; nothing is read or compared by it.
    pub own_values: Option<Subject>,
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
    /// Who is bound as an ancestor or a descendant of the entry: the n-th entry above who asks is the entry, or with a
    /// negative number the n-th entry above the entry is who asks.
    SelfLevel(i32),
    /// Who was bound under such a DN. In a regular expression, `$1` and its like stand for what the rule's matched.
    Dn(DnPattern),
    /// The same of a DN in which `$1` and its like stand for what the DN of the rule matched.
    ExpandedDn(DnPattern),
    /// Whom an attribute of the entry names.
    DnAttribute(String),
    /// The same of who is bound, where somebody asks in the name of somebody else.
    Real(Box<Who>),
    /// Who is in a group.
    Group(Group),
    /// For whom a set is not empty.
    Set {
        /// Whether `$1` and its like are to be replaced in it.
        expand: bool,
        /// The set.
        pattern: String,
    },
    /// Who comes from an address.
    Peer(Peer),
    /// Who came in through a socket.
    Socket {
        /// What of the connection.
        what: SocketName,
        /// How it is compared.
        style: TextStyle,
        /// With what.
        pattern: String,
    },
    /// Whose connection is at least so well protected.
    Strength {
        /// What protects it.
        of: Strength,
        /// The least factor, such as the bits of a key.
        least: u32,
    },
}

/// Who asks: in whose name, or who is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// In whose name.
    Effective,
    /// Who is bound.
    Real,
}

/// A group: `group[/class[/attribute]][.exact|.expand]=DN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The class that its entry must have, in the place of groupOfNames.
    pub class: Option<String>,
    /// The attribute that names the members, in the place of member.
    pub attribute: Option<String>,
    /// What its DN is, and which members it has.
    pub style: GroupStyle,
    /// The DN.
    pub dn: String,
}

/// Which members a group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupStyle {
    /// Those that it names.
    #[default]
    Exact,
    /// The same, of the group whose DN is found by replacing `$1` and its like.
    Expand,
    /// Those that it names, and the members of groups that it names. A word of Sapwood's own.
    Nested,
}

/// What of a listener is compared as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketName {
    /// Its address: `IP=127.0.0.1:389`, `PATH=/run/ldapi`.
    Sockname,
    /// Its URL: `ldap://127.0.0.1:389`.
    Sockurl,
}

/// How text is compared with a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextStyle {
    /// It is the same, whatever the case of its letters.
    #[default]
    Exact,
    /// It matches a regular expression, in which `$1` and its like are replaced.
    Regex,
    /// It is the pattern, in which `$1` and its like are replaced.
    Expand,
}

/// Where a client comes from: `peername[.style]=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Its name, such as `IP=127.0.0.1:4711` or `PATH=/run/ldapi`.
    Name {
        /// How the name is compared.
        style: TextStyle,
        /// With what.
        pattern: String,
    },
    /// An IPv4 network.
    Ip {
        /// The address, of which the mask leaves all.
        address: Ipv4Addr,
        /// The bits of an address that count.
        mask: Ipv4Addr,
        /// The port, if it counts.
        port: Option<u16>,
    },
    /// An IPv6 network.
    Ipv6 {
        /// The address, of which the mask leaves all.
        address: Ipv6Addr,
        /// The bits of an address that count.
        mask: Ipv6Addr,
        /// The port, if it counts.
        port: Option<u16>,
    },
    /// The path of a local socket.
    Path(String),
}

/// What protects a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// The strongest of them.
    Any,
    /// The transport: a local socket.
    Transport,
    /// TLS.
    Tls,
    /// SASL.
    Sasl,
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
    /// The level `add`.
    pub const UP_TO_ADD: Rights = Rights(Rights::UP_TO_READ.0 | Rights::ADD.0);
    /// The level `delete`.
    pub const UP_TO_DELETE: Rights = Rights(Rights::UP_TO_READ.0 | Rights::DELETE.0);

    /// What a modification of an attribute takes.
    #[must_use]
    pub const fn of_change(kind: ChangeKind) -> Rights {
        match kind {
            ChangeKind::Add => Rights::ADD,
            ChangeKind::Delete => Rights::DELETE,
            ChangeKind::Replace | ChangeKind::Increment => Rights::WRITE,
        }
    }

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
        self.by.push(By {
            who: vec![who],
            own_values: None,
            grant,
            then,
        });
        self
    }
}

impl Policy {
    /// All rules in their order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.lists.iter().flat_map(|list| &list.rules)
    }

    /// The [rules](Policy::standard_rules) without configured ones.
    pub fn standard(anonymous_read: bool) -> Policy {
        Policy::from(Policy::standard_rules(anonymous_read))
    }

    /// The rules without configured ones: who is bound reads everything but passwords and sets the own one; who is not
    /// reads the same if `anonymous_read` says so, and otherwise nothing. Users of this machine who are no entry have
    /// no more rights than who is not bound.
    pub(crate) fn standard_rules(anonymous_read: bool) -> Vec<Rule> {
        let anonymous = match anonymous_read {
            true => Rights::UP_TO_READ,
            false => Rights::NONE,
        };
        let password = [Attributes::of_type("userPassword")];
        let of_this_machine = Who::Dn(DnPattern::new(DnScope::Subtree, EXTERNAL_NAMES));
        vec![
            Rule::to(What::everything().attributes(password))
                .by(Who::SelfEntry, Rights::WRITE | Rights::UP_TO_AUTH)
                .by(Who::Anyone, Rights::UP_TO_AUTH),
            Rule::to(What::everything())
                .by(of_this_machine, anonymous)
                .by(Who::Users, Rights::UP_TO_READ)
                .by(Who::Anonymous, anonymous),
        ]
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
