//! `sapwood store load`: records from text in the format of LMDB's `mdb_dump`. See `dump` for the format.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sapwood_store::{
    Duplicates, Env, Error, KeyOrder, Options, STORES_MAX, TreeId, TreeKind, WriteTxn,
};

use super::dump::{Text, file_name};
use super::place::Place;
use crate::cli::store::Load;
use crate::output::Output;

/// The longest line that is read, in bytes: a value of 128 MiB in hexadecimal digits.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// How many records make a commit.
const COMMIT_RECORDS: u64 = 100_000;

/// How many bytes of keys and values make a commit before that.
const COMMIT_BYTES: usize = 256 << 20;

pub(super) fn run(args: &Load, out: &mut Output) -> Result<ExitCode> {
    let at = Place::of(&args.folder);
    let (folder, options) = (at.folder.as_path(), at.options(&args.folder)?);
    let mut loaded = 0;
    let result = match &args.file {
        Some(path) if path.is_dir() => {
            if let Some(number) = args.store {
                bail!(
                    "{} is a folder with the dumps of several stores: name the file in it that store {number} is to get",
                    path.display()
                );
            }
            let dumps = dumps_in(path)?;
            let env = open_for(path, dumps.len(), &at, &options)?;
            dumps.iter().enumerate().try_for_each(|(number, dump)| {
                let store = env.store(number).context("no such store")?;
                let (input, place) = (open_dump(dump)?, place_in(dump));
                load_from(args, &store, input, &place, &mut loaded)
            })
        }
        file => {
            let (input, place): (Box<dyn BufRead>, _) = match file {
                Some(path) => (Box::new(open_dump(path)?), place_in(path)),
                None => (Box::new(stdin().lock()), String::new()),
            };
            // What is made here has but one.
            let options = options.create(args.store.is_none_or(|number| number == 0));
            let env = at.open_to_write(&options)?;
            let Some(store) = super::chosen(&env, folder, args.store)? else {
                bail!(
                    "{} has {} stores: --store names one of them, or --file a folder that 'sapwood store dump' has made of as many",
                    folder.display(),
                    env.stores()
                );
            };
            load_from(args, &store, input, &place, &mut loaded)
        }
    };
    out.say(format_args!(
        "{loaded} records stored in {}",
        folder.display()
    ));
    result?;
    Ok(ExitCode::SUCCESS)
}

/// The dumps of all stores that were dumped together, in the order of their numbers.
fn dumps_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let shown = folder.display();
    let mut counts = Vec::new();
    for file in fs::read_dir(folder).with_context(|| shown.to_string())? {
        let name = file.with_context(|| shown.to_string())?.file_name();
        let numbers = name.to_str().and_then(|name| {
            let numbers = name.strip_prefix("data-")?.strip_suffix(".dump")?;
            let (number, count) = numbers.split_once("-of-")?;
            Some((number.parse().ok()?, count.parse().ok()?))
        });
        if let Some((number, count)) = numbers
            && name == *file_name(number, count)
        {
            counts.push(count);
        }
    }
    counts.sort_unstable();
    counts.dedup();
    let [count] = counts[..] else {
        match counts[..] {
            [] => bail!(
                "{shown} has no dump of several stores: no file is called as {}",
                file_name(0, 2)
            ),
            _ => bail!(
                "{shown} has the dumps of {counts:?} stores: those that were dumped together are loaded together"
            ),
        }
    };
    ensure!(
        (1..=usize::from(STORES_MAX)).contains(&count),
        "{shown} has the dumps of {count} stores: an environment has at most {STORES_MAX}"
    );
    let dumps: Vec<PathBuf> = (0..count)
        .map(|number| folder.join(file_name(number, count)))
        .collect();
    for dump in &dumps {
        ensure!(
            dump.exists(),
            "{} is missing: the {count} dumps in the folder are loaded together; --store loads one of them",
            dump.display()
        );
    }
    Ok(dumps)
}

/// Opens an environment with so many stores, for the dumps in a folder, or makes it.
fn open_for(dumps: &Path, count: usize, at: &Place, options: &Options) -> Result<Env> {
    // None gets more of them on the way.
    let folder = &at.folder;
    let env = match at.open_with(&options.clone().create(false)) {
        Err(Error::Io(error)) if error.kind() == ErrorKind::NotFound => {
            let count = u16::try_from(count)?;
            at.open_with(&options.clone().create(true).stores(count))
        }
        opened => opened,
    };
    let env = env.with_context(|| folder.display().to_string())?;
    ensure!(
        env.stores() == count,
        "{} has the dumps of {count} stores, and {} has {}: load each file into the store that is to get it, with --store",
        dumps.display(),
        folder.display(),
        env.stores()
    );
    Ok(env)
}

fn open_dump(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(BufReader::new(file))
}

/// What stands before the number of a line of a file.
fn place_in(path: &Path) -> String {
    format!("{}, ", path.display())
}

