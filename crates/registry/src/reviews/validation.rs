//! Rules for access reviews: required and forbidden fields. The texts are kube-apiserver's.
//!
//! Reviews are not stored objects, so their metadata must be empty except for a namespace.

use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::names::label_key_faults;
use keelson_meta::{ApiError, GroupKind, Object};

/// The subject of a review.
pub(super) enum ReviewSubject<'r> {
    /// Any user, in any namespace.
    Anybody,
    /// Any user, in this namespace.
    AnybodyWithin(&'r str),
    /// The caller.
    Oneself,
}

/// Refuses a review that cannot be answered.
///
/// # Errors
/// 422 with all errors. As upstream, the kind is empty.
pub(super) fn check(review: &Object, about: &ReviewSubject<'_>) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let part = |field: &str| review.get(&["spec", field]).filter(|part| !part.is_null());
    match (part("resourceAttributes"), part("nonResourceAttributes")) {
        (Some(_), Some(path)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", path_text(path), detail));
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid("spec.resourceAttributes", Value::Null, detail));
        }
        (resource, path) => {
            if let (ReviewSubject::AnybodyWithin(_), Some(path)) = (about, path) {
                let detail = "disallowed on this kind of request";
                errors.push(FieldError::invalid("spec.nonResourceAttributes", path_text(path), detail));
            }
            for selector in resource.iter().flat_map(|_| ["fieldSelector", "labelSelector"]) {
                check_selector(review, selector, &mut errors);
            }
        }
    }
    let is_empty = |field: &str| match part(field) {
        Some(Value::Array(list)) => list.is_empty(),
        other => other.and_then(Value::as_str).unwrap_or_default().is_empty(),
    };
    if !matches!(about, ReviewSubject::Oneself) && is_empty("user") && is_empty("groups") {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    check_metadata(review, about, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind { group: "authorization.k8s.io".to_owned(), kind: String::new() };
    Err(ApiError::Invalid { kind, name: String::new(), errors })
}

/// A path in the form of upstream's messages.
fn path_text(path: &Value) -> Value {
    let text = |field: &str| path.get(field).and_then(Value::as_str).unwrap_or_default();
    json!({ "Path": text("path"), "Verb": text("verb") })
}

fn check_metadata(review: &Object, about: &ReviewSubject<'_>, errors: &mut Vec<FieldError>) {
    let mut rest: Map = review.metadata().cloned().unwrap_or_default();
    let detail = match about {
        ReviewSubject::AnybodyWithin(_) => "must be empty except for namespace",
        ReviewSubject::Anybody | ReviewSubject::Oneself => "must be empty",
    };
    let whole = Value::Object(rest.clone());
    // As upstream, a namespace is dropped before the check if the review has none by its kind.
    for field in ["managedFields", "namespace"] {
        rest.remove(field);
    }
    if rest.iter().any(|(_, value)| !value.is_null()) {
        errors.push(FieldError::invalid("metadata", whole, detail));
    }
    if let ReviewSubject::AnybodyWithin(namespace) = about
        && review.get(&["spec", "resourceAttributes"]).is_some_and(|attributes| !attributes.is_null())
    {
        let stated =
            review.get(&["spec", "resourceAttributes", "namespace"]).and_then(Value::as_str).unwrap_or_default();
        if stated != *namespace {
            let detail = "must match metadata.namespace";
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", stated, detail));
        }
    }
}

fn check_selector(review: &Object, name: &str, errors: &mut Vec<FieldError>) {
    let field = format!("spec.resourceAttributes.{name}");
    let Some(selector) = review.get(&["spec", "resourceAttributes", name]).filter(|selector| !selector.is_null())
    else {
        return;
    };
    let raw = selector["rawSelector"].as_str().unwrap_or_default();
    let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{field}.rawSelector"), raw, detail));
        }
        (true, true) => {
            let detail = format!("when {field} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{field}.requirements"), detail));
        }
        _ => {}
    }
    for (place, requirement) in requirements.iter().enumerate() {
        check_requirement(&format!("{field}.requirements[{place}]"), name, requirement, errors);
    }
}

fn check_requirement(field: &str, selector: &str, requirement: &Value, errors: &mut Vec<FieldError>) {
    let text = |name: &str| requirement[name].as_str().unwrap_or_default();
    let key = text("key");
    if selector == "labelSelector" {
        let faults = label_key_faults(key).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid(format!("{field}.key"), key, fault)));
    } else if key.is_empty() {
        errors.push(FieldError::required(format!("{field}.key"), "must be specified"));
    }
    let has_values = requirement["values"].as_array().is_some_and(|values| !values.is_empty());
    match (text("operator"), has_values) {
        ("In" | "NotIn", false) => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{field}.values"), detail));
        }
        ("Exists" | "DoesNotExist", true) => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{field}.values"), detail));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(review: Value, about: &ReviewSubject<'_>) -> String {
        let review = Object::from_value(review).unwrap();
        check(&review, about).map_or_else(|error| error.status().message, |()| String::new())
    }

    #[test]
    fn reviews_require_one_subject_and_one_action() {
        let check = |spec: Value, expected: &str| {
            let told = faults(json!({ "spec": spec }), &ReviewSubject::Anybody);
            let expected = if expected.is_empty() {
                String::new()
            } else {
                format!(".authorization.k8s.io \"\" is invalid: {expected}")
            };
            assert_eq!(told, expected);
        };
        let (pods, path) = (json!({"verb": "get", "resource": "pods"}), json!({"verb": "get", "path": "/"}));
        check(json!({"user": "a", "resourceAttributes": pods}), "");
        check(json!({"groups": ["a"], "nonResourceAttributes": path}), "");
        check(
            json!({}),
            "[spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be \
             specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
        );
        check(
            json!({"user": "a", "resourceAttributes": pods, "nonResourceAttributes": path}),
            r#"spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: cannot be specified in combination with resourceAttributes"#,
        );
        let selector = |selector: Value| json!({"user": "a", "resourceAttributes": {"fieldSelector": selector}});
        check(
            selector(json!({})),
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, \
             requirements or rawSelector is required",
        );
        check(
            selector(json!({"requirements": [{"key": "", "operator": "Exists", "values": ["b"]}]})),
            "[spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, \
             spec.resourceAttributes.fieldSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or \
             'DoesNotExist']",
        );
    }

    #[test]
    fn a_review_has_no_metadata_but_its_namespace() {
        let attributes = json!({"namespace": "a", "resource": "pods"});
        let review =
            |metadata: Value| json!({"metadata": metadata, "spec": {"user": "u", "resourceAttributes": attributes}});
        let within = ReviewSubject::AnybodyWithin("a");
        assert_eq!(faults(review(json!({"namespace": "a"})), &within), "");
        assert!(
            faults(review(json!({"namespace": "a", "name": "x"})), &within)
                .ends_with("must be empty except for namespace")
        );
        assert!(faults(review(json!({"labels": {"a": "b"}})), &ReviewSubject::Oneself).ends_with(": must be empty"));
        let other = faults(review(json!({"namespace": "a"})), &ReviewSubject::AnybodyWithin("b"));
        assert!(
            other.ends_with(r#"spec.resourceAttributes.namespace: Invalid value: "a": must match metadata.namespace"#),
            "{other}"
        );
    }
}
