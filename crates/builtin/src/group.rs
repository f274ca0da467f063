//! An API group with everything that its kinds need besides their schemas.
//!
//! Each group folder builds one [`BuiltinGroup`] from its files. No code outside of the folders lists kinds by name.

use keelson_meta::Release;
use keelson_registry::strategy::{ClosedFields, MetadataRules, Strategies};
use keelson_resources::declare::GroupDeclaration;
use keelson_tables::printer::Printer;

use crate::converting::families::Family;
use crate::converting::retired::RetiredVersions;
use crate::defaulting::type_defaults::TypeDefaults;
use crate::deprecation::Deprecation;
use crate::validating::ValidatedObject;
use crate::validating::type_rules::Kind;

/// Appends the warnings about an object of a kind.
pub(crate) type Warn = for<'v> fn(&str, ValidatedObject<'v>, &mut Vec<String>);

/// The printer of a kind, by its name.
pub(crate) type Printers = fn(&str) -> Option<Printer>;

/// One group. Parts that a group does not need keep their empty value.
pub(crate) struct BuiltinGroup {
    /// The resources, versions and subresources.
    pub(crate) declaration: GroupDeclaration,
    /// The deprecated versions.
    pub(crate) deprecations: &'static [Deprecation],
    /// The defaults of a kind in a version, by the names of the version and the kind.
    pub(crate) defaults: fn(&str, &str) -> Option<&'static TypeDefaults>,
    /// The validation rules of each stored kind.
    pub(crate) validation: &'static [Kind],
    /// The rules that replace those of a kind while a feature gate is on, with the name of the gate.
    pub(crate) gated_validation: &'static [(&'static str, Kind)],
    /// The warnings about valid objects.
    pub(crate) warnings: Warn,
    /// The kinds with several versions.
    pub(crate) versions: &'static [Family],
    /// The versions that are no longer served.
    pub(crate) retired: &'static [RetiredVersions],
    /// The printer of a kind; `None` for the default columns.
    pub(crate) columns: Printers,
    /// The printers that a release has first, with the release.
    pub(crate) later_columns: Option<(Release, Printers)>,
    /// The strategies of a resource, by its plural.
    pub(crate) strategies: fn(&str) -> &'static Strategies,
    /// The fields of a resource that feature gates guard.
    pub(crate) closed_fields: fn(&str) -> Vec<ClosedFields>,
    /// The rules for the metadata of a resource.
    pub(crate) metadata_rules: fn(&str) -> MetadataRules,
}

impl BuiltinGroup {
    pub(crate) const fn new(declaration: GroupDeclaration) -> Self {
        Self {
            declaration,
            deprecations: &[],
            defaults: |_, _| None,
            validation: &[],
            gated_validation: &[],
            warnings: |_, _, _| {},
            versions: &[],
            retired: &[],
            columns: |_| None,
            later_columns: None,
            strategies: |_| &Strategies::ORDINARY,
            closed_fields: |_| Vec::new(),
            metadata_rules: |_| MetadataRules::DomainsForFinalizers,
        }
    }

    pub(crate) const fn deprecations(mut self, deprecations: &'static [Deprecation]) -> Self {
        self.deprecations = deprecations;
        self
    }

    pub(crate) const fn defaults(mut self, defaults: fn(&str, &str) -> Option<&'static TypeDefaults>) -> Self {
        self.defaults = defaults;
        self
    }

    pub(crate) const fn validation(mut self, kinds: &'static [Kind]) -> Self {
        self.validation = kinds;
        self
    }

    pub(crate) const fn gated_validation(mut self, kinds: &'static [(&'static str, Kind)]) -> Self {
        self.gated_validation = kinds;
        self
    }

    pub(crate) const fn warnings(mut self, warnings: Warn) -> Self {
        self.warnings = warnings;
        self
    }

    pub(crate) const fn versions(mut self, families: &'static [Family]) -> Self {
        self.versions = families;
        self
    }

    pub(crate) const fn retired(mut self, retired: &'static [RetiredVersions]) -> Self {
        self.retired = retired;
        self
    }

    pub(crate) const fn columns(mut self, columns: fn(&str) -> Option<Printer>) -> Self {
        self.columns = columns;
        self
    }

    pub(crate) const fn later_columns(mut self, since: Release, columns: fn(&str) -> Option<Printer>) -> Self {
        self.later_columns = Some((since, columns));
        self
    }

    pub(crate) const fn strategies(mut self, strategies: fn(&str) -> &'static Strategies) -> Self {
        self.strategies = strategies;
        self
    }

    pub(crate) const fn closed_fields(mut self, closed_fields: fn(&str) -> Vec<ClosedFields>) -> Self {
        self.closed_fields = closed_fields;
        self
    }

    pub(crate) const fn metadata_rules(mut self, rules: fn(&str) -> MetadataRules) -> Self {
        self.metadata_rules = rules;
        self
    }
}
