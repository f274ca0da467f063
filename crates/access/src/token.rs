//! Service account tokens: their claims, signatures and verification (RFC 7519; RS256 and ES256 to ES512 of RFC 7518).
//!
//! A verified token was signed by an accepted key and is valid now. Its service account may be deleted; other code
//! checks that. The claims are kube-apiserver's (KEP-1205), so every verifier reads tokens in the same way.

mod claims;
mod key;
mod legacy;

use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use keelson_meta::json::{Value, json};

use crate::pki::SigningKey;
use key::TokenKey;

pub use claims::{Claims, ObjectRef, seconds};
pub use key::KeyError;
pub use legacy::{LegacyClaims, LegacyTokenError};

/// The default issuer.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The tolerance for differences between the clocks of servers.
pub const LEEWAY: Duration = Duration::from_mins(1);

/// Signs and verifies tokens. The keys may change while the server runs.
pub struct TokenIssuer {
    /// The accepted issuers. The first one signs.
    names: Vec<String>,
    /// The audiences of this server, if they are not the issuers.
    audiences: Vec<String>,
    /// The URL of the public keys for other verifiers, if it is not this server's.
    key_set_url: Option<String>,
    key: ArcSwap<TokenKey>,
}

/// The reason why a token is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token has another issuer. Another authenticator may accept it.
    #[error("invalid bearer token")]
    Foreign,
    /// The token names this issuer, but its signature is invalid.
    #[error("invalid signature")]
    Signature,
    /// The token names this issuer, but an unknown key.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// The token has expired.
    #[error("service account token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("service account token is not valid yet")]
    NotYet,
    /// The token was issued in the future, so the clock of its signer is ahead.
    #[error("service account token is issued in the future")]
    InFuture,
    /// A required claim is missing.
    #[error("service account token claims could not be validated due to unexpected private claim")]
    Claims,
}

impl TokenIssuer {
    /// Creates an issuer with these keys. `name` is its URL.
    ///
    /// # Errors
    /// A key cannot sign or verify tokens.
    pub fn new(name: String, key: &SigningKey) -> Result<Self, KeyError> {
        let key = ArcSwap::from_pointee(TokenKey::read(key)?);
        Ok(Self { names: vec![name], audiences: Vec::new(), key_set_url: None, key })
    }

    /// Accepts tokens of these issuers too, such as the one before a rename.
    #[must_use]
    pub fn accepting(mut self, others: &[String]) -> Self {
        for other in others {
            if !self.names.contains(other) {
                self.names.push(other.clone());
            }
        }
        self
    }

    /// Replaces the audiences of this server. An empty list means the issuers.
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Self {
        self.audiences = audiences;
        self
    }

    /// Publishes another URL of the public keys.
    #[must_use]
    pub fn with_key_set_url(mut self, url: Option<String>) -> Self {
        self.key_set_url = url;
        self
    }

    /// Replaces the keys. Returns true if they changed.
    ///
    /// # Errors
    /// A key cannot sign or verify tokens. The previous keys stay.
    pub fn change(&self, key: &SigningKey) -> Result<bool, KeyError> {
        let next = TokenKey::read(key)?;
        let is_new = !next.ids().eq(self.key.load().ids());
        if is_new {
            self.key.store(next.into());
        }
        Ok(is_new)
    }

    /// The URL of the issuer that signs.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The accepted issuers; the one that signs is first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The audiences of this server: a token for one of them is valid here.
    pub fn audiences(&self) -> &[String] {
        if self.audiences.is_empty() { &self.names } else { &self.audiences }
    }

    /// The ids of the accepted keys; the signing key is first.
    pub fn key_ids(&self) -> Vec<String> {
        self.key.load().ids().map(str::to_owned).collect()
    }

