//! Where things are in a directory's folder, and how it is opened.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sapwood_directory::schema::Schema;
use sapwood_directory::{AccessPolicy, Directory, Options};
use sapwood_server::{Config, root_dse};

/// The folder of the store inside a directory's folder.
const DATA_FOLDER: &str = "data";

pub(crate) fn data_folder(folder: &Path) -> PathBuf {
    folder.join(DATA_FOLDER)
}

/// What a directory is opened with: its schema, its access rules, what the root DSE says.
pub(crate) fn options(config: &Config) -> Options {
    let mut options = Options::new(Schema::standard());
    options.access = AccessPolicy {
        anonymous_read: config.access.anonymous_read,
    };
    options.root_dse = root_dse(concat!("Sapwood ", env!("CARGO_PKG_VERSION")));
    options
}

/// Opens the directory of a folder made by `init`.
pub(crate) fn directory(folder: &Path, config: &Config, read_only: bool) -> Result<Directory> {
    let data = data_folder(folder);
    Directory::open(&data, options(config), read_only)
        .with_context(|| format!("{}", data.display()))
}
