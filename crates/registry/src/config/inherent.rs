//! Admission plugins that are built into the stages of a write: into strategies of kinds and into checks of each write.
//! An operator can disable each of them, as in kube-apiserver.

use crate::registry::Registry;

/// A plugin that is built into a stage of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinStagePlugin {
    /// Refuses creates in a missing or terminating namespace, and the deletion of some namespaces.
    NamespaceLifecycle,
    /// Sets the priority of pods from their class, and allows at most one default class.
    Priority,
    /// Sets the time after which pods leave nodes with problems.
    DefaultTolerationSeconds,
    /// Sets the default storage class of claims that name none.
    DefaultStorageClass,
    /// Sets the default class of ingresses that name none.
    DefaultIngressClass,
    /// Keeps volumes, their claims and their classes while they are used.
    StorageObjectInUseProtection,
    /// Copies the topology labels of a node to the pods that are bound to it.
    PodTopologyLabels,
}

impl Registry {
    /// Returns true if an optional plugin is on.
    pub fn does(&self, plugin: BuiltinStagePlugin) -> bool {
        !self.config.left_out.contains(&plugin)
    }
}
