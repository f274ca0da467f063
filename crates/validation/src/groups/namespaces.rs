//! Namespaces: their phase follows from whether they are being deleted. Finalizers are judged where they are replaced.

use crate::at::At;
use crate::shape::Rule::Check;
use crate::shape::{Run, Shape};

pub(super) const STATUS: Shape = Shape::of(&[("", Check("Active, or Terminating while it is deleted", phase))]);

fn phase(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (status, metadata) = (at.field("status"), at.field("metadata"));
    let phase = status.field("phase").text();
    let (expected, detail) = if metadata.field("deletionTimestamp").is_set() {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase != expected {
        status.field("Phase").invalid(run, phase, detail);
    }
}
