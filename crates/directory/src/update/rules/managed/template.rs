//! Templates of managed entries: what is made of an entry.

use sapwood_ldap::dn::{Dn, write_ava};
use sapwood_ldap::result::ResultCode;

use crate::error::Result;
use crate::outcome::Stop;
use crate::reindex::{Side, each_value};
use crate::schema::{AttributeType, AttributeTypeId, Schema};
use crate::state::State;

/// The attributes of a template.
const RDN: &str = "mepRDNAttr";
const FIXED: &str = "mepStaticAttr";
const MAPPED: &str = "mepMappedAttr";

/// Values of a template.
const LINES_MAX: usize = 256;

/// Values of an entry that one line of a template makes others of.
const SOURCES_MAX: usize = 1024;

/// A template, read.
#[derive(Debug)]
pub(super) struct Template {
    /// The attribute that names what is made, as it is written.
    rdn: String,
    naming: AttributeTypeId,
    /// Attributes with the values that they always have.
    fixed: Vec<(String, Vec<u8>)>,
    mapped: Vec<Mapped>,
}

/// A value for each value of an attribute of the entry.
#[derive(Debug)]
struct Mapped {
    description: String,
    known: AttributeTypeId,
    source: AttributeTypeId,
    before: String,
    behind: String,
}

/// What is made of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filled {
    /// The RDN.
    pub(super) rdn: String,
    /// Attributes, each once, with their values.
    pub(super) values: Vec<(String, Vec<Vec<u8>>)>,
}

/// The attribute type of a name in a template.
fn known<'s>(schema: &'s Schema, name: &str) -> std::result::Result<&'s AttributeType, String> {
    let known = schema.attribute_type(name.as_bytes());
    let known = known.ok_or_else(|| format!("the schema does not define '{name}'"))?;
    match known.is_operational() || known.is_no_user_modification() {
        true => Err(format!("{name} is kept by the server")),
        false => Ok(known),
    }
}

/// `NAME: VALUE`.
fn line(value: &[u8]) -> std::result::Result<(&str, &str), String> {
    let text = std::str::from_utf8(value).ok();
    let line = text.and_then(|text| text.split_once(':'));
    let line = line.map(|(name, rest)| (name.trim(), rest.trim_start_matches(' ')));
    line.ok_or_else(|| format!("{:?}: write NAME: VALUE", String::from_utf8_lossy(value)))
}

/// The text before `$NAME`, the name, and the text behind it; `$$` is `$`.
fn variable(text: &str) -> std::result::Result<(String, String, String), String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let [mut before, mut name, mut behind] = [const { String::new() }; 3];
    let mut rest = text;
    while let Some((start, after)) = rest.split_once('$') {
        let place = if name.is_empty() {
            &mut before
        } else {
            &mut behind
        };
        place.push_str(start);
        rest = match after.strip_prefix('$') {
            Some(after) => {
                place.push('$');
                after
            }
            None if name.is_empty() => {
                let end = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
                let (own, after) = after.split_at(end);
                own.clone_into(&mut name);
                match name.is_empty() {
                    true => return Err(format!("{text:?}: no attribute is named behind $")),
                    false => after,
                }
            }
            None => return Err(format!("{text:?}: one attribute is named at most")),
        };
    }
    match name.is_empty() {
        true => Err(format!("{text:?}: name an attribute, as in $uid")),
        false => {
            behind.push_str(rest);
            Ok((before, name, behind))
        }
    }
}

impl Template {
    /// Whether an entry may be a template.
    pub(super) fn may_be(
        schema: &Schema,
        values: impl Fn(AttributeTypeId) -> Vec<Vec<u8>>,
    ) -> bool {
        let types = [RDN, MAPPED, FIXED].into_iter();
        let mut types = types.filter_map(|name| schema.attribute_type(name.as_bytes()));
        types.any(|known| !values(known.id()).is_empty())
    }

