//! The webhook of audit: batches of events are posted to whoever a kubeconfig names, and again where that fails.
//!
//! Whatever the failure is, a batch is sent again after a while, five times in all and longer apart each time, as upstream does it. When
//! the server stops nothing is waited for any more: what can't be sent at once then is lost, and counted.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Uri};
use keelson_access::audit::{AuditEvent, Sink};
use keelson_codec::yaml;
use keelson_meta::Random;
use keelson_meta::json::Value;
use keelson_outbound::{ClientConfig, Destination, Outbound, Peer, PeerRequest, clean_path, failure_text};
use tokio_util::sync::CancellationToken;

use super::config::AuditWebhookConfig;

/// How long one attempt may take, as upstream has it.
const TIME: Duration = Duration::from_secs(30);
/// How often a batch is sent at the most.
const ATTEMPTS: u32 = 5;
/// How much longer is waited each time, and how much of that by chance.
const LONGER: f64 = 1.5;
const CHANCE: f64 = 0.2;
/// How many bytes of an answer are read, of which nothing is needed.
const ANSWER_BYTES: usize = 64 << 10;

/// Where events are sent.
pub(super) struct AuditWebhook {
    config: ClientConfig,
    peer: OnceLock<Result<Peer, String>>,
    path: String,
    headers: HeaderMap,
    initial_backoff: Duration,
    random: Arc<dyn Random>,
    /// Cancelled when the server has answered all.
    answered: CancellationToken,
}

/// The webhook of a kubeconfig, before anybody can be called.
pub(crate) struct WebhookPlace {
    config: ClientConfig,
    path: String,
    authorization: Option<HeaderValue>,
}

impl WebhookPlace {
    /// Reads a kubeconfig, of whose current context the server and a token count.
    ///
    /// # Errors
    /// When it can't be read, or says what is not supported.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        Self::of(file).with_context(|| format!("reading {}", file.display()))
    }

    fn of(file: &Path) -> anyhow::Result<Self> {
        let document = yaml::parse(&std::fs::read(file)?)?.value;
        let directory = file.parent().unwrap_or(Path::new("."));
        let context = named(&document, "contexts", "context", &document["current-context"]);
        let context = context.ok_or_else(|| anyhow!("it has no current context"))?;
        let cluster = named(&document, "clusters", "cluster", &context["cluster"]);
        let cluster = cluster.ok_or_else(|| anyhow!("it has no cluster {}", context["cluster"]))?;
        let user = named(&document, "users", "user", &context["user"]).unwrap_or(&Value::Null);
        for (of, unsupported) in [
            (user, "client-certificate"),
            (user, "client-certificate-data"),
            (user, "exec"),
            (user, "auth-provider"),
            (user, "username"),
            (cluster, "proxy-url"),
            (cluster, "tls-server-name"),
        ] {
            if !of[unsupported].is_null() {
                bail!("{unsupported} is not supported here: a token is");
            }
        }
        let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        let ca_bundle = match (text(cluster, "certificate-authority-data"), text(cluster, "certificate-authority")) {
            (data, _) if !data.is_empty() => {
                STANDARD.decode(data).context("its certificate-authority-data is not base64")?
            }
            (_, file) if !file.is_empty() => {
                std::fs::read(directory.join(&file)).with_context(|| format!("reading {file}"))?
            }
            _ => Vec::new(),
        };
        let token = match (text(user, "token"), text(user, "tokenFile")) {
            (token, _) if !token.is_empty() => token,
            (_, file) if !file.is_empty() => std::fs::read_to_string(directory.join(&file))
                .with_context(|| format!("reading {file}"))?
                .trim()
                .to_owned(),
            _ => String::new(),
        };
        let mut authorization = match token.as_str() {
            "" => None,
            token => Some(HeaderValue::try_from(format!("Bearer {token}")).context("its token can't be sent")?),
        };
        authorization.iter_mut().for_each(|value| value.set_sensitive(true));
        let server = text(cluster, "server");
        let url: Option<Uri> = server.parse().ok().filter(|url: &Uri| url.scheme_str() == Some("https"));
        let url = url.ok_or_else(|| anyhow!("the server {server:?} is not of the form https://host[/path]"))?;
        let path = format!("{}?timeout={}s", clean_path(url.path()), TIME.as_secs());
        let insecure_skip_tls_verify = cluster["insecure-skip-tls-verify"].as_bool().unwrap_or_default();
        let config = ClientConfig { destination: Destination::Url(server), ca_bundle, insecure_skip_tls_verify };
        Ok(Self { config, path, authorization })
    }
}

/// What a list of a kubeconfig has under a name.
fn named<'d>(document: &'d Value, list: &str, what: &str, name: &Value) -> Option<&'d Value> {
    let name = name.as_str().filter(|name| !name.is_empty())?;
    document[list].as_array()?.iter().find(|one| one["name"].as_str() == Some(name)).map(|one| &one[what])
}

impl AuditWebhook {
    /// The webhook of a kubeconfig, which can't be called yet.
    pub(super) fn new(
        place: WebhookPlace,
        config: &AuditWebhookConfig,
        random: Arc<dyn Random>,
        answered: CancellationToken,
    ) -> Self {
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json, */*")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        headers.extend(place.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let initial_backoff = config.initial_backoff;
        let WebhookPlace { config, path, .. } = place;
        Self { config, peer: OnceLock::new(), path, headers, initial_backoff, random, answered }
    }

    /// Has it called through `outbound`. Nothing is dialled yet.
    pub(super) fn connect(&self, outbound: &Outbound) {
        self.peer.get_or_init(|| outbound.peer(&self.config));
    }

    async fn attempt(&self, body: Bytes) -> Result<(), String> {
        let peer = self.peer.get().ok_or("the server does not run yet")?.as_ref().map_err(Clone::clone)?;
        let (path, headers) = (self.path.clone(), self.headers.clone());
        let request =
            PeerRequest { method: Method::POST, path, headers, body, time: TIME, response_bytes: ANSWER_BYTES };
        let answer = peer.send(request).await.map_err(|error| error.to_string())?;
        failure_text(&answer).map_or(Ok(()), Err)
    }
}

impl Sink for AuditWebhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn frame(&self) -> [&'static [u8]; 3] {
        [br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#, b",", b"]}\n"]
    }

    fn write(&self, event: &AuditEvent, out: &mut Vec<u8>) {
        event.write_json(false, out);
    }

    fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>> {
        let batch = Bytes::from(batch);
        Box::pin(async move {
            let mut wait = self.initial_backoff;
            for attempt in 1.. {
                let Err(why) = self.attempt(batch.clone()).await else { return Ok(()) };
                if attempt == ATTEMPTS || self.answered.is_cancelled() {
                    return Err(why);
                }
                tracing::debug!(attempt, why, "the audit webhook is asked again");
                let chance =
                    f64::from(u32::try_from(self.random.u64() >> 32).unwrap_or_default()) / f64::from(u32::MAX);
                let waiting = tokio::time::sleep(wait.mul_f64(1.0 + CHANCE * chance));
                let _: Option<()> = self.answered.run_until_cancelled(waiting).await;
                wait = wait.mul_f64(LONGER);
            }
            Err("it was never sent".to_owned())
        })
    }
}
