//! The operational attributes (RFC 4512 §3.4, §4.2, §5.1), a line each: what they are called, what their values look
//! like, who writes them, and where their values come from. The schema has its definitions from here, and what
//! stores, computes, imports or exports such attributes asks here which they are.

use super::{AttributeType, AttributeTypeId, Schema};

/// How many values an entry may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    Many,
}

/// Who may write the values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// The directory alone (`NO-USER-MODIFICATION`).
    Directory,
    /// Clients, too. Of what only synthetic entries have, RFC 4512 does not say otherwise.
    Clients,
}

/// Where the values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the entry's object classes, when it is added. An import works it out anew.
    Classes,
    /// From the update that adds the entry.
    Added,
    /// From the update that added or changed the entry last.
    Changed,
    /// From the tree, when they are read ([`crate::virtual_attributes`]).
    Computed,
    /// From the server: synthetic entries have them ([`crate::synthetic`]).
    Synthetic,
    /// From clients.
    Clients,
    /// From the clock, when the entry is added or refreshed ([`crate::update`]).
    Lifetime,
    /// From binds and changes of passwords ([`crate::password_policy`]); some also from administrators.
    Passwords,
}

/// An attribute that clients see when they ask for it.
struct Definition {
    oid: &'static str,
    name: &'static str,
    /// Matching rules and syntax.
    form: &'static str,
    count: Count,
    usage: &'static str,
    writer: Writer,
    source: Source,
}

impl Definition {
    /// In the language of RFC 4512 §4.1.2, as a line of a schema file.
    fn directive(&self) -> String {
        let Definition {
            oid,
            name,
            form,
            usage,
            ..
        } = self;
        let count = match self.count {
            Count::One => " SINGLE-VALUE",
            Count::Many => "",
        };
        let writer = match self.writer {
            Writer::Directory => " NO-USER-MODIFICATION",
            Writer::Clients => "",
        };
        format!("attributetype ( {oid} NAME '{name}' {form}{count}{writer} USAGE {usage} )\n")
    }
}

/// Values of a syntax of RFC 4517 §3.3 without matching rules.
macro_rules! values {
    ($syntax:literal) => {
        concat!("SYNTAX 1.3.6.1.4.1.1466.115.121.1.", $syntax)
    };
}

/// The same with an equality rule.
macro_rules! equal {
    ($rule:literal $syntax:literal) => {
        concat!("EQUALITY ", $rule, " ", values!($syntax))
    };
}

/// Descriptions of schema elements, which are found by the object identifier they begin with.
macro_rules! described {
    ($syntax:literal) => {
        equal!("objectIdentifierFirstComponentMatch" $syntax)
    };
}

const DN: &str = equal!("distinguishedNameMatch" "12");
const OBJECT_ID: &str = equal!("objectIdentifierMatch" "38");
const BOOLEAN: &str = equal!("booleanMatch" "7");
const TEXT: &str = equal!("caseExactMatch" "15");
const TIME: &str = concat!(
    "EQUALITY generalizedTimeMatch ORDERING generalizedTimeOrderingMatch ",
    values!("24")
);
const NUMBER: &str = concat!(
    "EQUALITY integerMatch ORDERING integerOrderingMatch ",
    values!("27")
);
const UUID: &str = "EQUALITY UUIDMatch ORDERING UUIDOrderingMatch SYNTAX 1.3.6.1.1.16.1";
const CSN: &str =
    "EQUALITY CSNMatch ORDERING CSNOrderingMatch SYNTAX 1.3.6.1.4.1.4203.666.11.2.1{64}";

/// Who may act as whom, as OpenLDAP has it.
const AUTHZ: &str = "EQUALITY authzMatch SYNTAX 1.3.6.1.4.1.4203.666.2.7";

/// Numbers that change by themselves (RFC 2589 §3).
const TTL: &str = values!("27");

/// Times of which nobody asks which is earlier.
const EVENT: &str = concat!("EQUALITY generalizedTimeMatch ", values!("24"));
const OCTETS: &str = equal!("octetStringMatch" "40");

