//! The configuration (`cn=config`), in OpenLDAP's names where OpenLDAP has one; values with an order and entries with
//! one are written as draft-chu-ldap-xordered says. It exists for the administrator alone.

use super::{Content, Definition, Follows, Server};
use crate::config::entries::{
    AUTOMEMBER, CONSTRAINT, DATA, DDS, DYNLIST, GLOBAL, LINKED, MANAGED, MEMBER_OF, NUMBERS, PASSWORD_POLICY, REFINT, SCHEMA,
    SECOND_FACTOR, UNIQUE, VALUE_SORT,
};
use crate::config::authorization::AUTHZ_REGEXP;
use crate::config::extensions::EXTENSIONS;
use crate::config::agreements::{SYNCREPL, UPDATE_REF};
use crate::config::limits::LIMITS;
use crate::config::{
    Setting, UniqueRule, access, automember, constraint, dds, dynlist, linked, managed, member_of, numbers,
    ordered, password_policy, refint, unique, value_sort,
};
use crate::indexes::{AttributeIndexes, Completeness};
use crate::schema::additions::Kind;
use crate::state::State;

/// What `cn=config` shows of what is configured with the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalConfig {
    /// The administrator's DN.
    pub administrator: String,
    /// Where the directory is.
    pub folder: String,
}

pub(super) const CONTEXT: Definition = Definition {
    suffix: "cn=config",
    what: "the configuration",
    remedy: "what changes it is a modify of the attributes that docs/operating/configuration.md names, sapwood.toml, and \
             'sapwood index'",
    is_hidden: true,
    follows: Follows::State,
    make,
};

fn make(server: &Server<'_>) -> Vec<Vec<Content>> {
    let mut entries = vec![global(server)];
    entries.extend(schema(server));
    entries.extend([
        database(-1, "frontend", DATABASE, &["olcFrontendConfig"], global_access(server)),
        database(0, "config", DATABASE, &[], vec![root_dn(server)]),
        database(1, "mdb", "olcMdbConfig", &[DATABASE, "sapwoodDataConfig"], data(server)),
    ]);
    entries.extend(unique_values(server));
    entries.extend(password_policies(server));
    entries.extend(second_factor(server));
    entries.extend(referential_integrity(server));
    entries.extend(groups_of_entries(server));
    entries.extend(constraints(server));
    entries.extend(value_sorts(server));
    entries.extend(dynamic_lists(server));
    entries.extend(dynamic_entries(server));
    entries.extend(given_numbers(server));
    entries.extend(automatic_members(server));
    entries.extend(linked_attributes(server));
    entries.extend(managed_entries(server));
    entries.extend(contexts(server));
    vec![entries]
}

