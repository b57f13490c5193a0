//! What is written is read back, and what cannot be read is told with its place.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::parse_rules;
use crate::policy::*;

fn text() -> BoxedStrategy<String> {
    // With what has a meaning in rules.
    prop_oneof![
        "[a-z$\\\\\" (){}=,.%/*+#-]{0,12}",
        "\\PC{0,8}",
        "(\\$[0-9]|\\$\\{v[0-9]\\}){1,3}"
    ]
    .prop_filter("it would be everybody", |text| text != "*")
    .boxed()
}

fn name() -> BoxedStrategy<String> {
    "[a-z][a-z0-9-]{0,6}"
        .prop_filter("a word of its own", |name| {
            !["entry", "children"].contains(&name.as_str())
        })
        .boxed()
}

fn dn() -> BoxedStrategy<String> {
    prop_oneof![
        Just(String::new()),
        "(uid=[a-z]{1,4},){0,2}dc=example,dc=com",
        Just("cn=a\\,b \\\"c\\\" \\\\,dc=x".to_owned())
    ]
    .boxed()
}

fn entries_scope() -> BoxedStrategy<DnScope> {
    prop_oneof![
        Just(DnScope::Base),
        Just(DnScope::One),
        Just(DnScope::Subtree),
        Just(DnScope::Children)
    ]
    .boxed()
}

fn scope() -> BoxedStrategy<DnScope> {
    prop_oneof![entries_scope(), any::<u32>().prop_map(DnScope::Level)].boxed()
}

fn entries() -> BoxedStrategy<DnPattern> {
    prop_oneof![
        (entries_scope(), dn()).prop_map(|(scope, dn)| DnPattern::new(scope, dn)),
        text().prop_map(|dn| DnPattern::new(DnScope::Regex, dn)),
    ]
    .boxed()
}

fn attributes() -> BoxedStrategy<Vec<Attributes>> {
    let one = prop_oneof![
        name().prop_map(Attributes::Type),
        name().prop_map(Attributes::Class),
        name().prop_map(Attributes::NotClass),
        Just(Attributes::Entry),
        Just(Attributes::Children)
    ];
    prop::collection::vec(one, 0..3).boxed()
}

fn values() -> BoxedStrategy<ValuePattern> {
    let pattern = |(matching_rule, scope, value)| ValuePattern {
        matching_rule,
        scope,
        value,
    };
    prop_oneof![
        (Just(None), entries_scope(), text()).prop_map(pattern),
        (Just(None), Just(DnScope::Regex), text()).prop_map(pattern),
        (name().prop_map(Some), Just(DnScope::Base), text()).prop_map(pattern),
    ]
    .boxed()
}

fn what() -> BoxedStrategy<What> {
    let filter = prop_oneof![
        Just("(cn=a b)".to_owned()),
        Just("(&(a=*)(!(b=\\28\")))".to_owned())
    ];
    let all = (
        prop::option::of(entries()),
        prop::option::of(filter),
        attributes(),
        prop::option::of(values()),
    );
    all.prop_map(|(entries, filter, attributes, values)| What {
        entries,
        filter,
        // Only one type has values.
        values: values.filter(|_| matches!(attributes[..], [Attributes::Type(_)])),
        attributes,
    })
    .boxed()
}

fn bound() -> BoxedStrategy<Who> {
    prop_oneof![
        Just(Who::Anonymous),
        Just(Who::Users),
        Just(Who::SelfEntry),
        any::<i32>()
            .prop_filter("self", |level| *level != 0)
            .prop_map(Who::SelfLevel),
        (scope(), dn()).prop_map(|(scope, dn)| Who::Dn(DnPattern::new(scope, dn))),
        text().prop_map(|dn| Who::Dn(DnPattern::new(DnScope::Regex, dn))),
        (scope(), text()).prop_map(|(scope, dn)| Who::ExpandedDn(DnPattern::new(scope, dn))),
        name().prop_map(Who::DnAttribute),
    ]
    .boxed()
}

fn style() -> BoxedStrategy<TextStyle> {
    prop_oneof![
        Just(TextStyle::Exact),
        Just(TextStyle::Regex),
        Just(TextStyle::Expand)
    ]
    .boxed()
}

