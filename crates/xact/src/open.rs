//! Opening a space: who is first recovers, everybody else joins.
//!
//! ```text
//!  lock        the lock region; locks on its bytes tell who lives, see `sapwood_wal::process`
//!  data        two header pages, then the pages of the space
//!  log.*       the log
//!  large       the pages of a transaction too large for the log, while it is being committed
//! ```
//!
//! Everything here happens while the lock file's opening byte is held, so one process at a time looks around. If no
//! process has the space open, the lock region is of no value, whatever it holds: it is made anew.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use sapwood_wal::process::{LockFile, Membership};
use sapwood_wal::storage::{
    File, Folder, Identity, Map, OpenMode, PRIVATE_PERMISSIONS, Storage, creating_with,
};
use sapwood_wal::{LogId, Position, Wal};

use crate::address::AddressRange;
use crate::error::{Doing, Error, Result};
use crate::grow::grow;
use crate::guard::{Guard, Guards};
use crate::header::{Header, check_length, newest, read_headers, write_header};
use crate::inner::Inner;
use crate::mode::{Durability, Mode};
use crate::options::{NO_ADDRESS, Options};
use crate::page::PAGE_BYTES;
use crate::page_writer::PageWriter;
use crate::places::{HEADER_PAGES, sum_pages};
use crate::recovery;
use crate::region::Region;
use crate::step::step;
use crate::sums::Verified;

const LOCK_NAME: &str = "lock";
pub(crate) const DATA_NAME: &str = "data";
const NEW_DATA_NAME: &str = "data.new";
const LOG_NAME: &str = "log";
const LOG_SEGMENTS: u32 = 8;

pub(crate) fn open(path: &Path, options: &Options) -> Result<Inner> {
    options.check()?;
    if options.create {
        create_folder(path)?;
    }
    let folder = Folder::open(path).doing("cannot open the folder of the space")?;
    let storage: Arc<dyn Storage> = Arc::new(folder);
    if !options.create {
        // No trace in a folder that is no space.
        storage
            .open(DATA_NAME, OpenMode::Read)
            .doing("cannot open the space")?;
    }
    // It holds pages of the space, so it is as private as the data file.
    let mut how = creating_with(PRIVATE_PERMISSIONS);
    how.read(true).write(true).create(true).truncate(false);
    let opening = "cannot open the lock file";
    let file = how.open(path.join(LOCK_NAME)).doing(opening)?;
    let locks = LockFile::new(file.try_clone().doing(opening)?);
    locks.lock_opening().doing(opening)?;
    let opened = if locks.is_in_use().doing(opening)? {
        join(&storage, Arc::new(Region::join(&file)?), options)?
    } else {
        let (frames, spill) = options.frames();
        let region = Region::create(&file, frames, spill)?;
        start(&storage, Arc::new(region), options)?
    };
    let region = opened.region.clone();
    let membership = Membership::join(locks, &region.processes[..], |index| {
        region.slots.free_of(index);
        !region.is_owner(index)
    })
    .doing(opening)?
    .ok_or(Error::ProcessesFull)?;
    let inner = opened.into_inner(storage, membership, options);
    inner.membership.unlock_opening();
    // Others may have it open.
    inner.grow(options.grown_pages)?;
    Ok(inner)
}

pub(crate) fn open_storage(storage: Arc<dyn Storage>, options: &Options) -> Result<Inner> {
    options.check()?;
    let (frames, spill) = options.frames();
    let region = Region::private(frames, spill)?;
    let opened = start(&storage, Arc::new(region), options)?;
    let membership = Membership::alone(&opened.region.processes[..]);
    Ok(opened.into_inner(storage, membership, options))
}

pub(crate) fn create_folder(path: &Path) -> Result<()> {
    let made = Folder::create(path).map(drop);
    made.doing("cannot make the folder of the space")
}

struct Opened {
    region: Arc<Region>,
    /// The addresses of a space that has its own.
    addresses: Option<AddressRange>,
    data: Arc<dyn File>,
    map: Map,
    wal: Wal,
    header: Header,
    identity: Identity,
}

impl Opened {
    fn into_inner(
        self,
        storage: Arc<dyn Storage>,
        membership: Membership,
        options: &Options,
    ) -> Inner {
        let membership = Arc::new(membership);
        let (members, shared) = (membership.clone(), self.region.clone());
        self.wal.share_buffer(
            self.region.clone(),
            false,
            membership.index(),
            move |process| members.is_alive(process, &shared.processes[..]),
        );
        Inner {
            region: self.region,
            membership,
            storage,
            writer: PageWriter::new(self.data.clone(), &self.header),
            verified: Verified::new(self.header.pages, self.header.has_sums),
            data: self.data,
            map: self.map,
            wal: self.wal,
            id: self.header.id,
            identity: self.identity,
            pages: self.header.pages,
            mode: self.header.mode,
            durability: self.header.durability,
            options: options.clone(),
            address: self.header.address,
            addresses: self.addresses,
        }
    }
}

