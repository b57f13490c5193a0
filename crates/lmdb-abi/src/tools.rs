//! LMDB's tools, for environments of this library: `mdb_stat`, `mdb_dump`, `mdb_load`, `mdb_copy`, with the options and
//! the output of the originals. Those of a system are often linked with LMDB itself, and then know its files only.

mod copy;
mod dump;
mod load;
mod stat;

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::sync::Arc;

use sapwood_store::Tree;

use crate::database::MAIN;
use crate::env::{self, Env, Open};
use crate::error::{self, Code};
use crate::txn::Txn;
use crate::values::env_flags::{NOSUBDIR, RDONLY};

/// `mdb_stat`
pub fn mdb_stat() -> ExitCode {
    run("mdb_stat", stat::USAGE, "aefnrVs:", stat::run)
}

/// `mdb_dump`
pub fn mdb_dump() -> ExitCode {
    run("mdb_dump", dump::USAGE, "alnpVf:s:", dump::run)
}

/// `mdb_load`
pub fn mdb_load() -> ExitCode {
    run("mdb_load", load::USAGE, "nNTVf:s:", load::run)
}

/// `mdb_copy`
pub fn mdb_copy() -> ExitCode {
    run("mdb_copy", copy::USAGE, "cnV", copy::run)
}

/// Why a tool fails.
#[derive(Debug)]
enum Failure {
    /// It was not told what to do.
    Usage,
    /// What it says about that.
    Said(String),
}

type Done<T = ()> = std::result::Result<T, Failure>;

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Said(error.to_string())
    }
}

/// A function of the library failed.
fn failed(what: impl fmt::Display) -> impl FnOnce(Code) -> Failure {
    move |code| Failure::Said(format!("{what} failed, error {} {}", code.0, meaning(code)))
}

fn meaning(code: Code) -> String {
    match error::text(code.0) {
        Some(text) => text.to_string_lossy().into_owned(),
        None => io::Error::from_raw_os_error(code.0).to_string(),
    }
}

/// The options that were given, by letter and in order, with their values; and what follows them.
struct Given {
    options: Vec<(u8, OsString)>,
    operands: Vec<OsString>,
}

impl Given {
    /// `letters` as for `getopt`: a colon follows those that have a value.
    fn parse(letters: &str, arguments: impl Iterator<Item = OsString>) -> Done<Self> {
        let mut given = Self {
            options: Vec::new(),
            operands: Vec::new(),
        };
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next_if(|argument| is_option(argument)) {
            let mut rest = argument.as_bytes().iter().skip(1).copied();
            if argument == "--" {
                break;
            }
            while let Some(letter) = rest.next() {
                let at = letters
                    .bytes()
                    .position(|known| known == letter && known != b':');
                let at = at.ok_or(Failure::Usage)?;
                let mut value = OsString::new();
                if letters.as_bytes().get(at + 1) == Some(&b':') {
                    value = OsString::from_vec(rest.by_ref().collect());
                    if value.is_empty() {
                        value = arguments.next().ok_or(Failure::Usage)?;
                    }
                }
                given.options.push((letter, value));
            }
        }
        given.operands.extend(arguments);
        Ok(given)
    }

    /// How often an option was given.
    fn count(&self, letter: u8) -> usize {
        self.options
            .iter()
            .filter(|(given, _)| *given == letter)
            .count()
    }

    fn has(&self, letter: u8) -> bool {
        self.count(letter) > 0
    }

    /// The last value that was given.
    fn value(&self, letter: u8) -> Option<&OsStr> {
        let mut given = self.options.iter().rev();
        given
            .find(|(given, _)| *given == letter)
            .map(|(_, value)| value.as_os_str())
    }

    /// The only operand.
    fn path(&self) -> Done<&OsStr> {
        match &self.operands[..] {
            [path] => Ok(path),
            _ => Err(Failure::Usage),
        }
    }

    /// The flags of the environment.
    fn flags(&self) -> u32 {
        if self.has(b'n') { NOSUBDIR } else { 0 }
    }
}

