//! Legacy service account tokens. kube-controller-manager puts them into secrets of type
//! `kubernetes.io/service-account-token`. They have no expiry and no audience, and are valid while their secret
//! contains them.

use keelson_meta::json::Value;

use super::{TokenError, TokenIssuer};

/// The issuer in all legacy tokens, whatever key signed them.
const ISSUER: &str = "kubernetes/serviceaccount";
const PREFIX: &str = "kubernetes.io/serviceaccount/";

/// The claims of a legacy token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyClaims {
    /// The namespace of the account and the secret.
    pub namespace: String,
    /// The secret that contains the token.
    pub secret: String,
    /// The service account.
    pub account: String,
    /// The uid of the service account.
    pub uid: String,
}

/// The reason why a legacy token is rejected. The messages are kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LegacyTokenError {
    /// The token is not a legacy token, or its signature is invalid.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A claim is missing.
    #[error("{0} claim is missing")]
    Missing(&'static str),
    /// The subject and the account differ.
    #[error("sub claim is invalid")]
    Subject,
}

impl TokenIssuer {
    /// Parses a legacy token and verifies its signature. The caller must compare it with the secret.
    ///
    /// # Errors
    /// The reason why the token is rejected; [`TokenError::Foreign`] for any other token.
    pub fn verify_legacy(&self, token: &str) -> Result<LegacyClaims, LegacyTokenError> {
        let payload = self.payload(token, |issuer| issuer == ISSUER)?;
        let claim = |name: &str, message: &'static str| {
            let text = payload.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or(LegacyTokenError::Missing(message))
        };
        let subject = claim("sub", "sub")?;
        let claims = LegacyClaims {
            namespace: claim(&format!("{PREFIX}namespace"), "namespace")?,
            secret: claim(&format!("{PREFIX}secret.name"), "secretName")?,
            account: claim(&format!("{PREFIX}service-account.name"), "serviceAccountName")?,
            uid: claim(&format!("{PREFIX}service-account.uid"), "serviceAccountUID")?,
        };
        let expected = format!("system:serviceaccount:{}:{}", claims.namespace, claims.account);
        if subject == expected { Ok(claims) } else { Err(LegacyTokenError::Subject) }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::SystemClock;
    use keelson_meta::json::json;
    use keelson_meta::random::SystemRandom;

    use super::*;
    use crate::pki::{self, PkiOptions};
    use crate::token::key;

    fn issuer() -> TokenIssuer {
        let pki = pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap();
        TokenIssuer::new("https://i".to_owned(), &pki.service_account).unwrap()
    }

    fn signed(issuer: &TokenIssuer, change: &[(&str, Option<&str>)]) -> String {
        let mut claims = json!({
            "iss": ISSUER, "sub": "system:serviceaccount:team:web",
            "kubernetes.io/serviceaccount/namespace": "team", "kubernetes.io/serviceaccount/secret.name": "web-token",
            "kubernetes.io/serviceaccount/service-account.name": "web", "kubernetes.io/serviceaccount/service-account.uid": "u",
        });
        for (name, value) in change {
            claims[*name] = json!(value);
        }
        let signed =
            format!("{}.{}", key::encode(json!({"alg": "ES256"}).to_string()), key::encode(claims.to_string()));
        let signature = issuer.key.load().sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", key::encode(signature))
    }

    #[test]
    fn a_legacy_token_names_its_account_and_its_secret() {
        let issuer = issuer();
        let claims = issuer.verify_legacy(&signed(&issuer, &[])).unwrap();
        let text = str::to_owned;
        let expected =
            LegacyClaims { namespace: text("team"), secret: text("web-token"), account: text("web"), uid: text("u") };
        assert_eq!(claims, expected);
        let check = |change: (&str, Option<&str>), told: &str| {
            let fault = issuer.verify_legacy(&signed(&issuer, &[change])).unwrap_err();
            assert_eq!(fault.to_string(), told);
        };
        check(("kubernetes.io/serviceaccount/secret.name", None), "secretName claim is missing");
        check(("kubernetes.io/serviceaccount/service-account.uid", Some("")), "serviceAccountUID claim is missing");
        check(("sub", Some("system:serviceaccount:kube-system:web")), "sub claim is invalid");
        check(("iss", Some("https://i")), "invalid bearer token");
        assert_eq!(self::issuer().verify_legacy(&signed(&issuer, &[])), Err(TokenError::Signature.into()));
    }
}