fn group() -> BoxedStrategy<Who> {
    let styled = prop_oneof![
        dn().prop_map(|dn| (GroupStyle::Exact, dn)),
        dn().prop_map(|dn| (GroupStyle::Nested, dn)),
        text().prop_map(|dn| (GroupStyle::Expand, dn)),
    ];
    let of = prop::option::of((name(), prop::option::of(name())));
    (of, styled)
        .prop_map(|(of, (style, dn))| {
            let (class, attribute) =
                of.map_or((None, None), |(class, attribute)| (Some(class), attribute));
            Who::Group(Group {
                class,
                attribute,
                style,
                dn,
            })
        })
        .boxed()
}

fn peer() -> BoxedStrategy<Who> {
    let v4 = any::<u32>().prop_map(Ipv4Addr::from_bits);
    let v6 = any::<u128>().prop_map(Ipv6Addr::from_bits);
    let port = || prop::option::of(any::<u16>());
    let peer = prop_oneof![
        (style(), text()).prop_map(|(style, pattern)| Peer::Name { style, pattern }),
        (v4.clone(), v4, port()).prop_map(|(address, mask, port)| Peer::Ip {
            address,
            mask,
            port
        }),
        (v6.clone(), v6, port()).prop_map(|(address, mask, port)| Peer::Ipv6 {
            address,
            mask,
            port
        }),
        text().prop_map(Peer::Path),
    ];
    peer.prop_map(Who::Peer).boxed()
}

fn socket() -> BoxedStrategy<Who> {
    let names = prop_oneof![Just(SocketName::Sockname), Just(SocketName::Sockurl)];
    (names, style(), text())
        .prop_map(|(what, style, pattern)| Who::Socket {
            what,
            style,
            pattern,
        })
        .boxed()
}

fn strength() -> BoxedStrategy<Who> {
    let of = prop_oneof![
        Just(Strength::Any),
        Just(Strength::Transport),
        Just(Strength::Tls),
        Just(Strength::Sasl)
    ];
    (of, 1..u32::MAX)
        .prop_map(|(of, least)| Who::Strength { of, least })
        .boxed()
}

fn who() -> BoxedStrategy<Vec<Who>> {
    let bound = prop_oneof![
        Just(Who::Anyone),
        bound(),
        bound().prop_map(|who| Who::Real(Box::new(who)))
    ];
    let set = (any::<bool>(), text()).prop_map(|(expand, text)| {
        let pattern = format!("[{}]/member* & user", text.replace(']', ""));
        Who::Set { expand, pattern }
    });
    let more = prop_oneof![group(), peer(), socket(), strength(), set];
    prop_oneof![
        bound.clone().prop_map(|who| vec![who]),
        more.clone().prop_map(|who| vec![who]),
        (bound, more).prop_map(|(one, other)| vec![one, other]),
    ]
    .boxed()
}

fn by() -> BoxedStrategy<By> {
    let rights = prop::sample::select(vec![
        Rights::NONE,
        Rights::UP_TO_READ,
        Rights::UP_TO_ADD,
        Rights::UP_TO_DELETE,
        Rights::WRITE | Rights::UP_TO_AUTH,
        Rights::ALL,
        Rights::SEARCH | Rights::ADD,
        Rights::MANAGE | Rights::DELETE,
    ]);
    let grant = prop_oneof![
        rights.clone().prop_map(Grant::Set),
        rights.clone().prop_map(Grant::Add),
        rights.prop_map(Grant::Remove)
    ];
    let own = prop_oneof![
        Just(None),
        Just(Some(Subject::Effective)),
        Just(Some(Subject::Real))
    ];
    let then = prop_oneof![Just(Then::Stop), Just(Then::Continue), Just(Then::Break)];
    (who(), own, grant, then)
        .prop_map(|(who, own_values, grant, then)| By {
            who,
            own_values,
            grant,
            then,
        })
        .boxed()
}

