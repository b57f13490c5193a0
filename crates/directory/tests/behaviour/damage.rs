//! A damaged entry makes an error, or a message that any client can read; never one that it cannot.

use crate::made::{Directory, engine};
use sapwood_directory::engine::{
    self, Bundle, Engine, Read, StoreSet, Table, Ticket, Verdict, Write,
};
use sapwood_directory::{Budget, EntryId, Search, SearchOptions, Step, Wire};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::Add;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Frame, ResponseMessage, Scope, SearchRequest, frame};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{
    admin, as_admin, config, holds, modify, options, person, seed, succeed,
};

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

/// Puts a record in the place of an entry's.
struct Damage(EntryId, Vec<u8>);

impl Bundle for Damage {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        StoreSet::FIRST
    }

    fn begin<T: Write>(&mut self, _: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _: usize) -> engine::Result<Verdict> {
        txn.put(Table::Entry, &self.0.to_key(), &self.1)?;
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _: &mut T) -> engine::Result<()> {
        Ok(())
    }
}

/// Searches for the entry in every way; the answers that could be read, and the errors.
fn ask(directory: &Directory) -> (usize, usize) {
    let (mut read, mut failed) = (0, 0);
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    for (base, scope) in [(ANNE, Scope::Base), ("dc=example,dc=com", Scope::Subtree)] {
        for attributes in [&[][..], &["*", "+"], &["cn", "mail", "entryDN"]] {
            let attributes: OctetStringsBuf = attributes.iter().collect();
            let request = SearchRequest {
                attributes: attributes.view(),
                ..SearchRequest::new(base, scope, filter.as_filter())
            };
            let identity = if scope == Scope::Base {
                admin()
            } else {
                reader()
            };
            let snapshot = directory.snapshot().unwrap();
            let requester = directory.requester(identity);
            let options = SearchOptions::default();
            let mut search = Search::new(snapshot, &requester, &request, options);
            let mut out = Vec::new();
            let budget = Budget {
                entries: 100,
                work: u64::MAX,
                out_bytes: 1 << 20,
            };
            loop {
                let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
                match search.step(&mut wire, budget) {
                    Ok(Step::Done(_)) => break,
                    Ok(Step::More | Step::Wait) => {}
                    Ok(Step::Fetch) => search.snapshot().fetch().unwrap(),
                    // A length that is not true.
                    Ok(Step::Room(bytes)) => {
                        assert!(bytes > budget.out_bytes);
                        break;
                    }
                    Err(_) => {
                        failed += 1;
                        break;
                    }
                }
            }
            let mut rest = out.as_slice();
            while !rest.is_empty() {
                let Ok(Frame::Complete(bytes)) = frame(rest, usize::MAX) else {
                    panic!("the message has no end");
                };
                let message = ResponseMessage::decode(&rest[..bytes]).unwrap();
                let text = format!("{message:?}");
                // Who may not see passwords does not see damaged ones either.
                assert!(scope == Scope::Base || !text.contains("secret"), "{text}");
                read += 1;
                rest = &rest[bytes..];
            }
        }
    }
    (read, failed)
}

fn reader() -> sapwood_directory::Identity {
    sapwood_directory::Identity::User {
        entry: EntryId(2),
        dn: "ou=People,dc=example,dc=com".into(),
    }
}

/// A bit of every byte of a record, and then all bits of it.
#[test]
fn every_damaged_byte_of_an_entry_is_an_error_or_readable() {
    let (engine, options) = (engine(), options());
    let directory = Directory::create_on(engine.clone(), &config(), options.clone()).unwrap();
    seed(&directory);
    succeed(&directory, person("anne"));
    let long = "x".repeat(300);
    let changes: [(_, _, &[&str]); 4] = [
        (Add, "description", &[&long]),
        // Enough for a large attribute.
        (Add, "telephoneNumber", &["1", "2", "3", "4", "5"]),
        (Add, "mail", &["a@b", "c@d"]),
        (Add, "userPassword", &["{x}secret"]),
    ];
    succeed(&directory, modify(ANNE, &changes));
    let snapshot = directory.snapshot().unwrap();
    let id = snapshot
        .through(|snapshot| snapshot.credentials(ANNE, 1))
        .unwrap()
        .unwrap()
        .entry;
    drop((snapshot, directory));
    let view = engine.waiting_snapshot().unwrap();
    let record = view
        .get(Table::Entry, &id.to_key())
        .unwrap()
        .unwrap()
        .to_vec();
    drop(view);

    let (mut errors, mut answers) = (0, 0);
    for (at, mask) in (0..record.len()).flat_map(|at| [(at, 1 << (at % 8)), (at, 0xff)]) {
        let mut damaged = record.clone();
        damaged[at] ^= mask;
        // What the values are themselves is nobody's business here.
        if damaged[at] != b'x'
            && record[at..].starts_with(b"xxxxxxxx")
            && record[..at].ends_with(b"xxxxxxxx")
        {
            continue;
        }
        engine
            .write(&mut Damage(id, damaged))
            .unwrap()
            .unwrap()
            .wait()
            .unwrap();
        // A directory knows what it has looked at: each damage meets one that was just opened.
        let directory = Directory::open_on(engine.clone(), options.clone()).unwrap();
        let (read, failed) = ask(&directory);
        if failed > 0 {
            assert!(!directory.check(|_| {}).unwrap().problems.is_empty());
        }
        answers += read;
        errors += failed;
    }
    assert!(errors > 0 && answers > 0);
}

/// All updates of the batch were refused.
#[test]
fn a_damaged_entry_fails_its_own_update_and_no_other() {
    let (engine, options) = (engine(), options());
    let directory = Directory::create_on(engine.clone(), &config(), options.clone()).unwrap();
    seed(&directory);
    succeed(&directory, person("anne"));
    let snapshot = directory.snapshot().unwrap();
    let found = snapshot.through(|snapshot| snapshot.credentials(ANNE, 1));
    let id = found.unwrap().unwrap().entry;
    drop(snapshot);
    let damage = engine.write(&mut Damage(id, b"no record".to_vec()));
    damage.unwrap().unwrap().wait().unwrap();
    let describe = |dn: &str| as_admin(modify(dn, &[(Add, "description", &["x"])]));
    let (suffix, people) = ("dc=example,dc=com", "ou=People,dc=example,dc=com");
    let applied = directory.apply(&[suffix, ANNE, people].map(describe));
    let applied = applied.unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    let (done, failed) = (ResultCode::Success, ResultCode::UnknownError);
    assert_eq!(codes, [done, failed, done]);
    applied.ticket.unwrap().wait().unwrap();
    drop(directory);
    let directory = Directory::open_on(engine, options).unwrap();
    for dn in [suffix, people] {
        assert!(holds(&directory, dn, "description", "x"));
    }
}
