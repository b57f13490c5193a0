//! Matched values (RFC 3876): of the attributes that a search asks for, only those values are sent that match one of a
//! few filters. The control has no say in which entries are found.
//!
//! controlValue:
//!
//! ```text
//! ValuesReturnFilter ::= SEQUENCE OF SimpleFilterItem
//! ```
//!
//! An item is a filter (RFC 4511 §4.5.1) that is neither and, or nor not, and that does not ask for the attributes of
//! names (`dnAttributes`).

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber;
use crate::error::{PartError, Violation};
use crate::filter::{Filter, FilterView, Filters};
use crate::operation::Operation;

/// Its OID.
pub const MATCHED_VALUES: &str = "1.2.826.0.1.3344810.2.3";

/// Most items: each value of an entry is compared with all of them.
pub const MATCHED_VALUES_ITEMS_MAX: usize = 256;

pub(super) const SPEC: Spec = Spec {
    oids: &[MATCHED_VALUES],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What a value must match.
pub(super) type Value<'m> = MatchedValues<'m>;

pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok(MatchedValues::decode(control.value()?)?)
}

/// The value of the control: filters of which a value must match one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedValues<'a> {
    items: Filters<'a>,
}

impl<'a> MatchedValues<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// When an item is none, or when there are more than [`MATCHED_VALUES_ITEMS_MAX`].
    pub fn decode(value: &'a [u8]) -> Result<MatchedValues<'a>, PartError> {
        let mut reader = sequence(value, "ValuesReturnFilter")?;
        let items = Filters::from_checked(reader.rest());
        let mut count = 0;
        while !reader.is_empty() {
            let field = match Filter::decode(&mut reader)?.view() {
                FilterView::And(_) | FilterView::Or(_) | FilterView::Not(_) => {
                    Some("SimpleFilterItem")
                }
                FilterView::ExtensibleMatch(matched) if matched.dn_attributes => {
                    Some("SimpleMatchingAssertion")
                }
                _ => None,
            };
            count += 1;
            let field = match count > MATCHED_VALUES_ITEMS_MAX {
                true => Some("number of SimpleFilterItems"),
                false => field,
            };
            if let Some(field) = field {
                return Err(Violation::OutOfRange { field }.into());
            }
        }
        Ok(MatchedValues { items })
    }

    /// The filters.
    pub fn items(self) -> Filters<'a> {
        self.items
    }

    /// Appends the control value.
    pub fn encode(self, out: &mut Vec<u8>) {
        ber::put_octets(out, ber::SEQUENCE, self.items.as_ber());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter_text;

    fn value(items: &[&str]) -> Vec<u8> {
        let items = items.iter().map(|item| filter_text::parse(item).unwrap());
        let items: Vec<u8> = items.flat_map(|item| item.as_filter().as_ber().to_vec()).collect();
        let mut value = Vec::new();
        ber::put_octets(&mut value, ber::SEQUENCE, &items);
        value
    }

    #[test]
    fn items_are_read_as_they_were_written() {
        let texts = ["(cn=a)", "(cn=a*)", "(sn>=b)", "(sn<=c)", "(mail=*)", "(:caseExactMatch:=x)"];
        for count in 0..=texts.len() {
            let value = value(&texts[..count]);
            let values = MatchedValues::decode(&value).unwrap();
            assert_eq!(values.items().iter().count(), count);
            let mut again = Vec::new();
            values.encode(&mut again);
            assert_eq!(again, value);
        }
    }

    #[test]
    fn nested_filters_and_names_are_no_items() {
        for item in ["(&(cn=a))", "(|(cn=a)(cn=b))", "(!(cn=a))", "(cn:dn:=a)", "(&)"] {
            assert!(MatchedValues::decode(&value(&["(cn=a)", item])).is_err(), "{item}");
        }
        for wrong in [&b""[..], b"x", b"\x30\x01", b"\x30\x01x", b"\x30\x00x", b"\x04\x00"] {
            assert!(MatchedValues::decode(wrong).is_err(), "{wrong:?}");
        }
        let most = ["(cn=a)"; MATCHED_VALUES_ITEMS_MAX];
        assert!(MatchedValues::decode(&value(&most)).is_ok());
        let more = ["(cn=a)"; MATCHED_VALUES_ITEMS_MAX + 1];
        assert!(MatchedValues::decode(&value(&more)).is_err());
    }
}
