//! Requests that several pipelines answer together, such as a list over several clusters.
//!
//! Each pipeline gets its part of the request, and its filters decide about this part as about any request. A part is
//! never passed through to another server, since the response must come from this process.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Response, Uri};
use keelson_access::User;

use super::{ClientConnection, Pipeline, browsers, panics, request_id, without_caching};
use crate::body::{ResponseBody, empty};
use crate::{negotiation, respond};

/// Answers requests by parts that pipelines answer.
pub trait FanOut: Send + Sync {
    /// Returns true for the requests that it answers.
    fn takes(&self, uri: &Uri) -> bool;

    /// Answers a request. `own` is the pipeline that the request came to. Parts have a [`PartOfRequest`] among their
    /// extensions.
    fn answer<'a>(
        &'a self,
        own: &'a Arc<Pipeline>,
        client: &'a dyn ClientConnection,
        parts: Parts,
    ) -> BoxFuture<'a, Response<ResponseBody>>;
}

/// Request extension: the request is a part of another one, and is answered in this process or refused.
#[derive(Clone, Debug, Default)]
pub struct PartOfRequest {
    user: Arc<OnceLock<Arc<User>>>,
}

impl PartOfRequest {
    /// The user that the pipeline has authenticated. It may lack the right to the request.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.get()
    }

    /// Records the user.
    pub(super) fn is_of(&self, user: &Arc<User>) {
        let _is_first = self.user.set(user.clone());
    }
}

/// Returns true for a part of another request.
pub(super) fn is_part(parts: &Parts) -> bool {
    parts.extensions.get::<PartOfRequest>().is_some()
}

impl Pipeline {
    /// Lets `across` answer the requests that it takes.
    #[must_use]
    pub fn with_fan_out(mut self, across: Arc<dyn FanOut>) -> Self {
        self.fan_outs.push(across);
        self
    }

    /// The answerer of a request that is not for this pipeline alone.
    pub(super) fn fan_out(&self, parts: &Parts) -> Option<&Arc<dyn FanOut>> {
        self.fan_outs.iter().find(|across| across.takes(&parts.uri)).filter(|_| !is_part(parts))
    }

    pub(super) async fn answer_by_parts(
        self: &Arc<Self>,
        across: &dyn FanOut,
        client: &dyn ClientConnection,
        parts: Parts,
    ) -> Response<ResponseBody> {
        let request_id = request_id::id_of_request(&parts.headers, self.random.as_ref());
        let (error_form, is_head) = (negotiation::error_form(&parts), parts.method == Method::HEAD);
        let answer = pin!(async { Ok(across.answer(self, client, parts).await) });
        let outcome = panics::caught(answer, |_| ()).await;
        let mut response = outcome.unwrap_or_else(|error| respond::error(&error, error_form));
        respond::bound_warnings(response.headers_mut());
        let response = if is_head { response.map(|_| empty()) } else { response };
        request_id::stamped(without_caching(browsers::confined(response)), request_id)
    }
}
