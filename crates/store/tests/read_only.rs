//! Environments opened for reading only: of others that live, of files that cannot be written to, of whatever a crash
//! has left. In none of these is a byte of data or log written.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{assert_whole, commit, content, number_of};
use sapwood_store::{Env, Error, Options, restore};
use sapwood_testkit::children::{self, Child, command, command_of, mounted, pause, play};
use sapwood_testkit::storage::recording::Disk;

fn options() -> Options {
    common::options().log_bytes(1 << 20)
}

fn reading() -> Options {
    options().read_only(true)
}

fn commits(env: &Env, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        commit(env, number).unwrap().wait_durable().unwrap();
    }
}

/// What another process does.
#[test]
fn child() {
    let Some((role, folder)) = children::role() else {
        return;
    };
    match role.as_str() {
        // Leaves commits in the log, as a crash does.
        "crash" => {
            let env = Env::open(&folder, &options()).unwrap();
            commits(&env, 1..=10);
            env.checkpoint().unwrap();
            commits(&env, 11..=18);
            std::process::exit(0);
        }
        "beside a writer" => {
            let env = Env::open(&folder, &reading()).unwrap();
            assert_eq!(writable_files(), ["lock"]);
            assert_eq!(assert_whole(&env, "beside a writer"), 5);
            let snapshot = env.read().unwrap();
            pause();
            assert_eq!(assert_whole(&env, "beside a writer, later"), 40);
            assert_refused(&env);
            let dest = folder.with_file_name("backup");
            env.backup(&dest).unwrap();
            assert!(env.stat().unwrap().readers.len() == 1);
            drop(snapshot);
        }
        "first" => {
            let env = Env::open(&folder, &reading()).unwrap();
            assert_eq!(writable_files(), ["lock"]);
            assert_eq!(assert_whole(&env, "first"), 18);
            pause();
            assert_eq!(number_of(&env).unwrap(), 19);
        }
        "of what cannot be written" => {
            assert!(
                fs::File::options()
                    .write(true)
                    .open(folder.join("data-0"))
                    .is_err(),
                "the test needs files that this process cannot write to"
            );
            let env = Env::open(&folder, &reading()).unwrap();
            assert_eq!(writable_files(), [""; 0]);
            assert_eq!(assert_whole(&env, "of what cannot be written"), 18);
            assert_refused(&env);
            let stat = env.stat().unwrap();
            assert!(stat.visible > stat.checkpoint, "{stat:?}");
            pause();
            assert_eq!(assert_whole(&env, "later"), 18);
            let copies = tempfile::tempdir().unwrap();
            env.backup(copies.path().join("full")).unwrap();
            env.backup_compacted(copies.path().join("compacted"))
                .unwrap();
            for copy in ["full", "compacted"] {
                let restored = copies.path().join("restored").join(copy);
                restore(copies.path().join(copy), &restored).unwrap();
                assert_whole(&Env::open(restored, &options()).unwrap(), copy);
            }
        }
        "on a read-only medium" => {
            let written = fs::File::create(folder.join("new"));
            assert_eq!(written.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
            let env = Env::open(&folder, &reading()).unwrap();
            assert_eq!(assert_whole(&env, "on a read-only medium"), 18);
            assert_refused(&env);
            drop(env);
            let opened = Env::open(&folder, &options());
            assert!(matches!(opened, Err(Error::Io(_))), "{opened:?}");
        }
        "unprotected" => {
            let opened = Env::open(&folder, &reading());
            assert!(matches!(opened, Err(Error::Unprotected(_))), "{opened:?}");
        }
        "damaged" => {
            let opened = Env::open(&folder, &reading());
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("log.0"), "{error}");
        }
        other => panic!("{other}"),
    }
}

fn assert_refused(env: &Env) {
    assert!(matches!(env.write(), Err(Error::ReadOnly)));
    assert!(matches!(env.try_write(), Err(Error::ReadOnly)));
    assert!(matches!(env.bulk(), Err(Error::ReadOnly)));
    assert!(matches!(env.sync(), Err(Error::ReadOnly)));
    assert!(matches!(env.checkpoint(), Err(Error::ReadOnly)));
}

