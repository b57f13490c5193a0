//! Merging sorted runs: a heap of the runs, the one with the least record on top.

use std::io;

use super::buffer::Buffer;
use super::head_of;
use super::run::RunReader;

pub(super) struct Merge {
    /// A binary heap by current record; every source in it stands on one.
    sources: Vec<Source>,
    /// Whether the record on top was handed out already.
    taken: bool,
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

    fn head(&self) -> u64 {
        match self {
            Self::File(run) => run.head(),
            Self::Memory { .. } => head_of(self.record().0),
        }
    }

    fn record(&self) -> (&[u8], &[u8]) {
        match self {
            Self::File(run) => run.record(),
            Self::Memory { buffer, next } => buffer.record(*next - 1),
        }
    }

    fn is_less(&self, other: &Self) -> bool {
        let order = self
            .head()
            .cmp(&other.head())
            .then_with(|| self.record().cmp(&other.record()));
        order.is_lt()
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
        let mut merge = Self {
            sources,
            taken: false,
        };
        for place in (0..merge.sources.len() / 2).rev() {
            merge.sift_down(place);
        }
        Ok(merge)
    }

    pub(super) fn next(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        if self.taken {
            let Some(top) = self.sources.first_mut() else {
                return Ok(None);
            };
            if !top.advance()? {
                self.sources.swap_remove(0);
            }
            self.sift_down(0);
        }
        self.taken = true;
        Ok(self.sources.first().map(Source::record))
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.sources.len() && self.sources[child].is_less(&self.sources[least]) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.sources.swap(place, least);
            place = least;
        }
    }
}
