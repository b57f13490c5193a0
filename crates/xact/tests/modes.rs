//! The modes in which transactions are plain loads and stores.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use sapwood_xact::{
    Error, Memory, Mode, Options, PAGE_BYTES, PageAccess, Ptr, RESERVED_BYTES, Space, Transaction,
};

const MAPPED: [Mode; 2] = [Mode::Tracked, Mode::Snapshot];
const PAGES: usize = 700;

fn options(mode: Mode) -> Options {
    Options::new()
        .mode(mode)
        .bytes((PAGES * PAGE_BYTES) as u64)
        .log_bytes(16 << 20)
        .versions_bytes(8 << 20)
}

fn open(folder: &Path, mode: Mode) -> Space {
    Space::open(folder, &options(mode)).unwrap()
}

fn bytes_of<'a>(t: &'a Transaction<'_>) -> &'a [u8] {
    let base = t.map().unwrap();
    // SAFETY: the whole space, for as long as the transaction runs and is not written to.
    unsafe { std::slice::from_raw_parts(base.as_ptr(), PAGES * PAGE_BYTES) }
}

fn bytes_of_mut<'a>(t: &'a mut Transaction<'_>) -> &'a mut [u8] {
    let base = t.map().unwrap();
    // SAFETY: as above, and borrowed exclusively.
    unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), PAGES * PAGE_BYTES) }
}

#[test]
fn loads_and_stores_are_those_of_memory() {
    for mode in MAPPED {
        let folder = tempfile::tempdir().unwrap();
        let mut space = open(folder.path(), mode);
        assert_eq!(space.mode(), mode);
        let mut model = vec![0_u8; PAGES * PAGE_BYTES];
        let mut dice = 11_u64;
        let mut roll = move |sides: usize| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) as usize % sides
        };
        for round in 0..200 {
            if round % 60 == 59 {
                drop(space);
                space = open(folder.path(), mode);
            }
            let reader = space.begin_read().unwrap();
            let seen = model.clone();
            for _ in 0..1 + roll(3) {
                let reserved = RESERVED_BYTES as usize;
                let mut t = space.begin().unwrap();
                let mut own = model.clone();
                for _ in 0..roll(8) {
                    // Some touch many pages, some a few that others have touched before.
                    let last = if roll(2) == 0 {
                        own.len()
                    } else {
                        20 * PAGE_BYTES
                    };
                    let offset = roll(last - 1);
                    let most = if roll(9) == 0 { 300 } else { 3 } * PAGE_BYTES;
                    let length = 1 + roll((own.len() - offset).min(most));
                    if roll(2) == 0 && offset >= reserved {
                        bytes_of_mut(&mut t)[offset..offset + length].fill(round as u8);
                        own[offset..offset + length].fill(round as u8);
                    } else {
                        assert!(
                            bytes_of(&t)[offset..offset + length] == own[offset..offset + length]
                        );
                    }
                }
                if roll(3) > 0 {
                    t.commit().unwrap();
                    model = own;
                }
            }
            let offset = roll(seen.len() - 5000);
            assert!(bytes_of(&reader)[offset..offset + 5000] == seen[offset..offset + 5000]);
            drop(reader);
            if round % 7 == 0 {
                space.checkpoint().unwrap();
            }
            if round % 20 == 0 {
                let reader = space.begin_read().unwrap();
                assert!(bytes_of(&reader) == model, "{mode:?}, round {round}");
            }
        }
    }
}

