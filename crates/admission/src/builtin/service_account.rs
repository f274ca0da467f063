//! Upstream's plugin ServiceAccount: adds the service account, its token and its image pull secrets to each pod. A
//! service account may restrict the secrets that its pods mount.
//!
//! The service account must exist before its pods. A controller creates the account `default` of a new namespace, so
//! the plugin waits for it briefly. The kubelet requests the token for the volume that this plugin adds.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::go_format::parse_bool;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::names::generate_name;
use keelson_meta::{ApiError, Object, Random};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation, Registry};
use tokio::time::{Instant, sleep};

use super::reading::{is_about, items};
use super::stored::StoredObjects;

/// The annotation of a mirror pod, which represents a static pod of a kubelet.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation with which a service account restricts mounted secrets.
const ENFORCES: &str = "kubernetes.io/enforce-mountable-secrets";
const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of a token in seconds. It is upstream's: 3607 instead of 3600 marks a token whose lifetime the pod did
/// not choose.
const TOKEN_SECONDS: u64 = 3607;
const FILE_MODE: u64 = 0o644;
/// The longest wait for the default account of a new namespace.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Adds the service account to pods.
pub(crate) struct ServiceAccounts {
    random: Arc<dyn Random>,
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").finish_non_exhaustive()
    }
}

impl ServiceAccounts {
    /// Creates the plugin. `random` generates names of volumes.
    pub(crate) fn new(random: Arc<dyn Random>) -> Self {
        Self { random }
    }

    async fn complete(&self, attributes: &AdmissionAttributes<'_>, pod: &mut Object) -> Result<Mutation, ApiError> {
        if is_mirror(pod) {
            return check_mirror(attributes, pod).map(|()| Mutation::Unchanged);
        }
        let name = match (text(pod, "serviceAccountName"), text(pod, "serviceAccount")) {
            ("", "") => DEFAULT.to_owned(),
            ("", older) => older.to_owned(),
            (name, _) => name.to_owned(),
        };
        let account = find(attributes, &name).await?;
        let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(Mutation::Unchanged) };
        spec.insert("serviceAccountName", name.as_str());
        spec.insert("serviceAccount", name.as_str());
        if mounts_token(&account, spec) {
            self.mount_token(spec);
        }
        let pulls = account.0.get("imagePullSecrets").filter(|secrets| !items(Some(*secrets)).is_empty());
        if let Some(secrets) = pulls.filter(|_| items(spec.get("imagePullSecrets")).is_empty()) {
            spec.insert("imagePullSecrets", secrets.clone());
        }
        check_secrets(attributes, &account, pod)?;
        Ok(Mutation::Changed)
    }

    /// Adds a volume with a token, unless the pod has one, and mounts it in containers without a mount at that path.
    fn mount_token(&self, spec: &mut Map) {
        let names: Vec<&str> = items(spec.get("volumes")).iter().map(|volume| field(volume, "name")).collect();
        let known = names.iter().find(|name| name.starts_with(VOLUME)).map(|name| (*name).to_owned());
        let made = known.is_none();
        let name = known.unwrap_or_else(|| {
            loop {
                let name = generate_name(VOLUME, &*self.random);
                if !names.contains(&name.as_str()) {
                    break name;
                }
            }
        });
        let mut is_needed = false;
        for list in ["initContainers", "containers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                let mounts = items(container.get("volumeMounts"));
                if mounts.iter().any(|mount| field(mount, "mountPath") == MOUNT_PATH) {
                    continue;
                }
                is_needed = true;
                push(container, "volumeMounts", json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH }));
            }
        }
        if made && is_needed {
            push(spec, "volumes", token_volume(&name));
        }
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({ "name": name, "projected": { "defaultMode": FILE_MODE, "sources": [
        { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": namespace }] } },
    ] } })
}

fn push(map: &mut Map, list: &str, item: Value) {
    let list = map.entry(list).or_insert(Value::Null);
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

fn field<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn text<'o>(pod: &'o Object, name: &str) -> &'o str {
    pod.get(&["spec", name]).and_then(Value::as_str).unwrap_or_default()
}

fn is_mirror(pod: &Object) -> bool {
    pod.annotations().any(|(name, _)| name == MIRROR)
}

fn mounts_token(account: &Object, spec: &Map) -> bool {
    let says = |value: Option<&Value>| value.and_then(Value::as_bool);
    let automounts = |of: &Map| says(of.get("automountServiceAccountToken"));
    automounts(spec).or_else(|| automounts(&account.0)).unwrap_or(true)
}

