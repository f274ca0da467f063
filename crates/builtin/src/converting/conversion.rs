//! Conversions between two versions of a kind, and the table of all conversions.
//!
//! The table is built from the families at its first use. Other code finds conversions through a
//! [`View`](crate::converting::View), which is created once.

use std::collections::HashMap;
use std::sync::OnceLock;

use keelson_meta::Object;
use keelson_meta::json::Map;
pub(crate) use keelson_registry::ConversionError;

use crate::converting::families::{Family, Form};
use crate::groups::GROUPS;

/// Changes the fields of an object, on the way to or from the hub.
pub(crate) type ConvertFn = fn(&mut Map) -> Result<(), ConversionError>;

/// The steps from one version of a kind to another.
#[derive(Debug)]
pub(crate) struct Conversion {
    kind: &'static str,
    from: &'static Form,
    to: &'static Form,
    source_api_version: String,
    to_api_version: String,
    steps: [Option<ConvertFn>; 2],
}

impl Conversion {
    /// The conversion of a kind between two (group, version) pairs. Equal pairs give the identity.
    ///
    /// `group` is the group of the request. It matters for events, which are in two groups. Returns `None` if the kind
    /// is not served in both versions.
    pub(crate) fn between(
        group: &str,
        kind: &str,
        from_gv: (&str, &str),
        to_gv: (&str, &str),
    ) -> Option<&'static Self> {
        let table = Table::get();
        let from = table.forms.get(&(kind, from_gv.0, from_gv.1))?;
        let to = table.forms.get(&(kind, to_gv.0, to_gv.1))?;
        let belongs =
            from.family == to.family && table.families[from.family].forms.iter().any(|form| form.group == group);
        belongs.then(|| &table.conversions[from.first + to.index])
    }

    /// The conversions from other versions of a kind to this one.
    pub(crate) fn leading_to<'a>(kind: &'a str, gv: (&'a str, &'a str)) -> impl Iterator<Item = &'static Self> + 'a {
        let leads = move |each: &&Self| each.kind == kind && each.to.gv() == gv && each.from.gv() != gv;
        Table::get().conversions.iter().filter(leads)
    }

    /// The change of an object that a client sends in its stored version; `None` if there is none.
    ///
    /// The conversion removes the annotations in which `v1` autoscalers keep fields of `v2`. They belong to the server,
    /// so clients cannot set them.
    pub(crate) fn canonical(group: &str, kind: &str, gv: (&str, &str)) -> Option<&'static Self> {
        // Nearly every kind has no such change, so the table of all forms is not searched first.
        let found = Table::get().canonical.iter().find(|known| known.kind == kind && known.from.gv() == gv)?;
        Self::between(group, kind, gv, gv).map(|_| found)
    }

    /// The kind.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// The group and version that it converts from.
    #[cfg(test)]
    pub(crate) fn source_gv(&self) -> (&'static str, &'static str) {
        self.from.gv()
    }

    /// The group and version that it converts to.
    #[cfg(test)]
    pub(crate) fn to_gv(&self) -> (&'static str, &'static str) {
        self.to.gv()
    }

    /// The `apiVersion` that it converts to.
    #[cfg(test)]
    pub(crate) fn to_api_version(&self) -> &str {
        &self.to_api_version
    }

    fn new(kind: &'static str, from: &'static Form, to: &'static Form) -> Self {
        let same = from.gv() == to.gv();
        let steps = if same { [None, None] } else { [from.to_hub, to.from_hub] };
        Self::with_steps(kind, from, to, steps)
    }

    fn with_steps(kind: &'static str, from: &'static Form, to: &'static Form, steps: [Option<ConvertFn>; 2]) -> Self {
        Self { kind, from, to, source_api_version: from.api_version(), to_api_version: to.api_version(), steps }
    }
}

impl keelson_registry::Conversion for Conversion {
    fn source_api_version(&self) -> &str {
        &self.source_api_version
    }

    fn is_rename(&self) -> bool {
        self.steps.iter().all(Option::is_none)
    }

