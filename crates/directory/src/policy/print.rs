//! The text of access rules, in the words of slapd.access(5): what `parse` reads back as the same rules.

use std::fmt::{self, Display, Formatter, Write as _};

use super::*;

/// A word of a rule: in quotation marks wherever it could be read as something else.
struct Quoted<'w>(&'w str);

impl Display for Quoted<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_char('"')?;
        for letter in self.0.chars() {
            if matches!(letter, '"' | '\\') {
                out.write_char('\\')?;
            }
            out.write_char(letter)?;
        }
        out.write_char('"')
    }
}

/// The levels of access and their rights, the least first.
pub(super) const LEVELS: [(&str, Rights); 10] = [
    ("none", Rights::NONE),
    ("disclose", Rights::DISCLOSE),
    ("auth", Rights::UP_TO_AUTH),
    ("compare", Rights::UP_TO_COMPARE),
    ("search", Rights::UP_TO_SEARCH),
    ("read", Rights::UP_TO_READ),
    ("add", Rights::UP_TO_ADD),
    ("delete", Rights::UP_TO_DELETE),
    ("write", Rights::UP_TO_WRITE),
    ("manage", Rights::ALL),
];

/// The letters of privileges.
pub(super) const PRIVILEGES: [(char, Rights); 9] = [
    ('m', Rights::MANAGE),
    ('w', Rights::WRITE),
    ('a', Rights::ADD),
    ('z', Rights::DELETE),
    ('r', Rights::READ),
    ('s', Rights::SEARCH),
    ('c', Rights::COMPARE),
    ('x', Rights::AUTH),
    ('d', Rights::DISCLOSE),
];

fn privileges(sign: char, rights: Rights, out: &mut Formatter<'_>) -> fmt::Result {
    out.write_char(sign)?;
    if rights == Rights::NONE {
        return out.write_char('0');
    }
    let mut left = rights;
    for (letter, privilege) in PRIVILEGES {
        if left.has(privilege) {
            out.write_char(letter)?;
            left = left & !privilege;
        }
    }
    Ok(())
}

impl Display for Grant {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Grant::Set(rights) => match LEVELS.iter().find(|(_, level)| level == rights) {
                Some((level, _)) => out.write_str(level),
                None => privileges('=', *rights, out),
            },
            Grant::Add(rights) => privileges('+', *rights, out),
            Grant::Remove(rights) => privileges('-', *rights, out),
        }
    }
}

impl Display for DnScope {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            DnScope::Base => "base",
            DnScope::One => "one",
            DnScope::Subtree => "subtree",
            DnScope::Children => "children",
            DnScope::Regex => "regex",
            DnScope::Level(level) => return write!(out, "level{{{level}}}"),
        })
    }
}

impl Display for Attributes {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Attributes::Type(name) => out.write_str(name),
            Attributes::Class(name) => write!(out, "@{name}"),
            Attributes::NotClass(name) => write!(out, "!{name}"),
            Attributes::Entry => out.write_str("entry"),
            Attributes::Children => out.write_str("children"),
        }
    }
}

impl Display for ValuePattern {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("val")?;
        if let Some(rule) = &self.matching_rule {
            write!(out, "/{rule}")?;
        }
        write!(out, ".{}={}", self.scope, Quoted(&self.value))
    }
}

impl Display for What {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut before = "";
        if let Some(DnPattern { scope, dn }) = &self.entries {
            write!(out, "dn.{scope}={}", Quoted(dn))?;
            before = " ";
        }
        if let Some(filter) = &self.filter {
            write!(out, "{before}filter={}", Quoted(filter))?;
            before = " ";
        }
        for (at, attribute) in self.attributes.iter().enumerate() {
            match at {
                0 => write!(out, "{before}attrs={attribute}")?,
                _ => write!(out, ",{attribute}")?,
            }
            before = " ";
        }
        if let Some(values) = &self.values {
            write!(out, " {values}")?;
        }
        match before {
            "" => out.write_char('*'),
            _ => Ok(()),
        }
    }
}

impl Display for TextStyle {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TextStyle::Exact => "exact",
            TextStyle::Regex => "regex",
            TextStyle::Expand => "expand",
        })
    }
}

fn port_of(port: Option<u16>, out: &mut Formatter<'_>) -> fmt::Result {
    match port {
        Some(port) => write!(out, "{{{port}}}"),
        None => Ok(()),
    }
}

impl Display for Peer {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Name { style, pattern } => write!(out, "peername.{style}={}", Quoted(pattern)),
            Peer::Ip {
                address,
                mask,
                port,
            } => {
                write!(out, "peername.ip={address}%{mask}")?;
                port_of(*port, out)
            }
            Peer::Ipv6 {
                address,
                mask,
                port,
            } => {
                write!(out, "peername.ipv6={address}%{mask}")?;
                port_of(*port, out)
            }
            Peer::Path(path) => write!(out, "peername.path={}", Quoted(path)),
        }
    }
}

impl Display for Group {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("group")?;
        for name in self.class.iter().chain(&self.attribute) {
            write!(out, "/{name}")?;
        }
        let style = match self.style {
            GroupStyle::Exact => "exact",
            GroupStyle::Expand => "expand",
            GroupStyle::Nested => "nested",
        };
        write!(out, ".{style}={}", Quoted(&self.dn))
    }
}

impl Display for Who {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Who::Anyone => out.write_char('*'),
            Who::Anonymous => out.write_str("anonymous"),
            Who::Users => out.write_str("users"),
            Who::SelfEntry => out.write_str("self"),
            Who::SelfLevel(level) => write!(out, "self.level{{{level}}}"),
            Who::Dn(DnPattern { scope, dn }) => write!(out, "dn.{scope}={}", Quoted(dn)),
            Who::ExpandedDn(DnPattern { scope, dn }) => {
                write!(out, "dn.{scope},expand={}", Quoted(dn))
            }
            Who::DnAttribute(name) => write!(out, "dnattr={name}"),
            Who::Real(who) => write!(out, "real{who}"),
            Who::Group(group) => group.fmt(out),
            Who::Set { expand, pattern } => {
                let style = if *expand { "expand" } else { "exact" };
                write!(out, "set.{style}={}", Quoted(pattern))
            }
            Who::Peer(peer) => peer.fmt(out),
            Who::Socket {
                what,
                style,
                pattern,
            } => {
                let name = match what {
                    SocketName::Sockname => "sockname",
                    SocketName::Sockurl => "sockurl",
                };
                write!(out, "{name}.{style}={}", Quoted(pattern))
            }
            Who::Strength { of, least } => {
                let name = match of {
                    Strength::Any => "ssf",
                    Strength::Transport => "transport_ssf",
                    Strength::Tls => "tls_ssf",
                    Strength::Sasl => "sasl_ssf",
                };
                write!(out, "{name}={least}")
            }
        }
    }
}

impl Display for By {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("by")?;
        for who in &self.who {
            write!(out, " {who}")?;
        }
        let own = match self.own_values {
            None => "",
            Some(Subject::Effective) => "self",
            Some(Subject::Real) => "realself",
        };
        write!(out, " {own}{}", self.grant)?;
        match self.then {
            Then::Stop => Ok(()),
            Then::Continue => out.write_str(" continue"),
            Then::Break => out.write_str(" break"),
        }
    }
}

/// `to <what> by <who> <access> …`, in one line.
impl Display for Rule {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "to {}", self.to)?;
        self.by.iter().try_for_each(|by| write!(out, " {by}"))
    }
}
