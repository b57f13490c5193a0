//! The example in C is built, and its processes count together.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn processes_in_c_count_together() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("counter");
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The static library lies beside this test, under a name with a number; of several the newest is this one's.
    let test = std::env::current_exe().unwrap();
    let library = std::fs::read_dir(test.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libsapwood_xact") && name.ends_with(".a")
        })
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("the static library is built with the crate");
    let built = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(crate_folder.join("include"))
        .arg(crate_folder.join("examples/counter.c"))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm"])
        .status();
    assert!(built.expect("a C compiler").success());
    let space = folder.path().join("space");
    let count = |times: u64| {
        let mut counter = Command::new(&program);
        counter
            .arg(&space)
            .arg(times.to_string())
            .stdout(Stdio::piped());
        counter.spawn().unwrap()
    };
    let children: Vec<_> = (0..3).map(|_| count(40)).collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let last = count(1).wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&last.stdout), "121\n");
    let refused = Command::new(&program)
        .args(["/dev/null/space", "1"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot open the space: "));
}
