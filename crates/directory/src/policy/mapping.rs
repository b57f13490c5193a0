//! Whom the names stand for by which clients authenticate (slapd-config(5), `olcAuthzRegexp`).
//!
//! A name is written as a DN, as slapd writes it: `uid=ann,cn=plain,cn=auth` of who says to be `ann` in PLAIN. The
//! first expression that it matches says which DN, or which search, it stands for. What `$1` and its like stand for is
//! a part of a DN, in which everything is escaped that could begin another part; in a filter it is one value, whatever
//! letters it has.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sapwood_ldap::dn::write_value;
use sapwood_ldap::url::{Scope, decode};

use super::expansion::{Expansion, Source, Written};
use super::regex::{MATCHING_WORK, Regex};
use crate::schema::{NormalDn, Schema};

/// Bytes of a name that is looked at: who is not bound yet has all expressions tried on it.
const NAME_BYTES_MAX: usize = 1 << 10;

/// A value of `olcAuthzRegexp`, without its number: an expression, and whom names stand for that match it.
#[derive(Clone, Debug)]
pub struct AuthzRegexp {
    text: String,
    made: Arc<Made>,
}

#[derive(Debug)]
struct Made {
    regex: Arc<Regex>,
    to: To,
}

#[derive(Debug)]
enum To {
    Dn(Expansion),
    Search {
        base: Expansion,
        scope: Scope,
        filter: Option<Expansion>,
    },
}

/// Whom a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Who has this DN.
    Dn(String),
    /// The only entry that a search finds.
    Search {
        /// A DN.
        base: String,
        /// Which entries, as they stand to the base.
        scope: Scope,
        /// What they match.
        filter: String,
    },
}

/// The name of a user in an authzId: `u:ann`, or as slapd has it `u.PLAIN/example.com:ann`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserName<'a> {
    /// Empty for none.
    pub mechanism: &'a str,
    /// Empty for none.
    pub realm: &'a str,
    /// The name.
    pub name: &'a str,
}

impl<'a> UserName<'a> {
    /// The user that an authzId names, if it names one so.
    pub fn read(authzid: &'a str) -> Option<UserName<'a>> {
        let (kind, name) = authzid.split_once(':')?;
        let (word, of) = kind.split_once('.').unwrap_or((kind, ""));
        let (mechanism, realm) = of.split_once('/').unwrap_or((of, ""));
        let is_user = word.eq_ignore_ascii_case("u") && !name.is_empty();
        is_user.then_some(UserName {
            mechanism,
            realm,
            name,
        })
    }
}

impl PartialEq for AuthzRegexp {
    fn eq(&self, other: &AuthzRegexp) -> bool {
        self.text == other.text
    }
}

impl Eq for AuthzRegexp {}

impl fmt::Display for AuthzRegexp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for AuthzRegexp {
    type Err = String;

    fn from_str(text: &str) -> Result<AuthzRegexp, String> {
        let [pattern, to] = &words(text)?[..] else {
            return Err("write an expression and, behind a space, what it stands for".to_owned());
        };
        let regex = Arc::new(Regex::new(pattern)?);
        let source = Source::Groups(regex.clone());
        let expansion = |text: &str| Expansion::new(source.clone(), text);
        let start = to.get(..5);
        let to = match start.is_some_and(|start| start.eq_ignore_ascii_case("ldap:")) {
            true => To::read(&to[5..], expansion)?,
            false => To::Dn(expansion(to)?),
        };
        let made = Arc::new(Made { regex, to });
        let text = text.to_owned();
        Ok(AuthzRegexp { text, made })
    }
}

impl To {
    /// Reads a URL behind its scheme.
    fn read(
        url: &str,
        expansion: impl Fn(&str) -> Result<Expansion, String>,
    ) -> Result<To, String> {
        let form = "write the URL as ldap:///base??scope?filter";
        let mut parts = url.strip_prefix("///").ok_or(form)?.split('?');
        let mut part = || {
            let text = parts.next().unwrap_or_default();
            decode(text).map_err(|error| error.to_string())
        };
        let (base, attributes, scope) = (part()?, part()?, part()?);
        let filter = part()?;
        if !attributes.is_empty() || parts.next().is_some() {
            return Err(form.to_owned());
        }
        let scope = match scope.to_ascii_lowercase().as_str() {
            "" | "base" => Scope::Base,
            "one" | "onelevel" => Scope::One,
            "sub" | "subtree" => Scope::Sub,
            "subord" | "subordinate" | "children" => Scope::Subordinates,
            _ => return Err(format!("{scope} is no scope")),
        };
        let has_filter = !filter.is_empty();
        Ok(To::Search {
            base: expansion(&base)?,
            scope,
            filter: has_filter.then(|| expansion(&filter)).transpose()?,
        })
    }

