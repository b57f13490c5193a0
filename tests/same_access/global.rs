//! Global rules, which alone are about the root DSE and the schema.

use super::*;

/// The entries that are asked for.
pub(super) const BASES: [&str; 2] = ["", "cn=Subschema"];
/// Attributes that both servers show there with the same values, but for `objectClass`.
const SHOWN: [&str; 4] = [
    "supportedLDAPVersion",
    "namingContexts",
    "subschemaSubentry",
    "cn",
];

#[test]
fn global_rules_show_everybody_the_same_of_the_root_dse_and_the_schema() {
    for seed in 1..=SEEDS {
        let mut random = Random::new(seed);
        let mut pair = Pair::start(seed);
        for _ in 0..RULE_SETS {
            let mut rules: Vec<String> = Vec::new();
            for _ in 0..1 + random.below(5) {
                let rule = rule(&mut random);
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
            rules.retain(|rule| rule != LAST_RULE);
            rules.push(LAST_RULE.to_owned());
            pair.put(FRONTEND, &rules);
            for _ in 0..REQUESTS {
                pair.ask_synthetic(&mut random);
            }
        }
    }
}

fn rule(random: &mut Random) -> String {
    let mut text = "to ".to_owned();
    text.push_str(random.of(&[
        "*",
        "*",
        "dn.base=\"\"",
        "dn.base=\"\"",
        "dn.base=\"cn=Subschema\"",
        "dn.subtree=\"\"",
        "dn.subtree=\"cn=Subschema\"",
        "dn.regex=\"^cn=sub\"",
        "dn.regex=\"^$\"",
    ]));
    if random.once_in(3) {
        let filter = random.of(&[
            "(objectClass=*)",
            "(cn=*)",
            "(!(cn=subschema))",
            "(supportedLDAPVersion=*)",
            "(subschemaSubentry=cn=Subschema)",
        ]);
        let _ = write!(text, " filter={filter}");
    }
    if random.once_in(2) {
        let names = random.of(&[
            "entry",
            "objectClass",
            SHOWN[0],
            SHOWN[1],
            SHOWN[2],
            SHOWN[3],
        ]);
        let _ = write!(text, " attrs={names}");
        if random.once_in(3) {
            text.push_str(random.of(&[",entry", ",subschemaSubentry", ",objectClass"]));
        }
    }
    for _ in 0..1 + random.below(3) {
        let who = random.of(&[
            "*",
            "*",
            "users",
            "anonymous",
            "self",
            "dn.exact=\"uid=anne,ou=people,dc=example,dc=com\"",
            "dn.children=\"ou=staff,ou=people,dc=example,dc=com\"",
            "group.exact=\"cn=group,ou=groups,dc=example,dc=com\"",
            "peername.ip=127.0.0.1",
            "tls_ssf=128",
            "dnattr=seeAlso",
            "set=\"user\"",
        ]);
        let access = random.of(&[
            "none", "disclose", "compare", "search", "read", "read", "read", "=rscxd", "+rd", "-s",
            "+sd", "=csd",
        ]);
        let _ = write!(text, " by {who} {access}");
        text.push_str(random.of(&["", "", "", " continue", " break"]));
    }
    text
}

/// The same request about the other one.
pub(super) fn elsewhere(compare: CompareRequest<'_>) -> Request<'_> {
    let other = BASES.iter().find(|base| **base != compare.dn);
    Request::Compare(CompareRequest {
        dn: other.unwrap(),
        ..compare
    })
}

impl Pair {
    fn ask_synthetic(&mut self, random: &mut Random) {
        let (who, base) = (random.below(self.clients.len()), random.of(&BASES));
        if random.once_in(4) {
            let (attribute, value) =
                random.of(&[("cn", "subschema"), ("cn", "other"), ("objectClass", "top")]);
            let request = Request::Compare(CompareRequest {
                dn: base,
                assertion: Assertion {
                    attribute: attribute.as_bytes(),
                    value: value.as_bytes(),
                },
            });
            return self.ask(
                who,
                &format!("compare {base:?} {attribute} {value}"),
                &request,
            );
        }
        let text = random.of(&[
            "(objectClass=*)",
            "(objectClass=*)",
            "(cn=*)",
            "(!(cn=x))",
            "(supportedLDAPVersion=*)",
            "(|(namingContexts=*)(cn=subschema))",
            "(!(subschemaSubentry=cn=other))",
        ]);
        let filter = filter_text::parse(text).unwrap();
        let attributes = OctetStringsBuf::from_iter(SHOWN.iter().map(|name| name.as_bytes()));
        let request = Request::Search(SearchRequest {
            attributes: attributes.view(),
            types_only: random.once_in(8),
            ..SearchRequest::new(base, Scope::Base, filter.as_filter())
        });
        self.ask(who, &format!("search {base:?} {text}"), &request);
    }
}