#[test]
fn what_is_read_conflicts_when_tracked_and_not_in_a_snapshot() {
    const HERE: Ptr<u64> = Ptr::new(40 * PAGE_BYTES as u64);
    const THERE: Ptr<u64> = Ptr::new(50 * PAGE_BYTES as u64);
    for mode in MAPPED {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let meanwhile = |at: Ptr<u64>| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let stored: Result<(), Error> = space.transaction(|t| {
                        let value = t.load(at)? + 1;
                        t.store(at, &value)
                    });
                    stored.unwrap();
                });
                other.join().unwrap();
            });
        };
        let mut t = space.begin().unwrap();
        let seen = t.load(HERE).unwrap();
        t.store(THERE, &7).unwrap();
        meanwhile(HERE);
        assert_eq!(t.load(HERE).unwrap(), seen, "it sees one commit");
        let conflicts = matches!(t.commit(), Err(Error::Conflict));
        assert_eq!(conflicts, mode == Mode::Tracked);
        let mut t = space.begin().unwrap();
        t.store(THERE, &8).unwrap();
        meanwhile(THERE);
        assert!(
            matches!(t.commit(), Err(Error::Conflict)),
            "both have written"
        );
        // Of what was aborted nothing is left.
        let expected = if mode == Mode::Tracked { 1 } else { 8 };
        assert_eq!(space.read(|t| t.load(THERE)).unwrap(), expected);
    }
}

#[test]
fn a_copy_is_kept_until_somebody_else_changes_the_page() {
    const HERE: Ptr<u64> = Ptr::new(40 * PAGE_BYTES as u64);
    let folder = tempfile::tempdir().unwrap();
    let space = open(folder.path(), Mode::Snapshot);
    let store = |value: u64| {
        let stored: Result<(), Error> = space.transaction(|t| t.store(HERE, &value));
        stored.unwrap();
    };
    // A system call does not fault: it shows whether the page may be read.
    let sink = std::fs::File::create(folder.path().join("sink")).unwrap();
    let written = |t: &Transaction<'_>| {
        use std::io::Write;
        (&sink).write(&bytes_of(t)[HERE.get() as usize..][..8])
    };
    let faults = |result: std::io::Result<usize>| {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
    };
    store(1);
    let reader = space.begin_read().unwrap();
    assert_eq!(
        written(&reader).unwrap(),
        8,
        "it was committed in this view"
    );
    // Another view is used for this one, and this view's next transaction sees it.
    std::thread::scope(|scope| {
        scope.spawn(|| store(2));
    });
    assert_eq!(reader.load(HERE).unwrap(), 1);
    drop(reader);
    let reader = space.begin_read().unwrap();
    assert!(faults(written(&reader)), "another one has changed the page");
    assert_eq!(reader.load(HERE).unwrap(), 2);
    drop(reader);
    let mut t = space.begin().unwrap();
    assert_eq!(written(&t).unwrap(), 8, "it was read in this view");
    t.store(HERE, &3).unwrap();
    drop(t);
    let t = space.begin().unwrap();
    assert!(faults(written(&t)), "what was given up is gone");
    assert_eq!(t.load(HERE).unwrap(), 2);
    drop(t);
    // Into the file and beyond what this view has seen.
    for value in 4..2500 {
        store(value);
    }
    assert_eq!(space.read(|t| t.load(HERE)).unwrap(), 2499);
}

/// A transaction that only reads sees what is durable, which may be less than the one before it in the same view saw.
#[test]
fn what_was_read_when_less_was_durable_is_not_kept_for_long() {
    const HERE: Ptr<u64> = Ptr::new(40 * PAGE_BYTES as u64);
    for mode in MAPPED {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let first: Result<(), Error> = space.transaction(|t| t.store(HERE, &1));
        first.unwrap();
        let held = space.begin_read().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let second: Result<(), Error> = space.transaction_relaxed(|t| t.store(HERE, &2));
                second.unwrap();
            });
        });
        // The view that was held is the next to be used.
        drop(held);
        drop(space.begin().unwrap());
        let reader = space.begin_read().unwrap();
        assert_eq!(reader.load(HERE).unwrap(), 1, "{mode:?}");
        drop(reader);
        let t = space.begin().unwrap();
        assert_eq!(t.load(HERE).unwrap(), 2, "{mode:?}");
    }
}