fn load_from<R: BufRead>(
    args: &Load,
    store: &Env,
    input: R,
    place: &str,
    loaded: &mut u64,
) -> Result<()> {
    let mut lines = Lines {
        input,
        line: Vec::new(),
        number: 0,
    };
    let result = load(args, store, &mut lines, loaded);
    result.with_context(|| format!("{place}line {}", lines.number))
}

fn load<R: BufRead>(args: &Load, env: &Env, lines: &mut Lines<R>, loaded: &mut u64) -> Result<()> {
    while let Some(header) = Header::read(lines)? {
        let name = match &header.name {
            Some(name) => name.as_slice(),
            None => args.tree.as_bytes(),
        };
        let mut batch = Batch::begin(env, name, header.kind)?;
        while let Some((key, value)) = read_record(lines, header.text)? {
            if batch.is_full() {
                batch.commit(loaded)?;
                batch = Batch::begin(env, name, header.kind)?;
            }
            batch.put(&key, &value, args.no_overwrite)?;
        }
        batch.commit(loaded)?;
    }
    Ok(())
}

/// Records for one commit.
struct Batch {
    txn: WriteTxn,
    tree: TreeId,
    stored: u64,
    seen: u64,
    bytes: usize,
}

impl Batch {
    fn begin(env: &Env, name: &[u8], kind: TreeKind) -> Result<Self> {
        let mut txn = env.write()?;
        let tree = match txn.tree(name)? {
            Some(tree) => {
                let found = txn.view(tree)?.record().kind;
                ensure!(
                    found == kind,
                    "the tree '{}' is there and of another kind",
                    String::from_utf8_lossy(name)
                );
                tree
            }
            None => txn.create_tree(name, kind)?,
        };
        Ok(Self {
            txn,
            tree,
            stored: 0,
            seen: 0,
            bytes: 0,
        })
    }

    fn is_full(&self) -> bool {
        self.seen >= COMMIT_RECORDS || self.bytes >= COMMIT_BYTES
    }

    fn put(&mut self, key: &[u8], value: &[u8], keep: bool) -> Result<()> {
        let is_stored = match keep {
            true => self.txn.insert(self.tree, key, value)?,
            false => {
                self.txn.put(self.tree, key, value)?;
                true
            }
        };
        self.stored += u64::from(is_stored);
        self.seen += 1;
        self.bytes += key.len() + value.len();
        Ok(())
    }

    fn commit(self, loaded: &mut u64) -> Result<()> {
        self.txn.commit()?.wait_durable()?;
        *loaded += self.stored;
        Ok(())
    }
}

/// The lines of the input.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next line without its end; `None` behind the last one.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        match self.line.pop() {
            Some(b'\n') => Ok(Some(&self.line)),
            Some(last) if (self.line.len() as u64) < LINE_BYTES_MAX - 1 => {
                self.line.push(last);
                Ok(Some(&self.line))
            }
            _ => bail!("the line is longer than {LINE_BYTES_MAX} bytes"),
        }
    }
}

/// What stands before the records of a tree.
struct Header {
    name: Option<Vec<u8>>,
    kind: TreeKind,
    text: Text,
}

impl Header {
    /// `None` at the end of the input.
    fn read<R: BufRead>(lines: &mut Lines<R>) -> Result<Option<Self>> {
        let mut header = Self {
            name: None,
            kind: TreeKind::COMPACT,
            text: Text::Bytes,
        };
        let mut is_first = true;
        loop {
            let Some(line) = lines.next()? else {
                ensure!(is_first, "the input ends within a header");
                return Ok(None);
            };
            if is_first && line.is_empty() {
                continue;
            }
            let at = line.iter().position(|&byte| byte == b'=');
            let Some((name, value)) =
                at.and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)))
            else {
                bail!("a header line is NAME=VALUE");
            };
            is_first = false;
            if (name, value) == (b"HEADER", b"END") {
                break;
            }
            header.take(name, value)?;
        }
        ensure!(
            header.kind.is_possible(),
            "there is no tree of this kind: what the header says of it does not go together"
        );
        Ok(Some(header))
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        match (name, value) {
            (b"VERSION", b"3") | (b"type", b"btree") => {}
            (b"VERSION", _) => bail!("only version 3 of the format is known"),
            (b"type", _) => bail!("only trees can be loaded (type=btree)"),
            (b"format", b"bytevalue") => self.text = Text::Bytes,
            (b"format", b"print") => self.text = Text::Print,
            (b"format", _) => bail!("the format is neither bytevalue nor print"),
            (b"database" | b"subdatabase", name) => self.name = Some(name.to_vec()),
            (flag, b"1") => self.kind = with_flag(self.kind, flag),
            // Sizes, and what other versions may say.
            _ => {}
        }
        Ok(())
    }
}

