//! What is configured with the data: it stands in the definition, is read by every process of the directory, and
//! changes while it runs. The administrator sees and changes it as attributes of `cn=config`; a line each in the table
//! below. What is configured elsewhere is in [`elsewhere`].

pub(crate) mod access;
pub(crate) mod agreements;
pub(crate) mod authorization;
pub(crate) mod automember;
pub(crate) mod constraint;
pub(crate) mod dds;
pub(crate) mod dynlist;
pub(crate) mod elsewhere;
pub(crate) mod entries;
pub(crate) mod extensions;
pub(crate) mod limits;
pub(crate) mod linked;
pub(crate) mod listed;
pub(crate) mod managed;
pub(crate) mod member_of;
pub(crate) mod numbers;
pub(crate) mod ordered;
pub(crate) mod password_policy;
pub(crate) mod refint;
pub(crate) mod rules;
pub(crate) mod unique;
pub(crate) mod value_sort;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sapwood_ldap::result::ResultCode;
use sapwood_replication::Resolution;

pub use self::agreements::{Agreement, AgreementPassword, UpdateRef};
pub use self::authorization::AuthzPolicy;
pub use self::automember::AutomemberRule;
pub use self::constraint::{ConstraintRule, ConstraintTest};
pub use self::dds::{DdsRule, TTL_MAX};
pub use self::dynlist::DynlistRule;
use self::entries::{DATA, GLOBAL};
pub use self::extensions::{Extension, Extensions};
pub use self::linked::LinkedRule;
pub use self::managed::ManagedRule;
pub use self::member_of::MemberOfRule;
pub use self::numbers::{NumbersRule, range_of_numbers};
pub use self::password_policy::PasswordPolicyOverlay;
pub use self::refint::RefintRule;
pub use self::rules::{DataRule, DataRuleKind};
pub use self::unique::UniqueRule;
pub use self::value_sort::{SortBy, SortMethod, ValueSortRule};
use crate::outcome::Stop;
use crate::policy::{AuthzRegexp, Limits, ListScope, Policy, Rule, RuleList};

/// What is configured with the data, besides its naming contexts and indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Entries that a search of anyone but the administrator returns; 0 is no limit.
    pub search_entries_max: u32,
    /// Seconds that a search or compare of anyone but the administrator takes; 0 is no limit.
    pub search_seconds_max: u32,
    /// What who is limited by access rules may have an entry grow to.
    pub entry_bytes_max: EntryBytesMax,
    /// Whether connections without a bind read what users may read.
    pub anonymous_read: bool,
    /// The forms in which passwords are stored when they come in clear text.
    pub password_schemes: PasswordSchemes,
    /// Whether a password that is stored in another form is stored as `{ARGON2}` when somebody binds with it.
    pub password_upgrade: bool,
    /// Which entries say who may act as whom.
    pub authz_policy: AuthzPolicy,
    /// Whom the names stand for by which clients authenticate.
    pub authz_regexps: Vec<AuthzRegexp>,
    /// Whether passwords are governed by policies, and by which where nothing else says so.
    pub password_policy: Option<PasswordPolicyOverlay>,
    /// Whether who has a token binds with one of its passwords behind the own one.
    pub second_factor: bool,
    /// Which extensions of the protocol are on.
    pub extensions: Extensions,
    /// Attributes whose values no two entries share.
    pub unique: Vec<UniqueRule>,
    /// What the values of attributes have to be besides their syntax.
    pub constraints: Vec<ConstraintRule>,
    /// In which order the values of attributes are sent.
    pub value_sorts: Vec<ValueSortRule>,
    /// Attributes whose values follow the entries that they name.
    pub refint: Option<RefintRule>,
    /// Whether entries have memberOf, and by which groups.
    pub member_of: Option<MemberOfRule>,
    /// Which entries have values that LDAP URLs find.
    pub dynlist: Vec<DynlistRule>,
    /// Which entries are members of which groups.
    pub automember: Vec<AutomemberRule>,
    /// Attributes of which one says backwards what the other says.
    pub linked: Vec<LinkedRule>,
    /// Entries that are made of others.
    pub managed: Vec<ManagedRule>,
    /// Which entries get numbers that are free.
    pub numbers: Vec<NumbersRule>,
    /// Whether entries end by themselves, and when.
    pub dds: Option<DdsRule>,
    /// The servers that this one is a consumer of.
    pub agreements: Vec<Agreement>,
    /// Where updates can be made of what is copied from others, if not there.
    pub update_refs: Vec<UpdateRef>,
    /// Who may do what with the entries of the naming contexts.
    pub access: Vec<Rule>,
    /// The same of those that have a list of their own, by their place among all. None is empty.
    pub context_access: BTreeMap<usize, Vec<Rule>>,
    /// Who may do what with all entries, as far as no rule of the other lists decides it.
    pub global_access: Vec<Rule>,
    /// What bounds the searches of some, in the place of the limits of all.
    pub limits: Vec<Limits>,
    /// Whether the rule for tests is there.
    #[cfg(test)]
    pub(crate) probe: bool,
}

