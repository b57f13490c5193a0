//! `sapwood config`: what is configured with the data, shown and changed as `cn=config`, by the running server if there
//! is one.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use sapwood_directory::schema::NormalDn;
use sapwood_directory::{Directory, LocalConfig, Requester, Ticket, Update, UpdateRequest};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::ldif::{self, Body, Record};
use sapwood_ldap::message::{AddRequest, Message, ModifyRequest, Request};
use sapwood_ldap::result::ResultCode;
use sapwood_server::{Config, admin};

use crate::cli::{ConfigAction, Configuration};
use crate::commands::export;
use crate::open;
use crate::output::Output;
use crate::progress::Progress;

/// Where the configuration is in the tree.
const SUFFIX: &str = "cn=config";

/// Bytes of a file of changes: what the control socket takes, but for the words of the command.
const CHANGES_BYTES_MAX: usize = admin::COMMAND_BYTES_MAX - 64;

pub(crate) fn run(args: &Configuration, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    match (args.action, &args.file) {
        (ConfigAction::Apply, Some(file)) => {
            let changes = read(file)?;
            let told = admin::ask(&args.folder, &["config", "apply", &changes], |_| ())?;
            let done = match told {
                Some(done) => done,
                None => {
                    let directory = open::directory(&args.folder, &config, false)?;
                    let applied = apply(&directory, &config.admin.dn, &changes);
                    // What came before a change that was refused stays, and the indexes that it began are built.
                    let mut progress = Progress::new(0, "entries filed");
                    directory.build_indexes(|entries| {
                        progress.set(entries);
                        true
                    })?;
                    progress.finish();
                    open::save_memory(&args.folder, &directory)?;
                    applied.map_err(|error| anyhow!(error))?
                }
            };
            out.say(done);
        }
        _ => {
            let mut failed = Ok(());
            let line = |line: &str| {
                if failed.is_ok() {
                    failed = writeln!(out, "{line}");
                }
            };
            let told = admin::ask(&args.folder, &["config", "show"], line)?;
            failed?;
            if told.is_none() {
                let directory = open::directory(&args.folder, &config, true)?;
                directory.set_local_config(LocalConfig {
                    administrator: config.admin.dn.clone(),
                    folder: args.folder.display().to_string(),
                });
                export::tree(&directory, SUFFIX, &config.admin.dn, out)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a file of changes; `-` is standard input.
fn read(file: &Path) -> Result<String> {
    let name = || file.display().to_string();
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(fs::File::open(file).with_context(name)?),
    };
    let mut text = String::new();
    let limit = CHANGES_BYTES_MAX as u64 + 1;
    source
        .take(limit)
        .read_to_string(&mut text)
        .with_context(name)?;
    if text.len() > CHANGES_BYTES_MAX {
        bail!(
            "{}: more than {CHANGES_BYTES_MAX} bytes: apply it in parts",
            name()
        );
    }
    if text.contains('\0') {
        bail!("{}: this is not LDIF: it has a zero byte", name());
    }
    Ok(text)
}

/// Does what the control socket was asked for: `config show` or `config apply LDIF`.
pub(crate) fn by_command(
    directory: &Directory,
    administrator: &str,
    words: &[String],
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    match words {
        [action, changes] if action == "apply" => apply(directory, administrator, changes),
        [action] if action == "show" => {
            let mut text = Vec::new();
            let shown = export::tree(directory, SUFFIX, administrator, &mut text);
            shown.map_err(|error| format!("{error:#}"))?;
            String::from_utf8_lossy(&text).lines().for_each(note);
            Ok(String::new())
        }
        _ => Err("config show or apply?".into()),
    }
}

/// Applies changes, each durable before the next one; ends at the first that is refused. Says how many there were.
pub(crate) fn apply(
    directory: &Directory,
    administrator: &str,
    changes: &str,
) -> Result<String, String> {
    let requester = Requester::administrator(administrator);
    let mut reader = ldif::Reader::new(changes.as_bytes(), ldif::Options::default());
    let mut done = 0;
    let before = |done: u64| match done {
        0 => "nothing is changed".to_owned(),
        done => format!("the changes before it, {done} in number, stay"),
    };
    while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
        let record = record.map_err(|rejected| format!("{rejected}; {}", before(done)))?;
        let changed = message(directory, &record).and_then(|message| {
            let update = Update {
                requester: requester.clone(),
                request: UpdateRequest::Message(message),
            };
            one(directory, update)
        });
        changed.map_err(|why| {
            format!(
                "line {}: {}: {why}; {}",
                record.line,
                record.dn,
                before(done)
            )
        })?;
        done += 1;
    }
    match done {
        0 => Err("there is no change in it".to_owned()),
        1 => Ok("1 change applied".to_owned()),
        _ => Ok(format!("{done} changes applied")),
    }
}

/// Makes one change below `cn=config`, which is durable then.
pub(crate) fn make(
    directory: &Directory,
    administrator: &str,
    op: Request<'_>,
) -> Result<(), String> {
    make_with(directory, administrator, op, Controls::EMPTY)
}

/// Makes one change anywhere as the administrator, which is durable then.
pub(crate) fn make_with(
    directory: &Directory,
    administrator: &str,
    op: Request<'_>,
    controls: Controls<'_>,
) -> Result<(), String> {
    let update = Update {
        requester: Requester::administrator(administrator),
        request: UpdateRequest::Message(encoded(op, controls)),
    };
    one(directory, update)
}

/// Applies one update.
fn one(directory: &Directory, update: Update) -> Result<(), String> {
    let applied = directory
        .apply(&[update])
        .map_err(|error| error.to_string())?;
    if let Some(ticket) = applied.ticket {
        ticket.wait().map_err(|error| error.to_string())?;
    }
    let Some(outcome) = applied.outcomes.into_iter().next() else {
        return Err("it was not applied".to_owned());
    };
    let outcome = match &outcome.awaits {
        None => outcome,
        Some(change) => {
            let finished = directory.finish_awaited(change);
            finished.map_err(|error| error.to_string())?
        }
    };
    match outcome.code {
        ResultCode::Success => Ok(()),
        code => Err(format!("{code}: {}", outcome.diagnostic)),
    }
}

/// The update that a record asks for.
fn message(directory: &Directory, record: &Record<'_>) -> Result<Vec<u8>, String> {
    let schema = &directory.schema();
    let (mut name, mut suffix) = (NormalDn::new(), NormalDn::new());
    let named = name.parse(schema, record.dn.as_bytes());
    named.map_err(|error| format!("this is not a DN: {error}"))?;
    let known = suffix.parse(schema, SUFFIX.as_bytes());
    if known.is_err() || !name.is_at_or_below(&suffix) {
        return Err(format!(
            "it is not in {SUFFIX}: 'sapwood import' and LDAP change entries"
        ));
    }
    if !record.controls.is_empty() {
        return Err("a change of the configuration has no controls".to_owned());
    }
    let (attributes, changes);
    let op = match &record.body {
        Body::Entry(values) | Body::Add(values) => {
            attributes = ldif::attributes(values);
            Request::Add(AddRequest {
                dn: &record.dn,
                attributes: attributes.view(),
            })
        }
        Body::Modify(modifications) => {
            changes = ldif::changes(modifications);
            Request::Modify(ModifyRequest {
                dn: &record.dn,
                changes: changes.view(),
            })
        }
        Body::Delete => Request::Delete(&record.dn),
        Body::ModifyDn { .. } => {
            return Err("entries of the configuration keep their names".to_owned());
        }
    };
    Ok(encoded(op, Controls::EMPTY))
}

fn encoded(op: Request<'_>, controls: Controls<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message {
        id: 1,
        op,
        controls,
    }
    .encode(&mut bytes);
    bytes
}
