//! `cargo xtask clients`: the tests that client libraries bring along, of python-ldap and ldap3, with Sapwood as their
//! server. Which fail, and why, is in `docs/protocol.md`.

use std::process::Command;

use anyhow::Result;

use crate::packages;
use crate::run::{cargo, root, run, target};

/// Fails if a test fails that is not known to.
pub(crate) fn try_suites() -> Result<()> {
    packages::ensure(packages::TEST, false)?;
    cargo(["build", "--package", "sapwood"])?;
    // Debian's, which has python-ldap.
    let mut python = Command::new("/usr/bin/python3");
    python.arg(root().join("tests/python/client_suites.py"));
    python.arg(target().join("debug/sapwood"));
    run(python.arg(target().join("clients")))
}