    /// Reads the template that an entry is, by the values that it has; says why it is none.
    ///
    /// # Errors
    /// When the entry cannot be read.
    pub(super) fn read(
        schema: &Schema,
        values: impl Fn(AttributeTypeId) -> Result<Vec<Vec<u8>>>,
    ) -> Result<std::result::Result<Template, String>> {
        let of = |name: &str| match schema.attribute_type(name.as_bytes()) {
            Some(known) => values(known.id()),
            None => Ok(Vec::new()),
        };
        let (rdn, fixed, mapped) = (of(RDN)?, of(FIXED)?, of(MAPPED)?);
        Ok(Template::of(schema, [&rdn, &fixed, &mapped]))
    }

    fn of(
        schema: &Schema,
        [rdn, fixed, mapped]: [&[Vec<u8>]; 3],
    ) -> std::result::Result<Template, String> {
        if fixed.len() + mapped.len() > LINES_MAX {
            return Err(format!("{LINES_MAX} attributes at most"));
        }
        let [rdn] = rdn else {
            return Err(format!(
                "it has one {RDN}, the attribute that names what is made"
            ));
        };
        let rdn = String::from_utf8_lossy(rdn).into_owned();
        let naming = known(schema, &rdn)?.id();
        let is_other = |known: &AttributeType| {
            let is_link = |name: &str| known.name().eq_ignore_ascii_case(name);
            match ["mepManagedBy", "mepManagedEntry"].into_iter().any(is_link) {
                true => Err(format!("{} is given by the rule", known.name())),
                false => Ok(()),
            }
        };
        let fixed = fixed.iter().map(|value| {
            let (name, text) = line(value)?;
            is_other(known(schema, name)?)?;
            Ok((name.to_owned(), text.as_bytes().to_vec()))
        });
        let fixed: Vec<_> = fixed.collect::<std::result::Result<_, String>>()?;
        let mapped = mapped.iter().map(|value| {
            let (name, text) = line(value)?;
            let known_type = known(schema, name)?;
            is_other(known_type)?;
            let (before, source, behind) = variable(text)?;
            let source = known(schema, &source)?;
            if schema.is_protected(source.id()) {
                let name = source.name();
                return Err(format!("{name}: passwords are not given to other entries"));
            }
            Ok(Mapped {
                description: name.to_owned(),
                known: known_type.id(),
                source: source.id(),
                before,
                behind,
            })
        });
        let mapped: Vec<_> = mapped.collect::<std::result::Result<_, String>>()?;
        if !mapped.iter().any(|mapped| mapped.known == naming) {
            return Err(format!(
                "no {MAPPED} says what {rdn} is, which names what is made"
            ));
        }
        Ok(Template {
            rdn,
            naming,
            fixed,
            mapped,
        })
    }

    /// The attributes that have what the entry has.
    pub(super) fn mapped(&self) -> impl Iterator<Item = AttributeTypeId> {
        self.mapped.iter().map(|mapped| mapped.known)
    }

    /// What is made of an entry.
    ///
    /// # Errors
    /// Refuses one that has no value to name by what is made, or too many.
    pub(super) fn fill(
        &self,
        (schema, state): (&Schema, &State),
        side: &Side<'_>,
    ) -> std::result::Result<Filled, Stop> {
        let mut filled: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
        let mut add = |description: &str, value: Vec<u8>| {
            let own = |(name, _): &&mut (String, _)| name.eq_ignore_ascii_case(description);
            let own = filled.iter_mut().find(own);
            match own {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => filled.push((description.to_owned(), vec![value])),
            }
        };
        for (description, value) in &self.fixed {
            add(description, value.clone());
        }
        let mut naming = Vec::new();
        for mapped in &self.mapped {
            let sources = self.sources((schema, state), mapped, side)?;
            for source in sources {
                let value = [mapped.before.as_bytes(), &source, mapped.behind.as_bytes()].concat();
                if mapped.known == self.naming {
                    naming.push((mapped.source, source, value.clone()));
                }
                add(&mapped.description, value);
            }
        }
        // The value that names the entry names what is made of it, too.
        let own = side
            .records
            .as_ref()
            .and_then(|[entry, _]| entry.rdn().ok());
        let own = own
            .and_then(|rdn| Dn::parse(rdn).ok())
            .and_then(|dn| dn.rdn());
        let is_own = |(source, value, _): &&(AttributeTypeId, Vec<u8>, Vec<u8>)| {
            let mut avas = own.iter().flat_map(|rdn| rdn.avas());
            avas.any(|ava| {
                let known = schema.attribute_type(ava.attribute().as_bytes());
                known.is_some_and(|known| known.id() == *source) && *ava.value() == **value
            })
        };
        let name = naming.iter().find(is_own).or_else(|| naming.iter().min());
        let Some((_, _, name)) = name else {
            let naming = schema.type_of(self.naming).name();
            let diagnostic = format!(
                "{naming}: what is made of the entry by a rule of managed entries is named by it, and the entry has no \
                 value that it is made of"
            );
            return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
        };
        let mut rdn = String::new();
        write_ava(&mut rdn, &self.rdn, name);
        Ok(Filled {
            rdn,
            values: filled,
        })
    }

