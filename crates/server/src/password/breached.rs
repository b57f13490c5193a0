//! Passwords that are known from breaches: a file of lines `SHA1:count`, sorted, as they are published. The hashes are
//! in hexadecimal, and the counts are not read. A password is looked up in the file itself, by halving, so that its
//! size does not matter and one that takes its place counts at once.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha1::{Digest, Sha1};

/// Hexadecimal digits of a hash.
const DIGITS: usize = 40;
/// Bytes of a line at most, its end included.
const LINE_BYTES_MAX: usize = 128;

/// Whether a file has a password.
///
/// # Errors
/// When it cannot be read, or is no such file where it was looked at.
pub(super) fn contains(path: &Path, password: &[u8]) -> io::Result<bool> {
    let hash: [u8; 20] = Sha1::digest(password).into();
    let wanted: String = hash.iter().map(|byte| format!("{byte:02X}")).collect();
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    // If there is a line of it, it begins between these. The first is where a line begins.
    let (mut first, mut end) = (0, length);
    while first < end {
        let middle = first + (end - first) / 2;
        let begin = match middle == first {
            true => first,
            false => next_line(&file, middle - 1)?,
        };
        if begin >= end {
            end = middle;
            continue;
        }
        let mut line = [0; LINE_BYTES_MAX];
        let line = read(&file, begin, &mut line)?;
        let hash = line.get(..DIGITS).ok_or_else(no_line)?;
        let hash = hash.to_ascii_uppercase();
        if !hash.iter().all(u8::is_ascii_hexdigit) {
            return Err(no_line());
        }
        match hash.as_slice().cmp(wanted.as_bytes()) {
            Ordering::Equal => return Ok(true),
            Ordering::Less => first = next_line(&file, begin)?,
            Ordering::Greater => end = middle,
        }
    }
    Ok(false)
}

/// Where the line begins that comes after a place, or where the file ends.
fn next_line(file: &File, place: u64) -> io::Result<u64> {
    let mut line = [0; LINE_BYTES_MAX];
    let line = read(file, place, &mut line)?;
    match line.iter().position(|byte| *byte == b'\n') {
        Some(at) => Ok(place + at as u64 + 1),
        None if line.len() < LINE_BYTES_MAX => Ok(place + line.len() as u64),
        None => Err(no_line()),
    }
}

/// Reads as much as there is, up to the length of a buffer.
fn read<'b>(file: &File, place: u64, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], place + length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&buffer[..length])
}

fn no_line() -> io::Error {
    let what = "a line is not a SHA-1 in hexadecimal, a colon and a count";
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(password: &str, rest: &str) -> String {
        let hash: [u8; 20] = Sha1::digest(password).into();
        let hash: String = hash.iter().map(|byte| format!("{byte:02X}")).collect();
        hash + rest
    }

    fn list(lines: &[String]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.concat()).unwrap();
        file
    }

    #[test]
    fn each_line_of_a_list_is_found_and_nothing_else() {
        for count in [0, 1, 2, 3, 7, 64, 501] {
            let rests = [":1\n", ":23456\n", ":7\r\n", "\n"];
            let passwords: Vec<String> = (0..count).map(|n| format!("password {n}")).collect();
            let lines = passwords.iter().zip(rests.iter().cycle());
            let mut lines: Vec<String> = lines.map(|(one, rest)| line(one, rest)).collect();
            lines.sort();
            let file = list(&lines);
            for password in &passwords {
                assert!(
                    contains(file.path(), password.as_bytes()).unwrap(),
                    "{password}"
                );
            }
            for n in 0..50 {
                let other = format!("another {n}");
                assert!(!contains(file.path(), other.as_bytes()).unwrap(), "{other}");
            }
            // In small letters, and without the end of the last line.
            let small = lines.concat().to_ascii_lowercase();
            let file = list(&[small.trim_end().to_owned()]);
            for password in &passwords {
                assert!(
                    contains(file.path(), password.as_bytes()).unwrap(),
                    "{password}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_list_is_told() {
        for content in ["no list\n", &"x".repeat(1000), &"A".repeat(1000)] {
            let file = list(&[content.to_owned()]);
            let error = contains(file.path(), b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{content}");
        }
        assert!(contains(Path::new("/nowhere/list"), b"x").is_err());
    }
}
