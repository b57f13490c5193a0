//! Controls (RFC 4511 §4.1.11): those of a message as they come, and the table of those that are understood in
//! requests. A control is a file with its OIDs, the operations that it fits, its ASN.1 and how that is read and
//! written, and a line of [the table](KnownControl). What is unknown, misplaced, repeated or malformed is refused in
//! one place: [`RequestControls::read`].

#![deny(clippy::indexing_slicing)]

mod read_entry;
mod sync_done;
mod sync_state;

pub use account_usability::{
    ACCOUNT_USABILITY, AccountUsability, Unusable, account_usability_response,
};
pub use assertion::ASSERTION;
pub use attribute_scoped_query::{ATTRIBUTE_SCOPED_QUERY, put_attribute_scoped};
pub use authorization_identity::{
    AUTHORIZATION_IDENTITY, AUTHORIZATION_IDENTITY_RESPONSE, authorization_identity_response,
};
pub use content_digests::{
    BUCKETS, BucketSums, BucketSumsBuf, Buckets, BucketsBuf, CONTENT_DIGESTS, ContentDigests,
    ContentDigestsAnswer, DIGEST_KEY_BYTES, EntryDigest, SUM_BYTES,
};
pub use dereference::{
    DEREFERENCE, DEREFERENCE_ATTRIBUTES_MAX, DEREFERENCE_SPECS_MAX, Dereference,
    dereference_response, put_dereferenced,
};
pub use domain_scope::DOMAIN_SCOPE;
pub use dont_use_copy::DONT_USE_COPY;
pub use eager_transaction::EAGER_TRANSACTION;
pub use get_effective_rights::{GET_EFFECTIVE_RIGHTS, GetEffectiveRights};
pub use get_server_id::{GET_SERVER_ID, GET_SERVER_ID_RESPONSE, server_id_response};
pub use get_user_resource_limits::{
    GET_USER_RESOURCE_LIMITS, GET_USER_RESOURCE_LIMITS_RESPONSE, ResourceLimits,
    resource_limits_response,
};
pub use ignore_no_user_modification::IGNORE_NO_USER_MODIFICATION;
pub use lazy_commit::LAZY_COMMIT;
pub use manage_dsa_it::MANAGE_DSA_IT;
pub use matched_values::{MATCHED_VALUES, MATCHED_VALUES_ITEMS_MAX, MatchedValues};
pub use matching_entry_count::{
    EntryCount, MATCHING_ENTRY_COUNT, MATCHING_ENTRY_COUNT_RESPONSE, MatchingEntryCount,
    put_entry_count,
};
pub use no_op::NO_OP;
pub use non_transactional::NON_TRANSACTIONAL;
pub use paged_results::{PAGED_RESULTS, PagedResults};
pub use password_policy::{
    PASSWORD_EXPIRED, PASSWORD_EXPIRING, PASSWORD_POLICY, PasswordPolicyError,
    PasswordPolicyResponse, PasswordPolicyWarning, password_policy_response,
};
pub use password_validation_details::{
    CheckedRequirement, PASSWORD_VALIDATION_DETAILS, PASSWORD_VALIDATION_DETAILS_RESPONSE,
    PasswordValidation, PasswordValidationDetails, password_validation_response,
};
pub use permissive_modify::PERMISSIVE_MODIFY;
pub use persistent_search::{
    ChangeType, ChangeTypes, ENTRY_CHANGE_NOTIFICATION, EntryChange, PERSISTENT_SEARCH,
    PersistentSearch, entry_change_notification,
};
pub use post_read::POST_READ;
pub use pre_read::PRE_READ;
pub use proxied_authorization::{
    PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1, ProxiedAuthorization, Whom,
};
pub use queue_length::{QUEUE_LENGTH, put_queue_length, queue_length};
pub use read_entry::ReadEntry;
pub use real_attributes_only::REAL_ATTRIBUTES_ONLY;
pub use relax_rules::RELAX_RULES;
pub use session_tracking::{SESSION_TRACKING, SessionTracking};
pub use sort::{
    SORT_KEYS_MAX, SORT_REQUEST, SORT_RESPONSE, Sort, SortKey, SortKeys, SortResult, put_sort_keys,
};
pub use subentries::{SUBENTRIES, SUBENTRIES_OF_DRAFT};
pub use sync_done::{SYNC_DONE, SyncDone};
pub use sync_request::{SYNC_REQUEST, SyncMode, SyncRequest};
pub(crate) use sync_state::sync_uuid;
pub use sync_state::{EntryState, SYNC_STATE, SyncState};
pub use transaction_specification::TRANSACTION_SPECIFICATION;
pub use tree_delete::TREE_DELETE;
pub use value_sort::VALUE_SORT;
pub use virtual_attributes_only::VIRTUAL_ATTRIBUTES_ONLY;
pub use virtual_list_view::{
    LIST_VIEW_REQUEST, LIST_VIEW_RESPONSE, ListTarget, ListView, ListViewResult,
};
pub use what_failed::{WHAT_FAILED, WHAT_FAILED_OIDS_MAX, put_what_failed, what_failed};

