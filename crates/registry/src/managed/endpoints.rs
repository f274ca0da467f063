//! What a write to an endpoint cannot change: the status of an object, or all but its status, and what some kinds hold
//! fast besides. It stays as it was, and nobody owns it through that endpoint.

use std::borrow::Cow;
use std::sync::LazyLock;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};
use keelson_patch::fields::{FieldSet, PathElement};

use super::{set_managed, take_managed};
use crate::target::Target;

/// A path of names of fields.
type FieldPath = &'static [&'static str];

const STATUS: FieldPath = &["status"];
const SPEC: FieldPath = &["spec"];
const METADATA: FieldPath = &["metadata"];

/// The resources at whose endpoint more is kept: group, plural, subresource, and what.
const BESIDES: &[(&str, &str, &str, &[FieldPath])] = &[
    ("", "pods", "status", &[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]),
    ("apps", "deployments", "status", &[&["metadata", "labels"]]),
    ("certificates.k8s.io", "certificatesigningrequests", "", &[SPEC]),
    ("certificates.k8s.io", "certificatesigningrequests", "approval", &[SPEC, &["status", "certificate"]]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "status", &[METADATA]),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "status", &[METADATA]),
    ("apiregistration.k8s.io", "apiservices", "status", &[METADATA]),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "status", &[METADATA]),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "status", &[METADATA]),
    ("internal.apiserver.k8s.io", "storageversions", "status", &[METADATA]),
    ("storage.k8s.io", "volumeattachments", "status", &[METADATA]),
    ("storagemigration.k8s.io", "storageversionmigrations", "status", &[METADATA]),
];

/// What some endpoints change in part, so that nobody who writes there owns it.
const SHARED: &[(&str, &str, &str, &[FieldPath])] =
    &[("certificates.k8s.io", "certificatesigningrequests", "status", &[&["status", "conditions"]])];

/// What a write to the target's endpoint cannot change.
fn kept(target: &Target) -> impl Iterator<Item = FieldPath> + Clone + use<> {
    let endpoint = target.subresource_name().unwrap_or_default();
    let general = match endpoint {
        "status" => Some(SPEC),
        "" | "finalize" | "scale" if target.resource.has_status() => Some(STATUS),
        _ => None,
    };
    general.into_iter().chain(stated(BESIDES, target))
}

/// What a table says of the target's endpoint.
fn stated(
    table: &'static [(&str, &str, &str, &[FieldPath])],
    target: &Target,
) -> impl Iterator<Item = FieldPath> + Clone + use<> {
    let endpoint = target.subresource_name().unwrap_or_default();
    let (group, plural) = (target.resource.group, target.resource.plural);
    let rows = table.iter().filter(move |(g, p, e, _)| (*g, *p, *e) == (group, plural, endpoint));
    rows.flat_map(|(.., paths)| paths.iter().copied())
}

/// What a write to the target's endpoint makes of an object: what is sent, as far as the endpoint can change it. Both are
/// in the version that is stored.
pub(crate) fn confine(target: &Target, stored: &Object, sent: Object) -> Object {
    let mut confined = match target.subresource_name() {
        Some("status") => {
            let mut status = stored.clone();
            for name in ["metadata", "status"] {
                copy(&sent.0, &mut status.0, &[name]);
            }
            status
        }
        _ => sent,
    };
    let managed = take_managed(&mut confined);
    for path in kept(target) {
        copy(&stored.0, &mut confined.0, path);
    }
    set_managed(&mut confined, managed);
    confined
}

/// Makes what is at a path of one object what it is in another, nothing included.
fn copy(from: &Map, to: &mut Map, path: &[&str]) {
    match path {
        [] => {}
        [last] => match from.get(last) {
            Some(value) => drop(to.insert((*last).to_owned(), value.clone())),
            None => drop(to.remove(last)),
        },
        [first, rest @ ..] => {
            let nothing = Map::new();
            let from = from.get(first).and_then(Value::as_object).unwrap_or(&nothing);
            if let Some(to) = to.get_mut(first).and_then(Value::as_object_mut) {
                copy(from, to, rest);
            }
        }
    }
}

/// The same as a set of fields.
pub(super) fn kept_fields(target: &Target) -> Cow<'static, FieldSet> {
    // Most creates and updates ask for this.
    static STATUS_ALONE: LazyLock<FieldSet> = LazyLock::new(|| fields([STATUS].into_iter()));
    let paths = kept(target).chain(stated(SHARED, target));
    if paths.clone().eq([STATUS]) { Cow::Borrowed(&STATUS_ALONE) } else { Cow::Owned(fields(paths)) }
}

fn fields(paths: impl Iterator<Item = FieldPath>) -> FieldSet {
    let mut set = FieldSet::new();
    for path in paths {
        let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
        set.insert(&path);
    }
    set
}
