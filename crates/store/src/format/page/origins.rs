//! Where the bytes of a page that is being changed stood in the page it was copied from, so that its log record can say
//! so without a comparison of the two.

use std::ops::Range;

use super::{PAGE_BYTES, PAGE_HEADER_BYTES, Page};

/// What became of some bytes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// They stood here in the base; where they stand now, if they have not moved.
    Base(usize),
    /// They are zero.
    Zero,
    /// They were stored, and may be anything.
    New,
}

/// The origin of each byte of a page. Those of the header are not looked at, but for what only trees know of it.
#[derive(Clone, Debug)]
pub(crate) struct Origins {
    /// Ascending, and up to the end of the page.
    pieces: [Piece; Origins::PIECES_MAX],
    count: usize,
    is_known: bool,
}

/// Bytes up to `end`. `from` is where the first of them stood, or one of the two words below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    end: u16,
    from: u16,
}

const ZERO: u16 = u16::MAX - 1;
const NEW: u16 = u16::MAX;

impl Origins {
    /// A page with more pieces is compared as a whole.
    const PIECES_MAX: usize = 62;

    /// Nothing is known.
    pub(crate) fn unknown() -> Self {
        Self {
            pieces: [Piece { end: 0, from: 0 }; Self::PIECES_MAX],
            count: 0,
            is_known: false,
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// From now on nothing is known.
    pub(crate) fn forget(&mut self) {
        self.is_known = false;
        self.count = 0;
    }

    /// A page is begun, with nothing of it yet. It must be added to up to its end.
    pub(crate) fn begin(&mut self) {
        self.is_known = true;
        self.count = 0;
    }

    /// What follows, up to `end`, was copied from what stood from `from` on.
    pub(crate) fn add_copied(&mut self, end: usize, from: usize) {
        self.add(end, from as u16);
    }

    /// What follows, up to `end`, is zero.
    pub(crate) fn add_zero(&mut self, end: usize) {
        self.add(end, ZERO);
    }

    /// What follows, up to `end`, was stored.
    pub(crate) fn add_stored(&mut self, end: usize) {
        self.add(end, NEW);
    }

    fn add(&mut self, end: usize, from: u16) {
        if end > self.start_of(self.count) {
            self.push(end, from);
        }
    }

    /// Bytes were stored.
    pub(crate) fn store(&mut self, at: Range<usize>) {
        let piece = self.pieces().get(self.piece_at(at.start));
        if piece.is_none_or(|piece| piece.from != NEW || usize::from(piece.end) < at.end) {
            self.replace(at, |this, end| this.push(end, NEW));
        }
    }

    /// Bytes were set to zero.
    pub(crate) fn clear(&mut self, at: Range<usize>) {
        self.replace(at, |this, end| this.push(end, ZERO));
    }

    /// Bytes were moved within the page.
    pub(crate) fn shift(&mut self, from: Range<usize>, to: usize) {
        if self.is_known() && from.start != to {
            let before = self.clone();
            self.take(&before, std::iter::once(from), to);
        }
    }

    /// Bytes were put from `to` on, copied from parts of a page as it was before, one behind the other.
    pub(crate) fn take(
        &mut self,
        before: &Self,
        parts: impl Iterator<Item = Range<usize>> + Clone,
        to: usize,
    ) {
        let bytes: usize = parts.clone().map(|part| part.len()).sum();
        self.replace(to..to + bytes, |this, _| {
            let mut to = to;
            for part in parts {
                for (at, from) in before.pieces_in(part.clone()) {
                    this.push(at.end - part.start + to, from);
                }
                to += part.len();
            }
        });
    }

    /// The origins of all bytes in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<usize>, Origin)> {
        self.pieces_in(0..PAGE_BYTES).map(|(at, from)| {
            let origin = match from {
                ZERO => Origin::Zero,
                NEW => Origin::New,
                from => Origin::Base(usize::from(from)),
            };
            (at, origin)
        })
    }

    /// Where bytes were stored.
    pub(crate) fn stored(&self) -> impl Iterator<Item = Range<usize>> {
        let stored = self.iter().filter(|(_, origin)| *origin == Origin::New);
        stored.map(|(at, _)| at)
    }

    /// Whether all that is known is true of this page and its base.
    pub(crate) fn hold(&self, base: &Page, page: &Page) -> bool {
        let body = PAGE_HEADER_BYTES..PAGE_BYTES;
        self.pieces_in(body).all(|(at, from)| {
            let now = &page.bytes()[at.clone()];
            match from {
                ZERO => now.iter().all(|&byte| byte == 0),
                NEW => true,
                from => *now == base.bytes()[usize::from(from)..][..at.len()],
            }
        })
    }

    fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }

    /// The piece that a byte belongs to.
    fn piece_at(&self, at: usize) -> usize {
        self.pieces()
            .partition_point(|piece| usize::from(piece.end) <= at)
    }

    fn start_of(&self, piece: usize) -> usize {
        match piece {
            0 => 0,
            _ => usize::from(self.pieces[piece - 1].end),
        }
    }

