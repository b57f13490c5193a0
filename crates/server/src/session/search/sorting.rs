//! How a search is to be sorted, and which part of the list is sent: what the controls of server-side sorting (RFC
//! 2891) and of virtual list views (draft-ietf-ldapext-ldapv3-vlv) ask for.

use sapwood_directory::engine::Engine;
use sapwood_directory::{SortOptions, ViewOptions};
use sapwood_ldap::controls::RequestControls;

use super::Session;

/// Whether a search is not sent as its entries are found.
pub(in crate::session) fn is_sorted(controls: &RequestControls<'_>) -> bool {
    controls.sort.is_some() || controls.virtual_list_view.is_some()
}

impl<E: Engine> Session<E> {
    /// What a search is to be sorted by. A view without an order is refused by the search itself.
    pub(super) fn sort_options(&self, controls: &RequestControls<'_>) -> Option<Box<SortOptions>> {
        if !is_sorted(controls) {
            return None;
        }
        let view = controls.virtual_list_view.map(|(view, is_critical)| {
            let mut value = Vec::new();
            view.encode(&mut value);
            ViewOptions { value, is_critical }
        });
        Some(Box::new(SortOptions {
            keys: controls
                .sort
                .map_or_else(Vec::new, |sort| sort.value.to_vec()),
            is_critical: controls.sort.is_some_and(|sort| sort.is_critical),
            folder: self.service.folder.clone(),
            view,
        }))
    }
}
