//! The words of a rule, and where they stand.

use super::{Parsed, RULE_BYTES_MAX, RuleError};

/// A word without its quotation marks.
pub(in super::super) struct Word {
    pub(super) text: String,
    line: usize,
    column: usize,
}

/// A word of the form `name[/option][.style]=value`.
pub(in super::super) struct Field<'w> {
    pub(in super::super) name: &'w str,
    pub(super) option: Option<&'w str>,
    pub(in super::super) style: Option<&'w str>,
    pub(in super::super) value: &'w str,
}

impl Word {
    pub(in super::super) fn is(&self, text: &str) -> bool {
        self.text.eq_ignore_ascii_case(text)
    }

    pub(in super::super) fn error(&self, why: impl Into<String>) -> RuleError {
        RuleError {
            line: self.line,
            column: self.column,
            why: why.into(),
        }
    }

    /// Its parts.
    pub(in super::super) fn field(&self) -> Parsed<Field<'_>> {
        let (name, value) = self.text.split_once('=').ok_or_else(|| {
            self.error(format!(
                "{:?} names nothing: '=' and a value are missing",
                self.text
            ))
        })?;
        let (name, style) = match name.split_once('.') {
            Some((name, style)) => (name, Some(style)),
            None => (name, None),
        };
        let (name, option) = match name.split_once('/') {
            Some((name, option)) => (name, Some(option)),
            None => (name, None),
        };
        Ok(Field {
            name,
            option,
            style,
            value,
        })
    }
}

/// The words of a rule, one after the other.
pub(in super::super) struct Words {
    words: Vec<Word>,
    next: usize,
    end: (usize, usize),
}

impl Words {
    /// Reads text that begins in a line.
    pub(in super::super) fn read(text: &str, first_line: usize) -> Parsed<Words> {
        let (mut line, mut column) = (first_line, 0);
        let mut words = Vec::new();
        let mut word: Option<Word> = None;
        let mut quote = None;
        let mut letters = text.chars();
        let fail = |line, column, why: &str| RuleError {
            line,
            column,
            why: why.to_owned(),
        };
        if text.len() > RULE_BYTES_MAX {
            return Err(fail(
                line,
                1,
                &format!("more than {RULE_BYTES_MAX} bytes in one rule"),
            ));
        }
        while let Some(letter) = letters.next() {
            column += 1;
            if letter == '\n' {
                (line, column) = (line + 1, 0);
            }
            if letter.is_whitespace() && quote.is_none() {
                words.extend(word.take());
                continue;
            }
            let word = word.get_or_insert_with(|| Word {
                text: String::new(),
                line,
                column,
            });
            match letter {
                '"' => {
                    quote = match quote {
                        Some(_) => None,
                        None => Some((line, column)),
                    };
                }
                '\\' => match letters.next() {
                    Some(escaped) => {
                        column += 1;
                        if matches!(escaped, '\n' | '\r' | '\0') {
                            return Err(fail(line, column, "a line break or zero byte behind \\"));
                        }
                        word.text.push(escaped);
                    }
                    None => return Err(fail(line, column, "a letter is missing behind \\")),
                },
                '\n' | '\r' => {}
                '\0' => return Err(fail(line, column, "a zero byte")),
                letter => word.text.push(letter),
            }
        }
        if let Some((line, column)) = quote {
            return Err(fail(line, column, "the quotation mark is not closed"));
        }
        words.extend(word);
        Ok(Words {
            words,
            next: 0,
            end: (line, column + 1),
        })
    }

    pub(in super::super) fn peek(&self) -> Option<&Word> {
        self.words.get(self.next)
    }

    pub(in super::super) fn next(&mut self) -> Option<&Word> {
        let word = self.words.get(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// The next one, if it is not this.
    pub(in super::super) fn next_but(&mut self, text: &str) -> Option<&Word> {
        match self.peek()?.is(text) {
            true => None,
            false => self.next(),
        }
    }

    /// An error at the word that was read last, or at the end if there is none left.
    pub(in super::super) fn error(&self, why: impl Into<String>) -> RuleError {
        let last = self.next.checked_sub(1).and_then(|at| self.words.get(at));
        match last.filter(|_| self.next < self.words.len()) {
            Some(word) => word.error(why),
            None => RuleError {
                line: self.end.0,
                column: self.end.1,
                why: why.into(),
            },
        }
    }
}

/// The lines of a file, each with those that go on with it, and the number of its first one.
pub(in super::super) fn logical_lines(text: &str) -> Parsed<Vec<(usize, String)>> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_behind_comment = false;
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let is_continuation = line.starts_with([' ', '\t']);
        let content = line.trim();
        if content.starts_with('#') {
            is_behind_comment |= !is_continuation;
            if let Some((_, logical)) = lines.last_mut() {
                logical.push('\n');
            }
            continue;
        }
        if content.is_empty() {
            if let Some((_, logical)) = lines.last_mut() {
                logical.push('\n');
            }
            continue;
        }
        if !is_continuation {
            is_behind_comment = false;
            lines.push((number, line.to_owned()));
            continue;
        }
        let fail = |why: &str| RuleError {
            line: number,
            column: 1,
            why: why.to_owned(),
        };
        if is_behind_comment {
            let why = "this line would go on with the comment before it: move the comment, or put # before the line";
            return Err(fail(why));
        }
        let Some((_, logical)) = lines.last_mut() else {
            return Err(fail("there is no rule that this line could go on with"));
        };
        logical.push('\n');
        logical.push_str(line);
    }
    Ok(lines)
}
