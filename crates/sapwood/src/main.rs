//! The `sapwood` command: parses the command line and calls the libraries.

// They panic when nobody reads: see `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod commands;
mod index_spec;
mod memory;
mod open;
mod output;
mod passing;
mod progress;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use cli::{Cli, Command};
use output::{Output, is_reader_gone, note};

fn main() -> ExitCode {
    memory::keep_little();
    match run(Cli::parse().command, &mut Output::new()) {
        Ok(code) => code,
        // No reason to complain.
        Err(error) if is_reader_gone(&error) => ExitCode::FAILURE,
        Err(error) => {
            note(format_args!("sapwood: {}", told(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, out: &mut Output) -> Result<ExitCode> {
    match command {
        Command::Init(args) => commands::init::run(&args, out),
        Command::Suffix(args) => commands::suffix::run(&args, out),
        Command::Import(args) => commands::import::run(&args, out),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Export(args) => commands::export::run(&args, out),
        Command::Check(args) => commands::check::run(&args, out),
        Command::Stat(args) => commands::stat::run(&args, out),
        Command::Backup(args) => commands::backup::backup(&args, out),
        Command::Restore(args) => commands::backup::restore(&args, out),
        Command::Replica(args) => commands::replica::run(&args, out),
        Command::Reload(args) => commands::reload::run(&args, out),
        Command::Passwd(args) => commands::passwd::run(&args, out),
        Command::Demo(args) => commands::demo::run(&args, out),
        Command::Store(command) => commands::store::run(&command, out),
        Command::Xact(command) => commands::xact::run(&command, out),
        Command::Drive(args) => commands::drive::run(&args, out),
        Command::Explain(args) => commands::explain::run(&args, out),
        Command::Schema(action) => commands::schema::run(&action, out),
        Command::Index(args) => commands::index::run(&args, out),
        Command::Access(args) => commands::access::run(&args, out),
        Command::Policy(args) => commands::policy::run(&args, out),
        Command::Rule(args) => commands::rule::run(&args, out),
        Command::Config(args) => commands::config::run(&args, out),
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
