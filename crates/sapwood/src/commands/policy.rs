//! `sapwood policy`: password policies switched on, with the one that governs where nothing else says so, and off; by
//! the running server if there is one.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use base64ct::{Base64, Encoding};
use sapwood_directory::Directory;
use sapwood_server::{Config, admin};

use crate::cli::Policy;
use crate::commands::config;
use crate::open;
use crate::output::Output;

/// The entry that switches them on.
const OVERLAY: &str = "olcOverlay={1}ppolicy,olcDatabase={1}mdb,cn=config";

pub(crate) fn run(args: &Policy, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let word = match (&args.default, args.off) {
        (Some(dn), _) => format!("default {dn}"),
        (None, true) => "off".to_owned(),
        (None, false) => "show".to_owned(),
    };
    let mut failed = Ok(());
    let mut line = |line: &str| {
        if failed.is_ok() {
            failed = writeln!(out, "{line}");
        }
    };
    let done = match admin::ask(&args.folder, &["policy", &word], &mut line)? {
        Some(done) => done,
        None => {
            let reads = word == "show";
            let directory = open::directory(&args.folder, &config, reads)?;
            let done = by_command(&directory, &config.admin.dn, &[word], &mut line);
            if !reads {
                open::save_memory(&args.folder, &directory)?;
            }
            done.map_err(|error| anyhow!(error))?
        }
    };
    failed?;
    if !done.is_empty() {
        out.say(done);
    }
    Ok(ExitCode::SUCCESS)
}

/// Does what the control socket was asked for: `policy show`, `policy off` or `policy default DN`.
pub(crate) fn by_command(
    directory: &Directory,
    administrator: &str,
    words: &[String],
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
    let overlay = snapshot.settings().password_policy.clone();
    let word = words.first().map_or("", String::as_str);
    match (word.split_once(' '), word, overlay) {
        (None, "show", None) => note("no password policies"),
        (None, "show", Some(overlay)) => match overlay.default.as_str() {
            "" => note("password policies, no default"),
            default => note(&format!("default {default}")),
        },
        (None, "off", None) => {}
        (None, "off", Some(_)) => {
            let changes = format!("dn: {OVERLAY}\nchangetype: delete\n");
            config::apply(directory, administrator, &changes)?;
            return Ok("passwords are governed by no policy any more".to_owned());
        }
        (Some(("default", dn)), _, overlay) => {
            let found = snapshot
                .credentials(dn, 0)
                .map_err(|error| error.to_string())?;
            if found.is_none() {
                return Err(format!(
                    "there is no entry '{dn}': add it first, of class pwdPolicy"
                ));
            }
            let value = Base64::encode_string(dn.as_bytes());
            let changes = match overlay {
                None => format!(
                    "dn: {OVERLAY}\nchangetype: add\nobjectClass: olcPPolicyConfig\nolcOverlay: ppolicy\n\
                     olcPPolicyDefault:: {value}\n"
                ),
                Some(_) => format!(
                    "dn: {OVERLAY}\nchangetype: modify\nreplace: olcPPolicyDefault\n\
                     olcPPolicyDefault:: {value}\n"
                ),
            };
            config::apply(directory, administrator, &changes)?;
            return Ok(format!(
                "passwords are governed by {dn} where nothing else says so"
            ));
        }
        _ => return Err("policy show, off or default DN?".into()),
    }
    Ok(String::new())
}
