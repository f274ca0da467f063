//! Requests of this server itself to aggregated servers: what it asks them, in whose name, and how long they may take.
//!
//! A question goes to an address of the server's service. The server is trusted no further than to answer: it may hang, lie or answer
//! without end, and costs whoever asks no more than its bounds.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use keelson_meta::json::Value;
use keelson_outbound::{CallError, Effect, REMOTE_GROUP, REMOTE_USER, RestClient, RestRequest, RestResponse};

/// How long a response may take altogether, as upstream has it.
pub(crate) const RESPONSE_TIME: Duration = Duration::from_secs(5);

/// In whose name a question is asked, as the header fields for it say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) user: &'static str,
    pub(crate) groups: &'static [&'static str],
}

/// Who asks whether a server is there, and for its discovery.
pub(crate) const AGGREGATOR: Requester = Requester { user: "system:kube-aggregator", groups: &["system:masters"] };

/// As whom a server asks its peers, as upstream has it.
pub(crate) const SERVER: Requester = Requester { user: "system:apiserver", groups: &["system:masters"] };

impl Requester {
    /// Asks for a path, and for these media types if there are any.
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

    /// Has something deleted.
    pub(crate) async fn delete(
        self,
        client: &RestClient,
        path: &str,
        options: &Value,
        response_bytes: usize,
    ) -> Result<RestResponse, CallError> {
        self.send(client, (Method::DELETE, path, JSON), options, response_bytes).await
    }

    /// Has something changed by a merge patch.
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
        let (path, body, effect) = (path.to_owned(), keelson_codec::json::to_vec(body).into(), Effect::of(&method));
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