/// Opens the files as the first one, and fills the region.
fn start(storage: &Arc<dyn Storage>, region: Arc<Region>, options: &Options) -> Result<Opened> {
    let opening = "cannot open the data file";
    let data = match storage.open(DATA_NAME, OpenMode::Write) {
        Err(error) if error.kind() == ErrorKind::NotFound && options.create => {
            create(storage, options)?;
            storage.open(DATA_NAME, OpenMode::Write).doing(opening)?
        }
        result => result.doing(opening)?,
    };
    let mut headers = read_headers(&*data)?;
    let header = newest(&headers)?;
    options.check_made(header)?;
    let (size, room) = (options.grown_pages, options.room(options.grown_pages));
    // Before it has become too large for them.
    let addresses = take_addresses(header, if size > header.pages { room } else { 0 })?;
    grow(&*data, &mut headers, size, room, options.guards)?;
    let header = *newest(&headers)?;
    let map = map(&*data, &header)?;
    let wal = Wal::open(storage, LOG_NAME, OpenMode::Write, region.clone())?;
    recovery::recover(&**storage, &*data, &wal, &headers, &region, options.guards)?;
    Ok(Opened {
        region,
        addresses,
        identity: identity_of(&*data)?,
        data,
        map,
        wal,
        header,
    })
}

/// Takes the addresses of a space that is always at the same ones, for so many pages at least.
fn take_addresses(header: &Header, room: u64) -> Result<Option<AddressRange>> {
    // It grows by as much as its checksums take, at least.
    let pages = match room {
        0 => header.pages,
        _ => room.max(header.pages + sum_pages(header.pages)),
    };
    let bytes = pages as usize * PAGE_BYTES;
    let has_address = header.address != 0;
    has_address
        .then(|| AddressRange::take(header.address, bytes))
        .transpose()
}

fn identity_of(data: &dyn File) -> Result<Identity> {
    data.identity().doing("cannot look at the data file")
}

/// Opens the files of a space that others have open.
fn join(storage: &Arc<dyn Storage>, region: Arc<Region>, options: &Options) -> Result<Opened> {
    let data = storage
        .open(DATA_NAME, OpenMode::Write)
        .doing("cannot open the data file")?;
    // One of them may be under the pen of a checkpoint, but both say what does not change.
    let headers = read_headers(&*data)?;
    let header = *newest(&headers)?;
    options.check_made(&header)?;
    if header.pages < options.grown_pages {
        let bytes = header.pages * PAGE_BYTES as u64;
        return Err(Error::InUse { bytes });
    }
    if header.pages != region.pages() {
        return Err(Error::Damaged(
            "the lock region belongs to a space of another size".into(),
        ));
    }
    let addresses = take_addresses(&header, 0)?;
    let map = map(&*data, &header)?;
    let wal = Wal::open(storage, LOG_NAME, OpenMode::Write, region.clone())?;
    if wal.id() != LogId(header.id) {
        return Err(Error::Damaged("the log belongs to another space".into()));
    }
    Ok(Opened {
        region,
        addresses,
        identity: identity_of(&*data)?,
        data,
        map,
        wal,
        header,
    })
}

fn map(data: &dyn File, header: &Header) -> Result<Map> {
    check_length(data, header)?;
    let length = usize::try_from(header.file_bytes()).unwrap_or(usize::MAX);
    let map = data.map(length).doing("cannot map the data file")?;
    map.expect_jumps();
    Ok(map)
}

/// Makes an empty space.
fn create(storage: &Arc<dyn Storage>, options: &Options) -> Result<()> {
    let mode = options.mode.unwrap_or(Mode::Explicit);
    if mode == Mode::Explicit && options.address.is_some() {
        return Err(Error::BadOptions(NO_ADDRESS));
    }
    let size = options.pages.max(options.grown_pages);
    let header = Header {
        id: new_id()?,
        pages: options.room(size),
        reserve: options.room(size) - size,
        address: options.address.unwrap_or(0),
        replay_from: Position::START,
        mode,
        durability: options.durability.unwrap_or(Durability::Durable),
        has_sums: options.checksums,
        grown_from: 0,
        number: 0,
    };
    create_files(storage, &header, options.log_bytes, options.guards, |_| {
        Ok(())
    })
}

/// Makes the files of a space whose pages are what is written to them then. Its data file gets its name last: if that
/// is there, everything is.
pub(crate) fn create_files(
    storage: &Arc<dyn Storage>,
    header: &Header,
    log_bytes: u64,
    guards: Guards,
    write_pages: impl FnOnce(&dyn File) -> Result<()>,
) -> Result<()> {
    let making = "cannot make the data file";
    remove_files(&**storage)?;
    let segment_bytes = (log_bytes / u64::from(LOG_SEGMENTS)).max(2 * PAGE_BYTES as u64);
    let shape = sapwood_wal::Options {
        segment_bytes: segment_bytes.next_multiple_of(PAGE_BYTES as u64),
        segments: LOG_SEGMENTS,
    };
    Wal::create(storage, LOG_NAME, LogId(header.id), &shape)?;
    step();
    let file = storage
        .open(NEW_DATA_NAME, OpenMode::CreateNew)
        .doing(making)?;
    file.allocate(0, HEADER_PAGES * PAGE_BYTES as u64)
        .and_then(|()| file.set_size(header.file_bytes()))
        .and_then(|()| (0..HEADER_PAGES).try_for_each(|place| write_header(&*file, place, header)))
        .doing(making)?;
    step();
    write_pages(&*file)?;
    let named = || {
        if guards.has(Guard::SyncNewSpace) {
            file.sync_data()?;
        }
        step();
        storage.rename(NEW_DATA_NAME, DATA_NAME)?;
        step();
        storage.sync_names()
    };
    named().doing(making)
}

/// Removes what is left of a space that was not made to the end.
pub(crate) fn remove_files(storage: &dyn Storage) -> Result<()> {
    Wal::remove(storage, LOG_NAME)?;
    match storage.remove(NEW_DATA_NAME) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).doing("cannot remove what is left of a new space")
        }
        _ => Ok(()),
    }
}

pub(crate) fn new_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    // So few bytes come at once.
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .doing("cannot make up an id")?;
    Ok(id)
}
