//! Attribute syntaxes (RFC 4517 §3, and those of RFC 2307, 3112, 3672, 4523 and 4530).

#![deny(clippy::indexing_slicing)]

mod authz;
mod composite;
mod der;
mod subtree;
mod text;
pub(super) mod time;

use super::Schema;

pub(super) use authz::key as authz_key;
pub(crate) use authz::{AuthzRule, AuthzScope};
pub(super) use composite::{first_component, split_optional_uid, substring_parts};
pub(super) use der::{IssuerAndSerial, certificate_issuer_and_serial, gser_issuer_and_serial};
pub(crate) use subtree::{Refinement, SubtreeSpecification};
pub(super) use text::{bits, uuid_bytes};

/// Why a value is not of a syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {syntax}: {reason}")]
pub struct InvalidValue {
    /// The name of the syntax, as in RFC 4517.
    pub syntax: &'static str,
    /// What is wrong.
    pub reason: &'static str,
}

/// What is wrong with a value.
type Reason = &'static str;

type Validator = fn(&Schema, &[u8]) -> Result<(), Reason>;

/// An attribute syntax. All syntaxes are built in: [`Syntax::find`].
pub struct Syntax {
    oid: &'static str,
    description: &'static str,
    binary: bool,
    validator: Validator,
}

impl std::fmt::Debug for Syntax {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.description, self.oid)
    }
}

impl Syntax {
    /// The syntax with this dotted-decimal OID.
    pub fn find(oid: &str) -> Option<&'static Syntax> {
        SYNTAXES.iter().find(|syntax| syntax.oid == oid)
    }

    /// All syntaxes.
    pub fn all() -> &'static [Syntax] {
        SYNTAXES
    }

    /// The object identifier in dotted-decimal form.
    pub fn oid(&self) -> &'static str {
        self.oid
    }

    /// The description, as in RFC 4517.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Whether values are not readable text (`X-NOT-HUMAN-READABLE`).
    pub fn is_binary(&self) -> bool {
        self.binary
    }

    /// Whether values are ASN.1 that is transferred with the option `;binary` (RFC 4522, RFC 4523 §2).
    pub fn requires_binary_transfer(&self) -> bool {
        matches!(
            self.oid,
            "1.3.6.1.4.1.1466.115.121.1.8"
                | "1.3.6.1.4.1.1466.115.121.1.9"
                | "1.3.6.1.4.1.1466.115.121.1.10"
                | "1.3.6.1.4.1.1466.115.121.1.49"
        )
    }

    /// Whether values are distinguished names, possibly with an identifier.
    pub fn is_name(&self) -> bool {
        matches!(
            self.oid,
            "1.3.6.1.4.1.1466.115.121.1.12" | "1.3.6.1.4.1.1466.115.121.1.34"
        )
    }

    /// Whether any ASCII text but the empty one is a value.
    pub(super) fn takes_any_ascii(&self) -> bool {
        matches!(
            self.oid,
            "1.3.6.1.4.1.1466.115.121.1.15" | "1.3.6.1.4.1.1466.115.121.1.26"
        )
    }

    /// Checks a value. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// When the value is not of this syntax.
    pub fn validate(&self, schema: &Schema, value: &[u8]) -> Result<(), InvalidValue> {
        (self.validator)(schema, value).map_err(|reason| self.invalid(reason))
    }

    pub(super) fn invalid(&self, reason: Reason) -> InvalidValue {
        InvalidValue {
            syntax: self.description,
            reason,
        }
    }
}

const fn readable(oid: &'static str, description: &'static str, validator: Validator) -> Syntax {
    Syntax {
        oid,
        description,
        binary: false,
        validator,
    }
}

const fn binary(oid: &'static str, description: &'static str, validator: Validator) -> Syntax {
    Syntax {
        oid,
        description,
        binary: true,
        validator,
    }
}

macro_rules! declare {
    ($($name:ident = $make:ident($oid:expr, $description:expr, $validator:expr);)*) => {
        /// Positions in the table of syntaxes, for the matching rules to name theirs.
        #[allow(dead_code, reason = "those that no rule names count too")]
        #[derive(Debug, Clone, Copy)]
        pub(super) enum At { $($name,)* }
        static SYNTAXES: &[Syntax] = &[$($make($oid, $description, $validator),)*];
    };
}

impl At {
    /// The syntax at this position.
    pub(super) fn syntax(self) -> &'static Syntax {
        // The table and the positions are made by the same macro.
        SYNTAXES
            .get(self as usize)
            .unwrap_or_else(|| unreachable!("a position in the table"))
    }
}