/// The service account of a pod.
///
/// # Errors
/// 403 if it does not exist.
async fn find(attributes: &AdmissionAttributes<'_>, name: &str) -> Result<Object, ApiError> {
    let namespace = attributes.target.namespace.as_deref().unwrap_or_default();
    let key = format!("{namespace}/{name}");
    let look =
        |registry: &Registry| Ok::<_, ApiError>(StoredObjects::new(registry, "", "serviceaccounts")?.object(&key));
    if let Some(account) = look(attributes.registry)? {
        return Ok(account);
    }
    // Another server may have created the account a moment ago, or this server's controller may be about to.
    let deadline = Instant::now() + if name == DEFAULT { PATIENCE } else { Duration::ZERO };
    loop {
        attributes.registry.catch_up().await?;
        if let Some(account) = look(attributes.registry)? {
            return Ok(account);
        }
        if Instant::now() >= deadline {
            return Err(attributes.refused(format!(
                "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
            )));
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Refuses a mirror pod that needs objects of the API, such as a service account or secrets.
fn check_mirror(attributes: &AdmissionAttributes<'_>, pod: &Object) -> Result<(), ApiError> {
    let refuse = |message: &str| Err(attributes.refused(message));
    if !text(pod, "serviceAccountName").is_empty() || !text(pod, "serviceAccount").is_empty() {
        return refuse("a mirror pod may not reference service accounts");
    }
    let spec = pod.0.get("spec").unwrap_or(&Value::Null);
    if names_secrets(spec) {
        return refuse("a mirror pod may not reference secrets");
    }
    let projected = items(spec.get("volumes")).iter().filter_map(|volume| volume.get("projected"));
    let mut sources = projected.flat_map(|volume| items(volume.get("sources")));
    if sources.any(|source| source.get("serviceAccountToken").is_some()) {
        return refuse("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// Returns true if a specification refers to a secret.
fn names_secrets(spec: &Value) -> bool {
    const REFERENCES: [&str; 9] = [
        "secretRef",
        "secretKeyRef",
        "secret",
        "nodePublishSecretRef",
        "controllerPublishSecretRef",
        "nodeStageSecretRef",
        "secretName",
        "imagePullSecrets",
        "nodeExpandSecretRef",
    ];
    match spec {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            REFERENCES.contains(&name) && !value.is_null() && !value.as_array().is_some_and(Vec::is_empty)
                || names_secrets(value)
        }),
        Value::Array(items) => items.iter().any(names_secrets),
        _ => false,
    }
}

/// Refuses secrets that the account does not list, if the account restricts mounted secrets.
fn check_secrets(attributes: &AdmissionAttributes<'_>, account: &Object, pod: &Object) -> Result<(), ApiError> {
    if !account.annotations().any(|(name, value)| name == ENFORCES && parse_bool(value)) {
        return Ok(());
    }
    let names =
        |list: &str| -> BTreeSet<&str> { items(account.0.get(list)).iter().map(|it| field(it, "name")).collect() };
    let (mountable, pulled) = (names("secrets"), names("imagePullSecrets"));
    let refuse = |what: String, kind: &str| {
        let name = account.name();
        let message = format!("{what} is not allowed because service account {name} does not reference that {kind}");
        Err(attributes.refused(message))
    };
    let spec = pod.0.get("spec").unwrap_or(&Value::Null);
    if attributes.operation == Operation::Create {
        for volume in items(spec.get("volumes")).iter().filter_map(|volume| volume.get("secret")) {
            let name = field(volume, "secretName");
            if !mountable.contains(name) {
                return refuse(format!("volume with secret.secretName=\"{name}\""), "secret");
            }
        }
    }
    let lists: &[(&str, &str)] = match attributes.operation {
        Operation::Create => &[("initContainers", "init container"), ("containers", "container")],
        _ => &[("ephemeralContainers", "ephemeral container")],
    };
    for (list, called) in lists {
        for container in items(spec.get(*list)) {
            if let Some(how) = unnamed_secret(container, &mountable) {
                return refuse(format!("{called} {} with {how}", field(container, "name")), "secret");
            }
        }
    }
    if attributes.operation == Operation::Create {
        for (index, pull) in items(spec.get("imagePullSecrets")).iter().enumerate() {
            let name = field(pull, "name");
            if !pulled.contains(name) {
                return refuse(format!("imagePullSecrets[{index}].name=\"{name}\""), "imagePullSecret");
            }
        }
    }
    Ok(())
}

/// The first reference of a container to a secret that may not be mounted.
fn unnamed_secret(container: &Value, mountable: &BTreeSet<&str>) -> Option<String> {
    for variable in items(container.get("env")) {
        let secret = variable.get("valueFrom").and_then(|from| from.get("secretKeyRef"));
        if let Some(name) = secret.map(|secret| field(secret, "name")).filter(|name| !mountable.contains(name)) {
            let variable = field(variable, "name");
            return Some(format!("envVar {variable} referencing secret.secretName=\"{name}\""));
        }
    }
    let references = items(container.get("envFrom")).iter().filter_map(|from| from.get("secretRef"));
    let mut names = references.map(|secret| field(secret, "name"));
    let name = names.find(|name| !mountable.contains(name))?;
    Some(format!("envFrom referencing secret.secretName=\"{name}\""))
}

impl Admission for ServiceAccounts {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        match (is_about(attributes, "pods"), attributes.subresource(), attributes.operation) {
            (true, "", Operation::Create) | (true, "ephemeralcontainers", Operation::Update) => {
                AttributesNeeded::Object
            }
            _ => AttributesNeeded::None,
        }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            match object {
                Some(pod) if attributes.operation == Operation::Create => self.complete(attributes, pod).await,
                _ => Ok(Mutation::Unchanged),
            }
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            if is_mirror(pod) {
                return if attributes.operation == Operation::Create { check_mirror(attributes, pod) } else { Ok(()) };
            }
            let namespace = attributes.target.namespace.as_deref().unwrap_or_default();
            let name = text(pod, "serviceAccountName");
            if attributes.operation == Operation::Create && name.is_empty() {
                let message = format!("no service account specified for pod {namespace}/{}", pod.name());
                return Err(attributes.refused(message));
            }
            // The account existed when the pod was created. If it was deleted since, it lists no secrets.
            match StoredObjects::new(attributes.registry, "", "serviceaccounts")?.object(&format!("{namespace}/{name}"))
            {
                Some(account) => check_secrets(attributes, &account, pod),
                None => Ok(()),
            }
        })
    }
}
