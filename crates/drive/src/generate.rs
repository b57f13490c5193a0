//! Generates realistic entries: a company of people in organisational units, and groups of them.
//!
//! An entry is a function of the seed and its index. A load driver can therefore name any entry without keeping a list,
//! and two runs with the same seed see the same directory. Parents come before their children:
//!
//! | indexes | entries |
//! | --- | --- |
//! | 0 | the suffix |
//! | 1 | `ou=Groups` |
//! | the next [`Generator::units`] | organisational units |
//! | the next [`Generator::people`] | `inetOrgPerson`s with 15 attributes, below the units |
//! | the rest, [`Generator::groups`] | `groupOfNames`s of [`MEMBERS`] people, below `ou=Groups` |

mod words;

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

use sapwood_ldap::dn::{Dn, DnError};
use sapwood_ldap::ldif;

use crate::random::Random;
use words::{CITIES, DESCRIPTIONS, GIVEN_NAMES, GROUP_PURPOSES, STREETS, SURNAMES, TITLES, UNITS};

/// How many members each group has.
pub const MEMBERS: usize = 20;

/// The fewest entries that make a directory: the suffix, the groups' parent, a unit, a person and a group.
pub const ENTRIES_MIN: u64 = 5;

/// About how many people an organisational unit has.
const PEOPLE_PER_UNIT: u64 = 500;

/// The most organisational units. A directory with more people has larger units.
const UNITS_MAX: u64 = 256;

/// LDIF is written in pieces of about this many bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Makes the entries of one directory. An entry is a function of the seed and its index.
#[derive(Debug, Clone)]
pub struct Generator {
    suffix: String,
    /// The attribute type and the value of the suffix's RDN.
    suffix_rdn: (String, String),
    mail_domain: String,
    seed: u64,
    units: u64,
    people: u64,
    groups: u64,
}

/// A generated entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its distinguished name.
    pub dn: String,
    /// Attribute descriptions with values. The values of an attribute stand together.
    pub values: Vec<(&'static str, Cow<'static, str>)>,
}

impl Entry {
    /// Appends the entry as an LDIF content record (RFC 2849).
    pub fn write_ldif(&self, out: &mut Vec<u8>) {
        ldif::write_dn(out, &self.dn);
        for (description, value) in &self.values {
            ldif::write_value(out, description, value.as_bytes());
        }
        out.push(b'\n');
    }
}

/// Why a [`Generator`] refuses its arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The suffix is not a distinguished name.
    #[error("the suffix is not a distinguished name: {0}")]
    BadSuffix(#[from] DnError),
    /// The suffix does not begin with `dc`, `o` or `ou`.
    #[error("a generated directory needs a suffix that begins with dc=, o= or ou=")]
    UnsupportedSuffix,
    /// Fewer than [`ENTRIES_MIN`].
    #[error("a generated directory has at least {ENTRIES_MIN} entries")]
    TooFew,
}

impl Generator {
    /// Makes `entries` entries, the suffix included. The RDN of the suffix must be a `dc`, an `o` or an `ou`.
    ///
    /// # Errors
    /// When the suffix is another one, or there are fewer than [`ENTRIES_MIN`] entries.
    pub fn new(suffix: &str, entries: u64, seed: u64) -> Result<Generator, GenerateError> {
        if entries < ENTRIES_MIN {
            return Err(GenerateError::TooFew);
        }
        let dn = Dn::parse(suffix)?;
        let first = dn
            .rdn()
            .and_then(|rdn| rdn.avas().next())
            .ok_or(GenerateError::UnsupportedSuffix)?;
        let suffix_type = first.attribute().to_ascii_lowercase();
        if !matches!(suffix_type.as_str(), "dc" | "o" | "ou") {
            return Err(GenerateError::UnsupportedSuffix);
        }
        let suffix_rdn = (
            suffix_type,
            String::from_utf8_lossy(&first.value()).into_owned(),
        );
        let domain: Vec<String> = dn
            .rdns()
            .flat_map(|rdn| rdn.avas())
            .filter(|ava| ava.attribute().eq_ignore_ascii_case("dc"))
            .map(|ava| folded(&String::from_utf8_lossy(&ava.value())))
            .collect();
        let mail_domain = if domain.is_empty() {
            "example.com".to_owned()
        } else {
            domain.join(".")
        };
        let groups = (entries / (MEMBERS as u64 + 1)).max(1);
        let units = ((entries - groups) / PEOPLE_PER_UNIT).clamp(1, UNITS_MAX);
        let people = entries - 2 - units - groups;
        Ok(Generator {
            suffix: dn.as_str().to_owned(),
            suffix_rdn,
            mail_domain,
            seed,
            units,
            people,
            groups,
        })
    }

