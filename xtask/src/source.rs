//! Rust source as code: without comments, without what literals say, without tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The code of a file, line by line as in the file: comments are blank, and so is every item under `#[cfg(test)]`. Of
/// literals the quotes are left.
pub(crate) struct Source {
    code: String,
    /// The modules that are declared for tests only.
    test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn of(text: &str) -> Self {
        let mut code = blank_comments(text);
        let mut test_modules = Vec::new();
        let mut from = 0;
        while let Some(at) = code[from..].find("#[cfg(") {
            let begin = from + at;
            let end = begin + bracketed(&code[begin + 1..]) + 1;
            let condition = code[begin..end].replace(char::is_whitespace, "");
            from = end;
            if condition != "#[cfg(test)]" && !condition.starts_with("#[cfg(all(test,") {
                continue;
            }
            from = end + item(&code[end..]);
            let words: Vec<&str> = code[end..from].split_whitespace().collect();
            if let [.., "mod", name] = words[..]
                && let Some(name) = name.strip_suffix(';')
            {
                test_modules.push(name.to_owned());
            }
            blank(&mut code, begin, from);
        }
        Self { code, test_modules }
    }

    /// How many lines have code.
    pub(crate) fn lines(&self) -> usize {
        let lines = self.code.lines();
        lines.filter(|line| !line.trim().is_empty()).count()
    }

    /// Every path that the code uses and that begins in the crate or above the module, in segments: those of `use`
    /// trees one by one.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        let mut rest = self.code.as_str();
        let mut before = ' ';
        while let Some(at) = rest.find(|letter: char| letter.is_alphabetic() || letter == '_') {
            before = rest[..at].chars().next_back().unwrap_or(before);
            let word = &rest[at..at + word_len(&rest[at..])];
            let is_path = matches!(word, "crate" | "super") && !matches!(before, '$' | ':');
            let used = match is_path {
                true => tree(&rest[at..], &[], &mut paths),
                false => word.len(),
            };
            before = 'x';
            rest = &rest[at + used..];
        }
        paths.retain(|path| path.len() > 1);
        paths
    }

    /// What the names that are brought in stand for: of each `use` in a crate's root the name and the path.
    pub(crate) fn names(&self) -> BTreeMap<String, Vec<String>> {
        let mut names = BTreeMap::new();
        for statement in self.code.split(';') {
            let words = statement.split_once("use ");
            let is_use = |before: &str| {
                let last = before.lines().next_back().unwrap_or_default().trim();
                last.is_empty() || last.starts_with("pub")
            };
            if let Some((_, used)) = words.filter(|(before, _)| is_use(before)) {
                let mut paths = Vec::new();
                tree(used.trim(), &[], &mut paths);
                for path in paths {
                    names.extend(path.last().cloned().map(|name| (name, path)));
                }
            }
        }
        names
    }
}

/// Those of some files that are no tests, by path: not in a folder `tests`, not named `*_tests.rs`, not a module that
/// is declared for tests only.
pub(crate) fn without_tests(texts: Vec<(PathBuf, String)>) -> BTreeMap<PathBuf, Source> {
    let sources = texts
        .into_iter()
        .map(|(path, text)| (path, Source::of(&text)));
    let mut sources: BTreeMap<PathBuf, Source> = sources.collect();
    let of_tests = sources.iter().flat_map(|(path, source)| {
        let folder = folder_of(path);
        let modules = source.test_modules.iter();
        modules.map(move |module| folder.join(module))
    });
    let of_tests: Vec<PathBuf> = of_tests.collect();
    sources.retain(|path, _| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_test = name.ends_with("_tests")
            || path.iter().any(|part| part == "tests")
            || of_tests
                .iter()
                .any(|module| path.starts_with(module) || path.with_extension("") == *module);
        !is_test
    });
    sources
}

/// Where the files of a module's own modules are.
fn folder_of(path: &Path) -> PathBuf {
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => path.parent().unwrap_or(path).to_owned(),
        _ => path.with_extension(""),
    }
}

/// Reads a path that may be a `use` tree, and adds what it leads to; how many bytes it has.
fn tree(text: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        match text[at..].chars().next() {
            Some('{') => {
                at += 1;
                while !text[at..].trim_start().starts_with('}') && at < text.len() {
                    at += tree(&text[at..], &path, paths).max(1);
                    at += text[at..].find([',', '}']).unwrap_or(text.len() - at);
                    at += usize::from(text[at..].starts_with(','));
                }
                return at + text[at..].find('}').map_or(0, |end| end + 1);
            }
            Some('*') => {
                path.push("*".to_owned());
                paths.push(path);
                return at + 1;
            }
            _ => {}
        }
        let len = word_len(&text[at..]);
        if len == 0 {
            break;
        }
        let word = &text[at..at + len];
        // `a::{self}` is `a`.
        if word != "self" {
            path.push(word.to_owned());
        }
        at += len;
        match text[at..].trim_start().strip_prefix("::") {
            Some(rest) if !rest.trim_start().starts_with('<') => at = text.len() - rest.len(),
            _ => break,
        }
    }
    paths.push(path);
    at
}

fn word_len(text: &str) -> usize {
    text.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .unwrap_or(text.len())
}

/// Everything that is code, in its place.
fn blank_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_new_word = !code.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let (len, is_literal) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (comment_len(rest), false)
        } else if let Some(hashes) = raw_hashes(rest).filter(|_| is_new_word) {
            (raw_len(rest, hashes), true)
        } else if first == '"' {
            (quoted_len(rest, '"'), true)
        } else if let Some(len) = char_len(rest) {
            (len, true)
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        for letter in rest[..len].chars() {
            code.push(match (letter, is_literal) {
                ('\n', _) => '\n',
                (_, true) => '"',
                (_, false) => ' ',
            });
        }
        rest = &rest[len..];
    }
    code
}

