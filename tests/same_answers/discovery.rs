//! What clients discover: the root DSE and the subschema of both servers, attribute by attribute.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::schema::{AttributeType, MatchingRule, MatchingRuleUse, ObjectClass, Syntax};
use sapwood_testkit::Client;

use super::answer::Attributes;
use super::operation::{Operation, Term};

/// How an attribute of both is compared.
enum Rule {
    Same,
    /// sapwood has what slapd has, but for these.
    AtLeast(&'static [&'static str]),
    /// Its values are definitions.
    Definitions(fn(&str) -> Definition),
    /// A server's own.
    Own,
}
use Rule::{AtLeast, Definitions, Own, Same};

const ROOT_DSE: &[(&str, Rule)] = &[
    ("objectclass", AtLeast(&["openldaprootdse"])),
    ("structuralobjectclass", Own),
    ("namingcontexts", Same),
    ("entrydn", Same),
    ("subschemasubentry", Same),
    ("supportedldapversion", Same),
    ("supportedextension", AtLeast(&[])),
    ("supportedcontrol", AtLeast(CONTROLS_NOT_BUILT)),
    ("supportedfeatures", AtLeast(&[])),
    // Those of slapd depend on which plugins its SASL library finds.
    ("supportedsaslmechanisms", Own),
    ("configcontext", Own),
    // slapd has none.
    ("defaultnamingcontext", Own),
    ("vendorname", Own),
    ("vendorversion", Own),
];

const SUBSCHEMA: &[(&str, Rule)] = &[
    ("objectclass", Same),
    ("structuralobjectclass", Same),
    ("cn", Same),
    ("entrydn", Same),
    // slapd shows them of entries of databases only.
    ("hassubordinates", Own),
    ("numsubordinates", Own),
    ("subschemasubentry", Same),
    ("createtimestamp", Same),
    ("modifytimestamp", Same),
    // RFC 3672 §2.4: each subentry has one; slapd's has none.
    ("subtreespecification", Own),
    ("attributetypes", Definitions(attribute_type)),
    ("objectclasses", Definitions(object_class)),
    ("matchingrules", Definitions(matching_rule)),
    ("matchingruleuse", Definitions(matching_rule_use)),
    ("ldapsyntaxes", Definitions(syntax)),
    // RFC 3672 §2.4: subentryNameForm; slapd has no name forms.
    ("nameforms", Own),
];

/// Controls that no RFC asks of a server.
const CONTROLS_NOT_BUILT: &[&str] = &[
    "1.3.6.1.1.22",             // don't use copy, RFC 6171
    "1.2.826.0.1.3344810.2.3",  // matched values, RFC 3876
    "1.3.6.1.4.1.4203.1.9.1.1", // content synchronisation, RFC 4533
];

/// Arcs and identifiers of definitions that only slapd has.
const NOT_DEFINED: &[&str] = &[
    // OpenLDAP's own.
    "1.3.6.1.4.1.4203.1.12.",
    "1.3.6.1.4.1.4203.1.4.1",
    "1.3.6.1.4.1.4203.666.",
    "1.3.6.1.4.1.42.2.27.8.1.29",
    "1.2.840.113549.1.8.1.1",
    "1.2.36.79672281.1.",
    // Dynamic entries, RFC 2589.
    "1.3.6.1.4.1.1466.101.119.",
    // What RFC 4519 has no longer of RFC 2256.
    "2.5.4.2",
    "2.5.4.29",
    "2.5.4.30",
    "2.5.4.48",
    "2.5.4.54",
    "2.5.6.12",
    "2.5.6.13",
    "2.5.6.20",
    "2.5.13.22",
    "2.5.13.24",
    // RFC 3039, and certificates of RFC 4523.
    "2.5.4.65",
    "2.5.13.38",
    // What RFC 4524 has no longer of RFC 1274.
    "0.9.2342.19200300.100.1.2",
    "0.9.2342.19200300.100.1.22",
    "0.9.2342.19200300.100.1.26",
    "0.9.2342.19200300.100.1.27",
    "0.9.2342.19200300.100.1.28",
    "0.9.2342.19200300.100.1.29",
    "0.9.2342.19200300.100.1.30",
    "0.9.2342.19200300.100.1.31",
    "0.9.2342.19200300.100.1.46",
    "0.9.2342.19200300.100.1.47",
    "0.9.2342.19200300.100.1.49",
    "0.9.2342.19200300.100.1.50",
    "0.9.2342.19200300.100.1.51",
    "0.9.2342.19200300.100.1.52",
    "0.9.2342.19200300.100.1.53",
    "0.9.2342.19200300.100.1.54",
    "0.9.2342.19200300.100.4.4",
    "0.9.2342.19200300.100.4.15",
    "0.9.2342.19200300.100.4.20",
    "0.9.2342.19200300.100.4.21",
    "0.9.2342.19200300.100.4.22",
];

