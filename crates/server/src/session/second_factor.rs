//! The second factor of binds: a one-time password behind the password, of a token of whom the client wants to be.
//!
//! It is checked first. A right one is used up, whatever the password is, and that is durable before anybody looks at
//! the password: two binds at the same time cannot both use it, nor can somebody who reads along try passwords with it.

use sapwood_directory::engine::Engine;
use sapwood_directory::{AccountChange, EntryId, Outcome, SecondFactor};
use sapwood_ldap::result::ResultCode;

use super::Session;
use super::bind::{Begun, BindEnd, Candidate};
use crate::password::{Password, redeemed};

/// A password that is yet to be looked at, and whose it may be.
#[derive(Debug)]
pub(super) struct PasswordCheck {
    candidate: Candidate,
    password: Password,
}

impl<E: Engine> Session<E> {
    /// What somebody needs to bind as an entry, besides its password; none if that is enough.
    pub(super) fn second_factor(&self, entry: EntryId) -> Result<Option<SecondFactor>, Outcome> {
        self.read(|snapshot| snapshot.second_factor(entry))
    }

    /// Checks the one-time password behind a password, and has it used up if it is right. When something is not here
    /// that is read for it, it does not count.
    pub(super) fn check_second_factor(
        &mut self,
        id: u32,
        candidate: Candidate,
        password: &[u8],
        factor: &SecondFactor,
    ) -> Result<Begun, Outcome> {
        let Some((token, number, length)) = redeemed(password, &factor.tokens) else {
            return self.wrong_password(id, candidate.governed, candidate.failure);
        };
        let (entry, used) = token.used(number);
        let password = password.get(..length).unwrap_or_default();
        let check = PasswordCheck {
            candidate,
            password: Password::new(password.to_vec()),
        };
        let end = BindEnd::SecondFactor(check);
        self.change_account(id, entry, AccountChange::UseToken(used), end);
        Ok(Begun::Waits)
    }

    /// The one-time password of a bind is used up, or another bind was faster.
    pub(super) fn second_factor_used(&mut self, id: u32, check: PasswordCheck, outcome: &Outcome) {
        let PasswordCheck {
            candidate,
            password,
        } = check;
        let verifier = match outcome.code {
            ResultCode::Success => Some(self.verifier(&password, &candidate)),
            ResultCode::InvalidCredentials | ResultCode::NoSuchObject => None,
            _ => {
                self.operations.exclusive = None;
                return self.answer_bind(id, outcome);
            }
        };
        self.compare_apart(id, candidate, verifier);
        self.operations.exclusive = Some(id);
    }
}
