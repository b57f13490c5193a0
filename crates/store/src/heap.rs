//! Values out of line, one behind the other in the order in which they were written.
//!
//! The leaves of such a tree have a word for each key, its [`RecordPointer`]: where in the file the [`record`] with the
//! value begins. A change of a value adds a record and stores a pointer to it where the old one was, in the leaf
//! itself. So a leaf is not copied for each change, and many records share a page.
//!
//! A snapshot that comes upon the record of a later commit goes on to the one that it replaced, until it finds what it
//! may see.

mod record;
mod segment;

pub(crate) use record::{RECORD_BYTES_MAX, Record};
pub(crate) use segment::{
    HeapUse, SEGMENT_HEADER_BYTES, SEGMENT_PAGES_MAX, SegmentUse, segment_in_use, segment_key,
    segment_of, segment_records,
};