/// The names of the environment's files that this process has open for writing.
fn writable_files() -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let fd = entry.unwrap().file_name().into_string().unwrap();
        let Ok(path) = fs::read_link(format!("/proc/self/fd/{fd}")) else {
            continue;
        };
        let name = path.file_name().unwrap_or_default().to_str().unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        let is_writable = !flags.trim().ends_with(['0', '4']);
        if is_writable && (name == "lock" || name.starts_with("data-") || name.starts_with("log."))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_live_environment_is_read_beside_its_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    let env = Env::open(&path, &options()).unwrap();
    commits(&env, 1..=5);
    let mut reader = Child::start(&mut command("beside a writer", &path));
    reader.wait();
    let readers = env.stat().unwrap().readers;
    assert_eq!((readers.len(), readers[0].pid), (1, reader.id()));
    commits(&env, 6..=40);
    assert!(reader.end().success());
    commits(&env, 41..=42);
    drop(env);
    restore(folder.path().join("backup"), folder.path().join("restored")).unwrap();
    let restored = Env::open(folder.path().join("restored"), &options()).unwrap();
    assert_eq!(assert_whole(&restored, "restored"), 40);
}

#[test]
fn whoever_comes_first_to_read_recovers_and_lets_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    play("crash", &path);
    let mut reader = Child::start(&mut command("first", &path));
    reader.wait();
    let env = Env::open(&path, &options()).unwrap();
    commits(&env, 19..=19);
    assert!(reader.end().success());
}

#[test]
fn nothing_is_created_to_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    assert!(Env::open(&path, &reading()).is_err());
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    assert!(Env::open(&path, &reading()).is_err());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

/// A folder with files that nobody may write to but root, and a way for another process not to be root.
struct Unwritable {
    folder: tempfile::TempDir,
}

impl Unwritable {
    fn new() -> Self {
        let this = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        play("crash", &this.path());
        fs::set_permissions(this.folder.path(), Permissions::from_mode(0o755)).unwrap();
        this
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("env")
    }

    fn set_writable(&self, yes: bool) {
        let [folder, file] = if yes { [0o755, 0o644] } else { [0o555, 0o444] };
        for entry in fs::read_dir(self.path()).unwrap() {
            fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(file)).unwrap();
        }
        fs::set_permissions(self.path(), Permissions::from_mode(folder)).unwrap();
    }

    fn start(&self, role: &str) -> Child {
        // Where this program is, others may not be allowed to look.
        let program = self.folder.path().join("program");
        if !program.exists() {
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        let mut command = command_of(&program, role, &self.path());
        // To change its user is a privilege of the one whom permissions do not bind.
        let probe = self.folder.path().join("probe");
        fs::write(&probe, b"").unwrap();
        const NOBODY: u32 = 65534;
        if chown(&probe, Some(NOBODY), None).is_ok() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Child::start(&mut command)
    }

    fn bytes(&self) -> Vec<(String, Vec<u8>)> {
        bytes(&self.path())
    }
}

