//! `sapwood rule`: rules that hold of the data added, listed and dropped, by the running server if there is one.
//!
//! A rule is an overlay of `cn=config`, and is added and dropped by a change of that. What the command does besides: it
//! makes the indexes that the rule needs, and looks at the data that are there. The rule is in force while it looks, so
//! that nothing is missed; where the data are against it, it is dropped again.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use sapwood_directory::{
    AutomemberRule, ConstraintRule, ConstraintTest, DataRule, DataRuleKind, Directory, DynlistRule,
    IndexDefinition, LinkedRule, ManagedRule, NumbersRule, UniqueRule, ValueSortRule,
};
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, ModifyRequest, Request};
use sapwood_server::{Config, admin};

use crate::cli::{AddedRule, Rule, RuleAction};
use crate::commands::config;
use crate::open;
use crate::output::Output;
use crate::progress::Progress;

/// The entry that has the rules of unique values.
const UNIQUE: &str = "olcOverlay={0}unique,olcDatabase={1}mdb,cn=config";
/// Its attribute that has them.
const UNIQUE_URI: &str = "olcUniqueURI";
/// The entry of constraints.
const CONSTRAINT: &str = "olcOverlay={5}constraint,olcDatabase={1}mdb,cn=config";
/// Its attribute that has them.
const CONSTRAINT_ATTRIBUTE: &str = "olcConstraintAttribute";
/// The entry of linked attributes.
const LINKED: &str = "olcOverlay={10}linked,olcDatabase={1}mdb,cn=config";
/// Its attribute that has them.
const LINKED_VALUE: &str = "sapwoodLinked";
/// The entry of rules of members.
const AUTOMEMBER: &str = "olcOverlay={9}automember,olcDatabase={1}mdb,cn=config";
/// Its attribute that has them.
const AUTOMEMBER_URI: &str = "sapwoodAutomemberURI";
/// The entry of managed entries.
const MANAGED: &str = "olcOverlay={12}managed,olcDatabase={1}mdb,cn=config";
/// Its attribute that has the rules.
const MANAGED_URI: &str = "sapwoodManagedURI";
/// The attributes by which entries that were made, and those that they were made of, name each other.
const MANAGED_LINKS: [&str; 2] = ["mepManagedEntry", "mepManagedBy"];
/// The entry of rules of numbers.
const NUMBERS: &str = "olcOverlay={8}numbers,olcDatabase={1}mdb,cn=config";
/// Its attribute that has them.
const NUMBERS_URI: &str = "sapwoodNumbersURI";
/// The entry of dynamic entries.
const DDS: &str = "olcOverlay={7}dds,olcDatabase={1}mdb,cn=config";
/// What is set in it, in the order of what the control socket is asked for.
const DDS_SETTINGS: [&str; 6] = [
    "olcDDSmaxTtl",
    "olcDDSminTtl",
    "olcDDSdefaultTtl",
    "olcDDSinterval",
    "olcDDStolerance",
    "olcDDSmaxDynamicObjects",
];
/// The attribute that says when an entry ends.
const EXPIRES: &str = "entryExpireTimestamp";
/// The entry of dynamic groups and lists.
const DYNLIST: &str = "olcOverlay={6}dynlist,olcDatabase={1}mdb,cn=config";
/// Its attribute that has them.
const DYNLIST_RULE: &str = "olcDynListAttrSet";
/// Kinds of index.
const EQUALITY: &str = "eq";
const ORDERING: &str = "ord";
/// The entry of the order of values.
const VALUE_SORT: &str = "olcOverlay={11}valsort,olcDatabase={1}mdb,cn=config";
/// Its attribute that has the rules.
const VALUE_SORT_ATTRIBUTE: &str = "olcValSortAttr";
/// The entry of memberOf.
const MEMBER_OF: &str = "olcOverlay={4}memberof,olcDatabase={1}mdb,cn=config";
/// The entry of referential integrity.
const REFINT: &str = "olcOverlay={3}refint,olcDatabase={1}mdb,cn=config";

