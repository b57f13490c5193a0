//! `sapwood replica verify`: compares a copy with its provider, while servers run. This directory is read here, beside
//! a server that runs.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use sapwood_directory::{Agreement, uuid_text};
use sapwood_server::consumer::{Comparison, Difference, DifferenceKind, compare};
use sapwood_server::{Config, admin};

use super::agreements::{NONE, quoted};
use crate::cli::replica::Verify;
use crate::open;
use crate::output::Output;
use crate::progress::Progress;

pub(super) fn run(args: &Verify, out: &mut Output) -> Result<ExitCode> {
    let folder = &args.folder;
    let config = Config::load(folder)?;
    let directory = open::directory(folder, &config, true)?;
    let agreements = directory.ask_settings(|settings| settings.agreements.clone())?;
    let agreement = choose(agreements, args.rid)?;
    let mut progress = Progress::new(0, "entries");
    let is_followed = admin::is_running(folder);
    let mut looked_at = |entries| progress.set(entries);
    let compared = compare(
        &directory,
        &config.admin.dn,
        &agreement,
        is_followed,
        &mut looked_at,
    );
    progress.finish();
    let found = compared.map_err(|why| anyhow!(why))?;
    match args.json {
        true => found
            .differences
            .iter()
            .try_for_each(|one| writeln!(out, "{}", json(one)))?,
        false => shown(&agreement, &found, out)?,
    }
    Ok(match found.differences.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The agreement with a number, or the only one.
fn choose(agreements: Vec<Agreement>, rid: Option<u16>) -> Result<Agreement> {
    let count = agreements.len();
    let mut all = agreements.into_iter();
    let found = match (rid, count) {
        (_, 0) => bail!("{NONE}"),
        (Some(rid), _) => all.find(|one| one.rid == rid),
        (None, 1) => all.next(),
        (None, _) => bail!("say by --rid which of the {count} agreements is meant"),
    };
    found.ok_or_else(|| anyhow!("there is no agreement {}", rid.unwrap_or_default()))
}

/// Lines for people.
fn shown(agreement: &Agreement, found: &Comparison, out: &mut Output) -> Result<()> {
    let Comparison {
        of_contents,
        entries,
        differences,
    } = found;
    for Difference {
        uuid,
        dn,
        kind,
        is_behind,
    } in differences
    {
        let behind = if *is_behind { " (behind)" } else { "" };
        writeln!(out, "{}  {dn}: {kind}{behind}", uuid_text(*uuid))?;
    }
    let provider = &agreement.provider;
    let what = match of_contents {
        true => "contents",
        false => "entryUUID and entryCSN, as it knows no digests",
    };
    let behind = differences.iter().filter(|one| one.is_behind).count();
    match (differences.len(), behind) {
        (0, _) => writeln!(
            out,
            "All {entries} entries are as they are at {provider}: compared by {what}."
        )?,
        (count, 0) => writeln!(
            out,
            "{count} entries differ from those at {provider}: compared by {what}."
        )?,
        (count, behind) => writeln!(
            out,
            "{count} entries differ from those at {provider}, {behind} of which the copy may not have got yet: compared \
             by {what}."
        )?,
    }
    Ok(())
}

fn json(difference: &Difference) -> String {
    let Difference {
        uuid,
        dn,
        kind,
        is_behind,
    } = difference;
    let versions = match kind {
        DifferenceKind::Version { here, there } => {
            let text =
                |csn: &Option<_>| csn.map_or("null".to_owned(), |csn| quoted(&format!("{csn}")));
            format!(",\"csnHere\":{},\"csnThere\":{}", text(here), text(there))
        }
        _ => String::new(),
    };
    format!(
        "{{\"entryUUID\":{},\"dn\":{},\"difference\":{},\"behind\":{is_behind}{versions}}}",
        quoted(&uuid_text(*uuid)),
        quoted(dn),
        quoted(kind.word())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_json() {
        let mut difference = Difference {
            uuid: *b"0123456789abcdef",
            dn: "cn=\"a\"".into(),
            kind: DifferenceKind::OnlyHere,
            is_behind: false,
        };
        let first =
            r#"{"entryUUID":"30313233-3435-3637-3839-616263646566","dn":"cn=\"a\"","difference":"#;
        let only_here = format!(r#"{first}"onlyHere","behind":false}}"#);
        assert_eq!(json(&difference), only_here);
        difference.kind = DifferenceKind::Version {
            here: None,
            there: None,
        };
        let version =
            format!(r#"{first}"version","behind":false,"csnHere":null,"csnThere":null}}"#);
        assert_eq!(json(&difference), version);
    }
}
