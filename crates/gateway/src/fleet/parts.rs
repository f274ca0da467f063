//! The parts of a list: requests to the pipelines of sources, each with the caller's own credentials.
//!
//! A part passes all filters of its source. Only then a mirror puts its result into the part's slot.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Response, StatusCode};
use keelson_access::User;
use keelson_http::RequestBody;
use keelson_http::body::{ResponseBody, empty};
use keelson_http::filters::{ClientConnection, PartOfRequest};
use keelson_http::handlers::{MergedList, MergedLists};
use keelson_http::request_query::RequestQuery;
use keelson_http::respond;
use keelson_http::service::ApiRequest;
use keelson_meta::{ApiError, Revision};
use keelson_registry::{Caller, CountedValues, OrderedResult, Target, Warnings};
use parking_lot::Mutex;

use super::Member;
use super::ask::{FleetRequest, Grouping};
use crate::mirror::Mirror;
use crate::progress::Age;

/// The largest number of different values of a source that are counted.
const MOST_VALUES: usize = 10_000;

/// The result of a part.
pub(crate) enum PartResult {
    Ordered(OrderedResult),
    Counted(CountedValues),
}

/// The share of one request in the lists of a source, once the source has allowed one of its parts.
#[derive(Clone, Default)]
pub(super) struct ListShare(Arc<Mutex<Option<MergedList>>>);

impl ListShare {
    /// Takes the share of a user for all parts of the request.
    ///
    /// # Errors
    /// 429 if the user has its share.
    pub(super) fn take(&self, lists: &MergedLists, user: &User) -> Result<(), ApiError> {
        let mut share = self.0.lock();
        if share.is_none() {
            *share = Some(lists.take(user)?);
        }
        Ok(())
    }

    pub(super) fn is_taken(&self) -> bool {
        self.0.lock().is_some()
    }
}

/// An answered part.
pub(crate) struct Part {
    pub(super) found: PartResult,
    pub(super) target: Target,
    pub(super) mirror: Arc<Mirror>,
    /// The request, for the form of the response.
    pub(super) request: Box<ApiRequest>,
    pub(super) warnings: Vec<String>,
    pub(super) age: Age,
    /// Held until the response has been made.
    _share: ListShare,
}

/// Request extension: the place for the result of a part.
#[derive(Clone)]
pub(crate) struct PartSlot {
    part: Arc<Mutex<Option<Part>>>,
    is_grouped: bool,
    lists: MergedLists,
    share: ListShare,
}

/// The reason why a source is missing from a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The source does not respond, or fails.
    Away,
    /// The source does not authenticate the caller.
    Unknown,
    /// The caller may not list there.
    Forbidden,
    /// The source does not serve the resource from its mirror.
    NotMirrored,
    /// The mirrors of the source are being loaded.
    Loading,
    /// The source refuses requests for now.
    Busy,
}

/// The result of a source.
pub(super) enum Outcome {
    /// The parts of the source, all with one revision, and the user that the source authenticates the caller as.
    Answered(Vec<Part>, Arc<User>),
    Missing(Missing),
    /// The request is wrong, whatever the source.
    Refused(Response<ResponseBody>),
}

/// The result of one part.
pub(super) enum PartOutcome {
    Answered(Box<Part>),
    Missing(Missing),
    Refused(Response<ResponseBody>),
}

impl Outcome {
    /// Returns true if the source knows the caller.
    pub(super) const fn is_of_known_user(&self) -> bool {
        matches!(self, Self::Answered(..) | Self::Missing(Missing::Forbidden))
    }
}

impl Missing {
    /// The word in a header field.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Away => "unavailable",
            Self::Unknown => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotMirrored => "not-mirrored",
            Self::Loading => "loading",
            Self::Busy => "busy",
        }
    }
}

impl Part {
    pub(super) const fn revision(&self) -> Revision {
        match &self.found {
            PartResult::Ordered(found) => found.revision,
            PartResult::Counted(found) => found.revision,
        }
    }
}

