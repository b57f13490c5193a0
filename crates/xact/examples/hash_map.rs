//! A persistent hash map: `hash_map FOLDER KEY` shows the value of a key, `hash_map FOLDER KEY VALUE` sets it, and
//! `hash_map FOLDER KEY ""` removes it.
//!
//! ```text
//!  root -> buckets, an offset each -> entry: next entry, lengths of key and value, key, value -> ...
//! ```

use sapwood_xact::{Fault, Memory, Options, Ptr, Space};

const BUCKETS: u64 = 1024;
/// Next entry, length of the key, length of the value.
const HEAD_BYTES: u64 = 16;
/// The longest key and the longest value.
const TEXT_BYTES_MAX: u32 = 1 << 16;

/// What stands in front of an entry's key and value.
struct Entry {
    at: u64,
    next: u64,
    key_bytes: u32,
    value_bytes: u32,
}

impl Entry {
    fn load<M: Memory>(memory: &M, at: u64) -> Result<Self, M::Error> {
        let entry = Self {
            at,
            next: memory.load(Ptr::new(at))?,
            key_bytes: memory.load(Ptr::new(at + 8))?,
            value_bytes: memory.load(Ptr::new(at + 12))?,
        };
        // What stands in a file is bounded before it is used.
        if entry.key_bytes.max(entry.value_bytes) > TEXT_BYTES_MAX {
            let reason = "an entry longer than any";
            return Err(Fault::Damaged { offset: at, reason }.into());
        }
        Ok(entry)
    }

    fn bytes(&self) -> u64 {
        HEAD_BYTES + u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// Its key and its value.
    fn text<'m, M: Memory>(&self, memory: &'m M) -> Result<(&'m [u8], &'m [u8]), M::Error> {
        let length = (self.key_bytes + self.value_bytes) as usize;
        let text = memory.read(self.at + HEAD_BYTES, length)?;
        Ok(text.split_at(self.key_bytes as usize))
    }
}

/// Where the list of a key's bucket begins, if the map has been made.
fn bucket<M: Memory>(memory: &M, key: &[u8]) -> Result<Option<Ptr<u64>>, M::Error> {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let buckets = memory.root()?;
    Ok((buckets != 0).then(|| Ptr::new(buckets + hash % BUCKETS * 8)))
}

/// The value of a key.
pub(crate) fn get<M: Memory>(memory: &M, key: &[u8]) -> Result<Option<Vec<u8>>, M::Error> {
    let Some(bucket) = bucket(memory, key)? else {
        return Ok(None);
    };
    let mut at = memory.load(bucket)?;
    while at != 0 {
        let entry = Entry::load(memory, at)?;
        let (found, value) = entry.text(memory)?;
        if found == key {
            return Ok(Some(value.to_vec()));
        }
        at = entry.next;
    }
    Ok(None)
}

/// Removes a key; gives whether it was there.
pub(crate) fn remove<M: Memory>(memory: &mut M, key: &[u8]) -> Result<bool, M::Error> {
    let Some(mut link) = bucket(memory, key)? else {
        return Ok(false);
    };
    loop {
        let at = memory.load(link)?;
        if at == 0 {
            return Ok(false);
        }
        let entry = Entry::load(memory, at)?;
        if entry.text(memory)?.0 == key {
            memory.store(link, &entry.next)?;
            memory.free(at, entry.bytes())?;
            return Ok(true);
        }
        // An entry begins with the offset of the next.
        link = Ptr::new(at);
    }
}

/// Gives a key a value. Neither is longer than [`TEXT_BYTES_MAX`].
pub(crate) fn set<M: Memory>(memory: &mut M, key: &[u8], value: &[u8]) -> Result<(), M::Error> {
    remove(memory, key)?;
    if memory.root()? == 0 {
        let buckets = memory.allocate(BUCKETS * 8)?;
        memory.write(buckets, BUCKETS as usize * 8)?.fill(0);
        memory.set_root(buckets)?;
    }
    let Some(bucket) = bucket(memory, key)? else {
        return Ok(());
    };
    let (key_bytes, value_bytes) = (key.len() as u32, value.len() as u32);
    let next = memory.load(bucket)?;
    let entry = memory.allocate(HEAD_BYTES + u64::from(key_bytes) + u64::from(value_bytes))?;
    memory.store(Ptr::new(entry), &next)?;
    memory.store(Ptr::new(entry + 8), &key_bytes)?;
    memory.store(Ptr::new(entry + 12), &value_bytes)?;
    let text = memory.write(entry + HEAD_BYTES, key.len() + value.len())?;
    let (key_place, value_place) = text.split_at_mut(key.len());
    key_place.copy_from_slice(key);
    value_place.copy_from_slice(value);
    memory.store(bucket, &entry)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .iter()
        .any(|text| text.len() > TEXT_BYTES_MAX as usize)
    {
        return Err("a key or value is too long".into());
    }
    match arguments.as_slice() {
        [folder, key] => {
            let space = Space::open(folder, &Options::new())?;
            match space.read(|t| get(t, key.as_bytes()))? {
                Some(value) => println!("{}", String::from_utf8_lossy(&value)),
                None => println!("there is no {key}"),
            }
        }
        [folder, key, value] => {
            let space = Space::open(folder, &Options::new())?;
            space.transaction(|t| match value.as_str() {
                "" => remove(t, key.as_bytes()).map(drop),
                value => set(t, key.as_bytes(), value.as_bytes()),
            })?;
        }
        _ => return Err("usage: hash_map FOLDER KEY [VALUE]".into()),
    }
    Ok(())
}
