//! Compares the password of a bind with the stored ones, at once or in a hasher.

use std::ops::ControlFlow;
use std::time::Instant;

use sapwood_directory::access::ACTING_WORK_MAX;
use sapwood_directory::engine::Engine;
use sapwood_directory::{AccountChange, BindVerdict, EntryId, Error, Identity, Outcome};
use sapwood_ldap::result::ResultCode;

use super::{Authorization, Begun, Hashing, Verdict};
use crate::password::{Verified, Verifier, hash, hash_work, is_outdated};
use crate::session::password_policy::judge;
use crate::session::{Completion, Session};
use crate::workers::{Claim, Turn};
use crate::writer::refusal;

/// The identity that binds if the password is right.
#[derive(Debug)]
pub(in crate::session) struct Candidate {
    pub(super) identity: Identity,
    /// Their entry, if password policies are to judge the bind.
    pub(in crate::session) governed: Option<EntryId>,
    /// The identity that the client asked for.
    pub(super) authzid: Option<String>,
    /// When a failure is told, and to whom it is charged.
    pub(in crate::session) failure: (Instant, Claim),
    /// Their passwords as they are stored.
    pub(super) stored: Vec<Vec<u8>>,
    /// Whether the right password is to be stored again in the usual form, if it is stored in another.
    pub(super) is_stored_anew: bool,
}

impl<E: Engine> Session<E> {
    /// What compares a password with the stored ones.
    pub(in crate::session) fn verifier(&self, password: &[u8], candidate: &Candidate) -> Verifier {
        let limits = self.settings.config.limits.passwords();
        let stored = candidate.stored.iter().map(Vec::as_slice);
        let verifier = Verifier::new(password, stored.clone(), limits);
        match &self.settings.saslauthd {
            Some(saslauthd) => verifier.asking(saslauthd, stored, limits),
            None => verifier,
        }
    }

    /// Compares passwords where that takes no time.
    pub(super) fn compare_at_once(
        &mut self,
        id: u32,
        candidate: Candidate,
        verifier: Verifier,
    ) -> Result<Begun, Outcome> {
        let Candidate {
            identity,
            governed,
            authzid,
            failure,
            ..
        } = candidate;
        match verifier.run() {
            Some(_) => {
                self.authorize(&identity, authzid.as_deref())?;
                match governed {
                    Some(_) => self.right_password(id, identity, None, failure),
                    None => Ok(Begun::bound(identity)),
                }
            }
            None => self.wrong_password(id, governed, failure),
        }
    }

    /// Lets a hasher compare passwords. Without a verifier there is nothing to compare with, and the bind fails as with
    /// a wrong password.
    pub(in crate::session) fn compare_apart(
        &mut self,
        id: u32,
        candidate: Candidate,
        mut verifier: Option<Verifier>,
    ) -> Begun {
        let Candidate {
            identity,
            governed,
            authzid,
            failure,
            stored,
            is_stored_anew,
        } = candidate;
        let mut work = verifier.as_ref().map(Verifier::work).unwrap_or_default();
        let asks = verifier.as_ref().is_some_and(Verifier::asks);
        if is_stored_anew {
            work = work.and(hash_work());
        }
        let session = self.completions.clone();
        let directory = self.service.directory.clone();
        let request = self.authorization_request(&identity, authzid.as_deref());
        // The hasher's thread may wait for records that are not here.
        let judge_right = move |identity: Option<Identity>| {
            let authorization = match (&request, &identity) {
                (Some(request), Some(_)) => directory.snapshot()?.through(|snapshot| {
                    // The hasher's time is charged while it works.
                    let mut work = ACTING_WORK_MAX;
                    request.authorization(snapshot, &mut work)
                })?,
                _ => Authorization::default(),
            };
            let identity = identity.map(|identity| (identity, authorization));
            match (governed, identity) {
                (Some(entry), identity) => judge(&directory, entry, identity),
                (None, Some((identity, authorization))) => {
                    let verdict = BindVerdict::default();
                    Ok(Verdict::Bound(identity, authorization, verdict))
                }
                (None, None) => Ok(Verdict::Wrong(None)),
            }
        };
        let judged = move |identity| {
            judge_right(identity).unwrap_or_else(|error: Error| Verdict::Failed(refusal(&error)))
        };
        // The stored value that matches, if it is to be stored again in the usual form.
        let mut right = None;
        let check = move |turn| {
            let mut change = None;
            let verdict = match (turn, &mut verifier, right.take()) {
                (Turn::Stop, ..) => Verdict::Stopped,
                (Turn::Step, Some(verifier), Some(from)) => {
                    let to = hash(verifier.password());
                    change = Some(AccountChange::StoreAnew { from, to });
                    judged(Some(identity.clone()))
                }
                (Turn::Step, Some(verifier), None) => match verifier.step() {
                    Verified::More => return ControlFlow::Continue(()),
                    Verified::Matches(at) => {
                        let outdated = stored.get(at).filter(|stored| is_outdated(stored));
                        right = outdated.filter(|_| is_stored_anew).cloned();
                        if right.is_some() {
                            return ControlFlow::Continue(());
                        }
                        judged(Some(identity.clone()))
                    }
                    Verified::Differs => judged(None),
                    // A stopped check is not counted: nobody knows whether the password was right.
                    Verified::Unknown => Verdict::Failed(Outcome::new(
                        ResultCode::Unavailable,
                        "the service that knows this password does not answer",
                    )),
                },
                (Turn::Step, None, _) => judged(None),
            };
            let _ = session.send(Completion::Verified {
                id,
                verdict,
                change,
            });
            ControlFlow::Break(())
        };
        let (_, claim) = failure;
        let hashers = &self.service.hashers;
        let ticket = match asks {
            true => hashers.submit_asking(claim, work, check),
            false => hashers.submit(claim, work, check),
        };
        self.operations.hashing = Some(Hashing::Job {
            _ticket: ticket,
            failure: Some(failure),
        });
        Begun::Waits
    }
}
