//! `mdb_load`: stores the records of a text in the form of `mdb_dump`, the original's too.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Done, Failure, Given, failed, open};
use crate::env::{Env, Open};
use crate::error::Code;
use crate::txn::{Stored, Txn, Value};
use crate::values::db_flags::{CREATE, NAMES};
use crate::values::write_flags::{NODUPDATA, NOOVERWRITE};

pub(super) const USAGE: &str = "[-V] [-f input] [-n] [-s name] [-N] [-T] dbpath";

/// The longest line, in bytes: a value of 1 GiB, two digits for each byte.
const LINE_BYTES_MAX: u64 = (2 << 30) + 2;

/// How much is committed at a time, in records and in bytes.
const BATCH_RECORDS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

pub(super) fn run(given: &Given) -> Done {
    let path = given.path()?;
    let input: Box<dyn Read> = match given.value(b'f') {
        Some(file) => Box::new(File::open(file)?),
        None => Box::new(io::stdin().lock()),
    };
    let mut text = Text {
        input: BufReader::new(input),
        line: 0,
        is_plain: given.has(b'T'),
    };
    let mut header = text.header()?;
    let env = Env::default();
    if let Some(readers) = header.readers {
        env.set_readers_max(readers)
            .map_err(failed("mdb_env_set_maxreaders"))?;
    }
    if let Some(bytes) = header.map_bytes {
        env.set_map_size(bytes)
            .map_err(failed("mdb_env_set_mapsize"))?;
    }
    let open = open(&env, path, given.flags(), 2)?;
    let flags = if given.has(b'N') {
        NOOVERWRITE | NODUPDATA
    } else {
        0
    };
    let named = given.value(b's').map(OsStrExt::as_bytes);
    loop {
        let name = header.database.as_deref().or(named);
        load(&open, &mut text, name, &header, flags)?;
        if text.is_at_end()? {
            return Ok(());
        }
        let before = header.database.take();
        header = text.header()?;
        header.database = header.database.or(before);
    }
}

/// Loads one database, up to the end of its records.
fn load(
    open: &Arc<Open>,
    text: &mut Text,
    name: Option<&[u8]>,
    header: &Header,
    put_flags: u32,
) -> Done {
    let begin = || Txn::begin_write(open, 0).map_err(failed("mdb_txn_begin"));
    let mut txn = begin()?;
    let dbi = txn.open_database(name, header.flags | CREATE);
    let dbi = dbi.map_err(failed("mdb_open"))?;
    let (mut records, mut bytes) = (0, 0);
    while let Some(key) = text.bytes(header.is_print)? {
        let Some(value) = text.bytes(header.is_print)? else {
            return Err(text.wrong("failed to read key value"));
        };
        match txn.put(dbi, &key, Value::Bytes(&value), put_flags, None) {
            Ok(Stored::Exists(_)) | Err(Code::KEYEXIST) if put_flags != 0 => continue,
            Ok(_) => {}
            Err(code) => return Err(text.failed("mdb_cursor_put", code)),
        }
        records += 1;
        bytes += key.len() + value.len();
        if records >= BATCH_RECORDS || bytes >= BATCH_BYTES {
            (records, bytes) = (0, 0);
            txn.commit(None)
                .map_err(|code| text.failed("txn_commit", code))?;
            txn = begin()?;
        }
    }
    txn.commit(None)
        .map_err(|code| text.failed("txn_commit", code))?;
    open.close_handle(dbi);
    Ok(())
}

/// What a dump says of a database before its records.
#[derive(Default)]
struct Header {
    database: Option<Vec<u8>>,
    is_print: bool,
    flags: u32,
    map_bytes: Option<usize>,
    readers: Option<u32>,
}

struct Text {
    input: BufReader<Box<dyn Read>>,
    line: u64,
    /// There are records only, a line for a key and a line for its value.
    is_plain: bool,
}

impl Text {
    fn wrong(&self, what: impl std::fmt::Display) -> Failure {
        Failure::Said(format!("line {}: {what}", self.line))
    }

    fn failed(&self, what: &str, code: Code) -> Failure {
        failed(format_args!("line {}: {what}", self.line))(code)
    }

