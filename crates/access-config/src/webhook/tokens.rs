//! Token reviews by a webhook (`--authentication-token-webhook-config-file`).
//!
//! The review has the expected audiences. The webhook is called after all other authenticators. Responses are cached,
//! failed calls are not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use keelson_access::{ForeignTokens, TokenAnswer, User};
use keelson_meta::Random;
use keelson_meta::json::{Value, json};
use keelson_outbound::Outbound;

use super::client::{ReviewClient, ReviewVersion};
use super::token_cache::TOKEN_CACHE;
use crate::answers::{Answers, answer_key};
use crate::authentication::claims::with_group_of_all;
use crate::document::ConfigurationError;

/// The timeout of a review.
const TIME: Duration = Duration::from_secs(30);
/// The largest number of cached responses.
const KEPT: usize = 4096;
/// The longest token that is sent to the webhook, in bytes.
const MOST_BYTES: usize = 64 * 1024;

/// A webhook that authenticates tokens.
#[derive(Debug)]
pub struct WebhookTokens {
    client: ReviewClient,
    version: ReviewVersion,
    keep: Duration,
    /// The audiences of this server. A response without audiences applies to them.
    own: Vec<String>,
    kept: Answers<TokenAnswer>,
}

impl WebhookTokens {
    /// Creates a webhook from a kubeconfig. `keep` is the time for which responses are cached.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn of_file(
        file: &Path,
        version: ReviewVersion,
        keep: Duration,
        own: Vec<String>,
        outbound: &Arc<Outbound>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ConfigurationError> {
        let client = ReviewClient::of_file(file, TIME, outbound, random)?;
        Ok(Self { client, version, keep, own, kept: Answers::new(KEPT) })
    }

    /// Reloads the files with the webhook's address after changes. Never returns.
    pub async fn follow(&self) {
        self.client.follow().await;
    }

    async fn ask(&self, token: &str, wanted: &[String]) -> TokenAnswer {
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": format!("authentication.k8s.io/{}", self.version.name()),
            "metadata": {},
            "spec": { "token": token, "audiences": wanted },
            "status": { "user": {} },
        });
        let answer = self.client.ask(&review).await?;
        let status = &answer["status"];
        let stated = texts(&status["audiences"]);
        let meant = if stated.is_empty() { &self.own } else { &stated };
        let audiences: Vec<String> = wanted.iter().filter(|one| meant.contains(one)).cloned().collect();
        if audiences.is_empty() {
            return Ok(None);
        }
        if status["authenticated"].as_bool() != Some(true) {
            let why = status["error"].as_str().unwrap_or_default();
            return if why.is_empty() { Ok(None) } else { Err(why.to_owned()) };
        }
        Ok(Some((user(&status["user"]), Some(audiences))))
    }
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn user(stated: &Value) -> User {
    let name = stated["username"].as_str().unwrap_or_default().to_owned();
    let uid = stated["uid"].as_str().filter(|uid| !uid.is_empty()).map(str::to_owned);
    let extra = stated["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(key, values)| (key.to_string(), texts(values))).collect();
    User { uid, groups: with_group_of_all(&name, texts(&stated["groups"])), extra, name }
}

impl ForeignTokens for WebhookTokens {
    fn authenticate<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, TokenAnswer> {
        Box::pin(async move {
            if token.len() > MOST_BYTES {
                return Ok(None);
            }
            let wanted = if audiences.is_empty() { &self.own } else { audiences };
            let asked = answer_key([token].into_iter().chain(wanted.iter().map(String::as_str)).map(str::as_bytes));
            let (begun, is_fetched) = (Instant::now(), AtomicBool::new(false));
            let ask = async {
                is_fetched.store(true, Ordering::Relaxed);
                let _fetch = TOKEN_CACHE.begin();
                let answer = self.ask(token, wanted).await;
                TOKEN_CACHE.answered(answer.is_ok());
                let keep = if answer.is_ok() { self.keep } else { Duration::ZERO };
                (answer, keep)
            };
            let answer = self.kept.get(asked, ask).await;
            TOKEN_CACHE.note(!is_fetched.load(Ordering::Relaxed), begun.elapsed());
            answer
        })
    }
}
