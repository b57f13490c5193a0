//! `sapwood init`: a new directory.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use sapwood_directory::Directory;
use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::NamedSchema;
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::password::Password;
use sapwood_server::{Config, tls};

use crate::cli::Init;
use crate::commands::passwd::{self, StoredPassword};
use crate::output::Output;
use crate::{index_spec, open};

/// What `init` has to tell.
pub(crate) struct Made {
    pub(crate) admin_dn: String,
    pub(crate) fingerprint: String,
}

pub(crate) fn run(args: &Init, out: &mut Output) -> Result<ExitCode> {
    let Some(file) = &args.admin_password_file else {
        let password = passwd::generate(out, "--admin-password-file")?;
        make(args, &password, |made| {
            // A directory whose password nobody has seen is of no use to anybody.
            tell(args, made, Some(&password), out).map_err(|error| {
                anyhow!("the password could not be shown, and nothing was made: {error}")
            })
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let made = make(args, &passwd::read(file)?, |_| Ok(()))?;
    // It is made, whether that can be told or not.
    let _ = tell(args, &made, None, out);
    Ok(ExitCode::SUCCESS)
}

fn tell(
    args: &Init,
    made: &Made,
    generated: Option<&Password>,
    out: &mut Output,
) -> io::Result<()> {
    let folder = args.folder.display();
    writeln!(out, "Made {folder} for {}", args.suffixes.join(", "))?;
    writeln!(out, "Administrator:    {}", made.admin_dn)?;
    if let Some(password) = generated {
        writeln!(
            out,
            "Password:         {}   (shown this once; 'sapwood passwd' sets a new one)",
            String::from_utf8_lossy(password)
        )?;
    }
    writeln!(out, "TLS certificate:  self-signed, SHA-256 fingerprint")?;
    writeln!(out, "  {}", made.fingerprint)?;
    writeln!(
        out,
        "Next: 'sapwood import {folder} FILE.ldif', then 'sapwood serve {folder}'"
    )?;
    out.flush()
}

/// Makes the folder and all that is in it, and does `then`; what was begun is taken away again when something fails.
pub(crate) fn make(
    args: &Init,
    password: &[u8],
    then: impl FnOnce(&Made) -> Result<()>,
) -> Result<Made> {
    let folder = args.folder.as_path();
    let existed = folder.exists();
    if existed
        && fs::read_dir(folder)
            .with_context(|| folder.display().to_string())?
            .next()
            .is_some()
    {
        bail!(
            "{} is not empty: init makes a new directory in an empty or missing folder",
            folder.display()
        );
    }
    let made = fill(folder, args, password).and_then(|made| then(&made).map(|()| made));
    if made.is_err() {
        if existed {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let _ = if path.is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
            }
        } else {
            let _ = fs::remove_dir_all(folder);
        }
    }
    made
}

/// The texts of schema files, each with its name, and of schemas that are called so.
fn read_all(files: &[PathBuf]) -> Result<Vec<(String, String)>> {
    let read = |file: &PathBuf| {
        let name = file.display().to_string();
        if let Some(known) = NamedSchema::of(&name)
            && !file.exists()
        {
            return Ok((name, known.text.to_owned()));
        }
        let text = fs::read_to_string(file).with_context(|| name.clone())?;
        Ok((name, text))
    };
    files.iter().map(read).collect()
}

fn fill(folder: &Path, args: &Init, password: &[u8]) -> Result<Made> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| folder.display().to_string())?;
    let admin_dn = args
        .admin_dn
        .clone()
        .unwrap_or_else(|| format!("cn=admin,{}", args.suffixes[0]));
    let path = folder.join(CONFIG_FILE);
    fs::write(&path, Config::template(&admin_dn)).with_context(|| path.display().to_string())?;
    let config = Config::load(folder)?;
    StoredPassword::write(folder, &config, password)?.put_in_place()?;
    let year = jiff::Zoned::now().year();
    let fingerprint = tls::create_self_signed(
        &folder.join(&config.tls.cert),
        &folder.join(&config.tls.key),
        year,
    )?;
    let contents = sapwood_directory::Config {
        naming_contexts: args.suffixes.clone(),
        indexes: index_spec::definitions(&args.indexes),
        partitions: args.partitions.clone(),
        own_stores: args.own_stores,
        schema_files: read_all(&args.schema_files)?,
        ..sapwood_directory::Config::default()
    };
    let options = open::options(folder, &config)?;
    if args.in_memory {
        let stores = contents.stores(&options.schema)?;
        let engine = Embedded::in_memory_with(stores)?;
        let directory = Directory::create_on(engine, &contents, options)?;
        open::write_memory(folder, &directory)?;
    } else {
        Directory::create(&open::data_folder(folder), &contents, options)?;
    }
    Ok(Made {
        admin_dn,
        fingerprint,
    })
}
