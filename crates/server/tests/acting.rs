//! Requests that are done for somebody else than who is bound: proxied authorization (RFC 4370), and the authorization
//! identity of SASL binds.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use sapwood_ldap::controls::{
    PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1, TRANSACTION_SPECIFICATION,
};
use sapwood_ldap::extended::{
    END_TRANSACTION, EndTransaction, PASSWORD_MODIFY, PasswordModify, START_TLS, START_TRANSACTION,
    WHO_AM_I,
};
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, ExtendedRequest, Request, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use sapwood_server::password;
use sapwood_testkit::requests::{self, Change};
use sapwood_testkit::{ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer};

const DENIED: ResultCode = ResultCode::AuthorizationDenied;

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

/// The control that names somebody by an authzId.
fn as_id(authzid: &str) -> (&'static str, bool, Option<&[u8]>) {
    (PROXIED_AUTHORIZATION, true, Some(authzid.as_bytes()))
}

/// A server on which people change and read what is their own, and `app` has no rights at all.
struct Bench {
    server: TestServer,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(TestServer::start())
    }

    fn of(server: TestServer) -> Bench {
        let stored = String::from_utf8(password::hash(PASSWORD.as_bytes())).unwrap();
        for name in ["app", "ann", "bob"] {
            let person = [
                ("objectClass", "person"),
                ("sn", "x"),
                ("description", name),
                ("userPassword", stored.as_str()),
            ];
            server.add(&[(&dn(name), &person)]);
        }
        let group = [("objectClass", "groupOfNames"), ("member", &dn("ann"))];
        server.add(&[(&dn("group"), &group)]);
        let bench = Bench { server };
        bench.rules(&[
            "to attrs=authzTo,authzFrom by users auth",
            "to * by self write by users search",
        ]);
        bench.policy("any");
        bench
    }

    fn rules(&self, rules: &[&str]) {
        let passwords = "to attrs=userPassword by self write by anonymous auth";
        let rules = [&[passwords], rules].concat();
        self.server.configure(&[(Replace, "olcAccess", &rules)]);
    }

    fn policy(&self, word: &str) {
        self.change("cn=config", &[(Replace, "olcAuthzPolicy", &[word])]);
    }

    #[track_caller]
    fn change(&self, dn: &str, changes: &[Change<'_>]) {
        self.server
            .admin()
            .tell(&requests::modify(1, dn, changes))
            .succeeded();
    }

    /// Says as whom `app` may act.
    #[track_caller]
    fn allow(&self, values: &[&str]) {
        self.change(&dn("app"), &[(Replace, "authzTo", values)]);
    }

    fn bound(&self, name: &str) -> Client {
        let mut client = self.server.connect();
        client.bind(&dn(name), PASSWORD).succeeded();
        client
    }
}

/// Who somebody is with a control.
fn who(client: &mut Client, authzid: &str) -> Answer {
    let (name, value) = (WHO_AM_I, None);
    let request = Request::Extended(ExtendedRequest { name, value });
    client.ask_with(request, &[as_id(authzid)])
}

/// The code of that, and the name if there is one.
fn told(client: &mut Client, authzid: &str) -> Result<String, ResultCode> {
    let answer = who(client, authzid);
    match answer.code {
        ResultCode::Success => Ok(String::from_utf8(answer.value.unwrap_or_default()).unwrap()),
        code => Err(code),
    }
}

