//! What governs the password of an entry.

use super::{Account, Governed, PasswordPolicy};
use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::operational::Vocabulary;
use crate::schema::Schema;
use crate::state::State;

/// An entry that somebody wants to bind or to act as, and what governs it.
pub(crate) struct Governing {
    pub(crate) policy: PasswordPolicy,
    pub(crate) account: Account,
    pub(crate) has_password: bool,
}

/// What governs the passwords of an entry; none where policies are not asked for.
pub(crate) fn governing<R: Read>(
    (schema, state, view): (&Schema, &State, &R),
    entry: EntryId,
) -> Result<Option<Governing>> {
    if state.settings.password_policy.is_none() {
        return Ok(None);
    }
    let Some(record) = view.get(Table::Entry, &entry.to_key())? else {
        return Ok(None);
    };
    let read = Entry::new(&record)
        .map_err(|damaged| Error::corrupt(format!("entry {entry}: {damaged}")))?;
    let attributes = &state.attributes;
    let account = Account::of(Vocabulary { schema, attributes }, entry, &read)?;
    let place = Governed {
        id: entry,
        parent: read.parent(),
        entry: Some(&read),
    };
    let policy = PasswordPolicy::governing((schema, state, view), place, &account)?;
    // Without one the last bind is still kept.
    let policy = policy.unwrap_or_default();
    let password = attributes.number(schema.well_known().user_password, "");
    let has_password = match password {
        Some(number) => read.attribute(number).is_ok_and(|stored| stored.is_some()),
        None => false,
    };
    Ok(Some(Governing {
        policy,
        account,
        has_password,
    }))
}

/// Whether nobody is to be an entry now, whatever the password: see [`PasswordPolicy::is_disabled`].
pub(crate) fn is_disabled<R: Read>(
    sources: (&Schema, &State, &R),
    entry: EntryId,
    now_micros: u64,
) -> Result<bool> {
    let governing = governing(sources, entry)?;
    Ok(governing.is_some_and(|known| known.policy.is_disabled(&known.account, now_micros)))
}
