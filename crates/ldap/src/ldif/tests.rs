use std::borrow::Cow;
use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::steps::is_linear;

/// What became of each record: its text form, or the line and the reason of its rejection.
fn read(text: &str) -> Vec<Result<String, (u64, Reason)>> {
    read_with(text.as_bytes(), Options::default())
}

fn read_with(text: &[u8], options: Options<'_>) -> Vec<Result<String, (u64, Reason)>> {
    let mut reader = Reader::new(text, options);
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        all.push(match record {
            Ok(record) => {
                let mut out = Vec::new();
                write_record(&mut out, &record);
                Ok(String::from_utf8(out).unwrap())
            }
            Err(rejected) => Err((rejected.line, rejected.reason)),
        });
    }
    all
}

fn only(text: &str) -> Result<String, (u64, Reason)> {
    let [record] = <[_; 1]>::try_from(read(text)).unwrap();
    record
}

/// RFC 2849, examples 1, 2, 4 and 6 in short: what is written is what was read, in canonical form.
#[test]
fn examples_of_the_rfc() {
    let entry = "version: 1\n\
        dn: cn=Barbara Jensen, ou=Product Development, dc=airius, dc=com\n\
        objectclass: top\n\
        cn: Barbara Jensen\n\
        telephonenumber: +1 408 555 1212\n\
        description:Babs is a big sailing fan, and travels extensively in sea\n \
        rch of perfect sailing conditions.\n\
        title:Product Manager, Rod and Reel Division\n";
    assert_eq!(
        only(entry).unwrap(),
        "dn: cn=Barbara Jensen, ou=Product Development, dc=airius, dc=com\n\
        objectclass: top\n\
        cn: Barbara Jensen\n\
        telephonenumber: +1 408 555 1212\n\
        description: Babs is a big sailing fan, and travels extensively in search of\n  \
        perfect sailing conditions.\n\
        title: Product Manager, Rod and Reel Division\n\n"
    );

    let changes = "version: 1\n\
        # Add a new entry\n\
        dn: cn=Fiona Jensen, ou=Marketing, dc=airius, dc=com\n\
        changetype: add\n\
        objectclass: person\n\
        sn: Jensen\n\
        \n\
        # Delete an existing entry\n\
        dn: cn=Robert Jensen, ou=Marketing, dc=airius, dc=com\n\
        changetype: delete\n\
        \n\
        dn: cn=Paul Jensen, ou=Product Development, dc=airius, dc=com\n\
        changetype: modrdn\n\
        newrdn: cn=Paula Jensen\n\
        deleteoldrdn: 1\n\
        \n\
        dn: ou=PD Accountants, ou=Product Development, dc=airius, dc=com\n\
        changetype: moddn\n\
        newrdn: ou=Product Development Accountants\n\
        deleteoldrdn: 0\n\
        newsuperior: ou=Accounting, dc=airius, dc=com\n\
        \n\
        dn: cn=Paula Jensen, ou=Product Development, dc=airius, dc=com\n\
        changetype: modify\n\
        add: postaladdress\n\
        postaladdress: 123 Anystreet $ Sunnyvale, CA $ 94086\n\
        -\n\
        delete: description\n\
        -\n\
        replace: telephonenumber\n\
        telephonenumber: +1 408 555 1234\n\
        telephonenumber: +1 408 555 5678\n\
        -\n\
        \n\
        dn: ou=Product Development, dc=airius, dc=com\n\
        control: 1.2.840.113556.1.4.805 true\n\
        control: 1.2.3:: aGk=\n\
        control: 1.2.4 false: plain value\n\
        changetype: delete\n";
    let written: String = read(changes).into_iter().map(Result::unwrap).collect();
    assert_eq!(
        written,
        changes
            .replace("version: 1\n# Add a new entry\n", "")
            .replace("# Delete an existing entry\n", "")
            .replace("moddn\n", "modrdn\n")
            .replace("1.2.3::", "1.2.3 false::")
            .replace("false: plain value", "false:: cGxhaW4gdmFsdWU=")
            + "\n"
    );
}

