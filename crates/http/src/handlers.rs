//! The handlers of resource requests. Each decodes the request, calls the registry, and encodes the response.
//!
//! The declarations of a resource and its subresources select the handler, and no code compares names. Rules for
//! objects are in the registry.

mod binding;
mod create;
mod create_only;
mod decode;
mod delete;
mod eviction;
mod get;
mod list;
mod list_body;
mod live_page;
mod merged;
mod patch;
mod query;
mod remote;
mod render;
mod resolve;
mod review;
mod scale;
mod token;
mod update;
mod watch;

use std::sync::Arc;

use futures::future::{self, BoxFuture, FutureExt as _};
use http::header::USER_AGENT;
use http::request::Parts;
use http::{Response, StatusCode};
use keelson_access::audit::AuditRecord;
use keelson_meta::ApiError;
use keelson_meta::options::{ListOptions, Query};
use keelson_query::Query as SearchQuery;
use keelson_registry::{
    Caller, Effect, Estimate, Matches, Registry, ServiceAccountTokens, Target, Warnings, WriteResult,
};
use keelson_resources::{CreateHandler, SubresourceHandler, Verb};
use tokio::time::Instant;

pub use self::merged::{MergedList, MergedLists, MergedPage, MergedPages};
use crate::body::ResponseBody;
use crate::filters::{WebhookTime, has_long_query, is_copied};
use crate::metrics::removed_release;
use crate::nodes::NodeAccess;
use crate::request_info::{RequestInfo, RequestVerb};
use crate::request_query::RequestQuery;
use crate::respond;
use crate::router::{NO_NAMESPACE, is_proxied};
use crate::service::{ApiRequest, ApiService};

/// Answers requests for resources from a registry.
#[derive(Clone)]
pub struct ResourceHandlers {
    registry: Arc<Registry>,
    /// `None` in a server without service accounts.
    tokens: Option<Arc<ServiceAccountTokens>>,
    /// The access to nodes, in a server that connects to them.
    nodes: Option<Arc<NodeAccess>>,
}

impl ResourceHandlers {
    /// Creates handlers that call a registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, tokens: None, nodes: None }
    }

    /// Adds the tokens of service accounts.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<ServiceAccountTokens>) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Adds the access to nodes.
    #[must_use]
    pub fn with_nodes(self, nodes: Arc<NodeAccess>) -> Self {
        Self { nodes: Some(nodes), ..self }
    }

    /// Calls the handler of a request. Each future is boxed separately, since a common type would have the size of the
    /// largest.
    fn dispatch<'r>(&'r self, request: Box<ApiRequest>, target: &'r Target) -> ResponseInProgress<'r> {
        let registry = &*self.registry;
        let takes_queries = target.subresource.is_none()
            && matches!(request.info.verb, RequestVerb::Resource(Verb::Get | Verb::List | Verb::Watch));
        if request.query.is_extended() && !takes_queries && !is_proxied(target) {
            return future::ready(Err(request.query.refusal_beyond_reads())).boxed();
        }
        // A review or create-only subresource in an empty namespace matches no object.
        if request.info.namespace_is_empty && target.stored().is_none() && request.info.verb == CREATE {
            return future::ready(Err(ApiError::BadRequest(NO_NAMESPACE.to_owned()))).boxed();
        }
        match target.subresource.as_ref().map(|below| below.handler) {
            None if target.resource.create_handler == Some(CreateHandler::Binding) => {
                return binding::handle(registry, target, request).boxed();
            }
            None | Some(SubresourceHandler::Confined) => {}
            Some(SubresourceHandler::Scale) => return scale::handle(registry, target, request).boxed(),
            Some(SubresourceHandler::Binding) => return binding::handle(registry, target, request).boxed(),
            Some(SubresourceHandler::Eviction) => return eviction::handle(registry, target, request).boxed(),
            Some(SubresourceHandler::Token) => {
                return token::create(registry, self.tokens.as_deref(), target, request).boxed();
            }
            Some(SubresourceHandler::Kubelet | SubresourceHandler::PodProxy | SubresourceHandler::Proxy) => {
                return remote::handle(registry, self.nodes.as_deref(), target, request).boxed();
            }
        }
        let RequestVerb::Resource(verb) = request.info.verb else {
            return future::ready(Err(ApiError::MethodNotAllowed)).boxed();
        };
        if verb.is_write()
            && let Err(error) = registry.check_published(target)
        {
            return future::ready(Err(error)).boxed();
        }
        match verb {
            Verb::Get => get::handle(registry, target, request).boxed(),
            Verb::List => list::handle(registry, target, request).boxed(),
            Verb::Watch => watch::handle(registry, target, request).boxed(),
            Verb::Create if target.stored().is_none() => {
                review::handle(registry, self.tokens.as_deref(), target, request).boxed()
            }
            Verb::Create => create::handle(registry, target, request).boxed(),
            Verb::Update => update::handle(registry, target, request).boxed(),
            Verb::Patch => patch::handle(registry, target, request).boxed(),
            Verb::Delete => delete::one(registry, target, request).boxed(),
            Verb::DeleteCollection => delete::collection(registry, target, request).boxed(),
        }
    }
}

/// The verb of posted objects.
const CREATE: RequestVerb = RequestVerb::Resource(Verb::Create);

/// A response in progress.
type ResponseInProgress<'r> = BoxFuture<'r, Result<Response<ResponseBody>, ApiError>>;

