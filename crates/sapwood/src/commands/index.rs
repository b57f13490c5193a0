//! `sapwood index`: indexes added, dropped and listed, by the running server if there is one.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use sapwood_directory::{Directory, IndexDefinition};
use sapwood_server::{Config, admin};

use crate::cli::{Index, IndexAction};
use crate::index_spec::{self, IndexSpec};
use crate::open;
use crate::output::{Output, note};
use crate::progress::Progress;

pub(crate) fn run(args: &Index, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let word = match args.action {
        IndexAction::List => {
            list(&open::directory(&args.folder, &config, true)?, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        IndexAction::Add => "add",
        IndexAction::Drop => "drop",
    };
    let definitions = index_spec::merged(&args.specs);
    let specs: Vec<String> = definitions.iter().map(ToString::to_string).collect();
    let mut command = vec!["index", word];
    command.extend(specs.iter().map(String::as_str));
    if let Some(done) = admin::ask(&args.folder, &command, |text| note(text))? {
        out.say(done);
        return Ok(ExitCode::SUCCESS);
    }
    let directory = open::directory(&args.folder, &config, false)?;
    let mut progress = Progress::new(0, "entries filed");
    let done = change(&directory, word, &definitions, |entries| {
        progress.set(entries)
    })
    .map_err(|error| anyhow!(error))?;
    open::save_memory(&args.folder, &directory)?;
    progress.finish();
    out.say(done);
    Ok(ExitCode::SUCCESS)
}

/// Does what the control socket was asked for: `index add SPEC...` or `index drop SPEC...`.
pub(crate) fn by_command(
    directory: &Directory,
    words: &[String],
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let Some((action, specs)) = words.split_first() else {
        return Err("index add or drop?".into());
    };
    let specs = specs
        .iter()
        .map(|spec| spec.parse())
        .collect::<Result<Vec<IndexSpec>, String>>()?;
    change(directory, action, &index_spec::merged(&specs), |entries| {
        note(&format!("{entries} entries filed"))
    })
}

fn change(
    directory: &Directory,
    action: &str,
    definitions: &[IndexDefinition],
    mut progress: impl FnMut(u64),
) -> Result<String, String> {
    let mut done = Vec::new();
    for definition in definitions {
        let shown = definition.to_string();
        // What was done before a failure stays done: say so.
        let before = if done.is_empty() {
            String::new()
        } else {
            format!(" (done before: {})", done.join("; "))
        };
        let failed = |error: sapwood_directory::Error| format!("{shown}: {error}{before}");
        match action {
            "add" => directory
                .add_index(definition, &mut progress)
                .map_err(failed)?,
            "drop" => {
                if !directory.drop_index(definition).map_err(failed)? {
                    return Err(format!("{shown}: there is no such index{before}"));
                }
            }
            _ => return Err(format!("'{action}' is neither add nor drop")),
        }
        done.push(shown);
    }
    let participle = if action == "add" { "added" } else { "dropped" };
    Ok(format!("{participle}: {}", done.join("; ")))
}

fn list(directory: &Directory, out: &mut impl Write) -> Result<()> {
    for index in directory.indexes()? {
        writeln!(
            out,
            "{} {}{}",
            index.attribute,
            index.kind,
            if index.is_complete {
                ""
            } else {
                "  (being built)"
            }
        )?;
    }
    Ok(())
}
