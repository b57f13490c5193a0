//! Definitions that are built in, and part of a directory that asks for them by name when it is made.

/// A schema with a name.
#[derive(Clone, Copy, Debug)]
pub struct NamedSchema {
    /// Its name.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// Its definitions, as a `.schema` file has them.
    pub text: &'static str,
}

/// All of them, in the order of their names.
pub const NAMED_SCHEMAS: &[NamedSchema] = &[
    NamedSchema {
        name: "openssh-lpk",
        about: "public keys of OpenSSH",
        text: include_str!("named/openssh-lpk.schema"),
    },
    NamedSchema {
        name: "rfc2307bis",
        about: "POSIX accounts and groups, of which a groupOfNames can be one",
        text: include_str!("named/rfc2307bis.schema"),
    },
];

impl NamedSchema {
    /// The one of a name.
    pub fn of(name: &str) -> Option<&'static NamedSchema> {
        NAMED_SCHEMAS.iter().find(|known| known.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::additions::Additions;
    use crate::schema::{ClassKind, Schema};

    #[test]
    fn each_is_part_of_a_directory_that_asks_for_it() {
        let files = NAMED_SCHEMAS.iter();
        let files = files.map(|known| (known.name.to_owned(), known.text.to_owned()));
        let files: Vec<(String, String)> = files.collect();
        let additions = Additions::of_files(&files).unwrap();
        let schema = Schema::standard().with(additions).unwrap();
        let kind = |name: &str| schema.object_class(name.as_bytes()).unwrap().kind();
        assert_eq!(kind("posixGroup"), ClassKind::Auxiliary);
        assert_eq!(kind("ldapPublicKey"), ClassKind::Auxiliary);
        assert_eq!(kind("automountMap"), ClassKind::Structural);
        let names = NAMED_SCHEMAS.iter().map(|known| known.name);
        assert!(names.is_sorted());
        assert!(NamedSchema::of("nis").is_none());
    }
}
