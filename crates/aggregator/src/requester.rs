//! This server's own requests to aggregated servers and peers: paths, requester identity and time limits.
//!
//! Requests go to an address of the server's service. The server is not trusted: it may hang, send false data or stream
//! without end, so time and size of every response are limited.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use keelson_meta::json::Value;
use keelson_outbound::{CallError, Effect, REMOTE_GROUP, REMOTE_USER, RestClient, RestRequest, RestResponse};

/// The time limit of a whole response, as upstream.
pub(crate) const RESPONSE_TIME: Duration = Duration::from_secs(5);

/// The identity of a request, as sent in its header fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) user: &'static str,
    pub(crate) groups: &'static [&'static str],
}

/// The identity of availability checks and discovery requests.
pub(crate) const AGGREGATOR: Requester = Requester { user: "system:kube-aggregator", groups: &["system:masters"] };

/// The identity of requests to peers, as upstream.
pub(crate) const SERVER: Requester = Requester { user: "system:apiserver", groups: &["system:masters"] };

impl Requester {
    /// Sends a GET for a path, with an Accept header if given.
    pub(crate) async fn get(
        self,
        client: &RestClient,
        path: &str,
        accept: Option<&'static str>,
        more: HeaderMap,
        response_bytes: usize,
    ) -> Result<RestResponse, CallError> {
        let mut headers = self.headers(more);
        if let Some(accept) = accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        let (method, path, body, effect) = (Method::GET, path.to_owned(), Bytes::new(), Effect::Idempotent);
        client.send(RestRequest { method, path, headers, body, effect, time: RESPONSE_TIME, response_bytes }).await
    }

    /// Sends a DELETE.
    pub(crate) async fn delete(
        self,
        client: &RestClient,
        path: &str,
        options: &Value,
        response_bytes: usize,
    ) -> Result<RestResponse, CallError> {
        self.send(client, (Method::DELETE, path, JSON), options, response_bytes).await
    }

    /// Sends a merge patch.
    pub(crate) async fn patch(
        self,
        client: &RestClient,
        path: &str,
        patch: &Value,
        response_bytes: usize,
    ) -> Result<RestResponse, CallError> {
        self.send(client, (Method::PATCH, path, MERGE_PATCH), patch, response_bytes).await
    }

    async fn send(
        self,
        client: &RestClient,
        (method, path, media_type): (Method, &str, &'static str),
        body: &Value,
        response_bytes: usize,
    ) -> Result<RestResponse, CallError> {
        let mut headers = self.headers(HeaderMap::new());
        headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        let (path, body, effect) =
            (path.to_owned(), keelson_codec::json::to_vec(body).into(), Effect::from_method(&method));
        client.send(RestRequest { method, path, headers, body, effect, time: RESPONSE_TIME, response_bytes }).await
    }

    pub(crate) fn headers(self, mut more: HeaderMap) -> HeaderMap {
        more.insert(REMOTE_USER, HeaderValue::from_static(self.user));
        for group in self.groups {
            more.append(REMOTE_GROUP, HeaderValue::from_static(group));
        }
        more
    }
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
