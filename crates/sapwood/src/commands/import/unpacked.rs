//! Sources that are compressed by gzip or zstd, read as what is in them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Bytes of a beginning that tell what it is.
const MAGIC_BYTES_MAX: u64 = 4;

/// A reader with what was read of its beginning.
type Seen<R> = Chain<Cursor<Vec<u8>>, R>;

/// A source, which says with its first bytes whether it is compressed.
pub(super) enum Unpacked<R: Read> {
    Unseen(R),
    Plain(Seen<R>),
    /// One member behind the other.
    Gzip(Box<MultiGzDecoder<Seen<R>>>),
    /// A frame, and what is behind it. Its window takes 128 MiB at most.
    Zstd(Box<StreamingDecoder<BufReader<Seen<R>>, FrameDecoder>>),
    Ended,
}

/// Whether a file is compressed. What cannot be read is found out when it is.
pub(super) fn is_packed(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC_BYTES_MAX).read_to_end(&mut start));
    read.is_ok() && (start.starts_with(GZIP) || start.starts_with(ZSTD))
}

fn invalid(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {why}"))
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(reader: R) -> Self {
        Unpacked::Unseen(reader)
    }

    fn see(mut reader: R) -> io::Result<Self> {
        let mut start = Vec::new();
        reader
            .by_ref()
            .take(MAGIC_BYTES_MAX)
            .read_to_end(&mut start)?;
        let (is_gzip, is_zstd) = (start.starts_with(GZIP), start.starts_with(ZSTD));
        let seen = Cursor::new(start).chain(reader);
        if is_gzip {
            return Ok(Unpacked::Gzip(Box::new(MultiGzDecoder::new(seen))));
        }
        match is_zstd {
            true => Unpacked::frame(BufReader::new(seen)),
            false => Ok(Unpacked::Plain(seen)),
        }
    }

    fn frame(reader: BufReader<Seen<R>>) -> io::Result<Self> {
        let frame = StreamingDecoder::new(reader).map_err(invalid)?;
        Ok(Unpacked::Zstd(Box::new(frame)))
    }

    /// What is behind a frame that was read to its end.
    fn behind(frame: StreamingDecoder<BufReader<Seen<R>>, FrameDecoder>) -> io::Result<Self> {
        let (mut rest, decoder) = frame.into_parts();
        let expected = decoder.get_checksum_from_data();
        if expected.is_some() && expected != decoder.get_calculated_checksum() {
            return Err(invalid("the checksum of a frame is wrong"));
        }
        match rest.fill_buf()?.is_empty() {
            true => Ok(Unpacked::Ended),
            false => Unpacked::frame(rest),
        }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Unpacked::Plain(reader) => return reader.read(space),
                Unpacked::Gzip(reader) => return reader.read(space),
                Unpacked::Zstd(frame) => {
                    let read = frame.read(space)?;
                    if read > 0 || space.is_empty() {
                        return Ok(read);
                    }
                }
                Unpacked::Ended => return Ok(0),
                Unpacked::Unseen(_) => {}
            }
            *self = match std::mem::replace(self, Unpacked::Ended) {
                Unpacked::Unseen(reader) => Unpacked::see(reader)?,
                Unpacked::Zstd(frame) => Unpacked::behind(*frame)?,
                other => other,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    #[test]
    fn what_is_compressed_is_read_and_what_is_cut_off_is_told_of() {
        let one = "dn: o=x\n".repeat(50_000);
        let both = format!("{one}o: x\n");
        for text in ["", "d", "dn: o=x\n", &one] {
            assert_eq!(
                io::read_to_string(Unpacked::new(text.as_bytes())).unwrap(),
                text
            );
        }
        for pack in [gzip, zstd] {
            let parts = [pack(&one), pack("o: x\n")].concat();
            assert_eq!(io::read_to_string(Unpacked::new(&parts[..])).unwrap(), both);
            let whole = pack(&one);
            for length in [5, whole.len() / 2, whole.len() - 5] {
                let read = io::read_to_string(Unpacked::new(&whole[..length]));
                assert!(read.is_err(), "{length}");
            }
        }
        // Behind the last frame is nothing else.
        let more = [zstd("o: x\n"), b"dn: ".to_vec()].concat();
        assert!(io::read_to_string(Unpacked::new(&more[..])).is_err());
    }
}
