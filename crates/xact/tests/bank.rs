//! A bank in which several processes work while they are killed. Whatever was acknowledged is there, and nothing is
//! there by halves: each teller makes the transfers of a list of its own, so what all accounts must have follows from
//! how many of them each teller has made.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use sapwood_testkit::{Random, children};
use sapwood_xact::{Error, Fixed, Memory, Mode, Options, PAGE_BYTES, Ptr, Space, Transaction};

const ACCOUNTS: u64 = 10_000;
const EACH: i64 = 100;
/// So many work at the same time.
const PROCESSES: usize = 4;
/// So many there may have been.
const TELLERS_MAX: u64 = 1024;
const MODES: [Mode; 3] = [Mode::Explicit, Mode::Tracked, Mode::Snapshot];

/// Where what the bank has is.
#[derive(Clone, Copy)]
struct Bank {
    accounts: u64,
    tellers: u64,
}

impl Bank {
    fn found(t: &mut Transaction<'_>) -> Result<(), Error> {
        let accounts = t.allocate(ACCOUNTS * i64::BYTES as u64)?;
        let tellers = t.allocate(TELLERS_MAX * PAGE_BYTES as u64)?;
        t.set_named_root("accounts", accounts)?;
        t.set_named_root("tellers", tellers)?;
        let bank = Self { accounts, tellers };
        (0..ACCOUNTS).try_for_each(|number| t.store(bank.account(number), &EACH))?;
        (0..TELLERS_MAX).try_for_each(|teller| t.store(bank.made(teller), &0))
    }

    fn find(t: &Transaction<'_>) -> Result<Self, Error> {
        Ok(Self {
            accounts: t.named_root("accounts")?,
            tellers: t.named_root("tellers")?,
        })
    }

    fn account(self, number: u64) -> Ptr<i64> {
        Ptr::new(self.accounts + number * i64::BYTES as u64)
    }

    /// How many transfers a teller has made: on a page that nobody else writes to.
    fn made(self, teller: u64) -> Ptr<u64> {
        Ptr::new(self.tellers + teller * PAGE_BYTES as u64)
    }

    fn transfer<M: Memory>(
        self,
        memory: &mut M,
        teller: u64,
        what: Transfer,
    ) -> Result<(), M::Error> {
        let from = memory.load(self.account(what.from))? - what.amount;
        memory.store(self.account(what.from), &from)?;
        let to = memory.load(self.account(what.to))? + what.amount;
        memory.store(self.account(what.to), &to)?;
        let made = memory.load(self.made(teller))? + 1;
        memory.store(self.made(teller), &made)
    }
}

#[derive(Clone, Copy)]
struct Transfer {
    from: u64,
    to: u64,
    amount: i64,
}

/// What a teller does, without end.
fn transfers(teller: u64) -> impl Iterator<Item = Transfer> {
    let mut random = Random::new(teller);
    std::iter::repeat_with(move || Transfer {
        from: random.number() % ACCOUNTS,
        to: random.number() % ACCOUNTS,
        amount: random.below(EACH as usize) as i64,
    })
}

/// Nobody gives up: where the disk is slow, one waits long for others.
fn options(mode: Mode) -> Options {
    Options::new()
        .mode(mode)
        .bytes(16 << 20)
        .log_bytes(1 << 20)
        .patience(Duration::from_secs(3600))
}

/// How many transfers of each teller were acknowledged.
struct Acknowledged(File);

impl Acknowledged {
    fn open(folder: &Path) -> Self {
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(false);
        let file = how.open(folder.join("acknowledged")).unwrap();
        file.set_len(TELLERS_MAX * 8).unwrap();
        Self(file)
    }

    fn set(&self, teller: u64, made: u64) {
        self.0
            .write_all_at(&made.to_le_bytes(), teller * 8)
            .unwrap();
    }

    fn of(&self, teller: u64) -> u64 {
        let mut made = [0; 8];
        self.0.read_exact_at(&mut made, teller * 8).unwrap();
        u64::from_le_bytes(made)
    }

    fn all(&self, tellers: u64) -> u64 {
        (0..tellers).map(|teller| self.of(teller)).sum()
    }
}

