//! The second half of an import into a directory that has entries: it adds them, many to a transaction.

use std::sync::atomic::Ordering::Relaxed;

use sapwood_ldap::result::ResultCode;
use sapwood_store::sort::Sorted;

use super::build::reject;
use super::creation_stamps::{CreationStamps, Spelled};
use super::{ImportPhase, Shared, sort_failed};
use crate::engine::{Engine, Ticket};
use crate::error::{Error, Result};
use crate::update::Prepared;

/// Additions to a transaction, at most.
const ADDITIONS_MAX: usize = 1000;
/// Bytes of entries to a transaction: no more are added once there are so many.
const ADDITION_BYTES: usize = 4 << 20;

/// Adds sorted entries, parents before children.
pub(super) fn load<E: Engine>(shared: &Shared<'_, E>, mut sorted: Sorted) -> Result<()> {
    let mut payloads: Vec<Vec<u8>> = Vec::new();
    let mut stamps = CreationStamps::new(shared, Spelled::All)?;
    loop {
        let mut bytes = 0;
        payloads.clear();
        while payloads.len() < ADDITIONS_MAX && bytes < ADDITION_BYTES {
            let Some((_, payload)) = sorted.next().map_err(sort_failed)? else {
                break;
            };
            bytes += payload.len();
            payloads.push(payload.to_vec());
        }
        if payloads.is_empty() {
            return Ok(());
        }
        let prepared = payloads
            .iter()
            .map(|payload| Prepared::read(payload, &mut Vec::new()))
            .collect::<Option<Vec<_>>>();
        let prepared = prepared.ok_or_else(|| Error::corrupt("a sorted entry cannot be read"))?;
        let mut stamped = vec![Vec::new(); prepared.len()];
        let mut stored = Vec::new();
        for (prepared, operational) in prepared.iter().zip(&mut stamped) {
            stored.clear();
            stamps.record(prepared, operational, &mut stored)?;
        }
        let complete: Vec<_> = prepared
            .iter()
            .zip(&stamped)
            .map(|(prepared, operational)| Prepared {
                records: [prepared.records[0], operational],
                ..*prepared
            })
            .collect();
        let mut outcomes = Vec::with_capacity(complete.len());
        while outcomes.len() < complete.len() {
            let applied = shared.directory.add_prepared(&complete[outcomes.len()..])?;
            if let Some(ticket) = applied.ticket {
                ticket.wait()?;
            }
            outcomes.extend(applied.outcomes);
        }
        for (prepared, outcome) in prepared.iter().zip(outcomes) {
            match outcome.code {
                ResultCode::Success => {
                    shared.entries_written.fetch_add(1, Relaxed);
                }
                ResultCode::EntryAlreadyExists if shared.options.skip_present => {
                    shared.present.fetch_add(1, Relaxed);
                }
                _ => reject(shared, prepared, &outcome.diagnostic),
            }
        }
        shared.progress(ImportPhase::Write);
    }
}