    /// Adds the issuer to the claims, and signs them.
    ///
    /// # Errors
    /// The system's cryptography fails.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let signing = self.key.load();
        let signed =
            format!("{}.{}", key::encode(signing.header().to_string()), key::encode(claims.to_json(self.name())));
        let signature = signing.sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", key::encode(signature)))
    }

    /// Parses a token and verifies its signature and validity.
    ///
    /// # Errors
    /// The reason why the token is rejected.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Claims, TokenError> {
        let payload = self.payload(token, |issuer| self.names.iter().any(|name| name == issuer))?;
        let claims = Claims::from_json(&payload).ok_or(TokenError::Claims)?;
        let (now, leeway) = (seconds(now), LEEWAY.as_secs().cast_signed());
        match () {
            () if now - leeway > claims.expires => Err(TokenError::Expired),
            () if now + leeway < claims.not_before => Err(TokenError::NotYet),
            () if now + leeway < claims.issued => Err(TokenError::InFuture),
            () => Ok(claims),
        }
    }

    /// The claims of a token of an accepted issuer, after its signature is verified.
    fn payload(&self, token: &str, is_accepted: impl Fn(&str) -> bool) -> Result<Value, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Foreign)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::Foreign)?;
        let payload = key::decode_json(payload).ok_or(TokenError::Foreign)?;
        if !payload.get("iss").and_then(Value::as_str).is_some_and(is_accepted) {
            return Err(TokenError::Foreign);
        }
        // Like upstream, a text without a header is not a token.
        let header = key::decode_json(header).ok_or(TokenError::Foreign)?;
        let algorithm = header.get("alg").and_then(Value::as_str);
        // Without a key id, all keys are tried.
        let id = header.get("kid").and_then(Value::as_str).filter(|id| !id.is_empty());
        let keys = self.key.load();
        if id.is_some_and(|id| keys.ids().all(|known| known != id)) {
            return Err(TokenError::UnknownKey);
        }
        let signature = key::decode(signature).zip(algorithm);
        if !signature.is_some_and(|(signature, algorithm)| keys.verifies(id, algorithm, signed.as_bytes(), &signature))
        {
            return Err(TokenError::Signature);
        }
        Ok(payload)
    }

    /// The public keys for other verifiers (RFC 7517).
    pub fn key_set(&self) -> Value {
        json!({ "keys": self.key.load().public() })
    }

    /// The discovery document for other verifiers (OpenID Connect Discovery 1.0), with the fields that verification
    /// needs. `own_key_set_url` is the URL of the public keys on this server.
    pub fn configuration(&self, own_key_set_url: &str) -> Value {
        json!({
            "issuer": self.name(),
            "jwks_uri": self.key_set_url.as_deref().unwrap_or(own_key_set_url),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.key.load().algorithms(),
        })
    }
}

