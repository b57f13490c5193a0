//! The bytes of the file: pages, roots, records of trees and of the free list.

pub(crate) mod catalog;
pub(crate) mod free_list;
pub(crate) mod meta;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod pointer;
pub(crate) mod pointer_leaf;
pub(crate) mod prefetch;
pub(crate) mod roots;
pub(crate) mod tree_record;