use crate::ber::{self, Reader, utf8};
use crate::error::{Malformed, PartError, Violation};
use crate::limits::CONTROLS_MAX;
use crate::operation::Operation;
use crate::result_code::ResultCode;

macro_rules! known_controls {
    ($($name:ident $file:ident)*) => {
        $(mod $file;)*

        /// A control that is understood in requests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum KnownControl {
            $(#[doc = concat!("See `controls/", stringify!($file), ".rs`.")] $name,)*
        }

        impl KnownControl {
            /// All of them.
            pub const ALL: &[KnownControl] = &[$(KnownControl::$name),*];

            const fn spec(self) -> &'static Spec {
                match self {
                    $(KnownControl::$name => &$file::SPEC,)*
                }
            }
        }

        /// The controls of a request, decoded.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct RequestControls<'m> {
            $(#[doc = concat!("See `controls/", stringify!($file), ".rs`.")]
            pub $file: Option<$file::Value<'m>>,)*
        }

        impl<'m> RequestControls<'m> {
            /// No controls.
            pub const NONE: RequestControls<'static> = RequestControls { $($file: None),* };

            fn set(&mut self, known: KnownControl, control: &Control<'m>) -> Result<(), Fault> {
                match known {
                    $(KnownControl::$name => match self.$file {
                        None => self.$file = Some($file::decode(control)?),
                        Some(_) => return Err(Fault::Repeated),
                    },)*
                }
                Ok(())
            }
        }
    };
}

known_controls! {
    AccountUsability account_usability
    Assertion assertion
    AttributeScopedQuery attribute_scoped_query
    AuthorizationIdentity authorization_identity
    ContentDigests content_digests
    Dereference dereference
    DomainScope domain_scope
    DontUseCopy dont_use_copy
    EagerTransaction eager_transaction
    GetEffectiveRights get_effective_rights
    GetServerId get_server_id
    GetUserResourceLimits get_user_resource_limits
    IgnoreNoUserModification ignore_no_user_modification
    LazyCommit lazy_commit
    ManageDsaIt manage_dsa_it
    MatchedValues matched_values
    MatchingEntryCount matching_entry_count
    NoOp no_op
    NonTransactional non_transactional
    PagedResults paged_results
    PasswordPolicy password_policy
    PasswordValidationDetails password_validation_details
    PermissiveModify permissive_modify
    PersistentSearch persistent_search
    PostRead post_read
    PreRead pre_read
    ProxiedAuthorization proxied_authorization
    QueueLength queue_length
    RealAttributesOnly real_attributes_only
    RelaxRules relax_rules
    SessionTracking session_tracking
    Sort sort
    Subentries subentries
    SyncRequest sync_request
    TransactionSpecification transaction_specification
    TreeDelete tree_delete
    ValueSort value_sort
    VirtualAttributesOnly virtual_attributes_only
    VirtualListView virtual_list_view
    WhatFailed what_failed
}

/// What a control's file says of it.
struct Spec {
    /// Its OIDs; several if it had others before.
    oids: &'static [&'static str],
    /// The operations that it fits. An extended operation takes others besides, as its own table says.
    operations: &'static [Operation],
    layer: Layer,
}

/// What honours a control.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// The session that the request comes on.
    Session,
    /// The directory.
    Directory,
}

/// Operations that have a response.
const OF_ANSWERED: &[Operation] = &[
    Operation::Bind,
    Operation::Search,
    Operation::Compare,
    Operation::Add,
    Operation::Modify,
    Operation::Delete,
    Operation::ModifyDn,
    Operation::Extended,
];

/// Operations that change an entry.
const OF_UPDATES: &[Operation] = &[
    Operation::Add,
    Operation::Modify,
    Operation::Delete,
    Operation::ModifyDn,
];

impl KnownControl {
    /// The control with an OID.
    pub fn of(oid: &str) -> Option<KnownControl> {
        let mut all = KnownControl::ALL.iter().copied();
        all.find(|known| known.oids().contains(&oid))
    }

