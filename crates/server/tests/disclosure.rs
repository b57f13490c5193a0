//! What an attacker who is bound tries, to find out what access rules hide: each way tells the same whether it is there
//! or not.

#![allow(clippy::unwrap_used)]

use sapwood_directory::engine::Embedded;
use sapwood_directory::{IndexDefinition, Settings, UniqueRule};
use sapwood_ldap::controls::{
    LIST_VIEW_REQUEST, LIST_VIEW_RESPONSE, ListTarget, ListView, ListViewResult, POST_READ,
    PRE_READ, ReadEntry, SORT_REQUEST, SortKey, put_sort_keys,
};
use sapwood_ldap::extended::{PASSWORD_MODIFY, PasswordModify};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{ModifyDnRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::Control;
use sapwood_testkit::{Answer, Client, SUFFIX, TestServer, requests};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const HIDDEN: &str = "ou=hidden,dc=example,dc=com";
const ANNE: &str = "uid=anne,ou=people,dc=example,dc=com";
const BERT: &str = "uid=bert,ou=people,dc=example,dc=com";
const CARL: &str = "uid=carl,ou=hidden,dc=example,dc=com";
const RULES: [&str; 4] = [
    "to dn.subtree=\"ou=hidden,dc=example,dc=com\" by * none",
    "to attrs=userPassword by self =xw by anonymous auth",
    "to attrs=mail by self write by * none",
    "to * by dn.exact=\"uid=anne,ou=people,dc=example,dc=com\" write by users read",
];

/// Anne writes what she sees: all but what is below one unit, and the mail of others. The values of mail are unique.
fn server() -> TestServer {
    let index = |attribute: &str| IndexDefinition {
        attribute: attribute.into(),
        equality: true,
        ..IndexDefinition::default()
    };
    let contents = sapwood_directory::Config {
        naming_contexts: vec![SUFFIX.into()],
        indexes: vec![index("mail"), index("uid")],
        settings: Settings {
            unique: vec![UniqueRule {
                attributes: vec!["mail".into()],
                base: String::new(),
                name: String::new(),
            }],
            ..Settings::default()
        },
        ..sapwood_directory::Config::default()
    };
    let server = TestServer::of(&contents, "", |_| Embedded::in_memory().unwrap());
    server.add(&[
        (
            PEOPLE,
            &[("objectClass", "organizationalUnit"), ("ou", "people")],
        ),
        (
            HIDDEN,
            &[("objectClass", "organizationalUnit"), ("ou", "hidden")],
        ),
    ]);
    for (dn, uid) in [(ANNE, "anne"), (BERT, "bert"), (CARL, "carl")] {
        let mail = format!("{uid}@example.com");
        server.add(&[(
            dn,
            &[
                ("objectClass", "inetOrgPerson"),
                ("uid", uid),
                ("cn", uid),
                ("sn", uid),
                ("mail", &mail),
                ("userPassword", "secret"),
            ],
        )]);
    }
    server.configure(&[(Replace, "olcAccess", &RULES)]);
    server
}

fn anne(server: &TestServer) -> Client {
    let mut client = server.connect();
    client.bind(ANNE, "secret").succeeded();
    client
}

/// What an answer tells, but for the name that was asked for.
fn told(answers: &[Answer], name: &str) -> Vec<String> {
    let told = answers.iter().map(|answer| {
        let Answer {
            code,
            diagnostic,
            matched,
            uris,
            entry,
            ..
        } = answer;
        format!("{code:?} {diagnostic} {matched} {uris:?} {entry:?}")
    });
    told.map(|text| text.replace(name, "NAME")).collect()
}

#[test]
fn hidden_entries_answer_as_those_that_are_not_there() {
    let server = server();
    let mut client = anne(&server);
    let rights = "1.3.6.1.4.1.42.2.27.9.5.2";
    let everything = filter_text::parse("(objectClass=*)").unwrap();
    let described = requests::described("x");
    let person = requests::attributes(&[
        ("objectClass", "inetOrgPerson"),
        ("uid", "new"),
        ("cn", "new"),
        ("sn", "new"),
    ]);
    for (hidden, missing) in [
        (HIDDEN, "ou=nothing,dc=example,dc=com"),
        (CARL, "uid=carl,ou=nothing,dc=example,dc=com"),
        (CARL, "uid=nobody,ou=hidden,dc=example,dc=com"),
    ] {
        let mut same = |what: &str, ask: &mut dyn FnMut(&mut Client, &str) -> Vec<Answer>| {
            let [one, other] = [hidden, missing].map(|name| {
                let answers = ask(&mut client, name);
                assert_ne!(
                    answers.last().unwrap().code,
                    ResultCode::Success,
                    "{what} {name}"
                );
                told(&answers, name)
            });
            assert_eq!(one, other, "{what}");
        };
        for scope in [Scope::Base, Scope::OneLevel, Scope::Subtree] {
            same("search", &mut |client, dn| {
                client.search(dn, scope, "(objectClass=*)")
            });
        }
        same("rights", &mut |client, dn| {
            let request = SearchRequest::new(dn, Scope::Base, everything.as_filter());
            let control: Control<'_> = (
                rights,
                true,
                Some(b"dn:uid=anne,ou=people,dc=example,dc=com"),
            );
            client.ask_all(Request::Search(request), &[control])
        });
        same("compare", &mut |client, dn| {
            let id = client.id();
            vec![client.tell(&requests::compare(id, dn, "objectClass", "top"))]
        });
        same("modify", &mut |client, dn| {
            let changes = described.view();
            let request = sapwood_ldap::message::ModifyRequest { dn, changes };
            client.ask_all(Request::Modify(request), &[])
        });
        same("delete", &mut |client, dn| {
            client.ask_all(Request::Delete(dn), &[])
        });
        same("rename", &mut |client, dn| {
            client.ask_all(requests::rename(dn, "uid=x"), &[])
        });
        same("move below", &mut |client, dn| {
            let request = ModifyDnRequest {
                dn: BERT,
                new_rdn: "uid=bert",
                delete_old_rdn: false,
                new_superior: Some(dn),
            };
            client.ask_all(Request::ModifyDn(request), &[])
        });
        same("add below", &mut |client, dn| {
            let dn = format!("uid=new,{dn}");
            let attributes = person.view();
            let request = sapwood_ldap::message::AddRequest {
                dn: &dn,
                attributes,
            };
            client.ask_all(Request::Add(request), &[])
        });
        same("password", &mut |client, dn| {
            let modify = PasswordModify {
                user_identity: Some(dn.as_bytes()),
                new_password: Some(b"another secret"),
                ..PasswordModify::default()
            };
            let mut value = Vec::new();
            modify.encode(&mut value);
            vec![client.extended(PASSWORD_MODIFY, Some(&value))]
        });
        same("proxied authorization", &mut |client, dn| {
            let authzid = format!("dn:{dn}");
            let control: Control<'_> = ("2.16.840.1.113730.3.4.18", true, Some(authzid.as_bytes()));
            client.ask_all(Request::Delete(BERT), &[control])
        });
    }
}

