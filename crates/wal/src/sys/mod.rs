//! Every call to the operating system that the log and the store make.
//!
//! There is one file or folder for each system, all with the same functions; they are the only place that knows one. So far
//! there is Linux; elsewhere everything compiles and each call answers `Unsupported`. The feature `elsewhere` lets that be seen on Linux.

#[cfg(any(not(target_os = "linux"), feature = "elsewhere"))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(feature = "elsewhere")))]
mod linux;

#[cfg(any(not(target_os = "linux"), feature = "elsewhere"))]
use elsewhere as system;
#[cfg(all(target_os = "linux", not(feature = "elsewhere")))]
use linux as system;

pub(crate) use system::*;
pub use system::{fork_count, thread_number};
#[cfg(not(feature = "shuttle"))]
pub use system::{wait_while, wake_all, wake_one};