    /// Its OIDs.
    pub const fn oids(self) -> &'static [&'static str] {
        self.spec().oids
    }

    /// Whether the session honours it, so that the directory passes it over.
    pub fn is_of_session(self) -> bool {
        self.spec().layer == Layer::Session
    }
}

/// A set of known controls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlSet(u64);

const _: () = assert!(KnownControl::ALL.len() <= u64::BITS as usize);

impl ControlSet {
    /// None.
    pub const EMPTY: ControlSet = ControlSet(0);

    /// Those that fit an operation.
    pub fn of(operation: Operation) -> ControlSet {
        let fits = |known: &&KnownControl| known.spec().operations.contains(&operation);
        let all = KnownControl::ALL.iter().filter(fits);
        all.fold(ControlSet::EMPTY, |set, known| set.with(*known))
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, known: KnownControl) -> ControlSet {
        ControlSet(self.0 | 1 << known as u32)
    }

    /// With those of another set.
    #[must_use]
    pub const fn or(self, other: ControlSet) -> ControlSet {
        ControlSet(self.0 | other.0)
    }

    /// Whether it has this one.
    pub const fn has(self, known: KnownControl) -> bool {
        self.0 & 1 << known as u32 != 0
    }
}

/// Why a request is refused for one of its controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused<'m> {
    /// It is critical, and unknown or misplaced.
    #[error("the critical control {oid} is not known for this operation")]
    Unavailable {
        /// As it was sent.
        oid: &'m str,
    },
    /// It is not as it has to be.
    #[error("control {oid}: {fault}")]
    Faulty {
        /// As it was sent.
        oid: &'m str,
        /// What is wrong.
        fault: Fault,
    },
}

impl Refused<'_> {
    /// The result code to answer with (RFC 4511 §4.1.11).
    pub const fn code(&self) -> ResultCode {
        match self {
            Refused::Unavailable { .. } => ResultCode::UnavailableCriticalExtension,
            Refused::Faulty { .. } => ResultCode::ProtocolError,
        }
    }
}

/// What is wrong with a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The request has it twice.
    #[error("it is given twice")]
    Repeated,
    /// It must have a value.
    #[error("it has no value")]
    NoValue,
    /// It must not have a value.
    #[error("it must not have a value")]
    HasValue,
    /// It must be critical.
    #[error("it must be critical")]
    NotCritical,
    /// Its value.
    #[error(transparent)]
    Value(#[from] PartError),
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Fault::Value(violation.into())
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Fault::Value(malformed.into())
    }
}

impl<'m> RequestControls<'m> {
    /// Reads the controls of a request which takes those of a set. Others are ignored unless they are critical
    /// (RFC 4511 §4.1.11). Proxied authorization never is, and must be critical (RFC 4370 §3): otherwise somebody would
    /// do in their own name what was meant to be done in another's.
    ///
    /// # Errors
    /// For the first control that is in the way of the request.
    pub fn read(
        controls: impl Iterator<Item = Control<'m>>,
        takes: ControlSet,
    ) -> Result<RequestControls<'m>, Refused<'m>> {
        RequestControls::read_if(controls, |known| takes.has(known))
    }

    /// The same, of a request which takes a control if `takes` says so. It is asked about known controls that come, and
    /// no others.
    ///
    /// # Errors
    /// As [`RequestControls::read`].
    pub fn read_if(
        controls: impl Iterator<Item = Control<'m>>,
        mut takes: impl FnMut(KnownControl) -> bool,
    ) -> Result<RequestControls<'m>, Refused<'m>> {
        let mut read = RequestControls::NONE;
        for control in controls {
            let oid = control.oid;
            match KnownControl::of(oid).filter(|known| takes(*known)) {
                Some(known) => {
                    let set = read.set(known, &control);
                    set.map_err(|fault| Refused::Faulty { oid, fault })?;
                }
                None if control.critical => return Err(Refused::Unavailable { oid }),
                None if KnownControl::of(oid) == Some(KnownControl::ProxiedAuthorization) => {
                    let fault = Fault::NotCritical;
                    return Err(Refused::Faulty { oid, fault });
                }
                None => {}
            }
        }
        Ok(read)
    }
}

/// One control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// The control's OID.
    pub oid: &'a str,
    /// Whether the operation must fail if the control is not honoured.
    pub critical: bool,
    /// What the control defines.
    pub value: Option<&'a [u8]>,
}

