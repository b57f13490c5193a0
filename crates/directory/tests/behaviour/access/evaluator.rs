//! An evaluator that follows slapd.access(5) word by word, however slowly, and generated rules that the compiled ones
//! must agree with it about.
//!
//! It knows nothing of what the directory knows: names are compared as text, which the names here are in normal form
//! for, and each entry and attribute is decided by itself, from the first rule on.

use std::net::IpAddr;

use super::*;
use sapwood_directory::access::{
    By, Connection, Grant, Group, GroupStyle, Peer, SocketName, Strength, TextStyle, Then,
};
use sapwood_testkit::Random;

const ANNE: &str = "uid=anne,ou=people,dc=example,dc=com";
const BERT: &str = "uid=bert,ou=people,dc=example,dc=com";
const CARL: &str = "uid=carl,ou=staff,ou=people,dc=example,dc=com";
const PEOPLE: &str = "ou=people,dc=example,dc=com";
const STAFF: &str = "ou=staff,ou=people,dc=example,dc=com";
const GROUP: &str = "cn=group,ou=people,dc=example,dc=com";
/// A group of the other one, and of itself.
const OUTER: &str = "cn=outer,ou=people,dc=example,dc=com";

/// What has a name and attributes.
struct Entry {
    dn: &'static str,
    attributes: &'static [(&'static str, &'static str)],
}

const ENTRIES: [Entry; 8] = [
    Entry {
        dn: SUFFIX,
        attributes: &[("objectClass", "domain"), ("dc", "example")],
    },
    Entry {
        dn: PEOPLE,
        attributes: &[("objectClass", "organizationalUnit"), ("ou", "people")],
    },
    Entry {
        dn: STAFF,
        attributes: &[
            ("objectClass", "organizationalUnit"),
            ("ou", "staff"),
            ("description", "red"),
        ],
    },
    Entry {
        dn: ANNE,
        attributes: &[
            ("objectClass", "person"),
            ("uid", "anne"),
            ("cn", "anne"),
            ("sn", "anne"),
            ("seeAlso", BERT),
        ],
    },
    Entry {
        dn: BERT,
        attributes: &[
            ("objectClass", "person"),
            ("uid", "bert"),
            ("cn", "bert"),
            ("sn", "bert"),
            ("description", "red"),
            // Bert is a group, too: of those whom it finds.
            (
                "labeledURI",
                "ldap:///ou=people,dc=example,dc=com??one?(seeAlso=*)",
            ),
        ],
    },
    Entry {
        dn: CARL,
        attributes: &[
            ("objectClass", "person"),
            ("uid", "carl"),
            ("cn", "carl"),
            ("sn", "carl"),
            ("seeAlso", ANNE),
        ],
    },
    Entry {
        dn: GROUP,
        attributes: &[
            ("objectClass", "groupOfNames"),
            ("cn", "group"),
            ("member", CARL),
        ],
    },
    Entry {
        dn: OUTER,
        attributes: &[
            ("objectClass", "groupOfNames"),
            ("cn", "outer"),
            ("member", GROUP),
            ("member", OUTER),
        ],
    },
];

const ASKED: [&str; 9] = [
    "entry",
    "children",
    "objectClass",
    "sn",
    "cn",
    "uid",
    "description",
    "seeAlso",
    "member",
];

fn rdns(dn: &str) -> Vec<&str> {
    dn.split(',').filter(|rdn| !rdn.is_empty()).collect()
}

/// "the entry whose DN is equal to", "one level below", "any entry in the subtree", "any entry below": how a DN stands
/// to another one.
fn stands(dn: &str, scope: DnScope, to: &str) -> bool {
    let (own, other) = (rdns(dn), rdns(to));
    let levels = own.len() as i64 - other.len() as i64;
    let is_in = levels >= 0 && own[levels as usize..] == other[..];
    match scope {
        DnScope::Base => is_in && levels == 0,
        DnScope::One => is_in && levels == 1,
        DnScope::Subtree => is_in,
        DnScope::Children => is_in && levels > 0,
        DnScope::Level(level) => is_in && levels == i64::from(level),
        DnScope::Regex => panic!("no expressions here"),
    }
}

