//! Processes that die anywhere leave the others running and the space right.
//!
//! Everything that is committed is a function of the number of commits, see [`commit_next`]. A child is this test
//! program once more; it dies at a given step of the code (`step`), or when it is killed. What it was told is committed
//! stands in a file.

// In the modes in which the space is plain memory it is used as such.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::slice;
use std::time::Duration;

use crate::allocator_tests::{change_areas, check_areas};
use crate::commit::maintenance::Alone;
use crate::step::{die_at, stop_at};
use crate::{Error, Memory, Mode, Options, PAGE_BYTES, RESERVED_BYTES, Space, Transaction};

/// The pages before are the allocator's.
const FIRST: u64 = RESERVED_BYTES / PAGE_BYTES as u64;
const PAGES: u64 = FIRST + 24;
const NUMBER: u64 = RESERVED_BYTES + 16;
const FOLDER: &str = "SAPWOOD_XACT_FOLDER";
const WORK: &str = "SAPWOOD_XACT_WORK";
const MODE: &str = "SAPWOOD_XACT_MODE";
const MODES: [Mode; 3] = [Mode::Explicit, Mode::Tracked, Mode::Snapshot];

/// What a child is asked for that stops at the step whose number follows, and goes on when it is told to.
const STOP: &str = "stop";
/// What a child is asked for that changes areas; before a number, it dies at that step.
const AREAS: &str = "areas";

/// What a child is asked for that makes the space larger, and dies at the step whose number follows.
const GROW: &str = "grow";
/// As an argument of a child: it has the space grow while another one uses it.
const GROW_IN_USE: &str = "use";

/// What a child is asked for that makes a checkpoint, and dies at the step whose number follows.
const CHECKPOINT: &str = "checkpoint";

/// A log with less room than this takes no more commits for sure.
const FILLED_BYTES: u64 = 4096;

/// What a child is asked for that copies the space, and dies at the step whose number follows.
const COPY: &str = "copy";

/// A space with room for areas.
fn options_for_areas(mode: Mode) -> Options {
    options(mode)
        .bytes(3000 * PAGE_BYTES as u64)
        .log_bytes(1 << 20)
        .versions_bytes(256 * PAGE_BYTES as u64)
}

/// The mode is that of the one that makes the space. Nobody gives up: where the disk is slow, one waits long for
/// others.
fn options(mode: Mode) -> Options {
    Options::new()
        .mode(mode)
        .patience(Duration::from_secs(3600))
        .bytes(PAGES * PAGE_BYTES as u64)
        .log_bytes(0)
        .versions_bytes(16 * PAGE_BYTES as u64)
        .spill_bytes(64 * PAGE_BYTES as u64)
}

/// Some commits are too large for the memory for versions.
fn is_large(number: u64) -> bool {
    number % 7 == 3
}

