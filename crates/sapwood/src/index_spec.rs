//! Indexes as they are written on the command line: `cn,mail eq,sub`.

use std::str::FromStr;

use sapwood_directory::IndexDefinition;

/// Attributes that are indexed for equality when nothing else is asked for. (objectClass and entryUUID always are.)
const USUAL: [&str; 10] = [
    "objectClass",
    "entryUUID",
    "uid",
    "cn",
    "sn",
    "mail",
    "member",
    "memberUid",
    "uidNumber",
    "gidNumber",
];

/// One `--index`: attributes, and the kinds of index that each of them gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexSpec(pub(crate) Vec<IndexDefinition>);

impl FromStr for IndexSpec {
    type Err = String;

    fn from_str(spec: &str) -> Result<Self, String> {
        let mut words = spec.split_whitespace();
        let (Some(attributes), Some(kinds), None) = (words.next(), words.next(), words.next())
        else {
            return Err("write attributes, a space, and kinds, such as \"cn,mail eq,sub\"".into());
        };
        let mut kind = named("");
        for name in kinds.split(',') {
            match name.to_ascii_lowercase().as_str() {
                "eq" => kind.equality = true,
                "pres" => kind.presence = true,
                "sub" => kind.substring = true,
                "ord" => kind.ordering = true,
                _ => return Err(format!("'{name}' is no kind of index: eq, pres, sub, ord")),
            }
        }
        let definition = |attribute: &str| match attribute {
            "" => Err("an attribute name is empty".to_owned()),
            attribute => Ok(IndexDefinition {
                attribute: attribute.to_owned(),
                ..kind.clone()
            }),
        };
        attributes
            .split(',')
            .map(definition)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn named(attribute: &str) -> IndexDefinition {
    IndexDefinition {
        attribute: attribute.to_owned(),
        equality: false,
        presence: false,
        substring: false,
        ordering: false,
    }
}

/// What was asked for, or the usual set; each attribute once.
pub(crate) fn definitions(specs: &[IndexSpec]) -> Vec<IndexDefinition> {
    if specs.is_empty() {
        return USUAL
            .iter()
            .map(|attribute| IndexDefinition {
                equality: true,
                ..named(attribute)
            })
            .collect();
    }
    merged(specs)
}

/// What was asked for, each attribute once.
pub(crate) fn merged(specs: &[IndexSpec]) -> Vec<IndexDefinition> {
    let mut merged: Vec<IndexDefinition> = Vec::new();
    for definition in specs.iter().flat_map(|spec| &spec.0) {
        match merged
            .iter_mut()
            .find(|known| known.attribute.eq_ignore_ascii_case(&definition.attribute))
        {
            Some(known) => {
                known.equality |= definition.equality;
                known.presence |= definition.presence;
                known.substring |= definition.substring;
                known.ordering |= definition.ordering;
            }
            None => merged.push(definition.clone()),
        }
    }
    merged
}

/// A definition as it is written on the command line.
pub(crate) fn display(definition: &IndexDefinition) -> String {
    let kinds = definition.kinds();
    let kinds: Vec<_> = kinds
        .iter()
        .filter(|(_, is_wanted)| *is_wanted)
        .map(|(word, _)| *word)
        .collect();
    format!("{} {}", definition.attribute, kinds.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_parse_and_merge() {
        let specs = [
            "cn,mail eq,sub".parse().unwrap(),
            "CN pres".parse().unwrap(),
            "uid ord".parse().unwrap(),
        ];
        let shown: Vec<_> = definitions(&specs).iter().map(display).collect();
        assert_eq!(shown, ["cn eq,pres,sub", "mail eq,sub", "uid ord"]);
        assert_eq!(definitions(&[]).len(), USUAL.len());
    }

    #[test]
    fn wrong_specs_are_explained() {
        for (spec, part) in [
            ("cn", "such as"),
            ("cn eq,fast", "'fast'"),
            ("cn,,sn eq", "empty"),
            ("a b c", "such as"),
        ] {
            assert!(
                spec.parse::<IndexSpec>().unwrap_err().contains(part),
                "{spec}"
            );
        }
    }
}
