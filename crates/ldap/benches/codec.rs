//! Nanoseconds per message of the codec's hot paths. `cargo bench -p sapwood-ldap`

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use ldap_parser::FromBer;
use sapwood_ldap::ber;
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter::{self, Filter};
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::message::*;
use sapwood_ldap::result::LdapResult;

/// The best of several rounds: what the code costs when nothing disturbs it.
fn measure(name: &str, mut once: impl FnMut()) {
    const ROUNDS: u32 = 20;
    const TIMES: u32 = 200_000;
    let round = |_| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| once());
        start.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    println!("{name:<44} {best:>8.1} ns");
}

fn search(filter: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let op = Request::Search(SearchRequest::new(
        "uid=u123456,ou=people,dc=example,dc=com",
        Scope::Subtree,
        Filter::from_ber(filter).unwrap(),
    ));
    Message {
        id: 1000,
        op,
        controls: Controls::EMPTY,
    }
    .encode(&mut out);
    out
}

fn main() {
    let base = search(Filter::OBJECT_CLASS_PRESENT.as_ber());
    measure("decode base search", || {
        black_box(RequestMessage::decode(black_box(&base)).unwrap());
    });
    let mut equality = Vec::new();
    filter::put_equality_match(&mut equality, b"uid", b"u123456");
    let equality = search(&equality);
    measure("decode equality search", || {
        black_box(RequestMessage::decode(black_box(&equality)).unwrap());
    });
    let mut nested = Vec::new();
    let and = filter::open_and(&mut nested);
    filter::put_equality_match(&mut nested, b"objectClass", b"inetOrgPerson");
    let or = filter::open_or(&mut nested);
    filter::put_equality_match(&mut nested, b"uid", b"u123456");
    filter::put_equality_match(&mut nested, b"mail", b"u123456@example.com");
    ber::close(&mut nested, or);
    ber::close(&mut nested, and);
    let nested = search(&nested);
    measure("decode search, (&(a)(|(b)(c)))", || {
        black_box(RequestMessage::decode(black_box(&nested)).unwrap());
    });
    measure("the same by ldap-parser", || {
        black_box(ldap_parser::ldap::LdapMessage::from_ber(black_box(&nested)).unwrap());
    });
    measure("frame", || {
        black_box(frame(black_box(&nested), 1 << 20).unwrap());
    });

    let mut list = AttributesBuf::default();
    for attribute in 0..15 {
        list.push(
            format!("attribute{attribute}").as_bytes(),
            [&b"a value of thirty-two octets, or"[..]],
        );
    }
    let attributes = list.view().as_ber();
    let dn = b"uid=u123456,ou=people,dc=example,dc=com";
    let mut out = Vec::with_capacity(1 << 16);
    measure("encode entry of 15 attributes, at once", || {
        out.clear();
        put_search_entry(&mut out, 1000, black_box(dn), black_box(attributes));
        black_box(&out);
    });
    measure("encode entry of 15 attributes, in one piece", || {
        out.clear();
        let mut writer = EntryWriter::begin(&mut out, 1000, black_box(dn));
        writer.put_ber(black_box(attributes));
        writer.finish(Controls::EMPTY);
        black_box(&out);
    });
    let entry = out.clone();
    measure("decode entry of 15 attributes", || {
        black_box(ResponseMessage::decode(black_box(&entry)).unwrap());
    });
    measure("encode search result done", || {
        out.clear();
        let op = Response::SearchDone(black_box(LdapResult::SUCCESS));
        Message {
            id: 1000,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut out);
        black_box(&out);
    });
}
