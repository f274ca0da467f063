//! The keys of one issuer. They are fetched from the URL in its discovery document (OpenID Connect Discovery 1.0), and
//! refreshed.
//!
//! An unreachable issuer is retried in the background. Meanwhile its known keys stay valid, and tokens of other issuers
//! do not wait. A token with an unknown key triggers a fetch. Such tokens share a fetch, and there is at most one per
//! [`SPACING`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, Method, Uri};
use keelson_codec::json;
use keelson_meta::Clock;
use keelson_outbound::{
    ClientConfig, Destination, Effect, EgressNetwork, Outbound, RestClient, RestRequest, cut, failure_text,
};
use keelson_supervision::{RepeatLog, warn_repeated};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

use super::config::Issuer;
use crate::document::hash_of;
use crate::jwt::{Algorithm, KeySet, Token};

const DISCOVERY: &str = "/.well-known/openid-configuration";
/// The shortest and longest backoff for an issuer that was never reached.
const FIRST_AGAIN: Duration = Duration::from_millis(500);
const LAST_AGAIN: Duration = Duration::from_secs(10);
/// The interval of regular refreshes, which drop withdrawn keys.
const REFRESH: Duration = Duration::from_mins(5);
/// The shortest interval between two fetches for unknown keys.
const SPACING: Duration = Duration::from_secs(1);
/// The timeout of a fetch.
const FETCH_TIME: Duration = Duration::from_secs(10);
/// The largest size of a document in bytes.
const MOST_BYTES: usize = 1024 * 1024;
/// The most bytes of a logged error. It may quote the issuer's documents.
const ERROR_BYTES: usize = 4096;
/// The largest number of tokens that wait for unknown keys at the same time.
const WAITING: usize = 256;

/// An issuer, with the client for its documents and the fetched keys.
pub(super) struct IssuerKeys {
    pub(super) issuer: Issuer,
    outbound: Arc<Outbound>,
    clock: Arc<dyn Clock>,
    known: ArcSwapOption<Known>,
    /// The times of the last fetch of the keys that succeeded, and of the last one that failed.
    fetched: [ArcSwapOption<SystemTime>; 2],
    last: Mutex<Option<Attempt>>,
    waiting: Semaphore,
    failures: RepeatLog,
}

/// The state of an issuer that was reached at least once.
#[derive(Debug)]
struct Known {
    key_set: DocumentUrl,
    keys: KeySet,
    /// The hash of the document with the keys. `None` if it could not be fetched yet.
    hash: Option<String>,
}

/// The URL of a document, with the client for it.
#[derive(Clone, Debug)]
struct DocumentUrl {
    client: RestClient,
    path: String,
}

/// The last fetch of the keys, with its result.
#[derive(Debug)]
struct Attempt {
    begun: Instant,
    outcome: Result<(), String>,
}

impl IssuerKeys {
    pub(super) fn new(issuer: Issuer, outbound: Arc<Outbound>, clock: Arc<dyn Clock>) -> Self {
        let waiting = Semaphore::new(WAITING);
        let (known, last, failures) = (ArcSwapOption::empty(), Mutex::default(), RepeatLog::new());
        let fetched = [ArcSwapOption::empty(), ArcSwapOption::empty()];
        Self { issuer, outbound, clock, known, fetched, last, waiting, failures }
    }

    /// Returns true if the issuer was reached at least once.
    pub(super) fn is_known(&self) -> bool {
        self.known.load().is_some()
    }

    /// The times of the last fetches of the keys, by result.
    pub(super) fn fetched(&self) -> [(&'static str, Option<SystemTime>); 2] {
        let [succeeded, failed] = &self.fetched;
        [("success", succeeded), ("failure", failed)].map(|(result, time)| (result, time.load().as_deref().copied()))
    }

    /// The hash of the document with the keys.
    pub(super) fn hash(&self) -> Option<String> {
        self.known.load().as_ref()?.hash.clone()
    }

    /// Fetches the keys, with the hash of their document, and keeps the time.
    async fn keys(&self, key_set: &DocumentUrl) -> Result<(KeySet, String), String> {
        let keys = key_set.keys().await;
        self.fetched[usize::from(keys.is_err())].store(Some(Arc::new(self.clock.now())));
        keys
    }

    /// Verifies that the issuer signed a token. Messages are upstream's.
    pub(super) async fn verify(&self, token: &Token<'_>, algorithm: Algorithm) -> Result<(), String> {
        let came = Instant::now();
        let known = self.known.load_full().ok_or("oidc: authenticator not initialized")?;
        if token.is_signed_by(&known.keys, algorithm) {
            return Ok(());
        }
        let failed = |why: &str| format!("oidc: verify token: failed to verify signature: {why}");
        let permit = self.waiting.try_acquire();
        let _permit = permit.map_err(|_| failed("too many tokens wait for the keys of the issuer"))?;
        self.fetch_after(came).await.map_err(|why| failed(&format!("fetching keys {why}")))?;
        let known = self.known.load_full();
        if known.is_some_and(|known| token.is_signed_by(&known.keys, algorithm)) {
            return Ok(());
        }
        Err(failed("failed to verify id token signature"))
    }

    /// Fetches the keys, unless another caller has fetched them since `came`.
    async fn fetch_after(&self, came: Instant) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some(attempt) = &*last {
            if attempt.begun >= came {
                return attempt.outcome.clone();
            }
            sleep_until(attempt.begun + SPACING).await;
        }
        let begun = Instant::now();
        let outcome = self.fetch_keys().await;
        *last = Some(Attempt { begun, outcome: outcome.clone() });
        outcome
    }