#[test]
fn who_may_act_as_whom_is_what_entries_and_policy_say() {
    let bench = Bench::new();
    let mut app = bench.bound("app");
    let ann = format!("dn:{}", dn("ann"));
    let (group, by_class) = (
        format!("group:{}", dn("group")),
        format!("group/groupOfNames/member:{}", dn("group")),
    );
    for (value, is_allowed) in [
        ("dn:*", true),
        (ann.as_str(), true),
        ("CN=ANN, dc=example,dc=com", true),
        ("dn.exact:cn=bob,dc=example,dc=com", false),
        ("dn.onelevel:dc=example,dc=com", true),
        ("dn.children:dc=example,dc=com", true),
        ("dn.children:cn=ann,dc=example,dc=com", false),
        ("dn.subtree:cn=ann,dc=example,dc=com", true),
        ("dn.regex:^cn=(ann|carl),dc=example,dc=com$", true),
        ("dn.regex:^cn=bob,", false),
        ("dn.regex:^cn=((", false),
        (&group, true),
        (&by_class, true),
        (
            "group/groupOfUniqueNames/uniqueMember:cn=group,dc=example,dc=com",
            false,
        ),
        ("group/nonsense:cn=group,dc=example,dc=com", false),
        ("group:cn=ann,dc=example,dc=com", false),
        ("ldap:///dc=example,dc=com??sub?(sn=x)", true),
        ("ldap:///dc=example,dc=com??one", true),
        ("ldap:///dc=example,dc=com??base", false),
        ("ldap:///dc=example,dc=com??sub?(sn=y)", false),
        ("u:ann", false),
    ] {
        bench.allow(&["dn:cn=nobody", value]);
        let expected = if is_allowed {
            Ok(ann.clone())
        } else {
            Err(DENIED)
        };
        assert_eq!(told(&mut app, &ann), expected, "{value}");
    }
    // Which of the two entries has to say so.
    let from = |values: &[&str]| bench.change(&dn("ann"), &[(Replace, "authzFrom", values)]);
    for (policy, allowed) in [
        ("none", [false, false, false]),
        ("to", [true, false, true]),
        ("from", [false, true, true]),
        ("any", [true, true, true]),
        ("all", [false, false, true]),
    ] {
        bench.policy(policy);
        let cases: [(&[&str], &[&str]); 3] = [
            (&["dn:*"], &[]),
            (&[], &["dn.regex:^cn=app,"]),
            (&["dn:*"], &["dn.regex:^cn=app,"]),
        ];
        for ((own, other), is_allowed) in cases.into_iter().zip(allowed) {
            bench.allow(own);
            from(other);
            let is_told = told(&mut app, &ann).is_ok();
            assert_eq!(is_told, is_allowed, "{policy}: {own:?}, {other:?}");
        }
    }
    // Nobody may who may not authenticate by the attribute.
    bench.rules(&["to attrs=authzTo by * none", "to * by users read"]);
    bench.policy("to");
    bench.allow(&["dn:*"]);
    assert_eq!(told(&mut app, &ann), Err(DENIED));
}

#[test]
fn some_may_always_and_some_never() {
    let bench = Bench::new();
    bench.policy("none");
    let (ann, admin_dn) = (format!("dn:{}", dn("ann")), format!("dn:{ADMIN}"));
    let mut admin = bench.server.admin();
    assert_eq!(told(&mut admin, &ann), Ok(ann.clone()));
    assert_eq!(told(&mut admin, &admin_dn), Ok(admin_dn.clone()));
    assert_eq!(told(&mut admin, ""), Ok(String::new()));
    assert_eq!(told(&mut admin, "dn:"), Ok(String::new()));
    // There has to be somebody.
    assert_eq!(told(&mut admin, &format!("dn:{}", dn("carl"))), Err(DENIED));
    let mut app = bench.bound("app");
    let own = format!("dn:{}", dn("app"));
    assert_eq!(told(&mut app, &own), Ok(own));
    assert_eq!(told(&mut app, ""), Ok(String::new()));
    assert_eq!(told(&mut app, &ann), Err(DENIED));
    let mut nobody = bench.server.connect();
    for whom in ["", "dn:", &ann, &admin_dn] {
        assert_eq!(told(&mut nobody, whom), Err(DENIED), "{whom}");
    }
    // Whatever the entries say, the administrator is the administrator alone.
    bench.policy("any");
    bench.allow(&["dn:*", &admin_dn]);
    assert_eq!(told(&mut app, &admin_dn), Err(DENIED));
    assert_eq!(told(&mut app, &ann), Ok(ann.clone()));
    bench.allow(&["dn:cn=bob,dc=example,dc=com"]);
    // That there is no such name sounds as that one may not.
    let forbidden = who(&mut app, &ann);
    for unknown in [
        &format!("dn:{}", dn("carl")),
        "dn:nonsense",
        "ann",
        "u:ann",
        "u:",
        "x:y",
    ] {
        let answer = who(&mut app, unknown);
        assert_eq!(
            (answer.code, &answer.diagnostic),
            (DENIED, &forbidden.diagnostic),
            "{unknown}"
        );
    }
}