fn rule() -> BoxedStrategy<Rule> {
    (what(), prop::collection::vec(by(), 1..4))
        .prop_map(|(to, by)| Rule { to, by })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_written_is_read_back(rules in prop::collection::vec(rule(), 0..3)) {
        let mut file = String::new();
        for rule in &rules {
            let line = rule.to_string();
            prop_assert_eq!(&line.parse::<Rule>(), &Ok(rule.clone()), "{}", line);
            file.push_str(&format!("# a comment\naccess {line}\n\n"));
        }
        let read = parse_rules(&file).unwrap();
        let read: Vec<Rule> = read.into_iter().map(|(_, rule)| rule).collect();
        prop_assert_eq!(read, rules);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(access to |by |dn[.]|self|=|\"|\\\\|[*] |\\PC|[{}%,/ \n]){0,30}") {
        let _ = parse_rules(&text);
        let _ = text.parse::<Rule>();
    }
}

fn shown(text: &str) -> String {
    let rules = parse_rules(text).unwrap();
    let lines = rules.iter().map(|(line, rule)| format!("{line}: {rule}\n"));
    lines.collect()
}

#[test]
fn rules_stand_in_files_as_in_slapd_conf() {
    let text = "\
# the first
access to dn.regex=\"^uid=([^,]+),dc=x$\" attrs=mail,@person
    by self =rscdxw
  # in the midst
\tby dn.exact,expand=\"cn=$1,dc=x\"
    write continue
    by *

ACCESS TO *
    BY dnattr=member selfwrite
    by * break
    by group/groupOfUniqueNames/uniqueMember=\"cn=g,dc=x\" tls_ssf=128 peername.ip=10.0.0.0%255.0.0.0{389} +rs
";
    let expected = "\
2: to dn.regex=\"^uid=([^,]+),dc=x$\" attrs=mail,@person by self =wrscxd \
by dn.base,expand=\"cn=$1,dc=x\" write continue by * +0
9: to * by dnattr=member selfwrite by * +0 break by group/groupOfUniqueNames/uniqueMember.exact=\"cn=g,dc=x\" \
tls_ssf=128 peername.ip=10.0.0.0%255.0.0.0{389} +rs
";
    assert_eq!(shown(text), expected.replace("=wrscxd", "write"));
}

#[test]
fn errors_name_line_and_column() {
    for (text, line, column) in [
        ("access to *\n    by users reed", 2, 14),
        ("access to *", 1, 12),
        ("access to * by", 1, 15),
        ("access to * by nobody read", 1, 16),
        ("access by * read", 1, 8),
        ("\n\nacces to * by * read", 3, 1),
        ("   by * read", 1, 1),
        ("access to *\n# out\n  by * read", 3, 1),
        ("access to dn.level{1}=dc=x by * read", 1, 11),
        ("access to dn.base=x by * read", 1, 11),
        ("access to dn.base=dc=x dn.base=dc=y by * read", 1, 24),
        ("access to attrs=a,b val=x by * read", 1, 21),
        ("access to val=x attrs=sn by * read", 1, 11),
        ("access to attrs=@person val=x by * read", 1, 25),
        ("access to attrs=sn val.near=x by * read", 1, 20),
        ("access to attrs=sn val/cn.near=x by * read", 1, 20),
        ("access to attrs=sn val=x val=y by * read", 1, 26),
        ("access to attrs=a, b by * read", 1, 11),
        ("access to filter=(x by * read", 1, 11),
        ("access to filter=\"(x by * read", 1, 18),
        ("access to * by self users read", 1, 21),
        ("access to * by self.sub read", 1, 16),
        ("access to * by dynacl/aci read", 1, 16),
        ("access to * by aci=x read", 1, 16),
        ("access to * by ssf=0 read", 1, 16),
        ("access to * by peername.ip=1.2.3 read", 1, 16),
        ("access to *\n    by domain.subtree=example.com read", 2, 8),
        ("access to * by dn.base,shrink=dc=x read", 1, 16),
        ("access to * by * read stop read", 1, 28),
        ("access to * by * =rq", 1, 18),
        ("access to * by set.sub=this read", 1, 16),
    ] {
        let error = parse_rules(text).unwrap_err();
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}: {error}"
        );
    }
}
