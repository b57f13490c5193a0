//! Rules of the source tree that the compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::modules;
use crate::run::root;
use crate::source;

/// The crates from the bottom up: each may use those before it, never those after it.
const LAYERS: &[&str] = &[
    "wal",
    "store",
    "lmdb-abi",
    "xact",
    "ldap",
    "replication",
    "directory",
    "client",
    "server",
    "drive",
    "sapwood",
];

/// What tests share. Each of its features brings the layer of that name, if there is one.
const TESTKIT: &str = "testkit";

/// These are on the other end of the socket. They know the protocol, and nothing that makes a server.
const OUTSIDE: &[&str] = &["client", "drive"];
const INSIDE: &[&str] = &[
    "wal",
    "store",
    "lmdb-abi",
    "xact",
    "replication",
    "directory",
    "server",
];

/// `store`, `wal`, `lmdb-abi`, `xact` and `directory` work on files, not on sockets; `ldap` and `replication` do no I/O
/// at all.
const NO_SOCKETS: &[&str] = &[
    "wal",
    "store",
    "lmdb-abi",
    "xact",
    "ldap",
    "replication",
    "directory",
];

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

/// Columns of a line of comments. (The formatter leaves comments as they are.)
const COMMENT_COLUMNS_MAX: usize = 120;

/// Fails with every broken rule named.
pub(crate) fn check() -> Result<()> {
    let mut faults = Vec::new();
    layering(&mut faults)?;
    files(&mut faults)?;
    circles(&mut faults)?;
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
        let manifest: toml::Table = text
            .parse()
            .with_context(|| format!("{} is not TOML", manifest.display()))?;
        faults.extend(layer_faults(layer, &manifest));
    }
    for entry in fs::read_dir(root().join("crates"))? {
        let name = entry?.file_name();
        if name != TESTKIT && !LAYERS.iter().any(|layer| *layer == name) {
            faults.push(format!(
                "crates/{} has no place in the layers of xtask/src/tidy.rs",
                name.display()
            ));
        }
    }
    Ok(())
}

/// What is wrong with the dependencies of a layer.
fn layer_faults(layer: &str, manifest: &toml::Table) -> Vec<String> {
    let mut faults = Vec::new();
    for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
        let dependencies = manifest.get(kind).and_then(|table| table.as_table());
        for (name, dependency) in dependencies.into_iter().flatten() {
            if name == "tokio" && NO_SOCKETS.contains(&layer) {
                faults.push(format!(
                    "crates/{layer} may not use tokio: it knows no sockets"
                ));
            }
            let own = match name.as_str() {
                "sapwood" => name,
                _ => match name.strip_prefix("sapwood-") {
                    Some(own) => own,
                    None => continue,
                },
            };
            if own != TESTKIT {
                faults.extend(use_fault(layer, own));
            } else if kind == "dev-dependencies" {
                let features = dependency.get("features").and_then(|list| list.as_array());
                let features = features.into_iter().flatten();
                let features = features.filter_map(|feature| feature.as_str());
                // A crate may be tested through itself.
                let others = features.filter(|feature| *feature != layer);
                faults.extend(others.filter_map(|feature| use_fault(layer, feature)));
            } else {
                faults.push(format!(
                    "crates/{layer} is no test: it may not use crates/{TESTKIT}"
                ));
            }
        }
    }
    faults
}

/// What is wrong if a layer uses another one.
fn use_fault(layer: &str, other: &str) -> Option<String> {
    let place = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    if place(other).is_some_and(|other| Some(other) >= place(layer)) {
        Some(format!(
            "crates/{layer} may not use crates/{other}, a layer above it"
        ))
    } else if OUTSIDE.contains(&layer) && INSIDE.contains(&other) {
        Some(format!(
            "crates/{layer} may not use crates/{other}: it knows a server from the outside"
        ))
    } else {
        None
    }
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
        for number in wide_comments(&text) {
            faults.push(format!(
                "{name}:{number}: a comment is wider than {COMMENT_COLUMNS_MAX} columns"
            ));
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

/// The lines whose comment is too wide; tables and code in comments may be.
fn wide_comments(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        if comment.starts_with("```") {
            is_code = !is_code;
        } else if !is_code
            && !comment.starts_with('|')
            && line.chars().count() > COMMENT_COLUMNS_MAX
        {
            found.push(number);
        }
    }
    found
}

fn circles(faults: &mut Vec<String>) -> Result<()> {
    let sources = sources()?;
    for name in LAYERS.iter().chain([&TESTKIT]) {
        let src = root().join("crates").join(name).join("src");
        let below = sources.iter().filter_map(|path| {
            let below = path.strip_prefix(&src).ok()?;
            Some(read(path).map(|text| (below.to_owned(), text)))
        });
        let files = source::without_tests(below.collect::<Result<_>>()?);
        let found = modules::circles(&files).into_iter();
        faults.extend(found.map(|circle| format!("crates/{name} has {circle}")));
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

    fn is_allowed(layer: &str, manifest: &str) -> bool {
        layer_faults(layer, &manifest.parse().unwrap()).is_empty()
    }

    fn are_allowed(layer: &str, dependencies: &[&str]) -> bool {
        let lines = dependencies.iter().map(|name| format!("{name} = {{}}\n"));
        let lines: String = lines.collect();
        ["dependencies", "build-dependencies", "dev-dependencies"]
            .iter()
            .all(|kind| is_allowed(layer, &format!("[{kind}]\n{lines}")))
    }

    #[test]
    fn comments_are_narrow_but_for_tables_and_code() {
        let wide = "x".repeat(COMMENT_COLUMNS_MAX - 3);
        let lines = [
            &format!("// {wide}"),
            &format!("    // {wide}"),
            &format!("let x = \"{wide}{wide}\";"),
            &format!("//! | {wide}"),
            "/// ```",
            &format!("/// {wide}"),
            "/// ```",
            &format!("/// {wide}"),
        ];
        assert_eq!(wide_comments(&lines.join("\n")), [2, 8]);
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

    #[test]
    fn only_tests_use_the_testkit_and_only_what_their_layer_may() {
        let testkit = "sapwood-testkit = { workspace = true, features = [\"FEATURE\"] }";
        let uses = |layer: &str, kind: &str, feature: &str| {
            let dependency = testkit.replace("FEATURE", feature);
            is_allowed(layer, &format!("[{kind}]\n{dependency}\n"))
        };
        assert!(uses("server", "dev-dependencies", "server"));
        assert!(uses("sapwood", "dev-dependencies", "directory"));
        assert!(uses("client", "dev-dependencies", "ldap"));
        assert!(uses("store", "dev-dependencies", "program"));
        assert!(!uses("server", "dependencies", "server"));
        assert!(!uses("server", "build-dependencies", "server"));
        assert!(!uses("directory", "dev-dependencies", "server"));
        assert!(!uses("client", "dev-dependencies", "directory"));
    }
}
