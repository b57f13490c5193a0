//! The overlay memberof, as slapo-memberof(5) has it: while its entry is there, entries have memberOf.

use super::entries::MEMBER_OF;
use super::{RefintRule, Setting, Settings, boolean, shown_boolean};

/// The rule, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberOfRule {
    /// The class of groups; empty for groupOfNames.
    pub class: String,
    /// The attribute of groups that names their members; empty for member.
    pub member: String,
    /// Whether members that are renamed or deleted are followed by their groups, as referential integrity has it.
    pub follows: bool,
}

const CLASS: &str = "groupOfNames";
const MEMBER: &str = "member";

impl MemberOfRule {
    /// The class of groups.
    pub fn class(&self) -> &str {
        match self.class.as_str() {
            "" => CLASS,
            own => own,
        }
    }

    /// The rule of referential integrity that it stands for as well.
    pub(crate) fn following(&self) -> Option<RefintRule> {
        self.follows.then(|| RefintRule {
            attributes: vec![self.member().to_owned()],
            ..RefintRule::default()
        })
    }

    /// The attribute of groups that names their members.
    pub fn member(&self) -> &str {
        match self.member.as_str() {
            "" => MEMBER,
            own => own,
        }
    }
}

/// The attribute that has the class of groups.
pub(crate) const GROUP_CLASS: &str = "olcMemberOfGroupOC";
/// The attribute that names the one of members.
pub(crate) const MEMBER_ATTRIBUTE: &str = "olcMemberOfMemberAD";

/// What can be set in its entry.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        attribute: GROUP_CLASS,
        entry: MEMBER_OF,
        get: |settings| read(settings, |rule| rule.class().to_owned()),
        set: |settings, value| {
            rule(settings).class = name(value, CLASS)?;
            Ok(())
        },
        reset: |settings| rule(settings).class.clear(),
    },
    Setting {
        attribute: MEMBER_ATTRIBUTE,
        entry: MEMBER_OF,
        get: |settings| read(settings, |rule| rule.member().to_owned()),
        set: |settings, value| {
            rule(settings).member = name(value, MEMBER)?;
            Ok(())
        },
        reset: |settings| rule(settings).member.clear(),
    },
    Setting {
        attribute: "olcMemberOfRefInt",
        entry: MEMBER_OF,
        get: |settings| read(settings, |rule| shown_boolean(rule.follows)),
        set: |settings, value| {
            rule(settings).follows = boolean(value)?;
            Ok(())
        },
        reset: |settings| rule(settings).follows = false,
    },
    Setting {
        attribute: "olcMemberOfDangling",
        entry: MEMBER_OF,
        get: |_| "ignore".to_owned(),
        set: |_, value| {
            only(
                value,
                "ignore",
                "members that are no entries are left as they are",
            )
        },
        reset: |_| {},
    },
    Setting {
        attribute: "olcMemberOfMemberOfAD",
        entry: MEMBER_OF,
        get: |_| "memberOf".to_owned(),
        set: |_, value| only(value, "memberOf", "it is memberOf that is computed"),
        reset: |_| {},
    },
];

/// A name that stands in lines of the definition; empty if it is the usual one.
fn name(value: &str, usual: &str) -> Result<String, String> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    match !value.is_empty() && value.bytes().all(is_of_name) {
        true if value.eq_ignore_ascii_case(usual) => Ok(String::new()),
        true => Ok(value.to_owned()),
        false => Err(format!("write a name, such as {usual}")),
    }
}

fn only(value: &str, taken: &str, why: &str) -> Result<(), String> {
    match value.eq_ignore_ascii_case(taken) {
        true => Ok(()),
        false => Err(format!("write {taken}: {why}")),
    }
}

fn rule(settings: &mut Settings) -> &mut MemberOfRule {
    settings.member_of.get_or_insert_default()
}

fn read(settings: &Settings, value: impl Fn(&MemberOfRule) -> String) -> String {
    match &settings.member_of {
        Some(rule) => value(rule),
        None => value(&MemberOfRule::default()),
    }
}

/// The values that the entry shows: those that are not the usual ones.
pub(crate) fn shown(settings: &Settings) -> Vec<(&'static str, Vec<String>)> {
    let usual = Settings::default();
    let set = SETTINGS.iter().map(|setting| {
        let value = setting.value(settings);
        let is_set = value != setting.value(&usual);
        (setting.attribute, Vec::from_iter(is_set.then_some(value)))
    });
    set.collect()
}

/// The rule as a line of the definition.
pub(crate) fn line(rule: &MemberOfRule) -> String {
    let follows = if rule.follows { "follows" } else { "stays" };
    format!("{} {} {follows}", rule.class(), rule.member())
}

/// The rule that a line of the definition has.
pub(crate) fn parse(line: &str) -> Option<MemberOfRule> {
    let words: Vec<&str> = line.split(' ').collect();
    let [class, member, follows] = words[..] else {
        return None;
    };
    Some(MemberOfRule {
        class: name(class, CLASS).ok()?,
        member: name(member, MEMBER).ok()?,
        follows: match follows {
            "follows" => true,
            "stays" => false,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_all_of_it() {
        let all = MemberOfRule {
            class: "groupOfUniqueNames".into(),
            member: "uniqueMember".into(),
            follows: true,
        };
        for rule in [MemberOfRule::default(), all] {
            assert_eq!(parse(&line(&rule)), Some(rule));
        }
        assert_eq!(parse("groupOfNames member"), None);
        assert_eq!(parse("groupOfNames member perhaps"), None);
        assert_eq!(parse(" member stays"), None);
    }
}