/// The names in the order of a key, and what a list view tells of them.
fn in_order(client: &mut Client, key: &str, target: ListTarget<'_>) -> (Vec<String>, u32, u32) {
    let (mut keys, mut view) = (Vec::new(), Vec::new());
    let key = SortKey {
        attribute: key.as_bytes(),
        rule: None,
        reverse: false,
    };
    put_sort_keys(&mut keys, [key]);
    ListView {
        before: 9,
        after: 9,
        target,
        context: None,
    }
    .encode(&mut view);
    let filter = filter_text::parse("(uid=*)").unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    let controls = [
        (SORT_REQUEST, true, Some(keys.as_slice())),
        (LIST_VIEW_REQUEST, true, Some(&view)),
    ];
    let answers = client.ask_all(Request::Search(request), &controls);
    let end = answers.last().unwrap();
    end.succeeded();
    let (_, told) = end
        .controls
        .iter()
        .find(|(oid, _)| oid == LIST_VIEW_RESPONSE)
        .unwrap();
    let told = ListViewResult::decode(told).unwrap();
    let names = answers.iter().filter_map(|answer| answer.entry.clone());
    (names.collect(), told.position, told.content_count)
}

#[test]
fn an_order_tells_nothing_of_hidden_values_and_a_count_nothing_of_hidden_entries() {
    let server = server();
    let (mut client, mut admin) = (anne(&server), server.admin());
    let mut ask = || {
        [
            ListTarget::Offset {
                offset: 1,
                content_count: 0,
            },
            ListTarget::Value(b"b@example.com"),
        ]
        .map(|target| in_order(&mut client, "mail", target))
    };
    let before = ask();
    // Anne and Bert, not Carl.
    assert_eq!((before[0].0.len(), before[0].2), (2, 2));
    for mail in ["a@example.com", "zz@example.com"] {
        let values = [mail];
        let change = [(Replace, "mail", &values[..])];
        admin.tell(&requests::modify(1, BERT, &change)).succeeded();
        assert_eq!(ask(), before, "{mail}");
    }
    let ordered = in_order(&mut client, "uid", ListTarget::Value(b"b"));
    assert_eq!(ordered.1, 2);
}

#[test]
fn uniqueness_is_looked_at_for_those_alone_who_may_write() {
    let server = server();
    let mut client = anne(&server);
    let mut sets = |dn: &str, mail: &str| {
        let id = client.id();
        client.tell(&requests::modify(id, dn, &[(Add, "mail", &[mail])]))
    };
    let (taken, free) = ("carl@example.com", "free@example.com");
    let [one, other] = [taken, free].map(|mail| told(&[sets(BERT, mail)], mail));
    assert_eq!(one, other);
    assert!(one[0].starts_with("InsufficientAccessRights"), "{one:?}");
    // That a value is taken is told to who may have it otherwise, and not who has it.
    let refused = sets(ANNE, taken);
    assert_eq!(refused.code, ResultCode::ConstraintViolation);
    assert!(!refused.diagnostic.contains("hidden") && !refused.diagnostic.contains("carl"));
    sets(ANNE, free).succeeded();
}

#[test]
fn what_an_update_reads_is_what_may_be_read() {
    let server = server();
    let mut client = anne(&server);
    let names =
        OctetStringsBuf::from_iter(["mail", "userPassword", "sn", "*", "+"].map(str::as_bytes));
    let mut value = Vec::new();
    ReadEntry {
        attributes: names.view(),
    }
    .encode(&mut value);
    let changes = requests::described("x");
    let request = sapwood_ldap::message::ModifyRequest {
        dn: BERT,
        changes: changes.view(),
    };
    let both = [
        (PRE_READ, true, Some(value.as_slice())),
        (POST_READ, true, Some(&value)),
    ];
    let answer = client.ask_with(Request::Modify(request), &both);
    answer.succeeded();
    assert_eq!(answer.controls.len(), 2);
    for (oid, value) in &answer.controls {
        let shown = String::from_utf8_lossy(value);
        assert!(shown.contains("inetOrgPerson"), "{oid}");
        for hidden in ["bert@example.com", "userPassword", "ARGON2"] {
            assert!(!shown.contains(hidden), "{oid}: {hidden}");
        }
    }
}
