//! The configuration (`cn=config`), in OpenLDAP's names where OpenLDAP has one; values with an order and entries with
//! one are written as draft-chu-ldap-xordered says. It exists for the administrator alone.

use super::{Content, Definition, Server};
use crate::indexes::{AttributeIndexes, Completeness};

/// What `cn=config` shows of what is configured with the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalConfig {
    /// The administrator's DN.
    pub administrator: String,
    /// Where the directory is.
    pub folder: String,
    /// Entries that a search of anyone but the administrator returns; 0 is no limit.
    pub search_entries_max: u32,
    /// Seconds that such a search takes; 0 is no limit.
    pub search_seconds_max: u32,
}

pub(super) const CONTEXT: Definition = Definition {
    suffix: "cn=config",
    what: "the configuration",
    remedy: "it is changed in sapwood.toml, in the schema files, and with 'sapwood index'",
    is_hidden: true,
    follows_state: true,
    make,
};

fn make(server: &Server<'_>) -> Vec<Vec<Content>> {
    vec![vec![
        global(),
        schema(server),
        database(-1, "frontend", &["olcDatabaseConfig", "olcFrontendConfig"], Vec::new()),
        database(0, "config", &["olcDatabaseConfig"], vec![root_dn(server)]),
        database(1, "mdb", &["olcDatabaseConfig", "olcMdbConfig"], data(server)),
    ]]
}

type Attributes = Vec<(&'static str, Vec<String>)>;

fn one(value: &str) -> Vec<String> {
    vec![value.to_owned()]
}

fn global() -> Content {
    Content {
        dn: CONTEXT.suffix.to_owned(),
        also: Vec::new(),
        attributes: vec![
            ("objectClass", one("olcGlobal")),
            ("cn", one("config")),
            ("structuralObjectClass", one("olcGlobal")),
        ],
    }
}

fn schema(server: &Server<'_>) -> Content {
    let schema = server.schema;
    Content {
        dn: format!("cn=schema,{}", CONTEXT.suffix),
        also: Vec::new(),
        attributes: vec![
            ("objectClass", one("olcSchemaConfig")),
            ("cn", one("schema")),
            ("olcAttributeTypes", ordered(schema.attribute_type_values())),
            ("olcObjectClasses", ordered(schema.object_class_values())),
            ("olcLdapSyntaxes", ordered(schema.syntax_values())),
            ("structuralObjectClass", one("olcSchemaConfig")),
        ],
    }
}

/// Values with their places before them.
fn ordered(values: impl Iterator<Item = String>) -> Vec<String> {
    let numbered = values.enumerate();
    numbered.map(|(at, value)| format!("{{{at}}}{value}")).collect()
}

/// A database, which is found without its number, and by its number alone, too.
fn database(number: i32, name: &str, classes: &[&str], of_data: Attributes) -> Content {
    let dn = |name: &str| format!("olcDatabase={name},{}", CONTEXT.suffix);
    let numbered = format!("{{{number}}}{name}");
    let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
    let mut attributes = vec![
        ("structuralObjectClass", classes.iter().rev().take(1).cloned().collect()),
        ("objectClass", classes),
        ("olcDatabase", one(&numbered)),
    ];
    if name == "frontend" {
        // Its other class is auxiliary.
        attributes[0].1 = one("olcDatabaseConfig");
    }
    attributes.extend(of_data);
    Content {
        dn: dn(&numbered),
        also: vec![dn(name), dn(&format!("{{{number}}}"))],
        attributes,
    }
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
    let limit = |limit: u32| match limit {
        0 => one("unlimited"),
        limit => one(&limit.to_string()),
    };
    let folder = (!local.folder.is_empty()).then(|| local.folder.clone());
    vec![
        ("olcDbDirectory", Vec::from_iter(folder)),
        ("olcSuffix", suffixes.collect()),
        root_dn(server),
        ("olcSizeLimit", limit(local.search_entries_max)),
        ("olcTimeLimit", limit(local.search_seconds_max)),
        ("olcDbIndex", indexes.collect()),
    ]
}

/// The kinds of index that an attribute has, complete or not.
fn kinds(indexes: &AttributeIndexes) -> Vec<&'static str> {
    let kinds = [
        ("pres", indexes.presence),
        ("eq", indexes.equality),
        ("ord", indexes.ordering),
        ("sub", indexes.substring),
    ];
    let there = kinds.into_iter().filter(|(_, known)| *known != Completeness::Absent);
    there.map(|(kind, _)| kind).collect()
}
