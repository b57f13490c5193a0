//! Whom a clause is about, made ready: what the identity and its connection tell is decided here, and what depends on
//! the entry is left as a [`Condition`].

use std::net::IpAddr;
use std::sync::Arc;

use super::Connection;
use super::compile::{Asker, Data, Need};
use super::condition::{Condition, RuleFilter, naming_filter, text_is};
use super::evaluate::Evaluate;
use super::found::is_url;
use super::group::{GroupTest, Members};
use super::set::{Set, Text, attribute_of};
use crate::error::{Error, Result};
use crate::policy::entry_test::EntryTest;
use crate::policy::expansion::{Expansion, Source, Written};
use crate::policy::parse::read_set;
use crate::policy::regex::{MATCHING_WORK, Regex};
use crate::policy::{
    DnPattern, DnScope, Group, GroupStyle, Peer, SocketName, Strength, TextStyle, Who,
};
use crate::schema::{NormalDn, Schema};

/// Whom a clause is about.
#[derive(Debug)]
pub(super) enum CompiledWho {
    Anyone,
    Anonymous,
    Users,
    SelfEntry,
    /// The same of who has authenticated.
    Real(Box<CompiledWho>),
    Near(i32),
    Dn(EntryTest),
    Matches(Box<Regex>),
    /// Text that depends on the entry.
    ExpandedDn(Arc<Expansion>, DnScope),
    DnAttribute(String),
    Group {
        dn: NormalDn,
        class: String,
        attribute: String,
        members: Members,
    },
    /// A group whose DN depends on the entry.
    GroupOf {
        dn: Arc<Expansion>,
        class: String,
        attribute: String,
        members: Members,
    },
    Set(Arc<Set>),
    Network(Peer),
    /// Who comes over the local socket with a path.
    Path(String),
    Named(Named, TextStyle, String),
    /// The same with text that depends on the entry.
    NamedOf(Named, TextStyle, Arc<Expansion>),
    Strength(Strength, u32),
}

/// What of a connection has a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Peer,
    Socket(SocketName),
}

type Made<T> = std::result::Result<T, String>;

impl CompiledWho {
    /// `source` is what `$1` stands for, and `value` the expression that values match, for `${v1}`.
    pub(super) fn new(
        schema: &Schema,
        who: &Who,
        (source, value): (&Source, Option<&Arc<Regex>>),
    ) -> Made<CompiledWho> {
        let expansion = |pattern: &str| {
            let read = Expansion::in_clause((source.clone(), value), pattern)?;
            Ok::<_, String>(Arc::new(read))
        };
        Ok(match who {
            Who::Anyone => CompiledWho::Anyone,
            Who::Anonymous => CompiledWho::Anonymous,
            Who::Users => CompiledWho::Users,
            Who::SelfEntry => CompiledWho::SelfEntry,
            Who::SelfLevel(level) => CompiledWho::Near(*level),
            Who::Real(who) => {
                CompiledWho::Real(Box::new(CompiledWho::new(schema, who, (source, value))?))
            }
            Who::Dn(DnPattern {
                scope: DnScope::Regex,
                dn,
            }) => {
                let expansion = expansion(dn)?;
                match expansion.constant() {
                    Some(pattern) => CompiledWho::Matches(Box::new(Regex::new(pattern)?)),
                    None => CompiledWho::ExpandedDn(expansion, DnScope::Regex),
                }
            }
            Who::Dn(pattern) if pattern.dn.is_empty() && pattern.scope == DnScope::Base => {
                CompiledWho::Anonymous
            }
            Who::Dn(pattern) if pattern.dn.is_empty() && pattern.scope == DnScope::Subtree => {
                CompiledWho::Anyone
            }
            Who::Dn(pattern) => CompiledWho::Dn(EntryTest::new(schema, pattern)?),
            Who::ExpandedDn(pattern) => {
                CompiledWho::ExpandedDn(expansion(&pattern.dn)?, pattern.scope)
            }
            Who::DnAttribute(name) => match schema.attribute_type(name.as_bytes()) {
                Some(known) => CompiledWho::DnAttribute(known.oid().to_string()),
                None => return Err(format!("there is no attribute type {name:?}")),
            },
            Who::Group(group) => CompiledWho::group(schema, group, &expansion)?,
            Who::Set { expand, pattern } => {
                CompiledWho::Set(Arc::new(set(schema, pattern, expand.then_some(source))?))
            }
            Who::Peer(Peer::Name { style, pattern }) => {
                CompiledWho::named((Named::Peer, *style), pattern, &expansion)?
            }
            Who::Peer(Peer::Path(path)) => CompiledWho::Path(path.clone()),
            Who::Peer(network) => CompiledWho::Network(network.clone()),
            Who::Socket {
                what,
                style,
                pattern,
            } => CompiledWho::named((Named::Socket(*what), *style), pattern, &expansion)?,
            Who::Strength { of, least } => CompiledWho::Strength(*of, *least),
        })
    }

