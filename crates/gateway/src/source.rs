//! A source: the connections to one cluster with the gateway's own credentials.
//!
//! Everything from the source is bounded: the time until a response begins and between its parts, and the size of a
//! document. A fault says whether a retry may help.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use keelson_codec::json;
use keelson_meta::json::Value;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::budget::Budget;
use crate::settings::SourceSettings;

/// The longest time until a response begins, and between two parts of a document.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// The longest time for a connection to open.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The largest document in bytes: a page of 500 objects of the usual size is 3 MB, and of the largest size 750 MB.
pub(crate) const DOCUMENT_BYTES: usize = 256 << 20;

/// One cluster behind the gateway.
pub(crate) struct Source {
    pub(crate) name: String,
    client: Client,
    budget: Budget,
    /// True if the source is a keelson server, which sends bookmarks earlier.
    keelson: AtomicBool,
    /// False once the source has refused to send a list as a stream.
    streams_lists: AtomicBool,
}

/// The reason why a request to the source failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The source does not answer in time.
    #[error("{0}")]
    Unreachable(String),
    /// The source refuses the request.
    #[error("{code}: {message}")]
    Refused {
        /// The status code.
        code: u16,
        /// The message of its `Status`, or the start of its body.
        message: String,
    },
    /// The answer is not what the API promises.
    #[error("its answer is not valid: {0}")]
    Invalid(String),
}

/// A document, with its ETag.
pub(crate) struct Tagged {
    pub(crate) value: Value,
    pub(crate) etag: Option<String>,
}

/// A response that arrives in parts.
pub(crate) struct Parts {
    body: Body,
    time: Duration,
}

impl Source {
    /// Reads the kubeconfig. Opens no connection yet.
    ///
    /// # Errors
    /// The file, its context or its credentials can't be used.
    pub(crate) async fn open(settings: &SourceSettings) -> Result<(Self, kube::Config), String> {
        let config = read(settings).await?;
        let client = Client::try_from(config.clone()).map_err(|error| error.to_string())?;
        Ok((
            Self {
                name: settings.name.clone(),
                client,
                budget: Budget::new(),
                keelson: AtomicBool::new(false),
                streams_lists: AtomicBool::new(true),
            },
            config,
        ))
    }

    /// The client with the gateway's credentials, for reviews.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns true if the source is a keelson server.
    pub(crate) fn is_keelson(&self) -> bool {
        self.keelson.load(Ordering::Relaxed)
    }

    /// Returns true if the source may send lists as streams.
    pub(crate) fn streams_lists(&self) -> bool {
        self.streams_lists.load(Ordering::Relaxed)
    }

    /// Records that the source sends no lists as streams. It is asked again after an upgrade.
    pub(crate) fn refuses_streams(&self) {
        self.streams_lists.store(false, Ordering::Relaxed);
    }

    /// Reads the version of the source.
    pub(crate) async fn read_version(&self) -> Result<(), Fault> {
        let version = self.document("/version").await?;
        let is_keelson = version["gitVersion"].as_str().is_some_and(|version| version.contains("keelson"));
        self.keelson.store(is_keelson, Ordering::Relaxed);
        self.streams_lists.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a JSON document.
    pub(crate) async fn document(&self, path: &str) -> Result<Value, Fault> {
        let parsed = self.bytes(path).await?;
        parse(&parsed)
    }

    /// Reads the bytes of a document.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Bytes, Fault> {
        let (_, parts) = self.send(path, "application/json", None).await?;
        parts.whole().await
    }

    /// Reads a document in one of these media types, unless it still has this ETag.
    pub(crate) async fn newer(&self, path: &str, accept: &str, etag: Option<&str>) -> Result<Option<Tagged>, Fault> {
        let (head, parts) = match self.send(path, accept, etag).await {
            Err(Fault::Refused { code: 304, .. }) => return Ok(None),
            other => other?,
        };
        let etag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        Ok(Some(Tagged { value: parse(&parts.whole().await?)?, etag }))
    }

    /// Opens a stream of JSON lines. `idle` is the longest time between two parts.
    pub(crate) async fn stream(&self, path: &str, idle: Duration) -> Result<Parts, Fault> {
        let (_, parts) = self.send(path, "application/json", None).await?;
        Ok(Parts { time: idle, ..parts })
    }

    async fn send(
        &self,
        path: &str,
        accept: &str,
        etag: Option<&str>,
    ) -> Result<(http::response::Parts, Parts), Fault> {
        self.budget.slot().await;
        let mut request = Request::get(path).header(ACCEPT, accept);
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Body::empty()).map_err(|error| Fault::Invalid(error.to_string()))?;
        let answer = within(ANSWER_TIME, self.client.send(request)).await?;
        let (head, body) = answer.map_err(|error| Fault::Unreachable(causes(&error)))?.into_parts();
        let parts = Parts { body, time: ANSWER_TIME };
        if head.status == StatusCode::OK {
            return Ok((head, parts));
        }
        let text = parts.whole().await.unwrap_or_default();
        Err(Fault::Refused { code: head.status.as_u16(), message: refusal(&text) })
    }
}

impl Parts {
    /// The next bytes; `None` at the end. The wait may be cancelled without a loss.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        while let Some(frame) = within(self.time, self.body.frame()).await? {
            let frame = frame.map_err(|error| Fault::Unreachable(causes(&error)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    async fn whole(mut self) -> Result<Bytes, Fault> {
        let mut whole = BytesMut::new();
        while let Some(part) = self.next().await? {
            if whole.len() + part.len() > DOCUMENT_BYTES {
                return Err(Fault::Invalid(format!("it has more than {DOCUMENT_BYTES} bytes")));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }
}

/// The configuration of a source. Its requests have no retries of their own, so that the budget counts all of them.
async fn read(settings: &SourceSettings) -> Result<kube::Config, String> {
    let path = &settings.kubeconfig;
    let file = Kubeconfig::read_from(path).map_err(|error| causes(&error))?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| causes(&error))?;
    if config.auth_info.auth_provider.is_some() {
        return Err("its user has an auth-provider, which clients no longer support: use a token, a client certificate or an exec plugin".to_owned());
    }
    if config.cluster_url.scheme_str() != Some("https") {
        return Err(format!("its server {} is not an https URL", config.cluster_url));
    }
    if config.proxy_url.is_some() {
        return Err("its cluster has a proxy-url, which the gateway does not support".to_owned());
    }
    config.connect_timeout = Some(CONNECT_TIME);
    config.read_timeout = None;
    config.write_timeout = None;
    config.default_retry = false;
    Ok(config)
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Value, Fault> {
    json::parse(bytes).map(|parsed| parsed.value).map_err(|error| Fault::Invalid(error.to_string()))
}

async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(time, work).await.map_err(|_| Fault::Unreachable(format!("no answer in {time:?}")))
}

/// The message of a `Status`, or the start of another text.
fn refusal(body: &[u8]) -> String {
    const MOST: usize = 200;
    let status = json::parse(body).ok();
    let message = status.as_ref().and_then(|status| status.value["message"].as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    text.chars().take(MOST).collect()
}

/// An error with its causes.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.ends_with(&next_text) {
            text = format!("{text}: {next_text}");
        }
        cause = next.source();
    }
    text
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}