    /// The pieces in a range, those at its ends cut off there.
    fn pieces_in(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, u16)> {
        let first = self.piece_at(range.start);
        let mut start = self.start_of(first);
        self.pieces()[first..].iter().map_while(move |piece| {
            let at = start.max(range.start)..usize::from(piece.end).min(range.end);
            let from = piece.origin_at(at.start.saturating_sub(start));
            start = usize::from(piece.end);
            (!at.is_empty()).then_some((at, from))
        })
    }

    /// Puts other pieces in the place of those in a range; `fill` pushes them, up to the range's end.
    fn replace(&mut self, at: Range<usize>, fill: impl FnOnce(&mut Self, usize)) {
        if !self.is_known || at.is_empty() {
            return;
        }
        let first = self.piece_at(at.start);
        let mut start = self.start_of(first);
        let (before, count) = (self.pieces, self.count);
        self.count = first;
        if at.start > start {
            self.push(at.start, before[first].from);
        }
        fill(self, at.end);
        for piece in &before[first..count] {
            let begin = start.max(at.end);
            if usize::from(piece.end) > begin {
                self.push(usize::from(piece.end), piece.origin_at(begin - start));
            }
            start = usize::from(piece.end);
        }
    }

    /// Adds a piece up to `end` behind the others.
    fn push(&mut self, end: usize, from: u16) {
        if !self.is_known {
            return;
        }
        let piece = Piece {
            end: end as u16,
            from,
        };
        if let Some(last) = self.count.checked_sub(1) {
            let bytes = usize::from(self.pieces[last].end) - self.start_of(last);
            if self.pieces[last].origin_at(bytes) == from {
                self.pieces[last].end = piece.end;
                return;
            }
        }
        match self.pieces.get_mut(self.count) {
            Some(place) => {
                *place = piece;
                self.count += 1;
            }
            None => self.forget(),
        }
    }
}

impl Piece {
    /// The origin of what stands so many bytes behind the piece's beginning.
    fn origin_at(self, bytes: usize) -> u16 {
        match self.from {
            ZERO | NEW => self.from,
            from => from + bytes as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Store(Range<usize>, u8),
        Clear(Range<usize>),
        Shift(Range<usize>, usize),
        Take(Range<usize>, usize),
    }

    fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
        let body = PAGE_HEADER_BYTES..PAGE_BYTES;
        let step = (0..4, body.clone(), body, 0..300_usize, any::<u8>());
        let step = step.prop_map(|(what, from, to, bytes, byte)| {
            let bytes = bytes.min(PAGE_BYTES - from.max(to));
            let at = from..from + bytes;
            match what {
                0 => Step::Store(at, byte),
                1 => Step::Clear(at),
                2 => Step::Shift(at, to),
                _ => Step::Take(at, to),
            }
        });
        prop::collection::vec(step, 0..max)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_known_is_true(few in steps(12), many in steps(100)) {
            let mut base = Page::zeroed();
            for (at, byte) in (0..).zip(base.bytes_mut()) {
                *byte = (at * at % 251) as u8;
            }
            let mut page = base.clone();
            let mut origins = Origins::unknown();
            prop_assert!(!origins.is_known() && origins.iter().count() == 0);
            origins.begin();
            origins.add_copied(PAGE_BYTES, 0);
            let first = (page.clone(), origins.clone());
            let few_steps = few.len();
            for (done, step) in few.into_iter().chain(many).enumerate() {
                let bytes = page.bytes_mut();
                match step {
                    Step::Store(at, byte) => {
                        bytes[at.clone()].fill(byte);
                        origins.store(at);
                    }
                    Step::Clear(at) => {
                        bytes[at.clone()].fill(0);
                        origins.clear(at);
                    }
                    Step::Shift(from, to) => {
                        bytes.copy_within(from.clone(), to);
                        origins.shift(from, to);
                    }
                    Step::Take(from, to) => {
                        bytes[to..to + from.len()].copy_from_slice(&first.0.bytes()[from.clone()]);
                        origins.take(&first.1, std::iter::once(from), to);
                    }
                }
                prop_assert!(origins.is_known() || done >= few_steps);
                prop_assert!(origins.hold(&base, &page));
                if origins.is_known() {
                    let ends = origins.iter().map(|(at, _)| at.end);
                    let starts = origins.iter().map(|(at, _)| at.start);
                    prop_assert!(std::iter::once(0).chain(ends).eq(starts.chain([PAGE_BYTES])));
                    prop_assert!(origins.pieces().windows(2).all(|pair| pair[0].end < pair[1].end));
                }
            }
        }

        #[test]
        fn what_moves_there_and_back_is_where_it_was(from in 24..2000_usize, bytes in 0..500_usize, by in 1..40_usize) {
            let mut origins = Origins::unknown();
            origins.begin();
            origins.add_copied(PAGE_BYTES, 0);
            origins.shift(from..from + bytes, from + by);
            origins.store(from..from + by);
            origins.shift(from + by..from + by + bytes, from);
            prop_assert!(origins.pieces().len() <= 4);
            let copied = |(at, origin): (Range<usize>, Origin)| origin == Origin::Base(at.start);
            prop_assert!(origins.iter().filter(|piece| piece.0.end <= from + bytes).all(copied));
        }
    }
}