    fn group(
        schema: &Schema,
        group: &Group,
        expansion: &impl Fn(&str) -> Made<Arc<Expansion>>,
    ) -> Made<CompiledWho> {
        let class = group.class.as_deref().unwrap_or("groupOfNames").to_owned();
        let attribute = group.attribute.as_deref().unwrap_or("member").to_owned();
        let Some(known) = schema.object_class(class.as_bytes()) else {
            return Err(format!("there is no object class {class:?}"));
        };
        // By its OID: not all that schemas have for a name is one in a filter.
        let class = known.oid().to_string();
        let Some(known) = schema.attribute_type(attribute.as_bytes()) else {
            return Err(format!("there is no attribute type {attribute:?}"));
        };
        let url = schema.attribute_type(b"labeledURI");
        let is_url = url.is_some_and(|url| url.subtypes().contains(known.id()));
        let members = match group.style {
            GroupStyle::Nested if is_url => {
                return Err("members of groups by URLs are not nested: write group.exact".into());
            }
            GroupStyle::Nested => Members::Nested(known.id()),
            _ if is_url => Members::ByUrls(known.id()),
            _ => Members::Named,
        };
        let attribute = known.oid().to_string();
        match group.style {
            GroupStyle::Exact | GroupStyle::Nested => {
                let mut dn = NormalDn::new();
                let named = dn.parse(schema, group.dn.as_bytes());
                named.map_err(|error| format!("{:?} is not a DN: {error}", group.dn))?;
                Ok(CompiledWho::Group {
                    dn,
                    class,
                    attribute,
                    members,
                })
            }
            GroupStyle::Expand => Ok(CompiledWho::GroupOf {
                dn: match expansion(&group.dn)? {
                    dn if dn.is_of_value() => return Err("a group does not take ${v1}".into()),
                    dn => dn,
                },
                class,
                attribute,
                members,
            }),
        }
    }

    fn named(
        (named, style): (Named, TextStyle),
        pattern: &str,
        expansion: &impl Fn(&str) -> Made<Arc<Expansion>>,
    ) -> Made<CompiledWho> {
        if style == TextStyle::Exact {
            return Ok(CompiledWho::Named(named, style, pattern.to_owned()));
        }
        let expansion = expansion(pattern)?;
        let Some(pattern) = expansion.constant() else {
            return Ok(CompiledWho::NamedOf(named, style, expansion));
        };
        if style == TextStyle::Regex {
            Regex::new(pattern)?;
        }
        Ok(CompiledWho::Named(named, style, pattern.to_owned()))
    }

    /// Whether it asks for the content of entries.
    pub(super) fn needs_data(&self) -> bool {
        match self {
            CompiledWho::Real(who) => who.needs_data(),
            CompiledWho::Group { .. } | CompiledWho::GroupOf { .. } => true,
            CompiledWho::DnAttribute(_) | CompiledWho::Set(_) => true,
            _ => false,
        }
    }