#[test]
fn base64_comments_and_folds_anywhere() {
    let text = "\r\n# first\n # goes on\nVersion:1\r\n\r\n\
        dn:: Y249YQ==\r\n\
        # between\r\n \
        continued comment\r\n\
        c\n n: \n a\n\
        sn;lang-de::   \n w7w=\n\
        description:\n\
        title: \u{fc}\n";
    assert_eq!(
        only(text).unwrap(),
        "dn: cn=a\ncn: a\nsn;lang-de:: w7w=\ndescription:\ntitle:: w7w=\n\n"
    );
}

#[test]
fn rejected_records_have_a_line_a_reason_and_their_text_and_reading_goes_on() {
    let text = "version: 1\n\
        \n\
        dn: cn=a\n\
        cn: a\n\
        no colon\n\
        sn: a\n\
        \n\n\
        cn: no name\n\
        \n\
        dn: cn=b\n\
        cn: b\n";
    let mut reader = Reader::new(text.as_bytes(), Options::default());
    let first = reader.next_record().unwrap().unwrap().unwrap_err();
    assert_eq!(
        first.to_string(),
        "line 5: the line has no colon after the attribute"
    );
    assert_eq!(first.text, b"dn: cn=a\ncn: a\nno colon\nsn: a\n");
    let second = reader.next_record().unwrap().unwrap().unwrap_err();
    assert_eq!((second.line, second.reason), (9, Reason::MissingDn));
    let third = reader.next_record().unwrap().unwrap().unwrap();
    assert_eq!(
        (third.line, third.text),
        (11, b"dn: cn=b\ncn: b\n".as_slice())
    );
    assert!(reader.next_record().unwrap().is_none());
}

#[test]
fn reasons() {
    let reason = |lines: &str| only(&format!("dn: cn=a\n{lines}")).unwrap_err();
    assert_eq!(reason(""), (1, Reason::NoAttributes));
    assert_eq!(reason("cn:: *\n"), (2, Reason::BadBase64));
    assert_eq!(
        reason("c_n: a\n"),
        (2, Reason::BadDescription("c_n".to_owned()))
    );
    assert_eq!(
        reason("jpegPhoto:< file:///etc/passwd\n"),
        (2, Reason::UrlNotAllowed)
    );
    assert_eq!(
        reason("changetype: fly\n"),
        (2, Reason::BadChangeType("fly".to_owned()))
    );
    assert_eq!(
        reason("changetype: delete\ncn: a\n"),
        (3, Reason::TrailingLine)
    );
    assert_eq!(reason("changetype: add\n"), (2, Reason::NoAttributes));
    assert_eq!(
        reason("changetype: modify\ncn: a\n"),
        (3, Reason::BadModification)
    );
    assert_eq!(
        reason("changetype: modify\nadd: cn\nsn: a\n"),
        (4, Reason::WrongAttribute("cn".to_owned()))
    );
    assert_eq!(
        reason("changetype: modrdn\n"),
        (2, Reason::ExpectedLine("newrdn:"))
    );
    assert_eq!(
        reason("changetype: modrdn\nnewrdn: cn=b\n"),
        (3, Reason::ExpectedLine("deleteoldrdn:"))
    );
    assert_eq!(
        reason("changetype: modrdn\nnewrdn: cn=b\ndeleteoldrdn: yes\n"),
        (4, Reason::BadDeleteOldRdn)
    );
    assert_eq!(
        reason("control: 1.2.3\ncn: a\n").1,
        Reason::MissingChangeType
    );
    assert_eq!(
        reason("control: x true\nchangetype: delete\n"),
        (2, Reason::BadControl)
    );
    assert_eq!(
        reason("control: 1.2 maybe\nchangetype: delete\n"),
        (2, Reason::BadControl)
    );
    assert_eq!(
        only(" dn: cn=a\n").unwrap_err(),
        (1, Reason::StrayContinuation)
    );
    assert_eq!(
        only("version: 2\ndn: cn=a\ncn: a\n").unwrap_err(),
        (1, Reason::UnknownVersion)
    );
    assert_eq!(
        only("dn:: /w==\ncn: a\n").unwrap_err(),
        (1, Reason::NotUtf8)
    );
}

