//! Versions that are no longer served, but in which kube-apiserver may have stored objects.
//!
//! Conversion has one direction: an object is converted to a served version as soon as it is read. No request names a
//! retired version.
//!
//! The table has the kinds that kube-apiserver 1.36 stores, with every version that it can decode and that this server
//! does not serve. It also has versions of 1.30 to 1.35 with the same fields. Rows without a step have the same fields
//! and defaults as their target version.

use keelson_meta::{GroupVersion, GroupVersionKind, Object};

use crate::converting::conversion::{ConversionError, ConvertFn};
use crate::groups::GROUPS;

/// Retired versions of a kind with the same target version and the same step.
#[derive(Debug)]
pub(crate) struct RetiredVersions {
    kind: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    /// The group and version of the target.
    to: (&'static str, &'static str),
    step: Option<ConvertFn>,
}

impl RetiredVersions {
    /// Finds the row of a retired version; `None` if the version is served or unknown.
    pub(crate) fn find(api_version: &str, kind: &str) -> Option<&'static Self> {
        let (group, version) = GroupVersion::split(api_version)?;
        rows().find(|row| row.kind == kind && row.group == group && row.versions.contains(&version))
    }

    /// Returns true if the kind has retired versions whose target is in this group.
    pub(crate) fn has_any(group: &str, kind: &str) -> bool {
        rows().any(|row| row.kind == kind && row.to.0 == group)
    }

    /// The kind in the target version.
    pub(crate) fn target(&self) -> GroupVersionKind {
        GroupVersionKind { group: self.to.0.into(), version: self.to.1.into(), kind: self.kind.into() }
    }

    /// Converts an object in place. Fields that the target version does not have stay; its schema drops them.
    ///
    /// # Errors
    /// The object does not fit its schema. Its content is then unspecified.
    pub(crate) fn convert(&self, object: &mut Object) -> Result<(), ConversionError> {
        if let Some(step) = self.step {
            step(&mut object.0)?;
        }
        object.set_type(&self.target());
        Ok(())
    }

    /// Sets the step.
    pub(crate) const fn by(mut self, step: ConvertFn) -> Self {
        self.step = Some(step);
        self
    }

    /// Sets the target. The default is `v1` of the same group.
    pub(crate) const fn to(mut self, group: &'static str, version: &'static str) -> Self {
        self.to = (group, version);
        self
    }
}

/// Retired versions whose target is `v1` of the same group.
pub(crate) const fn row(kind: &'static str, group: &'static str, versions: &'static [&'static str]) -> RetiredVersions {
    RetiredVersions { kind, group, versions, to: (group, "v1"), step: None }
}

/// The former group of workloads and ingresses.
pub(crate) const EXTENSIONS: &str = "extensions";

pub(crate) const ALPHA: &[&str] = &["v1alpha1"];
pub(crate) const BETA: &[&str] = &["v1beta1"];
pub(crate) const BOTH: &[&str] = &["v1beta1", "v1alpha1"];

