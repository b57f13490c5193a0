//! Compare (RFC 4511 §4.10): a resumable state machine, as a search is.

use std::sync::Arc;

use sapwood_ldap::filter::{Filter, FilterBuf};
use sapwood_ldap::limits::FILTER_BYTES_MAX;
use sapwood_ldap::result::ResultCode;

use crate::access::{Asked, EntryGrants, Everywhere, Requester, Rights, Sight, Slot};
use crate::directory::Snapshot;
use crate::engine::{self, Embedded, Engine, EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::matching::evaluate::Interrupted;
use crate::matching::filter::{Compiler, Node};
use crate::matching::look::{Look, assertion_failed};
use crate::operational::Vocabulary;
use crate::outcome::{Outcome, Stop};
use crate::schema::{AttributeType, NormalDn, Purpose};
use crate::search::{Base, Budget, Expansion, Step, SyntheticBase};
use crate::synthetic::root_dse::Channel;
use crate::target::{self, Target};
use crate::update::recognised;

/// What a compare is asked besides its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompareOptions<'a> {
    /// ManageDsaIT (RFC 3296): referral objects are plain entries.
    pub manage_dsa_it: bool,
    /// What kind of connection asks: the root DSE depends on it.
    pub channel: Channel,
    /// Assertion (RFC 4528): what must be true of the entry.
    pub assertion: Option<Filter<'a>>,
    /// When to end with timeLimitExceeded, in microseconds of the directory's clock.
    pub deadline_micros: Option<u64>,
}

/// Entries that a step looks at when URLs are to find a value.
const ENTRIES_PER_STEP: u32 = 1000;

/// A compare under way: compareTrue, compareFalse, or why neither.
pub struct Compare<E: Engine = Embedded> {
    snapshot: Snapshot<E>,
    stage: Stage,
}

enum Stage {
    Failed(Error),
    Ended(Outcome),
    /// Its end has been told: there is nothing to go on with.
    Over,
    /// What it is to begin with is not here yet.
    Unbegun(Box<Unbegun>),
    Running(Box<Running>),
}

/// All that a compare begins with.
struct Unbegun {
    requester: Arc<Requester>,
    dn: String,
    attribute: Vec<u8>,
    value: Vec<u8>,
    assertion: Option<FilterBuf>,
    options: CompareOptions<'static>,
}

struct Running {
    /// The entry, if it is synthetic.
    synthetic: Option<SyntheticBase>,
    /// The entry, if it is one of a naming context.
    id: EntryId,
    requester: Arc<Requester>,
    /// How much of it is seen, and what is granted on it where that is decided by itself.
    sight: Sight,
    on_entry: Option<Box<EntryGrants>>,
    deadline_micros: Option<u64>,
    /// Finds out whether the URLs of a dynamic group or list find the value.
    expansion: Option<Box<Expansion>>,
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
        requester: &Arc<Requester>,
        dn: &str,
        attribute: &[u8],
        value: &[u8],
        options: CompareOptions<'_>,
    ) -> Compare<E> {
        let stage = match begin(&snapshot, requester, dn, attribute, value, options) {
            Ok(running) => Stage::Running(Box::new(running)),
            Err(Stop::Refused(outcome)) => Stage::Ended(*outcome),
            Err(Stop::Failed(error)) if E::REMOTE && error.is_not_here() => {
                Stage::Unbegun(Box::new(Unbegun {
                    requester: requester.clone(),
                    dn: dn.to_owned(),
                    attribute: attribute.to_vec(),
                    value: value.to_vec(),
                    assertion: options.assertion.map(FilterBuf::from),
                    options: CompareOptions {
                        assertion: None,
                        ..options
                    },
                }))
            }
            Err(Stop::Failed(error)) => Stage::Failed(error),
        };
        Compare { snapshot, stage }
    }

    /// The snapshot that it runs on.
    pub fn snapshot(&self) -> &Snapshot<E> {
        &self.snapshot
    }

    /// Goes on for so much [work](crate::Budget::work). Never asks for [`Step::Room`].
    ///
    /// # Errors
    /// When the engine fails or stored data is damaged; the compare cannot go on then, nor after its end.
    pub fn step(&mut self, work: u64) -> Result<Step> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => Err(Error::State("the compare is over".into())),
            Stage::Failed(error) => Err(error),
            Stage::Ended(outcome) => Ok(Step::Done(outcome)),
            Stage::Unbegun(unbegun) => {
                if let Some(outcome) = exceeded(&self.snapshot, unbegun.options.deadline_micros) {
                    return Ok(Step::Done(outcome));
                }
                let assertion = unbegun.assertion.as_ref();
                let again = Compare::new(
                    self.snapshot.clone(),
                    &unbegun.requester,
                    &unbegun.dn,
                    &unbegun.attribute,
                    &unbegun.value,
                    CompareOptions {
                        assertion: assertion.map(FilterBuf::as_filter),
                        ..unbegun.options
                    },
                );
                self.stage = again.stage;
                Ok(match self.stage {
                    Stage::Unbegun(_) => Step::Fetch,
                    _ => Step::More,
                })
            }
            Stage::Running(mut running) => {
                let step = match running.step(&self.snapshot, work) {
                    Err(error) if E::REMOTE && error.is_not_here() => Step::Fetch,
                    outcome => outcome?.map_or(Step::More, Step::Done),
                };
                if !matches!(step, Step::Done(_)) {
                    self.stage = Stage::Running(running);
                }
                Ok(step)
            }
        }
    }
}

