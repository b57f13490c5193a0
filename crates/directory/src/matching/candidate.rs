//! One entry while a search looks at it.

use crate::access::{EntryGrants, Grants, Readable, Rights, SingleValues, Visible};
use crate::attributes::AttributeTable;
use crate::collective::Collective;
use crate::engine::{AttributeNo, EntryId, Read};
use crate::entry::{Damaged, Entry};
use crate::error::{Error, Result};
use crate::examined;
use crate::large;
use crate::names::Superior;
use crate::operational::{self, EntryVersion, Vocabulary};
use crate::schema::{AttributeType, AttributeTypeId, Schema};
use crate::virtual_attributes::{Subject, Values, VirtualAttribute};

/// An entry that may be a result. What is not in its record is read when asked for, once.
pub(crate) struct Candidate<'c, R: Read> {
    view: &'c R,
    id: EntryId,
    entry: Entry<'c>,
    place: Place<'c>,
    /// What gives its attributes their names.
    vocabulary: Vocabulary<'c>,
    operational: Operational<'c>,
    viewer: Option<Viewer<'c>>,
}

/// Who looks at an entry, where it depends on the entry what they see.
#[derive(Clone, Copy)]
struct Viewer<'c> {
    grants: &'c Grants,
    /// If it is restricted to that.
    on_entry: Option<&'c EntryGrants>,
}

/// What is granted on an entry to who asks.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'c> {
    grants: &'c EntryGrants,
    attributes: &'c AttributeTable,
    schema: &'c Schema,
}

impl<'c> Seen<'c> {
    /// How much of it may be read.
    pub(crate) fn visible(&self) -> Visible {
        self.grants.visible()
    }

    /// Whether filters may ask for a type.
    pub(crate) fn searches_type(&self, attribute_type: AttributeTypeId) -> bool {
        self.grants.has_on(attribute_type, Rights::SEARCH)
    }

    /// Whether filters may ask for an attribute.
    pub(crate) fn searches(&self, number: AttributeNo) -> bool {
        let grants = self.grants;
        grants.has_on_number(self.attributes, number, Rights::SEARCH)
    }

    /// Whether filters may ask for no value of an attribute.
    pub(crate) fn hides(&self, number: AttributeNo) -> bool {
        !self.searches(number) && self.single_values(number).is_none()
    }

    /// Whether filters may ask for a value of a type.
    pub(crate) fn searches_value(&self, attribute_type: AttributeTypeId, value: &[u8]) -> bool {
        (self.grants).has_on_value((self.schema, attribute_type), value, Rights::SEARCH)
    }

    /// The rights on single values of a type, if some are treated apart. `None` mostly.
    #[inline]
    pub(crate) fn single_values_of(
        &self,
        attribute_type: AttributeTypeId,
    ) -> Option<SingleValues<'c>> {
        self.grants.single_values(self.schema, attribute_type)
    }

    /// The same of an attribute.
    #[inline]
    pub(crate) fn single_values(&self, number: AttributeNo) -> Option<SingleValues<'c>> {
        self.single_values_of(self.attributes.get(number)?.attribute_type())
    }

    /// Whether values of a type may be compared.
    pub(crate) fn compares_type(&self, attribute_type: AttributeTypeId) -> bool {
        self.grants.has_on(attribute_type, Rights::COMPARE)
    }

    /// Whether a type may be read.
    pub(crate) fn reads_type(&self, attribute_type: AttributeTypeId) -> bool {
        self.grants.has_on(attribute_type, Rights::READ)
    }

    /// Which attributes may be read.
    #[inline]
    pub(crate) fn readable(&self) -> Readable<'c> {
        self.grants.readable(self.attributes)
    }

    /// Whether no attribute has values that are treated apart.
    #[inline]
    pub(crate) fn is_by_attribute(&self) -> bool {
        self.grants.is_by_attribute()
    }
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub(crate) enum Place<'c> {
    /// In the tree, below this entry, `None` for a naming context; with what may govern it.
    Tree(Option<&'c Superior>, Option<&'c Collective>),
    /// Nowhere: a synthetic entry, whose record holds the whole DN and everything else.
    Synthetic,
}

