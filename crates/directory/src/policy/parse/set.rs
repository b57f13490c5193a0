//! The text of sets: `this/manager & user`.

use crate::policy::set::{Join, OriginOf, PartOf, SetOf, StepOf, WrittenSet};

type Part = PartOf<String, String>;
type Origin = OriginOf<String, String>;
type Step = StepOf<String>;

/// How deep parentheses may be.
const DEPTH_MAX: usize = 32;
/// The highest number of names above one.
const LEVELS_MAX: u32 = 1 << 16;

/// Reads a set.
pub(crate) fn read_set(text: &str) -> Result<WrittenSet, String> {
    let mut reader = Reader { rest: text };
    let set = reader.set(0)?;
    match reader.peek() {
        None => Ok(set),
        Some(_) => Err(reader.unexpected()),
    }
}

struct Reader<'t> {
    rest: &'t str,
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '.'
}

impl<'t> Reader<'t> {
    /// The next letter that is no space.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.chars().next()
    }

    fn takes(&mut self, word: &str) -> bool {
        self.peek();
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn unexpected(&self) -> String {
        match self.rest.is_empty() {
            true => "the set ends too early".to_owned(),
            false => format!("the set cannot go on with {:?}", shortened(self.rest)),
        }
    }

    fn set(&mut self, depth: usize) -> Result<WrittenSet, String> {
        if depth > DEPTH_MAX {
            return Err(format!("parentheses in a set are at most {DEPTH_MAX} deep"));
        }
        let first = self.part(depth)?;
        let mut rest = Vec::new();
        loop {
            let join = match self.peek() {
                Some('|') => Join::Union,
                Some('&') => Join::Intersection,
                Some('+') => Join::Concatenation,
                _ => return Ok(SetOf { first, rest }),
            };
            self.rest = &self.rest[1..];
            rest.push((join, self.part(depth)?));
        }
    }

    fn part(&mut self, depth: usize) -> Result<Part, String> {
        let origin = match self.peek() {
            Some('(') => {
                self.rest = &self.rest[1..];
                let inner = self.set(depth + 1)?;
                if !self.takes(")") {
                    return Err(self.unexpected());
                }
                Origin::Set(Box::new(inner))
            }
            Some('[') => {
                let inner = self.rest[1..].split_once(']');
                let (text, rest) = inner.ok_or("a bracket in a set is not closed")?;
                self.rest = rest;
                Origin::Text(text.to_owned())
            }
            _ => match self.name() {
                "this" => Origin::This,
                "user" => Origin::User,
                "" => return Err(self.unexpected()),
                other => {
                    return Err(format!(
                        "{other:?} is no set: write this, user, a text in brackets, or attributes behind /"
                    ));
                }
            },
        };
        let mut steps = Vec::new();
        while self.takes("/") || self.takes("->") {
            steps.push(self.step()?);
        }
        Ok(PartOf { origin, steps })
    }

    fn step(&mut self) -> Result<Step, String> {
        if self.takes("-*") {
            return Ok(StepOf::Above(None));
        }
        if self.takes("-") {
            let end = self.rest.find(|letter: char| !letter.is_ascii_digit());
            let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            let levels: Option<u32> = digits.parse().ok();
            let levels = levels.filter(|levels| *levels <= LEVELS_MAX);
            self.rest = rest;
            return match levels {
                Some(levels) => Ok(StepOf::Above(Some(levels))),
                None => Err("behind /- stands a number, or *".to_owned()),
            };
        }
        self.peek();
        let attribute = match self.name() {
            "" => return Err(self.unexpected()),
            name => name.to_owned(),
        };
        // Only directly behind it.
        let rest = self.rest.strip_prefix('*');
        let closure = rest.is_some();
        self.rest = rest.unwrap_or(self.rest);
        Ok(StepOf::Values { attribute, closure })
    }

    /// A name; a hyphen is of it if more of the name comes behind.
    fn name(&mut self) -> &'t str {
        let text = self.rest;
        let mut end = 0;
        for (at, letter) in text.char_indices() {
            let next = text[at + letter.len_utf8()..].chars().next();
            let goes_on = letter == '-' && at > 0 && next.is_some_and(is_of_name);
            if !is_of_name(letter) && !goes_on {
                break;
            }
            end = at + letter.len_utf8();
        }
        let (name, rest) = text.split_at(end);
        self.rest = rest;
        name
    }
}

fn shortened(text: &str) -> &str {
    const LETTERS_MAX: usize = 20;
    let end = text.char_indices().nth(LETTERS_MAX);
    end.map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(attribute: &str, closure: bool) -> Step {
        let attribute = attribute.to_owned();
        StepOf::Values { attribute, closure }
    }

    fn part(origin: Origin, steps: Vec<Step>) -> Part {
        PartOf { origin, steps }
    }

    #[test]
    fn sets_are_read_from_left_to_right() {
        let text = Origin::Text("cn=admins,dc=x".to_owned());
        let set = read_set("[cn=admins,dc=x]/member* & user | this/-1->see-also + this /-*");
        let expected = SetOf {
            first: part(text, vec![values("member", true)]),
            rest: vec![
                (Join::Intersection, part(Origin::User, vec![])),
                (
                    Join::Union,
                    part(
                        Origin::This,
                        vec![StepOf::Above(Some(1)), values("see-also", false)],
                    ),
                ),
                (
                    Join::Concatenation,
                    part(Origin::This, vec![StepOf::Above(None)]),
                ),
            ],
        };
        assert_eq!(set.unwrap(), expected);
        let url = read_set("[ldap:///dc=x??sub?(cn=a)]/entryDN & user").unwrap();
        assert_eq!(url.first.steps, [values("entryDN", false)]);
        for (joined, text) in [
            (true, "([a] + user)/cn"),
            (true, "(([a] + user))/cn"),
            (false, "([a] | user)/cn"),
            (false, "[a]/cn + user"),
        ] {
            assert_eq!(
                read_set(text).unwrap().first.origin.is_joined(),
                joined,
                "{text}"
            );
        }
        let nested = read_set("((user))->manager&(this)").unwrap();
        assert!(matches!(nested.first.origin, Origin::Set(_)));
        assert_eq!(nested.first.steps, [values("manager", false)]);
        assert_eq!(
            read_set("[]").unwrap().first.origin,
            Origin::Text(String::new())
        );
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for wrong in [
            "",
            " ",
            "this user",
            "this &",
            "& this",
            "cn",
            "this/",
            "this/-",
            "this/-x",
            "(this",
            "this)",
            "[cn=x",
            "this/cn *",
            "user//cn",
            "this/-99999999",
            "this->",
            "this - 1",
            "()",
            "this/cn;lang-en",
            "user'",
            "ä",
        ] {
            assert!(read_set(wrong).is_err(), "{wrong:?}");
        }
        let deep = |depth| "(".repeat(depth) + "this" + &")".repeat(depth);
        assert!(read_set(&deep(DEPTH_MAX)).is_ok());
        assert!(read_set(&deep(DEPTH_MAX + 1)).is_err());
        // As long as a rule may be.
        let long = "this|".repeat(13_000) + "user";
        assert_eq!(read_set(&long).unwrap().rest.len(), 13_000);
    }
}
