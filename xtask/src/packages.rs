//! The programs of other projects that tests and benchmarks talk to, and how to get them on Debian.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{run, succeeds};

/// One program a check needs.
pub(crate) struct Package {
    /// Debian's name for it.
    name: &'static str,
    /// What it is for, for the person who is asked to install it.
    purpose: &'static str,
    present: fn() -> bool,
}

/// What the test suite talks to.
pub(crate) const TEST: &[Package] = &[
    Package {
        name: "ldap-utils",
        purpose: "ldapsearch, ldapmodify and their kin as clients",
        present: || in_path("ldapsearch"),
    },
    Package {
        name: "libsasl2-modules",
        purpose: "SCRAM of those clients",
        present: has_scram,
    },
    Package {
        name: "libsasl2-modules-gssapi-mit",
        purpose: "GSSAPI of those clients",
        present: has_gssapi,
    },
    Package {
        name: "libkrb5-dev",
        purpose: "building what takes Kerberos tickets",
        present: || Path::new("/usr/include/gssapi/gssapi.h").exists(),
    },
    Package {
        name: "krb5-kdc",
        purpose: "Kerberos, whose tickets are taken",
        present: || Path::new("/usr/sbin/krb5kdc").exists(),
    },
    Package {
        name: "krb5-admin-server",
        purpose: "making users of Kerberos",
        present: || Path::new("/usr/sbin/kadmin.local").exists(),
    },
    Package {
        name: "krb5-user",
        purpose: "kinit, which gets the first ticket",
        present: || in_path("kinit"),
    },
    Package {
        name: "slapd",
        purpose: "OpenLDAP's server, whose answers ours are compared with",
        present: || in_path("slapd"),
    },
    Package {
        name: "libfaketime",
        purpose: "stepping the clock of that server",
        present: has_faketime,
    },
    Package {
        name: "oathtool",
        purpose: "the one-time passwords of a token",
        present: || in_path("oathtool"),
    },
    Package {
        name: "lmdb-utils",
        purpose: "mdb_dump and mdb_load, whose text format the store's commands speak",
        present: || in_path("mdb_dump"),
    },
    Package {
        name: "python3-ldap",
        purpose: "python-ldap as a client",
        present: || succeeds(Command::new("/usr/bin/python3").args(["-c", "import ldap"])),
    },
    Package {
        name: "default-jdk-headless",
        purpose: "JNDI as a client",
        present: || in_path("java") && in_path("javac"),
    },
    Package {
        name: "pkgconf",
        purpose: "compiling programs in C as users do",
        present: || in_path("pkg-config"),
    },
    Package {
        name: "openssl",
        purpose: "making certificates as the page about TLS does",
        present: || in_path("openssl"),
    },
    Package {
        name: "curl",
        purpose: "fetching Java libraries that Debian does not have",
        present: || in_path("curl"),
    },
];

/// Whether Cyrus SASL has its module for SCRAM.
fn has_scram() -> bool {
    has_library("sasl2/libscram.so")
}

/// Whether Cyrus SASL has its module for Kerberos.
fn has_gssapi() -> bool {
    has_library("sasl2/libgssapiv2.so")
}

/// Whether there is the library that makes programs believe in another time.
fn has_faketime() -> bool {
    has_library("faketime/libfaketimeMT.so.1")
}

/// Whether there is a file below a folder that is named after the machine.
fn has_library(path: &str) -> bool {
    let folders = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let mut libraries = folders.map(|folder| folder.path().join(path));
    libraries.any(|library| library.exists())
}

/// What programs written for LMDB are built and run with.
pub(crate) const JUDGE_LMDB: &[Package] = &[
    Package {
        name: "gcc",
        purpose: "compiling LMDB's own programs, and py-lmdb",
        present: || in_path("cc"),
    },
    Package {
        name: "liblmdb-dev",
        purpose: "the original library, which py-lmdb is built for",
        present: || Path::new("/usr/include/lmdb.h").exists(),
    },
    Package {
        name: "python3-dev",
        purpose: "building py-lmdb",
        present: || in_path("python3") && succeeds(Command::new("python3").args(["-c", PYTHON_H])),
    },
    Package {
        name: "python3-venv",
        purpose: "a Python of its own for py-lmdb",
        present: || succeeds(Command::new("python3").args(["-c", "import ensurepip"])),
    },
    Package {
        name: "slapd",
        purpose: "a server whose LMDB backend runs on our library",
        present: || in_path("slapd"),
    },
    Package {
        name: "ldap-utils",
        purpose: "asking that server",
        present: || in_path("ldapsearch"),
    },
    Package {
        name: "golang-go",
        purpose: "building the tests of lmdb-go",
        present: || in_path("go"),
    },
    Package {
        name: "postfix-lmdb",
        purpose: "postmap, which keeps tables in LMDB",
        present: || Path::new("/usr/lib/postfix/postfix-lmdb.so").exists(),
    },
    Package {
        name: "php-cli",
        purpose: "running a program of PHP",
        present: || in_path("php"),
    },
    Package {
        name: "php8.2-dba",
        purpose: "PHP's dba, which can keep its data in LMDB",
        present: || succeeds(Command::new("php").args(["-r", DBA])),
    },
    Package {
        name: "liblmdb-file-perl",
        purpose: "Perl's LMDB_File",
        present: || succeeds(Command::new("perl").args(["-MLMDB_File", "-e", "1"])),
    },
];

