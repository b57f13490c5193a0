//! Search filters made ready once and evaluated on many entries (RFC 4511 §4.5.1.7).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::filter::{self, Filter, FilterView, SubstringPart};

use super::evaluate::NUMBERS_TO_LOOK_UP_MAX;
use super::in_chain::{Chain, Links};
use crate::access::{Everywhere, Grants, Sight};
use crate::attributes::AttributeTable;
use crate::engine::AttributeNo;
use crate::indexes::equality_key;
use crate::large;
use crate::schema::{
    Assertion, AttributeType, AttributeTypeId, MatchingRule, NormalDn, Purpose, RuleKind, Schema,
    SoundPattern, SubstringPattern,
};
use crate::steps;
use crate::virtual_attributes::VirtualAttribute;

/// The three values of a filter (X.511 §7.8.1): `and` is the least of its components, `or` the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Truth {
    /// Does not match.
    False,
    /// Cannot be told: the attribute is not known, or the asserted value does not fit it.
    Undefined,
    /// Matches.
    True,
}

impl std::ops::Not for Truth {
    type Output = Truth;

    fn not(self) -> Truth {
        match self {
            Truth::False => Truth::True,
            Truth::Undefined => Truth::Undefined,
            Truth::True => Truth::False,
        }
    }
}

/// A filter compiled against a schema and the attribute numbers of a snapshot. Its depth is bounded by
/// [`FILTER_DEPTH_MAX`](sapwood_ldap::limits::FILTER_DEPTH_MAX), so that it may be walked recursively.
#[derive(Debug)]
pub(crate) enum Node {
    /// All must be true.
    And(Vec<Node>),
    /// One must be true.
    Or(Vec<Node>),
    /// Must be false.
    Not(Box<Node>),
    /// The same for every entry.
    Constant(Truth),
    /// To be looked up in the entry.
    Item(Box<Item>),
    /// One of many values of an attribute must be there.
    AnyOf(Box<AnyOf>),
    /// Names are followed from entry to entry.
    InChain(Box<Chain>),
}

/// Many items that ask for values of the same attribute: their entries are looked for one by one, and each is tested
/// for all at once.
#[derive(Debug)]
pub(crate) struct AnyOf {
    /// Each by itself.
    pub(crate) each: Vec<Node>,
    /// All of them.
    pub(crate) item: Item,
}

/// A test on the values of an attribute.
#[derive(Debug)]
pub(crate) struct Item {
    /// Where the values are.
    pub(crate) target: Target,
    /// What one of them must satisfy.
    pub(crate) test: Test,
    /// The value that is asserted, if access rules treat some values of the attribute apart: who may not ask for that
    /// value is told nothing.
    pub(crate) asserted: Option<Box<[u8]>>,
    /// About how many nanoseconds the test takes for each byte of a value.
    byte_work: u32,
    /// See [`Item::forms_of`]; once they are asked for.
    forms: OnceCell<Box<[Vec<u8>]>>,
}

impl Node {
    /// Whether it may depend on the name of an entry.
    pub(crate) fn asks_for_name(&self) -> bool {
        match self {
            Node::And(nodes) | Node::Or(nodes) => nodes.iter().any(Node::asks_for_name),
            Node::Not(node) => node.asks_for_name(),
            Node::Constant(_) => false,
            Node::Item(item) => match &item.target {
                Target::Stored(stored) => stored.in_dn.is_some(),
                Target::Virtual(_) => true,
            },
            Node::AnyOf(_) | Node::InChain(_) => true,
        }
    }
}

impl Item {
    fn node(target: Target, test: Test) -> Node {
        Node::Item(Box::new(Item::new(target, test)))
    }

    fn new(target: Target, test: Test) -> Item {
        let byte_work = match &test {
            Test::Present => 0,
            Test::Equal(assertion) if assertion.is_decided_in_place() => 1,
            Test::Substrings(_) => 4,
            // Each letter of a value is looked at some times.
            Test::Sounds(_) => 32,
            _ => 8,
        };
        Item {
            target,
            test,
            asserted: None,
            byte_work,
            forms: OnceCell::new(),
        }
    }