/// The expressions that rules here have, and what they match.
fn matches(pattern: &str, dn: &str) -> bool {
    match pattern {
        "ou=people,dc=example,dc=com$" => dn.ends_with(PEOPLE),
        "^uid=[ab]" => dn.starts_with("uid=a") || dn.starts_with("uid=b"),
        "^uid=([^,]+),(.*)$" => dn.starts_with("uid="),
        _ => panic!("{pattern}"),
    }
}

impl Entry {
    fn has(&self, attribute: &str, value: &str) -> bool {
        let mut attributes = self.attributes.iter();
        attributes.any(|(name, known)| *name == attribute && (value == "*" || *known == value))
    }

    fn passes(&self, filter: &str) -> bool {
        match filter.strip_prefix("(!") {
            Some(inner) => !self.passes(inner.strip_suffix(')').unwrap()),
            None => {
                let inner = filter.strip_prefix('(').unwrap().strip_suffix(')').unwrap();
                let (attribute, value) = inner.split_once('=').unwrap();
                self.has(attribute, value)
            }
        }
    }
}

/// Who asks: the one as whom is acted, and who has authenticated; nobody has no name.
struct Asker {
    dn: &'static str,
    real: &'static str,
    from: Arc<Connection>,
}

/// A connection by IPv4, one by IPv6 with TLS, and one on this machine, as slapd names them.
fn connections() -> [Arc<Connection>; 3] {
    let over = |peer: &str, socket: &str, url: &str| Connection {
        address: peer.parse().ok(),
        peer_name: format!("IP={peer}"),
        socket_name: format!("IP={socket}").into(),
        socket_url: url.into(),
        ..Connection::default()
    };
    let v4 = over("127.0.0.1:4711", "127.0.0.1:389", "ldap://127.0.0.1:389");
    let v6 = over("[::1]:4711", "[::1]:636", "ldaps://[::1]:636");
    let local = Connection {
        peer_name: "PATH=/run/ldapi".to_owned(),
        socket_name: "PATH=/run/ldapi".into(),
        socket_url: "ldapi://%2Frun%2Fldapi".into(),
        transport_strength: 71,
        ..Connection::default()
    };
    let tls_strength = 256;
    [v4, Connection { tls_strength, ..v6 }, local].map(Arc::new)
}

/// Words about a connection.
const FROM: [&str; 21] = [
    "peername.ip=127.0.0.1",
    "peername.ip=127.0.0.0%255.0.0.0",
    "peername.ip=127.0.0.0%255.255.255.0{4711}",
    "peername.ip=127.0.0.1{389}",
    "peername.ip=10.0.0.0%255.0.0.0",
    "peername.ipv6=::1",
    "peername.ipv6=::%ffff::{4711}",
    "peername.path=/run/ldapi",
    "peername=IP=127.0.0.1:4711",
    "peername.exact=\"PATH=/run/ldapi\"",
    "peername.expand=\"IP=[::1]:4711\"",
    "peername.regex=^IP=",
    "sockname=\"IP=[::1]:636\"",
    "sockname.regex=^IP=",
    "sockurl=ldap://127.0.0.1:389",
    "sockurl.regex=^ldap:",
    "ssf=71",
    "ssf=72",
    "transport_ssf=1",
    "tls_ssf=128",
    "sasl_ssf=1",
];

/// "compared against pattern": as it is, or as an expression of those that are here.
fn is_named(style: TextStyle, pattern: &str, name: &str) -> bool {
    match style {
        TextStyle::Regex => name.starts_with(pattern.strip_prefix('^').unwrap()),
        TextStyle::Exact | TextStyle::Expand => name == pattern,
    }
}

/// "((peername & <mask>) == <ip>)", and "an optional port".
fn is_at(peer: &Peer, from: &Connection) -> bool {
    let (wanted, mask, port) = match peer {
        Peer::Name { style, pattern } => return is_named(*style, pattern, &from.peer_name),
        Peer::Path(path) => return from.peer_name == format!("PATH={path}"),
        Peer::Ip {
            address,
            mask,
            port,
        } => (IpAddr::from(*address), IpAddr::from(*mask), port),
        Peer::Ipv6 {
            address,
            mask,
            port,
        } => (IpAddr::from(*address), IpAddr::from(*mask), port),
    };
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    from.address.is_some_and(|address| {
        let of = octets(address.ip());
        let masked = of
            .iter()
            .zip(octets(mask))
            .map(|(octet, mask)| octet & mask);
        of.len() == octets(wanted).len()
            && masked.eq(octets(wanted))
            && port.is_none_or(|port| port == address.port())
    })
}

