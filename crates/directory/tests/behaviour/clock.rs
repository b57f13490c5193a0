//! A clock that is set back: what changes later never seems to have changed earlier.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::On;
use crate::made::{Directory, in_stores, over};
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::{Clock, Options};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_testkit::directories::{add, config, modify, options, person, rename, seed, succeed};

use crate::query::{Query, query, search};

const BEN: &str = "uid=ben,ou=People,dc=example,dc=com";

/// A clock that is set by hand, in microseconds.
#[derive(Default)]
pub(crate) struct Set(AtomicU64);

impl Set {
    pub(crate) fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::Relaxed);
    }
}

impl Clock for Set {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an entry says of its last change: entryCSN, modifyTimestamp and createTimestamp.
fn times<E: sapwood_directory::engine::Engine>(directory: &Directory<E>, dn: &str) -> [String; 3] {
    let asked = Query {
        attributes: &["entryCSN", "modifyTimestamp", "createTimestamp"],
        ..query(dn, Scope::Base, "(objectClass=*)")
    };
    let found = search(directory, &asked);
    ["entryCSN: ", "modifyTimestamp: ", "createTimestamp: "].map(|name| {
        let mut lines = found.entries[0].1.iter();
        lines
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .to_owned()
    })
}

#[test]
fn changes_of_a_directory_ascend_past_a_reopen() {
    if <On as Engine>::REMOTE {
        // A bundle that runs again draws other numbers.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let clock = Arc::new(Set::default());
    let options = || Options {
        clock: clock.clone(),
        ..options()
    };
    let open = |create| {
        let store = sapwood_store::Options::new().create(create);
        over(Embedded::open(&path, &store).unwrap())
    };
    let now = 1_800_000_000_000_000;
    clock.0.store(now, Ordering::Relaxed);
    let mut directory = Directory::create_on(open(true), &config(), options()).unwrap();
    seed(&directory);
    succeed(&directory, person("ben"));
    let mut last = times(&directory, BEN);
    let mut days_back = 0;
    for round in 0..12 {
        if round % 3 == 2 {
            drop(directory);
            directory = Directory::open_on(open(false), options()).unwrap();
        }
        // Back by a day, and on by a second again before the next is applied.
        days_back += u64::from(round % 2 == 0);
        clock.0.store(
            now - days_back * 86_400_000_000 + round * 1_000_000,
            Ordering::Relaxed,
        );
        let sn = format!("Keller{round}");
        succeed(&directory, modify(BEN, &[(Replace, "sn", &[&sn])]));
        let next = times(&directory, BEN);
        assert!(next[0] > last[0], "{next:?} after {last:?}");
        assert!(
            next[1] >= last[1] && next[1] >= next[2],
            "{next:?} after {last:?}"
        );
        assert_eq!(next[2], last[2]);
        // And so with another entry.
        let other = format!("uid=u{round},ou=People,dc=example,dc=com");
        succeed(&directory, person(&format!("u{round}")));
        last = times(&directory, &other);
        assert!(last[0] > next[0], "{last:?} after {next:?}");
        succeed(
            &directory,
            rename(BEN, &format!("uid=ben{round}"), true, None),
        );
        succeed(
            &directory,
            rename(
                &format!("uid=ben{round},ou=People,dc=example,dc=com"),
                "uid=ben",
                true,
                None,
            ),
        );
        let renamed = times(&directory, BEN);
        assert!(renamed[0] > last[0], "{renamed:?} after {last:?}");
        last = renamed;
    }
    // When the clock is right again, it counts.
    clock.0.store(now + 86_400_000_000, Ordering::Relaxed);
    succeed(&directory, modify(BEN, &[(Replace, "sn", &["Keller"])]));
    assert_eq!(
        times(&directory, BEN)[0],
        "20270116080000.000000Z#000000#000#000000"
    );
}

#[test]
fn stores_of_one_directory_share_its_time() {
    let directory = in_stores();
    seed(&directory);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let mut last = String::new();
    for (round, dn) in ["o=other", "ou=People,dc=example,dc=com"]
        .repeat(5)
        .into_iter()
        .enumerate()
    {
        succeed(
            &directory,
            modify(dn, &[(Replace, "description", &[&round.to_string()])]),
        );
        let [csn, ..] = times(&directory, dn);
        assert!(csn > last);
        last = csn;
    }
}
