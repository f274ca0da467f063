//! The annotations and specification of a pod or of a pod template, as the controls read them.
//!
//! Absent values read as null, so a check needs no code for absent parents.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

use crate::builtin::reading::items;

static NULL: Value = Value::Null;

/// The path of the pod template in most workloads.
const TEMPLATE: &[&str] = &["spec", "template"];
const TEMPLATE_OF_JOBS: &[&str] = &["spec", "jobTemplate", "spec", "template"];

/// A pod, or the pod template of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'p> {
    annotations: Option<&'p Map>,
    /// The specification of the pod.
    pub(super) spec: &'p Value,
}

impl<'p> Pod<'p> {
    /// Reads a pod, or a PodTemplate object.
    pub(super) fn from_object(object: &'p Object) -> Self {
        Self::new(object.metadata(), object.0.get("spec"))
    }

    /// Reads the pod template of a workload; `None` if it has none.
    pub(super) fn of_workload(object: &'p Object) -> Option<Self> {
        let template =
            object.get(&["template"]).or_else(|| object.get(TEMPLATE)).or_else(|| object.get(TEMPLATE_OF_JOBS));
        let template = template?.as_object()?;
        Some(Self::new(template.get("metadata").and_then(Value::as_object), template.get("spec")))
    }

    fn new(metadata: Option<&'p Map>, spec: Option<&'p Value>) -> Self {
        let annotations = metadata.and_then(|metadata| metadata.get("annotations")).and_then(Value::as_object);
        Self { annotations, spec: spec.unwrap_or(&NULL) }
    }

    /// The value of an annotation.
    pub(super) fn annotation(&self, key: &str) -> Option<&'p str> {
        self.annotations?.get(key)?.as_str()
    }

    /// All annotations.
    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'p str, &'p str)> + use<'p> {
        let all = self.annotations.into_iter().flat_map(Map::iter);
        all.filter_map(|(key, value)| Some((key, value.as_str()?)))
    }

    /// The security context of the pod.
    pub(super) fn context(&self) -> &'p Value {
        at(self.spec, &["securityContext"])
    }

    /// All containers: init containers, containers, ephemeral containers.
    pub(super) fn containers(&self) -> impl Iterator<Item = Container<'p>> + use<'p> {
        let spec = self.spec;
        let of = ["initContainers", "containers", "ephemeralContainers"].into_iter();
        of.flat_map(move |field| list(spec, field)).map(Container)
    }

    /// The elements of a list in the specification.
    pub(super) fn list(&self, field: &str) -> &'p [Value] {
        list(self.spec, field)
    }

    /// Returns true for Windows pods, to which some controls do not apply.
    pub(super) fn is_for_windows(&self) -> bool {
        at(self.spec, &["os", "name"]).as_str() == Some("windows")
    }

    /// Returns true for pods in a user namespace, whose root user is not the root user of the node.
    pub(super) fn has_own_users(&self) -> bool {
        at(self.spec, &["hostUsers"]).as_bool() == Some(false)
    }

    /// The name of the runtime class of the pod.
    pub(super) fn runtime_class(&self) -> &'p str {
        at(self.spec, &["runtimeClassName"]).as_str().unwrap_or_default()
    }
}

/// A container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container<'p>(pub(super) &'p Value);

impl<'p> Container<'p> {
    /// The name of the container.
    pub(super) fn name(&self) -> &'p str {
        at(self.0, &["name"]).as_str().unwrap_or_default()
    }

    /// A value in the security context of the container.
    pub(super) fn context(&self, path: &[&str]) -> &'p Value {
        at(at(self.0, &["securityContext"]), path)
    }
}

/// The value at a path; null if absent.
pub(super) fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().try_fold(value, |value, field| value.get(*field)).unwrap_or(&NULL)
}

/// The elements of a list field; empty if the field is not a list.
pub(super) fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    items(value.get(field))
}