    /// What it asks for, if others of its kind can be tested together with it: the rule, and the normal form.
    fn as_any_of(&self) -> Option<(&Stored, &Assertion)> {
        match (&self.target, &self.test) {
            (Target::Stored(stored), Test::Equal(assertion))
                if stored.in_dn.is_none()
                    && assertion.is_decided_by_key()
                    && self.asserted.is_none() =>
            {
                Some((stored, assertion))
            }
            _ => None,
        }
    }

    /// The forms of the values that match, if they are those of a few values and can be looked up among the values of a
    /// large attribute of a type ([`crate::large`]).
    pub(crate) fn forms_of(&self, known: Option<&AttributeType>) -> Option<&[Vec<u8>]> {
        let is_short = |form: &[u8]| form.len() <= FORM_BYTES_MAX;
        let rule = match &self.test {
            Test::Equal(assertion)
                if assertion.is_decided_by_key() && is_short(assertion.key()) =>
            {
                assertion.rule()
            }
            Test::AnyOf(rule, forms)
                if forms.len() <= FORMS_MAX && forms.iter().all(|form| is_short(form)) =>
            {
                *rule
            }
            _ => return None,
        };
        known?
            .equality()
            .filter(|equality| equality.has_forms_of(rule))?;
        let form = |normal: &[u8]| large::form_of_normal(&equality_key(normal));
        Some(self.forms.get_or_init(|| match &self.test {
            Test::Equal(assertion) => [form(assertion.key())].into(),
            Test::AnyOf(_, forms) => forms.iter().map(|normal| form(normal)).collect(),
            _ => [].into(),
        }))
    }

    /// The normal form that a value of a type equals by the type's own rule, if that is what is asked for.
    pub(crate) fn equal_to(&self, known: AttributeTypeId, schema: &Schema) -> Option<&[u8]> {
        let Test::Equal(assertion) = &self.test else {
            return None;
        };
        let equality = schema.type_of(known).equality()?;
        let is_own = assertion.is_decided_by_key() && equality.has_forms_of(assertion.rule());
        is_own.then(|| assertion.key())
    }

    /// The work of testing values of so many bytes.
    #[inline]
    pub(crate) fn work_of(&self, bytes: usize) -> u64 {
        bytes as u64 * u64::from(self.byte_work)
    }
}

/// No more values, and no longer ones, are looked up among those of a large attribute: others are compared with one
/// value after the other, which is done in steps.
const FORMS_MAX: usize = 1 << 8;
const FORM_BYTES_MAX: usize = 1 << 12;

/// From this many items of an or on those that ask for values of one attribute are tested together.
const COMPARED_MAX: usize = 16;

/// Where the values that an item looks at are.
#[derive(Debug)]
pub(crate) enum Target {
    /// In the entry's record or its operational one.
    Stored(Stored),
    /// Computed when read.
    Virtual(VirtualAttribute),
}

/// Stored attributes, those of subtypes and with more options included (RFC 4512 §2.5.1, §2.5.2).
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The type that was named, with neither options nor a choice of rule: an index on it and on its subtypes answers.
    pub(crate) indexed_type: Option<AttributeTypeId>,
    /// The type that was named, if one was.
    pub(crate) named: Option<AttributeTypeId>,
    /// The numbers in the entry's record.
    pub(crate) user: Numbers,
    /// The numbers in the operational record.
    pub(crate) operational: Numbers,
    /// Whether the values of the entry's DN count as well (`dnAttributes`).
    pub(crate) in_dn: Option<DnTypes>,
}

/// Numbers of attributes. Where they are many they are sorted, and the items of a filter share them: a few bytes of a
/// request can name all attributes there are.
#[derive(Clone, Debug)]
pub(crate) enum Numbers {
    Few(FewNumbers),
    Many(Arc<[AttributeNo]>),
}

/// Numbers without an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FewNumbers {
    numbers: [AttributeNo; NUMBERS_TO_LOOK_UP_MAX],
    count: u8,
}

impl Deref for Numbers {
    type Target = [AttributeNo];

    #[inline]
    fn deref(&self) -> &[AttributeNo] {
        match self {
            Numbers::Few(few) => &few.numbers[..usize::from(few.count)],
            Numbers::Many(numbers) => numbers,
        }
    }
}

impl Numbers {
    /// Whether a number is among them.
    #[inline]
    pub(crate) fn has(&self, number: AttributeNo) -> bool {
        match self {
            Numbers::Few(_) => self.contains(&number),
            Numbers::Many(numbers) => numbers.binary_search(&number).is_ok(),
        }
    }
}

