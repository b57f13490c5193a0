//! OpenLDAP's slapd and sapwood have the same access rules, which are generated, and answer the same requests of the
//! same people: searches, compares, binds and every write. Result codes, matchedDN, and what is found of which entries
//! must be the same.
//!
//! The rules come from seeds; `SAME_ACCESS_SEED` takes another one, and `SAME_ACCESS_SEEDS` as many from the first on.
//! What differs on purpose is not generated: `docs/reference/differences-from-openldap.md` says what that is.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "same_access/global.rs"]
mod global;

use std::fmt::Write as _;

use sapwood_ldap::filter::Assertion;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    AddRequest, CompareRequest, ModifyDnRequest, ModifyRequest, Request, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{self, Change};
use sapwood_testkit::{Answer, Client, Random, SUFFIX, Slapd, SlapdSetup, TestServer};

/// Those that are always tried.
const SEEDS: u64 = 6;
/// Sets of rules of one seed.
const RULE_SETS: usize = 4;
/// Requests under one set.
const REQUESTS: usize = 60;
/// Most rules of a set, besides the last.
const RULES_MAX: usize = 29;
/// What breaks out of the last rule has no rights in slapd, but is disclosed: so this one is the last.
const LAST_RULE: &str = "to * by * none";

/// `secret`.
const STORED: &str = "{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==";

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const STAFF: &str = "ou=staff,ou=people,dc=example,dc=com";
const GROUPS: &str = "ou=groups,dc=example,dc=com";
/// Those who ask, besides nobody. Their entries are neither deleted nor renamed.
const USERS: [&str; 4] = [
    "uid=anne,ou=people,dc=example,dc=com",
    "uid=bert,ou=people,dc=example,dc=com",
    "uid=carl,ou=staff,ou=people,dc=example,dc=com",
    "uid=dora,ou=staff,ou=people,dc=example,dc=com",
];
/// Entries that come and go.
const OTHERS: [&str; 4] = [
    "uid=t1,ou=people,dc=example,dc=com",
    "uid=t2,ou=people,dc=example,dc=com",
    "uid=t3,ou=staff,ou=people,dc=example,dc=com",
    "uid=t4,ou=staff,ou=people,dc=example,dc=com",
];
const GROUP: &str = "cn=group,ou=groups,dc=example,dc=com";
const ROLE: &str = "cn=role,ou=groups,dc=example,dc=com";
/// A group of those whom its URL finds.
const FOUND: &str = "cn=found,ou=groups,dc=example,dc=com";
/// What an entry that is added is asked for has no place here: in slapd it has its content.
const SETS: [&str; 12] = [
    "user",
    "this/seeAlso & user",
    "user & [cn=group,ou=groups,dc=example,dc=com]->member",
    "[cn=role,ou=groups,dc=example,dc=com]/roleOccupant* & user",
    "this/-1 & user/-1",
    "user/-* & [ou=staff,ou=people,dc=example,dc=com] & this/-*",
    "([uid=] + user/sn) + [,ou=people,dc=example,dc=com] & this",
    "[ldap:///ou=people,dc=example,dc=com??sub?(|(sn=anne)(sn=carl))]/entryDN & user",
    "[ldap:///ou=people,dc=example,dc=com?roleOccupant?sub?(uid=*)]/seeAlso & user",
    "[ldap:///ou=groups,dc=example,dc=com?member?one?(objectClass=*)]/roleOccupant & user",
    "[cn=found,ou=groups,dc=example,dc=com]/labeledURI/entryDN & user",
    "this/-* & [ou=staff,ou=people,dc=example,dc=com] | [cn=group,ou=groups,dc=example,dc=com]/member & user",
];
const DATA: &str = "olcDatabase={1}mdb,cn=config";
const FRONTEND: &str = "olcDatabase={-1}frontend,cn=config";
/// Values that name somebody.
const NAMING: &str = "seeAlso val.regex=\"^uid=([^,]+),(.*)$\"";
/// DNs that rules and requests name.
const NAMED: [&str; 8] = [
    SUFFIX,
    PEOPLE,
    STAFF,
    GROUPS,
    GROUP,
    "uid=nobody,ou=people,dc=example,dc=com",
    "uid=nobody,ou=nowhere,dc=example,dc=com",
    "uid=below,uid=anne,ou=people,dc=example,dc=com",
];
const ATTRIBUTES: [&str; 9] = [
    "sn",
    "cn",
    "uid",
    "description",
    "mail",
    "telephoneNumber",
    "seeAlso",
    "userPassword",
    "objectClass",
];