/// Makes transfers until it is killed; for nobody but a child of the test below.
#[test]
fn child() {
    let Some((role, folder)) = children::role() else {
        return;
    };
    let teller = role.parse().unwrap();
    let acknowledged = Acknowledged::open(&folder);
    let space = Space::open(folder.join("space"), &Options::new().create(false)).unwrap();
    let bank = space.read(Bank::find).unwrap();
    for (made, what) in (1..).zip(transfers(teller)) {
        let transferred = space.transaction(|t| {
            if let Some(mut memory) = t.mapped() {
                // Loads and stores alone.
                return bank.transfer(&mut memory, teller, what);
            }
            bank.transfer(t, teller, what)
        });
        transferred.unwrap();
        acknowledged.set(teller, made);
    }
}

fn spawn(folder: &Path, teller: u64) -> Child {
    let mut command = children::command(&teller.to_string(), folder);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Compares all accounts with what tellers have made, and that with what they were told.
fn check(t: &Transaction<'_>, known: &[u64]) -> Result<(), Error> {
    let bank = Bank::find(t)?;
    let mut expected = vec![EACH; ACCOUNTS as usize];
    for (teller, known) in (0..).zip(known) {
        let made = t.load(bank.made(teller))?;
        if made < *known {
            let lost = format!("teller {teller} was told of {known} transfers, {made} are there");
            return Err(Error::Damaged(lost));
        }
        for what in transfers(teller).take(made as usize) {
            expected[what.from as usize] -= what.amount;
            expected[what.to as usize] += what.amount;
        }
    }
    for (number, expected) in (0..).zip(&expected) {
        let found = t.load(bank.account(number))?;
        if found != *expected {
            let differs = format!("account {number} has {found}, not {expected}");
            return Err(Error::Damaged(differs));
        }
    }
    assert_eq!(expected.iter().sum::<i64>(), EACH * ACCOUNTS as i64);
    Ok(())
}

/// `SAPWOOD_CRASH_FACTOR` multiplies how often somebody is killed.
#[test]
fn a_bank_keeps_what_it_has_said_and_all_of_its_money_in_every_mode() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let open = || Space::open(folder.path().join("space"), &options(mode)).unwrap();
        open().transaction(Bank::found).unwrap();
        let mut working: Vec<Child> = Vec::new();
        let mut tellers = 0;
        for round in 0..10 * factor.min(50) {
            while working.len() < PROCESSES {
                working.push(spawn(folder.path(), tellers));
                tellers += 1;
            }
            let enough = acknowledged.all(tellers) + 24;
            while acknowledged.all(tellers) < enough {
                for teller in &mut working {
                    assert!(teller.try_wait().unwrap().is_none(), "a teller has ended");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(round * 977 % 5000));
            // Now and then all of them: the one that comes next recovers the space.
            let victims = if round % 4 == 3 { PROCESSES } else { 1 };
            for mut victim in working.drain(..victims) {
                victim.kill().unwrap();
                victim.wait().unwrap();
            }
            let known: Vec<u64> = (0..tellers).map(|teller| acknowledged.of(teller)).collect();
            open().read(|t| check(t, &known)).unwrap();
        }
        for mut teller in working {
            teller.kill().unwrap();
            teller.wait().unwrap();
        }
        let known: Vec<u64> = (0..tellers).map(|teller| acknowledged.of(teller)).collect();
        assert_eq!(open().check().unwrap().damaged, []);
        open().read(|t| check(t, &known)).unwrap();
    }
}

#[test]
fn what_is_lost_is_noticed() {
    let space = Space::in_memory(&options(Mode::Explicit)).unwrap();
    space.transaction(Bank::found).unwrap();
    let bank = space.read(Bank::find).unwrap();
    for what in transfers(0).take(5) {
        let made = space.transaction(|t| bank.transfer(t, 0, what));
        made.unwrap();
    }
    let checked = |known| space.read(|t| check(t, &[known]));
    checked(5).unwrap();
    assert!(checked(6).is_err(), "the sixth was told, and is missing");
    let more = space.transaction(|t| {
        let found = t.load(bank.account(7))?;
        t.store(bank.account(7), &(found + 1))
    });
    more.unwrap();
    assert!(checked(5).is_err(), "an account has something from nowhere");
}