#[test]
fn system_calls_need_pages_that_were_touched() {
    let folder = tempfile::tempdir().unwrap();
    let space = open(folder.path(), Mode::Tracked);
    let source = folder.path().join("source");
    std::fs::write(&source, [9; 6000]).unwrap();
    let read_into = |t: &mut Transaction<'_>| {
        use std::io::Read;
        let mut file = std::fs::File::open(&source).unwrap();
        file.read(&mut bytes_of_mut(t)[100_000..106_000])
    };
    let mut t = space.begin().unwrap();
    assert_eq!(
        read_into(&mut t).unwrap_err().raw_os_error(),
        Some(libc::EFAULT)
    );
    t.touch(100_000, 6000, PageAccess::Write).unwrap();
    assert_eq!(read_into(&mut t).unwrap(), 6000);
    assert!(t.touch(space.bytes(), 1, PageAccess::Read).is_err());
    t.commit().unwrap();
    let mut reader = space.begin_read().unwrap();
    assert!(matches!(
        reader.touch(0, 1, PageAccess::Write),
        Err(Error::ReadOnly)
    ));
    reader.touch(100_000, 6000, PageAccess::Read).unwrap();
    assert!(
        bytes_of(&reader)[100_000..106_000]
            .iter()
            .all(|byte| *byte == 9)
    );
}

#[test]
fn threads_may_share_what_a_transaction_reads() {
    for mode in MAPPED {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let filled: Result<(), Error> = space.transaction(|t| {
            bytes_of_mut(t)[20 * PAGE_BYTES..200 * PAGE_BYTES].fill(3);
            Ok(())
        });
        filled.unwrap();
        let reader = space.begin_read().unwrap();
        let bytes = reader.read(0, PAGES * PAGE_BYTES).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert!(
                        bytes[20 * PAGE_BYTES..200 * PAGE_BYTES]
                            .iter()
                            .all(|byte| *byte == 3)
                    )
                });
            }
        });
    }
}

const CASE: &str = "SAPWOOD_XACT_CASE";

/// Runs [`faults`] in a process of its own.
fn child(case: &str) -> Output {
    run_child("faults", case)
}

fn run_child(test: &str, case: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CASE, case)
        .output()
        .unwrap()
}

extern "C" fn another_handler(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: ends the process at once, which a signal handler may.
    unsafe { libc::_exit(42) };
}

fn overflow_the_stack(depth: u64) -> u64 {
    let filler = std::hint::black_box([depth; 64]);
    if depth == u64::MAX {
        return 0;
    }
    overflow_the_stack(depth + 1) + filler[5]
}

