//! `sapwood.toml`: everything that can be set, with its defaults.

mod moved;
mod reload;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sapwood_ldap::csn::Csn;
use serde::{Deserialize, Serialize, Serializer};

use crate::journal::{JournalSettings, Rotation, WhenFull};
use crate::listen::{ListenUrl, Listener};
use crate::password::{PasswordLimits, STRENGTH_MAX, Work};
use crate::tls::{ClientCertificates, MinVersion};

pub use reload::Reloaded;

/// The name of the configuration file inside a directory's folder.
pub const CONFIG_FILE: &str = "sapwood.toml";
/// What `init` writes; `ADMIN_DN` stands for the administrator's DN as a TOML string.
const TEMPLATE: &str = include_str!("sapwood.toml");

/// The configuration of one directory. Paths are relative to its folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to listen.
    #[serde(default = "default_listen")]
    pub listen: Vec<Listener>,
    /// The server's name among others, as Get Server ID tells it; empty for the host's name.
    #[serde(default)]
    pub server_id: String,
    /// Runtimes that serve connections, each a thread; 0 means one per core, or more of them while the
    /// data take more memory than there is.
    #[serde(default)]
    pub threads: usize,
    /// The administrator, who may do everything.
    pub admin: Admin,
    /// Certificates, and the server's key.
    #[serde(default)]
    pub tls: TlsOptions,
    /// What is allowed to whom, and in which state of a connection.
    #[serde(default)]
    pub access: Access,
    /// What belongs to the schema besides its files.
    #[serde(default)]
    pub schema: SchemaOptions,
    /// What makes it one of several servers of a directory.
    #[serde(default)]
    pub replication: Replication,
    /// The limits that keep the server within its means.
    #[serde(default)]
    pub limits: Limits,
    /// What is known of passwords.
    #[serde(default)]
    pub passwords: Passwords,
    /// Kerberos.
    #[serde(default)]
    pub gssapi: Gssapi,
    /// What becomes of a directory in memory.
    #[serde(default)]
    pub memory: Memory,
    /// What is kept beside the backups.
    #[serde(default)]
    pub archive: Archive,
    /// What is logged.
    #[serde(default)]
    pub log: Log,
}

/// The administrator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// The DN to bind with; it need not be an entry.
    pub dn: String,
    /// The file that holds the hash of the password.
    #[serde(default = "default_password_file")]
    #[serde(serialize_with = "as_shown")]
    pub password_file: PathBuf,
}

/// TLS: the server's certificate, and those of clients. Files are in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// The certificate chain, the server's own certificate first.
    #[serde(serialize_with = "as_shown")]
    pub cert: PathBuf,
    /// The private key.
    #[serde(serialize_with = "as_shown")]
    pub key: PathBuf,
    /// Files that each hold another chain and its key, for clients that ask for a name which that certificate has.
    pub certificates: Vec<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: MinVersion,
    /// The cipher suites that are spoken, the best first; all that are good if there are none.
    pub cipher_suites: Vec<String>,
    /// The authorities that vouch for clients' certificates; empty if none are asked for.
    #[serde(serialize_with = "as_shown")]
    pub client_ca: PathBuf,
    /// What they have revoked; empty if that is not asked for.
    #[serde(serialize_with = "as_shown")]
    pub client_crl: PathBuf,
    /// Whether clients are asked for a certificate, on listeners that do not say it themselves.
    pub client_certificates: ClientCertificates,
    /// Whom a certificate stands for, tried in this order: templates of DNs, or of URLs of searches.
    pub client_identity: Vec<String>,
}

impl TlsOptions {
    /// All files that it names.
    #[must_use]
    pub fn files(&self) -> Vec<&Path> {
        let mut files = vec![self.cert.as_path(), &self.key];
        files.extend(self.certificates.iter().map(PathBuf::as_path));
        files.extend(self.client_ca());
        files.extend(self.client_crl());
        files
    }

    /// What the authorities have revoked.
    #[must_use]
    pub fn client_crl(&self) -> Option<&Path> {
        let path = self.client_crl.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// The authorities that vouch for clients' certificates.
    #[must_use]
    pub fn client_ca(&self) -> Option<&Path> {
        let path = self.client_ca.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }
}

/// What is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Passwords may come over a connection without TLS from another machine.
    pub danger_plaintext_passwords: bool,
}

