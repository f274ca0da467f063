//! All built-in groups, in the order of discovery.
//!
//! A group is a folder: to add a kind, add it to the files there. To add a group, add a folder and a line here.

use crate::group::BuiltinGroup;
use crate::{
    admissionregistration, apiextensions, apiregistration, apps, authentication, authorization, autoscaling, batch,
    certificates, coordination, core, discovery, events, flowcontrol, internal_apiserver, networking, node, policy,
    rbac, resource, scheduling, storage, storagemigration,
};

/// The core group, then the others as discovery orders them: by priority and then by name.
pub(crate) static GROUPS: [&BuiltinGroup; 23] = [
    &core::GROUP,
    &apiregistration::GROUP,
    &apps::GROUP,
    &events::GROUP,
    &authentication::GROUP,
    &authorization::GROUP,
    &autoscaling::GROUP,
    &batch::GROUP,
    &certificates::GROUP,
    &networking::GROUP,
    &policy::GROUP,
    &rbac::GROUP,
    &storage::GROUP,
    &admissionregistration::GROUP,
    &apiextensions::GROUP,
    &scheduling::GROUP,
    &coordination::GROUP,
    &node::GROUP,
    &discovery::GROUP,
    &resource::GROUP,
    &flowcontrol::GROUP,
    &internal_apiserver::GROUP,
    &storagemigration::GROUP,
];

/// The group of a name; `None` for one that is not built in.
pub(crate) fn group(name: &str) -> Option<&'static BuiltinGroup> {
    GROUPS.into_iter().find(|group| group.declaration.name == name)
}
