//! The handlers of all paths that are no resource: health, version, metrics, discovery, OpenAPI.
//!
//! Each request gets the documents of one surface, so that its response is consistent when resources change meanwhile.
//! Documents are cached as bytes, which responses share. Rendering that would block a runtime thread for too long runs
//! once, on another thread.

mod announcement;
mod documentation;
mod openapi;
mod paths;
#[cfg(test)]
mod tests;
mod zpages;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{Response, StatusCode};
use keelson_discovery::{AggregatedForm, Document, Documents, etag_matches, root_paths};
use keelson_meta::{ApiError, Release};
use keelson_openapi::Descriptions;

use crate::body::{ResponseBody, empty};
use crate::diagnostics::Diagnostics;
use crate::health::Health;
use crate::metrics::{CLASSIC_CONTENT_TYPE, Metrics, OPEN_METRICS_CONTENT_TYPE, page_of};
use crate::negotiation::{
    DiscoveryForm, MEDIA_TYPES, MediaKind, MediaType, Serving, accepts_gzip, error_form, negotiate_discovery,
    negotiate_routed, routed, wants_pretty,
};
use crate::request_info::RequestInfo;
use crate::service::ApiRequest;
use crate::{respond, search, version};
pub use documentation::{Documentation, InheritedDocuments, OtherDocuments, OtherServers};
pub(crate) use paths::{DescribedResources, is_page};
use paths::{Page, has_method};
use zpages::ZPage;

/// The paths at `/` other than those of groups and versions.
const OTHER_PATHS: &[&str] = &[
    CONFIGURATION_PATH,
    announcement::PATH,
    search::PATH,
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    KEY_SET_PATH,
    "/readyz",
    "/version",
];

/// The path of the configuration of the token issuer (OpenID Connect Discovery 1.0, section 4).
const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// The path of the keys that verify tokens.
pub const KEY_SET_PATH: &str = "/openid/v1/jwks";
/// The `Cache-Control` of both, as upstream.
const ISSUER_CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The OpenID Connect documents of service account tokens, in JSON. Other programs verify tokens with them.
#[derive(Clone, Debug, Default)]
pub struct IssuerDocuments {
    /// The issuer, and the address of the keys.
    pub configuration: Bytes,
    /// The keys.
    pub key_set: Bytes,
}

/// The documents of the resources served at one moment.
#[derive(Debug)]
pub struct ServedDocuments {
    /// The discovery documents of this server.
    pub discovery: Documents,
    /// The discovery documents of all servers on the store. `None` if the others serve nothing more.
    pub of_all_servers: Option<Documents>,
    /// The OpenAPI documents.
    pub openapi: Descriptions,
}

impl ServedDocuments {
    /// The discovery documents of these servers.
    fn discovery_of(&self, serving: Serving) -> &Documents {
        match serving {
            Serving::Any => self.of_all_servers.as_ref().unwrap_or(&self.discovery),
            Serving::Own => &self.discovery,
        }
    }

    /// The documents for a form of discovery.
    fn discovery_in(&self, form: DiscoveryForm) -> &Documents {
        match form {
            DiscoveryForm::Legacy(_) => self.discovery_of(Serving::Any),
            DiscoveryForm::Aggregated(_, _, serving) => self.discovery_of(serving),
        }
    }
}

/// The metric families of a scrape.
#[derive(Clone, Copy)]
enum Scrape {
    /// All but those of health checks.
    All,
    /// Health checks.
    Health,
}

/// The handler of paths that are no resource.
pub struct Pages {
    health: Health,
    metrics: Arc<Metrics>,
    server_address: String,
    issuer: Box<dyn Fn() -> IssuerDocuments + Send + Sync>,
    diagnostics: Diagnostics,
    release: Release,
}

impl Pages {
    /// Creates the handler. `server_address` is the `host:port` in legacy discovery.
    pub fn new(health: Health, metrics: Arc<Metrics>, server_address: String) -> Self {
        let (issuer, diagnostics) = (Box::new(IssuerDocuments::default), Diagnostics::default());
        Self { health, metrics, server_address, issuer, diagnostics, release: Release::DEFAULT }
    }

    /// Sets the release that the server emulates.
    #[must_use]
    pub fn emulating(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Adds the documents of the token issuer. `issuer` is called for each request.
    #[must_use]
    pub fn with_issuer(mut self, issuer: impl Fn() -> IssuerDocuments + Send + Sync + 'static) -> Self {
        self.issuer = Box::new(issuer);
        self
    }

    /// Adds the sources of pages for diagnosis.
    #[must_use]
    pub fn with_diagnostics(mut self, diagnostics: Diagnostics) -> Self {
        self.diagnostics = diagnostics;
        self
    }

    /// Answers a request for a page below `/debug`.
    pub(crate) async fn diagnose(&self, request: ApiRequest) -> Response<ResponseBody> {
        self.diagnostics.answer(request).await
    }

    /// The paths at `/` other than those of groups and versions.
    fn other_paths(&self) -> Vec<&'static str> {
        let pages = [ZPage::Flags, ZPage::Status].into_iter();
        let pages = pages.filter(|page| page.is_served(&self.diagnostics)).map(ZPage::path);
        OTHER_PATHS.iter().copied().chain(pages).collect()
    }

