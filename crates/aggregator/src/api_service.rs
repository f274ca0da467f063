//! An APIService: a version of a group, its priorities, and the server that serves it.
//!
//! Objects are read as stored. Validation happened when they were written.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_cache::Entry;
use keelson_meta::json::Value;
use keelson_meta::{Object, Revision, SERVER_GROUP};
use keelson_outbound::RemoteService;

use crate::automatic::OWN_GROUP;

/// The port of a service reference that names none.
const DEFAULT_PORT: u16 = 443;
/// The groups that this server always serves itself, whatever their APIServices say. If an APIService could forward
/// requests for APIServices, clients could no longer delete it.
const SERVED_HERE: [&str; 3] = ["", OWN_GROUP, SERVER_GROUP];

/// One APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiService {
    /// The name: `VERSION.GROUP`.
    pub name: String,
    /// The uid. It differs from that of a deleted APIService of the same name.
    pub uid: String,
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The priority of the group, higher first.
    pub group_priority: u32,
    /// The priority of the version in its group, higher first.
    pub version_priority: u32,
    /// The server for the version.
    pub backend: Backend,
    /// Its condition `Available`.
    pub condition: Option<Condition>,
    /// The revision of the last write.
    pub revision: Revision,
    /// A hash of the fields that users write. A change of these fields triggers an availability check; a change of the
    /// condition does not.
    pub(crate) written: u64,
}

/// The result of the last availability check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in CamelCase.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

/// The server for a version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// This server, because the APIService names no service or its group is one that every server serves itself.
    Local,
    /// The server behind a service.
    Remote(RemoteService),
}

impl ApiService {
    /// Reads a cache entry.
    pub fn read(entry: &Entry) -> Self {
        Self::from_object(&entry.object().decode(entry.revision), entry.revision)
    }

    fn from_object(object: &Object, revision: Revision) -> Self {
        let spec = object.get(&["spec"]).unwrap_or(&Value::Null);
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| spec[field].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            group: text("group"),
            version: text("version"),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            backend: match remote_service(spec) {
                Some(remote) if !SERVED_HERE.contains(&&*text("group")) => Backend::Remote(remote),
                Some(_) | None => Backend::Local,
            },
            condition: Condition::from_object(object),
            revision,
            written: written(object),
        }
    }

    /// Returns true if its condition `Available` is `True`. Otherwise requests are refused without a call to its
    /// server.
    pub fn is_available(&self) -> bool {
        self.condition.as_ref().is_some_and(Condition::holds)
    }

    /// The group and version, as a key.
    pub(crate) fn group_version(&self) -> (String, String) {
        (self.group.clone(), self.version.clone())
    }

    /// The path of the version.
    pub fn path(&self) -> String {
        version_path(&self.group, &self.version)
    }

    /// The service of the aggregated server; `None` if this server serves the version.
    pub fn remote(&self) -> Option<&RemoteService> {
        match &self.backend {
            Backend::Remote(remote) => Some(remote),
            Backend::Local => None,
        }
    }
}

/// A hash of the fields that users write.
fn written(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in [&["metadata", "labels"][..], &["metadata", "annotations"], &["metadata", "finalizers"], &["spec"]] {
        object.get(path).map(ToString::to_string).hash(&mut hasher);
    }
    hasher.finish()
}

/// The path of a version of a group.
pub(crate) fn version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// The service that a `spec` names, if any.
fn remote_service(spec: &Value) -> Option<RemoteService> {
    let service = spec.get("service").filter(|service| service.is_object())?;
    let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
    let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    Some(RemoteService {
        namespace: text("namespace"),
        name: text("name"),
        port: port.filter(|port| *port > 0).unwrap_or(DEFAULT_PORT),
        // The codec has validated the base64.
        ca_bundle: BASE64.decode(spec["caBundle"].as_str().unwrap_or_default()).unwrap_or_default(),
        insecure_skip_tls_verify: spec["insecureSkipTLSVerify"].as_bool().unwrap_or(false),
    })
}

impl Condition {
    pub(crate) fn new(holds: bool, reason: &str, message: String) -> Self {
        Self { status: if holds { "True" } else { "False" }.to_owned(), reason: reason.to_owned(), message }
    }

    pub(crate) fn unknown(reason: &str, message: String) -> Self {
        Self { status: "Unknown".to_owned(), reason: reason.to_owned(), message }
    }

    fn from_object(object: &Object) -> Option<Self> {
        let conditions = object.get(&["status", "conditions"]).and_then(Value::as_array)?;
        let stated = conditions.iter().find(|condition| condition["type"] == "Available")?;
        let text = |field: &str| stated[field].as_str().unwrap_or_default().to_owned();
        Some(Self { status: text("status"), reason: text("reason"), message: text("message") })
    }

    pub(crate) fn holds(&self) -> bool {
        self.status == "True"
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn read(spec: &Value, conditions: &Value) -> ApiService {
        let object =
            json!({"metadata": {"name": "v1.g", "uid": "u"}, "spec": spec, "status": {"conditions": conditions}});
        ApiService::from_object(&Object::from_value(object).unwrap(), Revision::ZERO)
    }

    #[test]
    fn a_version_is_served_here_unless_a_service_is_named() {
        let spec = json!({"group": "g", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15});
        let local = read(&spec, &json!([{"type": "Available", "status": "True"}]));
        assert_eq!((local.remote(), local.is_available()), (None, true));
        assert_eq!((&*local.group, &*local.version), ("g", "v1"));
        assert_eq!((local.group_priority, local.version_priority), (1000, 15));
    }

    #[test]
    fn the_port_and_trust_of_a_service_are_read() {
        let spec = json!({"group": "g", "service": {"namespace": "n", "name": "s"}, "caBundle": "YQ=="});
        let expected = RemoteService {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            ca_bundle: b"a".to_vec(),
            insecure_skip_tls_verify: false,
        };
        let found = read(&spec, &json!([{"type": "Available", "status": "False"}]));
        assert_eq!((found.remote(), found.is_available()), (Some(&expected), false));
        let service = json!({"namespace": "n", "name": "s", "port": 8443});
        let spec = json!({"group": "g", "service": service, "insecureSkipTLSVerify": true});
        let found = read(&spec, &Value::Null);
        let found = found.remote().unwrap();
        assert_eq!((found.port, found.insecure_skip_tls_verify), (8443, true));
    }
}
