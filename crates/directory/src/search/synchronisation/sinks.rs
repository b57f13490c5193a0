//! Where the entries of a synchronisation go.

use sapwood_ldap::controls::{Control, ControlsBuf, EntryState, SYNC_STATE, SyncState};
use sapwood_ldap::list::OctetStrings;
use sapwood_ldap::sync_info::{SyncInfo, SyncUuidsBuf};
use sapwood_replication::Vector;

use super::{ENVELOPE_BYTES_MAX, put_info};
use crate::changes::{Csn, registers};
use crate::engine::Read;
use crate::error::{Error, Result};
use crate::matching::sink::{Admission, EntrySink, Sink, Wire, WireEntry};
use crate::operational::EntryVersion;

/// Bytes of a Sync State control without a cookie.
const STATE_BYTES_MAX: usize = 64;
/// entryUUIDs that are told together.
const SET_UUIDS_MAX: usize = 500;
/// Bytes of an entryUUID in a set.
const UUID_BYTES: usize = 18;

/// entryUUIDs that are told together.
#[derive(Debug, Default)]
pub(super) struct UuidSet {
    uuids: SyncUuidsBuf,
}

impl UuidSet {
    /// Adds one, if the set has room for it.
    pub(super) fn push(&mut self, uuid: [u8; 16]) -> bool {
        let has_room = self.uuids.bytes() < SET_UUIDS_MAX * UUID_BYTES;
        if has_room {
            self.uuids.push(uuid);
        }
        has_room
    }

    /// Bytes of its message at most.
    pub(super) fn bytes_max(&self) -> usize {
        self.uuids.bytes() + ENVELOPE_BYTES_MAX
    }

    /// Tells those that are in it, and empties it. They have gone, or are as they were.
    pub(super) fn put(&mut self, wire: &mut Wire<'_>, have_gone: bool) {
        if self.uuids.bytes() > 0 {
            let set = SyncInfo::IdSet {
                cookie: None,
                refresh_deletes: have_gone,
                uuids: self.uuids.view(),
            };
            put_info(wire, &set);
            self.uuids.clear();
        }
    }
}

/// Appends what has become of an entry.
pub(super) fn push_state(controls: &mut ControlsBuf, state: EntryState, entry_uuid: [u8; 16]) {
    let mut value = Vec::new();
    let state = SyncState {
        state,
        entry_uuid,
        cookie: None,
    };
    state.encode(&mut value);
    controls.push(Control {
        oid: SYNC_STATE,
        critical: false,
        value: Some(&value),
    });
}

/// Tells entries with what has become of them.
struct Stating<'s, 'o> {
    wire: &'s mut Wire<'o>,
    /// Those of the entry that comes next.
    controls: ControlsBuf,
}

impl<'s, 'o> Stating<'s, 'o> {
    fn new(wire: &'s mut Wire<'o>) -> Stating<'s, 'o> {
        Stating {
            wire,
            controls: ControlsBuf::default(),
        }
    }

    fn state(&mut self, state: EntryState, uuid: [u8; 16]) {
        self.controls = ControlsBuf::default();
        let own = self.wire.controls().iter();
        own.for_each(|control| self.controls.push(control));
        push_state(&mut self.controls, state, uuid);
    }

    fn envelope_bytes_max(&self) -> usize {
        self.wire.envelope_bytes_max() + STATE_BYTES_MAX
    }

    fn begin_entry(&mut self, dn: &[u8], bytes: usize) -> WireEntry<'_> {
        (self.wire).begin_entry_carrying(self.controls.view(), dn, bytes)
    }
}

/// Takes all there is: whole what a consumer lacks, of the rest the entryUUID.
pub(super) struct Contents<'s, 'o, R> {
    out: Stating<'s, 'o>,
    known: &'s Vector,
    /// Where the registers of entries are, if values are kept apart: an older change of one may have come after the
    /// entry's last.
    registers: Option<&'s R>,
    unchanged: &'s mut UuidSet,
    /// Why it is not known whether the consumer lacks the next entry.
    failed: Option<Error>,
}

impl<'s, 'o, R: Read> Contents<'s, 'o, R> {
    pub(super) fn new(
        wire: &'s mut Wire<'o>,
        (known, registers): (&'s Vector, Option<&'s R>),
        unchanged: &'s mut UuidSet,
    ) -> Contents<'s, 'o, R> {
        Contents {
            out: Stating::new(wire),
            known,
            registers,
            unchanged,
            failed: None,
        }
    }

    /// What has kept it from telling an entry, which may not be here yet.
    pub(super) fn failed(self) -> Option<Error> {
        self.failed
    }