#[test]
fn every_operation_is_done_for_whom_the_control_names() {
    let bench = Bench::new();
    bench.allow(&["dn:*"]);
    let mut app = bench.bound("app");
    let (ann, bob) = (format!("dn:{}", dn("ann")), format!("dn:{}", dn("bob")));
    let own = format!("(description={})", "ann");
    let filter = sapwood_ldap::filter_text::parse(&own).unwrap();
    let search = |client: &mut Client, authzid: &str| {
        let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
        let mut answers = client.ask_all(Request::Search(request), &[as_id(authzid)]);
        answers.pop().unwrap().succeeded();
        answers.len()
    };
    assert_eq!(search(&mut app, &ann), 1);
    assert_eq!(search(&mut app, &bob), 0);
    let mut ask = |message: Vec<u8>, authzid: &str| {
        let message = requests::with(&message, &[as_id(authzid)]);
        app.tell(&message).code
    };
    let compare = requests::compare(20, &dn("ann"), "description", "ann");
    assert_eq!(ask(compare.clone(), &ann), ResultCode::CompareTrue);
    assert_eq!(ask(compare, ""), ResultCode::InsufficientAccessRights);
    let describe = |text| requests::describe(21, &dn("ann"), text);
    assert_eq!(
        ask(describe("x"), &bob),
        ResultCode::InsufficientAccessRights
    );
    assert_eq!(ask(describe("x"), ""), ResultCode::StrongerAuthRequired);
    assert_eq!(ask(describe("hers"), &ann), ResultCode::Success);
    let mut admin = bench.server.admin();
    let changed = format!("(&(modifiersName={})(description=hers))", dn("ann"));
    assert_eq!(admin.search(&dn("ann"), Scope::Base, &changed).len(), 2);
    let mut value = Vec::new();
    PasswordModify {
        user_identity: None,
        old_password: None,
        new_password: Some(b"another password"),
    }
    .encode(&mut value);
    let (name, value) = (PASSWORD_MODIFY, Some(value.as_slice()));
    let request = Request::Extended(ExtendedRequest { name, value });
    let mut app = bench.bound("app");
    app.ask_with(request, &[as_id(&ann)]).succeeded();
    bench
        .server
        .connect()
        .bind(&dn("ann"), "another password")
        .succeeded();
    let ann_dn = dn("ann");
    // In the administrator's hands the control takes rights away.
    let delete = |client: &mut Client, authzid: &str| {
        client
            .ask_with(Request::Delete(&dn("bob")), &[as_id(authzid)])
            .code
    };
    assert_eq!(
        delete(&mut admin, &ann),
        ResultCode::InsufficientAccessRights
    );
    let rename = requests::rename(&ann_dn, "cn=Anna");
    assert_eq!(
        admin.ask_with(rename, &[as_id(&ann)]).code,
        ResultCode::InsufficientAccessRights
    );
    let add = requests::add(30, &dn("new"), &[("objectClass", "device")]);
    let add = requests::with(&add, &[as_id(&ann)]);
    assert_eq!(admin.tell(&add).code, ResultCode::InsufficientAccessRights);
    // Of what cannot be done for another one.
    let (name, value) = (START_TLS, None);
    let request = Request::Extended(ExtendedRequest { name, value });
    admin
        .ask_with(request, &[as_id(&ann)])
        .expect(ResultCode::UnavailableCriticalExtension);
}

