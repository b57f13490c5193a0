//! Every message written and read back, here and by another implementation; and bytes that are no messages.

#![allow(clippy::unwrap_used)]

mod model;

use ldap_parser::FromBer;
use model::{AttributeModel, Bytes, FilterModel, MessageModel, OpModel, ResultModel, SearchModel};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sapwood_ldap::controls::{
    Controls, EntryChange, PagedResults, PersistentSearch, ReadEntry, SortKeys, SortResult,
};
use sapwood_ldap::error::{DecodeError, Malformed, Violation};
use sapwood_ldap::extended;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::limits::{ATTRIBUTES_MAX, INTEGER_MAX, MESSAGE_ID_MAX};
use sapwood_ldap::list::{Attributes, OctetStrings};
use sapwood_ldap::message::*;
use sapwood_ldap::result::ResultCode;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![6 => vec(any::<u8>(), 0..12), 1 => vec(any::<u8>(), 120..300)]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[a-z0-9=,; .é]{0,12}", 1 => "[a-z]{120,300}"]
}

fn attribute(values: std::ops::Range<usize>) -> impl Strategy<Value = AttributeModel> {
    (name(), vec(bytes(), values))
}

fn filter() -> impl Strategy<Value = FilterModel> {
    // The peer wants every substrings filter to have a part, as RFC 4511 does.
    let substrings = (
        name(),
        option::of(bytes()),
        vec(bytes(), 0..3),
        option::of(bytes()),
    )
        .prop_filter("no part", |(_, initial, any, last)| {
            initial.is_some() || last.is_some() || !any.is_empty()
        });
    let named = prop_oneof![
        (name(), Just(None)).prop_map(|(rule, attribute)| (Some(rule), attribute)),
        (option::of(name()), name()).prop_map(|(rule, attribute)| (rule, Some(attribute))),
    ];
    let extensible =
        (named, bytes(), any::<bool>()).prop_map(|((rule, attribute), value, dn_attributes)| {
            FilterModel::Extensible {
                rule,
                attribute,
                value,
                dn_attributes,
            }
        });
    let item = prop_oneof![
        (name(), bytes()).prop_map(|(a, v)| FilterModel::Equality(a, v)),
        (name(), bytes()).prop_map(|(a, v)| FilterModel::GreaterOrEqual(a, v)),
        (name(), bytes()).prop_map(|(a, v)| FilterModel::LessOrEqual(a, v)),
        (name(), bytes()).prop_map(|(a, v)| FilterModel::Approx(a, v)),
        name().prop_map(FilterModel::Present),
        substrings
            .prop_map(|(a, initial, any, last)| FilterModel::Substrings(a, initial, any, last)),
        extensible,
    ];
    item.prop_recursive(5, 30, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(FilterModel::And),
            vec(inner.clone(), 1..4).prop_map(FilterModel::Or),
            inner.prop_map(|filter| FilterModel::Not(Box::new(filter))),
        ]
    })
}

fn ldap_result() -> impl Strategy<Value = ResultModel> {
    let code = prop_oneof![0u32..90, Just(118), Just(4096), Just(70_000)];
    (code, name(), name(), option::of(vec(name(), 1..3))).prop_map(
        |(code, matched_dn, diagnostic, referral)| ResultModel {
            code,
            matched_dn,
            diagnostic,
            referral,
        },
    )
}

fn search() -> impl Strategy<Value = SearchModel> {
    let limits = (
        prop_oneof![Just(0), Just(INTEGER_MAX), 0u32..70_000],
        0u32..300,
        any::<bool>(),
    );
    (name(), 0u8..4, 0u8..4, limits, filter(), vec(name(), 0..4)).prop_map(
        |(base, scope, deref_aliases, (size_limit, time_limit, types_only), filter, attributes)| {
            SearchModel {
                base,
                scope,
                deref_aliases,
                size_limit,
                time_limit,
                types_only,
                filter,
                attributes,
            }
        },
    )
}