/// Faults of which some end the process; for nobody but a child of the tests below.
#[test]
fn faults() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    if case == "another handler" {
        // SAFETY: zero is a value of `sigaction`, and the handler has the signature asked for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = another_handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        }
    }
    let before = match case.as_str() {
        // What programs in C begin with: the runtime of Rust has a handler.
        "sent" => Some(libc::SIG_DFL),
        "sent and ignored" => Some(libc::SIG_IGN),
        _ => None,
    };
    if let Some(action) = before {
        // SAFETY: no handler at all.
        unsafe { libc::signal(libc::SIGSEGV, action) };
    }
    let (mode, userfault) = match case.as_str() {
        "the allocator's, protected" => (Mode::Tracked, false),
        "the allocator's, snapshot" => (Mode::Snapshot, true),
        _ => (Mode::Tracked, true),
    };
    let folder = tempfile::tempdir().unwrap();
    let space = Space::open(folder.path(), &options(mode).userfault(userfault)).unwrap();
    let mut t = space.begin().unwrap();
    t.store(Ptr::new(PAGE_BYTES as u64 * 30), &5_u64).unwrap();
    let base = t.map().unwrap().as_ptr();
    match case.as_str() {
        "stack overflow" => {
            // Accesses are learnt of on the same alternate stack.
            t.store(Ptr::new(PAGE_BYTES as u64 * 31), &6_u64).unwrap();
            println!("{}", overflow_the_stack(0));
        }
        "sent" => {
            // SAFETY: it takes a number.
            unsafe { libc::raise(libc::SIGSEGV) };
            // Nobody gets here.
            t.commit().unwrap();
        }
        "sent and ignored" => {
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGSEGV) };
            bytes_of_mut(&mut t)[31 * PAGE_BYTES] = 6;
            t.commit().unwrap();
        }
        "another thread" => {
            let base = base.expose_provenance();
            let other = move || {
                let place = std::ptr::with_exposed_provenance_mut::<u8>(base + 40 * PAGE_BYTES);
                // SAFETY: none; this must end the process.
                unsafe { place.write_volatile(1) };
            };
            std::thread::spawn(other).join().unwrap();
            t.commit().unwrap();
        }
        "damaged" => {
            t.commit().unwrap();
            space.checkpoint().unwrap();
            drop(space);
            let data = std::fs::File::options()
                .write(true)
                .open(folder.path().join("data"));
            let at = 32 * PAGE_BYTES as u64 + 99;
            std::os::unix::fs::FileExt::write_all_at(&data.unwrap(), &[1], at).unwrap();
            let space = open(folder.path(), Mode::Tracked);
            let reader = space.begin_read().unwrap();
            println!("{}", bytes_of(&reader)[29 * PAGE_BYTES]);
            println!("{}", bytes_of(&reader)[30 * PAGE_BYTES]);
        }
        "store to what is reserved" => {
            // SAFETY: none; this must end the process.
            unsafe { base.add(PAGE_BYTES).write_volatile(1) };
            t.commit().unwrap();
        }
        case if case.starts_with("the allocator's") => {
            // It stores to pages 0, 1 and one of those behind them.
            t.set_root(5).unwrap();
            let first = t.allocate(100).unwrap();
            t.set_root(6).unwrap();
            let second = t.allocate(100).unwrap();
            t.free(first, 100).unwrap();
            bytes_of_mut(&mut t)[second as usize] = 7;
            t.commit().unwrap();
            let mut t = space.begin().unwrap();
            assert_eq!((t.root().unwrap(), bytes_of(&t)[second as usize]), (6, 7));
            t.free(second, 100).unwrap();
            t.set_root(8).unwrap();
            println!("all stored");
            let base = t.map().unwrap().as_ptr();
            // SAFETY: none; this must end the process.
            unsafe { base.add(8).write_volatile(1) };
            println!("the root was stored to");
        }
        "store in a reader" => {
            t.commit().unwrap();
            let reader = space.begin_read().unwrap();
            println!("{}", bytes_of(&reader)[30 * PAGE_BYTES]);
            // SAFETY: none; this must end the process.
            unsafe { reader.map().unwrap().as_ptr().write_volatile(1) };
        }
        "after the end" => {
            t.commit().unwrap();
            // SAFETY: none; this must end the process.
            unsafe { base.write_volatile(1) };
        }
        _ => {
            t.commit().unwrap();
            println!("committed");
            // SAFETY: none; this must end the process.
            unsafe { std::ptr::without_provenance_mut::<u8>(64).write_volatile(1) };
        }
    }
}

/// Where the transaction that runs has the space, for the signal handler below.
static RUNNING_AT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The thread that runs it.
static RUNNING_IN: AtomicUsize = AtomicUsize::new(0);
static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Looks at a page that the transaction has hardly touched yet.
extern "C" fn look(signal: i32) {
    let thread = RUNNING_IN.load(Ordering::SeqCst) as libc::pthread_t;
    // SAFETY: that thread runs as long as the timer does.
    unsafe {
        if libc::pthread_self() != thread {
            libc::pthread_kill(thread, signal);
            return;
        }
    }
    let base = RUNNING_AT.load(Ordering::SeqCst);
    if !base.is_null() {
        let page = LOOKS.fetch_add(1, Ordering::SeqCst) * 37 % PAGES;
        // SAFETY: within the space, of which the interrupted thread runs a transaction.
        unsafe { base.add(page * PAGE_BYTES).read_volatile() };
    }
}

