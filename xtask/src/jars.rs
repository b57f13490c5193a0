//! Java libraries that the tests talk through, from Maven Central into `target/jars/`, each with its checksum.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{root, run};

/// Where Maven Central serves files.
const REPOSITORY: &str = "https://repo1.maven.org/maven2";

/// One library.
pub(crate) struct Jar {
    /// Its folder in the repository.
    folder: &'static str,
    /// Its file, which also names the version.
    file: &'static str,
    sha256: &'static str,
}

/// What the test suite talks through.
pub(crate) const TEST: &[Jar] = &[Jar {
    folder: "com/unboundid/unboundid-ldapsdk/7.0.1",
    file: "unboundid-ldapsdk-7.0.1.jar",
    sha256: "f8db797e19e461ab5694e0e4b57381706e84e292186df48f70ebbc3f59501b46",
}];

/// Makes sure that every library is there.
pub(crate) fn ensure(jars: &[Jar]) -> Result<()> {
    let folder = root().join("target/jars");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for jar in jars {
        let path = folder.join(jar.file);
        if path.exists() {
            continue;
        }
        // Under its own name it is seen only once it is known to be what was asked for.
        let fetched = path.with_extension("fetched");
        let url = format!("{REPOSITORY}/{}/{}", jar.folder, jar.file);
        run(Command::new("curl")
            .args(["--fail", "--silent", "--show-error", "--proto", "=https"])
            .args(["--max-filesize", "100000000", "--output"])
            .arg(&fetched)
            .arg(&url))?;
        let sum = sha256(&fetched)?;
        if sum != jar.sha256 {
            bail!("{url} has the checksum {sum}, expected {}", jar.sha256);
        }
        fs::rename(&fetched, &path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn sha256(path: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output();
    let output = output.context("sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sum = text.split_whitespace().next().unwrap_or_default();
    Ok(sum.to_owned())
}