fn request() -> impl Strategy<Value = OpModel> {
    let change = (0u8..4, attribute(0..3)).prop_map(|(kind, (description, mut values))| {
        // An add must have values.
        if kind == 0 && values.is_empty() {
            values.push(Vec::new());
        }
        (kind, (description, values))
    });
    prop_oneof![
        (1u8..=127, name(), bytes()).prop_map(|(version, name, password)| OpModel::Bind {
            version,
            name,
            password
        }),
        (1u8..=127, name(), name(), option::of(bytes())).prop_map(
            |(version, name, mechanism, credentials)| {
                OpModel::SaslBind {
                    version,
                    name,
                    mechanism,
                    credentials,
                }
            }
        ),
        Just(OpModel::Unbind),
        search().prop_map(OpModel::Search),
        (name(), vec(change, 1..4)).prop_map(|(dn, changes)| OpModel::Modify { dn, changes }),
        (name(), vec(attribute(1..3), 1..4))
            .prop_map(|(dn, attributes)| OpModel::Add { dn, attributes }),
        name().prop_map(OpModel::Delete),
        (name(), name(), any::<bool>(), option::of(name())).prop_map(
            |(dn, new_rdn, delete_old_rdn, new_superior)| OpModel::ModifyDn {
                dn,
                new_rdn,
                delete_old_rdn,
                new_superior
            }
        ),
        (name(), name(), bytes()).prop_map(|(dn, attribute, value)| OpModel::Compare {
            dn,
            attribute,
            value
        }),
        (0..=MESSAGE_ID_MAX).prop_map(OpModel::Abandon),
        (name(), option::of(bytes())).prop_map(|(name, value)| OpModel::Extended { name, value }),
    ]
}

fn response() -> impl Strategy<Value = OpModel> {
    prop_oneof![
        (ldap_result(), option::of(bytes())).prop_map(|(result, credentials)| OpModel::BindDone {
            result,
            credentials
        }),
        (name(), vec(attribute(0..3), 0..4))
            .prop_map(|(dn, attributes)| OpModel::Entry { dn, attributes }),
        vec(name(), 1..4).prop_map(OpModel::Reference),
        ldap_result().prop_map(OpModel::SearchDone),
        ldap_result().prop_map(OpModel::ModifyDone),
        ldap_result().prop_map(OpModel::AddDone),
        ldap_result().prop_map(OpModel::DeleteDone),
        ldap_result().prop_map(OpModel::ModifyDnDone),
        ldap_result().prop_map(OpModel::CompareDone),
        (ldap_result(), option::of(name()), option::of(bytes())).prop_map(
            |(result, name, value)| OpModel::ExtendedDone {
                result,
                name,
                value
            }
        ),
        (option::of(name()), option::of(bytes()))
            .prop_map(|(name, value)| OpModel::Intermediate { name, value }),
    ]
}

