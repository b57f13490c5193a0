//! What distinguishes some bytes from those that they were made of: a page from its base, a value from the one that it
//! replaces.
//!
//! ```text
//!  v  unchanged bytes, which stand where they stood
//!  v  changed bytes * 2 + form
//!     form 0: the bytes
//!     form 1: v shift; they stood so much further behind (n: 2n) or ahead (-n: 2n - 1); zeroes, if it is 0
//! ```
//!
//! is repeated up to `0, 0`. Where much has changed, as in a page whose gaps were closed or that was divided, most of
//! it is still there, in other places.

use std::ops::Range;

use super::{damaged, take, take_number};
use crate::error::Result;
use crate::format::page::{PAGE_BYTES, PAGE_HEADER_BYTES};
use crate::tree::entries::common_prefix;
use crate::varint;

type Bytes = [u8; PAGE_BYTES];

/// What the differences of pages tell of: not the checksum, the page's own number and the commit.
const TOLD: [Range<usize>; 2] = [4..8, PAGE_HEADER_BYTES..PAGE_BYTES];
const WORD_BYTES: usize = 8;
/// So many words that are alike are passed over at once.
const BLOCK_WORDS: usize = 32;
/// A shorter run is written as it is.
const MOVED_BYTES_MIN: usize = 16;
/// If less of a page has changed, the bytes are not looked for elsewhere.
const SEARCHED_BYTES_MIN: usize = 128;
/// After each so many places that lead nowhere, the next are looked for in larger steps: where much is new, hardly
/// anything is found.
const MISSES_FOR_STEP: usize = 32;
/// Changed runs that are closer together are searched as one.
const SEARCHED_GAP_BYTES: usize = 32;

/// Adds the difference of a page to its base, `None` for zeroes.
pub(super) fn put(base: Option<&Bytes>, page: &Bytes, out: &mut Vec<u8>) {
    const ZEROES: &Bytes = &[0; PAGE_BYTES];
    let mut runs = Runs::new(base.unwrap_or(ZEROES), page, out);
    if base.is_none() {
        runs.put_stored(0..PAGE_BYTES);
        return runs.end();
    }
    let mut changed: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for part in TOLD {
        each_changed(runs.before, page, part, |run| {
            bytes += run.len();
            match changed.last_mut() {
                Some(last) if run.start - last.end < SEARCHED_GAP_BYTES => last.end = run.end,
                _ => changed.push(run),
            }
        });
    }
    if bytes < SEARCHED_BYTES_MIN {
        for run in changed {
            runs.put_changed(run);
        }
    } else {
        let places = Places::of(runs.before);
        for run in changed {
            runs.search(&places, run);
        }
    }
    runs.end();
}

/// As [`put`], of a value to the one that it replaces.
pub(super) fn put_value(before: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let mut runs = Runs::new(before, value, out);
    if before.len() == value.len() {
        runs.put_changed(0..value.len());
        return runs.end();
    }
    let shorter = before.len().min(value.len());
    let front = common_prefix(before, value);
    let pairs = before.iter().rev().zip(value.iter().rev());
    let pairs = pairs.take(shorter - front);
    let back = pairs.take_while(|(old, new)| old == new).count();
    let back = if back < MOVED_BYTES_MIN { 0 } else { back };
    let end = value.len() - back;
    runs.put_new(front..end);
    if back > 0 {
        runs.put(end..value.len(), Patch::From(before.len() - back));
    }
    runs.end();
}

