//! Binds and changes of passwords of a directory, judged by the policies, entries and binds that it has.

use std::sync::Arc;

use sapwood_ldap::controls::{AccountUsability, PasswordPolicyError, PasswordPolicyResponse};
use sapwood_ldap::dn::Dn;

use super::{Directory, Snapshot};
use crate::access::{Asked, Identity, Requester, Rights};
use crate::accounts::{AccountState, Unwritten};
use crate::engine::{self, Bundle, Engine, EntryId, StoreSet, Table, Ticket, Verdict, Write};
use crate::error::Result;
use crate::names;
use crate::password_policy::{
    Account, BindFailure, BindVerdict, Governed, Governing, PasswordChange, PasswordPolicy,
    governing,
};

impl<E: Engine> Snapshot<E> {
    fn governing(&self, entry: EntryId) -> Result<Option<Governing>> {
        governing((self.schema(), self.state(), self.view()), entry)
    }

    /// What is told of a lock: it helps those who try passwords, too.
    fn told_of_lock(&self) -> PasswordPolicyResponse {
        let overlay = &self.settings().password_policy;
        let is_told = overlay.as_ref().is_some_and(|overlay| overlay.use_lockout);
        PasswordPolicyResponse {
            error: is_told.then_some(PasswordPolicyError::AccountLocked),
            warning: None,
        }
    }

