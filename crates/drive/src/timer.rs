//! A timer as exact as the kernel's. The runtime's own timers count in milliseconds, in which a server answers dozens
//! of requests.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer that can be set any number of times.
pub(crate) struct Timer {
    /// The runtime waits for a timerfd as it waits for a pipe.
    fd: Receiver,
}

impl Timer {
    /// Creates a timer, which is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer {
            fd: Receiver::from_owned_fd_unchecked(timer)?,
        })
    }

    /// Ends after this time. The future may be dropped before.
    pub(crate) async fn after(&mut self, time: Duration) -> io::Result<()> {
        let timespec = |time: Duration| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let setting = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            // Zero would disarm the timer.
            it_value: timespec(time.max(Duration::from_nanos(1))),
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &setting)?;
        loop {
            self.fd.readable().await?;
            match self.fd.try_read(&mut [0; 8]) {
                Ok(_) => return Ok(()),
                // The readiness was of an earlier setting.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
