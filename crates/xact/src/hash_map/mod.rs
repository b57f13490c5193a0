//! A hash map: keys with values, in no order, found with one look at one bucket.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     8  "saphmap\0"
//!      8     8  depth: the directory has 1 << depth entries
//!     16     8  directory: the offset of a bucket each
//!     24    16  the key of the hash function
//! ```
//!
//! This is extendible hashing. A bucket is a page, a block of records (`block`) whose level is its own depth `d`: it
//! holds all keys whose hash ends with the same `d` bits, and `1 << (depth - d)` entries of the directory name it. A
//! full bucket is split in two by one more bit; if all bits of the directory are used, that is doubled.
//!
//! ```text
//!  depth 2     00 -> A (d 1: ends with 0)      split B:    00 -> A
//!              01 -> B (d 1: ends with 1)                  01 -> B (d 2)
//!              10 -> A                                     10 -> A
//!              11 -> B                                     11 -> C (d 2)
//! ```
//!
//! Nothing is counted, so that transactions meet only where their keys share a bucket, or one splits a bucket or
//! doubles the directory. What removals leave is not joined again. The hash function is keyed at random, so that nobody
//! who chooses keys can choose that they collide.

mod sip;

use crate::block::{
    Block, BlockMut, CELL_HEADER_BYTES, Cell, HEADER_BYTES, Kind, Record, Records, SLOT_BYTES,
    damaged,
};
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Fault, Memory, PAGE_BYTES, retire};
use crate::structure::{Magic, in_a_memory};
use crate::value;

const MAGIC: Magic = Magic {
    bytes: *b"saphmap\0",
    missing: "no hash map begins here",
};
const DEPTH: u64 = 8;
const DESCRIPTION_BYTES: usize = 40;
/// The directory takes up 2 GiB then.
const DEPTH_MAX: u32 = 28;
/// With its value or where that is a record takes up an eighth of a bucket at most, so that a split finds something to
/// part.
const CELL_BYTES_MAX: usize = PAGE_BYTES / 8 - HEADER_BYTES;

/// The longest key of a hash map, in bytes.
pub const HASH_MAP_KEY_BYTES_MAX: usize =
    CELL_BYTES_MAX - CELL_HEADER_BYTES - crate::block::OUTSIDE_BYTES;

/// A hash map in a memory, as [`BPlusTree`](crate::BPlusTree) is a tree in one. Keys have at most
/// [`HASH_MAP_KEY_BYTES_MAX`] bytes, values [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
///
/// ```
/// use sapwood_xact::{Fault, HashMap, Plain};
///
/// let mut map = HashMap::create(Plain::new())?;
/// assert!(map.insert(b"colour", b"green")?);
/// assert!(!map.insert(b"colour", b"blue")?, "it was there");
/// assert_eq!(map.get(b"colour")?, Some(&b"blue"[..]));
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug)]
pub struct HashMap<M> {
    memory: M,
    at: u64,
}

/// What the description says.
#[derive(Clone, Copy)]
struct Directory {
    depth: u32,
    at: u64,
    key: [u8; 16],
}

impl Directory {
    fn bytes(self) -> u64 {
        8 << self.depth
    }

    /// Where the entry of a hash is.
    fn link(self, hash: u64) -> Ptr<u64> {
        Ptr::new(self.at + 8 * (hash & ((1 << self.depth) - 1)))
    }
}

in_a_memory!(HashMap);

impl<M: Memory> HashMap<M> {
    /// Makes an empty map.
    ///
    /// # Errors
    /// [`Fault::NoRandomness`], or what the memory says.
    pub fn create(mut memory: M) -> Result<Self, M::Error> {
        let mut key = [0; 16];
        // So few bytes come at once.
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
            .map_err(|_| Fault::NoRandomness)?;
        // Alone on its page, which everybody reads.
        let at = memory.allocate(PAGE_BYTES as u64)?;
        MAGIC.store(&mut memory, at)?;
        let directory = memory.allocate(u64::BYTES as u64)?;
        let bucket = new_bucket(&mut memory, 0)?;
        memory.store(Ptr::new(directory), &bucket)?;
        let mut map = Self { memory, at };
        map.set_directory(Directory {
            depth: 0,
            at: directory,
            key,
        })?;
        Ok(map)
    }

