//! Reading a plan. The grammar is in `docs/drive.md`.

#![deny(clippy::indexing_slicing)]

mod preamble;
mod records;
mod request;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sapwood_ldap::control::Control;
use sapwood_ldap::extended::PASSWORD_MODIFY;
use sapwood_ldap::message::Operation;
use sapwood_ldap::result::ResultCode;

use preamble::Preamble;
use request::message;

use crate::plan::{
    CONNECTIONS_MAX, Expect, Instruction, LABELS_MAX, NESTING_MAX, OPERATIONS_MAX, Order, Phase,
    Plan, PlanError, PlannedOperation, QUEUE_MAX, REFERENCES_MAX, Session, Step, VARIABLES_MAX,
};
use crate::template::{MARKER_START, Template, marker};
use crate::transaction;
use crate::values::{TRANSACTION, Variable};
use records::{Line, Record, RecordReader};

/// The widest a value is filled with zeros.
const WIDTH_MAX: usize = 99;

/// What a plan is read with.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Settings that replace those of the plan, each a name and a value.
    pub settings: Vec<(String, String)>,
    /// Where files of values are looked for.
    pub folder: PathBuf,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// With the line, when something is not understood, a limit is passed or a file of values cannot be read.
    pub fn read(source: impl BufRead, options: &PlanOptions) -> Result<Plan, PlanError> {
        let mut records = RecordReader::new(source);
        let mut parser = Parser {
            folder: &options.folder,
            settings: options.settings.iter().cloned().collect(),
            overridden: options
                .settings
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
            used: Vec::new(),
            plan: Plan {
                phases: Vec::new(),
                variables: Variable::own(),
                operations: Vec::new(),
            },
            phase: None,
            session: None,
            open: Vec::new(),
            line: 1,
        };
        while let Some(record) = records.next_record()? {
            parser.line = record.first_line;
            parser.record(record)?;
        }
        parser.finish()
    }
}

struct Parser<'o> {
    folder: &'o Path,
    settings: BTreeMap<String, String>,
    /// Settings that came from outside.
    overridden: Vec<String>,
    /// Names of settings the plan has.
    used: Vec<String>,
    plan: Plan,
    /// The phase and the session that are being read.
    phase: Option<Phase>,
    session: Option<Session>,
    /// Loops and groups that have not ended.
    open: Vec<Open>,
    /// The first line of the record.
    line: u64,
}

struct Open {
    word: &'static str,
    begin: u32,
    line: u64,
}

