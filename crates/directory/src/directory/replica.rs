//! A directory becomes one of several replicas.

use sapwood_replication::{Cookie, Vector};

use super::{ChangePosition, Directory, Snapshot};
use crate::changes::{Csn, LostChange, agreement, conflicts, vector, watermark};
use crate::engine::{
    self, Bundle, Cursor, Direction, Engine, EntryId, Range, Read, Table, Ticket, Verdict, Write,
};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::operational::{self, Vocabulary};
use crate::update::AgreementPosition;

impl<E: Engine> Snapshot<E> {
    /// What the consumer of an agreement gives back to its provider: its last
    /// [position](crate::AgreementPosition::cookie). None at first.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn agreement_cookie(&self, rid: u16) -> Result<Option<Vec<u8>>> {
        Ok(agreement::cookie(self.view(), rid)?)
    }
}

/// What the consumer of each agreement begins with, by its number, where the engine holds a copy of all data of the
/// replica `of`. To be asked before anything is written to the copy, and its change feed
/// [renewed](super::renew_feed).
///
/// # Errors
/// When the engine fails.
pub fn first_position<E: Engine>(
    engine: &E,
    of: u16,
) -> Result<impl Fn(u16) -> AgreementPosition + use<E>> {
    let view = engine.waiting_snapshot()?;
    let complete = vector::of(&view)?;
    let position = ChangePosition::of(engine, &view)?.to_string();
    Ok(move |rid| {
        let cookie = Cookie {
            rid: Some(rid),
            sid: Some(of),
            vector: complete.clone(),
            position: Some(position.clone()),
        };
        AgreementPosition {
            rid,
            cookie: Some(cookie.to_string().into_bytes()),
            complete: complete.clone(),
        }
    })
}

impl<E: Engine> Directory<E> {
    /// Hands the lines of the conflict log to `each`, by the number of the change that has lost. Blocks.
    ///
    /// # Errors
    /// When the engine fails or a line is damaged.
    pub fn conflicts(&self, each: impl FnMut(LostChange)) -> Result<()> {
        let snapshot = self.waiting_snapshot()?;
        Ok(conflicts::for_each(snapshot.view(), each)?)
    }

    /// The number up to which all changes that were made here are visible in the newest commit. Blocks.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn newest_change(&self) -> Result<Csn> {
        let newest = watermark::of(self.waiting_snapshot()?.view())?;
        Ok(newest.unwrap_or_default())
    }

    /// The DN of the entry with this entryUUID, as of the newest commit; `None` if there is none. Blocks.
    ///
    /// # Errors
    /// When the engine fails, or entryUUID has no complete index.
    pub fn dn_of_uuid(&self, uuid: [u8; 16]) -> Result<Option<String>> {
        let snapshot = self.waiting_snapshot()?;
        snapshot.require_uuid_index()?;
        match snapshot.entry_of_uuid(uuid)? {
            Some(id) => names::dn_if_there(snapshot.view(), id),
            None => Ok(None),
        }
    }

    /// Gets the directory ready to make changes as a replica: looks at all entries, and writes down up to which change
    /// of each other replica it is complete. Nobody may update it meanwhile. From then on it is to be opened with
    /// [`Options::replica`](crate::Options::replica).
    ///
    /// # Errors
    /// When its entries have changes of that number already, which would be taken for its own; when the number is not
    /// one of 1 to 4095; when the engine fails or stored data is damaged.
    pub fn become_replica(&self, replica: u16) -> Result<()> {
        if !(1..=Csn::REPLICA_MAX).contains(&replica) {
            let most = Csn::REPLICA_MAX;
            return Err(Error::Config(format!(
                "a replica has a number from 1 to {most}"
            )));
        }
        let vector = self.vector_of_entries()?;
        let used = vector.of(replica);
        if used != Csn::default() {
            return Err(Error::Config(format!(
                "the entries have changes of replica {replica} already, the last is {used}: take another number"
            )));
        }
        if let Some(ticket) = self.engine().write(&mut Put(&vector))? {
            ticket.wait()?;
        }
        Ok(())
    }

    /// The greatest number of each replica, in all entries and in what is known of changes.
    fn vector_of_entries(&self) -> Result<Vector> {
        let snapshot = self.waiting_snapshot()?;
        let vocabulary = Vocabulary {
            schema: snapshot.schema(),
            attributes: &snapshot.state().attributes,
        };
        let mut vector = vector::of(snapshot.view())?;
        let (from, to) = (EntryId(1).to_key(), EntryId(u64::MAX).to_key());
        let range = Range::between(&from, &to);
        let mut records = (snapshot.view()).scan(Table::Entry, range, Direction::Forward)?;
        while let Some((key, record)) = records.next()? {
            let damaged = |damaged| {
                let id = EntryId::from_key(key).unwrap_or(EntryId::ROOT);
                Error::corrupt(format!("entry {id}: {damaged}"))
            };
            let entry = Entry::new(record).map_err(damaged)?;
            let version = operational::version_of(&entry, vocabulary).map_err(damaged)?;
            if let Some(csn) = version.and_then(|version| version.csn) {
                vector.advance(csn);
            }
        }
        Ok(vector)
    }
}

struct Put<'v>(&'v Vector);

impl Bundle for Put<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        vector::put(txn, self.0)?;
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}