/// What commit `number` writes: places and bytes.
fn writes(number: u64) -> impl Iterator<Item = (u64, [u8; 48])> {
    let count = if is_large(number) {
        PAGES - FIRST - 1
    } else {
        1 + number % 3
    };
    (0..count).map(move |place| {
        let mixed = (number * 131 + place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let page =
            if is_large(number) { place } else { mixed >> 40 } % (PAGES - FIRST - 1) + FIRST + 1;
        let within = (mixed >> 20) % (PAGE_BYTES as u64 - 48);
        (page * PAGE_BYTES as u64 + within, [number as u8; 48])
    })
}

fn bytes<'a>(t: &'a Transaction<'_>, place: u64, length: usize) -> Result<&'a [u8], Error> {
    let Some(base) = t.map() else {
        return t.read(place, length);
    };
    // SAFETY: within the space, which is borrowed with the transaction that runs.
    Ok(unsafe { slice::from_raw_parts(base.as_ptr().add(place as usize), length) })
}

fn store(t: &mut Transaction<'_>, place: u64, bytes: &[u8]) -> Result<(), Error> {
    let place = match t.map() {
        // SAFETY: as above, and borrowed exclusively.
        Some(base) => unsafe {
            slice::from_raw_parts_mut(base.as_ptr().add(place as usize), bytes.len())
        },
        None => t.write(place, bytes.len())?,
    };
    place.copy_from_slice(bytes);
    Ok(())
}

fn number(t: &Transaction<'_>) -> Result<u64, Error> {
    let number = bytes(t, NUMBER, 8)?.try_into().unwrap();
    Ok(u64::from_le_bytes(number))
}

fn change_next(t: &mut Transaction<'_>) -> Result<u64, Error> {
    let number = number(t)? + 1;
    store(t, NUMBER, &number.to_le_bytes())?;
    for (place, bytes) in writes(number) {
        store(t, place, &bytes)?;
    }
    Ok(number)
}

fn commit_next(space: &Space) -> Result<u64, Error> {
    space.transaction(change_next)
}

/// Commits after having lost to another thread, whose commit comes first; unless that is a large one, which would wait
/// for this one.
fn commit_after_losing(space: &Space, acknowledged: &Acknowledged) -> Result<u64, Error> {
    let mut is_first = true;
    space.transaction(|t| {
        let number = change_next(t)?;
        if std::mem::take(&mut is_first) && !is_large(number) {
            let other = || acknowledged.add(commit_next(space).unwrap());
            std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        }
        Ok(number)
    })
}

/// Commits while a reader keeps more versions than there is memory for, up to the next large one, which would wait for
/// it.
fn commit_beside_reader(space: &Space, acknowledged: &Acknowledged) -> Result<u64, Error> {
    let reader = space.begin_read()?;
    let before = check(&reader)?;
    let mut number = before;
    while number - before < 12 && !is_large(number + 1) {
        number = commit_next(space)?;
        acknowledged.add(number);
    }
    assert_eq!(check(&reader)?, before, "it sees one commit");
    drop(reader);
    commit_next(space)
}

/// Compares everything with what it must be; gives the number of commits.
fn check(t: &Transaction<'_>) -> Result<u64, Error> {
    let number = number(t)?;
    let mut model = vec![0; (PAGES as usize) * PAGE_BYTES];
    for (place, bytes) in (1..=number).flat_map(writes) {
        let place = place as usize;
        model[place..place + bytes.len()].copy_from_slice(&bytes);
    }
    let place = NUMBER as usize;
    model[place..place + 8].copy_from_slice(&number.to_le_bytes());
    let found = bytes(t, 0, model.len())?;
    assert!(found == model, "after {number} commits");
    Ok(number)
}

/// What was acknowledged to anybody.
struct Acknowledged(File);

impl Acknowledged {
    fn open(folder: &Path) -> Self {
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(false);
        Self(how.open(folder.join("acknowledged")).unwrap())
    }

    fn add(&self, number: u64) {
        self.0.write_all_at(&[1], number).unwrap();
    }

    fn newest(&self) -> u64 {
        self.0.metadata().unwrap().len().saturating_sub(1)
    }
}

/// Does what a child is for; for nobody else.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let acknowledged = Acknowledged::open(folder);
    let work = std::env::var(WORK).unwrap();
    let mode = std::env::var(MODE).unwrap();
    let mode = MODES
        .into_iter()
        .find(|m| format!("{m:?}") == mode)
        .unwrap();
    if let Some(step) = work.strip_prefix(STOP) {
        let space = Space::open(folder.join("space"), &options(mode)).unwrap();
        stop_at(step.parse().unwrap());
        for _ in 0..2 {
            acknowledged.add(commit_next(&space).unwrap());
        }
        space.checkpoint().unwrap();
        stop_at(u64::MAX);
        return;
    }
    if let Some(step) = work.strip_prefix(GROW) {
        let step = step.parse().unwrap();
        // By more than the one before.
        let larger = options(mode)
            .reserve_bytes(0)
            .grow_to((PAGES + 2 * step) * PAGE_BYTES as u64);
        die_at(step);
        let space = Space::open(folder.join("space"), &larger).unwrap();
        die_at(u64::MAX);
        drop(space);
        return;
    }
    if let Some(step) = work.strip_prefix(GROW_IN_USE) {
        let step = step.parse().unwrap();
        let space = Space::open(folder.join("space"), &options(mode)).unwrap();
        die_at(step);
        space
            .grow_to((PAGES + 2 * step) * PAGE_BYTES as u64)
            .unwrap();
        die_at(u64::MAX);
        return;
    }
    if let Some(step) = work.strip_prefix(COPY) {
        let space = Space::open(folder.join("space"), &options(mode)).unwrap();
        die_at(step.parse().unwrap());
        space.back_up(folder.join(COPY)).unwrap();
        die_at(u64::MAX);
        return;
    }
    if let Some(step) = work.strip_prefix(CHECKPOINT) {
        let space = Space::open(folder.join("space"), &options(mode)).unwrap();
        die_at(step.parse().unwrap());
        space.checkpoint().unwrap();
        die_at(u64::MAX);
        return;
    }
    let areas = work.strip_prefix(AREAS);
    let step = areas.unwrap_or(&work).parse();
    // Recovery is a part of it.
    if let Ok(step) = step {
        die_at(step);
    }
    if areas.is_some() {
        let space = Space::open(folder.join("space"), &options_for_areas(mode)).unwrap();
        for round in 0_u64.. {
            let number = match round % 3 {
                1 => space.transaction_relaxed(change_areas),
                _ => space.transaction(change_areas),
            };
            // A relaxed one is promised when the one after it is.
            match number.unwrap() {
                number if round % 3 != 1 => acknowledged.add(number),
                _ => {}
            }
            if step.is_ok() && round == 5 {
                die_at(u64::MAX);
                return;
            }
        }
    }
    let space = Space::open(folder.join("space"), &options(mode)).unwrap();
    if step.is_ok() {
        for round in 0..8 {
            let committed = match round {
                3 => commit_beside_reader(&space, &acknowledged),
                2 => commit_after_losing(&space, &acknowledged),
                // Nobody is told of it before the next one is committed.
                4 => space
                    .transaction_relaxed(change_next)
                    .and_then(|_| commit_next(&space)),
                _ => commit_next(&space),
            };
            acknowledged.add(committed.unwrap());
            if round % 4 == 1 {
                space.read(check).unwrap();
                space.checkpoint().unwrap();
            }
        }
        die_at(u64::MAX);
        return;
    }
    loop {
        let relaxed = space.transaction_relaxed(change_next);
        match relaxed.and_then(|_| commit_next(&space)) {
            Ok(number) => acknowledged.add(number),
            Err(error) => panic!("{error}"),
        }
    }
}