const DIRECTORY: &str = "directoryOperation";
const SERVER: &str = "dSAOperation";
const SHARED: &str = "distributedOperation";

macro_rules! operational_attributes {
    ($($attribute:ident: $oid:literal, $name:literal, $form:expr, $count:ident, $usage:ident, $writer:ident,
        $source:ident;)*) => {
        /// An operational attribute.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum OperationalAttribute {
            $(#[doc = concat!("`", $name, "`.")] $attribute,)*
        }

        impl OperationalAttribute {
            /// All of them, in their order.
            const ALL: &'static [OperationalAttribute] = &[$(OperationalAttribute::$attribute),*];
            const DEFINITIONS: &'static [Definition] = &[$(Definition {
                oid: $oid,
                name: $name,
                form: $form,
                count: Count::$count,
                usage: $usage,
                writer: Writer::$writer,
                source: Source::$source,
            }),*];
        }
    };
}

operational_attributes! {
    // What the directory keeps of each entry, in the order in which it is spelled out (RFC 4512 §3.4, RFC 4530,
    // draft-chu-ldap-csn with the identifiers in use).
    StructuralObjectClass: "2.5.21.9", "structuralObjectClass", OBJECT_ID, One, DIRECTORY, Directory, Classes;
    EntryUuid: "1.3.6.1.1.16.4", "entryUUID", UUID, One, DIRECTORY, Directory, Added;
    CreatorsName: "2.5.18.3", "creatorsName", DN, One, DIRECTORY, Directory, Added;
    CreateTimestamp: "2.5.18.1", "createTimestamp", TIME, One, DIRECTORY, Directory, Added;
    ModifiersName: "2.5.18.4", "modifiersName", DN, One, DIRECTORY, Directory, Changed;
    ModifyTimestamp: "2.5.18.2", "modifyTimestamp", TIME, One, DIRECTORY, Directory, Changed;
    EntryCsn: "1.3.6.1.4.1.4203.666.1.7", "entryCSN", CSN, One, DIRECTORY, Directory, Changed;

    // What follows from the tree and from groups (RFC 5020, RFC 4512 §4.2, X.501 §14.4.4,
    // draft-ietf-boreham-numsubordinates).
    ContextCsn: "1.3.6.1.4.1.4203.666.1.25", "contextCSN", CSN, Many, SERVER, Directory, Computed;
    EntryTtl: "1.3.6.1.4.1.1466.101.119.3", "entryTtl", TTL, One, SERVER, Directory, Computed;
    EntryDn: "1.3.6.1.1.20", "entryDN", DN, One, DIRECTORY, Directory, Computed;
    HasSubordinates: "2.5.18.9", "hasSubordinates", BOOLEAN, One, DIRECTORY, Directory, Computed;
    MemberOf: "1.2.840.113556.1.2.102", "memberOf", DN, Many, SERVER, Directory, Computed;
    NumSubordinates: "1.3.6.1.4.1.453.16.2.103", "numSubordinates", NUMBER, One, DIRECTORY, Directory, Computed;
    ParentUuid: "2.25.97082539948802591538253112871486040622", "parentUUID", UUID, One, DIRECTORY, Directory, Computed;
    EntryRegisters: "2.25.167137997156415884014571049889043504375", "entryRegisters", OCTETS, One, SERVER, Directory,
        Computed;
    SubschemaSubentry: "2.5.18.10", "subschemaSubentry", DN, One, DIRECTORY, Directory, Computed;

    // What is kept of binds and failures besides the entries (draft-behera-ldap-password-policy §5.3).
    PwdFailureTime: "1.3.6.1.4.1.42.2.27.8.1.19", "pwdFailureTime", TIME, Many, DIRECTORY, Directory, Computed;
    PwdLastSuccess: "1.3.6.1.4.1.42.2.27.8.1.29", "pwdLastSuccess", TIME, One, DIRECTORY, Directory, Computed;
    PwdAccountTmpLockoutEnd: "1.3.6.1.4.1.42.2.27.8.1.33", "pwdAccountTmpLockoutEnd", TIME, One, DIRECTORY, Directory,
        Computed;

    // When a dynamic entry ends (RFC 2589), as OpenLDAP keeps it.
    EntryExpireTimestamp: "1.3.6.1.4.1.4203.666.1.57", "entryExpireTimestamp", TIME, One, SERVER, Directory, Lifetime;

    // What is kept of passwords with the entries.
    PwdChangedTime: "1.3.6.1.4.1.42.2.27.8.1.16", "pwdChangedTime", TIME, One, DIRECTORY, Directory, Passwords;
    PwdAccountLockedTime: "1.3.6.1.4.1.42.2.27.8.1.17", "pwdAccountLockedTime", TIME, One, DIRECTORY, Clients,
        Passwords;
    PwdHistory: "1.3.6.1.4.1.42.2.27.8.1.20", "pwdHistory", OCTETS, Many, DIRECTORY, Directory, Passwords;
    PwdGraceUseTime: "1.3.6.1.4.1.42.2.27.8.1.21", "pwdGraceUseTime", EVENT, Many, DIRECTORY, Directory, Passwords;
    PwdReset: "1.3.6.1.4.1.42.2.27.8.1.22", "pwdReset", BOOLEAN, One, DIRECTORY, Clients, Passwords;
    PwdPolicySubentry: "1.3.6.1.4.1.42.2.27.8.1.23", "pwdPolicySubentry", DN, One, DIRECTORY, Clients, Passwords;
    PwdStartTime: "1.3.6.1.4.1.42.2.27.8.1.27", "pwdStartTime", TIME, One, DIRECTORY, Clients, Passwords;
    PwdEndTime: "1.3.6.1.4.1.42.2.27.8.1.28", "pwdEndTime", TIME, One, DIRECTORY, Clients, Passwords;

    // What clients write (RFC 3296, RFC 3672, RFC 3671, and who may act as whom as OpenLDAP has it).
    Ref: "2.16.840.1.113730.3.1.34", "ref", TEXT, Many, SHARED, Clients, Clients;
    AuthzTo: "1.3.6.1.4.1.4203.666.1.8", "authzTo", AUTHZ, Many, SHARED, Clients, Clients;
    AuthzFrom: "1.3.6.1.4.1.4203.666.1.9", "authzFrom", AUTHZ, Many, SHARED, Clients, Clients;
    AdministrativeRole: "2.5.18.5", "administrativeRole", OBJECT_ID, Many, DIRECTORY, Clients, Clients;
    SubtreeSpecification: "2.5.18.6", "subtreeSpecification", values!("45"), One, DIRECTORY, Clients, Clients;
    CollectiveExclusions: "2.5.18.7", "collectiveExclusions", OBJECT_ID, Many, DIRECTORY, Clients, Clients;
    CollectiveAttributeSubentries: "2.5.18.12", "collectiveAttributeSubentries", DN, Many, DIRECTORY,
        Directory, Computed;

    // The schema (RFC 4512 §4.2).
    GoverningStructureRule: "2.5.21.10", "governingStructureRule", equal!("integerMatch" "27"), One, DIRECTORY,
        Directory, Computed;
    ObjectClasses: "2.5.21.6", "objectClasses", described!("37"), Many, DIRECTORY, Clients, Synthetic;
    AttributeTypes: "2.5.21.5", "attributeTypes", described!("3"), Many, DIRECTORY, Clients, Synthetic;
    MatchingRules: "2.5.21.4", "matchingRules", described!("30"), Many, DIRECTORY, Clients, Synthetic;
    MatchingRuleUse: "2.5.21.8", "matchingRuleUse", described!("31"), Many, DIRECTORY, Clients, Synthetic;
    LdapSyntaxes: "1.3.6.1.4.1.1466.101.120.16", "ldapSyntaxes", described!("54"), Many, DIRECTORY, Clients, Synthetic;
    DitContentRules: "2.5.21.2", "dITContentRules", described!("16"), Many, DIRECTORY, Clients, Synthetic;
    DitStructureRules: "2.5.21.1", "dITStructureRules", equal!("integerFirstComponentMatch" "17"), Many, DIRECTORY,
        Clients, Synthetic;
    NameForms: "2.5.21.7", "nameForms", described!("35"), Many, DIRECTORY, Clients, Synthetic;

    // The server (RFC 4512 §5.1, RFC 3045, RFC 3112). No document defines defaultNamingContext, and other servers have
    // it: the naming context of who asks for no other one.
    AltServer: "1.3.6.1.4.1.1466.101.120.6", "altServer", values!("26"), Many, SERVER, Clients, Synthetic;
    NamingContexts: "1.3.6.1.4.1.1466.101.120.5", "namingContexts", values!("12"), Many, SERVER, Clients, Synthetic;
    DefaultNamingContext: "2.25.193152250175522431337983128426972842962", "defaultNamingContext", DN, One, SERVER,
        Directory, Synthetic;
    SupportedControl: "1.3.6.1.4.1.1466.101.120.13", "supportedControl", values!("38"), Many, SERVER, Clients,
        Synthetic;
    SupportedExtension: "1.3.6.1.4.1.1466.101.120.7", "supportedExtension", values!("38"), Many, SERVER, Clients,
        Synthetic;
    SupportedFeatures: "1.3.6.1.4.1.4203.1.3.5", "supportedFeatures", OBJECT_ID, Many, SERVER, Clients, Synthetic;
    SupportedLdapVersion: "1.3.6.1.4.1.1466.101.120.15", "supportedLDAPVersion", values!("27"), Many, SERVER, Clients,
        Synthetic;
    SupportedSaslMechanisms: "1.3.6.1.4.1.1466.101.120.14", "supportedSASLMechanisms", values!("15"), Many, SERVER,
        Clients, Synthetic;
    DynamicSubtrees: "1.3.6.1.4.1.1466.101.119.4", "dynamicSubtrees", values!("12"), Many, SERVER, Directory, Synthetic;
    VendorName: "1.3.6.1.1.4", "vendorName", TEXT, One, SERVER, Directory, Synthetic;
    VendorVersion: "1.3.6.1.1.5", "vendorVersion", TEXT, One, SERVER, Directory, Synthetic;
    SupportedAuthPasswordSchemes: "1.3.6.1.4.1.4203.1.3.3", "supportedAuthPasswordSchemes",
        concat!("EQUALITY caseExactIA5Match ", values!("26"), "{32}"), Many, SERVER, Clients, Synthetic;
}

