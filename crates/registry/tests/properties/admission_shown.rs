//! The objects that admission plugins see: old and new, in the version of the request, with their name. At an endpoint,
//! the kind that it accepts.
//!
//! The order of the stages and retries are in `admission.rs`.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, GetOptions, PatchOptions, UpdateOptions};
use keelson_meta::{ApiError, Object};
use keelson_registry::{
    Admission, AdmissionAttributes, Caller, Mutation, Patch, PatchKind, Registry, Target, WriteOptions, fit,
};
use parking_lot::Mutex;

use crate::admission::server_with;
use crate::cluster::run;

/// Records the `apiVersion`, the kind, and the desired replicas or the address of each object, and changes that number.
#[derive(Debug, Default)]
struct Watcher {
    seen: Mutex<Vec<String>>,
    /// The desired replicas that it sets in a scale.
    replicas: Mutex<Option<i64>>,
}

impl Watcher {
    fn note(&self, stage: &str, attributes: &AdmissionAttributes<'_>, object: Option<&Object>) {
        let said = |object: Option<&Object>| {
            object.map_or("none".to_owned(), |object| {
                let fields = ["replicas", "minReplicas", "clusterIP"];
                let known = fields.iter().find_map(|field| object.get(&["spec", field]));
                let (api_version, kind) = (object.api_version().unwrap(), object.kind().unwrap());
                format!("{api_version} {kind} {}", known.unwrap_or(&Value::Null))
            })
        };
        let (old, new) = (said(attributes.old), said(object));
        self.seen.lock().push(format!("{stage} {:?}: {old} -> {new}", attributes.name));
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock())
    }
}

impl Admission for Watcher {
    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        self.note("mutate", attributes, object.as_deref());
        let wanted = *self.replicas.lock();
        let (Some(object), Some(wanted)) = (object.filter(|object| object.kind() == Some("Scale")), wanted) else {
            return Box::pin(ready(Ok(Mutation::Unchanged)));
        };
        object.0.insert("spec", json!({ "replicas": wanted }));
        Box::pin(ready(Ok(Mutation::Changed)))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        self.note("validate", attributes, object);
        Box::pin(ready(Ok(())))
    }
}

async fn server() -> (Arc<Registry>, Arc<Watcher>) {
    let watcher = Arc::new(Watcher::default());
    let (server, _) = server_with(watcher.clone()).await;
    watcher.take_calls();
    (server, watcher)
}

fn target(server: &Registry, group: &str, version: &str, plural: &str) -> Target {
    server.surface().lookup(group, version, plural).unwrap().in_namespace(Some("q"))
}

async fn create(server: &Registry, target: &Target, sent: Value) {
    let mut object = Object::from_value(sent).unwrap();
    object.set_type(target.kind());
    object.set_meta("namespace", "q");
    fit(target, &mut object).unwrap();
    server.create(target, object, &Caller::server(), &CreateOptions::default()).await.unwrap();
}

#[test]
fn plugins_get_both_objects_in_the_request_version() {
    run(async {
        let (server, watcher) = server().await;
        let target = target(&server, "autoscaling", "v1", "horizontalpodautoscalers");
        let spec = json!({"minReplicas": 2, "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
        create(&server, &target, json!({"metadata": {"name": "h"}, "spec": spec})).await;
        let kind = "autoscaling/v1 HorizontalPodAutoscaler";
        let made = |stage: &str| format!("{stage} \"h\": none -> {kind} 2");
        assert_eq!(watcher.take_calls(), [made("mutate"), made("validate")]);

        let document = json!({"spec": {"minReplicas": 1}});
        let patch = Patch { kind: PatchKind::Merge, document, faults: Vec::new() };
        let written = server.patch(&target, "h", &patch, &Caller::server(), &PatchOptions::default()).await.unwrap();
        assert_eq!(written.object.api_version(), "autoscaling/v2", "it is stored in another version");
        let changed = |stage: &str| format!("{stage} \"h\": {kind} 2 -> {kind} 1");
        assert_eq!(watcher.take_calls(), [changed("mutate"), changed("validate")]);
    });
}

#[test]
fn validating_plugins_get_the_allocated_address() {
    run(async {
        let (server, watcher) = server().await;
        let services = target(&server, "", "v1", "services");
        create(&server, &services, json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})).await;
        let made = server.get(&services, "s", &Caller::server(), &GetOptions::default()).await.unwrap();
        let address = made.object().decode(made.revision).get(&["spec", "clusterIP"]).cloned().unwrap();
        assert!(address.as_str().unwrap().parse::<IpAddr>().is_ok(), "{address}");
        let judged = format!("validate \"s\": none -> v1 Service {address}");
        assert_eq!(watcher.take_calls(), ["mutate \"s\": none -> v1 Service null".to_owned(), judged]);
    });
}

#[test]
fn scale_updates_are_admitted_as_scales() {
    run(async {
        let (server, watcher) = server().await;
        let deployments = target(&server, "apps", "v1", "deployments");
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
        create(&server, &deployments, json!({"metadata": {"name": "d"}, "spec": spec})).await;
        watcher.take_calls();

        let scale = deployments.clone().named("d").below("scale");
        let change = |wanted: i64| {
            let (server, scale) = (&server, &scale);
            async move {
                let options = UpdateOptions::default();
                let change = move |mut scale: Object| {
                    scale.0.insert("spec", json!({ "replicas": wanted }));
                    Ok(scale)
                };
                server.change_scale(scale, "d", &Caller::server(), WriteOptions::Update(&options), change).await
            }
        };
        let shown = change(2).await.unwrap();
        assert_eq!(shown.get(&["spec", "replicas"]), Some(&json!(2)));
        let kind = "autoscaling/v1 Scale";
        let asked = |stage: &str| format!("{stage} \"d\": {kind} 1 -> {kind} 2");
        assert_eq!(watcher.take_calls(), [asked("mutate"), asked("validate")]);

        *watcher.replicas.lock() = Some(5);
        let shown = change(3).await.unwrap();
        assert_eq!(shown.get(&["spec", "replicas"]), Some(&json!(5)), "the plugin wants more");
        let judged = format!("validate \"d\": {kind} 2 -> {kind} 5");
        assert_eq!(watcher.take_calls()[1], judged);
        *watcher.replicas.lock() = Some(-1);
        let refused = change(3).await.unwrap_err().status();
        assert_eq!(refused.http_code(), 422);
        assert!(refused.message.contains("must be greater than or equal to 0"), "{}", refused.message);
    });
}