fn comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let (step, change) = match text.get(at..at + 2) {
            Some("/*") => (2, 1),
            Some("*/") => (2, -1),
            _ => (text[at..].chars().next().map_or(1, char::len_utf8), 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            break;
        }
    }
    at
}

/// How many hashes a raw string has that begins here.
fn raw_hashes(text: &str) -> Option<usize> {
    let raw = text
        .strip_prefix("br")
        .or_else(|| text.strip_prefix("cr"))
        .or_else(|| text.strip_prefix('r'))?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    raw[hashes..].starts_with('"').then_some(hashes)
}

fn raw_len(text: &str, hashes: usize) -> usize {
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = text.find('"').map_or(text.len(), |quote| quote + 1);
    let length = text[begin..].find(&end);
    length.map_or(text.len(), |length| begin + length + end.len())
}

fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = true;
    for (at, letter) in text.char_indices() {
        if letter == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = !is_escaped && letter == '\\';
    }
    text.len()
}

/// The length of a character literal; `None` where a lifetime begins, or neither.
fn char_len(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let mut letters = inside.chars();
    match (letters.next()?, letters.next()?) {
        ('\\', _) => Some(quoted_len(text, '\'')),
        (letter, '\'') => Some(2 + letter.len_utf8()),
        _ => None,
    }
}

/// The length of what is in brackets, which begins with one.
fn bracketed(code: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The length of the item, field or statement that begins here, with its attributes.
fn item(code: &str) -> usize {
    let mut at = 0;
    while let Some(letter) = code[at..].chars().next() {
        match letter {
            '(' | '[' => at += bracketed(&code[at..]),
            '{' => {
                at += bracketed(&code[at..]);
                // A `use` tree ends with a semicolon, a field with a comma.
                let rest = code[at..].trim_start();
                if rest.starts_with([';', ',']) {
                    at = code.len() - rest.len() + 1;
                }
                return at;
            }
            ';' | ',' => return at + 1,
            // The last field, variant or argument.
            ')' | ']' | '}' => return at,
            _ => at += letter.len_utf8(),
        }
    }
    at
}

fn blank(code: &mut String, from: usize, to: usize) {
    let blanks: String = code[from..to]
        .chars()
        .map(|letter| if letter == '\n' { '\n' } else { ' ' })
        .collect();
    code.replace_range(from..to, &blanks);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> usize {
        Source::of(text).lines()
    }

    #[test]
    fn lines_of_code_are_counted() {
        assert_eq!(
            lines("// one\n\nlet a = 1; // two\n/* three\nlet b; /* */ */ let c;\n"),
            2
        );
        assert_eq!(
            lines("let a = \"// no comment\n /* nor this \\\" */\";\n"),
            2
        );
        assert_eq!(lines("let a = r#\"\n\" // \n\"#; // comment\n"), 3);
        assert_eq!(
            lines("match letter { '\"' => 1, '\\'' => 2,\n// comment\n'/' => 3 }\n"),
            2
        );
        assert_eq!(lines("fn f<'a>(a: &'a str) {} // '\n/// doc\n//! doc\n"), 1);
    }

    #[test]
    fn tests_are_not_counted() {
        let text = "\
            use a;\n\
            #[cfg(test)]\nuse b::{c,\nd};\n\
            #[cfg(all(test, feature = \"f\"))]\nmod slow;\n\
            struct S {\n#[cfg(test)]\nfield: [u8; 4],\nother: u8,\n}\n\
            #[cfg(not(test))]\nfn shipped() {}\n\
            #[cfg(test)]\n#[derive(Debug)]\npub(crate) struct T(u8);\n\
            #[cfg(test)]\nmod tests {\nfn f() { \"}\" }\n}\n\
            fn last() {}\n";
        // `use a`, three lines of `S`, two of `shipped`, `last`.
        assert_eq!(lines(text), 7);
    }

    #[test]
    fn files_of_tests_are_left_out() {
        let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let files = without_tests(vec![
            file("c/src/lib.rs", "mod a;\n#[cfg(test)]\nmod lives;\n"),
            file("c/src/lives.rs", ""),
            file("c/src/lives/deep.rs", ""),
            file("c/src/a.rs", "#[cfg(test)]\npub(crate) mod b;\n"),
            file("c/src/a/b.rs", ""),
            file("c/src/a/lives.rs", ""),
            file("c/src/a/some_tests.rs", ""),
            file("c/tests/all.rs", ""),
        ]);
        let left: Vec<_> = files.keys().map(|path| path.to_string_lossy()).collect();
        assert_eq!(left, ["c/src/a/lives.rs", "c/src/a.rs", "c/src/lib.rs"]);
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let text = "\
            // crate::comment\n\
            use crate::a::{self, b::{C, D as E}, f::*};\n\
            pub(crate) use super::g;\n\
            #[cfg(test)]\nuse crate::tests;\n\
            pub(in crate::h) fn i() -> crate::j::K<u8> {\n\
                super::super::l::m::<u8>(\"crate::text\"); my_crate::n(); $crate::o!()\n\
            }\n";
        let mut found: Vec<_> = Source::of(text).paths();
        found.iter_mut().for_each(|path| path.truncate(4));
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        let expected = [
            "crate::a",
            "crate::a::b::C",
            "crate::a::b::D",
            "crate::a::f::*",
            "super::g",
            "crate::h",
            "crate::j::K",
            "super::super::l::m",
        ];
        assert_eq!(found, expected);
    }
}
