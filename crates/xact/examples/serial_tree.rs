//! A tree written for plain memory, run in transactions: `serial_tree FOLDER` puts the words of its input into a B+tree, one durable
//! transaction each, and then prints them in order.
//!
//! `add` does not know what memory it runs on: it works as well on `Plain` and on a `File`. To share the tree between processes
//! takes the two lines marked below.

use std::io::BufRead;

use sapwood_xact::{BPlusTree, Memory, Options, Space};

const BLOCK_BYTES: usize = 4096;

/// Puts a word into the tree at the memory's root, which is made if there is none.
fn add<M: Memory>(memory: &mut M, word: &str) -> Result<(), M::Error> {
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: serial_tree FOLDER")?;
    let space = Space::open(folder, &Options::new())?; // The memory: a space.
    for line in std::io::stdin().lock().lines() {
        for word in line?.split_whitespace() {
            space.transaction(|t| add(t, word))?; // And a transaction around each use.
        }
    }
    let reader = space.begin_read()?;
    let root = reader.root()?;
    if root != 0 {
        for record in BPlusTree::open(reader, root)?.range(..)? {
            println!("{}", String::from_utf8_lossy(record?.0));
        }
    }
    Ok(())
}
