//! What a server answers, in a form in which equal answers are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::dn::{Dn, write_ava};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url::LdapUrl;

/// Attribute types whose values are distinguished names: servers may write them in their own way.
const DN_ATTRIBUTES: [&str; 12] = [
    "entrydn",
    "creatorsname",
    "modifiersname",
    "subschemasubentry",
    "namingcontexts",
    "member",
    "owner",
    "manager",
    "seealso",
    "odddn",
    "aliasedobjectname",
    "roleoccupant",
];

/// Attributes whose values each server makes for itself: that they are there is all there is to compare.
const OWN_VALUES: [&str; 4] = [
    "entryuuid",
    "entrycsn",
    "createtimestamp",
    "modifytimestamp",
];

/// Attributes that only one of the servers has, and no RFC demands or forbids.
const OWN_ATTRIBUTES: [&str; 2] = ["contextcsn", "numsubordinates"];

/// The same with an optional identifier behind `#`.
const UID_ATTRIBUTES: [&str; 2] = ["uniquemember", "odduid"];

/// Other names and identifiers of attribute types in the names of the test data.
const SYNONYMS: [(&str, &str); 6] = [
    ("commonname", "cn"),
    ("2.5.4.3", "cn"),
    ("surname", "sn"),
    ("userid", "uid"),
    ("0.9.2342.19200300.100.1.1", "uid"),
    ("domaincomponent", "dc"),
];

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: ResultCode,
    pub(crate) matched_dn: String,
    pub(crate) diagnostic: String,
    pub(crate) referral: BTreeSet<String>,
    pub(crate) entries: BTreeMap<String, Attributes>,
    /// Continuation references with how often each came.
    pub(crate) references: BTreeMap<BTreeSet<String>, usize>,
    /// Entries that came twice.
    pub(crate) repeated: BTreeSet<String>,
    /// How many entries a size limit let through. The entries are then those that should not be there.
    pub(crate) limited_to: Option<usize>,
}

pub(crate) type Attributes = BTreeMap<String, BTreeSet<Vec<u8>>>;

impl Default for Answer {
    fn default() -> Answer {
        Answer {
            code: ResultCode::UnknownError,
            matched_dn: String::new(),
            diagnostic: String::new(),
            referral: BTreeSet::new(),
            entries: BTreeMap::new(),
            references: BTreeMap::new(),
            repeated: BTreeSet::new(),
            limited_to: None,
        }
    }
}

impl Answer {
    pub(crate) fn of(answers: Vec<sapwood_testkit::Answer>) -> Answer {
        let mut whole = Answer::default();
        for answer in answers {
            let uris = || normalised_uris(&answer.uris);
            if answer.ends {
                whole.code = answer.code;
                whole.matched_dn = normalised_dn(&answer.matched);
                whole.referral = uris();
                whole.diagnostic = answer.diagnostic;
            } else if let Some(dn) = &answer.entry {
                whole.add_entry(dn, &answer.attributes);
            } else {
                assert!(!answer.uris.is_empty(), "unexpected {answer:?}");
                *whole.references.entry(uris()).or_default() += 1;
            }
        }
        whole
    }

    fn add_entry(&mut self, dn: &str, list: &[(String, Vec<Vec<u8>>)]) {
        let dn = normalised_dn(dn);
        let mut attributes = Attributes::new();
        for (description, values) in list {
            let description = normalised_description(description);
            if OWN_ATTRIBUTES.contains(&description.as_str()) {
                continue;
            }
            let values = values.iter();
            let values = values.map(|value| normalised_value(&description, value));
            attributes.insert(description.clone(), values.collect());
        }
        if self.entries.insert(dn.clone(), attributes).is_some() {
            self.repeated.insert(dn);
        }
    }

    /// Whether everything but the words of the diagnostic is the same.
    pub(crate) fn same_as(&self, other: &Answer) -> bool {
        Answer {
            diagnostic: String::new(),
            ..self.clone()
        } == Answer {
            diagnostic: String::new(),
            ..other.clone()
        }
    }
}

