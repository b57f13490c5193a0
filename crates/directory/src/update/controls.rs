//! The controls of an update: ManageDsaIT (RFC 3296), assertion (RFC 4528), pre-read and post-read (RFC 4527).

use sapwood_ldap::control::assertion_filter;
use sapwood_ldap::control::{self, Control, ControlsBuf, ReadEntry};
use sapwood_ldap::error::PartError;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::OctetStrings;
use sapwood_ldap::message::{Operation, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::Run;
use crate::engine::{EntryId, Write};
use crate::outcome::Stop;
use crate::search::look::{Look, assertion_failed, assertion_too_long};

/// What the controls of an update ask for.
#[derive(Debug, Default)]
pub(super) struct Asked<'m> {
    /// Referral objects are plain entries.
    pub(super) manage_dsa_it: bool,
    assertion: Option<Filter<'m>>,
    pre_read: Option<OctetStrings<'m>>,
    post_read: Option<OctetStrings<'m>>,
}

impl<'m> Asked<'m> {
    /// Reads the controls of a message. A critical control that it does not know ends in
    /// `unavailableCriticalExtension`, one that is given twice or wrongly in `protocolError`. Those that the session has
    /// dealt with before ([`control::OF_SESSIONS`]) are left out.
    pub(super) fn of(message: &RequestMessage<'m>) -> Result<Asked<'m>, Stop> {
        let operation = message.op.operation();
        let mut asked = Asked::default();
        for control in message.controls.iter() {
            match control.oid {
                control::MANAGE_DSA_IT => asked.manage_dsa_it = true,
                control::ASSERTION => {
                    set(&mut asked.assertion, &control, assertion_filter)?;
                }
                control::PRE_READ if operation != Operation::Add => {
                    set(&mut asked.pre_read, &control, selection)?;
                }
                control::POST_READ if operation != Operation::Delete => {
                    set(&mut asked.post_read, &control, selection)?;
                }
                oid if control.critical && !control::OF_SESSIONS.contains(&oid) => {
                    let diagnostic =
                        format!("the critical control {oid} is not known for this operation");
                    return Err(Stop::refuse(
                        ResultCode::UnavailableCriticalExtension,
                        diagnostic,
                    ));
                }
                _ => {}
            }
        }
        Ok(asked)
    }
}

fn selection(value: &[u8]) -> Result<OctetStrings<'_>, PartError> {
    Ok(ReadEntry::decode(value)?.attributes)
}

fn set<'m, T>(
    place: &mut Option<T>,
    control: &Control<'m>,
    decode: impl FnOnce(&'m [u8]) -> Result<T, PartError>,
) -> Result<(), Stop> {
    let wrong = |what: String| {
        Stop::refuse(
            ResultCode::ProtocolError,
            format!("control {}: {what}", control.oid),
        )
    };
    if place.is_some() {
        return Err(wrong("it is given twice".into()));
    }
    let value = control
        .value
        .ok_or_else(|| wrong("it has no value".into()))?;
    *place = Some(decode(value).map_err(|error| wrong(error.to_string()))?);
    Ok(())
}

impl<T: Write> Run<'_, T> {
    /// Checks the assertion on the target as it stands in the transaction. Of an add that is the new entry, which has
    /// just been written: the engine takes it back.
    pub(super) fn assert(&mut self, id: EntryId, asked: &Asked<'_>) -> Result<(), Stop> {
        let Some(filter) = asked.assertion else {
            return Ok(());
        };
        match self.look()?.asserts(self.txn, id, filter)? {
            Some(true) => Ok(()),
            Some(false) => Err(assertion_failed().into()),
            None => Err(assertion_too_long().into()),
        }
    }

    /// Reads the target before it is changed.
    pub(super) fn pre_read(&mut self, id: EntryId, asked: &Asked<'_>) -> Result<(), Stop> {
        self.respond_with_entry(control::PRE_READ, id, asked.pre_read)
    }

    /// Reads the target after it was changed.
    pub(super) fn post_read(&mut self, id: EntryId, asked: &Asked<'_>) -> Result<(), Stop> {
        self.respond_with_entry(control::POST_READ, id, asked.post_read)
    }

    fn respond_with_entry(
        &mut self,
        oid: &str,
        id: EntryId,
        selected: Option<OctetStrings<'_>>,
    ) -> Result<(), Stop> {
        let Some(selected) = selected else {
            return Ok(());
        };
        let mut value = Vec::new();
        self.look()?.read(self.txn, id, selected, &mut value)?;
        self.response
            .get_or_insert_with(ControlsBuf::default)
            .push(Control {
                oid,
                critical: false,
                value: Some(&value),
            });
        Ok(())
    }

    /// The eyes of who asks: what may not be searched is not shown here either (RFC 4527 §5, RFC 4528 §4).
    fn look(&self) -> Result<Look<'_>, Stop> {
        let access = self.access();
        if !access.may_read(self.identity) {
            let diagnostic = "you may not read this entry, as the controls of the update ask for";
            return Err(Stop::refuse(
                ResultCode::InsufficientAccessRights,
                diagnostic,
            ));
        }
        Ok(Look {
            schema: self.schema,
            attributes: &self.state.attributes,
            sees_protected: access.may_read_protected(self.identity),
        })
    }
}
