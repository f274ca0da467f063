//! A pod as the standards see it: its annotations and its specification, which may be those of a template.
//!
//! An absent value reads as null, so that a check reads only its own fields.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

use crate::builtin::reading::items;

static NULL: Value = Value::Null;

/// The path of the template in most workloads.
const TEMPLATE: &[&str] = &["spec", "template"];
const TEMPLATE_OF_JOBS: &[&str] = &["spec", "jobTemplate", "spec", "template"];

/// A pod, or what a workload makes pods of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'p> {
    annotations: Option<&'p Map>,
    /// Its specification.
    pub(super) spec: &'p Value,
}

impl<'p> Pod<'p> {
    /// A pod, or a template of pods that is an object of its own.
    pub(super) fn of(object: &'p Object) -> Self {
        Self::new(object.metadata(), object.0.get("spec"))
    }

    /// The pods that a workload makes; `None` of one that does not say.
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

    /// The security context of the whole pod.
    pub(super) fn context(&self) -> &'p Value {
        at(self.spec, &["securityContext"])
    }

    /// All containers: those that run first, those that stay, those that were added.
    pub(super) fn containers(&self) -> impl Iterator<Item = Container<'p>> + use<'p> {
        let spec = self.spec;
        let of = ["initContainers", "containers", "ephemeralContainers"].into_iter();
        of.flat_map(move |field| list(spec, field)).map(Container)
    }

    /// The elements of a list of its specification.
    pub(super) fn list(&self, field: &str) -> &'p [Value] {
        list(self.spec, field)
    }

    /// Returns true for a pod for Windows nodes, where some controls do not apply.
    pub(super) fn is_for_windows(&self) -> bool {
        at(self.spec, &["os", "name"]).as_str() == Some("windows")
    }

    /// Returns true for a pod in a user namespace, so that its root is not the node's.
    pub(super) fn has_own_users(&self) -> bool {
        at(self.spec, &["hostUsers"]).as_bool() == Some(false)
    }

    /// The name of its runtime class.
    pub(super) fn runtime_class(&self) -> &'p str {
        at(self.spec, &["runtimeClassName"]).as_str().unwrap_or_default()
    }
}

/// A container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container<'p>(pub(super) &'p Value);

impl<'p> Container<'p> {
    /// Its name.
    pub(super) fn name(&self) -> &'p str {
        at(self.0, &["name"]).as_str().unwrap_or_default()
    }

    /// A part of its security context.
    pub(super) fn context(&self, path: &[&str]) -> &'p Value {
        at(at(self.0, &["securityContext"]), path)
    }
}

/// The value at a path; null if absent.
pub(super) fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().try_fold(value, |value, field| value.get(*field)).unwrap_or(&NULL)
}

/// The elements of a list; none where there is no list.
pub(super) fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    items(value.get(field))
}