fn spawn(folder: &Path, mode: Mode, work: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill_tests::child", "--exact"])
        .env(FOLDER, folder)
        .env(WORK, work)
        .env(MODE, format!("{mode:?}"))
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Looks at everything, and goes on.
fn go_on(space: &Space, acknowledged: &Acknowledged) {
    let known = acknowledged.newest();
    let number = space.read(check).unwrap();
    assert!(number >= known, "commit {known} of {number} is missing");
    acknowledged.add(commit_next(space).unwrap());
    if number.is_multiple_of(5) {
        space.checkpoint().unwrap();
    }
    space.read(check).unwrap();
}

/// What the one that goes on does before anything else; it may open the space anew.
fn act_first(turn: usize, space: Space, open: &dyn Fn() -> Space, folder: &Path) -> Space {
    match turn % 5 {
        0 => {}
        1 => (0..2).for_each(|_| space.transaction(invert).unwrap()),
        2 => space.grow_to(space.bytes() + PAGE_BYTES as u64).unwrap(),
        3 => check_copy(&space, folder),
        _ => {
            drop(space);
            return open();
        }
    }
    space
}

/// Changes a byte of each page, which is too large for the log; the second time everything is as before.
fn invert(t: &mut Transaction<'_>) -> Result<(), Error> {
    for page in FIRST..PAGES {
        let place = (page + 1) * PAGE_BYTES as u64 - 1;
        let inverted = !bytes(t, place, 1)?[0];
        store(t, place, &[inverted])?;
    }
    Ok(())
}

/// Copies the space, and compares the copy with what it must be.
fn check_copy(space: &Space, folder: &Path) {
    let to = folder.join(COPY);
    let known = space.read(number).unwrap();
    space.back_up(&to).unwrap();
    let copy = Space::open(&to, &options(space.mode()).create(false)).unwrap();
    assert_eq!(copy.read(check).unwrap(), known);
    drop(copy);
    std::fs::remove_dir_all(&to).unwrap();
}

/// A process dies at each step of some work in turn, or at each of so many of them. The one that goes on does each time
/// something else first.
fn die_everywhere(mode: Mode, stride: usize, somebody_survives: bool) {
    let mut folder = tempfile::tempdir().unwrap();
    for (round, step) in (0..).step_by(stride).enumerate() {
        // The model takes longer with each commit.
        if round % 40 == 0 {
            folder = tempfile::tempdir().unwrap();
        }
        let open = || Space::open(folder.path().join("space"), &options(mode)).unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let survivor = somebody_survives.then(open);
        let mut child = spawn(folder.path(), mode, &step.to_string());
        let done = child.wait().unwrap().success();
        let survivor = survivor.unwrap_or_else(|| {
            let space = open();
            let large = folder.path().join("space/large");
            assert!(!large.exists(), "step {step}: it is needed no longer");
            space
        });
        let turn = round + usize::from(somebody_survives);
        let survivor = act_first(turn, survivor, &open, folder.path());
        go_on(&survivor, &acknowledged);
        if done {
            assert!(step > 100, "only {step} steps");
            println!("{step} steps");
            break;
        }
    }
}

/// The steps are the same in all modes, so that a part of them will do where the space is plain memory.
const STRIDE: usize = 5;

#[test]
fn a_process_may_die_at_every_step() {
    die_everywhere(Mode::Explicit, 1, true);
}

#[test]
fn all_processes_may_die_at_every_step() {
    die_everywhere(Mode::Explicit, 1, false);
}

#[test]
fn a_process_may_die_in_plain_memory() {
    for mode in [Mode::Tracked, Mode::Snapshot] {
        die_everywhere(mode, STRIDE, true);
        die_everywhere(mode, STRIDE, false);
    }
}

#[test]
fn a_process_may_die_while_a_space_grows() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::open(folder.path());
    let unreserved = options(Mode::Explicit).reserve_bytes(0);
    let open = || Space::open(folder.path().join("space"), &unreserved).unwrap();
    go_on(&open(), &acknowledged);
    for step in 1_u64.. {
        let mut child = spawn(folder.path(), Mode::Explicit, &format!("{GROW}{step}"));
        let done = child.wait().unwrap().success();
        let space = open();
        go_on(&space, &acknowledged);
        let (end, bytes) = (PAGES * PAGE_BYTES as u64, space.bytes());
        let is_empty = space.read(|t| {
            let more = t.read(end, (bytes - end) as usize)?;
            Ok::<_, Error>(more.iter().all(|byte| *byte == 0))
        });
        assert!(is_empty.unwrap(), "step {step}");
        assert_eq!(space.check().unwrap().damaged, [], "step {step}");
        if done {
            assert!(step > 12, "only {step} steps");
            assert!(bytes > end, "it has not grown");
            break;
        }
    }
}

