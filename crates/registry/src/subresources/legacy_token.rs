//! Legacy tokens of service accounts.
//!
//! A token is valid as long as its secret contains it, its account exists, and it is not marked as invalid. A label of
//! the secret has the day of its last use, so that unused tokens can be found.

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

use super::token::{ServiceAccountTokens, TokenFault, refused};
use crate::caller::Caller;
use crate::measured::TOKEN_USES;
use crate::patch::{Patch, PatchKind};

/// The label with the day since which a token is invalid.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The label with the day of the last use.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The warning about a token whose secret a controller has made for the account.
const GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated \
                         secret-based tokens.";
/// The field manager of that label.
const MANAGER: &str = "kube-apiserver";

/// The account of a token.
struct Account(Object);

impl Account {
    /// Returns true for a secret that the account lists: an old controller created it.
    fn names_secret(&self, name: &str) -> bool {
        let secrets = self.0.get(&["secrets"]).and_then(Value::as_array);
        secrets.into_iter().flatten().any(|secret| secret["name"] == name)
    }
}

impl ServiceAccountTokens {
    /// The user of a legacy token, and the warning about a token from a controller. `None` for any other token.
    pub(super) async fn legacy_user(&self, token: &str) -> Result<Option<(User, Option<&'static str>)>, TokenFault> {
        let claims = match self.issuer().verify_legacy(token) {
            Ok(claims) => claims,
            Err(LegacyTokenError::Token(TokenError::Foreign)) => return Ok(None),
            Err(error) => return Err(refused(&error.to_string())),
        };
        let LegacyClaims { namespace, secret: name, account, uid } = &claims;
        let gone = || refused("Token has been invalidated");
        let entry =
            self.entry("secrets", Some(namespace), name).await.map_err(TokenFault::Unknown)?.ok_or_else(gone)?;
        let secret = entry.object().decode(entry.revision);
        if secret.deletion_timestamp().is_some() {
            return Err(gone());
        }
        let held = secret.get(&["data", "token"]).and_then(Value::as_str).and_then(|text| BASE64.decode(text).ok());
        if verify_slices_are_equal(&held.unwrap_or_default(), token.as_bytes()).is_err() {
            return Err(refused("Token does not match server's copy"));
        }
        let is_generated = self.check_account(namespace, account, uid).await?.names_secret(name);
        if secret.labels().any(|(key, since)| key == INVALID_SINCE && !since.is_empty()) {
            // The label shows administrators that the token is still in use.
            self.note_use(&claims, &secret).await;
            return Err(refused(&format!(
                "the token in secret {namespace}/{name} for service account {namespace}/{account} has been marked invalid. Use tokens from the \
                 TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to \
                 temporarily allow use of this token"
            )));
        }
        self.note_use(&claims, &secret).await;
        if is_generated {
            TOKEN_USES.automatic.increment();
        } else {
            TOKEN_USES.manual.increment();
        }
        let user = User { uid: Some(uid.clone()), ..User::service_account(namespace, account) };
        Ok(Some((user, is_generated.then_some(GENERATED))))
    }

    async fn check_account(&self, namespace: &str, name: &str, uid: &str) -> Result<Account, TokenFault> {
        let account = self.entry("serviceaccounts", Some(namespace), name).await.map_err(TokenFault::Unknown)?;
        let account = account.ok_or_else(|| refused(&format!("serviceaccounts \"{name}\" not found")))?;
        let account = account.object().decode(account.revision);
        if account.deletion_timestamp().is_some() {
            return Err(refused(&format!("ServiceAccount {namespace}/{name} has been deleted")));
        }
        if account.uid() != uid {
            return Err(refused(&format!("ServiceAccount UID ({}) does not match claim ({uid})", account.uid())));
        }
        Ok(Account(account))
    }

    /// Records the day in the secret, once a day. If that fails, the request still succeeds.
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