    /// What to tell who wants to bind as an entry, whatever their password; none unless it is locked.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn locked(&self, entry: EntryId) -> Result<Option<PasswordPolicyResponse>> {
        let Some(Governing {
            policy, account, ..
        }) = self.governing(entry)?
        else {
            return Ok(None);
        };
        let state = self.directory().accounts().state(self.view(), entry)?;
        let is_locked = policy.is_locked(&account, &state, self.now_micros());
        Ok(is_locked.then(|| self.told_of_lock()))
    }

    /// Whether the password of an entry can be used now; none where it has none, or no policy governs it.
    pub(crate) fn usability(&self, id: EntryId) -> Result<Option<AccountUsability>> {
        let Some(governing) = self.governing(id)? else {
            return Ok(None);
        };
        if !governing.has_password || governing.policy == PasswordPolicy::default() {
            return Ok(None);
        }
        let binds = self.directory().accounts().state(self.view(), id)?;
        let Governing {
            policy, account, ..
        } = &governing;
        Ok(Some(policy.usability(account, &binds, self.now_micros())))
    }

    /// Notes that a bind as an entry has failed, for its password was wrong. The snapshot must be one that was just
    /// taken.
    ///
    /// # Errors
    /// When the directory cannot be read. Nothing is noted then.
    pub fn bind_failed(&self, entry: EntryId) -> Result<BindFailure> {
        let Some(Governing {
            policy, account, ..
        }) = self.governing(entry)?
        else {
            return Ok(BindFailure::default());
        };
        let (now, accounts) = (self.now_micros(), self.directory().accounts());
        let judge = |state: &mut AccountState| match policy.is_locked(&account, state, now) {
            // It was before the password was checked, or others were faster. The right one is told the same.
            true => BindFailure {
                change: None,
                response: self.told_of_lock(),
            },
            false if policy.max_recorded_failure == 0 => BindFailure::default(),
            false => BindFailure {
                change: policy.fail(state, now),
                response: PasswordPolicyResponse::default(),
            },
        };
        match policy.max_recorded_failure {
            0 => Ok(judge(&mut accounts.state(self.view(), entry)?)),
            _ => accounts.change(self.view(), entry, judge),
        }
    }

    /// Judges, and notes, a bind as an entry with the right password. The snapshot must be one that was just taken.
    ///
    /// # Errors
    /// When the directory cannot be read. Nothing is noted then.
    pub fn bind_succeeded(&self, entry: EntryId) -> Result<BindVerdict> {
        let Some(Governing {
            policy, account, ..
        }) = self.governing(entry)?
        else {
            return Ok(BindVerdict::default());
        };
        let now = self.now_micros();
        let judge = |state: &mut AccountState| match policy.is_locked(&account, state, now) {
            // It was not before the password was checked: others have tried meanwhile.
            true => BindVerdict {
                is_refused: true,
                is_locked: true,
                response: self.told_of_lock(),
                ..BindVerdict::default()
            },
            false => policy.succeed(&account, state, now),
        };
        self.directory()
            .accounts()
            .change(self.view(), entry, judge)
    }

    /// Whether who is bound as an entry has to change the password before anything else.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn must_change_password(&self, entry: EntryId) -> Result<bool> {
        let governing = self.governing(entry)?;
        Ok(governing.is_some_and(|known| known.policy.must_change && known.account.reset))
    }

    /// A change of the password of an entry, as the policies see it; none where none governs it.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn password_change(
        &self,
        requester: &Arc<Requester>,
        entry: EntryId,
        stored: Vec<Vec<u8>>,
    ) -> Result<Option<PasswordChange>> {
        let Some(Governing {
            policy, account, ..
        }) = self.governing(entry)?
        else {
            return Ok(None);
        };
        if policy == PasswordPolicy::default() {
            return Ok(None);
        }
        let is_self =
            matches!(requester.identity(), Identity::User { entry: own, .. } if *own == entry);
        Ok(Some(PasswordChange {
            policy,
            account,
            stored,
            is_admin: self.manages_password(requester, entry)?,
            is_self,
            is_there: true,
            now: self.now_micros() / 1_000_000,
            words: words(&names::dn_of(self.view(), entry)?),
        }))
    }

    /// The same of an entry that is being added below another one, and names its policy itself, if it names one.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn password_of_new(
        &self,
        requester: &Arc<Requester>,
        (dn, parent): (&str, EntryId),
        policy: Option<String>,
    ) -> Result<Option<PasswordChange>> {
        let account = Account {
            policy,
            ..Account::default()
        };
        let place = Governed {
            id: EntryId::ROOT,
            parent,
            entry: None,
        };
        let sources = (self.schema(), &**self.state(), self.view());
        let Some(policy) = PasswordPolicy::governing(sources, place, &account)? else {
            return Ok(None);
        };
        Ok(Some(PasswordChange {
            policy,
            account,
            stored: Vec::new(),
            is_admin: self.current(requester)?.grants().is_unlimited(),
            is_self: false,
            is_there: false,
            now: self.now_micros() / 1_000_000,
            words: words(dn),
        }))
    }

    /// Whether somebody is an administrator of the passwords of an entry: policies leave more to them.
    fn manages_password(&self, requester: &Arc<Requester>, entry: EntryId) -> Result<bool> {
        let requester = self.current(requester)?;
        let grants = requester.grants();
        if grants.is_unlimited() {
            return Ok(true);
        }
        let slot = grants.slot(self.schema().well_known().user_password);
        let asked = Asked {
            view: self.view(),
            schema: self.schema(),
            dn: &names::normal_dn_of(self.view(), self.schema(), entry)?,
            id: entry,
        };
        Ok(grants.rights(&asked, slot)?.has(Rights::MANAGE))
    }
}

impl<E: Engine> Directory<E> {
    /// Whether policies are asked for, so that binds are to be judged.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn has_password_policies(&self) -> Result<bool> {
        self.ask_settings(|settings| settings.password_policy.is_some())
    }

    /// Waits until there is something to be [written](Self::write_accounts) of binds; whether there is, as opposed to
    /// an [end](Self::end_accounts).
    pub fn wait_for_accounts(&self) -> bool {
        self.accounts().wait()
    }

    /// Waits for a while, or until an [end](Self::end_accounts).
    pub fn rest_between_accounts(&self, time: std::time::Duration) {
        self.accounts().rest(time);
    }

    /// Ends the waiting for what is to be written of binds.
    pub fn end_accounts(&self) {
        self.accounts().end();
    }

    /// Writes what is kept of binds. Durable on return.
    ///
    /// # Errors
    /// When the engine fails. It is kept in memory then.
    pub fn write_accounts(&self) -> Result<()> {
        let unwritten = self.accounts().unwritten();
        for part in unwritten.chunks(ACCOUNTS_WRITTEN_MAX) {
            let mut write = WriteAccounts {
                stores: self.stores(),
                unwritten: part,
            };
            if let Some(ticket) = self.engine().write(&mut write)? {
                ticket.wait()?;
            }
            self.accounts().wrote(part);
        }
        Ok(())
    }
}

