//! Recovery: the newest header, and what the log holds behind its position.
//!
//! A page in the file may come from any moment between the header's position and the end of the log, or from several,
//! sector by sector. Replay goes over all of it: whatever a record says a granule holds, it holds when the last such
//! record was applied, and what no record speaks of has not changed. So it may also be interrupted, and is begun anew
//! then.
//!
//! Where the disk is full, pages that have no room in the file go into frames, as they were when the space was open
//! before. They are brought into the file when it has room again, and the log is kept until then.

use std::collections::BTreeMap;

use sapwood_wal::storage::{File, Storage};
use sapwood_wal::sync::Ordering;
use sapwood_wal::{LogId, Position, Wal};

use crate::error::{Doing, Error, Result};
use crate::guard::{Guard, Guards};
use crate::header::{Header, newest, write_header};
use crate::large_file;
use crate::page::{PAGE_BYTES, PageBytes};
use crate::places::{HEADER_PAGES, offset_in_file};
use crate::record::{PageChange, Pages, Record};
use crate::region::Region;
use crate::region::versions::NewVersion;
use crate::step::step;
use crate::sums::SumWriter;

/// Brings the data file to the newest commit in the log, starts the log, and fills the region.
pub(crate) fn recover(
    storage: &dyn Storage,
    data: &dyn File,
    wal: &Wal,
    headers: &[Option<Header>; 2],
    region: &Region,
    guards: Guards,
) -> Result<()> {
    let header = newest(headers)?;
    if wal.id() != LogId(header.id) || headers.iter().flatten().any(|other| other.id != header.id) {
        return Err(Error::Damaged("the log belongs to another space".into()));
    }
    wal.check_reaches(header.replay_from.lsn, 0)?;
    let mut records = wal.records(header.replay_from)?;
    while records.next()?.is_some() {}
    let last = records.position();
    // Once more: after a failed sync the system may take for clean what never reached the disk.
    for (place, header) in (0..).zip(headers) {
        if let Some(header) = header {
            write_header(data, place, header).doing("cannot write the header")?;
        }
    }
    data.sync_data().doing("cannot sync the data file")?;
    // What is applied must be in the log for good, or a power cut now could leave a part of it.
    wal.start(header.replay_from.lsn, &records)?;
    drop(records);
    let mut homeless = Homeless::default();
    let has_large = replay(storage, data, wal, header, last, guards, &mut homeless)?;
    let mut header = *header;
    let place = u64::from(headers[1].is_some_and(|other| other == header));
    // The number says which page it is in, also in files where it did not.
    header.number += (header.number + place) % HEADER_PAGES;
    if has_large && !homeless.pages.is_empty() {
        // Its file would have to be kept, and its pages have room: it was made before the commit.
        return homeless.refuse();
    }
    if has_large {
        // Its file is needed no longer.
        header.number += 1;
        header.replay_from = last;
        data.sync_data()
            .and_then(|()| write_header(data, header.number % HEADER_PAGES, &header))
            .and_then(|()| data.sync_data())
            .doing("cannot write the header")?;
        wal.recycle_before(last.lsn);
    }
    // Also one that somebody has left who died before the commit, or after others had made an end to it.
    large_file::remove(storage)?;
    let progress = &region.progress;
    let from = header.replay_from.lsn.0;
    progress.checkpoint.store(from, Ordering::SeqCst);
    progress.header.store(header.number, Ordering::SeqCst);
    if homeless.pages.is_empty() {
        region.start(header.pages, header.size(), last, last);
        return Ok(());
    }
    if homeless.pages.len() as u64 > region.frames() {
        return homeless.refuse();
    }
    let versions = homeless
        .pages
        .iter()
        .map(|(page, (sum, bytes))| NewVersion {
            page: *page,
            mask: u64::MAX,
            sum: *sum,
            bytes,
        });
    region.publish(last.lsn.0, guards, versions);
    region.start(header.pages, header.size(), last, header.replay_from);
    Ok(())
}

/// Applies what the log holds; gives whether there was something too large for it.
fn replay(
    storage: &dyn Storage,
    data: &dyn File,
    wal: &Wal,
    header: &Header,
    last: Position,
    guards: Guards,
    homeless: &mut Homeless,
) -> Result<bool> {
    let has_sums = header.has_sums && guards.has(Guard::StoreSums);
    let mut has_large = false;
    wal.check_reaches(header.replay_from.lsn, 0)?;
    let mut records = wal.records(header.replay_from)?;
    while records.position().lsn < last.lsn
        && let Some(record) = records.next()?
    {
        match Record::decode(record.payload)? {
            Record::Pages(mut pages) => {
                while let Some(change) = pages.next()? {
                    homeless.apply(data, change, header.pages, has_sums)?;
                }
            }
            Record::Large { checksum, bytes } => {
                let file = large_file::read(storage, checksum, bytes)?;
                apply(data, large_file::pages(&file)?, header.pages, has_sums)?;
                has_large = true;
            }
        }
    }
    Ok(has_large)
}

/// Pages that have no room in the file, with their checksums.
#[derive(Default)]
struct Homeless {
    pages: BTreeMap<u64, (u32, Box<PageBytes>)>,
    error: Option<Error>,
}

impl Homeless {
    /// Makes a change in the file, or to the page here if the file has no room for it.
    fn apply(
        &mut self,
        data: &dyn File,
        change: PageChange<'_>,
        count: u64,
        has_sums: bool,
    ) -> Result<()> {
        if let Some((sum, bytes)) = self.pages.get_mut(&change.page) {
            change.apply(bytes);
            *sum = change.sum;
            return Ok(());
        }
        let mut sums = SumWriter::new(data, count);
        let applied = apply_one(data, change, count, has_sums, &mut sums);
        match applied.and_then(|()| sums.flush()) {
            Err(error) if error.is_full_disk() => {
                let mut bytes = Box::new([0; PAGE_BYTES]);
                data.read_exact_at(&mut bytes[..], offset_in_file(change.page))
                    .doing("cannot read the data file")?;
                change.apply(&mut bytes);
                self.pages.insert(change.page, (change.sum, bytes));
                self.error = Some(error);
                Ok(())
            }
            result => result,
        }
    }

    fn refuse(self) -> Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

/// Writes the pages of a record into the file of a space with so many pages, and their checksums if it has any.
pub(crate) fn apply(
    data: &dyn File,
    mut pages: Pages<'_>,
    count: u64,
    has_sums: bool,
) -> Result<()> {
    let mut sums = SumWriter::new(data, count);
    while let Some(change) = pages.next()? {
        apply_one(data, change, count, has_sums, &mut sums)?;
    }
    sums.flush()
}

fn apply_one(
    data: &dyn File,
    change: PageChange<'_>,
    count: u64,
    has_sums: bool,
    sums: &mut SumWriter<'_>,
) -> Result<()> {
    if change.page >= count {
        return Err(Error::Damaged(format!(
            "the log writes to page {} of {count}",
            change.page
        )));
    }
    let at = offset_in_file(change.page);
    for (place, bytes) in change.runs() {
        data.write_all_at(bytes, at + place.start as u64)
            .doing("cannot write to the data file")?;
    }
    if has_sums {
        sums.add(change.page, change.sum)?;
    }
    step();
    Ok(())
}