fn with_flag(kind: TreeKind, flag: &[u8]) -> TreeKind {
    let duplicates = kind.duplicates.unwrap_or_default();
    let keys = |order| TreeKind {
        order,
        whole: true,
        ..kind
    };
    let values = |duplicates| TreeKind {
        duplicates: Some(duplicates),
        whole: true,
        ..kind
    };
    match flag {
        b"reversekey" => keys(KeyOrder::Reverse),
        b"integerkey" => keys(KeyOrder::Integer),
        b"duplicates" | b"dupsort" => values(duplicates),
        b"dupfixed" => values(Duplicates {
            fixed: true,
            ..duplicates
        }),
        b"integerdup" => values(Duplicates {
            order: KeyOrder::Integer,
            ..duplicates
        }),
        b"reversedup" => values(Duplicates {
            order: KeyOrder::Reverse,
            ..duplicates
        }),
        b"counted" => TreeKind {
            counted: true,
            ..kind
        },
        b"whole" => TreeKind {
            whole: true,
            ..kind
        },
        b"packed" => TreeKind {
            packed: true,
            whole: true,
            ..kind
        },
        b"apart" => TreeKind {
            out_of_line: true,
            ..kind
        },
        _ => kind,
    }
}

/// Key and value; `None` behind the last record of the tree.
fn read_record<R: BufRead>(lines: &mut Lines<R>, text: Text) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Some(line) = lines.next()? else {
        bail!("the input ends without DATA=END");
    };
    if line == b"DATA=END" {
        return Ok(None);
    }
    let key = read_text(line, text)?;
    let Some(line) = lines.next()? else {
        bail!("the input ends between a key and its value");
    };
    let value = read_text(line, text)?;
    Ok(Some((key, value)))
}

fn read_text(line: &[u8], text: Text) -> Result<Vec<u8>> {
    let Some((b' ', mut line)) = line.split_first() else {
        bail!("a line of data begins with a blank");
    };
    let mut bytes = Vec::with_capacity(line.len());
    while let Some((&byte, rest)) = line.split_first() {
        line = match (text, byte) {
            (Text::Print, b'\\') if rest.first() == Some(&b'\\') => {
                bytes.push(b'\\');
                rest.get(1..).unwrap_or_default()
            }
            (Text::Print, b'\\') => take_byte(rest, &mut bytes)?,
            (Text::Print, byte) => {
                bytes.push(byte);
                rest
            }
            (Text::Bytes, _) => take_byte(line, &mut bytes)?,
        };
    }
    Ok(bytes)
}

/// Takes two hexadecimal digits off the front; what is left.
fn take_byte<'l>(line: &'l [u8], bytes: &mut Vec<u8>) -> Result<&'l [u8]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if let Some((&[high, low], rest)) = line.split_first_chunk()
        && let (Some(high), Some(low)) = (digit(high), digit(low))
    {
        bytes.push((high * 16 + low) as u8);
        return Ok(rest);
    }
    bail!("two hexadecimal digits are expected")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::dump::flags;
    use super::*;

    fn lines(input: &[u8]) -> Lines<&[u8]> {
        Lines {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            for text in [Text::Bytes, Text::Print] {
                let mut line = Vec::new();
                text.put(&bytes, &mut line);
                prop_assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
                let line = &line[..line.len() - 1];
                prop_assert_eq!(read_text(line, text).unwrap(), bytes.clone());
            }
        }

        #[test]
        fn any_bytes_are_records_or_an_error(
            input in prop::collection::vec(any::<u8>(), 0..200),
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "VERSION=3\n", "format=print\n", "dupsort=1\n", "counted=1\n", "HEADER=END\n",
                    " a\\00\n", " 00ff\n", "DATA=END\n", "x\n", "=", "\n",
                ]), 0..12),
        ) {
            for input in [input, pieces.concat().into_bytes()] {
                let mut lines = lines(&input);
                while let Ok(Some(header)) = Header::read(&mut lines) {
                    while let Ok(Some(_)) = read_record(&mut lines, header.text) {}
                }
            }
        }
    }

    #[test]
    fn a_kind_is_read_as_it_was_written() {
        let duplicates = |fixed, order| TreeKind {
            duplicates: Some(Duplicates { fixed, order }),
            ..TreeKind::WHOLE
        };
        let kinds = [
            TreeKind::COMPACT,
            TreeKind::COUNTED,
            TreeKind::OUT_OF_LINE,
            TreeKind::WHOLE,
            TreeKind::DUPLICATES,
            duplicates(true, KeyOrder::Integer),
            duplicates(false, KeyOrder::Reverse),
            TreeKind {
                order: KeyOrder::Integer,
                ..duplicates(true, KeyOrder::Bytes)
            },
            TreeKind {
                packed: true,
                ..TreeKind::WHOLE
            },
        ];
        for kind in kinds {
            let set = flags(kind).into_iter().filter(|(_, is_set)| *is_set);
            let read = set.fold(TreeKind::COMPACT, |kind, (flag, _)| {
                with_flag(kind, flag.as_bytes())
            });
            assert_eq!(read, kind);
        }
    }
}