/// Numbers being gathered.
#[derive(Default)]
struct Gathering {
    few: FewNumbers,
    /// Those for which there was no room.
    more: Vec<AttributeNo>,
}

impl Gathering {
    fn push(&mut self, number: AttributeNo) {
        match self.few.numbers.get_mut(usize::from(self.few.count)) {
            Some(room) => {
                *room = number;
                self.few.count += 1;
            }
            None => self.more.push(number),
        }
    }

    fn is_many(&self) -> bool {
        !self.more.is_empty()
    }

    fn into_numbers(self) -> Numbers {
        if self.more.is_empty() {
            return Numbers::Few(self.few);
        }
        let mut numbers = self.more;
        numbers.extend(self.few.numbers);
        numbers.sort_unstable();
        Numbers::Many(numbers.into())
    }
}

/// Where an attribute is, in an entry's record and in its operational one.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) user: Numbers,
    pub(super) operational: Numbers,
}

/// What names many attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Naming {
    /// A type without options.
    Type(AttributeTypeId),
    /// A matching rule, by its OID.
    Rule(&'static str),
}

/// The types whose values in a DN count.
#[derive(Clone, Debug)]
pub(crate) enum DnTypes {
    /// A type and its subtypes.
    Of(AttributeTypeId),
    /// All that the matching rule fits.
    Any,
}

/// What a value must satisfy.
#[derive(Debug)]
pub(crate) enum Test {
    /// There is a value.
    Present,
    /// Equal by the rule of the assertion.
    Equal(Assertion),
    /// Greater or equal.
    AtLeast(Assertion),
    /// Less or equal.
    AtMost(Assertion),
    /// Less: an ordering rule in an extensible match.
    Before(Assertion),
    /// Has the parts.
    Substrings(SubstringPattern),
    /// Has words that sound so.
    Sounds(SoundPattern),
    /// Has one of these normal forms by a rule.
    AnyOf(&'static MatchingRule, HashSet<Vec<u8>>),
}

/// Makes filters ready.
pub(crate) struct Compiler<'c> {
    schema: &'c Schema,
    attributes: &'c AttributeTable,
    grants: &'c Grants,
    sight: Sight,
    /// The many places that were looked for before, sorted.
    many: RefCell<Vec<(Naming, Places)>>,
    /// How many items follow names.
    chains: Cell<usize>,
}

impl<'c> Compiler<'c> {
    /// With the attribute numbers of the snapshot that will be searched. Items on attributes that may be searched on no
    /// entry are Undefined. Where that depends on the entry, it is asked when the filter is evaluated.
    pub(crate) fn new(
        schema: &'c Schema,
        attributes: &'c AttributeTable,
        (grants, sight): (&'c Grants, Sight),
    ) -> Compiler<'c> {
        Compiler {
            schema,
            attributes,
            grants,
            sight,
            many: RefCell::default(),
            chains: Cell::new(0),
        }
    }

    /// Compiles a filter. What cannot be decided becomes [`Truth::Undefined`], never an error.
    pub(crate) fn compile(&self, filter: Filter<'_>) -> Node {
        match filter.view() {
            FilterView::And(filters) => conjunction(filters.iter().map(|part| self.compile(part))),
            FilterView::Or(filters) => disjunction(filters.iter().map(|part| self.compile(part))),
            FilterView::Not(part) => match self.compile(part) {
                Node::Constant(truth) => Node::Constant(!truth),
                node => Node::Not(Box::new(node)),
            },
            FilterView::EqualityMatch(assertion) => self.on_attribute(
                assertion.attribute,
                Some(assertion.value),
                |attribute_type| self.equal(attribute_type, assertion.value),
            ),
            FilterView::ApproxMatch(assertion) => self.on_attribute(
                assertion.attribute,
                Some(assertion.value),
                |attribute_type| {
                    let rule = attribute_type.equality()?;
                    match SoundPattern::new(rule, self.schema, assertion.value).ok()? {
                        Some(pattern) => Some(Test::Sounds(pattern)),
                        None => self.equal(attribute_type, assertion.value),
                    }
                },
            ),
            FilterView::GreaterOrEqual(assertion) => self.on_attribute(
                assertion.attribute,
                Some(assertion.value),
                |attribute_type| {
                    let rule = attribute_type.ordering()?;
                    Some(Test::AtLeast(
                        rule.assertion(self.schema, assertion.value).ok()?,
                    ))
                },
            ),
            FilterView::LessOrEqual(assertion) => self.on_attribute(
                assertion.attribute,
                Some(assertion.value),
                |attribute_type| {
                    let rule = attribute_type.ordering()?;
                    Some(Test::AtMost(
                        rule.assertion(self.schema, assertion.value).ok()?,
                    ))
                },
            ),
            FilterView::Substrings(substrings) => {
                self.on_attribute(substrings.attribute, None, |attribute_type| {
                    self.substrings(attribute_type, substrings)
                })
            }
            FilterView::Present(attribute) => {
                self.on_attribute(attribute, None, |_| Some(Test::Present))
            }
            FilterView::ExtensibleMatch(matched) => self.extensible(matched),
            FilterView::Unknown => Node::Constant(Truth::Undefined),
        }
    }

