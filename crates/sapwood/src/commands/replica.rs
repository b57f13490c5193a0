//! `sapwood replica`: a directory becomes one that others have copies of, has copies of what others have, or is updated
//! as others are.

mod agreements;
mod conflicts;
mod invite;
mod join;
mod redeem;
mod restore;
mod verify;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::{Config, admin};

use crate::cli::replica::{EnableReplica, Replica};
use crate::open;
use crate::output::Output;

pub(crate) use agreements::by_command;

pub(crate) fn run(command: &Replica, out: &mut Output) -> Result<ExitCode> {
    match command {
        Replica::Enable(args) => enable(args, out)?,
        Replica::Invite(args) => invite::run(args, out)?,
        Replica::Join(args) => join::run(args, out)?,
        Replica::Add(args) => agreements::add(args, out)?,
        Replica::List(args) => agreements::list(&args.folder, out)?,
        Replica::Status(args) => agreements::status(args, out)?,
        Replica::Verify(args) => return verify::run(args, out),
        Replica::Conflicts(args) => conflicts::run(args, out)?,
        Replica::Restore(args) => restore::run(args, out)?,
        Replica::Remove(args) => agreements::change_one("remove", args, out)?,
        Replica::Suspend(args) => agreements::change_one("suspend", args, out)?,
        Replica::Resume(args) => agreements::change_one("resume", args, out)?,
        Replica::Promote(args) => agreements::promote(args, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn enable(args: &EnableReplica, out: &mut Output) -> Result<()> {
    let (folder, sid) = (&args.folder, args.sid);
    match Config::load(folder)?.replication.sid {
        0 => become_replica(folder, sid)?,
        known if known == sid => {
            out.say(format_args!("It is replica {sid} already."));
            return Ok(());
        }
        known => bail!("it is replica {known} already, and what it has changed bears that number"),
    }
    out.say(format_args!(
        "It is replica {sid} from now on: start the server, and have consumers bind as somebody who may read everything."
    ));
    Ok(())
}

/// Has the changes of a directory that no server runs on bear a number.
fn become_replica(folder: &Path, sid: u16) -> Result<()> {
    let config = Config::load(folder)?;
    if admin::is_running(folder) {
        bail!("a server runs on {}: stop it first", folder.display());
    }
    let directory = open::directory(folder, &config, false)?;
    directory.become_replica(sid)?;
    open::save_memory(folder, &directory)?;
    // A number without what was written down before it would have changes taken for known that are not.
    set_sid(folder, sid)
}

/// Writes the number into the configuration, in one step.
fn set_sid(folder: &Path, sid: u16) -> Result<()> {
    let path = folder.join(CONFIG_FILE);
    let new = folder.join(format!("{CONFIG_FILE}.new"));
    let write = || {
        let text = with_sid(&fs::read_to_string(&path)?, sid);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path)?) & 0o777;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().with_context(|| path.display().to_string())?;
    let written = Config::load(folder)?.replication.sid;
    if written != sid {
        bail!(
            "write 'sid = {sid}' into the part [replication] of {}",
            path.display()
        );
    }
    Ok(())
}

/// The text of a configuration with the number in it.
fn with_sid(text: &str, sid: u16) -> String {
    let mut is_there = false;
    let mut is_set = false;
    let mut changed: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_key = line
            .split_once('=')
            .is_some_and(|(key, _)| key.trim() == "sid");
        if line.trim_start().starts_with('[') {
            is_there = line.trim() == "[replication]";
        }
        if is_there && is_key && !is_set {
            changed.push(format!("sid = {sid}"));
            is_set = true;
        } else {
            changed.push(line.to_owned());
        }
    }
    if !is_set {
        // Of a file that was written before there was such a part.
        changed.retain(|line| line.trim() != "[replication]");
        changed.extend([
            String::new(),
            "[replication]".into(),
            format!("sid = {sid}"),
        ]);
    }
    changed.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_set_where_it_stands_or_at_the_end() {
        let template = Config::template("cn=admin");
        let changed = with_sid(&template, 7);
        assert_eq!(changed, template.replace("\nsid = 0\n", "\nsid = 7\n"));
        assert_ne!(changed, template);
        let old = "[admin]\ndn = 'cn=admin'\n";
        assert_eq!(with_sid(old, 7), format!("{old}\n[replication]\nsid = 7\n"));
        let empty = format!("{old}[replication]\n");
        assert_eq!(with_sid(&empty, 7), with_sid(old, 7));
    }
}
