//! Tokens of other issuers. A [`ForeignTokens`] authenticates tokens that it knows, and leaves others to other
//! authenticators.
//!
//! The server's own types of tokens are in `token`, `static_tokens` and `bootstrap_tokens`.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::user::User;

/// The user and audiences of a token. `Ok(None)` means that the token is unknown. `None` in place of the audiences
/// means all audiences of this server. An invalid token or a failed lookup is an error; its text is for token reviews.
pub type TokenAnswer = Result<Option<(User, Option<Vec<String>>)>, String>;

/// Authenticates tokens of other issuers.
pub trait ForeignTokens: Debug + Send + Sync {
    /// Authenticates a token for one of these audiences, or for this server if there are none.
    fn authenticate<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, TokenAnswer>;
}
