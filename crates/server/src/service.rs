//! What all sessions share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sapwood_directory::engine::Engine;
use sapwood_directory::schema::{NormalDn, Schema};
use sapwood_directory::{Directory, LocalConfig};
use sapwood_ldap::controls::ControlSet;

use crate::admission::Connections;
use crate::auth::ClientIdentity;
use crate::closing::CloseLog;
use crate::config::{self, Config, Extensions, Flags, Reloaded};
use crate::failed_binds::FailedBinds;
use crate::memory::Memory;
use crate::password::{HasherPool, PasswordError, StoredPassword};
use crate::session::Completions;
use crate::session::controls::spoken;
use crate::tls::{self, Tls};
use crate::workers::Workers;
use crate::writer::Writer;

/// The directory being served and everything that sessions share.
pub(crate) struct Service<E: Engine> {
    pub(crate) folder: PathBuf,
    pub(crate) directory: Directory<E>,
    pub(crate) writer: Writer<Completions<E>>,
    pub(crate) hashers: HasherPool,
    pub(crate) failed_binds: FailedBinds,
    /// The threads that make long requests ready.
    pub(crate) preparers: Workers,
    /// `None` when there is neither certificate nor key.
    pub(crate) tls: Option<Tls>,
    pub(crate) memory: Memory,
    /// As they were at the start: the root DSE says so.
    pub(crate) extensions: Extensions,
    /// The controls that are spoken with them.
    pub(crate) spoken: ControlSet,
    /// The server's name, as Get Server ID has it.
    pub(crate) name: String,
    pub(crate) connections: Arc<Connections>,
    pub(crate) close_log: CloseLog,
    /// The configuration that the server was started with, some of which stays in force until it stops.
    started: Config,
    settings: RwLock<Arc<Settings>>,
    /// Where those in force are, so that nobody who holds them has to write to memory that all share.
    settings_place: AtomicPtr<Settings>,
    flags: Flags,
}

