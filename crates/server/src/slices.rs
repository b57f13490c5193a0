//! How long the threads that clients wait for may run before the kernel asks who is next: shortly.
//!
//! The kernel shares processors out by slices, 3 ms long and longer. Where every processor is busy with work of others,
//! a thread that wakes up for a request waits for the end of such a slice, unless its own deadline is earlier; and the
//! deadline is earlier the shorter its own slices are. So threads that run for microseconds at a time and are waited
//! for ask for short slices. Their share of the processors stays what it is.

#![allow(unsafe_code)] // sched_setattr(2) has no safe wrapper.

/// The kernel takes 0.1 to 100 ms.
const SLICE_NANOS: u64 = 200_000;

/// Shortens the slices of the calling thread, on kernels from Linux 6.12 on; before that nothing changes.
#[cfg(target_os = "linux")]
pub(crate) fn shorten() {
    // It is set along with the slice.
    let Ok(nice) = rustix::process::getpriority_process(None) else {
        return;
    };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE_NANOS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads as many bytes of the attributes as they say, and changes no memory. Where it refuses,
    // others wait longer.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn shorten() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_priority() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        std::thread::spawn(move || {
            rustix::process::nice(5).unwrap();
            let before = nice();
            shorten();
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }
}
