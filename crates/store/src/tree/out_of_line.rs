//! Reading values that stand apart.

use super::View;
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::Place;
use crate::format::pointer_leaf::PlaceLeaf;
use crate::heap::Record;
use crate::ids::{CommitNo, PageNo};
use crate::tree::node::Node;

impl<'p, P: ReadPages + ?Sized> View<'p, P> {
    /// The page, if it is a leaf of places that others may store to while it is read.
    #[inline]
    pub(in crate::tree) fn shared_places(
        &self,
        number: PageNo,
        level: usize,
    ) -> Result<Option<&'p PlaceLeaf>> {
        match self.record.kind.apart && level == 0 {
            true => self.pages.shared_places(number),
            false => Ok(None),
        }
    }

    /// The value at a slot of a leaf.
    #[inline]
    pub(in crate::tree) fn apart_value(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        if let Some(places) = leaf.shared_places()
            && let Some((key, place)) = places.pair(slot)
            && self.pages.own_place(places.number(), slot).is_none()
        {
            return Record::as_of(self.pages, place, key, self.pages.as_of());
        }
        self.apart_value_beside(leaf, slot)
    }

    /// The same where the transaction that asks has something to say.
    fn apart_value_beside(&self, leaf: &Node<'p>, slot: usize) -> Result<&'p [u8]> {
        let place = place(self.pages, leaf, slot)?;
        let key = leaf.place_key(slot)?;
        Record::as_of(self.pages, place, key, self.pages.as_of())
    }

    /// The record at a slot of a leaf as of a commit, verified, and where it is.
    pub(in crate::tree) fn verified_record(
        &self,
        leaf: &Node<'p>,
        slot: usize,
        commit: CommitNo,
    ) -> Result<(Place, Record<'p>)> {
        let newest = place(self.pages, leaf, slot)?;
        let key = leaf.place_key(slot)?;
        let (at, _) = Record::find(self.pages, newest, key, commit)?;
        Ok((at, Record::verify(self.pages, at)?))
    }

    /// Asks the processor for the record of a key whose pair is in the leaf, if that is there already.
    pub(in crate::tree) fn fetch_apart(&self, leaf: &Node<'p>, key: &[u8]) -> Result<()> {
        let found = leaf.search(key, 0, self.orders.keys)?;
        if found.exact {
            self.pages
                .fetch_record(place(self.pages, leaf, found.slot)?);
        }
        Ok(())
    }
}

/// What there is at a slot of a leaf of places.
pub(in crate::tree) fn place<P: ReadPages + ?Sized>(
    pages: &P,
    leaf: &Node<'_>,
    slot: usize,
) -> Result<Place> {
    let place = match leaf.shared_places() {
        Some(places) => pages
            .own_place(leaf.number(), slot)
            .or_else(|| places.place(slot)),
        None => Place::decode(leaf.cell(slot)?.payload),
    };
    place.ok_or_else(|| Error::corrupt(leaf.number(), "has no place where one should be"))
}
