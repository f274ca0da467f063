//! The main API server: the authorities that it trusts, and its namespaces.
//!
//! Watches follow both in the background. Requests use the last known state, so the server keeps answering while the
//! main server is unreachable.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use keelson_access::{AuthenticationInfo, PublishedAuthorities};
use keelson_meta::error::ConflictKind;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupResource, Object};
use keelson_supervision::warn_repeated;
use kube::Client;
use kube::api::{Api, PartialObjectMeta};
use kube::core::{ObjectMeta, Status};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt as _, watcher};

use crate::builder::StartError;

/// The config map with the main server's authentication information.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// The longest wait for the main server at start.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// The delay between two attempts.
const START_AGAIN: Duration = Duration::from_millis(500);
/// The time limit of a request.
const QUESTION_TIME: Duration = Duration::from_secs(10);

/// The main server.
#[derive(Clone)]
pub(crate) struct MainServer {
    client: Client,
}

impl MainServer {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request with a JSON body.
    ///
    /// # Errors
    /// 404 and 409 as from the main server, 503 for any other failure.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let bytes = body.map(keelson_codec::json::to_vec).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(bytes).map_err(|error| ApiError::Internal(error.to_string()))?;
        let failed = |why: String| ApiError::ServiceUnavailable {
            message: format!("the main API server: {why}"),
            retry_after_seconds: Some(1),
        };
        let asked = tokio::time::timeout(QUESTION_TIME, self.client.request_text(request)).await;
        match asked.map_err(|_| failed(format!("no answer in {QUESTION_TIME:?}")))? {
            Ok(text) => {
                let parsed = keelson_codec::json::parse(text.as_bytes());
                Ok(parsed.map_err(|_| failed("its answer is not JSON".to_owned()))?.value)
            }
            Err(kube::Error::Api(status)) => Err(refusal(&status, path).unwrap_or_else(|| failed(status.message))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Reads the main server's authentication information, and waits until it is published.
    pub(crate) async fn authentication(&self) -> Result<AuthenticationInfo, StartError> {
        let (namespace, name) = AUTHENTICATION;
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let mut last = "no answer".to_owned();
        let asking = async {
            loop {
                match tokio::time::timeout(QUESTION_TIME, maps.get(name)).await {
                    Ok(Ok(map)) => return read(map),
                    Ok(Err(error)) => last = error.to_string(),
                    Err(_) => last = format!("no answer in {QUESTION_TIME:?}"),
                }
                tokio::time::sleep(START_AGAIN).await;
            }
        };
        let answer = tokio::time::timeout(START_PATIENCE, asking).await;
        answer.map_err(|_| StartError::MainServer(format!("reading the config map {namespace}/{name}: {last}")))
    }

    /// Follows the main server's authentication information.
    pub(crate) async fn follow_authentication(self, authorities: Arc<PublishedAuthorities>) {
        let (namespace, name) = AUTHENTICATION;
        let maps = Api::<ConfigMap>::namespaced(self.client, namespace);
        let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = std::pin::pin!(watcher(maps, named).default_backoff().applied_objects());
        while let Some(change) = changes.next().await {
            match change {
                Ok(map) => authorities.publish(read(map)),
                Err(error) => {
                    warn_repeated!(""; %error, "watching the certificate authorities of the main server failed; retrying");
                }
            }
        }
    }
}

/// Converts a response of the main server to an object.
pub(crate) fn object(value: Value, path: &str) -> Result<Object, ApiError> {
    Object::from_value(value)
        .ok_or_else(|| ApiError::Internal(format!("the response of the main server at {path} is not an object")))
}

/// The main server's error for an object that is absent or has changed.
fn refusal(status: &Status, path: &str) -> Option<ApiError> {
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let resource = GroupResource::default();
    match (status.code, &*status.reason) {
        (404, _) => Some(ApiError::NotFound { resource, name }),
        (409, "AlreadyExists") => Some(ApiError::AlreadyExists { resource, name, is_going: false }),
        (409, _) => Some(ApiError::Conflict { resource, name, message: Box::new(ConflictKind::Modified) }),
        _ => None,
    }
}

fn read(map: ConfigMap) -> AuthenticationInfo {
    AuthenticationInfo::read(&map.data.unwrap_or_default())
}

/// The last known namespaces of the main server.
#[derive(Clone)]
pub(crate) struct Namespaces {
    api: Api<PartialObjectMeta<Namespace>>,
    seen: reflector::Store<PartialObjectMeta<Namespace>>,
}

/// The state of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceState {
    /// It does not exist.
    Missing,
    /// Objects may be created in it.
    Active,
    /// It is being deleted.
    Terminating,
}

impl Namespaces {
    /// The namespaces of a server, and the stream that follows them.
    pub(crate) fn follow(server: &MainServer) -> (Self, impl Stream<Item = watcher::Result<()>> + Send + use<>) {
        // Only the metadata is needed.
        let api = Api::<PartialObjectMeta<Namespace>>::all(server.client.clone());
        let (seen, writer) = reflector::store();
        let changes = watcher(api.clone(), watcher::Config::default())
            .default_backoff()
            .reflect(writer)
            .map(|change| change.map(drop));
        (Self { api, seen }, changes)
    }

    /// The state of a namespace. A namespace that is not in the cache is requested from the main server.
    ///
    /// # Errors
    /// 503 when the main server does not answer.
    pub(crate) async fn state(&self, name: &str) -> Result<NamespaceState, ApiError> {
        let state = |metadata: &ObjectMeta| match metadata.deletion_timestamp {
            Some(_) => NamespaceState::Terminating,
            None => NamespaceState::Active,
        };
        if let Some(seen) = self.seen.get(&ObjectRef::new(name))
            && state(&seen.metadata) == NamespaceState::Active
        {
            return Ok(NamespaceState::Active);
        }
        // Another client may have created the object, or deleted and recreated it, a moment ago.
        let asked = tokio::time::timeout(QUESTION_TIME, self.api.get_opt(name)).await;
        let unavailable = |cause: String| {
            warn_repeated!(""; namespace = name, cause, "reading a namespace from the main server failed");
            ApiError::ServiceUnavailable {
                message: format!("reading the namespace {name:?} from the main server failed, please try again later"),
                retry_after_seconds: Some(1),
            }
        };
        let found = asked.map_err(|_| unavailable("no answer".to_owned()))?;
        let found = found.map_err(|error| unavailable(error.to_string()))?;
        Ok(found.map_or(NamespaceState::Missing, |found| state(&found.metadata)))
    }
}
