//! Entries that come in the order in which the tables want them, that of their normal DNs read from the root down: so
//! do entries below one parent that are numbered or were exported. They go into the tables while the source is still
//! being read, and are not sorted.
//!
//! Whether they do is only known at the end. If one does not, what was built is dropped and the source is read once
//! more, from its beginning, to be sorted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use super::build::{self, Source};
use super::gathered::{Gathered, Place};
use super::prepare::{self, Sink};
use super::{ImportSource, Shared};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Pieces under way for each thread that parses.
const PIECES_WAITING: usize = 3;
/// So many pieces are looked at before anything is built: a source in no order is mostly found out by them.
const PIECES_TRIED: u64 = 2;

/// What becomes of a block of the source.
pub(super) enum Piece {
    Entries(Gathered),
    /// It could not be dealt with; who had it says why.
    Failed,
    /// There is no such block: the source ends before it.
    End,
}

/// Imports a source in its own order into an empty directory. `false`, and nothing is changed, if that cannot be done.
pub(super) fn import<E: Engine>(shared: &Shared<'_, E>, source: ImportSource<'_>) -> Result<bool> {
    let (pieces, arriving) = channel();
    let (under_way, done) = sync_channel(PIECES_WAITING * shared.options.threads.max(1));
    let (give_back, emptied) = channel();
    std::thread::scope(|scope| {
        let parsing = scope.spawn(move || {
            let sink = Sink::Order {
                pieces,
                under_way,
                emptied: Mutex::new(emptied),
            };
            prepare::parse(shared, vec![source], &sink)
        });
        let ordered = Ordered {
            arriving,
            early: BTreeMap::new(),
            next: 0,
            current: Gathered::default(),
            place: Place::default(),
            last: Vec::new(),
            at_end: false,
            done,
            give_back,
        };
        let built = build_from(shared, ordered);
        let parsed = match parsing.join() {
            Ok(parsed) => parsed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        match (parsed, built) {
            (Ok(()), Ok(())) => Ok(true),
            _ if shared.is_out_of_order() => Ok(false),
            (parsed, built) => parsed.and(built).map(|()| true),
        }
    })
}

fn build_from<E: Engine>(shared: &Shared<'_, E>, mut ordered: Ordered) -> Result<()> {
    if !ordered.begins_in_order()? {
        return Err(shared.out_of_order());
    }
    build::build(shared, Source::Ordered(ordered))
}

/// The entries of a source in its own order.
pub(super) struct Ordered {
    arriving: Receiver<(u64, Piece)>,
    /// What came before its turn.
    early: BTreeMap<u64, Piece>,
    /// The piece behind the current one.
    next: u64,
    current: Gathered,
    place: Place,
    /// The key of the record before.
    last: Vec<u8>,
    at_end: bool,
    /// Makes room for another piece.
    done: Receiver<()>,
    give_back: Sender<Gathered>,
}

/// What an ordered source has next.
pub(super) enum Next<'o> {
    /// Key and value.
    Record(&'o [u8], &'o [u8]),
    End,
    /// A record that belongs before the last one, or perhaps does.
    OutOfOrder,
}

impl Ordered {
    /// Waits for the first pieces and tells whether they are in order.
    fn begins_in_order(&mut self) -> Result<bool> {
        let mut last: &[u8] = &[];
        while (self.early.len() as u64) < PIECES_TRIED {
            let (at, piece) = self.arriving.recv().map_err(|_| ended_early())?;
            let is_last = !matches!(piece, Piece::Entries(_));
            self.early.insert(at, piece);
            if is_last {
                break;
            }
        }
        let tried = (0..PIECES_TRIED).map_while(|at| match self.early.get(&at) {
            Some(Piece::Entries(entries)) => Some(entries),
            _ => None,
        });
        for entries in tried {
            let mut place = Place::default();
            while let Some((key, _)) = entries.record(&mut place) {
                if key <= last {
                    return Ok(false);
                }
                last = key;
            }
        }
        Ok(true)
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Next<'_>> {
        while self.current.is_at_end(&self.place) {
            if self.at_end {
                return Ok(Next::End);
            }
            self.turn()?;
        }
        let Some((key, value)) = self.current.record(&mut self.place) else {
            return Ok(Next::End);
        };
        // Keys have no room for the whole of a long name.
        if key <= self.last.as_slice() || key.len() >= sapwood_store::KEY_BYTES_MAX {
            return Ok(Next::OutOfOrder);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(Next::Record(key, value))
    }

    /// Goes to the next piece.
    fn turn(&mut self) -> Result<()> {
        let piece = loop {
            if let Some(piece) = self.early.remove(&self.next) {
                break piece;
            }
            let (at, piece) = self.arriving.recv().map_err(|_| ended_early())?;
            self.early.insert(at, piece);
        };
        self.next += 1;
        self.place = Place::default();
        match piece {
            Piece::Entries(entries) => {
                let mut read = std::mem::replace(&mut self.current, entries);
                read.clear();
                // Neither matters once everything is parsed.
                let _ = self.give_back.send(read);
                let _ = self.done.try_recv();
                Ok(())
            }
            Piece::End => {
                self.at_end = true;
                self.current.clear();
                Ok(())
            }
            Piece::Failed => Err(ended_early()),
        }
    }
}

/// The one that had what is missing says more.
fn ended_early() -> Error {
    Error::State("reading the entries ended early".to_owned())
}
