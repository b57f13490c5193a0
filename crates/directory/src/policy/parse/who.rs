//! Whom a clause is about.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::words::{Field, Word};
use super::{Parsed, check_dn, is_name, read_set, scope, unknown_style};
use crate::policy::*;

/// Whom a word names; `None` if it names nobody, and is the access of the clause.
pub(in super::super) fn who(word: &Word) -> Parsed<Option<Who>> {
    for (name, who) in [
        ("*", Who::Anyone),
        ("anonymous", Who::Anonymous),
        ("users", Who::Users),
        ("self", Who::SelfEntry),
    ] {
        if word.is(name) {
            return Ok(Some(who));
        }
        let is_real = word
            .text
            .get(..4)
            .is_some_and(|real| real.eq_ignore_ascii_case("real"));
        if is_real && who != Who::Anyone && word.text[4..].eq_ignore_ascii_case(name) {
            return Ok(Some(Who::Real(Box::new(who))));
        }
    }
    if let Some(who) = self_level(word)? {
        return Ok(Some(who));
    }
    let name = word.text.split(['=', '.', '/']).next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    if name == "dynacl" || name == "aci" {
        return Err(word.error(format!("there is no {name} here: write rules")));
    }
    let is_known = KNOWN.contains(&name.as_str());
    if !is_known || !word.text.contains('=') {
        return Ok(None);
    }
    let field = word.field()?;
    let who = match name.as_str() {
        "dn" => dn(word, &field)?,
        "realdn" => Who::Real(Box::new(dn(word, &field)?)),
        "dnattr" => dn_attribute(word, &field)?,
        "realdnattr" => Who::Real(Box::new(dn_attribute(word, &field)?)),
        "group" => group(word, &field)?,
        "set" => set(word, &field)?,
        "peername" => Who::Peer(peer(word, &field)?),
        "sockname" => socket(word, &field, SocketName::Sockname)?,
        "sockurl" => socket(word, &field, SocketName::Sockurl)?,
        "domain" => {
            return Err(word.error("names of hosts (domain) are not looked up: name addresses"));
        }
        "ssf" => strength(word, &field, Strength::Any)?,
        "transport_ssf" => strength(word, &field, Strength::Transport)?,
        "tls_ssf" => strength(word, &field, Strength::Tls)?,
        _ => strength(word, &field, Strength::Sasl)?,
    };
    Ok(Some(who))
}

const KNOWN: [&str; 14] = [
    "dn",
    "realdn",
    "dnattr",
    "realdnattr",
    "group",
    "set",
    "peername",
    "sockname",
    "sockurl",
    "domain",
    "ssf",
    "transport_ssf",
    "tls_ssf",
    "sasl_ssf",
];

/// Why a clause that is about some cannot be about these as well.
pub(super) fn clash(before: &[Who], who: &Who) -> Option<String> {
    let kind = |who: &Who| match who {
        Who::Anyone
        | Who::Anonymous
        | Who::Users
        | Who::SelfEntry
        | Who::SelfLevel(_)
        | Who::Dn(_)
        | Who::ExpandedDn(_) => (0, 0),
        Who::Real(who) if matches!(**who, Who::DnAttribute(_)) => (1, 0),
        Who::Real(_) => (2, 0),
        Who::DnAttribute(_) => (3, 0),
        Who::Group(_) => (4, 0),
        Who::Set { .. } => (5, 0),
        Who::Peer(_) => (6, 0),
        Who::Socket { what, .. } => (7, *what as u8),
        Who::Strength { of, .. } => (8, *of as u8),
    };
    let clashes = before.iter().any(|known| kind(known) == kind(who));
    clashes.then(|| format!("the clause is about others already: {who} cannot be added"))
}

/// `self.level{n}`, and the same of who is bound.
fn self_level(word: &Word) -> Parsed<Option<Who>> {
    let text = word.text.to_ascii_lowercase();
    let (real, rest) = match text.strip_prefix("real") {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let Some(style) = rest.strip_prefix("self.") else {
        return Ok(None);
    };
    let level = style
        .strip_prefix("level{")
        .and_then(|rest| rest.strip_suffix('}'));
    let level: Option<i32> = level.and_then(|level| level.parse().ok());
    let level = level.ok_or_else(|| word.error("self takes the style level{n}"))?;
    let who = match level {
        0 => Who::SelfEntry,
        level => Who::SelfLevel(level),
    };
    Ok(Some(match real {
        true => Who::Real(Box::new(who)),
        false => who,
    }))
}

/// A style and whether the modifier `expand` stands behind it.
fn modified<'f>(word: &Word, field: &Field<'f>) -> Parsed<(Option<&'f str>, bool)> {
    match field.style.and_then(|style| style.split_once(',')) {
        None => Ok((field.style, false)),
        Some((style, modifier)) if modifier.eq_ignore_ascii_case("expand") => {
            Ok((Some(style), true))
        }
        Some((_, modifier)) => Err(word.error(format!("there is no modifier {modifier:?}"))),
    }
}

fn no_option(word: &Word, field: &Field<'_>) -> Parsed<()> {
    match field.option {
        None => Ok(()),
        Some(option) => Err(word.error(format!("{} takes no /{option}", field.name))),
    }
}

fn dn(word: &Word, field: &Field<'_>) -> Parsed<Who> {
    no_option(word, field)?;
    let (style, expand) = modified(word, field)?;
    let is_expand = style.is_some_and(|style| style.eq_ignore_ascii_case("expand"));
    let found = match is_expand {
        true => Some(DnScope::Base),
        false => scope(style),
    };
    let scope = found.ok_or_else(|| unknown_style(word, style))?;
    let pattern = DnPattern::new(scope, field.value);
    if field.value == "*" && !expand {
        return Ok(Who::Anyone);
    }
    if scope == DnScope::Regex {
        return Ok(Who::Dn(pattern));
    }
    if expand || is_expand {
        return Ok(Who::ExpandedDn(pattern));
    }
    check_dn(word, field.value)?;
    Ok(Who::Dn(pattern))
}

