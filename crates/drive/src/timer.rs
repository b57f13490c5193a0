//! A timer as exact as the kernel has one: the runtime's own counts in milliseconds, in which a server answers dozens of
//! requests.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer that can be set again and again.
pub(crate) struct Timer {
    /// The runtime waits for it as for any other file that is read.
    fd: Receiver,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer {
            fd: Receiver::from_owned_fd_unchecked(timer)?,
        })
    }

    /// Ends after this time. Dropped before, nothing is lost.
    pub(crate) async fn after(&mut self, time: Duration) -> io::Result<()> {
        let timespec = |time: Duration| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let setting = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            // Zero would stop it.
            it_value: timespec(time.max(Duration::from_nanos(1))),
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &setting)?;
        loop {
            self.fd.readable().await?;
            match self.fd.try_read(&mut [0; 8]) {
                Ok(_) => return Ok(()),
                // Ready for an earlier time, which setting it has taken back.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
