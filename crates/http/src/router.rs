//! The router: finds the handler of a request.
//!
//! For resource paths it checks in the surface that the resource, version and subresource exist (404), that the path
//! fits their scope (404), and that they have the verb (405). Handlers need not check this again. Then the
//! [`ApiService`] gets the request with its target. [`crate::pages`] answers all other paths.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Response};
use keelson_meta::ApiError;
use keelson_registry::{Estimate, ServedApis, Target};
use keelson_resources::Verb;

use crate::body::ResponseBody;
use crate::diagnostics::Diagnostics;
use crate::pages::{DescribedResources, Pages, ServedDocuments, is_page};
use crate::request_info::{RequestInfo, RequestVerb};
use crate::request_query::RequestQuery;
use crate::service::{ApiRequest, ApiService};
use crate::{respond, search};

/// Returns the current surface.
type ServedApisSource = Box<dyn Fn() -> Arc<ServedApis> + Send + Sync>;

/// Returns the documents of a surface.
type DocumentsSource = Box<dyn Fn(Arc<ServedApis>) -> BoxFuture<'static, Arc<ServedDocuments>> + Send + Sync>;

/// The stored CustomResourceDefinitions, which this server receives with a delay.
pub trait StoredDefinitions: Send + Sync {
    /// Returns true if a custom resource is served by the newest definition in this server's cache.
    fn is_current(&self, target: &Target) -> bool;

    /// Waits, for a limited time, until a resource is served by its current definition.
    fn catch_up(&self, group: &str, plural: &str) -> BoxFuture<'static, ()>;

    /// Waits, for a limited time, until the resources of a group are served by their current definitions.
    fn catch_up_group(&self, group: &str) -> BoxFuture<'static, ()>;

    /// Waits, for a limited time, until all resources are served by the definitions in this server's cache. Makes no
    /// store request.
    fn catch_up_with_cache(&self) -> BoxFuture<'static, ()>;
}

/// Finds the handler of each request.
pub struct Router {
    surface: ServedApisSource,
    definitions: Option<Box<dyn StoredDefinitions>>,
    documents: DocumentsSource,
    pages: Pages,
    service: Arc<dyn ApiService>,
}

impl Router {
    /// Routes resources to `service` and all other paths to `pages`. `surface` returns the current surface.
    pub fn new(
        surface: impl Fn() -> Arc<ServedApis> + Send + Sync + 'static,
        documents: impl Fn(Arc<ServedApis>) -> BoxFuture<'static, Arc<ServedDocuments>> + Send + Sync + 'static,
        pages: Pages,
        service: Arc<dyn ApiService>,
    ) -> Self {
        Self { surface: Box::new(surface), definitions: None, documents: Box::new(documents), pages, service }
    }

    /// Adds the stored definitions, so that requests for custom resources use the newest definition.
    #[must_use]
    pub fn with_definitions(mut self, definitions: impl StoredDefinitions + 'static) -> Self {
        self.definitions = Some(Box::new(definitions));
        self
    }

    /// Answers a request that passed the filters. `target` is its [`target`](Self::target).
    pub async fn route(&self, request: Box<ApiRequest>, target: Option<Target>) -> Response<ResponseBody> {
        if !request.info.is_resource_request && Diagnostics::may_serve(&request.info.path) {
            // Boxed, since few requests come here, and the others would carry the size of this future too.
            return Box::pin(self.pages.diagnose(*request)).await;
        }
        let ApiRequest { info, parts, query, caller, error_form, .. } = &*request;
        if info.path == search::PATH {
            // Boxed for the same reason.
            let answer = Box::pin(search::answer(&(self.surface)(), &*self.service, (parts, query, caller))).await;
            return answer.unwrap_or_else(|error| respond::error(&error, *error_form));
        }
        if !info.is_resource_request {
            self.catch_up_described(info).await;
            let documents = (self.documents)((self.surface)()).await;
            if query.is_extended() && is_page(&documents, &info.path) {
                return respond::error(&query.refusal_beyond_reads(), *error_form);
            }
            return self.pages.answer(&documents, info, parts).await;
        }
        let target = self.newest_target(info, target).await;
        match check(info, target, &parts.method) {
            Ok(target) => self.service.call(request, target).await,
            Err(error) => match self.refuse_custom(info) {
                None => respond::error(&error, *error_form),
                Some(Refusal::NoSuchPage) => respond::no_such_page(),
                Some(Refusal::Error(error, deprecation)) => {
                    let mut response = respond::error(&error, *error_form);
                    if let Some(warning) = deprecation {
                        respond::add_first_warning(response.headers_mut(), &warning);
                    }
                    response
                }
            },
        }
    }

