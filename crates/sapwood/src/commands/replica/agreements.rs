//! `sapwood replica add`, `list`, `status`, `suspend`, `resume`, `promote` and `remove`: what this server copies from
//! others, by the running server if there is one. An agreement is a value of `olcSyncrepl` in `cn=config`.

use std::io::Write as _;
use std::path::{self, Path};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use sapwood_directory::{Agreement, AgreementPassword, Directory};
use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::message::{ModifyRequest, Request};
use sapwood_replication::Resolution;
use sapwood_server::consumer::{Lag, lags};
use sapwood_server::invitations::Token;
use sapwood_server::{Config, ConsumerState, ConsumerStatus, admin};

use super::redeem::{self, Account, redeem};
use super::{conflicts, restore};
use crate::cli::replica::{AddAgreement, OneAgreement, Promote, ReplicaStatus};
use crate::commands::config;
use crate::open;
use crate::output::Output;

/// The entry that has agreements, and its attribute.
const DATA: &str = "olcDatabase={1}mdb,cn=config";
pub(super) const SYNCREPL: &str = "olcSyncrepl";

/// How a copy is promoted that need not be complete.
const AS_IT_IS: &str = "as-it-is";

/// What is said when there are none.
pub(super) const NONE: &str = "There is no agreement: 'sapwood replica add' makes one.";

