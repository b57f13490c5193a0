//! Referential integrity, as slapo-refint(5) has it: while its entry is there, values that name an entry follow it.

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{Change, ChangeKind};
use sapwood_ldap::result::ResultCode;

use super::entries::REFINT;
use super::{Setting, Settings};
use crate::outcome::Stop;

/// The rule, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefintRule {
    /// The names or OIDs of the attribute types whose values follow, without options. The rule is in force when there
    /// is one at least.
    pub attributes: Vec<String>,
    /// The DN that takes the place of the last value of an attribute; empty for none.
    pub nothing: String,
    /// The DN of who makes the changes that follow; empty for that of OpenLDAP's overlay.
    pub modifier: String,
}

/// The attribute that names those whose values follow.
pub(crate) const ATTRIBUTE: &str = "olcRefintAttribute";
/// The attribute that has the DN in the place of the last value.
pub(crate) const NOTHING: &str = "olcRefintNothing";
const MODIFIER: &str = "olcRefintModifiersName";

/// Who makes the changes that follow unless somebody else is named.
pub(crate) const DEFAULT_MODIFIER: &str = "cn=Referential Integrity Overlay";

/// The attributes of the rule.
const ATTRIBUTES_MAX: usize = 100;

/// What else can be set in its entry.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        attribute: NOTHING,
        entry: REFINT,
        get: |settings| read(settings, |rule| &rule.nothing),
        set: |settings, value| {
            rule(settings).nothing = dn(value)?;
            Ok(())
        },
        reset: |settings| rule(settings).nothing.clear(),
    },
    Setting {
        attribute: MODIFIER,
        entry: REFINT,
        get: |settings| read(settings, |rule| &rule.modifier),
        set: |settings, value| {
            rule(settings).modifier = dn(value)?;
            Ok(())
        },
        reset: |settings| rule(settings).modifier.clear(),
    },
];

fn dn(value: &str) -> Result<String, String> {
    Dn::parse(value).map_err(|error| format!("'{value}' is not a DN: {error}"))?;
    match value.is_empty() || value.contains(['\n', '\r']) {
        true => Err("write a DN, without line breaks".to_owned()),
        false => Ok(value.to_owned()),
    }
}

fn rule(settings: &mut Settings) -> &mut RefintRule {
    settings.refint.get_or_insert_default()
}

fn read(settings: &Settings, value: impl Fn(&RefintRule) -> &str) -> String {
    settings.refint.as_ref().map_or("", value).to_owned()
}

/// Makes one change of the attributes whose values follow.
pub(crate) fn change(settings: &mut Settings, change: &Change<'_>) -> Result<(), Stop> {
    let refuse = |code, why: &str| Stop::refuse(code, format!("{ATTRIBUTE}: {why}"));
    let mut given: Vec<String> = Vec::new();
    for value in change.attribute.values {
        // As slapd takes them: one name a value, or several.
        for name in value.split(u8::is_ascii_whitespace) {
            let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.".contains(byte);
            if !name.iter().all(is_of_name) {
                let why = "name attribute types, without options";
                return Err(refuse(ResultCode::ConstraintViolation, why));
            }
            if !name.is_empty() {
                given.push(String::from_utf8_lossy(name).into_owned());
            }
            if given.len() > ATTRIBUTES_MAX {
                let why = format!("more than {ATTRIBUTES_MAX} attributes");
                return Err(refuse(ResultCode::AdminLimitExceeded, &why));
            }
        }
    }
    let names = &mut rule(settings).attributes;
    let place = |names: &[String], name: &str| {
        let mut names = names.iter();
        names.position(|known| known.eq_ignore_ascii_case(name))
    };
    match change.kind {
        ChangeKind::Add if given.is_empty() => {
            let why = "there is no value to add";
            return Err(refuse(ResultCode::ProtocolError, why));
        }
        ChangeKind::Delete if given.is_empty() => names.clear(),
        ChangeKind::Delete => {
            for name in given {
                let at = place(names, &name)
                    .ok_or_else(|| refuse(ResultCode::NoSuchAttribute, "there is no such value"))?;
                names.remove(at);
            }
        }
        ChangeKind::Add | ChangeKind::Replace => {
            if change.kind == ChangeKind::Replace {
                names.clear();
            }
            for name in given {
                if place(names, &name).is_some() {
                    let why = "a value is there already";
                    return Err(refuse(ResultCode::AttributeOrValueExists, why));
                }
                names.push(name);
            }
        }
        ChangeKind::Increment => {
            let why = "it cannot be incremented";
            return Err(refuse(ResultCode::ConstraintViolation, why));
        }
    }
    match names.len() > ATTRIBUTES_MAX {
        true => Err(refuse(
            ResultCode::AdminLimitExceeded,
            "there are too many attributes",
        )),
        false => Ok(()),
    }
}

/// The values that the entry shows.
pub(crate) fn shown(rule: &RefintRule) -> Vec<(&'static str, Vec<String>)> {
    let set = |value: &String| Vec::from_iter((!value.is_empty()).then(|| value.clone()));
    vec![
        (ATTRIBUTE, rule.attributes.clone()),
        (NOTHING, set(&rule.nothing)),
        (MODIFIER, set(&rule.modifier)),
    ]
}

/// The lines of the definition: each begins with a word that says what is behind it.
pub(crate) fn lines(rule: &RefintRule) -> Vec<String> {
    let mut lines = vec![format!("attributes {}", rule.attributes.join(","))];
    for (word, value) in [("nothing", &rule.nothing), ("modifier", &rule.modifier)] {
        if !value.is_empty() {
            lines.push(format!("{word} {value}"));
        }
    }
    lines
}

/// Takes a line of the definition; whether it is one.
pub(crate) fn take(settings: &mut Settings, line: &str) -> bool {
    let Some((word, value)) = line.split_once(' ') else {
        return false;
    };
    let rule = rule(settings);
    match word {
        "attributes" => {
            rule.attributes = value
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
        }
        "nothing" => rule.nothing = value.to_owned(),
        "modifier" => rule.modifier = value.to_owned(),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_say_all_of_it() {
        let all = RefintRule {
            attributes: vec!["member".into(), "manager".into()],
            nothing: "cn=no body,dc=x".into(),
            modifier: "cn=who".into(),
        };
        for rule in [RefintRule::default(), all] {
            let mut settings = Settings::default();
            for line in lines(&rule) {
                assert!(take(&mut settings, &line), "{line}");
            }
            assert_eq!(settings.refint, Some(rule));
        }
        assert!(!take(&mut Settings::default(), "other x"));
        assert!(!take(&mut Settings::default(), "attributes"));
    }
}
