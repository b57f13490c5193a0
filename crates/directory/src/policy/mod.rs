//! Access rules in their written form: to what, by whom, which rights. The words and their meaning are those of
//! slapd.access(5). `parse` reads their text and `print` writes it.
//!
//! The rights on an attribute of an entry are found by trying the rules in order. The first rule whose [`What`] matches
//! both decides. Of its clauses, the first whose [`Who`] matches the requester gives the rights, and [`Then`] says
//! whether more clauses or rules are tried. If no clause of the rule matches, or no rule does, there are no rights. The
//! rules do not limit the administrator, as they do not limit slapd's rootdn.

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

/// The access rules and limits of a directory. The lists of rules are tried one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The lists. A list of all entries comes last.
    pub lists: Vec<RuleList>,
    /// Limits of searches; the first that matches applies.
    pub limits: Vec<Limits>,
}

/// Rules in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleList {
    /// The entries that they cover.
    pub of: ListScope,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// The entries that a list of rules covers. A naming context inside another one is not part of the outer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// Those of the naming contexts with these DNs.
    Contexts(Vec<String>),
    /// Those of all naming contexts.
    Data,
    /// All entries, and the root DSE and the schema, which no other list covers.
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

/// A rule: `to <what> by <who> <access> by …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The entries and attributes that it covers.
    pub to: What,
    /// Its clauses, in order.
    pub by: Vec<By>,
}

/// The entries and attributes that a rule covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct What {
    /// The entries; all of them if there is no pattern.
    pub entries: Option<DnPattern>,
    /// The filter that an entry must match, as text (RFC 4515).
    pub filter: Option<String>,
    /// The attributes. An empty list means all, with [`Attributes::Entry`] and [`Attributes::Children`].
    pub attributes: Vec<Attributes>,
    /// The values of the attribute, if only some are meant. There is only one attribute then, a type.
    pub values: Option<ValuePattern>,
}

/// Some values of an attribute: `val[/matchingRule][.style]=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePattern {
    /// The matching rule that compares them, instead of the attribute's equality rule.
    pub matching_rule: Option<String>,
    /// How they relate to the given value. Where values are no DNs, there are [`DnScope::Base`] and [`DnScope::Regex`].
    pub scope: DnScope,
    /// The value, or the regular expression.
    pub value: String,
}

/// A set of entries, by the relation of their DNs to a given one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnPattern {
    /// The relation.
    pub scope: DnScope,
    /// The DN, or the regular expression that it matches.
    pub dn: String,
}

/// The relation of an entry, or of a value, to a DN.
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
    /// It is this many levels below; 1 is directly below. Only for requesters.
    Level(u32),
    /// It matches a regular expression.
    Regex,
}

/// Attributes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// A type and its subtypes, with any options.
    Type(String),
    /// What an object class requires and allows: `@class`.
    Class(String),
    /// What an object class neither requires nor allows: `!class`.
    NotClass(String),
    /// The entry itself: to disclose, find, add and delete it.
    Entry,
    /// The children of the entry: to add and delete them.
    Children,
}

/// A clause of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The requesters that it applies to. All of these must match.
    pub who: Vec<Who>,
    /// If given, the clause applies only to changes that add or delete the requester's own name as a value.
    pub own_values: Option<Subject>,
    /// How it changes the rights that earlier clauses gave.
    pub grant: Grant,
    /// Whether more clauses or rules are tried.
    pub then: Then,
}

/// A condition on the requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    Anyone,
    /// The requester is anonymous.
    Anonymous,
    /// The requester is bound.
    Users,
    /// The requester is bound as the entry itself.
    SelfEntry,
    /// The requester is bound as a descendant or an ancestor of the entry. With a positive `n` the entry is the n-th
    /// above the requester; with a negative one the requester is the n-th above the entry.
    SelfLevel(i32),
    /// The requester's DN matches. In a regular expression, `$1` and so on stand for what the rule's pattern matched.
    Dn(DnPattern),
    /// The requester's DN matches a DN in which `$1` and so on stand for what the rule's pattern matched.
    ExpandedDn(DnPattern),
    /// An attribute of the entry has the requester's DN as a value.
    DnAttribute(String),
    /// The condition holds for the identity that has authenticated, not for the one it acts as.
    Real(Box<Who>),
    /// The requester is a member of a group.
    Group(Group),
    /// A set is not empty for the requester.
    Set {
        /// Whether `$1` and so on are replaced in it.
        expand: bool,
        /// The set.
        pattern: String,
    },
    /// The client comes from an address.
    Peer(Peer),
    /// The client has connected to a listener.
    Socket {
        /// Which name of the listener is compared.
        what: SocketName,
        /// How it is compared.
        style: TextStyle,
        /// With what.
        pattern: String,
    },
    /// The connection has at least this security strength factor.
    Strength {
        /// Which protection counts.
        of: Strength,
        /// The least factor, such as the bits of a key.
        least: u32,
    },
}

/// One of the two identities of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The identity that the operation is done for.
    Effective,
    /// The identity that has authenticated.
    Real,
}

/// A group: `group[/class[/attribute]][.exact|.expand]=DN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The class that its entry must have, instead of groupOfNames.
    pub class: Option<String>,
    /// The attribute with the members, instead of member.
    pub attribute: Option<String>,
    /// How its DN and its members are found.
    pub style: GroupStyle,
    /// The DN.
    pub dn: String,
}

/// Which members a group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupStyle {
    /// The members that the entry names.
    #[default]
    Exact,
    /// The same, after `$1` and so on are replaced in its DN.
    Expand,
    /// The members that the entry names, and the members of groups among them. This word is Sapwood's own.
    Nested,
}

/// A name of a listener.
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
    /// The text equals the pattern, regardless of case.
    #[default]
    Exact,
    /// The text matches a regular expression, after `$1` and so on are replaced in it.
    Regex,
    /// The text equals the pattern, after `$1` and so on are replaced in it.
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

/// How a clause changes the rights that earlier clauses gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Replaces them by these.
    Set(Rights),
    /// Adds these.
    Add(Rights),
    /// Removes these.
    Remove(Rights),
}

/// What is tried after a clause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Nothing: the rights are decided.
    #[default]
    Stop,
    /// The next clauses of the rule.
    Continue,
    /// The next rules.
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

    /// What a modification of an attribute takes. Replacing all values by none is deleting them.
    #[must_use]
    pub const fn of_change(kind: ChangeKind, has_values: bool) -> Rights {
        match kind {
            ChangeKind::Add => Rights::ADD,
            ChangeKind::Delete => Rights::DELETE,
            ChangeKind::Replace if !has_values => Rights::DELETE,
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
