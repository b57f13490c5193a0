//! Indexes as they are written: `cn,mail eq,sub`, on the command line and in olcDbIndex.

use crate::engine::IndexKind;

/// The indexes of one attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Name or OID of the attribute type, without options.
    pub attribute: String,
    /// Equality.
    pub equality: bool,
    /// Presence.
    pub presence: bool,
    /// Substrings.
    pub substring: bool,
    /// Approximate matches.
    pub approximate: bool,
    /// Ordering: `>=`, `<=`, sorting.
    pub ordering: bool,
}

/// The kinds of index with their words; ordering is kept in a table of its own.
pub(crate) const KIND_WORDS: [(&str, Option<IndexKind>); 5] = [
    ("eq", Some(IndexKind::Equality)),
    ("pres", Some(IndexKind::Presence)),
    ("sub", Some(IndexKind::Substring)),
    ("approx", Some(IndexKind::Approximate)),
    ("ord", None),
];

impl IndexDefinition {
    /// The kinds by their words in configuration, and whether each is wanted.
    pub fn kinds(&self) -> [(&'static str, bool); 5] {
        [
            ("eq", self.equality),
            ("pres", self.presence),
            ("sub", self.substring),
            ("approx", self.approximate),
            ("ord", self.ordering),
        ]
    }

    /// Whether no kind is wanted.
    pub fn is_empty(&self) -> bool {
        self.kinds().iter().all(|(_, is_wanted)| !is_wanted)
    }

    /// Reads attributes, a space, and kinds, such as `cn,mail eq,sub`; one definition for each attribute.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(spec: &str) -> Result<Vec<IndexDefinition>, String> {
        let mut words = spec.split_whitespace();
        let (Some(attributes), Some(kinds), None) = (words.next(), words.next(), words.next())
        else {
            return Err("write attributes, a space, and kinds, such as \"cn,mail eq,sub\"".into());
        };
        let mut kind = IndexDefinition::default();
        for name in kinds.split(',') {
            match name.to_ascii_lowercase().as_str() {
                "eq" => kind.equality = true,
                "pres" => kind.presence = true,
                // One index serves them all.
                "sub" | "subinitial" | "subany" | "subfinal" => kind.substring = true,
                "ord" => kind.ordering = true,
                "approx" => kind.approximate = true,
                _ => {
                    return Err(format!(
                        "'{name}' is no kind of index: eq, pres, sub, approx, ord"
                    ));
                }
            }
        }
        let definition = |attribute: &str| match attribute {
            "" => Err("an attribute name is empty".to_owned()),
            attribute => Ok(IndexDefinition {
                attribute: attribute.to_owned(),
                ..kind.clone()
            }),
        };
        attributes.split(',').map(definition).collect()
    }

    /// Definitions with each attribute once.
    pub fn merged(definitions: impl IntoIterator<Item = IndexDefinition>) -> Vec<IndexDefinition> {
        let mut merged: Vec<IndexDefinition> = Vec::new();
        for definition in definitions {
            let is_it = |known: &&mut IndexDefinition| {
                known.attribute.eq_ignore_ascii_case(&definition.attribute)
            };
            match merged.iter_mut().find(is_it) {
                Some(known) => {
                    known.equality |= definition.equality;
                    known.presence |= definition.presence;
                    known.substring |= definition.substring;
                    known.approximate |= definition.approximate;
                    known.ordering |= definition.ordering;
                }
                None => merged.push(definition),
            }
        }
        merged
    }
}

impl std::fmt::Display for IndexDefinition {
    /// As [`parse`](IndexDefinition::parse) reads it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.kinds();
        let wanted = kinds.iter().filter(|(_, is_wanted)| *is_wanted);
        let wanted: Vec<_> = wanted.map(|(word, _)| *word).collect();
        write!(f, "{} {}", self.attribute, wanted.join(","))
    }
}
