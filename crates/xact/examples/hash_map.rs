//! A persistent hash map: `hash_map FOLDER KEY` shows the value of a key, `hash_map FOLDER KEY VALUE` sets it.
//!
//! ```text
//!  root -> buckets, an offset each -> entry: next entry, lengths of key and value, key, value -> ...
//! ```

use sapwood_xact::{Error, Memory, Offset, Options, Space};

const BUCKETS: u64 = 1024;
/// Next entry, length of the key, length of the value.
const HEAD_BYTES: u64 = 16;
const TEXT_BYTES_MAX: usize = 1 << 16;

/// Where the list of a key's bucket begins.
fn bucket(memory: &impl Memory<Error = Error>, key: &str) -> Result<Offset<u64>, Error> {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    Ok(Offset::new(memory.root()? + hash % BUCKETS * 8))
}

fn get(memory: &impl Memory<Error = Error>, key: &str) -> Result<Option<String>, Error> {
    if memory.root()? == 0 {
        return Ok(None);
    }
    let mut entry = memory.load(bucket(memory, key)?)?;
    while entry != 0 {
        let key_bytes = memory.load(Offset::<u32>::new(entry + 8))? as usize;
        let value_bytes = memory.load(Offset::<u32>::new(entry + 12))? as usize;
        let text = memory.read(entry + HEAD_BYTES, key_bytes + value_bytes)?;
        let (found, value) = text.split_at(key_bytes);
        if found == key.as_bytes() {
            return Ok(Some(String::from_utf8_lossy(value).into_owned()));
        }
        entry = memory.load(Offset::<u64>::new(entry))?;
    }
    Ok(None)
}

/// Puts an entry in front of its bucket, where it hides older ones of the same key.
fn set(memory: &mut impl Memory<Error = Error>, key: &str, value: &str) -> Result<(), Error> {
    if memory.root()? == 0 {
        let buckets = memory.allocate(BUCKETS * 8)?;
        memory.write(buckets, BUCKETS as usize * 8)?.fill(0);
        memory.set_root(buckets)?;
    }
    let bucket = bucket(memory, key)?;
    let next = memory.load(bucket)?;
    let entry = memory.allocate(HEAD_BYTES + (key.len() + value.len()) as u64)?;
    memory.store(Offset::new(entry), &next)?;
    memory.store(Offset::new(entry + 8), &(key.len() as u32))?;
    memory.store(Offset::new(entry + 12), &(value.len() as u32))?;
    let text = memory.write(entry + HEAD_BYTES, key.len() + value.len())?;
    text[..key.len()].copy_from_slice(key.as_bytes());
    text[key.len()..].copy_from_slice(value.as_bytes());
    memory.store(bucket, &entry)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|text| text.len() > TEXT_BYTES_MAX) {
        return Err("a key or value is too long".into());
    }
    match arguments.as_slice() {
        [folder, key] => {
            let space = Space::open(folder, &Options::new())?;
            match space.read(|t| get(t, key))? {
                Some(value) => println!("{value}"),
                None => println!("there is no {key}"),
            }
        }
        [folder, key, value] => {
            let space = Space::open(folder, &Options::new())?;
            space.transaction(|t| set(t, key, value))?;
        }
        _ => return Err("usage: hash_map FOLDER KEY [VALUE]".into()),
    }
    Ok(())
}
