//! The columns of apps: workloads and controller revisions.
//!
//! Most columns are counts from the status. The wide ones show parts of the pod template.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::selector;
use keelson_tables::text::{container_images, container_names, ratio, with_group};

use crate::apps::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "ControllerRevision" => Printer::new(CONTROLLER_REVISION, controller_revision),
        "DaemonSet" => {
            Printer::new(DAEMON_SET, daemon_set).without_annotations(&["deprecated.daemonset.template.generation"])
        }
        "Deployment" => {
            Printer::new(DEPLOYMENT, deployment).without_annotations(&["deprecated.deployment.rollback.to"])
        }
        "ReplicaSet" => Printer::new(REPLICA_SET, replica_set),
        "StatefulSet" => Printer::new(STATEFUL_SET, stateful_set),
        _ => return None,
    })
}

/// `spec.replicas`. Stored objects have it by default. Objects without content, such as bookmarks, have none.
fn replicas(spec: FieldValue<'_>) -> i64 {
    spec.at("replicas").int()
}

const DEPLOYMENT: &[Column<'_>] = &[
    NAME,
    Column::text("Ready", "Number of the pod with ready state"),
    Column::text("Up-to-date", docs::DEPLOYMENT_UP_TO_DATE),
    Column::text("Available", docs::DEPLOYMENT_AVAILABLE),
    AGE,
    CONTAINERS.wide(),
    IMAGES.wide(),
    Column::text("Selector", docs::DEPLOYMENT_SELECTOR).wide(),
];

fn deployment(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let pod = spec.at("template").at("spec");
    vec![
        of.name(),
        ratio(status.at("readyReplicas").int(), replicas(spec)),
        status.at("updatedReplicas").int_cell(),
        status.at("availableReplicas").int_cell(),
        of.age(),
        container_names(pod),
        container_images(pod),
        selector::canonical(spec.at("selector")).map_or_else(|| "<invalid>".into(), Value::from),
    ]
}

const REPLICA_SET: &[Column<'_>] = &[
    NAME,
    Column::integer("Desired", docs::REPLICA_SET_DESIRED),
    Column::integer("Current", docs::REPLICA_SET_CURRENT),
    Column::integer("Ready", docs::REPLICA_SET_READY),
    AGE,
    CONTAINERS.wide(),
    IMAGES.wide(),
    Column::text("Selector", docs::REPLICA_SET_SELECTOR).wide(),
];

fn replica_set(of: Subject<'_>) -> Vec<Value> {
    replicated(of, selector::label_selector(of.at("spec").at("selector")))
}

/// The row of a workload with replicas. The kinds differ only in the text of the selector.
pub(crate) fn replicated(of: Subject<'_>, selector: Value) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let pod = spec.at("template").at("spec");
    vec![
        of.name(),
        replicas(spec).into(),
        status.at("replicas").int_cell(),
        status.at("readyReplicas").int_cell(),
        of.age(),
        container_names(pod),
        container_images(pod),
        selector,
    ]
}

const STATEFUL_SET: &[Column<'_>] =
    &[NAME, Column::text("Ready", "Number of the pod with ready state"), AGE, CONTAINERS.wide(), IMAGES.wide()];

fn stateful_set(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let pod = spec.at("template").at("spec");
    vec![
        of.name(),
        ratio(status.at("readyReplicas").int(), replicas(spec)),
        of.age(),
        container_names(pod),
        container_images(pod),
    ]
}

const DAEMON_SET: &[Column<'_>] = &[
    NAME,
    Column::integer("Desired", docs::DAEMON_SET_DESIRED),
    Column::integer("Current", docs::DAEMON_SET_CURRENT),
    Column::integer("Ready", docs::DAEMON_SET_READY),
    Column::integer("Up-to-date", "The total number of nodes that are running updated daemon pod"),
    Column::integer("Available", docs::DAEMON_SET_AVAILABLE),
    Column::text("Node Selector", docs::DAEMON_SET_NODE_SELECTOR),
    AGE,
    CONTAINERS.wide(),
    IMAGES.wide(),
    Column::text("Selector", docs::DAEMON_SET_SELECTOR).wide(),
];

fn daemon_set(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let pod = spec.at("template").at("spec");
    vec![
        of.name(),
        status.at("desiredNumberScheduled").int_cell(),
        status.at("currentNumberScheduled").int_cell(),
        status.at("numberReady").int_cell(),
        status.at("updatedNumberScheduled").int_cell(),
        status.at("numberAvailable").int_cell(),
        selector::labels(pod.at("nodeSelector")),
        of.age(),
        container_names(pod),
        container_images(pod),
        selector::label_selector(spec.at("selector")),
    ]
}

const CONTROLLER_REVISION: &[Column<'_>] = &[
    NAME,
    Column::text("Controller", "Controller of the object"),
    Column::text("Revision", "Revision indicates the revision of the state represented by Data."),
    AGE,
];

fn controller_revision(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), controller(&of), of.at("revision").int_cell(), of.age()]
}

/// The owner that controls the object, such as `statefulset.apps/db`.
fn controller(of: &Subject<'_>) -> Value {
    let mut owners = of.at("metadata").at("ownerReferences").items();
    let Some(owner) = owners.find(|owner| owner.at("controller").flag()) else {
        return "<none>".into();
    };
    let group = owner.at("apiVersion").text().split_once('/').map_or("", |(group, _)| group);
    let kind = with_group(owner.at("kind").text(), group).to_lowercase();
    format!("{kind}/{}", owner.at("name").text()).into()
}
