//! The core group.
//!
//! Knows the rules of these kinds alone; what they share with others stands beside the groups.

use crate::shape::{Kind, kind};

pub(super) const KINDS: &[Kind] = &[
    kind("ConfigMap"),
    kind("Endpoints"),
    kind("Event"),
    kind("LimitRange"),
    kind("Namespace"),
    kind("Node"),
    kind("PersistentVolume"),
    kind("PersistentVolumeClaim"),
    kind("Pod"),
    kind("PodTemplate"),
    kind("ReplicationController"),
    kind("ResourceQuota"),
    kind("Secret"),
    kind("Service"),
    kind("ServiceAccount"),
];