    /// The map that [`HashMap::offset`] has named.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if there is none, or what the memory says.
    pub fn open(memory: M, offset: u64) -> Result<Self, M::Error> {
        MAGIC.description(&memory, offset, DESCRIPTION_BYTES)?;
        Ok(Self { memory, at: offset })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Fault::Damaged`], or what the memory says.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, M::Error> {
        let directory = self.directory()?;
        let bucket = self.bucket(directory, sip::hash(directory.key, key))?;
        match bucket.search(key)? {
            (index, true) => value::load(&self.memory, bucket.cell(index)?).map(Some),
            _ => Ok(None),
        }
    }

    /// Stores a value under a key, and tells whether the key is new.
    ///
    /// # Errors
    /// [`Fault::KeyTooLong`], [`Fault::ValueTooLong`], [`Fault::Damaged`], or what the memory says. After an error
    /// other than the first two the map is fit for reading only if the memory undoes what was done.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, M::Error> {
        let max = HASH_MAP_KEY_BYTES_MAX;
        if key.len() > max {
            let bytes = key.len();
            return Err(Fault::KeyTooLong { bytes, max }.into());
        }
        value::bound(value)?;
        let is_new = !self.remove(key)?;
        let outside = CELL_HEADER_BYTES + key.len() + value.len() > CELL_BYTES_MAX;
        let description = match outside {
            true => value::store(&mut self.memory, value)?,
            false => Default::default(),
        };
        let cell = Cell {
            key,
            value: if outside { &description } else { value },
            outside,
        };
        loop {
            let directory = self.directory()?;
            let hash = sip::hash(directory.key, key);
            let bucket = self.bucket(directory, hash)?;
            if bucket.fits(cell.bytes() + SLOT_BYTES) {
                let (at, (index, _)) = (bucket.at(), bucket.search(key)?);
                BlockMut::open(&mut self.memory, at, PAGE_BYTES)?.insert(index, cell)?;
                return Ok(is_new);
            }
            self.split(directory, hash)?;
        }
    }

    /// Removes a key with its value, and tells whether it was there.
    ///
    /// # Errors
    /// As for [`HashMap::insert`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, M::Error> {
        let directory = self.directory()?;
        let bucket = self.bucket(directory, sip::hash(directory.key, key))?;
        let (index, true) = bucket.search(key)? else {
            return Ok(false);
        };
        let (at, cell) = (bucket.at(), bucket.cell(index)?);
        if cell.outside {
            let description = cell.value.to_vec();
            value::free(&mut self.memory, &description)?;
        }
        BlockMut::open(&mut self.memory, at, PAGE_BYTES)?.remove(index)?;
        Ok(true)
    }

    /// All keys with their values, in no order.
    ///
    /// # Errors
    /// As for [`HashMap::get`].
    pub fn iter(&self) -> Result<impl Iterator<Item = Result<Record<'_>, M::Error>>, M::Error> {
        let directory = self.directory()?;
        let mut hashes = 0..1_u64 << directory.depth;
        let mut bucket: Option<(Block<'_, M>, usize)> = None;
        let mut step = move || {
            loop {
                if let Some((block, index)) = &mut bucket
                    && *index < block.count()
                {
                    let cell = block.cell(*index)?;
                    *index += 1;
                    return Ok(Some((cell.key, value::load(&self.memory, cell)?)));
                }
                let Some(hash) = hashes.next() else {
                    return Ok(None);
                };
                let block = self.bucket(directory, hash)?;
                // Of the entries that name it the first one.
                let is_first = hash >> block.level() == 0;
                bucket = is_first.then_some((block, 0));
            }
        };
        let mut ended = false;
        Ok(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let item = step().transpose();
            ended = !matches!(item, Some(Ok(_)));
            item
        }))
    }

    /// How many keys there are: looks at all buckets.
    ///
    /// # Errors
    /// As for [`HashMap::get`].
    pub fn len(&self) -> Result<u64, M::Error> {
        let directory = self.directory()?;
        let mut count = 0;
        for hash in 0..1 << directory.depth {
            let block = self.bucket(directory, hash)?;
            if hash >> block.level() == 0 {
                count += block.count() as u64;
            }
        }
        Ok(count)
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// As for [`HashMap::get`].
    pub fn is_empty(&self) -> Result<bool, M::Error> {
        Ok(self.iter()?.next().transpose()?.is_none())
    }

    /// Gives the map back, and the memory.
    ///
    /// # Errors
    /// As for [`HashMap::get`].
    pub fn destroy(mut self) -> Result<M, M::Error> {
        let directory = self.directory()?;
        // From the end, so that the entry by which a bucket is given back is the last one that names it.
        for hash in (0..1_u64 << directory.depth).rev() {
            let bucket = self.bucket(directory, hash)?;
            if hash >> bucket.level() != 0 {
                continue;
            }
            let at = bucket.at();
            let mut outside = Vec::new();
            for index in 0..bucket.count() {
                let cell = bucket.cell(index)?;
                outside.extend(cell.outside.then(|| cell.value.to_vec()));
            }
            for description in outside {
                value::free(&mut self.memory, &description)?;
            }
            retire(&mut self.memory, at, PAGE_BYTES as u64)?;
        }
        retire(&mut self.memory, directory.at, directory.bytes())?;
        retire(&mut self.memory, self.at, PAGE_BYTES as u64)?;
        Ok(self.memory)
    }

    /// Parts the bucket of a hash in two.
    fn split(&mut self, directory: Directory, hash: u64) -> Result<(), M::Error> {
        let old = self.bucket(directory, hash)?;
        let (at, level) = (old.at(), old.level());
        if level as u32 == directory.depth {
            return self.double(directory);
        }
        let mut halves = [Records::default(), Records::default()];
        for index in 0..old.count() {
            let cell = old.cell(index)?;
            let half = sip::hash(directory.key, cell.key) >> level & 1;
            halves[half as usize].push(cell);
        }
        let new = new_bucket(&mut self.memory, level + 1)?;
        for (at, records) in [at, new].into_iter().zip(&halves) {
            let memory = &mut self.memory;
            BlockMut::format(memory, at, PAGE_BYTES, Kind::Leaf, level + 1)?.fill(
                records,
                0..records.len(),
                None,
            )?;
        }
        let shared = hash & ((1 << level) - 1);
        let first = shared | 1 << level;
        for hash in (first..1 << directory.depth).step_by(1 << (level + 1)) {
            self.memory.store(directory.link(hash), &new)?;
        }
        Ok(())
    }

    /// Makes the directory twice as long, each bucket named by twice as many entries.
    fn double(&mut self, old: Directory) -> Result<(), M::Error> {
        let bytes = old.bytes();
        if old.depth == DEPTH_MAX {
            return Err(Fault::Full { bytes: 2 * bytes }.into());
        }
        let at = self.memory.allocate(2 * bytes)?;
        let entries = self.memory.read(old.at, bytes as usize)?.to_vec();
        for half in [at, at + bytes] {
            let place = self.memory.write(half, entries.len())?;
            place.copy_from_slice(&entries);
        }
        retire(&mut self.memory, old.at, bytes)?;
        let depth = old.depth + 1;
        self.set_directory(Directory { depth, at, ..old })
    }

    fn directory(&self) -> Result<Directory, M::Error> {
        let description = self.memory.read(self.at, DESCRIPTION_BYTES)?;
        let number = |at: usize| description.get(at..at + 8).map_or(0, u64::decode);
        let depth = u32::try_from(number(8)).unwrap_or(u32::MAX);
        let directory = number(16);
        if depth > DEPTH_MAX || directory.checked_add(8 << depth).is_none() {
            return Err(damaged(self.at, "the hash map has an impossible directory"));
        }
        Ok(Directory {
            depth,
            at: directory,
            key: <[u8; 16]>::decode(&description[24..DESCRIPTION_BYTES]),
        })
    }

    fn set_directory(&mut self, to: Directory) -> Result<(), M::Error> {
        let place = self.memory.write(self.at + DEPTH, 32)?;
        u64::from(to.depth).encode(&mut place[..8]);
        to.at.encode(&mut place[8..16]);
        to.key.encode(&mut place[16..]);
        Ok(())
    }

    /// The bucket of a hash.
    fn bucket(&self, directory: Directory, hash: u64) -> Result<Block<'_, M>, M::Error> {
        let at = self.memory.load(directory.link(hash))?;
        let block = Block::open(&self.memory, at, PAGE_BYTES)?;
        if block.kind() != Kind::Leaf || block.level() > directory.depth as usize {
            return Err(block.damaged("no bucket of this hash map"));
        }
        Ok(block)
    }
}

fn new_bucket<M: Memory>(memory: &mut M, level: usize) -> Result<u64, M::Error> {
    let at = memory.allocate(PAGE_BYTES as u64)?;
    BlockMut::format(memory, at, PAGE_BYTES, Kind::Leaf, level)?;
    Ok(at)
}
