//! Forwards requests to aggregated servers and to peers on the same store, and returns their responses.
//!
//! The filters come first, so the user is authenticated and authorized. The other server gets the user in header fields
//! that clients cannot set (`headers.rs`). Paths and queries are written as upstream's proxy writes them (`target.rs`).
//! Bodies are streamed in both directions (`answer.rs`), and so are upgraded connections (`tunnel.rs`).
//! [`RemoteServers`] finds the servers, and `keelson_outbound` has the connections and their limits.

mod answer;
mod headers;
mod pass_through;
mod target;
mod tunnel;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use keelson_meta::go_format::quote;
use keelson_outbound::{ForwardError, PEER_PROXIED, Upstream};
use keelson_supervision::TaskGroup;
use tokio::time::error::Elapsed;

pub(crate) use self::answer::{Forwarded, pass};
pub use self::headers::{CLUSTER_TOKEN_PREFIX, IdentityHeaders};
pub(crate) use self::headers::{
    FORWARDED_FOR, FORWARDED_URI, TOKEN_PROTOCOL, forward, keep as keep_fields, keep_upgrade, list,
};
pub use self::pass_through::{Impersonator, OwnToken, PassThrough};
pub(crate) use self::target::escaped_path;
use crate::body::ResponseBody;
use crate::request_info::RequestInfo;
use crate::respond;
use crate::service::ApiRequest;

/// The timeout of discovery requests, as upstream.
const DISCOVERY_TIME: Duration = Duration::from_secs(5);

/// The timeout of the response to an upgrade request.
const UPGRADE_TIME: Duration = Duration::from_secs(60);

/// The group versions and resources that other servers serve.
pub trait RemoteServers: Send + Sync {
    /// The server that answers for a version instead of this one. `None` for local and unknown versions.
    fn find(&self, group: &str, version: &str) -> Option<Remote>;

    /// As [`find`](Self::find), but waits until this server has received all earlier writes of every server.
    fn find_newest<'s>(&'s self, group: &'s str, version: &'s str) -> BoxFuture<'s, Option<Remote>>;

    /// A peer on the same store that serves a resource which this server does not.
    fn find_peer(&self, _group: &str, _version: &str, _resource: &str) -> Option<Arc<Upstream>> {
        None
    }

    /// Records the status of a peer's response to a request for such a resource, or of a failure to reach it.
    fn note_peer_answer(&self, _group: &str, _version: &str, _resource: &str, _code: StatusCode) {}

    /// The header fields that servers trust now: those of this server, and those that all servers on the store publish.
    fn believed(&self) -> Arc<IdentityHeaders>;
}

/// A server that answers requests instead of this one.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The connections to it.
    pub upstream: Arc<Upstream>,
    /// True if requests are forwarded to it.
    pub is_available: bool,
    /// True if it is on the same store, and forwards requests too.
    pub is_peer: bool,
}

/// The value of the header field that forbids a peer to forward the request again.
const PROXIED: HeaderValue = HeaderValue::from_static("true");

/// The client's address, in the extensions of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Forwards requests.
pub(crate) struct Proxy {
    servers: Box<dyn RemoteServers>,
    /// The tasks of upgraded connections.
    tasks: TaskGroup,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("believed", &self.servers.believed()).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Forwards requests to these servers.
    pub(crate) fn new(servers: Box<dyn RemoteServers>, tasks: TaskGroup) -> Self {
        Self { servers, tasks }
    }

    /// The server that answers for a path instead of this one.
    pub(crate) fn remote(&self, path: &str) -> Option<Remote> {
        let (group, version, _) = group_version(path)?;
        self.servers.find(group, version)
    }

    /// The peer that answers a request for a resource that this server does not serve. `None` if a peer forwarded the
    /// request.
    pub(crate) fn peer(&self, info: &RequestInfo, headers: &HeaderMap) -> Option<Remote> {
        if headers.get(PEER_PROXIED) == Some(&PROXIED) {
            return None;
        }
        let upstream = self.servers.find_peer(&info.group, &info.version, &info.resource)?;
        Some(Remote { upstream, is_available: true, is_peer: true })
    }

    /// Returns true if the path names a group version, so that another server may serve it.
    pub(crate) fn may_be_elsewhere(path: &str) -> bool {
        group_version(path).is_some()
    }

    /// The server for a path, after this server has received all earlier writes of every server.
    pub(crate) async fn newest_remote(&self, path: &str) -> Option<Remote> {
        let (group, version, _) = group_version(path)?;
        self.servers.find_newest(group, version).await
    }

    /// Forwards a request that passed the filters.
    pub(crate) async fn pass_on(&self, mut remote: Remote, request: Box<ApiRequest>) -> Response<ResponseBody> {
        if !remote.is_available {
            // Another server may have found it available already, and reported that to a client.
            match self.newest_remote(&request.info.path).await {
                Some(newest) if newest.is_available => remote = newest,
                Some(_) | None => return unavailable(),
            }
        }
        if !remote.is_peer {
            return self.send(remote, request).await;
        }
        let RequestInfo { group, version, resource, .. } = request.info.clone();
        let response = self.send(remote, request).await;
        self.servers.note_peer_answer(&group, &version, &resource, response.status());
        response
    }