pub(crate) fn run(args: &Rule, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let words = words(&args.action);
    let mut asked = vec!["rule"];
    asked.extend(words.iter().map(String::as_str));
    let mut progress = Progress::new(0, "entries looked at");
    let mut failed = Ok(());
    let mut hear = |note: &str| match Note::read(note) {
        Note::Line(line) if failed.is_ok() => failed = writeln!(out, "{line}"),
        Note::Line(_) => {}
        Note::Looked(entries) => progress.set(entries),
        Note::Violation(violation) => progress.tell(violation),
    };
    let done = match admin::ask(&args.folder, &asked, &mut hear)? {
        Some(done) => done,
        None => {
            let reads = matches!(args.action, RuleAction::List);
            let directory = open::directory(&args.folder, &config, reads)?;
            let done = by_command(&directory, &config.admin.dn, &words, &mut hear);
            if !reads {
                open::save_memory(&args.folder, &directory)?;
            }
            done.map_err(|error| anyhow!(error))?
        }
    };
    progress.finish();
    failed?;
    if !done.is_empty() {
        out.say(done);
    }
    Ok(ExitCode::SUCCESS)
}

/// What the control socket is asked for.
fn words(action: &RuleAction) -> Vec<String> {
    match action {
        RuleAction::List => vec!["list".into()],
        RuleAction::Drop { name } => vec!["drop".into(), name.clone()],
        RuleAction::Add(AddedRule::Unique {
            attributes,
            base,
            name,
        }) => vec![
            "add".into(),
            DataRuleKind::Unique.word().into(),
            name.clone().unwrap_or_default(),
            attributes.join(","),
            base.clone().unwrap_or_default(),
        ],
        RuleAction::Add(AddedRule::Constraint {
            attributes,
            test,
            restrict,
            name,
        }) => {
            let (word, value) = test.parts();
            vec![
                "add".into(),
                DataRuleKind::Constraint.word().into(),
                name.clone().unwrap_or_default(),
                attributes.join(","),
                word.into(),
                value,
                restrict.clone().unwrap_or_default(),
            ]
        }
        RuleAction::Add(AddedRule::ValueSort {
            attribute,
            base,
            sort,
            name,
        }) => vec![
            "add".into(),
            DataRuleKind::ValueSort.word().into(),
            name.clone().unwrap_or_default(),
            attribute.clone(),
            base.clone(),
            sort.clone(),
        ],
        RuleAction::Add(AddedRule::MemberOf { class, member }) => vec![
            "add".into(),
            DataRuleKind::MemberOf.word().into(),
            class.clone(),
            member.clone(),
        ],
        RuleAction::Add(AddedRule::Linked { link, managed }) => {
            let rule = LinkedRule {
                link: link.clone(),
                managed: managed.clone(),
            };
            vec![
                "add".into(),
                DataRuleKind::Linked.word().into(),
                rule.to_string(),
            ]
        }
        RuleAction::Add(AddedRule::Automember {
            group,
            filter,
            base,
            member,
            name,
        }) => {
            let rule = AutomemberRule {
                group: group.clone(),
                member: member.clone(),
                filter: filter.clone(),
                base: base.clone().unwrap_or_default(),
                name: String::new(),
            };
            let name = name.clone().unwrap_or_default();
            vec![
                "add".into(),
                DataRuleKind::Automember.word().into(),
                name,
                rule.to_string(),
            ]
        }
        RuleAction::Add(AddedRule::Managed {
            template,
            below,
            filter,
            base,
            name,
        }) => {
            let rule = ManagedRule {
                template: template.clone(),
                below: below.clone(),
                filter: filter.clone(),
                base: base.clone().unwrap_or_default(),
                name: String::new(),
            };
            let name = name.clone().unwrap_or_default();
            vec![
                "add".into(),
                DataRuleKind::Managed.word().into(),
                name,
                rule.to_string(),
            ]
        }
        RuleAction::Add(AddedRule::Numbers {
            attributes,
            filter,
            range,
            base,
            name,
        }) => {
            let rule = NumbersRule {
                attributes: attributes.clone(),
                filter: filter.clone(),
                range: *range,
                base: base.clone().unwrap_or_default(),
                name: String::new(),
            };
            let name = name.clone().unwrap_or_default();
            vec![
                "add".into(),
                DataRuleKind::Numbers.word().into(),
                name,
                rule.to_string(),
            ]
        }
        RuleAction::Add(AddedRule::Dds {
            max_ttl,
            min_ttl,
            default_ttl,
            interval,
            tolerance,
            max_objects,
        }) => {
            let numbers = [
                max_ttl,
                min_ttl,
                default_ttl,
                interval,
                tolerance,
                max_objects,
            ];
            let numbers = numbers.map(|number| number.map_or(String::new(), |n| n.to_string()));
            let mut words = vec!["add".into(), DataRuleKind::Dds.word().into()];
            words.extend(numbers);
            words
        }
        RuleAction::Add(AddedRule::Dynlist {
            class,
            url,
            member,
            list,
        }) => {
            let rule = DynlistRule {
                class: class.clone(),
                url: url.clone(),
                member: (!list).then(|| member.clone()),
            };
            vec![
                "add".into(),
                DataRuleKind::Dynlist.word().into(),
                rule.to_string(),
            ]
        }
        RuleAction::Add(AddedRule::Refint {
            attributes,
            nothing,
        }) => vec![
            "add".into(),
            DataRuleKind::Refint.word().into(),
            attributes.join(","),
            nothing.clone().unwrap_or_default(),
        ],
    }
}

