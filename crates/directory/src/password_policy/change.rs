//! What a policy says of a new password before it is hashed: only then it can be looked at.

use sapwood_ldap::controls::{
    CheckedRequirement, PasswordPolicyError, PasswordValidation, PasswordValidationDetails,
};
use sapwood_ldap::result::ResultCode;

use super::{Account, PasswordPolicy, history};
use crate::outcome::Outcome;
use crate::sources::PasswordHasher;

/// Why a change of a password is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: ResultCode,
    pub(crate) error: Option<PasswordPolicyError>,
    pub(crate) diagnostic: String,
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Outcome {
        Outcome {
            password_policy: refused.error,
            ..Outcome::new(refused.code, refused.diagnostic)
        }
    }
}

/// The refusal of several passwords of one entry.
pub(crate) fn too_many_values() -> Outcome {
    let diagnostic = "the password policy allows one value of userPassword";
    Outcome::new(ResultCode::ConstraintViolation, diagnostic)
}

fn refuse(code: ResultCode, error: PasswordPolicyError, diagnostic: impl Into<String>) -> Refused {
    Refused {
        code,
        error: Some(error),
        diagnostic: diagnostic.into(),
    }
}

impl PasswordPolicy {
    /// Refuses a password that takes the place of one that was set too short a time ago.
    pub(crate) fn check_age(&self, account: &Account, now: u64) -> Result<(), Refused> {
        let changed = account
            .changed
            .filter(|_| self.min_age > 0 && !account.reset);
        match changed.is_some_and(|changed| now.saturating_sub(changed) < self.min_age) {
            false => Ok(()),
            true => Err(refuse(
                ResultCode::ConstraintViolation,
                PasswordPolicyError::PasswordTooYoung,
                format!(
                    "the password may be changed {} seconds after the last change",
                    self.min_age
                ),
            )),
        }
    }

    /// Refuses a password in clear text, or a stored form, for how it is.
    pub(crate) fn check_quality(&self, given: &[u8], is_stored: bool) -> Result<(), Refused> {
        if self.check_quality == 0 {
            return Ok(());
        }
        if is_stored {
            return match self.check_quality {
                1 => Ok(()),
                _ => Err(refuse(
                    ResultCode::ConstraintViolation,
                    PasswordPolicyError::InsufficientPasswordQuality,
                    "the password policy asks for passwords in clear text, so that they can be looked at",
                )),
            };
        }
        let length = given.len() as u64;
        if length < self.min_length.max(1) {
            return Err(refuse(
                ResultCode::ConstraintViolation,
                PasswordPolicyError::PasswordTooShort,
                format!(
                    "the password policy asks for at least {} bytes",
                    self.min_length.max(1)
                ),
            ));
        }
        if self.max_length > 0 && length > self.max_length {
            return Err(refuse(
                ResultCode::ConstraintViolation,
                PasswordPolicyError::PasswordTooLong,
                format!(
                    "the password policy allows at most {} bytes",
                    self.max_length
                ),
            ));
        }
        Ok(())
    }
}

/// A change of a password that a policy governs, as it is known before it is hashed.
#[derive(Clone, Debug)]
pub struct PasswordChange {
    pub(crate) policy: PasswordPolicy,
    pub(crate) account: Account,
    /// The stored forms of the password that the entry has.
    pub(crate) stored: Vec<Vec<u8>>,
    /// Whether who asks may do more than the policy lets others.
    pub(crate) is_admin: bool,
    /// Whether they change their own.
    pub(crate) is_self: bool,
    /// Whether the entry is there already.
    pub(crate) is_there: bool,
    /// When it is, in seconds since 1970.
    pub(crate) now: u64,
    /// What everybody may know of who has the password: the values in the entry's name.
    pub(crate) words: Vec<String>,
}

impl PasswordChange {
    /// Judges a change before the old password is compared. `has_old` says whether that came with it.
    ///
    /// # Errors
    /// The outcome to answer with.
    pub fn check(&self, has_old: bool) -> Result<(), Outcome> {
        self.judge(has_old).map_err(Outcome::from)
    }

    fn judge(&self, has_old: bool) -> Result<(), Refused> {
        let policy = &self.policy;
        if self.is_admin || !self.is_there {
            return Ok(());
        }
        if self.is_self && !policy.allow_user_change {
            return Err(refuse(
                ResultCode::InsufficientAccessRights,
                PasswordPolicyError::PasswordModNotAllowed,
                "the password policy does not let users change their own passwords",
            ));
        }
        if policy.safe_modify && !has_old {
            return Err(refuse(
                ResultCode::InsufficientAccessRights,
                PasswordPolicyError::MustSupplyOldPassword,
                "the password policy asks for the old password together with the new one: delete the old value, and \
                 add the new one",
            ));
        }
        policy.check_age(&self.account, self.now)
    }

