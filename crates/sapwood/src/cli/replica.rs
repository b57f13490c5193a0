//! What `sapwood replica` takes.

use std::path::PathBuf;

use clap::Subcommand;
use sapwood_replication::Resolution;

use super::Folder;

#[derive(Debug, Subcommand)]
pub(crate) enum Replica {
    /// Number the changes of this server, and provide them to consumers of RFC 4533, while no server runs
    Enable(EnableReplica),
    /// Let another server join: prints a token, which 'sapwood replica join' (or 'add --token') takes there within an
    /// hour, once
    Invite(Invite),
    /// Make a directory that has what the one has that has made a token, as a copy, or taking updates as well
    Join(Join),
    /// Keep a copy of what another server has, which is read-only here, or take updates on both
    Add(AddAgreement),
    /// List the servers that this one copies from
    List(Folder),
    /// Tell what the copies are doing
    Status(ReplicaStatus),
    /// Compare a copy with its provider, also while both change: exit status 0 if nothing differs, 1 otherwise
    Verify(Verify),
    /// List the updates that were made here or elsewhere, and have lost against others that did not know of them
    Conflicts(ReplicaStatus),
    /// Make an update again that has lost, as a new one
    Restore(RestoreChange),
    /// Stop copying from a server: entries stay, and can be updated
    Remove(OneAgreement),
    /// Copy nothing from a server for the time being: entries stay, and are read-only
    Suspend(OneAgreement),
    /// Go on where a copy was suspended
    Resume(OneAgreement),
    /// Take updates here in the place of the provider, if the copy has all that the provider has
    Promote(Promote),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddAgreement {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The server to copy from, such as ldaps://provider.example.com
    #[arg(
        value_name = "URL",
        required_unless_present = "token",
        conflicts_with = "token"
    )]
    pub(crate) url: Option<String>,
    /// What 'sapwood replica invite' has printed there, in the place of URL, --bind-dn and --password-file
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["bind_dn", "password_file", "ca_file", "start_tls"])]
    pub(crate) token: Option<String>,
    /// The number of this agreement among those of the directory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=999))]
    pub(crate) rid: u16,
    /// Who binds there: somebody who may read everything
    #[arg(long, value_name = "DN", required_unless_present = "token")]
    pub(crate) bind_dn: Option<String>,
    /// A file whose first line is their password, and that stays where it is
    #[arg(long, value_name = "FILE", required_unless_present = "token")]
    pub(crate) password_file: Option<PathBuf>,
    /// Take updates here as well, and weigh what comes against them: on servers that are replicas of their own numbers
    #[arg(long)]
    pub(crate) multi_provider: bool,
    /// What of an entry loses against a later change there: the entry, or single values; all servers say the same, and
    /// 'values' is for Sapwoods alone
    #[arg(long, value_enum, default_value_t = EntryResolution::Entry, requires = "multi_provider")]
    pub(crate) resolution: EntryResolution,
    /// Make updates of what is copied there for who asks here, in their name, instead of telling them where to ask
    #[arg(long, conflicts_with_all = ["multi_provider", "token"])]
    pub(crate) forward: bool,
    /// What is copied [default: the naming context, if there is one only]
    #[arg(long, value_name = "DN")]
    pub(crate) base: Option<String>,
    /// Trust servers whose certificates these authorities have signed
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Protect a connection to ldap:// with TLS
    #[arg(long)]
    pub(crate) start_tls: bool,
    /// Ask again once in so many seconds, instead of staying connected
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) every: Option<u32>,
    /// Let the password go over the network for all to read
    #[arg(long)]
    pub(crate) danger_plaintext: bool,
}

/// What of an entry loses against a later change that did not know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EntryResolution {
    Entry,
    Values,
}

impl From<EntryResolution> for Resolution {
    fn from(resolution: EntryResolution) -> Resolution {
        match resolution {
            EntryResolution::Entry => Resolution::Entry,
            EntryResolution::Values => Resolution::Values,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Invite {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Where the other server reaches this one, ldap://HOST:PORT (with StartTLS) or ldaps://HOST:PORT [default: the
    /// first of 'listen' in sapwood.toml, ldaps before others]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The number that its changes bear, if it is no replica yet
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub(crate) sid: u16,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// The folder to make
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// What 'sapwood replica invite' has printed there
    #[arg(value_name = "TOKEN")]
    pub(crate) token: String,
    /// Take no updates here
    #[arg(long, conflicts_with = "resolution")]
    pub(crate) read_only: bool,
    /// What of an entry loses against a later change, if both take updates [default: as that server does, 'entry' if it
    /// takes those of nobody yet]
    #[arg(long, value_enum)]
    pub(crate) resolution: Option<EntryResolution>,
    /// A number for its own changes, so that it takes updates, and others can copy from it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub(crate) sid: Option<u16>,
    /// The DN of this server's administrator [default: cn=admin before the first naming context]
    #[arg(long, value_name = "DN")]
    pub(crate) admin_dn: Option<String>,
    /// The administrator's password is the first line of this file, '-' for standard input; without it one is made up
    /// and printed
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_password_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplicaStatus {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreChange {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The number of the update, as 'sapwood replica conflicts' has it in brackets
    #[arg(value_name = "CSN")]
    pub(crate) change: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// The folder of the copy
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The number of the agreement, if there are several
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=999))]
    pub(crate) rid: Option<u16>,
    /// A line of JSON for each entry that differs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneAgreement {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The number of the agreement
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=999))]
    pub(crate) rid: u16,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Promote {
    #[command(flatten)]
    pub(crate) agreement: OneAgreement,
    /// Do without changes that the copy lacks, or may lack when the provider does not answer
    #[arg(long)]
    pub(crate) danger_lose_changes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EnableReplica {
    /// The folder of the directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The number of this server among all that have the same directory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub(crate) sid: u16,
}
