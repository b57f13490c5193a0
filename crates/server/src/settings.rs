//! The part of the configuration that may change while the server runs, ready for use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sapwood_directory::schema::{NormalDn, Schema};

use crate::client_identity::ClientIdentity;
use crate::config::{self, Config};
#[cfg(feature = "gssapi")]
use crate::kerberos;
use crate::password::{PasswordError, Saslauthd, StoredPassword};
use crate::tls;

/// The part of the configuration that `reload` changes, ready for use.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// Whether anything is logged of what clients ask.
    pub(crate) is_logged: bool,
    /// The administrator's DN in its normal form.
    pub(crate) admin_name: NormalDn,
    /// The administrator's stored password.
    pub(crate) admin_password: Vec<u8>,
    /// Whom certificates of clients stand for.
    pub(crate) client_identities: Vec<ClientIdentity>,
    /// The file of passwords that are known from breaches.
    pub(crate) breached_passwords: Option<Arc<Path>>,
    /// Who is asked about passwords that another program knows.
    pub(crate) saslauthd: Option<Arc<Saslauthd>>,
    /// Who takes Kerberos tickets.
    #[cfg(feature = "gssapi")]
    pub(crate) gssapi: Option<Arc<kerberos::Acceptor>>,
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
    /// Kerberos.
    #[error("gssapi.service '{service}': {reason}")]
    Gssapi {
        /// What is configured.
        service: String,
        /// Why no tickets can be taken.
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
        let saslauthd = config.passwords.saslauthd().map(|socket| {
            Arc::new(Saslauthd {
                socket: folder.join(socket),
                time_max: Duration::from_secs(config.limits.saslauthd_seconds_max.max(1)),
            })
        });
        #[cfg(feature = "gssapi")]
        let gssapi = acceptor(folder, &config.gssapi)?;
        #[cfg(not(feature = "gssapi"))]
        if config.gssapi.is_on() {
            return Err(SettingsError::Gssapi {
                service: config.gssapi.service,
                reason: "this build has no Kerberos: it takes cargo's --features gssapi".into(),
            });
        }
        Ok(Self {
            is_logged: config.log.is_of_requests(),
            config,
            admin_name,
            admin_password,
            client_identities,
            breached_passwords,
            saslauthd,
            #[cfg(feature = "gssapi")]
            gssapi,
        })
    }

    /// Whether a DN is the administrator's.
    pub(crate) fn is_admin(&self, schema: &Schema, dn: &str) -> bool {
        let mut name = NormalDn::new();
        name.parse(schema, dn.as_bytes()).is_ok() && name == self.admin_name
    }
}

/// Who takes Kerberos tickets, if somebody is to.
#[cfg(feature = "gssapi")]
fn acceptor(
    folder: &Path,
    config: &config::Gssapi,
) -> Result<Option<Arc<kerberos::Acceptor>>, SettingsError> {
    if !config.is_on() {
        return Ok(None);
    }
    let keytab = folder.join(&config.keytab);
    let acceptor = kerberos::Acceptor::new(&config.service, &keytab);
    let acceptor = acceptor.map_err(|error| SettingsError::Gssapi {
        service: config.service.clone(),
        reason: format!("{error} (gssapi.keytab: {})", keytab.display()),
    })?;
    Ok(Some(Arc::new(acceptor)))
}

/// What TLS is made of.
pub(crate) fn tls_files(folder: &Path, config: &Config) -> tls::Files {
    tls::Files {
        cert: folder.join(&config.tls.cert),
        key: folder.join(&config.tls.key),
        others: config
            .tls
            .certificates
            .iter()
            .map(|path| folder.join(path))
            .collect(),
        client_ca: config.tls.client_ca().map(|path| folder.join(path)),
        client_crl: config.tls.client_crl().map(|path| folder.join(path)),
        policy: tls::Policy {
            min_version: config.tls.min_version,
            cipher_suites: config.tls.cipher_suites.clone(),
        },
    }
}