#[test]
fn urls_are_fetched_only_by_who_is_asked_to() {
    let load_url = |url: &str| match url {
        "file:///photo" => Ok(b"\xff\xd8".to_vec()),
        _ => Err("no such file".to_owned()),
    };
    let options = Options {
        load_url: Some(&load_url),
        ..Options::default()
    };
    let text = b"dn: cn=a\njpegPhoto:< file:///photo\n\ndn: cn=b\njpegPhoto:<file:///other\n";
    let failed = Reason::UrlFailed {
        url: "file:///other".to_owned(),
        error: "no such file".to_owned(),
    };
    assert_eq!(
        read_with(text, options),
        [
            Ok("dn: cn=a\njpegPhoto:: /9g=\n\n".to_owned()),
            Err((5, failed))
        ]
    );
}

#[test]
fn limits_hold_and_reading_goes_on_behind_them() {
    let long = format!("dn: cn=a\ncn: {}\n\ndn: cn=b\ncn: b\n", "a".repeat(100));
    let options = Options {
        line_bytes_max: 50,
        ..Options::default()
    };
    let good = "dn: cn=b\ncn: b\n\n".to_owned();
    assert_eq!(
        read_with(long.as_bytes(), options),
        [Err((2, Reason::LineTooLong(50))), Ok(good.clone())]
    );

    // Longer than a block, so that the reader cannot hold it.
    let value = "cn: a\n".repeat(BLOCK_BYTES);
    let long = format!("dn: cn=x\ncn: x\n\ndn: cn=a\n{value}\ndn: cn=b\ncn: b\n\ndn: cn=c\nc\n");
    let options = Options {
        record_bytes_max: 3 * BLOCK_BYTES,
        ..Options::default()
    };
    let lines = BLOCK_BYTES as u64;
    assert_eq!(
        read_with(long.as_bytes(), options),
        [
            Ok("dn: cn=x\ncn: x\n\n".to_owned()),
            Err((4, Reason::RecordTooLong(3 * BLOCK_BYTES))),
            Ok(good),
            Err((lines + 10, Reason::MissingColon)),
        ]
    );
}

#[test]
fn a_record_that_begins_with_too_many_comments_is_not_passed_over() {
    let comments = "# nothing\n".repeat(BLOCK_BYTES);
    let text = format!("dn: cn=x\ncn: x\n\n{comments}dn: cn=a\ncn: a\n\ndn: cn=b\ncn: b\n");
    let record_bytes_max = 3 * BLOCK_BYTES;
    let options = Options {
        record_bytes_max,
        ..Options::default()
    };
    assert_eq!(
        read_with(text.as_bytes(), options),
        [
            Ok("dn: cn=x\ncn: x\n\n".to_owned()),
            Err((4, Reason::RecordTooLong(record_bytes_max))),
            Ok("dn: cn=b\ncn: b\n\n".to_owned()),
        ]
    );
}

#[test]
fn errors_of_the_source_are_passed_on() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("torn"))
        }
    }
    let error = Reader::new(Failing, Options::default())
        .next_record()
        .unwrap_err();
    assert_eq!(error.to_string(), "torn");
}

/// None that means something else where an attribute may stand: `changetype`, `control`, `dn`.
fn description() -> impl Strategy<Value = Cow<'static, str>> {
    "[a-be-z][a-zA-Z0-9-]{0,8}(;[a-z]{1,4}){0,2}".prop_map(Cow::Owned)
}

fn value() -> impl Strategy<Value = Cow<'static, [u8]>> {
    prop_oneof![
        "[ -~]{0,20}".prop_map(|text| Cow::Owned(text.into_bytes())),
        "[ -~]{60,180}".prop_map(|text| Cow::Owned(text.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..100).prop_map(Cow::Owned),
    ]
}

