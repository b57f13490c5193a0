//! What is chosen when a space is made: how transactions are isolated, and how safe a commit is.

/// How the system learns what a transaction reads and writes, and with it what isolation means. Chosen when a space is
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The program says what it reads and writes, with [`Memory::read`](crate::Memory::read) and
    /// [`Memory::write`](crate::Memory::write). Costs least. Transactions are serialisable.
    Explicit,
    /// Loads and stores in plain memory, see [`Transaction::map`](crate::Transaction::map): the first access to a page
    /// in a transaction is a fault, by which the system learns of it. Transactions are serialisable.
    Tracked,
    /// Loads and stores in plain memory, of which only stores are noticed: what a transaction has read may change
    /// before it is committed, but what it has written may not. Transactions are isolated by snapshots (*snapshot
    /// isolation*): two that each read what the other one writes may both be committed.
    Snapshot,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Tracked => "tracked",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Whether a commit survives a power cut. Chosen when a space is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A commit is on the disk when it returns.
    Durable,
    /// A commit survives the death of processes. After a power cut the last ones may be missing, but none is there
    /// without all before it.
    Eventual,
}

impl Durability {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Eventual => "eventual",
        }
    }
}
