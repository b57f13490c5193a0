//! `sapwood access`: the rules of who may do what, set from a file in the form of slapd.conf(5), shown, explained and
//! tested, by the running server if there is one.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base64ct::{Base64, Encoding};
use sapwood_directory::access::{ListScope, Policy, Rights, Rule, Tried, TriedRule, parse_rules};
use sapwood_directory::schema::NormalDn;
use sapwood_directory::{Directory, Identity, Requester};
use sapwood_server::{Config, admin};

use crate::cli::{Access, AccessAction};
use crate::commands::config;
use crate::open;
use crate::output::Output;

/// Bytes of a file of rules or of tests: what the control socket takes, but for the words of the command.
const FILE_BYTES_MAX: usize = admin::COMMAND_BYTES_MAX / 2;

/// The entries that have the rules: of the naming contexts without their own, and of all entries.
const DATA: &str = "olcDatabase={1}mdb,cn=config";
const GLOBAL: &str = "olcDatabase={-1}frontend,cn=config";

pub(crate) fn run(args: &Access, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let words: Vec<String> = match &args.action {
        AccessAction::Set {
            file,
            context,
            global,
        } => {
            let rules = read(file)?;
            // What is wrong is told with its line before anything is asked of the server.
            parse_rules(&rules).map_err(|error| anyhow!("{}: {error}", file.display()))?;
            let list = match (context, global) {
                (_, true) => "global".to_owned(),
                (Some(context), false) => format!("context {context}"),
                (None, false) => "data".to_owned(),
            };
            vec!["set".into(), list, rules]
        }
        AccessAction::Show => vec!["show".into()],
        AccessAction::Explain {
            identity,
            entry,
            attribute,
            value,
            operation,
        } => {
            let of = attribute.clone().unwrap_or_else(|| "entry".into());
            let who = identity.clone().unwrap_or_default();
            let mut words = vec!["explain".into(), who, entry.clone(), of, operation.clone()];
            words.extend(value.clone());
            words
        }
        AccessAction::Test { file } => vec!["test".into(), read(file)?],
    };
    let mut asked = vec!["access"];
    asked.extend(words.iter().map(String::as_str));
    let mut failed = Ok(());
    let mut line = |line: &str| {
        if failed.is_ok() {
            failed = writeln!(out, "{line}");
        }
    };
    let told = admin::ask(&args.folder, &asked, &mut line)?;
    let done = match told {
        Some(done) => done,
        None => {
            let reads = !matches!(args.action, AccessAction::Set { .. });
            let directory = open::directory(&args.folder, &config, reads)?;
            let done = by_command(&directory, &config.admin.dn, &words, &mut line);
            if !reads {
                open::save_memory(&args.folder, &directory)?;
            }
            done.map_err(|error| anyhow!(error))?
        }
    };
    failed?;
    if !done.is_empty() {
        out.say(done);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a file; `-` is standard input.
fn read(file: &Path) -> Result<String> {
    let name = || file.display().to_string();
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(fs::File::open(file).with_context(name)?),
    };
    let mut text = String::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    source
        .take(limit)
        .read_to_string(&mut text)
        .with_context(name)?;
    if text.len() > FILE_BYTES_MAX || text.contains('\0') {
        bail!(
            "{}: more than {FILE_BYTES_MAX} bytes, or a zero byte",
            name()
        );
    }
    Ok(text)
}

/// Does what the control socket was asked for.
pub(crate) fn by_command(
    directory: &Directory,
    administrator: &str,
    words: &[String],
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["set", list, rules] => set(directory, administrator, list, rules),
        ["show"] => {
            show(directory, note)?;
            Ok(String::new())
        }
        ["explain", who, entry, attribute, operation, ref value @ ..] if value.len() <= 1 => {
            let question = Question {
                who,
                entry,
                attribute,
                value: value.first().copied(),
                operation,
            };
            question.explain(directory, administrator, note)?;
            Ok(String::new())
        }
        ["test", expectations] => test(directory, administrator, expectations),
        _ => Err("access set, show, explain or test?".into()),
    }
}