    async fn send(&self, Remote { upstream, is_peer, .. }: Remote, request: Box<ApiRequest>) -> Response<ResponseBody> {
        let ApiRequest { info, mut parts, body, caller, stopping, .. } = *request;
        let is_discovery = group_version(&info.path).is_some_and(|(_, _, rest)| rest.is_empty());
        if headers::goes_in_circles(&parts.headers) {
            return respond::plain_text(StatusCode::LOOP_DETECTED, "the request is passed on in a circle\n");
        }
        let upgrade = tunnel::wanted(&mut parts);
        let held = parts.extensions.remove::<tunnel::HeldValue>();
        let Some(mut passed) = self.passed(&parts, &upstream, caller.user(), upgrade.is_some()) else {
            return respond::plain_text(StatusCode::INTERNAL_SERVER_ERROR, "the request can't be passed on\n");
        };
        if is_peer {
            passed.headers.insert(PEER_PROXIED, PROXIED);
        }
        let body = (!body.is_empty()).then(|| body.boxed_unsync());
        if let Some(client) = upgrade {
            let answer = tokio::time::timeout(UPGRADE_TIME, upstream.upgrade(passed, body)).await;
            return match answer.unwrap_or_else(late) {
                Ok((answer, permit)) => tunnel::open(client, answer, (permit, held), &self.tasks),
                Err(ForwardError::Dial(why)) => unreachable(format!("error dialing backend: {why}")),
                Err(ForwardError::Failed(why)) => unreachable(why),
                Err(error) => refused(error),
            };
        }
        let answer = if info.is_long_running() {
            upstream.forward_shared(passed, body).await
        } else if is_discovery {
            tokio::time::timeout(DISCOVERY_TIME, upstream.forward(passed, body)).await.unwrap_or_else(late)
        } else {
            upstream.forward(passed, body).await
        };
        match answer {
            Ok((answer, _)) if answer.status().is_informational() => {
                let protocol = answer.headers().get(UPGRADE).and_then(|protocol| protocol.to_str().ok());
                let protocol = quote(protocol.unwrap_or_default());
                let why = format!("backend tried to switch protocol {protocol} when \"\" was requested");
                refused(ForwardError::Failed(why))
            }
            Ok((answer, permit)) => {
                answer::pass_back(answer, permit, is_peer, info.is_long_running().then_some(stopping))
            }
            Err(error) => refused(error),
        }
    }

    /// The head of the forwarded request. `None` if its path or fields are invalid.
    fn passed(
        &self,
        parts: &Parts,
        upstream: &Upstream,
        user: &keelson_access::User,
        is_upgrade: bool,
    ) -> Option<Parts> {
        let path = target::path(parts.uri.path());
        let query = target::query(parts.uri.query().unwrap_or_default());
        let mark = if query.is_empty() { "" } else { "?" };
        let uri: Uri = format!("https://{}{path}{mark}{query}", upstream.authority()).parse().ok()?;
        let mut headers = self.servers.believed().cleared(&parts.headers);
        headers::forward(&mut headers, parts.extensions.get::<ClientAddress>().map(|address| address.0))?;
        if is_upgrade {
            headers::keep_upgrade(&mut headers, &parts.headers);
        } else {
            headers::add_forwarded_headers(&mut headers, upstream.authority(), &target::cleaned(&path))?;
        }
        headers::identify(&mut headers, user)?;
        let (mut passed, ()) = Request::new(()).into_parts();
        passed.method.clone_from(&parts.method);
        passed.uri = uri;
        passed.headers = headers;
        Some(passed)
    }
}

/// The error when a server takes too long.
fn late<T>(_: Elapsed) -> Result<T, ForwardError> {
    Err(ForwardError::Failed("context deadline exceeded".to_owned()))
}

/// The group and version in a path, and the rest of the path. The rest is empty if the path ends there, with or without
/// a slash.
fn group_version(path: &str) -> Option<(&str, &str, &str)> {
    let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
    let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
    (!group.is_empty() && !version.is_empty()).then_some((group, version, rest))
}

fn unavailable() -> Response<ResponseBody> {
    respond::plain_text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

fn unreachable(why: String) -> Response<ResponseBody> {
    respond::plain_text(StatusCode::SERVICE_UNAVAILABLE, why + "\n")
}

fn refused(error: ForwardError) -> Response<ResponseBody> {
    match error {
        ForwardError::Unresolved(why) => {
            tracing::debug!(why, "an aggregated server can't be found");
            unavailable()
        }
        // The end of the other requests is unknown, so the client retries after one second.
        ForwardError::Busy(_) => respond::overloaded(1),
        ForwardError::Dial(why) | ForwardError::Failed(why) => {
            unreachable(format!("error trying to reach service: {why}"))
        }
    }
}

pub(crate) use self::tunnel::{
    HeldValue, counted, idle, open as begun_tunnel, spawn_session, wanted as wanted_upgrade,
};

#[cfg(test)]
mod tests {
    use super::group_version;

    #[test]
    fn a_path_names_a_group_and_a_version() {
        let check =
            |path: &str, expected: Option<(&str, &str, &str)>| assert_eq!(group_version(path), expected, "{path}");
        check("/apis/g/v1", Some(("g", "v1", "")));
        check("/apis/g/v1/", Some(("g", "v1", "")));
        check("/apis/g/v1/namespaces//x", Some(("g", "v1", "namespaces//x")));
        for other in ["/apis/g", "/apis/g/", "/apis", "/apis//v1", "//apis/g/v1", "/api/v1/pods", "/"] {
            check(other, None);
        }
    }
}
