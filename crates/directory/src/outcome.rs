//! How an operation ended: what becomes the LDAPResult of its response.

use std::num::{NonZeroU16, NonZeroU32};

use sapwood_ldap::controls::PasswordPolicyError;
use sapwood_ldap::result::{RESULT_TEXT_BYTES_MAX, ResultCode, near_superior, shortened_to};

use crate::engine::{self, CommitNo};
use crate::error::Error;
use crate::schema::Violation;

/// LDAPResult (RFC 4511 §4.1.9) and the response controls, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result code.
    pub code: ResultCode,
    /// The deepest existing superior, where the code calls for it; else empty.
    pub matched_dn: String,
    /// A sentence a person can act on; empty on success.
    pub diagnostic: String,
    /// LDAP URLs, only with [`ResultCode::Referral`].
    pub referrals: Option<Box<[String]>>,
    /// The response controls as BER elements, one after the other: what goes into `[0] Controls`. Empty for none.
    pub controls: Vec<u8>,
    /// What the control of password policies says is wrong, for clients that ask for it.
    pub password_policy: Option<PasswordPolicyError>,
    /// Of a transaction: what concerns single updates of it.
    pub settlement: Option<Box<Settlement>>,
    /// What the answer is to wait for, although the update is durable: [`Snapshot::settled`](crate::Snapshot::settled)
    /// tells what came of it.
    pub awaits: Option<Box<AwaitedChange>>,
    /// Of a tree delete that takes more than one commit: so many entries were deleted, and the same request deletes
    /// more of them. Its target is still there.
    pub unfinished: Option<NonZeroU32>,
    /// Of an update of what is copied from another server, which is to be forwarded there. The code is
    /// [`ResultCode::Referral`].
    pub forwards_to: Option<AgreementNo>,
}

/// The number of an agreement (rid), so that no outcome is larger for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreementNo(NonZeroU16);

impl AgreementNo {
    /// That of an agreement.
    pub(crate) fn new(rid: u16) -> AgreementNo {
        AgreementNo(NonZeroU16::MIN.saturating_add(rid))
    }

    /// The rid.
    pub fn rid(self) -> u16 {
        self.0.get() - 1
    }
}

/// What the end of a transaction says of its updates (RFC 5805 §2.3), which are told apart by their message ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// The update that failed, and with it all.
    pub failed: Option<u32>,
    /// Of [changes of another server](crate::Replicated): those that wait for others, by their places.
    pub waiting: Vec<u32>,
    /// The response controls of updates that have some, as in [`Outcome::controls`].
    pub controls: Vec<(u32, Vec<u8>)>,
}

/// A change of the schema that an update has begun, whose answer waits until it has taken place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedChange {
    pub(crate) began: CommitNo,
    /// The version of the schema before.
    pub(crate) version: u64,
}

impl Outcome {
    /// Plain success.
    pub const SUCCESS: Outcome = Outcome::of(ResultCode::Success);

    const fn of(code: ResultCode) -> Outcome {
        Outcome {
            code,
            matched_dn: String::new(),
            diagnostic: String::new(),
            referrals: None,
            controls: Vec::new(),
            password_policy: None,
            settlement: None,
            awaits: None,
            unfinished: None,
            forwards_to: None,
        }
    }

    /// A result code with its reason.
    pub fn new(code: ResultCode, diagnostic: impl Into<String>) -> Outcome {
        Outcome {
            diagnostic: diagnostic.into(),
            ..Outcome::of(code)
        }
    }

    /// The same with a matchedDN and a diagnostic of at most so many bytes each.
    pub fn shortened_to(mut self, text_bytes_max: usize) -> Outcome {
        if self.matched_dn.len() > text_bytes_max {
            self.matched_dn = near_superior(&self.matched_dn, text_bytes_max).to_owned();
        }
        if self.diagnostic.len() > text_bytes_max {
            self.diagnostic = shortened_to(&self.diagnostic, text_bytes_max).into_owned();
        }
        self
    }

    /// The same without what is never sent of its texts: outcomes wait for their turn.
    pub(crate) fn shortened(self) -> Outcome {
        self.shortened_to(RESULT_TEXT_BYTES_MAX)
    }

    /// The same with a matchedDN.
    pub fn matched(self, matched_dn: impl Into<String>) -> Outcome {
        Outcome {
            matched_dn: matched_dn.into(),
            ..self
        }
    }
}

/// Why work on a request ends early: refused, which the client is told, or failed, which concerns everybody.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The client is told.
    Refused(Box<Outcome>),
    /// The directory failed.
    Failed(Error),
}

impl Stop {
    /// A refusal.
    pub(crate) fn refuse(code: ResultCode, diagnostic: impl Into<String>) -> Stop {
        Stop::Refused(Box::new(Outcome::new(code, diagnostic)))
    }

    /// The refusal of an update for one that a rule has it be followed by. It names no entry: who asks may not be
    /// allowed to know of it.
    #[cold]
    pub(crate) fn of_follower(self) -> Stop {
        match self {
            Stop::Refused(outcome) => {
                let why = format!(
                    "what a rule does in answer to the update is refused: {}",
                    outcome.diagnostic
                );
                Stop::refuse(outcome.code, why)
            }
            failed => failed,
        }
    }
}

impl From<Outcome> for Stop {
    fn from(outcome: Outcome) -> Stop {
        Stop::Refused(Box::new(outcome))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error {
            Error::NameTooLong(_) => {
                Stop::refuse(ResultCode::AdminLimitExceeded, error.to_string())
            }
            error => Stop::Failed(error),
        }
    }
}

impl From<engine::Error> for Stop {
    fn from(error: engine::Error) -> Stop {
        Stop::Failed(Error::Engine(error))
    }
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Stop {
        Stop::refuse(violation.code, violation.diagnostic)
    }
}
