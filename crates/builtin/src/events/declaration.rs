//! The declaration of events in `events.k8s.io`. They are stored as core events, under the same keys.
//!
//! So an object that is created in one group can be read in the other. Field selectors use the fields of the stored
//! core form.

use keelson_resources::FieldRefusal;
use keelson_resources::declare::{
    EVENT_LIFETIME, FieldDeclaration, GroupDeclaration, namespaced, reads, text, version,
};

const GROUP: &str = "events.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17750,
    versions: &[version("v1", 15)],
    resources: &[namespaced(GROUP, "events", "event", "Event")
        .short_names(&["ev"])
        .stored_as("", "v1")
        .fields(FieldRefusal::Plain, EVENT_FIELDS)
        .created_by_update()
        .lives_for(EVENT_LIFETIME)],
};

/// The field selectors of events.
const EVENT_FIELDS: &[FieldDeclaration] = &[
    reads("regarding.kind", &["involvedObject.kind"]),
    reads("regarding.namespace", &["involvedObject.namespace"]),
    reads("regarding.name", &["involvedObject.name"]),
    reads("regarding.uid", &["involvedObject.uid"]),
    reads("regarding.apiVersion", &["involvedObject.apiVersion"]),
    reads("regarding.resourceVersion", &["involvedObject.resourceVersion"]),
    reads("regarding.fieldPath", &["involvedObject.fieldPath"]),
    text(&["reason"]),
    reads("reportingController", &["reportingComponent"]),
    text(&["type"]),
];
