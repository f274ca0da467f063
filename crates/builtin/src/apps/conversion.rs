//! Workloads of `extensions/v1beta1` and of the beta versions of `apps`.
//!
//! Two fields of these versions became annotations in `apps/v1`. All other fields are the same.

use keelson_meta::json::{Map, Value};

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{BETA, EXTENSIONS, RetiredVersions, row};
use crate::converting::tree::{annotate, object, take, take_object};

const GROUP: &str = "apps";

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("ControllerRevision", GROUP, &["v1beta1", "v1beta2"]),
    row("DaemonSet", GROUP, &["v1beta2"]),
    row("DaemonSet", EXTENSIONS, BETA).to(GROUP, "v1").by(daemon_set_from_extensions),
    row("Deployment", GROUP, &["v1beta1", "v1beta2"]).by(deployment_from_beta),
    row("Deployment", EXTENSIONS, BETA).to(GROUP, "v1").by(deployment_from_beta),
    row("ReplicaSet", GROUP, &["v1beta2"]),
    row("ReplicaSet", EXTENSIONS, BETA).to(GROUP, "v1"),
    row("StatefulSet", GROUP, &["v1beta1", "v1beta2"]),
];

const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Converts a deployment to v1.
pub(crate) fn deployment_from_beta(deployment: &mut Map) -> Result<(), ConversionError> {
    let Some(spec) = object(deployment, "spec")? else { return Ok(()) };
    let Some(rollback) = take_object(spec, "rollbackTo")? else { return Ok(()) };
    let revision = rollback.get("revision").and_then(Value::as_i64).unwrap_or(0);
    annotate(deployment, ROLLBACK_TO, revision.to_string())
}

/// Converts a daemon set of `extensions/v1beta1` to v1.
pub(crate) fn daemon_set_from_extensions(daemon_set: &mut Map) -> Result<(), ConversionError> {
    let Some(spec) = object(daemon_set, "spec")? else { return Ok(()) };
    let generation = take(spec, "templateGeneration").and_then(|generation| generation.as_i64());
    match generation {
        Some(generation) => annotate(daemon_set, TEMPLATE_GENERATION, generation.to_string()),
        None => Ok(()),
    }
}
