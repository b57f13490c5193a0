//! A search that is to begin later, as what it is to begin with is not here, or again, as it goes on with each change.
//! It owns what it was asked.

use std::sync::Arc;

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest};

use super::begin::{self, Begun, Planned};
use super::{Limits, Running, SearchOptions};
use crate::access::Requester;
use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::error::Result;

/// All that a search begins with.
pub(super) struct Unbegun {
    requester: Arc<Requester>,
    base: String,
    scope: Scope,
    deref_aliases: DerefAliases,
    types_only: bool,
    filter: FilterBuf,
    attributes: OctetStringsBuf,
    size_limit: u32,
    limits: Limits,
    options: SearchOptions,
}

impl Unbegun {
    /// Its time counts from now on.
    #[cold]
    pub(super) fn new<E: Engine>(
        snapshot: &Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: &SearchOptions,
    ) -> Unbegun {
        let limits = Limits::of(request, options, || snapshot.now_micros());
        let options = SearchOptions {
            deadline_micros: limits.deadline_micros,
            ..options.clone()
        };
        Unbegun {
            requester: requester.clone(),
            base: request.base.to_owned(),
            scope: request.scope,
            deref_aliases: request.deref_aliases,
            types_only: request.types_only,
            filter: request.filter.into(),
            attributes: request.attributes.iter().collect(),
            size_limit: request.size_limit,
            limits,
            options,
        }
    }

    pub(super) fn options(&self) -> &SearchOptions {
        &self.options
    }

    pub(super) fn requester(&self) -> &Arc<Requester> {
        &self.requester
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Begins it.
    pub(super) fn begin<E: Engine>(&self, snapshot: &Snapshot<E>) -> Result<Begun<Planned>> {
        let options = self.options.clone();
        begin::begin(snapshot, &self.requester, &self.request(), options)
    }

    /// Begins it for candidates that it is [told](Running::aim) one by one.
    pub(super) fn begin_for_told<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
    ) -> Result<Begun<Box<Running>>> {
        let options = self.options.clone();
        begin::begin_for_told(snapshot, &self.requester, &self.request(), options)
    }

    /// From now on it is for this one.
    pub(super) fn set_requester(&mut self, requester: &Arc<Requester>) {
        self.requester = requester.clone();
    }

    pub(super) fn request(&self) -> SearchRequest<'_> {
        SearchRequest {
            base: &self.base,
            scope: self.scope,
            deref_aliases: self.deref_aliases,
            size_limit: self.size_limit,
            // It is in the options already.
            time_limit: 0,
            types_only: self.types_only,
            filter: self.filter.as_filter(),
            attributes: self.attributes.view(),
        }
    }
}
