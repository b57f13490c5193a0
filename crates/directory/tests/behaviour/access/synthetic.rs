//! The root DSE and the schema obey global rules, attribute by attribute.

use super::rules::{FRONTEND, put};
use super::*;

const SCHEMA: &str = "cn=Subschema";

/// Puts global rules in force, under which the naming contexts have others.
fn set_global(directory: &Directory, rules: &[&str]) {
    put(directory, &["to * by * none"]);
    let change = modify(FRONTEND, &[(Replace, "olcAccess", rules)]);
    succeed(directory, change);
}

/// The attributes of a base that are shown, or the code where it is not.
fn shown(directory: &Directory, who: &Identity, base: &str) -> Result<Vec<String>, ResultCode> {
    let mut query = by(who, base, Scope::Base, EVERYTHING);
    query.attributes = &["*", "+"];
    let found = search(directory, &query);
    match found.entries.first() {
        Some((dn, _)) => Ok(names(&found, dn)),
        None => Err(found.code),
    }
}

#[test]
fn attributes_of_the_root_dse_and_the_schema_are_hidden_one_by_one() {
    let directory = directory();
    let (anne, bert) = (user(&directory, ANNE), user(&directory, BERT));
    set_global(
        &directory,
        &[
            "to dn.base=\"\" attrs=namingContexts by dn.base=uid=bert,ou=people,dc=example,dc=com read by * none",
            "to dn.base=cn=Subschema attrs=objectClasses by * none",
            "to * by users read",
        ],
    );
    for (base, hidden, is_for_bert) in [
        ("", "namingContexts", true),
        (SCHEMA, "objectClasses", false),
    ] {
        let has = |who: &Identity| {
            let names = shown(&directory, who, base).unwrap();
            assert!(names.iter().any(|name| name == "objectClass"), "{names:?}");
            names.iter().any(|name| name == hidden)
        };
        assert!(!has(&anne), "{base:?}");
        assert!(has(&admin()), "{base:?}");
        assert_eq!(has(&bert), is_for_bert, "{base:?}");
        let refused = ResultCode::InsufficientAccessRights;
        assert_eq!(shown(&directory, &Identity::Anonymous, base), Err(refused));
        // Named, by itself, or as one that is not as it is.
        for filter in [
            format!("({hidden}=*)"),
            format!("({hidden}=dc=example,dc=com)"),
            format!("(!({hidden}=dc=nowhere))"),
            format!("(!({hidden}=*))"),
        ] {
            let found = search(&directory, &by(&anne, base, Scope::Base, &filter));
            assert_eq!(
                (found.code, found.entries.len()),
                (ResultCode::Success, 0),
                "{filter}"
            );
            let mut query = by(&anne, base, Scope::Base, EVERYTHING);
            query.options.assertion = Some(filter_text::parse(&filter).unwrap());
            assert_eq!(
                search(&directory, &query).code,
                ResultCode::AssertionFailed,
                "{filter}"
            );
        }
        let found = search(&directory, &by(&anne, base, Scope::Base, "(objectClass=*)"));
        assert_eq!(found.entries.len(), 1);
        // To list the hidden values by a control.
        let mut query = by(&anne, base, Scope::Base, EVERYTHING);
        query.attributes = &["+"];
        query.options.values = Some(vec![filter_text::parse(&format!("({hidden}=*)")).unwrap()]);
        let found = search(&directory, &query);
        assert!(
            found
                .entries
                .iter()
                .all(|(_, lines)| lines.iter().all(|line| !line.starts_with(hidden)))
        );
    }
}

#[test]
fn what_is_hidden_of_the_root_dse_is_not_compared() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    set_global(
        &directory,
        &[
            "to dn.base=\"\" attrs=objectClass by users =rs",
            "to dn.base=\"\" attrs=vendorName by users =c",
            "to * by users read",
        ],
    );
    let compared = |attribute: &str, value: &str, assertion: Option<&str>| {
        let assertion = assertion.map(|text| filter_text::parse(text).unwrap());
        let options = CompareOptions {
            assertion: assertion.as_ref().map(|filter| filter.as_filter()),
            ..CompareOptions::default()
        };
        compare_as(&directory, &anne, "", attribute, value, options).code
    };
    let refused = ResultCode::InsufficientAccessRights;
    assert_eq!(compared("objectClass", "top", None), refused);
    assert_eq!(compared("objectClass", "person", None), refused);
    assert_eq!(
        compared("subschemaSubentry", SCHEMA, None),
        ResultCode::CompareTrue
    );
    // What may be compared need not be what filters may ask for.
    let is_there = compared("vendorName", "x", None);
    assert!([ResultCode::CompareFalse, ResultCode::NoSuchAttribute].contains(&is_there));
    let asserted = |filter: &str| compared("subschemaSubentry", SCHEMA, Some(filter));
    assert_eq!(asserted("(objectClass=*)"), ResultCode::CompareTrue);
    for hidden in ["(vendorName=*)", "(!(vendorName=*))"] {
        assert_eq!(asserted(hidden), ResultCode::AssertionFailed, "{hidden}");
    }
    // Who may only compare may do so.
    set_global(&directory, &["to * by users compare"]);
    assert_eq!(
        compared("subschemaSubentry", SCHEMA, None),
        ResultCode::CompareTrue
    );
    assert_eq!(shown(&directory, &anne, ""), Err(refused));
}