impl<'a> Control<'a> {
    /// The value of one that must have it.
    fn value(&self) -> Result<&'a [u8], Fault> {
        self.value.ok_or(Fault::NoValue)
    }

    /// Sees that there is no value.
    fn no_value(&self) -> Result<(), Fault> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(Fault::HasValue),
        }
    }

    #[inline]
    fn decode(content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let oid = reader.octets("controlType")?;
        let critical = match reader.optional(ber::BOOLEAN, "criticality")? {
            Some(content) => ber::boolean(content, "criticality")?,
            None => false,
        };
        let value = reader.optional(ber::OCTET_STRING, "controlValue")?;
        reader.skip_extensions()?;
        Ok(Control {
            oid: utf8(oid, "controlType")?,
            critical,
            value,
        })
    }

    fn content_len(&self) -> usize {
        let critical = if self.critical { 3 } else { 0 };
        ber::element_len(self.oid.len())
            + critical
            + self.value.map_or(0, |value| ber::element_len(value.len()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        ber::put_header(out, ber::SEQUENCE, self.content_len());
        ber::put_octets(out, ber::OCTET_STRING, self.oid.as_bytes());
        if self.critical {
            ber::put_boolean(out, ber::BOOLEAN, true);
        }
        if let Some(value) = self.value {
            ber::put_octets(out, ber::OCTET_STRING, value);
        }
    }
}

/// The controls of a message: a view of checked BER.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Controls<'a> {
    ber: &'a [u8],
}

impl<'a> Controls<'a> {
    /// No controls.
    pub const EMPTY: Controls<'static> = Controls { ber: &[] };

    /// Checks the content of a message's `controls`.
    pub fn from_ber(content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let mut controls = 0;
        while !reader.is_empty() {
            controls += 1;
            if controls > CONTROLS_MAX {
                return Err(Violation::Controls.into());
            }
            Control::decode(reader.expect(ber::SEQUENCE, "control")?)?;
        }
        Ok(Controls { ber: content })
    }

    /// The controls as BER, without the list's own header.
    #[inline]
    pub const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.ber.is_empty()
    }

    /// The controls, in the order of the message.
    pub fn iter(self) -> impl Iterator<Item = Control<'a>> + Clone {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            Control::decode(reader.expect(ber::SEQUENCE, "control").ok()?).ok()
        })
    }

    /// The first control with this OID.
    pub fn find(self, oid: &str) -> Option<Control<'a>> {
        let mut reader = Reader::new(self.ber);
        while !reader.is_empty() {
            let content = reader.expect(ber::SEQUENCE, "control").ok()?;
            // Most are looked for in vain: the others need not be decoded.
            if Reader::new(content).octets("controlType").ok()? == oid.as_bytes() {
                return Control::decode(content).ok();
            }
        }
        None
    }
}

