//! Parses a plan, whose grammar is in `docs/reference/drive.md`. The parser takes a record at a time: definitions,
//! phases and sessions are in this file, operations and their order in `steps.rs`.

#![deny(clippy::indexing_slicing)]

mod expand;
mod preamble;
mod records;
mod request;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::plan::{
    CONNECTIONS_MAX, Instruction, LABELS_MAX, Order, Phase, Plan, PlanError, QUEUE_MAX,
    SESSIONS_MAX, Session, VARIABLES_MAX,
};
use crate::values::{CONNECTION, CONNECTION_NAME, LISTS_BYTES_MAX, Variable};
use records::{Line, Record, RecordReader};
use steps::{OpenBlock, has_operation};

/// How to read a plan.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Names and values of settings. They override those of the plan, which must have settings with these names.
    pub settings: Vec<(String, String)>,
    /// The folder at which relative paths of files of values start.
    pub folder: PathBuf,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// When the grammar or a limit is violated, or `source` or a file of values cannot be read. The error names the
    /// line.
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
            used: BTreeSet::new(),
            settings_bytes: 0,
            lists_bytes: 0,
            variables: BTreeMap::from([(CONNECTION_NAME.to_owned(), CONNECTION)]),
            phase_names: BTreeSet::new(),
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

/// The plan as far as it is read, and what is open in it.
struct Parser<'o> {
    folder: &'o Path,
    /// The value of each setting.
    settings: BTreeMap<String, String>,
    /// The names of the settings of [`PlanOptions`].
    overridden: BTreeSet<String>,
    /// The names of the plan's own settings.
    used: BTreeSet<String>,
    /// How many bytes settings have added to the plan so far.
    settings_bytes: usize,
    /// How many bytes the values of all lists have so far.
    lists_bytes: usize,
    /// The index of each variable.
    variables: BTreeMap<String, usize>,
    phase_names: BTreeSet<String>,
    plan: Plan,
    /// The phase that is being read.
    phase: Option<Phase>,
    /// The session that is being read.
    session: Option<Session>,
    /// The loops and groups that have not ended, the innermost last.
    open: Vec<OpenBlock>,
    /// The first line of the record that is being read.
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

    /// `set: NAME = VALUE`
    fn set(&mut self, line: &Line<'_>) -> Result<(), PlanError> {
        let (name, value) = definition(line, "set")?;
        if self.variables.contains_key(name) {
            return Err(line.error(&format!("there is a variable {name:?} already")));
        }
        self.used.insert(name.to_owned());
        if !self.overridden.contains(name) {
            self.settings.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }

    /// `let: NAME = SOURCE`
    fn variable(&mut self, line: &Line<'_>) -> Result<(), PlanError> {
        let (name, source) = definition(line, "let")?;
        if self.variables.contains_key(name) {
            return Err(line.error(&format!("there is a variable {name:?} already")));
        }
        if self.used.contains(name) {
            return Err(line.error(&format!("there is a setting {name:?} already")));
        }
        if self.plan.variables.len() >= VARIABLES_MAX {
            return Err(line.error(&format!("more than {VARIABLES_MAX} variables")));
        }
        let variable = Variable::parse(source, self.folder, LISTS_BYTES_MAX - self.lists_bytes)
            .map_err(|reason| line.error(&reason))?;
        self.lists_bytes += variable.list_bytes();
        self.variables
            .insert(name.to_owned(), self.plan.variables.len());
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
        if !self.phase_names.insert(phase.name.clone()) {
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

    /// Ends the session that is being read, if any.
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

    /// Ends the phase that is being read, if any.
    fn end_phase(&mut self) {
        self.end_session();
        self.plan.phases.extend(self.phase.take());
    }

    /// Fails when a loop or group has not ended.
    fn nothing_open(&self) -> Result<(), PlanError> {
        match self.open.last() {
            None => Ok(()),
            Some(open) => Err(PlanError::new(
                self.line,
                format!("the {} of line {} has not ended", open.word, open.line),
            )),
        }
    }

    /// Ends everything and checks the plan as a whole.
    fn finish(mut self) -> Result<Plan, PlanError> {
        self.nothing_open()?;
        self.end_phase();
        let wrong = |reason: String| Err(PlanError::of_plan(reason));
        if let Some(name) = self
            .overridden
            .iter()
            .find(|name| !self.used.contains(*name))
        {
            return wrong(format!("the plan has no setting {name:?}"));
        }
        if self.plan.operations.is_empty() {
            return wrong("the plan has no operations".to_owned());
        }
        for phase in &self.plan.phases {
            let mut labels: BTreeSet<&str> = BTreeSet::new();
            if phase.sessions.len() > SESSIONS_MAX {
                return wrong(format!(
                    "phase {:?} has more than {SESSIONS_MAX} sessions",
                    phase.name
                ));
            }
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
                        {
                            labels.insert(&operation.label);
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

/// Fails when a name comes twice, since nothing says which of the lines counts.
fn each_once<'l>(lines: impl IntoIterator<Item = &'l Line<'l>>) -> Result<(), PlanError> {
    let mut seen = BTreeMap::new();
    for line in lines {
        if let Some(number) = seen.insert(line.name.as_str(), line.number) {
            let reason = format!("{:?} is said in line {number} already", line.name);
            return Err(line.error(&reason));
        }
    }
    Ok(())
}

/// Splits the `NAME = VALUE` of a line that begins with `word`.
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

/// Parses a number above 0, which may have a decimal point.
fn decimal(line: &Line<'_>, most: f64) -> Result<f64, PlanError> {
    let number = line.text()?.parse::<f64>().ok();
    number
        .filter(|number| *number > 0.0 && *number <= most)
        .ok_or_else(|| line.error(&format!("{} must be a number above 0", line.name)))
}

#[cfg(test)]
mod tests;
