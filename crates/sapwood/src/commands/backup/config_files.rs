//! What a directory has beside its data, without which those cannot be served: its configuration, and the files that it
//! names. In a backup they stand behind the data of the first store.
//!
//! ```text
//!  behind the data
//!      4  bytes of a name
//!         what the backup was made since, as it was called then; nothing in a full one
//!         for each file:
//!      4    bytes of its name
//!      4    bytes of its content
//!           the name, relative to the directory's folder
//!           the content
//!  at the end of the file
//!      8  magic "SAPWFILE"
//!      4  version 1
//!      4  checksum: CRC-32 of all that stands between the data and here
//! ```
//!
//! All integers are little-endian. Where the data end the store says ([`BackupInfo`]), so nothing in them can be taken
//! for this.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sapwood_server::Config;
use sapwood_server::config::CONFIG_FILE;
use sapwood_store::BackupInfo;
use sapwood_store::page::checksum;

use crate::open;
use crate::passing::remove;

const MAGIC: [u8; 8] = *b"SAPWFILE";
const VERSION: u32 = 1;
const END_BYTES: usize = 16;

/// All files together, in bytes: so much is kept in memory.
const BYTES_MAX: u64 = 64 << 20;

/// The files beside a directory's data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigFiles {
    /// Of an increment, the name that the backup had since which it was made.
    pub(super) since: String,
    /// Each with its name, relative to the directory's folder.
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl ConfigFiles {
    /// Reads those of a directory, and tells which of the files that its configuration names are elsewhere.
    pub(super) fn of_directory(folder: &Path, config: &Config) -> Result<(Self, Vec<PathBuf>)> {
        let mut this = Self::default();
        let mut elsewhere = Vec::new();
        let mut named = vec![Path::new(CONFIG_FILE), &config.admin.password_file];
        named.extend(config.tls.files());
        for name in named {
            let path = folder.join(name);
            if this.files.iter().any(|(known, _)| known == name) || !path.exists() {
                continue;
            }
            if !is_beside(name) {
                elsewhere.push(name.to_owned());
                continue;
            }
            let read = File::open(&path).and_then(|file| {
                let mut content = Vec::new();
                file.take(BYTES_MAX + 1).read_to_end(&mut content)?;
                Ok(content)
            });
            let content = read.with_context(|| path.display().to_string())?;
            this.files.push((name.to_owned(), content));
            let bytes = this.files.iter().map(|(_, content)| content.len() as u64);
            ensure!(
                bytes.sum::<u64>() <= BYTES_MAX,
                "{}: the files of the configuration have more than {} MiB together",
                path.display(),
                BYTES_MAX >> 20
            );
        }
        Ok((this, elsewhere))
    }

    pub(super) fn has(&self, name: &Path) -> bool {
        self.files.iter().any(|(known, _)| known == name)
    }

    /// Writes them behind the data of a backup, and syncs it.
    pub(super) fn append(&self, backup: &Path) -> Result<()> {
        let data = BackupInfo::read(backup)?;
        let append = || {
            let mut file = File::options().write(true).open(backup)?;
            file.seek(SeekFrom::Start(data.bytes))?;
            file.write_all(&self.encode()?)?;
            file.sync_all()?;
            anyhow::Ok(())
        };
        append().with_context(|| backup.display().to_string())
    }

    /// Reads them from a backup. `None`, if it has none: the store's own commands make such.
    pub(super) fn of_backup(backup: &Path) -> Result<Option<Self>> {
        let data = BackupInfo::read(backup)?;
        let read = || {
            let mut file = File::open(backup)?;
            let bytes = file.metadata()?.len();
            if bytes <= data.bytes {
                return Ok(None);
            }
            ensure!(
                bytes - data.bytes <= 2 * BYTES_MAX,
                "too much stands behind the data"
            );
            file.seek(SeekFrom::Start(data.bytes))?;
            let mut encoded = Vec::new();
            file.take(bytes - data.bytes).read_to_end(&mut encoded)?;
            Ok(Some(Self::decode(&encoded)?))
        };
        read().with_context(|| {
            format!(
                "the configuration in {} cannot be read, and 'sapwood store restore' takes its data alone",
                backup.display()
            )
        })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut to = Vec::new();
        to.extend_from_slice(&u32::try_from(self.since.len())?.to_le_bytes());
        to.extend_from_slice(self.since.as_bytes());
        for (name, content) in &self.files {
            let name = name.to_str();
            let name = name
                .context("the name of a file is not Unicode")?
                .as_bytes();
            to.extend_from_slice(&u32::try_from(name.len())?.to_le_bytes());
            to.extend_from_slice(&u32::try_from(content.len())?.to_le_bytes());
            to.extend_from_slice(name);
            to.extend_from_slice(content);
        }
        let sum = checksum(&[&to]);
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.extend_from_slice(&sum.to_le_bytes());
        Ok(to)
    }

    fn decode(encoded: &[u8]) -> Result<Self> {
        let end = encoded.len().checked_sub(END_BYTES);
        let (mut fields, end) = end
            .and_then(|end| encoded.split_at_checked(end))
            .context("it is cut short")?;
        let mut end = Fields(end);
        ensure!(
            end.take(MAGIC.len())? == MAGIC,
            "it is cut short, or something else"
        );
        let version = end.number()?;
        ensure!(
            version == VERSION,
            "its version {version} is not known to this program, which knows {VERSION}"
        );
        ensure!(end.number()? == checksum(&[fields]), "it is damaged");
        let mut fields = Fields(std::mem::take(&mut fields));
        let since = fields.number()?;
        let since = fields.take(since as usize)?;
        let mut this = Self {
            since: String::from_utf8(since.to_vec())?,
            files: Vec::new(),
        };
        while !fields.0.is_empty() {
            let (name, content) = (fields.number()?, fields.number()?);
            let name = std::str::from_utf8(fields.take(name as usize)?)?;
            let content = fields.take(content as usize)?;
            let name = Path::new(name);
            ensure!(
                is_beside(name) && !this.has(name),
                "'{}' is no name of a file in it",
                name.display()
            );
            this.files.push((name.to_owned(), content.to_vec()));
        }
        Ok(this)
    }

    /// Makes those files of a directory that it does not have yet. Files that are there stay as they are.
    pub(super) fn make_missing(&self, folder: &Path) -> Result<Made> {
        let mut made = Made::default();
        for (name, content) in &self.files {
            let path = folder.join(name);
            if path.exists() {
                if fs::read(&path).ok().as_ref() != Some(content) {
                    made.different.push(name.clone());
                }
                continue;
            }
            let mut make = || {
                if let Some(folder) = path.parent() {
                    let mut builder = fs::DirBuilder::new();
                    builder.recursive(true).mode(0o700).create(folder)?;
                }
                let mut options = File::options();
                let mut file = options
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)?;
                made.paths.push(path.clone());
                file.write_all(content)?;
                file.sync_all()?;
                File::open(path.parent().unwrap_or(folder))?.sync_all()
            };
            make().with_context(|| path.display().to_string())?;
        }
        Ok(made)
    }
}

