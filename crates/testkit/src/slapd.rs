//! OpenLDAP's server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::program::{Process, Scratch, program};
use crate::{ADMIN, PASSWORD, SUFFIX};

/// A running `slapd` without entries; killed when dropped.
#[derive(Debug)]
pub struct Slapd {
    address: SocketAddr,
    process: Process,
    files: Scratch,
}

/// What a [`Slapd`] has besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlapdSetup<'s> {
    /// Lines of the global part of its configuration.
    pub global: &'s str,
    /// Lines of the part of its database.
    pub database: &'s str,
    /// When it is, in seconds since 1970, instead of what the system says. Its clock hardly moves by itself, whatever
    /// the machine does.
    pub seconds: Option<u64>,
}

impl Slapd {
    /// Serves a directory with the same suffix, administrator and password as a [`Folder`](crate::folder::Folder), and
    /// with these lines more in the global part of its configuration.
    pub fn start(global: &str) -> Self {
        Self::with(&SlapdSetup {
            global,
            ..SlapdSetup::default()
        })
    }

    /// The same with more of its own.
    pub fn with(setup: &SlapdSetup<'_>) -> Self {
        let SlapdSetup {
            global,
            database,
            seconds,
        } = setup;
        let files = Scratch::new();
        let includes: String = ["core", "cosine", "inetorgperson", "nis"]
            .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"))
            .concat();
        let data = files.arg("data");
        std::fs::create_dir(&data).unwrap();
        let text = format!(
            "{includes}{global}\npidfile {data}/pid\nargsfile {data}/args\n\
             modulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             database mdb\nsuffix \"{SUFFIX}\"\nrootdn \"{ADMIN}\"\nrootpw \"{PASSWORD}\"\n\
             directory {data}\nmaxsize 268435456\ndbnosync\nindex objectClass,uid,cn,sn eq\n{database}\n"
        );
        std::fs::write(files.path("slapd.conf"), text).unwrap();
        let address = free_address();
        Self {
            process: serve(&files, address, *seconds),
            address,
            files,
        }
    }

    /// Kills it, which LMDB does not mind.
    pub fn kill(&mut self) {
        // One that believes in another time may not end when it is asked to.
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// Starts one that was killed again, with the same data.
    pub fn start_again(&mut self) {
        self.process = serve(&self.files, self.address, None);
    }

    /// Kills it, and starts it again with the same data when it is this time, in seconds since 1970.
    pub fn restart_at(&mut self, seconds: u64) {
        self.kill();
        self.process = serve(&self.files, self.address, Some(seconds));
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Starts it on the files that a [`Slapd`] has.
fn serve(files: &Scratch, address: SocketAddr, seconds: Option<u64>) -> Process {
    let mut command = program("/usr/sbin/slapd", "slapd");
    command.args(["-d", "0", "-f", &files.arg("slapd.conf")]);
    command.args(["-h", &format!("ldap://{address}")]);
    if let Some(seconds) = seconds {
        // It moves by 10 microseconds whenever somebody looks at it, so that times differ and a second never ends.
        let days = seconds / 86_400;
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        let date = date_of(days);
        let time = format!(
            "@{date} {hours:02}:{minutes:02}:{:02} i0.00001",
            seconds % 60
        );
        command.env("LD_PRELOAD", faketime()).env("FAKETIME", time);
        command
            .env("TZ", "UTC")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    let mut process = Process::start(command.stdin(Stdio::null()));
    while TcpStream::connect(address).is_err() {
        let ended = process.child.try_wait().unwrap();
        assert!(ended.is_none(), "slapd: {ended:?}\n{}", process.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    if seconds.is_some() {
        // libfaketime leaves them when its process is killed, and a later process with the same number would see the
        // system's time. Their names are not asked for once it has begun.
        for name in ["faketime_shm_", "sem.faketime_sem_"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}{}", process.child.id()));
        }
    }
    process
}

/// The library that makes programs believe in another time, below a folder that is named after the machine.
fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|library| library.exists());
    library.expect("libfaketimeMT.so.1 is not here: install libfaketime")
}

/// The date of a day since 1970, as `2025-01-31`.
fn date_of(mut days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// An address for a server that cannot tell which one the system gave it. Its port is below those that the system gives
/// to connections: one of them could take the port before the server does, even the one that looks whether it is there.
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = std::process::id() * 8 + u32::from(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