/// The values in a name.
fn words(dn: &str) -> Vec<String> {
    let avas = Dn::parse(dn)
        .into_iter()
        .flat_map(|dn| dn.rdns().flat_map(|rdn| rdn.avas()).collect::<Vec<_>>());
    let values = avas.map(|ava| ava.value());
    values
        .map(|value| String::from_utf8_lossy(&value).into_owned())
        .collect()
}

/// Accounts that are written in one commit at most: others who write wait for it.
const ACCOUNTS_WRITTEN_MAX: usize = 1000;

struct WriteAccounts<'w> {
    stores: usize,
    unwritten: &'w [Unwritten],
}

impl Bundle for WriteAccounts<'_> {
    fn operations(&self) -> usize {
        self.unwritten.len()
    }

    fn stores(&self) -> StoreSet {
        StoreSet::all(self.stores)
    }

    fn begin<T: Write>(&mut self, _: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> engine::Result<Verdict> {
        let Some(Unwritten { entry, value, .. }) = self.unwritten.get(operation) else {
            return Ok(Verdict::Undo);
        };
        // It may have been deleted.
        if txn.get(Table::Entry, &entry.to_key())?.is_none() {
            return Ok(Verdict::Undo);
        }
        txn.put(Table::State, &entry.to_key(), value)?;
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _: &mut T) -> engine::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sapwood_ldap::list::AttributesBuf;
    use sapwood_ldap::message::{AddRequest, Request};
    use sapwood_ldap::result::ResultCode;
    use sapwood_testkit::requests;

    use super::*;
    use crate::accounts::Accounts;
    use crate::engine::Embedded;
    use crate::password_policy::AccountChange;
    use crate::schema::Schema;
    use crate::{Config, Options, PasswordPolicyOverlay, Settings, Update, UpdateRequest};

    const BASE: &str = "dc=example,dc=com";

    /// A directory in which these entries were added, and where nothing but subentries says which policy governs.
    fn directory(entries: &[(&str, &[(&str, &str)])]) -> Directory {
        let config = Config {
            naming_contexts: vec![BASE.into()],
            settings: Settings {
                password_policy: Some(PasswordPolicyOverlay {
                    use_lockout: true,
                    ..PasswordPolicyOverlay::default()
                }),
                ..Settings::default()
            },
            ..Config::default()
        };
        let options = Options::new(Schema::standard());
        let engine = Embedded::in_memory().unwrap();
        let directory = Directory::create_on(engine, &config, options).unwrap();
        let base: &[(&str, &str)] = &[("objectClass", "domain"), ("dc", "example")];
        for (dn, attributes) in [(BASE, base)].iter().chain(entries) {
            change(&directory, add(dn, attributes));
        }
        directory
    }

    /// An add; values of an attribute stand together.
    fn add(dn: &str, attributes: &[(&str, &str)]) -> Vec<u8> {
        let mut list = AttributesBuf::default();
        for values in attributes.chunk_by(|(one, _), (other, _)| one == other) {
            let description = values[0].0.as_bytes();
            list.push(
                description,
                values.iter().map(|(_, value)| value.as_bytes()),
            );
        }
        let attributes = list.view();
        requests::message(1, Request::Add(AddRequest { dn, attributes }))
    }

    fn change(directory: &Directory, message: Vec<u8>) {
        let requester = Requester::administrator("cn=admin");
        let request = UpdateRequest::Message(message);
        let applied = directory.apply(&[Update { requester, request }]).unwrap();
        applied.ticket.unwrap().wait().unwrap();
        assert_eq!(
            applied.outcomes[0].code,
            ResultCode::Success,
            "{:?}",
            applied.outcomes[0]
        );
    }

    fn id(directory: &Directory, dn: &str) -> EntryId {
        directory
            .snapshot()
            .unwrap()
            .credentials(dn, 0)
            .unwrap()
            .unwrap()
            .entry
    }

    const PERSON: &[(&str, &str)] = &[("objectClass", "person"), ("cn", "x"), ("sn", "x")];

    fn policy<'p>(subtree: &'p str, max_failure: &'p str) -> Vec<(&'p str, &'p str)> {
        vec![
            ("objectClass", "subentry"),
            ("objectClass", "pwdPolicy"),
            ("cn", "policy"),
            ("subtreeSpecification", subtree),
            ("pwdAttribute", "userPassword"),
            ("pwdMaxFailure", max_failure),
            ("pwdLockout", "TRUE"),
        ]
    }

    fn max_failure(directory: &Directory, dn: &str) -> u64 {
        let snapshot = directory.snapshot().unwrap();
        let governing = snapshot.governing(id(directory, dn)).unwrap().unwrap();
        governing.policy.max_failure
    }

    #[test]
    fn the_nearest_subentry_governs_unless_the_entry_names_another_policy() {
        let all = policy("{}", "7");
        let chosen = policy("{ minimum 1, specificationFilter item:person }", "3");
        let unit = |name| [("objectClass", "organizationalUnit"), ("ou", name)];
        let people = "ou=people,dc=example,dc=com";
        let directory = directory(&[
            (people, &unit("people")),
            ("cn=policy,dc=example,dc=com", &all),
            ("cn=policy,ou=people,dc=example,dc=com", &chosen),
            ("cn=x,dc=example,dc=com", PERSON),
            ("cn=x,ou=people,dc=example,dc=com", PERSON),
            ("ou=more,ou=people,dc=example,dc=com", &unit("more")),
        ]);
        let x = "cn=x,ou=people,dc=example,dc=com";
        assert_eq!(max_failure(&directory, "cn=x,dc=example,dc=com"), 7);
        assert_eq!(max_failure(&directory, x), 3);
        assert_eq!(max_failure(&directory, people), 7);
        assert_eq!(
            max_failure(&directory, "ou=more,ou=people,dc=example,dc=com"),
            7
        );
        let name = |dn: &str| {
            let change = (
                sapwood_ldap::list::ChangeKind::Replace,
                "pwdPolicySubentry",
                &[dn][..],
            );
            requests::modify(1, x, &[change])
        };
        change(&directory, name("cn=policy,dc=example,dc=com"));
        assert_eq!(max_failure(&directory, x), 7);
        // One that is not there is no policy.
        change(&directory, name("cn=none,dc=example,dc=com"));
        assert_eq!(max_failure(&directory, x), 0);
    }

    #[test]
    fn what_is_kept_of_binds_is_written_and_goes_with_the_entry() {
        let all = policy("{}", "2");
        let x = "cn=x,dc=example,dc=com";
        let directory = directory(&[("cn=policy,dc=example,dc=com", &all), (x, PERSON)]);
        let entry = id(&directory, x);
        let stored = |directory: &Directory| {
            let snapshot = directory.snapshot().unwrap();
            Accounts::default().state(snapshot.view(), entry).unwrap()
        };
        assert_eq!(
            directory.snapshot().unwrap().bind_failed(entry).unwrap(),
            BindFailure::default()
        );
        assert_eq!(stored(&directory), AccountState::default());
        directory.write_accounts().unwrap();
        assert_eq!(stored(&directory).failures.len(), 1);
        // The second one locks at once, before that is stored.
        let failure = directory.snapshot().unwrap().bind_failed(entry).unwrap();
        assert!(matches!(failure.change, Some(AccountChange::Lock(_))));
        assert!(
            directory
                .snapshot()
                .unwrap()
                .locked(entry)
                .unwrap()
                .is_some()
        );
        let verdict = directory.snapshot().unwrap().bind_succeeded(entry).unwrap();
        assert!(verdict.is_refused && verdict.is_locked);
        let locked = Some(PasswordPolicyError::AccountLocked);
        assert_eq!(verdict.response.error, locked);
        // Where that is told, it does not tell the right password from others.
        let failure = directory.snapshot().unwrap().bind_failed(entry).unwrap();
        assert_eq!((failure.response, failure.change), (verdict.response, None));
        change(&directory, requests::message(1, Request::Delete(x)));
        directory.write_accounts().unwrap();
        assert_eq!(stored(&directory), AccountState::default());
    }
}