impl Settings {
    /// Whether other servers take updates of what is updated here.
    pub(crate) fn takes_updates_of_others(&self) -> bool {
        self.agreements.iter().any(|one| one.multi_provider)
    }

    /// Whether values of an entry that several servers change at the same time are kept apart. All agreements with such
    /// servers say the same.
    pub(crate) fn keeps_values_apart(&self) -> bool {
        let mut agreements = self.agreements.iter();
        agreements.any(|one| one.resolution == Resolution::Values)
    }
}

/// Bytes to which who is limited by access rules may have an entry grow: all of it is read and written at once. Of
/// large attributes, which are kept value by value, none count. [`usize::MAX`] is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryBytesMax(pub usize);

impl Default for EntryBytesMax {
    fn default() -> Self {
        EntryBytesMax(16 << 20)
    }
}

/// The forms in which passwords are stored when they come in clear text, besides `{ARGON2}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PasswordSchemes {
    /// A verifier for SCRAM-SHA-256, in authPassword.
    pub scram_sha_256: bool,
    /// A verifier for SCRAM-SHA-512, in authPassword.
    pub scram_sha_512: bool,
}

/// A setting: an attribute with at most one value.
pub(crate) struct Setting {
    /// The attribute type's name, in `cn=config` and in the definition.
    pub(crate) attribute: &'static str,
    /// The entry of `cn=config` that has it.
    pub(crate) entry: &'static str,
    get: fn(&Settings) -> String,
    /// Takes a value, or says what is wrong with it.
    set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Puts the default in the place of its value.
    reset: fn(&mut Settings),
}

/// The name of [`Settings::entry_bytes_max`].
pub(crate) const ENTRY_BYTES_MAX: &str = "sapwoodEntryBytesMax";

/// What no value says of a limit.
const UNLIMITED: &str = "unlimited";

const SETTINGS: &[Setting] = &[
    Setting {
        attribute: "olcSizeLimit",
        entry: DATA,
        get: |settings| shown_limit(settings.search_entries_max),
        set: |settings, value| {
            settings.search_entries_max = limit(value, "size")?;
            Ok(())
        },
        reset: |settings| settings.search_entries_max = Settings::default().search_entries_max,
    },
    Setting {
        attribute: "olcTimeLimit",
        entry: DATA,
        get: |settings| shown_limit(settings.search_seconds_max),
        set: |settings, value| {
            settings.search_seconds_max = limit(value, "time")?;
            Ok(())
        },
        reset: |settings| settings.search_seconds_max = Settings::default().search_seconds_max,
    },
    Setting {
        attribute: ENTRY_BYTES_MAX,
        entry: DATA,
        get: |settings| match settings.entry_bytes_max.0 {
            usize::MAX => UNLIMITED.to_owned(),
            bytes => bytes.to_string(),
        },
        set: |settings, value| {
            settings.entry_bytes_max = EntryBytesMax(match limit(value, "bytes")? {
                0 => usize::MAX,
                bytes => bytes as usize,
            });
            Ok(())
        },
        reset: |settings| settings.entry_bytes_max = EntryBytesMax::default(),
    },
    Setting {
        attribute: "sapwoodAnonymousRead",
        entry: DATA,
        get: |settings| shown_boolean(settings.anonymous_read),
        set: |settings, value| {
            settings.anonymous_read = boolean(value)?;
            Ok(())
        },
        reset: |settings| settings.anonymous_read = Settings::default().anonymous_read,
    },
    Setting {
        attribute: "sapwoodPasswordSchemes",
        entry: DATA,
        get: |settings| settings.password_schemes.to_string(),
        set: |settings, value| {
            settings.password_schemes = value.parse()?;
            Ok(())
        },
        reset: |settings| settings.password_schemes = PasswordSchemes::default(),
    },
    Setting {
        attribute: "sapwoodPasswordUpgrade",
        entry: DATA,
        get: |settings| shown_boolean(settings.password_upgrade),
        set: |settings, value| {
            settings.password_upgrade = boolean(value)?;
            Ok(())
        },
        reset: |settings| settings.password_upgrade = Settings::default().password_upgrade,
    },
    Setting {
        attribute: "olcAuthzPolicy",
        entry: GLOBAL,
        get: |settings| settings.authz_policy.word().to_owned(),
        set: |settings, value| {
            settings.authz_policy = value.parse()?;
            Ok(())
        },
        reset: |settings| settings.authz_policy = AuthzPolicy::default(),
    },
];

