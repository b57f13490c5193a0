//! Compare (RFC 4511 §4.10): a resumable state machine, as a search is.

use sapwood_ldap::filter::{FILTER_BYTES_MAX, Filter};
use sapwood_ldap::result::ResultCode;

use crate::access::{Identity, is_protected};
use crate::directory::Snapshot;
use crate::engine::{Embedded, Engine, EntryId};
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Stop};
use crate::search::Interrupted;
use crate::search::filter::{Compiler, Node};
use crate::search::look::{Look, assertion_failed};
use crate::target;
use crate::update::described;

/// What a compare is asked besides its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompareOptions<'a> {
    /// ManageDsaIT (RFC 3296): referral objects are plain entries.
    pub manage_dsa_it: bool,
    /// Assertion (RFC 4528): what must be true of the entry.
    pub assertion: Option<Filter<'a>>,
    /// When to end with timeLimitExceeded, in microseconds of the directory's clock.
    pub deadline_micros: Option<u64>,
}

/// A compare under way: compareTrue, compareFalse, or why neither.
pub struct Compare<E: Engine = Embedded> {
    snapshot: Snapshot<E>,
    stage: Stage,
}

enum Stage {
    Failed(Error),
    Ended(Outcome),
    Running(Box<Running>),
}

struct Running {
    id: EntryId,
    sees_protected: bool,
    deadline_micros: Option<u64>,
    /// What is still to be found out, the last first.
    questions: Vec<Question>,
    /// Where the evaluation of the last goes on.
    interrupted: Interrupted,
}

/// What is asked of the entry.
enum Question {
    /// Whether the assertion control's filter is true.
    Asserted(Node),
    /// Whether a value is equal.
    Equal(Node),
    /// Whether there is a value at all, after none was equal; and the attribute's name.
    Present(Node, String),
}

impl<E: Engine> Compare<E> {
    /// Begins a compare: finds the entry and makes the assertions ready. What is wrong is told by the first step.
    pub fn new(
        snapshot: Snapshot<E>,
        identity: &Identity,
        dn: &str,
        attribute: &[u8],
        value: &[u8],
        options: CompareOptions<'_>,
    ) -> Compare<E> {
        let stage = match begin(&snapshot, identity, dn, attribute, value, options) {
            Ok(running) => Stage::Running(Box::new(running)),
            Err(Stop::Refused(outcome)) => Stage::Ended(*outcome),
            Err(Stop::Failed(error)) => Stage::Failed(error),
        };
        Compare { snapshot, stage }
    }

    /// Goes on for so much [work](crate::Budget::work); the outcome when it is known.
    ///
    /// # Errors
    /// When the engine fails or stored data is damaged; the compare cannot go on then.
    pub fn step(&mut self, work: u64) -> Result<Option<Outcome>> {
        let ended = std::mem::replace(&mut self.stage, Stage::Ended(Outcome::SUCCESS));
        match ended {
            Stage::Failed(error) => Err(error),
            Stage::Ended(outcome) => Ok(Some(outcome)),
            Stage::Running(mut running) => {
                let outcome = running.step(&self.snapshot, work)?;
                if outcome.is_none() {
                    self.stage = Stage::Running(running);
                }
                Ok(outcome)
            }
        }
    }
}

impl Running {
    fn step<E: Engine>(&mut self, snapshot: &Snapshot<E>, work: u64) -> Result<Option<Outcome>> {
        let deadline = self.deadline_micros;
        if deadline.is_some_and(|deadline| snapshot.now_micros() >= deadline) {
            let diagnostic = "the time limit came before the comparison's end";
            let outcome = Outcome::new(ResultCode::TimeLimitExceeded, diagnostic);
            return Ok(Some(outcome));
        }
        let look = Look {
            schema: snapshot.schema(),
            attributes: &snapshot.state().attributes,
            sees_protected: self.sees_protected,
        };
        while let Some(question) = self.questions.pop() {
            let (Question::Asserted(node) | Question::Equal(node) | Question::Present(node, _)) =
                &question;
            let interrupted = &mut self.interrupted;
            let view = snapshot.view();
            let Some(answer) = look.goes_on_asserting(view, self.id, node, work, interrupted)?
            else {
                self.questions.push(question);
                return Ok(None);
            };
            match (question, answer) {
                (Question::Asserted(_), false) => return Ok(Some(assertion_failed())),
                (Question::Equal(_), true) => {
                    return Ok(Some(Outcome::new(ResultCode::CompareTrue, "")));
                }
                (Question::Present(_, name), false) => {
                    let diagnostic = format!("{name}: the entry does not have this attribute");
                    let outcome = Outcome::new(ResultCode::NoSuchAttribute, diagnostic);
                    return Ok(Some(outcome));
                }
                _ => {}
            }
        }
        Ok(Some(Outcome::new(ResultCode::CompareFalse, "")))
    }
}

fn begin<E: Engine>(
    snapshot: &Snapshot<E>,
    identity: &Identity,
    dn: &str,
    attribute: &[u8],
    value: &[u8],
    options: CompareOptions<'_>,
) -> std::result::Result<Running, Stop> {
    let (schema, state) = (snapshot.schema(), snapshot.state());
    let normal = target::parse(schema, dn)?;
    let (known, wanted_options) = described(schema, attribute)?;
    let rule = known.equality().ok_or_else(|| {
        let diagnostic = format!("{} has no equality rule to compare by", known.name());
        Stop::refuse(ResultCode::InappropriateMatching, diagnostic)
    })?;
    if value.len() > FILTER_BYTES_MAX {
        let diagnostic = format!("the asserted value is longer than {FILTER_BYTES_MAX} bytes");
        return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
    }
    let asserted = rule.assertion(schema, value).map_err(|error| {
        let diagnostic = format!("{}: the asserted value is {error}", known.name());
        Stop::refuse(ResultCode::InvalidAttributeSyntax, diagnostic)
    })?;
    let access = snapshot.access();
    let sees_protected = access.may_read_protected(identity);
    if !access.may_read(identity) || (is_protected(schema, known.id()) && !sees_protected) {
        let diagnostic = "you may not read this attribute";
        return Err(Stop::refuse(
            ResultCode::InsufficientAccessRights,
            diagnostic,
        ));
    }
    let found = target::find(
        snapshot.view(),
        schema,
        state,
        dn,
        normal,
        options.manage_dsa_it,
    );
    let target = found.map_err(|stop| match stop {
        // Outside of the naming contexts: nothing is asked that this server could be unwilling to do.
        Stop::Refused(outcome) if outcome.code == ResultCode::UnwillingToPerform => Outcome {
            code: ResultCode::NoSuchObject,
            ..*outcome
        }
        .into(),
        other => other,
    })?;
    let compiler = Compiler::new(schema, &state.attributes, sees_protected);
    let (equal, present) = compiler.comparison(known, &wanted_options, asserted);
    let mut questions = vec![
        Question::Present(present, known.name().to_owned()),
        Question::Equal(equal),
    ];
    let assertion = options.assertion.map(|filter| compiler.compile(filter));
    questions.extend(assertion.map(Question::Asserted));
    Ok(Running {
        id: target.entry.id,
        sees_protected,
        deadline_micros: options.deadline_micros,
        questions,
        interrupted: Interrupted::default(),
    })
}