#[test]
fn rules_give_everybody_the_same() {
    if let Ok(seed) = std::env::var("SAME_ACCESS_SEED") {
        return try_seed(seed.parse().unwrap());
    }
    let seeds = std::env::var("SAME_ACCESS_SEEDS");
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().unwrap());
    (1..=seeds).for_each(try_seed);
}

fn try_seed(seed: u64) {
    let mut random = Random::new(seed);
    let mut pair = Pair::start(seed);
    for _ in 0..RULE_SETS {
        // Few mostly.
        let most = 1 + random.below(RULES_MAX);
        let count = 1 + random.below(most);
        let mut rules: Vec<String> = Vec::with_capacity(count + 1);
        for _ in 0..count {
            let rule = rule(&mut random);
            // They are values of an attribute, which has each once.
            if rule != LAST_RULE && !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules.push(LAST_RULE.to_owned());
        pair.set(&rules);
        for _ in 0..REQUESTS {
            pair.request(&mut random);
        }
    }
}

fn any_dn(random: &mut Random) -> &'static str {
    match random.below(3) {
        0 => random.of(&USERS),
        1 => random.of(&OTHERS),
        _ => random.of(&NAMED),
    }
}

/// What stands for groups of an expression in the clauses of a rule.
#[derive(Clone, Copy, PartialEq)]
enum Expands {
    /// Nothing.
    Nothing,
    /// `$1` is the value of uid, `$2` the DN above it.
    User,
}

fn rule(random: &mut Random) -> String {
    let mut text = "to".to_owned();
    let mut expands = Expands::Nothing;
    match random.below(8) {
        0 | 1 => text.push_str(" *"),
        2..=5 => {
            let style = random.of(&["base", "one", "subtree", "subtree", "children"]);
            let _ = write!(text, " dn.{style}=\"{}\"", any_dn(random));
        }
        6 => {
            expands = Expands::User;
            text.push_str(" dn.regex=\"^uid=([^,]+),(.*ou=people,dc=example,dc=com)$\"");
        }
        _ => {
            let pattern = random.of(&[
                "ou=people,dc=example,dc=com$",
                "^ou=",
                "^(uid|cn)=[a-d]",
                "^uid=(anne|t[0-9]),",
            ]);
            let _ = write!(text, " dn.regex=\"{pattern}\"");
        }
    }
    if random.once_in(4) {
        let filter = random.of(&[
            "(objectClass=person)",
            "(description=*)",
            "(sn=anne)",
            "(!(description=red))",
            "(|(mail=*)(uid=bert))",
        ]);
        let _ = write!(text, " filter={filter}");
    }
    let mut names_values = false;
    if random.once_in(4) {
        // Filters here assert values of these, which is what slapd looks at.
        let style = random.of(&["exact", "base", "one", "subtree", "children"]);
        let names = format!("seeAlso val.{style}=\"{}\"", any_dn(random));
        let values = random.of(&[
            "description val=red",
            "description val.exact=BLUE",
            "description val.regex=\"^(r|x)\"",
            "sn val=anne",
            "sn val.regex=\"^[a-cx]\"",
            "sn val/caseIgnoreMatch=x",
            "sn val/caseIgnoreMatch.regex=\"^[a-cx]\"",
            NAMING,
            &names,
            &names,
        ]);
        names_values = values == NAMING;
        let _ = write!(text, " attrs={values}");
    } else if random.once_in(2) {
        let mut names: Vec<&str> = (0..1 + random.below(3))
            .map(|_| match random.below(4) {
                0 => "entry",
                1 => random.of(&["children", "@person", "@inetOrgPerson"]),
                _ => random.of(&ATTRIBUTES),
            })
            .collect();
        // In slapd no attribute of the class is meant by what comes behind it.
        if random.once_in(6) {
            names = vec!["!person"];
        }
        let _ = write!(text, " attrs={}", names.join(","));
    }
    for _ in 0..1 + random.below(4) {
        let who = match names_values && random.once_in(2) {
            true => random
                .of(&[
                    "dn.exact,expand=\"uid=${v1},${v2}\"",
                    "dn.subtree,expand=\"${v2}\"",
                    "dn.regex=\"^uid=${v1},\"",
                ])
                .to_owned(),
            false => who(random, expands),
        };
        let _ = write!(text, " by {who} {}", access(random));
        match random.below(8) {
            0 => text.push_str(" continue"),
            1 => text.push_str(" break"),
            2 => text.push_str(" stop"),
            _ => {}
        }
    }
    text
}