    /// Judges the new value, in clear text or stored. This comes when the old password was compared, so that who does
    /// not know that learns nothing of the policy.
    ///
    /// # Errors
    /// The outcome to answer with.
    pub fn check_new(&self, given: &[u8], hasher: &dyn PasswordHasher) -> Result<(), Outcome> {
        if self.is_admin {
            return Ok(());
        }
        let is_stored = hasher.is_hashed(given);
        self.policy.check_quality(given, is_stored)?;
        if is_stored || self.policy.check_quality == 0 {
            return Ok(());
        }
        match hasher.is_breached(given) {
            Ok(false) => {}
            Ok(true) => {
                return Err(refuse(
                    ResultCode::ConstraintViolation,
                    PasswordPolicyError::InsufficientPasswordQuality,
                    "the password is known from a breach: choose another one",
                )
                .into());
            }
            Err(why) => return Err(Outcome::new(ResultCode::Unavailable, why)),
        }
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match hasher.is_guessable(given, &words) {
            false => Ok(()),
            true => Err(refuse(
                ResultCode::ConstraintViolation,
                PasswordPolicyError::InsufficientPasswordQuality,
                "the password is easy to guess: choose a longer one, of words that do not belong together, or have \
                 one made",
            )
            .into()),
        }
    }

    /// What is asked of the new value, in clear text or stored, and whether it is so. Who does not know the old
    /// password is not to be told, as [`check_new`](Self::check_new) says.
    #[must_use]
    pub fn details(&self, given: &[u8], hasher: &dyn PasswordHasher) -> PasswordValidationDetails {
        let policy = &self.policy;
        PasswordValidationDetails {
            validation: self.validation(given, hasher),
            misses_current: false,
            must_change: policy.must_change && self.is_admin && self.is_there,
            expires_in: (policy.max_age > 0)
                .then(|| u32::try_from(policy.max_age).unwrap_or(u32::MAX)),
        }
    }

    fn validation(&self, given: &[u8], hasher: &dyn PasswordHasher) -> PasswordValidation {
        let policy = &self.policy;
        let is_stored = hasher.is_hashed(given);
        if self.is_admin || policy.check_quality == 0 || is_stored && policy.check_quality == 1 {
            return PasswordValidation::NotAttempted;
        }
        let requirement = |description: &str, is_met| CheckedRequirement {
            description: description.to_owned(),
            length: None,
            is_met,
        };
        if is_stored {
            let description = "The password comes in clear text, so that it can be looked at.";
            return PasswordValidation::Checked(vec![requirement(description, false)]);
        }
        let (least, most) = (policy.min_length.max(1), policy.max_length);
        let length = match most {
            0 => format!("The password has at least {least} bytes."),
            _ => format!("The password has at least {least} and at most {most} bytes."),
        };
        let mut checked = vec![CheckedRequirement {
            length: Some((least, most)),
            ..requirement(&length, policy.check_quality(given, false).is_ok())
        }];
        let [breaches, guesses] = hasher.looks_for();
        // A list that cannot be read is told of where the password is refused.
        if breaches && let Ok(is_breached) = hasher.is_breached(given) {
            let description = "The password is not known from a breach.";
            checked.push(requirement(description, !is_breached));
        }
        if guesses {
            let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
            let is_guessable = hasher.is_guessable(given, &words);
            checked.push(requirement("The password is hard to guess.", !is_guessable));
        }
        PasswordValidation::Checked(checked)
    }

    /// How long a password is that is made for the entry, when `usual` is what the policy does not say otherwise.
    #[must_use]
    pub fn generated_length(&self, usual: usize) -> usize {
        let number = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
        let least = usual.max(number(self.policy.min_length));
        match self.policy.max_length {
            0 => least,
            most => least.min(number(most)),
        }
    }

    /// Whether the password that there was is to be compared when it comes with the change.
    #[must_use]
    pub fn compares_old(&self) -> bool {
        self.is_there && !self.is_admin
    }

    /// The refusal of an old password that is not the one there is.
    #[must_use]
    pub fn wrong_old() -> Outcome {
        let diagnostic = "the old password that came with the change is not the one of the entry";
        refuse(
            ResultCode::UnwillingToPerform,
            PasswordPolicyError::MustSupplyOldPassword,
            diagnostic,
        )
        .into()
    }

    /// The stored forms of passwords that may not be used again: the one there is, and those of the history.
    #[must_use]
    pub fn used(&self) -> Vec<&[u8]> {
        let kept = self.policy.in_history.min(history::HISTORY_MAX) as usize;
        if self.is_admin || kept == 0 {
            return Vec::new();
        }
        let values = history::ordered(&self.account.history);
        let first = values.len().saturating_sub(kept);
        let before = values.into_iter().skip(first);
        let before = before.filter_map(|value| history::parse(value).map(|(_, stored)| stored));
        let now = self.stored.iter().map(Vec::as_slice);
        now.chain(before).collect()
    }

