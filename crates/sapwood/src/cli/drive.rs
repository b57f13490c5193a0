//! The command line of `sapwood drive`, and of whatever else connects to a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use sapwood_drive::{CONNECTIONS_MAX, QUEUE_MAX};

/// The longest time that an option takes, in seconds: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Drive {
    #[command(subcommand)]
    pub(crate) command: Option<DriveCommand>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// Write made-up entries, as LDIF or as a stream of AddRequest messages
    Generate(Generate),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The server: ldap://HOST:PORT, ldaps://HOST:PORT or ldapi://%2Fpath
    #[arg(value_name = "URL", required = true)]
    pub(crate) url: Option<String>,
    /// The plan; '-' is standard input
    #[arg(value_name = "PLAN", required_unless_present = "preset")]
    pub(crate) plan: Option<PathBuf>,
    /// A plan that comes with the program
    #[arg(long, value_enum, conflicts_with = "plan")]
    pub(crate) preset: Option<Preset>,
    /// Replace a setting of the plan
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
    /// Only phases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) phase: Option<String>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Connections of each session; with several numbers the plan is run once for each
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub(crate) connections: Vec<u32>,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_MAX)))]
    pub(crate) queue: Option<u32>,
    /// Updates in each transaction
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_MAX)))]
    pub(crate) transaction: Option<u32>,
    /// Operations per second of each session, sent when they are due; latency is counted from then
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// How long phases last, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub(crate) duration: Option<Duration>,
    /// Time before each phase in which connections begin one by one, not counted unless the phase ends in it, in
    /// seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) ramp_up: Option<Duration>,
    /// The seed of random values
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads that drive connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Give up a connection when the server sends no answer for this long, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub(crate) answer_timeout: Option<Duration>,
    /// The server's process, to report its processor time and memory
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
    /// The server's data, to report their size
    #[arg(long, value_name = "DIR")]
    pub(crate) database: Option<PathBuf>,
    /// Write the report as JSON; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as CSV; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the report as one HTML page with plots; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// How to reach a server, and as whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// Who connections bind as
    #[arg(long, value_name = "DN", requires = "password_file")]
    pub(crate) bind_dn: Option<String>,
    /// Read the password from the first line of a file
    #[arg(long, value_name = "FILE", requires = "bind_dn")]
    pub(crate) password_file: Option<PathBuf>,
    /// Ask for TLS on ldap://
    #[arg(long)]
    pub(crate) start_tls: bool,
    /// Trust servers with certificates signed by one of these, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Trust the server whose certificate has this SHA-256 fingerprint
    #[arg(long, value_name = "HEX", conflicts_with = "ca_file")]
    pub(crate) fingerprint: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Generate {
    /// What the entries look like
    #[arg(long, value_enum, default_value_t = Shape::Org)]
    pub(crate) shape: Shape,
    /// Make entries from a plan that has nothing else
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["shape", "suffix"])]
    pub(crate) template: Option<PathBuf>,
    /// Replace a setting of the template
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting, requires = "template")]
    pub(crate) settings: Vec<(String, String)>,
    /// How many, in all
    #[arg(long, value_name = "N")]
    pub(crate) entries: u64,
    /// Where they are
    #[arg(long, value_name = "DN", default_value = "dc=example,dc=com")]
    pub(crate) suffix: String,
    /// What they are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How they are written
    #[arg(long, value_enum, default_value_t = Format::Ldif)]
    pub(crate) format: Format,
    /// Where they go; '-' is standard output [default: -]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Plans that come with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Load, scans alone and at once, search rate, modify rate, both
    MdbPaper,
    /// Queues and transactions of 1000: searches, a mix, modifies
    Dvtds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Below one root, with uid, cn, sn and a carLicense of eight octets
    Flat,
    /// People of 15 attributes in organisational units, and groups of 20
    Org,
}

/// How entries are written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text (RFC 2849)
    Ldif,
    /// LDAP messages with AddRequests, one behind the other
    Ber,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds".to_owned())
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    let some = seconds(text).ok().filter(|time| !time.is_zero());
    some.ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok();
    rate.filter(|rate| *rate > 0.0 && *rate <= 1e9)
        .ok_or_else(|| "expected a number above 0".to_owned())
}