/// Does a command: by the running server, or on the directory itself.
pub(super) fn ask(folder: &Path, words: &[&str], reads: bool, out: &mut Output) -> Result<String> {
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
    let agreement = Agreement {
        rid: args.rid,
        // Where it is empty the naming context takes its place.
        base: args.base.clone().unwrap_or_default(),
        persists: args.every.is_none(),
        interval: args.every.unwrap_or(Agreement::default().interval),
        plaintext: args.danger_plaintext,
        multi_provider: args.multi_provider,
        forwards: args.forward,
        resolution: args.resolution.into(),
        ..match &args.token {
            Some(token) => by_token(args, token)?,
            None => by_url(args)?,
        }
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

/// An agreement with a server that is named, and how to bind there.
fn by_url(args: &AddAgreement) -> Result<Agreement> {
    let (Some(url), Some(bind_dn), Some(password)) =
        (&args.url, &args.bind_dn, &args.password_file)
    else {
        bail!("say where it is copied from, and who binds there by which password");
    };
    // The server looks for files in another folder.
    let named = |file: &Path| -> Result<String> {
        let absolute = path::absolute(file).with_context(|| file.display().to_string())?;
        let text = absolute.into_os_string().into_string();
        text.map_err(|name| anyhow!("{}: the name is not UTF-8", name.display()))
    };
    let password = named(password)?;
    std::fs::File::open(&password).with_context(|| password.clone())?;
    Ok(Agreement {
        provider: url.clone(),
        bind_dn: bind_dn.clone(),
        password: AgreementPassword::File(password),
        start_tls: args.start_tls,
        authorities: args.ca_file.as_deref().map(named).transpose()?,
        ..Agreement::default()
    })
}

/// An agreement with a server that has invited this one, and an account there by now.
fn by_token(args: &AddAgreement, token: &str) -> Result<Agreement> {
    let token: Token = token.trim().parse()?;
    let own = Config::load(&args.folder)?.replication.sid;
    if args.multi_provider && own == token.sid {
        bail!("{own} is the number of {}, and of this server", token.url);
    }
    let password = args
        .folder
        .join(format!("replica-password-{:03}", args.rid));
    let account = Account::kept(&password, &token)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let redeemed = runtime.block_on(redeem(&token, &account));
    redeemed.with_context(|| token.url.clone())?;
    redeem::agreement(&token, &password)
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

/// `remove`, `suspend` or `resume`.
pub(super) fn change_one(word: &str, args: &OneAgreement, out: &mut Output) -> Result<()> {
    let done = ask(&args.folder, &[word, &args.rid.to_string()], false, out)?;
    out.say(done);
    Ok(())
}

pub(super) fn promote(args: &Promote, out: &mut Output) -> Result<()> {
    let OneAgreement { folder, rid } = &args.agreement;
    let rid = rid.to_string();
    let how = match args.danger_lose_changes {
        true => AS_IT_IS,
        false => "complete",
    };
    let done = ask(folder, &["promote", &rid, how], false, out)?;
    out.say(done);
    Ok(())
}

/// Does what the control socket was asked for: `replica add BASE VALUE`, `replica list`, `replica status text|json`,
/// `replica conflicts text|json`, `replica restore CSN`, `replica remove|suspend|resume RID` or `replica promote RID
/// complete|as-it-is`.
/// `running` is what the consumers of the running server do.
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
            let is_weighed = value
                .parse::<Agreement>()
                .is_ok_and(|one| one.multi_provider);
            if is_weighed && directory.options().replica == 0 {
                let why = "updates that are made here have no number: 'sapwood replica enable' this server first";
                return Err(why.into());
            }
            change(directory, administrator, &[(ChangeKind::Add, &value)])?;
            let added = agreements()?.pop();
            let added = added.ok_or("it is not there")?;
            let Agreement {
                rid,
                base,
                provider,
                ..
            } = &added;
            Ok(match added.multi_provider {
                false => format!(
                    "Agreement {rid:03}: '{base}' is copied from {provider}, and read-only here."
                ),
                true => format!(
                    "Agreement {rid:03}: updates of '{base}' are taken from {provider}, and made here as well. Have it \
                     take those of this server, too."
                ),
            })
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
                let kind = match (agreement.suspended, agreement.persists) {
                    (true, _) => "suspended",
                    (_, true) => "stays connected",
                    (_, false) => "asks again",
                };
                let kind = match (agreement.multi_provider, agreement.resolution) {
                    (true, Resolution::Values) => format!("both take updates by values, {kind}"),
                    (true, Resolution::Entry) => format!("both take updates, {kind}"),
                    (false, _) => kind.to_owned(),
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
                let waits = match followed(agreement.rid) {
                    Some(_) if !agreement.suspended => None,
                    _ => Some(not_followed(directory, agreement)?),
                };
                let status = waits.as_ref().or_else(|| followed(agreement.rid));
                let Some(status) = status else {
                    continue;
                };
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
        ["conflicts", form] => conflicts::list(directory, form, note),
        ["restore", change] => restore::restore(directory, administrator, change, note),
        ["remove", rid] => {
            let (at, one) = find(agreements()?, rid)?;
            let Agreement {
                rid,
                base,
                provider,
                ..
            } = &one;
            change(directory, administrator, &[(ChangeKind::Delete, &at)])?;
            Ok(format!(
                "Agreement {rid:03} has ended: '{base}' can be updated here, and nothing is taken from {provider}."
            ))
        }
        ["suspend", rid] => {
            let one = find(agreements()?, rid)?;
            suspend(directory, administrator, one, true)
        }
        ["resume", rid] => {
            let one = find(agreements()?, rid)?;
            suspend(directory, administrator, one, false)
        }
        ["promote", rid, how] => {
            let one = find(agreements()?, rid)?;
            promote_one(directory, administrator, one, how == AS_IT_IS, note)
        }
        _ => {
            let known = "add, list, status, conflicts, restore, suspend, resume, promote or remove";
            Err(format!("replica {known}?"))
        }
    }
}

/// An agreement, and how its value is named in a change.
fn find(all: Vec<Agreement>, rid: &str) -> Result<(String, Agreement), String> {
    let wanted = rid.parse().ok();
    let mut all = all.into_iter().enumerate();
    let found = all.find(|(_, one)| Some(one.rid) == wanted);
    let (at, one) = found.ok_or_else(|| format!("there is no agreement {rid}"))?;
    Ok((format!("{{{at}}}"), one))
}

/// Has an agreement be suspended, or not any more. It keeps its place, and how far it has come.
fn suspend(
    directory: &Directory,
    administrator: &str,
    (at, one): (String, Agreement),
    suspended: bool,
) -> Result<String, String> {
    let Agreement { rid, base, .. } = &one;
    let (provider, is_so) = (&one.provider, one.suspended == suspended);
    if !is_so {
        let other = Agreement {
            suspended,
            ..one.clone()
        };
        let changes = [
            (ChangeKind::Delete, &*at),
            (ChangeKind::Add, &format!("{at}{other}")),
        ];
        change(directory, administrator, &changes)?;
    }
    Ok(match suspended {
        _ if one.multi_provider => {
            let until = if suspended {
                ", until 'sapwood replica resume'"
            } else {
                ""
            };
            let are = if suspended { "are not" } else { "are" };
            format!("Updates of '{base}' {are} taken from {provider}{until}.")
        }
        true => format!(
            "Agreement {rid:03} is suspended: '{base}' stays as it is, read-only, until 'sapwood replica resume'."
        ),
        false => format!("Agreement {rid:03} goes on: '{base}' is copied from {provider}."),
    })
}

/// Ends an agreement, so that updates are made here, if the copy has all that its provider has; or `as_it_is`.
fn promote_one(
    directory: &Directory,
    administrator: &str,
    (at, one): (String, Agreement),
    as_it_is: bool,
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let Agreement { rid, base, .. } = &one;
    let lag = lags(directory, std::slice::from_ref(&one)).pop();
    let lag = lag.unwrap_or_else(|| Lag::Unknown("nobody was asked".into()));
    let how = match (&lag, told(&lag)) {
        (Lag::Nothing, _) => "it had all that the provider has",
        (_, Some(behind)) if !as_it_is => {
            return Err(format!(
                "the copy is {behind}: what the provider has taken since would be lost here. Wait until 'sapwood \
                 replica status' says complete, or do without it (--danger-lose-changes)"
            ));
        }
        (Lag::Unknown(why), _) if !as_it_is => {
            return Err(format!(
                "nobody knows whether the copy has all that the provider has, which would be lost here: {why}. If the \
                 provider is gone for good, do without it (--danger-lose-changes)"
            ));
        }
        _ => "changes that it lacks are lost",
    };
    change(directory, administrator, &[(ChangeKind::Delete, &at)])?;
    if directory.options().replica == 0 {
        note("It is no replica: 'sapwood replica enable' it before others copy from it.");
    }
    Ok(format!(
        "Agreement {rid:03} has ended, and '{base}' is updated here from now on: {how}. See to it that nobody updates \
         it there any more."
    ))
}

/// The status of a copy that nobody follows: it is suspended, or it is new and begins within a second.
fn not_followed(directory: &Directory, agreement: &Agreement) -> Result<ConsumerStatus, String> {
    let cookie = directory.newest_cookie(agreement.rid);
    let cookie = cookie.map_err(|error| error.to_string())?;
    Ok(ConsumerStatus {
        rid: agreement.rid,
        provider: agreement.provider.clone(),
        base: agreement.base.clone(),
        state: match agreement.suspended {
            true => ConsumerState::Suspended,
            false => ConsumerState::Connecting,
        },
        cookie: String::from_utf8_lossy(&cookie.unwrap_or_default()).into_owned(),
        ..ConsumerStatus::default()
    })
}

/// Changes the attribute that has agreements: kinds and values, all at once.
pub(super) fn change(
    directory: &Directory,
    administrator: &str,
    values: &[(ChangeKind, &str)],
) -> Result<(), String> {
    let mut changes = ChangesBuf::default();
    for (kind, value) in values {
        changes.push(*kind, SYNCREPL.as_bytes(), [value.as_bytes()]);
    }
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
        Lag::Behind { time: None, .. } => Some("behind".to_owned()),
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
pub(super) fn quoted(text: &str) -> String {
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
