//! The differences that stay, by kind, and those that must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use sapwood_ldap::dn::{Dn, Rdn};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;

use super::answer::{Answer, describe_difference};
use super::operation::{Operation, Term};

/// A kind of difference that `docs/reference/differences-from-openldap.md` explains under this heading.
struct Kind {
    heading: &'static str,
    /// Takes the difference away where it is one of this kind, by changing either answer.
    excuse: fn(&Operation, &mut Answer, &mut Answer),
}

const KINDS: [Kind; 21] = [
    Kind {
        heading: "Superclasses are added to objectClass",
        excuse: add_superclasses,
    },
    Kind {
        heading: "An entry is sent once",
        excuse: forget_repetitions,
    },
    Kind {
        heading: "Approximate matching goes by other sounds",
        excuse: approximate_matching,
    },
    Kind {
        heading: "ManageDsaIT below a referral object",
        excuse: manage_dsa_it_below_referral,
    },
    Kind {
        heading: "Names that RFC 4514 does not allow",
        excuse: names_not_allowed,
    },
    Kind {
        heading: "Values in hexadecimal in names",
        excuse: hexadecimal_values,
    },
    Kind {
        heading: "Attribute types in names that the schema does not define",
        excuse: unknown_types_in_names,
    },
    Kind {
        heading: "matchedDN of renames and of entries below aliases",
        excuse: matched_dn,
    },
    Kind {
        heading: "Object identifiers and their names",
        excuse: names_as_oids,
    },
    Kind {
        heading: "Definitions in the schema",
        excuse: substrings_of_labeled_uri,
    },
    Kind {
        heading: "Rules that fit in extensible matches",
        excuse: rules_that_fit,
    },
    Kind {
        heading: "Referral URIs without a name",
        excuse: referrals_without_name,
    },
    Kind {
        heading: "Taking away a value of the RDN",
        excuse: values_of_the_rdn,
    },
    Kind {
        heading: "Superclasses of what stays are not deleted",
        excuse: deleted_superclasses,
    },
    Kind {
        heading: "String preparation",
        excuse: string_preparation,
    },
    Kind {
        heading: "Substrings of lists of strings",
        excuse: substrings_of_lists,
    },
    Kind {
        heading: "Comparing subschemaSubentry",
        excuse: compared_subschema_subentry,
    },
    Kind {
        heading: "Increments of any size",
        excuse: large_increments,
    },
    Kind {
        heading: "A referral object as the new superior",
        excuse: referral_as_new_superior,
    },
    Kind {
        heading: "Searches below the root and below the subschema subentry",
        excuse: searches_beside_the_contexts,
    },
    Kind {
        heading: ORDER_OF_CHECKS,
        excuse: order_of_checks,
    },
];

const ORDER_OF_CHECKS: &str = "The order of checks";

/// As many kinds as there may be.
const KINDS_MAX: usize = 21;

/// As many differences are shown.
const SHOWN: usize = 60;

pub(crate) struct Differences {
    seed: u64,
    known: BTreeMap<&'static str, usize>,
    unknown: Vec<String>,
}