impl Setting {
    /// The setting that an attribute type's name stands for.
    pub(crate) fn of(attribute: &str) -> Option<&'static Setting> {
        let mut all = SETTINGS.iter();
        all.find(|setting| setting.attribute.eq_ignore_ascii_case(attribute))
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter()
    }

    /// Its value.
    pub(crate) fn value(&self, settings: &Settings) -> String {
        (self.get)(settings)
    }

    /// Whether it has the value that it has when nobody sets it.
    pub(crate) fn is_default(&self, settings: &Settings) -> bool {
        self.value(settings) == self.value(&Settings::default())
    }

    /// Sets it.
    ///
    /// # Errors
    /// Says what is wrong with the value.
    pub(crate) fn set(&self, settings: &mut Settings, value: &str) -> Result<(), String> {
        (self.set)(settings, value)
    }

    /// Adds a value, as a modify does. A default gives way to it.
    pub(crate) fn add(&self, settings: &mut Settings, value: &str) -> Result<(), Stop> {
        if self.is_default(settings) {
            return self.replace(settings, value);
        }
        if self.value(settings) == value {
            let diagnostic = format!("{} has this value already", self.attribute);
            return Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic));
        }
        let diagnostic = format!("{} has one value: replace it", self.attribute);
        Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
    }

    /// Deletes its value, or with a value given that one: the default is left.
    pub(crate) fn delete(&self, settings: &mut Settings, value: Option<&str>) -> Result<(), Stop> {
        if value.is_some_and(|value| self.value(settings) != value) {
            let diagnostic = format!("{} does not have this value", self.attribute);
            return Err(Stop::refuse(ResultCode::NoSuchAttribute, diagnostic));
        }
        (self.reset)(settings);
        Ok(())
    }

    /// Puts a value in the place of the one there is.
    pub(crate) fn replace(&self, settings: &mut Settings, value: &str) -> Result<(), Stop> {
        self.set(settings, value).map_err(|why| {
            let diagnostic = format!("{}: {why}", self.attribute);
            Stop::refuse(ResultCode::ConstraintViolation, diagnostic)
        })
    }
}

impl Settings {
    /// Whether others ask for other access rules.
    pub(crate) fn differ_in_access(&self, others: &Settings) -> bool {
        self.anonymous_read != others.anonymous_read
            || self.access != others.access
            || self.context_access != others.context_access
            || self.global_access != others.global_access
            || self.limits != others.limits
    }

    /// The access rules that they ask for in a directory of these naming contexts, and the limits.
    pub(crate) fn policy<'c>(&self, contexts: impl Iterator<Item = &'c str>) -> Policy {
        let common = match self.access.is_empty() && self.global_access.is_empty() {
            true => Policy::standard_rules(self.anonymous_read),
            false => self.access.clone(),
        };
        let mut lists = Vec::new();
        if self.context_access.is_empty() {
            lists.push(RuleList {
                of: ListScope::Data,
                rules: common,
            });
        } else {
            let mut others = Vec::new();
            for (place, dn) in contexts.enumerate() {
                match self.context_access.get(&place) {
                    Some(own) => lists.push(RuleList {
                        of: ListScope::Contexts(vec![dn.to_owned()]),
                        rules: own.clone(),
                    }),
                    None => others.push(dn.to_owned()),
                }
            }
            if !others.is_empty() {
                lists.push(RuleList {
                    of: ListScope::Contexts(others),
                    rules: common,
                });
            }
        }
        lists.push(RuleList {
            of: ListScope::Global,
            rules: self.global_access.clone(),
        });
        Policy {
            lists,
            limits: self.limits.clone(),
        }
    }
}

/// The one that is always there.
const ARGON2: &str = "{ARGON2}";
const SCRAM_SHA_256: &str = "{SCRAM-SHA-256}";
const SCRAM_SHA_512: &str = "{SCRAM-SHA-512}";