/// What differs, for people.
pub(crate) fn describe_difference(
    f: &mut impl fmt::Write,
    slapd: &Answer,
    sapwood: &Answer,
) -> fmt::Result {
    for (name, answer) in [("slapd", slapd), ("sapwood", sapwood)] {
        writeln!(
            f,
            "  {name:>7}: {} matched={:?} entries={} references={} {:?}",
            answer.code,
            answer.matched_dn,
            answer.entries.len(),
            answer.references.values().sum::<usize>(),
            answer.diagnostic
        )?;
        if !answer.referral.is_empty() {
            writeln!(f, "           referral {:?}", answer.referral)?;
        }
        if !answer.repeated.is_empty() {
            writeln!(f, "           repeated {:?}", answer.repeated)?;
        }
    }
    if slapd.references != sapwood.references {
        writeln!(
            f,
            "    references: {:?} against {:?}",
            slapd.references, sapwood.references
        )?;
    }
    for dn in slapd
        .entries
        .keys()
        .filter(|dn| !sapwood.entries.contains_key(*dn))
    {
        writeln!(f, "    only slapd has {dn:?}")?;
    }
    for (dn, attributes) in &sapwood.entries {
        let Some(expected) = slapd.entries.get(dn) else {
            writeln!(f, "    only sapwood has {dn:?}")?;
            continue;
        };
        let names: BTreeSet<&String> = attributes.keys().chain(expected.keys()).collect();
        for name in names
            .into_iter()
            .filter(|name| attributes.get(*name) != expected.get(*name))
        {
            let show = |values: Option<&BTreeSet<Vec<u8>>>| {
                values.map(|values| {
                    values
                        .iter()
                        .map(|value| value.escape_ascii().to_string())
                        .collect::<Vec<_>>()
                })
            };
            let (expected, found) = (show(expected.get(name)), show(attributes.get(name)));
            writeln!(f, "    {dn:?} {name}: {expected:?} against {found:?}")?;
        }
    }
    Ok(())
}

pub(crate) fn normalised_description(description: &str) -> String {
    match AttributeDescription::parse(description) {
        Ok(parsed) if parsed.has_options() => {
            format!(
                "{};{}",
                parsed.attribute_type().to_ascii_lowercase(),
                parsed.normalised_options()
            )
        }
        _ => description.to_ascii_lowercase(),
    }
}

fn normalised_value(description: &str, value: &[u8]) -> Vec<u8> {
    let attribute_type = description.split(';').next().unwrap_or(description);
    if OWN_VALUES.contains(&attribute_type) {
        return Vec::new();
    }
    let text = || String::from_utf8_lossy(value);
    if DN_ATTRIBUTES.contains(&attribute_type) {
        return normalised_dn(&text()).into_bytes();
    }
    if UID_ATTRIBUTES.contains(&attribute_type) {
        let text = text();
        let (dn, uid) = text.rsplit_once('#').unwrap_or((&text, ""));
        return format!("{}#{uid}", normalised_dn(dn)).into_bytes();
    }
    if attribute_type == "oddoid"
        || attribute_type.ends_with("objectclass")
        || attribute_type == "oddcountry"
    {
        return value.to_ascii_lowercase();
    }
    if attribute_type == "odduuid" {
        return value.to_ascii_lowercase();
    }
    value.to_vec()
}

/// A form of `dn` that is the same for names that the matching rules of the test data hold equal.
pub(crate) fn normalised_dn(dn: &str) -> String {
    let Ok(parsed) = Dn::parse(dn) else {
        return format!("not a DN: {dn}");
    };
    let rdn = |rdn: sapwood_ldap::dn::Rdn<'_>| {
        let mut avas: Vec<String> = rdn
            .avas()
            .map(|ava| {
                let attribute = ava.attribute().to_ascii_lowercase();
                let synonym = SYNONYMS.iter().find(|(other, _)| *other == attribute);
                let attribute = synonym.map_or(attribute.as_str(), |(_, name)| name);
                let value = String::from_utf8_lossy(&ava.value()).to_lowercase();
                let words: Vec<&str> = value.split_whitespace().collect();
                let mut out = String::new();
                write_ava(&mut out, attribute, words.join(" ").as_bytes());
                out
            })
            .collect();
        avas.sort();
        avas.join("+")
    };
    parsed.rdns().map(rdn).collect::<Vec<_>>().join(",")
}

fn normalised_uris(uris: &[String]) -> BTreeSet<String> {
    let normalised = |text: &String| match LdapUrl::parse(text) {
        Ok(url) => LdapUrl {
            dn: normalised_dn(&url.dn),
            ..url
        }
        .to_string(),
        Err(_) => text.clone(),
    };
    uris.iter().map(normalised).collect()
}