/// Where definitions differ, and sapwood has those of the paragraph.
const DEFINED_OTHERWISE: &[(&str, &str)] = &[
    ("1.3.6.1.4.1.1466.101.120.5", "EQUALITY"), // namingContexts, RFC 4512 §5.1.2
    ("1.3.6.1.4.1.250.1.57", "SUBSTR"),         // labeledURI, RFC 2798 §9.1.4
    ("0.9.2342.19200300.100.1.44", "SUBSTR"),   // uniqueIdentifier, RFC 4524 §2.24
    ("0.9.2342.19200300.100.1.55", "EQUALITY"), // audio, RFC 2798 §9.1.3
    ("0.9.2342.19200300.100.1.55", "SYNTAX"),
    ("1.3.6.1.4.1.4203.1.2.1", "SYNTAX"), // caseExactIA5SubstringsMatch, as all such rules: RFC 4517 §4.2
    ("1.3.6.1.4.1.1466.109.114.3", "SYNTAX"), // caseIgnoreIA5SubstringsMatch, RFC 4517 §4.2.9
    ("2.5.13.19", "SYNTAX"),              // octetStringSubstringsMatch, as all such rules
    // The classes of cn=config, with what is shown there.
    ("1.3.6.1.4.1.4203.1.12.2.4.0.1", "MAY"),    // olcGlobal
    ("1.3.6.1.4.1.4203.1.12.2.4.0.2", "MAY"),    // olcSchemaConfig
    ("1.3.6.1.4.1.4203.1.12.2.4.0.4", "MAY"),    // olcDatabaseConfig
    ("1.3.6.1.4.1.4203.1.12.2.4.0.5", "MAY"),    // olcOverlayConfig
    ("1.3.6.1.4.1.4203.1.12.2.4.0.7", "MAY"),    // olcFrontendConfig
    ("1.3.6.1.4.1.4203.1.12.2.4.2.12.1", "MAY"), // olcMdbConfig
];

