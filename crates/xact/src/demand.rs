//! Pages of a view that the system asks for one by one, with userfaultfd(2), for mode *tracked*.
//!
//! The view is anonymous memory that holds nothing. The first load or store of a page raises SIGBUS, and the handler
//! fills the page with what the transaction may see. It may be stored to from then on, unless the transaction only
//! reads, so that a page is one fault and not two. The mapping stays in one piece. With mprotect(2) each page would
//! become an area of its own, which the system makes and unmakes, and which is most of what a first touch costs there.
//!
//! What is looked at is copied. A transaction that looks at more than [`PAGES_MAX`] goes on in a view of the file with
//! protected pages. So does everybody where the system does not have it (Linux before 5.11, sandboxes that forbid it).

// System calls that fill memory under the program's loads and stores.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use sapwood_wal::process::fork_count;

use crate::error::{Doing, Error, Result};
use crate::page::{PAGE_BYTES, PageBytes};

/// So many pages are copied for one transaction: 16 MiB.
pub(crate) const PAGES_MAX: usize = 4096;

/// `UFFD_USER_MODE_ONLY`: no rights are needed, and a system call that is given such a page fails.
const USER_MODE_ONLY: i32 = 1;
const VERSION: u64 = 0xaa;
const FEATURE_WRITE_PROTECTED: u64 = 1;
const FEATURE_SIGBUS: u64 = 1 << 7;
const REGISTER_MISSING: u64 = 1;
const REGISTER_WRITE_PROTECTED: u64 = 2;
const COPY_PROTECTED: u64 = 2;
const PROTECTED: u64 = 1;

// As `_IOWR` of linux/ioctl.h makes them, on the processors that `open` is for.
const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const COPY: u64 = 0xc028_aa03;
const PROTECT: u64 = 0xc018_aa06;

/// Memory whose pages are filled when they are first touched.
#[derive(Debug)]
pub(crate) struct Demand {
    descriptor: OwnedFd,
    /// The descriptor fills the memory of this process, also when a child holds it, which must not use it.
    forks: u32,
}

impl Demand {
    /// `None` where the system does not have it or does not allow it.
    pub(crate) fn open() -> Option<Self> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return None;
        }
        // SAFETY: a system call that takes a number.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        let descriptor = i32::try_from(descriptor).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: just opened, and owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let demand = Self {
            descriptor,
            forks: fork_count(),
        };
        let mut api = [VERSION, FEATURE_WRITE_PROTECTED | FEATURE_SIGBUS, 0];
        demand.call(API, &mut api).is_ok().then_some(demand)
    }

    /// Maps empty memory whose pages are asked for: where the system likes, or in place of what is mapped at a place.
    ///
    /// # Safety
    /// What is mapped at the place is the caller's own, of this size, and nothing of it is lent out.
    pub(crate) unsafe fn map(
        &self,
        place: Option<NonNull<u8>>,
        bytes: usize,
    ) -> Result<NonNull<u8>> {
        let fixed = place.map_or(MapFlags::empty(), |_| MapFlags::FIXED);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | fixed;
        let place = place.map_or(ptr::null_mut(), |place| place.as_ptr().cast());
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory, or the caller's promise.
        let base = unsafe { mm::mmap_anonymous(place, bytes, access, flags) }.doing(MAPPING)?;
        let registered = (|| {
            // A child would find zeros there: it is to find nothing. Huge pages would not be asked for one by one.
            // SAFETY: the range was just mapped and holds nothing.
            unsafe { mm::madvise(base, bytes, Advice::LinuxDontFork) }?;
            // SAFETY: as above. Where the system has no huge pages there is nothing to forbid.
            let _ = unsafe { mm::madvise(base, bytes, Advice::LinuxNoHugepage) };
            let modes = REGISTER_MISSING | REGISTER_WRITE_PROTECTED;
            self.call(REGISTER, &mut [base.addr() as u64, bytes as u64, modes, 0])
        })();
        if registered.is_err() && place.is_null() {
            // SAFETY: mapped above, and known to nobody.
            let _ = unsafe { mm::munmap(base, bytes) };
        }
        registered.doing(MAPPING)?;
        NonNull::new(base.cast()).ok_or(Error::BadOptions("it is mapped at no address"))
    }

    /// Fills a page that nothing was touched of.
    pub(crate) fn fill(&self, page: *mut u8, from: *const PageBytes, writable: bool) -> Result<()> {
        let mode = if writable { 0 } else { COPY_PROTECTED };
        let (page, from) = (page.addr() as u64, from.addr() as u64);
        self.checked(COPY, &mut [page, from, PAGE_BYTES as u64, mode, 0])
    }

    /// Opens a page that was filled for stores.
    pub(crate) fn open_for_stores(&self, page: *mut u8) -> Result<()> {
        self.checked(PROTECT, &mut [page.addr() as u64, PAGE_BYTES as u64, 0])
    }

    /// Has the next store to a page be a fault.
    pub(crate) fn close_for_stores(&self, page: *mut u8) -> Result<()> {
        let request = [page.addr() as u64, PAGE_BYTES as u64, PROTECTED];
        self.checked(PROTECT, &mut { request })
    }

    /// Whether this is the process whose memory it is.
    pub(crate) fn is_own(&self) -> bool {
        fork_count() == self.forks
    }

    fn checked<const N: usize>(&self, request: u64, argument: &mut [u64; N]) -> Result<()> {
        let done = if self.is_own() {
            self.call(request, argument)
        } else {
            Err(Errno::PERM)
        };
        done.doing("cannot fill a page of a view")
    }

    /// All structures of this interface consist of numbers of 64 bits.
    fn call<const N: usize>(
        &self,
        request: u64,
        argument: &mut [u64; N],
    ) -> rustix::io::Result<()> {
        let place: *mut c_void = argument.as_mut_ptr().cast();
        // SAFETY: the structure of the request, which it fills.
        let done =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request as libc::Ioctl, place) };
        if done == 0 {
            return Ok(());
        }
        // SAFETY: the place of this thread's errno.
        Err(Errno::from_raw_os_error(unsafe {
            *libc::__errno_location()
        }))
    }
}

const MAPPING: &str = "cannot map memory whose pages are asked for";