impl Running {
    fn step<E: Engine>(&mut self, snapshot: &Snapshot<E>, work: u64) -> Result<Option<Outcome>> {
        let outcome = exceeded(snapshot, self.deadline_micros);
        if outcome.is_some() {
            return Ok(outcome);
        }
        if let Some(expansion) = self.expansion.as_mut().filter(|known| known.is_under_way()) {
            let budget = Budget {
                entries: ENTRIES_PER_STEP,
                work,
                out_bytes: 0,
            };
            let bounds = (self.deadline_micros, u32::MAX);
            let budget = (budget, usize::MAX);
            return match expansion.go_on(snapshot, &self.requester, bounds, budget)? {
                Step::Fetch => Err(engine::Error::NotHere.into()),
                _ => Ok(None),
            };
        }
        let is_found = self
            .expansion
            .as_ref()
            .is_some_and(|known| known.has_found());
        let synthetic = self.synthetic.as_ref();
        let synthetic = synthetic.and_then(|base| Some((&base.context, base.entry()?)));
        while let Some(question) = self.questions.last() {
            // What may be compared need not be what filters may ask for.
            let is_filter = matches!(question, Question::Asserted(_));
            let grants = self.requester.grants();
            let look = Look {
                schema: snapshot.schema(),
                attributes: match synthetic {
                    Some((context, _)) => context.attributes(),
                    None => &snapshot.state().attributes,
                },
                grants: match synthetic {
                    Some(_) => grants.of_synthetic().unwrap_or(grants),
                    None => grants,
                },
                sight: self.sight,
                on_entry: self.on_entry.as_deref().filter(|_| is_filter),
                collective: snapshot.collective()?,
            };
            let (Question::Asserted(node) | Question::Equal(node) | Question::Present(node, _)) =
                question;
            let interrupted = &mut self.interrupted;
            let view = snapshot.view();
            let answer = match synthetic {
                Some((_, entry)) => {
                    look.goes_on_asserting_synthetic(view, entry, node, work, interrupted)?
                }
                None => look.goes_on_asserting(view, self.id, node, work, interrupted)?,
            };
            let Some(answer) = answer else {
                return Ok(None);
            };
            // An entry that has URLs may have the attribute.
            let answer = match question {
                Question::Asserted(_) => answer,
                Question::Equal(_) => answer || is_found,
                Question::Present(..) => answer || self.expansion.is_some(),
            };
            let Some(question) = self.questions.pop() else {
                break;
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

/// The outcome when the time is over.
fn exceeded<E: Engine>(snapshot: &Snapshot<E>, deadline_micros: Option<u64>) -> Option<Outcome> {
    let deadline = deadline_micros?;
    (snapshot.now_micros() >= deadline).then(|| {
        let diagnostic = "the time limit came before the comparison's end";
        Outcome::new(ResultCode::TimeLimitExceeded, diagnostic)
    })
}

fn begin<E: Engine>(
    snapshot: &Snapshot<E>,
    requester: &Arc<Requester>,
    dn: &str,
    attribute: &[u8],
    value: &[u8],
    options: CompareOptions<'_>,
) -> std::result::Result<Running, Stop> {
    let (schema, state) = (snapshot.schema(), snapshot.state());
    let normal = target::parse(schema, dn)?;
    let (known, wanted) = recognised(schema, attribute, Purpose::Find)?;
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
    let requester = snapshot.current(requester)?;
    let grants = requester.grants();
    let synthetic = match Base::of_normal(snapshot, grants, (dn, &normal), options.channel)? {
        Base::InTree => None,
        Base::Synthetic(base) => Some(base),
        Base::Nowhere(outcome) => return Err(outcome.into()),
    };
    let slot = grants.slot(known.id());
    let global = synthetic.as_ref().and_then(|_| grants.of_synthetic());
    let (granted, sight) = match &synthetic {
        Some(_) => (global.unwrap_or(grants), grants.sight_of_synthetic()),
        None => (grants, grants.sight()),
    };
    let may_ever = match (&synthetic, global) {
        (Some(_), None) => grants.searches(schema, sight, known.id()),
        _ => granted.everywhere(slot, Rights::COMPARE),
    };
    // Told without a look, so that it tells nothing.
    if may_ever == Everywhere::Never {
        return Err(may_not_compare());
    }
    let mut on_entry = None;
    let (id, attributes) = match &synthetic {
        Some(base) => {
            if let (Some(global), Some(entry)) = (global, base.entry()) {
                let reading = (snapshot.view(), schema);
                let granted = global.on_synthetic(reading, (&base.context, entry))?;
                if !granted.has(Slot::ENTRY, Rights::DISCLOSE) {
                    let diagnostic = format!("there is no entry {dn:?}");
                    return Err(Stop::refuse(ResultCode::NoSuchObject, diagnostic));
                }
                if !granted.has_on_value((schema, known.id()), value, Rights::COMPARE) {
                    return Err(may_not_compare());
                }
                on_entry = Some(Box::new(granted));
            }
            (EntryId::ROOT, base.context.attributes())
        }
        None => {
            let viewer = (!grants.is_unlimited()).then_some(&*requester);
            let target = find(snapshot, dn, normal, options.manage_dsa_it, viewer)?;
            let id = target.entry.id;
            if !grants.is_unlimited() {
                let asked = Asked {
                    view: snapshot.view(),
                    schema,
                    dn: &target.normal,
                    id,
                };
                let granted = grants.on_entry(&asked)?;
                if !granted.has_on_value((schema, known.id()), value, Rights::COMPARE) {
                    return Err(may_not_compare());
                }
                on_entry = Some(Box::new(granted));
            }
            (id, &state.attributes)
        }
    };
    let may_be_compared = |attribute_type| match &on_entry {
        Some(granted) => granted.has_on_value((schema, attribute_type), value, Rights::COMPARE),
        None => true,
    };
    let expansion = match state.attributes.dynamic_groups() {
        Some(_) if synthetic.is_none() && !options.manage_dsa_it => {
            let asked = (known, asserted.key(), value);
            expansion(snapshot, id, asked)?
        }
        _ => None,
    };
    let compiler = Compiler::new(schema, attributes, (granted, sight));
    let (equal, present) = compiler.comparison(known, &wanted, asserted, may_be_compared);
    let mut questions = vec![
        Question::Present(present, known.name().to_owned()),
        Question::Equal(equal),
    ];
    let assertion = options.assertion.map(|filter| compiler.compile(filter));
    questions.extend(assertion.map(Question::Asserted));
    Ok(Running {
        synthetic: synthetic.clone(),
        id,
        sight,
        on_entry,
        requester,
        deadline_micros: options.deadline_micros,
        expansion,
        questions,
        interrupted: Interrupted::default(),
    })
}

/// What finds out whether the URLs of an entry find a value.
fn expansion<E: Engine>(
    snapshot: &Snapshot<E>,
    id: EntryId,
    asked: (&AttributeType, &[u8], &[u8]),
) -> Result<Option<Box<Expansion>>> {
    let vocabulary = Vocabulary {
        schema: snapshot.schema(),
        attributes: &snapshot.state().attributes,
    };
    let record = snapshot.view().get(Table::Entry, &id.to_key())?;
    let record =
        record.ok_or_else(|| Error::corrupt(format!("entry {id} has a name but no record")))?;
    let entry =
        Entry::new(&record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    Expansion::of_compare(vocabulary, (id, &entry), asked)
}

fn may_not_compare() -> Stop {
    let diagnostic = "you may not read this attribute";
    Stop::refuse(ResultCode::InsufficientAccessRights, diagnostic)
}

/// Finds an entry of a naming context.
fn find<E: Engine>(
    snapshot: &Snapshot<E>,
    dn: &str,
    normal: NormalDn,
    manage_dsa_it: bool,
    viewer: Option<&Requester>,
) -> std::result::Result<Target, Stop> {
    let (schema, state) = (snapshot.schema(), snapshot.state());
    let view = snapshot.view();
    let found = target::find(view, schema, state, dn, normal, manage_dsa_it, viewer);
    match found {
        // Outside of the naming contexts: nothing is asked that this server could be unwilling to do.
        Err(Stop::Refused(outcome)) if outcome.code == ResultCode::UnwillingToPerform => {
            Err(Outcome {
                code: ResultCode::NoSuchObject,
                ..*outcome
            }
            .into())
        }
        found => found,
    }
}
