//! Request handlers for computed objects, which compute the objects before each read.
//!
//! A get computes one object, a list or watch all of them. The verbs then read the copy as for any resource. While a
//! watch is open, `mirror.rs` repeats the computation.

use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_http::body::{GuardedBody, ResponseBody, stream};
use keelson_http::handlers::ResourceHandlers;
use keelson_http::request_info::{RequestInfo, RequestVerb};
use keelson_http::request_query::RequestQuery;
use keelson_http::respond;
use keelson_http::service::{ApiRequest, ApiService};
use keelson_meta::{ApiError, GroupResource};
use keelson_registry::{Estimate, Target};
use keelson_resources::Verb;

use crate::external::{ObjectKey, StoreFault};
use crate::mirror::{Mirror, OpenWatch};

/// The handlers.
#[derive(Clone)]
pub(crate) struct ReadThrough {
    handlers: ResourceHandlers,
    computed: Arc<[(GroupResource, Arc<Mirror>)]>,
}

impl ReadThrough {
    pub(crate) fn new(handlers: ResourceHandlers, computed: Arc<[(GroupResource, Arc<Mirror>)]>) -> Self {
        Self { handlers, computed }
    }

    /// Computes the objects of a request. The result must be kept until the response has been sent.
    async fn compute(&self, info: &RequestInfo, target: &Target) -> Result<Option<OpenWatch>, StoreFault> {
        let resource = target.group_resource();
        let Some((_, mirror)) = self.computed.iter().find(|(computed, _)| *computed == resource) else {
            return Ok(None);
        };
        match (&info.verb, &target.name) {
            (RequestVerb::Resource(Verb::Get), Some(name)) => {
                let namespace = target.namespace.clone();
                mirror.refresh_one(&ObjectKey { namespace, name: name.clone() }).await?;
                Ok(None)
            }
            (RequestVerb::Resource(Verb::Watch), _) => {
                let open = mirror.watched();
                mirror.refresh().await?;
                Ok(Some(open))
            }
            _ => mirror.refresh().await.map(|()| None),
        }
    }
}

impl ApiService for ReadThrough {
    fn call(&self, request: Box<ApiRequest>, target: Target) -> BoxFuture<'static, http::Response<ResponseBody>> {
        let this = self.clone();
        Box::pin(async move {
            match this.compute(&request.info, &target).await {
                Ok(None) => this.handlers.call(request, target).await,
                Ok(Some(open)) => {
                    this.handlers.call(request, target).await.map(|body| stream(GuardedBody::new(body, open)))
                }
                Err(fault) => {
                    let message = fault.to_string();
                    let error = ApiError::ServiceUnavailable { message, retry_after_seconds: Some(1) };
                    respond::error(&error, request.error_form)
                }
            }
        })
    }

    fn estimate(
        &self,
        info: &RequestInfo,
        parts: &http::request::Parts,
        query: &RequestQuery,
        target: &Target,
    ) -> Estimate {
        self.handlers.estimate(info, parts, query, target)
    }
}
