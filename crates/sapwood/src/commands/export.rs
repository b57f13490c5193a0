//! `sapwood export`: entries as LDIF.
//!
//! Searches give entries in the order in which they are stored, where a moved entry can come before its new parent. So
//! the whole tree is walked level by level, into the entries that have subordinates. With a filter, which may well
//! leave parents out, one search does.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sapwood_directory::schema::Schema;
use sapwood_directory::{
    Budget, Directory, EntrySink, Requester, Search, SearchOptions, Sink, Snapshot, Step,
};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::{Attributes, OctetStrings, OctetStringsBuf};
use sapwood_ldap::message::{Scope, SearchRequest};
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
    let mut exporter = Exporter::new(snapshot, &config.admin.dn, out);
    ldif::write_version(&mut exporter.ldif.text);
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
    exporter.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes an entry with all that is below it, as the administrator sees it.
pub(crate) fn tree(
    directory: &Directory,
    base: &str,
    administrator: &str,
    out: impl Write,
) -> Result<()> {
    let mut exporter = Exporter::new(directory.snapshot()?, administrator, out);
    match exporter.walk(base)? {
        (ResultCode::Success, _) => Ok(exporter.finish()?),
        (code, diagnostic) => bail!("{base}: {code} {diagnostic}"),
    }
}

struct Exporter<W: Write> {
    snapshot: Snapshot,
    requester: Arc<Requester>,
    attributes: OctetStringsBuf,
    out: BufWriter<W>,
    ldif: Ldif,
}

impl<W: Write> Exporter<W> {
    fn new(snapshot: Snapshot, administrator: &str, out: W) -> Self {
        let schema = snapshot.schema().clone();
        Exporter {
            snapshot,
            // Everything may be read by who can read the file.
            requester: Requester::administrator(administrator),
            attributes: OctetStringsBuf::from_iter([b"*", b"+"]),
            out: BufWriter::with_capacity(PIECE_BYTES, out),
            ldif: Ldif {
                schema,
                text: Vec::new(),
                are_subentries: false,
                with_subordinates: Vec::new(),
            },
        }
    }

    /// Writes what is left.
    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.ldif.text)?;
        self.out.flush()
    }

    /// Writes an entry and everything below it, parents first.
    fn walk(&mut self, base: &str) -> Result<(ResultCode, String)> {
        self.ldif.with_subordinates.clear();
        let mut result = self.search_all(base, Scope::Base, Filter::OBJECT_CLASS_PRESENT)?;
        while result.0 == ResultCode::Success
            && let Some(parent) = self.ldif.with_subordinates.pop()
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
        match self.search(base, scope, filter, false)? {
            (ResultCode::Success, _) => self.search(base, scope, filter, true),
            result => Ok(result),
        }
    }

    /// Writes what a search finds.
    fn search(
        &mut self,
        base: &str,
        scope: Scope,
        filter: Filter<'_>,
        subentries: bool,
    ) -> Result<(ResultCode, String)> {
        let request = SearchRequest {
            attributes: self.attributes.view(),
            ..SearchRequest::new(base, scope, filter)
        };
        let options = SearchOptions {
            manage_dsa_it: true,
            subentries: Some(subentries),
            ..SearchOptions::default()
        };
        let mut search = Search::new(self.snapshot.clone(), &self.requester, &request, options);
        self.ldif.are_subentries = subentries;
        let mut out_bytes = PIECE_BYTES;
        loop {
            let budget = Budget {
                entries: STEP_ENTRIES,
                work: u64::MAX,
                out_bytes,
            };
            let step = search.step(&mut self.ldif, budget)?;
            self.out.write_all(&self.ldif.text)?;
            self.ldif.text.clear();
            match step {
                Step::More | Step::Fetch | Step::Wait => {}
                Step::Room(bytes) => out_bytes = bytes,
                Step::Done(outcome) => return Ok((outcome.code, outcome.diagnostic)),
            }
        }
    }
}

/// Writes entries as LDIF (RFC 2849), without what a server makes anew where they are added.
struct Ldif {
    schema: Schema,
    text: Vec<u8>,
    /// What is found are subentries: in them stands what other entries have of a collective attribute.
    are_subentries: bool,
    /// DNs of entries that were written and whose subordinates were not.
    with_subordinates: Vec<String>,
}

impl Sink for Ldif {
    type Entry<'s>
        = LdifEntry<'s>
    where
        Self: 's;

    fn bytes(&self) -> usize {
        self.text.len()
    }

    /// As LDIF an entry may be longer than in BER: the size of a piece is no promise.
    fn envelope_bytes_max(&self) -> usize {
        0
    }

    fn begin_entry(&mut self, dn: &[u8], _bytes: usize) -> LdifEntry<'_> {
        let before = self.text.len();
        let dn = String::from_utf8_lossy(dn).into_owned();
        ldif::write_dn(&mut self.text, &dn);
        LdifEntry {
            ldif: self,
            dn,
            has_subordinates: false,
            unfinished: Some(before),
        }
    }

    /// There are none: a referral object is written as the entry that it is.
    fn put_reference(&mut self, _uris: OctetStrings<'_>) {}
}

/// An entry on its way.
struct LdifEntry<'s> {
    ldif: &'s mut Ldif,
    dn: String,
    has_subordinates: bool,
    /// Length of the text before it, while there may be more of it.
    unfinished: Option<usize>,
}

impl EntrySink for LdifEntry<'_> {
    fn put_ber(&mut self, attributes: &[u8]) {
        for attribute in Attributes::from_checked(attributes) {
            self.put_attribute(attribute.description, attribute.values);
        }
    }

    fn put_attribute<'v>(
        &mut self,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        let Ldif {
            schema,
            text,
            are_subentries,
            ..
        } = self.ldif;
        let is_stored = *are_subentries || !schema.is_collective(description);
        if is_stored && !schema.is_derived(description) {
            let description = String::from_utf8_lossy(description);
            for value in values {
                ldif::write_value(text, &description, value);
            }
        } else if description == HAS_SUBORDINATES {
            self.has_subordinates = values.into_iter().any(|value| value == b"TRUE");
        }
    }

    fn put_values(&mut self, description: &[u8], values: &[u8]) {
        self.put_attribute(description, OctetStrings::from_checked(values));
    }

    fn finish(mut self) {
        self.unfinished = None;
        self.ldif.text.push(b'\n');
        if self.has_subordinates {
            let dn = std::mem::take(&mut self.dn);
            self.ldif.with_subordinates.push(dn);
        }
    }
}

impl Drop for LdifEntry<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.unfinished {
            self.ldif.text.truncate(before);
        }
    }
}