/// What belongs to the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaOptions {
    /// The attribute options that are recognised (RFC 4512 §2.5) besides language tags and `binary`. One that ends with
    /// a hyphen stands for all that begin so.
    pub attribute_options: Vec<String>,
}

/// A server that is one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Replication {
    /// Its number among them, which stands in the change sequence numbers of its changes; 0 while it is none.
    pub sid: u16,
    /// How many others have to have a change on their disks before its client is told of the success.
    pub acknowledge_peers: u16,
    /// For how many seconds that is waited for; then the success says who is missing.
    pub acknowledge_seconds: u16,
}

impl Default for Replication {
    fn default() -> Replication {
        Replication {
            sid: 0,
            acknowledge_peers: 0,
            acknowledge_seconds: 10,
        }
    }
}

/// Limits; each is named with its unit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at once. When there are as many, one that waits for its peer makes room.
    pub connections_max: usize,
    /// Bytes of one request of a bound user.
    pub message_bytes_max: usize,
    /// Bytes of one request before a successful bind.
    pub message_bytes_max_anonymous: usize,
    /// Requests of one connection that wait for their answers.
    pub operations_max: usize,
    /// Seconds without a request and without an answer under way, after which a connection is closed; 0 means never.
    pub idle_seconds_max: u64,
    /// Seconds that a search waits for a peer that reads none of its entries, before the connection is closed; 0 means
    /// no other limit than `idle_seconds_max`.
    pub unread_seconds_max: u64,
    /// Seconds after which a search under way goes on with the data as they are by then; 0 for each turn.
    pub snapshot_seconds_max: u64,
    /// Seconds in which a peer must take a sixteenth of the answers that are kept for it, when others wait for the
    /// memory; 0 means that nobody is closed for this.
    pub stalled_seconds_max: u64,
    /// Seconds that a TLS handshake may take.
    pub handshake_seconds_max: u64,
    /// Bytes of answers that are kept for one connection before they are written.
    pub output_bytes_max: usize,
    /// Bytes of answers that wait to be written, over all connections.
    pub answers_bytes_max: usize,
    /// Bytes of requests of more than 16 KiB being received, over all connections.
    pub input_bytes_max: usize,
    /// Bytes of updates waiting to be applied, over all connections.
    pub update_queue_bytes_max: usize,
    /// Transactions that one connection has open.
    pub transactions_max: usize,
    /// Updates of one transaction.
    pub transaction_operations_max: usize,
    /// Updates of one eager transaction, each of which is tried with all before it.
    pub eager_operations_max: usize,
    /// Bytes of the updates of one transaction.
    pub transaction_bytes_max: usize,
    /// Bytes of the updates of all open transactions.
    pub open_transactions_bytes_max: usize,
    /// Seconds that a transaction is left alone before it is aborted.
    pub transaction_idle_seconds_max: u64,
    /// Operations of one update request of a bulk update (RFC 4373).
    pub lburp_operations_max: usize,
    /// Passwords that are hashed or checked at once, 19 MiB each, and up to 64 MiB for stored hashes from elsewhere.
    pub hashers_max: usize,
    /// Questions to saslauthd at once, of which each has a thread.
    pub saslauthd_max: usize,
    /// Seconds that one may take.
    pub saslauthd_seconds_max: u64,
    /// Binds from one address that may fail in a minute; 0 means that no other passwords are refused for it.
    pub failed_binds_per_address_max: u32,
    /// Binds from one address in one name that may fail in a minute; 0 means as much.
    pub failed_binds_per_name_max: u32,
    /// Values of userPassword that an entry may have; no more of them are tried.
    pub password_values_max: usize,
    /// Milliseconds that checking a password against all of them may take, estimated from what the stored hashes ask
    /// for.
    pub password_cost_ms_max: u64,
}

impl Limits {
    /// Those of the passwords of an entry.
    #[must_use]
    pub fn passwords(&self) -> PasswordLimits {
        PasswordLimits {
            values_max: self.password_values_max,
            work_max: Work::from_millis(self.password_cost_ms_max),
        }
    }
}

/// What is known of passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Passwords {
    /// The file of those that are known from breaches, lines `SHA1:count` in their order; empty for none.
    #[serde(serialize_with = "as_shown")]
    pub breached_file: PathBuf,
    /// How hard to guess a new one has to be, from 0 (nothing is asked) to 4.
    pub strength_min: u8,
    /// The socket of the saslauthd that is asked about values `{SASL}user`; empty if such are refused.
    #[serde(serialize_with = "as_shown")]
    pub saslauthd: PathBuf,
}