    /// Whether it may be somebody, and what of that depends on the entry.
    pub(super) fn may_be<R: Evaluate>(
        &self,
        asker: &Asker<'_>,
        data: Data<'_, R>,
        need: &mut Need,
    ) -> Result<bool> {
        let is_bound = asker.is_bound;
        let condition = match self {
            CompiledWho::Anyone => return Ok(true),
            CompiledWho::Anonymous => return Ok(!is_bound),
            CompiledWho::Users => return Ok(is_bound),
            CompiledWho::SelfEntry => {
                need.of_self = true;
                return Ok(asker.entry.is_some());
            }
            CompiledWho::Real(who) => {
                return match (&asker.real, &**who) {
                    (None, who) => who.may_be(asker, data, need),
                    // The own entry of who asks is another one.
                    (Some(real), CompiledWho::SelfEntry) => {
                        need.conditions.extend(real.entry.map(Condition::Own));
                        Ok(real.entry.is_some())
                    }
                    (Some(real), who) => who.may_be(real, data, need),
                };
            }
            CompiledWho::Dn(test) => return Ok(asker.dn().is_some_and(|dn| test.holds(dn))),
            CompiledWho::Matches(regex) => {
                need.work += MATCHING_WORK * asker.text().len() as u64;
                return Ok(regex.is_match(asker.text()));
            }
            CompiledWho::Network(network) => {
                return Ok(asker.from.is_some_and(|from| from.is_in(network)));
            }
            CompiledWho::Path(path) => {
                return Ok(asker.from.is_some_and(|from| from.is_local(path)));
            }
            CompiledWho::Named(named, style, pattern) => {
                let text = asker.from.map(|from| from.name(*named));
                return Ok(
                    text.is_some_and(|text| pattern == "*" || text_is(*style, text, pattern))
                );
            }
            CompiledWho::Strength(of, least) => {
                return Ok(asker.from.is_some_and(|from| from.strength(*of) >= *least));
            }
            CompiledWho::NamedOf(named, style, expansion) => {
                let Some(text) = asker.from.map(|from| from.name(*named)) else {
                    return Ok(false);
                };
                Condition::Text(expansion.clone(), *style, text.into())
            }
            CompiledWho::ExpandedDn(expansion, DnScope::Regex) => {
                Condition::Text(expansion.clone(), TextStyle::Regex, asker.text().clone())
            }
            CompiledWho::Near(level) => match asker.dn() {
                Some(dn) => Condition::Near(*level, dn.clone()),
                None => return Ok(false),
            },
            CompiledWho::ExpandedDn(expansion, scope) => match asker.dn() {
                Some(dn) => Condition::Dn(expansion.clone(), *scope, dn.clone()),
                None => return Ok(false),
            },
            CompiledWho::DnAttribute(attribute) if is_bound => {
                let filter = naming_filter(attribute, asker.text()).map_err(Error::Config)?;
                Condition::Filter(Arc::new(RuleFilter::new(filter)))
            }
            CompiledWho::Group {
                dn,
                class,
                attribute,
                members,
            } => {
                let (Some(own), Some((reading, state))) = (asker.dn(), data) else {
                    return Ok(false);
                };
                let test = GroupTest::new((class, attribute), *members, (own, asker.entry));
                let test = test.map_err(Error::Config)?;
                return test.holds(reading, state, dn, &mut need.work);
            }
            CompiledWho::GroupOf {
                dn,
                class,
                attribute,
                members,
            } => {
                let Some(own) = asker.dn() else {
                    return Ok(false);
                };
                let test = GroupTest::new((class, attribute), *members, (own, asker.entry));
                Condition::Group(dn.clone(), Arc::new(test.map_err(Error::Config)?))
            }
            CompiledWho::Set(set) if set.asks_for_entry() => {
                Condition::Set(set.clone(), asker.text().clone())
            }
            CompiledWho::Set(set) => {
                let Some(((view, schema), state)) = data else {
                    return Ok(false);
                };
                let reading = (view, schema, &**state);
                return set.is_met(reading, None, asker.text(), &mut need.work);
            }
            CompiledWho::DnAttribute(_) => return Ok(false),
        };
        let of_value = match &condition {
            Condition::Dn(expansion, ..) | Condition::Text(expansion, ..) => {
                expansion.is_of_value()
            }
            _ => false,
        };
        match of_value {
            true => need.of_value.push(condition),
            false => need.conditions.push(condition),
        }
        Ok(true)
    }
}

/// Looks the names of a set up. With a source, `$1` and its like in brackets are replaced.
fn set(schema: &Schema, pattern: &str, source: Option<&Source>) -> Made<Set> {
    let attribute = |name: String| attribute_of(schema, &name);
    let text = |text: String| {
        let Some(source) = source else {
            return Ok(Text::Constant(text));
        };
        let expansion = Expansion::new(source.clone(), &text)?;
        let written = match is_url(expansion.start().as_bytes()) {
            true => Written::InUrl,
            false => Written::AsItIs,
        };
        Ok(match expansion.constant() {
            Some(text) => Text::Constant(text.to_owned()),
            None => Text::Expanded(expansion, written),
        })
    };
    read_set(pattern)?.try_map(&attribute, &text)
}

impl Connection {
    fn strength(&self, of: Strength) -> u32 {
        match of {
            Strength::Any => self.transport_strength.max(self.tls_strength),
            Strength::Transport => self.transport_strength,
            Strength::Tls => self.tls_strength,
            Strength::Sasl => 0,
        }
    }

    fn name(&self, named: Named) -> &str {
        match named {
            Named::Peer => &self.peer_name,
            Named::Socket(SocketName::Sockname) => &self.socket_name,
            Named::Socket(SocketName::Sockurl) => &self.socket_url,
        }
    }

    /// Whether it is one over the local socket with a path.
    fn is_local(&self, path: &str) -> bool {
        self.peer_name.strip_prefix("PATH=") == Some(path)
    }

    fn is_in(&self, network: &Peer) -> bool {
        let has_port = |port: &Option<u16>| {
            port.is_none_or(|port| self.address.is_some_and(|address| address.port() == port))
        };
        let address = self.address.map(|address| address.ip().to_canonical());
        match (network, address) {
            (
                Peer::Ip {
                    address: wanted,
                    mask,
                    port,
                },
                Some(IpAddr::V4(address)),
            ) => address.to_bits() & mask.to_bits() == wanted.to_bits() && has_port(port),
            (
                Peer::Ipv6 {
                    address: wanted,
                    mask,
                    port,
                },
                Some(IpAddr::V6(address)),
            ) => address.to_bits() & mask.to_bits() == wanted.to_bits() && has_port(port),
            _ => false,
        }
    }
}
