//! What objects of the built-in kinds may say: the rules that kube-apiserver's validation has, with its texts and order.
//!
//! To add a rule, find the group's file and the kind's shape there, and put `("field", Rule)` where upstream checks it.
//! A rule about one field is data; one that needs more is a [`Rule::Check`](shape::Rule::Check) with a few words for
//! `docs/validation.md`, which is made from these shapes (`KEELSON_UPDATE=1` writes it anew). What holds for every
//! object stands in the kind's `object`; what an update may not do in `first` or `then`, before or after it; what holds
//! for `/status` and other subresources in `below`. Forms of texts go to `formats`.
//! Knows JSON trees in the stored version with their defaults, and nothing of storage, time or other objects. Metadata is
//! judged elsewhere. Types are right by now; what is not reads as absent.

mod at;
mod document;
mod domains;
mod formats;
mod groups;
mod pem;
mod pod;
mod selectors;
mod semver;
mod shape;
#[cfg(test)]
mod tests;
mod warnings;

use keelson_meta::field_error::FieldError;
use keelson_meta::{GroupVersionKind, Object};

use at::At;
use pod::Pod;
use shape::{Kind, Run, Shape};

pub use document::document;
pub use warnings::warnings;

/// All that is wrong with a new object, which is in the version that its kind is stored in.
pub fn create(kind: &GroupVersionKind, object: &Object) -> Vec<FieldError> {
    match find(kind) {
        Some(rules) => check(&[rules.object], object, None),
        None => Vec::new(),
    }
}

/// What is wrong with an object, or with a change of one, that is told before all else and then alone.
pub fn alone(kind: &GroupVersionKind, old: Option<&Object>, object: &Object) -> Vec<FieldError> {
    match find(kind) {
        Some(rules) => check(&[rules.alone], object, old),
        None => Vec::new(),
    }
}

/// All that is wrong with a change of an object, or of the part of it that a subresource is.
pub fn update(kind: &GroupVersionKind, subresource: Option<&str>, old: &Object, new: &Object) -> Vec<FieldError> {
    match find(kind) {
        Some(rules) => check(&rules.update(subresource), new, Some(old)),
        None => Vec::new(),
    }
}

/// Whether the kind has been thought of, be it that it needs no rules beyond those for metadata.
pub fn knows(kind: &GroupVersionKind) -> bool {
    find(kind).is_some()
}

fn find(kind: &GroupVersionKind) -> Option<&'static Kind> {
    groups::kinds(&kind.group).iter().find(|rules| rules.name == kind.kind)
}

fn check(shapes: &[&'static Shape], object: &Object, before: Option<&Object>) -> Vec<FieldError> {
    let mut run = Run { faults: Vec::new(), object, before, pod: Pod::default() };
    let at = At::object(object, before);
    for shape in shapes {
        shape.check(&at, &mut run);
    }
    run.faults
}
