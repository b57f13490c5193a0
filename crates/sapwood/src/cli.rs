//! The command line. Each flag is defined here once; help and errors come from it.

pub(crate) mod drive;
pub(crate) mod replica;
pub(crate) mod store;
pub(crate) mod xact;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use sapwood_directory::Partition;
use sapwood_server::listen::ListenUrl;
use sapwood_store::{CommitNo, Until};

use crate::index_spec::IndexSpec;
use drive::{Connect, Format};

/// An LDAP directory server.
#[derive(Debug, Parser)]
#[command(name = "sapwood", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What signals do to a server.
const SIGNALS: &str = "Signals:
  SIGTERM, SIGINT  finish updates under way, for 10 s at most, end searches, and stop
  SIGHUP           read configuration, password and certificates again, as 'sapwood reload' does
  SIGQUIT          end at once with a core dump; as after a crash, nothing that was acknowledged is lost

Others that would end a program, such as SIGUSR1, SIGUSR2, SIGALRM and SIGPIPE, are ignored.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a new directory in an empty or missing folder
    Init(Init),
    /// Add a naming context or list those there are, while no server runs
    Suffix(Suffix),
    /// Load entries, as LDIF or AddRequest messages, while no server runs or over LDAP; '-' is standard input
    Import(Import),
    /// Serve a directory
    #[command(after_help = SIGNALS)]
    Serve(Serve),
    /// Write entries as LDIF to standard output, also while a server runs
    Export(Export),
    /// Show how a search would find its entries, and which indexes would help it, also while a server runs
    Explain(Explain),
    /// List the schemas that a new directory can have by name
    #[command(subcommand)]
    Schema(SchemaAction),
    /// Look at every page and compare every index with the entries; exit status 1 when something is wrong
    Check(Folder),
    /// Show sizes and numbers
    Stat(Folder),
    /// Add, drop or list indexes, also while a server runs
    Index(Index),
    /// Show or change what is configured with the data, also while a server runs
    Config(Configuration),
    /// Set, show, explain or test who may do what, also while a server runs
    Access(Access),
    /// Switch password policies on and off
    Policy(Policy),
    /// Add, list or drop rules that hold of the data, such as unique values, also while a server runs
    Rule(Rule),
    /// Copy a directory to one file, with its configuration and all it takes to have it again, also while a server runs
    Backup(Backup),
    /// Make a directory from a backup
    Restore(Restore),
    /// Let other servers have copies of a directory, and keep copies of what they have
    #[command(subcommand)]
    Replica(replica::Replica),
    /// Make the running server read its configuration and certificates again
    Reload(Folder),
    /// Set the administrator's password
    Passwd(Passwd),
    /// Serve a directory of 10,000 made-up entries to try things on
    Demo(Demo),
    /// Look after a store itself, whatever is in it
    #[command(subcommand)]
    Store(store::Store),
    /// Look after a space of memory-mapped transactions, whatever is in it
    #[command(subcommand)]
    Xact(xact::Xact),
    /// Put load on an LDAP server as a plan says and check every answer; make entries to load
    Drive(Box<drive::Drive>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Folder {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// The folder to make
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// A naming context, such as dc=example,dc=com
    #[arg(long = "suffix", value_name = "DN", required = true)]
    pub(crate) suffixes: Vec<String>,
    /// The administrator [default: cn=admin,<first suffix>]
    #[arg(long, value_name = "DN")]
    pub(crate) admin_dn: Option<String>,
    /// Read the administrator's password from the first line of a file; without it one is generated and printed once
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_password_file: Option<PathBuf>,
    /// Attributes and kinds of index (eq, pres, sub, approx, ord), such as "cn,mail eq,sub"; replaces the usual set
    #[arg(long = "index", value_name = "SPEC")]
    pub(crate) indexes: Vec<IndexSpec>,
    /// Add definitions to the schema: those of a file, a '.schema' file as OpenLDAP has them or LDIF, or those with a
    /// name that 'schema list' shows; may be repeated
    #[arg(long = "schema", value_name = "FILE|NAME")]
    pub(crate) schema_files: Vec<PathBuf>,
    /// Keep the entries in memory only: a server begins with the file "memory", and writes it when it stops unless the
    /// configuration says otherwise; a crash loses what is newer
    #[arg(long)]
    pub(crate) in_memory: bool,
    /// Give each naming context a store of its own, and with it a writer of its own
    #[arg(long)]
    pub(crate) own_stores: bool,
    /// Spread the entries right below DN, with all that is below them, over N stores with a writer each
    #[arg(long = "partition", value_name = "N:DN", value_parser = partition)]
    pub(crate) partitions: Vec<Partition>,
}

fn partition(text: &str) -> Result<Partition, String> {
    text.split_once(':')
        .and_then(|(stores, parent)| {
            Some(Partition {
                parent: parent.trim().to_owned(),
                stores: stores.trim().parse().ok()?,
            })
        })
        .ok_or_else(|| "a number and a DN are wanted, as in 4:ou=people,dc=example,dc=com".into())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Suffix {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What to do
    pub(crate) action: SuffixAction,
    /// The naming context, such as o=example
    #[arg(value_name = "DN", required_if_eq("action", "add"))]
    pub(crate) dn: Option<String>,
    /// Give it a store of its own, and with it a writer of its own
    #[arg(long)]
    pub(crate) own_store: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SuffixAction {
    /// Add a naming context
    Add,
    /// Show all naming contexts
    List,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The folder of the directory, which is left out with --online, then files and pipes
    #[arg(value_name = "DIR FILE", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// How the entries are written
    #[arg(long, value_enum, default_value_t = Format::Ldif)]
    pub(crate) format: Format,
    /// What the entries were exported by: what is only that server's own business is left out
    #[arg(long, value_enum, value_name = "SERVER")]
    pub(crate) from: Option<From>,
    /// Attributes to leave out
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) drop: Vec<String>,
    /// Call an attribute otherwise; may be repeated
    #[arg(long, value_name = "NAME=OTHER", value_parser = renamed)]
    pub(crate) rename: Vec<(String, String)>,
    /// Go on where an import was interrupted: pass over entries that are there already
    #[arg(long = "continue")]
    pub(crate) go_on: bool,
    /// Where bad entries go [default: <first file>.rejected in the current folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) reject_file: Option<PathBuf>,
    /// Memory for sorting, in MiB [default: 256, or a third of what there is]
    #[arg(long = "memory", alias = "memory-mib", value_name = "MIB", value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    pub(crate) memory_mib: Option<u32>,
    /// Add the entries over LDAP to a server that runs, any server
    #[arg(long, value_name = "URL", conflicts_with = "memory_mib")]
    pub(crate) online: Option<String>,
    /// With --online: additions under way on each connection
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) queue: u32,
    /// With --online: whether to send a bulk update (LBURP, RFC 4373) or each addition alone
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Lburp::Auto)]
    pub(crate) lburp: Lburp,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// What entries were exported by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum From {
    /// slapcat
    #[value(name = "openldap")]
    OpenLdap,
    /// db2ldif of 389 Directory Server
    #[value(name = "389ds")]
    Ds389,
    /// ldifde of Active Directory
    #[value(name = "ad")]
    ActiveDirectory,
}

