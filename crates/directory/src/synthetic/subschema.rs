//! The subschema subentry (RFC 4512 §4.2): the schema as clients discover it.

use super::{Content, Server};

/// Of one RDN, of type cn.
pub(super) const DN: &str = "cn=Subschema";
pub(super) const WHAT: &str = "the subschema subentry";
pub(super) const IS_SUBENTRY: bool = true;

/// Its attributes. The times tell clients that keep a copy of the schema whether theirs is still good.
pub(super) fn make(server: &Server<'_>) -> Vec<Content> {
    let Server { schema, opened, .. } = *server;
    let one = |value: &str| vec![value.to_owned()];
    let classes = ["top", "subentry", "subschema", "extensibleObject"];
    let cn = DN.split_once('=').map_or(DN, |(_, cn)| cn);
    vec![vec![
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
        ("createTimestamp", one(opened)),
        ("modifyTimestamp", one(opened)),
        ("entryDN", one(DN)),
        ("subschemaSubentry", one(DN)),
    ]]
}

#[cfg(test)]
mod tests {
    use super::super::root_dse::{Channel, RootDse};
    use super::super::{SyntheticEntries, SyntheticEntry};
    use super::*;
    use crate::schema::{AttributeValues, CheckMode, Schema};

    #[test]
    fn the_entry_is_valid_by_its_own_schema() {
        let schema = Schema::standard();
        let server = Server {
            schema: &schema,
            root_dse: &RootDse::default(),
            naming_contexts: &[],
            opened: "20260101000000Z",
        };
        let entries = SyntheticEntries::new(&server).unwrap();
        let made = entries.get(SyntheticEntry::Subschema, Channel::default()).unwrap();
        let (user, operational) = made.records().unwrap();
        let mut attributes = Vec::new();
        for record in [&user, &operational] {
            for attribute in record.attributes() {
                let attribute = attribute.unwrap();
                let known = made.attributes().get(attribute.number()).unwrap();
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
