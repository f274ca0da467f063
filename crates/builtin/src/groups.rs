//! All built-in groups, in the order of discovery.
//!
//! To add a kind, extend the files in the folder of its group. To add a group, add a folder and a line here.

use crate::group::BuiltinGroup;
use crate::{
    admissionregistration, apiextensions, apiregistration, apps, authentication, authorization, autoscaling, batch,
    certificates, coordination, core, discovery, events, flowcontrol, internal_apiserver, lifecycle, networking, node,
    policy, rbac, resource, scheduling, storage, storagemigration,
};

/// The core group, then the others in the order of discovery: by priority and then by name.
pub(crate) static GROUPS: [&BuiltinGroup; 24] = [
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
    &lifecycle::GROUP,
];

/// The built-in group with this name; `None` if there is none.
pub(crate) fn group(name: &str) -> Option<&'static BuiltinGroup> {
    GROUPS.into_iter().find(|group| group.declaration.name == name)
}
