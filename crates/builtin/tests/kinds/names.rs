//! Tests the names of resources in settings, and the names that an error suggests.
//!
//! A name is a plural, a dot and the group.

use keelson_builtin::catalogue;

fn check(name: &str, expect: &str) {
    let found = catalogue().named(name);
    let text = found.map_or_else(|unknown| unknown.to_string(), |resource| resource.kind.to_string());
    assert_eq!(text, expect);
}

#[test]
fn names_are_plurals_with_their_group() {
    check("secrets", "Secret");
    check("roles.rbac.authorization.k8s.io", "Role");
    check("events.events.k8s.io", "Event");
}

#[test]
fn unknown_resource_names_get_a_suggestion() {
    check("secretz", r#"there is no resource "secretz"; did you mean secrets?"#);
    check("Secret", r#"there is no resource "Secret"; did you mean secrets?"#);
    check("cm", r#"there is no resource "cm"; did you mean configmaps?"#);
    check("roles", r#"there is no resource "roles"; did you mean roles.rbac.authorization.k8s.io?"#);
    check("secrets.apps", r#"there is no resource "secrets.apps"; did you mean secrets?"#);
    for nothing in ["", "nonsense", ".", "secrets,roles"] {
        check(
            nothing,
            &format!(
                "there is no resource {nothing:?}; a name is the plural with its group after a dot, such as secrets or deployments.apps"
            ),
        );
    }
}