fn attributes() -> impl Strategy<Value = Vec<AttributeValue<'static>>> {
    let attribute = (description(), value());
    prop::collection::vec(
        attribute.prop_map(|(description, value)| AttributeValue { description, value }),
        1..6,
    )
}

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    ".{0,100}".prop_map(Cow::Owned)
}

fn record() -> impl Strategy<Value = Record<'static>> {
    let kind = prop::sample::select(vec![
        ModificationKind::Add,
        ModificationKind::Delete,
        ModificationKind::Replace,
        ModificationKind::Increment,
    ]);
    let modification = (kind, description(), prop::collection::vec(value(), 0..4)).prop_map(
        |(kind, description, values)| Modification {
            kind,
            description,
            values,
        },
    );
    let control = (
        "[0-2](\\.[1-9]{1,3}){1,4}",
        any::<bool>(),
        prop::option::of(value()),
    )
        .prop_map(|(oid, critical, value)| Control {
            oid: Cow::Owned(oid),
            critical,
            value,
        });
    let change = prop_oneof![
        attributes().prop_map(Body::Add),
        Just(Body::Delete),
        prop::collection::vec(modification, 0..4).prop_map(Body::Modify),
        (text(), any::<bool>(), prop::option::of(text())).prop_map(
            |(new_rdn, delete_old_rdn, new_superior)| {
                Body::ModifyDn {
                    new_rdn,
                    delete_old_rdn,
                    new_superior,
                }
            }
        ),
    ];
    let change = (prop::collection::vec(control, 0..3), change);
    let body = prop_oneof![
        attributes().prop_map(|attributes| (vec![], Body::Entry(attributes))),
        change
    ];
    (text(), body).prop_map(|(dn, (controls, body))| Record {
        line: 0,
        text: &[],
        dn,
        controls,
        body,
    })
}

/// A source that gives its bytes in small, odd pieces.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.0.len().min(out.len()).min(self.1);
        out[..piece].copy_from_slice(&self.0[..piece]);
        self.0 = &self.0[piece..];
        Ok(piece)
    }
}

#[test]
fn a_byte_order_mark_is_passed_over_at_the_beginning() {
    for text in [
        "\u{feff}dn: o=x\no: x\n",
        "\u{feff}version: 1\n\ndn: o=x\no: x\n",
        "\u{feff}# a comment\r\ndn: o=x\r\no: x\r\n",
    ] {
        let mut reader = Reader::new(text.as_bytes(), Options::default());
        let record = reader.next_record().unwrap().unwrap().unwrap();
        let line = text.lines().position(|line| line.contains("dn:")).unwrap() + 1;
        assert_eq!((record.dn.as_ref(), record.line), ("o=x", line as u64));
        assert!(reader.next_record().unwrap().is_none());
    }
    // Elsewhere it is a character like any other.
    let text = "dn: o=x\no: x\n\n\u{feff}dn: o=y\no: y\n";
    let mut reader = Reader::new(text.as_bytes(), Options::default());
    assert!(reader.next_record().unwrap().unwrap().is_ok());
    let rejected = reader.next_record().unwrap().unwrap().unwrap_err();
    assert_eq!(rejected.line, 4);
}

