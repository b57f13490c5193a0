//! A synthetic context in the form of stored entries.

use super::{Content, SyntheticContext};
use crate::attributes::AttributeTable;
use crate::engine::EntryId;
use crate::entry::{Entry, EntryFlags, RecordBuilder};
use crate::error::{Error, Result};
use crate::schema::{NormalDn, Schema};

/// A synthetic context as it was made.
#[derive(Debug)]
pub(crate) struct Context {
    which: SyntheticContext,
    /// The numbers of the attributes of its entries: its own, not those of the store.
    attributes: AttributeTable,
    /// In the order of a walk: each before those below it, which stand right behind it.
    entries: Vec<Synthetic>,
}

/// An entry of a synthetic context.
#[derive(Debug)]
pub(crate) struct Synthetic {
    dn: String,
    /// That DN and others that lead to it, in normal form.
    names: Vec<NormalDn>,
    /// How many RDNs its DN has.
    depth: usize,
    /// Where the entries below it end.
    end: usize,
    is_subentry: bool,
    entry: Vec<u8>,
    operational: Vec<u8>,
}

impl Context {
    /// Makes a context of its entries, each before those below it.
    ///
    /// # Errors
    /// When the schema does not know an attribute, or the form of entries cannot hold it.
    pub(super) fn new(
        schema: &Schema,
        which: SyntheticContext,
        contents: Vec<Content>,
    ) -> Result<Context> {
        let mut names = Vec::with_capacity(contents.len());
        for content in &contents {
            names.push(names_of(schema, content)?);
        }
        let depths: Vec<usize> = names.iter().map(|names| depth_of(names)).collect();
        let mut attributes = AttributeTable::default();
        let mut entries = Vec::with_capacity(contents.len());
        for (at, (content, names)) in contents.into_iter().zip(names).enumerate() {
            let depth = depth_of(&names);
            let below = depths.iter().skip(at + 1);
            let end = at + 1 + below.take_while(|below| **below > depth).count();
            let children = depths[at + 1..end]
                .iter()
                .filter(|of| **of == depth + 1)
                .count();
            let place = Place {
                depth,
                end,
                children,
            };
            entries.push(Synthetic::new(
                schema,
                &mut attributes,
                content,
                names,
                place,
            )?);
        }
        Ok(Context {
            which,
            attributes,
            entries,
        })
    }

    /// Which it is.
    pub(crate) fn which(&self) -> SyntheticContext {
        self.which
    }

    /// The numbers of the attributes of its entries.
    pub(crate) fn attributes(&self) -> &AttributeTable {
        &self.attributes
    }

    /// The place of the entry with a DN in the context; `Err` is the DN of the nearest above it.
    pub(crate) fn find(&self, normal: &NormalDn) -> std::result::Result<usize, &str> {
        let is = |entry: &Synthetic| entry.names.contains(normal);
        if let Some(at) = self.entries.iter().position(is) {
            return Ok(at);
        }
        let above = |entry: &&Synthetic| entry.names.iter().any(|name| normal.is_at_or_below(name));
        let nearest = self
            .entries
            .iter()
            .filter(above)
            .max_by_key(|entry| entry.depth);
        Err(nearest.map_or("", |entry| entry.dn.as_str()))
    }

    /// The entry at a place.
    pub(crate) fn entry(&self, at: usize) -> Option<&Synthetic> {
        self.entries.get(at)
    }
}

fn depth_of(names: &[NormalDn]) -> usize {
    names.first().map_or(0, NormalDn::len)
}

/// The names of an entry, its DN first.
fn names_of(schema: &Schema, content: &Content) -> Result<Vec<NormalDn>> {
    let dns = std::iter::once(&content.dn).chain(&content.also);
    let names = dns.map(|dn| {
        let mut normal = NormalDn::new();
        let parsed = normal.parse(schema, dn.as_bytes());
        parsed.map_err(|error| Error::State(format!("{dn}: {error}")))?;
        Ok(normal)
    });
    names.collect()
}

/// Where an entry is among those of its context.
struct Place {
    depth: usize,
    end: usize,
    children: usize,
}

impl Synthetic {
    fn new(
        schema: &Schema,
        attributes: &mut AttributeTable,
        content: Content,
        names: Vec<NormalDn>,
        place: Place,
    ) -> Result<Synthetic> {
        let Place {
            depth,
            end,
            children,
        } = place;
        let (mut user, mut operational) = (RecordBuilder::new(), RecordBuilder::new());
        let dn = content.dn;
        let one = |value: &str| vec![value.to_owned()];
        let mut of_tree = vec![
            ("entryDN", one(&dn)),
            (
                "subschemaSubentry",
                one(SyntheticContext::Subschema.suffix()),
            ),
        ];
        // Below the root DSE are the naming contexts, which are no entries of its context.
        if !dn.is_empty() {
            let has_children = if children > 0 { "TRUE" } else { "FALSE" };
            of_tree.push(("hasSubordinates", one(has_children)));
            of_tree.push(("numSubordinates", one(&children.to_string())));
        }
        let mut is_subentry = false;
        for (name, values) in content.attributes.into_iter().chain(of_tree) {
            let attribute_type = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| Error::State(format!("the schema lacks the attribute {name}")))?;
            if values.is_empty() {
                continue;
            }
            is_subentry |= attribute_type.id() == schema.well_known().object_class
                && values.iter().any(|class| class == "subentry");
            let number = attributes.number_synthetic(schema, attribute_type.id());
            let record = match attribute_type.is_operational() {
                true => &mut operational,
                false => &mut user,
            };
            let values = values.iter().map(String::as_bytes);
            record.push(number, attribute_type.name().as_bytes(), values, false);
        }
        let mut made = Synthetic {
            dn,
            names,
            depth,
            end,
            is_subentry,
            entry: Vec::new(),
            operational: Vec::new(),
        };
        let flags = EntryFlags::default();
        user.finish(EntryId::ROOT, flags, &made.dn, &mut made.entry)
            .and_then(|()| operational.finish(EntryId::ROOT, flags, "", &mut made.operational))
            .map_err(|too_large| Error::State(format!("{}: {too_large}", made.dn)))?;
        Ok(made)
    }

    /// Its DN as written.
    pub(crate) fn dn(&self) -> &str {
        &self.dn
    }

    /// Its DN in normal form.
    pub(crate) fn normal_dn(&self) -> &NormalDn {
        &self.names[0]
    }

    /// Whether it is a subentry (RFC 3672).
    pub(crate) fn is_subentry(&self) -> bool {
        self.is_subentry
    }

    /// How many RDNs its DN has.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Where the entries below it end, in the order of a walk.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Its record and its operational one.
    pub(crate) fn records(&self) -> Result<(Entry<'_>, Entry<'_>)> {
        let read =
            |record| Entry::new(record).map_err(|damaged| Error::corrupt(damaged.to_string()));
        Ok((read(&self.entry)?, read(&self.operational)?))
    }
}
