//! The claims of a token, and their JSON with sorted members, like kube-apiserver's.
//!
//! Parsing is strict, because the claims identify the client. Signatures are in `key`.

use std::time::{SystemTime, UNIX_EPOCH};

use keelson_meta::json::{Map, Value, json};

/// The claims of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `aud`: the audiences.
    pub audiences: Vec<String>,
    /// `exp`, in seconds since 1970.
    pub expires: i64,
    /// `iat`, in seconds since 1970.
    pub issued: i64,
    /// `nbf`, in seconds since 1970.
    pub not_before: i64,
    /// `jti`: the unique id of the token.
    pub id: String,
    /// The namespace of the service account.
    pub namespace: String,
    /// The service account.
    pub account: ObjectRef,
    /// The pod that the token is bound to.
    pub pod: Option<ObjectRef>,
    /// The secret that the token is bound to.
    pub secret: Option<ObjectRef>,
    /// The node of the pod, or the node that the token is bound to.
    pub node: Option<ObjectRef>,
    /// The time from which requests with the token get a warning, in seconds since 1970.
    pub warn_after: Option<i64>,
}

/// The name and uid of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// The name.
    pub name: String,
    /// The uid; empty for a node that did not exist.
    pub uid: String,
}

/// A time in whole seconds since 1970, the form of claims.
pub fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

impl Claims {
    /// `sub`: the user name of the account.
    pub fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account.name)
    }

    pub(super) fn to_json(&self, issuer: &str) -> String {
        let mut private = Map::new();
        private.insert("namespace", json!(self.namespace));
        let bound = [("node", &self.node), ("pod", &self.pod), ("secret", &self.secret)];
        for (name, object) in bound.into_iter().filter_map(|(name, object)| Some((name, object.as_ref()?))) {
            private.insert(name, object.to_json());
        }
        private.insert("serviceaccount", self.account.to_json());
        if let Some(seconds) = self.warn_after {
            private.insert("warnafter", json!(seconds));
        }
        json!({
            "aud": self.audiences,
            "exp": self.expires,
            "iat": self.issued,
            "iss": issuer,
            "jti": self.id,
            "kubernetes.io": private,
            "nbf": self.not_before,
            "sub": self.subject(),
        })
        .to_string()
    }

    /// Parses claims. Returns `None` if a claim is missing or has the wrong type, or if the subject and the account
    /// differ.
    pub(super) fn from_json(payload: &Value) -> Option<Self> {
        let time = |name: &str| payload.get(name)?.as_i64();
        let private = payload.get("kubernetes.io")?;
        let audiences = match payload.get("aud")? {
            Value::String(one) => vec![one.to_string()],
            many => many.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        };
        let claims = Self {
            audiences,
            expires: time("exp")?,
            issued: time("iat")?,
            not_before: time("nbf")?,
            id: text(payload, "jti").unwrap_or_default(),
            namespace: text(private, "namespace")?,
            account: ObjectRef::from_json(private.get("serviceaccount")?)?,
            pod: bound(private, "pod")?,
            secret: bound(private, "secret")?,
            node: bound(private, "node")?,
            warn_after: private.get("warnafter").and_then(Value::as_i64),
        };
        (text(payload, "sub")? == claims.subject()).then_some(claims)
    }
}

impl ObjectRef {
    fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("name", json!(self.name));
        if !self.uid.is_empty() {
            object.insert("uid", json!(self.uid));
        }
        Value::Object(object)
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self { name: text(value, "name")?, uid: text(value, "uid").unwrap_or_default() })
    }
}

/// The bound object of this kind. `Some(None)` if there is none, `None` if the reference is invalid.
fn bound(private: &Value, name: &str) -> Option<Option<ObjectRef>> {
    match private.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(object) => ObjectRef::from_json(object).map(Some),
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}
