//! Kubelets pull all images on every start of a container. A pod therefore needs the rights to its images, even if the
//! node has them already.
//!
//! This is upstream's plugin AlwaysPullImages. It does not change updates that add no image.

use futures::future::BoxFuture;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};

use super::reading::{is_written, items};

const ALWAYS: &str = "Always";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Sets the pull policy of all containers to `Always`.
#[derive(Debug)]
pub(crate) struct AlwaysPullImages;

fn images(pod: &Object) -> impl Iterator<Item = Option<&Value>> {
    let lists = CONTAINERS.into_iter().flat_map(|list| items(pod.get(&["spec", list])));
    lists.map(|container| container.get("image"))
}

/// Returns true if an update of a pod adds no image.
fn brings_none(attributes: &AdmissionAttributes<'_>, pod: &Object) -> bool {
    attributes.old.is_some_and(|old| images(pod).all(|image| images(old).any(|known| known == image)))
}

fn pull_always(pod: &mut Object) {
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for list in CONTAINERS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.insert("imagePullPolicy", ALWAYS);
        }
    }
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten();
    for volume in volumes.filter_map(Value::as_object_mut) {
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            image.insert("pullPolicy", ALWAYS);
        }
    }
}

/// The containers whose pull policy was changed after this plugin ran.
fn faults(pod: &Object) -> Vec<String> {
    let fault = |path: String, policy: Option<&Value>| {
        let policy = policy.cloned().unwrap_or_else(|| json!(""));
        (policy != ALWAYS).then(|| format!("{path}: Unsupported value: {policy}: supported values: \"{ALWAYS}\""))
    };
    let mut faults = Vec::new();
    for list in CONTAINERS {
        for (index, container) in items(pod.get(&["spec", list])).iter().enumerate() {
            faults.extend(fault(format!("spec.{list}[{index}].imagePullPolicy"), container.get("imagePullPolicy")));
        }
    }
    for (index, volume) in items(pod.get(&["spec", "volumes"])).iter().enumerate() {
        if let Some(image) = volume.get("image") {
            faults.extend(fault(format!("spec.volumes[{index}].image.pullPolicy"), image.get("pullPolicy")));
        }
    }
    faults
}

impl Admission for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_written(attributes, "pods") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let Some(pod) = object.filter(|pod| !brings_none(attributes, pod)) else { return Ok(Mutation::Unchanged) };
            pull_always(pod);
            Ok(Mutation::Changed)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object.filter(|pod| !brings_none(attributes, pod)) else { return Ok(()) };
            let faults = faults(pod);
            match faults.as_slice() {
                [] => Ok(()),
                [fault] => Err(attributes.refused(fault)),
                several => Err(attributes.refused(format!("[{}]", several.join(", ")))),
            }
        })
    }
}
