//! The pages for people are true: every command in the README, *getting started*, *access*, *passwords*, *rules* and
//! *operating* is run, and says what the page shows.
//!
//! A fence of `sh` is a script, run in the page's own folder; one that begins with `sapwood serve` goes on in the
//! background until the end of the page. One of `bash` is for readers alone. A fence of `text` right behind a script is
//! what it says: its lines come in this order, others may stand between them only where a line is `…`, which within a
//! line stands for anything. The ports of a page are replaced by free ones.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use sapwood_testkit::program::{Process, Scratch, program, sapwood_command, text};

/// What pages say instead of free ports, by the scheme.
const PORTS: [(&str, &str); 2] = [("ldap", "3389"), ("ldaps", "3636")];
/// Stands for anything.
const ANYTHING: &str = "…";

#[test]
fn readme() {
    Page::read("../README.md").run();
}

#[test]
fn getting_started() {
    Page::read("getting-started.md").run();
}

#[test]
fn access() {
    Page::read("access.md").run();
}

#[test]
fn passwords() {
    Page::read("passwords.md").run();
}

#[test]
fn rules() {
    Page::read("rules.md").run();
}

#[test]
fn operating() {
    let mut names: Vec<String> = fs::read_dir(docs().join("operating"))
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        Page::read(&format!("operating/{name}")).run();
    }
}

#[test]
fn what_a_page_shows_is_compared() {
    assert!(shows("a\nb\n", "a\nb\n"));
    assert!(shows("a 1 b\n", "a … b\n"));
    assert!(shows("x\ny\nb\n", "…\nb\n"));
    assert!(!shows("a\nb\n", "a\n"));
    assert!(!shows("a\n", "a\nb\n"));
    assert!(!shows("a 1 c\n", "a … b\n"));
    assert!(!shows("x\nb\n", "b\n"));
}

