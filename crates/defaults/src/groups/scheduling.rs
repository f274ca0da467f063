//! Defaults of priority classes and groups of pods.
//!
//! A pod takes its priority over from the class that it names when it is admitted; that is not a default.

use crate::shape::Rule::{In, Text, TextIfAbsent};
use crate::shape::Shape;

/// The shape of a kind of `scheduling.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "PriorityClass" => Some(&PRIORITY_CLASS),
        "PodGroup" => Some(&POD_GROUP),
        _ => None,
    }
}

const PRIORITY_CLASS: Shape = Shape::of(&[("preemptionPolicy", TextIfAbsent("PreemptLowerPriority"))]);

const POD_GROUP: Shape = Shape::of(&[("spec", In(&const { Shape::of(&[("disruptionMode", Text("Pod"))]) }))]);
