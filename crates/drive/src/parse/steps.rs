//! The steps of a session: operations, and the order in which they are sent.

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::controls::Control;
use sapwood_ldap::extended::PASSWORD_MODIFY;
use sapwood_ldap::message::Operation;
use sapwood_ldap::result::ResultCode;

use super::preamble::Preamble;
use super::records::{Line, Record};
use super::request::{self, message};
use super::{Parser, each_once};
use crate::plan::{
    Expect, Instruction, NESTING_MAX, OPERATIONS_MAX, PlanError, PlannedOperation, Step,
};
use crate::template::{Template, marker};
use crate::transaction;
use crate::values::TRANSACTION;

/// A loop or a group that has not ended.
pub(super) struct OpenBlock {
    /// "loop" or "group".
    pub(super) word: &'static str,
    /// The index of its first instruction in the step.
    begin: u32,
    /// The line on which it begins.
    pub(super) line: u64,
}

impl Parser<'_> {
    /// Takes an operation, or a record that says in which order operations are sent.
    pub(super) fn step(&mut self, record: &Record, lines: &[Line<'_>]) -> Result<(), PlanError> {
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

    /// Appends an instruction to the open step. Without an open loop or group it makes a step of its own.
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

    /// Begins a loop or a group.
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
        self.open.push(OpenBlock {
            word,
            begin,
            line: line.number,
        });
        Ok(())
    }

    /// Ends the innermost loop or group.
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
}

/// Whether one of the instructions sends something.
pub(super) fn has_operation<'c>(mut instructions: impl Iterator<Item = &'c Instruction>) -> bool {
    instructions.any(|instruction| matches!(instruction, Instruction::Operation { .. }))
}