enum Operational<'c> {
    /// In the entry's record; not asked for yet.
    Stored,
    /// Spelled out.
    Spelled(Vec<u8>),
    Given(Entry<'c>),
}

impl<'c, R: Read> Candidate<'c, R> {
    /// An entry of the tree.
    #[inline]
    pub(crate) fn in_tree(
        view: &'c R,
        vocabulary: Vocabulary<'c>,
        id: EntryId,
        entry: Entry<'c>,
        place: Place<'c>,
    ) -> Candidate<'c, R> {
        Candidate {
            view,
            id,
            entry,
            place,
            vocabulary,
            operational: Operational::Stored,
            viewer: None,
        }
    }

    /// A synthetic entry, with its operational record.
    pub(crate) fn synthetic(
        view: &'c R,
        vocabulary: Vocabulary<'c>,
        entry: Entry<'c>,
        operational: Entry<'c>,
    ) -> Candidate<'c, R> {
        Candidate {
            view,
            id: EntryId::ROOT,
            entry,
            place: Place::Synthetic,
            vocabulary,
            operational: Operational::Given(operational),
            viewer: None,
        }
    }

    /// Lets somebody see no other entries of the tree in it than they may know of, and restricts it to what is granted
    /// on it, if that is given.
    pub(crate) fn restrict(&mut self, grants: &'c Grants, on_entry: Option<&'c EntryGrants>) {
        self.viewer = Some(Viewer { grants, on_entry });
    }

    /// What is granted on it, if it is restricted to that.
    #[inline]
    pub(crate) fn seen(&self) -> Option<Seen<'c>> {
        Some(Seen {
            grants: self.viewer?.on_entry?,
            attributes: self.vocabulary.attributes,
            schema: self.vocabulary.schema,
        })
    }

    /// Looks at all of it: whether it can be sent as it is stored.
    #[cold]
    pub(crate) fn examine(&self, vocabulary: Vocabulary<'_>) -> Result<()> {
        examined::examine(&self.entry, vocabulary).map_err(|damaged| self.damaged(damaged))
    }

    /// Its id, if it is an entry of the tree.
    pub(super) fn id(&self) -> Option<EntryId> {
        matches!(self.place, Place::Tree(..)).then_some(self.id)
    }

    /// Where it is read.
    pub(super) fn view(&self) -> &'c R {
        self.view
    }

    /// What gives its attributes their names.
    pub(super) fn vocabulary(&self) -> Vocabulary<'c> {
        self.vocabulary
    }

    /// What is granted to who looks at it, if it is restricted to that.
    pub(super) fn viewer(&self) -> Option<&'c Grants> {
        Some(
            self.viewer
                .filter(|viewer| viewer.on_entry.is_some())?
                .grants,
        )
    }

    /// Its record.
    #[inline]
    pub(crate) fn entry(&self) -> &Entry<'c> {
        &self.entry
    }

    /// The value of a large attribute with a form.
    pub(crate) fn large_value(
        &self,
        number: AttributeNo,
        form: &[u8],
    ) -> Result<Option<R::Value<'_>>> {
        Ok(large::get(self.view, self.id, number, form)?)
    }

    /// The values of a large attribute, from a key on.
    pub(crate) fn large_values(
        &self,
        number: AttributeNo,
        from: Option<&[u8]>,
    ) -> Result<R::Cursor<'_>> {
        Ok(large::scan(self.view, self.id, number, from)?)
    }

    /// The type of an attribute.
    pub(crate) fn type_of(&self, number: AttributeNo) -> Option<&'c AttributeType> {
        let Vocabulary { schema, attributes } = self.vocabulary;
        let known = attributes.get(number)?;
        Some(schema.type_of(known.attribute_type()))
    }

    /// The error for values that are not what the record tells of them.
    pub(crate) fn not_as_told(&self, number: AttributeNo) -> Error {
        large::not_as_told(self.id, number)
    }

    /// Appends its DN as written.
    #[inline]
    pub(crate) fn append_dn(&self, out: &mut String) {
        // Of a damaged record, what is readable of it.
        out.push_str(&String::from_utf8_lossy(self.entry.rdn_bytes()));
        if let Place::Tree(Some(superior), _) = self.place {
            out.push(',');
            out.push_str(&superior.dn);
        }
    }

    /// Its DN as written, in two parts: its own, and that of the entry above.
    #[inline]
    pub(crate) fn dn_parts(&self) -> (&[u8], Option<&[u8]>) {
        let superior = match self.place {
            Place::Tree(Some(superior), _) => Some(superior.dn.as_bytes()),
            _ => None,
        };
        (self.entry.rdn_bytes(), superior)
    }

    /// Bytes of its DN as written.
    #[inline]
    pub(crate) fn dn_bytes(&self) -> usize {
        let (rdn, superior) = self.dn_parts();
        rdn.len() + superior.map_or(0, |superior| 1 + superior.len())
    }

    /// Which entry it is, and as of which change. A synthetic one is none that anybody holds copies of.
    pub(crate) fn version(&self) -> Result<Option<EntryVersion>> {
        if matches!(self.place, Place::Synthetic) {
            return Ok(None);
        }
        let version = operational::version_of(&self.entry, self.vocabulary);
        version.map_err(|damaged| self.damaged(damaged))
    }

    /// Its operational attributes.
    pub(crate) fn operational(&mut self) -> Result<Entry<'_>> {
        if let Operational::Stored = self.operational {
            let mut spelled = Vec::new();
            let read = operational::spell(&self.entry, self.vocabulary, &mut spelled).map(drop);
            read.map_err(|damaged| self.damaged(damaged))?;
            self.operational = Operational::Spelled(spelled);
        }
        let spelled = match &self.operational {
            Operational::Given(entry) => Ok(*entry),
            Operational::Spelled(record) => Entry::new(record),
            Operational::Stored => Err(Damaged),
        };
        spelled.map_err(|damaged| self.damaged(damaged))
    }

    /// Replaces `values` by those of a virtual attribute. A synthetic entry has none.
    pub(crate) fn compute(&self, attribute: VirtualAttribute, values: &mut Values) -> Result<()> {
        match self.place {
            Place::Synthetic => {
                values.clear();
                Ok(())
            }
            Place::Tree(superior, collective) => {
                attribute.compute(&self.subject(superior, collective), values)
            }
        }
    }

    /// Whether it has a value of a virtual attribute, in normal form, if that is told without computing all of them.
    pub(crate) fn has_computed(
        &self,
        attribute: VirtualAttribute,
        normal: &[u8],
    ) -> Result<Option<bool>> {
        match self.place {
            Place::Synthetic => Ok(Some(false)),
            Place::Tree(superior, collective) => {
                attribute.has(&self.subject(superior, collective), normal)
            }
        }
    }

    /// What virtual attributes are computed of.
    fn subject<'s>(
        &'s self,
        superior: Option<&'s Superior>,
        collective: Option<&'s Collective>,
    ) -> Subject<'s, R> {
        let vocabulary = self.vocabulary;
        Subject {
            view: self.view,
            id: self.id,
            entry: self.entry,
            superior,
            vocabulary: Some(vocabulary),
            collective: collective.map(|collective| (collective, vocabulary)),
            viewer: self.viewer.map(|viewer| (viewer.grants, vocabulary.schema)),
            accounts: vocabulary.attributes.accounts(),
        }
    }

    /// The error for a record that is not what it should be.
    pub(crate) fn damaged(&self, damaged: Damaged) -> Error {
        Error::corrupt(format!("entry {}: {damaged}", self.id))
    }
}
