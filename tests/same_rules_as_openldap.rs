//! OpenLDAP's slapd with an overlay, and sapwood with the rule of the same name, hold the same data and are asked the
//! same.
//!
//! The questions come from seeds; `SAME_RULES_SEED` takes another one, and `SAME_RULES_SEEDS` as many from the first
//! on.

#![allow(clippy::unwrap_used, missing_docs, dead_code)]

#[path = "same_answers/answer.rs"]
mod answer;
#[path = "same_answers/operation.rs"]
mod operation;

use answer::describe_difference;
use operation::{Operation, Term};
use sapwood_ldap::extended::{REFRESH, Refresh, refreshed};
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::{Client, Random, SUFFIX, Slapd, SlapdSetup};

/// Those that are always tried.
const SEEDS: u64 = 3;
const STEPS: usize = 300;
const PEOPLE: &str = "ou=people,dc=example,dc=com";

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|seed| seed.parse().unwrap());
    match number("SAME_RULES_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("SAME_RULES_SEEDS").unwrap_or(SEEDS)).collect(),
    }
}

#[test]
fn dynamic_groups_are_the_same() {
    for seed in seeds() {
        dynlist(seed, "groupOfURLs memberURL member", &["dynlist"]);
    }
}

#[test]
fn dynamic_lists_are_the_same() {
    for seed in seeds() {
        dynlist(seed, "groupOfURLs memberURL", &["dynlist", "--list"]);
    }
}

