//! What distinguishes a page from the one it was copied from: runs of changed bytes.
//!
//! A run is `v` unchanged bytes, `v` changed bytes * 4 + form, and by form
//!
//! ```text
//!  0: the bytes
//!  1: v n, n bytes: what stood here has moved up, and these are in front
//!  2: v n, n bytes: what stood here has moved down, and these are behind
//!  3: v from: the bytes that stood at `from`; 0: zeroes
//! ```
//!
//! and `0, 0` ends the list. Where much has changed, as in a page whose gaps were closed or that was divided, most of
//! it is still there, in other places: such pages are compared with the whole of what they were.

use std::ops::Range;

use super::{damaged, take, take_number};
use crate::error::Result;
use crate::format::page::{Origin, Origins, PAGE_BYTES, PAGE_HEADER_BYTES};
use crate::varint;

type Bytes = [u8; PAGE_BYTES];

const CHECKSUM_BYTES: usize = 4;
/// The page's own number and the commit, which are not among the changes.
const IDENTITY: Range<usize> = 8..24;
const WORD_BYTES: usize = 8;
/// Compared at once: most of a page is unchanged.
const BLOCK_WORDS: usize = 8;
/// How far the entries of a page's arrays move when one comes or goes, and with them those of an array behind.
const MOVES: [usize; 5] = [2, 4, 6, 8, 10];
/// A shorter run is written as it is.
const MOVED_BYTES_MIN: usize = 16;
/// If less has changed, the bytes are not looked for elsewhere.
const SEARCHED_BYTES_MIN: usize = 320;
/// Changed runs that are closer together are searched as one.
const SEARCHED_GAP_BYTES: usize = 32;

/// Adds the difference of a page to its base, `None` for zeroes.
pub(super) fn put(base: Option<&Bytes>, page: &Bytes, out: &mut Vec<u8>) {
    const ZEROES: &Bytes = &[0; PAGE_BYTES];
    let before = base.unwrap_or(ZEROES);
    let mut changed = Changed::nothing();
    changed.find(before, page);
    let mut pieces = Pieces {
        before,
        page,
        written: 0,
        out,
    };
    if base.is_some() && changed.bytes() >= SEARCHED_BYTES_MIN {
        changed.join(SEARCHED_GAP_BYTES);
        let places = Places::of(before);
        for range in changed.ranges() {
            pieces.search(&places, range);
        }
    } else {
        for range in changed.ranges() {
            pieces.put_new(range);
        }
    }
    pieces.out.extend_from_slice(&[0, 0]);
}

/// As [`put`], where it is known what became of the bytes: nothing is read but what has been stored, and what stood
/// there.
pub(super) fn put_known(before: &Bytes, page: &Bytes, origins: &Origins, out: &mut Vec<u8>) {
    let mut pieces = Pieces {
        before,
        page,
        written: 0,
        out,
    };
    // Bytes that may differ from what stood in their place.
    let mut new = 0..0;
    for (at, origin) in origins.iter() {
        let from = match origin {
            Origin::Base(from) if from == at.start => continue,
            Origin::Base(from) if at.len() >= MOVED_BYTES_MIN => from,
            Origin::Zero if at.len() >= MOVED_BYTES_MIN => 0,
            _ if at.start == new.end => {
                new.end = at.end;
                continue;
            }
            _ => {
                pieces.put_changed(std::mem::replace(&mut new, at));
                continue;
            }
        };
        let moved_up = at.start == new.end && from == new.start && !new.is_empty() && from != 0;
        if moved_up {
            let stored = page.get(new.clone()).unwrap_or_default();
            pieces.put(new.start..at.end, &Piece::Up(stored));
        } else {
            pieces.put_changed(new);
            pieces.put(at.clone(), &Piece::From(from));
        }
        new = at.end..at.end;
    }
    pieces.put_changed(new);
    pieces.out.extend_from_slice(&[0, 0]);
}

/// Where a page has changed: at most every second word begins a range.
struct Changed {
    ranges: [(u16, u16); Changed::MAX],
    count: usize,
}

impl Changed {
    const MAX: usize = PAGE_BYTES / WORD_BYTES / 2 + 1;

