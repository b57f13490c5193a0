//! Several processes on one environment, which are killed at any moment: nothing acknowledged is lost or unseen, what a
//! dead process held is taken over, and nothing is ever half there.

// Forking is the point of one of these tests.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sapwood_store::{Durability, Env, Error, Options, Snapshot, TreeKind};

const ROLE: &str = "SAPWOOD_TEST_ROLE";
const FOLDER: &str = "SAPWOOD_TEST_FOLDER";
const KEPT: u64 = 50;
/// Under this number those count who do not wait.
const RELAXED: u8 = 9;
/// The threads of a process that updates.
const UPDATERS: u8 = 4;

fn options() -> Options {
    Options::new()
        .log_bytes(1 << 20)
        .idle_checkpoint(Some(Duration::from_millis(20)))
}

/// What a child process does; nothing, unless this is one.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // Nothing is synced that nobody waits for.
    let calm = options().idle_checkpoint(Some(Duration::from_secs(60)));
    let options = match role.as_str() {
        "relaxed" => calm.durability(Durability::Relaxed),
        _ => options(),
    };
    let env = Env::open(std::env::var(FOLDER).unwrap(), &options).unwrap();
    match role.as_str() {
        "relaxed" => relax_for_ever(&env),
        "reader" => read_for_ever(&env),
        "holder" => hold_for_ever(&env),
        "updates from 20" => update_for_ever(&env, 20),
        "updates from 30" => update_for_ever(&env, 30),
        writer => write_for_ever(&env, writer.parse().unwrap()),
    }
}

/// Each transaction adds one item, removes an old one, replaces a value and counts. It tells about itself when it is
/// durable.
fn write_for_ever(env: &Env, writer: u8) {
    loop {
        let mut txn = env.write().unwrap();
        let counts = txn.tree("counts").unwrap().unwrap();
        let items = txn.tree("items").unwrap().unwrap();
        let apart = txn.tree("apart").unwrap().unwrap();
        let count = txn.get(counts, &[writer]).unwrap();
        let count = count.map_or(0, |count| u64::from_be_bytes(count.try_into().unwrap()));
        txn.put(counts, &[writer], &(count + 1).to_be_bytes())
            .unwrap();
        assert!(
            txn.insert(items, &item(writer, count + 1), &value(writer, count + 1))
                .unwrap()
        );
        if count + 1 > KEPT {
            assert!(txn.delete(items, &item(writer, count + 1 - KEPT)).unwrap());
        }
        let (key, value) = replaced(writer, count + 1);
        txn.put(apart, &key, &value).unwrap();
        if count % 7 == 3 {
            drop(txn);
            // Somebody else may have come in between.
            continue_with_same_count(env, writer);
            continue;
        }
        txn.commit().unwrap().wait_durable().unwrap();
        println!("acknowledged {}", count + 1);
    }
}

