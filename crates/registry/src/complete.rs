//! Objects that were stored before there was a default that all objects have today, and what they become when they are read.
//!
//! The store keeps them as they are until somebody writes them. Knows nothing of who reads.

use keelson_codec::{Checked, StoredObject};
use keelson_meta::{GroupVersion, GroupVersionKind, Revision};
use keelson_schema::{Schemas, WalkOptions, WalkReport};

/// What is done to an object that lacks a default. Fields of a newer server stay.
const COMPLETE: WalkOptions = WalkOptions { prune: false, ..WalkOptions::STORE };

/// The object with the defaults that it lacks; `None` if it lacks none.
///
/// Cost: less than checking its text took, unless it does. An object that is not of its kind's types stays as it
/// is: it can still be read, and its next writer is told.
pub fn complete(checked: &Checked) -> Option<StoredObject> {
    if !keelson_defaults::lacks(checked) {
        return None;
    }
    let stored = checked.object();
    let GroupVersion { group, version } = GroupVersion::parse(stored.api_version())?;
    let kind = GroupVersionKind { group, version, kind: stored.kind().to_owned() };
    let schema = Schemas::builtin().kind(&kind.group, &kind.version, &kind.kind)?;
    let mut object = stored.decode(Revision::ZERO);
    let mut report = WalkReport::default();
    keelson_defaults::apply(&kind, &mut object);
    schema.walk(&mut object, &mut report, COMPLETE);
    let complete = StoredObject::encode(&object);
    (report.faults().is_empty() && complete.bytes() != stored.bytes()).then_some(complete)
}
