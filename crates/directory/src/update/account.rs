//! What a bind changes of what is stored with its entry, and what has to be durable before it is answered: a lock, its
//! end, a login after the password has expired, the use of a one-time password.

use sapwood_ldap::list::{ChangeKind as Modification, OctetStringsBuf};
use sapwood_ldap::result::ResultCode;

use super::draft::Draft;
use super::modify::Resolved;
use super::{Run, read};
use crate::engine::{EntryId, Table, Write};
use crate::outcome::Stop;
use crate::password_policy::{Account, AccountChange};
use crate::schema::{AttributeTypeId, OperationalAttribute};
use crate::second_factor::TokenUse;
use crate::stamp::{generalized_time, precise_time};

impl<T: Write> Run<'_, T> {
    pub(super) fn change_account(
        &mut self,
        id: EntryId,
        change: &AccountChange,
    ) -> Result<(), Stop> {
        if self.txn.get(Table::Entry, &id.to_key())?.is_none() {
            let diagnostic = "the entry was deleted";
            return Err(Stop::refuse(ResultCode::NoSuchObject, diagnostic));
        }
        let operational = |attribute| self.schema.operational(attribute);
        let locked = operational(OperationalAttribute::PwdAccountLockedTime);
        match change {
            AccountChange::Lock(at) => {
                let at = generalized_time(*at).into_bytes();
                self.make(id, &[(locked, Modification::Replace, vec![at])])
            }
            AccountChange::Unlock => match self.account(id)?.locked {
                None => Ok(()),
                Some(_) => self.make(id, &[(locked, Modification::Replace, Vec::new())]),
            },
            AccountChange::UseGrace { at, limit } => {
                let used = operational(OperationalAttribute::PwdGraceUseTime);
                let uses = self.account(id)?.grace_uses;
                if uses >= *limit {
                    return Err(Stop::refuse(ResultCode::InvalidCredentials, ""));
                }
                // Those of the same moment are told apart.
                let at = at.saturating_add(uses);
                let values = vec![precise_time(at).into_bytes()];
                self.make(id, &[(used, Modification::Add, values)])
            }
            AccountChange::UseToken(used) => self.use_token(id, used),
            AccountChange::StoreAnew { from, to } => self.store_anew(id, from, to),
        }
    }

    /// What is kept of a password with its entry.
    fn account(&self, id: EntryId) -> Result<Account, Stop> {
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        Ok(Account::of(self.vocabulary(), id, &read(id, &record)?)?)
    }

    /// Stores up to where a token is used, unless others were faster.
    fn use_token(&mut self, id: EntryId, used: &TokenUse) -> Result<(), Stop> {
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let changes = used.changes(self.vocabulary(), id, &read(id, &record)?)?;
        let Some(changes) = changes else {
            return Err(Stop::refuse(ResultCode::InvalidCredentials, ""));
        };
        let changes = changes.into_iter().map(|(known, value)| {
            let values = vec![value.to_string().into_bytes()];
            (known, Modification::Replace, values)
        });
        let changes: Vec<_> = changes.collect();
        self.make(id, &changes)
    }

    /// Stores a password in another form. It is the same one: what is kept of it stays, verifiers, too, and one that
    /// has taken its place meanwhile does.
    fn store_anew(&mut self, id: EntryId, from: &[u8], to: &[u8]) -> Result<(), Stop> {
        let records = self.read_records(id)?;
        let entries = [read(id, &records[0])?, read(id, &records[1])?];
        let draft = Draft::of(self.state, id, entries)?;
        let known = self.schema.well_known();
        if !draft.values(known.user_password).contains(&from) {
            return Ok(());
        }
        let passwords = [known.user_password, known.auth_password];
        let mut since = Vec::new();
        for attribute in passwords {
            since.extend(self.changed_since(&entries[0], attribute)?);
        }
        let verifiers = draft.values(known.auth_password);
        let verifiers = verifiers.into_iter().map(<[u8]>::to_vec).collect();
        let changes = [
            (
                known.user_password,
                Modification::Delete,
                vec![from.to_vec()],
            ),
            (known.user_password, Modification::Add, vec![to.to_vec()]),
            (known.auth_password, Modification::Replace, verifiers),
        ];
        self.make(id, &changes)?;
        // A password that somebody has set elsewhere, and that is not here yet, is later than this one.
        for (attribute, since) in passwords.into_iter().zip(since) {
            self.date_back(id, attribute, since.next())?;
        }
        Ok(())
    }

    /// Changes attributes of an entry. Asks neither the access rules nor the password policy.
    pub(super) fn make(
        &mut self,
        id: EntryId,
        changes: &[(AttributeTypeId, Modification, Vec<Vec<u8>>)],
    ) -> Result<(), Stop> {
        let values: Vec<_> = changes
            .iter()
            .map(|(_, _, values)| OctetStringsBuf::from_iter(values.iter().map(Vec::as_slice)))
            .collect();
        let resolved: Vec<_> = changes
            .iter()
            .zip(&values)
            .map(|((attribute, kind, _), values)| Resolved {
                known: self.schema.type_of(*attribute),
                options: String::new(),
                kind: *kind,
                values: values.view(),
                is_permissive: false,
            })
            .collect();
        let rules = self.rules.take();
        let done = self.change(id, &resolved);
        self.rules = rules;
        done
    }
}