impl Passwords {
    /// The socket of saslauthd.
    #[must_use]
    pub fn saslauthd(&self) -> Option<&Path> {
        let path = self.saslauthd.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }
}

/// Kerberos, by the SASL mechanism GSSAPI.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gssapi {
    /// The service that tickets are for, as `ldap@ldap.example.com`; empty if there is none.
    pub service: String,
    /// The file of its keys.
    #[serde(serialize_with = "as_shown")]
    pub keytab: PathBuf,
}

impl Gssapi {
    /// Whether clients may show tickets.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.service.is_empty()
    }
}

/// A directory in memory (`sapwood init --in-memory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Whether it is written to its file when the server stops.
    pub save: bool,
}

/// The archive: all updates, kept for good, so that a backup can be brought to any moment after it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Archive {
    /// The folder, which must exist; empty if nothing is archived.
    #[serde(serialize_with = "as_shown")]
    pub folder: PathBuf,
    /// After so many seconds, at the latest, an update is in the archive.
    pub seconds_max: u64,
}

/// What is logged: to standard error, and to files of lines of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// One line for each connection, request and result.
    pub access: bool,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: Level,
    /// The file of all that clients ask; empty if there is none.
    #[serde(serialize_with = "as_shown")]
    pub access_file: PathBuf,
    /// The file of binds and of what changes something; empty if there is none.
    #[serde(serialize_with = "as_shown")]
    pub audit_file: PathBuf,
    /// Whether the files have the values that are changed.
    pub audit_values: bool,
    /// What becomes of a line of the audit file when it cannot be written as fast as lines come.
    pub audit_full: WhenFull,
    /// Bytes after which a file is put aside.
    pub rotate_bytes: u64,
    /// Hours after which it is; 0 means never.
    pub rotate_hours: u64,
    /// Files of each kind that were put aside and are kept.
    pub rotated_files_max: usize,
}

impl Log {
    /// Whether anything is logged of what clients ask.
    pub(crate) fn is_of_requests(&self) -> bool {
        let files = [&self.access_file, &self.audit_file];
        self.access || files.iter().any(|file| !file.as_os_str().is_empty())
    }

    /// The files that are written in a directory's folder.
    pub(crate) fn journals(&self, folder: &Path) -> JournalSettings {
        let age = Duration::from_secs(self.rotate_hours.saturating_mul(3600));
        let file = |file: &Path| (!file.as_os_str().is_empty()).then(|| folder.join(file));
        JournalSettings {
            audit: file(&self.audit_file),
            access: file(&self.access_file),
            rotation: Rotation {
                bytes_max: self.rotate_bytes,
                age_max: (!age.is_zero()).then_some(age),
                files_max: self.rotated_files_max,
            },
            audit_full: self.audit_full,
        }
    }
}

/// What flags of the command line set in place of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Where to listen; empty leaves it to the file.
    pub listen: Vec<ListenUrl>,
    /// The certificate chain.
    pub tls_cert: Option<PathBuf>,
    /// The private key.
    pub tls_key: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn override_in(&self, config: &mut Config) {
        if !self.listen.is_empty() {
            config.listen = self.listen.iter().cloned().map(Listener::from).collect();
        }
        if let Some(cert) = &self.tls_cert {
            config.tls.cert.clone_from(cert);
        }
        if let Some(key) = &self.tls_key {
            config.tls.key.clone_from(key);
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What failed.
    Error,
    /// What may become a failure.
    Warn,
    /// What the server does.
    #[default]
    Info,
    /// For finding faults.
    Debug,
    /// For finding faults in detail.
    Trace,
}

/// A path as it is shown: what a command line names need not be Unicode.
fn as_shown<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

fn default_listen() -> Vec<Listener> {
    let url = ListenUrl::Ldap("127.0.0.1".into(), crate::listen::LDAP_PORT);
    vec![url.into()]
}

fn default_password_file() -> PathBuf {
    "admin.password".into()
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            cert: "tls-cert.pem".into(),
            key: "tls-key.pem".into(),
            certificates: Vec::new(),
            min_version: MinVersion::default(),
            cipher_suites: Vec::new(),
            client_ca: PathBuf::new(),
            client_crl: PathBuf::new(),
            client_certificates: ClientCertificates::Never,
            client_identity: vec!["{subject}".into()],
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1000,
            message_bytes_max: 4 << 20,
            message_bytes_max_anonymous: 256 << 10,
            operations_max: 2048,
            idle_seconds_max: 3600,
            unread_seconds_max: 120,
            snapshot_seconds_max: 60,
            stalled_seconds_max: 20,
            handshake_seconds_max: 30,
            output_bytes_max: 64 << 10,
            answers_bytes_max: 6 << 20,
            input_bytes_max: 5 << 20,
            update_queue_bytes_max: 5 << 20,
            transactions_max: 4,
            transaction_operations_max: 10_000,
            eager_operations_max: 256,
            transaction_bytes_max: 4 << 20,
            open_transactions_bytes_max: 6 << 20,
            transaction_idle_seconds_max: 60,
            lburp_operations_max: 1000,
            hashers_max: 1,
            saslauthd_max: 4,
            saslauthd_seconds_max: 5,
            failed_binds_per_address_max: 1200,
            failed_binds_per_name_max: 120,
            password_values_max: 8,
            password_cost_ms_max: 2000,
        }
    }
}