/// The attributes of person, which are all that is asked of the classes here.
const OF_PERSON: [&str; 4] = ["objectClass", "sn", "cn", "description"];
const ALSO_OF_PERSON: &str = "seeAlso";

/// An expression that values match which name somebody.
const NAMING: &str = "^(uid=[^,]+),(.*)$";

/// "access to a particular value of a single attribute": a rule about values is not about the attribute as a whole. The
/// values here are equal but for the case of letters.
fn is_about_value(what: &What, value: Option<&str>) -> bool {
    let Some(pattern) = &what.values else {
        return true;
    };
    value.is_some_and(|value| match pattern.scope {
        DnScope::Regex if pattern.value == NAMING => value.starts_with("uid="),
        DnScope::Regex => value.starts_with('a') || value.starts_with('r'),
        DnScope::Base => value.eq_ignore_ascii_case(&pattern.value),
        scope => stands(value, scope, &pattern.value),
    })
}

fn is_about(what: &What, entry: &Entry, attribute: &str) -> bool {
    let is_here = what
        .entries
        .as_ref()
        .is_none_or(|pattern| match pattern.scope {
            DnScope::Regex => matches(&pattern.dn, entry.dn),
            scope => stands(entry.dn, scope, &pattern.dn),
        });
    let passes = what
        .filter
        .as_ref()
        .is_none_or(|filter| entry.passes(filter));
    let is_attribute = !["entry", "children"].contains(&attribute);
    let of_person = OF_PERSON.contains(&attribute) || attribute == ALSO_OF_PERSON;
    let is_named = what.attributes.is_empty()
        || what.attributes.iter().any(|named| match named {
            Attributes::Entry => attribute == "entry",
            Attributes::Children => attribute == "children",
            Attributes::Type(name) => is_attribute && name == attribute,
            Attributes::Class(_) => is_attribute && of_person,
            // "entry" and "children" are attributes of no class.
            Attributes::NotClass(_) => !is_attribute || !of_person,
        });
    is_here && passes && is_named
}

/// What `$1` and `$2` stand for in the clauses of the one rule that has groups.
fn expanded(text: &str, dn: &str) -> String {
    let (uid, above) = dn.split_once(',').unwrap_or((dn, ""));
    let uid = uid.strip_prefix("uid=").unwrap_or_default();
    text.replace("$1", uid).replace("$2", above)
}

/// What `${v1}` and `${v2}` stand for where values match [`NAMING`].
fn expanded_of(text: &str, value: &str) -> String {
    let (own, above) = value.split_once(',').unwrap_or((value, ""));
    text.replace("${v1}", own).replace("${v2}", above)
}

