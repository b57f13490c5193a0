//! What Sapwood says of a directory itself.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// The number behind a word of `sapwood stat`, such as `Checkpoints:`, for each store that tells it.
pub(crate) fn numbers(program: &Path, folder: &Path, word: &str) -> Result<Vec<u64>> {
    let output = Command::new(program).arg("stat").arg(folder).output()?;
    ensure!(output.status.success(), "sapwood stat: {}", output.status);
    let numbers = parse(&String::from_utf8_lossy(&output.stdout), word);
    ensure!(!numbers.is_empty(), "sapwood stat does not tell {word}");
    Ok(numbers)
}

fn parse(text: &str, word: &str) -> Vec<u64> {
    let told = text.lines().filter_map(|line| line.strip_prefix(word));
    let first = told.filter_map(|told| told.split_ascii_whitespace().next());
    first.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_tells_its_number() {
        let text = "Naming contexts:  dc=example\n\nStore 0\nCheckpoints:      12 since it was opened\n\nStore 1\n\
                    Checkpoints:      3 since it was opened\nLog ever written: 77 bytes\n";
        assert_eq!(parse(text, "Checkpoints:"), [12, 3]);
        assert_eq!(parse(text, "Log ever written:"), [77]);
        assert!(parse(text, "Naming contexts:").is_empty());
    }
}