    fn fill(&self, name: &str) -> Option<Mapped> {
        Some(match self {
            To::Dn(dn) => Mapped::Dn(dn.fill(name, Written::AsItIs)?),
            To::Search {
                base,
                scope,
                filter,
            } => Mapped::Search {
                base: base.fill(name, Written::AsItIs)?,
                scope: *scope,
                filter: match filter {
                    Some(filter) => filter.fill(name, Written::InFilter)?,
                    None => "(objectClass=*)".to_owned(),
                },
            },
        })
    }
}

/// The words of a value, as slapd reads them: a backslash stands before what is meant as it is, and quotation marks
/// stand around words with spaces.
fn words(text: &str) -> Result<Vec<String>, String> {
    if text.contains(['\n', '\r', '\0']) {
        return Err("it has more than one line".to_owned());
    }
    let mut words = Vec::new();
    let (mut word, mut is_quoted) = (None::<String>, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' if !is_quoted => words.extend(word.take()),
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' => {
                let next = letters.next().ok_or("it ends with a backslash")?;
                word.get_or_insert_default().push(next);
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    if is_quoted {
        return Err("a quotation mark is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

/// What it takes to find out whom a name stands for, in about as many nanoseconds.
pub(crate) fn mapping_work(all: &[AuthzRegexp], name: &str) -> u64 {
    let bytes = name.len().min(NAME_BYTES_MAX) as u64;
    MATCHING_WORK * bytes * all.len() as u64
}

/// Whom a name stands for that is written as a DN, if an expression matches it.
pub(crate) fn mapped(all: &[AuthzRegexp], name: &str) -> Option<Mapped> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let matching = all.iter().find(|known| known.made.regex.is_match(name))?;
    matching.made.to.fill(name)
}

/// The name that a user has in a mechanism and in a realm as a DN, `uid=ann,cn=example.com,cn=plain,cn=auth`: the same
/// for each way of writing it. Both may be empty. `None` for what is not looked at: no name, and one that is too long.
pub fn user_name(
    schema: &Schema,
    user: &str,
    (mechanism, realm): (&str, &str),
) -> Option<NormalDn> {
    if user.is_empty() || user.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut name = "uid=".to_owned();
    write_value(&mut name, user.as_bytes());
    for part in [realm, mechanism]
        .into_iter()
        .filter(|part| !part.is_empty())
    {
        name.push_str(",cn=");
        write_value(&mut name, part.as_bytes());
    }
    name.push_str(",cn=auth");
    let mut normal = NormalDn::new();
    normal.parse(schema, name.as_bytes()).ok()?;
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn settings(values: &[&str]) -> Settings {
        let values = values.iter().map(|value| value.parse().unwrap());
        Settings {
            authz_regexps: values.collect(),
            ..Settings::default()
        }
    }

    fn dn(text: &str) -> Option<Mapped> {
        Some(Mapped::Dn(text.to_owned()))
    }

    #[test]
    fn the_first_that_matches_says_who_it_is() {
        let schema = Schema::standard();
        let settings = settings(&[
            "uid=root,cn=[^,]*,cn=auth cn=admin,o=x",
            "\"^uid=([^,]*),cn=(plain|scram-[^,]*),cn=auth$\" \"uid=$1,ou=some people,o=x\"",
            "^uid=([^,]*),cn=auth$ ldap:///o=$$??sub?(&(uid=$1)(sn=x))",
            "gidNumber=(.*)\\\\+uidNumber=(.*),cn=peercred,cn=external,cn=auth uid=u$2-$1,o=x",
        ]);
        let user = |user, mechanism| settings.mapped_user(&schema, user, (mechanism, ""));
        assert_eq!(user("root", "PLAIN"), dn("cn=admin,o=x"));
        assert_eq!(user("Ann", "PLAIN"), dn("uid=ann,ou=some people,o=x"));
        assert_eq!(
            user("ann", "SCRAM-SHA-256"),
            dn("uid=ann,ou=some people,o=x")
        );
        assert_eq!(user("ann", "GSSAPI"), None);
        let found = Mapped::Search {
            base: "o=$".to_owned(),
            scope: Scope::Sub,
            filter: "(&(uid=ann)(sn=x))".to_owned(),
        };
        assert_eq!(user("ann", ""), Some(found));
        assert_eq!(
            settings.mapped("gidNumber=5+uidNumber=7,cn=peercred,cn=external,cn=auth"),
            dn("uid=u7-5,o=x")
        );
        assert_eq!(user("", ""), None);
        assert_eq!(user(&"x".repeat(9000), ""), None);
    }

    #[test]
    fn a_name_is_one_value_whatever_letters_it_has() {
        let schema = Schema::standard();
        let settings = settings(&[
            "^uid=(.*),cn=plain,cn=auth$ uid=$1,o=x",
            "^uid=(.*),cn=auth$ ldap:///o=x??sub?(uid=$1)",
        ]);
        for name in [
            "a,ou=b", "a+cn=b", "*", "a)(uid=*", "a\\2cb", "#a", "a=b", "a\"b", "a;b",
        ] {
            let mapped = settings.mapped_user(&schema, name, ("PLAIN", ""));
            let Some(Mapped::Dn(text)) = mapped else {
                panic!("{name}: {mapped:?}");
            };
            let mut normal = NormalDn::new();
            normal.parse(&schema, text.as_bytes()).unwrap();
            assert_eq!(normal.len(), 2, "{name}: {text}");
            let mut expected = NormalDn::new();
            let mut written = "uid=".to_owned();
            write_value(&mut written, name.as_bytes());
            written.push_str(",o=x");
            expected.parse(&schema, written.as_bytes()).unwrap();
            assert_eq!(normal, expected, "{name}: {text}");
            let mapped = settings.mapped_user(&schema, name, ("", ""));
            let Some(Mapped::Search { filter, .. }) = mapped else {
                panic!("{name}: {mapped:?}");
            };
            let read = sapwood_ldap::filter_text::parse(&filter).unwrap();
            let item = sapwood_ldap::filter_text::parse(&format!(
                "(uid={})",
                name.bytes()
                    .map(|byte| format!("\\{byte:02x}"))
                    .collect::<String>()
            ));
            assert_eq!(read, item.unwrap(), "{name}: {filter}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for wrong in [
            "",
            "a",
            "a b c",
            "( b",
            "a \"b",
            "a b\\",
            "a $",
            "a ldap://host/o=x",
            "a ldap:///o=x?cn",
            "a ldap:///o=x??nonsense",
            "a ldap:///o=x??sub?(a=b)?!x",
            "a\nb c",
        ] {
            assert!(wrong.parse::<AuthzRegexp>().is_err(), "{wrong:?}");
        }
        let value = "\"a b\"  c\\ d";
        assert_eq!(value.parse::<AuthzRegexp>().unwrap().to_string(), value);
    }
}