    fn nothing() -> Self {
        Self {
            ranges: [(0, 0); Self::MAX],
            count: 0,
        }
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let ranges = self.ranges.get(..self.count).unwrap_or_default();
        ranges
            .iter()
            .map(|&(start, end)| usize::from(start)..usize::from(end))
    }

    fn bytes(&self) -> usize {
        self.ranges().map(|range| range.len()).sum()
    }

    fn find(&mut self, before: &Bytes, page: &Bytes) {
        let words = (
            before.as_chunks::<WORD_BYTES>().0,
            page.as_chunks::<WORD_BYTES>().0,
        );
        // The run that is being gathered.
        let mut run = 0..0;
        let blocks = words.0.as_chunks::<BLOCK_WORDS>().0;
        let blocks = blocks.iter().zip(words.1.as_chunks::<BLOCK_WORDS>().0);
        for (block, (old, new)) in (0..).step_by(BLOCK_WORDS).zip(blocks) {
            if is_same(old, new) {
                continue;
            }
            for (at, (old, new)) in (block..).zip(old.iter().zip(new)) {
                if !differs(at, *old, *new) {
                    continue;
                }
                if at != run.end {
                    self.push(before, page, run);
                    run = at..at;
                }
                run.end = at + 1;
            }
        }
        self.push(before, page, run);
    }

    /// Adds a run of words, without what is unchanged at its ends.
    fn push(&mut self, before: &Bytes, page: &Bytes, words: Range<usize>) {
        // The checksum before the first changed byte is not among the changes.
        let mut at = (words.start * WORD_BYTES).max(CHECKSUM_BYTES)..words.end * WORD_BYTES;
        let is_same = |at: usize| before.get(at) == page.get(at);
        while !at.is_empty() && is_same(at.start) {
            at.start += 1;
        }
        while !at.is_empty() && is_same(at.end - 1) {
            at.end -= 1;
        }
        if let Some(place) = self.ranges.get_mut(self.count)
            && !at.is_empty()
        {
            *place = (at.start as u16, at.end as u16);
            self.count += 1;
        }
    }

    /// Makes one range of those that are close together, behind the header of the page.
    fn join(&mut self, gap: usize) {
        let mut kept = 0;
        for at in 1..self.count {
            let (Some(&(before, end)), Some(&(start, last))) =
                (self.ranges.get(kept), self.ranges.get(at))
            else {
                break;
            };
            let near = usize::from(start - end) < gap && usize::from(before) >= PAGE_HEADER_BYTES;
            kept += usize::from(!near);
            if let Some(place) = self.ranges.get_mut(kept) {
                *place = if near { (before, last) } else { (start, last) };
            }
        }
        self.count = self.count.min(kept + 1);
    }
}

/// Whether a word differs, apart from what is not among the changes: checksum, number and commit.
fn differs(at: usize, base: [u8; WORD_BYTES], page: [u8; WORD_BYTES]) -> bool {
    match at {
        0 => u64::from_le_bytes(base) >> 32 != u64::from_le_bytes(page) >> 32,
        1 | 2 => false,
        _ => base != page,
    }
}

/// As `==`, without a call and without a branch for each word.
fn is_same(
    before: &[[u8; WORD_BYTES]; BLOCK_WORDS],
    after: &[[u8; WORD_BYTES]; BLOCK_WORDS],
) -> bool {
    let words = before.iter().zip(after);
    let difference =
        words.map(|(before, after)| u64::from_le_bytes(*before) ^ u64::from_le_bytes(*after));
    difference.fold(0, |all, word| all | word) == 0
}

/// Where the words of a page are: of those with equal hashes, the last one.
struct Places([u16; 1 << Places::BITS]);

impl Places {
    const BITS: u32 = 10;

