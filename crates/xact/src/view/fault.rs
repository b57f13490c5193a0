//! The signal handler that learns of accesses to protected pages, and the views that it knows.
//!
//! It is installed when the first view is made, hands on to the handler that was there before whatever is not an access
//! to a running transaction's view by the thread that runs it, and runs on the thread's alternate stack if there is
//! one, so that it does not stand in the way of a handler that reports stack overflows. A program that installs another
//! handler for SIGSEGV or SIGBUS later must hand on to this one in turn.
//!
//! A page that is protected is a SIGSEGV; one that is asked for (`demand`), a SIGBUS.
//!
//! Handlers of other signals may touch the view in the middle of a transaction. So while a view changes, in this
//! handler or outside of it, no signal is delivered to the thread but those that its own instructions raise.

// Signal handlers exist only in libc. What runs in the handler takes no lock, allocates nothing and calls nothing but
// mprotect(2), madvise(2), sigprocmask(2), getpid(2), ioctl(2) of a userfaultfd, mmap(2), mremap(2) and munmap(2).
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::View;
use crate::error::{Doing, Error, Result};

/// How many views one process can have: as many as it can have transactions.
const VIEWS_MAX: usize = crate::region::slot::SLOTS_MAX;

static VIEWS: [AtomicPtr<View>; VIEWS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; VIEWS_MAX];
/// No view is registered from here on.
static VIEWS_END: AtomicUsize = AtomicUsize::new(0);
/// The signal of an access to a page that is asked for.
pub(crate) const ASKED: i32 = libc::SIGBUS;
/// The signals that accesses to views raise.
const SIGNALS: [i32; 2] = [libc::SIGSEGV, ASKED];
/// The handlers before of these signals, once they are known.
static BEFORE: [AtomicPtr<libc::sigaction>; 2] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS.len()];
static INSTALLING: Mutex<()> = Mutex::new(());

/// Makes the handler know of a view, which does not move and is taken off before it goes.
pub(crate) fn register(view: *mut View) -> Result<()> {
    install()?;
    let free = VIEWS.iter().position(|place| {
        let taken =
            place.compare_exchange(ptr::null_mut(), view, Ordering::SeqCst, Ordering::Relaxed);
        taken.is_ok()
    });
    VIEWS_END.fetch_max(free.ok_or(Error::SlotsFull)? + 1, Ordering::SeqCst);
    Ok(())
}

/// Makes the handler forget a view that no transaction uses.
pub(crate) fn unregister(view: *mut View) {
    for place in &VIEWS {
        let _ = place.compare_exchange(view, ptr::null_mut(), Ordering::SeqCst, Ordering::Relaxed);
    }
}

fn install() -> Result<()> {
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
        if before.load(Ordering::SeqCst).is_null() {
            install_for(signal, before)?;
        }
    }
    Ok(())
}

fn install_for(signal: i32, known: &AtomicPtr<libc::sigaction>) -> Result<()> {
    // SAFETY: `sigaction` consists of integers and pointers, for which zero is a value.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are valid or null as sigaction(2) has it; what is there now is only looked at.
    unsafe { libc::sigaction(signal, ptr::null(), &mut before) };
    // It is needed for as long as the process lives, and must be there before the handler can be called.
    known.store(Box::leak(Box::new(before)), Ordering::SeqCst);
    // SAFETY: as above.
    let mut own: libc::sigaction = unsafe { std::mem::zeroed() };
    own.sa_sigaction = handle as *const () as usize;
    own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    own.sa_mask = asynchronous();
    // SAFETY: the handler has the signature that SA_SIGINFO asks for.
    let installed = unsafe { libc::sigaction(signal, &own, ptr::null_mut()) };
    if installed != 0 {
        let error: std::io::Result<()> = Err(std::io::Error::last_os_error());
        return error.doing("cannot install a signal handler");
    }
    Ok(())
}