/// How many there are.
pub(super) const OPERATIONAL_ATTRIBUTES: usize = OperationalAttribute::ALL.len();

impl OperationalAttribute {
    /// Those that every entry of the tree is stored with.
    pub(crate) const STORED: [OperationalAttribute; 7] =
        OperationalAttribute::of_sources(&[Source::Classes, Source::Added, Source::Changed]);

    /// Those of them that every change of an entry changes.
    pub(crate) const CHANGED: [OperationalAttribute; 3] =
        OperationalAttribute::of_sources(&[Source::Changed]);

    /// Those that are computed when they are read.
    pub(crate) const COMPUTED: [OperationalAttribute; 14] =
        OperationalAttribute::of_sources(&[Source::Computed]);

    /// The `N` attributes whose values come from these sources.
    const fn of_sources<const N: usize>(sources: &[Source]) -> [OperationalAttribute; N] {
        let mut found = [OperationalAttribute::ALL[0]; N];
        let (mut at, mut count) = (0, 0);
        while at < OPERATIONAL_ATTRIBUTES {
            let mut source = 0;
            while source < sources.len() {
                if OperationalAttribute::DEFINITIONS[at].source as u8 == sources[source] as u8 {
                    found[count] = OperationalAttribute::ALL[at];
                    count += 1;
                }
                source += 1;
            }
            at += 1;
        }
        assert!(count == N, "the table has another number of them");
        found
    }