    /// The refusal of a password that is one of these.
    #[must_use]
    pub fn in_history() -> Outcome {
        refuse(
            ResultCode::ConstraintViolation,
            PasswordPolicyError::PasswordInHistory,
            "the password policy does not allow a password again that was used before",
        )
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(policy: PasswordPolicy) -> PasswordChange {
        PasswordChange {
            policy,
            account: Account {
                changed: Some(100),
                ..Account::default()
            },
            stored: vec![b"now".to_vec()],
            is_admin: false,
            is_self: true,
            is_there: true,
            now: 150,
            words: vec!["anne".into()],
        }
    }

    /// Knows stored values by their braces, and one password from a breach.
    struct Braces;

    impl PasswordHasher for Braces {
        fn hash(&self, cleartext: &[u8]) -> Result<Vec<u8>, String> {
            Ok(cleartext.to_vec())
        }

        fn is_breached(&self, cleartext: &[u8]) -> Result<bool, String> {
            match cleartext {
                b"lost!" => Ok(true),
                b"error" => Err("no list".to_owned()),
                _ => Ok(false),
            }
        }

        fn is_guessable(&self, cleartext: &[u8], words: &[&str]) -> bool {
            words.iter().any(|word| word.as_bytes() == cleartext)
        }

        fn is_hashed(&self, value: &[u8]) -> bool {
            value.starts_with(b"{")
        }

        fn check(&self, _: &[&[u8]]) -> Result<(), String> {
            Ok(())
        }
    }

    fn error(change: &PasswordChange, given: &[u8]) -> Option<PasswordPolicyError> {
        let checked = change.check(false);
        let checked = checked.and_then(|()| change.check_new(given, &Braces));
        checked.err()?.password_policy
    }

    #[test]
    fn each_rule_refuses_with_its_own_error() {
        let none = PasswordPolicy::default();
        let quality = |check_quality| PasswordPolicy {
            check_quality,
            min_length: 3,
            max_length: 5,
            ..PasswordPolicy::default()
        };
        assert_eq!(error(&change(none.clone()), b"x"), None);
        let poor = Some(PasswordPolicyError::InsufficientPasswordQuality);
        for (given, expected) in [
            (&b"abc"[..], None),
            (b"abcde", None),
            (b"ab", Some(PasswordPolicyError::PasswordTooShort)),
            (b"abcdef", Some(PasswordPolicyError::PasswordTooLong)),
            (b"{X}abcdef", poor),
            (b"lost!", poor),
            (b"anne", poor),
        ] {
            assert_eq!(error(&change(quality(2)), given), expected);
        }
        assert_eq!(error(&change(quality(0)), b"lost!"), None);
        let unknown = change(quality(1)).check_new(b"error", &Braces);
        assert_eq!(unknown.unwrap_err().code, ResultCode::Unavailable);
        assert_eq!(error(&change(quality(1)), b"{X}abcdef"), None);
        let young = PasswordPolicy {
            min_age: 51,
            ..none.clone()
        };
        let young = change(young);
        assert_eq!(
            error(&young, b"x"),
            Some(PasswordPolicyError::PasswordTooYoung)
        );
        let mut reset = young.clone();
        reset.account.reset = true;
        assert_eq!(error(&reset, b"x"), None);
        let safe = change(PasswordPolicy {
            safe_modify: true,
            ..none.clone()
        });
        assert_eq!(
            error(&safe, b"x"),
            Some(PasswordPolicyError::MustSupplyOldPassword)
        );
        assert!(safe.check(true).is_ok());
        let mut fixed = change(PasswordPolicy {
            allow_user_change: false,
            ..none
        });
        assert_eq!(
            error(&fixed, b"x"),
            Some(PasswordPolicyError::PasswordModNotAllowed)
        );
        fixed.is_self = false;
        assert_eq!(error(&fixed, b"x"), None);
        let mut admin = young;
        admin.is_admin = true;
        assert_eq!(error(&admin, b"x"), None);
    }

    #[test]
    fn what_was_used_is_what_the_policy_asks_for() {
        let mut change = change(PasswordPolicy {
            in_history: 2,
            ..PasswordPolicy::default()
        });
        let at = |time: &str| history::value(time, "1.2", time.as_bytes());
        change.account.history = vec![at("3"), at("1"), at("2")];
        assert_eq!(change.used(), [&b"now"[..], b"2", b"3"]);
        change.policy.in_history = 0;
        assert!(change.used().is_empty());
    }
}
