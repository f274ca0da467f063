//! The fields that an endpoint cannot change: the status, or everything except the status, and others of some kinds.
//! They keep their values and get no owner through that endpoint.

use std::borrow::Cow;
use std::sync::LazyLock;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};
use keelson_patch::fields::{FieldSet, PathElement};

use super::{set_managed, take_managed};
use crate::strategy::FieldPath;
use crate::target::Target;

const STATUS: FieldPath = &["status"];
const SPEC: FieldPath = &["spec"];

/// The fields that a write to the target's endpoint cannot change.
fn fixed_fields(target: &Target) -> impl Iterator<Item = FieldPath> + Clone {
    let endpoint = target.subresource_name().unwrap_or_default();
    let general = match endpoint {
        "status" => Some(SPEC),
        "" | "finalize" | "scale" if target.parts_status() => Some(STATUS),
        _ => None,
    };
    general.into_iter().chain(target.strategy().update.kept(endpoint).iter().copied())
}

/// Restricts a sent object to the fields that the endpoint can change. Both objects are in the stored version. Also
/// returns true if the result has fields that were not sent. These come after all others.
pub(crate) fn confine(target: &Target, stored: &Object, sent: Object) -> (Object, bool) {
    let mut is_added = false;
    let mut confined = match target.subresource_name() {
        Some("status") => {
            let mut status = stored.clone();
            for name in ["metadata", "status"] {
                is_added |= copy(&sent.0, &mut status.0, &[name]);
            }
            status
        }
        _ => sent,
    };
    let managed = take_managed(&mut confined);
    for path in fixed_fields(target) {
        is_added |= copy(&stored.0, &mut confined.0, path);
    }
    set_managed(&mut confined, managed);
    (confined, is_added)
}

/// Copies the value at a path from one object to another, or removes it if there is none. Returns true if there was no
/// value before.
fn copy(from: &Map, to: &mut Map, path: &[&str]) -> bool {
    match path {
        [] => false,
        [last] => match from.get(last) {
            Some(value) => to.insert((*last).to_owned(), value.clone()).is_none(),
            None => {
                to.remove(last);
                false
            }
        },
        [first, rest @ ..] => {
            let nothing = Map::new();
            let from = from.get(first).and_then(Value::as_object).unwrap_or(&nothing);
            to.get_mut(first).and_then(Value::as_object_mut).is_some_and(|to| copy(from, to, rest))
        }
    }
}

/// These fields as a field set.
pub(super) fn kept_fields(target: &Target) -> Cow<'static, FieldSet> {
    // Most creates and updates need this set.
    static STATUS_ALONE: LazyLock<FieldSet> = LazyLock::new(|| fields([STATUS].into_iter()));
    let endpoint = target.subresource_name().unwrap_or_default();
    let paths = fixed_fields(target).chain(target.strategy().update.shared(endpoint).iter().copied());
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