impl Differences {
    pub(crate) fn new(seed: u64) -> Differences {
        Differences {
            seed,
            known: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    /// Notes a difference. Operations that are `generated` may be wrong in several ways at once; of others each has one
    /// right result code.
    pub(crate) fn add(
        &mut self,
        operation: &Operation,
        generated: bool,
        mut slapd: Answer,
        mut sapwood: Answer,
    ) {
        let mut kinds = Vec::new();
        for kind in KINDS
            .iter()
            .filter(|kind| generated || kind.heading != ORDER_OF_CHECKS)
        {
            let before = (slapd.clone(), sapwood.clone());
            (kind.excuse)(operation, &mut slapd, &mut sapwood);
            if before != (slapd.clone(), sapwood.clone()) {
                kinds.push(kind.heading);
            }
        }
        if slapd.same_as(&sapwood) {
            for kind in kinds {
                *self.known.entry(kind).or_default() += 1;
            }
            return;
        }
        let mut text = format!("{operation}\n");
        describe_difference(&mut text, &slapd, &sapwood).unwrap();
        self.unknown.push(text);
    }

    /// Fails if there is a difference of no known kind.
    pub(crate) fn report(self) {
        let mut text = String::new();
        for (kind, count) in &self.known {
            writeln!(text, "{count:6} {kind}").unwrap();
        }
        println!("differences of known kinds:\n{text}");
        let shown = self
            .unknown
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            self.unknown.is_empty(),
            "seed {}: {} differences of no known kind, the first of them:\n{shown}",
            self.seed,
            self.unknown.len(),
        );
    }
}

/// Each kind is a heading of the document, each heading a kind, and each section names the RFC that decides.
pub(crate) fn check_document(document: &str) {
    assert!(KINDS.len() <= KINDS_MAX);
    let sections: BTreeMap<&str, &str> = document
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap_or((section, "")))
        .collect();
    for kind in &KINDS {
        let section = sections.get(kind.heading);
        let section = section.unwrap_or_else(|| panic!("{:?} is not explained", kind.heading));
        assert!(
            section.contains("RFC "),
            "{:?} does not name an RFC",
            kind.heading
        );
    }
    for heading in sections.keys() {
        assert!(
            KINDS.iter().any(|kind| kind.heading == *heading),
            "{heading:?} is of no kind that the test knows"
        );
    }
}

/// The direct superclasses of the classes of the test data, other than top.
const SUPERCLASSES: [(&str, &str); 5] = [
    ("inetorgperson", "organizationalperson"),
    ("organizationalperson", "person"),
    ("oddchild", "oddthing"),
    ("oddother", "oddabstract"),
    ("residentialperson", "person"),
];

fn add_superclasses(_: &Operation, slapd: &mut Answer, _: &mut Answer) {
    for attributes in slapd.entries.values_mut() {
        let Some(classes) = attributes
            .get_mut("objectclass")
            .filter(|classes| !classes.is_empty())
        else {
            continue;
        };
        classes.insert(b"top".to_vec());
        let mut class = 0;
        while let Some(name) = classes.iter().nth(class) {
            let superclass = SUPERCLASSES.iter().find(|(sub, _)| sub.as_bytes() == name);
            let is_new = superclass
                .is_some_and(|(_, superclass)| classes.insert(superclass.as_bytes().to_vec()));
            class = if is_new { 0 } else { class + 1 };
        }
    }
}

/// RFC 4511 §4.5.1.3: duplicates that come of aliases are eliminated.
fn forget_repetitions(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    if let Operation::Search { deref_aliases, .. } = operation
        && matches!(
            deref_aliases,
            DerefAliases::InSearching | DerefAliases::Always
        )
    {
        slapd.repeated.clear();
        for (uris, count) in &mut slapd.references {
            *count = (*count).min(sapwood.references.get(uris).copied().unwrap_or(*count));
        }
        // The repetitions count towards slapd's size limit.
        if slapd.limited_to.is_some() && slapd.code == ResultCode::SizeLimitExceeded {
            slapd.limited_to = sapwood.limited_to;
            slapd.code = sapwood.code;
        }
    }
}

fn approximate_matching(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    excuse_results(operation, slapd, sapwood, &|term| {
        matches!(term, Term::Approximate(..))
    });
}

fn substrings_of_labeled_uri(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let found =
        |term: &Term| matches!(term, Term::Substrings(attribute, ..) if attribute == "labeledURI");
    excuse_results(operation, slapd, sapwood, &found);
}

fn rules_that_fit(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let is_ia5 = |attribute: &str| matches!(attribute, "oddIA5" | "oddExactIA5" | "mail");
    excuse_results(operation, slapd, sapwood, &|term| match term {
        Term::Extensible {
            rule,
            attribute,
            value,
            ..
        } => {
            let attribute = attribute.as_deref();
            let ia5_elsewhere =
                rule.as_deref() == Some("caseIgnoreIA5Match") && !attribute.is_some_and(is_ia5);
            attribute == Some("oddUUID") || ia5_elsewhere || value.is_empty()
        }
        _ => false,
    });
}

