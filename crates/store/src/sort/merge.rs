//! Merging sorted runs: a heap of the runs, the one with the least record on top.

use std::io;

use super::head_of;
use crate::sort::buffer::Buffer;
use crate::sort::run::RunReader;
use crate::tree::entries::common_prefix;

pub(super) struct Merge {
    sources: Vec<Source>,
    /// A binary heap of the sources that stand on a record, by that record.
    heap: Vec<Standing>,
    /// How many bytes all keys have in common at their beginning.
    alike: usize,
    /// Whether the record on top was handed out already.
    taken: bool,
}

/// A source on its record.
#[derive(Clone, Copy)]
struct Standing {
    /// The first bytes of the key that differ at all: most comparisons need no more.
    head: u64,
    source: usize,
}

enum Source {
    File(RunReader),
    Memory { buffer: Buffer, next: usize },
}

impl Source {
    fn advance(&mut self) -> io::Result<bool> {
        match self {
            Self::File(run) => run.advance(),
            Self::Memory { buffer, next } => {
                *next += 1;
                Ok(*next <= buffer.len())
            }
        }
    }

    fn record(&self) -> (&[u8], &[u8]) {
        match self {
            Self::File(run) => run.record(),
            Self::Memory { buffer, next } => buffer.record(*next - 1),
        }
    }

    fn last_key(&self) -> &[u8] {
        match self {
            Self::File(run) => run.last_key(),
            Self::Memory { buffer, .. } => buffer.record(buffer.len() - 1).0,
        }
    }
}

impl Merge {
    pub(super) fn new(runs: Vec<RunReader>, buffer: Option<Buffer>) -> io::Result<Self> {
        let memory = buffer.map(|buffer| Source::Memory { buffer, next: 0 });
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for mut source in runs.into_iter().map(Source::File).chain(memory) {
            if source.advance()? {
                sources.push(source);
            }
        }
        let first = sources.iter().map(|source| source.record().0).min();
        let last = sources.iter().map(Source::last_key).max();
        let alike = first.zip(last).map_or(0, |(a, b)| common_prefix(a, b));
        let mut merge = Self {
            heap: Vec::with_capacity(sources.len()),
            sources,
            alike,
            taken: false,
        };
        for source in 0..merge.sources.len() {
            let standing = merge.standing(source);
            merge.heap.push(standing);
        }
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(place);
        }
        Ok(merge)
    }

    pub(super) fn next(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        if self.taken {
            let Some(top) = self.heap.first() else {
                return Ok(None);
            };
            let source = top.source;
            if self.sources[source].advance()? {
                self.heap[0] = self.standing(source);
            } else {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        self.taken = true;
        let top = self.heap.first();
        Ok(top.map(|top| self.sources[top.source].record()))
    }

    fn standing(&self, source: usize) -> Standing {
        let (key, _) = self.sources[source].record();
        Standing {
            head: head_of(key.get(self.alike..).unwrap_or_default()),
            source,
        }
    }

    fn is_less(&self, one: Standing, other: Standing) -> bool {
        let record = |standing: Standing| self.sources[standing.source].record();
        match one.head.cmp(&other.head) {
            std::cmp::Ordering::Equal => record(one) < record(other),
            order => order.is_lt(),
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.is_less(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }
}