    /// The number of entries.
    pub fn entries(&self) -> u64 {
        self.groups().end
    }

    /// The indexes of the organisational units.
    pub fn units(&self) -> Range<u64> {
        2..2 + self.units
    }

    /// The indexes of the people.
    pub fn people(&self) -> Range<u64> {
        let start = self.units().end;
        start..start + self.people
    }

    /// The indexes of the groups.
    pub fn groups(&self) -> Range<u64> {
        let start = self.people().end;
        start..start + self.groups
    }

    /// The distinguished name of an entry. `index` is below [`Generator::entries`].
    pub fn dn(&self, index: u64) -> String {
        match index {
            0 => self.suffix.clone(),
            1 => format!("ou=Groups,{}", self.suffix),
            _ if self.units().contains(&index) => {
                format!("ou={},{}", self.unit_name(index), self.suffix)
            }
            _ if self.people().contains(&index) => {
                let person = self.person(index);
                format!(
                    "uid={},ou={},{}",
                    person.uid,
                    self.unit_name(person.unit),
                    self.suffix
                )
            }
            _ => format!("cn={},ou=Groups,{}", self.group_name(index), self.suffix),
        }
    }

    /// The `uid` of a person. `index` is one of [`Generator::people`].
    pub fn uid(&self, index: u64) -> String {
        self.person(index).uid
    }

    /// One entry. `index` is below [`Generator::entries`].
    pub fn entry(&self, index: u64) -> Entry {
        let values = match index {
            0 => self.suffix_values(),
            1 => unit_values("Groups".to_owned()),
            _ if self.units().contains(&index) => unit_values(self.unit_name(index)),
            _ if self.people().contains(&index) => return self.person_entry(index),
            _ => self.group_values(index),
        };
        Entry {
            dn: self.dn(index),
            values,
        }
    }