impl Parser<'_> {
    fn record(&mut self, record: Record) -> Result<(), PlanError> {
        let (record, references) = self.expand(record)?;
        let mut lines = record.lines()?;
        // The version line of LDIF, with or without an empty line behind it.
        if lines.first().is_some_and(|line| line.name == "version") {
            lines.remove(0);
        }
        let Some(first) = lines.first() else {
            return Ok(());
        };
        let is_definition = matches!(first.name.as_str(), "set" | "let" | "phase" | "session");
        if is_definition && references {
            return Err(first.error("a variable has no value here; only a setting has"));
        }
        match first.name.as_str() {
            "set" => lines.iter().try_for_each(|line| self.set(line)),
            "let" => lines.iter().try_for_each(|line| self.variable(line)),
            "phase" => self.phase(&lines),
            "session" => self.session(&lines),
            _ => self.step(&record, &lines),
        }
    }

    /// Puts settings in place of their names and markers in place of the names of variables. Tells whether there are
    /// any of the latter.
    fn expand(&self, record: Record) -> Result<(Record, bool), PlanError> {
        let text = &record.text;
        let line_at = |at: usize| {
            let before = text.get(..at).unwrap_or_default();
            record.first_line + before.iter().filter(|octet| **octet == b'\n').count() as u64
        };
        if let Some(at) = text.iter().position(|octet| *octet == MARKER_START) {
            return Err(PlanError::new(
                line_at(at),
                "the control character U+0002 must be written in base64",
            ));
        }
        let mut out = Vec::with_capacity(text.len());
        let mut references = 0;
        let mut at = 0;
        let mut in_comment = false;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            // What stands in comments is nobody's to put in place.
            if at == 0 || text.get(at - 1) == Some(&b'\n') {
                in_comment = rest.starts_with(b"#") || in_comment && rest.starts_with(b" ");
            }
            if in_comment {
                let end = rest.iter().position(|octet| *octet == b'\n');
                let comment = end.and_then(|end| rest.get(..=end)).unwrap_or(rest);
                out.extend_from_slice(comment);
                at += comment.len();
                continue;
            }
            if let Some(rest) = rest.strip_prefix(b"$${") {
                out.extend_from_slice(b"${");
                at = text.len() - rest.len();
                continue;
            }
            let Some(reference) = rest.strip_prefix(b"${") else {
                out.extend(rest.first());
                at += 1;
                continue;
            };
            let line = reference.split(|octet| *octet == b'\n').next();
            let line = line.unwrap_or_default();
            let end = line.iter().position(|octet| *octet == b'}');
            let name = end.and_then(|end| std::str::from_utf8(line.get(..end)?).ok());
            let name = name.ok_or_else(|| {
                let reason = "\"${\" begins the name of a variable, which ends with \"}\" in the same line; \
                              for the characters themselves write \"$${\"";
                PlanError::new(line_at(at), reason)
            })?;
            at += name.len() + 3;
            if let Some(value) = self.settings.get(name) {
                out.extend_from_slice(value.as_bytes());
                continue;
            }
            let (name, width) = match name.split_once(':') {
                Some((name, width)) => (name, width.parse().ok()),
                None => (name, Some(0)),
            };
            let width = width.filter(|width| *width <= WIDTH_MAX).ok_or_else(|| {
                let reason = format!("the width behind the colon is a number up to {WIDTH_MAX}");
                PlanError::new(line_at(at), reason)
            })?;
            let variable = self
                .plan
                .variables
                .iter()
                .position(|variable| variable.name == name && !name.is_empty());
            let variable = variable.ok_or_else(|| {
                let reason = format!("there is no variable or setting {name:?} above this line");
                PlanError::new(line_at(at), reason)
            })?;
            references += 1;
            if references > REFERENCES_MAX {
                let reason = format!("more than {REFERENCES_MAX} references in a record");
                return Err(PlanError::new(line_at(at), reason));
            }
            out.extend_from_slice(&marker(variable, width));
        }
        let record = Record {
            first_line: record.first_line,
            text: out,
        };
        Ok((record, references > 0))
    }

    /// `set: NAME = VALUE`
    fn set(&mut self, line: &Line<'_>) -> Result<(), PlanError> {
        let (name, value) = definition(line, "set")?;
        if self.plan.variables.iter().any(|known| known.name == name) {
            return Err(line.error(&format!("there is a variable {name:?} already")));
        }
        self.used.push(name.to_owned());
        if !self.overridden.iter().any(|own| own == name) {
            self.settings.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }

    /// `let: NAME = SOURCE`
    fn variable(&mut self, line: &Line<'_>) -> Result<(), PlanError> {
        let (name, source) = definition(line, "let")?;
        if self.plan.variables.iter().any(|known| known.name == name) {
            return Err(line.error(&format!("there is a variable {name:?} already")));
        }
        if self.used.iter().any(|known| known == name) {
            return Err(line.error(&format!("there is a setting {name:?} already")));
        }
        if self.plan.variables.len() >= VARIABLES_MAX {
            return Err(line.error(&format!("more than {VARIABLES_MAX} variables")));
        }
        let variable =
            Variable::parse(name, source, self.folder).map_err(|reason| line.error(&reason))?;
        self.plan.variables.push(variable);
        Ok(())
    }

    fn phase(&mut self, lines: &[Line<'_>]) -> Result<(), PlanError> {
        self.nothing_open()?;
        each_once(lines)?;
        self.end_phase();
        let mut phase = Phase {
            name: String::new(),
            duration: None,
            sessions: Vec::new(),
        };
        for line in lines {
            match line.name.as_str() {
                "phase" => phase.name = line.text()?.to_owned(),
                "duration" => {
                    let seconds = decimal(line, 1e9)?;
                    phase.duration = Some(Duration::from_secs_f64(seconds));
                }
                _ => return Err(line.error("a phase has a duration, and nothing else")),
            }
        }
        if self
            .plan
            .phases
            .iter()
            .any(|other| other.name == phase.name)
        {
            let reason = format!("there is a phase {:?} already", phase.name);
            return Err(PlanError::new(self.line, reason));
        }
        self.phase = Some(phase);
        Ok(())
    }

    fn session(&mut self, lines: &[Line<'_>]) -> Result<(), PlanError> {
        self.nothing_open()?;
        each_once(lines)?;
        let mut session = Session::default();
        let (mut dn, mut password) = (None, None);
        for line in lines {
            let number = |most: u32| line.number(1, u64::from(most)).map(|n| Some(n as u32));
            match line.name.as_str() {
                "session" => session.name = line.text()?.to_owned(),
                "connections" => session.connections = number(CONNECTIONS_MAX)?,
                "queue" => session.queue = number(QUEUE_MAX)?,
                "transaction" => session.transaction = number(QUEUE_MAX)?,
                "count" => session.count = Some(line.number(1, u64::MAX)?),
                "rate" => session.rate = Some(decimal(line, 1e9)?),
                "order" => {
                    session.order = match line.text()? {
                        "sequence" => Order::Sequence,
                        "random" => Order::Random,
                        _ => return Err(line.error("the order is sequence or random")),
                    }
                }
                "bind" => dn = Some(line.text()?.to_owned()),
                "password" => password = Some(line.value.to_vec()),
                _ => {
                    return Err(line.error(
                        "a session has connections, queue, transaction, rate, count, order, bind and password",
                    ));
                }
            }
        }
        session.bind = match (dn, password) {
            (Some(dn), None) if !dn.is_empty() => {
                return Err(PlanError::new(
                    self.line,
                    "\"bind:\" with a name needs a line \"password:\"",
                ));
            }
            (Some(dn), password) => Some((dn, password.unwrap_or_default())),
            (None, Some(_)) => {
                return Err(PlanError::new(
                    self.line,
                    "a password needs \"bind:\" with a name",
                ));
            }
            (None, None) => None,
        };
        self.end_session();
        self.session = Some(session);
        Ok(())
    }

    /// Ends the session that is being read.
    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            let phase = self.phase.get_or_insert_with(|| Phase {
                name: "run".to_owned(),
                duration: None,
                sessions: Vec::new(),
            });
            phase.sessions.push(session);
        }
    }

    /// Ends the phase that is being read.
    fn end_phase(&mut self) {
        self.end_session();
        self.plan.phases.extend(self.phase.take());
    }

    fn nothing_open(&self) -> Result<(), PlanError> {
        match self.open.last() {
            None => Ok(()),
            Some(open) => Err(PlanError::new(
                self.line,
                format!("the {} of line {} has not ended", open.word, open.line),
            )),
        }
    }

    /// An operation, or a part of the order in which operations are sent.
    fn step(&mut self, record: &Record, lines: &[Line<'_>]) -> Result<(), PlanError> {
        let mut preamble = Preamble::default();
        let mut rest = lines;
        while let Some((line, after)) = rest.split_first() {
            if !preamble.take(line)? {
                break;
            }
            rest = after;
        }
        let Some((first, options)) = rest.split_first() else {
            let reason = "an operation must follow: dn, search, compare, bind or extended";
            return Err(PlanError::new(self.line, reason));
        };
        let in_front = lines.len() - rest.len();
        each_once(
            lines
                .iter()
                .take(in_front)
                .filter(|line| line.name != "control"),
        )?;
        let alone = |word: &str| {
            if let Some(line) = options.first() {
                return Err(line.error(&format!("nothing may follow {word:?} in its record")));
            }
            let mut in_front = lines.iter().take(in_front);
            match in_front.find(|line| line.name != "weight") {
                Some(line) => Err(line.error(&format!(
                    "{:?} is said of an operation, and {word:?} is none",
                    line.name
                ))),
                None => Ok(()),
            }
        };
        let weight = preamble.weight.unwrap_or(1);
        match first.name.as_str() {
            "loop" => {
                alone("loop")?;
                let times = first.number(1, u64::from(u32::MAX))? as u32;
                return self.begin(first, "loop", Instruction::Loop { times }, weight);
            }
            "group" => {
                alone("group")?;
                return self.begin(first, "group", Instruction::Group, weight);
            }
            "end" => {
                alone("end")?;
                return self.end(first);
            }
            "wait" => {
                alone("wait")?;
                return self.push(Instruction::Wait, weight);
            }
            _ => {}
        }
        let line = first.number;
        if first.name != "dn" {
            each_once(options)?;
        }
        let (kind, op, controls) = match first.name.as_str() {
            "dn" => request::ldif(record, first, &preamble)?,
            "search" => (
                Operation::Search,
                request::search(first, options)?,
                preamble.controls.clone(),
            ),
            "compare" => (
                Operation::Compare,
                request::compare(first, options)?,
                preamble.controls.clone(),
            ),
            "bind" => (
                Operation::Bind,
                request::bind(first, options)?,
                preamble.controls.clone(),
            ),
            "extended" => (
                Operation::Extended,
                request::extended(first, options)?,
                preamble.controls.clone(),
            ),
            "connections" | "queue" | "transaction" | "rate" | "count" | "order" | "password" => {
                return Err(first.error(&format!(
                    "{:?} is said of a session: it stands below \"session: NAME\", in the same record",
                    first.name
                )));
            }
            "duration" => {
                return Err(first.error(
                    "\"duration\" is said of a phase: it stands below \"phase: NAME\", in the same record",
                ));
            }
            other => {
                return Err(first.error(&format!(
                    "{other:?} is not known: expected an operation (dn, search, compare, bind, extended), \
                     loop, group, end or wait, or what may stand before an operation (name, weight, repeat, \
                     expect, expect-entries, expect-value, control)"
                )));
            }
        };
        let mut controls = controls;
        let wrong = || PlanError::new(line, "the operation is too deeply nested");
        let request = Template::new(&message(&op, &controls)).ok_or_else(wrong)?;
        let updates = matches!(
            kind,
            Operation::Add | Operation::Delete | Operation::Modify | Operation::ModifyDn
        ) || first.name == "extended" && first.text()? == PASSWORD_MODIFY;
        let in_transaction = match updates {
            false => None,
            true => {
                controls.push(Control {
                    oid: transaction::SPECIFICATION,
                    critical: true,
                    value: Some(&marker(TRANSACTION, 0)),
                });
                Some(Template::new(&message(&op, &controls)).ok_or_else(wrong)?)
            }
        };
        let usual = match kind {
            Operation::Compare => ResultCode::CompareTrue,
            _ => ResultCode::Success,
        };
        if (preamble.entries.is_some() || preamble.value.is_some()) && kind != Operation::Search {
            return Err(PlanError::new(
                line,
                "only a search is answered with entries",
            ));
        }
        let mut variables = request.variables().to_vec();
        if let Some((_, text)) = &preamble.value {
            variables.extend(text.variables());
        }
        variables.sort_unstable();
        variables.dedup();
        let label = preamble.label.unwrap_or_else(|| kind.name().to_owned());
        let operation = PlannedOperation {
            label,
            kind,
            request,
            in_transaction,
            variables,
            expect: Expect {
                codes: preamble.codes.unwrap_or_else(|| Some(vec![usual.code()])),
                entries: preamble.entries,
                value: preamble.value,
            },
        };
        if self.plan.operations.len() >= OPERATIONS_MAX {
            let reason = format!("more than {OPERATIONS_MAX} operations");
            return Err(PlanError::new(line, reason));
        }
        self.plan.operations.push(operation);
        let operation = self.plan.operations.len() as u32 - 1;
        let times = preamble.repeat.unwrap_or(1);
        self.push(Instruction::Operation { operation, times }, weight)
    }

    /// Appends to the step that is open, or makes a new one.
    fn push(&mut self, instruction: Instruction, weight: u32) -> Result<(), PlanError> {
        let is_inside = !self.open.is_empty();
        if is_inside && weight != 1 {
            let reason = "a weight may stand only outside of loops and groups";
            return Err(PlanError::new(self.line, reason));
        }
        let session = self.session.get_or_insert_default();
        match session.steps.last_mut() {
            Some(step) if is_inside => step.instructions.push(instruction),
            _ => session.steps.push(Step {
                weight,
                instructions: vec![instruction],
            }),
        }
        Ok(())
    }

    fn begin(
        &mut self,
        line: &Line<'_>,
        word: &'static str,
        instruction: Instruction,
        weight: u32,
    ) -> Result<(), PlanError> {
        if self.open.len() >= NESTING_MAX {
            return Err(line.error(&format!(
                "more than {NESTING_MAX} loops and groups in each other"
            )));
        }
        self.push(instruction, weight)?;
        let steps = &self.session.get_or_insert_default().steps;
        let begin = steps
            .last()
            .map_or(0, |step| step.instructions.len() as u32 - 1);
        self.open.push(Open {
            word,
            begin,
            line: line.number,
        });
        Ok(())
    }

    fn end(&mut self, line: &Line<'_>) -> Result<(), PlanError> {
        let word = line.text()?;
        match self.open.last() {
            Some(open) if open.word == word => {
                let begin = open.begin;
                let session = self.session.get_or_insert_default();
                let instructions = session.steps.last().map(|step| &step.instructions);
                let inside = instructions.into_iter().flatten().skip(begin as usize);
                if !has_operation(inside) {
                    return Err(line.error(&format!("there is no operation in the {word}")));
                }
                self.push(Instruction::End { begin }, 1)?;
                self.open.pop();
                Ok(())
            }
            _ => Err(line.error(&format!("there is no {word:?} to end here"))),
        }
    }

    fn finish(mut self) -> Result<Plan, PlanError> {
        self.nothing_open()?;
        self.end_phase();
        let wrong = |reason: String| Err(PlanError::of_all(reason));
        if let Some(name) = self
            .overridden
            .iter()
            .find(|name| !self.used.contains(name))
        {
            return wrong(format!("the plan has no setting {name:?}"));
        }
        if self.plan.operations.is_empty() {
            return wrong("the plan has no operations".to_owned());
        }
        for phase in &self.plan.phases {
            let mut labels: Vec<&str> = Vec::new();
            for session in &phase.sessions {
                if !has_operation(session.steps.iter().flat_map(|step| &step.instructions)) {
                    return wrong(format!(
                        "session {:?} of phase {:?} has no operations",
                        session.name, phase.name
                    ));
                }
                for step in &session.steps {
                    for instruction in &step.instructions {
                        if let Instruction::Operation { operation, .. } = instruction
                            && let Some(operation) = self.plan.operations.get(*operation as usize)
                            && !labels.contains(&operation.label.as_str())
                        {
                            labels.push(&operation.label);
                        }
                    }
                }
            }
            if labels.len() > LABELS_MAX {
                return wrong(format!(
                    "phase {:?} has more than {LABELS_MAX} names of operations",
                    phase.name
                ));
            }
            if phase.sessions.is_empty() {
                return wrong(format!("phase {:?} has no operations", phase.name));
            }
        }
        Ok(self.plan)
    }
}

fn has_operation<'c>(mut instructions: impl Iterator<Item = &'c Instruction>) -> bool {
    instructions.any(|instruction| matches!(instruction, Instruction::Operation { .. }))
}