/// Puts the rules of a file in the place of those of a list.
fn set(
    directory: &Directory,
    administrator: &str,
    list: &str,
    rules: &str,
) -> Result<String, String> {
    let entry = match list.strip_prefix("context ") {
        Some(context) => entry_of(directory, context)?,
        None if list == "global" => GLOBAL.to_owned(),
        None => DATA.to_owned(),
    };
    let rules = parse_rules(rules).map_err(|error| error.to_string())?;
    let mut changes = format!("dn: {entry}\nchangetype: modify\nreplace: olcAccess\n");
    for (number, (_, rule)) in rules.iter().enumerate() {
        let value = Base64::encode_string(format!("{{{number}}}{rule}").as_bytes());
        let _ = writeln!(changes, "olcAccess:: {value}");
    }
    changes.push_str("-\n");
    // Which rule is refused is told by its number: here it has a line.
    config::apply(directory, administrator, &changes).map_err(|why| {
        let rest = why.split_once("access rule ").map(|(_, rest)| rest);
        let number = rest.and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        match number.and_then(|number| rules.get(number.checked_sub(1)?)) {
            Some((line, _)) => format!("line {line}: {why}"),
            None => why,
        }
    })?;
    let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
    let settings = snapshot.settings();
    let are_common = !settings.access.is_empty() || !settings.global_access.is_empty();
    Ok(match rules.len() {
        0 if are_common => "no rules are left in this list".to_owned(),
        0 => "no rules: the default ones are in force".to_owned(),
        1 => "1 rule in force".to_owned(),
        count => format!("{count} rules in force"),
    })
}

/// The entry that has the rules of a naming context.
fn entry_of(directory: &Directory, context: &str) -> Result<String, String> {
    let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
    let contexts: Vec<&str> = snapshot.naming_contexts().collect();
    let schema = directory.schema();
    let normal = |dn: &str| {
        let mut normal = NormalDn::new();
        normal
            .parse(&schema, dn.as_bytes())
            .is_ok()
            .then_some(normal)
    };
    let wanted = normal(context);
    let mut known = contexts.iter();
    let place = known.position(|known| wanted.is_some() && normal(known) == wanted);
    let place = place.ok_or_else(|| format!("there is no naming context {context:?}"))?;
    Ok(match contexts.len() {
        1 => DATA.to_owned(),
        // Behind that of the data.
        _ => format!("olcDatabase={{{}}}mdb,cn=config", place + 2),
    })
}

/// Writes the rules as a file that `set` takes.
fn show(directory: &Directory, note: &mut dyn FnMut(&str)) -> Result<(), String> {
    let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
    let settings = snapshot.settings();
    let mut lists = vec![("# Of the naming contexts".to_owned(), &settings.access)];
    for (place, dn) in snapshot.naming_contexts().enumerate() {
        let own = settings.context_access.get(&place);
        lists.extend(own.map(|rules| (format!("# Of {dn}"), rules)));
    }
    lists.push(("# Of all entries".to_owned(), &settings.global_access));
    for (title, rules) in lists {
        if rules.is_empty() {
            continue;
        }
        note(&title);
        for rule in rules {
            note(&format!("access to {}", rule.to));
            for by in &rule.by {
                note(&format!("    {by}"));
            }
        }
    }
    if settings.access.is_empty() && settings.global_access.is_empty() {
        let others = match settings.context_access.is_empty() {
            true => "There are no rules.",
            false => "There are no others.",
        };
        note(&format!(
            "# {others} The default ones are as if there were these:"
        ));
        for rule in &Policy::standard(settings.anonymous_read).lists[0].rules {
            note(&format!("# access {rule}"));
        }
    }
    Ok(())
}

/// What may be asked of rules.
struct Question<'q> {
    /// A DN; nobody's if empty.
    who: &'q str,
    entry: &'q str,
    attribute: &'q str,
    /// One value of it, if not the attribute as a whole is meant.
    value: Option<&'q str>,
    operation: &'q str,
}