    /// The target of a request in the current surface. A custom resource may have changed since `target` was found.
    /// Waits for its newest definition if this server does not serve that yet.
    async fn newest_target(&self, info: &RequestInfo, target: Option<Target>) -> Option<Target> {
        let Some(definitions) = &self.definitions else { return target };
        if target.as_ref().is_some_and(|target| target.resource.is_builtin()) {
            return target;
        }
        // ORDER: the surface is read before the comparison with the definitions, so that it is not older than they are.
        let surface = (self.surface)();
        let is_current = match surface.lookup(&info.group, &info.version, &info.resource) {
            Some(served) => definitions.is_current(&served),
            None => info.group.is_empty(),
        };
        if !is_current {
            definitions.catch_up(&info.group, &info.resource).await;
        }
        match target {
            Some(target) if is_current && target.surface.generation() == surface.generation() => Some(target),
            _ => self.target(info),
        }
    }

    /// For a request for a discovery or OpenAPI document, waits until the described resources are served by their
    /// current definitions.
    async fn catch_up_described(&self, info: &RequestInfo) {
        let Some(definitions) = &self.definitions else { return };
        match DescribedResources::at(&info.path) {
            DescribedResources::Nothing => {}
            DescribedResources::Group(group) if !(self.surface)().has_builtin_group(group) => {
                definitions.catch_up_group(group).await;
            }
            DescribedResources::Group(_) | DescribedResources::Everything => definitions.catch_up_with_cache().await,
        }
    }

    /// Returns true if the resource of a request is served in its version.
    pub fn serves(&self, info: &RequestInfo) -> bool {
        (self.surface)().lookup(&info.group, &info.version, &info.resource).is_some()
    }

    /// The error for an unknown path or verb of a group that is not built in. Upstream answers these outside its
    /// router.
    fn refuse_custom(&self, info: &RequestInfo) -> Option<Refusal> {
        let surface = (self.surface)();
        if surface.has_builtin_group(&info.group) {
            return None;
        }
        let Some(target) = surface.lookup(&info.group, &info.version, &info.resource) else {
            return Some(Refusal::NoSuchPage);
        };
        let in_namespace = info.namespace.is_some();
        let spans = matches!(info.verb, RequestVerb::Resource(Verb::List | Verb::Watch));
        if in_namespace != target.is_namespaced() && !(target.is_namespaced() && spans) {
            return Some(Refusal::NoSuchPage);
        }
        let below = info.subresource.as_deref()?;
        let resource = target.group_resource();
        let error = match target.version.subresource(below) {
            Some(_) if info.rest.is_empty() => {
                ApiError::MethodNotSupported { resource, verb: info.verb.as_str().to_owned() }
            }
            Some(_) | None => ApiError::NotFound { resource, name: info.name.clone().unwrap_or_default() },
        };
        Some(Refusal::Error(error, target.version.deprecation().map(str::to_owned)))
    }

    /// The service's estimate of the objects of a request. `target` is its [`target`](Self::target).
    pub fn estimate(&self, info: &RequestInfo, parts: &Parts, query: &RequestQuery, target: &Target) -> Estimate {
        self.service.estimate(info, parts, query, target)
    }

