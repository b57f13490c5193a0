//! What the world around an environment may do to it: many processes at once, forks, second openings, a disk that is
//! full.

// Forks and limits of the process are the point.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::Path;

use sapwood_store::{Env, Error, Options, TreeKind};
use sapwood_testkit::children::{self, Child, command, mounted, pause, play};

const CROWD: u32 = 32;

fn options() -> Options {
    Options::new().log_bytes(256 << 10).idle_checkpoint(None)
}

fn store(env: &Env, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut txn = env.write()?;
    let tree = match txn.tree("t")? {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::default())?,
    };
    txn.put(tree, key, value)?;
    txn.commit()?.wait_durable()?;
    Ok(())
}

/// Removes a record; what fails is told with the step that did.
fn remove(env: &Env, key: &[u8]) -> Result<bool, String> {
    let at = |step: &'static str| move |error: Error| format!("{step}: {error}");
    let mut txn = env.write().map_err(at("begin"))?;
    let tree = txn.tree("t").map_err(at("tree"))?.unwrap();
    let found = txn.delete(tree, key).map_err(at("delete"))?;
    let ticket = txn.commit().map_err(at("commit"))?;
    ticket.wait_durable().map_err(at("wait"))?;
    Ok(found)
}

fn records(env: &Env) -> u64 {
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap();
    tree.map_or(0, |tree| tree.record().records)
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// What another process does.
#[test]
fn child() {
    let Some((role, folder)) = children::role() else {
        return;
    };
    match role.as_str() {
        "one of many" => one_of_many(&folder),
        "forks" => fork(&folder),
        "meets a limit" => fill(&folder, Limit::OfThisProcess),
        "meets a full disk" => fill(&folder, Limit::OfTheDisk),
        other => panic!("{other}"),
    }
}

fn one_of_many(folder: &Path) {
    pause();
    let env = Env::open(folder, &options()).unwrap();
    let me = std::process::id().to_be_bytes();
    store(&env, &me, b"was here").unwrap();
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    assert_eq!(tree.get(&me).unwrap(), Some(&b"was here"[..]));
    pause();
    // The one that is still here is killed with a transaction open and a commit that nobody has waited for.
    let mut txn = env.write().unwrap();
    let tree = txn.tree("t").unwrap().unwrap();
    txn.put(tree, &me, b"has gone").unwrap();
    let _: sapwood_store::Ticket = txn.commit().unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.tree("t").unwrap().unwrap();
    txn.put(tree, &me, &[7; 10_000]).unwrap();
    pause();
}

/// All at once they create it, all at once they come back after all were killed, and each time one of them has to
/// recover.
#[test]
fn thirty_two_processes_open_at_once_to_create_and_to_recover() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    for round in 1..=3 {
        let start = |_| Child::start(&mut command("one of many", &path));
        let mut crowd: Vec<Child> = (0..CROWD).map(start).collect();
        crowd.iter_mut().for_each(Child::wait);
        crowd.iter_mut().for_each(Child::go_on);
        crowd.iter_mut().for_each(Child::wait);
        // One of them gets as far as to hold the writer lock.
        let first = crowd.first_mut().unwrap();
        first.go_on();
        first.wait();
        crowd.into_iter().for_each(Child::kill);
        let env = Env::open(&path, &options()).unwrap();
        assert_eq!(records(&env), u64::from(round * CROWD));
        assert!(env.stat().unwrap().readers.is_empty());
        assert_clean(&env);
        if round == 2 {
            // Somebody is there already when the others come.
            let mut others: Vec<Child> = (0..CROWD).map(start).collect();
            others.iter_mut().for_each(Child::wait);
            others.iter_mut().for_each(Child::go_on);
            others.iter_mut().for_each(Child::wait);
            assert_eq!(records(&env), u64::from(3 * CROWD));
            assert_eq!(env.stat().unwrap().readers.len(), CROWD as usize);
            others.into_iter().for_each(Child::kill);
            assert_eq!(env.clear_dead_readers().unwrap(), CROWD as usize);
            for key in pids(&env).split_off(2 * CROWD as usize) {
                assert!(remove(&env, &key).unwrap());
            }
        }
    }
}

fn pids(env: &Env) -> Vec<Vec<u8>> {
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    let mut cursor = tree.cursor();
    let mut keys = Vec::new();
    while cursor.next().unwrap() {
        keys.push(cursor.record().unwrap().unwrap().0.to_vec());
    }
    keys
}

