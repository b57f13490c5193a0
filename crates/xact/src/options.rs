//! How a space is made and opened.

use std::fmt;
use std::time::Duration;

use crate::address::{ALIGNMENT, END};
use crate::allocator::RESERVED_BYTES;
use crate::error::{Error, Result};
use crate::guard::Guards;
use crate::header::Header;
use crate::mode::{Durability, Mode};
use crate::page::{PAGE_BYTES, page_of};
use crate::places::PAGES_MAX;
use crate::region::FRAMES_MAX;
use crate::root_page::{self, Layout};

/// How a space is made and opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) mode: Option<Mode>,
    pub(crate) durability: Option<Durability>,
    pub(crate) pages: u64,
    /// At least so many; 0 if that is left as it is.
    pub(crate) grown_pages: u64,
    /// So many have places in the file.
    pub(crate) room: Option<u64>,
    pub(crate) address: Option<u64>,
    pub(crate) layout: Option<Layout>,
    pub(crate) checksums: bool,
    pub(crate) log_bytes: u64,
    pub(crate) frames: u64,
    pub(crate) spill: u64,
    pub(crate) patience: Duration,
    pub(crate) backoff: bool,
    pub(crate) userfault: bool,
    pub(crate) guards: Guards,
}

/// The size of a new space unless another is chosen, in bytes. It takes up disk space only where something was written.
pub const SPACE_BYTES_DEFAULT: u64 = 16 << 30;
pub(crate) const NO_ADDRESS: &str =
    "in a mode with plain memory its address is a multiple of 4 GiB, and it ends below 128 TiB";
/// A space can become so many times as large while it is in use, unless another size is chosen.
const RESERVE: u64 = 16;
/// The size of a new log unless another is chosen, in bytes.
pub const LOG_BYTES_DEFAULT: u64 = 64 << 20;
/// The memory for versions that are not in the file yet unless another is chosen, in bytes.
pub const VERSIONS_BYTES_DEFAULT: u64 = 16 << 20;
/// The room on the disk for further versions unless another is chosen, in bytes. It is taken when it is needed.
pub const SPILL_BYTES_DEFAULT: u64 = 256 << 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            mode: None,
            durability: None,
            pages: SPACE_BYTES_DEFAULT / PAGE_BYTES as u64,
            grown_pages: 0,
            room: None,
            address: None,
            layout: None,
            checksums: true,
            log_bytes: LOG_BYTES_DEFAULT,
            frames: VERSIONS_BYTES_DEFAULT / PAGE_BYTES as u64,
            spill: SPILL_BYTES_DEFAULT / PAGE_BYTES as u64,
            patience: Duration::from_secs(10),
            backoff: true,
            userfault: true,
            guards: Guards::default(),
        }
    }
}

impl Options {
    /// The space as it was made; if it is not there a durable one in explicit mode is made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a space that is not there is made.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The mode: of a new space, which is [`Mode::Explicit`] otherwise. One that was made in another mode is not opened
    /// ([`Error::MadeOtherwise`]); [`Space::mode`](crate::Space::mode) tells it to the one that asks for none.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// The durability: of a new space, which is [`Durability::Durable`] otherwise. One that was made with another is
    /// not opened, as with [`Options::mode`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// What the program stores in the space, and in which version of its form: a name of 1 to
    /// [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes. A new space is said to hold that; one that holds something
    /// else, or does not say what it holds, is not opened ([`Error::OtherLayout`]). Who asks for no layout gets any: so
    /// a program that knows older versions looks at [`Transaction::layout`](crate::Transaction::layout), and changes it
    /// with what it stores.
    pub fn layout(mut self, name: &str, version: u64) -> Self {
        let name = name.to_owned();
        self.layout = Some(Layout { name, version });
        self
    }

    /// Whether the pages of a new space have checksums; they do by default. A page in the file is verified when a
    /// process first looks at it, and by [`Space::check`](crate::Space::check). They take up four bytes for each page
    /// that was written, in the file and in the log.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// The size of a new space in bytes, up to 16 TiB less 16 GiB. Disk space is taken up only where something was
    /// written; the address range is reserved in each process, and in the modes with plain memory for each transaction
    /// that runs at the same time.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.pages = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// Makes a space that is smaller so large, in bytes, when it is opened. While another process has it open that is
    /// possible up to what [`Options::reserve_bytes`] says, and [`Error::InUse`] beyond. Nothing is ever made smaller.
    pub fn grow_to(mut self, bytes: u64) -> Self {
        self.grown_pages = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// The size in bytes up to which a space can grow while it is in use, of one that is new or grows beyond what it
    /// had: by default 16 times its size. It takes up addresses in each process, twice, and no room on the disk.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.room = Some(bytes.div_ceil(PAGE_BYTES as u64));
        self
    }

    /// For how many pages a space of so many has places.
    pub(crate) fn room(&self, pages: u64) -> u64 {
        let room = self.room.unwrap_or(pages.saturating_mul(RESERVE));
        room.min(PAGES_MAX).max(pages)
    }

