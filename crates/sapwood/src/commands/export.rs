//! `sapwood export`: entries as LDIF.

use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_directory::{Budget, Identity, Search, SearchOptions, Step};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    DerefAliases, Frame, Response, ResponseMessage, Scope, SearchRequest, frame,
};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::{filter_text, ldif};
use sapwood_server::Config;

use crate::cli::Export;
use crate::open;

/// LDIF is written in pieces of about this size.
const PIECE_BYTES: usize = 256 << 10;
/// Entries between two looks at the output.
const STEP_ENTRIES: u32 = 1000;
/// Operational attributes that follow from where an entry is: an import computes them anew.
const DERIVED: [&str; 5] = [
    "entryDN",
    "hasSubordinates",
    "numSubordinates",
    "structuralObjectClass",
    "subschemaSubentry",
];

pub(crate) fn run(args: &Export) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let snapshot = directory.snapshot()?;
    let filter =
        filter_text::parse(&args.filter).with_context(|| format!("--filter '{}'", args.filter))?;
    let bases = match &args.base {
        Some(base) => vec![base.clone()],
        None => snapshot.naming_contexts().map(str::to_owned).collect(),
    };
    let mut attributes = OctetStringsBuf::default();
    attributes.push(b"*");
    attributes.push(b"+");
    // Everything may be read by who can read the file.
    let identity = Identity::Admin {
        dn: config.admin.dn,
    };
    let mut out = BufWriter::with_capacity(PIECE_BYTES, stdout().lock());
    let mut text = Vec::new();
    ldif::write_version(&mut text);
    for base in &bases {
        let request = SearchRequest {
            base,
            scope: Scope::Subtree,
            deref_aliases: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter: filter.as_filter(),
            attributes: attributes.view(),
        };
        let options = SearchOptions {
            message_id: 1,
            manage_dsa_it: true,
            ..SearchOptions::default()
        };
        let mut search = Search::new(snapshot.clone(), &identity, &request, options);
        let mut found = Vec::new();
        loop {
            let step = search.step(
                &mut found,
                Budget {
                    entries: STEP_ENTRIES,
                    out_bytes: PIECE_BYTES,
                },
            )?;
            write_entries(&found, &mut text)?;
            found.clear();
            out.write_all(&text)?;
            text.clear();
            match step {
                Step::More => {}
                Step::Done(outcome) if outcome.code == ResultCode::Success => break,
                // A naming context whose entry was never added has nothing to export.
                Step::Done(outcome)
                    if outcome.code == ResultCode::NoSuchObject && args.base.is_none() =>
                {
                    break;
                }
                Step::Done(outcome) => bail!("{base}: {} {}", outcome.code, outcome.diagnostic),
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Appends the entries of finished messages as LDIF.
fn write_entries(mut messages: &[u8], text: &mut Vec<u8>) -> Result<()> {
    while let Frame::Complete(length) = frame(messages, usize::MAX)? {
        let (message, rest) = messages.split_at(length);
        messages = rest;
        let response = ResponseMessage::decode(message)?;
        let Response::SearchEntry(entry) = response.op else {
            continue;
        };
        ldif::write_dn(text, entry.dn);
        for attribute in entry.attributes.iter() {
            let description = std::str::from_utf8(attribute.description)?;
            if DERIVED
                .iter()
                .any(|derived| derived.eq_ignore_ascii_case(description))
            {
                continue;
            }
            attribute
                .values
                .iter()
                .for_each(|value| ldif::write_value(text, description, value));
        }
        text.push(b'\n');
    }
    Ok(())
}
