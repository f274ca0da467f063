//! The declaration of CustomResourceDefinitions.
//!
//! The crate `extensions` serves the custom resources.

use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, served, version};

const GROUP: &str = "apiextensions.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16700,
    versions: &[version("v1", 15)],
    resources: &[cluster(GROUP, "customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition")
        .versions(&[served("v1").with(&[STATUS])])
        .short_names(&["crd", "crds"])
        .categories(&["api-extensions"])
        .stored_at("apiextensions.k8s.io/customresourcedefinitions")
        .counts_generations()
        .updated_only_from_a_revision()],
};