#[test]
fn a_process_may_die_while_it_makes_a_space_larger_that_others_use() {
    for somebody_survives in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let open = || Space::open(folder.path().join("space"), &options(Mode::Explicit)).unwrap();
        go_on(&open(), &acknowledged);
        let mut survivor = somebody_survives.then(open);
        for step in 1_u64.. {
            let work = format!("{GROW_IN_USE}{step}");
            let mut child = spawn(folder.path(), Mode::Explicit, &work);
            let done = child.wait().unwrap().success();
            let space = survivor.take().unwrap_or_else(open);
            go_on(&space, &acknowledged);
            let size = (PAGES + 2 * step) * PAGE_BYTES as u64;
            if done {
                assert!(step > 6, "only {step} steps");
                assert_eq!(space.bytes(), size);
                break;
            }
            // Where it was interrupted all can be done again.
            space.grow_to(size).unwrap();
            assert_eq!(space.bytes(), size);
            assert_eq!(space.check().unwrap().damaged, [], "step {step}");
            survivor = somebody_survives.then_some(space);
        }
    }
}

/// The one that goes on commits what is too large for the log, whose file is gone then: the header that says so must be
/// the newest, whichever page the dead one has written last.
#[test]
fn a_process_may_die_while_it_makes_a_checkpoint() {
    for checkpoints_before in 0..2 {
        for step in 0_u64.. {
            let folder = tempfile::tempdir().unwrap();
            let acknowledged = Acknowledged::open(folder.path());
            let open =
                || Space::open(folder.path().join("space"), &options(Mode::Explicit)).unwrap();
            let space = open();
            acknowledged.add(commit_next(&space).unwrap());
            if checkpoints_before == 1 {
                space.checkpoint().unwrap();
            }
            acknowledged.add(commit_next(&space).unwrap());
            let work = format!("{CHECKPOINT}{step}");
            let mut child = spawn(folder.path(), Mode::Explicit, &work);
            let done = child.wait().unwrap().success();
            assert!(is_large(space.read(number).unwrap() + 1));
            acknowledged.add(commit_next(&space).unwrap());
            drop(space);
            go_on(&open(), &acknowledged);
            if done {
                assert!(step > 10, "only {step} steps");
                break;
            }
        }
    }
}