#[test]
fn the_requests_of_a_burst_have_different_identities() {
    let bench = Bench::new();
    bench.allow(&["dn:*"]);
    let mut app = bench.bound("app");
    let mut burst = Vec::new();
    let all = ["ann", "bob", "ann", "carl", "app", "bob"];
    for (id, name) in (100..).zip(all) {
        let authzid = format!("dn:{}", dn(name));
        let message = requests::extended(id, WHO_AM_I, None);
        burst.extend(requests::with(&message, &[as_id(&authzid)]));
        burst.extend(requests::with(
            &requests::search(200 + id, SUFFIX, Scope::Subtree, "(description=*)"),
            &[as_id(&authzid)],
        ));
        burst.extend(requests::search(
            400 + id,
            SUFFIX,
            Scope::Subtree,
            "(description=*)",
        ));
    }
    app.send(&burst);
    // Whichever is done first.
    let mut answers: HashMap<u32, Vec<Answer>> = HashMap::new();
    let mut ended = 0;
    while ended < 3 * all.len() {
        let answer = app.receive().unwrap();
        ended += usize::from(answer.ends);
        answers.entry(answer.id).or_default().push(answer);
    }
    let found = |id: u32| -> Vec<Vec<String>> {
        let entries = answers[&id].iter().filter(|answer| !answer.ends);
        entries.map(|answer| answer.values("description")).collect()
    };
    for (id, name) in (100..).zip(all) {
        let is_there = name != "carl";
        let told = answers[&id][0].value.clone().unwrap_or_default();
        let expected = match is_there {
            true => format!("dn:{}", dn(name)),
            false => String::new(),
        };
        assert_eq!(String::from_utf8(told).unwrap(), expected);
        let own = Vec::from_iter(is_there.then(|| vec![name.to_owned()]));
        assert_eq!(found(200 + id), own, "{name}");
        assert_eq!(found(400 + id), [["app"]]);
    }
}

#[test]
fn a_permission_that_is_withdrawn_is_gone() {
    let bench = Bench::new();
    let ann = format!("dn:{}", dn("ann"));
    let mut app = bench.bound("app");
    for _ in 0..2 {
        assert_eq!(told(&mut app, &ann), Err(DENIED));
        bench.allow(&["dn:*"]);
        assert_eq!(told(&mut app, &ann), Ok(ann.clone()));
        bench.policy("from");
        assert_eq!(told(&mut app, &ann), Err(DENIED));
        bench.policy("to");
        assert_eq!(told(&mut app, &ann), Ok(ann.clone()));
        bench.rules(&["to attrs=authzTo by * none", "to * by users read"]);
        assert_eq!(told(&mut app, &ann), Err(DENIED));
        bench.rules(&[
            "to attrs=authzTo by users auth",
            "to * by self write by users read",
        ]);
        assert_eq!(told(&mut app, &ann), Ok(ann.clone()));
        bench.allow(&[]);
    }
    // By a group that loses a member.
    bench.allow(&[&format!("group:{}", dn("group"))]);
    assert_eq!(told(&mut app, &ann), Ok(ann.clone()));
    bench.change(&dn("group"), &[(Replace, "member", &[&dn("bob")])]);
    assert_eq!(told(&mut app, &ann), Err(DENIED));
    // The permission is looked at where the update is applied: what came before it in the same burst has taken it away.
    bench.allow(&["dn:*"]);
    bench.rules(&["to * by self write by users read"]);
    let withdraw = requests::modify(50, &dn("app"), &[(Delete, "authzTo", &[])]);
    let describe = requests::describe(51, &dn("ann"), "not hers");
    let describe = requests::with(&describe, &[as_id(&ann)]);
    app.send(&[withdraw, describe.clone()].concat());
    app.finish(50)[0].succeeded();
    app.finish(51)[0].expect(DENIED);
    // Nor is it there before the commit that gives it.
    app.tell(&describe).expect(DENIED);
    let give = requests::modify(50, &dn("app"), &[(Add, "authzTo", &["dn:*"])]);
    app.tell(&give).succeeded();
    app.tell(&describe).succeeded();
    // Who is gone is nobody.
    bench
        .server
        .admin()
        .ask(Request::Delete(&dn("ann")))
        .succeeded();
    app.tell(&describe).expect(DENIED);
}