/// Calls `each` with the runs of words that differ, without what is alike at their ends. The range lies within both.
fn each_changed(before: &[u8], after: &[u8], at: Range<usize>, mut each: impl FnMut(Range<usize>)) {
    let (Some(old), Some(new)) = (before.get(at.clone()), after.get(at.clone())) else {
        return;
    };
    let ((old, old_rest), (new, new_rest)) = (old.as_chunks::<WORD_BYTES>(), new.as_chunks());
    let is_same = |at: usize| before.get(at) == after.get(at);
    let mut trimmed = |mut run: Range<usize>| {
        while !run.is_empty() && is_same(run.start) {
            run.start += 1;
        }
        while !run.is_empty() && is_same(run.end - 1) {
            run.end -= 1;
        }
        if !run.is_empty() {
            each(run);
        }
    };
    let mut start = at.start;
    let mut run = start..start;
    for (old, new) in old.chunks(BLOCK_WORDS).zip(new.chunks(BLOCK_WORDS)) {
        if old == new {
            start += old.len() * WORD_BYTES;
            continue;
        }
        for (old, new) in old.iter().zip(new) {
            if u64::from_le_bytes(*old) != u64::from_le_bytes(*new) {
                if run.end != start {
                    trimmed(run);
                    run = start..start;
                }
                run.end = start + WORD_BYTES;
            }
            start += WORD_BYTES;
        }
    }
    if old_rest != new_rest {
        if run.end != start {
            trimmed(run);
            run = start..start;
        }
        run.end = at.end;
    }
    trimmed(run);
}

/// Where the words of a page are: of those with equal hashes, the last one.
struct Places([u16; 1 << Places::BITS]);

impl Places {
    const BITS: u32 = 10;

    fn of(page: &[u8]) -> Self {
        let mut places = [0; 1 << Self::BITS];
        let words = page.as_chunks::<WORD_BYTES>().0.iter();
        for (at, word) in words.enumerate().skip(PAGE_HEADER_BYTES / WORD_BYTES) {
            if let Some(place) = places.get_mut(Self::hash(*word)) {
                *place = (at * WORD_BYTES) as u16;
            }
        }
        Self(places)
    }

    fn hash(word: [u8; WORD_BYTES]) -> usize {
        let mixed = u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - Self::BITS)) as usize
    }

    /// Where the word may be.
    fn guess(&self, word: [u8; WORD_BYTES]) -> usize {
        usize::from(self.0.get(Self::hash(word)).copied().unwrap_or_default())
    }
}

/// The runs of one difference as they are written.
struct Runs<'a> {
    before: &'a [u8],
    after: &'a [u8],
    /// How far runs have been written.
    written: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> Runs<'a> {
    fn new(before: &'a [u8], after: &'a [u8], out: &'a mut Vec<u8>) -> Self {
        Self {
            before,
            after,
            written: 0,
            out,
        }
    }

    fn put(&mut self, at: Range<usize>, run: Patch<'_>) {
        let form = match run {
            Patch::New(_) => 0,
            Patch::From(_) | Patch::Zeroes => 1,
        };
        varint::put((at.start - self.written) as u64, self.out);
        varint::put(at.len() as u64 * 2 + form, self.out);
        match run {
            Patch::New(bytes) => self.out.extend_from_slice(bytes),
            Patch::Zeroes => self.out.push(0),
            Patch::From(from) => varint::put(shift(from, at.start), self.out),
        }
        self.written = at.end;
    }

    fn put_new(&mut self, at: Range<usize>) {
        let after = self.after;
        if let Some(bytes) = after.get(at.clone()).filter(|bytes| !bytes.is_empty()) {
            self.put(at, Patch::New(bytes));
        }
    }

    /// Writes those of the bytes that differ from what stood in their place.
    fn put_changed(&mut self, at: Range<usize>) {
        each_changed(self.before, self.after, at, |run| self.put_new(run));
    }

    /// The same, of a page.
    fn put_stored(&mut self, at: Range<usize>) {
        for part in TOLD {
            self.put_changed(at.start.max(part.start)..at.end.min(part.end));
        }
    }

    /// Writes changed bytes as what stood elsewhere, as far as they did.
    fn search(&mut self, places: &Places, range: Range<usize>) {
        let mut new = range.start;
        let mut at = range.start;
        let mut misses = 0;
        while let Some(&word) = self
            .after
            .get(at..range.end)
            .and_then(|rest| rest.first_chunk::<WORD_BYTES>())
        {
            let is_zero = word == [0; WORD_BYTES];
            let from = if is_zero { 0 } else { places.guess(word) };
            let stood = self.before.get(from..).and_then(<[u8]>::first_chunk);
            let found = match is_zero || from > 0 && stood == Some(&word) {
                true => self.extend(from, at, new..range.end),
                false => at..at,
            };
            if found.len() < MOVED_BYTES_MIN {
                misses += 1;
                at += 1 + misses / MISSES_FOR_STEP;
                continue;
            }
            misses = 0;
            self.put_changed(new..found.start);
            let run = match from {
                0 => Patch::Zeroes,
                from => Patch::From(from + found.start - at),
            };
            at = found.end;
            new = found.end;
            // What happens to stand where it stood is not told.
            if !matches!(run, Patch::From(from) if from == found.start) {
                self.put(found, run);
            }
        }
        self.put_changed(new..range.end);
    }

    /// How much around `at`, where a word is the one at `from`, is within bounds what stood around that, or zero if
    /// that is 0.
    fn extend(&self, from: usize, at: usize, bounds: Range<usize>) -> Range<usize> {
        let part = |bytes: &'a [u8], range: Range<usize>| bytes.get(range).unwrap_or_default();
        let front = part(self.after, bounds.start..at).iter().rev();
        let back = part(self.after, at..bounds.end);
        let (front, back) = match from {
            0 => (
                front.take_while(|byte| **byte == 0).count(),
                back.iter().take_while(|byte| **byte == 0).count(),
            ),
            from => {
                let before = part(self.before, PAGE_HEADER_BYTES..from).iter().rev();
                let front = front.zip(before).take_while(|(new, old)| new == old);
                let behind = part(self.before, from..self.before.len());
                (front.count(), common_prefix(back, behind))
            }
        };
        at - front..at + back
    }

    fn end(self) {
        self.out.extend_from_slice(&[0, 0]);
    }
}