    /// The target of a request for a served resource.
    pub fn target(&self, info: &RequestInfo) -> Option<Target> {
        if !info.is_resource_request {
            return None;
        }
        let mut target = (self.surface)().lookup(&info.group, &info.version, &info.resource)?;
        if let Some(name) = &info.subresource {
            target.subresource = Some(target.version.subresource(name)?.clone());
        }
        target.name = info.name.clone().filter(|_| info.name_in_path);
        // In the path of a Namespace object the name is parsed as a namespace too.
        target.namespace = info.namespace.clone().filter(|_| target.is_namespaced());
        (info.rest.is_empty() || is_proxied(&target)).then_some(target)
    }
}

/// The error of a request without a handler.
enum Refusal {
    /// The path does not exist.
    NoSuchPage,
    /// An error of the resource, and the warning of its version if that is deprecated.
    Error(ApiError, Option<String>),
}

/// Returns true for a proxy subresource. The remote server defines its methods, its query parameters and the path after
/// it.
pub(crate) fn is_proxied(target: &Target) -> bool {
    target.subresource.as_ref().is_some_and(|below| below.takes_path())
}

/// Returns the target of a request if its path exists and has the verb.
fn check(info: &RequestInfo, target: Option<Target>, method: &Method) -> Result<Target, ApiError> {
    let target = target.ok_or(ApiError::UnknownResource)?;
    let verbs = target.subresource.as_ref().map_or(&target.version.verbs, |subresource| &subresource.verbs);
    let (is_builtin, is_namespaced) = (target.resource.is_builtin(), target.resource.is_namespaced());
    let scope = match (is_namespaced, &info.namespace) {
        (true, Some(_)) => PathScope::Own,
        // Upstream's routes of built-in resources accept any segment as the namespace, even an empty one.
        (true, None) if info.namespace_is_empty && is_builtin => PathScope::EmptyNamespace,
        (true, None) => PathScope::AllNamespaces,
        (false, None) if info.namespace_is_empty && is_builtin => return Err(ApiError::UnknownResource),
        // As above.
        (false, Some(_)) if !target.resource.is_namespaces() => return Err(ApiError::UnknownResource),
        (false, _) => PathScope::Own,
    };
    if scope == PathScope::AllNamespaces && info.name_in_path {
        return Err(ApiError::UnknownResource);
    }
    let is_proxied = is_proxied(&target);
    let fits = match *method {
        Method::OPTIONS if is_proxied => info.name_in_path && !info.watch_path,
        Method::HEAD if !is_proxied => false,
        _ => info.verb.served().is_some_and(|verb| verbs.contains(&verb)) && verb_fits(info, scope),
    };
    if !fits {
        return Err(ApiError::MethodNotAllowed);
    }
    if scope == PathScope::EmptyNamespace && info.name_in_path {
        return Err(ApiError::BadRequest(NO_NAMESPACE.to_owned()));
    }
    Ok(target)
}

/// The error text for an object in an empty namespace.
pub(crate) const NO_NAMESPACE: &str = "Namespace parameter required.";

/// The namespaces that a path covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathScope {
    /// The whole cluster of a cluster-scoped resource, or one namespace.
    Own,
    /// All namespaces of a namespaced resource. Only reads are permitted.
    AllNamespaces,
    /// An empty namespace. Collections are those of all namespaces, and no object has such a path.
    EmptyNamespace,
}

