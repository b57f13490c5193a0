//! The structures and flags of `lmdb.h`.

use std::ffi::{c_int, c_uint, c_void};

/// `MDB_val`: a key or a value, wherever it lies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Val {
    /// Its length in bytes.
    pub size: usize,
    /// Where it begins.
    pub data: *mut c_void,
}

impl Val {
    pub(crate) fn to(bytes: &[u8]) -> Self {
        Self {
            size: bytes.len(),
            data: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

/// A record, where it lies in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// `None` where the program's own key stays as it is.
    pub(crate) key: Option<Val>,
    pub(crate) value: Val,
}

/// `MDB_stat`: the size of a database.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The size of a page in bytes.
    pub psize: c_uint,
    /// Levels of the tree.
    pub depth: c_uint,
    /// Branch pages.
    pub branch_pages: usize,
    /// Leaf pages.
    pub leaf_pages: usize,
    /// Pages of large values.
    pub overflow_pages: usize,
    /// Records, each duplicate counting as one.
    pub entries: usize,
}

/// `MDB_envinfo`: the size of an environment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvInfo {
    /// Null: the map has no fixed address.
    pub mapaddr: *mut c_void,
    /// The bound of the data file's size in bytes.
    pub mapsize: usize,
    /// The number of the last page that was ever in use.
    pub last_pgno: usize,
    /// The number of the newest commit.
    pub last_txnid: usize,
    /// How many readers there may be.
    pub maxreaders: c_uint,
    /// How many slots of readers are in use.
    pub numreaders: c_uint,
}

/// `MDB_cmp_func`.
pub type Compare = unsafe extern "C" fn(*const Val, *const Val) -> c_int;

/// `MDB_msg_func`.
pub type Message = unsafe extern "C" fn(*const std::ffi::c_char, *mut c_void) -> c_int;

/// The longest key, duplicate or database name, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 511;

/// The longest value, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 0xffff_ffff;

/// Flags of environments.
pub mod env_flags {
    /// A fixed address: accepted and ignored, as LMDB may too.
    pub const FIXEDMAP: u32 = 0x01;
    /// The path is that of the data file, not of a folder.
    pub const NOSUBDIR: u32 = 0x4000;
    /// A commit does not wait until it is durable.
    pub const NOSYNC: u32 = 0x1_0000;
    /// No writing.
    pub const RDONLY: u32 = 0x2_0000;
    /// A commit may be undone by a power cut.
    pub const NOMETASYNC: u32 = 0x4_0000;
    /// A writable map: accepted; the store always writes through windows of its own.
    pub const WRITEMAP: u32 = 0x8_0000;
    /// With [`WRITEMAP`], a commit does not wait until it is durable.
    pub const MAPASYNC: u32 = 0x10_0000;
    /// Read transactions belong to no thread.
    pub const NOTLS: u32 = 0x20_0000;
    /// No lock file.
    pub const NOLOCK: u32 = 0x40_0000;
    /// No readahead: accepted and ignored.
    pub const NORDAHEAD: u32 = 0x80_0000;
    /// No initialisation of memory: accepted and ignored.
    pub const NOMEMINIT: u32 = 0x100_0000;

    /// What may be changed while the environment is open.
    pub const CHANGEABLE: u32 = NOSYNC | NOMETASYNC | MAPASYNC | NOMEMINIT;
    /// What is chosen when it is opened.
    pub const CHANGELESS: u32 =
        FIXEDMAP | NOSUBDIR | RDONLY | WRITEMAP | NOTLS | NOLOCK | NORDAHEAD;
}

/// Flags of databases.
pub mod db_flags {
    /// Keys are compared from their ends.
    pub const REVERSEKEY: u32 = 0x02;
    /// A key may have several values, which are sorted.
    pub const DUPSORT: u32 = 0x04;
    /// Keys are native integers of four or eight bytes.
    pub const INTEGERKEY: u32 = 0x08;
    /// All duplicates are of one length.
    pub const DUPFIXED: u32 = 0x10;
    /// Duplicates are native integers.
    pub const INTEGERDUP: u32 = 0x20;
    /// Duplicates are compared from their ends.
    pub const REVERSEDUP: u32 = 0x40;
    /// Create the database if there is none.
    pub const CREATE: u32 = 0x4_0000;

    /// What dumps call what is stored with a database.
    pub const NAMES: [(&str, u32); 6] = [
        ("reversekey", REVERSEKEY),
        ("dupsort", DUPSORT),
        ("integerkey", INTEGERKEY),
        ("dupfixed", DUPFIXED),
        ("integerdup", INTEGERDUP),
        ("reversedup", REVERSEDUP),
    ];

    /// What is stored with the database.
    pub const PERSISTENT: u32 =
        REVERSEKEY | DUPSORT | INTEGERKEY | DUPFIXED | INTEGERDUP | REVERSEDUP;
}

/// Flags of puts and deletions.
pub mod write_flags {
    /// Not if the key is there.
    pub const NOOVERWRITE: u32 = 0x10;
    /// Not if the pair is there; in a deletion: all duplicates.
    pub const NODUPDATA: u32 = 0x20;
    /// Over the record the cursor stands on.
    pub const CURRENT: u32 = 0x40;
    /// Make room for the value; the caller writes it.
    pub const RESERVE: u32 = 0x1_0000;
    /// Behind all other keys.
    pub const APPEND: u32 = 0x2_0000;
    /// Behind all other values of the key.
    pub const APPENDDUP: u32 = 0x4_0000;
    /// Several values of one length.
    pub const MULTIPLE: u32 = 0x8_0000;

    /// What `mdb_put` knows.
    pub const PUT: u32 = NOOVERWRITE | NODUPDATA | RESERVE | APPEND | APPENDDUP;
    /// What `mdb_cursor_put` knows.
    pub const CURSOR_PUT: u32 = PUT | CURRENT | MULTIPLE;
}

/// `MDB_CP_COMPACT`: leave out free pages, and number pages anew.
pub const CP_COMPACT: c_uint = 1;

/// `MDB_cursor_op`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // As in `lmdb.h`.
pub enum CursorOp {
    First,
    FirstDup,
    GetBoth,
    GetBothRange,
    GetCurrent,
    GetMultiple,
    Last,
    LastDup,
    Next,
    NextDup,
    NextMultiple,
    NextNodup,
    Prev,
    PrevDup,
    PrevNodup,
    Set,
    SetKey,
    SetRange,
    PrevMultiple,
}

impl CursorOp {
    const ALL: [Self; 19] = [
        Self::First,
        Self::FirstDup,
        Self::GetBoth,
        Self::GetBothRange,
        Self::GetCurrent,
        Self::GetMultiple,
        Self::Last,
        Self::LastDup,
        Self::Next,
        Self::NextDup,
        Self::NextMultiple,
        Self::NextNodup,
        Self::Prev,
        Self::PrevDup,
        Self::PrevNodup,
        Self::Set,
        Self::SetKey,
        Self::SetRange,
        Self::PrevMultiple,
    ];

    /// Whether it leads to the same place wherever the cursor stands.
    pub(crate) fn is_absolute(self) -> bool {
        matches!(
            self,
            Self::First
                | Self::Last
                | Self::Set
                | Self::SetKey
                | Self::SetRange
                | Self::GetBoth
                | Self::GetBothRange
        )
    }

    /// The operation with this number in `lmdb.h`.
    pub fn from_number(number: c_uint) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}
