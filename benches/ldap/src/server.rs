//! The servers under measurement: made, filled, started and stopped alike.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use sapwood_drive::disk_bytes;
use sapwood_figures::DiskReads;

use crate::SUFFIX;
use crate::process::{Process, bound, disk_bytes_written};
use crate::stat;

/// Who may do everything, in both.
pub(crate) const ADMIN_DN: &str = "cn=admin,dc=example,dc=com";
/// The administrator's password, in both: on loopback, in a folder that goes away.
pub(crate) const ADMIN_PASSWORD: &str = "benchmark";

/// What the entries look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Below one root, with uid, cn, sn and a carLicense of eight octets
    Flat,
    /// People of 15 attributes in organisational units, and groups of 20
    Org,
    /// Those of flat, which Sapwood spreads over four stores below the one suffix
    Dvtds,
    /// The same in memory, which slapd 2.5 has no equal of
    DvtdsInMemory,
}

/// Attributes, and the kinds of index that they get.
pub(crate) type Index = (&'static str, &'static str);

/// What the products do besides, alike.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    /// Sapwood's: arguments of `sapwood rule DIR add`, of each rule.
    pub(crate) rules: &'static [&'static [&'static str]],
    /// slapd's modules, and the lines that configure them for its database.
    pub(crate) modules: &'static [&'static str],
    pub(crate) overlays: &'static str,
}

impl Shape {
    /// The indexes, in both products.
    fn indexes(self) -> &'static [Index] {
        match self {
            Shape::Flat | Shape::Dvtds | Shape::DvtdsInMemory => &[("objectClass,uid", "eq")],
            Shape::Org => &[("objectClass,uid", "eq"), ("cn,mail", "eq,sub")],
        }
    }

    /// How many stores Sapwood spreads the entries over.
    fn stores(self) -> u16 {
        match self {
            Shape::Flat | Shape::Org => 1,
            Shape::Dvtds | Shape::DvtdsInMemory => 4,
        }
    }

    /// Whether nothing is written to disk while the server runs.
    pub(crate) fn is_in_memory(self) -> bool {
        self == Shape::DvtdsInMemory
    }
}

/// Indexes for entries and members that are added one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Indexes {
    /// On objectClass alone, which Sapwood always has
    None,
    /// Those that `sapwood init` makes when it is told nothing, as far as the entries have the attributes
    Usual,
    /// On the members of groups
    Members,
}

impl Indexes {
    /// Those that people are added with.
    pub(crate) const OF_PEOPLE: [Indexes; 2] = [Indexes::None, Indexes::Usual];

    fn indexes(self) -> &'static [Index] {
        match self {
            Indexes::None => &[("objectClass", "eq")],
            Indexes::Usual => &[("objectClass,entryUUID,uid,cn,sn,mail", "eq")],
            Indexes::Members => &[("objectClass,member", "eq")],
        }
    }
}

impl std::fmt::Display for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Indexes::None => "no indexes on attributes",
            Indexes::Usual => "the usual indexes",
            Indexes::Members => "an index on member",
        })
    }
}

/// Address space for slapd's map: far more than the data needs.
const SLAPD_MAP_BYTES: u64 = 16 << 30;

/// Until then a server that was started must listen.
const START_WAIT: Duration = Duration::from_secs(60);

/// A server to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Product {
    /// This project's
    Sapwood,
    /// OpenLDAP's
    Slapd,
}

/// A server with its own folder and configuration.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) product: Product,
    program: PathBuf,
    /// What runs the program, if it is not run as it is: a command and its arguments.
    wrapper: Vec<String>,
    /// Its data.
    pub(crate) folder: PathBuf,
    /// The configuration file, for slapd.
    config: PathBuf,
}

/// What an import has cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImportCost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_bytes_peak: u64,
    pub(crate) disk_bytes: u64,
}

/// A server that listens.
pub(crate) struct Server {
    pub(crate) product: Product,
    pub(crate) url: String,
    program: PathBuf,
    folder: PathBuf,
    process: Process,
}