/// Returns true if the verb fits the path: an object, a collection, or all namespaces.
fn verb_fits(info: &RequestInfo, scope: PathScope) -> bool {
    match &info.verb {
        RequestVerb::Resource(Verb::List | Verb::Watch) => true,
        RequestVerb::Resource(Verb::Get | Verb::Update | Verb::Patch | Verb::Delete) => {
            info.name_in_path && !info.watch_path
        }
        RequestVerb::Resource(Verb::Create) => {
            !info.watch_path && scope != PathScope::AllNamespaces && info.name_in_path == info.subresource.is_some()
        }
        RequestVerb::Resource(Verb::DeleteCollection) => !info.watch_path && scope != PathScope::AllNamespaces,
        RequestVerb::Other(_) => false,
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("pages", &self.pages).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl ApiService for Nothing {
        fn call(&self, _: Box<ApiRequest>, _: Target) -> BoxFuture<'static, Response<ResponseBody>> {
            Box::pin(async { respond::no_such_page() })
        }
    }

    fn check(method: &str, uri: &str, expect: u16) {
        let surface = keelson_builtin::surface();
        let documents = ServedDocuments::builtin();
        let router = Router::new(
            move || surface.clone(),
            move |_| Box::pin(std::future::ready(documents.clone())),
            Pages::for_tests(),
            Arc::new(Nothing),
        );
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::parse(&method, &uri.parse().unwrap());
        let checked = super::check(&info, router.target(&info), &method);
        let code = checked.map_or_else(|error| error.code(), |_| 200);
        assert_eq!(code, expect, "{method} {uri}");
    }

    #[test]
    fn served_requests_pass() {
        check("GET", "/api/v1/pods", 200);
        check("GET", "/api/v1/pods?watch=1", 200);
        check("GET", "/api/v1/watch/namespaces/a/pods/p", 200);
        check("GET", "/api/v1/namespaces/a", 200);
        check("GET", "/api/v1/namespaces", 200);
        check("PUT", "/api/v1/namespaces/a/finalize", 200);
        check("POST", "/api/v1/namespaces/a/pods", 200);
        check("POST", "/api/v1/namespaces/a/pods/p/eviction", 200);
        check("DELETE", "/api/v1/namespaces/a/pods", 200);
        check("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", 200);
        check("GET", "/api/v1/namespaces/a/services/s:80/proxy/x/y", 200);
        for method in ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
            check(method, "/api/v1/namespaces/a/services/s:80/proxy/x/y", 200);
        }
    }

    #[test]
    fn an_empty_namespace_is_all_of_them_and_none_of_an_object() {
        check("GET", "/api/v1/namespaces//pods", 200);
        check("GET", "/api/v1/namespaces//pods?watch=1", 200);
        check("GET", "/api/v1/watch/namespaces//pods", 200);
        check("GET", "/apis/apps/v1/namespaces//deployments", 200);
        check("POST", "/api/v1/namespaces//pods", 200);
        check("DELETE", "/api/v1/namespaces//pods", 200);
        check("GET", "/api/v1/namespaces//pods/p", 400);
        check("PUT", "/api/v1/namespaces//pods/p/status", 400);
        check("POST", "/api/v1/namespaces//pods/p/eviction", 400);
        check("PATCH", "/api/v1/namespaces//pods", 405);
        check("GET", "/api/v1/namespaces//nodes", 404);
        check("GET", "/api/v1/namespaces//nothings", 404);
    }

    #[test]
    fn unknown_paths_are_not_found() {
        check("GET", "/api/v1/nothings", 404);
        check("GET", "/api/v9/pods", 404);
        check("GET", "/api/v1/namespaces/a/nodes", 404);
        check("GET", "/api/v1/pods/p", 404);
        check("GET", "/api/v1/namespaces/a/pods/p/nope", 404);
        check("GET", "/api/v1/namespaces/a/pods/p/status/x", 404);
        check("GET", "/api/v1/namespaces/a/pods/p/log/x", 404);
    }

    #[test]
    fn unsupported_verbs_are_not_allowed() {
        check("PUT", "/api/v1/namespaces/a/configmaps", 405);
        check("PATCH", "/api/v1/namespaces/a/configmaps", 405);
        check("POST", "/api/v1/pods", 405);
        check("DELETE", "/api/v1/pods", 405);
        check("POST", "/api/v1/namespaces/a/pods/p", 405);
        check("HEAD", "/api/v1/pods", 405);
        check("GET", "/api/v1/namespaces/a/pods/p/binding", 405);
        check("DELETE", "/api/v1/namespaces", 405);
        check("POST", "/api/v1/watch/namespaces/a/pods", 405);
    }
}