fn names_as_oids(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let differs = |attribute: &str, value: &[u8]| match attribute {
        "oddOID" => !value.contains(&b'.'),
        "objectClass" | "2.5.4.0" => value.contains(&b'.'),
        _ => false,
    };
    excuse_results(operation, slapd, sapwood, &|term| match term {
        Term::Equal(attribute, value) => differs(attribute, value),
        Term::Extensible {
            rule,
            attribute,
            value,
            ..
        } => {
            rule.as_deref() == Some("objectIdentifierMatch")
                || attribute
                    .as_deref()
                    .is_some_and(|attribute| differs(attribute, value))
        }
        _ => false,
    });
    if let Operation::Compare {
        attribute, value, ..
    } = operation
        && differs(attribute, value)
    {
        *slapd = sapwood.clone();
    }
}

fn string_preparation(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let is_space = |byte: Option<&u8>| byte.is_none_or(|byte| *byte <= b' ' || *byte == b'-');
    let is_special = |part: &Vec<u8>| {
        let has_sharp_s = part
            .windows("ß".len())
            .any(|letter| letter == "ß".as_bytes());
        is_space(part.first()) || is_space(part.last()) || has_sharp_s
    };
    excuse_results(operation, slapd, sapwood, &|term| match term {
        Term::Substrings(_, initial, any, last) => {
            initial.iter().chain(any).chain(last).any(is_special)
        }
        _ => false,
    });
}

fn substrings_of_lists(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let found = |term: &Term| matches!(term, Term::Substrings(attribute, ..) if attribute == "oddPostal" || attribute == "postalAddress");
    excuse_results(operation, slapd, sapwood, &found);
}

fn compared_subschema_subentry(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    if let Operation::Compare { attribute, .. } = operation
        && attribute == "subschemaSubentry"
        && matches!(
            slapd.code,
            ResultCode::UnwillingToPerform | ResultCode::NoSuchAttribute
        )
    {
        *slapd = sapwood.clone();
    }
}

fn large_increments(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let Operation::Modify { changes, .. } = operation else {
        return;
    };
    let is_large = |value: &Vec<u8>| value.len() > "9223372036854775807".len();
    let found = |(kind, _, values): &(ChangeKind, String, Vec<Vec<u8>>)| {
        *kind == ChangeKind::Increment && values.iter().any(is_large)
    };
    let codes = (slapd.code, sapwood.code);
    if changes.iter().any(found)
        && codes == (ResultCode::InvalidAttributeSyntax, ResultCode::Success)
    {
        slapd.code = sapwood.code;
    }
}

fn searches_beside_the_contexts(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let Operation::Search { base, scope, .. } = operation else {
        return;
    };
    let is_synthetic = base.is_empty() || base.to_ascii_lowercase().ends_with("subschema");
    let done = matches!(
        sapwood.code,
        ResultCode::Success | ResultCode::SizeLimitExceeded
    );
    if is_synthetic && *scope != Scope::Base && slapd.code == ResultCode::NoSuchObject && done {
        *slapd = sapwood.clone();
    }
}

fn referral_as_new_superior(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let codes = (slapd.code, sapwood.code);
    if matches!(operation, Operation::ModifyDn { .. })
        && codes == (ResultCode::UnknownError, ResultCode::Referral)
    {
        *slapd = sapwood.clone();
    }
}

fn deleted_superclasses(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let Operation::Modify { changes, .. } = operation else {
        return;
    };
    let found = |(kind, attribute, _): &(ChangeKind, String, Vec<Vec<u8>>)| {
        *kind == ChangeKind::Delete && attribute == "objectClass"
    };
    let codes = (slapd.code, sapwood.code);
    if changes.iter().any(found) && codes == (ResultCode::Success, ResultCode::ObjectClassViolation)
    {
        slapd.code = sapwood.code;
    }
}

/// Takes away what a search with such a term found; that it was done must be the same.
fn excuse_results(
    operation: &Operation,
    slapd: &mut Answer,
    sapwood: &mut Answer,
    found: &dyn Fn(&Term) -> bool,
) {
    let done = |code| matches!(code, ResultCode::Success | ResultCode::SizeLimitExceeded);
    let Operation::Search { filter, .. } = operation else {
        return;
    };
    if filter.any(found) && done(slapd.code) && done(sapwood.code) {
        *slapd = sapwood.clone();
    }
}

