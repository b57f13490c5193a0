//! OpenLDAP's server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::program::{Process, Scratch, program};
use crate::{ADMIN, PASSWORD, SUFFIX};

/// A running `slapd` without entries; killed when dropped.
#[derive(Debug)]
pub struct Slapd {
    address: SocketAddr,
    _process: Process,
    _files: Scratch,
}

impl Slapd {
    /// Serves a directory with the same suffix, administrator and password as a [`Folder`](crate::folder::Folder), and
    /// with these lines more in the global part of its configuration.
    pub fn start(global: &str) -> Self {
        let files = Scratch::new();
        let includes: String = ["core", "cosine", "inetorgperson", "nis"]
            .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"))
            .concat();
        let (data, configuration) = (files.arg("data"), files.arg("slapd.conf"));
        std::fs::create_dir(&data).unwrap();
        let text = format!(
            "{includes}{global}\npidfile {data}/pid\nargsfile {data}/args\n\
             modulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             database mdb\nsuffix \"{SUFFIX}\"\nrootdn \"{ADMIN}\"\nrootpw \"{PASSWORD}\"\n\
             directory {data}\nmaxsize 268435456\ndbnosync\nindex objectClass,uid,cn,sn eq\n"
        );
        std::fs::write(&configuration, text).unwrap();
        let address = free_address();
        let mut command = program("/usr/sbin/slapd", "slapd");
        command.args([
            "-d",
            "0",
            "-f",
            &configuration,
            "-h",
            &format!("ldap://{address}"),
        ]);
        let mut process = Process::start(command.stdin(Stdio::null()));
        while TcpStream::connect(address).is_err() {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "slapd: {ended:?}\n{}", process.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            address,
            _process: process,
            _files: files,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An address for slapd, which cannot tell which one the system gave it. Its port is below those that the system gives
/// to connections: one of them could take the port before slapd does, even the one that looks whether slapd is there.
fn free_address() -> SocketAddr {
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