/// The form of a distance that may be negative in which small ones are small numbers.
fn shift(from: usize, at: usize) -> u64 {
    match from.checked_sub(at) {
        Some(behind) => behind as u64 * 2,
        None => (at - from) as u64 * 2 - 1,
    }
}

/// What became of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patch<'a> {
    /// They are these now.
    New(&'a [u8]),
    /// They are what stood here.
    From(usize),
    Zeroes,
}

/// Does to `after`, which begins as `before`, what the runs say, which [`walk`] has found good. Bytes of `before` that
/// are not there change nothing: the checksum of what is made tells.
pub(super) fn apply(mut runs: &[u8], before: &[u8], after: &mut [u8]) -> Result<()> {
    walk(&mut runs, after.len(), |at, run| {
        let place = after.get_mut(at).unwrap_or_default();
        match run {
            Patch::New(bytes) => place.copy_from_slice(bytes),
            Patch::Zeroes => place.fill(0),
            Patch::From(from) => {
                let end = from.saturating_add(place.len());
                if let Some(moved) = before.get(from..end) {
                    place.copy_from_slice(moved);
                }
            }
        }
    })
}

/// Calls `each` with every run, which lies within so many bytes, and leaves the input behind them.
pub(super) fn walk<'a>(
    input: &mut &'a [u8],
    bytes: usize,
    mut each: impl FnMut(Range<usize>, Patch<'a>),
) -> Result<()> {
    let mut at = 0;
    loop {
        let unchanged = take_number(input)?;
        let changed = take_number(input)?;
        if unchanged == 0 && changed == 0 {
            return Ok(());
        }
        let (changed, form) = (changed / 2, changed % 2);
        let left = (bytes - at) as u64;
        if unchanged > left || changed == 0 || changed > left - unchanged {
            return Err(damaged("changes bytes beyond the end of a page or value"));
        }
        let start = at + unchanged as usize;
        at = start + changed as usize;
        let run = match form {
            0 => Patch::New(take(input, changed as usize)?),
            _ => match take_number(input)? {
                0 => Patch::Zeroes,
                shift => Patch::From(moved(start, shift)?),
            },
        };
        each(start..at, run);
    }
}

/// The inverse of [`shift`].
fn moved(at: usize, shift: u64) -> Result<usize> {
    let by = usize::try_from(shift.div_ceil(2)).ok();
    let from = by.and_then(|by| match shift % 2 {
        0 => at.checked_add(by),
        _ => at.checked_sub(by),
    });
    from.ok_or_else(|| damaged("moves bytes that are nowhere"))
}