    fn of(page: &Bytes) -> Self {
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

/// The runs of one page as they are written.
struct Pieces<'a> {
    before: &'a Bytes,
    page: &'a Bytes,
    /// How far runs have been written.
    written: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> Pieces<'a> {
    fn put(&mut self, at: Range<usize>, run: &Piece<'_>) {
        varint::put((at.start - self.written) as u64, self.out);
        run.put(at.len(), self.out);
        self.written = at.end;
    }

    /// Writes those of the bytes that differ from what stood in their place, and are among the changes.
    fn put_changed(&mut self, at: Range<usize>) {
        for part in [CHECKSUM_BYTES..IDENTITY.start, IDENTITY.end..PAGE_BYTES] {
            let part = at.start.max(part.start)..at.end.min(part.end);
            let (Some(before), Some(page)) =
                (self.before.get(part.clone()), self.page.get(part.clone()))
            else {
                continue;
            };
            let ((before, rest_before), (page, rest)) =
                (before.as_chunks::<WORD_BYTES>(), page.as_chunks());
            let mut start = part.start;
            let mut run = start..start;
            for (before, page) in before.iter().zip(page) {
                if u64::from_le_bytes(*before) != u64::from_le_bytes(*page) {
                    if run.end != start {
                        self.put_trimmed(run);
                        run = start..start;
                    }
                    run.end = start + WORD_BYTES;
                }
                start += WORD_BYTES;
            }
            if rest_before != rest {
                if run.end != start {
                    self.put_trimmed(run);
                    run = start..start;
                }
                run.end = part.end;
            }
            self.put_trimmed(run);
        }
    }

    /// Writes bytes without what is unchanged at their ends.
    fn put_trimmed(&mut self, mut at: Range<usize>) {
        let is_same = |at: usize| self.before.get(at) == self.page.get(at);
        while !at.is_empty() && is_same(at.start) {
            at.start += 1;
        }
        while !at.is_empty() && is_same(at.end - 1) {
            at.end -= 1;
        }
        if let Some(new) = self.page.get(at.clone()).filter(|new| !new.is_empty()) {
            self.put(at, &Piece::New(new));
        }
    }

    /// Writes changed bytes, perhaps as having moved a little.
    fn put_new(&mut self, at: Range<usize>) {
        if let (Some(before), Some(after)) =
            (self.before.get(at.clone()), self.page.get(at.clone()))
            && !at.is_empty()
        {
            self.put(at, &Piece::between(before, after));
        }
    }

    /// Writes changed bytes as what stood elsewhere, as far as they did.
    fn search(&mut self, places: &Places, range: Range<usize>) {
        let mut new = range.start;
        let mut at = range.start;
        while let Some(&word) = self
            .page
            .get(at..range.end)
            .and_then(|rest| rest.first_chunk())
        {
            let from = match word == [0; WORD_BYTES] {
                true => 0,
                false => places.guess(word),
            };
            let stood = self.before.get(from..).and_then(|rest| rest.first_chunk());
            if word != [0; WORD_BYTES] && (from == 0 || stood != Some(&word)) {
                at += 1;
                continue;
            }
            let found = self.extend(from, at, new..range.end);
            if found.len() < MOVED_BYTES_MIN {
                at += 1;
                continue;
            }
            self.put_new(new..found.start);
            let from = match from {
                0 => 0,
                from => from + found.start - at,
            };
            at = found.end;
            new = found.end;
            self.put(found, &Piece::From(from));
        }
        self.put_new(new..range.end);
    }

    /// How much of the page around `at`, within bounds, is what stood around `from`, or zero if that is 0.
    fn extend(&self, from: usize, at: usize, bounds: Range<usize>) -> Range<usize> {
        let part = |page: &'a Bytes, range: Range<usize>| page.get(range).unwrap_or_default();
        let (front, back) = (
            part(self.page, bounds.start..at),
            part(self.page, at..bounds.end),
        );
        let (before, behind) = if from == 0 {
            let is_zero = |byte: &&u8| **byte == 0;
            let before = front.iter().rev().take_while(is_zero).count();
            (before, equal_bytes(back, &[0; PAGE_BYTES]))
        } else {
            let is_same = |(new, old): &(&u8, &u8)| new == old;
            let old = part(self.before, PAGE_HEADER_BYTES..from);
            let before = front.iter().rev().zip(old.iter().rev());
            let old = part(self.before, from..PAGE_BYTES);
            (before.take_while(is_same).count(), equal_bytes(back, old))
        };
        match behind {
            0 => at..at,
            _ => at - before..at + behind,
        }
    }
}

/// How many bytes two slices have in common at their beginnings.
fn equal_bytes(one: &[u8], other: &[u8]) -> usize {
    let words = one.as_chunks::<WORD_BYTES>().0.iter();
    let words = words.zip(other.as_chunks::<WORD_BYTES>().0);
    let whole = words.take_while(|(one, other)| one == other).count() * WORD_BYTES;
    let (one, other) = (one.get(whole..), other.get(whole..));
    let bytes = one.unwrap_or_default().iter();
    let bytes = bytes.zip(other.unwrap_or_default());
    whole + bytes.take_while(|(one, other)| one == other).count()
}

/// What became of some bytes of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    /// They are these now.
    New(&'a [u8]),
    /// They moved up, behind these.
    Up(&'a [u8]),
    /// They moved down, in front of these.
    Down(&'a [u8]),
    /// They are what stood here; zeroes, if that is 0.
    From(usize),
}

impl<'a> Piece<'a> {
    /// How `before` became `after`, which is as long.
    fn between(before: &[u8], after: &'a [u8]) -> Self {
        if after.len() >= MOVED_BYTES_MIN {
            for by in MOVES {
                let (Some((low, high)), Some((new, moved))) = (
                    before.split_at_checked(before.len() - by),
                    after.split_at_checked(by),
                ) else {
                    break;
                };
                if low == moved {
                    return Piece::Up(new);
                }
                let (Some((_, moved)), Some((kept, new))) = (
                    before.split_at_checked(by),
                    after.split_at_checked(low.len()),
                ) else {
                    break;
                };
                debug_assert_eq!(high.len(), new.len());
                if moved == kept {
                    return Piece::Down(new);
                }
            }
        }
        Piece::New(after)
    }

    fn put(self, bytes: usize, out: &mut Vec<u8>) {
        let form = match self {
            Piece::New(_) => 0,
            Piece::Up(_) => 1,
            Piece::Down(_) => 2,
            Piece::From(_) => 3,
        };
        varint::put(bytes as u64 * 4 + form, out);
        match self {
            Piece::New(new) => out.extend_from_slice(new),
            Piece::Up(new) | Piece::Down(new) => {
                varint::put(new.len() as u64, out);
                out.extend_from_slice(new);
            }
            Piece::From(from) => varint::put(from as u64, out),
        }
    }

    /// Does it to these bytes of a page that was `before`. The run has been checked.
    pub(super) fn apply(self, bytes: &mut [u8], before: &Bytes) {
        match self {
            Piece::New(new) => bytes.copy_from_slice(new),
            Piece::Up(new) => {
                bytes.copy_within(..bytes.len() - new.len(), new.len());
                bytes.split_at_mut(new.len()).0.copy_from_slice(new);
            }
            Piece::Down(new) => {
                let moved = bytes.len() - new.len();
                bytes.copy_within(new.len().., 0);
                bytes.split_at_mut(moved).1.copy_from_slice(new);
            }
            Piece::From(0) => bytes.fill(0),
            Piece::From(from) => {
                if let Some(moved) = before.get(from..from + bytes.len()) {
                    bytes.copy_from_slice(moved);
                }
            }
        }
    }
}

/// Calls `each` with every run of changed bytes, which lies within a page, and leaves the input behind them.
pub(super) fn walk<'a>(
    input: &mut &'a [u8],
    mut each: impl FnMut(Range<usize>, Piece<'a>),
) -> Result<()> {
    let mut at = 0;
    loop {
        let unchanged = take_number(input)?;
        let changed = take_number(input)?;
        if unchanged == 0 && changed == 0 {
            return Ok(());
        }
        let (changed, form) = (changed / 4, changed % 4);
        let left = (PAGE_BYTES - at) as u64;
        if unchanged > left || changed == 0 || changed > left - unchanged {
            return Err(damaged("changes bytes beyond the end of a page"));
        }
        let start = at + unchanged as usize;
        at = start + changed as usize;
        if form == 3 {
            let from = take_number(input)?;
            if from > PAGE_BYTES as u64 - changed {
                return Err(damaged("moves bytes from beyond the end of a page"));
            }
            each(start..at, Piece::From(from as usize));
            continue;
        }
        let new = match form {
            0 => changed,
            _ => take_number(input)?,
        };
        if new > changed {
            return Err(damaged("moves more bytes than there are"));
        }
        let new = take(input, new as usize)?;
        let run = match form {
            0 => Piece::New(new),
            1 => Piece::Up(new),
            _ => Piece::Down(new),
        };
        each(start..at, run);
    }
}
