//! Entries beside the tree: the root DSE (RFC 4512 §5.1) and the subschema subentry (RFC 4512 §4.2), in the form of
//! stored ones, so that the same code evaluates filters on them and sends them.

use crate::attributes::AttributeTable;
use crate::engine::EntryId;
use crate::entry::{Entry, EntryFlags, RecordBuilder};
use crate::error::{Error, Result};
use crate::schema::Schema;

/// One entry beside the tree.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    attributes: AttributeTable,
    entry: Vec<u8>,
    operational: Vec<u8>,
}

impl Beside {
    /// Makes an entry of its DN and its attributes, each a type's name and values. A type without values is left out.
    ///
    /// # Errors
    /// When the schema does not know an attribute.
    pub(crate) fn new(
        schema: &Schema,
        dn: &str,
        content: &[(&str, Vec<String>)],
    ) -> Result<Beside> {
        let mut attributes = AttributeTable::default();
        let (mut user, mut operational) = (RecordBuilder::new(), RecordBuilder::new());
        for (name, values) in content {
            let attribute_type = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| Error::State(format!("the schema lacks the attribute {name}")))?;
            if values.is_empty() {
                continue;
            }
            let number = attributes.number_beside(schema, attribute_type.id());
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
        let mut beside = Beside {
            attributes,
            entry: Vec::new(),
            operational: Vec::new(),
        };
        user.finish(EntryId::ROOT, EntryFlags::default(), dn, &mut beside.entry)
            .and_then(|()| {
                operational.finish(
                    EntryId::ROOT,
                    EntryFlags::default(),
                    "",
                    &mut beside.operational,
                )
            })
            .map_err(|too_large| Error::State(format!("{dn}: {too_large}")))?;
        Ok(beside)
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
