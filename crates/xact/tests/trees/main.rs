//! Both search trees against a map: on plain memory and in files, with records of many sizes, on damaged memory, and in
//! transactions that run at the same time.

#![allow(clippy::unwrap_used)]

mod damage;
mod model;
mod subject;
mod together;