#[test]
fn rules_may_ask_for_the_content_of_the_root_dse_and_for_values() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let versions = |rules: &[&str]| {
        set_global(&directory, rules);
        let mut query = by(&anne, "", Scope::Base, EVERYTHING);
        query.attributes = &["+"];
        let found = search(&directory, &query);
        let lines = found.entries.iter().flat_map(|(_, lines)| lines);
        let names = ["supportedLDAPVersion", "namingContexts: dc="];
        lines
            .filter(|line| names.iter().any(|name| line.starts_with(name)))
            .cloned()
            .collect::<Vec<_>>()
    };
    let all = [
        "namingContexts: dc=example,dc=com",
        "supportedLDAPVersion: 3",
    ];
    let rest = "to * by users read";
    assert_eq!(versions(&[rest]), all);
    let by_filter = |filter: &str| {
        let rule = format!("to filter={filter} attrs=namingContexts by * none");
        versions(&[&rule, rest])
    };
    assert_eq!(by_filter("(subschemaSubentry=cn=Subschema)"), all[1..]);
    assert_eq!(by_filter("(subschemaSubentry=cn=other)"), all);
    assert_eq!(
        versions(&[
            "to dn.base=\"\" attrs=supportedLDAPVersion val.regex=^3$ by * none",
            rest
        ]),
        all[..1]
    );
    assert_eq!(
        versions(&["to dn.regex=^$ attrs=supportedLDAPVersion by * none", rest]),
        all[..1]
    );
    // An entry that may not be read is not found, and neither refused.
    set_global(&directory, &["to dn.base=\"\" attrs=entry by * =s", rest]);
    assert_eq!(shown(&directory, &anne, ""), Err(ResultCode::Success));
    assert!(shown(&directory, &anne, SCHEMA).is_ok());
}

#[test]
fn explanations_of_the_root_dse_name_global_rules_alone() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let requester = || directory.requester(anne.clone());
    let explained = |attribute: &str| {
        let snapshot = directory.snapshot().unwrap();
        snapshot
            .through(|snapshot| snapshot.explain_access(&requester(), "", attribute, None))
            .unwrap()
    };
    assert_eq!(explained("namingContexts").rights, Rights::UP_TO_READ);
    set_global(
        &directory,
        &["to attrs=namingContexts by * none", "to * by users read"],
    );
    let hidden = explained("namingContexts");
    assert_eq!(hidden.rights, Rights::NONE);
    assert_eq!(hidden.tried.len(), 1);
    assert!(hidden.is_decided);
    let shown = explained("supportedLDAPVersion");
    assert_eq!(shown.rights, Rights::UP_TO_READ);
    assert_eq!(shown.tried.last().map(|tried| tried.number), Some(1));
}

/// A search under way heeds new rules on synthetic entries, too.
#[test]
fn a_search_of_the_schema_under_way_heeds_new_rules() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let filter = filter_text::parse(EVERYTHING).unwrap();
    let names = OctetStringsBuf::from_iter([b"+".as_slice()]);
    let request = SearchRequest {
        attributes: names.view(),
        ..SearchRequest::new("", Scope::Base, filter.as_filter())
    };
    let begin = || {
        let who = directory.requester(anne.clone());
        let snapshot = directory.snapshot().unwrap();
        Search::new(snapshot, &who, &request, SearchOptions::default())
    };
    let finish = |mut search: Search<_>| {
        let mut out = Vec::new();
        let budget = Budget {
            entries: 9,
            work: 1 << 20,
            out_bytes: 1 << 20,
        };
        loop {
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            match search.step(&mut wire, budget).unwrap() {
                Step::Done(outcome) => break (Answer::all(&out), outcome.code),
                Step::Fetch => search.snapshot().fetch().unwrap(),
                _ => {}
            }
        }
    };
    let tells = |(answers, code): (Vec<Answer>, ResultCode)| {
        let mut attributes = answers.iter().flat_map(|answer| &answer.attributes);
        (attributes.any(|(name, _)| name == "namingContexts"), code)
    };
    assert_eq!(tells(finish(begin())), (true, ResultCode::Success));
    let search = begin();
    set_global(
        &directory,
        &["to attrs=namingContexts by * none", "to * by users read"],
    );
    assert_eq!(tells(finish(search)), (false, ResultCode::Success));
    let search = begin();
    set_global(&directory, &["to * by * none"]);
    assert_eq!(
        tells(finish(search)),
        (false, ResultCode::InsufficientAccessRights)
    );
}
