//! A state of the directory, to be read from.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Directory, Known, Learned};
use crate::changes::conflicts;
use crate::collective::Collective;
use crate::config::Settings;
use crate::engine::{CommitNo, Embedded, Engine, EntryId, Index, IndexKind, Read, Table};
use crate::entry::Entry;
use crate::error::{self, Error, Result};
use crate::examined::Examined;
use crate::indexes::Completeness;
use crate::names::{self, DnCache};
use crate::operational::Vocabulary;
use crate::plan::classes;
use crate::schema::{NormalDn, OperationalAttribute, Schema};
use crate::second_factor::{self, SecondFactor};
use crate::state::State;
use crate::synthetic::conflicts::CONFLICTS_SHOWN_MAX;
use crate::synthetic::root_dse::Channel;
use crate::synthetic::{Context, SyntheticContext};
use crate::update::replicated::entry_of_uuid;
use crate::update::rules::RuleSet;

/// The directory as of one commit. Clones share the same view.
pub struct Snapshot<E: Engine = Embedded> {
    pub(super) seen: Arc<Seen<E>>,
}

/// What clones share: one count of references, which other threads have nothing to do with, for each search of a burst.
pub(super) struct Seen<E: Engine> {
    pub(super) directory: Directory<E>,
    pub(super) view: E::Snapshot,
    pub(super) known: Arc<Known>,
    /// The names that searches have built.
    pub(super) names: Mutex<DnCache>,
}

impl<E: Engine> Clone for Snapshot<E> {
    fn clone(&self) -> Self {
        Snapshot {
            seen: self.seen.clone(),
        }
    }
}

/// What a snapshot that has ended knew of its commit, which it holds no longer; for [`Directory::snapshot_after`].
pub struct RetiredSnapshot<E: Engine = Embedded> {
    pub(super) directory: Directory<E>,
    pub(super) view: E::Retired,
    pub(super) names: DnCache,
    pub(super) known: Arc<Known>,
}

/// What a bind needs to know of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The entry.
    pub entry: EntryId,
    /// Its DN as stored.
    pub dn: String,
    /// Its userPassword values, the first of them if there are many.
    pub stored: Vec<Vec<u8>>,
    /// Its authPassword values, as many.
    pub verifiers: Vec<Vec<u8>>,
    /// Whether password policies are to judge binds.
    pub is_governed: bool,
    /// Whether there may be a [second factor](Snapshot::second_factor).
    pub may_have_second_factor: bool,
    /// Whether a password is stored in the usual form when somebody binds with it.
    pub is_stored_anew: bool,
}

impl<E: Engine> Snapshot<E> {
    /// The directory this is a state of.
    pub fn directory(&self) -> &Directory<E> {
        &self.seen.directory
    }

    /// The commit it shows.
    pub fn commit(&self) -> CommitNo {
        self.seen.view.commit()
    }

    /// The schema.
    #[inline]
    pub fn schema(&self) -> &Schema {
        &self.seen.known.state.schema
    }

    /// Ends it. Nothing is left while there are clones, with the last of which it ends.
    pub fn end(self) -> Option<RetiredSnapshot<E>> {
        let seen = Arc::into_inner(self.seen)?;
        let names = seen.names.into_inner();
        Some(RetiredSnapshot {
            directory: seen.directory,
            view: E::end(seen.view),
            names: names.unwrap_or_else(PoisonError::into_inner).shortened(),
            known: seen.known,
        })
    }