/// A child that was forked off opens the environment anew, as another process; what it inherited is refused, and
/// neither keeps the parent's locks nor gives them back. (What is refused: `a_forked_child_is_refused` in
/// `processes.rs`.)
#[test]
fn a_forked_child_opens_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    play("forks", &path);
    let env = Env::open(&path, &options()).unwrap();
    assert_eq!(records(&env), 3);
    assert_clean(&env);
}

fn fork(folder: &Path) {
    let env = Env::open(folder, &options()).unwrap();
    store(&env, b"before", b"").unwrap();
    let snapshot = env.read().unwrap();
    // SAFETY: no other thread of this process uses what the child uses; the child ends without unwinding into the
    // harness.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let inherited = env.read().is_err();
        let anew = Env::open(folder, &options()).unwrap();
        store(&anew, b"child", b"").unwrap();
        let readers = anew.stat().unwrap().readers.len();
        let sees_all = records(&anew) == 2 && readers == 1 && inherited;
        drop((anew, snapshot, env));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!sees_all)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(records(&env), 2);
    assert_eq!(snapshot.tree("t").unwrap().unwrap().record().records, 1);
    drop(snapshot);
    store(&env, b"after", b"").unwrap();
}

/// Whatever path leads to it, it is opened once in a process; the second opening's end takes nothing from the first.
#[test]
fn a_second_opening_in_a_process_is_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    let first = Env::open(&path, &options()).unwrap();
    store(&first, b"first", b"").unwrap();
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    for other in [link, path.join("../env/.")] {
        let second = Env::open(other, &options()).unwrap();
        let txn = second.write().unwrap();
        assert!(first.try_write().unwrap().is_none());
        drop(txn);
        drop(second);
        // Locks that go with any descriptor of the file that is closed would be gone now.
        drop(std::fs::File::open(path.join("lock")).unwrap());
        let mut process = Child::start(&mut command("one of many", &path));
        process.wait();
        process.go_on();
        process.wait();
        assert_eq!(first.stat().unwrap().readers[0].pid, process.id());
        assert!(process.end().success());
    }
    assert_eq!(records(&first), 3);
    assert_clean(&first);
}

enum Limit {
    OfThisProcess,
    OfTheDisk,
}

/// Fills the disk, deletes, and fills it again.
fn fill(folder: &Path, limit: Limit) {
    const LIMIT_BYTES: u64 = 3 << 20;
    let env = Env::open(folder, &options()).unwrap();
    // The log makes its files while there is space for them.
    for n in 0..600_u32 {
        store(&env, &n.to_be_bytes(), &[1; 900]).unwrap();
    }
    if let Limit::OfThisProcess = limit {
        let limit = libc::rlimit {
            rlim_cur: LIMIT_BYTES,
            rlim_max: LIMIT_BYTES,
        };
        // SAFETY: an ignored signal and a limit, both of this process; the structure lives across the call.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    }
    let mut stored = 600_u32;
    for round in 0..2 {
        let full = loop {
            match store(&env, &stored.to_be_bytes(), &[1; 900]) {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < 100_000, "the disk is never full");
        };
        assert!(matches!(full, Error::Io(_)), "{full}");
        assert_eq!(records(&env), u64::from(stored), "round {round}");
        assert!(stored > 1500, "{stored}");
        // A transaction that is too large for what is left fails as a whole too.
        let large = store(&env, b"large", &vec![9; 4 << 20]);
        assert!(matches!(large, Err(Error::Io(_))), "{large:?}");
        assert_eq!(records(&env), u64::from(stored));
        for n in (0..stored).rev() {
            let removed = remove(&env, &n.to_be_bytes());
            assert_eq!(
                removed,
                Ok(true),
                "round {round}, {n} of {stored}, {:?}",
                env.stat()
            );
        }
        assert_eq!(records(&env), 0);
        assert_clean(&env);
        stored = 0;
    }
    store(&env, b"last", b"word").unwrap();
    drop(env);
    assert_last_word(folder);
}

fn assert_last_word(path: &Path) {
    let env = Env::open(path, &options()).unwrap();
    assert_eq!(records(&env), 1);
    assert_clean(&env);
}

#[test]
fn at_the_largest_size_of_a_file_commits_fail_and_deletes_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    play("meets a limit", &path);
    assert_last_word(&path);
}

/// On a real file system of four mebibytes, where this process may mount one.
#[test]
fn on_a_full_disk_commits_fail_and_deletes_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    let role = command("meets a full disk", &path);
    let Some(mut role) = mounted(
        "mount -t tmpfs -o size=4m none \"$0\"",
        folder.path(),
        &role,
    ) else {
        return;
    };
    assert!(Child::start(&mut role).end().success());
    assert!(!path.exists(), "it was not on the small disk");
}