impl Default for Gssapi {
    fn default() -> Self {
        Self {
            service: String::new(),
            keytab: "/etc/krb5.keytab".into(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { save: true }
    }
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            folder: PathBuf::new(),
            seconds_max: 60,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            access: false,
            level: Level::Info,
            access_file: PathBuf::new(),
            audit_file: PathBuf::new(),
            audit_values: false,
            audit_full: WhenFull::Drop,
            rotate_bytes: 100 << 20,
            rotate_hours: 24,
            rotated_files_max: 30,
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source} (is this a folder made by 'sapwood init'?)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not TOML, has an unknown key or a value of the wrong kind.
    #[error("{}:{line}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// Settings that are in force until a restart do not go together with others that were read again.
    #[error("{key}, which needs a restart to change: {reason}")]
    Together {
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl Config {
    /// Reads `sapwood.toml` of the directory in `folder`.
    ///
    /// # Errors
    /// Names the file and, for a wrong key or value, the line.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(CONFIG_FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        Self::parse(&text).map_err(|(line, reason)| Error::Invalid { path, line, reason })
    }

    /// Parses the text of a configuration; an error is a line and what is wrong there.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        moved::refuse(text)?;
        let config: Self = toml::from_str(text).map_err(|error| {
            let Range { start, .. } = error.span().unwrap_or(0..0);
            (
                text[..start.min(text.len())].matches('\n').count() + 1,
                error.message().to_owned(),
            )
        })?;
        config
            .validate()
            .map_err(|(key, reason)| (line_of(text, key), format!("{key}: {reason}")))?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), (&'static str, String)> {
        let limits = &self.limits;
        let at_least = |key, value: usize, least: usize| {
            if value < least {
                Err((key, format!("{value} is too small, at least {least}")))
            } else {
                Ok(())
            }
        };
        at_least("connections_max", limits.connections_max, 1)?;
        at_least("message_bytes_max", limits.message_bytes_max, 16 << 10)?;
        at_least(
            "message_bytes_max_anonymous",
            limits.message_bytes_max_anonymous,
            4 << 10,
        )?;
        at_least("operations_max", limits.operations_max, 1)?;
        at_least("output_bytes_max", limits.output_bytes_max, 4 << 10)?;
        at_least(
            "input_bytes_max",
            limits.input_bytes_max,
            limits.message_bytes_max,
        )?;
        at_least(
            "update_queue_bytes_max",
            limits.update_queue_bytes_max,
            64 << 10,
        )?;
        at_least("lburp_operations_max", limits.lburp_operations_max, 1)?;
        at_least("hashers_max", limits.hashers_max, 1)?;
        at_least("password_values_max", limits.password_values_max, 1)?;
        let cost_ms = usize::try_from(limits.password_cost_ms_max).unwrap_or(usize::MAX);
        at_least("password_cost_ms_max", cost_ms, 100)?;
        let strength = self.passwords.strength_min;
        if strength > STRENGTH_MAX {
            let why = format!("{strength} is too large, at most {STRENGTH_MAX}");
            return Err(("strength_min", why));
        }
        let seconds = usize::try_from(self.archive.seconds_max).unwrap_or(usize::MAX);
        at_least("seconds_max", seconds, 1)?;
        let seconds = usize::try_from(limits.handshake_seconds_max).unwrap_or(usize::MAX);
        at_least("handshake_seconds_max", seconds, 1)?;
        at_least(
            "transaction_idle_seconds_max",
            usize::try_from(limits.transaction_idle_seconds_max).unwrap_or(usize::MAX),
            1,
        )?;
        at_least(
            "answers_bytes_max",
            limits.answers_bytes_max,
            limits.output_bytes_max,
        )?;
        if self.replication.sid > Csn::REPLICA_MAX {
            let most = Csn::REPLICA_MAX;
            return Err(("sid", format!("a replica has a number of at most {most}")));
        }
        if self.replication.acknowledge_peers > 0 && self.replication.sid == 0 {
            let why =
                "no server follows one that is no replica: 'sapwood replica enable' makes it one";
            return Err(("acknowledge_peers", why.into()));
        }
        let log = &self.log;
        let bytes = usize::try_from(log.rotate_bytes).unwrap_or(usize::MAX);
        at_least("rotate_bytes", bytes, 1 << 20)?;
        at_least("rotated_files_max", log.rotated_files_max, 1)?;
        if log.access_file == log.audit_file && !log.access_file.as_os_str().is_empty() {
            return Err(("audit_file", "it is the access_file, too".into()));
        }
        for (key, value) in [
            ("input_bytes_max", limits.input_bytes_max),
            ("update_queue_bytes_max", limits.update_queue_bytes_max),
            (
                "open_transactions_bytes_max",
                limits.open_transactions_bytes_max,
            ),
            ("answers_bytes_max", limits.answers_bytes_max),
        ] {
            if value > u32::MAX as usize {
                return Err((key, "4 GiB and more are not supported".into()));
            }
        }
        Ok(())
    }

    /// Whether any listener asks clients for a certificate.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        let mut listeners = self.listen.iter();
        listeners.any(|listener| {
            let asked = listener.client_certificates;
            asked.unwrap_or(self.tls.client_certificates) != ClientCertificates::Never
        })
    }

