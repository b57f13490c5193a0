//! Both search trees against a map: on plain memory and in files, with records of many sizes, and on damaged memory.

#![allow(clippy::unwrap_used)]

mod damage;
mod model;
mod subject;