/// The log is full when a process dies at a checkpoint: the one that goes on gets the room, whether or not the dead one
/// had come to giving it back.
#[test]
fn a_process_may_die_while_it_makes_room_in_the_log() {
    let of_many_versions = options(Mode::Explicit)
        .versions_bytes(2048 * PAGE_BYTES as u64)
        .patience(Duration::from_secs(20));
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::open(folder.path());
    let space = Space::open(folder.path().join("space"), &of_many_versions).unwrap();
    for step in 0_u64.. {
        let reader = space.begin_read().unwrap();
        while space.shared.inner.wal.room() >= FILLED_BYTES {
            space.transaction_relaxed(change_next).unwrap();
        }
        drop(reader);
        acknowledged.add(space.read(number).unwrap());
        let work = format!("{CHECKPOINT}{step}");
        let mut child = spawn(folder.path(), Mode::Explicit, &work);
        let done = child.wait().unwrap().success();
        space
            .shared
            .inner
            .make_room(1, FILLED_BYTES, Alone::No)
            .unwrap();
        go_on(&space, &acknowledged);
        if done {
            assert!(step > 10, "only {step} steps");
            break;
        }
    }
}

#[test]
fn a_process_may_die_while_it_copies_a_space() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::open(folder.path());
    let space = Space::open(folder.path().join("space"), &options(Mode::Explicit)).unwrap();
    (0..4).for_each(|_| acknowledged.add(commit_next(&space).unwrap()));
    space.checkpoint().unwrap();
    for step in 0_u64.. {
        // A large one would wait for the reader.
        while is_large(space.read(number).unwrap() + 1) {
            acknowledged.add(commit_next(&space).unwrap());
        }
        // Some of it is in the file, and some is kept from it.
        let reader = space.begin_read().unwrap();
        acknowledged.add(commit_next(&space).unwrap());
        let copied = space.read(number).unwrap();
        let mut child = spawn(folder.path(), Mode::Explicit, &format!("{COPY}{step}"));
        let done = child.wait().unwrap().success();
        drop(reader);
        let to = folder.path().join(COPY);
        match Space::open(&to, &options(Mode::Explicit).create(false)) {
            Ok(copy) => {
                assert_eq!(copy.read(check).unwrap(), copied, "step {step}");
                assert_eq!(copy.check().unwrap().damaged, [], "step {step}");
                acknowledged.add(commit_next(&space).unwrap());
                commit_next(&copy).unwrap();
                drop(copy);
                std::fs::remove_dir_all(&to).unwrap();
            }
            // There is none. What is left of it is in nobody's way.
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::NotFound, "step {step}");
                assert!(!done);
            }
            Err(error) => panic!("step {step}: {error}"),
        }
        go_on(&space, &acknowledged);
        if done {
            assert!(step > 20, "only {step} steps");
            break;
        }
    }
}