#[test]
fn the_control_is_critical_and_comes_in_two_versions() {
    let bench = Bench::new();
    bench.allow(&["dn:*"]);
    let ann = format!("dn:{}", dn("ann"));
    let mut app = bench.bound("app");
    let request = || {
        let (name, value) = (WHO_AM_I, None);
        Request::Extended(ExtendedRequest { name, value })
    };
    let mut ask = |oid, critical, value: Option<&[u8]>| {
        let answer = app.ask_with(request(), &[(oid, critical, value)]);
        let told = String::from_utf8(answer.value.unwrap_or_default()).unwrap();
        (answer.code, told)
    };
    let wrong = (ResultCode::ProtocolError, String::new());
    let right = (ResultCode::Success, ann.clone());
    let value = Some(ann.as_bytes());
    assert_eq!(ask(PROXIED_AUTHORIZATION, true, value), right);
    assert_eq!(ask(PROXIED_AUTHORIZATION, false, value), wrong);
    assert_eq!(ask(PROXIED_AUTHORIZATION, true, None), wrong);
    let name = dn("ann");
    let mut first = vec![0x30, 2 + name.len() as u8, 4, name.len() as u8];
    first.extend_from_slice(name.as_bytes());
    assert_eq!(ask(PROXIED_AUTHORIZATION_V1, true, Some(&first)), right);
    assert_eq!(ask(PROXIED_AUTHORIZATION_V1, false, Some(&first)), wrong);
    assert_eq!(ask(PROXIED_AUTHORIZATION_V1, true, value), wrong);
    let offered = app.root_dse().values("supportedControl");
    for oid in [PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1] {
        assert!(offered.iter().any(|known| known == oid), "{offered:?}");
    }
}

/// RFC 5805 §4.4: the start of a transaction says for whom it is.
#[test]
fn transactions_are_done_for_whom_their_start_names() {
    let bench = Bench::new();
    bench.allow(&["dn:*"]);
    let mut app = bench.bound("app");
    let start = |client: &mut Client, name: &str| {
        let (authzid, value) = (format!("dn:{}", dn(name)), None);
        let name = START_TRANSACTION;
        let request = Request::Extended(ExtendedRequest { name, value });
        client.ask_with(request, &[as_id(&authzid)])
    };
    let end = |client: &mut Client, identifier: &[u8]| {
        let mut value = Vec::new();
        let commit = true;
        EndTransaction { commit, identifier }.encode(&mut value);
        client.extended(END_TRANSACTION, Some(&value))
    };
    let describe = |client: &mut Client, name: &str, identifier: &[u8]| {
        let id = client.id();
        let describe = requests::describe(id, &dn(name), "in a transaction");
        let member = (TRANSACTION_SPECIFICATION, true, Some(identifier));
        client.tell(&requests::with(&describe, &[member]))
    };
    start(&mut app, "carl").expect(DENIED);
    let of_ann = start(&mut app, "ann").value.unwrap();
    let of_bob = start(&mut app, "bob").value.unwrap();
    describe(&mut app, "ann", &of_ann).succeeded();
    describe(&mut app, "bob", &of_bob).succeeded();
    end(&mut app, &of_ann).succeeded();
    end(&mut app, &of_bob).succeeded();
    let mut admin = bench.server.admin();
    for name in ["ann", "bob"] {
        let filter = format!(
            "(&(description=in a transaction)(modifiersName={}))",
            dn(name)
        );
        assert_eq!(admin.search(&dn(name), Scope::Base, &filter).len(), 2);
    }
    // Its updates are for nobody else, and when it ends it must still be allowed.
    let of_ann = start(&mut app, "ann").value.unwrap();
    describe(&mut app, "bob", &of_ann).succeeded();
    end(&mut app, &of_ann).expect(ResultCode::InsufficientAccessRights);
    let of_ann = start(&mut app, "ann").value.unwrap();
    describe(&mut app, "ann", &of_ann).succeeded();
    bench.allow(&[]);
    end(&mut app, &of_ann).expect(DENIED);
}

fn plain(client: &mut Client, authzid: &str, name: &str, password: &str) -> ResultCode {
    let message = [authzid, &dn(name), password].join("\0").into_bytes();
    let authentication = Authentication::Sasl {
        mechanism: "PLAIN",
        credentials: Some(&message),
    };
    client
        .ask(Request::Bind(BindRequest {
            version: 3,
            name: "",
            authentication,
        }))
        .code
}

