//! A typical operator in Rust: it defines reservoirs, keeps a config map for each, reports by status and events, and
//! defaults and validates by webhooks.
//!
//! The operator does not depend on the server, and reports only through objects, since the test reads those.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_testkit::{HookReply, HookRequest};
use kube::api::{Patch, PatchParams};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, finalizer, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The operator's field manager for apply.
const MANAGER: &str = "reservoirs";
pub(super) const FINALIZER: &str = "operators.example.org/drained";
/// The delay before a retry, short for the tests.
const RETRY: Duration = Duration::from_millis(200);

/// The desired state of a reservoir.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "operators.example.org",
    version = "v1",
    kind = "Reservoir",
    namespaced,
    status = "ReservoirStatus",
    printcolumn = r#"{"name": "Level", "type": "integer", "jsonPath": ".status.level"}"#
)]
pub(super) struct ReservoirSpec {
    /// The water level in metres.
    #[schemars(range(min = 0, max = 100))]
    level: i32,
    /// The material that keeps the water in.
    lining: Option<String>,
}

/// The observed state of a reservoir.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReservoirStatus {
    level: i32,
    observed_generation: Option<i64>,
}

struct Context {
    client: Client,
    recorder: Recorder,
}

/// Runs until cancelled.
pub(super) async fn run(client: Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = Reservoir::crd();
    let name = definition.name_any();
    definitions.patch(&name, &applying(), &Patch::Apply(&definition)).await.expect("the definition is applied");
    let established = await_condition(definitions, &name, conditions::is_crd_established()).await;
    established.expect("the definition is established");
    let recorder = Recorder::new(client.clone(), "reservoirs".into());
    let context = Arc::new(Context { client: client.clone(), recorder });
    let reservoirs: Api<Reservoir> = Api::all(client.clone());
    Controller::new(reservoirs, watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(RETRY), context)
        .for_each(|_| std::future::ready(()))
        .await;
}

fn applying() -> PatchParams {
    PatchParams::apply(MANAGER).force()
}

async fn reconcile(reservoir: Arc<Reservoir>, context: Arc<Context>) -> Result<Action, finalizer::Error<kube::Error>> {
    let namespace = reservoir.namespace().unwrap_or_default();
    let api: Api<Reservoir> = Api::namespaced(context.client.clone(), &namespace);
    finalizer(&api, FINALIZER, reservoir, |event| async {
        match event {
            finalizer::Event::Apply(reservoir) => fill(&api, &reservoir, &context).await,
            finalizer::Event::Cleanup(reservoir) => drain(&reservoir, &context).await,
        }
    })
    .await
}

/// Reconciles the owned gauge of a reservoir, and reports its status.
async fn fill(api: &Api<Reservoir>, reservoir: &Reservoir, context: &Context) -> Result<Action, kube::Error> {
    let (name, spec) = (reservoir.name_any(), &reservoir.spec);
    let gauges: Api<ConfigMap> = Api::namespaced(context.client.clone(), &reservoir.namespace().unwrap_or_default());
    let gauge = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [reservoir.controller_owner_ref(&())] },
        "data": { "level": spec.level.to_string(), "lining": spec.lining },
    });
    gauges.patch(&name, &applying(), &Patch::Apply(&gauge)).await?;
    if reservoir.status.as_ref().map(|status| status.level) != Some(spec.level) {
        tell(reservoir, context, "Filled", format!("to {}", spec.level)).await?;
    }
    let status = ReservoirStatus { level: spec.level, observed_generation: reservoir.metadata.generation };
    let status = json!({ "apiVersion": "operators.example.org/v1", "kind": "Reservoir", "status": status });
    api.patch_status(&name, &applying(), &Patch::Apply(&status)).await?;
    Ok(Action::requeue(Duration::from_secs(300)))
}

/// Runs before a reservoir is deleted.
async fn drain(reservoir: &Reservoir, context: &Context) -> Result<Action, kube::Error> {
    tell(reservoir, context, "Drained", format!("from {}", reservoir.spec.level)).await?;
    Ok(Action::await_change())
}

async fn tell(reservoir: &Reservoir, context: &Context, reason: &str, note: String) -> Result<(), kube::Error> {
    let event = Event {
        type_: EventType::Normal,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    context.recorder.publish(&event, &reservoir.object_ref(&())).await
}

/// Answers a review: `/fill` defaults the lining, `/judge` refuses a depth that the lining can't hold.
pub(super) fn admit(request: &HookRequest) -> HookReply {
    let review: AdmissionReview<Reservoir> = serde_json::from_value(request.body.clone()).expect("it is a review");
    let asked: AdmissionRequest<Reservoir> = review.try_into().expect("it asks something");
    let mut response = AdmissionResponse::from(&asked);
    let spec = &asked.object.as_ref().expect("it is about an object").spec;
    if request.path.starts_with("/fill") {
        if spec.lining.is_none() {
            let patch = json!([{ "op": "add", "path": "/spec/lining", "value": "clay" }]);
            let patch = serde_json::from_value(patch).expect("it is a patch");
            response = response.with_patch(patch).expect("a patch can be written");
        }
    } else if spec.lining.as_deref() == Some("clay") && spec.level > 30 {
        response = response.deny(format!("clay does not hold {} metres", spec.level));
    } else if spec.level > 30 {
        response.warnings = Some(vec!["that is deep".to_owned()]);
    }
    HookReply::Json(serde_json::to_value(response.into_review()).expect("an answer can be written"))
}
