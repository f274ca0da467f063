//! The server under test: raw requests over a kubeconfig, at a bounded rate.
//!
//! Answers are kept with their requests and times, as evidence for reports and for the order of a workload.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::BytesMut;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Client, Config};
use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::args::Verify;
use crate::lab::Fault;

/// The most bytes of an answer, and of one line of a watch.
const MOST_BYTES: usize = 64 << 20;
/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of characters of a body that a report shows.
const SHOWN: usize = 2_000;

pub(crate) const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A server.
pub(crate) struct Server {
    client: Client,
    /// Permits of requests in flight.
    places: Semaphore,
    /// The interval of the maximum request rate.
    pace: Mutex<Interval>,
}

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    /// The media type of the body.
    pub(crate) content: &'static str,
    pub(crate) body: Option<Value>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Ask {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), accept: JSON, content: JSON, body: None, headers: Vec::new() }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A merge patch.
    pub(crate) fn merge(path: impl Into<String>, change: Value) -> Self {
        Self::new(Method::PATCH, path).with(change).of_type(MERGE)
    }

    pub(crate) fn accepting(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn of_type(mut self, content: &'static str) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) ask: Ask,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The answer; a string if it is no JSON.
    pub(crate) body: Value,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

impl Exchange {
    /// The reason of a Status, or an empty string.
    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.ask.method, self.ask.path)?;
        if let Some(body) = &self.ask.body {
            writeln!(f, "> {}", cut(&body.to_string()))?;
        }
        write!(f, "< {} {}", self.status.as_u16(), cut(&self.body.to_string()))
    }
}

/// The beginning of a text, with a mark if it is longer.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

impl Server {
    /// The server that the arguments name.
    ///
    /// # Errors
    /// When the kubeconfig is missing or can't be read.
    pub(crate) async fn of(args: &Verify) -> anyhow::Result<Self> {
        let kubeconfig = match (&args.kubeconfig, &args.server) {
            (Some(file), _) => Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display()))?,
            (None, Some(_)) => bare(args),
            (None, None) => Kubeconfig::read().context("reading the kubeconfig")?,
        };
        let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &options).await.context("reading the kubeconfig")?;
        if let Some(url) = &args.server {
            config.cluster_url = url.parse().with_context(|| format!("{url} is no URL"))?;
        }
        // A watch may be silent for longer than any timeout of reads.
        config.read_timeout = None;
        let mut pace = interval(Duration::from_secs(1) / args.rate);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let places = Semaphore::new(args.at_once as usize);
        Ok(Self { client: Client::try_from(config)?, places, pace: Mutex::new(pace) })
    }

    /// The version that the server reports.
    ///
    /// # Errors
    /// There is no such answer.
    pub(crate) async fn version(&self) -> anyhow::Result<String> {
        let exchange = self.send(Ask::get("/version")).await.map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let version = exchange.body["gitVersion"].as_str().context("the answer has no gitVersion")?;
        Ok(version.to_owned())
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// [`Fault::Unanswered`] if there is no whole answer in time.
    pub(crate) async fn send(&self, ask: Ask) -> Result<Exchange, Fault> {
        let _place = self.places.acquire().await.map_err(|_| unanswered(&ask, "the run has ended"))?;
        let begun = Instant::now();
        let answered = timeout(PATIENCE, async {
            let response = self.begin(&ask).await?;
            let (head, body) = response.into_parts();
            let bytes = Limited::new(body, MOST_BYTES).collect().await;
            let bytes = bytes.map_err(|error| unanswered(&ask, error))?.to_bytes();
            Ok((head, bytes))
        });
        let (head, bytes) = answered.await.map_err(|_| unanswered(&ask, "no answer within a minute"))??;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        let (status, headers) = (head.status, head.headers);
        Ok(Exchange { ask, status, headers, body, begun, ended: Instant::now() })
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// [`Fault::Unanswered`] if there is no answer, [`Fault::Broken`] if it is no success.
    pub(crate) async fn watch(&self, path: String) -> Result<Watch, Fault> {
        let ask = Ask::get(path);
        let response = timeout(PATIENCE, self.begin(&ask)).await;
        let response = response.map_err(|_| unanswered(&ask, "no answer within a minute"))??;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(Fault::Broken(format!("GET {} was answered with {status}", ask.path)));
        }
        Ok(Watch { path: ask.path, body: response.into_body(), buffer: BytesMut::new() })
    }

    async fn begin(&self, ask: &Ask) -> Result<Response<Body>, Fault> {
        self.pace.lock().await.tick().await;
        let mut request = Request::builder().method(&ask.method).uri(&ask.path).header(ACCEPT, ask.accept);
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let bytes = ask.body.as_ref().map(Value::to_string).unwrap_or_default().into_bytes();
        if ask.body.is_some() {
            request = request.header(CONTENT_TYPE, ask.content);
        }
        let request = request.body(Body::from(bytes)).map_err(|error| unanswered(ask, error))?;
        self.client.send(request).await.map_err(|error| unanswered(ask, error))
    }
}

/// A kubeconfig of the flags for a server without one.
fn bare(args: &Verify) -> Kubeconfig {
    let name = || "verify".to_owned();
    let path = |file: &std::path::PathBuf| file.to_string_lossy().into_owned();
    let cluster = Cluster {
        server: args.server.clone(),
        certificate_authority: args.certificate_authority.as_ref().map(path),
        ..Cluster::default()
    };
    let user = AuthInfo { token_file: args.token_file.as_ref().map(path), ..AuthInfo::default() };
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        current_context: args.context.clone().or_else(|| Some(name())),
        ..Kubeconfig::default()
    }
}

fn unanswered(ask: &Ask, error: impl fmt::Display) -> Fault {
    Fault::Unanswered(format!("{} {}: {error}", ask.method, ask.path))
}

/// An open watch.
pub(crate) struct Watch {
    path: String,
    body: Body,
    buffer: BytesMut,
}

impl Watch {
    /// The next event. `None` if the watch ends, or if there is none within `patience`.
    ///
    /// # Errors
    /// [`Fault::Broken`] if a line is no event, [`Fault::Unanswered`] if the connection breaks.
    pub(crate) async fn next_within(&mut self, patience: Duration) -> Result<Option<Value>, Fault> {
        timeout(patience, self.next()).await.unwrap_or(Ok(None))
    }

    /// The next event. `None` if the watch ends.
    ///
    /// # Errors
    /// As [`next_within`](Self::next_within).
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Fault> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                let event = serde_json::from_slice(&line);
                return event.map(Some).map_err(|_| Fault::Broken(format!("a line of {} is no event", self.path)));
            }
            if self.buffer.len() > MOST_BYTES {
                return Err(Fault::Broken(format!("an event of {} is larger than 64 MiB", self.path)));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(Fault::Unanswered(format!("the watch {} broke: {error}", self.path))),
                None => return Ok(None),
            }
        }
    }
}
