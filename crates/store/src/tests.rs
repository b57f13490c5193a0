//! Tests of the whole crate from within: power cuts at every write, full disks, models of what threads share.

mod compact_tests;
mod crash_lives;
pub(crate) mod crash_tests;
mod full_disk_tests;
#[cfg(shuttle)]
mod model_tests;
mod multi_store_crash_tests;
mod out_of_line_crash_tests;
#[cfg(shuttle)]
mod out_of_line_model_tests;
mod pointer_crash_tests;
mod room_tests;
mod space_tests;
mod unlogged_tests;
