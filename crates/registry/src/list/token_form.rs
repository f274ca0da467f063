//! The form in which lists and queries give their tokens out, and take them back: as they are, or sealed for the caller.
//!
//! What a token says is the business of whoever makes it; here it is a text.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_access::{SealFault, TokenSeal};
use keelson_meta::ApiError;
use keelson_meta::error::ExpiredKind;

use crate::config::RegistryConfig;
use crate::target::Target;

const FOREIGN: &str = "continue key is not valid: it was altered, or given for another list or to somebody else";

/// How the tokens of one list are given out.
#[derive(Clone, Debug)]
pub(crate) struct TokenForm {
    seal: Option<Arc<TokenSeal>>,
    /// By what a sealed token is bound to its list.
    list: String,
    caller: Option<String>,
}

impl TokenForm {
    /// The form for a caller, by the name that it has as a user; without one tokens are taken from anybody, and nobody is given one.
    pub(crate) fn new(target: &Target, config: &RegistryConfig, caller: Option<&str>) -> Self {
        Self {
            seal: config.token_seal.clone(),
            list: format!("{} {}", target.group_resource(), target.key_prefix()),
            caller: caller.map(str::to_owned),
        }
    }

    /// A token as the client sees it.
    pub(crate) fn give(&self, token: String) -> String {
        match &self.seal {
            None => token,
            Some(seal) => seal.seal(&token, &self.list, self.caller.as_deref().unwrap_or_default()),
        }
    }

    /// A token that a client sent, as it was before it was given.
    ///
    /// # Errors
    /// 400 for one that was altered, or is another list's or caller's; 410 for one whose key is there no longer.
    pub(crate) fn take<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, ApiError> {
        let Some(seal) = &self.seal else { return Ok(Cow::Borrowed(text)) };
        let foreign = || ApiError::BadRequest(format!("invalid continue token: {FOREIGN}"));
        let opened = seal.open(text, &self.list).map_err(|fault| match fault {
            SealFault::Foreign => foreign(),
            SealFault::Retired => ApiError::Expired { message: ExpiredKind::ContinueTokenNoRest, continue_token: None },
        })?;
        if self.caller.as_ref().is_some_and(|caller| *caller != opened.caller) {
            return Err(foreign());
        }
        Ok(Cow::Owned(opened.token))
    }
}
