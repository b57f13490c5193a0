//! Which extensions of the protocol are on: those that are Sapwood's own, each off by default
//! (`docs/reference/protocol-extensions.md`). They are the values of [`EXTENSIONS`].

use std::str::FromStr;

/// The attribute that has them, a value for each one that is on.
pub(crate) const EXTENSIONS: &str = "sapwoodExtensions";

/// An extension of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// An identifier that the client chooses starts a transaction with its first update.
    ImplicitStart,
    /// An update without the transaction specification control belongs to the open transaction.
    ImplicitMembership,
    /// Transactions may try each update at once.
    EagerTransactions,
    /// The client says how many responses it waits for.
    QueueLength,
}

impl Extension {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Extension; 4] = [
        Extension::ImplicitStart,
        Extension::ImplicitMembership,
        Extension::EagerTransactions,
        Extension::QueueLength,
    ];

    /// Its name, as a value of `sapwoodExtensions`.
    pub const fn name(self) -> &'static str {
        match self {
            Extension::ImplicitStart => "implicit_start",
            Extension::ImplicitMembership => "implicit_membership",
            Extension::EagerTransactions => "eager_transactions",
            Extension::QueueLength => "queue_length",
        }
    }
}

impl FromStr for Extension {
    type Err = String;

    fn from_str(value: &str) -> Result<Extension, String> {
        let known = Extension::ALL.into_iter();
        let mut named = known.filter(|known| known.name().eq_ignore_ascii_case(value));
        named.next().ok_or_else(|| {
            let names = Extension::ALL.map(Extension::name).join(", ");
            format!("there is no extension of this name; there are {names}")
        })
    }
}

/// The extensions that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions(u8);

impl Extensions {
    /// How many different sets there are.
    pub(crate) const SETS: usize = 1 << Extension::ALL.len();

    /// The number of this set, below [`SETS`](Self::SETS).
    pub(crate) const fn number(self) -> usize {
        self.0 as usize
    }

    /// Whether this one is on.
    pub const fn has(self, extension: Extension) -> bool {
        self.0 & Extensions::bit(extension) != 0
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Extensions {
        Extensions(self.0 | Extensions::bit(extension))
    }

    /// Without one.
    #[must_use]
    pub const fn without(self, extension: Extension) -> Extensions {
        Extensions(self.0 & !Extensions::bit(extension))
    }

    /// Those that are on, in the order in which they are shown.
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        let all = Extension::ALL.into_iter();
        all.filter(move |extension| self.has(*extension))
    }

    const fn bit(extension: Extension) -> u8 {
        1 << extension as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for extension in Extension::ALL {
            assert_eq!(extension.name().parse(), Ok(extension));
            assert_eq!(extension.name().to_uppercase().parse(), Ok(extension));
        }
        let unknown = "eager".parse::<Extension>().unwrap_err();
        assert!(unknown.contains("eager_transactions"), "{unknown}");
    }

    #[test]
    fn a_set_has_what_was_put_in() {
        let mut set = Extensions::default();
        for extension in Extension::ALL {
            assert!(!set.has(extension));
            set = set.with(extension);
            assert!(set.has(extension));
        }
        assert_eq!(set.number(), Extensions::SETS - 1);
        let rest: Vec<_> = set.without(Extension::EagerTransactions).iter().collect();
        assert_eq!(
            rest,
            [
                Extension::ImplicitStart,
                Extension::ImplicitMembership,
                Extension::QueueLength
            ]
        );
    }
}
