//! Tokens that others issued: a [`ForeignTokens`] knows the users of some, and says nothing of the rest.
//!
//! Those of this server's own are in `token`, `static_tokens` and `bootstrap_tokens`.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::user::User;

/// The user of a token and for which audiences it is, all of this server's where that is not said; `None` of a token that is not known.
/// A token that is known and not good is an error, as is one of which nobody can tell now: its text is for who reviews it.
pub type TokenAnswer = Result<Option<(User, Option<Vec<String>>)>, String>;

/// Knows the users of tokens that others issued.
pub trait ForeignTokens: Debug + Send + Sync {
    /// The user of a token that should be for one of these audiences, or for this server where there are none.
    fn authenticate<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, TokenAnswer>;
}
