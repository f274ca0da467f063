//! Passes requests through to one server with the client's own credentials, for a server that stands in front of it.
//!
//! The other server authenticates and authorizes the request, so no filter of this server applies. Path, query and body
//! are passed as they are. Unlike [`super::Proxy`], which vouches for its users, this adds no credential of its own: the
//! connections present no client certificate. The exception are users of client certificates, if an [`Impersonator`] is
//! set. Their requests use separate connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use keelson_access::User;
use keelson_meta::go_format::quote;
use keelson_outbound::{ForwardError, Upstream};
use keelson_supervision::TaskGroup;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use super::answer::pass_whole;
use super::headers::{
    IMPERSONATION, IdentityHeaders, TOKEN_PROTOCOL, forward, goes_in_circles, impersonate, keep_upgrade, list,
};
use super::{ClientAddress, UPGRADE_TIME, late, refused, tunnel, unreachable};
use crate::body::{RequestBody, ResponseBody};
use crate::request_info::RequestInfo;
use crate::respond;

/// The longest time until the head of a response. API servers end requests themselves after a minute by default.
const ANSWER_TIME: Duration = Duration::from_mins(2);

/// Decides if the other server answers a request.
type Rule = Box<dyn Fn(&RequestInfo, &Parts) -> bool + Send + Sync>;

/// Returns the value of `Authorization` for the credentials of this server; `None` if it has only a certificate.
pub type OwnToken = Box<dyn Fn() -> Option<HeaderValue> + Send + Sync>;

/// The connections for users of client certificates. This server impersonates them with its own credentials.
pub struct Impersonator {
    /// Connections that present the certificate of this server, if it has one.
    pub upstream: Arc<Upstream>,
    /// The token of this server.
    pub token: OwnToken,
}

/// The server that answers all requests that this server does not answer itself.
pub struct PassThrough {
    upstream: Arc<Upstream>,
    impersonator: Option<Impersonator>,
    /// The path of the server's URL, without a slash at its end.
    base_path: String,
    fields: IdentityHeaders,
    /// The tasks of upgraded connections.
    tasks: TaskGroup,
    rule: Rule,
}