/// The part of the configuration that `reload` changes, ready for use.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The administrator's DN in its normal form.
    pub(crate) admin_name: NormalDn,
    /// The administrator's stored password.
    pub(crate) admin_password: Vec<u8>,
    /// Whom certificates of clients stand for.
    pub(crate) client_identities: Vec<ClientIdentity>,
    /// The file of passwords that are known from breaches.
    pub(crate) breached_passwords: Option<Arc<Path>>,
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// Certificate or key.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The administrator's DN.
    #[error("admin.dn '{dn}' is not a DN: {reason}")]
    AdminDn {
        /// What is configured.
        dn: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificates are asked for that nobody could vouch for.
    #[error(
        "clients are asked for certificates: tls.client_ca must name a file with the authorities that vouch for them"
    )]
    NoAuthorities,
    /// Whom certificates stand for.
    #[error("tls.client_identity: '{template}': {reason}")]
    ClientIdentity {
        /// What is configured.
        template: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The administrator's password.
    #[error("{}: {source} (sapwood passwd DIR makes a new one)", path.display())]
    AdminPassword {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// What the administrator's password file holds.
    #[error("{}: {reason} (sapwood passwd DIR makes a new one)", path.display())]
    StoredPassword {
        /// The file.
        path: PathBuf,
        /// Why it is none that could be used.
        reason: PasswordError,
    },
}

impl Settings {
    pub(crate) fn new(
        folder: &Path,
        config: Config,
        schema: &Schema,
    ) -> Result<Self, SettingsError> {
        let mut admin_name = NormalDn::new();
        let wrong = |reason: String| SettingsError::AdminDn {
            dn: config.admin.dn.clone(),
            reason,
        };
        admin_name
            .parse(schema, config.admin.dn.as_bytes())
            .map_err(|error| wrong(error.to_string()))?;
        if admin_name.is_empty() {
            return Err(wrong("it is empty".into()));
        }
        let path = folder.join(&config.admin.password_file);
        let stored = std::fs::read(&path).map_err(|source| SettingsError::AdminPassword {
            path: path.clone(),
            source,
        })?;
        let admin_password = stored.trim_ascii().to_vec();
        StoredPassword::parse(&admin_password)
            .map_err(|reason| SettingsError::StoredPassword { path, reason })?;
        if config.asks_for_certificates() && config.tls.client_ca().is_none() {
            return Err(SettingsError::NoAuthorities);
        }
        let templates = config.tls.client_identity.iter();
        let client_identities = templates.map(|template| {
            ClientIdentity::parse(schema, template).map_err(|reason| {
                let template = template.clone();
                SettingsError::ClientIdentity { template, reason }
            })
        });
        let client_identities = client_identities.collect::<Result<_, _>>()?;
        let breached = config.passwords.breached_file.as_path();
        let has_breached = !breached.as_os_str().is_empty();
        let breached_passwords = has_breached.then(|| Arc::from(folder.join(breached)));
        Ok(Self {
            config,
            admin_name,
            admin_password,
            client_identities,
            breached_passwords,
        })
    }
}

impl Settings {
    /// Whether a DN is the administrator's.
    pub(crate) fn is_admin(&self, schema: &Schema, dn: &str) -> bool {
        let mut name = NormalDn::new();
        name.parse(schema, dn.as_bytes()).is_ok() && name == self.admin_name
    }
}

/// What a service starts with.
pub(crate) struct Parts<E: Engine> {
    pub(crate) folder: PathBuf,
    pub(crate) directory: Directory<E>,
    pub(crate) writer: Writer<Completions<E>>,
    pub(crate) hashers: HasherPool,
    pub(crate) preparers: Workers,
    pub(crate) tls: Option<Tls>,
    pub(crate) settings: Settings,
    pub(crate) flags: Flags,
}

impl<E: Engine> Service<E> {
    pub(crate) fn new(parts: Parts<E>) -> Self {
        let settings = Arc::new(parts.settings);
        apply(&settings, &parts.folder, &parts.directory);
        Self {
            folder: parts.folder,
            directory: parts.directory,
            writer: parts.writer,
            hashers: parts.hashers,
            failed_binds: FailedBinds::default(),
            preparers: parts.preparers,
            tls: parts.tls,
            extensions: settings.config.extensions,
            spoken: spoken(settings.config.extensions),
            name: server_name(&settings.config),
            memory: Memory::new(&settings.config.limits),
            connections: Arc::new(Connections::new()),
            close_log: CloseLog::default(),
            started: settings.config.clone(),
            settings_place: AtomicPtr::new(place(&settings)),
            settings: RwLock::new(settings),
            flags: parts.flags,
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts the settings in force in the place of those that were; once for each burst.
    pub(crate) fn renew(&self, settings: &mut Arc<Settings>) {
        // As long as the old ones are held, no others can be in their place.
        if self.settings_place.load(Ordering::Acquire) != place(settings) {
            *settings = self.settings();
        }
    }

    /// Reads configuration and certificates again. On an error everything stays as it was.
    pub(crate) fn reload(&self) -> Result<Reloaded, SettingsError> {
        let mut wanted = Config::load(&self.folder)?;
        self.flags.override_in(&mut wanted);
        let running = wanted.running_since(&self.started);
        running.check_together()?;
        let mut reloaded = Reloaded::new(&self.settings().config, &running, &wanted);
        let settings = Settings::new(&self.folder, running, &self.directory.schema())?;
        let files = tls_files(&self.folder, &settings.config);
        match &self.tls {
            Some(tls) => tls.reload(&files)?,
            None if files.cert.exists() || files.key.exists() => {
                let without = "the certificate (there was none when the server was started)";
                reloaded.at_restart.push(without.into());
            }
            None => {}
        }
        apply(&settings, &self.folder, &self.directory);
        let settings = Arc::new(settings);
        let mut in_force = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        self.settings_place
            .store(place(&settings), Ordering::Release);
        *in_force = settings;
        Ok(reloaded)
    }

    /// Reads certificates again whose files are not as they were when they had these stamps. On an error those that
    /// were read before stay in use.
    pub(crate) fn renew_certificates(&self, known: &mut tls::Stamps) {
        let Some(tls) = &self.tls else {
            return;
        };
        let files = tls_files(&self.folder, &self.settings().config);
        match tls.renew(&files, known) {
            None => {}
            Some(Ok(())) => {
                tracing::info!("the files of certificates have changed, and were read again")
            }
            Some(Err(error)) => tracing::error!(
                "the files of certificates have changed, and cannot be used: {error}. Those that were read before stay in \
                 use"
            ),
        }
    }
}

/// The files that TLS needs.
pub(crate) fn tls_files(folder: &Path, config: &Config) -> tls::Files {
    tls::Files {
        cert: folder.join(&config.tls.cert),
        key: folder.join(&config.tls.key),
        client_ca: config.tls.client_ca().map(|path| folder.join(path)),
    }
}

/// The server's name among others: as configured, or the host's.
fn server_name(config: &Config) -> String {
    if !config.server_id.is_empty() {
        return config.server_id.clone();
    }
    let host = rustix::system::uname();
    host.nodename().to_string_lossy().into_owned()
}

/// Where settings are, to be compared.
fn place(settings: &Arc<Settings>) -> *mut Settings {
    Arc::as_ptr(settings).cast_mut()
}

/// Tells the directory what `cn=config` shows of this machine's configuration.
fn apply<E: Engine>(settings: &Settings, folder: &Path, directory: &Directory<E>) {
    directory.set_local_config(LocalConfig {
        administrator: settings.config.admin.dn.clone(),
        folder: folder.display().to_string(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_name_has_the_host_s() {
        let mut config = toml::from_str::<Config>(&Config::template("cn=admin")).unwrap();
        assert!(!server_name(&config).is_empty());
        config.server_id = "one".into();
        assert_eq!(server_name(&config), "one");
    }
}