/// The links of all pages lead to files.
#[test]
fn links_lead_somewhere() {
    let mut missing = Vec::new();
    for page in &pages() {
        let content = fs::read_to_string(page).unwrap();
        let targets = content.split("](").skip(1);
        for target in targets.filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if !file.is_empty() && !file.contains(':') && !page.with_file_name(file).exists() {
                missing.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The source files that pages name, as in `tree/write.rs`, are there. Records of decisions tell of files that have
/// gone.
#[test]
fn files_that_pages_name_are_there() {
    let sources: Vec<String> = ["crates", "benches", "xtask", "tests", "fuzz"]
        .iter()
        .flat_map(|folder| files(root().join(folder)))
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let mut missing = Vec::new();
    for page in pages() {
        let page_name = page.to_string_lossy();
        if page_name.contains("/decisions/") {
            continue;
        }
        let content = fs::read_to_string(&page).unwrap();
        // Every second part stands between two of them.
        for name in content.split('`').skip(1).step_by(2) {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            if name.contains('/') && name.ends_with(".rs") && name.chars().all(is_path) {
                let end = format!("/{name}");
                if !sources.iter().any(|source| source.ends_with(&end)) {
                    missing.push(format!("{page_name}: {name}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A link whose text is a name, to a file of Rust, names a test or another function there.
#[test]
fn functions_that_pages_name_are_there() {
    let (mut found, mut missing) = (0, Vec::new());
    for page in pages() {
        let content = fs::read_to_string(&page).unwrap();
        for (before, after) in content.split("`](").zip(content.split("`](").skip(1)) {
            let name = before.rsplit("[`").next().unwrap();
            let file = after.split(')').next().unwrap();
            if !file.ends_with(".rs") || name.contains(['/', '.', ':']) {
                continue;
            }
            let source = fs::read_to_string(page.parent().unwrap().join(file)).unwrap_or_default();
            found += 1;
            if !source.contains(&format!("fn {name}(")) {
                missing.push(format!("{}: {name} in {file}", page.display()));
            }
        }
    }
    assert!(found > 100, "{found}");
    assert!(missing.is_empty(), "{missing:#?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn docs() -> PathBuf {
    root().join("docs")
}

/// All pages: those of `docs`, those at the root, and those that crates begin with.
fn pages() -> Vec<PathBuf> {
    let mut pages = files(docs());
    let in_folder = |folder: PathBuf| {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    pages.extend(in_folder(root()));
    pages.extend(in_folder(root().join("crates")).map(|folder| folder.join("README.md")));
    pages.retain(|path| {
        path.extension().is_some_and(|extension| extension == "md") && path.is_file()
    });
    pages
}

/// All files below a folder, but for what cargo has built.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("target") => {}
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// A page on its way: its folder, and the servers that run.
struct Page {
    name: String,
    scratch: Scratch,
    /// Those that run, and the beginnings of their scripts. Another one with the same beginning takes their place.
    servers: Vec<(String, Process)>,
    /// What a port of the page is in truth; 0 before there is a server.
    ports: [String; 2],
}

struct Fence {
    line: usize,
    kind: String,
    body: String,
}

impl Page {
    fn read(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            scratch: Scratch::new(),
            servers: Vec::new(),
            ports: ["0".to_owned(), "0".to_owned()],
        }
    }

    fn run(mut self) {
        // Those that pages use; the failure names what to install.
        program("ldapsearch", "ldap-utils");
        program("openssl", "openssl");
        let content = fs::read_to_string(docs().join(&self.name)).unwrap();
        let fences = fences(&content);
        for (number, fence) in fences.iter().enumerate() {
            if fence.kind != "sh" {
                continue;
            }
            let said = self.script(&fence.body);
            let shown = fences
                .get(number + 1)
                .filter(|next| next.kind == "text")
                .map(|next| self.with_ports(&next.body));
            let (name, line) = (&self.name, fence.line);
            match (said, shown) {
                (Ok(said), Some(shown)) => assert!(
                    shows(&said, &shown),
                    "docs/{name}, line {line}: it says\n{said}and the page shows\n{shown}"
                ),
                (Ok(_), None) => {}
                (Err(failed), _) => panic!("docs/{name}, line {line}: {failed}"),
            }
        }
        for (_, mut server) in self.servers {
            server.signal(Signal::TERM);
            assert!(server.wait().success(), "{}", server.log());
        }
    }

    /// Runs a script; what it says, on standard output and standard error.
    fn script(&mut self, script: &str) -> Result<String, String> {
        let is_server = script.starts_with("sapwood serve") && !script.contains("||");
        // `sapwood serve` and a folder.
        let beginning: Vec<&str> = script.split_whitespace().take(3).collect();
        let beginning = beginning.join(" ");
        if is_server {
            self.servers.retain(|(other, _)| *other != beginning);
            for ((scheme, _), port) in PORTS.iter().zip(&mut self.ports) {
                let is_new =
                    self.servers.is_empty() || script.contains(&format!("--listen {scheme}://"));
                if is_new {
                    *port = "0".to_owned();
                }
            }
        }
        let script = self.with_ports(script);
        let mut shell = Command::new("bash");
        let sapwood = PathBuf::from(sapwood_command().get_program());
        let folder = sapwood.parent().unwrap().canonicalize().unwrap();
        let path = std::env::var("PATH").unwrap();
        shell
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("HOME", self.scratch.path(""))
            .current_dir(self.scratch.path(""));
        if is_server {
            // The program itself is what is stopped in the end.
            shell.args(["-c", &format!("exec {script}")]);
            let server = Process::start(&mut shell);
            let count = script.matches("--listen").count().max(1);
            let log = server.wait_until(|log| {
                let is_told = log.matches("listening on").count() >= count && log.ends_with('\n');
                is_told.then(|| log.to_owned())
            });
            let listening = log
                .lines()
                .filter_map(|line| line.split_once("listening on "));
            for (_, url) in listening {
                let (scheme, rest) = url.split_once("://").unwrap();
                let at = PORTS.iter().position(|(known, _)| *known == scheme);
                self.ports[at.unwrap()] = rest.rsplit(':').next().unwrap().to_owned();
            }
            self.servers.push((beginning, server));
            let told = log
                .lines()
                .filter_map(|line| line.find("listening on").map(|at| &line[at..]));
            return Ok(told.map(|line| format!("{line}\n")).collect());
        }
        let output = shell
            .args(["-c", &format!("set -euo pipefail; exec 2>&1\n{script}")])
            .output()
            .unwrap();
        let said = text(&output.stdout);
        match output.status.success() {
            true => Ok(said),
            false => Err(format!("{}, having said\n{said}", output.status)),
        }
    }

    fn with_ports(&self, text: &str) -> String {
        let ports = PORTS.iter().zip(&self.ports);
        ports.fold(text.to_owned(), |text, ((_, told), port)| {
            text.replace(&format!(":{told}"), &format!(":{port}"))
        })
    }
}

fn fences(content: &str) -> Vec<Fence> {
    let mut fences = Vec::new();
    let mut open: Option<Fence> = None;
    for (number, line) in content.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => fences.extend(open.take()),
            (Some(kind), None) => {
                open = Some(Fence {
                    line: number + 1,
                    kind: kind.to_owned(),
                    body: String::new(),
                });
            }
            (None, Some(fence)) => {
                fence.body += line;
                fence.body.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    fences
}

/// Whether what was said is what is shown. Empty lines do not count.
fn shows(said: &str, shown: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    shows_lines(&lines(said), &lines(shown))
}

fn shows_lines(said: &[String], shown: &[String]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((anything, rest)) if anything == ANYTHING => {
            (0..=said.len()).any(|from| shows_lines(&said[from..], rest))
        }
        Some((first, rest)) => said
            .split_first()
            .is_some_and(|(line, said)| shows_line(line, first) && shows_lines(said, rest)),
    }
}

fn shows_line(line: &str, shown: &str) -> bool {
    let mut parts = shown.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        is_open = part.is_empty();
    }
    is_open || rest.is_empty()
}