    /// The definitions as a schema file.
    pub(super) fn schema_file() -> String {
        let definitions = OperationalAttribute::DEFINITIONS.iter();
        definitions.map(Definition::directive).collect()
    }

    /// The attribute types of all of them.
    pub(super) fn resolve<E>(
        find: impl Fn(&'static str) -> Result<AttributeTypeId, E>,
    ) -> Result<[AttributeTypeId; OPERATIONAL_ATTRIBUTES], E> {
        let mut types = [AttributeTypeId(0); OPERATIONAL_ATTRIBUTES];
        for (found, definition) in types.iter_mut().zip(OperationalAttribute::DEFINITIONS) {
            *found = find(definition.oid)?;
        }
        Ok(types)
    }

    /// Where the values come from.
    pub(crate) fn source(self) -> Source {
        OperationalAttribute::DEFINITIONS[self as usize].source
    }
}

impl Schema {
    /// The type of an operational attribute.
    #[inline]
    pub(crate) fn operational(&self, attribute: OperationalAttribute) -> AttributeTypeId {
        self.content.operational[attribute as usize]
    }

    /// The operational attribute of a type, if it is one that the directory knows.
    pub(crate) fn as_operational(&self, id: AttributeTypeId) -> Option<OperationalAttribute> {
        let mut all = OperationalAttribute::ALL.iter().copied();
        all.find(|attribute| self.operational(*attribute) == id)
    }

