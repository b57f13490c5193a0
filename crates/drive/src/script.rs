//! What a connection sends next.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::generate::Random;
use crate::plan::{Code, Order, Session};

/// How many operations a session has begun, beside how many it shall.
#[derive(Debug)]
pub(crate) struct Budget {
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

    /// Takes one operation; `false` when there are no more.
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
    /// Send nothing until every answer has come.
    Wait,
    /// The session has sent all it shall.
    Done,
}

/// Where a connection is in its session's steps.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// The current step, and the next piece of its code.
    step: usize,
    at: usize,
    is_inside: bool,
    /// How often the operation at `at` has been sent.
    sent: u32,
    /// Rounds that are left of each loop that has begun; a group's are 0.
    loops: Vec<u32>,
    /// Groups that have begun, and a number for the pass through the outermost.
    groups: u32,
    pass: u64,
}

impl Script {
    /// The number of the pass in which variables keep their values; `None` when each operation has its own.
    #[inline]
    pub(crate) fn pass(&self) -> Option<u64> {
        (self.groups > 0).then_some(self.pass)
    }

    #[inline]
    pub(crate) fn next(
        &mut self,
        session: &Session,
        weights: &Weights,
        budget: &Budget,
        random: &mut Random,
    ) -> Next {
        loop {
            if !self.is_inside {
                match session.order {
                    Order::Sequence => {}
                    Order::Random => self.step = weights.draw(random),
                }
                (self.at, self.sent, self.is_inside) = (0, 0, true);
            }
            let code = session
                .steps
                .get(self.step)
                .and_then(|step| step.code.get(self.at));
            match code.copied() {
                None => {
                    // The step is over; a sequence goes on with the next, and round.
                    self.is_inside = false;
                    self.step = (self.step + 1) % session.steps.len().max(1);
                }
                Some(Code::Operation { operation, times }) => {
                    if self.sent == times {
                        (self.at, self.sent) = (self.at + 1, 0);
                        continue;
                    }
                    // A group that was begun is finished, whatever the count.
                    if !budget.take() && self.groups == 0 {
                        return Next::Done;
                    }
                    self.sent += 1;
                    return Next::Send(operation as usize);
                }
                Some(Code::Wait) => {
                    self.at += 1;
                    return Next::Wait;
                }
                Some(Code::Loop { times }) => {
                    self.loops.push(times - 1);
                    self.at += 1;
                }
                Some(Code::Group) => {
                    if self.groups == 0 && budget.is_spent() {
                        return Next::Done;
                    }
                    self.loops.push(0);
                    self.pass += u64::from(self.groups == 0);
                    self.groups += 1;
                    self.at += 1;
                }
                Some(Code::End { begin }) => {
                    let begin = begin as usize;
                    match self.loops.last_mut() {
                        Some(left) if *left > 0 => {
                            *left -= 1;
                            self.at = begin + 1;
                        }
                        _ => {
                            self.loops.pop();
                            let code = session.steps[self.step].code[begin];
                            self.groups -= u32::from(code == Code::Group);
                            self.at += 1;
                        }
                    }
                }
            }
        }
    }
}

/// The weights of a session's steps, summed up.
#[derive(Debug)]
pub(crate) struct Weights {
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

    fn operation(operation: u32, times: u32) -> Code {
        Code::Operation { operation, times }
    }

    fn sent(session: &Session, count: Option<u64>, most: usize) -> (Vec<usize>, Vec<Option<u64>>) {
        let (weights, budget) = (Weights::new(session), Budget::new(count));
        let (mut script, mut random) = (Script::default(), Random::new(3, 0));
        let (mut order, mut passes) = (Vec::new(), Vec::new());
        while order.len() < most {
            match script.next(session, &weights, &budget, &mut random) {
                Next::Send(operation) => {
                    order.push(operation);
                    passes.push(script.pass());
                }
                Next::Wait => {}
                Next::Done => break,
            }
        }
        (order, passes)
    }

    #[test]
    fn loops_groups_and_repetitions_are_gone_through_in_order() {
        let code = vec![
            Code::Loop { times: 2 },
            operation(0, 1),
            Code::Group,
            operation(1, 2),
            Code::Wait,
            operation(2, 1),
            Code::End { begin: 2 },
            Code::End { begin: 0 },
        ];
        let steps = vec![
            Step { weight: 1, code },
            Step {
                weight: 1,
                code: vec![operation(3, 1)],
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
        let group = vec![Code::Group, operation(0, 2), Code::End { begin: 0 }];
        let steps = vec![Step {
            weight: 1,
            code: group,
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
            code: vec![operation(index, 1)],
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