/// All signals but those that a thread's own instructions raise, which would end the process while they are blocked.
fn asynchronous() -> libc::sigset_t {
    let raised = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGABRT,
    ];
    // SAFETY: a set of signals consists of integers, and the calls fill it.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut signals);
        for signal in raised {
            libc::sigdelset(&mut signals, signal);
        }
        signals
    }
}

/// Does something to a view outside of the handler while no handler of another signal can touch that view in this
/// thread.
pub(crate) fn undisturbed<R>(what: impl FnOnce() -> R) -> R {
    /// The signals blocked before, blocked again when this is dropped.
    struct Before(libc::sigset_t);
    impl Drop for Before {
        fn drop(&mut self) {
            set_blocked(libc::SIG_SETMASK, &self.0);
        }
    }
    let _before = Before(set_blocked(libc::SIG_BLOCK, &asynchronous()));
    what()
}

/// Changes which signals are blocked in this thread; gives those that were.
fn set_blocked(how: i32, signals: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both are sets of signals.
    unsafe { libc::pthread_sigmask(how, signals, &mut before) };
    before
}

/// What tells this thread from all others that run.
pub(crate) fn this_thread() -> usize {
    // SAFETY: it takes nothing, and may be called in a handler.
    unsafe { libc::pthread_self() as usize }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the place of this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the system passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    // Otherwise somebody has sent it, and there is no address.
    let is_fault = code > 0;
    let resolved = is_fault && {
        // SAFETY: a fault has an address.
        let address = unsafe { (*info).si_addr() }.addr();
        let is_store = is_store(context);
        let end = VIEWS_END.load(Ordering::SeqCst);
        VIEWS.iter().take(end).any(|place| {
            let view = place.load(Ordering::SeqCst);
            // SAFETY: a registered view is there until it is unregistered, which its owner does when no transaction
            // uses it.
            !view.is_null() && unsafe { View::resolve_fault(view, signal, address, is_store) }
        })
    };
    if !resolved {
        hand_on(signal, info, context, is_fault);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether the access was a store, where the processor says so: bit 1 of the page fault's error code.
#[cfg(target_arch = "x86_64")]
fn is_store(context: *mut libc::c_void) -> Option<bool> {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let code = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
    Some(code & 2 != 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn is_store(_: *mut libc::c_void) -> Option<bool> {
    None
}

/// Does what would have happened without this handler.
fn hand_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void, is_fault: bool) {
    let place = usize::from(signal == ASKED);
    let before = BEFORE[place].load(Ordering::SeqCst);
    // SAFETY: stored before the handler was installed, and never freed.
    let Some(before) = (unsafe { before.as_ref() }) else {
        return;
    };
    if before.sa_sigaction == libc::SIG_IGN && !is_fault {
        return;
    }
    if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
        // SAFETY: an action that the system gave out before.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        // A faulting access is repeated when this returns, and ends the process; what somebody has sent has to come
        // once more.
        if !is_fault {
            // SAFETY: it takes a number. The signal arrives when this handler returns.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    // That handler runs with the signals blocked that it asked for, and none of those that this one has blocked.
    let context_before: *const libc::ucontext_t = context.cast();
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let interrupted = unsafe { (*context_before).uc_sigmask };
    let blocked_here = set_blocked(libc::SIG_SETMASK, &interrupted);
    set_blocked(libc::SIG_BLOCK, &before.sa_mask);
    if before.sa_flags & libc::SA_NODEFER == 0 {
        block_this(signal);
    }
    if before.sa_flags & libc::SA_RESETHAND != 0 {
        // SAFETY: zero is the default action.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &default, ptr::null_mut());
        }
    }
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag the system would have called it like this.
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without it like this.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal);
    }
    set_blocked(libc::SIG_SETMASK, &blocked_here);
}

fn block_this(signal: i32) {
    // SAFETY: a set of signals consists of integers, and the calls fill it.
    let signals = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, signal);
        signals
    };
    set_blocked(libc::SIG_BLOCK, &signals);
}