    fn equal(&self, attribute_type: &AttributeType, value: &[u8]) -> Option<Test> {
        let rule = attribute_type.equality()?;
        let assertion = rule.assertion(self.schema, value).ok()?;
        Some(Test::Equal(assertion))
    }

    fn on_attribute(
        &self,
        description: &[u8],
        asserted: Option<&[u8]>,
        test: impl FnOnce(&AttributeType) -> Option<Test>,
    ) -> Node {
        let Some((attribute_type, description)) = self.describe(description) else {
            return Node::Constant(Truth::Undefined);
        };
        let Some(test) = test(attribute_type) else {
            return Node::Constant(Truth::Undefined);
        };
        let node = self.item(attribute_type, &description, test, None);
        self.asserting(node, attribute_type, asserted)
    }

    /// The same node, which keeps the value that is asserted if access rules look at it.
    fn asserting(&self, node: Node, known: &AttributeType, asserted: Option<&[u8]>) -> Node {
        match node {
            Node::Item(mut item)
                if self.sight == Sight::Decided && self.grants.looks_at_values_of(known.id()) =>
            {
                item.asserted = asserted.map(Box::from);
                Node::Item(item)
            }
            node => node,
        }
    }

    fn item(
        &self,
        attribute_type: &AttributeType,
        description: &AttributeDescription<'_>,
        test: Test,
        in_dn: Option<DnTypes>,
    ) -> Node {
        let searches = self.searches(attribute_type.id());
        // Every entry has objectClass (RFC 4512 §2.4), and nearly every search for one entry or of a whole tree asks
        // for it.
        if matches!(test, Test::Present)
            && attribute_type.id() == self.schema.well_known().object_class
            && !description.has_options()
            && !self.attributes.numbers_of(attribute_type.id()).is_empty()
            && searches == Everywhere::Always
        {
            return Node::Constant(Truth::True);
        }
        self.sought(attribute_type, description, (test, in_dn), searches)
    }

    /// An item that is looked up, if it may be and there is anything to look at.
    pub(super) fn sought(
        &self,
        attribute_type: &AttributeType,
        description: &AttributeDescription<'_>,
        (test, in_dn): (Test, Option<DnTypes>),
        searches: Everywhere,
    ) -> Node {
        if searches == Everywhere::Never {
            return Node::Constant(Truth::Undefined);
        }
        if let Some(attribute) = self.virtual_attribute(attribute_type.id()) {
            if attribute == VirtualAttribute::MemberOf && self.attributes.member_of().is_none() {
                return Node::Constant(Truth::False);
            }
            return Item::node(Target::Virtual(attribute), test);
        }
        let Places { user, operational } = self.places(attribute_type, description);
        let stored = Stored {
            indexed_type: (!description.has_options() && !self.may_be_collective(attribute_type))
                .then(|| attribute_type.id()),
            named: Some(attribute_type.id()),
            user,
            operational,
            in_dn,
        };
        let is_nowhere =
            stored.user.is_empty() && stored.operational.is_empty() && stored.in_dn.is_none();
        if is_nowhere && searches == Everywhere::Always {
            return Node::Constant(Truth::False);
        }
        Item::node(Target::Stored(stored), test)
    }

    /// The virtual attribute of a type. A synthetic entry has them as any others.
    pub(super) fn virtual_attribute(
        &self,
        attribute_type: AttributeTypeId,
    ) -> Option<VirtualAttribute> {
        let attribute = VirtualAttribute::of(self.schema, attribute_type)?;
        let is_stored = self.attributes.number(attribute_type, "").is_some();
        (!is_stored).then_some(attribute)
    }

