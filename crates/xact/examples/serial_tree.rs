//! A tree written for plain memory, run in transactions: `serial_tree FOLDER` puts the words of its input into a
//! B+tree, one durable transaction each, and then prints them in order.
//!
//! `add` and `words` do not know what memory they run on: they work as well on `Plain` and on a `File`. To share the
//! tree between processes takes the two lines marked below.

use std::io::BufRead;

use sapwood_xact::{BPlusTree, Memory, Options, Space};

const BLOCK_BYTES: usize = 4096;

/// Puts a word into the tree at the memory's root, which is made if there is none.
pub(crate) fn add<M: Memory>(memory: &mut M, word: &str) -> Result<(), M::Error> {
    let root = memory.root()?;
    let mut tree = if root == 0 {
        BPlusTree::create(&mut *memory, BLOCK_BYTES)?
    } else {
        BPlusTree::open(&mut *memory, root)?
    };
    tree.insert(word.as_bytes(), &[])?;
    let root = tree.offset();
    memory.set_root(root)
}

/// All words, in order.
pub(crate) fn words<M: Memory>(memory: M) -> Result<Vec<String>, M::Error> {
    let root = memory.root()?;
    let mut words = Vec::new();
    if root != 0 {
        for record in BPlusTree::open(memory, root)?.range(..)? {
            words.push(String::from_utf8_lossy(record?.0).into_owned());
        }
    }
    Ok(words)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: serial_tree FOLDER")?;
    let space = Space::open(folder, &Options::new())?; // The memory: a space.
    for line in std::io::stdin().lock().lines() {
        for word in line?.split_whitespace() {
            space.transaction(|t| add(t, word))?; // And a transaction around each use.
        }
    }
    words(space.begin_read()?)?
        .iter()
        .for_each(|word| println!("{word}"));
    Ok(())
}