fn who(random: &mut Random, expands: Expands) -> String {
    let user = random.of(&USERS);
    match random.below(20) {
        0..=2 => "*".to_owned(),
        3 | 4 => "users".to_owned(),
        5 => "anonymous".to_owned(),
        6 | 7 => "self".to_owned(),
        8 => format!("dn.exact=\"{user}\""),
        9 => {
            let style = random.of(&["one", "subtree", "children"]);
            format!("dn.{style}=\"{}\"", random.of(&[PEOPLE, STAFF, SUFFIX]))
        }
        10 => format!(
            "dn.regex=\"{}\"",
            random.of(&["^uid=[ab]", "ou=staff,", "^uid=anne,"])
        ),
        11 if expands == Expands::User => random
            .of(&["dn.exact,expand=\"uid=$1,$2\"", "dn.subtree,expand=\"$2\""])
            .to_owned(),
        11 | 12 => format!("group.exact=\"{GROUP}\""),
        13 => format!("group/organizationalRole/roleOccupant.exact=\"{ROLE}\""),
        14 => "dnattr=seeAlso".to_owned(),
        15 => random
            .of(&[
                "self.level{1}",
                "self.level{-1}",
                "realself",
                "realusers",
                "realanonymous",
            ])
            .to_owned(),
        16 => random
            .of(&[
                "peername.ip=127.0.0.1",
                "peername.ip=10.0.0.0%255.0.0.0",
                "peername.regex=^IP=127[.]0[.]0[.]1:[0-9]+$$",
                "peername.path=/run/ldapi",
                "sockname.regex=^IP=127[.]0[.]0[.]1:",
                "sockname.regex=^PATH=",
                "sockname=*",
                "sockurl.regex=^ldap://",
                "sockurl=ldaps:///",
                "ssf=1",
                "tls_ssf=128",
            ])
            .to_owned(),
        17 => format!("group/inetOrgPerson/labeledURI.exact=\"{FOUND}\""),
        18 if expands == Expands::User && random.once_in(2) => {
            "set.expand=\"[ldap:///$2??one?(uid=$1)]/entryDN & user\"".to_owned()
        }
        18 => format!("set=\"{}\"", random.of(&SETS)),
        _ => "users peername.ip=127.0.0.0%255.0.0.0".to_owned(),
    }
}

/// Rights, all of which come with `disclose`: who may search an entry that slapd does not disclose finds it there, and
/// in sapwood it is as if it were not there.
fn access(random: &mut Random) -> &'static str {
    random.of(&[
        "none", "disclose", "auth", "compare", "search", "read", "read", "read", "write", "write",
        "add", "delete", "manage", "=xwd", "+rd", "+wd", "-w", "-r", "=rscxd", "+sd", "=0", "+ad",
        "-z",
    ])
}

/// Both servers, and somebody of each kind on them.
struct Pair {
    slapd: Slapd,
    sapwood: TestServer,
    /// Nobody, then the users.
    clients: Vec<[Client; 2]>,
    admins: [Client; 2],
    config: [Client; 2],
    history: String,
}