impl PartSlot {
    /// Evaluates a part, and keeps the result. The response has no content.
    pub(crate) async fn fill(
        self,
        mut request: Box<ApiRequest>,
        target: Target,
        mirror: Arc<Mirror>,
    ) -> Response<ResponseBody> {
        let warnings = Warnings::noted();
        let form = request.error_form;
        request.caller = request.caller.warned_in(warnings.clone());
        if let Err(error) = self.share.take(&self.lists, request.caller.user()) {
            return respond::error(&error, form);
        }
        match self.found((&request.query, &request.caller), &target, &mirror).await {
            Ok(found) => {
                let age = mirror.progress.age();
                let warnings = warnings.take();
                *self.part.lock() = Some(Part { found, target, mirror, request, warnings, age, _share: self.share });
                Response::new(empty())
            }
            Err(error) => respond::error(&error, form),
        }
    }

    async fn found(
        &self,
        (query, caller): (&RequestQuery, &Caller),
        target: &Target,
        mirror: &Mirror,
    ) -> Result<PartResult, ApiError> {
        let (options, query) = (query.list_options()?, query.extended()?);
        if let Some(query) = query {
            target.check_query(query, caller)?;
        }
        let registry = mirror.registry();
        Ok(match query.filter(|_| self.is_grouped) {
            Some(query) => {
                let counted = registry.query_counts(target, caller, options, query, MOST_VALUES);
                PartResult::Counted(counted.await?)
            }
            None => PartResult::Ordered(registry.query_ordered(target, caller, options, query).await?),
        })
    }
}

impl Member {
    /// Sends a part to the source's pipeline. Returns its result, and the user if the source knows the caller.
    pub(super) fn part<'a>(
        &'a self,
        ask: &'a FleetRequest,
        (client, share): (&'a dyn ClientConnection, &'a ListShare),
        namespace: Option<&'a str>,
        at: Option<Revision>,
    ) -> BoxFuture<'a, (PartOutcome, Option<Arc<User>>)> {
        Box::pin(self.answered_part(ask, (client, share), namespace, at))
    }

    async fn answered_part(
        &self,
        ask: &FleetRequest,
        (client, share): (&dyn ClientConnection, &ListShare),
        namespace: Option<&str>,
        at: Option<Revision>,
    ) -> (PartOutcome, Option<Arc<User>>) {
        let Some(mut parts) = ask.part(&self.name, namespace, at) else {
            return (PartOutcome::Missing(Missing::Away), None);
        };
        let slot = PartSlot {
            part: Arc::default(),
            is_grouped: ask.grouping == Grouping::Values,
            lists: self.lists.clone(),
            share: share.clone(),
        };
        let part = PartOfRequest::default();
        parts.extensions.insert(part.clone());
        parts.extensions.insert(slot.clone());
        let response = Box::pin(self.pipeline.answer(client, parts, RequestBody::from_bytes(Vec::new()))).await;
        let user = part.user().filter(|user| !user.is_anonymous()).cloned();
        // Reviews do not show if the source accepts unauthenticated requests.
        if user.is_none() && part.user().is_some() {
            return (PartOutcome::Missing(Missing::Unknown), None);
        }
        let filled = slot.part.lock().take();
        let outcome = match (response.status(), filled) {
            (StatusCode::OK, Some(part)) if user.is_some() => PartOutcome::Answered(Box::new(part)),
            (status, _) => self.failed(status, response),
        };
        (outcome, user)
    }

    fn failed(&self, status: StatusCode, response: Response<ResponseBody>) -> PartOutcome {
        PartOutcome::Missing(match status.as_u16() {
            401 => Missing::Unknown,
            403 => Missing::Forbidden,
            404 | 405 if self.mirrors.has_failed() => Missing::Away,
            404 | 405 if !self.mirrors.is_loaded() => Missing::Loading,
            404 | 405 => Missing::NotMirrored,
            429 => Missing::Busy,
            400 | 406 | 410 | 413 | 414 | 422 => return PartOutcome::Refused(response),
            _ => Missing::Away,
        })
    }
}