    async fn fetch_keys(&self) -> Result<(), String> {
        let Some(known) = self.known.load_full() else { return Ok(()) };
        let (keys, hash) = self.keys(&known.key_set).await?;
        self.known.store(Some(Arc::new(Known { key_set: known.key_set.clone(), keys, hash: Some(hash) })));
        Ok(())
    }

    /// Discovers the issuer, and then refreshes its keys. Never returns.
    pub(super) async fn keep_up(&self) {
        let url = self.issuer.url.as_str();
        let mut again = FIRST_AGAIN;
        loop {
            let discovered = self.discover().await.map_err(|why| cut(&why, ERROR_BYTES).to_owned());
            let wait = match (self.is_known(), discovered) {
                (false, Ok(keys)) => {
                    tracing::info!(issuer = url, keys, "the keys of a token issuer were read");
                    REFRESH
                }
                (true, Ok(_)) => {
                    if let Some(due) = self.failures.worked(url) {
                        tracing::info!(issuer = url, repeats = due.repeats, "an issuer of tokens can be reached again");
                    }
                    REFRESH
                }
                (false, Err(error)) => {
                    if let Some(due) = self.failures.failed(url) {
                        let (issuer, repeats) = (url, due.repeats);
                        tracing::error!(
                            issuer,
                            error,
                            repeats,
                            "an issuer of tokens can't be reached; its tokens are refused"
                        );
                    }
                    again = (again * 2).min(LAST_AGAIN);
                    again
                }
                (true, Err(error)) => {
                    if let Some(due) = self.failures.failed(url) {
                        let (issuer, repeats) = (url, due.repeats);
                        tracing::warn!(
                            issuer,
                            error,
                            repeats,
                            "reading the keys of a token issuer failed; the previous keys stay in use"
                        );
                    }
                    REFRESH
                }
            };
            sleep(wait).await;
        }
    }

    /// Fetches the discovery document and the keys. If only the keys fail, the next token triggers another fetch.
    async fn discover(&self) -> Result<usize, String> {
        let url = match self.issuer.discovery_url.as_str() {
            "" => format!("{}{DISCOVERY}", self.issuer.url.trim_end_matches('/')),
            url => url.to_owned(),
        };
        let document = json::parse(&self.document_at(&url)?.fetch().await?).map_err(|error| error.to_string())?.value;
        let text = |name: &str| document[name].as_str().unwrap_or_default();
        if text("issuer") != self.issuer.url {
            let (expected, got) = (&self.issuer.url, text("issuer"));
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {expected:?} got {got:?}"
            ));
        }
        let key_set = self.document_at(text("jwks_uri")).map_err(|error| format!("its jwks_uri: {error}"))?;
        let is_new = !self.is_known();
        let (keys, hash) = match self.keys(&key_set).await {
            Ok((keys, hash)) => (keys, Some(hash)),
            Err(error) if is_new => {
                warn_repeated!(&self.issuer.url; issuer = self.issuer.url, error, "the keys of an issuer of tokens can't be fetched");
                (KeySet::default(), None)
            }
            Err(error) => return Err(error),
        };
        let count = keys.len();
        self.known.store(Some(Arc::new(Known { key_set, keys, hash })));
        Ok(count)
    }

    /// The client for a document's URL. Does not connect yet.
    fn document_at(&self, url: &str) -> Result<DocumentUrl, String> {
        let authority = self.issuer.certificate_authority.clone().into_bytes();
        let config = ClientConfig::new(Destination::Url(url.to_owned()), authority);
        // As upstream, an issuer without a selection is called directly.
        let network = match self.issuer.egress_selector_type.as_str() {
            "controlplane" => Some(EgressNetwork::ControlPlane),
            "cluster" => Some(EgressNetwork::Cluster),
            _ => None,
        };
        let client = self.outbound.client_in(&config, network)?;
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
        let path = uri.path_and_query().map_or("/".to_owned(), ToString::to_string);
        Ok(DocumentUrl { client, path })
    }
}

impl DocumentUrl {
    async fn keys(&self) -> Result<(KeySet, String), String> {
        let bytes = self.fetch().await.map_err(|why| format!("oidc: get keys failed: {why}"))?;
        let keys = KeySet::parse(&bytes).map_err(|why| format!("oidc: failed to decode keys: {why}"))?;
        Ok((keys, hash_of(&bytes)))
    }

    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let request = RestRequest {
            method: Method::GET,
            path: self.path.clone(),
            headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json, */*"))]),
            body: bytes::Bytes::new(),
            effect: Effect::Idempotent,
            time: FETCH_TIME,
            response_bytes: MOST_BYTES,
        };
        let answer = self.client.send(request).await.map_err(|error| error.to_string())?;
        match failure_text(&answer) {
            None if answer.status == 200 => Ok(answer.body.to_vec()),
            None => Err(format!("{} answers with the code {}", self.client.at(&self.path), answer.status)),
            Some(why) => Err(format!("{}: {} {why}", self.client.at(&self.path), answer.status)),
        }
    }
}
