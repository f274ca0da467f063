//! The response with objects of several registries, for a server in front of several clusters.
//!
//! The caller of this module has merged the objects. They are encoded as any list, by the first registry's declarations.

use std::sync::Arc;

use http::{Response, StatusCode};
use keelson_access::User;
use keelson_cache::Entry;
use keelson_meta::{ApiError, Revision};
use keelson_registry::{FailedEvaluations, Groups, ListItems, ListPage, Target};

use super::ResourceHandlers;
use super::list::{self, ItemChanges};
use super::query::{self, TOTAL_COUNT};
use super::render::Renderer;
use crate::body::{GuardedBody, ResponseBody, stream};
use crate::negotiation::{Subject, accepts_gzip, negotiate_document};
use crate::respond;
use crate::service::ApiRequest;
use crate::shares::{Holder, Share, Shares};

/// The largest number of merged pages that are sent at the same time. They hold copies of their objects.
const PAGES: usize = 32;

/// The users' shares of merged pages.
pub struct MergedPages(Arc<Shares>);

impl Default for MergedPages {
    fn default() -> Self {
        Self(Shares::new("merged pages", PAGES))
    }
}

/// The users' shares of lists that are made of parts of one source.
#[derive(Clone)]
pub struct MergedLists(Arc<Shares>);

/// One list that is being made. Dropping it returns the share.
pub struct MergedList {
    _share: Share,
}

impl MergedLists {
    /// Creates a limit of `all` lists at a time.
    pub fn new(all: usize) -> Self {
        Self(Shares::new("lists over clusters or namespaces", all))
    }

    /// Takes a list for a user.
    ///
    /// # Errors
    /// 429 if the user has its share of lists.
    pub fn take(&self, user: &User) -> Result<MergedList, ApiError> {
        Ok(MergedList { _share: self.0.take(Holder::of_user(user), 1)? })
    }
}

/// A page of the merged objects.
pub struct MergedPage {
    /// The text in place of a revision.
    pub position: String,
    /// The token of the next page.
    pub continue_token: Option<String>,
    /// The number of objects after this page, if any.
    pub remaining: Option<u64>,
    /// The objects.
    pub items: Vec<Arc<Entry>>,
    /// The number of objects in the whole result.
    pub total: usize,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
}

impl ResourceHandlers {
    /// The response with a merged page.
    ///
    /// # Errors
    /// 406 for an unsupported representation, 400 for `fields` of tables, 429 if the user has its share of pages.
    pub async fn merged_page(
        &self,
        target: &Target,
        request: Box<ApiRequest>,
        page: MergedPage,
        pages: &MergedPages,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let share = pages.0.take(Holder::of_user(request.caller.user()), 1)?;
        let renderer = Renderer::negotiate(&self.registry, target, &request, Subject::List)?;
        let mask = query::mask(request.query.extended()?, &renderer)?;
        let MergedPage { position, continue_token, remaining, items, total, failures } = page;
        let showing = ItemChanges { order: None, mask, position: Some(position), shard: None };
        let items = ListItems::Chosen(items);
        let page = ListPage { revision: Revision::ZERO, continue_token, remaining, items };
        let takes_gzip = accepts_gzip(&request.parts.headers);
        let mut response = list::answer(target, renderer, page, showing, takes_gzip).await?;
        query::add_count_header(response.headers_mut(), TOTAL_COUNT, total);
        query::add_failures_header(response.headers_mut(), &request.caller, &failures);
        Ok(response.map(|body| stream(GuardedBody::new(body, share))))
    }

    /// The response with merged groups.
    ///
    /// # Errors
    /// 406 for an unsupported encoding.
    pub fn merged_groups(
        &self,
        request: &ApiRequest,
        groups: &Groups,
        position: &str,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let media = negotiate_document(&request.parts)?;
        let mut response = respond::value(StatusCode::OK, &query::document(groups, Some(position)), media);
        query::add_failures_header(response.headers_mut(), &request.caller, &groups.failures);
        Ok(response)
    }
}