/// A name and another one.
fn renamed(text: &str) -> Result<(String, String), String> {
    let (from, to) = text
        .split_once('=')
        .ok_or("write the name, '=' and the new name")?;
    Ok((from.to_owned(), to.to_owned()))
}

/// When an online import is a bulk update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lburp {
    /// When the server says that it takes one
    Auto,
    Always,
    Never,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Where to listen: ldap://HOST:PORT, ldaps://HOST:PORT or ldapi://%2Fpath; replaces what the configuration says
    #[arg(long, value_name = "URL")]
    pub(crate) listen: Vec<ListenUrl>,
    /// The certificate chain in PEM, in place of the one that the configuration names
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key in PEM, in place of the one that the configuration names
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Only this entry and what is below it
    #[arg(long, value_name = "DN")]
    pub(crate) base: Option<String>,
    /// Only entries that match
    #[arg(long, value_name = "FILTER")]
    pub(crate) filter: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What entries have to match
    #[arg(long, value_name = "FILTER")]
    pub(crate) filter: String,
    /// Where the search begins [default: each naming context]
    #[arg(long, value_name = "DN")]
    pub(crate) base: Option<String>,
    /// How far it goes
    #[arg(long, value_enum, default_value_t = SearchScope::Sub)]
    pub(crate) scope: SearchScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchScope {
    Base,
    One,
    Sub,
    Children,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SchemaAction {
    /// Show their names, and what they are for
    List,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Index {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What to do
    pub(crate) action: IndexAction,
    /// Attributes and kinds of index (eq, pres, sub, approx, ord), such as "cn,mail eq,sub"
    #[arg(value_name = "SPEC", required_if_eq_any([("action", "add"), ("action", "drop")]))]
    pub(crate) specs: Vec<IndexSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexAction {
    /// Build indexes
    Add,
    /// Drop indexes
    Drop,
    /// Show all indexes
    List,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Configuration {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What to do
    pub(crate) action: ConfigAction,
    /// LDIF with changes of entries below cn=config, as ldapmodify takes it; '-' is standard input
    #[arg(value_name = "FILE", required_if_eq("action", "apply"))]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigAction {
    /// Write cn=config as LDIF
    Show,
    /// Change it
    Apply,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Access {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub(crate) action: AccessAction,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum AccessAction {
    /// Put the rules of a file in force, in the place of those there are
    Set {
        /// Rules in the form of slapd.conf ('access to ... by ...'); '-' is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The naming context that they are about; without it they are about all that have none of their own
        #[arg(long, value_name = "DN", conflicts_with = "global")]
        context: Option<String>,
        /// Set the rules of all entries, which come behind those of the naming contexts
        #[arg(long)]
        global: bool,
    },
    /// Write the rules as a file that 'set' takes
    Show,
    /// Tell why somebody may do something or not: every rule that was tried, and the one that decided
    Explain {
        /// Who asks; nobody without it
        #[arg(long = "as", value_name = "DN")]
        identity: Option<String>,
        /// The entry
        #[arg(long, value_name = "DN")]
        entry: String,
        /// The attribute; without it the entry itself, and 'children' is what is directly below
        #[arg(long, value_name = "NAME")]
        attribute: Option<String>,
        /// One value of the attribute; without it the attribute as a whole
        #[arg(long, value_name = "TEXT", requires = "attribute")]
        value: Option<String>,
        /// The right that is asked for: disclose, auth, compare, search, read, add, delete, write or manage
        #[arg(long, value_name = "WORD", default_value = "read")]
        operation: String,
    },
    /// Check expectations: lines 'allow|deny OPERATION WHO ENTRY [ATTRIBUTE [VALUE]]'
    Test {
        /// The expectations; '-' is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Policy {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Switch them on: this entry of class pwdPolicy governs passwords where nothing else says so
    #[arg(long, value_name = "DN", conflicts_with = "off")]
    pub(crate) default: Option<String>,
    /// Switch them off
    #[arg(long)]
    pub(crate) off: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Rule {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub(crate) action: RuleAction,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RuleAction {
    /// Put a rule in force, unless the data are against it: then tell the first hundred places
    #[command(subcommand)]
    Add(AddedRule),
    /// List the rules: of each its name, its kind and the options that it was added with
    List,
    /// Drop a rule
    Drop {
        /// Its name, as 'list' has it
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// What values have to be.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ConstraintTest {
    /// Each value has a match of this regular expression
    #[arg(long, value_name = "PATTERN")]
    pub(crate) regex: Option<String>,
    /// No value has a match of it
    #[arg(long, value_name = "PATTERN")]
    pub(crate) negregex: Option<String>,
    /// No value has more bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u32>,
    /// An attribute has no more values
    #[arg(long, value_name = "VALUES")]
    pub(crate) count: Option<u32>,
    /// Each value is one of the attributes of this LDAP URL, in an entry that it is about; those that have no equality
    /// index get one
    #[arg(long, value_name = "URL")]
    pub(crate) uri: Option<String>,
}

impl ConstraintTest {
    /// The word for it, and what is behind the word.
    pub(crate) fn parts(&self) -> (&'static str, String) {
        let number = |number: &Option<u32>| number.map(|number| number.to_string());
        let given = [
            ("regex", self.regex.clone()),
            ("negregex", self.negregex.clone()),
            ("size", number(&self.size)),
            ("count", number(&self.count)),
            ("uri", self.uri.clone()),
        ];
        let mut given = given.into_iter();
        let given = given.find_map(|(word, value)| Some((word, value?)));
        // One of them is required.
        given.unwrap_or_default()
    }
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum AddedRule {
    /// No two entries have the same value
    Unique {
        /// The attributes whose values are unique; those that have no equality index get one
        #[arg(long, value_name = "NAME,...", required = true, value_delimiter = ',')]
        attributes: Vec<String>,
        /// Only among the entries at and below this one
        #[arg(long, value_name = "DN")]
        base: Option<String>,
        /// What the rule is called; without it 'unique', or with a number behind that if another one is called so
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Values are of some form, or length, or number, or listed elsewhere
    Constraint {
        /// The attributes whose values these are
        #[arg(long, value_name = "NAME,...", required = true, value_delimiter = ',')]
        attributes: Vec<String>,
        /// What they have to be
        #[command(flatten)]
        test: ConstraintTest,
        /// Only of the entries that the base, scope and filter of this LDAP URL are about
        #[arg(long, value_name = "URL")]
        restrict: Option<String>,
        /// What the rule is called; without it 'constraint', or with a number behind that
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Values that name an entry follow it when it gets another name, and vanish with it
    Refint {
        /// The attributes whose values follow; those that have no equality index get one
        #[arg(
            long,
            value_name = "NAME,...",
            value_delimiter = ',',
            default_value = "member,uniqueMember,owner,manager"
        )]
        attributes: Vec<String>,
        /// The name that takes the place of the last value of an attribute, when the entry that it names is deleted;
        /// without it, an entry is not deleted while it is the only value of an attribute that some entry must have
        #[arg(long, value_name = "DN")]
        nothing: Option<String>,
    },
    /// The values of an attribute are sent in an order
    #[command(name = "valsort")]
    ValueSort {
        /// The attribute
        #[arg(long, value_name = "NAME")]
        attribute: String,
        /// Only of the entries at and below this one
        #[arg(long, value_name = "DN")]
        base: String,
        /// alpha-ascend, alpha-descend, numeric-ascend, numeric-descend, or weighted and perhaps one of these behind
        /// it: by the numbers in braces before the values, which are not sent
        #[arg(long, value_name = "ORDER")]
        sort: String,
        /// What the rule is called; without it 'valsort', or with a number behind that
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Entries have memberOf: the groups that name them
    #[command(name = "memberof")]
    MemberOf {
        /// The class of groups
        #[arg(long, value_name = "NAME", default_value = "groupOfNames")]
        class: String,
        /// The attribute of groups that names their members; it gets an equality index if it has none
        #[arg(long, value_name = "NAME", default_value = "member")]
        member: String,
    },
    /// An entry that another one names in an attribute names that one in turn
    Linked {
        /// The attribute that names other entries
        #[arg(long, value_name = "NAME")]
        link: String,
        /// The attribute of these that names the entry in turn
        #[arg(long, value_name = "NAME")]
        managed: String,
    },
    /// Entries that a filter is true of are members of a group
    Automember {
        /// The group, which is to be there
        #[arg(long, value_name = "DN")]
        group: String,
        /// Which entries are members: a filter of attributes and values, with and, or and not
        #[arg(long, value_name = "FILTER")]
        filter: String,
        /// Only entries at and below this one
        #[arg(long, value_name = "DN")]
        base: Option<String>,
        /// The attribute of the group that names its members
        #[arg(long, value_name = "NAME", default_value = "member")]
        member: String,
        /// What the rule is called; without it 'automember', or with a number behind that
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// An entry that a filter is true of has another one made of it, such as a group of its own
    Managed {
        /// The entry that says what is made, of the class mepTemplateEntry
        #[arg(long, value_name = "DN")]
        template: String,
        /// The entry below which others are made
        #[arg(long, value_name = "DN")]
        below: String,
        /// Of which entries: a filter of attributes and values, with and, or and not
        #[arg(long, value_name = "FILTER")]
        filter: String,
        /// Only of entries at and below this one
        #[arg(long, value_name = "DN")]
        base: Option<String>,
        /// What the rule is called; without it 'managed', or with a number behind that
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Entries that have no number get one that is free
    Numbers {
        /// The attributes whose values are numbers; those that have no equality index get one
        #[arg(long, value_name = "NAME,...", required = true, value_delimiter = ',')]
        attributes: Vec<String>,
        /// Which entries get numbers: a filter of attributes and values, with and, or and not
        #[arg(long, value_name = "FILTER")]
        filter: String,
        /// The first number and the last, such as 10000-59999
        #[arg(long, value_name = "FIRST-LAST", value_parser = sapwood_directory::range_of_numbers)]
        range: (u64, u64),
        /// Only entries at and below this one
        #[arg(long, value_name = "DN")]
        base: Option<String>,
        /// What the rule is called; without it 'numbers', or with a number behind that
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Entries of the class dynamicObject end by themselves, unless they are refreshed (RFC 2589)
    Dds {
        /// For how many seconds an entry is refreshed at most, 86400 (a day) to 31557600
        #[arg(long, value_name = "SECONDS")]
        max_ttl: Option<u32>,
        /// For how many seconds it is refreshed at least
        #[arg(long, value_name = "SECONDS")]
        min_ttl: Option<u32>,
        /// How many seconds a new entry lives; without it, as long as it can be refreshed for
        #[arg(long, value_name = "SECONDS")]
        default_ttl: Option<u32>,
        /// How often entries that have ended are deleted, in seconds (3600)
        #[arg(long, value_name = "SECONDS")]
        interval: Option<u32>,
        /// How many seconds later than told an entry is deleted
        #[arg(long, value_name = "SECONDS")]
        tolerance: Option<u32>,
        /// How many such entries there may be
        #[arg(long, value_name = "COUNT")]
        max_objects: Option<u32>,
    },
    /// Groups name the entries that their LDAP URLs find, or have values of these
    Dynlist {
        /// The class of groups
        #[arg(long, value_name = "NAME", default_value = "groupOfURLs")]
        class: String,
        /// The attribute of groups that has their URLs
        #[arg(long, value_name = "NAME", default_value = "memberURL")]
        url: String,
        /// The attribute of groups that names the entries
        #[arg(long, value_name = "NAME", default_value = "member")]
        member: String,
        /// Groups name no entries, but have the attributes that the URLs name, with the values of the entries
        #[arg(long, conflicts_with = "member")]
        list: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Backup {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only what has changed since this backup, full or an increment itself
    #[arg(long, value_name = "BACKUP")]
    pub(crate) since: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) sources: Sources,
}

/// What a store is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct Sources {
    /// A full backup, then increments, each made since the one before: files or, of several stores, folders
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Go on with what the archive in this folder has behind the last of them
    #[arg(long, value_name = "FOLDER")]
    pub(crate) archive: Option<PathBuf>,
    /// How far to go: a moment such as 2026-11-21T18:00:00Z or, of one store, a commit's number [default: the archive's
    /// end]
    #[arg(long, value_name = "WHEN", requires = "archive", value_parser = until)]
    pub(crate) until: Option<Until>,
}

/// The file of the first store in the folder that is a backup of several.
pub(crate) const FIRST_STORE: &str = "data-0";

impl Sources {
    /// Of files that are there and go together.
    pub(crate) fn restore(&self) -> Result<sapwood_store::Restore> {
        let mut files = self.files.iter();
        let first = files.next().cloned().unwrap_or_default();
        for file in &self.files {
            if !file.exists() {
                bail!("{} is no backup: no such file", file.display());
            }
            if file.is_dir() && !file.join(FIRST_STORE).exists() {
                bail!(
                    "{} is not a backup: it is a folder without a file '{FIRST_STORE}'",
                    file.display()
                );
            }
            if file.is_dir() != first.is_dir() {
                bail!(
                    "{} and {} do not go together: one is of several stores, the other of one; name the files of that store in the folders",
                    first.display(),
                    file.display()
                );
            }
        }
        let restore = files.fold(
            sapwood_store::Restore::of(first),
            sapwood_store::Restore::increment,
        );
        Ok(match &self.archive {
            Some(archive) => restore.archive(archive, self.until.unwrap_or(Until::End)),
            None => restore,
        })
    }
}

fn until(text: &str) -> Result<Until, String> {
    if let Ok(commit) = text.parse() {
        return Ok(Until::Commit(CommitNo(commit)));
    }
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|error| format!("neither the number of a commit nor a moment: {error}"))?;
    Ok(Until::Time(time.into()))
}

#[derive(Debug, clap::Args)]
pub(crate) struct Passwd {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Read the new password from the first line of a file ('-' is standard input); without it one is generated and
    /// printed once
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Run the searches that are suggested, print the answers and end
    #[arg(long)]
    pub(crate) once: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_documented_lines_parse() {
        for line in [
            "sapwood init d --suffix dc=example,dc=com --suffix o=x --admin-dn cn=root --admin-password-file f --index uid_eq --index cn,mail_eq,sub",
            "sapwood init d --suffix dc=x --suffix o=y --own-stores --partition 4:dc=x --partition 2:ou=people,o=y",
            "sapwood suffix d add o=x --own-store",
            "sapwood suffix d list",
            "sapwood import d a.ldif b.ldif -",
            "sapwood import d --format ber --continue --memory 64 --reject-file r a.ber",
            "sapwood import --online ldap://h --bind-dn cn=x --password-file f --queue 10 --lburp never a.ldif",
            "sapwood serve d --listen ldap://127.0.0.1:389 --listen ldaps://[::]:636 --listen ldapi://%2Frun%2Fsapwood.sock",
            "sapwood serve d --tls-cert c --tls-key k",
            "sapwood export d --base dc=x --filter (cn=*)",
            "sapwood check d",
            "sapwood stat d",
            "sapwood index d add cn_eq",
            "sapwood index d drop cn_eq,sub",
            "sapwood index d list",
            "sapwood config d show",
            "sapwood config d apply f",
            "sapwood backup d f",
            "sapwood restore d f",
            "sapwood replica enable d",
            "sapwood replica enable d --sid 4095",
            "sapwood replica suspend d --rid 1",
            "sapwood replica resume d --rid 1",
            "sapwood replica promote d --rid 999 --danger-lose-changes",
            "sapwood reload d",
            "sapwood passwd d",
            "sapwood demo --once",
            "sapwood drive ldap://h p --set a=1 --set b=2 --connections 1,2,4 --queue 10 --rate 1e3 --duration 2.5 --ramp-up 1",
            "sapwood drive ldap://h --preset mdb-paper --bind-dn cn=x --password-file f --server-pid 1 --json a --html b --csv c",
            "sapwood drive ldaps://h - --transaction 5 --threads 2 --seed 3 --phase x --fingerprint 00",
            "sapwood drive generate --shape flat --entries 5 --format ber --output f",
            "sapwood drive generate --template f --entries 5 --set a=b",
        ] {
            let words = line.split(' ').map(|word| word.replace('_', " "));
            Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert!(
            Cli::try_parse_from(["sapwood", "init", "d"]).is_err(),
            "a suffix is required"
        );
        assert!(
            Cli::try_parse_from([
                "sapwood",
                "init",
                "d",
                "--suffix",
                "o=x",
                "--partition",
                "o=x"
            ])
            .is_err(),
            "a number of stores is required"
        );
        assert!(
            Cli::try_parse_from(["sapwood", "index", "d", "add"]).is_err(),
            "what to add is required"
        );
        assert!(
            Cli::try_parse_from(["sapwood", "drive", "ldap://h"]).is_err(),
            "a plan is required"
        );
    }
}