fn is_meant(who: &Who, asker: &Asker, dn: &str, entry: &Entry, value: Option<&str>) -> bool {
    match who {
        Who::ExpandedDn(pattern) if pattern.dn.contains("${v") => {
            let named = expanded_of(&pattern.dn, value.unwrap_or_default());
            !dn.is_empty() && stands(dn, pattern.scope, &named)
        }
        Who::Dn(pattern) if pattern.dn == "^${v1},ou=" => {
            dn.starts_with(&expanded_of("${v1},ou=", value.unwrap_or_default()))
        }
        Who::Anyone => true,
        Who::Anonymous => dn.is_empty(),
        Who::Users => !dn.is_empty(),
        Who::SelfEntry => !dn.is_empty() && dn == entry.dn,
        Who::SelfLevel(level) => {
            let (lower, upper) = match *level < 0 {
                true => (entry.dn, dn),
                false => (dn, entry.dn),
            };
            !dn.is_empty() && stands(lower, DnScope::Level(level.unsigned_abs()), upper)
        }
        Who::Dn(pattern) if pattern.scope == DnScope::Regex => matches(&pattern.dn, dn),
        Who::Dn(pattern) => !dn.is_empty() && stands(dn, pattern.scope, &pattern.dn),
        Who::ExpandedDn(pattern) => {
            !dn.is_empty() && stands(dn, pattern.scope, &expanded(&pattern.dn, entry.dn))
        }
        Who::DnAttribute(attribute) => !dn.is_empty() && entry.has(attribute, dn),
        Who::Real(who) => is_meant(who, asker, asker.real, entry, value),
        // "evaluated as a URI": Anne and Bert are directly below, and one of them has the attribute.
        Who::Group(Group { attribute, .. }) if attribute.is_some() => dn == ANNE,
        Who::Group(group) if group.style == GroupStyle::Nested => match group.dn.as_str() {
            OUTER => [CARL, GROUP, OUTER].contains(&dn),
            _ => dn == CARL,
        },
        Who::Group(Group {
            dn: group, style, ..
        }) => {
            let group = match style {
                GroupStyle::Expand => &expanded(group, entry.dn),
                GroupStyle::Exact | GroupStyle::Nested => group,
            };
            let mut entries = ENTRIES.iter();
            let group = entries.find(|entry| entry.dn == group);
            !dn.is_empty() && group.is_some_and(|group| group.has("member", dn))
        }
        Who::Set { pattern, .. } => is_in_set(pattern, dn, entry),
        Who::Peer(peer) => is_at(peer, &asker.from),
        Who::Socket {
            what,
            style,
            pattern,
        } => match what {
            SocketName::Sockname => is_named(*style, pattern, &asker.from.socket_name),
            SocketName::Sockurl => is_named(*style, pattern, &asker.from.socket_url),
        },
        // "the minimum required". SASL protects nothing here.
        Who::Strength { of, least } => {
            let (transport, tls) = (asker.from.transport_strength, asker.from.tls_strength);
            *least
                <= match of {
                    Strength::Any => transport.max(tls),
                    Strength::Transport => transport,
                    Strength::Tls => tls,
                    Strength::Sasl => 0,
                }
        }
    }
}

/// The sets that rules here have, and for whom they are not empty.
const SETS: [&str; 14] = [
    "user",
    "this/seeAlso & user",
    "user/seeAlso & this",
    "[cn=outer,ou=people,dc=example,dc=com]/member* & user",
    "user & [cn=group,ou=people,dc=example,dc=com] -> member",
    "this/-1 & user/-1",
    "(user/-* & [ou=staff,ou=people,dc=example,dc=com]) | this/objectClass & [groupOfNames]",
    "[uid=] + user/sn + [,ou=people,dc=example,dc=com] & this",
    "this/seeAlso/entryDN/seeAlso* & user",
    "[ldap:///ou=people,dc=example,dc=com??sub?(seeAlso=*)]/entryDN & user",
    "[LDAP:///ou=people,dc=example,dc=com?seeAlso?one?(sn=anne)]/description & user",
    "this & [ldap:///ou=people,dc=example,dc=com??sub?(objectClass=organizationalUnit)]/entryDN",
    "user/labeledURI/entryDN & this",
    "([ldap:///ou=people,dc=example,dc=com??sub?(uid=] + user/uid + [)])/entryDN & user",
];

/// What finds the entry itself, where `$1` is the value of uid and `$2` the name above.
const OWN_URL: &str = "[ldap:///$2??one?(uid=$1)]/entryDN & user";

/// What each asks, in other words.
fn is_in_set(pattern: &str, dn: &str, entry: &Entry) -> bool {
    let of = |dn: &str| ENTRIES.iter().find(|entry| entry.dn == dn);
    let sees = |one: &str, other: &str| of(one).is_some_and(|one| one.has("seeAlso", other));
    let above = |dn: &str| {
        dn.split_once(',')
            .map_or(String::new(), |(_, above)| above.to_owned())
    };
    match SETS.iter().position(|known| *known == pattern) {
        Some(0) => !dn.is_empty(),
        Some(1) => entry.has("seeAlso", dn),
        Some(2) => sees(dn, entry.dn),
        Some(3) => [CARL, GROUP, OUTER].contains(&dn),
        Some(4) => dn == CARL,
        Some(5) => above(dn) == above(entry.dn),
        // From left to right: the name that the first part may have is no class.
        Some(6) => entry.has("objectClass", "groupOfNames"),
        Some(7) => of(dn).is_some_and(|user| {
            let mut names = user.attributes.iter().filter(|(name, _)| *name == "sn");
            names.any(|(_, sn)| entry.dn == format!("uid={sn},{PEOPLE}"))
        }),
        // Carl sees Anne, who sees Bert.
        Some(8) => entry.dn == CARL && dn == BERT,
        // Those who see somebody; whom Anne sees, as she has no description; the units; whom the URL of Bert finds.
        Some(9) => [ANNE, CARL].contains(&dn),
        Some(10) => dn == BERT,
        Some(11) => [PEOPLE, STAFF].contains(&entry.dn),
        Some(12) => dn == BERT && entry.dn == ANNE,
        // What is joined is not searched.
        Some(13) => false,
        _ if pattern == OWN_URL => dn == entry.dn && dn.starts_with("uid="),
        _ => panic!("{pattern}"),
    }
}

