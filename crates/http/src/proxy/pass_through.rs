//! Passes requests through to one server with the client's own credentials, for a server that stands in front of it.
//!
//! The other server authenticates and authorizes the request, so no filter of this server applies. Path, query and body
//! are passed as they are. Unlike [`super::Proxy`], which vouches for its users, this adds no credential of its own: the
//! connections present no client certificate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use keelson_meta::go_format::quote;
use keelson_outbound::{ForwardError, Upstream};
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use super::answer::pass_whole;
use super::headers::{BelievedFields, IMPERSONATION, forward, goes_in_circles, keep_upgrade};
use super::{ClientAddress, UPGRADE_TIME, late, refused, tunnel, unreachable};
use crate::body::{RequestBody, ResponseBody};
use crate::request_info::RequestInfo;
use crate::respond;

/// The longest time until the head of a response. API servers end requests themselves after a minute by default.
const ANSWER_TIME: Duration = Duration::from_mins(2);

/// Decides if the other server answers a request.
type Rule = Box<dyn Fn(&RequestInfo, &Parts) -> bool + Send + Sync>;

/// The server that answers all requests that this server does not answer itself.
pub struct PassThrough {
    upstream: Arc<Upstream>,
    /// The path of the server's URL, without a slash at its end.
    base_path: String,
    fields: BelievedFields,
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
        let fields = BelievedFields::new(Vec::new(), Vec::new());
        Self { upstream, base_path: base_path.trim_end_matches('/').to_owned(), fields, tasks, rule: Box::new(rule) }
    }

    /// Returns true if the other server answers this request.
    pub(crate) fn takes(&self, info: &RequestInfo, parts: &Parts) -> bool {
        (self.rule)(info, parts)
    }

    /// Returns true if the request has credentials that can be passed through. A client certificate can't.
    pub(crate) fn has_credentials(headers: &HeaderMap) -> bool {
        headers.contains_key(AUTHORIZATION) || headers.contains_key(SEC_WEBSOCKET_PROTOCOL)
    }

    /// Passes a request through, and returns the server's response as it arrives.
    pub(crate) async fn pass(
        &self,
        info: &RequestInfo,
        mut parts: Parts,
        body: RequestBody,
        stopping: CancellationToken,
    ) -> Response<ResponseBody> {
        if goes_in_circles(&parts.headers) {
            return respond::plain_text(StatusCode::LOOP_DETECTED, "the request is passed on in a circle\n");
        }
        let upgrade = tunnel::wanted(&mut parts);
        let held = parts.extensions.remove::<tunnel::Held>();
        let Some(passed) = self.passed(&parts, upgrade.is_some()) else {
            return respond::plain_text(StatusCode::INTERNAL_SERVER_ERROR, "the request can't be passed on\n");
        };
        let body = (!body.is_empty()).then(|| body.boxed_unsync());
        if let Some(client) = upgrade {
            let answer = tokio::time::timeout(UPGRADE_TIME, self.upstream.upgrade(passed, body)).await;
            return match answer.unwrap_or_else(late) {
                Ok((answer, permit)) => tunnel::open(client, answer, (permit, held), &self.tasks),
                Err(ForwardError::Dial(why)) => unreachable(format!("error dialing the source: {why}")),
                Err(ForwardError::Failed(why)) => unreachable(why),
                Err(error) => refused(error),
            };
        }
        let answer = if info.is_long_running() {
            self.upstream.forward_shared(passed, body).await
        } else {
            let answer = tokio::time::timeout(ANSWER_TIME, self.upstream.forward(passed, body)).await;
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
            if *name == AUTHORIZATION || name.as_str().starts_with(IMPERSONATION) {
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

impl fmt::Debug for PassThrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassThrough").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
