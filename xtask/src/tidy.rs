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
    "server",
    "client",
    "sapwood",
];

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
    for (place, layer) in LAYERS.iter().enumerate() {
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
        for name in dependencies.keys() {
            let own = name.strip_prefix("sapwood-").unwrap_or(name);
            match LAYERS.iter().position(|other| *other == own) {
                Some(other) if name.starts_with("sapwood") && other >= place => {
                    faults.push(format!(
                        "crates/{layer} may not use crates/{own}, a layer above it"
                    ));
                }
                _ => {}
            }
            if NO_SOCKETS.contains(layer) && name == "tokio" {
                faults.push(format!(
                    "crates/{layer} may not use tokio: it knows no sockets"
                ));
            }
        }
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