declare! {
    AttributeTypeDescription = readable("1.3.6.1.4.1.1466.115.121.1.3", "Attribute Type Description", composite::attribute_type_description);
    Audio = binary("1.3.6.1.4.1.1466.115.121.1.4", "Audio", text::octets);
    Binary = binary("1.3.6.1.4.1.1466.115.121.1.5", "Binary", text::octets);
    BitString = readable("1.3.6.1.4.1.1466.115.121.1.6", "Bit String", text::bit_string);
    Boolean = readable("1.3.6.1.4.1.1466.115.121.1.7", "Boolean", text::boolean);
    Certificate = binary("1.3.6.1.4.1.1466.115.121.1.8", "X.509 Certificate", der::certificate);
    CertificateList = binary("1.3.6.1.4.1.1466.115.121.1.9", "X.509 Certificate List", der::sequence);
    CertificatePair = binary("1.3.6.1.4.1.1466.115.121.1.10", "X.509 Certificate Pair", der::sequence);
    CountryString = readable("1.3.6.1.4.1.1466.115.121.1.11", "Country String", text::country_string);
    Dn = readable("1.3.6.1.4.1.1466.115.121.1.12", "DN", composite::dn);
    DeliveryMethod = readable("1.3.6.1.4.1.1466.115.121.1.14", "Delivery Method", composite::delivery_method);
    DirectoryString = readable("1.3.6.1.4.1.1466.115.121.1.15", "Directory String", text::directory_string);
    ContentRuleDescription = readable("1.3.6.1.4.1.1466.115.121.1.16", "DIT Content Rule Description", composite::content_rule_description);
    StructureRuleDescription = readable("1.3.6.1.4.1.1466.115.121.1.17", "DIT Structure Rule Description", composite::structure_rule_description);
    EnhancedGuide = readable("1.3.6.1.4.1.1466.115.121.1.21", "Enhanced Guide", composite::enhanced_guide);
    FacsimileTelephoneNumber = readable("1.3.6.1.4.1.1466.115.121.1.22", "Facsimile Telephone Number", composite::facsimile_telephone_number);
    Fax = binary("1.3.6.1.4.1.1466.115.121.1.23", "Fax", text::octets);
    GeneralizedTime = readable("1.3.6.1.4.1.1466.115.121.1.24", "Generalized Time", time::generalized_time);
    Guide = readable("1.3.6.1.4.1.1466.115.121.1.25", "Guide", composite::guide);
    Ia5String = readable("1.3.6.1.4.1.1466.115.121.1.26", "IA5 String", text::ia5_string);
    Integer = readable("1.3.6.1.4.1.1466.115.121.1.27", "INTEGER", text::integer);
    Jpeg = binary("1.3.6.1.4.1.1466.115.121.1.28", "JPEG", text::octets);
    MatchingRuleDescription = readable("1.3.6.1.4.1.1466.115.121.1.30", "Matching Rule Description", composite::matching_rule_description);
    MatchingRuleUseDescription = readable("1.3.6.1.4.1.1466.115.121.1.31", "Matching Rule Use Description", composite::matching_rule_use_description);
    NameAndOptionalUid = readable("1.3.6.1.4.1.1466.115.121.1.34", "Name And Optional UID", composite::name_and_optional_uid);
    NameFormDescription = readable("1.3.6.1.4.1.1466.115.121.1.35", "Name Form Description", composite::name_form_description);
    NumericString = readable("1.3.6.1.4.1.1466.115.121.1.36", "Numeric String", text::numeric_string);
    ObjectClassDescription = readable("1.3.6.1.4.1.1466.115.121.1.37", "Object Class Description", composite::object_class_description);
    Oid = readable("1.3.6.1.4.1.1466.115.121.1.38", "OID", text::oid);
    OtherMailbox = readable("1.3.6.1.4.1.1466.115.121.1.39", "Other Mailbox", composite::other_mailbox);
    OctetString = readable("1.3.6.1.4.1.1466.115.121.1.40", "Octet String", text::octets);
    PostalAddress = readable("1.3.6.1.4.1.1466.115.121.1.41", "Postal Address", composite::postal_address);
    PrintableString = readable("1.3.6.1.4.1.1466.115.121.1.44", "Printable String", text::printable_string);
    SubtreeSpecification = readable("1.3.6.1.4.1.1466.115.121.1.45", "SubtreeSpecification", subtree::validate);
    SupportedAlgorithm = binary("1.3.6.1.4.1.1466.115.121.1.49", "X.509 Supported Algorithm", der::sequence);
    TelephoneNumber = readable("1.3.6.1.4.1.1466.115.121.1.50", "Telephone Number", text::printable_string);
    TeletexTerminalIdentifier = readable("1.3.6.1.4.1.1466.115.121.1.51", "Teletex Terminal Identifier", composite::teletex_terminal_identifier);
    TelexNumber = readable("1.3.6.1.4.1.1466.115.121.1.52", "Telex Number", composite::telex_number);
    UtcTime = readable("1.3.6.1.4.1.1466.115.121.1.53", "UTC Time", time::utc_time);
    SyntaxDescription = readable("1.3.6.1.4.1.1466.115.121.1.54", "LDAP Syntax Description", composite::syntax_description);
    SubstringAssertion = readable("1.3.6.1.4.1.1466.115.121.1.58", "Substring Assertion", composite::substring_assertion);
    NisNetgroupTriple = readable("1.3.6.1.1.1.0.0", "NIS netgroup triple", composite::nis_netgroup_triple);
    BootParameter = readable("1.3.6.1.1.1.0.1", "Boot parameter", composite::boot_parameter);
    CertificateExactAssertion = readable("1.3.6.1.1.15.1", "X.509 Certificate Exact Assertion", der::certificate_exact_assertion);
    Uuid = readable("1.3.6.1.1.16.1", "UUID", text::uuid);
    AuthPassword = readable("1.3.6.1.4.1.4203.1.1.2", "Authentication Password", composite::auth_password);
    Csn = readable("1.3.6.1.4.1.4203.666.11.2.1", "CSN", composite::csn);
    Authz = readable("1.3.6.1.4.1.4203.666.2.7", "OpenLDAP authz", authz::validate);
}

#[cfg(test)]
pub(super) mod tests;