/// What is told while a command is done. As a note of the control socket it begins with a word that says which it is.
enum Note<'n> {
    /// What the command is for.
    Line(&'n str),
    /// How many entries were looked at.
    Looked(u64),
    /// What a rule does not hold of.
    Violation(&'n str),
}

impl<'n> Note<'n> {
    fn read(note: &'n str) -> Note<'n> {
        match note.split_once(' ') {
            Some(("looked", entries)) => Note::Looked(entries.parse().unwrap_or_default()),
            Some(("violation", rest)) => Note::Violation(rest),
            Some(("line", rest)) => Note::Line(rest),
            _ => Note::Line(note),
        }
    }

    fn text(&self) -> String {
        match self {
            Note::Line(line) => format!("line {line}"),
            Note::Looked(entries) => format!("looked {entries}"),
            Note::Violation(violation) => format!("violation {violation}"),
        }
    }
}

/// Does what the control socket was asked for: `rule list`, `rule drop NAME`, or `rule add KIND` with what makes a rule
/// of that kind, where what is empty was not given.
pub(crate) fn by_command(
    directory: &Directory,
    administrator: &str,
    words: &[String],
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut rules = Rules {
        directory,
        administrator,
        note: &mut |told: Note<'_>| note(&told.text()),
    };
    match words[..] {
        ["list"] => {
            for rule in rules.all()? {
                (rules.note)(Note::Line(&listed(&rule)));
            }
            Ok(String::new())
        }
        ["drop", name] => rules.drop(name),
        ["add", kind, name, attributes, base] if kind == DataRuleKind::Unique.word() => {
            let name = rules.name_of_new(DataRuleKind::Unique, name)?;
            let own_name = match name == DataRuleKind::Unique.word() {
                true => String::new(),
                false => name.clone(),
            };
            rules.add_unique(
                &name,
                &UniqueRule {
                    attributes: attributes.split(',').map(str::to_owned).collect(),
                    base: base.to_owned(),
                    name: own_name,
                },
            )
        }
        ["add", kind, name, attributes, word, value, restrict]
            if kind == DataRuleKind::Constraint.word() =>
        {
            let name = rules.name_of_new(DataRuleKind::Constraint, name)?;
            let own_name = match name == DataRuleKind::Constraint.word() {
                true => String::new(),
                false => name.clone(),
            };
            let rule = ConstraintRule {
                attributes: attributes.split(',').map(str::to_owned).collect(),
                test: ConstraintTest::of(word, value)?,
                restrict: restrict.to_owned(),
                name: own_name,
            };
            rules.add_constraint(&name, &rule)
        }
        ["add", kind, name, attribute, base, sort] if kind == DataRuleKind::ValueSort.word() => {
            let name = rules.name_of_new(DataRuleKind::ValueSort, name)?;
            let own_name = match name == DataRuleKind::ValueSort.word() {
                true => String::new(),
                false => name.clone(),
            };
            let rule = ValueSortRule {
                attribute: attribute.to_owned(),
                base: base.to_owned(),
                method: sort.parse()?,
                name: own_name,
            };
            rules.add_value_sort(&name, &rule)
        }
        ["add", kind, attributes, nothing] if kind == DataRuleKind::Refint.word() => {
            rules.add_refint(attributes, nothing)
        }
        ["add", kind, class, member] if kind == DataRuleKind::MemberOf.word() => {
            rules.add_member_of(class, member)
        }
        ["add", kind, name, rule] if kind == DataRuleKind::Automember.word() => {
            let name = rules.name_of_new(DataRuleKind::Automember, name)?;
            let mut rule: AutomemberRule = rule.parse()?;
            if name != DataRuleKind::Automember.word() {
                rule.name.clone_from(&name);
            }
            rules.add_automember(&name, &rule)
        }
        ["add", kind, name, rule] if kind == DataRuleKind::Managed.word() => {
            let name = rules.name_of_new(DataRuleKind::Managed, name)?;
            let mut rule: ManagedRule = rule.parse()?;
            if name != DataRuleKind::Managed.word() {
                rule.name.clone_from(&name);
            }
            rules.add_managed(&name, &rule)
        }
        ["add", kind, name, rule] if kind == DataRuleKind::Numbers.word() => {
            let name = rules.name_of_new(DataRuleKind::Numbers, name)?;
            let mut rule: NumbersRule = rule.parse()?;
            if name != DataRuleKind::Numbers.word() {
                rule.name.clone_from(&name);
            }
            rules.add_numbers(&name, &rule)
        }
        ["add", kind, ref numbers @ ..] if kind == DataRuleKind::Dds.word() => {
            rules.add_dds(numbers)
        }
        ["add", kind, rule] if kind == DataRuleKind::Linked.word() => {
            rules.add_linked(&rule.parse()?)
        }
        ["add", kind, rule] if kind == DataRuleKind::Dynlist.word() => {
            rules.add_dynlist(&rule.parse()?)
        }
        _ => Err("rule add, list or drop?".into()),
    }
}

/// A rule in a line: its name, its kind and the options that add it.
fn listed(rule: &DataRule) -> String {
    let mut line = format!("{} {}", rule.name, rule.kind.word());
    for (word, value) in &rule.options {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b",-.;".contains(&byte);
        line.push_str(&match value.bytes().all(is_word) {
            true if value.is_empty() => format!(" --{word}"),
            true => format!(" --{word} {value}"),
            false => format!(" --{word} \"{value}\""),
        });
    }
    line
}

/// The rules of a directory.
struct Rules<'r> {
    directory: &'r Directory,
    administrator: &'r str,
    note: &'r mut dyn FnMut(Note<'_>),
}