fn message(op: impl Strategy<Value = OpModel>) -> impl Strategy<Value = MessageModel> {
    let control = (name(), any::<bool>(), option::of(bytes()));
    let id = prop_oneof![1u32..300, Just(MESSAGE_ID_MAX)];
    (id, op, vec(control, 0..3)).prop_map(|(id, op, controls)| MessageModel { id, op, controls })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_reads_as_it_was_written(model in message(request())) {
        let written = model.write();
        prop_assert_eq!(frame(&written, written.len()), Ok(Frame::Complete(written.len())));
        let read = RequestMessage::decode(&written).unwrap();
        prop_assert_eq!(&MessageModel::of_request(&read), &model);
        let mut again = Vec::new();
        read.encode(&mut again);
        prop_assert_eq!(again, written);
    }

    #[test]
    fn a_response_reads_as_it_was_written(model in message(response())) {
        let written = model.write();
        prop_assert_eq!(frame(&written, written.len()), Ok(Frame::Complete(written.len())));
        let read = ResponseMessage::decode(&written).unwrap();
        prop_assert_eq!(&MessageModel::of_response(&read), &model);
        let mut again = Vec::new();
        read.encode(&mut again);
        prop_assert_eq!(again, written);
    }

    #[test]
    fn another_implementation_reads_the_same(model in message(prop_oneof![request(), response()])) {
        let model = model.without_referral();
        let written = model.write();
        let (rest, read) = ldap_parser::ldap::LdapMessage::from_ber(&written).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert_eq!(MessageModel::of_peer(&read), model);
    }

    #[test]
    fn a_part_of_a_message_is_incomplete(model in message(prop_oneof![request(), response()]), part in any::<prop::sample::Index>()) {
        let written = model.write();
        let part = part.index(written.len());
        match frame(&written[..part], 1 << 20) {
            Ok(Frame::Incomplete(needed)) => prop_assert!(part < needed && needed <= written.len()),
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert!(RequestMessage::decode(&written[..part]).is_err());
        prop_assert!(ResponseMessage::decode(&written[..part]).is_err());
    }

    /// Messages with some octets changed: most are still deep in some field.
    #[test]
    fn changed_octets_never_panic_and_both_agree(
        model in message(prop_oneof![request(), response()]),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut written = model.write();
        for (place, octet) in changes {
            let place = place.index(written.len());
            written[place] = octet;
        }
        walk_everything(&written);
        model::agree_if_both_accept(&written);
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = frame(&bytes, 1 << 20);
        walk_everything(&bytes);
        // The same as an operation inside of a good envelope.
        let mut message = Vec::new();
        for tag in [0x60, 0x61, 0x63, 0x64, 0x65, 0x66, 0x68, 0x6c, 0x6e, 0x73, 0x77, 0x78, 0x79, 0x4a, 0x50] {
            message.clear();
            let envelope = sapwood_ldap::ber::open(&mut message, 0x30, 0);
            message.extend_from_slice(&[2, 1, 1]);
            sapwood_ldap::ber::put_octets(&mut message, tag, &bytes);
            sapwood_ldap::ber::close(&mut message, envelope);
            walk_everything(&message);
        }
    }
}

#[test]
fn a_referral_is_where_rfc_4511_puts_it() {
    let mut uris = sapwood_ldap::list::OctetStringsBuf::default();
    uris.push(b"ldap://b");
    let result = sapwood_ldap::result::LdapResult {
        referral: Some(uris.view()),
        ..sapwood_ldap::result::LdapResult::new(ResultCode::Referral, "hi").matched("o=a")
    };
    let mut out = Vec::new();
    let op = Response::of_result(Operation::Delete, result).unwrap();
    Message {
        id: 5,
        op,
        controls: Controls::EMPTY,
    }
    .encode(&mut out);
    let expected =
        b"\x30\x1d\x02\x01\x05\x6b\x18\x0a\x01\x0a\x04\x03o=a\x04\x02hi\xa3\x0a\x04\x08ldap://b";
    assert_eq!(
        out.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    assert_eq!(
        ResponseMessage::decode(&out).unwrap().op.result(),
        Some(&result)
    );
}

/// Reads bytes as everything they might be and walks what comes out.
fn walk_everything(bytes: &[u8]) {
    MessageModel::read(bytes);
    // Views of bytes that nobody checked.
    Attributes::from_checked(bytes).iter().for_each(drop);
    OctetStrings::from_checked(bytes).iter().for_each(drop);
    if let Ok(filter) = Filter::from_ber(bytes) {
        FilterModel::of(filter);
    }
    if let Ok(controls) = Controls::from_ber(bytes) {
        controls.iter().for_each(drop);
    }
    let _ = PagedResults::decode(bytes);
    let mut out = Vec::new();
    if let Ok(wanted) = PersistentSearch::decode(bytes) {
        wanted.encode(&mut out);
        assert_eq!(PersistentSearch::decode(&out), Ok(wanted));
    }
    out.clear();
    if let Ok(change) = EntryChange::decode(bytes) {
        change.encode(&mut out);
        assert_eq!(EntryChange::decode(&out), Ok(change));
    }
    let _ = ReadEntry::decode(bytes);
    let _ = SearchResultEntry::from_ber(bytes);
    let _ = SortKeys::decode(bytes).map(|keys| keys.iter().for_each(drop));
    let _ = SortResult::decode(bytes);
    let _ = extended::PasswordModify::decode(Some(bytes));
    let _ = extended::generated_password(bytes);
    let _ = extended::cancel_id(bytes);
}

/// A search request on `base` with the given fields in place of scope, size limit and filter.
fn raw_search(scope: u8, size_limit: &[u8], filter: &[u8]) -> Vec<u8> {
    use sapwood_ldap::ber::{self, ENUMERATED, INTEGER, OCTET_STRING, SEQUENCE};
    let mut out = Vec::new();
    let message = ber::open(&mut out, SEQUENCE, 0);
    ber::put_integer(&mut out, INTEGER, 7);
    let op = ber::open(&mut out, 0x63, 0);
    ber::put_octets(&mut out, OCTET_STRING, b"dc=example");
    ber::put_octets(&mut out, ENUMERATED, &[scope]);
    ber::put_octets(&mut out, ENUMERATED, &[0]);
    ber::put_octets(&mut out, INTEGER, size_limit);
    ber::put_octets(&mut out, INTEGER, &[0]);
    ber::put_boolean(&mut out, ber::BOOLEAN, false);
    out.extend_from_slice(filter);
    ber::put_octets(&mut out, SEQUENCE, b"");
    ber::close(&mut out, op);
    ber::close(&mut out, message);
    out
}

const PRESENT: &[u8] = b"\x87\x02cn";

#[test]
fn fields_out_of_range_are_refused_with_the_operation_to_answer() {
    let refused = |violation| {
        Err(DecodeError::Refused {
            id: 7,
            operation: Operation::Search,
            violation,
        })
    };
    assert!(RequestMessage::decode(&raw_search(2, &[0], PRESENT)).is_ok());
    let scope = raw_search(9, &[0], PRESENT);
    assert_eq!(
        RequestMessage::decode(&scope),
        refused(Violation::OutOfRange { field: "scope" })
    );
    let negative = raw_search(2, &[0xff], PRESENT);
    assert_eq!(
        RequestMessage::decode(&negative),
        refused(Violation::OutOfRange { field: "sizeLimit" })
    );
    let large = raw_search(2, &[0x00, 0x80, 0, 0, 0], PRESENT);
    assert_eq!(
        RequestMessage::decode(&large),
        refused(Violation::OutOfRange { field: "sizeLimit" })
    );
    let padded = raw_search(2, &[0, 0, 0, 5], PRESENT);
    assert!(matches!(
        RequestMessage::decode(&padded),
        Ok(Message {
            op: Request::Search(SearchRequest { size_limit: 5, .. }),
            ..
        })
    ));
}

#[test]
fn ten_thousand_nested_nots_are_refused() {
    let mut filter = PRESENT.to_vec();
    for _ in 0..10_000 {
        let mut around = Vec::new();
        sapwood_ldap::ber::put_octets(&mut around, 0xa2, &filter);
        filter = around;
    }
    let refused = DecodeError::Refused {
        id: 7,
        operation: Operation::Search,
        violation: Violation::FilterDepth,
    };
    assert_eq!(
        RequestMessage::decode(&raw_search(2, &[0], &filter)),
        Err(refused)
    );
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_the_bytes_come() {
    let huge = [0x30, 0x86, 1, 0, 0, 0, 0, 0];
    let too_large = Malformed::TooLarge {
        bytes: (1 << 40) + 8,
        bytes_max: 1 << 20,
    };
    assert_eq!(frame(&huge, 1 << 20), Err(too_large));
    assert_eq!(
        RequestMessage::decode(&huge),
        Err(Malformed::Truncated {
            field: "LDAPMessage"
        }
        .into())
    );
    let largest = [0x30, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(
        frame(&largest, 1 << 20),
        Err(Malformed::TooLarge { .. })
    ));
    assert_eq!(
        frame(&[0x30, 0x03], 4),
        Err(Malformed::TooLarge {
            bytes: 5,
            bytes_max: 4
        })
    );
    assert_eq!(frame(&[0x30, 0x03], 5), Ok(Frame::Incomplete(5)));
}

#[test]
fn what_is_no_message_is_malformed() {
    assert_eq!(
        frame(b"GET / HTTP/1.1", 100),
        Err(Malformed::Tag {
            field: "LDAPMessage",
            expected: 0x30,
            found: b'G'
        })
    );
    assert_eq!(frame(b"", 100), Ok(Frame::Incomplete(2)));
    assert_eq!(
        frame(&[0x30, 0x80, 0, 0], 100),
        Err(Malformed::IndefiniteLength)
    );
    // A message ID of zero, a negative one, and one that is too large.
    assert_eq!(
        RequestMessage::decode(&[0x30, 5, 2, 1, 0, 0x42, 0]),
        Err(Malformed::MessageId.into())
    );
    assert_eq!(
        RequestMessage::decode(&[0x30, 5, 2, 1, 0xff, 0x42, 0]),
        Err(Malformed::MessageId.into())
    );
    assert_eq!(
        RequestMessage::decode(&[0x30, 9, 2, 5, 0, 0x80, 0, 0, 0, 0x42, 0]),
        Err(Malformed::MessageId.into())
    );
    // A response where a request should be, and the other way round.
    assert_eq!(
        RequestMessage::decode(&[0x30, 5, 2, 1, 1, 0x61, 0]),
        Err(Malformed::Operation { tag: 0x61 }.into())
    );
    assert_eq!(
        ResponseMessage::decode(&[0x30, 5, 2, 1, 1, 0x42, 0]),
        Err(Malformed::Operation { tag: 0x42 }.into())
    );
    // Octets after the message, and a truncated field within.
    assert_eq!(
        RequestMessage::decode(&[0x30, 5, 2, 1, 1, 0x42, 0, 9]),
        Err(Malformed::Trailing.into())
    );
    assert_eq!(
        RequestMessage::decode(&[0x30, 7, 2, 1, 1, 0x77, 2, 0x80, 9]),
        Err(Malformed::Truncated {
            field: "requestName"
        }
        .into())
    );
}

#[test]
fn trailing_components_that_are_not_known_are_ignored() {
    // An unbind followed by something LDAP does not have; the delete of "x" followed by controls and more.
    assert!(RequestMessage::decode(&[0x30, 8, 2, 1, 1, 0x42, 0, 0x8f, 1, 9]).is_ok());
    let delete = [0x30, 12, 2, 1, 1, 0x4a, 1, b'x', 0xa0, 0, 0x8f, 1, 9, 0];
    assert!(RequestMessage::decode(&delete[..13]).is_err());
    let delete = [0x30, 11, 2, 1, 1, 0x4a, 1, b'x', 0xa0, 0, 0x8f, 1, 9];
    assert!(RequestMessage::decode(&delete).is_ok());
    // An extended request with an unknown field after its value.
    let extended = [
        0x30, 14, 2, 1, 1, 0x77, 9, 0x80, 1, b'1', 0x81, 0, 0x9e, 2, 1, 2,
    ];
    assert!(RequestMessage::decode(&extended).is_ok());
}

#[test]
fn limits_of_counts_are_named() {
    use sapwood_ldap::ber;
    let with_selectors = |count: usize| {
        let mut out = raw_search(2, &[0], PRESENT);
        // The empty attribute list is the last element: write it anew.
        let search = match RequestMessage::decode(&out).unwrap().op {
            Request::Search(search) => search,
            other => panic!("{other:?}"),
        };
        let mut list = Vec::new();
        (0..count).for_each(|_| ber::put_octets(&mut list, ber::OCTET_STRING, b"a"));
        let attributes = OctetStrings::from_checked(&list);
        let mut again = Vec::new();
        let op = Request::Search(SearchRequest {
            attributes,
            ..search
        });
        Message {
            id: 7,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut again);
        out = again;
        RequestMessage::decode(&out).err()
    };
    assert_eq!(with_selectors(ATTRIBUTES_MAX), None);
    let refused = DecodeError::Refused {
        id: 7,
        operation: Operation::Search,
        violation: Violation::Attributes,
    };
    assert_eq!(with_selectors(ATTRIBUTES_MAX + 1), Some(refused));
}

#[test]
fn an_entry_written_in_pieces_is_the_entry_written_at_once() {
    use sapwood_ldap::list::AttributesBuf;
    for octets in [0, 1, 60, 100, 127, 128, 300, 70_000] {
        let value = vec![b'v'; octets];
        let mut list = AttributesBuf::default();
        list.push(b"cn", [&value[..], b"second"]);
        let mut at_once = vec![0xee];
        put_search_entry(&mut at_once, 300, b"cn=x", list.view().as_ber());

        let mut below = vec![0xee];
        let (rdn, superior) = (&b"cn=x"[..], vec![b'd'; octets]);
        let dn = [rdn, b",", &superior].concat();
        put_search_entry_below(
            &mut below,
            300,
            rdn,
            Some(&superior),
            list.view().as_ber(),
            Controls::EMPTY,
        );
        let mut joined = vec![0xee];
        put_search_entry(&mut joined, 300, &dn, list.view().as_ber());
        assert_eq!(below, joined);

        let mut in_pieces = vec![0xee];
        let mut writer = EntryWriter::begin(&mut in_pieces, 300, b"cn=x");
        writer.put_attribute(b"cn", [&value[..], b"second"]);
        writer.finish(Controls::EMPTY);
        assert_eq!(in_pieces, at_once, "{octets}");

        let mut given_up = vec![0xee];
        let mut writer = EntryWriter::begin(&mut given_up, 300, b"cn=x");
        writer.put_ber(list.view().as_ber());
        drop(writer);
        assert_eq!(given_up, [0xee]);
    }
}