    /// Answers a request for a path that is not a resource, from these documents.
    pub async fn answer(
        &self,
        documents: &Arc<ServedDocuments>,
        info: &RequestInfo,
        parts: &Parts,
    ) -> Response<ResponseBody> {
        // No page has a path that begins with two slashes.
        if info.path.starts_with("//") {
            return respond::no_such_page();
        }
        if let Some(answer) = self.health.answer(&info.path, parts.uri.query().unwrap_or_default()) {
            // The reference server sends the success of a single check without a media type.
            let is_one = info.path.trim_matches('/').contains('/');
            return match answer.code {
                StatusCode::OK if is_one => respond::text(answer.code, answer.text),
                code => respond::plain_text(code, answer.text),
            };
        }
        let Some(page) = Page::parse(&info.path) else { return respond::no_such_page() };
        let answer = if has_method(documents, &page, &parts.method) {
            self.page(&page, documents, parts).await
        } else {
            Err(ApiError::MethodNotAllowed)
        };
        answer.unwrap_or_else(|error| respond::error(&error, error_form(parts)))
    }

    async fn page(
        &self,
        page: &Page<'_>,
        documents: &Arc<ServedDocuments>,
        parts: &Parts,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let discovery = &documents.discovery;
        match page {
            Page::Root => {
                let paths = root_paths(discovery, &self.other_paths());
                Ok(respond::bytes(StatusCode::OK, MediaKind::Json.content_type(), paths))
            }
            Page::Core => {
                routed(&parts.headers, MEDIA_TYPES)?;
                let older = |documents: &Documents| documents.api_versions(&self.server_address);
                discover(documents, parts, Documents::aggregated_core, older)
            }
            Page::Groups => self.groups(documents, parts).await,
            Page::Group(group) => match documents.discovery_of(Serving::Any).group(group) {
                Some(document) => respond::object(StatusCode::OK, document, negotiate_routed(parts)?),
                None => Ok(respond::no_such_page()),
            },
            Page::GroupVersion(group, version) if announcement::is_at(group, version) => announcement::answer(parts),
            Page::GroupVersion(group, version) => {
                match documents.discovery_of(Serving::Any).resources(group, version) {
                    Some(document) => respond::object(StatusCode::OK, document, negotiate_routed(parts)?),
                    // Upstream's router does not know groups that are not built in.
                    None if discovery.is_builtin(group) => Err(ApiError::UnknownResource),
                    None => Ok(respond::no_such_page()),
                }
            }
            // Indented for every client, as the reference server does.
            Page::Version => {
                routed(&parts.headers, &["application/json"])?;
                let media = MediaType { kind: MediaKind::Json, pretty: true };
                Ok(respond::value(StatusCode::OK, &version::document(self.release), media))
            }
            Page::Diagnosis(page) => page.answer((&self.diagnostics, self.release), parts, &self.other_paths()),
            Page::Metrics => self.scrape(&parts.headers, Scrape::All),
            Page::HealthMetrics => self.scrape(&parts.headers, Scrape::Health),
            Page::OpenApi(description) => openapi::answer(documents, description, parts).await,
            Page::IssuerConfiguration => of_issuer(parts, &["application/json"], &(self.issuer)().configuration),
            Page::KeySet => of_issuer(parts, &["application/jwk-set+json"], &(self.issuer)().key_set),
        }
    }

    async fn groups(
        &self,
        documents: &Arc<ServedDocuments>,
        parts: &Parts,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let form = negotiate_discovery(&parts.headers)?;
        let shown = documents.discovery_in(form);
        let was_there = shown.has_aggregated_groups();
        let begun = Instant::now();
        prepare(documents, parts, form).await?;
        let answer = discover(documents, parts, Documents::aggregated_groups, Documents::group_list);
        if let DiscoveryForm::Aggregated(_, _, serving) = form {
            self.metrics.note_discovery(serving, (!was_there).then(|| begun.elapsed()));
        }
        answer
    }

    fn scrape(&self, headers: &HeaderMap, what: Scrape) -> Result<Response<ResponseBody>, ApiError> {
        let accepts =
            |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("application/openmetrics-text"));
        let is_open = headers.get_all(http::header::ACCEPT).iter().any(accepts);
        let content_type = if is_open { OPEN_METRICS_CONTENT_TYPE } else { CLASSIC_CONTENT_TYPE };
        let results = self.health.results.clone();
        let text = match what {
            Scrape::All if is_open => self.metrics.open_metrics(),
            Scrape::All => self.metrics.classic(),
            Scrape::Health => page_of(move || results.samples(), is_open),
        };
        let text = text.map_err(|error| ApiError::Internal(error.to_string()))?;
        Ok(respond::bytes(StatusCode::OK, content_type, text))
    }

    /// Pages of the built-in resources, for tests of the layers above.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::new(Health::default(), Arc::new(Metrics::new()), "192.0.2.2:6443".to_owned())
    }
}

