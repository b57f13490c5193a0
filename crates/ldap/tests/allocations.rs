//! Reading and walking a message allocates nothing.

// Counting allocations needs an allocator of our own; it only passes on to the system's.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sapwood_ldap::ber;
use sapwood_ldap::controls::{self, Control, ControlsBuf, PagedResults};
use sapwood_ldap::filter::{self, Filter, FilterView};
use sapwood_ldap::list::{AttributesBuf, OctetStringsBuf};
use sapwood_ldap::message::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the block is the system's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u32 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

fn elements(filter: Filter<'_>) -> usize {
    match filter.view() {
        FilterView::And(all) | FilterView::Or(all) => 1 + all.iter().map(elements).sum::<usize>(),
        FilterView::Not(one) => 1 + elements(one),
        FilterView::Substrings(substrings) => 1 + substrings.parts().count(),
        _ => 1,
    }
}

#[test]
fn a_search_request() {
    let mut ber = Vec::new();
    let and = filter::open_and(&mut ber);
    filter::put_equality_match(&mut ber, b"uid", b"u1");
    let not = filter::open_not(&mut ber);
    filter::put_substrings(&mut ber, b"cn", [filter::SubstringPart::Any(b"x")]);
    ber::close(&mut ber, not);
    ber::close(&mut ber, and);
    let selection: OctetStringsBuf = ["cn", "sn"].iter().collect();
    let mut value = Vec::new();
    PagedResults {
        size: 100,
        cookie: b"",
    }
    .encode(&mut value);
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: controls::PAGED_RESULTS,
        critical: true,
        value: Some(&value),
    });
    let op = Request::Search(SearchRequest {
        base: "dc=example",
        scope: Scope::Subtree,
        deref_aliases: DerefAliases::Always,
        size_limit: 5,
        time_limit: 0,
        types_only: false,
        filter: Filter::from_ber(&ber).unwrap(),
        attributes: selection.view(),
    });
    let mut message = Vec::new();
    Message {
        id: 3,
        op,
        controls: controls.view(),
    }
    .encode(&mut message);

    // The measure itself works.
    assert_eq!(allocations(|| drop(vec![1])), 1);
    let mut seen = (0, 0, 0);
    let count = allocations(|| {
        let message = RequestMessage::decode(&message).unwrap();
        let Request::Search(search) = message.op else {
            panic!()
        };
        let paged = message
            .controls
            .find(controls::PAGED_RESULTS)
            .and_then(|control| control.value)
            .unwrap();
        let size = PagedResults::decode(paged).unwrap().size;
        seen = (
            elements(search.filter),
            search.attributes.iter().count(),
            size,
        );
    });
    assert_eq!(seen, (5, 2, 100));
    assert_eq!(count, 0);
}

#[test]
fn an_entry_appended_to_a_buffer_with_room() {
    let mut list = AttributesBuf::default();
    list.push(b"cn", [&b"a"[..], b"b"]);
    let attributes = list.view();
    let mut out = Vec::with_capacity(4096);
    let count = allocations(|| {
        put_search_entry(&mut out, 1, b"cn=a", attributes.as_ber());
        let mut writer = EntryWriter::begin(&mut out, 1, b"cn=a");
        writer.put_attribute(
            b"cn",
            attributes.iter().flat_map(|attribute| attribute.values),
        );
        writer.finish(Default::default());
    });
    assert_eq!(count, 0);
    let half = out.len() / 2;
    assert_eq!(out[..half], out[half..]);
}