impl Rules<'_> {
    fn all(&self) -> Result<Vec<DataRule>, String> {
        let snapshot = self.directory.snapshot();
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        Ok(snapshot.settings().rules())
    }

    /// Changes one value of an entry of `cn=config`.
    fn change(
        &self,
        (entry, attribute): (&str, &str),
        kind: ChangeKind,
        value: &str,
    ) -> Result<(), String> {
        let mut changes = ChangesBuf::default();
        changes.push(kind, attribute.as_bytes(), [value.as_bytes()]);
        let changes = changes.view();
        let op = Request::Modify(ModifyRequest { dn: entry, changes });
        config::make(self.directory, self.administrator, op)
    }

    /// Adds an entry to `cn=config`.
    fn add_entry(&self, dn: &str, attributes: &[(&str, &str)]) -> Result<(), String> {
        let mut list = AttributesBuf::default();
        for (description, value) in attributes {
            list.push(description.as_bytes(), [value.as_bytes()]);
        }
        let attributes = list.view();
        let op = Request::Add(AddRequest { dn, attributes });
        config::make(self.directory, self.administrator, op)
    }

    /// What a rule is going to be called.
    fn name_of_new(&self, kind: DataRuleKind, wanted: &str) -> Result<String, String> {
        if self.all()?.iter().any(|rule| rule.name == wanted) {
            return Err(format!("there is a rule that is called {wanted} already"));
        }
        if !wanted.is_empty() {
            return Ok(wanted.to_owned());
        }
        let snapshot = self.directory.snapshot();
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        Ok(snapshot.settings().new_rule_name(kind))
    }

    fn add_unique(&mut self, name: &str, rule: &UniqueRule) -> Result<String, String> {
        let indexed = self.index(&rule.attributes)?;
        let uri = rule.uri();
        match self.has(DataRuleKind::Unique)? {
            false => {
                let attributes = [
                    ("objectClass", "olcUniqueConfig"),
                    ("olcOverlay", "unique"),
                    (UNIQUE_URI, &uri),
                ];
                self.add_entry(UNIQUE, &attributes)?;
            }
            true => self.change((UNIQUE, UNIQUE_URI), ChangeKind::Add, &uri)?,
        }
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_constraint(&mut self, name: &str, rule: &ConstraintRule) -> Result<String, String> {
        let indexed = self.index(&rule.listed())?;
        let value = rule.to_string();
        match self.has(DataRuleKind::Constraint)? {
            false => {
                let attributes = [
                    ("objectClass", "olcConstraintConfig"),
                    ("olcOverlay", "constraint"),
                    (CONSTRAINT_ATTRIBUTE, &value),
                ];
                self.add_entry(CONSTRAINT, &attributes)?;
            }
            true => self.change((CONSTRAINT, CONSTRAINT_ATTRIBUTE), ChangeKind::Add, &value)?,
        }
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_linked(&mut self, rule: &LinkedRule) -> Result<String, String> {
        let name = self.name_of_new(DataRuleKind::Linked, "")?;
        let value = rule.to_string();
        match self.has(DataRuleKind::Linked)? {
            false => {
                let attributes = [
                    ("objectClass", "sapwoodLinkedConfig"),
                    ("olcOverlay", "linked"),
                    (LINKED_VALUE, &value),
                ];
                self.add_entry(LINKED, &attributes)?;
            }
            true => self.change((LINKED, LINKED_VALUE), ChangeKind::Add, &value)?,
        }
        self.look(&name)?;
        Ok(format!("added: {name}"))
    }

    fn add_automember(&mut self, name: &str, rule: &AutomemberRule) -> Result<String, String> {
        let value = rule.to_string();
        match self.has(DataRuleKind::Automember)? {
            false => {
                let attributes = [
                    ("objectClass", "sapwoodAutomemberConfig"),
                    ("olcOverlay", "automember"),
                    (AUTOMEMBER_URI, &value),
                ];
                self.add_entry(AUTOMEMBER, &attributes)?;
            }
            true => {
                let attribute = (AUTOMEMBER, AUTOMEMBER_URI);
                self.change(attribute, ChangeKind::Add, &value)?;
            }
        }
        match self.directory.fill_group(rule) {
            Ok(members) => Ok(format!("added: {name} (members: {members})")),
            Err(error) => {
                self.drop(name)?;
                Err(format!("{error}: the rule {name} is not added"))
            }
        }
    }

    fn add_managed(&mut self, name: &str, rule: &ManagedRule) -> Result<String, String> {
        let indexed = self.index(&MANAGED_LINKS.map(str::to_owned))?;
        let value = rule.to_string();
        match self.has(DataRuleKind::Managed)? {
            false => {
                let attributes = [
                    ("objectClass", "sapwoodManagedConfig"),
                    ("olcOverlay", "managed"),
                    (MANAGED_URI, &value),
                ];
                self.add_entry(MANAGED, &attributes)?;
            }
            true => self.change((MANAGED, MANAGED_URI), ChangeKind::Add, &value)?,
        }
        self.look(name)?;
        match self.directory.make_managed(rule) {
            Ok(made) => Ok(format!("added: {name} (made: {made}){indexed}")),
            Err(error) => {
                self.drop(name)?;
                Err(format!("{error}: the rule {name} is not added"))
            }
        }
    }

    fn add_numbers(&mut self, name: &str, rule: &NumbersRule) -> Result<String, String> {
        let indexed = self.index(&rule.attributes)?;
        let value = rule.to_string();
        match self.has(DataRuleKind::Numbers)? {
            false => {
                let attributes = [
                    ("objectClass", "sapwoodNumbersConfig"),
                    ("olcOverlay", "numbers"),
                    (NUMBERS_URI, &value),
                ];
                self.add_entry(NUMBERS, &attributes)?;
            }
            true => self.change((NUMBERS, NUMBERS_URI), ChangeKind::Add, &value)?,
        }
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_dds(&mut self, numbers: &[&str]) -> Result<String, String> {
        let name = self.first_of(DataRuleKind::Dds)?;
        let indexed = self.index_by(&[EXPIRES.to_owned()], ORDERING)?;
        let mut entry = vec![("objectClass", "olcDDSConfig"), ("olcOverlay", "dds")];
        let given = DDS_SETTINGS.into_iter().zip(numbers.iter().copied());
        entry.extend(given.filter(|(_, number)| !number.is_empty()));
        self.add_entry(DDS, &entry)?;
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_dynlist(&mut self, rule: &DynlistRule) -> Result<String, String> {
        let name = self.name_of_new(DataRuleKind::Dynlist, "")?;
        let value = rule.to_string();
        match self.has(DataRuleKind::Dynlist)? {
            false => {
                let attributes = [
                    ("objectClass", "olcDynListConfig"),
                    ("olcOverlay", "dynlist"),
                    (DYNLIST_RULE, &value),
                ];
                self.add_entry(DYNLIST, &attributes)?;
            }
            true => self.change((DYNLIST, DYNLIST_RULE), ChangeKind::Add, &value)?,
        }
        Ok(format!("added: {name}"))
    }

    fn add_value_sort(&mut self, name: &str, rule: &ValueSortRule) -> Result<String, String> {
        let value = rule.to_string();
        match self.has(DataRuleKind::ValueSort)? {
            false => {
                let attributes = [
                    ("objectClass", "olcValSortConfig"),
                    ("olcOverlay", "valsort"),
                    (VALUE_SORT_ATTRIBUTE, &value),
                ];
                self.add_entry(VALUE_SORT, &attributes)?;
            }
            true => self.change((VALUE_SORT, VALUE_SORT_ATTRIBUTE), ChangeKind::Add, &value)?,
        }
        self.look(name)?;
        Ok(format!("added: {name}"))
    }

    /// The word of a kind of which there is one rule at most, if there is none yet.
    fn first_of(&self, kind: DataRuleKind) -> Result<&'static str, String> {
        let name = kind.word();
        match self.has(kind)? {
            true => Err(format!("there is the rule {name} already: drop it first")),
            false => Ok(name),
        }
    }

    fn add_member_of(&mut self, class: &str, member: &str) -> Result<String, String> {
        let name = self.first_of(DataRuleKind::MemberOf)?;
        let indexed = self.index(&[member.to_owned()])?;
        let entry = [
            ("objectClass", "olcMemberOfConfig"),
            ("olcOverlay", "memberof"),
            ("olcMemberOfGroupOC", class),
            ("olcMemberOfMemberAD", member),
        ];
        self.add_entry(MEMBER_OF, &entry)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_refint(&mut self, attributes: &str, nothing: &str) -> Result<String, String> {
        let name = self.first_of(DataRuleKind::Refint)?;
        let names: Vec<String> = attributes.split(',').map(str::to_owned).collect();
        let indexed = self.index(&names)?;
        let words = attributes.replace(',', " ");
        let mut entry = vec![
            ("objectClass", "olcRefintConfig"),
            ("olcOverlay", "refint"),
            ("olcRefintAttribute", &words),
        ];
        if !nothing.is_empty() {
            entry.push(("olcRefintNothing", nothing));
        }
        self.add_entry(REFINT, &entry)?;
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    /// Whether there is a rule of a kind.
    fn has(&self, kind: DataRuleKind) -> Result<bool, String> {
        Ok(self.all()?.iter().any(|rule| rule.kind == kind))
    }

    /// Makes the equality indexes that are missing; says which.
    fn index(&mut self, attributes: &[String]) -> Result<String, String> {
        self.index_by(attributes, EQUALITY)
    }

    /// The same of a kind.
    fn index_by(&mut self, attributes: &[String], kind: &str) -> Result<String, String> {
        let mut made = Vec::new();
        for attribute in attributes {
            let snapshot = self.directory.snapshot();
            let snapshot = snapshot.map_err(|error| error.to_string())?;
            let known = snapshot.schema().attribute_type(attribute.as_bytes());
            let known = known.ok_or_else(|| format!("the schema does not define '{attribute}'"))?;
            let name = known.name().to_owned();
            let indexes = self
                .directory
                .indexes()
                .map_err(|error| error.to_string())?;
            let is_there = indexes
                .iter()
                .any(|index| index.attribute == name && index.kind == kind && index.is_complete);
            if is_there {
                continue;
            }
            let definition = IndexDefinition {
                attribute: name,
                equality: kind == EQUALITY,
                ordering: kind == ORDERING,
                ..IndexDefinition::default()
            };
            let note = &mut self.note;
            let added = self
                .directory
                .add_index(&definition, |entries| note(Note::Looked(entries)));
            added.map_err(|error| error.to_string())?;
            made.push(definition.to_string());
        }
        Ok(match made.is_empty() {
            true => String::new(),
            false => format!(" (with the index {})", made.join("; ")),
        })
    }

    /// Looks at the data for what a new rule does not hold of, and drops it if there is anything.
    fn look(&mut self, name: &str) -> Result<(), String> {
        let note = &mut self.note;
        let looked = self
            .directory
            .rule_violations(name, |entries| note(Note::Looked(entries)));
        let violations = match looked {
            Ok(violations) if violations.is_empty() => return Ok(()),
            looked => looked,
        };
        // Also where the data could not be read.
        self.drop(name)?;
        let violations = violations.map_err(|error| error.to_string())?;
        for violation in violations.told() {
            (self.note)(Note::Violation(violation));
        }
        let count = violations.told().len();
        let count = match violations.is_full() {
            true => format!("{count} places and perhaps more"),
            false if count == 1 => "1 place".to_owned(),
            false => format!("{count} places"),
        };
        Err(format!(
            "the data are against the rule {name} in {count}: it is not added"
        ))
    }

    fn drop(&self, name: &str) -> Result<String, String> {
        let all = self.all()?;
        let rule = all.iter().find(|rule| rule.name == name);
        let rule = rule.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|rule| rule.name.as_str()).collect();
            match names.is_empty() {
                true => format!("there is no rule {name}, and no other one"),
                false => format!("there is no rule {name}; there are {}", names.join(", ")),
            }
        })?;
        let snapshot = self.directory.snapshot();
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        match rule.kind {
            DataRuleKind::Unique => {
                let uri = snapshot
                    .settings()
                    .unique
                    .get(rule.place)
                    .map(UniqueRule::uri);
                let uri = uri.unwrap_or_default();
                self.change((UNIQUE, UNIQUE_URI), ChangeKind::Delete, &uri)?;
            }
            DataRuleKind::Constraint => {
                let rules = &snapshot.settings().constraints;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                let attribute = (CONSTRAINT, CONSTRAINT_ATTRIBUTE);
                self.change(attribute, ChangeKind::Delete, &value)?;
            }
            DataRuleKind::Automember => {
                let rules = &snapshot.settings().automember;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                let attribute = (AUTOMEMBER, AUTOMEMBER_URI);
                self.change(attribute, ChangeKind::Delete, &value)?;
            }
            DataRuleKind::Linked => {
                let rules = &snapshot.settings().linked;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                self.change((LINKED, LINKED_VALUE), ChangeKind::Delete, &value)?;
            }
            DataRuleKind::Managed => {
                let rules = &snapshot.settings().managed;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                self.change((MANAGED, MANAGED_URI), ChangeKind::Delete, &value)?;
            }
            DataRuleKind::Numbers => {
                let rules = &snapshot.settings().numbers;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                self.change((NUMBERS, NUMBERS_URI), ChangeKind::Delete, &value)?;
            }
            DataRuleKind::Dynlist => {
                let rules = &snapshot.settings().dynlist;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                self.change((DYNLIST, DYNLIST_RULE), ChangeKind::Delete, &value)?;
            }
            DataRuleKind::ValueSort => {
                let rules = &snapshot.settings().value_sorts;
                let value = rules.get(rule.place).map(ToString::to_string);
                let value = value.unwrap_or_default();
                let attribute = (VALUE_SORT, VALUE_SORT_ATTRIBUTE);
                self.change(attribute, ChangeKind::Delete, &value)?;
            }
            DataRuleKind::Refint => {
                config::make(self.directory, self.administrator, Request::Delete(REFINT))?;
            }
            DataRuleKind::MemberOf => {
                let delete = Request::Delete(MEMBER_OF);
                config::make(self.directory, self.administrator, delete)?;
            }
            DataRuleKind::Dds => {
                config::make(self.directory, self.administrator, Request::Delete(DDS))?;
            }
        }
        Ok(format!("dropped: {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_are_written() {
        for note in [
            Note::Line("unique unique --attributes uid"),
            Note::Looked(4096),
            Note::Violation("uid: 'x' is in 'cn=a' and in 'cn=b'"),
        ] {
            let text = note.text();
            assert_eq!(Note::read(&text).text(), text);
        }
    }
}