fn manage_dsa_it_below_referral(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let codes = (slapd.code, sapwood.code);
    if operation.manage_dsa_it() && codes == (ResultCode::Referral, ResultCode::NoSuchObject) {
        slapd.code = sapwood.code;
        slapd.referral.clear();
    }
}

fn names_not_allowed(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let wrong = operation
        .names()
        .iter()
        .any(|name| Dn::parse(name).is_err());
    if wrong && sapwood.code == ResultCode::InvalidDnSyntax && is_refusal(slapd.code) {
        *slapd = sapwood.clone();
    }
}

fn hexadecimal_values(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let found = operation.names().iter().any(|name| name.contains("=#"));
    if found && slapd.code == ResultCode::InvalidDnSyntax {
        *slapd = sapwood.clone();
    }
}

fn unknown_types_in_names(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let is_unknown = |rdn: Rdn<'_>| rdn.avas().any(|ava| ava.attribute().starts_with("nosuch"));
    let found = |name: &&str| Dn::parse(name).is_ok_and(|dn| dn.rdns().any(is_unknown));
    let codes = [
        ResultCode::NoSuchObject,
        ResultCode::UndefinedAttributeType,
        ResultCode::UnwillingToPerform,
    ];
    let known = codes.contains(&sapwood.code);
    if slapd.code == ResultCode::InvalidDnSyntax && operation.names().iter().any(found) && known {
        *slapd = sapwood.clone();
    }
}

fn matched_dn(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let expected = match operation {
        Operation::ModifyDn { .. } => ResultCode::NoSuchObject,
        Operation::Add { .. } => ResultCode::AliasProblem,
        _ => return,
    };
    if slapd.code == expected && sapwood.code == expected && slapd.matched_dn.is_empty() {
        slapd.matched_dn.clone_from(&sapwood.matched_dn);
    }
}

fn referrals_without_name(_: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let bare = "ldap://three.example";
    if slapd.code == ResultCode::Referral
        && slapd.referral == BTreeSet::from([bare.to_owned()])
        && sapwood.referral.iter().all(|uri| uri.starts_with(bare))
    {
        slapd.referral.clone_from(&sapwood.referral);
    }
}

fn values_of_the_rdn(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let codes = (slapd.code, sapwood.code);
    if let Operation::Modify { .. } = operation
        && codes == (ResultCode::NamingViolation, ResultCode::NotAllowedOnRdn)
    {
        slapd.code = sapwood.code;
    }
}

fn order_of_checks(operation: &Operation, slapd: &mut Answer, sapwood: &mut Answer) {
    let is_search = matches!(operation, Operation::Search { .. });
    if !is_search
        && is_refusal(slapd.code)
        && is_refusal(sapwood.code)
        && slapd.code != sapwood.code
    {
        *slapd = sapwood.clone();
    }
}

/// Whether the code says that the client asked for something that cannot be.
fn is_refusal(code: ResultCode) -> bool {
    matches!(
        code,
        ResultCode::ProtocolError
            | ResultCode::Referral
            | ResultCode::NoSuchAttribute
            | ResultCode::UndefinedAttributeType
            | ResultCode::InappropriateMatching
            | ResultCode::ConstraintViolation
            | ResultCode::AttributeOrValueExists
            | ResultCode::InvalidAttributeSyntax
            | ResultCode::NoSuchObject
            | ResultCode::AliasProblem
            | ResultCode::InvalidDnSyntax
            | ResultCode::UnwillingToPerform
            | ResultCode::NamingViolation
            | ResultCode::ObjectClassViolation
            | ResultCode::NotAllowedOnNonLeaf
            | ResultCode::NotAllowedOnRdn
            | ResultCode::EntryAlreadyExists
            | ResultCode::ObjectClassModsProhibited
            | ResultCode::AffectsMultipleDsas
    )
}
