//! Packages of Debian that tests run without installing them, in `target/debs/`. Installed, they would change how
//! people log in to this machine.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{root, run, succeeds};

/// What the test suite runs so: PAM's module that asks a directory, the daemon which does it for that, and what calls
/// PAM as `login` does.
pub(crate) const TEST: &[&str] = &["libpam-ldapd", "nslcd", "pamtester"];

/// Makes sure that every package is unpacked.
pub(crate) fn ensure(names: &[&str]) -> Result<()> {
    let folder = root().join("target/debs");
    for name in names {
        let unpacked = folder.join(name);
        if unpacked.is_dir() {
            continue;
        }
        ensure!(
            succeeds(Command::new("apt-get").arg("--version")),
            "{} takes apt-get and dpkg-deb: unpack Debian's {name} there",
            unpacked.display()
        );
        // Under its own name it is seen only once it is whole.
        let partial = folder.join(format!("{name}.partial"));
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial).with_context(|| partial.display().to_string())?;
        run(Command::new("apt-get")
            .args(["--quiet", "download", name])
            .current_dir(&partial))?;
        let files = fs::read_dir(&partial)?.collect::<std::io::Result<Vec<_>>>()?;
        for file in files {
            run(Command::new("dpkg-deb")
                .arg("--extract")
                .args([file.path(), partial.clone()]))?;
        }
        fs::rename(&partial, &unpacked)?;
    }
    Ok(())
}