#[test]
fn a_sasl_bind_may_be_for_somebody_else() {
    let bench = Bench::new();
    let mut client = bench.server.connect_tls();
    let (ann, bob) = (format!("dn:{}", dn("ann")), format!("dn:{}", dn("bob")));
    let wrong = ResultCode::InvalidCredentials;
    assert_eq!(plain(&mut client, &ann, "app", PASSWORD), wrong);
    assert_eq!(client.who_am_i(), "");
    bench.allow(&[&ann]);
    assert_eq!(plain(&mut client, &ann, "app", "another"), wrong);
    assert_eq!(plain(&mut client, &bob, "app", PASSWORD), wrong);
    assert_eq!(client.who_am_i(), "");
    assert_eq!(
        plain(&mut client, &ann, "app", PASSWORD),
        ResultCode::Success
    );
    assert_eq!(client.who_am_i(), ann);
    let describe = requests::describe(60, &dn("ann"), "hers");
    client.tell(&describe).succeeded();
    assert_eq!(
        client
            .search(SUFFIX, Scope::Subtree, "(description=hers)")
            .len(),
        2
    );
    // Ann may act as Bob, and so may who acts as her; but not as who she is not.
    bench.change(&dn("ann"), &[(Replace, "authzTo", &[&bob])]);
    assert_eq!(told(&mut client, &bob), Ok(bob.clone()));
    assert_eq!(told(&mut client, &format!("dn:{}", dn("app"))), Err(DENIED));
    assert_eq!(told(&mut client, &ann), Ok(ann.clone()));
    // What made her of them is gone, and with it all that followed from it.
    bench.allow(&[]);
    let denied = client.extended(WHO_AM_I, None);
    denied.expect(DENIED);
    client.tell(&describe).expect(DENIED);
    for whom in [&bob, &ann] {
        assert_eq!(told(&mut client, whom), Err(DENIED));
    }
    let filter = "(objectClass=*)";
    client
        .search(SUFFIX, Scope::Base, filter)
        .pop()
        .unwrap()
        .expect(DENIED);
    client.bind(&dn("ann"), PASSWORD).succeeded();
    assert_eq!(client.who_am_i(), ann);
}

/// Has passwords be governed by a policy that has this set to TRUE; its DN.
fn add_policy(bench: &Bench, attribute: &str) -> String {
    let mut admin = bench.server.admin();
    let overlay = [
        ("objectClass", "olcPPolicyConfig"),
        ("olcOverlay", "ppolicy"),
    ];
    let overlay = requests::add(
        1,
        "olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config",
        &overlay,
    );
    admin.tell(&overlay).succeeded();
    let mut policy = AttributesBuf::default();
    policy.push(b"objectClass", [b"device".as_slice(), b"pwdPolicy"]);
    policy.push(b"cn", [b"policy".as_slice()]);
    policy.push(b"pwdAttribute", [b"userPassword".as_slice()]);
    policy.push(attribute.as_bytes(), [b"TRUE".as_slice()]);
    let (name, attributes) = (dn("policy"), policy.view());
    let policy = Request::Add(AddRequest {
        dn: &name,
        attributes,
    });
    admin.ask(policy).succeeded();
    name
}

#[test]
fn who_has_to_change_the_password_acts_for_nobody() {
    let bench = Bench::new();
    bench.allow(&["dn:*"]);
    let name = add_policy(&bench, "pwdMustChange");
    bench.change(&dn("app"), &[(Replace, "pwdPolicySubentry", &[&name])]);
    bench.change(&dn("app"), &[(Replace, "pwdReset", &["TRUE"])]);
    let mut app = bench.bound("app");
    let ann = format!("dn:{}", dn("ann"));
    let found = app.search(SUFFIX, Scope::Base, "(objectClass=*)").pop();
    found.unwrap().expect(ResultCode::InsufficientAccessRights);
    assert_eq!(told(&mut app, &ann), Err(DENIED));
    let describe = requests::describe(70, &dn("ann"), "hers");
    app.tell(&requests::with(&describe, &[as_id(&ann)]))
        .expect(ResultCode::InsufficientAccessRights);
    let mut client = bench.server.connect_tls();
    let wrong = ResultCode::InvalidCredentials;
    assert_eq!(plain(&mut client, &ann, "app", PASSWORD), wrong);
    assert_eq!(plain(&mut client, "", "app", PASSWORD), ResultCode::Success);
    // To name oneself is not to act, in whatever way.
    let own = format!("dn:{}", dn("app"));
    assert_eq!(told(&mut app, &own), Ok(own.clone()));
    let regexp = ["^uid=([^,]*),cn=plain,cn=auth$ cn=$1,dc=example,dc=com"];
    bench.change("cn=config", &[(Add, "olcAuthzRegexp", &regexp)]);
    let message = [own.as_str(), "app", PASSWORD].join("\0").into_bytes();
    let bind = |mechanism, credentials| {
        Request::Bind(BindRequest {
            version: 3,
            name: "",
            authentication: Authentication::Sasl {
                mechanism,
                credentials,
            },
        })
    };
    client.ask(bind("PLAIN", Some(&message))).succeeded();
    assert_eq!(client.who_am_i(), own);
    // With a new password that is over.
    let new = [(Replace, "userPassword", ["another password"].as_slice())];
    app.tell(&requests::modify(71, &dn("app"), &new))
        .succeeded();
    assert_eq!(told(&mut app, &ann), Ok(ann));
}

