//! Questions to a webhook: a review is sent, and its answer is read.
//!
//! What may be better the next time (a connection that broke, a server that is busy) is tried again after a while, as upstream does it:
//! five times, longer apart each time. How long that may take in all is for whoever waits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use keelson_codec::json;
use keelson_meta::Random;
use keelson_meta::json::Value;
use keelson_outbound::{CallError, Outbound, Peer, PeerRequest, clean_path, failure_text};
use tokio::time::sleep;

use super::kubeconfig::WebhookPlace;
use crate::document::ConfigurationError;

/// How often is asked at the most.
const TRIES: u32 = 5;
/// How long is waited before the second time, each next time half as long again, with so much of it by chance.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGER: f64 = 1.5;
const CHANCE: f64 = 0.2;
/// How many bytes an answer may have.
const MOST_BYTES: usize = 1024 * 1024;

/// A version of the reviews that a webhook understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, which names groups otherwise.
    V1Beta1,
}

impl ReviewVersion {
    /// The version of a name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// A webhook that is sent reviews.
pub(super) struct ReviewClient {
    peer: Peer,
    path: String,
    headers: HeaderMap,
    /// How long one try may take.
    time: Duration,
    random: Arc<dyn Random>,
}

impl std::fmt::Debug for ReviewClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReviewClient").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl ReviewClient {
    /// The webhook of a kubeconfig.
    pub(super) fn of_file(
        file: &Path,
        time: Duration,
        outbound: &Outbound,
        random: Arc<dyn Random>,
    ) -> Result<Self, ConfigurationError> {
        let WebhookPlace { url, config, server_name, certificate, authorization } = WebhookPlace::read(file)?;
        let peer = outbound.peer_as(&config, server_name.as_deref(), certificate);
        let peer = peer.map_err(|why| ConfigurationError::Unusable(format!("{}: {why}", file.display())))?;
        let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = format!("{}?timeout={}s", clean_path(path), time.as_secs().max(1));
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json, */*")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        Ok(Self { peer, path, headers, time, random })
    }

    /// The answer to a review.
    pub(super) async fn ask(&self, review: &Value) -> Result<Value, String> {
        let body = Bytes::from(json::to_vec(review));
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let (why, again) = match self.send(body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let Some(asked_for) = again.filter(|_| attempt < TRIES) else { return Err(why) };
            let chance = CHANCE * (self.random.u64() as f64 / u64::MAX as f64);
            sleep(asked_for.max(wait.mul_f64(1.0 + chance))).await;
            wait = wait.mul_f64(LONGER);
        }
        Err("it was never asked".to_owned())
    }

    /// One try; what it failed by comes with how long is to be waited at the least, where it may go better then.
    async fn send(&self, body: Bytes) -> Result<Value, (String, Option<Duration>)> {
        let request = PeerRequest {
            method: Method::POST,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body,
            time: self.time,
            response_bytes: MOST_BYTES,
        };
        let answer = self.peer.send(request).await.map_err(|error| {
            let broke =
                matches!(&error, CallError::Failed(why) if why.ends_with("EOF") || why.contains("connection reset"));
            (error.to_string(), broke.then_some(Duration::ZERO))
        })?;
        if let Some(why) = failure_text(&answer) {
            let again = match answer.status {
                429 | 500 | 504 => Some(answer.retry_after.unwrap_or_default()),
                503 => answer.retry_after,
                _ => None,
            };
            return Err((why, again));
        }
        let read = json::parse(&answer.body).map_err(|error| (error.to_string(), None))?.value;
        if read.is_object() { Ok(read) } else { Err(("the answer is no object".to_owned(), None)) }
    }
}