impl std::fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssuer").field("names", &self.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{self, PkiOptions};
    use keelson_meta::SystemClock;
    use keelson_meta::random::SystemRandom;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn issuer(name: &str) -> TokenIssuer {
        let pki = pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap();
        TokenIssuer::new(name.to_owned(), &pki.service_account).unwrap()
    }

    fn claims() -> Claims {
        let now = NOW.as_secs().cast_signed();
        Claims {
            audiences: vec!["a".into(), "b".into()],
            expires: now + 600,
            issued: now,
            not_before: now,
            id: "id".into(),
            namespace: "team".into(),
            account: ObjectRef { name: "web".into(), uid: "u".into() },
            pod: Some(ObjectRef { name: "web-0".into(), uid: "p".into() }),
            secret: None,
            node: Some(ObjectRef { name: "n".into(), uid: String::new() }),
            warn_after: None,
        }
    }

    #[test]
    fn a_signed_token_reads_back_until_it_is_over() {
        let issuer = issuer("https://i");
        let token = issuer.sign(&claims()).unwrap();
        let at =
            |offset: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.as_secs().saturating_add_signed(offset));
        assert_eq!(issuer.verify(&token, at(0)), Ok(claims()));
        assert_eq!(issuer.verify(&token, at(660)), Ok(claims()), "clocks differ");
        assert_eq!(issuer.verify(&token, at(661)), Err(TokenError::Expired));
        assert_eq!(issuer.verify(&token, at(-61)), Err(TokenError::NotYet));
        let early = issuer.sign(&Claims { issued: claims().issued + 61, ..claims() }).unwrap();
        assert_eq!(issuer.verify(&early, at(0)), Err(TokenError::InFuture));
        assert!(issuer.verify(&early, at(1)).is_ok(), "clocks differ");
    }

    #[test]
    fn a_token_that_names_a_key_is_of_that_key_alone() {
        let keys = || pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap().service_account;
        let (first, second) = (keys(), keys());
        let both = SigningKey { also_verified_by: second.public_pem.clone(), ..first };
        let (issuer, other) =
            (TokenIssuer::new("i".into(), &both).unwrap(), TokenIssuer::new("i".into(), &second).unwrap());
        let ids = issuer.key_ids();
        let signed_as = |header: Value| {
            let signed = format!("{}.{}", key::encode(header.to_string()), key::encode(claims().to_json("i")));
            format!("{signed}.{}", key::encode(other.key.load().sign(signed.as_bytes()).unwrap()))
        };
        let check = |header: Value, expect: Result<Claims, TokenError>| {
            assert_eq!(issuer.verify(&signed_as(header.clone()), SystemTime::UNIX_EPOCH + NOW), expect, "{header}");
        };
        check(json!({ "alg": "ES256", "kid": ids[1] }), Ok(claims()));
        check(json!({ "alg": "ES256" }), Ok(claims()));
        check(json!({ "alg": "ES256", "kid": "" }), Ok(claims()));
        check(json!({ "alg": "ES256", "kid": ids[0] }), Err(TokenError::Signature));
        check(json!({ "alg": "ES256", "kid": "none" }), Err(TokenError::UnknownKey));
        check(json!({ "alg": "ES512", "kid": ids[1] }), Err(TokenError::Signature));
    }

    #[test]
    fn tokens_of_further_issuers_are_accepted_and_only_the_first_one_signs() {
        let pki = pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap();
        let named = |name: &str| TokenIssuer::new(name.to_owned(), &pki.service_account).unwrap();
        let both = named("https://new").accepting(&["https://old".to_owned()]);
        let now = SystemTime::UNIX_EPOCH + NOW;
        assert_eq!(both.verify(&named("https://old").sign(&claims()).unwrap(), now), Ok(claims()));
        let unknown = named("https://older").sign(&claims()).unwrap();
        assert_eq!(both.verify(&unknown, now), Err(TokenError::Foreign));
        assert_eq!(named("https://new").verify(&both.sign(&claims()).unwrap(), now), Ok(claims()));
        assert_eq!(both.audiences(), ["https://new", "https://old"]);
        assert_eq!(both.configuration("u")["jwks_uri"], "u");
        let other = both.with_audiences(vec!["api".into()]).with_key_set_url(Some("https://keys".into()));
        assert_eq!(
            (other.audiences(), other.configuration("u")["jwks_uri"].as_str()),
            (&["api".to_owned()][..], Some("https://keys"))
        );
    }

    #[test]
    fn signatures_of_other_keys_are_refused() {
        let (issuer, other) = (issuer("https://i"), issuer("https://i"));
        let now = SystemTime::UNIX_EPOCH + NOW;
        let token = issuer.sign(&claims()).unwrap();
        assert_eq!(other.verify(&token, now), Err(TokenError::UnknownKey));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let mut forged = claims();
        forged.namespace = "kube-system".into();
        let forged = key::encode(forged.to_json("https://i"));
        assert_eq!(issuer.verify(&format!("{header}.{forged}.{signature}"), now), Err(TokenError::Signature));
        let none = key::encode(r#"{"alg":"none"}"#);
        assert_eq!(issuer.verify(&format!("{none}.{forged}."), now), Err(TokenError::Signature));
        let with_scheme = format!("Bearer {token}");
        for foreign in ["", "x", "a.b.c", "..", &with_scheme, &self::issuer("https://j").sign(&claims()).unwrap()] {
            assert_eq!(issuer.verify(foreign, now), Err(TokenError::Foreign), "{foreign}");
        }
    }

    #[test]
    fn a_key_is_changed_by_accepting_the_next_one_first() {
        let keys = || pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap().service_account;
        let (old, new) = (keys(), keys());
        let issuer = |signing: &SigningKey, also: String| {
            let key = SigningKey { also_verified_by: also, ..signing.clone() };
            TokenIssuer::new("https://i".to_owned(), &key)
        };
        let both = format!("{}{}", old.public_pem, new.public_pem);
        let before = issuer(&old, both.clone()).unwrap();
        let after = issuer(&new, both).unwrap();
        let now = SystemTime::UNIX_EPOCH + NOW;
        for (signs, reads) in [(&before, &after), (&after, &before)] {
            assert_eq!(reads.verify(&signs.sign(&claims()).unwrap(), now), Ok(claims()));
        }
        let ids = TokenIssuer::key_ids;
        assert_eq!(ids(&before).into_iter().rev().collect::<Vec<_>>(), ids(&after));
        assert_eq!(after.key_set()["keys"].as_array().unwrap().len(), 2);
        assert_eq!(ids(&issuer(&new, String::new()).unwrap()), ids(&after)[..1]);
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().public_key_pem();
        assert!(matches!(issuer(&new, other.clone()), Err(KeyError::PublicKind)));
        // An invalid key also changes nothing while the server runs.
        let unfit = SigningKey { also_verified_by: other, ..new.clone() };
        assert!(matches!(before.change(&unfit), Err(KeyError::PublicKind)));
        let token = before.sign(&claims()).unwrap();
        let next = SigningKey { also_verified_by: old.public_pem.clone(), ..new.clone() };
        assert_eq!((before.change(&next).unwrap(), before.change(&next).unwrap()), (true, false));
        assert_eq!((ids(&before), before.verify(&token, now)), (ids(&after), Ok(claims())));
        assert_eq!(before.change(&new).ok(), Some(true));
        assert_eq!(before.verify(&token, now), Err(TokenError::UnknownKey));
    }

    /// Private keys in each form of kubeadm and openssl, with the algorithm of their tokens.
    fn keys_of_all_kinds() -> Vec<(&'static str, SigningKey)> {
        let file = |name: &str| -> String {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pki/testdata").join(name);
            std::fs::read_to_string(path).unwrap()
        };
        let read = |private: String| SigningKey::read(private, String::new()).unwrap();
        [
            ("RS256", "rsa-2048.pkcs1.key"),
            ("RS256", "rsa-2048.pkcs8.key"),
            ("ES256", "p256.sec1.key"),
            ("ES384", "p384.pkcs8.key"),
            ("ES512", "p521.sec1.key"),
        ]
        .map(|(algorithm, name)| (algorithm, read(file(name))))
        .to_vec()
    }

    #[test]
    fn tokens_are_signed_and_verified_with_keys_of_all_kinds() {
        let now = SystemTime::UNIX_EPOCH + NOW;
        let p256 = pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap().service_account;
        for (algorithm, key) in keys_of_all_kinds() {
            let issuer = TokenIssuer::new("https://i".to_owned(), &key).unwrap();
            let token = issuer.sign(&claims()).unwrap();
            let header = key::decode_json(token.split('.').next().unwrap()).unwrap();
            assert_eq!(header, json!({ "alg": algorithm, "kid": issuer.key_ids()[0] }));
            assert_eq!(issuer.verify(&token, now), Ok(claims()), "{algorithm}");
            assert_eq!(issuer.configuration("u")["id_token_signing_alg_values_supported"], json!([algorithm]));
            // The signature, with the name of another algorithm.
            let (_, rest) = token.split_once('.').unwrap();
            for other in
                ["RS256", "ES256", "ES384", "ES512", "HS256", "none"].into_iter().filter(|other| *other != algorithm)
            {
                let header = key::encode(json!({ "alg": other, "kid": issuer.key_ids()[0] }).to_string());
                assert_eq!(issuer.verify(&format!("{header}.{rest}"), now), Err(TokenError::Signature), "{other}");
            }
            // A server with a new key accepts tokens of the previous one.
            let moved = SigningKey { also_verified_by: key.public_pem.clone(), ..p256.clone() };
            assert_eq!(TokenIssuer::new("https://i".to_owned(), &moved).unwrap().verify(&token, now), Ok(claims()));
        }
    }

    #[test]
    fn both_encodings_of_a_key_have_one_id() {
        let ids: Vec<_> =
            keys_of_all_kinds().iter().map(|(_, key)| TokenIssuer::new("i".into(), key).unwrap().key_ids()).collect();
        assert_eq!(ids[0], ids[1]);
        // openssl pkey -in rsa-2048.pkcs8.key -pubout -outform DER | openssl dgst -sha256 -binary | basenc --base64url
        assert_eq!(ids[0], ["ngCJAeLlFETgNxPqkE57ZIP6MvI6Z8kMTq_SK8SLwjo"]);
    }

    #[test]
    fn public_keys_of_each_encoding_are_in_the_key_set() {
        let file = |name: &str| -> String {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pki/testdata").join(name);
            std::fs::read_to_string(path).unwrap()
        };
        let own = pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap().service_account;
        let rsa = "ngCJAeLlFETgNxPqkE57ZIP6MvI6Z8kMTq_SK8SLwjo".to_owned();
        for form in ["rsa-2048.pub", "rsa-2048.pkcs1.pub", "rsa-2048.crt", "rsa-2048.pkcs1.key"] {
            let key = SigningKey { also_verified_by: file(form), ..own.clone() };
            let issuer = TokenIssuer::new("i".to_owned(), &key).unwrap();
            assert_eq!(issuer.key_ids()[1..], *std::slice::from_ref(&rsa), "{form}");
            let shown = issuer.key_set()["keys"][1].clone();
            assert_eq!((&shown["kty"], &shown["alg"], &shown["e"]), (&json!("RSA"), &json!("RS256"), &json!("AQAB")));
            assert_eq!(key::decode(shown["n"].as_str().unwrap()).unwrap().len(), 256);
            assert_eq!(issuer.configuration("u")["id_token_signing_alg_values_supported"], json!(["ES256", "RS256"]));
        }
        let several = [file("rsa-2048.pub"), file("rsa-2048.crt"), file("p384.pub")].concat();
        let key = SigningKey { also_verified_by: several, ..own };
        assert_eq!(TokenIssuer::new("i".to_owned(), &key).unwrap().key_ids().len(), 3);
    }

    #[test]
    fn the_claims_stand_as_upstream_writes_them() {
        let text = claims().to_json("https://i");
        assert_eq!(
            text,
            concat!(
                r#"{"aud":["a","b"],"exp":1800000600,"iat":1800000000,"iss":"https://i","jti":"id","#,
                r#""kubernetes.io":{"namespace":"team","node":{"name":"n"},"pod":{"name":"web-0","uid":"p"},"#,
                r#""serviceaccount":{"name":"web","uid":"u"}},"nbf":1800000000,"#,
                r#""sub":"system:serviceaccount:team:web"}"#
            )
        );
    }

    #[test]
    fn the_key_set_names_the_key_of_the_tokens() {
        let issuer = issuer("https://i");
        let token = issuer.sign(&claims()).unwrap();
        let header = key::decode_json(token.split('.').next().unwrap()).unwrap();
        let keys = issuer.key_set();
        assert_eq!(keys["keys"][0]["kid"], header["kid"]);
        for coordinate in ["x", "y"] {
            assert_eq!(key::decode(keys["keys"][0][coordinate].as_str().unwrap()).unwrap().len(), 32);
        }
        assert_eq!(issuer.configuration("https://k/openid/v1/jwks")["jwks_uri"], "https://k/openid/v1/jwks");
    }
}