/// Succeeds if PHP's dba knows LMDB.
const DBA: &str = "exit(in_array('lmdb', dba_handlers()) ? 0 : 1);";

/// Succeeds if the header for extensions is there.
const PYTHON_H: &str =
    "import os, sysconfig as s; os.stat(os.path.join(s.get_paths()['include'], 'Python.h'))";

/// What the benchmarks compare with.
pub(crate) const BENCH_LDAP: &[Package] = &[Package {
    name: "slapd",
    purpose: "OpenLDAP's server, measured beside ours",
    present: || in_path("slapd"),
}];

/// What the store is compared with.
pub(crate) const BENCH_STORE: &[Package] = &[
    Package {
        name: "librocksdb-dev",
        purpose: "RocksDB, measured beside the store",
        present: || Path::new("/usr/include/rocksdb/c.h").exists(),
    },
    Package {
        name: "libdb5.3-dev",
        purpose: "Berkeley DB, measured beside the store",
        present: || Path::new("/usr/include/db.h").exists(),
    },
    Package {
        name: "valgrind",
        purpose: "callgrind, which counts instructions",
        present: || in_path("valgrind"),
    },
];

/// What the benchmark of trees and transactions compares with.
pub(crate) const BENCH_XACT: &[Package] = &[
    Package {
        name: "libdb5.3-dev",
        purpose: "Berkeley DB, measured beside ours",
        present: || Path::new("/usr/include/db.h").exists(),
    },
    Package {
        name: "liblmdb-dev",
        purpose: "LMDB, measured beside ours",
        present: || Path::new("/usr/include/lmdb.h").exists(),
    },
    Package {
        name: "gcc",
        purpose: "compiles the peers' part of the benchmark",
        present: || in_path("cc"),
    },
];

/// What counts instructions.
pub(crate) const BENCH_INSTRUCTIONS: &[Package] = &[Package {
    name: "valgrind",
    purpose: "callgrind, which counts the server's instructions",
    present: || in_path("callgrind_control"),
}];

/// Makes sure that every package is there: installs the missing ones with `apt-get` when `install` and the
/// user is root, and otherwise names them.
pub(crate) fn ensure(packages: &[Package], install: bool) -> Result<()> {
    let missing: Vec<&Package> = packages.iter().filter(|p| !(p.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|p| p.name).collect();
    if !(install && is_root() && in_path("apt-get")) {
        for package in &missing {
            eprintln!("missing: {} ({})", package.name, package.purpose);
        }
        bail!(
            "install the missing packages, on Debian with: apt-get install {}",
            names.join(" ")
        );
    }
    // Debian's slapd would make and start a directory of its own on port 389; nobody asked for one.
    if names.contains(&"slapd") {
        run(Command::new("sh").args([
            "-c",
            "echo 'slapd slapd/no_configuration boolean true' | debconf-set-selections",
        ]))?;
    }
    // Nor for a mail server.
    if names.iter().any(|name| name.starts_with("postfix")) {
        run(Command::new("sh").args([
            "-c",
            "echo 'postfix postfix/main_mailer_type select No configuration' | debconf-set-selections",
        ]))?;
    }
    run(apt_get().arg("update"))?;
    run(apt_get()
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&names))?;
    match missing.iter().find(|p| !(p.present)()) {
        Some(package) => bail!("{} is installed but still not found", package.name),
        None => Ok(()),
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .arg("--quiet=2")
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether `program` is in `PATH` or in the folders for administrators, which not every `PATH` names.
fn in_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|folder| Path::new(folder).join(program).exists())
}