impl PassThrough {
    /// Passes the requests for which `rule` returns true to `upstream`, whose URL has this path.
    pub fn new(
        upstream: Arc<Upstream>,
        base_path: &str,
        tasks: TaskGroup,
        rule: impl Fn(&RequestInfo, &Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        let fields = IdentityHeaders::new(Vec::new(), Vec::new());
        let base_path = base_path.trim_end_matches('/').to_owned();
        Self { upstream, impersonator: None, base_path, fields, tasks, rule: Box::new(rule) }
    }

    /// Passes the requests of users of client certificates too, in whose name this server acts.
    #[must_use]
    pub fn impersonating(mut self, impersonator: Option<Impersonator>) -> Self {
        self.impersonator = impersonator;
        self
    }

    /// Returns true if requests of users of client certificates are passed.
    pub(crate) fn impersonates(&self) -> bool {
        self.impersonator.is_some()
    }

    /// Returns true if the other server answers this request.
    pub(crate) fn takes(&self, info: &RequestInfo, parts: &Parts) -> bool {
        (self.rule)(info, parts)
    }

    /// Returns true if the request has credentials that can be passed through. A client certificate can't.
    pub(crate) fn has_credentials(headers: &HeaderMap) -> bool {
        let has_token = |protocol: &str| protocol.starts_with(TOKEN_PROTOCOL);
        headers.contains_key(AUTHORIZATION) || list(headers, &SEC_WEBSOCKET_PROTOCOL).any(has_token)
    }

    /// Passes a request through, and returns the server's response as it arrives. With a user, this server acts in the
    /// name of that user.
    pub(crate) async fn pass(
        &self,
        info: &RequestInfo,
        user: Option<&User>,
        mut parts: Parts,
        body: RequestBody,
        stopping: CancellationToken,
    ) -> Response<ResponseBody> {
        if goes_in_circles(&parts.headers) {
            return respond::plain_text(StatusCode::LOOP_DETECTED, "the request is passed on in a circle\n");
        }
        let upgrade = tunnel::wanted(&mut parts);
        let held = parts.extensions.remove::<tunnel::HeldValue>();
        let passed = match user {
            None => self.passed(&parts, upgrade.is_some()),
            // The other server would take the fields of the client for those of this server.
            Some(_) if parts.headers.keys().any(|name| is_impersonating(name.as_str())) => {
                const REFUSED: &str = "a client with a client certificate can't impersonate through this server\n";
                return respond::plain_text(StatusCode::FORBIDDEN, REFUSED);
            }
            Some(_) if !self.base_path.is_empty() && has_relative_segments(parts.uri.path()) => {
                return respond::plain_text(StatusCode::BAD_REQUEST, "the path has relative segments\n");
            }
            Some(user) => self.passed_for(user, &parts, upgrade.is_some()),
        };
        let Some(passed) = passed else {
            return respond::plain_text(StatusCode::INTERNAL_SERVER_ERROR, "the request can't be passed on\n");
        };
        let upstream = match (user, &self.impersonator) {
            (Some(_), Some(impersonator)) => &impersonator.upstream,
            _ => &self.upstream,
        };
        let body = (!body.is_empty()).then(|| body.boxed_unsync());
        if let Some(client) = upgrade {
            let answer = tokio::time::timeout(UPGRADE_TIME, upstream.upgrade(passed, body)).await;
            return match answer.unwrap_or_else(late) {
                Ok((answer, permit)) => tunnel::open(client, answer, (permit, held), &self.tasks),
                Err(ForwardError::Dial(why)) => unreachable(format!("error dialing the source: {why}")),
                Err(ForwardError::Failed(why)) => unreachable(why),
                Err(error) => refused(error),
            };
        }
        let answer = if info.is_long_running() {
            upstream.forward_shared(passed, body).await
        } else {
            let answer = tokio::time::timeout(ANSWER_TIME, upstream.forward(passed, body)).await;
            answer.unwrap_or_else(late)
        };
        match answer {
            Ok((answer, _)) if answer.status().is_informational() => {
                let protocol = answer.headers().get(UPGRADE).and_then(|protocol| protocol.to_str().ok());
                let protocol = quote(protocol.unwrap_or_default());
                refused(ForwardError::Failed(format!("the source switched to the protocol {protocol} unasked")))
            }
            Ok((answer, permit)) => pass_whole(answer, permit, info.is_long_running().then_some(stopping)),
            Err(error) => refused(error),
        }
    }

    /// The head of the passed request. `None` if its path or fields are invalid.
    fn passed(&self, parts: &Parts, is_upgrade: bool) -> Option<Parts> {
        let path = parts.uri.path_and_query()?.as_str();
        let uri: Uri = format!("https://{}{}{path}", self.upstream.authority(), self.base_path).parse().ok()?;
        let mut headers = self.fields.cleared(&parts.headers);
        for (name, value) in &parts.headers {
            if *name == AUTHORIZATION || is_impersonating(name.as_str()) {
                headers.append(name, value.clone());
            }
        }
        if is_upgrade {
            // A browser's token is among the subprotocols.
            headers.remove(SEC_WEBSOCKET_PROTOCOL);
            for protocols in parts.headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
                headers.append(SEC_WEBSOCKET_PROTOCOL, protocols.clone());
            }
            keep_upgrade(&mut headers, &parts.headers);
        }
        forward(&mut headers, parts.extensions.get::<ClientAddress>().map(|address| address.0))?;
        let (mut passed, ()) = Request::new(()).into_parts();
        passed.method.clone_from(&parts.method);
        passed.uri = uri;
        passed.headers = headers;
        Some(passed)
    }
}

impl PassThrough {
    /// The head of a request that this server sends in the name of a user.
    fn passed_for(&self, user: &User, parts: &Parts, is_upgrade: bool) -> Option<Parts> {
        let token = (self.impersonator.as_ref()?.token)();
        let mut passed = self.passed(parts, is_upgrade)?;
        impersonate(&mut passed.headers, user)?;
        if let Some(token) = token {
            passed.headers.insert(AUTHORIZATION, token);
        }
        Some(passed)
    }
}

/// Returns true for a field that names another user, also for servers that do not distinguish an underscore from a dash.
fn is_impersonating(name: &str) -> bool {
    name.replace('_', "-").starts_with(IMPERSONATION)
}

impl fmt::Debug for PassThrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassThrough").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
/// Returns true for a path with relative segments, which could lead out of the path of the other server's URL.
fn has_relative_segments(path: &str) -> bool {
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::has_relative_segments;

    #[test]
    fn paths_with_relative_segments_are_found() {
        for path in ["/../v3", "/a/./b", "/a/%2e%2E/b", "/a/..%2Fb", "/a/..\\b", "/.."] {
            assert!(has_relative_segments(path), "{path}");
        }
        for path in ["/", "/api/v1/pods/a..b", "/apis/.../x", "/a%2eb"] {
            assert!(!has_relative_segments(path), "{path}");
        }
    }
}
