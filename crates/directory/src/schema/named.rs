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
        name: "autofs",
        about: "maps of mounts",
        text: include_str!("named/autofs.schema"),
    },
    NamedSchema {
        name: "corba",
        about: "references to CORBA objects",
        text: include_str!("named/corba.schema"),
    },
    NamedSchema {
        name: "duaconf",
        about: "profiles of directory user agents",
        text: include_str!("named/duaconf.schema"),
    },
    NamedSchema {
        name: "eduperson",
        about: "members of universities",
        text: include_str!("named/eduperson.schema"),
    },
    NamedSchema {
        name: "java",
        about: "Java objects",
        text: include_str!("named/java.schema"),
    },
    NamedSchema {
        name: "mail-aliases",
        about: "mail aliases, and where mail is sent to",
        text: include_str!("named/mail-aliases.schema"),
    },
    NamedSchema {
        name: "openssh-lpk",
        about: "public keys of OpenSSH",
        text: include_str!("named/openssh-lpk.schema"),
    },
    NamedSchema {
        name: "rfc2307bis",
        about: "POSIX accounts and groups, of which a groupOfNames can be one, and maps of mounts",
        text: include_str!("named/rfc2307bis.schema"),
    },
    NamedSchema {
        name: "sudo",
        about: "who may do what with sudo",
        text: include_str!("named/sudo.schema"),
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
        // The maps of mounts are in both.
        let files = NAMED_SCHEMAS.iter().filter(|known| known.name != "autofs");
        let files = files.map(|known| (known.name.to_owned(), known.text.to_owned()));
        let files: Vec<(String, String)> = files.collect();
        let additions = Additions::of_files(&files).unwrap();
        let schema = Schema::standard().with(additions).unwrap();
        let kind = |name: &str| schema.object_class(name.as_bytes()).unwrap().kind();
        assert_eq!(kind("posixGroup"), ClassKind::Auxiliary);
        assert_eq!(kind("ldapPublicKey"), ClassKind::Auxiliary);
        assert_eq!(kind("automountMap"), ClassKind::Structural);
        assert_eq!(kind("sudoRole"), ClassKind::Structural);
        assert_eq!(kind("eduPerson"), ClassKind::Auxiliary);
        assert_eq!(kind("javaObject"), ClassKind::Abstract);
        let autofs = NamedSchema::of("autofs").unwrap();
        let alone = [(autofs.name.to_owned(), autofs.text.to_owned())];
        let schema = Schema::standard().with(Additions::of_files(&alone).unwrap());
        assert!(schema.unwrap().object_class(b"automount").is_some());
        let names = NAMED_SCHEMAS.iter().map(|known| known.name);
        assert!(names.is_sorted());
        assert!(NamedSchema::of("nis").is_none());
    }
}