/// What rights are on: an attribute, and one of its values if not all of it is meant.
type Of<'o> = (&'o str, Option<&'o str>);

/// "The ordering of access directives": the first that is about the entry and the attribute counts.
fn rights(rules: &[Rule], asker: &Asker, entry: &Entry, (attribute, value): Of<'_>) -> Rights {
    let mut granted = Rights::NONE;
    'rules: for rule in rules {
        if !is_about(&rule.to, entry, attribute) || !is_about_value(&rule.to, value) {
            continue;
        }
        for By {
            who, grant, then, ..
        } in &rule.by
        {
            // "all the <who> fields must match".
            if !who
                .iter()
                .all(|who| is_meant(who, asker, asker.dn, entry, value))
            {
                continue;
            }
            granted = match grant {
                Grant::Set(rights) => *rights,
                Grant::Add(rights) => granted | *rights,
                Grant::Remove(rights) => granted & !*rights,
            };
            match then {
                Then::Stop => return granted,
                Then::Break => continue 'rules,
                Then::Continue => {}
            }
        }
        // "implicitly ... by * none stop".
        return Rights::NONE;
    }
    // "access to * by * none".
    Rights::NONE
}

#[derive(PartialEq)]
enum Kind {
    Dn,
    Other,
}

fn who(random: &mut Random, expands: bool) -> (Kind, String) {
    let dns = [SUFFIX, PEOPLE, STAFF, ANNE, BERT, CARL, GROUP];
    let who = match random.below(22) {
        0..=2 => return (Kind::Other, "*".to_owned()),
        3 => "users".to_owned(),
        4 => "anonymous".to_owned(),
        5 => "self".to_owned(),
        6 => random.of(&["self.level{1}", "self.level{-1}"]).to_owned(),
        7 => format!("dn.exact=\"{}\"", random.of(&dns)),
        8 => {
            let style = random.of(&["one", "subtree", "children", "level{0}", "level{2}"]);
            format!("dn.{style}=\"{}\"", random.of(&dns))
        }
        9 => "dn.regex=\"^uid=[ab]\"".to_owned(),
        10 if expands => "dn.exact,expand=\"uid=$1,$2\"".to_owned(),
        10 | 11 => return (Kind::Other, "dnattr=seeAlso".to_owned()),
        12 if expands => return (Kind::Other, "group.expand=\"cn=group,$2\"".to_owned()),
        12 => return (Kind::Other, format!("group.exact=\"{GROUP}\"")),
        13 => {
            let words = [
                "realself",
                "realusers",
                "realanonymous",
                "realdnattr=seeAlso",
            ];
            return (Kind::Other, random.of(&words).to_owned());
        }
        14 => return (Kind::Other, format!("realdn.exact=\"{}\"", random.of(&dns))),
        15 if expands => return (Kind::Other, format!("set.expand=\"{OWN_URL}\"")),
        15 | 16 => return (Kind::Other, format!("set=\"{}\"", random.of(&SETS))),
        17 => {
            let group = random.of(&[GROUP, OUTER]);
            return (Kind::Other, format!("group.nested=\"{group}\""));
        }
        18 => {
            let found = format!("group/inetOrgPerson/labeledURI.exact=\"{BERT}\"");
            return (Kind::Other, found);
        }
        _ => return (Kind::Other, random.of(&FROM).to_owned()),
    };
    (Kind::Dn, who)
}

