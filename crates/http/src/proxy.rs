//! Requests that an aggregated server answers: passed on as they are, and its answers passed back.
//!
//! They come here after the filters, so that whoever asks is known and may ask. The server is told who that is, in header fields that
//! nobody else can set (`headers.rs`); paths and queries are written as upstream's proxy writes them (`target.rs`). Bodies are streams in
//! both directions (`answer.rs`), and so is what follows an upgrade (`tunnel.rs`). Which servers there are is told by
//! [`RemoteServers`]; connections to them, and their bounds, are `keelson_outbound`'s.

mod answer;
mod headers;
mod target;
mod tunnel;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use keelson_outbound::{PassError, Upstream};

pub(crate) use self::answer::PassedOn;
pub use self::headers::BelievedFields;
use crate::body::ResponseBody;
use crate::respond;
use crate::service::ApiRequest;

/// How long a server may take to tell its resources, as upstream has it.
const DISCOVERY_TIME: Duration = Duration::from_secs(5);

/// Whoever knows which versions of groups other servers serve.
pub trait RemoteServers: Send + Sync {
    /// Who serves a version in this server's place; `None` for what is served here, or nowhere.
    fn find(&self, group: &str, version: &str) -> Option<Remote>;

    /// The header fields that servers believe now: those of this server, and all that the servers on its store publish.
    fn believed(&self) -> Arc<BelievedFields>;
}

/// A server that serves a version of a group.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The way to it.
    pub upstream: Arc<Upstream>,
    /// Whether requests are passed on to it.
    pub is_available: bool,
}

/// The address that a request comes from, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Passes requests on.
pub(crate) struct Proxy {
    servers: Box<dyn RemoteServers>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("believed", &self.servers.believed()).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Passes requests on to these servers.
    pub(crate) fn new(servers: Box<dyn RemoteServers>) -> Self {
        Self { servers }
    }

    /// Who answers requests for a path.
    pub(crate) fn remote(&self, path: &str) -> Option<Remote> {
        let (group, version, _) = group_version(path)?;
        self.servers.find(group, version)
    }

    /// Passes a request on that passed the filters.
    pub(crate) async fn pass_on(&self, remote: Remote, request: Box<ApiRequest>) -> Response<ResponseBody> {
        let Remote { upstream, is_available } = remote;
        if !is_available {
            return unavailable();
        }
        let ApiRequest { info, mut parts, body, caller, stopping, .. } = *request;
        let is_discovery = group_version(&info.path).is_some_and(|(_, _, rest)| rest.is_empty());
        let upgrade = tunnel::wanted(&mut parts);
        let held = parts.extensions.remove::<tunnel::Held>();
        let Some(passed) = self.passed(&parts, &upstream, caller.user(), upgrade.is_some()) else {
            return respond::text_error(StatusCode::INTERNAL_SERVER_ERROR, "the request can't be passed on\n");
        };
        let body = (!body.is_empty()).then(|| body.boxed_unsync());
        if let Some(client) = upgrade {
            return match upstream.upgrade(passed, body).await {
                Ok((answer, place)) => tunnel::open(client, answer, (place, held), stopping),
                Err(PassError::Dial(why)) => unreachable(format!("error dialing backend: {why}")),
                Err(PassError::Failed(why)) => unreachable(why),
                Err(error) => refused(error),
            };
        }
        let sent = upstream.pass(passed, body);
        let answer = if is_discovery {
            let late = |_| Err(PassError::Failed("context deadline exceeded".to_owned()));
            tokio::time::timeout(DISCOVERY_TIME, sent).await.unwrap_or_else(late)
        } else {
            sent.await
        };
        match answer {
            Ok((answer, place)) => answer::pass_back(answer, place, info.is_long_running().then_some(stopping)),
            Err(error) => refused(error),
        }
    }

    /// The head of the request that is passed on; `None` where that can't be written.
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
            headers::say_whence(&mut headers, upstream.authority(), &target::cleaned(&path))?;
        }
        headers::identify(&mut headers, user)?;
        let (mut passed, ()) = Request::new(()).into_parts();
        passed.method.clone_from(&parts.method);
        passed.uri = uri;
        passed.headers = headers;
        Some(passed)
    }
}

/// The group and the version that a path names, and what follows them: nothing where the path is theirs, with or without a slash.
fn group_version(path: &str) -> Option<(&str, &str, &str)> {
    let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
    let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
    (!group.is_empty() && !version.is_empty()).then_some((group, version, rest))
}

fn unavailable() -> Response<ResponseBody> {
    respond::text_error(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

fn unreachable(why: String) -> Response<ResponseBody> {
    respond::text_error(StatusCode::SERVICE_UNAVAILABLE, why + "\n")
}

fn refused(error: PassError) -> Response<ResponseBody> {
    match error {
        PassError::Unresolved(why) => {
            tracing::debug!(why, "an aggregated server can't be found");
            unavailable()
        }
        // It is over when others are, and nobody knows when that is.
        PassError::Busy(_) => respond::overloaded(1),
        PassError::Dial(why) | PassError::Failed(why) => unreachable(format!("error trying to reach service: {why}")),
    }
}

pub(crate) use self::tunnel::Held;

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
