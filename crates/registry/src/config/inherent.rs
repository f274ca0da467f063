//! Plugins of admission that are a part of how objects are written here, and stand at several places of it: in strategies of kinds, in
//! the guards of a write. Each can be left out, as it can elsewhere.

use crate::registry::Registry;

/// A plugin that is built into a stage of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InherentPlugin {
    /// Nothing is made in a namespace that is missing or goes, and some namespaces stay.
    NamespaceLifecycle,
    /// Pods have the priority of their class, and one class at the most is the default.
    Priority,
    /// Pods leave nodes that are in trouble after a while.
    DefaultTolerationSeconds,
    /// Claims that name no storage class get the default one.
    DefaultStorageClass,
    /// Ingresses that name no class get the default one.
    DefaultIngressClass,
    /// Volumes, their claims and their classes stay while they are used.
    StorageObjectInUseProtection,
    /// Pods that are bound to a node get the labels of its topology.
    PodTopologyLabels,
}

impl Registry {
    /// Returns true if an optional plugin is on.
    pub fn does(&self, plugin: InherentPlugin) -> bool {
        !self.config.left_out.contains(&plugin)
    }
}
