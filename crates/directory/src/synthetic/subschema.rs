//! The subschema subentry (RFC 4512 §4.2): the schema as clients discover it.

use super::{Content, Definition, Follows, Server};
use crate::schema::additions::Kind;

pub(super) const CONTEXT: Definition = Definition {
    // Of one RDN, of type cn.
    suffix: "cn=Subschema",
    what: "the subschema subentry",
    remedy: "a modify of attributeTypes and objectClasses adds to it, as one of cn=schema,cn=config does",
    is_hidden: false,
    follows: Follows::Schema,
    make,
};

/// Its attributes. The times tell clients that keep a copy of the schema whether theirs is still good.
fn make(server: &Server<'_>) -> Vec<Vec<Content>> {
    const DN: &str = CONTEXT.suffix;
    let Server {
        schema,
        opened,
        state,
        ..
    } = *server;
    // Another version of the program may have other definitions.
    let modified = opened.max(&*state.schema_changed);
    let one = |value: &str| vec![value.to_owned()];
    let classes = ["top", "subentry", "subschema", "extensibleObject"];
    let cn = DN.split_once('=').map_or(DN, |(_, cn)| cn);
    let attributes = vec![
        ("objectClass", classes.map(str::to_owned).to_vec()),
        ("cn", one(cn)),
        ("subtreeSpecification", one("{ }")),
        ("attributeTypes", schema.attribute_type_values().collect()),
        ("objectClasses", schema.object_class_values().collect()),
        ("dITContentRules", schema.governing_values(Kind::ContentRules)),
        ("nameForms", schema.governing_values(Kind::NameForms)),
        ("dITStructureRules", schema.governing_values(Kind::StructureRules)),
        ("matchingRules", schema.matching_rule_values().collect()),
        (
            "matchingRuleUse",
            schema.matching_rule_use_values().collect(),
        ),
        ("ldapSyntaxes", schema.syntax_values().collect()),
        ("structuralObjectClass", one("subentry")),
        ("createTimestamp", one(opened)),
        ("modifyTimestamp", one(modified)),
    ];
    vec![vec![Content {
        dn: DN.to_owned(),
        also: Vec::new(),
        attributes,
    }]]
}

#[cfg(test)]
mod tests {
    use super::super::root_dse::{Channel, RootDse};
    use super::super::{SyntheticContext, SyntheticContexts};
    use crate::state::State;
    use std::sync::Arc;
    use crate::schema::{AttributeValues, CheckMode, Schema};

    #[test]
    fn the_entry_is_valid_by_its_own_schema() {
        let schema = Schema::standard();
        let (root_dse, state) = (RootDse::default(), State::default());
        let opened = "20260101000000Z".to_owned();
        let contexts = SyntheticContexts::new(&root_dse, &state, opened).unwrap();
        let (which, state) = (SyntheticContext::Subschema, Arc::new(state));
        let made = contexts.get(which, Channel::default(), &root_dse, &state, || Ok(Vec::new())).unwrap();
        let (user, operational) = made.entry(0).unwrap().records().unwrap();
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
