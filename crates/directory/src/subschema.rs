//! The subschema subentry (RFC 4512 §4.2): the schema as clients discover it.

use crate::beside::Beside;
use crate::error::Result;
use crate::schema::Schema;

/// The subschema subentry as an entry. `dn` has one RDN, of type cn; `time` is a Generalized Time that tells clients
/// that keep a copy of the schema whether theirs is still good.
///
/// # Errors
/// When the schema lacks an attribute of it, or its form cannot hold it.
pub(crate) fn entry(schema: &Schema, dn: &str, time: &str) -> Result<Beside> {
    let one = |value: &str| vec![value.to_owned()];
    let classes = ["top", "subentry", "subschema", "extensibleObject"];
    let cn = dn.split_once('=').map_or(dn, |(_, cn)| cn);
    let content = [
        ("objectClass", classes.map(str::to_owned).to_vec()),
        ("cn", one(cn)),
        ("subtreeSpecification", one("{ }")),
        ("attributeTypes", schema.attribute_type_values().collect()),
        ("objectClasses", schema.object_class_values().collect()),
        ("matchingRules", schema.matching_rule_values().collect()),
        (
            "matchingRuleUse",
            schema.matching_rule_use_values().collect(),
        ),
        ("ldapSyntaxes", schema.syntax_values().collect()),
        ("structuralObjectClass", one("subentry")),
        ("createTimestamp", one(time)),
        ("modifyTimestamp", one(time)),
        ("entryDN", one(dn)),
        ("subschemaSubentry", one(dn)),
    ];
    Beside::new(schema, dn, &content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::AttributeValues;
    use crate::schema::CheckMode;

    #[test]
    fn the_entry_is_valid_by_its_own_schema() {
        let schema = Schema::standard();
        let beside = entry(&schema, "cn=Subschema", "20260101000000Z").unwrap();
        let (user, operational) = beside.records().unwrap();
        let mut attributes = Vec::new();
        for record in [&user, &operational] {
            for attribute in record.attributes() {
                let attribute = attribute.unwrap();
                let known = beside.attributes().get(attribute.number()).unwrap();
                let values: Vec<&[u8]> = attribute.values().iter().collect();
                attributes.push((known.attribute_type(), values));
            }
        }
        let entry: Vec<AttributeValues<'_>> = attributes
            .iter()
            .map(|(attribute_type, values)| AttributeValues {
                attribute_type: *attribute_type,
                options: b"",
                values,
            })
            .collect();
        assert_eq!(
            schema.check_entry(&entry, CheckMode::Trusted).map(|_| ()),
            Ok(())
        );
        let of = |name: &str| {
            let id = schema.attribute_type(name.as_bytes()).unwrap().id();
            attributes
                .iter()
                .find(|(known, _)| *known == id)
                .map_or(0, |(_, values)| values.len())
        };
        assert_eq!(of("attributeTypes"), schema.attribute_types().len());
        assert_eq!(of("objectClasses"), schema.object_classes().len());
        assert!(of("matchingRules") > 40 && of("matchingRuleUse") > 30 && of("ldapSyntaxes") > 40);
    }
}
