//! The `sapwood` command: parses the command line and calls the libraries.

mod cli;
mod commands;
mod index_spec;
mod open;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Init(args) => commands::init::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Reload(args) => commands::reload::run(&args),
        Command::Passwd(args) => commands::passwd::run(&args),
        _ => Err(anyhow::anyhow!("not available yet")),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sapwood: {error:#}");
            ExitCode::FAILURE
        }
    }
}
