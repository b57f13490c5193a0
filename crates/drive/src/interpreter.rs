//! Walks through the steps of a session and says what a connection sends next.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::{Instruction, Order, Session};
use crate::random::Random;

/// How many operations a session may begin. Its connections share the budget.
#[derive(Debug)]
pub(crate) struct Budget {
    /// How many were begun. It may pass `count`: a group is finished on an empty budget.
    begun: AtomicU64,
    count: u64,
}

impl Budget {
    pub(crate) fn new(count: Option<u64>) -> Self {
        Budget {
            begun: AtomicU64::new(0),
            count: count.unwrap_or(u64::MAX),
        }
    }

    #[inline]
    fn is_spent(&self) -> bool {
        self.begun.load(Ordering::Relaxed) >= self.count
    }

    /// Takes one operation. Returns `false` when the budget is spent.
    #[inline]
    fn take(&self) -> bool {
        self.count == u64::MAX || self.begun.fetch_add(1, Ordering::Relaxed) < self.count
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send the operation with this index.
    Send(usize),
    /// Send nothing until every request in flight is answered.
    Wait,
    /// The budget is spent.
    Done,
}

/// The position of one connection in its session's steps.
#[derive(Debug, Default)]
pub(crate) struct Interpreter {
    /// The index of the current step.
    step: usize,
    /// Whether the current step has begun and not ended.
    is_in_step: bool,
    /// The index of the next instruction in the step.
    next: usize,
    /// How often the operation at `next` was sent.
    sent: u32,
    /// The rounds left of each open loop, the innermost last. A group stands here as a loop with none left.
    loops: Vec<u32>,
    /// How many groups are open.
    groups: u32,
    /// The number of the current or last pass through an outermost group.
    pass: u64,
}

impl Interpreter {
    /// The number of the current pass through a group: variables keep their values in it. `None` outside of groups,
    /// where each operation draws its own values.
    #[inline]
    pub(crate) fn pass(&self) -> Option<u64> {
        (self.groups > 0).then_some(self.pass)
    }

    /// Moves on to the next operation to send, or to a wait, or to the end of the budget.
    #[inline]
    pub(crate) fn next(
        &mut self,
        session: &Session,
        weights: &Weights,
        budget: &Budget,
        random: &mut Random,
    ) -> Next {
        loop {
            if !self.is_in_step {
                match session.order {
                    Order::Sequence => {}
                    Order::Random => self.step = weights.draw(random),
                }
                (self.next, self.sent, self.is_in_step) = (0, 0, true);
            }
            let instruction = session
                .steps
                .get(self.step)
                .and_then(|step| step.instructions.get(self.next));
            match instruction.copied() {
                None => {
                    // The step is over. A sequence goes on with the next one, after the last with the first.
                    self.is_in_step = false;
                    self.step = (self.step + 1) % session.steps.len().max(1);
                }
                Some(Instruction::Operation { operation, times }) => {
                    if self.sent == times {
                        (self.next, self.sent) = (self.next + 1, 0);
                        continue;
                    }
                    // A group that has begun is finished even on an empty budget.
                    if !budget.take() && self.groups == 0 {
                        return Next::Done;
                    }
                    self.sent += 1;
                    return Next::Send(operation as usize);
                }
                Some(Instruction::Wait) => {
                    self.next += 1;
                    return Next::Wait;
                }
                Some(Instruction::Loop { times }) => {
                    self.loops.push(times - 1);
                    self.next += 1;
                }
                Some(Instruction::Group) => {
                    if self.groups == 0 && budget.is_spent() {
                        return Next::Done;
                    }
                    self.loops.push(0);
                    self.pass += u64::from(self.groups == 0);
                    self.groups += 1;
                    self.next += 1;
                }
                Some(Instruction::End { begin }) => {
                    let begin = begin as usize;
                    match self.loops.last_mut() {
                        Some(left) if *left > 0 => {
                            *left -= 1;
                            self.next = begin + 1;
                        }
                        _ => {
                            self.loops.pop();
                            let opened = session.steps[self.step].instructions[begin];
                            self.groups -= u32::from(opened == Instruction::Group);
                            self.next += 1;
                        }
                    }
                }
            }
        }
    }
}

/// Draws steps at random, as often as their weights say.
#[derive(Debug)]
pub(crate) struct Weights {
    /// The sum of the weights up to and including each step's.
    sums: Vec<u64>,
}

impl Weights {
    pub(crate) fn new(session: &Session) -> Self {
        let sums = session.steps.iter().scan(0, |sum, step| {
            *sum += u64::from(step.weight);
            Some(*sum)
        });
        Weights {
            sums: sums.collect(),
        }
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> usize {
        let drawn = random.below(self.sums.last().copied().unwrap_or(1));
        self.sums.partition_point(|sum| *sum <= drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Step;

    fn operation(operation: u32, times: u32) -> Instruction {
        Instruction::Operation { operation, times }
    }

    fn sent(session: &Session, count: Option<u64>, most: usize) -> (Vec<usize>, Vec<Option<u64>>) {
        let (weights, budget) = (Weights::new(session), Budget::new(count));
        let (mut interpreter, mut random) = (Interpreter::default(), Random::new(3, 0));
        let (mut order, mut passes) = (Vec::new(), Vec::new());
        while order.len() < most {
            match interpreter.next(session, &weights, &budget, &mut random) {
                Next::Send(operation) => {
                    order.push(operation);
                    passes.push(interpreter.pass());
                }
                Next::Wait => {}
                Next::Done => break,
            }
        }
        (order, passes)
    }

    #[test]
    fn loops_groups_and_repetitions_are_gone_through_in_order() {
        let instructions = vec![
            Instruction::Loop { times: 2 },
            operation(0, 1),
            Instruction::Group,
            operation(1, 2),
            Instruction::Wait,
            operation(2, 1),
            Instruction::End { begin: 2 },
            Instruction::End { begin: 0 },
        ];
        let steps = vec![
            Step {
                weight: 1,
                instructions,
            },
            Step {
                weight: 1,
                instructions: vec![operation(3, 1)],
            },
        ];
        let session = Session {
            steps,
            ..Session::default()
        };
        let (order, passes) = sent(&session, None, 18);
        let round = [0, 1, 1, 2, 0, 1, 1, 2, 3];
        assert_eq!(order, [round, round].concat());
        let (one, two) = (Some(1), Some(2));
        assert_eq!(
            passes[..9],
            [None, one, one, one, None, two, two, two, None]
        );
        // A group is not torn apart.
        assert_eq!(sent(&session, Some(2), 99).0, [0, 1, 1, 2]);
        let group = vec![
            Instruction::Group,
            operation(0, 2),
            Instruction::End { begin: 0 },
        ];
        let steps = vec![Step {
            weight: 1,
            instructions: group,
        }];
        let grouped = Session {
            steps,
            ..Session::default()
        };
        assert_eq!(sent(&grouped, Some(3), 99).0, [0; 4]);
        assert_eq!(sent(&session, Some(9), 99).0, round);
    }

    #[test]
    fn random_steps_come_as_often_as_they_weigh() {
        let step = |index, weight| Step {
            weight,
            instructions: vec![operation(index, 1)],
        };
        let session = Session {
            order: Order::Random,
            steps: vec![step(0, 3), step(1, 1)],
            ..Session::default()
        };
        let (order, _) = sent(&session, None, 10_000);
        let first = order.iter().filter(|operation| **operation == 0).count();
        assert!((7000..8000).contains(&first), "{first}");
    }
}