/// Four threads count, twice for each update, and tell about themselves. Now and then they give up in between.
fn update_for_ever(env: &Env, first: u8) {
    let count_once = |writer: u8, gives_up: bool| {
        let mut txn = env.write()?;
        let counts = txn.tree("counts")?.ok_or(Error::NoSuchTree)?;
        let count = txn.get(counts, &[writer])?.map_or(0, number_of) + 1;
        txn.put(counts, &[writer], &count.to_be_bytes())?;
        if gives_up {
            return Err(Error::NoRecord);
        }
        txn.put(counts, &[writer, writer], &count.to_be_bytes())?;
        txn.commit()?.wait_durable()?;
        Ok(count)
    };
    std::thread::scope(|scope| {
        for writer in first..first + UPDATERS {
            scope.spawn(move || {
                loop {
                    let count = count_once(writer, false).unwrap();
                    println!("acknowledged {}", u64::from(writer) << 32 | count);
                    if count % 3 == 0 {
                        count_once(writer, true).unwrap_err();
                    }
                }
            });
        }
    });
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Each transaction counts, and tells about itself when it can be seen.
fn relax_for_ever(env: &Env) {
    loop {
        let mut txn = env.write().unwrap();
        let counts = txn.tree("counts").unwrap().unwrap();
        let count = txn.get(counts, &[RELAXED]).unwrap();
        let count = count.map_or(0, |count| u64::from_be_bytes(count.try_into().unwrap())) + 1;
        txn.put(counts, &[RELAXED], &count.to_be_bytes()).unwrap();
        let filler = vec![count as u8; (count * 37 % 900) as usize];
        txn.put(counts, &[RELAXED, (count % 50) as u8], &filler)
            .unwrap();
        let ticket = txn.commit().unwrap();
        // Before it, only the commits of others may have to be durable.
        if !ticket.is_visible() {
            ticket.wait_durable().unwrap();
        }
        println!("acknowledged {count}");
    }
}

/// A larger transaction in place of the one that was given up, so that there is more to be killed in.
fn continue_with_same_count(env: &Env, writer: u8) {
    let mut txn = env.write().unwrap();
    let counts = txn.tree("counts").unwrap().unwrap();
    let items = txn.tree("items").unwrap().unwrap();
    let count = txn.get(counts, &[writer]).unwrap().unwrap();
    let mut count = u64::from_be_bytes(count.try_into().unwrap());
    let apart = txn.tree("apart").unwrap().unwrap();
    for _ in 0..40 {
        count += 1;
        assert!(
            txn.insert(items, &item(writer, count), &value(writer, count))
                .unwrap()
        );
        if count > KEPT {
            assert!(txn.delete(items, &item(writer, count - KEPT)).unwrap());
        }
        let (key, value) = replaced(writer, count);
        txn.put(apart, &key, &value).unwrap();
    }
    txn.put(counts, &[writer], &count.to_be_bytes()).unwrap();
    let ticket = txn.commit().unwrap();
    ticket.wait_durable().unwrap();
    println!("acknowledged {count}");
}

fn read_for_ever(env: &Env) {
    let mut kept = Vec::new();
    loop {
        let snapshot = env.read().unwrap();
        counts(&snapshot);
        kept.push(snapshot);
        if kept.len() > 20 {
            drop(kept.remove(0));
            counts(&kept[0]);
        }
    }
}

/// A process that has a snapshot and the writer lock when it is killed.
fn hold_for_ever(env: &Env) {
    let _snapshot = env.read().unwrap();
    let mut txn = env.write().unwrap();
    let counts = txn.tree("counts").unwrap().unwrap();
    txn.put(counts, &[255], &[255; 8]).unwrap();
    println!("acknowledged 1");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn item(writer: u8, count: u64) -> Vec<u8> {
    [&[writer], &count.to_be_bytes()[..]].concat()
}

fn value(writer: u8, count: u64) -> Vec<u8> {
    vec![writer ^ count as u8; (count % 700) as usize]
}

/// What a writer stores apart, in the place of what it stored there before.
fn replaced(writer: u8, count: u64) -> ([u8; 8], Vec<u8>) {
    let key = (u64::from(writer) << 32) | (count % KEPT);
    (key.to_be_bytes(), value(writer, count).repeat(5))
}

/// How far each writer has come, after looking at everything.
fn counts(snapshot: &Snapshot) -> Vec<u64> {
    let counts = snapshot.tree("counts").unwrap().unwrap();
    let items = snapshot.tree("items").unwrap().unwrap();
    let apart = snapshot.tree("apart").unwrap().unwrap();
    let mut found = vec![0; 3];
    let mut expected = 0;
    for (writer, found) in (0..).zip(&mut found) {
        if let Some(count) = counts.get(&[writer]).unwrap() {
            *found = u64::from_be_bytes(count.try_into().unwrap());
        }
        for count in (*found - (*found).min(KEPT)) + 1..=*found {
            let record = items.get(&item(writer, count)).unwrap();
            assert_eq!(
                record,
                Some(&value(writer, count)[..]),
                "writer {writer}, {count}"
            );
            let (key, value) = replaced(writer, count);
            let there = apart.get(&key).unwrap();
            assert_eq!(there, Some(&value[..]), "writer {writer}, {count} apart");
            expected += 1;
        }
    }
    assert_eq!(items.record().records, expected);
    found
}

struct Process {
    child: Child,
    lines: Receiver<u64>,
    /// What of them was read before it is killed.
    read: Vec<u64>,
}

impl Process {
    fn start(role: &str, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness may have begun the line.
                if let Some((_, count)) = line.split_once("acknowledged ") {
                    let _ = sender.send(count.parse().unwrap());
                }
            }
        });
        Self {
            child,
            lines,
            read: Vec::new(),
        }
    }

    /// Waits until it has acknowledged something more.
    fn next_acknowledged(&mut self) -> u64 {
        let next = self.lines.recv().unwrap();
        self.read.push(next);
        next
    }

    fn kill(self) -> u64 {
        self.kill_and_listen().last().copied().unwrap_or(0)
    }

    /// All that it has acknowledged.
    fn kill_and_listen(mut self) -> Vec<u64> {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert!(
            status.code().is_none(),
            "failed before it was killed: {status}"
        );
        self.read.into_iter().chain(self.lines).collect()
    }
}