    /// What a compare looks for (RFC 4511 §4.10): an equal value of a type, or of those of its subtypes that may be
    /// compared, whose options are these and perhaps more; and any value of them.
    pub(crate) fn comparison(
        &self,
        known: &AttributeType,
        wanted: &AttributeDescription<'_>,
        asserted: Assertion,
        may_be_compared: impl Fn(AttributeTypeId) -> bool,
    ) -> (Node, Node) {
        let target = || {
            if let Some(attribute) = self.virtual_attribute(known.id()) {
                return Target::Virtual(attribute);
            }
            let (mut user, mut operational) = (Gathering::default(), Gathering::default());
            for subtype in known.subtypes().iter().filter(|of| may_be_compared(*of)) {
                let list = match self.schema.type_of(subtype).is_operational() {
                    true => &mut operational,
                    false => &mut user,
                };
                let described = self.attributes.of_type(subtype);
                let described =
                    described.filter(|described| described.description().options_cover(wanted));
                described.for_each(|described| list.push(described.number()));
            }
            Target::Stored(Stored {
                indexed_type: None,
                named: Some(known.id()),
                user: user.into_numbers(),
                operational: operational.into_numbers(),
                in_dn: None,
            })
        };
        (
            Item::node(target(), Test::Equal(asserted)),
            Item::node(target(), Test::Present),
        )
    }

    /// Where an attribute and its subtypes are.
    pub(super) fn places(
        &self,
        attribute_type: &AttributeType,
        description: &AttributeDescription<'_>,
    ) -> Places {
        let (mut user, mut operational) = (Gathering::default(), Gathering::default());
        for subtype in attribute_type.subtypes().iter() {
            self.add_numbers(subtype, Some(description), &mut user, &mut operational);
            if !description.has_options() && (user.is_many() || operational.is_many()) {
                return self.many(
                    Naming::Type(attribute_type.id()),
                    attribute_type.subtypes().iter(),
                );
            }
        }
        Places {
            user: user.into_numbers(),
            operational: operational.into_numbers(),
        }
    }

    /// Where attributes of many types are, looked for once.
    fn many(&self, naming: Naming, types: impl Iterator<Item = AttributeTypeId>) -> Places {
        let mut known = self.many.borrow_mut();
        let before = match known.binary_search_by_key(&naming, |(naming, _)| *naming) {
            Ok(at) => return known[at].1.clone(),
            Err(before) => before,
        };
        let (mut user, mut operational) = (Gathering::default(), Gathering::default());
        for attribute_type in types {
            steps::count(1);
            self.add_numbers(attribute_type, None, &mut user, &mut operational);
        }
        let places = Places {
            user: user.into_numbers(),
            operational: operational.into_numbers(),
        };
        known.insert(before, (naming, places.clone()));
        places
    }

    fn add_numbers(
        &self,
        attribute_type: AttributeTypeId,
        description: Option<&AttributeDescription<'_>>,
        user: &mut Gathering,
        operational: &mut Gathering,
    ) {
        if self.searches(attribute_type) == Everywhere::Never {
            return;
        }
        let list = match self.schema.type_of(attribute_type).is_operational() {
            true => operational,
            false => user,
        };
        for known in self.attributes.of_type(attribute_type) {
            if description.is_none_or(|wanted| known.description().options_cover(wanted)) {
                list.push(known.number());
            }
        }
    }

    /// Whether entries may have values of a type that stand in a subentry, and not in their indexes.
    pub(super) fn may_be_collective(&self, attribute_type: &AttributeType) -> bool {
        let is_collective = |id| self.schema.type_of(id).is_collective();
        self.attributes.has_collective() && attribute_type.subtypes().iter().any(is_collective)
    }

    /// Whether values of a type may be searched.
    #[inline]
    pub(super) fn searches(&self, attribute_type: AttributeTypeId) -> Everywhere {
        (self.grants).searches(self.schema, self.sight, attribute_type)
    }