/// A lock for good and a time that has not come, or is over, take somebody out of use; what keeps their password from
/// being tried does not.
#[test]
fn nobody_acts_as_who_is_out_of_use() {
    let bench = Bench::new();
    bench.allow(&["dn:*"]);
    let name = add_policy(&bench, "pwdLockout");
    let ann = format!("dn:{}", dn("ann"));
    let (mut app, mut admin) = (bench.bound("app"), bench.server.admin());
    bench.change(&dn("ann"), &[(Replace, "pwdPolicySubentry", &[&name])]);
    for (attribute, value, is_allowed) in [
        ("pwdAccountLockedTime", "000001010000Z", false),
        ("pwdAccountLockedTime", "20200101000000Z", true),
        ("pwdStartTime", "29990101000000Z", false),
        ("pwdStartTime", "20200101000000Z", true),
        ("pwdEndTime", "20200101000000Z", false),
        ("pwdEndTime", "29990101000000Z", true),
    ] {
        bench.change(&dn("ann"), &[(Replace, attribute, &[value])]);
        let expected = match is_allowed {
            true => Ok(ann.clone()),
            false => Err(DENIED),
        };
        assert_eq!(told(&mut app, &ann), expected, "{attribute}: {value}");
        assert_eq!(told(&mut admin, &ann), Ok(ann.clone()));
        let describe = requests::describe(80, &dn("ann"), "hers");
        let described = app.tell(&requests::with(&describe, &[as_id(&ann)]));
        assert_eq!(described.code == ResultCode::Success, is_allowed);
        bench.change(&dn("ann"), &[(Delete, attribute, &[])]);
    }
}

/// Who acts for somebody was not missed when their own entry was deleted.
#[test]
fn a_connection_ends_with_either_of_its_entries() {
    for gone in ["app", "ann"] {
        let bench = Bench::new();
        let ann = format!("dn:{}", dn("ann"));
        bench.allow(&[&ann]);
        let mut client = bench.server.connect_tls();
        assert_eq!(
            plain(&mut client, &ann, "app", PASSWORD),
            ResultCode::Success
        );
        assert_eq!(client.who_am_i(), ann);
        let mut admin = bench.server.admin();
        admin.ask(Request::Delete(&dn("bob"))).succeeded();
        assert_eq!(client.who_am_i(), ann);
        admin.ask(Request::Delete(&dn(gone))).succeeded();
        client.send(&requests::extended(90, WHO_AM_I, None));
        let answer = client.receive().unwrap();
        assert_eq!(
            (answer.id, answer.code),
            (0, ResultCode::StrongerAuthRequired),
            "{gone}"
        );
        assert!(client.receive().is_none());
    }
}

/// What an entry says may take long to look at; then the answer is no, and nobody waits for it.
#[test]
fn what_takes_too_long_to_find_out_is_not_allowed() {
    let bench = Bench::new();
    let ann = format!("dn:{}", dn("ann"));
    let mut app = bench.bound("app");
    let costly = format!("dn.regex:{}", "((x{200}){200}|y)".repeat(8));
    bench.allow(&[&costly, "dn:*"]);
    assert_eq!(told(&mut app, &ann), Err(DENIED));
    let many: Vec<String> = (0..20_000)
        .map(|n| format!("dn:cn=p{n},{SUFFIX}"))
        .collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    bench.allow(&many);
    assert_eq!(told(&mut app, &ann), Err(DENIED));
    many.truncate(100);
    many.push("dn:*");
    bench.allow(&many);
    assert_eq!(told(&mut app, &ann), Ok(ann));
}

