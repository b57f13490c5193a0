//! The cleartext passwords of an add or a modify become stored ones before the update joins the writer's queue.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use sapwood_ldap::controls::PasswordValidationDetails;
use sapwood_ldap::list::{Attribute, AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, Message, ModifyRequest, Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use super::UpdateRequest;
use crate::outcome::Outcome;
use crate::password_policy::{PasswordChange, too_many_values};
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
    governed: Option<Box<GovernedChange>>,
}

/// A change that a password policy governs, while its passwords are compared.
#[derive(Debug)]
struct GovernedChange {
    change: PasswordChange,
    /// The old password that came with the new one, in clear text.
    old: Option<Vec<u8>>,
    /// The new one, in clear text or stored, until it was looked at.
    new: Option<Vec<u8>>,
    /// Stored forms that the old one was compared with, and that the new one was.
    compared: (usize, usize),
    /// The stored form that the old one is.
    replaces: Option<Vec<u8>>,
}

impl GovernedChange {
    /// Judges what can be without comparing, and finds what is to be compared.
    fn begin(
        &mut self,
        op: &Request<'_>,
        schema: &Schema,
        hasher: &dyn PasswordHasher,
    ) -> Result<(), Outcome> {
        let old = old_password(op, schema).filter(|old| !hasher.is_hashed(old));
        match given(op, schema)[..] {
            [] => return Ok(()),
            [only] => self.new = Some(only.to_vec()),
            _ => return Err(too_many_values()),
        }
        self.change.check(old.is_some())?;
        self.old = old
            .filter(|_| self.change.compares_old())
            .map(<[u8]>::to_vec);
        Ok(())
    }

    /// Compares with one stored form; whether all that is to be compared was.
    fn step(
        &mut self,
        new: Option<&Vec<u8>>,
        hasher: &dyn PasswordHasher,
    ) -> Result<bool, Outcome> {
        if let (Some(old), None) = (&self.old, &self.replaces) {
            let stored = self.change.stored.get(self.compared.0);
            let stored = stored.ok_or_else(PasswordChange::wrong_old)?;
            self.compared.0 += 1;
            if hasher.matches(old, stored) {
                self.replaces = Some(stored.clone());
            }
            return Ok(false);
        }
        if let Some(given) = self.new.take() {
            self.change.check_new(&given, hasher)?;
        }
        let (Some(new), Some(used)) = (new, self.change.used().get(self.compared.1).copied())
        else {
            return Ok(true);
        };
        self.compared.1 += 1;
        match hasher.matches(new, used) {
            true => Err(PasswordChange::in_history()),
            false => Ok(false),
        }
    }
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
            governed: None,
        }
    }

    /// The update.
    #[must_use]
    pub fn request(&self) -> &UpdateRequest {
        &self.request
    }

    /// The same of a change that a password policy governs.
    #[must_use]
    pub fn governed(mut self, change: Option<PasswordChange>) -> PasswordHashing {
        self.governed = change.map(|change| {
            Box::new(GovernedChange {
                change,
                old: None,
                new: None,
                compared: (0, 0),
                replaces: None,
            })
        });
        self
    }

    /// What the policy that governs the change asks of the new password, and whether it is so; none where no policy
    /// governs it, or it brings no password or several.
    #[must_use]
    pub fn details(
        &self,
        schema: &Schema,
        hasher: &dyn PasswordHasher,
    ) -> Option<PasswordValidationDetails> {
        let (Some(governed), UpdateRequest::Message(bytes)) = (&self.governed, &self.request)
        else {
            return None;
        };
        let message = RequestMessage::decode(bytes).ok()?;
        match given(&message.op, schema)[..] {
            [only] => Some(governed.change.details(only, hasher)),
            _ => None,
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
            if let (Some(governed), UpdateRequest::Message(bytes)) =
                (&mut self.governed, &self.request)
                && let Ok(message) = RequestMessage::decode(bytes)
            {
                governed.begin(&message.op, schema, hasher)?;
            }
            return Ok(ControlFlow::Continue(self));
        };
        // There is one at most where a policy governs.
        if self.stored.is_empty()
            && let Some(governed) = &mut self.governed
            && !governed.step(waiting.front(), hasher)?
        {
            return Ok(ControlFlow::Continue(self));
        }
        if let Some(next) = waiting.pop_front() {
            self.stored.push_back(hasher.hash(&next).map_err(refused)?);
            self.verifiers = hasher.verifiers(&next);
            return Ok(ControlFlow::Continue(self));
        }
        let mut request = self.request;
        let old = self
            .governed
            .and_then(|governed| governed.old.zip(governed.replaces));
        if let UpdateRequest::Message(bytes) = &request
            && (!self.stored.is_empty() || old.is_some())
            && let Ok(message) = RequestMessage::decode(bytes)
        {
            let stored = Stored {
                stored: self.stored,
                verifiers: self.verifiers,
                old,
            };
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

/// The old password that a modify deletes before it gives a new one.
fn old_password<'m>(op: &Request<'m>, schema: &Schema) -> Option<&'m [u8]> {
    let Request::Modify(request) = op else {
        return None;
    };
    let mut changes = request.changes.into_iter();
    let changes = changes
        .by_ref()
        .filter(|change| is_password(schema, change.attribute.description));
    let mut until_given = changes.take_while(|change| !gives(change.kind));
    until_given.find_map(|change| change.attribute.values.into_iter().next())
}

/// What takes the place of passwords in clear text.
struct Stored {
    /// Of each that is given, in their order.
    stored: VecDeque<Vec<u8>>,
    /// What goes to authPassword.
    verifiers: Vec<Vec<u8>>,
    /// The old password that came with the new one, and what is stored of it.
    old: Option<(Vec<u8>, Vec<u8>)>,
}

/// The message with stored passwords in the place of the cleartext ones.
fn replaced(
    message: &RequestMessage<'_>,
    schema: &Schema,
    hasher: &dyn PasswordHasher,
    Stored {
        mut stored,
        verifiers,
        old,
    }: Stored,
) -> Vec<u8> {
    let known = schema.type_of(schema.well_known().auth_password);
    let auth_password = known.name().as_bytes();
    let verifiers = verifiers.iter().map(Vec::as_slice);
    let mut values_of = |attribute: Attribute<'_>, is_given: bool| -> Vec<Vec<u8>> {
        let is_password = is_password(schema, attribute.description);
        let mut value = |value: &[u8]| match &old {
            _ if is_password && is_given && !hasher.is_hashed(value) => {
                stored.pop_front().unwrap_or_default()
            }
            Some((old, replaces)) if is_password && !is_given && old == value => replaces.clone(),
            _ => value.to_vec(),
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
