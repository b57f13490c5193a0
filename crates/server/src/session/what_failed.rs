//! The control what failed (draft-masarati-ldap-whatfailed): a response with an error names the controls and extended
//! operations of its request that are the reason. These are critical controls that are unknown or misplaced, controls
//! whose values are malformed, extended operations that are not known, an assertion that is not true, and an order that
//! entries cannot be sorted in. Nothing is named that the result does not tell already.

use sapwood_ldap::controls::{
    ASSERTION, Control, ControlSet, Controls, ControlsBuf, KnownControl, Refused, RequestControls,
    SORT_REQUEST, WHAT_FAILED, put_what_failed,
};
use sapwood_ldap::result::ResultCode;

/// Most OIDs that are told, and bytes of one of them: requests may have others.
const OIDS_MAX: usize = 8;
const OID_BYTES_MAX: usize = 64;

/// The response control that names these.
pub(super) fn told<'o>(oids: impl Iterator<Item = &'o str> + Clone) -> ControlsBuf {
    let oids = oids.filter(|oid| oid.len() <= OID_BYTES_MAX).take(OIDS_MAX);
    let mut controls = ControlsBuf::default();
    if oids.clone().next().is_none() {
        return controls;
    }
    let mut value = Vec::new();
    put_what_failed(&mut value, oids);
    controls.push(Control {
        oid: WHAT_FAILED,
        critical: false,
        value: Some(&value),
    });
    controls
}

/// The controls of a request that may end it with a result of their own.
pub(super) fn suspects(controls: &RequestControls<'_>) -> ControlSet {
    let mut suspects = ControlSet::EMPTY;
    if controls.assertion.is_some() {
        suspects = suspects.with(KnownControl::Assertion);
    }
    if controls.sort.is_some_and(|sort| sort.is_critical) {
        suspects = suspects.with(KnownControl::Sort);
    }
    suspects
}

/// Which of these a result comes from.
pub(super) fn culprit(code: ResultCode, suspects: ControlSet) -> Option<&'static str> {
    match code {
        ResultCode::AssertionFailed if suspects.has(KnownControl::Assertion) => Some(ASSERTION),
        ResultCode::UnavailableCriticalExtension if suspects.has(KnownControl::Sort) => {
            Some(SORT_REQUEST)
        }
        _ => None,
    }
}

/// The response control for a request whose controls were refused, if it asks for that: with all of them that would be
/// refused by themselves, the first that was in the way before the others.
pub(super) fn refused(
    controls: Controls<'_>,
    is_taken: impl Fn(KnownControl) -> bool,
    first: Refused<'_>,
) -> ControlsBuf {
    let asks = |control: Control<'_>| {
        let is_it = control.oid == WHAT_FAILED && control.value.is_none();
        is_it && is_taken(KnownControl::WhatFailed)
    };
    if !controls.iter().any(asks) {
        return ControlsBuf::default();
    }
    let (Refused::Unavailable { oid: first } | Refused::Faulty { oid: first, .. }) = first;
    let others = controls.iter().filter(|control| {
        let alone = std::iter::once(*control);
        control.oid != first && RequestControls::read_if(alone, &is_taken).is_err()
    });
    told(std::iter::once(first).chain(others.map(|control| control.oid)))
}
