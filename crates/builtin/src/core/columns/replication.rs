//! The columns of replication controllers and pod templates.
//!
//! The columns equal the columns of replica sets in `apps`, and read the same fields.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::selector;
use keelson_tables::text::{container_images, container_names};

use crate::apps::columns::replicated;
use crate::core::column_docs as docs;

pub(super) const REPLICATION_CONTROLLER: Printer = Printer::new(CONTROLLER_COLUMNS, replication_controller);

const CONTROLLER_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::integer("Desired", docs::REPLICATION_CONTROLLER_DESIRED),
    Column::integer("Current", docs::REPLICATION_CONTROLLER_CURRENT),
    Column::integer("Ready", "The number of ready replicas for this replication controller."),
    AGE,
    CONTAINERS.wide(),
    IMAGES.wide(),
    Column::text("Selector", docs::REPLICATION_CONTROLLER_SELECTOR).wide(),
];

fn replication_controller(of: Subject<'_>) -> Vec<Value> {
    replicated(of, selector::labels(of.at("spec").at("selector")))
}

pub(super) const POD_TEMPLATE: Printer = Printer::new(TEMPLATE_COLUMNS, pod_template);

const TEMPLATE_COLUMNS: &[Column<'_>] =
    &[NAME, CONTAINERS, IMAGES, Column::text("Pod Labels", "The labels for the pod template.")];

fn pod_template(of: Subject<'_>) -> Vec<Value> {
    let template = of.at("template");
    let pod = template.at("spec");
    vec![of.name(), container_names(pod), container_images(pod), selector::labels(template.at("metadata").at("labels"))]
}