impl fmt::Display for PasswordSchemes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ARGON2)?;
        for (is_named, name) in [
            (self.scram_sha_256, SCRAM_SHA_256),
            (self.scram_sha_512, SCRAM_SHA_512),
        ] {
            if is_named {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for PasswordSchemes {
    type Err = String;

    fn from_str(value: &str) -> Result<PasswordSchemes, String> {
        let mut schemes = PasswordSchemes::default();
        let mut has_argon2 = false;
        for name in value.split_ascii_whitespace() {
            let known = match name.to_ascii_uppercase().as_str() {
                ARGON2 => &mut has_argon2,
                SCRAM_SHA_256 => &mut schemes.scram_sha_256,
                SCRAM_SHA_512 => &mut schemes.scram_sha_512,
                _ => {
                    return Err(format!(
                        "{name} is none of {ARGON2}, {SCRAM_SHA_256}, {SCRAM_SHA_512}"
                    ));
                }
            };
            *known = true;
        }
        match has_argon2 {
            true => Ok(schemes),
            false => Err(format!(
                "{ARGON2}, with which simple binds are checked, is always among them"
            )),
        }
    }
}

/// The largest value of a limit in a search request (RFC 4511 §4.5.1.4: maxInt).
const LIMIT_MAX: u32 = i32::MAX as u32;

/// A limit as slapd-config(5) writes it: a number, the same behind the name of the limit, or that there is none.
fn limit(value: &str, name: &str) -> Result<u32, String> {
    let value = value.trim();
    let number = value
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='))
        .unwrap_or(value);
    if ["unlimited", "none", "-1"].contains(&number) {
        return Ok(0);
    }
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let known = number
        .parse::<u32>()
        .ok()
        .filter(|known| is_number && (1..=LIMIT_MAX).contains(known));
    known.ok_or_else(|| {
        if number.starts_with(name) {
            format!("there is one limit, which no request can exceed: write it as a number, or as {UNLIMITED}")
        } else {
            format!("write a number from 1 to {LIMIT_MAX}, or {UNLIMITED}")
        }
    })
}

fn shown_limit(limit: u32) -> String {
    match limit {
        0 => UNLIMITED.to_owned(),
        limit => limit.to_string(),
    }
}

/// The Boolean syntax (RFC 4517 §3.3.3).
fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "TRUE" => Ok(true),
        "FALSE" => Ok(false),
        _ => Err("write TRUE or FALSE".to_owned()),
    }
}

fn shown_boolean(value: bool) -> String {
    if value { "TRUE" } else { "FALSE" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_slapd_writes_them() {
        for (value, expected) in [
            ("500", Some(500)),
            ("size=500", Some(500)),
            ("unlimited", Some(0)),
            ("size=unlimited", Some(0)),
            ("none", Some(0)),
            ("-1", Some(0)),
            ("2147483647", Some(i32::MAX as u32)),
            ("2147483648", None),
            ("99999999999999999999", None),
            ("0", None),
            ("", None),
            ("+5", None),
            ("5 6", None),
            ("time=5", None),
            ("size.soft=5 size.hard=6", None),
            ("size.unchecked=5", None),
        ] {
            assert_eq!(limit(value, "size").ok(), expected, "{value}");
        }
    }

    #[test]
    fn password_schemes_are_named_together() {
        let read = |value: &str| value.parse::<PasswordSchemes>();
        let both = read("{ARGON2} {scram-sha-512}  {SCRAM-SHA-256}").unwrap();
        assert!(both.scram_sha_256 && both.scram_sha_512);
        assert_eq!(both.to_string(), "{ARGON2} {SCRAM-SHA-256} {SCRAM-SHA-512}");
        assert_eq!(read("{ARGON2}"), Ok(PasswordSchemes::default()));
        assert!(read("{SCRAM-SHA-256}").is_err());
        assert!(read("").is_err());
        assert!(read("{ARGON2} {SSHA}").unwrap_err().contains("{SSHA}"));
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let settings = Settings {
            search_entries_max: 7,
            search_seconds_max: 8,
            entry_bytes_max: EntryBytesMax(9),
            anonymous_read: true,
            password_schemes: "{ARGON2} {SCRAM-SHA-256}".parse().unwrap(),
            password_upgrade: true,
            authz_policy: AuthzPolicy::Any,
            ..Settings::default()
        };
        for from in [settings, Settings::default()] {
            let mut read = Settings::default();
            for setting in Setting::all() {
                assert_eq!(setting.is_default(&from), from == Settings::default());
                setting.set(&mut read, &setting.value(&from)).unwrap();
            }
            assert_eq!(read, from);
        }
    }
}
