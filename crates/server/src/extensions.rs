//! What carries the extensions of the protocol that are Sapwood's own (`docs/reference/protocol-extensions.md`): the
//! controls and the features that the root DSE advertises while `sapwoodExtensions` has the extension.

use sapwood_directory::Extension;
use sapwood_ldap::controls::KnownControl;

/// The feature of implicit start: an unknown transaction identifier starts a transaction.
pub const IMPLICIT_START: &str = "2.25.310930976905498146776181350396885251652";
/// The feature of implicit membership: updates belong to the open transaction.
pub const IMPLICIT_MEMBERSHIP: &str = "2.25.9714799646693988221129024137632128816";

/// The features of extensions.
pub(crate) const FEATURES: &[(&str, Extension)] = &[
    (IMPLICIT_START, Extension::ImplicitStart),
    (IMPLICIT_MEMBERSHIP, Extension::ImplicitMembership),
];

/// The extension that a control is part of; `None` for one that is always spoken.
pub(crate) const fn of_control(control: KnownControl) -> Option<Extension> {
    match control {
        KnownControl::NonTransactional => Some(Extension::ImplicitMembership),
        KnownControl::EagerTransaction => Some(Extension::EagerTransactions),
        KnownControl::QueueLength => Some(Extension::QueueLength),
        _ => None,
    }
}