impl Product {
    /// Makes an empty directory in a folder of `parent`, for entries of a shape.
    pub(crate) fn prepare(
        self,
        parent: &Path,
        shape: Shape,
        sapwood: Option<&Path>,
    ) -> Result<Prepared> {
        let mut arguments = Vec::new();
        if shape.stores() > 1 {
            let partition = format!("{}:{SUFFIX}", shape.stores());
            arguments.extend(["--partition".to_owned(), partition]);
        }
        if shape.is_in_memory() {
            arguments.push("--in-memory".to_owned());
        }
        self.prepare_as(parent, &arguments, shape.indexes(), sapwood)
    }

    /// Makes an empty directory in a folder of `parent`, with indexes.
    pub(crate) fn prepare_with(
        self,
        parent: &Path,
        indexes: Indexes,
        sapwood: Option<&Path>,
    ) -> Result<Prepared> {
        self.prepare_as(parent, &[], indexes.indexes(), sapwood)
    }

    /// The same; `arguments` are more ones for `sapwood init`.
    pub(crate) fn prepare_as(
        self,
        parent: &Path,
        arguments: &[String],
        indexes: &[Index],
        sapwood: Option<&Path>,
    ) -> Result<Prepared> {
        let folder = parent.join(self.to_string());
        let config = parent.join("slapd.conf");
        let program = match (self, sapwood) {
            (Product::Slapd, _) => in_path("slapd")?,
            (Product::Sapwood, Some(program)) => program.to_owned(),
            (Product::Sapwood, None) => std::env::current_exe()?.with_file_name("sapwood"),
        };
        ensure!(program.exists(), "{} does not exist", program.display());
        match self {
            Product::Sapwood => {
                let password = parent.join("password");
                fs::write(&password, ADMIN_PASSWORD)?;
                let mut init = Command::new(&program);
                init.arg("init")
                    .arg(&folder)
                    .args(["--suffix", SUFFIX, "--admin-dn", ADMIN_DN]);
                init.arg("--admin-password-file").arg(&password);
                init.args(arguments);
                for (attributes, kinds) in indexes {
                    init.args(["--index", &format!("{attributes} {kinds}")]);
                }
                let status = init.stdout(Stdio::null()).status()?;
                ensure!(status.success(), "sapwood init: {status}");
            }
            Product::Slapd => {
                fs::create_dir(&folder)?;
                fs::write(&config, slapd_config(&folder, indexes))?;
            }
        }
        Ok(Prepared {
            product: self,
            program,
            wrapper: Vec::new(),
            folder,
            config,
        })
    }

    /// The name and version it gives itself.
    pub(crate) fn version(self, program: &Path) -> Result<String> {
        let argument = match self {
            Product::Sapwood => "--version",
            Product::Slapd => "-VV",
        };
        let output = Command::new(program).arg(argument).output()?;
        let text = [output.stdout, output.stderr].concat();
        let line = text
            .split(|octet| *octet == b'\n')
            .next()
            .unwrap_or_default();
        Ok(String::from_utf8_lossy(line)
            .trim_start_matches("@(#) $")
            .trim_end()
            .to_owned())
    }
}

fn slapd_config(folder: &Path, indexes: &[Index]) -> String {
    let index = |(attributes, kinds): &Index| format!("index {attributes} {kinds}\n");
    let indexes: String = indexes.iter().map(index).collect();
    format!(
        "include /etc/ldap/schema/core.schema\n\
         include /etc/ldap/schema/cosine.schema\n\
         include /etc/ldap/schema/inetorgperson.schema\n\
         include /etc/ldap/schema/dyngroup.schema\n\
         modulepath /usr/lib/ldap\n\
         moduleload back_mdb\n\
         loglevel none\n\
         sizelimit unlimited\n\
         timelimit unlimited\n\
         conn_max_pending 100000\n\
         conn_max_pending_auth 100000\n\
         database mdb\n\
         suffix \"{SUFFIX}\"\n\
         rootdn \"{ADMIN_DN}\"\n\
         rootpw {ADMIN_PASSWORD}\n\
         directory {}\n\
         maxsize {SLAPD_MAP_BYTES}\n\
         {indexes}",
        folder.display()
    )
}

