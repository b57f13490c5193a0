//! The file of a journal, which is put aside when it is large or old, and of which so many are kept.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// When a file is put aside, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Before it has more bytes; what is written at once is never divided.
    pub(crate) bytes_max: u64,
    /// When it was begun so long ago; never without it.
    pub(crate) age_max: Option<Duration>,
    /// Files that were put aside, of which the oldest are removed.
    pub(crate) files_max: usize,
}

/// The file.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    bytes: u64,
    began: SystemTime,
    /// What was written last has no end of line.
    is_within_line: bool,
}

impl JournalFile {
    /// Opens it, or makes one that only its owner reads.
    pub(super) fn open(
        path: PathBuf,
        rotation: Rotation,
        now: SystemTime,
    ) -> io::Result<JournalFile> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)?;
        let metadata = file.metadata()?;
        let began = match metadata.len() {
            0 => now,
            // Not all file systems know when a file was made.
            _ => metadata.created().or_else(|_| metadata.modified())?,
        };
        Ok(JournalFile {
            path,
            rotation,
            file,
            bytes: metadata.len(),
            began,
            is_within_line: false,
        })
    }

    /// Appends whole lines; what could not be is left of them.
    pub(super) fn append(&mut self, lines: &mut &[u8], now: SystemTime) -> io::Result<()> {
        if !self.is_in_place()? {
            // Others have put it aside.
            self.begin(now)?;
        }
        if self.bytes > 0 && self.is_done(lines.len() as u64, now) {
            self.put_aside(now)?;
        }
        if self.is_within_line {
            self.write(&mut b"\n".as_slice())?;
        }
        self.write(lines)
    }

    fn write(&mut self, lines: &mut &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            let written = match self.file.write(lines) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (written, rest) = lines.split_at(written);
            self.bytes += written.len() as u64;
            self.is_within_line = written.last() != Some(&b'\n');
            *lines = rest;
        }
        Ok(())
    }

    /// Has what was written be on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether the file is still the one that its path names.
    fn is_in_place(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it is to be put aside before it has so many bytes more.
    fn is_done(&self, more: u64, now: SystemTime) -> bool {
        let age = now.duration_since(self.began).unwrap_or_default();
        self.bytes.saturating_add(more) > self.rotation.bytes_max
            || self.rotation.age_max.is_some_and(|age_max| age >= age_max)
    }

    fn put_aside(&mut self, now: SystemTime) -> io::Result<()> {
        self.sync()?;
        fs::rename(&self.path, self.name_aside(now)?)?;
        self.begin(now)?;
        self.remove_oldest()
    }

    /// Goes on in a file of the same name.
    fn begin(&mut self, now: SystemTime) -> io::Result<()> {
        *self = JournalFile::open(self.path.clone(), self.rotation, now)?;
        Ok(())
    }

    /// A name for the file that nothing has: its own and the time, in an order that is that of time.
    fn name_aside(&self, now: SystemTime) -> io::Result<PathBuf> {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let stamp = sapwood_ldap::time::generalized_time(micros);
        for number in 0..1000 {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{stamp}-{number:03}"));
            let name = PathBuf::from(name);
            if !fs::exists(&name)? {
                return Ok(name);
            }
        }
        Err(io::Error::other(
            "too many files were put aside in one second",
        ))
    }

    /// Removes the oldest of those that were put aside.
    fn remove_oldest(&self) -> io::Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let own = self.path.file_name().unwrap_or_default();
        let mut aside: Vec<OsString> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            if is_aside(own, &name) {
                aside.push(name);
            }
        }
        aside.sort_unstable();
        let unwanted = aside.len().saturating_sub(self.rotation.files_max);
        for name in aside.iter().take(unwanted) {
            fs::remove_file(folder.join(name))?;
        }
        Ok(())
    }
}

/// Whether a name is what [`JournalFile::name_aside`] makes of another one.
fn is_aside(own: &OsStr, name: &OsStr) -> bool {
    let (own, name) = (own.as_encoded_bytes(), name.as_encoded_bytes());
    let Some([b'.', stamp @ ..]) = name.strip_prefix(own) else {
        return false;
    };
    let form = b"00000000000000Z-000";
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    };
    stamp.len() == form.len() && stamp.iter().zip(form).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// What the files in a folder have, by their names.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder).unwrap();
        let mut files: Vec<(String, String)> = entries
            .map(|entry| {
                let entry = entry.unwrap();
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_file_is_put_aside_by_size_and_age_and_the_oldest_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let rotation = Rotation {
            bytes_max: 8,
            age_max: Some(Duration::from_secs(60)),
            files_max: 2,
        };
        fs::write(folder.path().join("a.log.old"), "kept").unwrap();
        let mut file = JournalFile::open(path.clone(), rotation, at(0)).unwrap();
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut put = |line: &str, now| file.append(&mut line.as_bytes(), now).unwrap();
        put("one\n", at(0));
        put("two\n", at(59));
        assert_eq!(
            files(folder.path())[0],
            ("a.log".into(), "one\ntwo\n".into())
        );
        // It would have more bytes.
        put("three\n", at(59));
        // It is old.
        put("4\n", at(119));
        put("more than eight\n", at(120));
        put("5\n", at(120));
        let aside = |time: &str, number, text: &str| {
            (format!("a.log.{time}Z-{number:03}"), text.to_owned())
        };
        assert_eq!(
            files(folder.path()),
            [
                ("a.log".into(), "5\n".into()),
                aside("19700101000200", 0, "4\n"),
                aside("19700101000200", 1, "more than eight\n"),
                ("a.log.old".into(), "kept".into()),
            ]
        );
    }

    #[test]
    fn a_file_goes_on_and_follows_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let rotation = Rotation {
            bytes_max: 100,
            age_max: None,
            files_max: 1,
        };
        fs::write(&path, "before\n").unwrap();
        let mut file = JournalFile::open(path.clone(), rotation, at(0)).unwrap();
        let mut put = |line: &str| file.append(&mut line.as_bytes(), at(0)).unwrap();
        put("one\n");
        fs::rename(&path, folder.path().join("moved")).unwrap();
        put("two\n");
        put("half");
        put("three\n");
        let expected = [
            ("a.log".to_owned(), "two\nhalf\nthree\n".to_owned()),
            ("moved".to_owned(), "before\none\n".to_owned()),
        ];
        assert_eq!(files(folder.path()), expected);
    }
}
