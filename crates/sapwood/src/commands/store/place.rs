//! Where an environment is, and what its files are called: as programs make it by the store's own interface, by
//! `liblmdb`, or inside a directory.
//!
//! ```text
//!  DIR/data/data-0                  a directory
//!  DIR/data-0, lock, log.N          the store's own
//!  DIR/data.mdb, lock.mdb, log.mdb.N         liblmdb's
//!  FILE, FILE-lock, FILE-log.N      liblmdb's, with MDB_NOSUBDIR
//! ```

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sapwood_server::Config;
use sapwood_store::{Env, Error, FileNames, Options};

use crate::open::{data_folder, store_options};

/// What `liblmdb` calls its data file in a folder.
pub(super) const LMDB_DATA: &str = "data.mdb";

/// What a number at the beginning of LMDB's own files is.
const LMDB_MAGIC: [u8; 4] = 0xBEEF_C0DE_u32.to_le_bytes();
const LMDB_MAGIC_AT: usize = 16;

/// An environment's place.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Inside a directory.
    Directory,
    /// As the store names its files.
    Own,
    /// As `liblmdb` does: a folder, or a file with others beside it.
    Lmdb,
    LmdbFile,
}

impl Place {
    /// The environment that a path on the command line means, whether it is there or not.
    pub(super) fn of(path: &Path) -> Self {
        let is_lmdb =
            |folder: &Path| folder.join(LMDB_DATA).is_file() && !folder.join("data-0").exists();
        let (folder, form) = if data_folder(path).is_dir() {
            (data_folder(path), Form::Directory)
        } else if is_lmdb(path) {
            (path.to_owned(), Form::Lmdb)
        } else if !path.is_file() {
            (path.to_owned(), Form::Own)
        } else {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let folder = folder.unwrap_or(Path::new("."));
            // The data file of an environment means that one.
            match path.file_name().and_then(OsStr::to_str) {
                Some("data-0") => (folder.to_owned(), Form::Own),
                Some(LMDB_DATA) if !beside(path, "-lock").exists() => {
                    (folder.to_owned(), Form::Lmdb)
                }
                _ => (path.to_owned(), Form::LmdbFile),
            }
        };
        Self { folder, form }
    }

    /// Whether it is one of `liblmdb`.
    pub(super) fn is_lmdb(&self) -> bool {
        matches!(self.form, Form::Lmdb | Form::LmdbFile)
    }

    /// The same, that is a file with others beside it.
    pub(super) fn is_lmdb_file(&self) -> bool {
        self.form == Form::LmdbFile
    }

    /// Opens it for reading only.
    pub(super) fn open(&self) -> Result<Env> {
        let options = Options::new().create(false);
        let reading = options.clone().read_only(true);
        let lock = match self.form {
            Form::Directory | Form::Own => return self.explained(self.open_with(&reading)),
            Form::Lmdb => self.folder.join("lock.mdb"),
            Form::LmdbFile => beside(&self.folder, "-lock"),
        };
        if !lock.exists() {
            // Nobody has it open. It is looked at as it is: opened in another way it would get a log, and stand alone
            // no more.
            return self.explained(self.open_with(&reading.shared(false)));
        }
        // As programs do that only read: commits that nobody waits for can be made durable by those only who share the
        // log.
        let opened = match self.open_with(&options) {
            Err(Error::Io(error)) if is_unwritable(&error) => self.open_with(&reading),
            opened => opened,
        };
        self.explained(opened)
    }

    /// Opens it for writing.
    pub(super) fn open_to_write(&self, options: &Options) -> Result<Env> {
        self.explained(self.open_with(options))
    }

    /// How it is opened for writing.
    pub(super) fn options(&self, path: &Path) -> Result<Options> {
        match self.form {
            Form::Directory => store_options(path, &Config::load(path)?),
            _ => Ok(Options::new()),
        }
    }

    /// Opens it with the names that its files have.
    pub(super) fn open_with(&self, options: &Options) -> sapwood_store::Result<Env> {
        let (folder, names) = match self.form {
            Form::Directory | Form::Own => return Env::open(&self.folder, options),
            Form::Lmdb => {
                let names = FileNames::new(LMDB_DATA, "lock.mdb", "log.mdb")?;
                (self.folder.as_path(), names)
            }
            Form::LmdbFile => {
                let name = self.folder.file_name().and_then(OsStr::to_str);
                let name = name.ok_or(std::io::Error::from(ErrorKind::InvalidInput))?;
                let names = FileNames::new(name, format!("{name}-lock"), format!("{name}-log"))?;
                let folder = self.folder.parent();
                let folder = folder.filter(|folder| *folder != Path::new(""));
                (folder.unwrap_or(Path::new(".")), names)
            }
        };
        // Programs number transactions by commits, of which there are to be no others than theirs.
        let options = options.clone().names(names).idle_compaction(None);
        let options = options.alone_when_closed(self.form == Form::LmdbFile);
        self.lock()?;
        Env::open(folder, &options)
    }

    /// Keeps out programs that want the environment for themselves, and is kept out by them (`MDB_NOLOCK`).
    fn lock(&self) -> std::io::Result<()> {
        let data = match self.form {
            Form::LmdbFile => self.folder.clone(),
            _ => self.folder.join(LMDB_DATA),
        };
        let file = File::open(data)?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let told = "a program has it open without locks (MDB_NOLOCK), and writes";
                return Err(std::io::Error::new(ErrorKind::WouldBlock, told));
            }
            // A file system without locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        // Until the command ends, and the program with it.
        std::mem::forget(file);
        Ok(())
    }

    fn explained(&self, opened: sapwood_store::Result<Env>) -> Result<Env> {
        let shown = self.folder.display();
        if opened.is_err() && self.is_lmdb() && self.is_of_lmdb_itself() {
            bail!(
                "{shown} is in LMDB's own format: 'mdb_dump -a {shown} | sapwood store load NEW' brings what is in it over"
            );
        }
        if let Err(Error::Io(error)) = &opened
            && error.kind() == ErrorKind::NotFound
        {
            bail!("there is no environment in {shown}: neither a file data-0 nor {LMDB_DATA}");
        }
        opened.with_context(|| shown.to_string())
    }

    fn is_of_lmdb_itself(&self) -> bool {
        let data = match self.form {
            Form::LmdbFile => self.folder.clone(),
            _ => self.folder.join(LMDB_DATA),
        };
        let mut start = [0; LMDB_MAGIC_AT + LMDB_MAGIC.len()];
        let read = File::open(data).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && start.ends_with(&LMDB_MAGIC)
    }
}

fn is_unwritable(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

/// The file with this ending beside another one.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