impl Question<'_> {
    fn requester(
        &self,
        directory: &Directory,
        administrator: &str,
    ) -> Result<Arc<Requester>, String> {
        if self.who.is_empty() {
            return Ok(directory.requester(Identity::Anonymous));
        }
        let schema = directory.schema();
        let (mut who, mut admin) = (NormalDn::new(), NormalDn::new());
        let parsed = who.parse(&schema, self.who.as_bytes());
        parsed.map_err(|error| format!("{:?} is not a DN: {error}", self.who))?;
        if admin.parse(&schema, administrator.as_bytes()).is_ok() && who == admin {
            return Ok(Requester::administrator(administrator));
        }
        let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
        let found = snapshot
            .credentials(self.who, 0)
            .map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("there is no entry {:?}", self.who))?;
        Ok(directory.requester(Identity::User {
            entry: found.entry,
            dn: found.dn,
        }))
    }

    /// The rights that the operation takes.
    fn wanted(&self) -> Result<Rights, String> {
        Ok(match self.operation {
            "disclose" => Rights::DISCLOSE,
            "auth" | "bind" => Rights::AUTH,
            "compare" => Rights::COMPARE,
            "search" => Rights::SEARCH,
            "read" => Rights::READ,
            "add" => Rights::ADD,
            "delete" => Rights::DELETE,
            "write" => Rights::WRITE,
            "manage" => Rights::MANAGE,
            other => return Err(format!("there is no operation {other:?}")),
        })
    }

    fn answer(
        &self,
        directory: &Directory,
        administrator: &str,
    ) -> Result<(bool, sapwood_directory::access::Explanation), String> {
        let wanted = self.wanted()?;
        let requester = self.requester(directory, administrator)?;
        let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
        let value = self.value.map(str::as_bytes);
        let explained = snapshot.explain_access(&requester, self.entry, self.attribute, value);
        let explained = explained.map_err(|error| error.to_string())?;
        Ok((explained.rights.has(wanted), explained))
    }

    /// Tells each rule that was tried, and the one that decided.
    fn explain(
        &self,
        directory: &Directory,
        administrator: &str,
        note: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let (may, explained) = self.answer(directory, administrator)?;
        if explained.is_above_rules {
            note("granted: the administrator is above all rules");
            return Ok(());
        }
        for tried in &explained.tried {
            note(&format!("{}: access to {}", name_of(tried), tried.rule.to));
            match &tried.what {
                Tried::OtherEntries => note("    is about other entries"),
                Tried::OtherAttributes => note("    is about other attributes"),
                Tried::OtherValues if self.value.is_none() => note("    is about single values"),
                Tried::OtherValues => note("    is about other values"),
                Tried::Applied(clauses) => {
                    for clause in clauses {
                        note(&format!("    {}", clause_text(&tried.rule, *clause)));
                    }
                }
            }
        }
        let last = explained.tried.last().filter(|_| explained.is_decided);
        let by = match last {
            Some(last) => name_of(last),
            None if explained.rights != Rights::NONE => {
                "default: no global rules are about it".to_owned()
            }
            None => "no rule decides: access to * by * none".to_owned(),
        };
        let verdict = if may { "granted" } else { "denied" };
        let rights = sapwood_directory::access::Grant::Set(explained.rights);
        note(&format!(
            "{verdict}: {} by {by}, which gives {rights}",
            self.operation
        ));
        Ok(())
    }
}

/// How a rule is called.
fn name_of(tried: &TriedRule) -> String {
    let number = tried.number;
    match tried.list {
        ListScope::Global => format!("global rule {{{number}}}"),
        ListScope::Contexts(_) | ListScope::Data => format!("rule {{{number}}}"),
    }
}

fn clause_text(rule: &Rule, clause: usize) -> String {
    match rule.by.get(clause) {
        Some(by) => by.to_string(),
        None => "by * none (implied at the end of every rule)".to_owned(),
    }
}

/// Runs expectations: lines `allow|deny OPERATION WHO ENTRY [ATTRIBUTE [VALUE]]`; a word with white space stands in
/// quotation marks, and who asks may be `anonymous`.
fn test(directory: &Directory, administrator: &str, expectations: &str) -> Result<String, String> {
    let mut done = 0;
    let mut failures = Vec::new();
    for (number, line) in expectations.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = number + 1;
        let words = words(line).map_err(|why| format!("line {number}: {why}"))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [expected, operation, who, entry, ref of @ ..] = words[..] else {
            return Err(misread(number));
        };
        let (attribute, value) = match of {
            [] => ("entry", None),
            [attribute] => (*attribute, None),
            [attribute, value] => (*attribute, Some(*value)),
            _ => return Err(misread(number)),
        };
        let expected = match expected {
            "allow" => true,
            "deny" => false,
            _ => return Err(format!("line {number}: begin with allow or deny")),
        };
        let question = Question {
            who: if who == "anonymous" { "" } else { who },
            entry,
            attribute,
            value,
            operation,
        };
        let answered = question.answer(directory, administrator);
        let (may, explained) = answered.map_err(|why| format!("line {number}: {why}"))?;
        done += 1;
        if may != expected {
            let by = explained.tried.last().filter(|_| explained.is_decided);
            let by = by.map_or("no rule".to_owned(), |tried| {
                format!("{}: access {}", name_of(tried), tried.rule)
            });
            let verdict = if may { "allowed" } else { "denied" };
            failures.push(format!("line {number}: {verdict} by {by}"));
        }
    }
    match failures.is_empty() {
        true => Ok(format!("{done} expectations met")),
        false => Err(format!(
            "{} of {done} expectations not met\n{}",
            failures.len(),
            failures.join("\n")
        )),
    }
}

fn misread(number: usize) -> String {
    format!("line {number}: write allow|deny OPERATION WHO ENTRY [ATTRIBUTE [VALUE]]")
}

/// The words of a line; one with white space stands in quotation marks.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or("a quotation mark is not closed")?,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    Ok(words)
}