fn dn_attribute(word: &Word, field: &Field<'_>) -> Parsed<Who> {
    no_option(word, field)?;
    if field.style.is_some() || !is_name(field.value) {
        return Err(word.error("dnattr takes the name of an attribute, and no style"));
    }
    Ok(Who::DnAttribute(field.value.to_owned()))
}

fn group(word: &Word, field: &Field<'_>) -> Parsed<Who> {
    let (class, attribute) = match field.option.map(|option| option.split_once('/')) {
        None => (None, None),
        Some(None) => (field.option, None),
        Some(Some((class, attribute))) => (Some(class), Some(attribute)),
    };
    if let Some(name) = class.iter().chain(&attribute).find(|name| !is_name(name)) {
        return Err(word.error(format!(
            "{name:?} is not the name of a class or an attribute"
        )));
    }
    let style = match field.style.map(str::to_ascii_lowercase).as_deref() {
        None | Some("exact" | "base") => GroupStyle::Exact,
        Some("expand" | "regex") => GroupStyle::Expand,
        Some("nested") => GroupStyle::Nested,
        Some(_) => return Err(unknown_style(word, field.style)),
    };
    if style != GroupStyle::Expand {
        check_dn(word, field.value)?;
    }
    Ok(Who::Group(Group {
        class: class.map(str::to_owned),
        attribute: attribute.map(str::to_owned),
        style,
        dn: field.value.to_owned(),
    }))
}

fn set(word: &Word, field: &Field<'_>) -> Parsed<Who> {
    no_option(word, field)?;
    let expand = match field.style.map(str::to_ascii_lowercase).as_deref() {
        None | Some("exact" | "base") => false,
        Some("expand" | "regex") => true,
        Some(_) => return Err(unknown_style(word, field.style)),
    };
    read_set(field.value).map_err(|why| word.error(why))?;
    Ok(Who::Set {
        expand,
        pattern: field.value.to_owned(),
    })
}

fn text_style(style: Option<&str>) -> Option<TextStyle> {
    Some(match style.map(str::to_ascii_lowercase).as_deref() {
        None | Some("exact" | "base") => TextStyle::Exact,
        Some("regex") => TextStyle::Regex,
        Some("expand") => TextStyle::Expand,
        Some(_) => return None,
    })
}

fn socket(word: &Word, field: &Field<'_>, what: SocketName) -> Parsed<Who> {
    no_option(word, field)?;
    let style = text_style(field.style);
    Ok(Who::Socket {
        what,
        style: style.ok_or_else(|| unknown_style(word, field.style))?,
        pattern: field.value.to_owned(),
    })
}

fn peer(word: &Word, field: &Field<'_>) -> Parsed<Peer> {
    no_option(word, field)?;
    let lowercase = field.style.map(str::to_ascii_lowercase);
    match lowercase.as_deref() {
        Some("ip") => {
            let (address, mask, port) = network(word, field.value)?;
            let address: Ipv4Addr = address
                .parse()
                .map_err(|_| word.error(format!("{address:?} is not an IPv4 address")))?;
            let mask: Ipv4Addr = mask.map_or(Ok(Ipv4Addr::BROADCAST), |mask| {
                mask.parse().map_err(|_| {
                    word.error(format!("{mask:?} is not a mask, such as 255.255.255.0"))
                })
            })?;
            Ok(Peer::Ip {
                address,
                mask,
                port,
            })
        }
        Some("ipv6") => {
            let (address, mask, port) = network(word, field.value)?;
            let address: Ipv6Addr = address
                .parse()
                .map_err(|_| word.error(format!("{address:?} is not an IPv6 address")))?;
            let mask: Ipv6Addr = mask.map_or(Ok(Ipv6Addr::from_bits(u128::MAX)), |mask| {
                mask.parse()
                    .map_err(|_| word.error(format!("{mask:?} is not a mask, such as ffff::")))
            })?;
            Ok(Peer::Ipv6 {
                address,
                mask,
                port,
            })
        }
        Some("path") => Ok(Peer::Path(field.value.to_owned())),
        style => match text_style(style) {
            Some(style) => Ok(Peer::Name {
                style,
                pattern: field.value.to_owned(),
            }),
            None => Err(unknown_style(word, field.style)),
        },
    }
}

/// The parts of `<ip>[%<mask>][{<port>}]`.
fn network<'v>(word: &Word, text: &'v str) -> Parsed<(&'v str, Option<&'v str>, Option<u16>)> {
    let (text, port) = match text
        .strip_suffix('}')
        .and_then(|rest| rest.rsplit_once('{'))
    {
        Some((text, port)) => {
            let known = port.parse();
            let known = known.map_err(|_| word.error(format!("{port:?} is not a port")))?;
            (text, Some(known))
        }
        None => (text, None),
    };
    match text.split_once('%') {
        Some((address, mask)) => Ok((address, Some(mask), port)),
        None => Ok((text, None, port)),
    }
}

fn strength(word: &Word, field: &Field<'_>, of: Strength) -> Parsed<Who> {
    no_option(word, field)?;
    let least = field.value.parse().ok().filter(|least| *least > 0);
    match least.filter(|_| field.style.is_none()) {
        Some(least) => Ok(Who::Strength { of, least }),
        None => Err(word.error("write a number of at least 1, without a style")),
    }
}