fn generated(random: &mut Random) -> String {
    let dns = [SUFFIX, PEOPLE, STAFF, ANNE, BERT, CARL, GROUP];
    let mut text = String::new();
    for _ in 0..1 + random.below(12) {
        text.push_str("access to");
        let (mut expands, mut is_naming) = (false, false);
        match random.below(6) {
            0 => text.push_str(" *"),
            1 => text.push_str(" dn.regex=\"ou=people,dc=example,dc=com$\""),
            2 => {
                expands = true;
                text.push_str(" dn.regex=\"^uid=([^,]+),(.*)$\"");
            }
            _ => {
                let style = random.of(&["base", "one", "subtree", "children"]);
                text.push_str(&format!(" dn.{style}=\"{}\"", random.of(&dns)));
            }
        }
        if random.once_in(4) {
            let filters = ["(objectClass=person)", "(description=*)", "(!(sn=anne))"];
            text.push_str(&format!(" filter={}", random.of(&filters)));
        }
        if random.once_in(4) {
            let dn = random.of(&dns);
            let style = random.of(&["exact", "one", "subtree", "children"]);
            let names = random.of(&["seeAlso", "member"]);
            let names = match random.below(4) {
                0 => format!("{names} val.regex=\"{NAMING}\""),
                1 => format!("{names} val/distinguishedNameMatch.{style}=\"{dn}\""),
                _ => format!("{names} val.{style}=\"{dn}\""),
            };
            is_naming = names.ends_with(&format!("val.regex=\"{NAMING}\""));
            let values = [
                "description val=RED",
                "sn val/caseIgnoreMatch=Bert",
                "cn val.exact=anne",
                "description val.regex=\"^(a|r)\"",
                "cn val.regex=^[ar]",
                "uid val/caseIgnoreMatch.regex=^[ar]",
                &names,
                &names,
            ];
            let values = random.of(&values);
            is_naming &= *values == *names;
            text.push_str(&format!(" attrs={values}"));
        } else if random.once_in(2) {
            let named = ["@person", "!person"];
            let all = || ASKED.iter().chain(&named).copied().collect::<Vec<_>>();
            let names: Vec<_> = (0..1 + random.below(3))
                .map(|_| random.of(&all()))
                .collect();
            text.push_str(&format!(" attrs={}", names.join(",")));
        }
        for _ in 0..1 + random.below(4) {
            text.push_str("\n    by");
            let (kind, mut who) = match is_naming && random.once_in(2) {
                true => {
                    let words = [
                        "dn.exact,expand=\"${v1},${v2}\"",
                        "dn.one,expand=\"${v2}\"",
                        "dn.regex=\"^${v1},ou=\"",
                        "realdn.exact,expand=\"${v1},${v2}\"",
                    ];
                    (Kind::Other, random.of(&words).to_owned())
                }
                false => who(random, expands),
            };
            // Words that ask for different things are asked for together.
            if kind == Kind::Dn && random.once_in(4) {
                let more = random.of(&[
                    "dnattr=seeAlso",
                    "realusers",
                    "realself",
                    "peername.regex=^IP= tls_ssf=1",
                    "realdn.children=\"ou=people,dc=example,dc=com\"",
                ]);
                who = format!("{who} {more}");
            }
            text.push_str(&format!(" {who}"));
            let grants = [
                "none", "disclose", "auth", "compare", "search", "read", "write", "add", "delete",
                "manage", "=xw", "+r", "+w", "-w", "-r", "=rscxd", "+s", "=0", "+a", "-z",
            ];
            text.push_str(&format!(" {}", random.of(&grants)));
            text.push_str(random.of(&["", "", "", " stop", " continue", " break"]));
        }
        text.push('\n');
    }
    text
}

fn people() -> Directory {
    let directory = in_memory();
    for Entry { dn, attributes } in &ENTRIES {
        let lines: String = attributes
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"))
            // A person has no uid of its own.
            .map(|line| line.replace("objectClass: person", "objectClass: inetOrgPerson"))
            .collect();
        succeed(&directory, add(dn, &lines));
    }
    let policy = [(Replace, "olcAuthzPolicy", ["to"].as_slice())];
    succeed(&directory, modify("cn=config", &policy));
    directory
}

