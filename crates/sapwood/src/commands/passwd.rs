//! `sapwood passwd`: the administrator's password.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sapwood_server::password::{self, PASSWORD_BYTES_MAX, Password};
use sapwood_server::{Config, admin};

use crate::cli::Passwd;
use crate::output::{self, Output};

pub(crate) fn run(args: &Passwd, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    match &args.password_file {
        Some(file) => {
            StoredPassword::write(&args.folder, &config, &read(file)?)?.put_in_place()?;
            out.say(format_args!("Administrator:  {}", config.admin.dn));
        }
        None => {
            let password = generate(out, "--password-file")?;
            let stored = StoredPassword::write(&args.folder, &config, &password)?;
            // A password that nobody has seen would lock everybody out.
            show(&config.admin.dn, &password, out).map_err(|error| {
                anyhow!("the password could not be shown, and the old one stays: {error}")
            })?;
            let placed = stored.put_in_place();
            placed.context("the password above was not set, and the old one stays")?;
        }
    }
    let told = admin::ask(&args.folder, &["reload"], |_| ());
    let told = told.context(
        "the new password is stored, but the running server could not be told of it; 'sapwood reload' does that",
    );
    if told?.is_some() {
        out.say("The running server uses it from now on.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes up a password, for somebody who will see it. `flag` names the file of one's own instead.
pub(crate) fn generate(out: &Output, flag: &str) -> Result<Password> {
    ensure!(
        !out.is_null(),
        "a generated password is shown on standard output, which is closed or {}: name a file with the password by {flag}",
        output::NULL_DEVICE
    );
    Ok(password::generate())
}

fn show(admin_dn: &str, password: &[u8], out: &mut Output) -> io::Result<()> {
    writeln!(out, "Administrator:  {admin_dn}")?;
    let password = String::from_utf8_lossy(password);
    writeln!(out, "Password:       {password}   (shown this once)")?;
    out.flush()
}

/// Reads a password: the first line of a file, '-' is standard input.
pub(crate) fn read(file: &Path) -> Result<Password> {
    let name = || file.display().to_string();
    let mut text = Password::new(Vec::with_capacity(PASSWORD_BYTES_MAX + 2));
    let limit = PASSWORD_BYTES_MAX as u64 + 2;
    if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut text)?;
    } else {
        fs::File::open(file)
            .with_context(name)?
            .take(limit)
            .read_to_end(&mut text)
            .with_context(name)?;
    }
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.len() > PASSWORD_BYTES_MAX {
        bail!(
            "{}: the first line must be a password of 1 to {PASSWORD_BYTES_MAX} bytes",
            name()
        );
    }
    password::check_new(line).with_context(name)?;
    Ok(Password::new(line.to_vec()))
}

/// The hash of a password in a file beside the one that counts, which is removed unless it takes that one's place.
pub(crate) struct StoredPassword {
    path: PathBuf,
    new: PathBuf,
}

impl StoredPassword {
    pub(crate) fn write(folder: &Path, config: &Config, password: &[u8]) -> Result<Self> {
        let path = folder.join(&config.admin.password_file);
        let new = path.with_extension("new");
        let this = Self { path, new };
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&this.new)?;
            file.write_all(&password::hash(password))?;
            file.write_all(b"\n")?;
            file.sync_all()
        };
        write().with_context(|| this.new.display().to_string())?;
        Ok(this)
    }

    /// The one that reads the file finds the old password or the new one.
    pub(crate) fn put_in_place(self) -> Result<()> {
        let put = || {
            fs::rename(&self.new, &self.path)?;
            let folder = self.path.parent().unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        put().with_context(|| self.path.display().to_string())
    }
}

impl Drop for StoredPassword {
    fn drop(&mut self) {
        // Once it is in place there is nothing of that name.
        let _ = fs::remove_file(&self.new);
    }
}
