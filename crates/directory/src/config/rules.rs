//! The rules of the data as people name them: the first of a kind is called by the kind, unless it has a name of its
//! own.

use super::Settings;

/// A kind of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataRuleKind {
    /// No two entries share a value.
    Unique,
    /// Values are what they have to be.
    Constraint,
    /// Values follow the entries that they name.
    Refint,
    /// Entries have memberOf.
    MemberOf,
    /// Values are sent in an order.
    ValueSort,
    /// Entries have values that LDAP URLs find.
    Dynlist,
    /// Entries end by themselves.
    Dds,
    /// Entries get numbers that are free.
    Numbers,
    /// Entries are members of groups.
    Automember,
    /// Entries name those that name them.
    Linked,
    /// Entries are made of others.
    Managed,
}

impl DataRuleKind {
    /// The word for it, which is that of OpenLDAP's overlay.
    pub fn word(self) -> &'static str {
        match self {
            DataRuleKind::Unique => "unique",
            DataRuleKind::Constraint => "constraint",
            DataRuleKind::Refint => "refint",
            DataRuleKind::MemberOf => "memberof",
            DataRuleKind::ValueSort => "valsort",
            DataRuleKind::Dynlist => "dynlist",
            DataRuleKind::Dds => "dds",
            DataRuleKind::Numbers => "numbers",
            DataRuleKind::Automember => "automember",
            DataRuleKind::Linked => "linked",
            DataRuleKind::Managed => "managed",
        }
    }
}

/// A rule of a directory, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataRule {
    /// What it is called. No other rule of the directory is.
    pub name: String,
    /// Its kind.
    pub kind: DataRuleKind,
    /// Its place among those of its kind.
    pub place: usize,
    /// What it was added with, besides its name: the options of `sapwood rule DIR add`, without hyphens, and their
    /// values.
    pub options: Vec<(&'static str, String)>,
}

/// Bytes of a rule's name.
const NAME_BYTES_MAX: usize = 64;

/// Whether a rule can be called so: it stands in lines and URLs.
///
/// # Errors
/// Says what a name is made of.
pub(crate) fn is_rule_name(name: &str) -> Result<(), String> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_of_name) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name of a rule: write 1 to {NAME_BYTES_MAX} letters, digits, hyphens, dots and underscores"
        )),
    }
}

impl Settings {
    /// The rules of the data that can be added and dropped one by one.
    pub fn rules(&self) -> Vec<DataRule> {
        let unique = self.unique.iter().enumerate();
        let mut rules: Vec<DataRule> = unique
            .map(|(place, rule)| DataRule {
                name: rule.name.clone(),
                kind: DataRuleKind::Unique,
                place,
                options: given([
                    ("attributes", rule.attributes.join(",")),
                    ("base", rule.base.clone()),
                ]),
            })
            .collect();
        let constraints = self.constraints.iter().enumerate();
        rules.extend(constraints.map(|(place, rule)| DataRule {
            name: rule.name.clone(),
            kind: DataRuleKind::Constraint,
            place,
            options: given([
                ("attributes", rule.attributes.join(",")),
                rule.test.parts(),
                ("restrict", rule.restrict.clone()),
            ]),
        }));
        rules.extend(self.refint.iter().map(|rule| DataRule {
            name: String::new(),
            kind: DataRuleKind::Refint,
            place: 0,
            options: given([
                ("attributes", rule.attributes.join(",")),
                ("nothing", rule.nothing.clone()),
            ]),
        }));
        rules.extend(self.member_of.iter().map(|rule| DataRule {
            name: String::new(),
            kind: DataRuleKind::MemberOf,
            place: 0,
            options: given([
                ("class", rule.class.clone()),
                ("member", rule.member.clone()),
            ]),
        }));
        let dynlists = self.dynlist.iter().enumerate();
        rules.extend(dynlists.map(|(place, rule)| DataRule {
            name: String::new(),
            kind: DataRuleKind::Dynlist,
            place,
            options: rule.options(),
        }));
        rules.extend(self.dds.iter().map(|rule| DataRule {
            name: String::new(),
            kind: DataRuleKind::Dds,
            place: 0,
            options: rule.options(),
        }));
        let numbers = self.numbers.iter().enumerate();
        rules.extend(numbers.map(|(place, rule)| DataRule {
            name: rule.name.clone(),
            kind: DataRuleKind::Numbers,
            place,
            options: given([
                ("attributes", rule.attributes.join(",")),
                ("filter", rule.filter.clone()),
                ("range", format!("{}-{}", rule.range.0, rule.range.1)),
                ("base", rule.base.clone()),
            ]),
        }));
        let automember = self.automember.iter().enumerate();
        rules.extend(automember.map(|(place, rule)| DataRule {
            name: rule.name.clone(),
            kind: DataRuleKind::Automember,
            place,
            options: given([
                ("group", rule.group.clone()),
                ("filter", rule.filter.clone()),
                ("base", rule.base.clone()),
                ("member", rule.member.clone()),
            ]),
        }));
        let linked = self.linked.iter().enumerate();
        rules.extend(linked.map(|(place, rule)| DataRule {
            name: String::new(),
            kind: DataRuleKind::Linked,
            place,
            options: given([
                ("link", rule.link.clone()),
                ("managed", rule.managed.clone()),
            ]),
        }));
        let managed = self.managed.iter().enumerate();
        rules.extend(managed.map(|(place, rule)| DataRule {
            name: rule.name.clone(),
            kind: DataRuleKind::Managed,
            place,
            options: given([
                ("template", rule.template.clone()),
                ("below", rule.below.clone()),
                ("filter", rule.filter.clone()),
                ("base", rule.base.clone()),
            ]),
        }));
        let sorts = self.value_sorts.iter().enumerate();
        rules.extend(sorts.map(|(place, rule)| DataRule {
            name: rule.name.clone(),
            kind: DataRuleKind::ValueSort,
            place,
            options: given([
                ("attribute", rule.attribute.clone()),
                ("base", rule.base.clone()),
                ("sort", rule.method.to_string()),
            ]),
        }));
        for at in 0..rules.len() {
            if rules[at].name.is_empty() {
                rules[at].name = free_name(&rules, rules[at].kind);
            }
        }
        rules
    }

