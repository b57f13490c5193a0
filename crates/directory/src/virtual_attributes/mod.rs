//! Virtual attributes: they are not stored, but follow from the tree, and are computed when they are read. A file each,
//! and a line in the table below, which has those that the table of operational attributes says are computed. Searches,
//! filters, compares and assertions ask here and nowhere else.

use crate::access::Grants;
use crate::accounts::{AccountState, Accounts, FAILURES_SHOWN_MAX};
use crate::collective::Collective;
use crate::engine::{EntryId, Read};
use crate::entry::Entry;
use crate::error::Result;
use crate::names::Superior;
use crate::operational::Vocabulary;
use crate::schema::{AttributeTypeId, OperationalAttribute, Schema};
use crate::stamp::generalized_time;

macro_rules! virtual_attributes {
    ($($name:ident $file:ident)*) => {
        $(mod $file;)*

        /// One of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum VirtualAttribute {
            $(#[doc = concat!("See `", stringify!($file), "`.")] $name,)*
        }

        impl VirtualAttribute {
            /// All of them.
            pub(crate) const ALL: &[VirtualAttribute] = &[$(VirtualAttribute::$name),*];

            /// What it is called.
            const NAMED: &[OperationalAttribute] = &[$(OperationalAttribute::$name),*];

            /// Replaces `values` by those of an entry; none if it does not have the attribute.
            pub(crate) fn compute<R: Read>(self, subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
                values.clear();
                match self {
                    $(VirtualAttribute::$name => $file::compute(subject, values),)*
                }
            }
        }
    };
}

virtual_attributes! {
    ContextCsn context_csn
    EntryTtl entry_ttl
    EntryDn entry_dn
    HasSubordinates has_subordinates
    MemberOf member_of
    NumSubordinates num_subordinates
    ParentUuid parent_uuid
    EntryRegisters entry_registers
    SubschemaSubentry subschema_subentry
    PwdFailureTime pwd_failure_time
    PwdLastSuccess pwd_last_success
    PwdAccountTmpLockoutEnd pwd_account_tmp_lockout_end
    CollectiveAttributeSubentries collective_attribute_subentries
    GoverningStructureRule governing_structure_rule
}

/// Bytes of a time with microseconds and what is around a value.
const TIME_BYTES_MAX: usize = 32;

/// Those of the table of operational attributes, and no others.
const _: () = {
    let (named, computed) = (VirtualAttribute::NAMED, OperationalAttribute::COMPUTED);
    assert!(named.len() == computed.len());
    let mut at = 0;
    while at < computed.len() {
        assert!(named[at] as usize == computed[at] as usize);
        at += 1;
    }
};

impl VirtualAttribute {
    /// Bytes of its values in a message at most, besides those of a DN; `None` if there may be very many.
    pub(crate) fn bytes_max(self) -> Option<usize> {
        const ONE: usize = 128;
        match self {
            VirtualAttribute::ContextCsn
            | VirtualAttribute::MemberOf
            | VirtualAttribute::EntryRegisters
            | VirtualAttribute::CollectiveAttributeSubentries => None,
            VirtualAttribute::PwdFailureTime => Some(ONE + FAILURES_SHOWN_MAX * TIME_BYTES_MAX),
            _ => Some(ONE),
        }
    }

    /// Whether an entry has a value in normal form, if that is told without computing all values.
    pub(crate) fn has<R: Read>(
        self,
        subject: &Subject<'_, R>,
        normal: &[u8],
    ) -> Result<Option<bool>> {
        match self {
            VirtualAttribute::MemberOf => member_of::has(subject, normal),
            _ => Ok(None),
        }
    }

    /// Whether it is for servers that replicate: it is told to who names it, and to nobody else.
    pub(crate) fn is_for_replicas(self) -> bool {
        matches!(
            self,
            VirtualAttribute::ParentUuid | VirtualAttribute::EntryRegisters
        )
    }

    /// Its attribute type.
    pub(crate) fn attribute_type(self, schema: &Schema) -> AttributeTypeId {
        schema.operational(VirtualAttribute::NAMED[self as usize])
    }

    /// The one of a type.
    pub(crate) fn of(schema: &Schema, attribute_type: AttributeTypeId) -> Option<VirtualAttribute> {
        let mut all = VirtualAttribute::ALL.iter().copied();
        all.find(|known| known.attribute_type(schema) == attribute_type)
    }
}

/// The entry that they are computed of, which is one of the tree.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'s, R> {
    pub(crate) view: &'s R,
    pub(crate) id: EntryId,
    pub(crate) entry: Entry<'s>,
    /// The entry above it; none for a naming context.
    pub(crate) superior: Option<&'s Superior>,
    /// What gives its attributes their names, if it has a record of the tree.
    pub(crate) vocabulary: Option<Vocabulary<'s>>,
    /// What may govern it.
    pub(crate) collective: Option<(&'s Collective, Vocabulary<'s>)>,
    /// Who looks, if they may not know of all entries.
    pub(crate) viewer: Option<(&'s Grants, &'s Schema)>,
    /// What is kept of binds, where password policies ask for it.
    pub(crate) accounts: Option<&'s Accounts>,
}

impl<R: Read> Subject<'_, R> {
    /// What is kept of the binds of the entry.
    fn account(&self) -> Result<AccountState> {
        match self.accounts {
            Some(accounts) => accounts.state(self.view, self.id),
            None => Ok(AccountState::default()),
        }
    }
}

impl<R> Subject<'_, R> {
    /// Appends its DN as written; of a damaged record, what is readable of it.
    #[inline]
    pub(crate) fn append_dn(&self, out: &mut String) {
        out.push_str(&String::from_utf8_lossy(self.entry.rdn_bytes()));
        if let Some(superior) = self.superior {
            out.push(',');
            out.push_str(&superior.dn);
        }
    }
}

/// Values of an attribute, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Values {
    text: String,
    ends: Vec<usize>,
}

impl Values {
    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Adds the value that `write` appends.
    fn push_with(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    fn push(&mut self, value: &str) {
        self.push_with(|text| text.push_str(value));
    }

    /// Adds a time in seconds since 1970; 0 is none.
    fn push_time(&mut self, seconds: u64) {
        if seconds > 0 {
            self.push(&generalized_time(seconds.saturating_mul(1_000_000)));
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The same in a message, with the attribute's name, at most.
    pub(crate) fn bytes_in_message(&self) -> usize {
        const AROUND: usize = 128;
        const AROUND_ONE: usize = 8;
        AROUND + self.text.len() + AROUND_ONE * self.ends.len()
    }

    /// The values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let value = self.text.as_bytes().get(start..*end).unwrap_or_default();
            start = *end;
            value
        })
    }
}