/// What is said twice is said once too often: it could not be told which of them counts.
fn each_once<'l>(
    lines: impl IntoIterator<Item = &'l Line<'l>, IntoIter: Clone>,
) -> Result<(), PlanError> {
    let lines = lines.into_iter();
    for (at, line) in lines.clone().enumerate() {
        let mut before = lines.clone().take(at);
        if let Some(other) = before.find(|other| other.name == line.name) {
            let reason = format!("{:?} is said in line {} already", line.name, other.number);
            return Err(line.error(&reason));
        }
    }
    Ok(())
}

fn definition<'l>(line: &'l Line<'_>, word: &str) -> Result<(&'l str, &'l str), PlanError> {
    if line.name != word {
        return Err(line.error(&format!("expected another line \"{word}: NAME = …\"")));
    }
    let (name, value) = line
        .text()?
        .split_once('=')
        .ok_or_else(|| line.error("expected NAME = …"))?;
    let name = name.trim();
    let is_name = !name.is_empty()
        && name.len() < 100
        && name
            .bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'));
    match is_name {
        true => Ok((name, value.trim())),
        false => Err(line.error("a name has letters, digits, hyphens and underscores")),
    }
}

/// A number above 0, with a decimal point if wanted.
fn decimal(line: &Line<'_>, most: f64) -> Result<f64, PlanError> {
    let number = line.text()?.parse::<f64>().ok();
    number
        .filter(|number| *number > 0.0 && *number <= most)
        .ok_or_else(|| line.error(&format!("{} must be a number above 0", line.name)))
}

#[cfg(test)]
mod tests;