    /// Whether a consumer that has the changes of the vector has the entry as it is.
    fn is_known(&self, uuid: [u8; 16], csn: Option<Csn>) -> Result<bool> {
        let Some(csn) = csn.filter(|csn| self.known.covers(*csn)) else {
            return Ok(false);
        };
        Ok(match self.registers {
            None => true,
            Some(view) => {
                let kept = registers::of(view, uuid, (Csn::default(), csn))?;
                kept.are_covered_by(self.known)
            }
        })
    }
}

impl<R: Read> Sink for Contents<'_, '_, R> {
    type Entry<'e>
        = WireEntry<'e>
    where
        Self: 'e;

    const IS_ASKED: bool = true;

    fn bytes(&self) -> usize {
        self.out.wire.bytes()
    }

    fn envelope_bytes_max(&self) -> usize {
        self.out.envelope_bytes_max()
    }

    fn admit(&mut self, version: Option<EntryVersion>, out_bytes: usize) -> Admission {
        // Nobody could tell which entry it is.
        let Some(EntryVersion { uuid, csn }) = version else {
            return Admission::Noted;
        };
        let is_known = match self.is_known(uuid, csn) {
            Ok(is_known) => is_known,
            Err(error) => {
                self.failed = Some(error);
                // It is asked about again.
                return Admission::Room(0);
            }
        };
        if !is_known {
            self.out.state(EntryState::Add, uuid);
            return Admission::Send;
        }
        if !self.unchanged.push(uuid) {
            let bytes = self.unchanged.bytes_max();
            if self.out.wire.bytes() + bytes > out_bytes {
                return Admission::Room(bytes);
            }
            self.unchanged.put(self.out.wire, false);
            self.unchanged.push(uuid);
        }
        Admission::Noted
    }

    fn begin_entry(&mut self, dn: &[u8], bytes: usize) -> WireEntry<'_> {
        self.out.begin_entry(dn, bytes)
    }

    fn put_reference(&mut self, uris: OctetStrings<'_>) {
        self.out.wire.put_reference(uris);
    }
}

/// Takes an entry that has changed.
pub(super) struct Changed<'s, 'o> {
    out: Stating<'s, 'o>,
    state: EntryState,
}

impl<'s, 'o> Changed<'s, 'o> {
    pub(super) fn new(wire: &'s mut Wire<'o>, state: EntryState) -> Changed<'s, 'o> {
        Changed {
            out: Stating::new(wire),
            state,
        }
    }
}

impl Sink for Changed<'_, '_> {
    type Entry<'e>
        = WireEntry<'e>
    where
        Self: 'e;

    const IS_ASKED: bool = true;

    fn bytes(&self) -> usize {
        self.out.wire.bytes()
    }

    fn envelope_bytes_max(&self) -> usize {
        self.out.envelope_bytes_max()
    }

    fn admit(&mut self, version: Option<EntryVersion>, _out_bytes: usize) -> Admission {
        let Some(version) = version else {
            return Admission::Noted;
        };
        self.out.state(self.state, version.uuid);
        Admission::Send
    }

    fn begin_entry(&mut self, dn: &[u8], bytes: usize) -> WireEntry<'_> {
        self.out.begin_entry(dn, bytes)
    }

    fn put_reference(&mut self, uris: OctetStrings<'_>) {
        self.out.wire.put_reference(uris);
    }
}

/// Finds out whether an entry is a result, and sends nothing.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) found: Option<[u8; 16]>,
}

/// What a [`Probe`] takes of an entry: nothing.
#[derive(Debug)]
pub(super) struct Nothing;

impl Sink for Probe {
    type Entry<'e> = Nothing;

    const IS_ASKED: bool = true;

    fn bytes(&self) -> usize {
        0
    }

    fn envelope_bytes_max(&self) -> usize {
        0
    }

    fn admit(&mut self, version: Option<EntryVersion>, _out_bytes: usize) -> Admission {
        self.found = version.map(|version| version.uuid);
        Admission::Noted
    }

    fn begin_entry(&mut self, _dn: &[u8], _bytes: usize) -> Nothing {
        Nothing
    }

    fn put_reference(&mut self, _uris: OctetStrings<'_>) {}
}

impl EntrySink for Nothing {
    fn put_ber(&mut self, _attributes: &[u8]) {}

    fn put_attribute<'v>(
        &mut self,
        _description: &[u8],
        _values: impl IntoIterator<Item = &'v [u8]>,
    ) {
    }

    fn put_values(&mut self, _description: &[u8], _values: &[u8]) {}

    fn finish(self) {}
}