    fn is_at_end(&mut self) -> Done<bool> {
        Ok(self.input.fill_buf()?.is_empty())
    }

    /// The next line, without its end; `None` at the end of the text.
    fn next_line(&mut self) -> Done<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut limited = self.input.by_ref().take(LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        match line.pop_if(|last| *last == b'\n') {
            Some(_) => Ok(Some(line)),
            None if self.is_at_end()? => Err(self.wrong("unexpected end of input")),
            None => Err(self.wrong("the line is too long")),
        }
    }

    fn header(&mut self) -> Done<Header> {
        let mut header = Header {
            is_print: self.is_plain,
            ..Header::default()
        };
        if self.is_plain {
            return Ok(header);
        }
        while let Some(line) = self.next_line()? {
            if line == b"HEADER=END" {
                break;
            }
            let Some(at) = line.iter().position(|&byte| byte == b'=') else {
                return Err(self.wrong("unexpected format"));
            };
            let (keyword, value) = (&line[..at], &line[at + 1..]);
            let flag = NAMES.iter().find(|(name, _)| name.as_bytes() == keyword);
            match (keyword, flag) {
                (_, Some((_, flag))) if value == b"1" => header.flags |= flag,
                (_, Some(_)) => {}
                (b"VERSION", _) => {
                    let version: u32 = self.number(value, "unsupported VERSION")?;
                    if version > 3 {
                        return Err(self.wrong(format_args!("unsupported VERSION {version}")));
                    }
                }
                (b"format", _) => match value {
                    b"print" => header.is_print = true,
                    b"bytevalue" => header.is_print = false,
                    _ => return Err(self.wrong("unsupported FORMAT")),
                },
                (b"type", _) if value != b"btree" => return Err(self.wrong("unsupported type")),
                (b"database", _) => header.database = Some(value.to_vec()),
                (b"mapsize", _) => header.map_bytes = Some(self.number(value, "invalid mapsize")?),
                (b"maxreaders", _) => {
                    header.readers = Some(self.number(value, "invalid maxreaders")?);
                }
                (b"type" | b"mapaddr" | b"duplicates" | b"db_pagesize", _) => {}
                _ => {
                    let keyword = String::from_utf8_lossy(keyword);
                    eprintln!(
                        "line {}: unrecognized keyword ignored: {keyword}",
                        self.line
                    );
                }
            }
        }
        Ok(header)
    }

    fn number<N: FromStr>(&self, digits: &[u8], what: &str) -> Done<N> {
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| self.wrong(what))
    }

    /// The next key or value; `None` at the end of the database.
    fn bytes(&mut self, is_print: bool) -> Done<Option<Vec<u8>>> {
        let line = match self.next_line()? {
            Some(line) => line,
            None if self.is_plain => return Ok(None),
            None => return Err(self.wrong("unexpected end of input")),
        };
        let digits = match line.split_first() {
            _ if self.is_plain => &line[..],
            Some((b' ', rest)) => rest,
            _ if line == b"DATA=END" => return Ok(None),
            _ => return Err(self.wrong("unexpected format")),
        };
        let bytes = if is_print {
            printed(digits)
        } else {
            hex(digits)
        };
        bytes
            .map(Some)
            .ok_or_else(|| self.wrong("unexpected format"))
    }
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    pairs.iter().map(|&[high, low]| byte(high, low)).collect()
}

fn byte(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// A backslash stands before another one, or before the two digits of a byte.
fn printed(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => {
                rest = behind;
                b'\\'
            }
            (b'\\', [high, low, behind @ ..]) => {
                rest = behind;
                byte(*high, *low)?
            }
            (b'\\', _) => return None,
            (plain, _) => plain,
        });
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_both_forms() {
        assert_eq!(hex(b"00fFa1").unwrap(), [0, 255, 161]);
        assert_eq!(printed(br"a\\b\0a\5cc").unwrap(), b"a\\b\n\\c");
        for wrong in [&b"0"[..], b"0g", b"+1", b"0a1"] {
            assert_eq!(hex(wrong), None);
        }
        for wrong in [&br"\"[..], br"\0", br"\xy"] {
            assert_eq!(printed(wrong), None);
        }
    }
}
