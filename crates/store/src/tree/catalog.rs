//! Looking trees up by their names.

use super::View;
use crate::error::Result;
use crate::format::catalog::{Catalog, decode_record};
use crate::format::pages::ReadPages;
use crate::format::tree_record::TreeRecord;

impl Catalog {
    /// The tree of trees: its names count, its records may be old.
    pub(crate) fn view<'p, P: ReadPages + ?Sized>(&self, pages: &'p P) -> View<'p, P> {
        View::new(pages, *self.tree())
    }

    /// The record of the tree of this name, if there is one.
    pub(crate) fn get<P: ReadPages + ?Sized>(
        &self,
        pages: &P,
        name: &[u8],
    ) -> Result<Option<TreeRecord>> {
        if let Some((held, record)) = self.held()
            && held == name
        {
            return Ok(Some(*record));
        }
        let stored = self.view(pages).get(name)?;
        stored.map(|stored| decode_record(name, stored)).transpose()
    }
}
