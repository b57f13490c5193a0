//! Every call to the operating system that the log and the store make.
//!
//! There is one file or folder for each system, all with the same functions; they are the only place that knows one. So far
//! there is Linux; elsewhere everything compiles and each call answers `Unsupported`.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
use elsewhere as system;
#[cfg(target_os = "linux")]
use linux as system;

pub(crate) use system::*;
pub use system::{fork_count, thread_number};
#[cfg(not(feature = "shuttle"))]
pub use system::{wait_while, wake_all, wake_one};
