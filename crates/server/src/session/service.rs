//! What all sessions share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sapwood_directory::engine::Engine;
use sapwood_directory::{Directory, LocalConfig};

use super::Completions;
use crate::admission::Connections;
use crate::closing::CloseLog;
use crate::config::{Config, Flags, Reloaded};
use crate::failed_binds::FailedBinds;
use crate::journal::JournalWriters;
use crate::memory::Memory;
use crate::password::HasherPool;
use crate::settings::{Settings, SettingsError, tls_files};
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
    /// The server's name, as Get Server ID has it.
    pub(crate) name: String,
    pub(crate) connections: Arc<Connections>,
    pub(crate) close_log: CloseLog,
    pub(crate) journals: JournalWriters,
    /// Whether a server is being sent all data.
    pub(crate) backing_up: Arc<AtomicBool>,
    /// The configuration that the server was started with, some of which stays in force until it stops.
    started: Config,
    settings: RwLock<Arc<Settings>>,
    /// Where those in force are, so that nobody who holds them has to write to memory that all share.
    settings_place: AtomicPtr<Settings>,
    flags: Flags,
}

/// What a service starts with.
pub(crate) struct Parts<E: Engine> {
    pub(crate) folder: PathBuf,
    pub(crate) directory: Directory<E>,
    pub(crate) writer: Writer<Completions<E>>,
    pub(crate) hashers: HasherPool,
    pub(crate) preparers: Workers,
    pub(crate) tls: Option<Tls>,
    pub(crate) journals: JournalWriters,
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
            name: server_name(&settings.config),
            memory: Memory::new(&settings.config.limits),
            connections: Arc::new(Connections::new()),
            close_log: CloseLog::default(),
            journals: parts.journals,
            backing_up: Arc::default(),
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