/// Transactions that a timer interrupts all the time, whose handler looks at the space; for nobody but a child of the
/// test below.
#[test]
fn interrupted() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let mode = if case == "tracked" {
        Mode::Tracked
    } else {
        Mode::Snapshot
    };
    let folder = tempfile::tempdir().unwrap();
    let space = open(folder.path(), mode);
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 40,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: zero is a value of `sigaction`, and the handler has the signature asked for.
    unsafe {
        RUNNING_IN.store(libc::pthread_self() as usize, Ordering::SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = look as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
    let mut round = 0;
    while round < 10 || LOOKS.load(Ordering::SeqCst) < 200 {
        round += 1;
        let stored: Result<(), Error> = space.transaction(|t| {
            let base = t.map().unwrap().as_ptr();
            RUNNING_AT.store(base, Ordering::SeqCst);
            for page in 20..PAGES {
                // In turns by faults and by asking.
                if page % 2 == 0 {
                    t.store(Ptr::new((page * PAGE_BYTES) as u64), &round)?;
                } else {
                    // SAFETY: within the space, which this thread's transaction borrows.
                    unsafe { base.add(page * PAGE_BYTES).cast::<u32>().write(round) };
                }
            }
            RUNNING_AT.store(std::ptr::null_mut(), Ordering::SeqCst);
            Ok(())
        });
        stored.unwrap();
    }
    // SAFETY: no timer any more.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), std::ptr::null_mut()) };
    let reader = space.begin_read().unwrap();
    let stored = |page: usize| {
        let bytes = bytes_of(&reader)[page * PAGE_BYTES..].first_chunk();
        u32::from_le_bytes(*bytes.unwrap())
    };
    assert!((20..PAGES).all(|page| stored(page) == round));
    println!("all stored");
}

#[test]
fn a_signal_handler_may_look_at_the_space_while_a_transaction_runs() {
    for case in ["tracked", "snapshot"] {
        let output = run_child("interrupted", case);
        assert!(output.status.success(), "{case}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("all stored"));
    }
}

#[test]
fn a_fault_signal_that_somebody_sends_is_not_swallowed() {
    let output = child("sent");
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGSEGV),
        "the first one ends the process: {output:?}"
    );
    let output = child("sent and ignored");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn another_thread_is_refused_the_address_of_a_transaction() {
    let output = child("another thread");
    assert!(
        is_fault(&output),
        "its accesses would be learnt of by nobody: {output:?}"
    );
}

/// Pages that are protected are a SIGSEGV, those that are asked for a SIGBUS.
fn is_fault(output: &Output) -> bool {
    matches!(output.status.signal(), Some(libc::SIGSEGV | libc::SIGBUS))
}

#[test]
fn a_child_that_gives_up_leaves_the_transaction_of_its_parent_alone() {
    for mode in [Mode::Explicit, Mode::Tracked] {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let at = Ptr::<u64>::new(PAGE_BYTES as u64 * 40);
        let mut parent = true;
        let committed: Result<(), Error> = space.transaction(|t| {
            t.store(at, &1)?;
            // SAFETY: the child does what the parent does, up to `_exit`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                parent = false;
                return Err(Error::ReadOnly);
            }
            let mut status = 0;
            // SAFETY: a place for a number.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            assert_eq!(status, 0, "the child is told, and does no harm");
            assert_eq!(space.stat().transactions, 1, "this one still runs");
            Ok(())
        });
        if !parent {
            let refused = matches!(committed, Err(Error::Forked | Error::ReadOnly));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        committed.unwrap();
    }
}

#[test]
fn faults_of_others_are_handed_on() {
    let output = child("another handler");
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("committed"));
    for case in [
        "nobody's",
        "store in a reader",
        "after the end",
        "damaged",
        "store to what is reserved",
    ] {
        let output = child(case);
        assert!(is_fault(&output), "{case}: {output:?}");
    }
}

/// The allocator has them open for stores only while it works.
#[test]
fn what_the_allocator_has_stored_to_is_not_stored_to_by_the_program() {
    for way in ["asked for", "protected", "snapshot"] {
        let output = child(&format!("the allocator's, {way}"));
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("all stored"), "{way}: {output:?}");
        assert!(is_fault(&output), "{way}: {output:?}");
    }
}

#[test]
fn a_stack_overflow_is_still_reported() {
    let output = child("stack overflow");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("overflowed its stack"));
}
