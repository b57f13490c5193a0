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
    IndexDefinition, LinkedRule, ManagedRule, NumbersRule, Settings, UniqueRule, ValueSortRule,
};
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, ModifyRequest, Request};
use sapwood_server::{Config, admin};

use crate::cli::{AddedRule, Rule, RuleAction};
use crate::commands::config;
use crate::open;
use crate::output::Output;
use crate::progress::Progress;

/// The attributes by which entries that were made, and those that they were made of, name each other.
const MANAGED_LINKS: [&str; 2] = ["mepManagedEntry", "mepManagedBy"];
/// What is set of dynamic entries, in the order of what the control socket is asked for.
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
/// Kinds of index.
const EQUALITY: &str = "eq";
const ORDERING: &str = "ord";

/// The entry of `cn=config` that has the rules of a kind.
struct Overlay {
    kind: DataRuleKind,
    /// Its place among the overlays.
    number: u8,
    class: &'static str,
    /// Its attribute that has them, a value each. Without one, the entry itself is the only rule.
    values: Option<&'static str>,
}

impl Overlay {
    fn of(kind: DataRuleKind) -> Overlay {
        let (number, class, values) = match kind {
            DataRuleKind::Unique => (0, "olcUniqueConfig", Some("olcUniqueURI")),
            DataRuleKind::Refint => (3, "olcRefintConfig", None),
            DataRuleKind::MemberOf => (4, "olcMemberOfConfig", None),
            DataRuleKind::Constraint => (5, "olcConstraintConfig", Some("olcConstraintAttribute")),
            DataRuleKind::Dynlist => (6, "olcDynListConfig", Some("olcDynListAttrSet")),
            DataRuleKind::Dds => (7, "olcDDSConfig", None),
            DataRuleKind::Numbers => (8, "sapwoodNumbersConfig", Some("sapwoodNumbersURI")),
            DataRuleKind::Automember => {
                (9, "sapwoodAutomemberConfig", Some("sapwoodAutomemberURI"))
            }
            DataRuleKind::Linked => (10, "sapwoodLinkedConfig", Some("sapwoodLinked")),
            DataRuleKind::ValueSort => (11, "olcValSortConfig", Some("olcValSortAttr")),
            DataRuleKind::Managed => (12, "sapwoodManagedConfig", Some("sapwoodManagedURI")),
        };
        Overlay {
            kind,
            number,
            class,
            values,
        }
    }

    fn dn(&self) -> String {
        let (number, word) = (self.number, self.kind.word());
        format!("olcOverlay={{{number}}}{word},olcDatabase={{1}}mdb,cn=config")
    }
}

/// The value of a rule, where an attribute has a value for each rule of its kind.
fn value_of(settings: &Settings, rule: &DataRule) -> Option<String> {
    fn written<T: ToString>(rules: &[T], place: usize) -> Option<String> {
        rules.get(place).map(T::to_string)
    }
    let place = rule.place;
    match rule.kind {
        DataRuleKind::Unique => settings.unique.get(place).map(UniqueRule::uri),
        DataRuleKind::Constraint => written(&settings.constraints, place),
        DataRuleKind::Automember => written(&settings.automember, place),
        DataRuleKind::Linked => written(&settings.linked, place),
        DataRuleKind::Managed => written(&settings.managed, place),
        DataRuleKind::Numbers => written(&settings.numbers, place),
        DataRuleKind::Dynlist => written(&settings.dynlist, place),
        DataRuleKind::ValueSort => written(&settings.value_sorts, place),
        DataRuleKind::Refint | DataRuleKind::MemberOf | DataRuleKind::Dds => None,
    }
}

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
        RuleAction::Add(rule) => {
            let (kind, words) = words_of(rule);
            let mut all = vec!["add".into(), kind.word().into()];
            all.extend(words);
            all
        }
    }
}

