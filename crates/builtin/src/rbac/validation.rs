//! Validation of roles and bindings.
//!
//! The strategy checks that the user may grant the rights.

#[cfg(test)]
mod tests;

use keelson_meta::json::{Value, json};

use crate::validating::at::At;
use crate::validating::formats::{DNS_SUBDOMAIN, PATH_SEGMENT};
use crate::validating::selectors::{is_sound, label_selector};
use crate::validating::type_rules::Rule::{Always, Check, Each, Format, Required, StrictlyOneOf};
use crate::validating::type_rules::{Kind, Rule, Run, TypeRules, kind};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const KINDS: &[Kind] = &[
    kind("ClusterRole").object(&CLUSTER_ROLE_OBJECT),
    kind("ClusterRoleBinding").object(&CLUSTER_BINDING).then(&BINDING_UPDATE),
    kind("Role").object(&const { TypeRules::new(&[("rules", Each(&NAMESPACED_RULE))]) }),
    kind("RoleBinding").object(&BINDING).then(&BINDING_UPDATE),
];

const CLUSTER_ROLE_OBJECT: TypeRules =
    TypeRules::new(&[("rules", Each(&RULE)), ("aggregationRule", Check("label selectors, at least one", aggregation))]);

fn aggregation(at: &At<'_, '_>, run: &mut Run<'_>) {
    let selectors = at.field("clusterRoleSelectors");
    if at.is_set() && selectors.is_empty() {
        selectors.required(run, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for selector in selectors.items() {
        label_selector(&selector, run);
        if !is_sound(&selector) {
            // Like upstream, the error contains no value.
            selector.invalid(run, Value::Null, "invalid label selector.");
        }
    }
}

const RULE: TypeRules = TypeRules::new(&[("verbs", SOME_VERBS), ("", RESOURCES_OR_URLS)]);

const NAMESPACED_RULE: TypeRules = TypeRules::new(&[
    ("verbs", SOME_VERBS),
    (
        "nonResourceURLs",
        Check("not in a namespace", |at, run| {
            if !at.is_empty() {
                at.invalid(run, at.shown(), "namespaced rules cannot apply to non-resource URLs");
            }
        }),
    ),
    ("", RESOURCES_OR_URLS),
]);

const SOME_VERBS: Rule = Required("verbs must contain at least one value");
const RESOURCES_OR_URLS: Rule = Check("groups and resources, or URLs", resources_or_urls);

fn resources_or_urls(rule: &At<'_, '_>, run: &mut Run<'_>) {
    let urls = rule.field("nonResourceURLs");
    let [groups, resources, names] = ["apiGroups", "resources", "resourceNames"].map(|field| rule.field(field));
    if !urls.is_empty() {
        if [&groups, &resources, &names].iter().any(|field| !field.is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            urls.invalid(run, urls.shown(), detail);
        }
        return;
    }
    if groups.is_empty() {
        groups.required(run, "resource rules must supply at least one api group");
    }
    if resources.is_empty() {
        resources.required(run, "resource rules must supply at least one resource");
    }
}

const BINDING: TypeRules = TypeRules::new(&[("roleRef", Always(&ROLE)), ("subjects", Each(&SUBJECT))]);
const CLUSTER_BINDING: TypeRules =
    TypeRules::new(&[("roleRef", Always(&CLUSTER_ROLE)), ("subjects", Each(&CLUSTER_SUBJECT))]);

const ROLE: TypeRules = TypeRules::new(&[
    ("apiGroup", StrictlyOneOf(&[GROUP])),
    ("kind", StrictlyOneOf(&["Role", "ClusterRole"])),
    ("name", Required("")),
    ("name", Format(&PATH_SEGMENT)),
]);

const CLUSTER_ROLE: TypeRules = TypeRules::new(&[
    ("apiGroup", StrictlyOneOf(&[GROUP])),
    ("kind", StrictlyOneOf(&["ClusterRole"])),
    ("name", Required("")),
    ("name", Format(&PATH_SEGMENT)),
]);

const SUBJECT: TypeRules =
    TypeRules::new(&[("", Check("a user, group or service account with the API group of its kind", subject))]);

const CLUSTER_SUBJECT: TypeRules = TypeRules::new(&[(
    "",
    Check("a user, group or service account (with namespace) with the API group of its kind", |at, run| {
        subject(at, run);
        let namespace = at.field("namespace");
        if at.field("kind").text() == "ServiceAccount" && namespace.is_empty() {
            namespace.required(run, "");
        }
    }),
)]);

const BINDING_UPDATE: TypeRules = TypeRules::new(&[(
    "roleRef",
    Check("immutable", |at, run| {
        let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| at.field(field));
        if [&group, &kind, &name].iter().any(|field| !field.is_unchanged()) {
            // Like upstream, the error contains the Go structure.
            let shown = json!({ "APIGroup": group.text(), "Kind": kind.text(), "Name": name.text() });
            at.invalid(run, shown, "cannot change roleRef");
        }
    }),
)]);

fn subject(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (kind, name, group) = (at.field("kind"), at.field("name"), at.field("apiGroup"));
    if name.is_empty() {
        name.required(run, "");
    }
    let mut user_or_group = || {
        if group.text() != GROUP {
            group.not_supported(run, group.text(), &[GROUP]);
        }
    };
    match kind.text() {
        "User" | "Group" => user_or_group(),
        "ServiceAccount" => {
            if !name.is_empty() {
                name.complain(run, DNS_SUBDOMAIN.faults(name.text()));
            }
            if !group.is_empty() {
                group.not_supported(run, group.text(), &[""]);
            }
        }
        other => kind.not_supported(run, other, &["ServiceAccount", "User", "Group"]),
    }
}