fn prepare(folder: &Path) -> Env {
    let env = Env::open(folder, &options()).unwrap();
    let mut txn = env.write().unwrap();
    for name in ["counts", "items"] {
        txn.create_tree(name, TreeKind::default()).unwrap();
    }
    txn.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    env
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn processes_are_killed_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut own = Some(prepare(folder.path()));
    let mut processes: Vec<Process> = Vec::new();
    let roles = ["0", "1", "reader"];
    let start = |role| Process::start(role, folder.path());
    processes.extend(roles.map(start));
    let mut acknowledged = [0; 2];
    for round in 0..24_u64 {
        std::thread::sleep(Duration::from_millis(20 + round * 37 % 90));
        // One of them, and sometimes all.
        let victims = if round % 6 == 5 {
            0..3
        } else {
            round as usize % 3..round as usize % 3 + 1
        };
        for victim in victims.clone() {
            if victim < 2 {
                processes[victim].next_acknowledged();
            }
            let last = std::mem::replace(&mut processes[victim], start(roles[victim])).kill();
            if victim < 2 {
                acknowledged[victim] = last.max(acknowledged[victim]);
            }
        }
        // The one that was here all the time sees at once what was acknowledged, and so does the one that opens it now.
        let env = own
            .take()
            .unwrap_or_else(|| Env::open(folder.path(), &options()).unwrap());
        let found = counts(&env.read().unwrap());
        for writer in 0..2 {
            assert!(
                found[writer] >= acknowledged[writer],
                "{found:?}, {acknowledged:?}"
            );
        }
        if round % 4 == 1 {
            assert_clean(&env);
        }
        if round % 3 != 0 {
            own = Some(env);
        }
    }
    for process in processes {
        process.kill();
    }
    drop(own);
    let env = Env::open(folder.path(), &options()).unwrap();
    let found = counts(&env.read().unwrap());
    // Each was killed at least so often.
    assert!(found[0] >= 12 && found[1] >= 12, "{found:?}");
    assert_clean(&env);
}

/// The one that leads a sync for others when it is killed: what was acknowledged is there, and nothing half.
#[test]
fn processes_that_update_are_killed_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let own = prepare(folder.path());
    let roles = ["updates from 20", "updates from 30"];
    let start = |role| Process::start(role, folder.path());
    let mut processes = roles.map(start);
    let mut acknowledged = std::collections::BTreeMap::new();
    for round in 0..16_usize {
        std::thread::sleep(Duration::from_millis(30 + round as u64 * 37 % 90));
        let victim = round % 2;
        processes[victim].next_acknowledged();
        let dead = std::mem::replace(&mut processes[victim], start(roles[victim]));
        for told in dead.kill_and_listen() {
            acknowledged.insert((told >> 32) as u8, told & 0xffff_ffff);
        }
        let snapshot = own.read().unwrap();
        let counts = snapshot.tree("counts").unwrap().unwrap();
        for (&writer, &told) in &acknowledged {
            let count = counts.get(&[writer]).unwrap().map_or(0, number_of);
            let twice = counts.get(&[writer, writer]).unwrap().map_or(0, number_of);
            assert!(count >= told, "writer {writer}: {count}, {told} told");
            assert_eq!(count, twice, "writer {writer}");
        }
        assert_clean(&own);
    }
    // However slow they are, each of their threads has its turn.
    for (mut process, first) in processes.into_iter().zip([20, 30]) {
        while (first..first + UPDATERS).any(|writer| !acknowledged.contains_key(&writer)) {
            let told = process.next_acknowledged();
            acknowledged.insert((told >> 32) as u8, told & 0xffff_ffff);
        }
        process.kill();
    }
}

/// How many commits nobody waited for there are.
fn relaxed(folder: &Path, options: &Options) -> u64 {
    let env = Env::open(folder, options).unwrap();
    let snapshot = env.read().unwrap();
    let counts = snapshot.tree("counts").unwrap().unwrap();
    let count = counts.get(&[RELAXED]).unwrap().map_or(0, number_of);
    if count > 0 {
        let filler = counts.get(&[RELAXED, (count % 50) as u8]).unwrap().unwrap();
        assert!(filler.iter().all(|&byte| byte == count as u8));
    }
    assert_clean(&env);
    count
}