    pub(super) fn describe<'d>(
        &self,
        description: &'d [u8],
    ) -> Option<(&AttributeType, AttributeDescription<'d>)> {
        let text = std::str::from_utf8(description).ok()?;
        if let Some(attribute_type) = self.schema.attribute_type(description) {
            return Some((attribute_type, AttributeDescription::of_type(text)));
        }
        let description = AttributeDescription::parse(text).ok()?;
        let attribute_type = self
            .schema
            .attribute_type(description.attribute_type().as_bytes())?;
        if description.has_options() {
            self.schema
                .check_options(attribute_type, &description, Purpose::Find)
                .ok()?;
        }
        Some((attribute_type, description))
    }

    /// Each part conforms to the assertion syntax of the equality rule (RFC 4511 §4.5.1.7.2); Undefined otherwise.
    fn substrings(
        &self,
        attribute_type: &AttributeType,
        substrings: filter::Substrings<'_>,
    ) -> Option<Test> {
        let rule = attribute_type.substrings()?;
        let syntax = attribute_type.equality().map(MatchingRule::syntax);
        let (mut initial, mut any, mut last) = (None, Vec::new(), None);
        for part in substrings.parts() {
            let (SubstringPart::Initial(value)
            | SubstringPart::Any(value)
            | SubstringPart::Final(value)) = part;
            if let Some(syntax) = syntax {
                syntax.validate(self.schema, value).ok()?;
            }
            match part {
                SubstringPart::Initial(part) => initial = Some(part),
                SubstringPart::Any(part) => any.push(part),
                SubstringPart::Final(part) => last = Some(part),
            }
        }
        let pattern = SubstringPattern::new(rule, initial, any, last).ok()?;
        Some(Test::Substrings(pattern))
    }

    fn extensible(&self, matched: filter::ExtensibleMatch<'_>) -> Node {
        let node = match (matched.rule, matched.attribute) {
            (rule, Some(attribute)) => self.extensible_on(rule, attribute, &matched),
            (Some(rule), None) => self.extensible_on_all(rule, &matched),
            (None, None) => None,
        };
        node.unwrap_or(Node::Constant(Truth::Undefined))
    }

    fn extensible_on(
        &self,
        rule: Option<&[u8]>,
        attribute: &[u8],
        matched: &filter::ExtensibleMatch<'_>,
    ) -> Option<Node> {
        let (attribute_type, description) = self.describe(attribute)?;
        let rule = match rule {
            Some(rule) => MatchingRule::find(rule)?,
            None => attribute_type.equality()?,
        };
        if rule.kind() == RuleKind::Chain {
            let is_plain = !description.has_options() && !matched.dn_attributes;
            return is_plain.then(|| self.in_chain(rule, attribute_type, matched.value))?;
        }
        if !rule.fits(attribute_type) {
            return None;
        }
        let test = self.extensible_test(rule, matched.value)?;
        // The attributes of a name have no options, so they are none of those that are asked for with options.
        let in_dn = (matched.dn_attributes && !description.has_options())
            .then(|| DnTypes::Of(attribute_type.id()));
        let mut node = self.item(attribute_type, &description, test, in_dn);
        if let Node::Item(item) = &mut node
            && let Target::Stored(stored) = &mut item.target
            && (stored.in_dn.is_some() || attribute_type.equality() != Some(rule))
        {
            stored.indexed_type = None;
        }
        Some(self.asserting(node, attribute_type, Some(matched.value)))
    }

    /// An item that follows the values of a type, which must all be found by indexes.
    fn in_chain(
        &self,
        rule: &'static MatchingRule,
        attribute_type: &AttributeType,
        value: &[u8],
    ) -> Option<Node> {
        let is_named = attribute_type
            .equality()
            .is_some_and(MatchingRule::is_of_names);
        if !is_named || self.may_be_collective(attribute_type) {
            return None;
        }
        let id = attribute_type.id();
        let asserted = rule.assertion(self.schema, value).ok()?;
        if self.searches(id) == Everywhere::Never {
            return None;
        }
        let links = match self.virtual_attribute(id) {
            Some(VirtualAttribute::MemberOf) => match self.attributes.member_of() {
                None => return Some(Node::Constant(Truth::False)),
                Some(_) => Links::MemberOf,
            },
            Some(_) => return None,
            None => {
                let subtypes = attribute_type.subtypes().iter();
                let used = subtypes.filter(|of| self.attributes.of_type(*of).next().is_some());
                let indexes = used.map(|of| Some((of, self.attributes.equality_index(of)?)));
                Links::Values(indexes.collect::<Option<_>>()?)
            }
        };
        let place = self.chains.replace(self.chains.get() + 1);
        let asserted = NormalDn::from_normal(asserted.key());
        let chain = Chain::new(id, asserted, links, place);
        Some(Node::InChain(Box::new(chain)))
    }

    fn extensible_on_all(
        &self,
        rule: &[u8],
        matched: &filter::ExtensibleMatch<'_>,
    ) -> Option<Node> {
        let rule = MatchingRule::find(rule)?;
        let test = self.extensible_test(rule, matched.value)?;
        let types = self.schema.attribute_types().iter();
        let types = types
            .filter(|known| rule.fits(known))
            .map(AttributeType::id);
        let Places { user, operational } = self.many(Naming::Rule(rule.oid()), types);
        let stored = Stored {
            indexed_type: None,
            named: None,
            user,
            operational,
            in_dn: matched.dn_attributes.then_some(DnTypes::Any),
        };
        Some(Item::node(Target::Stored(stored), test))
    }

    fn extensible_test(&self, rule: &'static MatchingRule, value: &[u8]) -> Option<Test> {
        Some(match rule.kind() {
            RuleKind::Equality => Test::Equal(rule.assertion(self.schema, value).ok()?),
            // RFC 4517 §4.2.6 and its like: an ordering rule is true of what comes before.
            RuleKind::Ordering => Test::Before(rule.assertion(self.schema, value).ok()?),
            RuleKind::Substrings => Test::Substrings(SubstringPattern::parse(rule, value).ok()?),
            // It is of one attribute.
            RuleKind::Chain => return None,
        })
    }
}

