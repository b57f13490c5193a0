//! `sapwood schema`: the definitions that a new directory can have by name.

use std::process::ExitCode;

use anyhow::Result;
use sapwood_directory::schema::NAMED_SCHEMAS;

use crate::cli::SchemaAction;
use crate::output::Output;

pub(crate) fn run(action: &SchemaAction, out: &mut Output) -> Result<ExitCode> {
    match action {
        SchemaAction::List => {
            for known in NAMED_SCHEMAS {
                out.say(format_args!("{:<12} {}", known.name, known.about));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