/// The kind of a rule that is to be added, and the words that make it.
fn words_of(added: &AddedRule) -> (DataRuleKind, Vec<String>) {
    let given = |text: &Option<String>| text.clone().unwrap_or_default();
    match added {
        AddedRule::Unique {
            attributes,
            base,
            name,
        } => {
            let words = vec![given(name), attributes.join(","), given(base)];
            (DataRuleKind::Unique, words)
        }
        AddedRule::Constraint {
            attributes,
            test,
            restrict,
            name,
        } => {
            let (word, value) = test.parts();
            let words = vec![
                given(name),
                attributes.join(","),
                word.into(),
                value,
                given(restrict),
            ];
            (DataRuleKind::Constraint, words)
        }
        AddedRule::ValueSort {
            attribute,
            base,
            sort,
            name,
        } => {
            let words = vec![given(name), attribute.clone(), base.clone(), sort.clone()];
            (DataRuleKind::ValueSort, words)
        }
        AddedRule::MemberOf { class, member } => {
            (DataRuleKind::MemberOf, vec![class.clone(), member.clone()])
        }
        AddedRule::Linked { link, managed } => {
            let rule = LinkedRule {
                link: link.clone(),
                managed: managed.clone(),
            };
            (DataRuleKind::Linked, vec![rule.to_string()])
        }
        AddedRule::Automember {
            group,
            filter,
            base,
            member,
            name,
        } => {
            let rule = AutomemberRule {
                group: group.clone(),
                member: member.clone(),
                filter: filter.clone(),
                base: given(base),
                name: String::new(),
            };
            (
                DataRuleKind::Automember,
                vec![given(name), rule.to_string()],
            )
        }
        AddedRule::Managed {
            template,
            below,
            filter,
            base,
            name,
        } => {
            let rule = ManagedRule {
                template: template.clone(),
                below: below.clone(),
                filter: filter.clone(),
                base: given(base),
                name: String::new(),
            };
            (DataRuleKind::Managed, vec![given(name), rule.to_string()])
        }
        AddedRule::Numbers {
            attributes,
            filter,
            range,
            base,
            name,
        } => {
            let rule = NumbersRule {
                attributes: attributes.clone(),
                filter: filter.clone(),
                range: *range,
                base: given(base),
                name: String::new(),
            };
            (DataRuleKind::Numbers, vec![given(name), rule.to_string()])
        }
        AddedRule::Dds {
            max_ttl,
            min_ttl,
            default_ttl,
            interval,
            tolerance,
            max_objects,
        } => {
            let numbers = [
                max_ttl,
                min_ttl,
                default_ttl,
                interval,
                tolerance,
                max_objects,
            ];
            let numbers = numbers.map(|number| number.map_or(String::new(), |n| n.to_string()));
            (DataRuleKind::Dds, numbers.into())
        }
        AddedRule::Dynlist {
            class,
            url,
            member,
            list,
        } => {
            let rule = DynlistRule {
                class: class.clone(),
                url: url.clone(),
                member: (!list).then(|| member.clone()),
            };
            (DataRuleKind::Dynlist, vec![rule.to_string()])
        }
        AddedRule::Refint {
            attributes,
            nothing,
        } => {
            let words = vec![attributes.join(","), given(nothing)];
            (DataRuleKind::Refint, words)
        }
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
            let (name, own_name) = rules.names_of_new(DataRuleKind::Unique, name)?;
            let rule = UniqueRule {
                attributes: attributes.split(',').map(str::to_owned).collect(),
                base: base.to_owned(),
                name: own_name,
            };
            rules.add_unique(&name, &rule)
        }
        ["add", kind, name, attributes, word, value, restrict]
            if kind == DataRuleKind::Constraint.word() =>
        {
            let (name, own_name) = rules.names_of_new(DataRuleKind::Constraint, name)?;
            let rule = ConstraintRule {
                attributes: attributes.split(',').map(str::to_owned).collect(),
                test: ConstraintTest::of(word, value)?,
                restrict: restrict.to_owned(),
                name: own_name,
            };
            rules.add_constraint(&name, &rule)
        }
        ["add", kind, name, attribute, base, sort] if kind == DataRuleKind::ValueSort.word() => {
            let (name, own_name) = rules.names_of_new(DataRuleKind::ValueSort, name)?;
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
            let (name, own_name) = rules.names_of_new(DataRuleKind::Automember, name)?;
            let rule = AutomemberRule {
                name: own_name,
                ..rule.parse()?
            };
            rules.add_automember(&name, &rule)
        }
        ["add", kind, name, rule] if kind == DataRuleKind::Managed.word() => {
            let (name, own_name) = rules.names_of_new(DataRuleKind::Managed, name)?;
            let rule = ManagedRule {
                name: own_name,
                ..rule.parse()?
            };
            rules.add_managed(&name, &rule)
        }
        ["add", kind, name, rule] if kind == DataRuleKind::Numbers.word() => {
            let (name, own_name) = rules.names_of_new(DataRuleKind::Numbers, name)?;
            let rule = NumbersRule {
                name: own_name,
                ..rule.parse()?
            };
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

    /// Adds or deletes the value of a rule.
    fn change(&self, of: DataRuleKind, kind: ChangeKind, value: &str) -> Result<(), String> {
        let overlay = Overlay::of(of);
        let attribute = overlay.values.unwrap_or_default();
        let mut changes = ChangesBuf::default();
        changes.push(kind, attribute.as_bytes(), [value.as_bytes()]);
        let changes = changes.view();
        let dn = &overlay.dn();
        let op = Request::Modify(ModifyRequest { dn, changes });
        config::make(self.directory, self.administrator, op)
    }

    /// Adds the entry of a kind of rules, with these attributes besides.
    fn add_entry(&self, of: DataRuleKind, more: &[(&str, &str)]) -> Result<(), String> {
        let overlay = Overlay::of(of);
        let named = [("objectClass", overlay.class), ("olcOverlay", of.word())];
        let mut list = AttributesBuf::default();
        for (description, value) in named.iter().chain(more) {
            list.push(description.as_bytes(), [value.as_bytes()]);
        }
        let (dn, attributes) = (&overlay.dn(), list.view());
        let op = Request::Add(AddRequest { dn, attributes });
        config::make(self.directory, self.administrator, op)
    }

    /// Adds a rule as a value, and the entry for it if it is the first of its kind.
    fn add_value(&self, of: DataRuleKind, value: &str) -> Result<(), String> {
        match (self.has(of)?, Overlay::of(of).values) {
            (false, Some(attribute)) => self.add_entry(of, &[(attribute, value)]),
            _ => self.change(of, ChangeKind::Add, value),
        }
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

    /// The same, and the name that is written with it: none if it is called as its kind is.
    fn names_of_new(&self, kind: DataRuleKind, wanted: &str) -> Result<(String, String), String> {
        let name = self.name_of_new(kind, wanted)?;
        let own_name = match name == kind.word() {
            true => String::new(),
            false => name.clone(),
        };
        Ok((name, own_name))
    }

    fn add_unique(&mut self, name: &str, rule: &UniqueRule) -> Result<String, String> {
        let indexed = self.index(&rule.attributes)?;
        self.add_value(DataRuleKind::Unique, &rule.uri())?;
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_constraint(&mut self, name: &str, rule: &ConstraintRule) -> Result<String, String> {
        let indexed = self.index(&rule.listed())?;
        self.add_value(DataRuleKind::Constraint, &rule.to_string())?;
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_linked(&mut self, rule: &LinkedRule) -> Result<String, String> {
        let name = self.name_of_new(DataRuleKind::Linked, "")?;
        self.add_value(DataRuleKind::Linked, &rule.to_string())?;
        self.look(&name)?;
        Ok(format!("added: {name}"))
    }

    fn add_automember(&mut self, name: &str, rule: &AutomemberRule) -> Result<String, String> {
        self.add_value(DataRuleKind::Automember, &rule.to_string())?;
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
        self.add_value(DataRuleKind::Managed, &rule.to_string())?;
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
        self.add_value(DataRuleKind::Numbers, &rule.to_string())?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_dds(&mut self, numbers: &[&str]) -> Result<String, String> {
        let name = self.first_of(DataRuleKind::Dds)?;
        let indexed = self.index_by(&[EXPIRES.to_owned()], ORDERING)?;
        let given = DDS_SETTINGS.into_iter().zip(numbers.iter().copied());
        let given: Vec<_> = given.filter(|(_, number)| !number.is_empty()).collect();
        self.add_entry(DataRuleKind::Dds, &given)?;
        self.look(name)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_dynlist(&mut self, rule: &DynlistRule) -> Result<String, String> {
        let name = self.name_of_new(DataRuleKind::Dynlist, "")?;
        self.add_value(DataRuleKind::Dynlist, &rule.to_string())?;
        Ok(format!("added: {name}"))
    }

    fn add_value_sort(&mut self, name: &str, rule: &ValueSortRule) -> Result<String, String> {
        self.add_value(DataRuleKind::ValueSort, &rule.to_string())?;
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
        let members = [
            ("olcMemberOfGroupOC", class),
            ("olcMemberOfMemberAD", member),
        ];
        self.add_entry(DataRuleKind::MemberOf, &members)?;
        Ok(format!("added: {name}{indexed}"))
    }

    fn add_refint(&mut self, attributes: &str, nothing: &str) -> Result<String, String> {
        let name = self.first_of(DataRuleKind::Refint)?;
        let names: Vec<String> = attributes.split(',').map(str::to_owned).collect();
        let indexed = self.index(&names)?;
        let words = attributes.replace(',', " ");
        let mut named = vec![("olcRefintAttribute", words.as_str())];
        if !nothing.is_empty() {
            named.push(("olcRefintNothing", nothing));
        }
        self.add_entry(DataRuleKind::Refint, &named)?;
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
        let overlay = Overlay::of(rule.kind);
        match overlay.values {
            Some(_) => {
                let value = value_of(snapshot.settings(), rule).unwrap_or_default();
                self.change(rule.kind, ChangeKind::Delete, &value)?;
            }
            None => {
                let dn = overlay.dn();
                config::make(self.directory, self.administrator, Request::Delete(&dn))?;
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