    /// The values of an entry that a line makes others of, in an order that is always the same.
    fn sources(
        &self,
        (schema, state): (&Schema, &State),
        mapped: &Mapped,
        side: &Side<'_>,
    ) -> std::result::Result<Vec<Vec<u8>>, Stop> {
        let mut values = Vec::new();
        let mut is_full = false;
        let numbers = state.attributes.numbers_of(mapped.source);
        let large = side.records.as_ref().is_some_and(|[entry, _]| {
            let mut large = entry.large();
            large.any(|large| numbers.contains(&large.number))
        });
        each_value(&state.attributes, mapped.source, side, |value| {
            is_full |= values.len() == SOURCES_MAX;
            if !is_full {
                values.push(value.to_vec());
            }
        })
        .map_err(|damaged| crate::error::Error::corrupt(damaged.to_string()))?;
        if large || is_full {
            let name = schema.type_of(mapped.source).name();
            let diagnostic = format!(
                "{name}: more than {SOURCES_MAX} values, too many to give to a managed entry"
            );
            return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
        }
        values.sort_unstable();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_attribute_is_named() {
        let read = |text| variable(text).map(|(a, b, c)| format!("{a}|{b}|{c}"));
        assert_eq!(read("$uid"), Ok("|uid|".into()));
        assert_eq!(read("Group of $uid."), Ok("Group of |uid.|".into()));
        assert_eq!(read("$$5 for $uid, $$"), Ok("$5 for |uid|, $".into()));
        for wrong in ["", "uid", "$", "$ uid", "$$uid", "$uid$cn", "$uid $"] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn templates_that_cannot_be_are_told() {
        let schema = Schema::standard();
        let bytes = |lines: &[&str]| -> Vec<Vec<u8>> {
            lines.iter().map(|line| line.as_bytes().to_vec()).collect()
        };
        let of = |rdn: &[&str], fixed: &[&str], mapped: &[&str]| {
            let (rdn, fixed, mapped) = (bytes(rdn), bytes(fixed), bytes(mapped));
            Template::of(&schema, [&rdn, &fixed, &mapped]).map(drop)
        };
        let group = ["objectClass: posixGroup"];
        let mapped = ["cn: $uid", "gidNumber: $gidNumber"];
        assert_eq!(of(&["cn"], &group, &mapped), Ok(()));
        for (rdn, fixed, mapped, word) in [
            (&[][..], &group[..], &mapped[..], "one mepRDNAttr"),
            (&["cn", "ou"], &group, &mapped, "one mepRDNAttr"),
            (&["nonsense"], &group, &mapped, "nonsense"),
            (&["ou"], &group, &mapped, "no mepMappedAttr"),
            (&["cn"], &["posixGroup"], &mapped, "NAME: VALUE"),
            (
                &["cn"],
                &["mepManagedBy: cn=x"],
                &mapped,
                "given by the rule",
            ),
            (&["cn"], &group, &["cn: $uid", "entryUUID: $uid"], "kept by"),
            (&["cn"], &group, &["cn: $userPassword"], "passwords"),
            (&["cn"], &group, &["cn: $nonsense"], "nonsense"),
        ] {
            let why = of(rdn, fixed, mapped).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
