//! Whether a server has the entries that it was given.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use sapwood_client::{Connection, Options};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::ldif::{self, Body, Reader};
use sapwood_ldap::message::{Message, Request, Response, ResponseMessage, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;

use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Server};

/// How many entries are compared.
const VERIFIED: u64 = 500;

/// Values by attribute, sorted: RFC 4511 leaves their order open.
type Values = BTreeMap<String, Vec<Vec<u8>>>;

/// Reads entries all over the tree and compares them with the file of so many entries; how many.
pub(crate) async fn verify(server: &Server, file: &Path, entries: u64) -> Result<u64> {
    let mut connection = Connection::open(&server.url, &Options::default()).await?;
    connection.bind(ADMIN_DN, ADMIN_PASSWORD.as_bytes()).await?;
    let step = (entries / VERIFIED).max(1);
    let mut reader = Reader::new(File::open(file)?, ldif::Options::default());
    let (mut number, mut seen) = (0, 0);
    while let Some(record) = reader.next_record()? {
        number += 1;
        if (number - 1) % step != 0 {
            continue;
        }
        let record = record.map_err(|rejected| anyhow::anyhow!("{rejected}"))?;
        let Body::Entry(values) = &record.body else {
            bail!("{}: not an entry", record.dn);
        };
        let expected = sorted(
            values
                .iter()
                .map(|value| (value.description.as_bytes(), value.value.to_vec())),
        );
        let found = read(&mut connection, &record.dn).await?;
        ensure!(
            found == expected,
            "{}: {found:?} in place of {expected:?}",
            record.dn
        );
        seen += 1;
    }
    Ok(seen)
}

fn sorted<'v>(values: impl Iterator<Item = (&'v [u8], Vec<u8>)>) -> Values {
    let mut all = Values::new();
    for (description, value) in values {
        let description = String::from_utf8_lossy(description).to_ascii_lowercase();
        all.entry(description).or_default().push(value);
    }
    all.values_mut().for_each(|values| values.sort());
    all
}

/// A search for everything at or below an entry, encoded.
pub(crate) fn search(base: &str, scope: Scope) -> Vec<u8> {
    let op = Request::Search(SearchRequest::new(
        base,
        scope,
        Filter::OBJECT_CLASS_PRESENT,
    ));
    let mut request = Vec::new();
    Message {
        id: 2,
        op,
        controls: Controls::EMPTY,
    }
    .encode(&mut request);
    request
}

async fn read(connection: &mut Connection, dn: &str) -> Result<Values> {
    let request = search(dn, Scope::Base);
    connection.send(&request).await?;
    let reply = ResponseMessage::decode(connection.receive().await?)?;
    let Response::SearchEntry(entry) = reply.op else {
        bail!("{dn}: {:?} in place of the entry", reply.op);
    };
    let values = entry.attributes.iter().flat_map(|attribute| {
        let values = attribute.values.iter();
        values.map(move |value| (attribute.description, value.to_vec()))
    });
    let values = sorted(values);
    let done = ResponseMessage::decode(connection.receive().await?)?;
    let result = done.op.result().context("no end of the search")?;
    ensure!(result.code == ResultCode::Success, "{dn}: {}", result.code);
    Ok(values)
}
