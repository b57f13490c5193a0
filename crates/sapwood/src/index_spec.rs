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
        IndexDefinition::parse(spec).map(Self)
    }
}

/// What was asked for, or the usual set; each attribute once.
pub(crate) fn definitions(specs: &[IndexSpec]) -> Vec<IndexDefinition> {
    if specs.is_empty() {
        return USUAL
            .iter()
            .map(|attribute| IndexDefinition {
                equality: true,
                attribute: (*attribute).to_owned(),
                ..IndexDefinition::default()
            })
            .collect();
    }
    merged(specs)
}

/// What was asked for, each attribute once.
pub(crate) fn merged(specs: &[IndexSpec]) -> Vec<IndexDefinition> {
    IndexDefinition::merged(specs.iter().flat_map(|spec| spec.0.iter().cloned()))
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
            "mail subinitial,subany".parse().unwrap(),
        ];
        let shown: Vec<_> = definitions(&specs)
            .iter()
            .map(ToString::to_string)
            .collect();
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
