//! The form in which a mirrored resource is served: names, columns and selectable fields in one version.
//!
//! Kinds of Kubernetes have the columns of this program, and custom resources those of their definition at the source.
//! There is no schema and no default: the source has validated its objects, and they are served as it sends them.

use keelson_extensions::of_mirrored;
use keelson_meta::Object;
use keelson_registry::{KindVersion, ResourceRegistration, View};
use keelson_resources::{Resource, ResourceStorage, Scope, ServedVersion};
use keelson_tables::Printer;

use crate::discovery::Served;

/// The registration of a resource. `definition` is its CustomResourceDefinition, if it has one.
pub(crate) fn resource_registration(served: &Served, definition: Option<&Object>) -> ResourceRegistration {
    // All objects are in the one version, so that no read converts them.
    uncompleted(served, definition).each_version(|_, version| {
        let view = View::converting(version.kind(), Vec::new());
        version.with_view(view)
    })
}

fn uncompleted(served: &Served, definition: Option<&Object>) -> ResourceRegistration {
    if let Some(builtin) = builtin(served) {
        return builtin;
    }
    let defined = definition.and_then(|definition| of_mirrored(definition, &served.version));
    defined.unwrap_or_else(|| {
        let version = ServedVersion::custom(served.version.clone(), []);
        let mut resource = Resource::custom(&served.group, &served.plural, &served.kind, vec![version]);
        resource.scope = if served.namespaced { Scope::Namespaced } else { Scope::Cluster };
        ResourceRegistration::new(resource).with_printer(&served.version, &Printer::generic())
    })
}

/// Returns true if a resource is one of Kubernetes' own, in a version that this program knows.
pub(crate) fn is_builtin(served: &Served) -> bool {
    let known = keelson_builtin::catalogue().lookup(&served.group, &served.version, &served.plural);
    known.is_some_and(|(resource, _)| resource.kind == served.kind && resource.is_persisted())
}

fn builtin(served: &Served) -> Option<ResourceRegistration> {
    if !is_builtin(served) {
        return None;
    }
    let (known, _) = keelson_builtin::catalogue().lookup(&served.group, &served.version, &served.plural)?;
    let mut resource = Resource::clone(known);
    resource.versions.retain(|version| version.name == served.version);
    let version = served.version.clone().into();
    let (group, prefix) = (resource.group.clone(), resource.storage_prefix()?.clone());
    resource.storage = ResourceStorage::Persisted { prefix, group, version };
    let printer = keelson_builtin::printer(&served.group, &served.kind);
    let complete = |_: &Resource, version: KindVersion| version.with_printer(printer.clone());
    Some(ResourceRegistration::new(resource).built_in().each_version(complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, version: &str, plural: &str, kind: &str) -> Served {
        let text = str::to_owned;
        Served { group: text(group), version: text(version), plural: text(plural), kind: text(kind), namespaced: true }
    }

    #[test]
    fn a_builtin_kind_is_stored_in_the_version_of_the_source() {
        let check = |served: Served, expected: &str| {
            let contribution = resource_registration(&served, None);
            assert_eq!(contribution.resource().versions.len(), 1);
            assert_eq!(contribution.storage_kind().unwrap().group_version().to_string(), expected);
        };
        check(served("", "v1", "pods", "Pod"), "v1");
        check(served("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"), "autoscaling/v1");
        check(served("example.com", "v1", "things", "Thing"), "example.com/v1");
        assert!(!is_builtin(&served("", "v1", "pods", "Other")), "another API with the same path");
    }
}
