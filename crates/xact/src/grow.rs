//! Making a space larger. Up to the pages that have a place in the file that takes no more than both headers saying so,
//! and can be done while the space is in use: each transaction has the size that it finds when it begins. (It is done
//! by `maintenance`, whose headers they are.) Beyond that it is done by the first process that opens the space, before
//! the log is looked at.
//!
//! The checksums of the pages stand behind them (`sums`), so they have to move:
//!
//! ```text
//!  before   headers | pages     | sums
//!  after    headers | pages     | further pages, the first of which held the sums | sums, those of further pages 0
//! ```
//!
//! 1. The file is made longer, and the sums are copied to where they will be. Nobody looks there yet.
//! 2. Both headers say how many pages there are now, and that it has grown. Each is synced before the next step.
//! 3. Where the sums were is filled with zeros, and synced.
//! 4. A header says that all is done.
//!
//! A crash before 2 leaves the old space, and one after it step 3, which may be done any number of times: as long as
//! the headers say so nothing was brought into the pages there but what the log still holds. What the log holds names
//! pages, not places in the file.

use std::ops::Range;

use sapwood_wal::storage::File;

use crate::error::{Doing, Error, Result};
use crate::guard::{Guard, Guards};
use crate::header::{Header, check_length, newest, write_header};
use crate::page::PAGE_BYTES;
use crate::places::{PAGES_MAX, offset_in_file, sum_pages};
use crate::step::step;
use crate::sums::extents;

const GROWING: &str = "cannot make the data file larger";
const COPIED_BYTES: usize = 64 << 10;

/// Completes what was interrupted, and makes the space so large unless it is larger, with places for `room` pages at
/// least if the file has too few.
pub(crate) fn grow(
    data: &dyn File,
    headers: &mut [Option<Header>; 2],
    size: u64,
    room: u64,
    guards: Guards,
) -> Result<()> {
    let header = *newest(headers)?;
    check_length(data, &header)?;
    if header.grown_from != 0 {
        finish(data, headers, guards)?;
    }
    if size <= header.size() {
        return Ok(());
    }
    let header = *newest(headers)?;
    if size <= header.pages {
        let reserve = header.pages - size;
        // The other one as well: if one is damaged the space is none the smaller.
        for _ in 0..2 {
            put(data, headers, Header { reserve, ..header }, guards)?;
        }
        return Ok(());
    }
    let sums = if header.has_sums {
        sum_pages(header.pages)
    } else {
        0
    };
    // The sums are not copied to where they are.
    let pages = room.max(size).max(header.pages + sums);
    if pages > PAGES_MAX {
        return Err(Error::BadOptions("it has at most 16 TiB less 16 GiB"));
    }
    let grown = Header {
        pages,
        reserve: pages - size,
        grown_from: if header.has_sums { header.pages } else { 0 },
        ..header
    };
    // An attempt before this one may have left something behind the space.
    data.set_size(header.file_bytes())
        .and_then(|()| data.set_size(grown.file_bytes()))
        .doing(GROWING)?;
    step();
    let (from, to) = (offset_in_file(header.pages), offset_in_file(pages));
    each_part(data, from..from + sums * PAGE_BYTES as u64, |at, part| {
        data.write_all_at(part, at - from + to)?;
        step();
        Ok(())
    })?;
    if guards.has(Guard::SyncMovedSums) {
        data.sync_data().doing(GROWING)?;
    }
    // Both, as above.
    for _ in 0..2 {
        put(data, headers, grown, guards)?;
    }
    match grown.grown_from {
        0 => Ok(()),
        _ => finish(data, headers, guards),
    }
}

/// Fills with zeros where the sums were.
fn finish(data: &dyn File, headers: &mut [Option<Header>; 2], guards: Guards) -> Result<()> {
    let header = *newest(headers)?;
    let sums = offset_in_file(header.grown_from)
        ..offset_in_file(header.grown_from + sum_pages(header.grown_from));
    each_part(data, sums, |at, part| {
        part.fill(0);
        data.write_all_at(part, at)?;
        step();
        Ok(())
    })?;
    data.sync_data().doing(GROWING)?;
    let grown_from = 0;
    put(
        data,
        headers,
        Header {
            grown_from,
            ..header
        },
        guards,
    )
}

/// Writes a header in place of the older one.
fn put(
    data: &dyn File,
    headers: &mut [Option<Header>; 2],
    header: Header,
    guards: Guards,
) -> Result<()> {
    let number = newest(headers)?.number;
    let is_newest = |header: &Option<Header>| header.is_some_and(|header| header.number == number);
    let place = usize::from(is_newest(&headers[0]));
    let header = Header {
        number: number + 1,
        ..header
    };
    write_header(data, place as u64, &header).doing(GROWING)?;
    step();
    if guards.has(Guard::SyncGrownHeader) {
        data.sync_data().doing(GROWING)?;
    }
    headers[place] = Some(header);
    step();
    Ok(())
}

/// Goes through the parts of a range of the file that hold something.
fn each_part(
    data: &dyn File,
    range: Range<u64>,
    mut act: impl FnMut(u64, &mut [u8]) -> std::io::Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; COPIED_BYTES];
    for extent in extents(data, range) {
        let mut at = extent.start;
        while at < extent.end {
            let bytes = (extent.end - at).min(COPIED_BYTES as u64) as usize;
            let part = &mut buffer[..bytes];
            data.read_exact_at(part, at)
                .and_then(|()| act(at, part))
                .doing(GROWING)?;
            at += bytes as u64;
        }
    }
    Ok(())
}