fn conjunction(parts: impl Iterator<Item = Node>) -> Node {
    let mut nodes = Vec::new();
    let mut is_undefined = false;
    for part in parts {
        match part {
            Node::Constant(Truth::True) => {}
            Node::Constant(Truth::False) => return Node::Constant(Truth::False),
            // It keeps an `and` from being true, though not from being false. One does so as well as thousands, which
            // would be looked at again and again.
            Node::Constant(Truth::Undefined) if std::mem::replace(&mut is_undefined, true) => {}
            part => nodes.push(part),
        }
    }
    single(nodes, Truth::True, Node::And)
}

fn disjunction(parts: impl Iterator<Item = Node>) -> Node {
    let mut nodes = Vec::new();
    let mut is_undefined = false;
    for part in parts {
        match part {
            Node::Constant(Truth::False) => {}
            Node::Constant(Truth::True) => return Node::Constant(Truth::True),
            Node::Constant(Truth::Undefined) if std::mem::replace(&mut is_undefined, true) => {}
            part => nodes.push(part),
        }
    }
    if nodes.len() > COMPARED_MAX {
        nodes = together(nodes);
    }
    single(nodes, Truth::False, Node::Or)
}

/// Puts items together that ask for values of the same attribute as the first of their kind does.
fn together(nodes: Vec<Node>) -> Vec<Node> {
    let as_any_of = |node: &Node| match node {
        Node::Item(item) => item
            .as_any_of()
            .map(|(stored, assertion)| (stored.clone(), assertion.rule())),
        _ => None,
    };
    let Some((target, rule)) = nodes.iter().find_map(as_any_of) else {
        return nodes;
    };
    let mut keys = HashSet::new();
    let (each, mut others): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|node| {
        steps::count(1);
        let Node::Item(item) = node else {
            return false;
        };
        let asked = item.as_any_of().filter(|(stored, assertion)| {
            assertion.rule() == rule
                && stored.indexed_type == target.indexed_type
                && stored.named == target.named
                && *stored.user == *target.user
                && *stored.operational == *target.operational
        });
        asked.is_some_and(|(_, assertion)| {
            keys.insert(assertion.key().to_vec());
            true
        })
    });
    let item = Item::new(Target::Stored(target), Test::AnyOf(rule, keys));
    others.push(Node::AnyOf(Box::new(AnyOf { each, item })));
    others
}

fn single(mut nodes: Vec<Node>, empty: Truth, many: fn(Vec<Node>) -> Node) -> Node {
    match (nodes.pop(), nodes.is_empty()) {
        (None, _) => Node::Constant(empty),
        (Some(node), true) => node,
        (Some(node), false) => {
            nodes.push(node);
            many(nodes)
        }
    }
}
