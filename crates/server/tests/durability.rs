//! kill -9 leaves what the system has in memory; a power cut does not. Here the server runs on a simulated disk, and at
//! every success response the disk is looked at as a power cut at this moment would leave it: the change must be there.

#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Compare, CompareOptions, Directory, Options, Requester, Step};
use sapwood_ldap::result::ResultCode;
use sapwood_store::Env;
use sapwood_testkit::storage::recording::Disk;
use sapwood_testkit::{ADMIN, SUFFIX, TestServer, requests};
use sapwood_wal::storage::{self, File, Map, OpenMode, Storage, Window};

/// Bursts of updates, and updates in each.
const BURSTS: u32 = 12;
const BURST: u32 = 5;

#[test]
fn every_success_response_is_on_the_disk() {
    let disk = Disk::new();
    let server = serve(disk.clone());
    acknowledged_is_there(&server, &disk).unwrap();
}

/// The test above would find a server that answers too early: here the disk says that it has written what it has not.
#[test]
fn a_success_response_before_the_change_is_on_the_disk_is_noticed() {
    let (disk, lies) = (Disk::new(), Arc::new(AtomicBool::new(false)));
    let server = serve(Liar {
        disk: disk.clone(),
        lies: lies.clone(),
    });
    lies.store(true, Ordering::SeqCst);
    let noticed = acknowledged_is_there(&server, &disk).unwrap_err();
    assert!(noticed.starts_with("burst 0, message 1000"), "{noticed}");
}

/// A server on a disk.
fn serve(disk: impl Storage + 'static) -> TestServer {
    let options = sapwood_store::Options::new().create(true);
    let env = Env::on_storage(Arc::new(disk), &options).unwrap();
    TestServer::on("", |_| Embedded::over(env))
}

/// Sends updates, and looks at the disk at each answer. Tells which change has been acknowledged and is not there.
fn acknowledged_is_there(server: &TestServer, disk: &Disk) -> Result<(), String> {
    let mut client = server.admin();
    for burst in 0..BURSTS {
        // Adds in one burst, modifies of the same entries in the next.
        let value = format!("value {burst}");
        let name = |number: u32| format!("d{}-{number}", burst / 2);
        let dn = |number: u32| format!("cn={},{SUFFIX}", name(number));
        let request = |number: u32| {
            let (id, dn, name) = (1000 + number, dn(number), name(number));
            if burst % 2 == 0 {
                let attributes = [
                    ("objectClass", "device"),
                    ("cn", &name),
                    ("description", &value),
                ];
                requests::add(id, &dn, &attributes)
            } else {
                requests::describe(id, &dn, &value)
            }
        };
        client.send(&(0..BURST).flat_map(request).collect::<Vec<u8>>());
        for _ in 0..BURST {
            let answer = client.receive().unwrap();
            answer.succeeded();
            let survivor = after_a_power_cut(disk);
            if !has_value(&survivor, &dn(answer.id - 1000), &value) {
                return Err(format!("burst {burst}, {answer:?}"));
            }
        }
    }
    Ok(())
}

/// The directory that is found on the disk when power comes back now.
fn after_a_power_cut(disk: &Disk) -> Directory {
    let disk = Disk::from_image(&disk.synced_image()).unwrap();
    let env = Env::on_storage(Arc::new(disk), &sapwood_store::Options::new()).unwrap();
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    Directory::open_on(Embedded::over(env), Options::new(Schema::standard())).unwrap()
}

fn has_value(directory: &Directory, dn: &str, value: &str) -> bool {
    let admin = Requester::administrator(ADMIN);
    let mut compare = Compare::new(
        directory.snapshot().unwrap(),
        &admin,
        dn,
        b"description",
        value.as_bytes(),
        CompareOptions::default(),
    );
    let step = compare.step(u64::MAX).unwrap();
    matches!(step, Step::Done(outcome) if outcome.code == ResultCode::CompareTrue)
}

/// A disk that, once it lies, syncs nothing and says that it has.
#[derive(Debug)]
struct Liar {
    disk: Disk,
    lies: Arc<AtomicBool>,
}

impl Storage for Liar {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(name, mode)?;
        let lies = self.lies.clone();
        Ok(Arc::new(LiarFile { file, lies }))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn identity(&self) -> io::Result<storage::Identity> {
        self.disk.identity()
    }

    fn path(&self) -> Option<&Path> {
        self.disk.path()
    }
}

#[derive(Debug)]
struct LiarFile {
    file: Arc<dyn File>,
    lies: Arc<AtomicBool>,
}

impl LiarFile {
    fn sync(&self, sync: impl FnOnce(&dyn File) -> io::Result<()>) -> io::Result<()> {
        if self.lies.load(Ordering::SeqCst) {
            return Ok(());
        }
        sync(&*self.file)
    }
}

impl File for LiarFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.file.write_at(parts, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.allocate(offset, length)
    }

    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()> {
        self.sync(|file| file.sync_room(offset, length))
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_size(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(|file| file.sync_data())
    }

    fn map(&self, reserve: usize) -> io::Result<Map> {
        self.file.map(reserve)
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        self.file.window(offset, length)
    }

    fn identity(&self) -> io::Result<storage::Identity> {
        self.file.identity()
    }

    fn handle(&self) -> &std::fs::File {
        self.file.handle()
    }
}