    /// Fetches, in one round, all that reads of this state have found not to be here: those of all its clones. Blocks
    /// until it is here.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn fetch(&self) -> Result<()> {
        Ok(E::fetch(self.view())?)
    }

    /// Reads, and has fetched what is not here, until all of it is. `read` must begin anew each time.
    ///
    /// # Errors
    /// Those of `read`, but for [`NotHere`](crate::engine::Error::NotHere).
    pub fn through<T>(&self, mut read: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        error::through::<E, T>(self.view(), || read(self))
    }

    pub(crate) fn view(&self) -> &E::Snapshot {
        &self.seen.view
    }

    /// The names that searches have built, taken by one for as long as it works. Another one at the same time begins
    /// without any.
    pub(crate) fn take_names(&self) -> DnCache {
        let mut names = self
            .seen
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *names)
    }

    /// Gives them back, with those that were built meanwhile.
    pub(crate) fn put_back_names(&self, built: DnCache) {
        if let Some(superior) = built.last() {
            self.learned().learn_superior(superior);
        }
        let mut names = self
            .seen
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *names = built;
    }

    /// What searches of this commit have found out.
    pub(crate) fn learned(&self) -> &Learned {
        &self.seen.known.learned
    }

    /// The collective attributes of its entries; none, which is known at once, where there never were any.
    #[inline]
    pub(crate) fn collective(&self) -> Result<Option<Arc<Collective>>> {
        if !self.state().attributes.has_collective() {
            return Ok(None);
        }
        let find = || {
            let (schema, state, view) = (self.schema(), self.state(), self.view());
            let attributes = &state.attributes;
            let candidates = classes::subentries(schema, state, view)?;
            Collective::of((view, Vocabulary { schema, attributes }), candidates)
        };
        self.learned().collective(find)
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.seen.known.state
    }

    /// What holds of the data besides the schema.
    pub(crate) fn rules(&self) -> &RuleSet {
        &self.seen.known.rules
    }

    /// Which entries were examined.
    pub(crate) fn examined(&self) -> &Examined {
        &self.seen.directory.shared.examined
    }

    pub(crate) fn now_micros(&self) -> u64 {
        self.seen.directory.shared.options.clock.now_micros()
    }

    /// A synthetic context on a kind of connection.
    pub(crate) fn synthetic(
        &self,
        context: SyntheticContext,
        channel: Channel,
    ) -> Result<Arc<Context>> {
        let directory = self.directory();
        let root_dse = &directory.options().root_dse;
        let contexts = directory.synthetic();
        contexts.get(context, channel, root_dse, self.state(), || {
            Ok(conflicts::latest(self.view(), CONFLICTS_SHOWN_MAX)?)
        })
    }

    /// What is configured with the data.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.state().settings
    }

    /// The naming contexts' DNs as configured.
    pub fn naming_contexts(&self) -> impl Iterator<Item = &str> {
        self.state()
            .contexts
            .iter()
            .map(|context| context.dn.as_str())
    }

    /// The index that entries are found in by their entryUUID; `None` while there is none that has them all.
    fn uuid_index(&self) -> Option<Index> {
        let uuid = self.schema().operational(OperationalAttribute::EntryUuid);
        let indexed = self.state().indexes.of(uuid)?;
        let is_complete = indexed.equality == Completeness::Complete;
        is_complete.then(|| indexed.index(IndexKind::Equality))
    }

    /// The entry with this entryUUID; `None` also while there is no index that has them all.
    pub(crate) fn entry_of_uuid(&self, uuid: [u8; 16]) -> Result<Option<EntryId>> {
        match self.uuid_index() {
            Some(index) => Ok(entry_of_uuid(self.view(), self.schema(), index, uuid)?),
            None => Ok(None),
        }
    }

    /// # Errors
    /// When there is no index that has all entryUUIDs.
    pub(crate) fn require_uuid_index(&self) -> Result<()> {
        let lacking = || Error::State("entryUUID is not indexed".into());
        self.uuid_index().map(|_| ()).ok_or_else(lacking)
    }

    /// The DN of a user's entry as it is now; `None` if the entry is not there any more. For the parent of partitions,
    /// whose id another entry may have by now, it is always `None`.
    pub fn dn_of(&self, entry: EntryId) -> Result<Option<String>> {
        match entry.partitions() {
            Some(_) => Ok(None),
            None => names::dn_if_there(self.view(), entry),
        }
    }

    /// The entry with this DN and its passwords, the first `values_max` of them; `None` when there is no such entry or
    /// no such DN.
    pub fn credentials(&self, dn: &str, values_max: usize) -> Result<Option<Credentials>> {
        let mut normal = NormalDn::new();
        match normal.parse(self.schema(), dn.as_bytes()) {
            Ok(()) => self.credentials_of(&normal, values_max),
            Err(_) => Ok(None),
        }
    }

    /// The same by the normal form of the DN.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn credentials_of(&self, dn: &NormalDn, values_max: usize) -> Result<Option<Credentials>> {
        let walk = names::walk(self.view(), &self.state().contexts, dn)?;
        let Some(child) = walk.and_then(|walk| walk.found()) else {
            return Ok(None);
        };
        let entry = child.id;
        let record = self.view().get(Table::Entry, &entry.to_key())?;
        let record = record
            .ok_or_else(|| Error::corrupt(format!("entry {entry} has a name but no record")))?;
        let damaged = |error| Error::corrupt(format!("entry {entry}: {error}"));
        let read = Entry::new(&record).map_err(damaged)?;
        let values_of = |attribute_type| -> Result<Vec<Vec<u8>>> {
            let mut found: Vec<Vec<u8>> = Vec::new();
            for known in self.state().attributes.of_type(attribute_type) {
                let values = read.attribute(known.number()).map_err(damaged)?;
                let values = values.iter().flat_map(|values| values.values());
                let left = values_max.saturating_sub(found.len());
                found.extend(values.take(left).map(<[u8]>::to_vec));
            }
            Ok(found)
        };
        let rdn = read.rdn().map_err(damaged)?;
        let mut built = self.take_names();
        let above = built.superior(self.view(), read.parent());
        let dn = above.map(|above| match above {
            Some(above) => [rdn, &above.dn].join(","),
            None => rdn.to_owned(),
        });
        self.put_back_names(built);
        let dn = dn?;
        let known = self.schema().well_known();
        Ok(Some(Credentials {
            entry,
            dn,
            stored: values_of(known.user_password)?,
            verifiers: values_of(known.auth_password)?,
            is_governed: self.settings().password_policy.is_some(),
            may_have_second_factor: self.settings().second_factor,
            is_stored_anew: self.settings().password_upgrade,
        }))
    }

    /// What somebody needs to bind as an entry, besides its password; none if that is enough.
    pub fn second_factor(&self, entry: EntryId) -> Result<Option<SecondFactor>> {
        let sources = (self.schema(), &**self.state(), self.view());
        second_factor::of_entry(sources, entry, self.now_micros())
    }
}