    /// What a new rule of a kind is called if nobody names it.
    pub fn new_rule_name(&self, kind: DataRuleKind) -> String {
        free_name(&self.rules(), kind)
    }

    /// The name that two rules have given to themselves, if there is one.
    pub(crate) fn doubled_rule_name(&self) -> Option<String> {
        let unique = self.unique.iter().map(|rule| rule.name.as_str());
        let constraints = self.constraints.iter().map(|rule| rule.name.as_str());
        let numbers = self.numbers.iter().map(|rule| rule.name.as_str());
        let automember = self.automember.iter().map(|rule| rule.name.as_str());
        let managed = self.managed.iter().map(|rule| rule.name.as_str());
        let sorts = self.value_sorts.iter().map(|rule| rule.name.as_str());
        let mut given: Vec<&str> = unique
            .chain(constraints)
            .chain(sorts)
            .chain(numbers)
            .chain(automember)
            .chain(managed)
            .collect();
        given.retain(|name| !name.is_empty());
        given.sort_unstable();
        let doubled = given.array_windows().find(|[one, next]| one == next);
        doubled.map(|[one, _]| (*one).to_owned())
    }

    /// The same settings with this one of its rules.
    pub(crate) fn with_only(&self, rule: &DataRule) -> Settings {
        let mut settings = self.clone();
        settings.unique.clear();
        settings.constraints.clear();
        settings.refint = None;
        settings.member_of = None;
        settings.value_sorts.clear();
        settings.dynlist.clear();
        settings.dds = None;
        settings.numbers.clear();
        settings.automember.clear();
        settings.linked.clear();
        settings.managed.clear();
        match rule.kind {
            DataRuleKind::Unique => settings.unique.extend(self.unique.get(rule.place).cloned()),
            DataRuleKind::Constraint => {
                let own = self.constraints.get(rule.place).cloned();
                settings.constraints.extend(own);
            }
            DataRuleKind::Refint => settings.refint.clone_from(&self.refint),
            DataRuleKind::Automember => {
                settings
                    .automember
                    .extend(self.automember.get(rule.place).cloned());
            }
            DataRuleKind::Linked => settings.linked.extend(self.linked.get(rule.place).cloned()),
            DataRuleKind::Managed => settings
                .managed
                .extend(self.managed.get(rule.place).cloned()),
            DataRuleKind::Numbers => settings
                .numbers
                .extend(self.numbers.get(rule.place).cloned()),
            DataRuleKind::Dds => settings.dds.clone_from(&self.dds),
            DataRuleKind::MemberOf => settings.member_of.clone_from(&self.member_of),
            DataRuleKind::ValueSort => {
                let own = self.value_sorts.get(rule.place).cloned();
                settings.value_sorts.extend(own);
            }
            DataRuleKind::Dynlist => settings
                .dynlist
                .extend(self.dynlist.get(rule.place).cloned()),
        }
        settings
    }
}

/// The options that have a value.
fn given<const N: usize>(options: [(&'static str, String); N]) -> Vec<(&'static str, String)> {
    let mut options = Vec::from(options);
    options.retain(|(_, value)| !value.is_empty());
    options
}

/// The word of a kind, with a number if another rule is called so.
fn free_name(rules: &[DataRule], kind: DataRuleKind) -> String {
    let word = kind.word();
    let is_free = |name: &String| rules.iter().all(|rule| rule.name != *name);
    let numbered = (2..).map(|number| format!("{word}-{number}"));
    let mut names = std::iter::once(word.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_else(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UniqueRule;

    #[test]
    fn the_first_of_a_kind_is_called_by_it() {
        let rule = |name: &str| UniqueRule {
            name: name.to_owned(),
            ..UniqueRule::default()
        };
        let settings = Settings {
            unique: ["", "unique-2", "people", ""].map(rule).into(),
            ..Settings::default()
        };
        let names: Vec<String> = settings.rules().into_iter().map(|rule| rule.name).collect();
        assert_eq!(names, ["unique", "unique-2", "people", "unique-3"]);
        assert_eq!(settings.new_rule_name(DataRuleKind::Unique), "unique-4");
        assert_eq!(settings.doubled_rule_name(), None);
        let settings = Settings {
            unique: ["a", "b", "a"].map(rule).into(),
            ..Settings::default()
        };
        assert_eq!(settings.doubled_rule_name().as_deref(), Some("a"));
    }
}
