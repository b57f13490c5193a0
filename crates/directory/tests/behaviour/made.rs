//! The directories that the suite makes: on the engine that the root of the crate names.

use std::path::Path;

use proptest::prelude::ProptestConfig;
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::{Config, Options};
use sapwood_testkit::directories::{self, TestEngine};

use crate::On;

/// A directory, of the suite's engine.
pub(crate) type Directory<E = On> = sapwood_directory::Directory<E>;

/// An engine with one store.
pub(crate) fn engine() -> On {
    over(Embedded::in_memory().unwrap())
}

/// An engine with so many stores.
pub(crate) fn engine_in(stores: u16) -> On {
    over(Embedded::in_memory_with(stores).unwrap())
}

/// The suite's engine on top of the embedded one.
pub(crate) fn over(engine: Embedded) -> On {
    On::from_embedded(engine)
}

/// A directory in a folder.
pub(crate) fn create(path: &Path, config: &Config, options: Options) -> Directory {
    let stores = config.stores(&options.schema).unwrap();
    let engine = over(Embedded::create(path, stores).unwrap());
    Directory::create_on(engine, config, options).unwrap()
}

/// The example directory, without entries.
pub(crate) fn in_memory() -> Directory {
    directories::in_memory_on()
}

/// The same in five stores.
pub(crate) fn in_stores() -> Directory {
    directories::in_stores_on()
}

/// The entries most tests start from, and one person, `anne`.
pub(crate) fn peopled() -> Directory {
    directories::peopled_on()
}

/// The tables of the newest commit.
pub(crate) fn view<E: Engine>(directory: &Directory<E>) -> E::Snapshot {
    directory.engine().waiting_snapshot().unwrap()
}

/// What a property test of so many random cases runs with.
pub(crate) fn random(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: cases.div_ceil(crate::ONE_CASE_OF),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