/// The one that comes next finds each commit that was visible, also where nobody had asked for it to be durable.
#[test]
fn visible_commits_survive_the_death_of_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    drop(prepare(folder.path()));
    for round in 0..12_u64 {
        let mut processes = vec![Process::start("relaxed", folder.path())];
        if round % 3 == 2 {
            processes.push(Process::start("relaxed", folder.path()));
            processes.push(Process::start("0", folder.path()));
        }
        for _ in 0..1 + round * round * 7 {
            processes[0].lines.recv().unwrap();
        }
        let durable = processes.split_off(processes.len().min(2));
        let killed = processes.into_iter().map(Process::kill);
        let acknowledged = killed.max().unwrap();
        for process in durable {
            process.kill();
        }
        if round % 4 == 1 {
            // The next to come does not get far.
            let next = Process::start("reader", folder.path());
            std::thread::sleep(Duration::from_millis(round * 3 % 10));
            next.kill();
        }
        let found = relaxed(folder.path(), &options());
        assert!(
            found >= acknowledged,
            "{found}, {acknowledged}, round {round}"
        );
    }
}

/// Also where the log does not have them, since there were many in a row: the next to come finds them, with the lock
/// file or without it; and where others have taken the files away from it, there is an older state, and nothing half.
#[test]
fn commits_that_passed_by_the_log_survive_the_death_of_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &options()).unwrap();
    let mut txn = env.write().unwrap();
    txn.create_tree("counts", TreeKind::default()).unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    drop(env);
    let mut before = 0;
    for round in 0..6_u64 {
        let mut processes = vec![Process::start("relaxed", folder.path())];
        if round % 2 == 1 {
            processes.push(Process::start("relaxed", folder.path()));
        }
        let mut last = 0;
        for _ in 0..600 + round * 7 {
            last = processes[0].lines.recv().unwrap();
        }
        let killed = processes.into_iter().map(Process::kill);
        let acknowledged = killed.fold(last, u64::max);
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let copied = relaxed(copy.path(), &options());
        assert!(copied >= before && copied < acknowledged, "{copied}");
        if round == 2 {
            // The next to come does not get far.
            let next = Process::start("relaxed", folder.path());
            std::thread::sleep(Duration::from_millis(3));
            next.kill();
        }
        if round % 3 == 1 {
            let alone = options().shared(false);
            assert!(relaxed(folder.path(), &alone) >= acknowledged);
            let env = Env::open(folder.path(), &alone).unwrap();
            let mut txn = env.write().unwrap();
            let counts = txn.tree("counts").unwrap().unwrap();
            txn.put(counts, b"alone", &round.to_be_bytes()).unwrap();
            txn.commit().unwrap().wait_durable().unwrap();
        }
        before = relaxed(folder.path(), &options());
        assert!(
            before >= acknowledged,
            "{before}, {acknowledged}, round {round}"
        );
        let env = Env::open(folder.path(), &options()).unwrap();
        let snapshot = env.read().unwrap();
        let alone = snapshot.tree("counts").unwrap().unwrap();
        let alone = alone.get(b"alone").unwrap().map(number_of);
        let expected = (0..=round).rev().find(|round| round % 3 == 1);
        assert_eq!(alone, expected);
    }
}

#[test]
fn what_a_dead_process_held_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let env = prepare(folder.path());
    for _ in 0..3 {
        let holder = Process::start("holder", folder.path());
        assert_eq!(holder.lines.recv().unwrap(), 1);
        assert!(
            env.try_write().unwrap().is_none(),
            "a living writer's lock was taken"
        );
        assert_eq!(env.stat().unwrap().readers.len(), 1);
        assert_eq!(env.stat().unwrap().readers[0].pid, holder.child.id());
        holder.kill();
        let mut txn = env.write().unwrap();
        let counts = txn.tree("counts").unwrap().unwrap();
        assert_eq!(txn.get(counts, &[255]).unwrap(), None);
        txn.commit().unwrap().wait_durable().unwrap();
        assert!(env.stat().unwrap().readers.is_empty());
    }
    assert_clean(&env);
}

#[test]
fn a_forked_child_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let env = prepare(folder.path());
    let snapshot = env.read().unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.tree("counts").unwrap().unwrap();
    txn.put(tree, b"k", b"v").unwrap();
    // SAFETY: the child only uses this crate and memory, and ends without unwinding into the harness.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = |result: Result<(), Error>| matches!(result, Err(Error::Forked));
        let all = refused(env.read().map(drop))
            && refused(env.write().map(drop))
            && refused(snapshot.tree("counts").map(drop))
            && refused(txn.put(tree, b"k", b"w").map(drop));
        drop(txn);
        drop(snapshot);
        drop(env);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if all { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7, "the child was not refused");
    // Nothing of the parent's was given back by the child.
    assert!(env.try_write().unwrap().is_none());
    assert_eq!(env.stat().unwrap().readers.len(), 1);
    assert_eq!(txn.get(tree, b"k").unwrap(), Some(&b"v"[..]));
    txn.commit().unwrap().wait_durable().unwrap();
    drop(snapshot);
    assert_clean(&env);
}