    /// Where the plain memory of a new space is, in every process and at any time, so that pointers into the space can
    /// be stored in it: a multiple of 4 GiB, such as `0x2000_0000_0000`, from which on nothing is for as many bytes as
    /// [`Options::reserve_bytes`] says. One that is there already knows its address, and is not opened at another one.
    ///
    /// One process opens such a space once, and its transactions take turns, those that only read as well: one that
    /// begins waits as long as [`Options::patience`] says ([`Error::AddressTaken`]).
    pub fn address(mut self, address: u64) -> Self {
        self.address = Some(address);
        self
    }

    /// The size of a new log in bytes. A larger one is recycled less often and takes longer to read back after a crash.
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// The memory for versions of pages that are not in the file yet, in bytes; rounded up to a power of two. It holds
    /// what is committed while a transaction runs that must not see it, until that is too much, see
    /// [`Options::spill_bytes`]. The first process to open the space decides.
    pub fn versions_bytes(mut self, bytes: u64) -> Self {
        self.frames = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// The room in the file `lock` for versions beyond [`Options::versions_bytes`], in bytes; rounded up to a power of
    /// two, or 0. It is taken when a transaction has run for so long that they do not fit into memory, and given back
    /// when nobody has the space open any more. Together with the size of the log it says how much can be committed
    /// while a transaction runs, however long. The first process to open the space decides.
    pub fn spill_bytes(mut self, bytes: u64) -> Self {
        self.spill = bytes.div_ceil(PAGE_BYTES as u64);
        self
    }

    /// The numbers of frames: in memory, and on the disk.
    pub(crate) fn frames(&self) -> (u64, u64) {
        let spill = match self.spill {
            0 => 0,
            spill => spill.next_power_of_two(),
        };
        (self.frames.next_power_of_two(), spill)
    }

    /// How long a commit waits for another transaction that keeps old versions from being given up, before it fails
    /// with [`Error::Pinned`], and for one that goes first, or is in the middle of a commit or of bringing versions
    /// into the file, before it fails with [`Error::Stalled`]. 10 seconds by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether a transaction that has lost waits, before it tries again, for older ones that have lost too and that it
    /// would have to make way for after its work. It does by default.
    pub fn backoff(mut self, backoff: bool) -> Self {
        self.backoff = backoff;
        self
    }

    /// Whether mode tracked may learn of accesses with userfaultfd(2), where the system allows that; otherwise it
    /// protects pages. Yes by default.
    #[must_use]
    pub fn userfault(mut self, userfault: bool) -> Self {
        self.userfault = userfault;
        self
    }

    /// Refuses a space that was made otherwise than it is asked for.
    pub(crate) fn check_made(&self, header: &Header) -> Result<()> {
        let differs = |what, made: &dyn fmt::Display, asked: &dyn fmt::Display| {
            let (made, asked) = (made.to_string(), asked.to_string());
            Err(Error::MadeOtherwise { what, made, asked })
        };
        let (mode, durability, address) = (header.mode, header.durability, header.address);
        if let Some(asked) = self.mode.filter(|asked| *asked != mode) {
            return differs("mode", &mode.name(), &asked.name());
        }
        if let Some(asked) = self.durability.filter(|asked| *asked != durability) {
            return differs("durability", &durability.name(), &asked.name());
        }
        if let Some(asked) = self.address.filter(|asked| *asked != address) {
            let at = |address| format!("{address:#x}");
            return differs("address", &at(address), &at(asked));
        }
        Ok(())
    }

    fn is_address(&self, address: u64) -> bool {
        let bytes = self.room(self.pages.max(self.grown_pages)) * PAGE_BYTES as u64;
        address != 0
            && address.is_multiple_of(ALIGNMENT)
            && address.saturating_add(bytes) <= END
            && self.mode != Some(Mode::Explicit)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(layout) = &self.layout {
            root_page::check_name(&layout.name)?;
        }
        if self.pages <= page_of(RESERVED_BYTES) || self.pages.max(self.grown_pages) > PAGES_MAX {
            Err(Error::BadOptions(
                "it has more than the 72 KiB that its allocator takes up, and at most 16 TiB less 16 GiB",
            ))
        } else if self.frames == 0 || self.frames > FRAMES_MAX {
            Err(Error::BadOptions(
                "versions take up 1 byte to 16 GiB of memory",
            ))
        } else if self.spill > FRAMES_MAX {
            Err(Error::BadOptions(
                "versions take up at most 16 GiB of the disk",
            ))
        } else if self.log_bytes > sapwood_wal::LOG_BYTES_MAX {
            Err(Error::BadOptions("the log has at most 1 TiB"))
        } else if let Some(address) = self.address
            && !self.is_address(address)
        {
            Err(Error::BadOptions(NO_ADDRESS))
        } else {
            Ok(())
        }
    }
}