/// Waits until the children have committed so often. There would be nothing to wait for if one of them had ended.
fn wait_for_commits(acknowledged: &Acknowledged, count: u64, children: &mut [Child]) {
    let before = acknowledged.newest();
    while acknowledged.newest() < before + count {
        for child in &mut *children {
            assert!(child.try_wait().unwrap().is_none(), "a child has ended");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processes are killed at any moment while others go on.
fn kill_loops(mode: Mode, rounds: u64) {
    for processes in [1, 2, 4] {
        let folder = tempfile::tempdir().unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let mut children: Vec<Child> = Vec::new();
        for round in 0..rounds {
            while children.len() < processes {
                children.push(spawn(folder.path(), mode, "for ever"));
            }
            wait_for_commits(&acknowledged, 8, &mut children);
            std::thread::sleep(Duration::from_micros(round * 977 % 5000));
            let mut victim = children.remove(round as usize % processes);
            victim.kill().unwrap();
            victim.wait().unwrap();
            for child in &mut children {
                assert!(child.try_wait().unwrap().is_none(), "another one died too");
            }
            // The space is opened and closed by this process each time: sometimes nobody else has it open.
            let space = Space::open(folder.path().join("space"), &options(mode)).unwrap();
            let known = acknowledged.newest();
            let number = space.read(check).unwrap();
            assert!(number >= known, "commit {known} of {number} is missing");
        }
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let space = Space::open(folder.path().join("space"), &options(mode)).unwrap();
        go_on(&space, &acknowledged);
    }
}

/// Stops this process, before the thread does anything else.
pub(crate) fn stop_here() {
    // SAFETY: it takes a number.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Whether a child has been stopped; `None` when it has ended.
fn is_stopped(child: &mut Child) -> Option<bool> {
    if child.try_wait().unwrap().is_some() {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next();
    Some(state == Some('T'))
}

#[test]
fn a_stopped_process_is_waited_for_as_long_as_patience_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::open(folder.path());
    let options = options(Mode::Explicit).patience(Duration::from_millis(80));
    let space = Space::open(folder.path().join("space"), &options).unwrap();
    let mut stalls = 0;
    for step in (0..).step_by(5) {
        // What the child commits is not too large for the log.
        while (1..3).any(|next| is_large(space.read(number).unwrap() + next)) {
            acknowledged.add(commit_next(&space).unwrap());
        }
        let mut child = spawn(folder.path(), Mode::Explicit, &format!("{STOP}{step}"));
        let stopped = loop {
            match is_stopped(&mut child) {
                Some(false) => std::thread::sleep(Duration::from_millis(1)),
                stopped => break stopped,
            }
        };
        if stopped.is_none() {
            assert!(child.wait().unwrap().success());
            assert!(step > 50, "only {step} steps");
            break;
        }
        match commit_next(&space) {
            Ok(number) => acknowledged.add(number),
            Err(Error::Stalled { pid, .. } | Error::Pinned { pid }) => {
                assert_eq!(pid, child.id());
                stalls += 1;
            }
            Err(error) => panic!("step {step}: {error}"),
        }
        space.read(check).unwrap();
        let go_on = Command::new("kill")
            .args(["-CONT", &child.id().to_string()])
            .status();
        assert!(go_on.unwrap().success());
        assert!(child.wait().unwrap().success(), "step {step}");
        space.read(check).unwrap();
    }
    assert!(stalls > 0, "it held no lock at any step");
}

#[test]
fn processes_are_killed() {
    kill_loops(Mode::Explicit, 24);
}

#[test]
fn processes_are_killed_in_plain_memory() {
    kill_loops(Mode::Tracked, 12);
    kill_loops(Mode::Snapshot, 12);
}

/// Looks at all areas and at the allocator, and goes on.
fn go_on_with_areas(space: &Space, acknowledged: &Acknowledged) {
    let known = acknowledged.newest();
    // In snapshot mode two that give back neighbours at the same time do not see each other.
    let may_touch = space.mode() == Mode::Snapshot;
    let number = check_areas(space, may_touch).unwrap();
    assert!(number >= known, "change {known} of {number} is missing");
    acknowledged.add(space.transaction(change_areas).unwrap());
    check_areas(space, may_touch).unwrap();
}

/// Begins to read, and leaves a child behind that came about without anything that programs do when they fork; for
/// nobody else.
#[test]
fn orphaned() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let space = Space::open(Path::new(&folder).join("space"), &options(Mode::Explicit)).unwrap();
    let reader = space.begin_read().unwrap();
    let none = 0_usize;
    // SAFETY: a process like this one, on a copy of its memory. The child does nothing but wait for its end.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none) };
    if pid == 0 {
        loop {
            // SAFETY: it takes nothing.
            unsafe { libc::pause() };
        }
    }
    assert!(pid > 0);
    std::fs::write(Path::new(&folder).join("orphan"), pid.to_string()).unwrap();
    std::mem::forget(reader);
    std::process::abort();
}

/// A process that is of no use any more.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: it takes numbers. The process waits for nothing but this.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_dead_process_is_in_nobodys_way_though_a_child_holds_its_locks() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Acknowledged::open(folder.path());
    let space = Space::open(folder.path().join("space"), &options(Mode::Explicit)).unwrap();
    commit_next(&space).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["kill_tests::orphaned", "--exact"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::null());
    assert!(!child.status().unwrap().success());
    let orphan = std::fs::read_to_string(folder.path().join("orphan")).unwrap();
    let _orphan = Orphan(orphan.parse().unwrap());
    // More than there is room for, and some that have to be alone.
    for _ in 0..60 {
        commit_next(&space).unwrap();
    }
    go_on(&space, &acknowledged);
    drop(space);
    // The one that opens it now is not the first, as far as can be seen.
    let space = Space::open(folder.path().join("space"), &options(Mode::Explicit)).unwrap();
    go_on(&space, &acknowledged);
}

#[test]
fn a_process_may_die_while_it_allocates() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        Space::open(
            folder.path().join("space"),
            &options_for_areas(Mode::Explicit),
        )
    };
    let acknowledged = Acknowledged::open(folder.path());
    for step in (0..).step_by(11) {
        // In turns somebody survives.
        let survivor = (step % 2 == 0).then(|| open().unwrap());
        let mut child = spawn(folder.path(), Mode::Explicit, &format!("{AREAS}{step}"));
        let done = child.wait().unwrap().success();
        let space = survivor.unwrap_or_else(|| open().unwrap());
        go_on_with_areas(&space, &acknowledged);
        if done {
            assert!(step > 100, "only {step} steps");
            break;
        }
    }
}

#[test]
fn processes_are_killed_while_they_allocate() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let mut children: Vec<Child> = Vec::new();
        for round in 0..12_u64 {
            while children.len() < 3 {
                children.push(spawn(folder.path(), mode, AREAS));
            }
            wait_for_commits(&acknowledged, 8, &mut children);
            std::thread::sleep(Duration::from_micros(round * 977 % 5000));
            // Now and then all of them.
            let victims = if round % 4 == 3 { 3 } else { 1 };
            for mut victim in children.drain(..victims) {
                victim.kill().unwrap();
                victim.wait().unwrap();
            }
            let space = Space::open(folder.path().join("space"), &options_for_areas(mode));
            go_on_with_areas(&space.unwrap(), &acknowledged);
        }
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
