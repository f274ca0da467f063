//! Legacy tokens of service accounts, as they are used. A token holds as long as its secret has it, its account is there, and the secret
//! is not marked as invalid. The day of the last use stands on the secret, also of a token that is refused for the mark, so that tokens
//! without use can be found. A client with a token that was made with its account is warned.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_access::User;
use keelson_access::token::{LegacyClaims, LegacyTokenError, TokenError};
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};
use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, Object};
use keelson_supervision::warn_repeated;

use super::token::{ServiceAccountTokens, TokenFault, TokenWarning, refused};
use crate::caller::Caller;
use crate::patch::{Patch, PatchKind};

/// Since when a token is not to be taken.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// When it was used last.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The warning for a token that a controller once made with each account: the account names its secret.
const AUTO_GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated \
                              secret-based tokens.";
/// Who notes that.
const MANAGER: &str = "kube-apiserver";

impl ServiceAccountTokens {
    /// The user of a legacy token; `None` for a token that is none.
    pub(super) async fn legacy_user(&self, token: &str, warning: &TokenWarning) -> Result<Option<User>, TokenFault> {
        let claims = match self.issuer().verify_legacy(token) {
            Ok(claims) => claims,
            Err(LegacyTokenError::Token(TokenError::Foreign)) => return Ok(None),
            Err(error) => return Err(refused(&error.to_string())),
        };
        let LegacyClaims { namespace, secret: name, account, uid } = &claims;
        let gone = || refused("Token has been invalidated");
        let entry =
            self.entry("secrets", Some(namespace), name).await.map_err(TokenFault::Unknown)?.ok_or_else(gone)?;
        let secret = entry.object.decode(entry.revision);
        if secret.deletion_timestamp().is_some() {
            return Err(gone());
        }
        let held = secret.get(&["data", "token"]).and_then(Value::as_str).and_then(|text| BASE64.decode(text).ok());
        if verify_slices_are_equal(&held.unwrap_or_default(), token.as_bytes()).is_err() {
            return Err(refused("Token does not match server's copy"));
        }
        if self.check_account(&claims).await? {
            warning.set(AUTO_GENERATED);
        }
        self.note_use(&claims, &secret).await;
        if secret.labels().any(|(key, since)| key == INVALID_SINCE && !since.is_empty()) {
            return Err(refused(&format!(
                "the token in secret {namespace}/{name} for service account {namespace}/{account} has been marked invalid. Use tokens from the \
                 TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to \
                 temporarily allow use of this token"
            )));
        }
        Ok(Some(User { uid: Some(uid.clone()), ..User::service_account(namespace, account) }))
    }

    /// Returns true if the account names the secret of the token.
    ///
    /// # Errors
    /// The refusal of a token that was made for another account.
    async fn check_account(&self, claims: &LegacyClaims) -> Result<bool, TokenFault> {
        let LegacyClaims { namespace, secret, account: name, uid } = claims;
        let account = self.entry("serviceaccounts", Some(namespace), name).await.map_err(TokenFault::Unknown)?;
        let account = account.ok_or_else(|| refused(&format!("serviceaccounts \"{name}\" not found")))?;
        let account = account.object.decode(account.revision);
        if account.deletion_timestamp().is_some() {
            return Err(refused(&format!("ServiceAccount {namespace}/{name} has been deleted")));
        }
        if account.uid() != uid {
            return Err(refused(&format!("ServiceAccount UID ({}) does not match claim ({uid})", account.uid())));
        }
        let mut named = account.get(&["secrets"]).and_then(Value::as_array).into_iter().flatten();
        Ok(named.any(|named| named.get("name").and_then(Value::as_str) == Some(secret)))
    }

    /// Notes the day on the secret, once a day. That it can't be noted keeps nobody out.
    async fn note_use(&self, claims: &LegacyClaims, secret: &Object) {
        let now = rfc3339(self.registry().now());
        let today = now.split('T').next().unwrap_or_default();
        if secret.labels().any(|(key, value)| key == LAST_USED && value == today) {
            return;
        }
        if let Err(error) = self.label(claims, today).await {
            warn_repeated!(format_args!("{}/{}", claims.namespace, claims.secret); namespace = claims.namespace, secret = claims.secret, %error, "the use of a legacy token can't be noted");
        }
    }

    async fn label(&self, claims: &LegacyClaims, today: &str) -> Result<(), ApiError> {
        let target = self.registry().target("", "secrets")?.in_namespace(Some(&claims.namespace)).named(&claims.secret);
        let document = json!({ "metadata": { "labels": { LAST_USED: today } } });
        let patch = Patch { kind: PatchKind::Merge, document, faults: Vec::new() };
        let caller = Caller::server().managing(MANAGER);
        self.registry().patch(&target, &claims.secret, &patch, &caller, &PatchOptions::default()).await.map(|_| ())
    }
}
