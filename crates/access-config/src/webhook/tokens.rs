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
use keelson_outbound::{ByteBudget, ByteReservation, Outbound, cut};

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
/// The longest accepted error of a response, in bytes; the rest is cut off.
const ERROR_BYTES: usize = 4096;
/// The largest accepted user, in bytes: as much as the header fields of a request can hold.
const USER_BYTES: usize = 256 * 1024;
/// The bytes of a cached user that need no reservation, and the bytes of all larger cached users.
const SMALL_USER_BYTES: usize = 4096;
const LARGE_USERS_BYTES: usize = 64 * 1024 * 1024;

/// A webhook that authenticates tokens.
#[derive(Debug)]
pub struct WebhookTokens {
    client: ReviewClient,
    version: ReviewVersion,
    keep: Duration,
    /// The audiences of this server. A response without audiences applies to them.
    own: Vec<String>,
    kept: Answers<(TokenAnswer, Option<Arc<ByteReservation>>)>,
    /// The budget for large cached users.
    large: ByteBudget,
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
        Ok(Self { client, version, keep, own, kept: Answers::new(KEPT), large: ByteBudget::new(LARGE_USERS_BYTES) })
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
            return if why.is_empty() { Ok(None) } else { Err(cut(why, ERROR_BYTES).to_owned()) };
        }
        let user = user(&status["user"]);
        let bytes = bytes_of(&user);
        if bytes > USER_BYTES {
            return Err(format!("the user in the webhook's answer has {bytes} bytes, over the limit of {USER_BYTES}"));
        }
        Ok(Some((user, Some(audiences))))
    }

    /// The reservation for a response and the time for which it is cached: none for a large user without room.
    fn room(&self, answer: &TokenAnswer) -> (Option<Arc<ByteReservation>>, Duration) {
        let bytes = match answer {
            Err(_) => return (None, Duration::ZERO),
            Ok(None) => 0,
            Ok(Some((user, _))) => bytes_of(user),
        };
        if bytes <= SMALL_USER_BYTES {
            return (None, self.keep);
        }
        let held = self.large.hold(bytes).or_else(|_| {
            self.kept.drop_expired();
            self.large.hold(bytes)
        });
        held.map_or((None, Duration::ZERO), |held| (Some(Arc::new(held)), self.keep))
    }
}

/// The bytes of a user's texts.
fn bytes_of(user: &User) -> usize {
    let groups: usize = user.groups.iter().map(String::len).sum();
    let extra = user.extra.iter().map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>());
    user.name.len() + user.uid.as_ref().map_or(0, String::len) + groups + extra.sum::<usize>()
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
                let (room, keep) = self.room(&answer);
                ((answer, room), keep)
            };
            let (answer, _room) = self.kept.get(asked, ask).await;
            TOKEN_CACHE.note(!is_fetched.load(Ordering::Relaxed), begun.elapsed());
            answer
        })
    }
}