    /// Makes all entries in the order of their indexes, so that parents come before their children.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.entries()).map(|index| self.entry(index))
    }

    /// Writes all entries as LDIF (RFC 2849).
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write_ldif(&self, out: &mut impl Write) -> io::Result<()> {
        let mut text = Vec::with_capacity(WRITE_BYTES + (8 << 10));
        ldif::write_version(&mut text);
        for entry in self.iter() {
            entry.write_ldif(&mut text);
            if text.len() >= WRITE_BYTES {
                out.write_all(&text)?;
                text.clear();
            }
        }
        out.write_all(&text)
    }

    fn suffix_values(&self) -> Vec<(&'static str, Cow<'static, str>)> {
        let (attribute, value) = &self.suffix_rdn;
        let value: Cow<'static, str> = Cow::Owned(value.clone());
        let mut values = vec![("objectClass", Cow::Borrowed("top"))];
        match attribute.as_str() {
            "dc" => values.extend([
                ("objectClass", Cow::Borrowed("organization")),
                ("objectClass", Cow::Borrowed("dcObject")),
                ("o", value.clone()),
                ("dc", value),
            ]),
            "o" => values.extend([("objectClass", Cow::Borrowed("organization")), ("o", value)]),
            _ => values.extend([
                ("objectClass", Cow::Borrowed("organizationalUnit")),
                ("ou", value),
            ]),
        }
        values
    }

    fn unit_name(&self, index: u64) -> String {
        let number = index - self.units().start;
        let name = of(&UNITS, number);
        match number / UNITS.len() as u64 {
            0 => name.to_owned(),
            round => format!("{name} {}", round + 1),
        }
    }

    fn group_name(&self, index: u64) -> String {
        let number = index - self.groups().start;
        let mut random = Random::new(self.seed, index);
        format!(
            "{} {} {}",
            random.of(&GROUP_PURPOSES),
            random.of(&UNITS),
            number + 1
        )
    }

    fn group_values(&self, index: u64) -> Vec<(&'static str, Cow<'static, str>)> {
        let mut random = Random::new(!self.seed, index);
        let mut members: Vec<u64> = Vec::with_capacity(MEMBERS);
        // A directory with fewer people than a group should have gets smaller groups.
        let wanted = MEMBERS.min(usize::try_from(self.people).unwrap_or(MEMBERS));
        while members.len() < wanted {
            let member = self.people().start + random.below(self.people);
            if !members.contains(&member) {
                members.push(member);
            }
        }
        let mut values = Vec::with_capacity(MEMBERS + 4);
        values.extend([
            ("objectClass", Cow::Borrowed("top")),
            ("objectClass", Cow::Borrowed("groupOfNames")),
            ("cn", Cow::Owned(self.group_name(index))),
            ("description", Cow::Borrowed(random.of(&DESCRIPTIONS))),
        ]);
        values.extend(
            members
                .into_iter()
                .map(|member| ("member", Cow::Owned(self.dn(member)))),
        );
        values
    }

    fn person(&self, index: u64) -> Person {
        let mut random = Random::new(self.seed, index);
        let given_name = random.of(&GIVEN_NAMES);
        let surname = random.of(&SURNAMES);
        let number = index - self.people().start;
        let unit = self.units().start + random.below(self.units);
        let initial: String = folded(given_name).chars().take(1).collect();
        let uid = format!("{initial}{}{number}", folded(surname));
        Person {
            given_name,
            surname,
            number,
            unit,
            uid,
            random,
        }
    }

    fn person_entry(&self, index: u64) -> Entry {
        let Person {
            given_name,
            surname,
            number,
            unit,
            uid,
            mut random,
        } = self.person(index);
        let unit = self.unit_name(unit);
        let mut phone = || {
            format!(
                "+49 {} {}",
                30 + random.below(900),
                100_000 + random.below(9_900_000)
            )
        };
        let telephone_number = phone();
        let (city, postal_area) = random.of(&CITIES);
        let values = vec![
            ("objectClass", Cow::Borrowed("top")),
            ("objectClass", Cow::Borrowed("person")),
            ("objectClass", Cow::Borrowed("organizationalPerson")),
            ("objectClass", Cow::Borrowed("inetOrgPerson")),
            ("uid", Cow::Owned(uid.clone())),
            ("cn", Cow::Owned(format!("{given_name} {surname}"))),
            ("sn", Cow::Borrowed(surname)),
            ("givenName", Cow::Borrowed(given_name)),
            (
                "displayName",
                Cow::Owned(format!("{surname}, {given_name}")),
            ),
            (
                "mail",
                Cow::Owned(format!(
                    "{}.{}.{number}@{}",
                    folded(given_name),
                    folded(surname),
                    self.mail_domain
                )),
            ),
            ("telephoneNumber", Cow::Owned(telephone_number)),
            ("employeeNumber", Cow::Owned((100_000 + number).to_string())),
            ("title", Cow::Borrowed(random.of(&TITLES))),
            (
                "departmentNumber",
                Cow::Owned((1000 + random.below(200)).to_string()),
            ),
            ("l", Cow::Borrowed(city)),
            (
                "street",
                Cow::Owned(format!("{} {}", random.of(&STREETS), 1 + random.below(180))),
            ),
            (
                "postalCode",
                Cow::Owned((postal_area + random.below(900)).to_string()),
            ),
            ("description", Cow::Borrowed(random.of(&DESCRIPTIONS))),
        ];
        Entry {
            dn: format!("uid={uid},ou={unit},{}", self.suffix),
            values,
        }
    }
}

/// The parts of a person's name, and the random numbers that make the rest of the entry.
struct Person {
    given_name: &'static str,
    surname: &'static str,
    number: u64,
    unit: u64,
    uid: String,
    random: Random,
}

fn unit_values(name: String) -> Vec<(&'static str, Cow<'static, str>)> {
    vec![
        ("objectClass", Cow::Borrowed("top")),
        ("objectClass", Cow::Borrowed("organizationalUnit")),
        ("ou", Cow::Owned(name)),
    ]
}

