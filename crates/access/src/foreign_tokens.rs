//! Tokens of other issuers: a [`ForeignTokens`] authenticates some, and has no answer for the rest.
//!
//! The server's own kinds are in `token`, `static_tokens` and `bootstrap_tokens`.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::user::User;

/// The user and audiences of a token; `None` in place of the audiences means all of this server's, `None` as a whole an
/// unknown token. A known but invalid token is an error, and so is a failed lookup; the text is for token reviews.
pub type TokenAnswer = Result<Option<(User, Option<Vec<String>>)>, String>;

/// Authenticates tokens of other issuers.
pub trait ForeignTokens: Debug + Send + Sync {
    /// Authenticates a token for one of these audiences, or for this server where none are given.
    fn authenticate<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, TokenAnswer>;
}