fn bytes(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn files_that_cannot_be_written_are_looked_at_as_they_are() {
    let files = Unwritable::new();
    files.set_writable(false);
    let before = files.bytes();
    let mut readers = [0; 2].map(|_| files.start("of what cannot be written"));
    readers.iter_mut().for_each(Child::wait);

    // Nobody writes meanwhile, but looking on is possible for everybody.
    files.set_writable(true);
    let refused = Env::open(files.path(), &options());
    assert!(matches!(refused, Err(Error::HeldStill)), "{refused:?}");
    let beside = Env::open(files.path(), &reading()).unwrap();
    assert_eq!(assert_whole(&beside, "beside"), 18);
    for reader in readers {
        assert!(reader.end().success());
    }
    let refused = Env::open(files.path(), &options()).unwrap().write();
    assert!(
        matches!(refused, Err(Error::ReadOnly)),
        "the same environment, still open"
    );
    drop(beside);
    assert!(files.bytes() == before, "something was written");

    let env = Env::open(files.path(), &options()).unwrap();
    commits(&env, 19..=20);
    assert_whole(&env, "after all");
}

#[test]
fn without_the_lock_file_a_live_environment_is_not_read() {
    let files = Unwritable::new();
    files.set_writable(true);
    let env = Env::open(
        files.path(),
        &options().idle_checkpoint(Some(Duration::ZERO)),
    )
    .unwrap();
    files.set_writable(false);
    assert!(files.start("unprotected").end().success());
    files.set_writable(true);
    drop(env);
    fs::remove_file(files.path().join("lock")).unwrap();
    files.set_writable(false);
    assert!(files.start("unprotected").end().success());
    files.set_writable(true);
}

/// With a lock file, and without one, as on an image that holds the data and the log alone.
#[test]
fn a_read_only_medium_is_read() {
    const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    play("crash", &path);
    for has_lock in [true, false] {
        let role = command("on a read-only medium", &path);
        let Some(mut role) = mounted(READ_ONLY, folder.path(), &role) else {
            return;
        };
        let before = bytes(&path);
        assert!(Child::start(&mut role).end().success());
        assert!(bytes(&path) == before, "something was written");
        if has_lock {
            fs::remove_file(path.join("lock")).unwrap();
        }
    }
}

#[test]
fn a_missing_log_is_told_by_name() {
    let files = Unwritable::new();
    fs::remove_file(files.path().join("log.0")).unwrap();
    files.set_writable(false);
    assert!(files.start("damaged").end().success());
    files.set_writable(true);
}

#[test]
fn a_restored_backup_that_was_never_opened_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    commits(&env, 1..=7);
    env.backup(folder.path().join("backup")).unwrap();
    let restored = folder.path().join("restored");
    restore(folder.path().join("backup"), &restored).unwrap();
    let env = Env::open(&restored, &reading().shared(false)).unwrap();
    assert_eq!(assert_whole(&env, "alone"), 7);
    assert_eq!(
        fs::read_dir(&restored).unwrap().count(),
        1,
        "only the data file"
    );
}

/// Looking at what a crash has left shows what recovering it does, and changes nothing.
#[test]
fn every_crash_state_reads_as_it_recovers() {
    let disk = Disk::new();
    let options = options();
    let env = Env::on_storage(Arc::new(disk.clone()), &options).unwrap();
    for number in 1..=30 {
        let ticket = commit(&env, number).unwrap();
        if number % 3 != 1 {
            ticket.wait_durable().unwrap();
        }
        if number % 8 == 5 {
            env.checkpoint().unwrap();
        }
    }
    let mut replayed = 0;
    let mut states = 0;
    for crash in disk.crashes(7, 150) {
        let when = crash.to_string();
        let looked_at = Disk::from_image(crash.image()).unwrap();
        let looking = Env::on_storage(
            Arc::new(looked_at.clone()),
            &options.clone().read_only(true),
        );
        let recovered = Arc::new(Disk::from_image(crash.image()).unwrap());
        let recovered = Env::on_storage(recovered, &options.clone().create(false));
        match (looking, recovered) {
            (Ok(looking), Ok(recovered)) => {
                let number = assert_whole(&looking, &when);
                assert_eq!(number, number_of(&recovered).unwrap(), "{when}");
                assert!(
                    content(&looking).unwrap() == content(&recovered).unwrap(),
                    "{when}"
                );
                let stat = looking.stat().unwrap();
                replayed += u32::from(stat.visible > stat.checkpoint);
                assert_refused(&looking);
                states += 1;
            }
            (Err(_), Err(_)) => {}
            (looking, recovered) => panic!("{when}: {looking:?}, {recovered:?}"),
        }
        assert_eq!(looked_at.events(), 0, "{when}: something was written");
    }
    assert!(replayed > 50 && states > 100, "{replayed} of {states}");
}
