//! Which entries say who may act as whom, as slapd-config(5) has it.

use std::str::FromStr;

use super::Settings;
use super::ordered::Ordered;
use crate::policy::mapping::{self, AuthzRegexp, Mapped, user_name};
use crate::schema::Schema;

/// The attribute that says whom names stand for.
pub(crate) const AUTHZ_REGEXP: &str = "olcAuthzRegexp";

impl Ordered for AuthzRegexp {
    const ATTRIBUTE: &'static str = AUTHZ_REGEXP;
    /// Each is tried on a name, before anything is known of who has it.
    const VALUES_MAX: usize = 100;
    const WHAT: &'static str = "expression";
}

/// Which entries say who may act as whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthzPolicy {
    /// None: the administrator alone may act as somebody else.
    #[default]
    None,
    /// Those of who is acted as, in authzFrom.
    From,
    /// Those of who acts, in authzTo.
    To,
    /// One of them.
    Any,
    /// Both of them.
    All,
}

impl AuthzPolicy {
    const WORDS: [(AuthzPolicy, &'static str); 5] = [
        (AuthzPolicy::None, "none"),
        (AuthzPolicy::From, "from"),
        (AuthzPolicy::To, "to"),
        (AuthzPolicy::Any, "any"),
        (AuthzPolicy::All, "all"),
    ];

    /// As slapd-config(5) writes it.
    pub(crate) fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(policy, _)| *policy == self);
        known.map_or("none", |(_, word)| word)
    }
}

impl FromStr for AuthzPolicy {
    type Err = String;

    fn from_str(value: &str) -> Result<AuthzPolicy, String> {
        // slapd had this word for it before.
        if value.eq_ignore_ascii_case("both") {
            return Ok(AuthzPolicy::Any);
        }
        let mut words = Self::WORDS.iter();
        let known = words.find(|(_, word)| word.eq_ignore_ascii_case(value));
        known
            .map(|(policy, _)| *policy)
            .ok_or_else(|| "write none, from, to, any or all".to_owned())
    }
}

impl Settings {
    /// What it takes to find out whom a name stands for, in about as many nanoseconds.
    pub fn mapping_work(&self, name: &str) -> u64 {
        mapping::mapping_work(&self.authz_regexps, name)
    }

    /// Whom a name stands for that is written as a DN, if an expression matches it.
    pub fn mapped(&self, name: &str) -> Option<Mapped> {
        mapping::mapped(&self.authz_regexps, name)
    }

    /// The same of a user, by the name that it has in a realm and in a mechanism; both may be empty.
    pub fn mapped_user(&self, schema: &Schema, user: &str, of: (&str, &str)) -> Option<Mapped> {
        if self.authz_regexps.is_empty() {
            return None;
        }
        let name = user_name(schema, user, of)?;
        self.mapped(&name.to_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for (policy, word) in AuthzPolicy::WORDS {
            assert_eq!(policy.word(), word);
            assert_eq!(word.to_uppercase().parse(), Ok(policy));
        }
        assert_eq!("both".parse(), Ok(AuthzPolicy::Any));
        assert!("".parse::<AuthzPolicy>().is_err());
    }
}