/// The caller of a write: with the field manager of the request's options, or else its program.
fn writing(caller: Caller, parts: &Parts, field_manager: Option<&str>, dry_run: bool) -> Caller {
    let user_agent = parts.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    caller.writing(field_manager, user_agent.as_deref().unwrap_or_default(), dry_run)
}

/// Records in the audit event that a version is deprecated, with the release that removes it if the warning names one.
fn note_deprecation(audit: &AuditRecord, warning: &str) {
    audit.annotate("k8s.io/deprecated", "true");
    if let Some(release) = removed_release(warning) {
        audit.annotate("k8s.io/removed-release", release.to_owned());
    }
}

/// The status code of a write that may have created the object.
fn status_of(written: &WriteResult) -> StatusCode {
    match written.effect {
        Effect::Created => StatusCode::CREATED,
        Effect::Updated | Effect::Removed => StatusCode::OK,
    }
}

impl ApiService for ResourceHandlers {
    fn call(&self, mut request: Box<ApiRequest>, target: Target) -> BoxFuture<'static, Response<ResponseBody>> {
        let handlers = self.clone();
        Box::pin(async move {
            let media = request.error_form;
            let warnings = Warnings::noted();
            let audit = request.caller.audit().clone();
            request.caller = request.caller.warned_in(warnings.clone());
            let begun = Instant::now();
            let answered = handlers.dispatch(request, &target).await;
            let mut response =
                answered.unwrap_or_else(|error| respond::error(&error.after_waiting(begun.elapsed()), media));
            respond::add_warnings(response.headers_mut(), &warnings.take());
            if let Some(time) = warnings.called_others() {
                response.extensions_mut().insert(WebhookTime(time));
            }
            if let Some(warning) = target.version.deprecation() {
                note_deprecation(&audit, warning);
                respond::add_first_warning(response.headers_mut(), warning);
            }
            response
        })
    }

    fn estimate(&self, info: &RequestInfo, parts: &Parts, query: &RequestQuery, target: &Target) -> Estimate {
        let about = self.estimate_objects(info, parts, query, target);
        match info.verb {
            RequestVerb::Resource(Verb::Create | Verb::Update | Verb::Patch) => {
                Estimate { effort: target.effort(), ..about }
            }
            _ => about,
        }
    }

    fn search(
        &self,
        target: Target,
        caller: Caller,
        query: SearchQuery,
        limit: usize,
    ) -> BoxFuture<'_, Result<Matches, ApiError>> {
        Box::pin(async move {
            let options = format!("resourceVersion=0&limit={limit}");
            let options = ListOptions::parse(&Query::parse(&options), false)?;
            self.registry.query_matches(&target, &caller, &options, &query).await
        })
    }
}

/// Returns true if a watch starts with events for the existing objects. Ignores selectors in the query.
fn begins_with_objects(query: &Query<'_>) -> bool {
    let is_from_nowhere = || matches!(query.get("resourceVersion"), None | Some("" | "0"));
    query.flag("sendInitialEvents").unwrap_or_else(is_from_nowhere)
}

impl ResourceHandlers {
    /// The caches' estimate of the objects of a request.
    fn estimate_objects(&self, info: &RequestInfo, parts: &Parts, query: &RequestQuery, target: &Target) -> Estimate {
        match info.verb {
            // Parsing such selectors would take too long here. The estimate for a request without selectors is the
            // maximum.
            RequestVerb::Resource(Verb::List | Verb::DeleteCollection | Verb::Watch) if has_long_query(parts) => {
                if info.verb == RequestVerb::Resource(Verb::Watch) && !begins_with_objects(query.pairs()) {
                    return Estimate::default();
                }
                let ends = query.pairs().get("limit").is_some() && !query.is_extended();
                self.registry.estimate_unread(target, ends)
            }
            RequestVerb::Resource(Verb::List) if query.is_extended() => {
                let (Ok(options), Ok(Some(extended))) = (query.list_options(), query.extended()) else {
                    return Estimate::default();
                };
                self.registry.estimate_query(target, options, extended)
            }
            RequestVerb::Resource(Verb::List | Verb::DeleteCollection) => {
                // An invalid query costs nothing, and the handler refuses it.
                query.list_options().map(|options| self.registry.estimate_list(target, options)).unwrap_or_default()
            }
            RequestVerb::Resource(Verb::Get) if is_copied(parts) && target.version.is_sole() => {
                Estimate::copied_object()
            }
            RequestVerb::Resource(Verb::Get | Verb::Update | Verb::Patch | Verb::Delete) => {
                self.registry.estimate_object(target)
            }
            // The body contains the name of the object.
            RequestVerb::Resource(Verb::Create) if target.resource.create_handler == Some(CreateHandler::Binding) => {
                Estimate::any_object()
            }
            RequestVerb::Resource(Verb::Watch) if query.is_extended() => {
                let (Ok(options), Ok(Some(extended))) = (query.list_options(), query.extended()) else {
                    return Estimate::default();
                };
                self.registry.estimate_query_watch(target, options, extended)
            }
            RequestVerb::Resource(Verb::Watch) => {
                query.list_options().map(|options| self.registry.estimate_watch(target, options)).unwrap_or_default()
            }
            RequestVerb::Resource(Verb::Create) | RequestVerb::Other(_) => Estimate::default(),
        }
    }
}
