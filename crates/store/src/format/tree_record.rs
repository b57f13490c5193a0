//! What is known of a tree outside of its pages: how it is kept, and where its root is.

use crate::format::page::{PAGE_NO_MAX, PageKind};
use crate::ids::{HeapNo, PageNo};
use crate::limits::HEIGHT_MAX;

/// How a tree is kept. It is chosen when the tree is created, and part of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeKind {
    /// Branch pages carry the number of records below each entry: [`View::rank`](crate::tree::View::rank),
    /// [`Cursor::seek_nth`](crate::tree::Cursor::seek_nth) and [`View::count`](crate::tree::View::count) work, at the
    /// price of changing the whole path from the root on each insertion (which copy on write does anyway). Not together
    /// with duplicates.
    pub counted: bool,
    /// Each key stands in its page in one piece: [`Cursor::whole_key`](crate::tree::Cursor::whole_key) lends it for as
    /// long as the snapshot lives. Otherwise pages store what their keys have in common only once, and a cursor puts
    /// keys together. Needed for any order but [`KeyOrder::Bytes`], and for duplicates.
    pub whole: bool,
    /// How keys are ordered.
    pub order: KeyOrder,
    /// Whether a key may have several values, and how those are kept.
    pub duplicates: Option<Duplicates>,
    /// All keys have the same length, and there are no values: a leaf is nothing but its keys. Only together with whole
    /// keys, without counts and duplicates.
    pub packed: bool,
    /// Values stand out of line, apart from the leaves, one behind the other in the order in which they were written:
    /// to change one of many costs little more than to change one of few. Keys have eight bytes, of which the leaves
    /// hold hundreds; a value has at most 2 GiB. For many values of some hundred bytes that are changed at random. Room
    /// that changed values leave is used again once it is as much as the others take. Together with counts only.
    pub out_of_line: bool,
}

/// How the values of one key are kept, where there may be several: in order, each value once, each at most
/// [`DUPLICATE_BYTES_MAX`](crate::DUPLICATE_BYTES_MAX) long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Duplicates {
    /// All values of a key have the same length. They are packed without any bookkeeping, and can be read and stored
    /// many at a time ([`Cursor::duplicates_here`](crate::tree::Cursor::duplicates_here),
    /// [`WriteTxn::put_multiple`](crate::WriteTxn::put_multiple)).
    pub fixed: bool,
    /// How the values are ordered.
    pub order: KeyOrder,
}

impl TreeKind {
    /// One value for each key, as compact as possible: the default.
    pub const COMPACT: Self = Self {
        counted: false,
        whole: false,
        order: KeyOrder::Bytes,
        duplicates: None,
        packed: false,
        out_of_line: false,
    };

    /// [`TreeKind::COMPACT`] with counts.
    pub const COUNTED: Self = Self {
        counted: true,
        ..Self::COMPACT
    };

    /// One value for each key of eight bytes, out of line.
    pub const OUT_OF_LINE: Self = Self {
        out_of_line: true,
        ..Self::COMPACT
    };

    /// One value for each key, with keys in one piece.
    pub const WHOLE: Self = Self {
        whole: true,
        ..Self::COMPACT
    };

    /// Sorted duplicates.
    pub const DUPLICATES: Self = Self {
        duplicates: Some(Duplicates {
            fixed: false,
            order: KeyOrder::Bytes,
        }),
        ..Self::WHOLE
    };

    /// Whether the choices go together.
    pub fn is_possible(&self) -> bool {
        let needs_whole = self.order != KeyOrder::Bytes || self.duplicates.is_some() || self.packed;
        let exclusive = [self.counted, self.duplicates.is_some(), self.packed].map(u8::from);
        let is_plain = !self.whole && !needs_whole;
        (is_plain || !self.out_of_line)
            && (self.whole || !needs_whole)
            && exclusive.iter().sum::<u8>() <= 1
    }

    /// The kind of a tree that holds the values of one key.
    pub(crate) fn of_values(self) -> Self {
        let duplicates = self.duplicates.unwrap_or_default();
        Self {
            order: duplicates.order,
            packed: duplicates.fixed,
            ..Self::WHOLE
        }
    }

    pub(crate) fn has_fixed_duplicates(self) -> bool {
        self.duplicates.is_some_and(|duplicates| duplicates.fixed)
    }

    fn encode(self) -> u8 {
        let duplicates = self.duplicates.unwrap_or_default();
        let is_fixed = duplicates.fixed || self.packed || self.out_of_line;
        (u8::from(self.counted) * COUNTED)
            | (u8::from(self.whole) * WHOLE)
            | (u8::from(self.duplicates.is_some()) * DUPLICATES)
            | (u8::from(is_fixed) * FIXED)
            | (self.order.encode() << ORDER_SHIFT)
            | (duplicates.order.encode() << DUPLICATE_ORDER_SHIFT)
    }

