//! Attribute numbers: inside the store an attribute description is a small integer.
//!
//! A number stands for a type together with options, sorted and in lower case. Numbers are minted in the transaction
//! of the update that first needs them and never change; the table in memory grows with them. What a number means to
//! the schema (its type, whether it is protected) is worked out anew at each start.

use sapwood_ldap::attribute::{AttributeDescription, AttributeDescriptionError};

use crate::engine::{self, AttributeNo, Cursor, Direction, Range, Read, Table, Write};
use crate::schema::{AttributeType, AttributeTypeId, Schema};

/// How many attribute descriptions a directory can have: bounds what clients can mint with options.
pub const ATTRIBUTE_DESCRIPTIONS_MAX: usize = 32_768;

/// What a number stands for.
#[derive(Clone, Debug)]
pub struct Described {
    /// As it is sent: the type's name as in the schema, and the options.
    pub description: Box<str>,
    /// The type; `None` when the schema no longer has it.
    pub attribute_type: Option<AttributeTypeId>,
    /// The options: sorted, in lower case, joined by `;`, empty for none.
    pub options: Box<str>,
    /// Whether only those see it who may see protected attributes.
    pub is_protected: bool,
    /// Whether it is operational.
    pub is_operational: bool,
}

/// The numbers known, as of some commit.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    described: Vec<Described>,
    /// For each type of the schema the numbers with it, the one without options first if there is one.
    by_type: Vec<Vec<AttributeNo>>,
}

/// Why a description stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownAttribute {
    /// Not an attribute description.
    #[error("{0}")]
    Syntax(#[from] AttributeDescriptionError),
    /// Not UTF-8.
    #[error("the attribute description is not UTF-8")]
    NotUtf8,
    /// No such type.
    #[error("attribute type '{0}' is not in the schema")]
    NoSuchType(String),
    /// More than [`ATTRIBUTE_DESCRIPTIONS_MAX`].
    #[error("the directory has {ATTRIBUTE_DESCRIPTIONS_MAX} attribute descriptions already")]
    TooMany,
}

/// The type and the normalised options of a description. Nothing is allocated when there are no options.
pub fn resolve<'s>(
    schema: &'s Schema,
    description: &[u8],
) -> Result<(&'s AttributeType, String), UnknownAttribute> {
    let text = std::str::from_utf8(description).map_err(|_| UnknownAttribute::NotUtf8)?;
    let description = AttributeDescription::parse(text)?;
    let name = description.attribute_type();
    let attribute_type = schema
        .attribute_type(name.as_bytes())
        .ok_or_else(|| UnknownAttribute::NoSuchType(name.to_owned()))?;
    let options = if description.has_options() {
        description.normalised_options()
    } else {
        String::new()
    };
    Ok((attribute_type, options))
}

impl Attributes {
    /// Reads the table.
    pub(crate) fn load(read: &impl Read, schema: &Schema) -> engine::Result<Attributes> {
        let mut attributes = Attributes::default();
        attributes.refresh(read, schema)?;
        Ok(attributes)
    }

    /// Whether `read` knows numbers that were minted since (by another process).
    pub(crate) fn is_behind(&self, read: &impl Read) -> engine::Result<bool> {
        Ok(read
            .get(Table::Attribute, &key(self.described.len()))?
            .is_some())
    }

    /// Reads what was minted since.
    pub(crate) fn refresh(&mut self, read: &impl Read, schema: &Schema) -> engine::Result<()> {
        let first = key(self.described.len());
        let mut cursor = read.scan(Table::Attribute, Range::from(&first), Direction::Forward)?;
        while let Some((key_read, description)) = cursor.next()? {
            let description = std::str::from_utf8(description).ok();
            match description {
                Some(description) if key_read == key(self.described.len()) => {
                    self.push(schema, description)
                }
                _ => {
                    return Err(engine::Error::Corrupt(
                        "the table of attribute numbers has a gap".into(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, schema: &Schema, description: &str) {
        let number = AttributeNo(self.described.len() as u16);
        let (name, options) = description.split_once(';').unwrap_or((description, ""));
        let known = schema.attribute_type(name.as_bytes());
        if let Some(known) = known {
            let at = known.id().index();
            if self.by_type.len() <= at {
                self.by_type.resize(at + 1, Vec::new());
            }
            if let Some(numbers) = self.by_type.get_mut(at) {
                let position = if options.is_empty() { 0 } else { numbers.len() };
                numbers.insert(position, number);
            }
        }
        self.described.push(Described {
            description: match known {
                Some(known) if options.is_empty() => known.name().into(),
                Some(known) => format!("{};{options}", known.name()).into(),
                None => description.into(),
            },
            attribute_type: known.map(AttributeType::id),
            options: options.into(),
            is_protected: known.is_some_and(|known| is_protected(schema, known)),
            is_operational: known.is_some_and(AttributeType::is_operational),
        });
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.described.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.described.is_empty()
    }

    /// What a number stands for; `None` for one that was never minted.
    pub fn describe(&self, number: AttributeNo) -> Option<&Described> {
        self.described.get(usize::from(number.0))
    }

    /// The numbers of a type, of any options, without its subtypes.
    pub fn of_type(&self, attribute_type: AttributeTypeId) -> &[AttributeNo] {
        self.by_type
            .get(attribute_type.index())
            .map_or(&[], Vec::as_slice)
    }

    /// The number of a type with these (normalised) options.
    pub fn number(&self, attribute_type: AttributeTypeId, options: &str) -> Option<AttributeNo> {
        let numbers = self.of_type(attribute_type);
        numbers.iter().copied().find(|number| {
            self.describe(*number)
                .is_some_and(|known| &*known.options == options)
        })
    }

    /// The number of a type with these (normalised) options, minted if there is none.
    pub(crate) fn number_or_mint(
        &mut self,
        txn: &mut impl Write,
        schema: &Schema,
        attribute_type: &AttributeType,
        options: &str,
    ) -> engine::Result<Result<AttributeNo, UnknownAttribute>> {
        if let Some(number) = self.number(attribute_type.id(), options) {
            return Ok(Ok(number));
        }
        if self.described.len() >= ATTRIBUTE_DESCRIPTIONS_MAX {
            return Ok(Err(UnknownAttribute::TooMany));
        }
        let mut description = attribute_type.name().to_owned();
        if !options.is_empty() {
            description.push(';');
            description.push_str(options);
        }
        let number = AttributeNo(self.described.len() as u16);
        txn.insert(
            Table::Attribute,
            &key(self.described.len()),
            description.as_bytes(),
        )?;
        self.push(schema, &description);
        Ok(Ok(number))
    }
}

/// Whether an attribute is protected: userPassword and its subtypes.
pub fn is_protected(schema: &Schema, attribute_type: &AttributeType) -> bool {
    attribute_type.is_subtype_of(schema.well_known().user_password)
}

fn key(number: usize) -> [u8; 2] {
    (number as u16).to_be_bytes()
}
