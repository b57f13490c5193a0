//! Synthetic entries: the server makes them, and no client adds, changes or deletes them. They have the form of stored
//! ones, so that the same code evaluates filters on them and sends them, with the same access and limits. A file each,
//! and a line in the table below.

use crate::attributes::AttributeTable;
use crate::engine::EntryId;
use crate::entry::{Entry, EntryFlags, RecordBuilder};
use crate::error::{Error, Result};
use crate::schema::{NormalDn, Schema};

use root_dse::{Channel, RootDse};

macro_rules! synthetic_entries {
    ($($name:ident $file:ident)*) => {
        $(pub(crate) mod $file;)*

        /// One of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum SyntheticEntry {
            $(#[doc = concat!("See `", stringify!($file), "`.")] $name,)*
        }

        impl SyntheticEntry {
            const ALL: &[SyntheticEntry] = &[$(SyntheticEntry::$name),*];

            /// Its DN, which has one RDN at most.
            pub(crate) fn dn(self) -> &'static str {
                match self {
                    $(SyntheticEntry::$name => $file::DN,)*
                }
            }

            /// What it is, for people.
            pub(crate) fn what(self) -> &'static str {
                match self {
                    $(SyntheticEntry::$name => $file::WHAT,)*
                }
            }

            /// Whether it is a subentry (RFC 3672).
            pub(crate) fn is_subentry(self) -> bool {
                match self {
                    $(SyntheticEntry::$name => $file::IS_SUBENTRY,)*
                }
            }

            /// Makes its attributes: one list for all connections, or one for each kind of them.
            fn make(self, server: &Server<'_>) -> Vec<Content> {
                match self {
                    $(SyntheticEntry::$name => $file::make(server),)*
                }
            }
        }
    };
}

synthetic_entries! {
    RootDse root_dse
    Subschema subschema
}

/// The attributes of an entry, each a type's name and values. A type without values is left out.
type Content = Vec<(&'static str, Vec<String>)>;

/// What synthetic entries are made of.
pub(crate) struct Server<'s> {
    pub(crate) schema: &'s Schema,
    /// What only the server knows of the root DSE.
    pub(crate) root_dse: &'s RootDse,
    /// The DNs of the naming contexts.
    pub(crate) naming_contexts: &'s [&'s str],
    /// When the directory was opened, as a Generalized Time.
    pub(crate) opened: &'s str,
}

impl SyntheticEntry {
    /// The one with a DN.
    pub(crate) fn at(schema: &Schema, normal: &NormalDn) -> Option<SyntheticEntry> {
        if normal.len() > 1 {
            return None;
        }
        let mut own = NormalDn::new();
        let mut all = SyntheticEntry::ALL.iter().copied();
        all.find(|entry| own.parse(schema, entry.dn().as_bytes()).is_ok() && own == *normal)
    }
}

/// All synthetic entries of a directory.
pub(crate) struct SyntheticEntries {
    /// By [`SyntheticEntry`]; for all connections, or by their kind.
    made: Vec<Vec<Synthetic>>,
}

impl SyntheticEntries {
    /// Makes them.
    ///
    /// # Errors
    /// When the schema lacks an attribute of one, or the form of entries cannot hold it.
    pub(crate) fn new(server: &Server<'_>) -> Result<SyntheticEntries> {
        let made = SyntheticEntry::ALL.iter().map(|entry| {
            let contents = entry.make(server).into_iter();
            let made = contents.map(|content| Synthetic::new(server.schema, entry.dn(), &content));
            made.collect::<Result<Vec<_>>>()
        });
        Ok(SyntheticEntries {
            made: made.collect::<Result<_>>()?,
        })
    }

    /// One of them, as it is on a kind of connection.
    pub(crate) fn get(&self, entry: SyntheticEntry, channel: Channel) -> Option<&Synthetic> {
        let made = self.made.get(entry as usize)?;
        made.get(channel.kind()).or(made.first())
    }
}

/// A synthetic entry in the form of a stored one.
#[derive(Clone, Debug)]
pub(crate) struct Synthetic {
    attributes: AttributeTable,
    entry: Vec<u8>,
    operational: Vec<u8>,
}

impl Synthetic {
    /// Makes an entry of its DN and its attributes.
    ///
    /// # Errors
    /// When the schema does not know an attribute.
    fn new(schema: &Schema, dn: &str, content: &[(&str, Vec<String>)]) -> Result<Synthetic> {
        let mut attributes = AttributeTable::default();
        let (mut user, mut operational) = (RecordBuilder::new(), RecordBuilder::new());
        for (name, values) in content {
            let attribute_type = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| Error::State(format!("the schema lacks the attribute {name}")))?;
            if values.is_empty() {
                continue;
            }
            let number = attributes.number_synthetic(schema, attribute_type.id());
            let record = if attribute_type.is_operational() {
                &mut operational
            } else {
                &mut user
            };
            record.push(
                number,
                attribute_type.name().as_bytes(),
                values.iter().map(String::as_bytes),
                false,
            );
        }
        let mut made = Synthetic {
            attributes,
            entry: Vec::new(),
            operational: Vec::new(),
        };
        user.finish(EntryId::ROOT, EntryFlags::default(), dn, &mut made.entry)
            .and_then(|()| {
                operational.finish(
                    EntryId::ROOT,
                    EntryFlags::default(),
                    "",
                    &mut made.operational,
                )
            })
            .map_err(|too_large| Error::State(format!("{dn}: {too_large}")))?;
        Ok(made)
    }

    /// The numbers of its attributes: its own, not those of the store.
    pub(crate) fn attributes(&self) -> &AttributeTable {
        &self.attributes
    }

    /// Its record and its operational one.
    pub(crate) fn records(&self) -> Result<(Entry<'_>, Entry<'_>)> {
        let read =
            |record| Entry::new(record).map_err(|damaged| Error::corrupt(damaged.to_string()));
        Ok((read(&self.entry)?, read(&self.operational)?))
    }
}
