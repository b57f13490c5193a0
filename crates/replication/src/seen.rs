//! How an entry is seen by clients, given its registers.

use crate::{Attribute, Kind, Place, Replica, Shown, Stamp, Uuid, Value};

/// An entry as it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The entry above it, and its RDN.
    pub place: Place,
    /// Whether its entryUUID is a part of its RDN, because another entry has the name.
    pub is_qualified: bool,
    /// Whether it was deleted and is there only for those below it. It has no attributes.
    pub is_glue: bool,
    /// entryCSN and modifiersName; of glue nothing.
    pub stamp: Stamp,
    /// Attributes with their values, in order. Those that the RDN names are always there, whatever was deleted.
    pub attributes: Vec<(Attribute, Vec<Value>)>,
}

impl Seen {
    /// An entry; `None` if there is none, or it is hidden.
    ///
    /// # Errors
    /// When the replica fails.
    pub fn of<R: Replica>(replica: &R, entry: Uuid) -> Result<Option<Seen>, R::Error> {
        let Some(node) = replica.node(entry)? else {
            return Ok(None);
        };
        let is_qualified = match node.shown {
            Shown::Hidden => return Ok(None),
            Shown::Plain => false,
            Shown::Qualified => true,
        };
        let mut attributes = Vec::new();
        if node.deleted.is_none() {
            attributes = replica.attributes(entry)?;
            for (attribute, value) in replica.naming_values(&node.place.rdn) {
                let kind = replica.kind(&attribute);
                put_naming_value(&mut attributes, kind, attribute, value);
            }
            for (attribute, values) in &mut attributes {
                if replica.kind(attribute) == Kind::Values {
                    values.sort_unstable();
                }
            }
            attributes.sort_unstable();
        }
        Ok(Some(Seen {
            place: node.place,
            is_qualified,
            is_glue: node.deleted.is_some(),
            stamp: match node.deleted {
                None => node.stamp,
                Some(_) => Stamp::default(),
            },
            attributes,
        }))
    }
}

/// Gives an entry a value that its RDN names.
fn put_naming_value(
    attributes: &mut Vec<(Attribute, Vec<Value>)>,
    kind: Kind,
    attribute: Attribute,
    value: Value,
) {
    let known = attributes.iter_mut().find(|(known, _)| *known == attribute);
    match known {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) if kind == Kind::Values => values.push(value),
        Some((_, values)) => *values = vec![value],
        None => attributes.push((attribute, vec![value])),
    }
}
