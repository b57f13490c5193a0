//! `sapwood export`: entries as LDIF.
//!
//! Searches give entries in the order in which they are stored, where a moved entry can come before its new parent. So
//! the whole tree is walked level by level, into the entries that have subordinates. With a filter, which may well
//! leave parents out, one search does.

use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sapwood_directory::{Budget, Requester, Search, SearchOptions, Snapshot, Step};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    Frame, Response, ResponseMessage, Scope, SearchRequest, SearchResultEntry, frame,
};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::{filter_text, ldif};
use sapwood_server::Config;

use crate::cli::Export;
use crate::open;
use crate::output::Output;

/// LDIF is written in pieces of about this size.
const PIECE_BYTES: usize = 256 << 10;
/// Entries between two looks at the output.
const STEP_ENTRIES: u32 = 1000;
const HAS_SUBORDINATES: &[u8] = b"hasSubordinates";

pub(crate) fn run(args: &Export, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let snapshot = directory.snapshot()?;
    let filter = args.filter.as_deref().map(filter_text::parse).transpose();
    let filter = filter
        .with_context(|| format!("--filter '{}'", args.filter.as_deref().unwrap_or_default()))?;
    let bases = match &args.base {
        Some(base) => vec![base.clone()],
        None => snapshot.naming_contexts().map(str::to_owned).collect(),
    };
    let mut attributes = OctetStringsBuf::default();
    attributes.push(b"*");
    attributes.push(b"+");
    let mut text = Vec::new();
    ldif::write_version(&mut text);
    let mut exporter = Exporter {
        snapshot,
        // Everything may be read by who can read the file.
        requester: Requester::administrator(config.admin.dn),
        attributes,
        out: BufWriter::with_capacity(PIECE_BYTES, out),
        text,
        with_subordinates: Vec::new(),
    };
    for base in &bases {
        let result = match &filter {
            Some(filter) => exporter.search_all(base, Scope::Subtree, filter.as_filter()),
            None => exporter.walk(base),
        }?;
        match result {
            (ResultCode::Success, _) => {}
            // A naming context whose entry was never added has nothing to export.
            (ResultCode::NoSuchObject, _) if args.base.is_none() => {}
            (code, diagnostic) => bail!("{base}: {code} {diagnostic}"),
        }
    }
    exporter.out.write_all(&exporter.text)?;
    exporter.out.flush()?;
    Ok(ExitCode::SUCCESS)
}

struct Exporter<'o> {
    snapshot: Snapshot,
    requester: Arc<Requester>,
    attributes: OctetStringsBuf,
    out: BufWriter<&'o mut Output>,
    text: Vec<u8>,
    /// DNs of entries that were written and whose subordinates were not.
    with_subordinates: Vec<String>,
}

impl Exporter<'_> {
    /// Writes an entry and everything below it, parents first.
    fn walk(&mut self, base: &str) -> Result<(ResultCode, String)> {
        self.with_subordinates.clear();
        // A subentry that is named is seen.
        let mut result = self.search(base, Scope::Base, Filter::OBJECT_CLASS_PRESENT, None)?;
        while result.0 == ResultCode::Success
            && let Some(parent) = self.with_subordinates.pop()
        {
            result = self.search_all(&parent, Scope::OneLevel, Filter::OBJECT_CLASS_PRESENT)?;
        }
        Ok(result)
    }

    /// Writes the entries that a search finds, then the subentries, which it does not see otherwise (RFC 3672 §3).
    fn search_all(
        &mut self,
        base: &str,
        scope: Scope,
        filter: Filter<'_>,
    ) -> Result<(ResultCode, String)> {
        match self.search(base, scope, filter, Some(false))? {
            (ResultCode::Success, _) => self.search(base, scope, filter, Some(true)),
            result => Ok(result),
        }
    }

    /// Writes what a search finds.
    fn search(
        &mut self,
        base: &str,
        scope: Scope,
        filter: Filter<'_>,
        subentries: Option<bool>,
    ) -> Result<(ResultCode, String)> {
        let request = SearchRequest {
            attributes: self.attributes.view(),
            ..SearchRequest::new(base, scope, filter)
        };
        let options = SearchOptions {
            message_id: 1,
            manage_dsa_it: true,
            subentries,
            ..SearchOptions::default()
        };
        let mut search = Search::new(self.snapshot.clone(), &self.requester, &request, options);
        let mut found = Vec::new();
        let mut out_bytes = PIECE_BYTES;
        loop {
            let step = search.step(
                &mut found,
                Budget {
                    entries: STEP_ENTRIES,
                    work: u64::MAX,
                    out_bytes,
                },
            )?;
            self.write(&found)?;
            found.clear();
            match step {
                Step::More => {}
                Step::Room(bytes) => out_bytes = bytes,
                Step::Done(outcome) => return Ok((outcome.code, outcome.diagnostic)),
            }
        }
    }

    /// Writes the entries of finished messages.
    fn write(&mut self, mut messages: &[u8]) -> Result<()> {
        while let Frame::Complete(length) = frame(messages, usize::MAX)? {
            let (message, rest) = messages.split_at(length);
            messages = rest;
            if let Response::SearchEntry(entry) = ResponseMessage::decode(message)?.op {
                self.write_entry(&entry)?;
            }
        }
        if self.text.len() >= PIECE_BYTES {
            self.out.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    fn write_entry(&mut self, entry: &SearchResultEntry<'_>) -> Result<()> {
        ldif::write_dn(&mut self.text, entry.dn);
        // What entries have of a collective attribute stands in its subentry.
        let is_subentry = entry.attributes.iter().any(|attribute| {
            let mut values = attribute.values.iter();
            attribute.description.eq_ignore_ascii_case(b"objectClass")
                && values.any(|class| class.eq_ignore_ascii_case(b"subentry"))
        });
        for attribute in entry.attributes.iter() {
            if attribute.description == HAS_SUBORDINATES
                && attribute.values.iter().any(|value| value == b"TRUE")
            {
                self.with_subordinates.push(entry.dn.to_owned());
            }
            let schema = self.snapshot.schema();
            let is_stored = is_subentry || !schema.is_collective(attribute.description);
            if is_stored && !schema.is_derived(attribute.description) {
                let description = std::str::from_utf8(attribute.description)?;
                attribute
                    .values
                    .iter()
                    .for_each(|value| ldif::write_value(&mut self.text, description, value));
            }
        }
        self.text.push(b'\n');
        Ok(())
    }
}