#[cfg(test)]
impl ServedDocuments {
    /// The documents of the built-in resources.
    pub(crate) fn builtin() -> Arc<Self> {
        use keelson_openapi::{Fragment, SharedDefinitions, VersionDescription};
        let catalogue = keelson_builtin::catalogue();
        let versions = VersionDescription::all(catalogue);
        let shared = SharedDefinitions::new(keelson_schema::Schemas::builtin(), &versions, version::GIT_VERSION);
        let fragments: Vec<_> = versions.into_iter().map(Fragment::new).collect();
        let openapi = Descriptions::assemble(&shared, &fragments);
        let discovery = Documents::assemble(&keelson_discovery::fragments(catalogue, |_, _| true));
        Arc::new(Self { discovery, of_all_servers: None, openapi })
    }
}

/// Answers a discovery request in the form that the client prefers.
fn discover(
    documents: &ServedDocuments,
    parts: &Parts,
    aggregated: impl Fn(&Documents, AggregatedForm) -> &Document,
    legacy: impl Fn(&Documents) -> Bytes,
) -> Result<Response<ResponseBody>, ApiError> {
    let media = |kind| MediaType { kind, pretty: kind == MediaKind::Json && wants_pretty(parts) };
    let form = negotiate_discovery(&parts.headers)?;
    let documents = documents.discovery_in(form);
    match form {
        DiscoveryForm::Legacy(kind) => respond::object(StatusCode::OK, legacy(documents), media(kind)),
        DiscoveryForm::Aggregated(form, kind, _) => {
            with_etag(aggregated(documents, form), form, media(kind), &parts.headers)
        }
    }
}

/// Builds a large document of all groups outside the runtime's threads, unless it is cached.
async fn prepare(documents: &Arc<ServedDocuments>, parts: &Parts, form: DiscoveryForm) -> Result<(), ApiError> {
    let DiscoveryForm::Aggregated(form, _, serving) = form else { return Ok(()) };
    let gzip = accepts_gzip(&parts.headers);
    if documents.discovery_of(serving).is_ready(form, gzip) {
        return Ok(());
    }
    let documents = documents.clone();
    let make = move || {
        let document = documents.discovery_of(serving).aggregated_groups(form);
        if respond::is_compressed_discovery(gzip, document.json.len()) {
            document.compressed(respond::COMPRESS);
        }
    };
    let made = keelson_supervision::spawn_blocking(make).await;
    made.map_err(|error| ApiError::Internal(format!("the document could not be made: {error}")))
}

/// Answers with a document of the token issuer. 404 in a server that issues no tokens.
fn of_issuer(
    parts: &Parts,
    content_type: &'static [&'static str; 1],
    document: &Bytes,
) -> Result<Response<ResponseBody>, ApiError> {
    if document.is_empty() {
        return Ok(respond::no_such_page());
    }
    routed(&parts.headers, content_type)?;
    let mut response = respond::bytes(StatusCode::OK, content_type[0], document.clone());
    response.headers_mut().insert(CACHE_CONTROL, ISSUER_CACHE_CONTROL);
    Ok(response)
}

/// An aggregated document, or 304 if the client sends its tag.
fn with_etag(
    document: &Document,
    form: AggregatedForm,
    media: MediaType,
    headers: &HeaderMap,
) -> Result<Response<ResponseBody>, ApiError> {
    let known = |value: &HeaderValue| value.to_str().is_ok_and(|tags| etag_matches(tags, &document.etag));
    let mut response = if headers.get_all(IF_NONE_MATCH).iter().any(known) {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = if media == (MediaType { kind: MediaKind::Json, pretty: false }) {
            let content_type = media.kind.content_type();
            if respond::is_compressed_discovery(accepts_gzip(headers), document.json.len()) {
                respond::gzipped(StatusCode::OK, content_type, document.compressed(respond::COMPRESS))
            } else {
                respond::bytes(StatusCode::OK, content_type, document.json.clone())
            }
        } else {
            respond::object(StatusCode::OK, document.json.clone(), media)?
        };
        response.headers_mut().insert(CONTENT_TYPE, header(&form.content_type(media.kind.content_type()))?);
        response
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, header(&format!("\"{}\"", document.etag))?);
    headers.append(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    Ok(response)
}

fn header(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text).map_err(|error| ApiError::Internal(error.to_string()))
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("health", &self.health).finish_non_exhaustive()
    }
}
