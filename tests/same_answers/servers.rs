//! Debian's slapd and sapwood, each in a scratch folder and on a free loopback port.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
        let mut command = Command::new(SLAPD);
        command
            .arg("-f")
            .arg(configuration_file)
            .arg("-h")
            .arg(format!("ldap://{address}"))
            .args(["-d", "0"]);
        Server::start(command, address, folder)
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
        let address = free_address();
        let mut command = Command::new(sapwood);
        command
            .arg("serve")
            .arg(&directory)
            .arg("--listen")
            .arg(format!("ldap://{address}"));
        Server::start(command, address, folder)
    }

    /// Connects as the administrator.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(self.address);
        client.bind(ADMIN_DN, ADMIN_PASSWORD);
        client
    }

    fn start(mut command: Command, address: SocketAddr, folder: TempDir) -> Server {
        let mut process = command.stdin(Stdio::null()).spawn().unwrap();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("{command:?} ended at once: {status}");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Server {
            process,
            address,
            _folder: folder,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to be done about a process that has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}