/// What was made of the files in a backup. Dropping it removes them again.
#[derive(Debug, Default)]
pub(super) struct Made {
    paths: Vec<PathBuf>,
    /// Names of files that were there, with other contents.
    pub(super) different: Vec<PathBuf>,
}

impl Made {
    /// Leaves them there.
    pub(super) fn keep(mut self) -> Vec<PathBuf> {
        self.paths.clear();
        std::mem::take(&mut self.different)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| remove(path));
    }
}

/// Whether a name is that of a file which goes into a backup: in the directory's folder, and none of its data.
fn is_beside(name: &Path) -> bool {
    let mut parts = name.components();
    let first = name.components().next().map(Component::as_os_str);
    let is_data = |first| open::DATA_NAMES.iter().any(|data| first == *data);
    parts.all(|part| matches!(part, Component::Normal(_)))
        && first.is_some_and(|first| !is_data(first))
}

/// Bytes that are taken one field after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(bytes).context("it is cut short")?;
        self.0 = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<u32> {
        let field = self.take(4)?;
        Ok(u32::from_le_bytes(field.try_into()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> ConfigFiles {
        ConfigFiles {
            since: "monday".into(),
            files: vec![
                ("sapwood.toml".into(), b"[admin]".to_vec()),
                ("tls/own.pem".into(), Vec::new()),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is() {
        let encoded = some().encode().unwrap();
        assert_eq!(ConfigFiles::decode(&encoded).unwrap(), some());
        for cut in 0..encoded.len() {
            assert!(ConfigFiles::decode(&encoded[..cut]).is_err(), "{cut}");
        }
        for at in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[at] ^= 1;
            assert!(ConfigFiles::decode(&damaged).is_err(), "{at}");
        }
    }

    #[test]
    fn a_backup_writes_nowhere_but_beside_the_data() {
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "tls/../../x",
            ".",
            "data/data-0",
            "memory",
            "control.sock",
        ] {
            let files = vec![(name.into(), b"x".to_vec())];
            let hostile = ConfigFiles {
                files,
                ..ConfigFiles::default()
            };
            let encoded = hostile.encode().unwrap();
            assert!(ConfigFiles::decode(&encoded).is_err(), "{name}");
        }
    }
}