/// A definition's identifier, names and fields. Names in fields are those of other definitions.
struct Definition {
    oid: String,
    names: Vec<String>,
    fields: Vec<(&'static str, Vec<String>)>,
}

/// Whether the servers can be discovered alike; what differs is told all at once.
pub(crate) fn compare(slapd: &mut Client, sapwood: &mut Client) {
    let mut wrong = Vec::new();
    for (base, rules) in [("", ROOT_DSE), ("cn=Subschema", SUBSCHEMA)] {
        let (slapd, sapwood) = (read(slapd, base), read(sapwood, base));
        let known: BTreeSet<&str> = rules.iter().map(|(name, _)| *name).collect();
        for name in slapd.keys().chain(sapwood.keys()) {
            if !known.contains(name.as_str()) {
                wrong.push(format!("{base:?} {name}: no rule says how it is compared"));
            }
        }
        let of = |attributes: &Attributes, name: &str| -> BTreeSet<String> {
            let values = attributes.get(name).into_iter().flatten();
            values
                .map(|value| String::from_utf8(value.clone()).unwrap())
                .collect()
        };
        for (name, rule) in rules {
            let (theirs, ours) = (of(&slapd, name), of(&sapwood, name));
            match rule {
                Own => {}
                Same if theirs == ours => {}
                Same => wrong.push(format!("{base:?} {name}: {theirs:?} against {ours:?}")),
                AtLeast(but) => wrong.extend(
                    theirs
                        .difference(&ours)
                        .filter(|value| !but.contains(&value.as_str()))
                        .map(|value| format!("{base:?} {name}: {value} is missing")),
                ),
                Definitions(parse) => compare_definitions(
                    &theirs.iter().map(|text| parse(text)).collect::<Vec<_>>(),
                    &ours.iter().map(|text| parse(text)).collect::<Vec<_>>(),
                    name,
                    &mut wrong,
                ),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn read(client: &mut Client, base: &str) -> Attributes {
    let answer = Operation::Search {
        base: base.to_owned(),
        scope: Scope::Base,
        deref_aliases: DerefAliases::Never,
        size_limit: 0,
        types_only: false,
        filter: Term::Present("objectClass".to_owned()),
        attributes: ["*", "+"].map(str::to_owned).to_vec(),
        manage_dsa_it: false,
    }
    .ask(client);
    assert_eq!(answer.code, ResultCode::Success, "{base:?}");
    answer.entries.into_values().next().unwrap()
}

fn compare_definitions(
    theirs: &[Definition],
    ours: &[Definition],
    what: &str,
    wrong: &mut Vec<String>,
) {
    let known: BTreeMap<&str, &Definition> = ours
        .iter()
        .map(|definition| (definition.oid.as_str(), definition))
        .collect();
    for their in theirs {
        let name = their.names.first().unwrap_or(&their.oid);
        let Some(our) = known.get(their.oid.as_str()) else {
            if !NOT_DEFINED.iter().any(|oid| is_of(&their.oid, oid)) {
                wrong.push(format!("{what}: {name} ({}) is missing", their.oid));
            }
            continue;
        };
        for missing in their.names.iter().filter(|name| !our.names.contains(name)) {
            wrong.push(format!("{what}: {name} has no name {missing}"));
        }
        for ((field, their_words), (_, our_words)) in their.fields.iter().zip(&our.fields) {
            if their_words != our_words
                && !DEFINED_OTHERWISE.contains(&(their.oid.as_str(), *field))
            {
                wrong.push(format!(
                    "{what}: {name} {field}: {their_words:?} against {our_words:?}"
                ));
            }
        }
    }
}

/// Whether an identifier is this one, or in this arc if that ends with a dot.
fn is_of(oid: &str, listed: &str) -> bool {
    oid == listed || listed.ends_with('.') && oid.starts_with(listed)
}

/// Names of types and classes that go by several, by the one that is compared.
const SYNONYMS: [(&str, &str); 14] = [
    ("commonname", "cn"),
    ("surname", "sn"),
    ("countryname", "c"),
    ("friendlycountryname", "co"),
    ("localityname", "l"),
    ("stateorprovincename", "st"),
    ("streetaddress", "street"),
    ("organizationname", "o"),
    ("organizationalunitname", "ou"),
    ("userid", "uid"),
    ("domaincomponent", "dc"),
    ("rfc822mailbox", "mail"),
    ("fax", "facsimiletelephonenumber"),
    ("gn", "givenname"),
];

fn words<'w>(words: impl IntoIterator<Item = &'w String>) -> Vec<String> {
    let one_name = |word: &String| {
        let word = word.to_ascii_lowercase();
        let known = SYNONYMS.iter().find(|(other, _)| *other == word);
        known.map_or(word.clone(), |(_, name)| (*name).to_owned())
    };
    let words: BTreeSet<String> = words.into_iter().map(one_name).collect();
    words.into_iter().collect()
}

fn lowercase(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

fn flag(given: bool) -> Vec<String> {
    vec![given.to_string()]
}

fn attribute_type(text: &str) -> Definition {
    let parsed = AttributeType::parse(text).unwrap();
    Definition {
        fields: vec![
            ("SUP", words(&parsed.superior)),
            ("EQUALITY", words(&parsed.equality)),
            ("ORDERING", words(&parsed.ordering)),
            ("SUBSTR", words(&parsed.substrings)),
            ("SYNTAX", words(&parsed.syntax)),
            ("OBSOLETE", flag(parsed.obsolete)),
            ("SINGLE-VALUE", flag(parsed.single_value)),
            ("COLLECTIVE", flag(parsed.collective)),
            ("NO-USER-MODIFICATION", flag(parsed.no_user_modification)),
            ("USAGE", vec![parsed.usage.as_str().to_owned()]),
        ],
        names: lowercase(&parsed.names),
        oid: parsed.oid,
    }
}

fn object_class(text: &str) -> Definition {
    let parsed = ObjectClass::parse(text).unwrap();
    Definition {
        fields: vec![
            ("SUP", words(&parsed.superiors)),
            ("OBSOLETE", flag(parsed.obsolete)),
            ("kind", vec![parsed.kind.as_str().to_owned()]),
            ("MUST", words(&parsed.must)),
            ("MAY", words(&parsed.may)),
        ],
        names: lowercase(&parsed.names),
        oid: parsed.oid,
    }
}

fn matching_rule(text: &str) -> Definition {
    let parsed = MatchingRule::parse(text).unwrap();
    Definition {
        fields: vec![
            ("SYNTAX", vec![parsed.syntax]),
            ("OBSOLETE", flag(parsed.obsolete)),
        ],
        names: lowercase(&parsed.names),
        oid: parsed.oid,
    }
}

fn matching_rule_use(text: &str) -> Definition {
    let parsed = MatchingRuleUse::parse(text).unwrap();
    Definition {
        // slapd applies rules to types of other syntaxes too: "Rules that fit in extensible matches" in the document.
        fields: Vec::new(),
        names: lowercase(&parsed.names),
        oid: parsed.oid,
    }
}

fn syntax(text: &str) -> Definition {
    let parsed = Syntax::parse(text).unwrap();
    Definition {
        fields: Vec::new(),
        names: Vec::new(),
        oid: parsed.oid,
    }
}