fn is_option(argument: &OsStr) -> bool {
    argument.len() > 1 && argument.as_bytes().starts_with(b"-")
}

fn run(name: &str, usage: &str, letters: &str, tool: fn(&Given) -> Done) -> ExitCode {
    let given = Given::parse(letters, std::env::args_os().skip(1));
    let done = given.and_then(|given| {
        if given.has(b'V') {
            println!("LMDB 0.9 tools: Sapwood {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        tool(&given)
    });
    match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage) => eprintln!("usage: {name} {usage}"),
        Err(Failure::Said(what)) => eprintln!("{name}: {what}"),
    }
    ExitCode::FAILURE
}

/// Opens an environment. `named` is how many named databases are open at a time.
fn open(env: &Env, path: &OsStr, flags: u32, named: u32) -> Done<Arc<Open>> {
    let place = CString::new(path.as_bytes()).map_err(|_| Failure::Usage)?;
    let opened = env
        .set_dbs_max(named)
        .and_then(|()| env.open(&place, flags, 0o664));
    if opened.is_err() && env::is_of_lmdb(&place, flags) {
        return Err(Failure::Said(format!(
            "{} is a file of LMDB itself; its records come over by LMDB's own mdb_dump -a, and this mdb_load",
            path.display()
        )));
    }
    opened.map_err(failed("mdb_env_open"))?;
    env.opened().cloned().map_err(failed("mdb_env_open"))
}

/// Begins to read.
fn read(open: &Arc<Open>) -> Done<Txn> {
    Txn::begin_read(open).map_err(failed("mdb_txn_begin"))
}

/// Opens an environment for reading only, and begins to read.
fn open_and_read(env: &Env, given: &Given, named: u32) -> Done<(Arc<Open>, Txn)> {
    let open = open(env, given.path()?, given.flags() | RDONLY, named)?;
    let txn = read(&open)?;
    Ok((open, txn))
}

/// The names in the main database that those of databases can have; of what else is there some do, too.
fn names(txn: &mut Txn) -> Done<Vec<Vec<u8>>> {
    let main = txn.view(MAIN).map_err(failed("mdb_cursor_open"))?;
    let mut cursor = match &main {
        Some(main) => main.cursor(),
        None => return Ok(Vec::new()),
    };
    let mut names = Vec::new();
    let step = |cursor: &mut sapwood_store::TreeCursor<'_>| cursor.next_key();
    while step(&mut cursor).map_err(|error| failed("mdb_cursor_get")(error.into()))? {
        if let Ok(Some(name)) = cursor.whole_key()
            && !name.contains(&0)
        {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Runs `each` for every record of a database, in order.
fn for_each(tree: Option<Tree<'_>>, mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> Done {
    let Some(tree) = tree else {
        return Ok(());
    };
    let mut cursor = tree.cursor();
    loop {
        let record = cursor.next().and_then(|there| {
            if there {
                cursor.whole_record()
            } else {
                Ok(None)
            }
        });
        match record {
            Ok(Some((key, value))) => each(key, value)?,
            Ok(None) => return Ok(()),
            Err(error) => return Err(failed("mdb_cursor_get")(error.into())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Done<Given> {
        Given::parse("aef:s:", arguments.iter().map(OsString::from))
    }

    #[test]
    fn options_are_read_as_getopt_reads_them() {
        let given = parse(&["-aa", "-ef", "file", "-sname", "--", "-path"]).unwrap();
        assert_eq!((given.count(b'a'), given.count(b'e')), (2, 1));
        assert_eq!(given.value(b'f').unwrap(), "file");
        assert_eq!(given.value(b's').unwrap(), "name");
        assert_eq!(given.path().unwrap(), "-path");
        for wrong in [&["-x"][..], &["-f"], &["-:"], &["-ax", "path"]] {
            assert!(matches!(parse(wrong), Err(Failure::Usage)), "{wrong:?}");
        }
        assert!(parse(&["one", "two"]).unwrap().path().is_err());
        assert_eq!(parse(&["-"]).unwrap().path().unwrap(), "-");
    }
}