impl Pair {
    fn start(seed: u64) -> Pair {
        let slapd = Slapd::with(&SlapdSetup {
            database: "database config\nrootdn \"cn=config\"\nrootpw secret",
            ..SlapdSetup::default()
        });
        let sapwood = TestServer::start();
        let mut config = [Client::connect(slapd.address()), sapwood.admin()];
        config[0].bind("cn=config", "secret").succeeded();
        let mut pair = Pair {
            admins: [Client::admin(slapd.address()), sapwood.admin()],
            slapd,
            sapwood,
            clients: Vec::new(),
            config,
            history: format!("seed {seed}\n"),
        };
        let base = [("objectClass", "domain"), ("dc", "example")];
        let base = requests::add(1, SUFFIX, &base);
        pair.admins[0].tell(&base).succeeded();
        for (dn, ou) in [(PEOPLE, "people"), (STAFF, "staff"), (GROUPS, "groups")] {
            pair.add(dn, &[("objectClass", "organizationalUnit"), ("ou", ou)]);
        }
        for dn in USERS.iter().chain(&OTHERS) {
            pair.add_person(dn);
        }
        pair.add(
            GROUP,
            &[
                ("objectClass", "groupOfNames"),
                ("cn", "group"),
                ("member", USERS[0]),
            ],
        );
        let more = [(Add, "member", [USERS[2]].as_slice())];
        pair.change(GROUP, &more);
        pair.add(
            ROLE,
            &[
                ("objectClass", "organizationalRole"),
                ("cn", "role"),
                ("roleOccupant", USERS[1]),
            ],
        );
        pair.add(
            FOUND,
            &[
                ("objectClass", "inetOrgPerson"),
                ("cn", "found"),
                ("sn", "found"),
                (
                    "labeledURI",
                    "ldap:///ou=people,dc=example,dc=com??sub?(|(sn=anne)(sn=dora))",
                ),
            ],
        );
        pair.set(&["to * by * read".to_owned()]);
        pair.set(&[
            "to attrs=userPassword by * auth".to_owned(),
            "to * by * read".to_owned(),
        ]);
        pair.clients.push(pair.connect());
        for user in USERS {
            let mut clients = pair.connect();
            for client in &mut clients {
                client.bind(user, "secret").succeeded();
            }
            pair.clients.push(clients);
        }
        pair
    }

    fn connect(&self) -> [Client; 2] {
        [
            Client::connect(self.slapd.address()),
            self.sapwood.connect(),
        ]
    }

    fn add(&mut self, dn: &str, attributes: &[(&str, &str)]) {
        let add = requests::add(1, dn, attributes);
        for admin in &mut self.admins {
            admin.tell(&add).succeeded();
        }
    }

    fn add_person(&mut self, dn: &str) {
        let uid = dn[4..].split(',').next().unwrap();
        let mail = format!("{uid}@example.com");
        self.add(
            dn,
            &[
                ("objectClass", "inetOrgPerson"),
                ("uid", uid),
                ("cn", "Some Body"),
                ("sn", uid),
                ("mail", &mail),
                ("userPassword", STORED),
            ],
        );
    }