    fn is_identity(&self) -> bool {
        self.is_rename() && self.from.gv() == self.to.gv()
    }

    fn convert(&self, object: &mut Object) -> Result<(), ConversionError> {
        let found = object.api_version().unwrap_or_default();
        if found != self.source_api_version {
            let (expected, found) = (self.source_api_version.clone(), found.to_owned());
            return Err(ConversionError::NotInVersion { kind: self.kind, expected, found });
        }
        self.steps.iter().flatten().try_for_each(|step| step(&mut object.0))?;
        object.0.insert("apiVersion", self.to_api_version.clone());
        Ok(())
    }
}

/// All conversions. The first call builds the table in a few microseconds.
struct Table {
    families: Vec<&'static Family>,
    /// The position of each form, by kind, group and version.
    forms: HashMap<(&'static str, &'static str, &'static str), FormEntry>,
    conversions: Vec<Conversion>,
    canonical: Vec<Conversion>,
}

/// The position of a form, and of the conversions from it.
struct FormEntry {
    /// The index of the family.
    family: usize,
    /// The index of the form in the family.
    index: usize,
    /// The index of the conversion to the first form of the family.
    first: usize,
}

impl Table {
    fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| {
            let families: Vec<&Family> = GROUPS.iter().flat_map(|group| group.versions).collect();
            let mut table =
                Self { families: Vec::new(), forms: HashMap::new(), conversions: Vec::new(), canonical: Vec::new() };
            families.iter().enumerate().for_each(|(number, family)| table.add(number, family));
            Self { families, ..table }
        })
    }

    fn add(&mut self, number: usize, family: &'static Family) {
        for (index, from) in family.forms.iter().enumerate() {
            let place = FormEntry { family: number, index, first: self.conversions.len() };
            self.forms.insert((family.kind, from.group, from.version), place);
            self.conversions.extend(family.forms.iter().map(|to| Conversion::new(family.kind, from, to)));
            if let Some(steps) = from.canonical {
                self.canonical.push(Conversion::with_steps(family.kind, from, from, steps));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use keelson_meta::json::json;
    use keelson_meta::{ApiError, Release};
    use keelson_registry::Conversion as _;

    use super::*;

    #[test]
    fn every_kind_with_several_versions_converts_between_all_of_them() {
        let mut known = 0;
        let (older, newest) = (crate::catalogue_of(Release::V1_36), crate::catalogue_of(Release::V1_37));
        for resource in newest.resources() {
            let Some(stored) = resource.default_storage_kind() else { continue };
            let before = older.resource(&resource.group, &resource.plural).into_iter();
            let versions = resource.versions.iter().chain(before.flat_map(|resource| &resource.versions));
            let served = versions.map(|version| (&*resource.group, &*version.name));
            let forms: BTreeSet<_> = served.chain([(stored.group.as_str(), stored.version.as_str())]).collect();
            if forms.len() == 1 && resource.kind != "Event" {
                continue;
            }
            known += 1;
            for (from, to) in forms.iter().flat_map(|from| forms.iter().map(move |to| (*from, *to))) {
                let found = Conversion::between(&resource.group, &resource.kind, from, to);
                let found = found.unwrap_or_else(|| panic!("{} {from:?} to {to:?}", resource.kind));
                assert_eq!((found.kind(), found.source_gv(), found.to_gv()), (&*resource.kind, from, to));
                assert_eq!(found.is_identity(), from == to);
            }
        }
        assert_eq!(
            known,
            Table::get().families.len() + 1,
            "events are two resources of one family; nothing else is declared"
        );
    }

    #[test]
    fn a_kind_is_not_found_in_other_groups_and_versions() {
        let between = Conversion::between;
        let hpa = "HorizontalPodAutoscaler";
        assert!(between("autoscaling", hpa, ("autoscaling", "v1"), ("autoscaling", "v2")).is_some());
        assert!(between("apps", hpa, ("autoscaling", "v1"), ("autoscaling", "v2")).is_none());
        assert!(between("autoscaling", hpa, ("autoscaling", "v1"), ("autoscaling", "v3")).is_none());
        assert!(between("autoscaling", "Event", ("", "v1"), ("", "v1")).is_none());
        assert!(between("", "Event", ("", "v1"), ("events.k8s.io", "v1")).is_some());
        assert!(between("events.k8s.io", "Event", ("", "v1"), ("events.k8s.io", "v1")).is_some());
    }

    #[test]
    fn the_list_of_mere_renames_is_complete() {
        let conversions = Table::get().conversions.iter().filter(|each| !each.is_identity());
        let (renames, others): (Vec<_>, Vec<_>) = conversions.partition(|each| each.is_rename());
        let names = |list: Vec<&Conversion>| -> BTreeSet<String> {
            let pair = |each: &&Conversion| format!("{} {} {}", each.kind(), each.from.version, each.to.version);
            list.iter().filter(|each| each.from.gv() < each.to.gv()).map(pair).collect()
        };
        let expected = [
            "ClusterTrustBundle v1 v1alpha1",
            "ClusterTrustBundle v1 v1beta1",
            "ClusterTrustBundle v1alpha1 v1beta1",
            "DeviceClass v1 v1beta1",
            "DeviceClass v1 v1beta2",
            "DeviceClass v1beta1 v1beta2",
            "DeviceTaintRule v1 v1alpha3",
            "DeviceTaintRule v1 v1beta2",
            "DeviceTaintRule v1alpha3 v1beta2",
            "IPAddress v1 v1beta1",
            "LeaseCandidate v1alpha2 v1beta1",
            "MutatingAdmissionPolicy v1 v1alpha1",
            "MutatingAdmissionPolicy v1 v1beta1",
            "MutatingAdmissionPolicy v1alpha1 v1beta1",
            "MutatingAdmissionPolicyBinding v1 v1alpha1",
            "MutatingAdmissionPolicyBinding v1 v1beta1",
            "MutatingAdmissionPolicyBinding v1alpha1 v1beta1",
            "PodGroup v1alpha3 v1beta1",
            "ResourceClaim v1 v1beta2",
            "ResourceClaimTemplate v1 v1beta2",
            "ResourceSlice v1 v1beta2",
            "ServiceCIDR v1 v1beta1",
            "StorageVersionMigration v1 v1beta1",
            "VolumeAttributesClass v1 v1beta1",
            "Workload v1alpha3 v1beta1",
        ];
        assert_eq!(names(renames), expected.map(str::to_owned).into());
        let expected = [
            "Event v1 v1",
            "HorizontalPodAutoscaler v1 v2",
            "ResourceClaim v1 v1beta1",
            "ResourceClaim v1beta1 v1beta2",
            "ResourceClaimTemplate v1 v1beta1",
            "ResourceClaimTemplate v1beta1 v1beta2",
            "ResourceSlice v1 v1beta1",
            "ResourceSlice v1beta1 v1beta2",
        ];
        assert_eq!(names(others), expected.map(str::to_owned).into());
    }

    #[test]
    fn an_object_in_another_version_is_refused() {
        let gv = |version| ("networking.k8s.io", version);
        let conversion = Conversion::between("networking.k8s.io", "IPAddress", gv("v1beta1"), gv("v1"));
        let conversion = conversion.expect("both are served");
        let object = |value| Object::from_value(value).expect("an object");
        let mut address = object(json!({"kind": "IPAddress", "apiVersion": "networking.k8s.io/v1beta1", "new": 1}));
        conversion.convert(&mut address).expect("a rename");
        assert_eq!(
            address,
            object(json!({"kind": "IPAddress", "apiVersion": "networking.k8s.io/v1", "new": 1})),
            "unknown fields survive"
        );
        let error = conversion.convert(&mut address).expect_err("it is in v1 by now");
        assert_eq!(
            error.to_string(),
            r#"cannot convert IPAddress from networking.k8s.io/v1beta1: it is in "networking.k8s.io/v1""#
        );
        assert!(matches!(ApiError::from(error), ApiError::Internal(_)));
    }
}
