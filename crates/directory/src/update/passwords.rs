//! The cleartext passwords of an add or a modify become stored ones before the update joins the writer's queue.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use sapwood_ldap::list::{Attribute, AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, Message, ModifyRequest, Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::UpdateRequest;
use crate::outcome::Outcome;
use crate::schema::Schema;
use crate::sources::PasswordHasher;

/// An update whose cleartext passwords are being hashed, one in each step: each is expensive.
#[derive(Debug)]
pub struct PasswordHashing {
    request: UpdateRequest,
    /// What is still to be hashed, in the order of the request; none before the first step.
    waiting: Option<VecDeque<Vec<u8>>>,
    stored: VecDeque<Vec<u8>>,
    /// What goes to authPassword, of the last one.
    verifiers: Vec<Vec<u8>>,
}

impl PasswordHashing {
    /// Those of a request. What is not an add or a modify, or carries no cleartext password, stays as it is.
    #[must_use]
    pub fn new(request: UpdateRequest) -> PasswordHashing {
        PasswordHashing {
            request,
            waiting: None,
            stored: VecDeque::new(),
            verifiers: Vec::new(),
        }
    }

    /// Hashes one password, and breaks with the update when there are no more. The first step looks for them.
    ///
    /// # Errors
    /// The outcome to answer with when there are too many passwords, or one cannot be hashed or stored.
    pub fn step(
        mut self,
        schema: &Schema,
        hasher: &dyn PasswordHasher,
    ) -> Result<ControlFlow<UpdateRequest, PasswordHashing>, Outcome> {
        let Some(waiting) = &mut self.waiting else {
            self.waiting = Some(cleartext(&self.request, schema, hasher)?);
            return Ok(ControlFlow::Continue(self));
        };
        if let Some(next) = waiting.pop_front() {
            self.stored.push_back(hasher.hash(&next).map_err(refused)?);
            self.verifiers = hasher.verifiers(&next);
            return Ok(ControlFlow::Continue(self));
        }
        let mut request = self.request;
        if let UpdateRequest::Message(bytes) = &request
            && !self.stored.is_empty()
            && let Ok(message) = RequestMessage::decode(bytes)
        {
            let stored = (self.stored, self.verifiers);
            request = UpdateRequest::Message(replaced(&message, schema, hasher, stored));
        }
        Ok(ControlFlow::Break(request))
    }
}

fn refused(why: String) -> Outcome {
    Outcome::new(ResultCode::ConstraintViolation, why)
}

/// The passwords that are to be hashed, after they were checked.
fn cleartext(
    request: &UpdateRequest,
    schema: &Schema,
    hasher: &dyn PasswordHasher,
) -> Result<VecDeque<Vec<u8>>, Outcome> {
    let UpdateRequest::Message(bytes) = request else {
        return Ok(VecDeque::new());
    };
    // What cannot be decoded is refused when it is applied.
    let Ok(message) = RequestMessage::decode(bytes) else {
        return Ok(VecDeque::new());
    };
    // All passwords of one request are those of one entry: no more are hashed than it may have.
    let given = given(&message.op, schema);
    hasher.check(&given).map_err(refused)?;
    let cleartext = given.into_iter().filter(|value| !hasher.is_hashed(value));
    Ok(cleartext.map(<[u8]>::to_vec).collect())
}

/// Whether an attribute is a password, whatever its options: whether these are recognised is asked when it is applied.
fn is_password(schema: &Schema, description: &[u8]) -> bool {
    let name = description.split(|byte| *byte == b';').next();
    let known = name.and_then(|name| schema.attribute_type(name));
    known.is_some_and(|known| known.id() == schema.well_known().user_password)
}

/// Whether a change gives values: one that is to be deleted names a stored value, and is not hashed anew.
fn gives(kind: ChangeKind) -> bool {
    matches!(kind, ChangeKind::Add | ChangeKind::Replace)
}

/// The passwords that an add or a modify gives.
fn given<'m>(op: &Request<'m>, schema: &Schema) -> Vec<&'m [u8]> {
    let mut values = Vec::new();
    let mut take = |attribute: Attribute<'m>| {
        if is_password(schema, attribute.description) {
            values.extend(attribute.values);
        }
    };
    match op {
        Request::Add(request) => request.attributes.into_iter().for_each(take),
        Request::Modify(request) => {
            let changes = request.changes.into_iter();
            let changes = changes.filter(|change| gives(change.kind));
            changes.for_each(|change| take(change.attribute));
        }
        _ => {}
    }
    values
}

/// The message with stored passwords in the place of the cleartext ones.
fn replaced(
    message: &RequestMessage<'_>,
    schema: &Schema,
    hasher: &dyn PasswordHasher,
    (mut stored, verifiers): (VecDeque<Vec<u8>>, Vec<Vec<u8>>),
) -> Vec<u8> {
    let known = schema.type_of(schema.well_known().auth_password);
    let auth_password = known.name().as_bytes();
    let verifiers = verifiers.iter().map(Vec::as_slice);
    let mut values_of = |attribute: Attribute<'_>, is_given: bool| -> Vec<Vec<u8>> {
        let is_password = is_given && is_password(schema, attribute.description);
        let mut value = |value: &[u8]| match is_password && !hasher.is_hashed(value) {
            true => stored.pop_front().unwrap_or_default(),
            false => value.to_vec(),
        };
        attribute.values.iter().map(&mut value).collect()
    };
    let (mut attributes, mut changes) = (AttributesBuf::default(), ChangesBuf::default());
    let op = match message.op {
        Request::Add(request) => {
            for attribute in request.attributes {
                let values = values_of(attribute, true);
                attributes.push(attribute.description, values.iter().map(Vec::as_slice));
            }
            if verifiers.len() > 0 {
                attributes.push(auth_password, verifiers);
            }
            Request::Add(AddRequest {
                attributes: attributes.view(),
                ..request
            })
        }
        Request::Modify(request) => {
            for change in request.changes {
                let values = values_of(change.attribute, gives(change.kind));
                let values = values.iter().map(Vec::as_slice);
                changes.push(change.kind, change.attribute.description, values);
            }
            if verifiers.len() > 0 {
                changes.push(ChangeKind::Replace, auth_password, verifiers);
            }
            Request::Modify(ModifyRequest {
                changes: changes.view(),
                ..request
            })
        }
        other => other,
    };
    let mut out = Vec::new();
    Message {
        op,
        id: message.id,
        controls: message.controls,
    }
    .encode(&mut out);
    out
}