    fn change(&mut self, dn: &str, changes: &[Change<'_>]) {
        let change = requests::modify(1, dn, changes);
        for admin in &mut self.admins {
            admin.tell(&change).succeeded();
        }
    }

    /// Puts rules in force.
    fn put(&mut self, list: &str, rules: &[String]) {
        let values: Vec<&str> = rules.iter().map(String::as_str).collect();
        let change = [(Replace, "olcAccess", values.as_slice())];
        let change = requests::modify(1, list, &change);
        let _ = writeln!(self.history, "rules of {list}:");
        for rule in rules {
            let _ = writeln!(self.history, "    {rule}");
        }
        for (config, name) in self.config.iter_mut().zip(["slapd", "sapwood"]) {
            let answer = config.tell(&change);
            assert!(
                answer.code == ResultCode::Success,
                "{name} takes none of these rules: {answer:?}\n{}",
                self.history
            );
        }
    }

    /// Puts rules of the data in force, all of which are as at the beginning.
    fn set(&mut self, rules: &[String]) {
        self.put(DATA, rules);
        // What was deleted is there again, by whomever.
        for dn in OTHERS {
            for admin in &mut self.admins {
                let found = admin.search(dn, Scope::Base, "(objectClass=*)");
                if found.len() == 2 {
                    admin.ask(Request::Delete(dn)).succeeded();
                }
            }
            self.add_person(dn);
        }
        self.change(OTHERS[0], &[(Add, "seeAlso", &[USERS[0]])]);
        self.change(OTHERS[2], &[(Add, "seeAlso", &[USERS[1], USERS[2]])]);
    }

    /// Asks both for the same, as the same one, and compares the answers.
    fn ask(&mut self, who: usize, what: &str, request: &Request<'_>) {
        let name = who.checked_sub(1).map_or("nobody", |user| USERS[user]);
        let _ = writeln!(self.history, "{name}: {what}");
        let answers = self.clients[who]
            .each_mut()
            .map(|client| client.ask_all(*request, &[]));
        let [slapd, sapwood] = answers.map(|answers| told(&answers));
        if slapd == sapwood || self.is_explained(who, request, &slapd, &sapwood) {
            return;
        }
        panic!(
            "slapd and sapwood differ at the end of this:\n{}slapd: {slapd:#?}\nsapwood: {sapwood:#?}",
            self.history
        );
    }

    /// Whether a difference is one of those that `docs/reference/differences-from-openldap.md` explains: what may not
    /// be disclosed is in sapwood as if it were not there, whatever is asked of it.
    fn is_explained(
        &mut self,
        who: usize,
        request: &Request<'_>,
        slapd: &Told,
        sapwood: &Told,
    ) -> bool {
        let (hidden, refused) = (
            sapwood.code == ResultCode::NoSuchObject,
            ResultCode::InsufficientAccessRights,
        );
        let reads = matches!(request, Request::Search(_) | Request::Compare(_));
        if hidden && slapd.code == ResultCode::NoSuchObject {
            // slapd names an entry above what is not there, which it may not disclose where it writes, and none above
            // what it hides.
            let above = slapd.matched.ends_with(&sapwood.matched);
            return slapd.matched.is_empty() || above && !reads;
        }
        if let Request::Search(search) = request
            && global::BASES.contains(&search.base)
            && slapd.code == ResultCode::Success
        {
            // slapd looks at the root DSE and at the schema by the filter alone.
            return slapd.entries.is_empty() && *sapwood == Told::refused();
        }
        if slapd.code == ResultCode::NoSuchObject && *sapwood == Told::refused() {
            // Who may do so with no entry at all is refused without a look, as with what is certainly not there.
            let elsewhere = match *request {
                Request::Compare(compare) if global::BASES.contains(&compare.dn) => {
                    global::elsewhere(compare)
                }
                request => nowhere(request),
            };
            let elsewhere = self.clients[who][1].ask_all(elsewhere, &[]);
            return told(&elsewhere) == Told::refused();
        }
        let dns: Vec<&str> = match request {
            // slapd says that there is an entry to who may not add one.
            Request::Add(_) if slapd.code == ResultCode::EntryAlreadyExists => {
                return hidden || sapwood.code == refused;
            }
            Request::Add(add) => vec![add.dn.split_once(',').unwrap().1],
            // The same to who may not rename, as slapd does not ask for rights on what the new name adds.
            Request::ModifyDn(_) if slapd.code == ResultCode::EntryAlreadyExists => {
                return hidden || sapwood.code == refused;
            }
            Request::Modify(modify) => vec![modify.dn],
            Request::Delete(dn) => vec![dn],
            // slapd asks for no rights on what a new name adds, which slapd.access(5) says that it does.
            Request::ModifyDn(_)
                if slapd.code == ResultCode::Success && sapwood.code == refused =>
            {
                self.admins[1].ask(*request).succeeded();
                return true;
            }
            Request::Compare(compare) => vec![compare.dn],
            Request::ModifyDn(rename) => vec![rename.dn, rename.new_superior.unwrap_or(rename.dn)],
            _ => return false,
        };
        // slapd asks for `disclose` when it finds nothing else that it may do, and not when it writes.
        if !hidden || !dns.iter().any(|dn| self.is_hidden(who, dn)) {
            return false;
        }
        if slapd.code == ResultCode::Success && !reads {
            self.admins[1].ask(*request).succeeded();
        }
        true
    }

    /// Whether somebody is not told of an entry in sapwood.
    fn is_hidden(&mut self, who: usize, dn: &str) -> bool {
        let found = self.clients[who][1].search(dn, Scope::Base, "(objectClass=*)");
        let code = found.last().unwrap().code;
        if global::BASES.contains(&dn) && found.len() == 1 {
            return true;
        }
        [
            ResultCode::NoSuchObject,
            ResultCode::InsufficientAccessRights,
        ]
        .contains(&code)
    }

    fn request(&mut self, random: &mut Random) {
        let who = random.below(self.clients.len());
        match random.below(12) {
            0..=4 => self.search(who, random),
            5 | 6 => {
                let (dn, attribute) = (any_dn(random), random.of(&ATTRIBUTES));
                let value = random.of(&["anne", "Some Body", "red"]);
                let request = Request::Compare(CompareRequest {
                    dn,
                    assertion: Assertion {
                        attribute: attribute.as_bytes(),
                        value: value.as_bytes(),
                    },
                });
                if attribute != "seeAlso" {
                    self.ask(who, &format!("compare {dn} {attribute} {value}"), &request);
                }
            }
            7 | 8 => self.modify(who, random),
            9 => {
                let dn = random.of(&OTHERS);
                match random.once_in(2) {
                    true => self.ask(who, &format!("delete {dn}"), &Request::Delete(dn)),
                    false => {
                        let list = requests::attributes(&[
                            ("objectClass", "inetOrgPerson"),
                            ("sn", "new"),
                            ("cn", "new"),
                            ("description", "red"),
                            ("uid", &dn[4..6]),
                        ]);
                        let attributes = list.view();
                        let request = Request::Add(AddRequest { dn, attributes });
                        self.ask(who, &format!("add {dn}"), &request);
                    }
                }
            }
            10 => {
                let dn = random.of(&OTHERS);
                let new_rdn = random.of(&["uid=t1", "uid=t2", "uid=t3", "cn=Some Body"]);
                let delete_old_rdn = random.once_in(2);
                let new_superior =
                    random.of(&[None, None, Some(STAFF), Some(PEOPLE), Some(GROUPS)]);
                let what = format!("rename {dn} {new_rdn} {delete_old_rdn} {new_superior:?}");
                let request = Request::ModifyDn(ModifyDnRequest {
                    dn,
                    new_rdn,
                    delete_old_rdn,
                    new_superior,
                });
                self.ask(who, &what, &request);
                self.put_back();
            }
            _ => {
                let dn = any_dn(random);
                let password = random.of(&["secret", "secret", "wrong"]);
                let mut clients = self.connect();
                let codes = clients
                    .each_mut()
                    .map(|client| client.bind(dn, password).code);
                let _ = writeln!(self.history, "bind {dn} {password}: {codes:?}");
                assert_eq!(codes[0], codes[1], "slapd, sapwood:\n{}", self.history);
            }
        }
    }

    fn search(&mut self, who: usize, random: &mut Random) {
        let base = any_dn(random);
        let scope = random.of(&[Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Subtree]);
        let text = random.of(&[
            "(objectClass=*)",
            "(objectClass=person)",
            "(sn=anne)",
            "(!(sn=anne))",
            "(description=red)",
            "(|(mail=*)(telephoneNumber=*))",
            "(&(uid=*)(!(description=red)))",
            "(userPassword=*)",
            "(seeAlso=uid=anne,ou=people,dc=example,dc=com)",
            "(!(seeAlso=uid=bert,ou=people,dc=example,dc=com))",
        ]);
        let filter = filter_text::parse(text).unwrap();
        let wanted = random.of(&[&[][..], &["sn", "mail"], &["1.1"]]);
        let attributes = OctetStringsBuf::from_iter(wanted.iter().map(|name| name.as_bytes()));
        let types_only = random.once_in(8);
        let request = Request::Search(SearchRequest {
            attributes: attributes.view(),
            types_only,
            ..SearchRequest::new(base, scope, filter.as_filter())
        });
        self.ask(
            who,
            &format!("search {base} {scope:?} {text} {wanted:?}"),
            &request,
        );
    }

    fn modify(&mut self, who: usize, random: &mut Random) {
        let dn = any_dn(random);
        let count = 1 + random.below(2);
        let mut what = format!("modify {dn}");
        let mut changes: Vec<Change<'_>> = (0..count)
            .map(|_| {
                let (attribute, values): (&str, &[&str]) = random.of(&[
                    ("description", &["red"]),
                    ("description", &["blue"]),
                    ("telephoneNumber", &["1"]),
                    ("mail", &["x@example.com"]),
                    ("sn", &["x"]),
                    ("userPassword", &[STORED]),
                    ("seeAlso", &[USERS[0]]),
                ]);
                let kind = random.of(&[Add, Delete, Replace, Replace]);
                // All values are deleted, or replaced by none.
                let values = match kind != Add && random.once_in(2) {
                    true => Default::default(),
                    false => values,
                };
                let _ = write!(what, " {kind:?} {attribute} {values:?}");
                (kind, attribute, values)
            })
            .collect();
        // What slapd has decided of an attribute as a whole it takes for its values, too, later in the same modify.
        if let [(_, one, _), (_, other, _)] = &changes[..]
            && one == other
        {
            changes.pop();
            what.push_str(" (the first)");
        }
        let list = requests::changes(&changes);
        let changes = list.view();
        let request = Request::Modify(ModifyRequest { dn, changes });
        self.ask(who, &what, &request);
    }

    /// Puts entries that were renamed back to where they were.
    fn put_back(&mut self) {
        for admin in &mut self.admins {
            for name in ["uid=t1", "uid=t2", "uid=t3", "uid=t4", "cn=Some Body"] {
                for above in [PEOPLE, STAFF, GROUPS] {
                    let dn = format!("{name},{above}");
                    if !OTHERS.contains(&dn.as_str()) {
                        let _ = admin.ask(Request::Delete(&dn));
                    }
                }
            }
        }
    }
}

/// Attributes of an entry with their values.
type Attributes = Vec<(String, Vec<String>)>;

/// What is compared of answers: entries in their order by name, with their attributes and values in order.
#[derive(Debug, PartialEq)]
struct Told {
    entries: Vec<(String, Attributes)>,
    code: ResultCode,
    matched: String,
}

impl Told {
    /// The answer to who may not.
    fn refused() -> Told {
        Told {
            entries: Vec::new(),
            code: ResultCode::InsufficientAccessRights,
            matched: String::new(),
        }
    }
}

/// The same request about an entry that is not there.
fn nowhere(request: Request<'_>) -> Request<'_> {
    const NOWHERE: &str = "uid=surely not,ou=people,dc=example,dc=com";
    match request {
        Request::Search(search) => Request::Search(SearchRequest {
            base: NOWHERE,
            ..search
        }),
        Request::Compare(compare) => Request::Compare(CompareRequest {
            dn: NOWHERE,
            ..compare
        }),
        Request::Modify(modify) => Request::Modify(ModifyRequest {
            dn: NOWHERE,
            ..modify
        }),
        Request::Delete(_) => Request::Delete(NOWHERE),
        Request::ModifyDn(rename) => Request::ModifyDn(ModifyDnRequest {
            dn: NOWHERE,
            ..rename
        }),
        other => other,
    }
}

fn told(answers: &[Answer]) -> Told {
    let mut entries: Vec<_> = answers
        .iter()
        .filter(|answer| !answer.ends)
        .map(|answer| {
            let mut attributes: Attributes = answer
                .attributes
                .iter()
                .map(|(name, values)| {
                    let mut values: Vec<String> = values
                        .iter()
                        .map(|value| String::from_utf8_lossy(value).into_owned())
                        // slapd stores the classes as they were given.
                        .filter(|value| {
                            let above = ["top", "person", "organizationalPerson"];
                            name != "objectClass" || !above.contains(&value.as_str())
                        })
                        .collect();
                    values.sort();
                    (name.clone(), values)
                })
                .collect();
            attributes.sort();
            (answer.entry.clone().unwrap_or_default(), attributes)
        })
        .collect();
    entries.sort();
    let end = answers.last().unwrap();
    Told {
        entries,
        code: end.code,
        matched: end.matched.clone(),
    }
}
