//! `sapwood replica add`, `list`, `status` and `remove`: what this server copies from others, by the running server if
//! there is one. An agreement is a value of `olcSyncrepl` in `cn=config`.

use std::io::Write as _;
use std::path::{self, Path};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use sapwood_directory::{Agreement, AgreementPassword, Directory};
use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::message::{ModifyRequest, Request};
use sapwood_server::consumer::{Lag, lags};
use sapwood_server::{Config, ConsumerStatus, admin};

use crate::cli::{AddAgreement, ReplicaStatus};
use crate::commands::config;
use crate::open;
use crate::output::Output;

/// The entry that has agreements, and its attribute.
const DATA: &str = "olcDatabase={1}mdb,cn=config";
const SYNCREPL: &str = "olcSyncrepl";

/// What is said when there are none.
const NONE: &str = "There is no agreement: 'sapwood replica add' makes one.";

/// Does a command: by the running server, or on the directory itself.
fn ask(folder: &Path, words: &[&str], reads: bool, out: &mut Output) -> Result<String> {
    let config = Config::load(folder)?;
    let mut asked = vec!["replica"];
    asked.extend(words);
    let mut failed = Ok(());
    let mut line = |line: &str| {
        if failed.is_ok() {
            failed = writeln!(out, "{line}");
        }
    };
    let done = match admin::ask(folder, &asked, &mut line)? {
        Some(done) => done,
        None => {
            let directory = open::directory(folder, &config, reads)?;
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let done = by_command(&directory, &config.admin.dn, None, &words, &mut line);
            if !reads {
                open::save_memory(folder, &directory)?;
            }
            done.map_err(|error| anyhow!(error))?
        }
    };
    failed?;
    Ok(done)
}

pub(super) fn add(args: &AddAgreement, out: &mut Output) -> Result<()> {
    // The server looks for files in another folder.
    let named = |file: &Path| -> Result<String> {
        let absolute = path::absolute(file).with_context(|| file.display().to_string())?;
        let text = absolute.into_os_string().into_string();
        text.map_err(|name| anyhow!("{}: the name is not UTF-8", name.display()))
    };
    let password = named(&args.password_file)?;
    std::fs::File::open(&password).with_context(|| password.clone())?;
    let agreement = Agreement {
        rid: args.rid,
        provider: args.url.clone(),
        bind_dn: args.bind_dn.clone(),
        password: AgreementPassword::File(password),
        // Where it is empty the naming context takes its place.
        base: args.base.clone().unwrap_or_default(),
        persists: args.every.is_none(),
        interval: args.every.unwrap_or(Agreement::default().interval),
        start_tls: args.start_tls,
        authorities: args.ca_file.as_deref().map(named).transpose()?,
        plaintext: args.danger_plaintext,
        ..Agreement::default()
    };
    let base = args.base.as_deref().unwrap_or_default();
    let done = ask(
        &args.folder,
        &["add", base, &agreement.to_string()],
        false,
        out,
    )?;
    out.say(done);
    Ok(())
}

pub(super) fn list(folder: &Path, out: &mut Output) -> Result<()> {
    let done = ask(folder, &["list"], true, out)?;
    if !done.is_empty() {
        out.say(done);
    }
    Ok(())
}

pub(super) fn status(args: &ReplicaStatus, out: &mut Output) -> Result<()> {
    let form = if args.json { "json" } else { "text" };
    let done = ask(&args.folder, &["status", form], true, out)?;
    if !done.is_empty() {
        out.say(done);
    }
    Ok(())
}

pub(super) fn remove(folder: &Path, rid: u16, out: &mut Output) -> Result<()> {
    let done = ask(folder, &["remove", &rid.to_string()], false, out)?;
    out.say(done);
    Ok(())
}

