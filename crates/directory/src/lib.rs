//! The directory information tree over an ordered transactional engine.
//!
//! [`Directory`] is the door: it opens or creates a directory, hands out [`Snapshot`]s to read from and applies batches
//! of [`Update`]s. Everything below is written against [`engine`], so that nothing knows which engine it runs on.
//!
//! Invariant: this crate knows nothing of sockets, sessions or threads of its own.

pub mod access;
mod accounts;
mod attributes;
mod changes;
mod check;
mod collective;
mod compare;
mod config;
mod context_change;
#[cfg(test)]
mod costs;
mod definition;
mod directory;
mod dynamic_groups;
pub mod engine;
mod entry;
mod error;
mod examined;
mod explain_access;
mod import;
mod index_change;
mod index_definition;
mod indexes;
mod large;
mod locate;
mod matching;
mod member_of;
mod names;
mod operational;
mod options;
mod outcome;
mod password_policy;
mod plan;
mod policy;
mod referral;
mod reindex;
pub mod schema;
mod schema_change;
mod search;
mod second_factor;
mod sorting;
mod sources;
mod stamp;
mod state;
mod steps;
mod structure;
mod subtree;
mod synthetic;
mod target;
mod update;
mod upkeep;
mod virtual_attributes;

pub use access::{Identity, Policy, PolicyError, Requester, is_secret};
pub use changes::{
    Change, ChangeKind, ChangesKept, Csn, Former, LostAttribute, LostChange, LostWhat,
    read_registers,
};
pub use check::{CheckReport, PROBLEMS_MAX};
pub use compare::{Compare, CompareOptions};
pub use config::{
    Agreement, AgreementPassword, AuthzPolicy, AutomemberRule, ConstraintRule, ConstraintTest,
    DataRule, DataRuleKind, DdsRule, DynlistRule, EntryBytesMax, Extension, Extensions, LinkedRule,
    ManagedRule, MemberOfRule, NumbersRule, PasswordPolicyOverlay, PasswordSchemes, RefintRule,
    Settings, SortBy, SortMethod, TTL_MAX, UniqueRule, UpdateRef, ValueSortRule, range_of_numbers,
};
pub use definition::{Config, Partition};
pub use directory::{
    ChangePosition, ChangeReader, ChangeSet, Commit, Credentials, Directory, NamedEntries,
    PositionError, RetiredSnapshot, Snapshot, first_position, renew_feed,
};
pub use engine::{CommitNo, EntryId, StoreSet, Ticket};
pub use error::{Error, Result};
pub use import::{
    IMPORT_MEMORY_BYTES_MIN, ImportFormat, ImportObserver, ImportOptions, ImportPhase,
    ImportProfile, ImportProgress, ImportRejection, ImportReport, ImportSource, NoEntry, Reshape,
    import_memory_bytes_default,
};
pub use index_change::IndexStatus;
pub use index_definition::IndexDefinition;
pub use operational::EntryVersion;
pub use options::Options;
pub use outcome::{AgreementNo, AwaitedChange, Outcome, Settlement};
pub use password_policy::{
    AccountChange, BindFailure, BindVerdict, PasswordChange,
    read_values as read_password_policy_values,
};
pub use search::{
    Admission, AttributesOnly, Budget, Dereferences, Digests, EntrySink, Persistent, RightsOf,
    RightsQuestion, SORTING_BYTES_MAX, Search, SearchOptions, Searches, Sink, SortOptions, Sorted,
    Step, Synchronisation, ViewOptions, Wire, WireEntry,
};
pub use second_factor::{
    SecondFactor, Token, TokenHash, TokenUse, read_values as read_token_values,
};
pub use sources::{Clock, PasswordHasher, SystemClock, TimedUuids, UuidSource};
pub use stamp::uuid_text;
#[cfg(feature = "count-steps")]
pub use steps::counted;
pub use synthetic::config::LocalConfig;
pub use synthetic::root_dse::{Channel, Needs, Offered, RootDse};
pub use update::{
    AgreementPosition, Allowance, Applied, PasswordHashing, Peer, Replicated, ReplicatedChange,
    RequestView, RuleViolations, Transaction, TransactionUpdates, Update, UpdateRequest,
    VIOLATIONS_TOLD_MAX,
};