fn dynlist(seed: u64, attrset: &str, rule: &[&str]) {
    let slapd = Slapd::with(&SlapdSetup {
        global: "include /etc/ldap/schema/dyngroup.schema\nsizelimit unlimited\n\
                 modulepath /usr/lib/ldap\nmoduleload dynlist",
        database: &format!("overlay dynlist\ndynlist-attrset {attrset}"),
        seconds: None,
    });
    let folder = Folder::init(&[]);
    folder.sapwood_ok("rule", &[&["add"], rule].concat());
    let server = folder.serve();
    let mut pair = [
        Client::admin(slapd.address()),
        Client::admin(server.address()),
    ];
    let mut random = Random::new(seed);
    let is_list = rule.contains(&"--list");
    for add in Operation::adds(&people(&mut random, is_list)) {
        let [one, other] = pair.each_mut().map(|client| add.ask(client).code);
        assert_eq!(
            (one, other),
            (ResultCode::Success, ResultCode::Success),
            "{add}"
        );
    }
    let mut differences = String::new();
    for _ in 0..STEPS {
        let question = match random.below(8) {
            0 => update(&mut random, is_list),
            1 | 2 => compare(&mut random, is_list),
            _ => search(&mut random, is_list),
        };
        let [expected, found] = pair.each_mut().map(|client| question.ask(client));
        // Whether a list has an attribute is not found out when it does not have the value.
        let codes = (expected.code, found.code);
        let is_untold = codes == (ResultCode::NoSuchAttribute, ResultCode::CompareFalse);
        if !(expected.same_as(&found) || is_list && is_untold) {
            differences.push_str(&format!("\nseed {seed}: {question}\n"));
            describe_difference(&mut differences, &expected, &found).unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// A hundred people in two places, and groups with URLs.
fn people(random: &mut Random, is_list: bool) -> String {
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: top\nobjectClass: domain\ndc: example\n\n\
         dn: {PEOPLE}\nobjectClass: top\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=deep,{PEOPLE}\nobjectClass: top\nobjectClass: organizationalUnit\nou: deep\n\n"
    );
    for number in 0..40 {
        ldif.push_str(&format!(
            "dn: {}\nobjectClass: top\nobjectClass: person\nobjectClass: organizationalPerson\nobjectClass: inetOrgPerson\ncn: p{number}\nsn: {}\ntitle: {}\nmail: m{}@x\nmail: n{number}@x\n\
             employeeType: {}\n\n",
            person(number),
            random.of(&["a", "b", "c"]),
            random.of(&["x", "y", "z"]),
            random.below(9),
            random.of(&["u", "v"]),
        ));
    }
    for number in 0..8 {
        ldif.push_str(&format!(
            "dn: cn=g{number},{SUFFIX}\nobjectClass: top\nobjectClass: groupOfURLs\ncn: g{number}\n"
        ));
        let mut urls = Vec::new();
        for _ in 0..random.below(4) {
            urls.push(url_of(random, is_list));
        }
        urls.sort();
        urls.dedup();
        urls.iter()
            .for_each(|url| ldif.push_str(&format!("memberURL: {url}\n")));
        ldif.push('\n');
    }
    ldif
}

fn person(number: usize) -> String {
    match number % 2 {
        0 => format!("cn=p{number},{PEOPLE}"),
        _ => format!("cn=p{number},ou=deep,{PEOPLE}"),
    }
}

fn url(random: &mut Random) -> String {
    let base = match random.below(4) {
        0 => SUFFIX.to_owned(),
        1 => format!("ou=deep,{PEOPLE}"),
        2 => person(random.below(44)),
        _ => PEOPLE.to_owned(),
    };
    let scope = random.of(&["base", "one", "sub", "sub"]);
    let filter = random.of(&[
        "(sn=a)",
        "(&(objectClass=person)(title=x))",
        "(|(sn=b)(employeeType=u))",
        "(mail=m*)",
        "(objectClass=*)",
        "(!(sn=a))",
        "(cn=nobody)",
    ]);
    format!("ldap:///{base}??{scope}?{filter}")
}

fn url_of(random: &mut Random, is_list: bool) -> String {
    if !is_list {
        return url(random);
    }
    let attributes = random.of(&["mail", "mail,title", "title,sn", "employeeType"]);
    url(random).replacen("??", &format!("?{attributes}?"), 1)
}

fn update(random: &mut Random, is_list: bool) -> Operation {
    let url = url_of(random, is_list);
    let text = match random.below(3) {
        0 => format!(
            "dn: cn=g{},{SUFFIX}\nchangetype: modify\nreplace: memberURL\nmemberURL: {url}\n",
            random.below(8)
        ),
        1 => format!(
            "dn: {}\nchangetype: modify\nreplace: sn\nsn: {}\n",
            person(random.below(40)),
            random.of(&["a", "b"])
        ),
        _ => format!("dn: {}\nchangetype: delete\n", person(random.below(40))),
    };
    Operation::changes(&text).remove(0)
}

fn compare(random: &mut Random, is_list: bool) -> Operation {
    let (attribute, value) = match is_list {
        true => random.of(&[
            ("mail", "m1@x"),
            ("mail", "n3@x"),
            ("title", "X"),
            ("sn", "c"),
            ("cn", "g1"),
        ]),
        false => ("member", ""),
    };
    let value = match is_list {
        true => value.to_owned(),
        false => person(random.below(44)),
    };
    Operation::Compare {
        dn: format!("cn=g{},{SUFFIX}", random.below(8)),
        attribute: attribute.to_owned(),
        value: value.into_bytes(),
        manage_dsa_it: random.once_in(6),
    }
}

fn search(random: &mut Random, is_list: bool) -> Operation {
    let equal = |name: &str, value: &str| Term::Equal(name.to_owned(), value.as_bytes().to_vec());
    let group = format!("g{}", random.below(8));
    let filter = match random.below(5) {
        0 | 1 => equal("cn", &group),
        2 => equal("objectClass", "groupOfURLs"),
        _ if is_list => Term::Present("objectClass".to_owned()),
        3 => equal("member", &person(random.below(44))),
        _ => Term::Or(vec![
            equal("member", &person(random.below(44))),
            equal("cn", &group),
        ]),
    };
    let attributes = match is_list {
        true => random.of::<&[&str]>(&[&["*"], &[], &["mail"], &["title", "cn"], &["1.1"]]),
        false => random.of::<&[&str]>(&[
            &["*"],
            &[],
            &["member"],
            &["member", "cn"],
            &["cn"],
            &["1.1"],
        ]),
    };
    Operation::Search {
        base: SUFFIX.to_owned(),
        scope: random.of(&[Scope::Subtree, Scope::OneLevel]),
        deref_aliases: DerefAliases::Never,
        size_limit: 0,
        types_only: random.once_in(10),
        filter,
        attributes: attributes.iter().map(|name| (*name).to_owned()).collect(),
        manage_dsa_it: random.once_in(6),
    }
}

/// Seconds by which two answers about the same time may differ.
const LATE: i64 = 60;

#[test]
fn dynamic_entries_are_the_same() {
    for seed in seeds() {
        dds(seed);
    }
}

fn dds(seed: u64) {
    let slapd = Slapd::with(&SlapdSetup {
        global: "modulepath /usr/lib/ldap\nmoduleload dds",
        database: "overlay dds\ndds-max-ttl 2d\ndds-min-ttl 100\ndds-default-ttl 1h\ndds-max-dynamicObjects 20",
        seconds: None,
    });
    let folder = Folder::init(&[]);
    let limits = "--max-ttl 172800 --min-ttl 100 --default-ttl 3600 --max-objects 20";
    let limits: Vec<&str> = limits.split(' ').collect();
    folder.sapwood_ok("rule", &[&["add", "dds"], &limits[..]].concat());
    let server = folder.serve();
    let mut pair = [
        Client::admin(slapd.address()),
        Client::admin(server.address()),
    ];
    let mut random = Random::new(seed);
    let top = format!("dn: {SUFFIX}\nobjectClass: top\nobjectClass: domain\ndc: example\n");
    for add in Operation::adds(&top) {
        for client in &mut pair {
            assert_eq!(add.ask(client).code, ResultCode::Success);
        }
    }
    let mut differences = String::new();
    let mut names = vec![SUFFIX.to_owned()];
    for step in 0..STEPS {
        let some = names[random.below(names.len())].clone();
        // slapd 2.5 does not survive all changes of entries that are not there.
        let mut touched = None;
        let (said, answers) = match random.below(6) {
            0 | 1 => {
                let dn = format!("cn=n{step},{some}");
                let class = random.of(&["", "objectClass: dynamicObject\n"]);
                touched = Some((dn.clone(), true));
                let ldif = format!(
                    "dn: {dn}\nchangetype: add\nobjectClass: top\nobjectClass: person\n{class}cn: n{step}\nsn: x\n"
                );
                changed(&mut pair, &ldif)
            }
            2 => {
                let kind = random.of(&["add", "delete"]);
                let ldif = format!(
                    "dn: {some}\nchangetype: modify\n{kind}: objectClass\nobjectClass: dynamicObject\n"
                );
                changed(&mut pair, &ldif)
            }
            3 if some != SUFFIX => {
                touched = Some((some.clone(), false));
                changed(&mut pair, &format!("dn: {some}\nchangetype: delete\n"))
            }
            4 => {
                let ttl = random.of(&[-1, 0, 5, 100, 5000, 172_800, 172_801, 31_557_601]);
                let mut value = Vec::new();
                let entry = some.as_bytes();
                Refresh { entry, ttl }.encode(&mut value);
                let answers = pair.each_mut().map(|client| {
                    let answer = client.extended(REFRESH, Some(&value));
                    let ttl = answer
                        .value
                        .as_deref()
                        .map(|value| refreshed(value).unwrap());
                    (answer.code, ttl)
                });
                (format!("refresh {some} {ttl}"), answers)
            }
            _ => {
                let answers = pair.each_mut().map(|client| {
                    let asked = Operation::Search {
                        base: some.clone(),
                        scope: Scope::Base,
                        deref_aliases: DerefAliases::Never,
                        size_limit: 0,
                        types_only: false,
                        filter: Term::Present("objectClass".to_owned()),
                        attributes: vec!["entryTtl".to_owned()],
                        manage_dsa_it: false,
                    };
                    let answer = asked.ask(client);
                    let values = answer
                        .entries
                        .values()
                        .flat_map(|entry| entry.get("entryttl"));
                    let ttl = values.flatten().next();
                    let ttl = ttl.map(|ttl| String::from_utf8_lossy(ttl).parse().unwrap());
                    (answer.code, ttl)
                });
                (format!("the life of {some}"), answers)
            }
        };
        let [(one, slapds), (other, own)] = answers;
        match touched.filter(|_| one == ResultCode::Success) {
            Some((dn, true)) => names.push(dn),
            Some((dn, false)) => names.retain(|name| *name != dn),
            None => {}
        }
        let is_near = match (slapds, own) {
            (Some(slapds), Some(own)) => (slapds - own).abs() < LATE,
            (None, None) => true,
            _ => false,
        };
        if one != other || !is_near {
            differences.push_str(&format!(
                "seed {seed}: {said}: {one:?} {slapds:?} against {other:?} {own:?}\n"
            ));
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

type Told = [(ResultCode, Option<i64>); 2];

fn changed(pair: &mut [Client; 2], ldif: &str) -> (String, Told) {
    let change = Operation::changes(ldif).remove(0);
    let codes = pair
        .each_mut()
        .map(|client| (change.ask(client).code, None));
    (change.to_string(), codes)
}
