//! `sapwood passwd`: the administrator's password.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_server::password::{self, PASSWORD_BYTES_MAX, Password};
use sapwood_server::{Config, admin};

use crate::cli::Passwd;

pub(crate) fn run(args: &Passwd) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let (password, generated) = match &args.password_file {
        Some(file) => (read(file)?, false),
        None => (password::generate(), true),
    };
    store(&args.folder, &config, &password)?;
    println!("Administrator:  {}", config.admin.dn);
    if generated {
        println!(
            "Password:       {}   (shown this once)",
            String::from_utf8_lossy(&password)
        );
    }
    if admin::ask(&args.folder, &["reload"], |_| ())?.is_some() {
        println!("The running server uses it from now on.");
    }
    Ok(ExitCode::SUCCESS)
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
    Ok(Password::new(line.to_vec()))
}

/// Replaces the stored password; whoever reads the file finds the old or the new one.
pub(crate) fn store(folder: &Path, config: &Config, password: &[u8]) -> Result<()> {
    let path = folder.join(&config.admin.password_file);
    let fresh = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&password::hash(password))?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&fresh, &path)
    };
    write().with_context(|| path.display().to_string())
}