/// Does what the control socket was asked for: `replica add BASE VALUE`, `replica list`, `replica status text|json` or
/// `replica remove RID`. `running` is what the consumers of the running server are doing.
pub(crate) fn by_command(
    directory: &Directory,
    administrator: &str,
    running: Option<&[ConsumerStatus]>,
    words: &[String],
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let agreements = || {
        let asked = directory.ask_settings(|settings| settings.agreements.clone());
        asked.map_err(|error| error.to_string())
    };
    match words[..] {
        ["add", base, value] => {
            let value = match base {
                "" => with_base(value, &only_context(directory)?),
                _ => value.to_owned(),
            };
            change(directory, administrator, ChangeKind::Add, &value)?;
            let added = agreements()?.pop();
            let added = added.ok_or("it is not there")?;
            Ok(format!(
                "Agreement {:03}: '{}' is copied from {}, and read-only here.",
                added.rid, added.base, added.provider
            ))
        }
        ["list"] => {
            let all = agreements()?;
            let lags = lags(directory, &all);
            for (agreement, lag) in all.iter().zip(&lags) {
                let Agreement {
                    rid,
                    provider,
                    base,
                    ..
                } = agreement;
                let kind = match agreement.persists {
                    true => "stays connected",
                    false => "asks again",
                };
                let behind = told(lag).map_or(String::new(), |told| format!(", {told}"));
                note(&format!("{rid:03}  {provider}  {base}  {kind}{behind}"));
                not_told(lag).iter().for_each(|line| note(line));
            }
            Ok(if all.is_empty() {
                NONE.to_owned()
            } else {
                String::new()
            })
        }
        ["status", form] => {
            let Some(running) = running else {
                return Ok("no server runs on the directory: nothing is copied".to_owned());
            };
            let all = agreements()?;
            let followed = |rid| running.iter().find(|status: &&_| status.rid == rid);
            let lags = lags(directory, &all);
            for (agreement, lag) in all.iter().zip(&lags) {
                // One that is new begins within a second.
                let begins = ConsumerStatus {
                    rid: agreement.rid,
                    provider: agreement.provider.clone(),
                    base: agreement.base.clone(),
                    ..ConsumerStatus::default()
                };
                let status = followed(agreement.rid).unwrap_or(&begins);
                match form {
                    "json" => note(&json(status, lag)),
                    _ => shown(status, lag).iter().for_each(|line| note(line)),
                }
            }
            Ok(match (&*all, form) {
                ([], "text") => NONE.to_owned(),
                _ => String::new(),
            })
        }
        ["remove", rid] => {
            let all = agreements()?;
            let wanted = rid.parse().ok();
            let at = all.iter().position(|one| Some(one.rid) == wanted);
            let at = at.ok_or_else(|| format!("there is no agreement {rid}"))?;
            change(
                directory,
                administrator,
                ChangeKind::Delete,
                &format!("{{{at}}}"),
            )?;
            let Agreement { rid, base, .. } = &all[at];
            Ok(format!(
                "Agreement {rid:03} has ended: '{base}' can be updated here."
            ))
        }
        _ => Err("replica add, list, status or remove?".into()),
    }
}

/// Changes the attribute that has agreements.
fn change(
    directory: &Directory,
    administrator: &str,
    kind: ChangeKind,
    value: &str,
) -> Result<(), String> {
    let mut changes = ChangesBuf::default();
    changes.push(kind, SYNCREPL.as_bytes(), [value.as_bytes()]);
    let op = Request::Modify(ModifyRequest {
        dn: DATA,
        changes: changes.view(),
    });
    config::make(directory, administrator, op)
}

/// The naming context, if there is one only.
fn only_context(directory: &Directory) -> Result<String, String> {
    let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
    let contexts: Vec<&str> = snapshot.naming_contexts().collect();
    match contexts[..] {
        [only] => Ok(only.to_owned()),
        _ => Err(format!(
            "say by --base which of these is copied: {}",
            contexts.join(", ")
        )),
    }
}

/// A value with a base in the place of the empty one.
fn with_base(value: &str, base: &str) -> String {
    let quoted = base.replace('\\', "\\\\").replace('"', "\\\"");
    value.replacen("searchbase=\"\"", &format!("searchbase=\"{quoted}\""), 1)
}

/// For how many seconds a copy may have been behind when its provider does not tell; none if it was not complete since
/// the server was started.
fn complete_ago(status: &ConsumerStatus) -> Option<u64> {
    let ago = SystemTime::now().duration_since(status.complete_at?);
    Some(ago.map_or(0, |ago| ago.as_secs()))
}

