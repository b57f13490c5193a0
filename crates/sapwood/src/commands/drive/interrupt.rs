//! Handles Ctrl-C and SIGTERM during a run.

use std::io::{IsTerminal, Write, stderr};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Result;
use sapwood_drive::StopToken;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit status after SIGINT: 128 and its number, as shells report a program that a signal has ended.
const INTERRUPTED: u8 = 130;
/// The exit status after SIGTERM.
const TERMINATED: u8 = 143;
/// No signal has come.
const NONE: u8 = 0;

/// Catches SIGINT and SIGTERM until the program ends. The first signal stops the run, which is then reported. The
/// second one ends the program.
pub(super) struct Interrupt {
    status: Arc<AtomicU8>,
}

impl Interrupt {
    pub(super) fn catch(stop: StopToken) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let entered = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        drop(entered);
        let status = Arc::new(AtomicU8::new(NONE));
        let first = status.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // Stored before the request, so that a thread that sees the request also sees the status.
                    first.store(
                        next(&mut interrupt, &mut terminate).await,
                        Ordering::Relaxed,
                    );
                    stop.request();
                    tell();
                    process::exit(i32::from(next(&mut interrupt, &mut terminate).await));
                });
            })?;
        Ok(Interrupt { status })
    }

    /// The exit status of the program, if a signal has come.
    pub(super) fn status(&self) -> Option<u8> {
        match self.status.load(Ordering::Relaxed) {
            NONE => None,
            status => Some(status),
        }
    }
}

/// Waits for the next signal; its exit status.
async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> u8 {
    tokio::select! {
        _ = interrupt.recv() => INTERRUPTED,
        _ = terminate.recv() => TERMINATED,
    }
}

/// Tells the user that the run waits for answers.
fn tell() {
    // On a terminal the cursor is behind the line that is rewritten each second.
    let start = if stderr().is_terminal() { "\r\n" } else { "" };
    let seconds = StopToken::WAIT_MAX.as_secs();
    // A closed terminal must not end the run.
    let _ = writeln!(
        stderr(),
        "{start}stopping: waiting up to {seconds} s for answers; the next signal ends at once"
    );
}