#[test]
fn compiled_rules_agree_with_the_words_of_slapd() {
    let directory = people();
    // Anne acts as Bert.
    succeed(&directory, modify(ANNE, &[(Replace, "authzTo", &["dn:*"])]));
    let mut random = Random::new(1);
    for _ in 0..400 {
        let text = generated(&mut random);
        let rules = rules_of(&text);
        // She must be allowed to, whatever the rules.
        directory.set_access(&Policy::default()).unwrap();
        let snapshot = directory.snapshot().unwrap();
        let [by_v4, by_v6, local] = connections();
        let anne = directory.requester_from(user(&directory, ANNE), Some(by_v6.clone()));
        let mut work = u64::MAX;
        let acting =
            snapshot.through(|snapshot| snapshot.acting(&anne, user(&directory, BERT), &mut work));
        let acting = acting.unwrap().unwrap();
        directory.set_access(&Policy::from(rules.clone())).unwrap();
        let who = |dn, real, from: &Arc<Connection>| Asker {
            dn,
            real,
            from: from.clone(),
        };
        let mut askers: Vec<_> = [
            (who("", "", &by_v4), Identity::Anonymous),
            (who(ANNE, ANNE, &by_v6), user(&directory, ANNE)),
            (who(CARL, CARL, &local), user(&directory, CARL)),
        ]
        .into_iter()
        .map(|(asker, identity)| {
            let from = asker.from.clone();
            (asker, directory.requester_from(identity, Some(from)))
        })
        .collect();
        askers.push((who(BERT, ANNE, &by_v6), acting));
        for (asker, requester) in &askers {
            for entry in &ENTRIES {
                let expected = |of: Of<'_>| rights(&rules, asker, entry, of);
                let whole = ASKED.iter().map(|name| (*name, None));
                let values = entry.attributes.iter();
                let values = values.map(|(name, value)| (*name, Some(*value)));
                for (attribute, value) in whole.chain(values) {
                    let of = value.map(str::as_bytes);
                    let explained = snapshot.through(|snapshot| {
                        snapshot.explain_access(requester, entry.dn, attribute, of)
                    });
                    assert_eq!(
                        explained.unwrap().rights,
                        expected((attribute, value)),
                        "{}, acted as by {:?}, on {attribute} ({value:?}) of {}:\n{text}",
                        asker.dn,
                        asker.real,
                        entry.dn
                    );
                }
                found_as_granted(&snapshot, requester, entry, &expected, &text);
            }
        }
    }
}

/// An entry is found by who may search it and its class, and read by who may read it: with the values that may be.
fn found_as_granted<E: Engine>(
    snapshot: &sapwood_directory::Snapshot<E>,
    requester: &Arc<Requester>,
    entry: &Entry,
    rights: &dyn Fn(Of<'_>) -> Rights,
    text: &str,
) {
    let filter = filter_text::parse(EVERYTHING).unwrap();
    let request = SearchRequest::new(entry.dn, Scope::Base, filter.as_filter());
    let mut search = Search::new(
        snapshot.clone(),
        requester,
        &request,
        SearchOptions::default(),
    );
    let mut found = Vec::new();
    let budget = Budget {
        entries: u32::MAX,
        work: u64::MAX,
        out_bytes: usize::MAX,
    };
    loop {
        let mut wire = Wire::new(&mut found, 1, Controls::EMPTY);
        match search.step(&mut wire, budget).unwrap() {
            Step::Done(_) => break,
            Step::Fetch => snapshot.fetch().unwrap(),
            Step::More | Step::Room(_) | Step::Wait => {}
        }
    }
    let answers = Answer::all(&found);
    let is_found = rights(("entry", None)).has(Rights::SEARCH | Rights::READ)
        && rights(("objectClass", None)).has(Rights::SEARCH);
    assert_eq!(
        answers.len(),
        usize::from(is_found),
        "{}:\n{text}",
        entry.dn
    );
    for answer in &answers {
        let attributes = answer.attributes.iter();
        let mut shown: Vec<(&str, &[u8])> = attributes
            .flat_map(|(name, values)| values.iter().map(|value| (name.as_str(), value.as_slice())))
            .collect();
        let attributes = entry.attributes.iter();
        let mut expected: Vec<(&str, &[u8])> = attributes
            .filter(|(name, value)| rights((name, Some(value))).has(Rights::READ))
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        for list in [&mut shown, &mut expected] {
            // Of a class there are those above it as well.
            list.iter_mut()
                .filter(|(name, _)| *name == "objectClass")
                .for_each(|(_, value)| *value = b"");
            list.sort_unstable();
            list.dedup();
        }
        assert_eq!(shown, expected, "{}:\n{text}", entry.dn);
    }
}