/// Two records in one have the line of the second one's name told, whatever stands before it.
#[test]
fn a_missing_empty_line_is_told_at_the_second_name() {
    let first = [
        ("dn: o=x\no: x\n", 3),
        ("dn: o=x\r\no: x\r\n \r\n", 4),
        ("dn: o=x\n# a comment\n that is folded\no: x\n y\n", 6),
        ("dn: o=x\nchangetype: add\no: x\n", 4),
        ("dn: o=x\nchangetype: delete\n", 3),
        ("dn: o=x\nchangetype: modify\nadd: o\no: y\n", 5),
        ("dn: o=x\nchangetype: modify\nadd: o\no: y\n-\n", 6),
        (
            "dn: o=x\nchangetype: modrdn\nnewrdn: o=y\ndeleteoldrdn: 1\n",
            5,
        ),
    ];
    for (text, line) in first {
        for begin in ["dn: o=z\no: z\n", "DN:: bz16\no: z\n"] {
            let whole = format!("{text}{begin}\ndn: o=after\no: after\n");
            let mut reader = Reader::new(whole.as_bytes(), Options::default());
            let rejected = reader.next_record().unwrap().unwrap().unwrap_err();
            assert_eq!(rejected.reason, Reason::MissingEmptyLine, "{whole}");
            assert_eq!(rejected.line, line, "{whole}");
            assert!(rejected.to_string().contains("empty line is missing"));
            let after = reader.next_record().unwrap().unwrap().unwrap();
            assert_eq!(after.dn, "o=after");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_survive_writing_and_reading(
        records in prop::collection::vec(record(), 0..6), crlf in any::<bool>(), piece in 1..50usize
    ) {
        let mut text = Vec::new();
        write_version(&mut text);
        for record in &records {
            write_record(&mut text, record);
        }
        prop_assert!(text.split(|&byte| byte == b'\n').all(|line| line.len() <= COLUMNS));
        if crlf {
            text = String::from_utf8(text).unwrap().replace('\n', "\r\n").into_bytes();
        }
        let mut reader = Reader::new(Dribble(&text, piece), Options::default());
        for record in &records {
            let read = reader.next_record().unwrap().unwrap().unwrap();
            let start = text.windows(read.text.len()).position(|window| window == read.text).unwrap();
            prop_assert!(start > 0);
            prop_assert_eq!(Record { line: 0, text: &[], ..read }, record.clone());
        }
        prop_assert!(reader.next_record().unwrap().is_none());
    }

    #[test]
    fn no_bytes_panic_and_blocks_give_what_the_reader_gives(
        text in "([a-c :\r#<=-]|dn: |\n|\n\n|changetype: (modify|add|modrdn)\n|control: 1.2|add: a\n){0,60}",
        noise in prop::collection::vec(any::<u8>(), 0..20),
        record_bytes_max in 1..200usize,
    ) {
        let mut text = text.into_bytes();
        text.extend(noise);
        let options = Options { record_bytes_max, line_bytes_max: 60, load_url: None };
        let read = read_lossy(Reader::new(text.as_slice(), options));
        let mut by_blocks = Vec::new();
        for block in Blocks::new(text.as_slice(), options) {
            let block = block.unwrap();
            by_blocks.extend(block.records(options).map(|record| format!("{record:?}")));
        }
        prop_assert_eq!(read, by_blocks);
    }
}

fn read_lossy(mut reader: Reader<'_, &[u8]>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        all.push(format!("{record:?}"));
    }
    all
}

#[test]
fn a_text_is_read_in_proportion_to_its_length() {
    type Text = fn(usize) -> String;
    let texts: [Text; 9] = [
        |n| "dn: cn=x,o=x\ncn: x\n\n".repeat(n),
        |n| format!("dn: o=x\n{}", "o: x\n".repeat(n)),
        |n| format!("dn: o=x\no: x{}\n", "\n x".repeat(n)),
        |n| format!("dn: o=x\no:: {}\n", "eHh4\n ".repeat(n)),
        |n| format!("{}dn: o=x\no: x\n", "# a comment\n\n".repeat(n)),
        |n| format!("dn: o=x\n{}o: x\n", "# a comment\n".repeat(n)),
        |n| {
            let controls = "control: 1.2.3 true: x\n".repeat(n);
            format!("dn: o=x\n{controls}changetype: delete\n")
        },
        |n| {
            let changes = "add: o\no: x\n-\n".repeat(n);
            format!("dn: o=x\nchangetype: modify\n{changes}")
        },
        // No record at all.
        |n| format!("dn: o=x\n{}", "nothing\n".repeat(n)),
    ];
    for text in texts {
        // Of one block and, of long lines, of several.
        for n in [3000, 50_000] {
            is_linear(n, |n| drop(read(&text(n))));
        }
    }
}
