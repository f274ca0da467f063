//! The handlers of resource requests: each decodes, calls the registry, and encodes. Rules live below.

mod create;
mod decode;
mod delete;
mod get;
mod list;
mod list_body;
mod patch;
mod render;
mod resolve;
mod scale;
mod update;
mod watch;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Response;
use keelson_meta::ApiError;
use keelson_registry::Registry;

use crate::body::ResponseBody;
use crate::negotiation::error_form;
use crate::request_info::Verb;
use crate::respond;
use crate::service::{ApiRequest, ApiService};

/// Answers requests for resources from a registry.
#[derive(Clone)]
pub struct ResourceHandlers {
    registry: Arc<Registry>,
}

impl ResourceHandlers {
    /// Handlers over a registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    async fn dispatch(self, request: ApiRequest) -> Result<Response<ResponseBody>, ApiError> {
        let target = resolve::target(&request.info)?;
        let registry = &*self.registry;
        if target.subresource_name() == Some("scale") {
            return scale::handle(registry, &target, request).await;
        }
        match request.info.verb {
            Verb::Get => get::handle(registry, &target, request).await,
            Verb::List => list::handle(registry, &target, request).await,
            Verb::Watch => watch::handle(registry, &target, request).await,
            Verb::Create => create::handle(registry, &target, request).await,
            Verb::Update => update::handle(registry, &target, request).await,
            Verb::Patch => patch::handle(registry, &target, request).await,
            Verb::Delete => delete::one(registry, &target, request).await,
            Verb::DeleteCollection => delete::collection(registry, &target, request).await,
            Verb::Other(_) => Err(ApiError::MethodNotAllowed),
        }
    }
}

impl ApiService for ResourceHandlers {
    fn call(&self, request: ApiRequest) -> BoxFuture<'static, Response<ResponseBody>> {
        let handlers = self.clone();
        Box::pin(async move {
            let media = error_form(&request.parts);
            let deprecation = resolve::deprecation(&request.info);
            let mut response = handlers.dispatch(request).await.unwrap_or_else(|error| respond::error(&error, media));
            if let Some(warning) = deprecation {
                respond::add_first_warning(response.headers_mut(), &warning);
            }
            response
        })
    }
}
