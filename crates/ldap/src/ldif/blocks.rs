//! Cutting a stream at the ends of records.

#![deny(clippy::indexing_slicing)]

use std::io::{self, Read};

use super::{Options, Record, Records, Rejected};
use crate::steps;

/// The size of the blocks that [`Blocks`] cuts, unless a single record is longer.
pub const BLOCK_BYTES: usize = 1 << 20;

/// U+FEFF in UTF-8, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much of a record that is too long is kept to show.
const SHOWN_BYTES: usize = 4 << 10;

/// Cuts a stream into blocks of whole records.
#[derive(Debug)]
pub struct Blocks<R> {
    source: R,
    record_bytes_max: usize,
    /// The beginning of the next block, already read.
    carried: Vec<u8>,
    /// Memory for the next block.
    spare: Vec<u8>,
    /// The line the next block begins with.
    line: u64,
    at_end: bool,
}

/// Whole records, with their place in the stream.
#[derive(Debug, Clone)]
pub struct Block {
    text: Vec<u8>,
    first_line: u64,
    /// The block is the beginning of a record longer than this.
    too_long: Option<usize>,
}

impl Block {
    /// Makes a block of text that is already in memory and holds whole records.
    pub fn new(text: Vec<u8>) -> Block {
        Block {
            text,
            first_line: 1,
            too_long: None,
        }
    }

    /// The records of the block in order.
    pub fn records<'a>(&'a self, options: Options<'a>) -> Records<'a> {
        Records::new(&self.text, self.first_line, self.too_long, options)
    }

    /// The line the block begins with, the stream's first line being 1.
    pub fn first_line(&self) -> u64 {
        self.first_line
    }

    /// The text of the block.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

impl<R: Read> Blocks<R> {
    /// Cuts `source`. Of the options only the longest record matters here.
    pub fn new(source: R, options: Options<'_>) -> Blocks<R> {
        let record_bytes_max = options.record_bytes_max;
        Blocks {
            source,
            record_bytes_max,
            carried: Vec::new(),
            spare: Vec::new(),
            line: 1,
            at_end: false,
        }
    }

    /// Takes back a block that is done with: its memory is used for one that follows.
    pub fn reuse(&mut self, block: Block) {
        self.spare = block.text;
    }

    fn next_block(&mut self) -> io::Result<Option<Block>> {
        let mut text = std::mem::take(&mut self.spare);
        text.clear();
        text.append(&mut self.carried);
        // Up to here there is no end of a record.
        let mut searched = 0usize;
        let mut too_long = None;
        let is_first = self.line == 1;
        while !self.at_end {
            self.read_more(&mut text)?;
            if is_first && searched == 0 && text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len());
            }
            steps::count(text.len() - searched);
            if let Some(end) = last_record_end(&text, searched) {
                self.carried
                    .extend_from_slice(text.get(end..).unwrap_or_default());
                text.truncate(end);
                break;
            }
            if text.len() > self.record_bytes_max {
                too_long = Some(self.record_bytes_max);
                break;
            }
            searched = text.len();
        }
        if text.is_empty() {
            return Ok(None);
        }
        let first_line = self.line;
        self.line += count_lines(&text);
        steps::count(text.len());
        if too_long.is_some() {
            self.skip_record(&text)?;
            text.truncate(SHOWN_BYTES);
        }
        Ok(Some(Block {
            text,
            first_line,
            too_long,
        }))
    }

    /// Reads on until a block is full, or by another block's size where one is not enough for a record.
    fn read_more(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let wanted = BLOCK_BYTES.saturating_sub(text.len()).max(BLOCK_BYTES / 2);
        text.reserve(wanted);
        let read = self.source.by_ref().take(wanted as u64).read_to_end(text)?;
        steps::count(read);
        self.at_end = read < wanted;
        Ok(())
    }

    /// Drops the rest of a record that is too long, of which `text` has been read.
    fn skip_record(&mut self, text: &[u8]) -> io::Result<()> {
        // The end of the record may straddle what was read and what comes.
        let mut rest = text
            .get(text.len().saturating_sub(2)..)
            .unwrap_or_default()
            .to_vec();
        loop {
            let seen = rest.len();
            self.read_more(&mut rest)?;
            steps::count(rest.len());
            if let Some(end) = first_record_end(&rest) {
                self.carried = rest.split_off(end);
                self.line += count_lines(rest.get(seen..).unwrap_or_default());
                return Ok(());
            }
            self.line += count_lines(rest.get(seen..).unwrap_or_default());
            if self.at_end {
                return Ok(());
            }
            rest.drain(..rest.len().saturating_sub(2));
        }
    }
}

impl<R: Read> Iterator for Blocks<R> {
    type Item = io::Result<Block>;

    fn next(&mut self) -> Option<io::Result<Block>> {
        self.next_block().transpose()
    }
}

/// Reads records one after another from a stream.
#[derive(Debug)]
pub struct Reader<'o, R> {
    blocks: Blocks<R>,
    block: Block,
    /// Where in the block, and at which line, the next record is looked for.
    offset: usize,
    line: u64,
    options: Options<'o>,
}

impl<'o, R: Read> Reader<'o, R> {
    /// Reads from `source`, which need not be buffered.
    pub fn new(source: R, options: Options<'o>) -> Reader<'o, R> {
        let blocks = Blocks::new(source, options);
        Reader {
            blocks,
            block: Block::new(Vec::new()),
            offset: 0,
            line: 1,
            options,
        }
    }

    /// The next record, or the next one that does not parse; `None` at the end. An error is the source's.
    #[allow(clippy::type_complexity)]
    pub fn next_record(&mut self) -> io::Result<Option<Result<Record<'_>, Rejected<'_>>>> {
        while !self.remaining().skip_to_record() {
            let Some(block) = self.blocks.next_block()? else {
                return Ok(None);
            };
            (self.offset, self.line) = (0, block.first_line);
            self.block = block;
        }
        let text = self.block.text.get(self.offset..).unwrap_or_default();
        let mut records = Records::new(text, self.line, self.block.too_long, self.options);
        let record = records.next();
        self.offset = self.block.text.len() - records.remaining_bytes();
        self.line = records.line();
        Ok(record)
    }

    fn remaining(&self) -> Records<'_> {
        let text = self.block.text.get(self.offset..).unwrap_or_default();
        Records::new(text, self.line, self.block.too_long, self.options)
    }
}

fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

/// The place after the last empty line of `text`, none of whose ends of records lie before `searched`.
fn last_record_end(text: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    let tail = text.get(from..)?;
    memchr::memrchr_iter(b'\n', tail)
        .find_map(|newline| Some(from + newline + end_of_record(tail, newline)?))
}

/// The place after the first empty line of `text`.
fn first_record_end(text: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', text)
        .find_map(|newline| Some(newline + end_of_record(text, newline)?))
}

/// Whether an empty line follows `newline`: the distance from there to its end.
fn end_of_record(text: &[u8], newline: usize) -> Option<usize> {
    match text.get(newline + 1..)? {
        [b'\n', ..] => Some(2),
        [b'\r', b'\n', ..] => Some(3),
        _ => None,
    }
}
