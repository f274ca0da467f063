//! Bindings of `rbac.authorization.k8s.io/v1alpha1`. Its subjects have an `apiVersion`, and the user `*` means all
//! authenticated users.
//!
//! The group of a subject follows from its kind, regardless of its `apiVersion`.

use keelson_meta::GroupVersion;
use keelson_meta::json::{Map, Value, json};

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{ALPHA, BETA, BOTH, RetiredVersions, row};
use crate::converting::tree::{append_rest, each_in, take};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("ClusterRole", GROUP, BOTH),
    row("ClusterRoleBinding", GROUP, BETA),
    row("ClusterRoleBinding", GROUP, ALPHA).by(binding_from_v1alpha1),
    row("Role", GROUP, BOTH),
    row("RoleBinding", GROUP, BETA),
    row("RoleBinding", GROUP, ALPHA).by(binding_from_v1alpha1),
];

const AUTHENTICATED: &str = "system:authenticated";

/// Converts from v1alpha1 to v1.
pub(crate) fn binding_from_v1alpha1(binding: &mut Map) -> Result<(), ConversionError> {
    each_in(binding, "subjects", |subject| {
        let mut rest = std::mem::take(subject);
        let text = |value: Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut kind, mut name) = (text(take(&mut rest, "kind")), text(take(&mut rest, "name")));
        let api_version = text(take(&mut rest, "apiVersion"));
        let group = match &*kind {
            "ServiceAccount" => String::new(),
            "User" | "Group" => GROUP.to_owned(),
            _ => GroupVersion::split(&api_version).map_or_else(String::new, |(group, _)| group.to_owned()),
        };
        if kind == "User" && name == "*" {
            (kind, name) = ("Group".to_owned(), AUTHENTICATED.to_owned());
        }
        subject.insert("kind", json!(kind));
        if !group.is_empty() {
            subject.insert("apiGroup", json!(group));
        }
        subject.insert("name", json!(name));
        append_rest(subject, rest);
        Ok(())
    })
}
