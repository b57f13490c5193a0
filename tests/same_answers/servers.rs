//! Debian's slapd and sapwood, each in a scratch folder and on a free loopback port.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

use super::client::Client;

pub(crate) const SUFFIX: &str = "dc=example,dc=com";
pub(crate) const ADMIN_DN: &str = "cn=admin,dc=example,dc=com";
pub(crate) const ADMIN_PASSWORD: &str = "in these tests only";

const SLAPD: &str = "/usr/sbin/slapd";

const ODD_SCHEMA: &str = include_str!("odd.schema");

/// A server process that ends with this value.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Server {
    /// Starts slapd with the same suffix, administrator and schema.
    pub(crate) fn slapd() -> Server {
        assert!(
            Path::new(SLAPD).exists(),
            "this test compares with OpenLDAP's slapd, which is not installed at {SLAPD}: run `cargo xtask test`, which installs it"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(folder.path().join("odd.schema"), ODD_SCHEMA).unwrap();
        let includes: String = ["core", "cosine", "inetorgperson", "nis"]
            .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"))
            .concat();
        let configuration = format!(
            "{includes}include {path}/odd.schema\n\
            pidfile {path}/slapd.pid\n\
            argsfile {path}/slapd.args\n\
            modulepath /usr/lib/ldap\n\
            moduleload back_mdb\n\
            sizelimit unlimited\n\
            attributeoptions lang- x-test\n\
            database mdb\n\
            suffix \"{SUFFIX}\"\n\
            rootdn \"{ADMIN_DN}\"\n\
            rootpw \"{ADMIN_PASSWORD}\"\n\
            directory {path}/data\n\
            maxsize 268435456\n\
            dbnosync\n\
            index objectClass,uid,cn,sn eq\n"
        );
        let configuration_file = folder.path().join("slapd.conf");
        fs::write(&configuration_file, configuration).unwrap();
        let address = free_address();
        let mut process = Command::new(SLAPD)
            .arg("-f")
            .arg(configuration_file)
            .arg("-h")
            .arg(format!("ldap://{address}"))
            .args(["-d", "0"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("slapd on {address} ended at once: {status}");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Server {
            process,
            address,
            _folder: folder,
        }
    }

    /// Starts sapwood.
    pub(crate) fn sapwood() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("directory");
        let password_file = folder.path().join("password");
        fs::write(&password_file, ADMIN_PASSWORD).unwrap();
        let sapwood = env!("CARGO_BIN_EXE_sapwood");
        let init = Command::new(sapwood)
            .arg("init")
            .arg(&directory)
            .args([
                "--suffix",
                SUFFIX,
                "--admin-dn",
                ADMIN_DN,
                "--admin-password-file",
            ])
            .arg(&password_file)
            .output()
            .unwrap();
        assert!(
            init.status.success(),
            "sapwood init failed: {}",
            String::from_utf8_lossy(&init.stderr)
        );
        let settings = directory.join("sapwood.toml");
        let text = fs::read_to_string(&settings).unwrap();
        let registered = "attribute_options = [\"x-test\"]";
        fs::write(
            &settings,
            text.replace("attribute_options = []", registered),
        )
        .unwrap();
        let schema = directory.join("schema");
        fs::create_dir_all(&schema).unwrap();
        fs::write(schema.join("odd.schema"), ODD_SCHEMA).unwrap();
        let mut process = Command::new(sapwood)
            .arg("serve")
            .arg(&directory)
            .args(["--listen", "ldap://127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut lines = log.by_ref().map_while(Result::ok);
        let address = lines
            .find_map(|line| Some(line.split_once("listening on ldap://")?.1.to_owned()))
            .expect("sapwood ended at once");
        // The server waits for its log to be read.
        std::thread::spawn(move || log.for_each(drop));
        Server {
            process,
            address: address.parse().unwrap(),
            _folder: folder,
        }
    }

    /// Connects as the administrator.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(self.address);
        client.bind(ADMIN_DN, ADMIN_PASSWORD);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to be done about a process that has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
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
