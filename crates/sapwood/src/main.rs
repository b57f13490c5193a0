//! The `sapwood` command: parses the command line and calls the libraries.

mod cli;
mod commands;
mod index_spec;
mod memory;
mod open;
mod progress;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    memory::keep_little();
    let result = match Cli::parse().command {
        Command::Init(args) => commands::init::run(&args),
        Command::Suffix(args) => commands::suffix::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Backup(args) => commands::backup::backup(&args),
        Command::Restore(args) => commands::backup::restore(&args),
        Command::Reload(args) => commands::reload::run(&args),
        Command::Passwd(args) => commands::passwd::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Store(command) => commands::store::run(&command),
        Command::Drive(args) => commands::drive::run(&args),
        Command::Index(args) => commands::index::run(&args),
    };
    match result {
        Ok(code) => code,
        // Who reads our output has had enough, as `head` does: no reason to complain.
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("sapwood: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, each once: many say their cause themselves.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| {
        let cause = cause.to_string();
        match told.contains(&cause) {
            _ if told.is_empty() => cause,
            true => told,
            false => format!("{told}: {cause}"),
        }
    })
}
