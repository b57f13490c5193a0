//! Rules of the source tree that the compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::root;

/// The crates from the bottom up: each may use those before it, never those after it.
const LAYERS: &[&str] = &[
    "wal",
    "store",
    "lmdb-abi",
    "xact",
    "ldap",
    "directory",
    "client",
    "server",
    "drive",
    "sapwood",
];

/// These are on the other end of the socket. They know the protocol, and nothing that makes a server.
const OUTSIDE: &[&str] = &["client", "drive"];
const INSIDE: &[&str] = &["wal", "store", "lmdb-abi", "xact", "directory", "server"];

/// `store`, `wal`, `lmdb-abi`, `xact` and `directory` work on files, not on sockets; `ldap` does no I/O at all.
const NO_SOCKETS: &[&str] = &["wal", "store", "lmdb-abi", "xact", "ldap", "directory"];

/// These run, or are to run one day, on any system; the one place of theirs that knows one is [`SYSTEMS`].
const PORTABLE: &[&str] = &["crates/wal/src/", "crates/store/src/"];
const SYSTEMS: &str = "crates/wal/src/sys/";
/// What only some systems have.
const OF_A_SYSTEM: &[&str] = &[
    "std::os::",
    "libc::",
    "rustix::",
    "target_os",
    "cfg(unix)",
    "cfg(windows)",
];

/// Past this many lines a file tells two stories.
const FILE_LINES_MAX: usize = 1000;

/// Fails with every broken rule named.
pub(crate) fn check() -> Result<()> {
    let mut faults = Vec::new();
    layering(&mut faults)?;
    files(&mut faults)?;
    if faults.is_empty() {
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("{} broken rules of the source tree", faults.len());
}

fn layering(faults: &mut Vec<String>) -> Result<()> {
    for layer in LAYERS {
        let manifest = root().join("crates").join(layer).join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        let text = read(&manifest)?;
        let parsed: toml::Table = text
            .parse()
            .with_context(|| format!("{} is not TOML", manifest.display()))?;
        let Some(dependencies) = parsed.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        faults.extend(layer_faults(layer, dependencies.keys()));
    }
    for entry in fs::read_dir(root().join("crates"))? {
        let name = entry?.file_name();
        if !LAYERS.iter().any(|layer| *layer == name) {
            faults.push(format!(
                "crates/{} has no place in the layers of xtask/src/tidy.rs",
                name.display()
            ));
        }
    }
    Ok(())
}

/// What is wrong with the names of a layer's dependencies.
fn layer_faults(layer: &str, dependencies: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
    let place = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let mut faults = Vec::new();
    for name in dependencies {
        let name = name.as_ref();
        if name == "tokio" && NO_SOCKETS.contains(&layer) {
            faults.push(format!(
                "crates/{layer} may not use tokio: it knows no sockets"
            ));
        }
        let own = match name {
            "sapwood" => name,
            _ => match name.strip_prefix("sapwood-") {
                Some(own) => own,
                None => continue,
            },
        };
        if place(own).is_some_and(|other| Some(other) >= place(layer)) {
            faults.push(format!(
                "crates/{layer} may not use crates/{own}, a layer above it"
            ));
        } else if OUTSIDE.contains(&layer) && INSIDE.contains(&own) {
            faults.push(format!(
                "crates/{layer} may not use crates/{own}: it knows a server from the outside"
            ));
        }
    }
    faults
}

fn files(faults: &mut Vec<String>) -> Result<()> {
    let map = read(&root().join("ARCHITECTURE.md"))?;
    for path in sources()? {
        let text = read(&path)?;
        let name = path
            .strip_prefix(root())
            .unwrap_or(&path)
            .display()
            .to_string();
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            faults.push(format!("{name} has {lines} lines; which two things is it?"));
        }
        let is_portable = PORTABLE.iter().any(|folder| name.starts_with(folder));
        if is_portable && !name.starts_with(SYSTEMS) {
            for what in OF_A_SYSTEM.iter().filter(|what| text.contains(**what)) {
                faults.push(format!(
                    "{name} uses `{what}`: only {SYSTEMS} knows an operating system"
                ));
            }
        }
        if text.contains("[allow(unsafe_code")
            && name.starts_with("crates/")
            && name.contains("/src/")
            && !map.contains(&name)
        {
            faults.push(format!(
                "{name} allows unsafe code but ARCHITECTURE.md does not list it"
            ));
        }
    }
    Ok(())
}

fn sources() -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    let mut folders: Vec<PathBuf> = ["crates", "xtask", "benches", "tests"]
        .into_iter()
        .map(|folder| root().join(folder))
        .filter(|folder| folder.exists())
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    Ok(sources)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_allowed(layer: &str, dependencies: &[&str]) -> bool {
        layer_faults(layer, dependencies.iter()).is_empty()
    }

    #[test]
    fn a_layer_uses_those_below_it() {
        assert!(are_allowed(
            "server",
            &["sapwood-directory", "sapwood-client", "tokio"]
        ));
        assert!(are_allowed(
            "drive",
            &["sapwood-client", "sapwood-ldap", "tokio"]
        ));
        for (layer, dependency) in [
            ("store", "sapwood-directory"),
            ("client", "sapwood-server"),
            ("server", "sapwood-drive"),
            ("drive", "sapwood"),
            ("ldap", "sapwood-ldap"),
        ] {
            assert!(
                !are_allowed(layer, &[dependency]),
                "{layer} uses {dependency}"
            );
        }
    }

    #[test]
    fn a_client_knows_nothing_that_makes_a_server() {
        for layer in OUTSIDE {
            for inside in INSIDE {
                let dependency = format!("sapwood-{inside}");
                assert!(!are_allowed(layer, &[&dependency]), "{layer} uses {inside}");
            }
        }
    }

    #[test]
    fn a_layer_of_files_knows_no_sockets() {
        assert!(!are_allowed("directory", &["tokio"]));
    }
}
