//! Going through the entries of a synthetic context.

use sapwood_ldap::message::Scope;

use super::base::SyntheticBase;
use super::page::Position;
use super::{Budget, Flow, Running, Step, sees};
use crate::access::{Sight, Visible};
use crate::directory::Snapshot;
use crate::engine::{Engine, EntryId};
use crate::error::Result;
use crate::matching::candidate::Candidate;
use crate::matching::evaluate::Evaluator;
use crate::matching::filter::Truth;
use crate::matching::sender::Sender;
use crate::matching::sink::Sink;
use crate::operational::Vocabulary;

impl SyntheticBase {
    /// The places that a scope covers, but for those deeper than one level below.
    fn places(&self, scope: Scope) -> std::ops::Range<usize> {
        let end = self.entry().map_or(self.at, |entry| entry.end());
        match scope {
            Scope::Base => self.at..self.at + 1,
            Scope::Subtree => self.at..end,
            Scope::OneLevel | Scope::Subordinates => self.at + 1..end,
        }
    }
}

impl Running {
    /// Goes on with the entries of a synthetic context. A position is that of the next one in the order of a walk.
    pub(super) fn step_synthetic<E: Engine, S: Sink>(
        &mut self,
        snapshot: &Snapshot<E>,
        base: &SyntheticBase,
        sink: &mut S,
        budget: Budget,
    ) -> Result<Step> {
        let scope = self.covered.scope();
        let places = base.places(scope);
        let level = base.entry().map_or(0, |entry| entry.depth() + 1);
        let (sent_max, full) = self.limits.sent_max(self.sent_before);
        let (schema, context) = (snapshot.schema(), &base.context);
        let vocabulary = Vocabulary {
            schema,
            attributes: context.attributes(),
        };
        let global = self.requester.grants().of_synthetic();
        // What rules have in common for all entries is known from the beginning.
        let deciding = global.filter(|grants| grants.sight() == Sight::Decided);
        let interrupted = std::mem::take(&mut self.interrupted);
        let mut evaluator = Evaluator::new(schema, budget.work, interrupted);
        let mut sender = Sender::new(
            &self.selection,
            schema,
            context.attributes(),
            self.gathered.take(),
        );
        let mut at = match self.position {
            Position::Id(EntryId(at)) => usize::try_from(at).unwrap_or(usize::MAX),
            Position::Levels(_) => usize::MAX,
        };
        at = at.max(places.start);
        let mut looked_at = 0;
        let flow = loop {
            let Some(entry) = context.entry(at).filter(|_| at < places.end) else {
                break Ok(None);
            };
            let is_covered = scope != Scope::OneLevel || entry.depth() == level;
            if is_covered && sees(self.subentries, scope, entry.is_subentry()) {
                looked_at += 1;
                let mut visit = || -> Result<Flow> {
                    let (record, operational) = entry.records()?;
                    let reading = (snapshot.view(), schema);
                    let on_entry = deciding
                        .map(|grants| grants.on_synthetic(reading, (context, entry)))
                        .transpose()?;
                    let mut candidate =
                        Candidate::synthetic(snapshot.view(), vocabulary, record, operational);
                    if let (Some(grants), Some(on_entry)) = (deciding, &on_entry) {
                        if on_entry.visible() == Visible::Nothing {
                            return Ok(Flow::Next);
                        }
                        candidate.restrict(grants, Some(on_entry));
                    }
                    match evaluator.evaluate(&self.filter, &mut candidate)? {
                        None => return Ok(Flow::Interrupted),
                        Some(Truth::True) if self.sent >= sent_max => return Ok(full),
                        Some(Truth::True) => {}
                        Some(_) => return Ok(Flow::Next),
                    }
                    let room = sender.bytes_beyond(sink, budget.out_bytes, &mut candidate)?;
                    if let Some(bytes) = room {
                        evaluator.keep_match();
                        return Ok(Flow::Room(bytes));
                    }
                    if !sender.prepare(&mut candidate, &mut evaluator)? {
                        evaluator.keep_match();
                        return Ok(Flow::Interrupted);
                    }
                    sender.send(&mut candidate, sink)?;
                    self.sent += 1;
                    Ok(Flow::Next)
                };
                match visit() {
                    Ok(Flow::Next) => {}
                    stopped => break stopped.map(Some),
                }
            }
            at += 1;
            let is_enough = looked_at >= budget.entries || sink.bytes() >= budget.out_bytes;
            if is_enough || evaluator.is_exhausted() {
                break Ok(Some(Flow::Pause));
            }
        };
        self.position = Position::Id(EntryId(at as u64));
        // On an error, which may be that something is not here, the entry is looked at anew.
        let flow = flow?;
        self.interrupted = evaluator.into_interrupted();
        self.gathered = sender.into_gathered();
        Ok(self.after(flow, snapshot))
    }
}