impl std::fmt::Debug for Controls<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Owns the BER of [`Controls`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlsBuf {
    ber: Vec<u8>,
}

impl ControlsBuf {
    /// Appends a control.
    pub fn push(&mut self, control: Control<'_>) {
        control.encode(&mut self.ber);
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The controls.
    pub fn view(&self) -> Controls<'_> {
        Controls { ber: &self.ber }
    }
}

/// The components of a control or extended value that is one SEQUENCE.
pub(crate) fn sequence<'a>(value: &'a [u8], field: &'static str) -> Result<Reader<'a>, Malformed> {
    let mut outer = Reader::new(value);
    let content = outer.expect(ber::SEQUENCE, field)?;
    outer.end()?;
    Ok(Reader::new(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: &str = "1.2.3.4";

    fn read<'m>(
        list: &[(&'m str, bool, Option<&'m [u8]>)],
        operation: Operation,
    ) -> Result<RequestControls<'m>, Refused<'m>> {
        let controls = list.iter().map(|&(oid, critical, value)| Control {
            oid,
            critical,
            value,
        });
        RequestControls::read(controls, ControlSet::of(operation))
    }

    #[test]
    fn each_oid_is_of_one_control() {
        let oids = KnownControl::ALL.iter().flat_map(|known| known.oids());
        let oids: Vec<_> = oids.collect();
        for (at, oid) in oids.iter().enumerate() {
            assert!(!oids[..at].contains(oid), "{oid}");
            assert!(KnownControl::of(oid).is_some());
        }
        assert_eq!(KnownControl::of(UNKNOWN), None);
    }

    #[test]
    fn what_is_unknown_or_misplaced_matters_when_it_is_critical() {
        for (oid, operation) in [
            (UNKNOWN, Operation::Search),
            (SUBENTRIES, Operation::Compare),
            (PRE_READ, Operation::Add),
            (POST_READ, Operation::Delete),
            (PAGED_RESULTS, Operation::Modify),
            (TRANSACTION_SPECIFICATION, Operation::Search),
            (MANAGE_DSA_IT, Operation::Bind),
            (GET_SERVER_ID, Operation::Abandon),
        ] {
            let critical = read(&[(oid, true, Some(b"x"))], operation);
            let refused = critical.expect_err(oid);
            assert_eq!(refused, Refused::Unavailable { oid });
            assert_eq!(refused.code(), ResultCode::UnavailableCriticalExtension);
            // Twice as well: what is ignored is not looked at.
            let other = (oid, false, Some(b"x".as_slice()));
            assert_eq!(read(&[other, other], operation), Ok(RequestControls::NONE));
        }
    }

    #[test]
    fn what_is_repeated_is_refused_under_each_of_its_oids() {
        let visible = Some(b"\x01\x01\xff".as_slice());
        for (one, other) in [
            ((MANAGE_DSA_IT, None), (MANAGE_DSA_IT, None)),
            ((SUBENTRIES, visible), (SUBENTRIES, visible)),
            ((SUBENTRIES, visible), (SUBENTRIES_OF_DRAFT, None)),
        ] {
            for critical in [true, false] {
                let list = [(one.0, critical, one.1), (other.0, critical, other.1)];
                let refused = read(&list, Operation::Search).expect_err(one.0);
                let (oid, fault) = (other.0, Fault::Repeated);
                assert_eq!(refused, Refused::Faulty { oid, fault });
                assert_eq!(refused.code(), ResultCode::ProtocolError);
            }
        }
    }

    #[test]
    fn a_value_is_there_where_it_belongs() {
        // Some may have a value, and may have none.
        let optional = [
            KnownControl::GetEffectiveRights,
            KnownControl::GetUserResourceLimits,
        ];
        let is_optional = |known: &&KnownControl| optional.contains(known);
        for known in KnownControl::ALL.iter().filter(|known| !is_optional(known)) {
            for oid in known.oids() {
                let takes = ControlSet::EMPTY.with(*known);
                let control = |value| Control {
                    oid,
                    critical: true,
                    value,
                };
                let without = RequestControls::read([control(None)].into_iter(), takes);
                let fault = Fault::NoValue;
                if without == Err(Refused::Faulty { oid, fault }) {
                    continue;
                }
                assert!(without.is_ok(), "{oid}");
                let with = RequestControls::read([control(Some(b""))].into_iter(), takes);
                let fault = Fault::HasValue;
                assert_eq!(with, Err(Refused::Faulty { oid, fault }));
            }
        }
    }

    #[test]
    fn controls_are_decoded_once_each() {
        let list = [
            (MANAGE_DSA_IT, true, None),
            (UNKNOWN, false, None),
            (SUBENTRIES_OF_DRAFT, false, None),
        ];
        let expected = RequestControls {
            manage_dsa_it: Some(()),
            subentries: Some(true),
            ..RequestControls::NONE
        };
        assert_eq!(read(&list, Operation::Search), Ok(expected));
        let transaction = |critical| {
            let list = [(TRANSACTION_SPECIFICATION, critical, Some(b"t".as_slice()))];
            read(&list, Operation::Add).map(|controls| controls.transaction_specification)
        };
        assert_eq!(transaction(true), Ok(Some(b"t".as_slice())));
        assert!(matches!(
            transaction(false),
            Err(Refused::Faulty {
                fault: Fault::NotCritical,
                ..
            })
        ));
    }

    #[test]
    fn proxied_authorization_is_ignored_nowhere() {
        for oid in [PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1] {
            let control = |critical| Control {
                oid,
                critical,
                value: Some(b""),
            };
            let read = |critical| {
                let controls = std::iter::once(control(critical));
                RequestControls::read(controls, ControlSet::EMPTY).map_err(|refused| refused.code())
            };
            assert_eq!(read(false).unwrap_err(), ResultCode::ProtocolError);
            let unavailable = ResultCode::UnavailableCriticalExtension;
            assert_eq!(read(true).unwrap_err(), unavailable);
        }
    }

    #[test]
    fn both_versions_of_proxied_authorization_are_one_control() {
        let list = [
            (PROXIED_AUTHORIZATION, true, Some(b"".as_slice())),
            (PROXIED_AUTHORIZATION_V1, true, Some(b"\x30\x02\x04\x00")),
        ];
        let refused = read(&list, Operation::Search).unwrap_err();
        assert!(matches!(
            refused,
            Refused::Faulty {
                fault: Fault::Repeated,
                ..
            }
        ));
    }
}