impl Prepared {
    /// Loads the entries offline, as fast as the product can: `sapwood import` (which checks the schema), and
    /// `slapadd -q` (which does not).
    pub(crate) fn import(self, ldif: &Path) -> Result<(Self, ImportCost)> {
        let mut command = match self.product {
            Product::Sapwood => {
                let mut command = bound(&self.program)?;
                command.arg("import").arg(&self.folder).arg(ldif);
                command
            }
            Product::Slapd => {
                let mut command = bound(in_path("slapadd")?)?;
                command
                    .arg("-q")
                    .arg("-f")
                    .arg(&self.config)
                    .arg("-l")
                    .arg(ldif);
                command
            }
        };
        let start = Instant::now();
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .context("starting the import")?;
        let used = Process::watch(child).wait(start)?;
        ensure!(
            used.status.success(),
            "{}: import: {}",
            self.product,
            used.status
        );
        let cost = ImportCost {
            seconds: used.seconds,
            cpu_seconds: used.cpu.as_secs_f64(),
            memory_bytes_peak: used.memory_bytes_peak,
            disk_bytes: disk_bytes(&self.folder).unwrap_or_default(),
        };
        Ok((self, cost))
    }

    /// The same, but it does more.
    pub(crate) fn with(self, setup: &Setup) -> Result<Self> {
        match self.product {
            Product::Sapwood => {
                for rule in setup.rules {
                    let mut add = Command::new(&self.program);
                    add.arg("rule").arg(&self.folder).arg("add").args(*rule);
                    let status = add.stdout(Stdio::null()).status()?;
                    ensure!(status.success(), "sapwood rule add: {status}");
                }
            }
            Product::Slapd => {
                let config = fs::read_to_string(&self.config)?;
                let (head, database) = config
                    .split_once("database mdb\n")
                    .context("slapd.conf has no database")?;
                let modules = setup.modules.iter();
                let modules: String = modules
                    .map(|module| format!("moduleload {module}\n"))
                    .collect();
                let overlays = setup.overlays;
                let config = format!("{head}{modules}database mdb\n{database}{overlays}");
                fs::write(&self.config, config)?;
            }
        }
        Ok(self)
    }

    /// Sapwood's program and folder, if it is Sapwood.
    pub(crate) fn sapwood(&self) -> Option<(&Path, &Path)> {
        (self.product == Product::Sapwood).then_some((&self.program, &self.folder))
    }

    /// The same under the access rules of a file, which has the form of slapd.conf(5).
    pub(crate) fn under(&self, rules: &Path) -> Result<Prepared> {
        let mut prepared = self.clone();
        match self.product {
            Product::Sapwood => {
                let mut set = Command::new(&self.program);
                set.arg("access").arg(&self.folder).arg("set").arg(rules);
                let status = set.stdout(Stdio::null()).status()?;
                ensure!(status.success(), "sapwood access set: {status}");
            }
            Product::Slapd => {
                let read = |file: &Path| {
                    fs::read_to_string(file).with_context(|| file.display().to_string())
                };
                let text = format!("{}\n{}", read(&self.config)?, read(rules)?);
                prepared.config = self.config.with_extension("rules");
                fs::write(&prepared.config, text)?;
            }
        }
        Ok(prepared)
    }