    /// Whether values of a type are computed when they are read, and stand nowhere.
    pub(crate) fn is_computed(&self, id: AttributeTypeId) -> bool {
        let known = self.as_operational(id);
        known.is_some_and(|known| known.source() == Source::Computed)
    }

    /// Whether a description is of a collective attribute (RFC 3671), with options or without.
    pub fn is_collective(&self, description: &[u8]) -> bool {
        let name = description.split(|byte| *byte == b';').next();
        let known = self.attribute_type(name.unwrap_or_default());
        known.is_some_and(AttributeType::is_collective)
    }

    /// Whether the values of an attribute follow from other attributes and from the place of its entry, so that an
    /// export leaves it out, and an import works it out anew. `name` is its name or OID, without options.
    pub fn is_derived(&self, name: &[u8]) -> bool {
        let known = self.attribute_type(name);
        let known = known.filter(|known| known.is_operational());
        let known = known.and_then(|known| self.as_operational(known.id()));
        known.is_some_and(|known| matches!(known.source(), Source::Classes | Source::Computed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_what_the_schema_says() {
        let schema = Schema::standard();
        for (attribute, definition) in OperationalAttribute::ALL
            .iter()
            .zip(OperationalAttribute::DEFINITIONS)
        {
            let known = schema.type_of(schema.operational(*attribute));
            assert_eq!(known.name(), definition.name);
            assert_eq!(known.oid(), definition.oid);
            assert!(known.is_operational() && known.syntax().is_some());
            assert_eq!(schema.as_operational(known.id()), Some(*attribute));
            let is_directory = definition.writer == Writer::Directory;
            assert_eq!(known.is_no_user_modification(), is_directory);
        }
        // There is no other list.
        for known in schema.attribute_types() {
            let is_listed = schema.as_operational(known.id()).is_some();
            assert_eq!(is_listed, known.is_operational(), "{}", known.name());
        }
    }

    #[test]
    fn what_is_derived_is_told_by_any_name() {
        let schema = Schema::standard();
        for name in [
            "entryDN",
            "ENTRYDN",
            "1.3.6.1.1.20",
            "structuralObjectClass",
            "contextCSN",
        ] {
            assert!(schema.is_derived(name.as_bytes()), "{name}");
        }
        for name in ["entryUUID", "cn", "nonsense", "entryCSN"] {
            assert!(!schema.is_derived(name.as_bytes()), "{name}");
        }
    }
}
