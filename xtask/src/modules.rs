//! No circles among the modules of a crate.
//!
//! The folders and files at the top of a crate's `src` are its rooms. Which uses which is told by the paths in the code
//! (`crate::x`, `super::x`); names that the crate's root re-exports stand for the rooms that they come from. Tests may
//! use anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::source::Source;

/// Which room uses which, and in which file.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<PathBuf>>>;

/// What is wrong with the modules of a crate, whose sources are given by their paths below `src`.
pub(crate) fn circles(files: &BTreeMap<PathBuf, Source>) -> Vec<String> {
    let uses = uses(files);
    let mut found = Vec::new();
    let mut unseen: BTreeSet<&str> = uses.keys().map(String::as_str).collect();
    while let Some(&room) = unseen.first() {
        let Some(circle) = shortest(&uses, room) else {
            unseen.remove(room);
            continue;
        };
        let steps = circle.iter().zip(circle.iter().cycle().skip(1));
        let steps = steps.map(|(from, to)| {
            let files = uses[*from][*to].iter();
            let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
            format!("\n    {from} uses {to} in {}", files.join(", "))
        });
        found.push(format!("a circle of modules:{}", steps.collect::<String>()));
        unseen.retain(|room| !circle.contains(room));
    }
    found
}

/// The shortest way from a room back to it.
fn shortest<'u>(uses: &'u Uses, room: &'u str) -> Option<Vec<&'u str>> {
    let mut ways = VecDeque::from([vec![room]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in uses.get(*way.last()?).into_iter().flat_map(|to| to.keys()) {
            if next == room {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back(way.iter().copied().chain([next.as_str()]).collect());
            }
        }
    }
    None
}

fn uses(files: &BTreeMap<PathBuf, Source>) -> Uses {
    let roots = ["lib.rs", "main.rs"].map(Path::new);
    let root = roots.iter().find_map(|root| files.get(*root));
    let names = root.map(Source::names).unwrap_or_default();
    let rooms: BTreeSet<String> = files.keys().filter_map(|path| room_of(path)).collect();
    let mut uses = Uses::new();
    for (path, source) in files
        .iter()
        .filter(|(path, _)| !roots.contains(&path.as_path()))
    {
        let Some(from) = room_of(path) else {
            continue;
        };
        let module = module_of(path);
        for used in source.paths() {
            let absolute = absolute(&module, &used);
            let mut to = absolute.first();
            // A name of the root, which may come from another crate.
            if let Some(name) = to.filter(|name| !rooms.contains(*name)) {
                let path = names.get(name).into_iter().flatten();
                to = path.into_iter().find(|part| *part != "crate");
            }
            if let Some(to) = to.filter(|to| rooms.contains(*to) && **to != from) {
                let at = uses.entry(from.clone()).or_default();
                at.entry(to.clone()).or_default().insert(path.clone());
            }
        }
    }
    uses
}

/// A path from the root of the crate on.
fn absolute(module: &[String], path: &[String]) -> Vec<String> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    if ups == 0 {
        return path[1..].to_vec();
    }
    let above = &module[..module.len().saturating_sub(ups)];
    above.iter().chain(&path[ups..]).cloned().collect()
}

/// The module that a file is.
fn module_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let mut parts: Vec<String> = parts.collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

fn room_of(path: &Path) -> Option<String> {
    module_of(path).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::without_tests;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files.iter();
        let texts = texts.map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
        circles(&without_tests(texts.collect()))
    }

    #[test]
    fn layers_are_no_circle() {
        let found = circles_of(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::C;\n"),
            ("a.rs", "use crate::b::B;\nuse std::fmt;\n"),
            ("b.rs", "// use crate::a;\nmod inner;\nuse crate::C;\n"),
            (
                "b/inner.rs",
                "use super::B;\nuse super::super::c::C;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n",
            ),
            ("c.rs", "pub struct C;\nmod inner { use super::C; }\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_told_file_by_file() {
        let found = circles_of(&[
            (
                "lib.rs",
                "mod a;\nmod b;\nmod c;\npub use {a::A, sapwood_wal::Error};\n",
            ),
            ("a/mod.rs", "fn f(b: crate::b::inner::B) {}\n"),
            ("b.rs", "use crate::Error;\n"),
            ("b/inner.rs", "pub(crate) use super::super::{c, std};\n"),
            ("c.rs", "use crate::{A, b};\n"),
        ]);
        let expected = "a circle of modules:\n    \
            a uses b in a/mod.rs\n    b uses c in b/inner.rs\n    c uses a in c.rs";
        assert_eq!(found, [expected]);
    }
}
