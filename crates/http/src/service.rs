//! The interface between the HTTP layer and the verb handlers: a request that has passed every filter, and its
//! response.
//!
//! The HTTP layer knows the handlers by the trait `ApiService` alone, so that its tests can replace them.

use futures::future::BoxFuture;
use http::Response;
use http::request::Parts;
use keelson_meta::ApiError;
use keelson_query::Query;
use keelson_registry::{Caller, Estimate, Matches, Target};
use tokio_util::sync::CancellationToken;

use crate::body::{RequestBody, ResponseBody};
use crate::negotiation::MediaType;
use crate::request_info::RequestInfo;
use crate::request_query::RequestQuery;

/// A request for a resource that passed every filter.
#[derive(Debug)]
pub struct ApiRequest {
    /// The parsed request.
    pub info: RequestInfo,
    /// Method, target and headers.
    pub parts: Parts,
    /// The query of the target.
    pub query: RequestQuery,
    /// The body, not yet read.
    pub body: RequestBody,
    /// The caller, with its deadline.
    pub caller: Caller,
    /// The encoding of errors.
    pub error_form: MediaType,
    /// Cancelled when the server begins to stop. Watches must then end cleanly.
    pub stopping: CancellationToken,
}

/// The handlers of resource requests.
///
/// The implementation also builds the response of a failed request, in the encoding that the client accepts (see
/// [`crate::respond::error`]).
pub trait ApiService: Send + Sync + 'static {
    /// Answers one request for `target`. The future is dropped if the client disconnects, or at the time limit for the
    /// response's status and headers.
    fn call(&self, request: Box<ApiRequest>, target: Target) -> BoxFuture<'static, Response<ResponseBody>>;

    /// Estimates the objects of a request before it is answered. It is quick, and never refuses a request.
    fn estimate(&self, _info: &RequestInfo, _parts: &Parts, _query: &RequestQuery, _target: &Target) -> Estimate {
        Estimate::default()
    }

    /// Searches the collection of `target`, and returns its first `limit` objects. The result may lag behind the store by
    /// the delay of the watch cache.
    fn search(
        &self,
        target: Target,
        caller: Caller,
        query: Query,
        limit: usize,
    ) -> BoxFuture<'_, Result<Matches, ApiError>> {
        let _ = (caller, query, limit);
        let resource = target.group_resource();
        Box::pin(async { Err(ApiError::MethodNotSupported { resource, verb: "list".to_owned() }) })
    }
}