fn of(words: &[&'static str], number: u64) -> &'static str {
    words[(number % words.len() as u64) as usize]
}

/// Folds a name to lower case ASCII letters and digits, which user names and mail addresses consist of.
fn folded(name: &str) -> String {
    let fold = |c: char| match c {
        'á' | 'à' | 'â' | 'ä' | 'å' | 'ã' => 'a',
        'é' | 'è' | 'ê' | 'ë' | 'ę' => 'e',
        'í' | 'ï' => 'i',
        'ó' | 'ö' | 'ø' | 'ô' => 'o',
        'ü' | 'ú' => 'u',
        'ç' | 'ć' | 'č' => 'c',
        'ñ' | 'ń' => 'n',
        'ł' => 'l',
        'š' | 'ś' => 's',
        'ž' | 'ż' => 'z',
        c => c,
    };
    name.chars()
        .flat_map(char::to_lowercase)
        .map(fold)
        .filter(char::is_ascii_alphanumeric)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entries_are_a_function_of_seed_and_index() {
        let generator = Generator::new("dc=example,dc=com", 3000, 7).unwrap();
        assert_eq!(generator.entries(), 3000);
        let all: Vec<Entry> = generator.iter().collect();
        assert_eq!(all[1234], generator.entry(1234));
        assert_eq!(all[1234].dn, generator.dn(1234));
        assert_ne!(
            all[1234],
            Generator::new("dc=example,dc=com", 3000, 8)
                .unwrap()
                .entry(1234)
        );
        let names: HashSet<&str> = all.iter().map(|entry| entry.dn.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn the_tree_has_two_levels_people_fifteen_attributes_and_groups_twenty_members() {
        let generator = Generator::new("o=Example", 3000, 1).unwrap();
        let mut seen = HashSet::from([String::new()]);
        for (index, entry) in generator.iter().enumerate() {
            let index = index as u64;
            let dn = Dn::parse(&entry.dn).unwrap();
            assert!(
                seen.contains(dn.parent().unwrap().as_str()),
                "{dn} before its parent"
            );
            let attributes: HashSet<_> = entry
                .values
                .iter()
                .map(|(attribute, _)| attribute)
                .collect();
            if generator.people().contains(&index) {
                assert_eq!((attributes.len(), dn.rdns().count()), (15, 3));
            } else if generator.groups().contains(&index) {
                let members = entry
                    .values
                    .iter()
                    .filter(|(attribute, _)| *attribute == "member");
                let members: HashSet<_> = members.map(|(_, dn)| dn).collect();
                assert_eq!(members.len(), MEMBERS);
                assert!(members.iter().all(|member| seen.contains(member.as_ref())));
            }
            // The values of the relative name are in the entry (RFC 4511 §4.7).
            for ava in dn.rdn().unwrap().avas() {
                let value = String::from_utf8(ava.value().into_owned()).unwrap();
                assert!(
                    entry
                        .values
                        .iter()
                        .any(|(name, own)| *name == ava.attribute() && *own == value)
                );
            }
            seen.insert(entry.dn);
        }
    }

    #[test]
    fn ldif_reads_back() {
        let generator = Generator::new("ou=lab,dc=example,dc=com", ENTRIES_MIN, 3).unwrap();
        let mut text = Vec::new();
        generator.write_ldif(&mut text).unwrap();
        let block = ldif::Block::new(text);
        let read: Vec<_> = block
            .records(ldif::Options::default())
            .map(Result::unwrap)
            .collect();
        assert_eq!(read.len() as u64, ENTRIES_MIN);
        for (record, entry) in read.iter().zip(generator.iter()) {
            assert_eq!(record.dn, entry.dn);
            let ldif::Body::Entry(values) = &record.body else {
                panic!("not an entry")
            };
            let values: Vec<_> = values
                .iter()
                .map(|value| (value.description.as_ref(), value.value.as_ref()))
                .collect();
            let expected: Vec<_> = entry
                .values
                .iter()
                .map(|(name, value)| (*name, value.as_bytes()))
                .collect();
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn what_cannot_be_generated_is_refused() {
        let error = |suffix, entries| Generator::new(suffix, entries, 0).unwrap_err();
        assert_eq!(error("cn=x", 100), GenerateError::UnsupportedSuffix);
        assert_eq!(error("", 100), GenerateError::UnsupportedSuffix);
        assert_eq!(
            error("x", 100),
            GenerateError::BadSuffix(DnError::MissingEquals)
        );
        assert_eq!(error("dc=x", 4), GenerateError::TooFew);
    }
}