    /// The same with passwords governed by a policy, which is Sapwood's.
    pub(crate) fn governed_by(self, policy: &str) -> Result<Prepared> {
        let mut command = Command::new(&self.program);
        command.arg("policy").arg(&self.folder);
        let status = command
            .args(["--default", policy])
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "sapwood policy: {status}");
        Ok(self)
    }

    /// The same, but slapd tells the system that accesses to its map jump.
    pub(crate) fn without_read_ahead(self) -> Result<Self> {
        if self.product == Product::Slapd {
            let config = fs::read_to_string(&self.config)?;
            fs::write(&self.config, format!("{config}envflags nordahead\n"))?;
        }
        Ok(self)
    }

    /// Lets another program run the server.
    pub(crate) fn wrapped(self, wrapper: Vec<String>) -> Self {
        Prepared { wrapper, ..self }
    }

    /// Starts the server on a free port and waits until it listens.
    pub(crate) fn start(self) -> Result<Server> {
        self.start_on(&[])
    }

    /// The same, and on one with TLS; its URL.
    pub(crate) fn start_with_tls(self) -> Result<(Server, String)> {
        let ldaps = format!("ldaps://127.0.0.1:{}", free_port()?);
        let server = self.start_on(&["--listen", &ldaps])?;
        Ok((server, ldaps))
    }

    /// Starts it with more arguments.
    fn start_on(self, arguments: &[&str]) -> Result<Server> {
        let port = free_port()?;
        let url = format!("ldap://127.0.0.1:{port}");
        let mut command = match self.wrapper.split_first() {
            None => bound(&self.program)?,
            Some((wrapper, arguments)) => {
                let mut command = bound(wrapper)?;
                command.args(arguments).arg(&self.program);
                command
            }
        };
        match self.product {
            Product::Sapwood => command
                .arg("serve")
                .arg(&self.folder)
                .args(["--listen", &url])
                .args(arguments),
            // In the foreground, without debug output.
            Product::Slapd => command
                .arg("-f")
                .arg(&self.config)
                .args(["-h", &url, "-d", "0"]),
        };
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .context("starting the server")?;
        let mut process = Process::watch(child);
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            process
                .check_alive()
                .with_context(|| format!("{}", self.product))?;
            ensure!(
                start.elapsed() < START_WAIT,
                "{} does not listen on {url}",
                self.product
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!(
            "{}: {} on {url}",
            self.product,
            self.product.version(&self.program)?
        );
        Ok(Server {
            product: self.product,
            url,
            program: self.program,
            folder: self.folder,
            process,
        })
    }
}

impl Server {
    /// Processor time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }

    /// Processor time so far of the threads that read requests and write answers, where they are told from others.
    pub(crate) fn sessions_cpu(&self) -> Result<Option<Duration>> {
        match self.product {
            Product::Sapwood => self.process.threads_cpu("sessions-"),
            Product::Slapd => Ok(None),
        }
    }

    /// What it has had from the disk so far.
    pub(crate) fn disk_reads(&self) -> DiskReads {
        DiskReads::of(self.process.pid()).unwrap_or_default()
    }

    /// Bytes that its disk has been given so far.
    pub(crate) fn bytes_written(&self) -> Option<u64> {
        disk_bytes_written(&self.folder)
    }

    /// Checkpoints of all its stores since it was started, if it has any.
    pub(crate) fn checkpoints(&self, shape: Shape) -> Result<Option<u64>> {
        if self.product != Product::Sapwood || shape.is_in_memory() {
            return Ok(None);
        }
        let numbers = stat::numbers(&self.program, &self.folder, "Checkpoints:")?;
        Ok(Some(numbers.iter().sum()))
    }

    /// What its data take on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.folder).unwrap_or_default()
    }

    /// Its data.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Forgets the peak of its own memory so far.
    pub(crate) fn watch_memory(&self) {
        self.process.watch_memory();
    }

    /// The peak of its own memory in bytes, since it was forgotten.
    pub(crate) fn memory_peak(&self) -> u64 {
        self.process.memory_peak()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it; the peak of its own memory in bytes.
    pub(crate) fn stop(self) -> Result<u64> {
        self.process.stop()
    }
}

/// A port nobody listens on. Somebody may take it before the server does, who then says so.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// A program in `PATH` or in the folders for administrators.
pub(crate) fn in_path(name: &str) -> Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let mut programs = folders.map(|folder| Path::new(folder).join(name));
    programs
        .find(|program| program.exists())
        .with_context(|| format!("{name} is not installed"))
}
