//! Who holds how much of what all connections share: an account for each address and for each identity that is bound.
//!
//! An account lives as long as a connection, or a share of memory, is charged to it. So there are never more of them
//! than twice the connections, and a few for shares that outlive theirs.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sapwood_directory::Identity;
use sapwood_directory::engine::EntryId;

use crate::peer::{Origin, Peer};

/// Whom an account is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    /// All who come from there.
    Origin(Origin),
    /// Who is bound as an entry.
    User(EntryId),
    /// The administrator.
    Admin,
}

impl Holder {
    /// Who is bound; `None` for nobody.
    pub(crate) fn of_identity(identity: &Identity) -> Option<Self> {
        match identity {
            // The account of this machine's user is its origin's.
            Identity::Anonymous | Identity::External { .. } | Identity::Replica { .. } => None,
            Identity::User { entry, .. } => Some(Self::User(*entry)),
            Identity::Admin { .. } => Some(Self::Admin),
        }
    }
}

/// What is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AnonymousBuffers,
    AnonymousMedium,
    AnonymousLong,
    BoundBuffers,
    BoundMedium,
    BoundLong,
    Updates,
    Transactions,
    Searches,
    Persistent,
    Answers,
    Handshakes,
    Connections,
    /// Operations under way.
    Operations,
    /// Connections that wait for a place.
    Newcomers,
}

const KINDS: usize = Kind::Newcomers as usize + 1;

/// What one holder has.
#[derive(Debug)]
struct Account {
    holder: Holder,
    held: [AtomicUsize; KINDS],
    accounts: Arc<Accounts>,
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut open = self.accounts.open();
        // Another one may have been opened since the last claimant let go of this.
        if let Some(account) = open.get(&self.holder)
            && account.strong_count() == 0
        {
            open.remove(&self.holder);
        }
    }
}

/// All accounts.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    open: Mutex<HashMap<Holder, Weak<Account>, RandomState>>,
}

impl Accounts {
    fn open(&self) -> MutexGuard<'_, HashMap<Holder, Weak<Account>, RandomState>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(self: &Arc<Self>, holder: Holder) -> Arc<Account> {
        let mut open = self.open();
        if let Some(account) = open.get(&holder).and_then(Weak::upgrade) {
            return account;
        }
        let account = Arc::new(Account {
            holder,
            held: Default::default(),
            accounts: Arc::clone(self),
        });
        open.insert(holder, Arc::downgrade(&account));
        account
    }

    /// Who comes from this peer.
    pub(crate) fn claimant(self: &Arc<Self>, peer: &Peer) -> Arc<Claimant> {
        Arc::new(Claimant {
            address: self.of(Holder::Origin(peer.origin())),
            identity: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open().len()
    }
}

/// In whose name something is held: an address and, if somebody is bound, an identity. Both accounts are charged.
#[derive(Debug)]
pub(crate) struct Claimant {
    address: Arc<Account>,
    identity: Option<Arc<Account>>,
}

/// How much a claimant holds: the more of both accounts first, so that neither many connections of one address nor many
/// addresses of one identity make up a larger share. Who holds less comes first.
pub(crate) type Holdings = (usize, usize);

impl Claimant {
    /// The same address, with somebody else bound.
    pub(crate) fn bound_as(&self, identity: &Identity) -> Arc<Self> {
        let accounts = &self.address.accounts;
        Arc::new(Self {
            address: Arc::clone(&self.address),
            identity: Holder::of_identity(identity).map(|holder| accounts.of(holder)),
        })
    }

    fn accounts(&self) -> impl Iterator<Item = &Account> {
        let identity = self.identity.iter();
        std::iter::once(&self.address)
            .chain(identity)
            .map(Arc::as_ref)
    }

    /// What the account has that has more.
    pub(crate) fn held(&self, kind: Kind) -> usize {
        self.holdings(kind).0
    }

    pub(crate) fn holdings(&self, kind: Kind) -> Holdings {
        let held = |account: &Account| account.held[kind as usize].load(Ordering::Relaxed);
        let address = held(&self.address);
        let identity = self
            .identity
            .as_ref()
            .map_or(address, |account| held(account));
        (address.max(identity), address.min(identity))
    }

    /// What the identity has; of nobody, what all have who come from the address.
    pub(crate) fn of_identity(&self, kind: Kind) -> usize {
        let account = self.identity.as_ref().unwrap_or(&self.address);
        account.held[kind as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, kind: Kind, amount: usize) {
        for account in self.accounts() {
            account.held[kind as usize].fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, kind: Kind, amount: usize) {
        for account in self.accounts() {
            account.held[kind as usize].fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::Tcp(address.parse().unwrap())
    }

    fn user(entry: u64) -> Identity {
        Identity::User {
            entry: EntryId(entry),
            dn: String::new(),
        }
    }

    #[test]
    fn a_network_of_ipv6_and_a_mapped_address_are_one_holder() {
        let holder = |address| peer(address).origin();
        assert_eq!(
            holder("[2001:db8::1]:1"),
            holder("[2001:db8::ffff:0:0:2]:2")
        );
        assert_ne!(holder("[2001:db8::1]:1"), holder("[2001:db8:0:1::1]:1"));
        assert_eq!(holder("192.0.2.1:1"), holder("[::ffff:192.0.2.1]:9"));
        assert_ne!(holder("192.0.2.1:1"), holder("192.0.2.2:1"));
    }

    #[test]
    fn the_larger_of_both_accounts_counts_and_accounts_end_with_their_claimants() {
        let accounts = Arc::new(Accounts::default());
        let one = accounts.claimant(&peer("192.0.2.1:1")).bound_as(&user(7));
        let other = accounts.claimant(&peer("192.0.2.2:1")).bound_as(&user(7));
        let third = accounts.claimant(&peer("192.0.2.2:2")).bound_as(&user(8));
        one.add(Kind::Updates, 100);
        assert_eq!(other.holdings(Kind::Updates), (100, 0));
        assert_eq!(third.holdings(Kind::Updates), (0, 0));
        other.add(Kind::Updates, 10);
        assert_eq!(third.holdings(Kind::Updates), (10, 0));
        assert_eq!(other.holdings(Kind::Updates), (110, 10));
        assert_eq!(other.held(Kind::Searches), 0);
        one.remove(Kind::Updates, 100);
        assert_eq!(other.held(Kind::Updates), 10);
        assert_eq!(accounts.len(), 4);
        drop((one, third));
        assert_eq!(accounts.len(), 2);
        drop(other);
        assert_eq!(accounts.len(), 0);
    }
}