fn rows() -> impl Iterator<Item = &'static RetiredVersions> {
    GROUPS.iter().flat_map(|group| group.retired)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use keelson_meta::json::json;

    use super::*;

    /// Converts an object to the served version and compares the result.
    #[expect(clippy::needless_pass_by_value, reason = "a case reads better as what it is than as references to it")]
    fn check(api_version: &str, kind: &str, object: keelson_meta::json::Value, expected: keelson_meta::json::Value) {
        let mut object = Object::from_value(object).expect("an object");
        object.0.insert("apiVersion", api_version);
        object.0.insert("kind", kind);
        let retired = RetiredVersions::find(api_version, kind)
            .unwrap_or_else(|| panic!("{kind} of {api_version} is not retired"));
        retired.convert(&mut object).expect("it is well formed");
        assert_eq!(object.api_version(), Some(&*retired.target().group_version().to_string()));
        object.0.remove("apiVersion");
        object.0.remove("kind");
        assert_eq!(object.into_value(), expected, "{kind} of {api_version}");
    }

    #[test]
    fn every_row_converts_an_unserved_version_to_a_served_one() {
        let mut seen = BTreeSet::new();
        let catalogue = crate::catalogue();
        let versions = |group: &str, kind: &str| -> Vec<String> {
            let resources =
                catalogue.resources().filter(|resource| *resource.group == *group && *resource.kind == *kind);
            resources.flat_map(|resource| resource.versions.iter().map(|version| version.name.to_string())).collect()
        };
        for row in rows() {
            assert!(versions(row.to.0, row.kind).contains(&row.to.1.to_owned()), "{row:?}");
            let served = versions(row.group, row.kind);
            for version in row.versions {
                let api_version = format!("{}/{version}", row.group);
                assert!(!served.contains(&(*version).to_owned()), "{row:?}");
                assert!(seen.insert((row.kind, api_version.clone())), "{row:?} stands twice");
                let found = RetiredVersions::find(&api_version, row.kind).expect("it is in the table");
                assert_eq!(found.target(), row.target());
            }
            assert!(RetiredVersions::has_any(row.to.0, row.kind));
        }
        assert!(RetiredVersions::find("apps/v1", "Deployment").is_none());
        assert!(RetiredVersions::find("v1", "Pod").is_none() && !RetiredVersions::has_any("", "Pod"));
    }

    #[test]
    fn webhooks_keep_the_defaults_of_their_version() {
        check(
            "admissionregistration.k8s.io/v1beta1",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "failurePolicy": "Fail", "timeoutSeconds": 5}]}),
            json!({"webhooks": [
                {"name": "a", "clientConfig": {}, "failurePolicy": "Ignore", "matchPolicy": "Exact", "sideEffects": "Unknown",
                    "timeoutSeconds": 30, "admissionReviewVersions": ["v1beta1"]},
                {"name": "b", "failurePolicy": "Fail", "timeoutSeconds": 5, "matchPolicy": "Exact", "sideEffects": "Unknown",
                    "admissionReviewVersions": ["v1beta1"]}]}),
        );
    }

    #[test]
    fn removed_workload_fields_are_kept_in_annotations() {
        check(
            "extensions/v1beta1",
            "Deployment",
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 1, "rollbackTo": {"revision": 3}}}),
            json!({"metadata": {"name": "a", "annotations": {"deprecated.deployment.rollback.to": "3"}},
                "spec": {"replicas": 1}}),
        );
        check(
            "extensions/v1beta1",
            "DaemonSet",
            json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"templateGeneration": 4}}),
            json!({"metadata": {"annotations": {"a": "b", "deprecated.daemonset.template.generation": "4"}}, "spec": {}}),
        );
        check("apps/v1beta2", "Deployment", json!({"spec": {}}), json!({"spec": {}}));
    }

    #[test]
    fn an_empty_selector_of_an_old_budget_selects_no_pods() {
        let none = json!({"matchExpressions": [
            {"key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match", "operator": "Exists"}]});
        let all = json!({"matchExpressions": [
            {"key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match", "operator": "DoesNotExist"}]});
        for (before, after) in [
            (json!({}), none),
            (all, json!({})),
            (json!({"matchLabels": {"a": "b"}}), json!({"matchLabels": {"a": "b"}})),
        ] {
            let budget = |selector| json!({"spec": {"minAvailable": 1, "selector": selector}});
            check("policy/v1beta1", "PodDisruptionBudget", budget(before), budget(after));
        }
        check("policy/v1beta1", "PodDisruptionBudget", json!({"spec": {}}), json!({"spec": {}}));
    }

    #[test]
    fn topology_of_endpoints_becomes_zone_and_node() {
        let topology = json!({"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n", "rack": "r"});
        check(
            "discovery.k8s.io/v1beta1",
            "EndpointSlice",
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "topology": topology},
                {"addresses": ["10.0.0.2"], "topology": {"kubernetes.io/hostname": "n"}, "nodeName": "m"},
                {"addresses": ["10.0.0.3"], "topology": {"kubernetes.io/hostname": "n"}, "nodeName": "n"}]}),
            json!({"endpoints": [
                {"addresses": ["10.0.0.1"], "deprecatedTopology": {"rack": "r"}, "nodeName": "n", "zone": "z"},
                {"addresses": ["10.0.0.2"], "nodeName": "m", "deprecatedTopology": {"kubernetes.io/hostname": "n"}},
                {"addresses": ["10.0.0.3"], "nodeName": "n"}]}),
        );
    }

    #[test]
    fn levels_keep_their_shares() {
        let level = |metadata, limited| json!({"metadata": metadata, "spec": {"type": "Limited", "limited": limited}});
        let kind = "PriorityLevelConfiguration";
        let shares = |number: i64| json!({"nominalConcurrencyShares": number});
        for (before, after) in [(json!({"assuredConcurrencyShares": 7}), 7), (json!({}), 30)] {
            let expected = level(json!({}), shares(after));
            check("flowcontrol.apiserver.k8s.io/v1beta2", kind, level(json!({}), before), expected);
        }
        let note = json!({"annotations": {"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}});
        for (metadata, before, after) in
            [(json!({}), shares(5), 5), (json!({}), shares(0), 30), (note.clone(), shares(0), 0), (note, json!({}), 0)]
        {
            let expected = level(json!({}), shares(after));
            check("flowcontrol.apiserver.k8s.io/v1beta3", kind, level(metadata, before), expected);
        }
    }

    #[test]
    fn backends_of_ingresses_name_services_as_today() {
        let path = |backend| json!({"path": "/", "backend": backend});
        check(
            "extensions/v1beta1",
            "Ingress",
            json!({"spec": {"backend": {"serviceName": "a", "servicePort": 80}, "rules": [{"http": {"paths": [
                path(json!({"serviceName": "b", "servicePort": "http"})),
                {"pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "c"}, "servicePort": 0}}]}}]}}),
            json!({"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}, "rules": [{"http": {"paths": [
                {"path": "/", "pathType": "ImplementationSpecific", "backend": {"service": {"name": "b", "port": {"name": "http"}}}},
                {"pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "c"}}}]}}]}}),
        );
    }

    #[test]
    fn subjects_of_old_bindings_have_a_group() {
        let subject =
            |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "name": name});
        check(
            "rbac.authorization.k8s.io/v1alpha1",
            "RoleBinding",
            json!({"subjects": [subject("v1", "ServiceAccount", "a"), subject("", "User", "*"), subject("x.io/v1", "Team", "t"),
                subject("", "Group", "g")]}),
            json!({"subjects": [
                {"kind": "ServiceAccount", "name": "a"},
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"},
                {"kind": "Team", "apiGroup": "x.io", "name": "t"},
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "g"}]}),
        );
    }

    #[test]
    fn small_kinds_move_their_fields() {
        check(
            "node.k8s.io/v1alpha1",
            "RuntimeClass",
            json!({"spec": {"runtimeHandler": "runc", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {}}}),
            json!({"handler": "runc", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {}}),
        );
        check(
            "storagemigration.k8s.io/v1alpha1",
            "StorageVersionMigration",
            json!({"spec": {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "continueToken": "t"},
                "status": {"conditions": [{"type": "Succeeded", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z",
                    "reason": "r"}]}}),
            json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}},
                "status": {"conditions": [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reason": "r", "message": ""}]}}),
        );
        check(
            "certificates.k8s.io/v1beta1",
            "CertificateSigningRequest",
            json!({"spec": {"request": "QQ=="}, "status": {"conditions": [{"type": "Approved"}]}}),
            json!({"spec": {"request": "QQ==", "signerName": "kubernetes.io/legacy-unknown",
                "usages": ["digital signature", "key encipherment"]},
                "status": {"conditions": [{"type": "Approved", "status": "True"}]}}),
        );
    }

    #[test]
    fn wrong_shapes_are_refused_and_missing_ones_are_not() {
        for row in rows() {
            let Some(step) = row.step else { continue };
            step(json!({}).as_object_mut().expect("an object")).unwrap_or_else(|error| panic!("{row:?}: {error}"));
            let mut nulls = json!({"metadata": null, "spec": null, "status": null, "webhooks": null, "endpoints": null, "subjects": null});
            step(nulls.as_object_mut().expect("an object")).unwrap_or_else(|error| panic!("{row:?}: {error}"));
        }
        let refused = |api_version, kind, object: keelson_meta::json::Value| {
            let mut object = Object::from_value(object).expect("an object");
            assert!(RetiredVersions::find(api_version, kind).expect("retired").convert(&mut object).is_err(), "{kind}");
        };
        refused("policy/v1beta1", "PodDisruptionBudget", json!({"spec": 1}));
        refused("extensions/v1beta1", "Ingress", json!({"spec": {"rules": {}}}));
        refused("discovery.k8s.io/v1beta1", "EndpointSlice", json!({"endpoints": [1]}));
    }
}