    /// Whether settings go together of which some were read at another time than the others.
    pub(crate) fn check_together(&self) -> Result<(), Error> {
        self.validate()
            .map_err(|(key, reason)| Error::Together { key, reason })
    }

    /// The commented file that `init` writes.
    #[must_use]
    pub fn template(admin_dn: &str) -> String {
        TEMPLATE.replace(
            "ADMIN_DN",
            &toml::Value::String(admin_dn.to_owned()).to_string(),
        )
    }
}

/// The number of the line that a key or the head of a table begins, from 1.
fn line_of(text: &str, key: &str) -> usize {
    let mut lines = text.lines();
    let at = lines.position(|line| line.trim_start().trim_start_matches('[').starts_with(key));
    at.map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Config {
        Config::parse("[admin]\ndn = 'cn=admin'").unwrap()
    }

    #[test]
    fn the_template_spells_out_the_defaults() {
        let template = Config::template("cn=admin");
        assert_eq!(Config::parse(&template).unwrap(), defaults());
        // What is commented out is an example that takes the place of the line before: it must parse as well.
        let uncommented = template.replace("listen = [\"ldap://127.0.0.1:389\"]\n#: ", "");
        assert_ne!(uncommented, template);
        let listen = Config::parse(&uncommented).unwrap().listen;
        let asked: Vec<_> = listen
            .iter()
            .map(|known| known.client_certificates)
            .collect();
        assert_eq!(asked, [None, Some(ClientCertificates::Demand)]);
    }

    #[test]
    fn a_dn_with_quotes_survives_the_template() {
        let dn = r#"cn="ad\,min" 'x',dc=example"#;
        assert_eq!(Config::parse(&Config::template(dn)).unwrap().admin.dn, dn);
    }

    #[test]
    fn errors_name_the_line() {
        let (line, reason) =
            Config::parse("[admin]\ndn = 'x'\n[limits]\nconections_max = 3\n").unwrap_err();
        assert_eq!(line, 4);
        assert!(
            reason.contains("conections_max") && reason.contains("connections_max"),
            "{reason}"
        );
        let (line, reason) =
            Config::parse("listen = ['http://x']\n[admin]\ndn = 'x'\n").unwrap_err();
        assert_eq!(line, 1);
        assert!(reason.contains("http://x"), "{reason}");
        let (line, reason) =
            Config::parse("[admin]\ndn = 'x'\n[limits]\n# few\noutput_bytes_max = 3\n")
                .unwrap_err();
        assert_eq!(line, 5);
        assert!(reason.contains("4096"), "{reason}");
    }
}