    /// `None` if the flags are not those of a possible tree.
    fn decode(flags: u8) -> Option<Self> {
        let kind = Self {
            counted: flags & COUNTED != 0,
            whole: flags & WHOLE != 0,
            order: KeyOrder::decode(flags >> ORDER_SHIFT),
            duplicates: (flags & DUPLICATES != 0).then(|| Duplicates {
                fixed: flags & FIXED != 0,
                order: KeyOrder::decode(flags >> DUPLICATE_ORDER_SHIFT),
            }),
            packed: flags & (WHOLE | DUPLICATES | FIXED) == WHOLE | FIXED,
            out_of_line: flags & (WHOLE | DUPLICATES | FIXED) == FIXED,
        };
        (kind.is_possible() && kind.encode() == flags).then_some(kind)
    }
}

/// Where a record has its kind.
const KIND_AT: usize = 41;

const COUNTED: u8 = 1;

const WHOLE: u8 = 2;

const DUPLICATES: u8 = 4;

const FIXED: u8 = 8;

const ORDER_SHIFT: u32 = 4;

const DUPLICATE_ORDER_SHIFT: u32 = 6;

/// What there is to know about a tree outside of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TreeRecord {
    /// The root page; page 0 in an empty tree.
    pub root: PageNo,
    /// The number of records.
    pub records: u64,
    /// Leaf pages in use.
    pub leaf_pages: u64,
    /// Branch pages in use.
    pub branch_pages: u64,
    /// Pages of large values in use.
    pub extent_pages: u64,
    /// The number of levels: 0 in an empty tree, 1 when the root is a leaf.
    pub height: u8,
    /// How the tree is kept.
    pub kind: TreeKind,
    /// Where its values are if they stand out of line.
    pub heap: HeapNo,
}

impl TreeRecord {
    /// The length of an encoded record.
    pub const BYTES: usize = 48;

    /// The record of an empty tree.
    pub fn empty(kind: TreeKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// The kind of the pages on a level, leaves being level 0.
    pub(crate) fn page_kind(&self, level: usize) -> PageKind {
        match (level, self.kind.whole) {
            (0, _) if self.kind.out_of_line => PageKind::PointerLeaf,
            (0, false) => PageKind::Leaf,
            (0, true) if self.kind.packed => PageKind::PackedLeaf,
            (0, true) => PageKind::WholeLeaf,
            (_, false) if self.kind.counted => PageKind::CountedBranch,
            (_, false) => PageKind::Branch,
            (_, true) if self.kind.counted => PageKind::CountedWholeBranch,
            (_, true) => PageKind::WholeBranch,
        }
    }

    /// How many pages there are on a level.
    pub(crate) fn pages_mut(&mut self, level: usize) -> &mut u64 {
        match level {
            0 => &mut self.leaf_pages,
            _ => &mut self.branch_pages,
        }
    }

    /// The record as it is stored.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [
            self.root.0,
            self.records,
            self.leaf_pages,
            self.branch_pages,
            self.extent_pages,
        ];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[40] = self.height;
        bytes[KIND_AT] = self.kind.encode();
        bytes[42..46].copy_from_slice(&self.heap.0.to_le_bytes());
        bytes
    }

    /// Reads a stored record; `None` if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_as(TreeKind::decode(*bytes.get(KIND_AT)?)?, bytes)
    }

    /// The same, if it is the record of a tree of this kind.
    pub(crate) fn decode_as(kind: TreeKind, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let mut numbers = [0; 5];
        for (number, place) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*place);
        }
        let [root, records, leaf_pages, branch_pages, extent_pages] = numbers;
        let height = bytes[40];
        let sound = bytes[KIND_AT] == kind.encode()
            && root <= PAGE_NO_MAX
            && usize::from(height) <= HEIGHT_MAX
            && (height == 0) == (root == 0)
            && bytes[46..].iter().all(|&byte| byte == 0);
        let heap = HeapNo(u32::from_le_bytes(*bytes[42..].first_chunk()?));
        let has_heap = heap != HeapNo::default();
        (sound && has_heap == kind.out_of_line).then_some(Self {
            root: PageNo(root),
            records,
            leaf_pages,
            branch_pages,
            extent_pages,
            height,
            kind,
            heap,
        })
    }
}

/// How the keys of a tree, or the duplicates of a key, are ordered. Part of the tree's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyOrder {
    /// As byte strings: from the first byte on, a prefix before what it begins.
    #[default]
    Bytes,
    /// As byte strings read from their ends.
    Reverse,
    /// As unsigned little-endian integers, a shorter one before a longer one.
    Integer,
    /// As a [`Comparator`](crate::Comparator) says that the program registers after each opening
    /// ([`Env::set_comparators`](crate::Env::set_comparators)). Without it the tree can be read from end to end, and
    /// everything that has to compare is [`Error::NoComparator`](crate::Error::NoComparator).
    Custom,
}

impl KeyOrder {
    pub(super) fn encode(self) -> u8 {
        match self {
            Self::Bytes => 0,
            Self::Reverse => 1,
            Self::Integer => 2,
            Self::Custom => 3,
        }
    }

    pub(super) fn decode(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Bytes,
            1 => Self::Reverse,
            2 => Self::Integer,
            _ => Self::Custom,
        }
    }
}