/// `olcAuthzRegexp` says whom names stand for that are no DNs.
#[test]
fn names_stand_for_whom_expressions_say() {
    let bench = Bench::new();
    let mut client = bench.server.connect_tls();
    let (ann, bob) = (format!("dn:{}", dn("ann")), format!("dn:{}", dn("bob")));
    let plain = |client: &mut Client, authzid: &str, name: &str| {
        let message = [authzid, name, PASSWORD].join("\0").into_bytes();
        let authentication = Authentication::Sasl {
            mechanism: "PLAIN",
            credentials: Some(&message),
        };
        let request = BindRequest {
            version: 3,
            name: "",
            authentication,
        };
        client.ask(Request::Bind(request)).code
    };
    let wrong = ResultCode::InvalidCredentials;
    assert_eq!(plain(&mut client, "", "ann"), wrong);
    let regexps = [
        "^uid=admin,cn=plain,cn=auth$ cn=admin,dc=example,dc=com",
        "^uid=([^,]*),cn=plain,cn=auth$ cn=$1,dc=example,dc=com",
        "^uid=([^,]*),cn=auth$ ldap:///dc=example,dc=com??one?(&(objectClass=person)(cn=$1))",
        "^gidNumber=.*,cn=peercred,cn=external,cn=auth$ cn=app,dc=example,dc=com",
    ];
    bench.change("cn=config", &[(Add, "olcAuthzRegexp", &regexps)]);
    for name in ["ann", "u:ann", "ANN"] {
        assert_eq!(plain(&mut client, "", name), ResultCode::Success, "{name}");
        assert_eq!(client.who_am_i(), ann);
    }
    assert_eq!(plain(&mut client, "", "admin"), ResultCode::Success);
    assert_eq!(client.who_am_i(), format!("dn:{ADMIN}"));
    // What is in the name stays in its value.
    for name in ["ann,dc=example", "*", "carl", "a+b", ""] {
        let code = plain(&mut client, "", name);
        assert!(code == wrong || code == ResultCode::ProtocolError, "{name}");
    }
    // As whom to act.
    let mut app = bench.bound("app");
    // A name that is searched for is nobody's alone.
    for (value, is_allowed) in [
        ("u:ann", false),
        ("u.PLAIN:bob", false),
        ("u.PLAIN:ann", true),
    ] {
        bench.allow(&[value]);
        let expected = if is_allowed {
            Ok(ann.clone())
        } else {
            Err(DENIED)
        };
        for whom in [ann.as_str(), "u:ann", "U.plain:ann"] {
            assert_eq!(told(&mut app, whom), expected, "{value}: {whom}");
        }
    }
    bench.allow(&["dn:*"]);
    assert_eq!(told(&mut app, "u:bob"), Ok(bob));
    for nobody in ["u:b*", "u:*", "u:carl", "u:group", "u.x:ann", "u:admin"] {
        assert_eq!(told(&mut app, nobody), Err(DENIED), "{nobody}");
    }
    assert_eq!(plain(&mut client, "u:ann", "app"), ResultCode::Success);
    assert_eq!(client.who_am_i(), ann);
    // They are in an order, and the first that matches counts.
    bench.change("cn=config", &[(Delete, "olcAuthzRegexp", &["{1}"])]);
    assert_eq!(plain(&mut client, "", "ann"), wrong);
    let first = "{0}^uid=admin,cn=plain,cn=auth$ cn=ann,dc=example,dc=com";
    bench.change("cn=config", &[(Add, "olcAuthzRegexp", &[first])]);
    assert_eq!(plain(&mut client, "", "admin"), ResultCode::Success);
    assert_eq!(client.who_am_i(), ann);
    let change = [(Add, "olcAuthzRegexp", ["( x"].as_slice())];
    let mut admin = bench.server.admin();
    admin
        .tell(&requests::modify(90, "cn=config", &change))
        .expect(ResultCode::ConstraintViolation);
}