/// A lag for people, if the provider has told.
fn told(lag: &Lag) -> Option<String> {
    match lag {
        Lag::Nothing => Some("complete".to_owned()),
        Lag::Behind { time: None, .. } => Some("not complete yet".to_owned()),
        Lag::Behind {
            time: Some(time), ..
        } => Some(format!("{:.1} s behind", time.as_secs_f64())),
        Lag::Unknown(_) => None,
    }
}

/// Why a lag is not known.
fn not_told(lag: &Lag) -> Option<String> {
    match lag {
        Lag::Unknown(why) => Some(format!("     how far it is behind is not known: {why}")),
        _ => None,
    }
}

/// Lines for people.
fn shown(status: &ConsumerStatus, lag: &Lag) -> Vec<String> {
    let complete = told(lag).unwrap_or_else(|| match complete_ago(status) {
        Some(seconds) => format!("complete {seconds} s ago"),
        None => "not complete since the start".to_owned(),
    });
    let mut lines = vec![format!(
        "{:03}  {}  {}  {}, {complete}, {} changes taken",
        status.rid,
        status.provider,
        status.base,
        status.state.word(),
        status.changes
    )];
    if !status.cookie.is_empty() {
        lines.push(format!("     position {}", status.cookie));
    }
    if !status.last_error.is_empty() {
        lines.push(format!("     {}", status.last_error));
    }
    lines.extend(not_told(lag));
    lines
}

fn json(status: &ConsumerStatus, lag: &Lag) -> String {
    let seconds = |when: Option<SystemTime>| {
        let since = when.and_then(|when| when.duration_since(UNIX_EPOCH).ok());
        since.map_or("null".to_owned(), |since| since.as_secs().to_string())
    };
    let text = |text: &str| match text {
        "" => "null".to_owned(),
        text => quoted(text),
    };
    let (lag_seconds, lag_error) = match lag {
        Lag::Nothing => ("0".to_owned(), ""),
        Lag::Behind {
            time: Some(time), ..
        } => (time.as_secs_f64().to_string(), ""),
        Lag::Behind { time: None, .. } => ("null".to_owned(), ""),
        Lag::Unknown(why) => ("null".to_owned(), &**why),
    };
    let lacks = match lag {
        Lag::Behind { replicas, .. } => replicas.iter().map(u16::to_string).collect(),
        _ => Vec::new(),
    };
    format!(
        "{{\"rid\":{},\"provider\":{},\"base\":{},\"state\":{},\"changes\":{},\"completeAt\":{},\"lagSeconds\":{},\
         \"lacksOf\":[{}],\"lagError\":{},\"position\":{},\"lastError\":{}}}",
        status.rid,
        quoted(&status.provider),
        quoted(&status.base),
        quoted(status.state.word()),
        status.changes,
        seconds(status.complete_at),
        lag_seconds,
        lacks.join(","),
        text(lag_error),
        text(&status.cookie),
        text(&status.last_error)
    )
}

/// A JSON string (RFC 8259 §7).
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => out += &format!("\\u{:04x}", u32::from(letter)),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_json_whatever_its_texts_are() {
        let status = ConsumerStatus {
            rid: 7,
            provider: "ldap://a".into(),
            last_error: "'x' is \"odd\"\n".into(),
            ..ConsumerStatus::default()
        };
        let lag = Lag::Behind {
            replicas: vec![1, 2],
            time: Some(std::time::Duration::from_millis(1500)),
        };
        let first = r#"{"rid":7,"provider":"ldap://a","base":"","state":"connecting","changes":0,"completeAt":null,"#;
        let last = r#""position":null,"lastError":"'x' is \"odd\"\u000a"}"#;
        for (lag, between) in [
            (
                Lag::Nothing,
                r#""lagSeconds":0,"lacksOf":[],"lagError":null,"#,
            ),
            (lag, r#""lagSeconds":1.5,"lacksOf":[1,2],"lagError":null,"#),
            (
                Lag::Unknown("\"".into()),
                r#""lagSeconds":null,"lacksOf":[],"lagError":"\"","#,
            ),
        ] {
            assert_eq!(json(&status, &lag), format!("{first}{between}{last}"));
        }
    }

    #[test]
    fn the_base_takes_the_place_of_none() {
        let value = "rid=001 searchbase=\"\" type=x";
        assert_eq!(
            with_base(value, "o=a \"b\""),
            "rid=001 searchbase=\"o=a \\\"b\\\"\" type=x"
        );
    }
}