type Attributes = Vec<(&'static str, Vec<String>)>;

fn one(value: &str) -> Vec<String> {
    vec![value.to_owned()]
}

fn global(server: &Server<'_>) -> Content {
    let mut attributes = vec![
        ("objectClass", one("olcGlobal")),
        ("cn", one("config")),
        ("structuralObjectClass", one("olcGlobal")),
    ];
    attributes.extend(settings(server, GLOBAL));
    let regexps = &server.state.settings.authz_regexps;
    attributes.push((AUTHZ_REGEXP, ordered::values(regexps)));
    Content {
        dn: GLOBAL.to_owned(),
        also: Vec::new(),
        attributes,
    }
}

/// The settings that an entry has.
fn settings(server: &Server<'_>, entry: &str) -> impl Iterator<Item = (&'static str, Vec<String>)> {
    let settings = &server.state.settings;
    let own = Setting::all().filter(move |setting| setting.entry == entry);
    own.map(|setting| (setting.attribute, one(&setting.value(settings))))
}

/// The schema, and below it what was added to it by entries of their own.
fn schema(server: &Server<'_>) -> Vec<Content> {
    const CLASS: &str = "olcSchemaConfig";
    let schema = server.schema;
    let additions = schema.additions();
    let entries = additions.entries.iter().enumerate().map(|(at, entry)| {
        let shown = |kind| {
            let mut all = match at {
                0 => schema.built_in(kind, additions),
                _ => Vec::new(),
            };
            let own = entry.definitions.iter().filter(|known| Kind::of(known) == Some(kind));
            all.extend(own.cloned());
            numbered(all.iter().map(|definition| definition.to_string()))
        };
        let macros = entry.macros.iter().map(|(name, oid)| format!("{name} {oid}"));
        let (cn, dn, also) = match at {
            0 => ("schema".to_owned(), SCHEMA.to_owned(), Vec::new()),
            _ => {
                let (number, name) = (at - 1, &entry.name);
                let dn = |name: &str| format!("cn={name},{SCHEMA}");
                let also = vec![dn(name), dn(&format!("{{{number}}}"))];
                let cn = format!("{{{number}}}{name}");
                let numbered = dn(&cn);
                (cn, numbered, also)
            }
        };
        let syntaxes = match at {
            0 => numbered(schema.syntax_values()),
            _ => Vec::new(),
        };
        // What is said of all is said by the first.
        let change = (at == 0).then(|| schema_change(server)).flatten();
        let classes = [CLASS].into_iter().chain(change.is_some().then_some("sapwoodDataConfig"));
        Content {
            dn,
            also,
            attributes: vec![
                ("objectClass", classes.map(str::to_owned).collect()),
                ("cn", one(&cn)),
                ("sapwoodSchemaChange", Vec::from_iter(change)),
                ("olcObjectIdentifier", numbered(macros)),
                (Kind::AttributeTypes.of_config(), shown(Kind::AttributeTypes)),
                (Kind::ObjectClasses.of_config(), shown(Kind::ObjectClasses)),
                (Kind::ContentRules.of_config(), shown(Kind::ContentRules)),
                (Kind::NameForms.of_config(), shown(Kind::NameForms)),
                (Kind::StructureRules.of_config(), shown(Kind::StructureRules)),
                ("olcLdapSyntaxes", syntaxes),
                ("structuralObjectClass", one(CLASS)),
            ],
        }
    });
    entries.collect()
}

/// What is to be told of a change of the schema.
fn schema_change(server: &Server<'_>) -> Option<String> {
    let given_up = &server.state.given_up;
    match &server.state.coming {
        Some(_) => Some("coming: all entries are being looked at".to_owned()),
        None => (!given_up.is_empty()).then(|| format!("given up: {given_up}")),
    }
}

/// Values with their places before them.
fn numbered(values: impl Iterator<Item = String>) -> Vec<String> {
    let places = values.enumerate();
    places.map(|(at, value)| format!("{{{at}}}{value}")).collect()
}

/// The structural class of a database without more to it.
const DATABASE: &str = "olcDatabaseConfig";

/// A database, which is found without its number, and by its number alone, too. It has a structural class and others.
fn database(
    number: i32,
    name: &str,
    class: &str,
    others: &[&str],
    of_data: Attributes,
) -> Content {
    let dn = |name: &str| format!("olcDatabase={name},{}", CONTEXT.suffix);
    let numbered = format!("{{{number}}}{name}");
    let classes = [class].into_iter().chain(others.iter().copied());
    let mut attributes = vec![
        ("objectClass", classes.map(str::to_owned).collect()),
        ("structuralObjectClass", one(class)),
        ("olcDatabase", one(&numbered)),
    ];
    attributes.extend(of_data);
    Content {
        dn: dn(&numbered),
        also: vec![dn(name), dn(&format!("{{{number}}}"))],
        attributes,
    }
}

/// The access rules of all entries.
fn global_access(server: &Server<'_>) -> Attributes {
    vec![(access::ACCESS, ordered::values(&server.state.settings.global_access))]
}

fn root_dn(server: &Server<'_>) -> (&'static str, Vec<String>) {
    let administrator = &server.local.administrator;
    let known = (!administrator.is_empty()).then(|| administrator.clone());
    ("olcRootDN", Vec::from_iter(known))
}

/// What is configured of the data.
fn data(server: &Server<'_>) -> Attributes {
    let Server {
        schema,
        state,
        local,
        ..
    } = server;
    let suffixes = state.contexts.iter().map(|context| context.dn.clone());
    let indexes = state.indexes.iter().map(|indexes| {
        let name = schema.type_of(indexes.attribute_type).name();
        format!("{name} {}", kinds(indexes).join(","))
    });
    let folder = (!local.folder.is_empty()).then(|| local.folder.clone());
    let mut attributes = vec![
        ("olcDbDirectory", Vec::from_iter(folder)),
        ("olcSuffix", suffixes.collect()),
        root_dn(server),
    ];
    attributes.extend(settings(server, DATA));
    let extensions = state.settings.extensions.iter();
    attributes.push((EXTENSIONS, extensions.map(|on| on.name().to_owned()).collect()));
    attributes.push((access::ACCESS, ordered::values(&state.settings.access)));
    attributes.push((LIMITS, ordered::values(&state.settings.limits)));
    attributes.push((SYNCREPL, ordered::values(&state.settings.agreements)));
    let update_refs = state.settings.update_refs.iter();
    attributes.push((UPDATE_REF, update_refs.map(|url| url.to_string()).collect()));
    attributes.push(("olcDbIndex", indexes.collect()));
    attributes
}

/// The number of the first naming context's database, where there are several: that of the data is before it.
const FIRST_CONTEXT: usize = 2;

/// The naming contexts, where there are several: each may have a list of access rules of its own.
fn contexts(server: &Server<'_>) -> Vec<Content> {
    let State { contexts, settings, .. } = server.state;
    if contexts.len() == 1 {
        return Vec::new();
    }
    let entries = contexts.iter().enumerate().map(|(place, context)| {
        let own = settings.context_access.get(&place);
        let own = own.map_or_else(Vec::new, |own| ordered::values(own));
        let name = format!("{{{}}}mdb", place + FIRST_CONTEXT);
        let number = format!("{{{}}}", place + FIRST_CONTEXT);
        let dn = |name: &str| format!("olcDatabase={name},{}", CONTEXT.suffix);
        Content {
            dn: dn(&name),
            also: vec![dn(&number)],
            attributes: vec![
                ("objectClass", one(DATABASE)),
                ("structuralObjectClass", one(DATABASE)),
                ("olcDatabase", one(&name)),
                ("olcSuffix", one(&context.dn)),
                (access::ACCESS, own),
            ],
        }
    });
    entries.collect()
}

/// The place of the naming context that an entry is about, by the DN that the entry has in `cn=config`.
pub(crate) fn context_of(entry: &str) -> Option<usize> {
    let name = entry.strip_suffix(",cn=config")?.strip_prefix("olcDatabase=")?;
    let number: usize = name.strip_prefix('{')?.strip_suffix("}mdb")?.parse().ok()?;
    number.checked_sub(FIRST_CONTEXT)
}

/// The rules of unique values, as the overlay of the data that they are in OpenLDAP.
fn unique_values(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.unique;
    let attributes = || vec![(unique::UNIQUE_URI, rules.iter().map(UniqueRule::uri).collect())];
    let names = ["{0}unique", "unique", "{0}"];
    (!rules.is_empty()).then(|| overlay(UNIQUE, "olcUniqueConfig", &names, attributes()))
}

/// The overlay of password policies.
fn password_policies(server: &Server<'_>) -> Option<Content> {
    let settings = &server.state.settings;
    let attributes = || password_policy::shown(settings);
    // In slapd it has the first number where it is the only one.
    let names = ["{1}ppolicy", "ppolicy", "{1}", "{0}ppolicy"];
    let is_there = settings.password_policy.is_some();
    is_there.then(|| overlay(PASSWORD_POLICY, "olcPPolicyConfig", &names, attributes()))
}

/// The overlay of one-time passwords, of which nothing is set.
fn second_factor(server: &Server<'_>) -> Option<Content> {
    let names = ["{2}otp", "otp", "{2}", "{0}otp", "{1}otp"];
    let is_there = server.state.settings.second_factor;
    is_there.then(|| overlay(SECOND_FACTOR, OVERLAY, &names, Vec::new()))
}

/// The overlay of referential integrity.
fn referential_integrity(server: &Server<'_>) -> Option<Content> {
    let names = ["{3}refint", "refint", "{3}", "{0}refint", "{1}refint", "{2}refint"];
    let rule = server.state.settings.refint.as_ref()?;
    Some(overlay(REFINT, "olcRefintConfig", &names, refint::shown(rule)))
}

/// The overlay of memberOf.
fn groups_of_entries(server: &Server<'_>) -> Option<Content> {
    let settings = &server.state.settings;
    let names = ["{4}memberof", "memberof", "{4}", "{0}memberof", "{1}memberof", "{2}memberof", "{3}memberof"];
    let attributes = || member_of::shown(settings);
    let is_there = settings.member_of.is_some();
    is_there.then(|| overlay(MEMBER_OF, "olcMemberOfConfig", &names, attributes()))
}

/// The overlay of constraints.
fn constraints(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.constraints;
    let values = || rules.iter().map(ToString::to_string).collect();
    let names = ["{5}constraint", "constraint", "{5}", "{0}constraint", "{1}constraint"];
    let attributes = || vec![(constraint::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(CONSTRAINT, "olcConstraintConfig", &names, attributes()))
}

/// The overlay of dynamic groups and lists.
fn dynamic_lists(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.dynlist;
    let names = ["{6}dynlist", "dynlist", "{6}", "{0}dynlist", "{1}dynlist"];
    let values = || numbered(rules.iter().map(ToString::to_string));
    let attributes = || vec![(dynlist::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(DYNLIST, "olcDynListConfig", &names, attributes()))
}

/// The overlay of dynamic entries.
fn dynamic_entries(server: &Server<'_>) -> Option<Content> {
    let settings = &server.state.settings;
    let names = ["{7}dds", "dds", "{7}", "{0}dds", "{1}dds"];
    let attributes = || dds::shown(settings);
    settings.dds.is_some().then(|| overlay(DDS, "olcDDSConfig", &names, attributes()))
}

/// The rules of numbers, as an overlay.
fn given_numbers(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.numbers;
    let values = || rules.iter().map(ToString::to_string).collect();
    let names = ["{8}numbers", "numbers", "{8}"];
    let attributes = || vec![(numbers::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(NUMBERS, "sapwoodNumbersConfig", &names, attributes()))
}

/// The rules of members, as an overlay.
fn automatic_members(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.automember;
    let values = || rules.iter().map(ToString::to_string).collect();
    let names = ["{9}automember", "automember", "{9}"];
    let attributes = || vec![(automember::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(AUTOMEMBER, "sapwoodAutomemberConfig", &names, attributes()))
}

/// The linked attributes, as an overlay.
fn linked_attributes(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.linked;
    let values = || rules.iter().map(ToString::to_string).collect();
    let names = ["{10}linked", "linked", "{10}"];
    let attributes = || vec![(linked::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(LINKED, "sapwoodLinkedConfig", &names, attributes()))
}

/// The rules of managed entries, as an overlay.
fn managed_entries(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.managed;
    let values = || rules.iter().map(ToString::to_string).collect();
    let names = ["{12}managed", "managed", "{12}"];
    let attributes = || vec![(managed::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(MANAGED, "sapwoodManagedConfig", &names, attributes()))
}

/// The overlay of the order of values.
fn value_sorts(server: &Server<'_>) -> Option<Content> {
    let rules = &server.state.settings.value_sorts;
    let values = || rules.iter().map(ToString::to_string).collect();
    let names = ["{11}valsort", "valsort", "{11}", "{0}valsort", "{1}valsort"];
    let attributes = || vec![(value_sort::ATTRIBUTE, values())];
    (!rules.is_empty()).then(|| overlay(VALUE_SORT, "olcValSortConfig", &names, attributes()))
}

/// The structural class of an overlay without more to it.
const OVERLAY: &str = "olcOverlayConfig";

/// An overlay of the data, which is found by any of these names; the first is its own.
fn overlay(dn: &str, class: &str, names: &[&str], more: Attributes) -> Content {
    let databases = ["{1}mdb", "mdb", "{1}"];
    let all = names.iter().flat_map(|name| {
        let of = move |database| {
            format!("olcOverlay={name},olcDatabase={database},{}", CONTEXT.suffix)
        };
        databases.iter().map(of)
    });
    let own = names.first().copied().unwrap_or_default();
    let classes = [OVERLAY].into_iter().chain(Some(class).filter(|class| *class != OVERLAY));
    let mut attributes = vec![
        ("objectClass", classes.map(str::to_owned).collect()),
        ("structuralObjectClass", one(class)),
        ("olcOverlay", one(own)),
    ];
    attributes.extend(more);
    Content {
        dn: dn.to_owned(),
        also: all.filter(|other| other != dn).collect(),
        attributes,
    }
}

/// The kinds of index that an attribute has, complete or not.
fn kinds(indexes: &AttributeIndexes) -> Vec<&'static str> {
    let kinds = [
        ("pres", indexes.presence),
        ("eq", indexes.equality),
        ("ord", indexes.ordering),
        ("sub", indexes.substring),
        ("approx", indexes.approximate),
    ];
    let there = kinds.into_iter().filter(|(_, known)| *known != Completeness::Absent);
    there.map(|(kind, _)| kind).collect()
}
