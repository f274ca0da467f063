//! Compares each error with upstream's body.
//!
//! The bodies were captured from kube-apiserver, so that even a changed word is detected.

use crate::json::{Value, json};

use super::*;

const TYPES: MediaTypes = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

fn resource(group: &str, resource: &str) -> GroupResource {
    GroupResource { group: group.into(), resource: resource.into() }
}

fn check(error: &ApiError, code: u16, reason: &str, message: &str, details: Option<Value>) {
    let mut expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
    });
    if !reason.is_empty() {
        expected["reason"] = reason.into();
    }
    if let Some(details) = details {
        expected["details"] = details;
    }
    expected["code"] = code.into();
    let body = serde_json::to_string(&error.status()).expect("a status serialises");
    assert_eq!(body, expected.to_string());
    assert_eq!((error.code(), error.to_string().as_str()), (code, message));
}

#[test]
fn plain_client_errors() {
    check(&ApiError::BadRequest("no".into()), 400, "BadRequest", "no", None);
    check(&ApiError::Unauthorized, 401, "Unauthorized", "Unauthorized", None);
    let not_found = "the server could not find the requested resource";
    check(&ApiError::UnknownResource, 404, "NotFound", not_found, Some(json!({})));
    let not_allowed = "the server does not allow this method on the requested resource";
    check(&ApiError::MethodNotAllowed, 405, "MethodNotAllowed", not_allowed, Some(json!({})));
    let test_failed = "the server rejected our request due to an error in our request";
    check(&ApiError::JsonPatchTestFailed, 422, "Invalid", test_failed, Some(json!({})));
}

#[test]
fn errors_about_an_object_name_it() {
    check(
        &ApiError::NotFound { resource: resource("apps", "deployments"), name: "none".into() },
        404,
        "NotFound",
        "deployments.apps \"none\" not found",
        Some(json!({"name": "none", "group": "apps", "kind": "deployments"})),
    );
    check(
        &ApiError::AlreadyExists { resource: resource("", "configmaps"), name: "e1".into(), is_going: false },
        409,
        "AlreadyExists",
        "configmaps \"e1\" already exists",
        Some(json!({"name": "e1", "kind": "configmaps"})),
    );
    check(
        &ApiError::GenerateNameExhausted { resource: resource("", "configmaps"), name: "g-bcdfg".into() },
        409,
        "AlreadyExists",
        "configmaps \"g-bcdfg\" already exists, the server was not able to generate a unique name for the object",
        Some(json!({"name": "g-bcdfg", "kind": "configmaps", "retryAfterSeconds": 1})),
    );
}

#[test]
fn forbidden_names_user_verb_and_resource() {
    let detail = ForbiddenDetail {
        user: "system:anonymous".into(),
        verb: "list".into(),
        resource: Some(resource("", "configmaps")),
        namespace: Some("err".into()),
        ..ForbiddenDetail::default()
    };
    check(
        &ApiError::forbidden(detail.clone()),
        403,
        "Forbidden",
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the \
         namespace \"err\"",
        Some(json!({"kind": "configmaps"})),
    );
    check(
        &ApiError::forbidden(ForbiddenDetail {
            verb: "update".into(),
            resource: Some(resource("apps", "deployments")),
            name: "d".into(),
            namespace: None,
            subresource: Some("scale".into()),
            ..detail.clone()
        }),
        403,
        "Forbidden",
        "deployments.apps \"d\" is forbidden: User \"system:anonymous\" cannot update resource \"deployments/scale\" in API \
         group \"apps\" at the cluster scope",
        Some(json!({"name": "d", "group": "apps", "kind": "deployments"})),
    );
    let reason = "RBAC: role.rbac.authorization.k8s.io \"gone\" not found";
    check(
        &ApiError::forbidden(ForbiddenDetail { reason: reason.into(), ..detail.clone() }),
        403,
        "Forbidden",
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the \
         namespace \"err\": RBAC: role.rbac.authorization.k8s.io \"gone\" not found",
        Some(json!({"kind": "configmaps"})),
    );
    check(
        &ApiError::forbidden(ForbiddenDetail {
            verb: "get".into(),
            resource: None,
            path: Some("/foo".into()),
            ..detail
        }),
        403,
        "Forbidden",
        "forbidden: User \"system:anonymous\" cannot get path \"/foo\"",
        Some(json!({})),
    );
}

#[test]
fn refusals_give_the_rule_and_its_causes() {
    check(
        &ApiError::Refused {
            resource: resource("", "namespaces"),
            name: "default".into(),
            message: "this namespace may not be deleted".into(),
            causes: Vec::new(),
        },
        403,
        "Forbidden",
        "namespaces \"default\" is forbidden: this namespace may not be deleted",
        Some(json!({"name": "default", "kind": "namespaces"})),
    );
    let terminating = StatusCause {
        reason: "NamespaceTerminating".into(),
        message: "namespace ns is being terminated".into(),
        field: "metadata.namespace".into(),
    };
    check(
        &ApiError::Refused {
            resource: resource("", "configmaps"),
            name: "a".into(),
            message: "unable to create new content in namespace ns because it is being terminated".into(),
            causes: vec![terminating],
        },
        403,
        "Forbidden",
        "configmaps \"a\" is forbidden: unable to create new content in namespace ns because it is being terminated",
        Some(json!({"name": "a", "kind": "configmaps", "causes": [{
            "reason": "NamespaceTerminating", "message": "namespace ns is being terminated", "field": "metadata.namespace"
        }]})),
    );
}

#[test]
fn formats_are_listed() {
    check(
        &ApiError::NotAcceptable { accepted: NotAcceptableForm::Router(TYPES) },
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
        Some(json!({})),
    );
    check(
        &ApiError::NotAcceptable { accepted: NotAcceptableForm::MediaTypes(TYPES) },
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
        None,
    );
    check(
        &ApiError::UnsupportedMediaType { accepted: TYPES },
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml, application/vnd.kubernetes.protobuf",
        None,
    );
    let patch = "415: Unsupported Media Type";
    check(&ApiError::UnsupportedPatchType, 415, "UnsupportedMediaType", patch, Some(json!({})));
}

#[test]
fn conflicts_name_the_resource_or_for_preconditions_the_kind() {
    let deployments = resource("apps", "deployments");
    let kind = "Deployment".to_owned();
    check(
        &ApiError::conflict(deployments.clone(), "d", ConflictKind::Modified),
        409,
        "Conflict",
        "Operation cannot be fulfilled on deployments.apps \"d\": the object has been modified; please apply your changes \
         to the latest version and try again",
        Some(json!({"name": "d", "group": "apps", "kind": "deployments"})),
    );
    let details = json!({"name": "d", "group": "apps", "kind": "Deployment"});
    check(
        &ApiError::conflict(
            deployments.clone(),
            "d",
            ConflictKind::UidPrecondition { kind: kind.clone(), wanted: "wrong".into(), actual: "4a".into() },
        ),
        409,
        "Conflict",
        "Operation cannot be fulfilled on Deployment.apps \"d\": the UID in the precondition (wrong) does not match the UID \
         in record (4a). The object might have been deleted and then recreated",
        Some(details.clone()),
    );
    check(
        &ApiError::conflict(
            deployments.clone(),
            "d",
            ConflictKind::RevisionPrecondition { kind, wanted: "1".into(), actual: "405".into() },
        ),
        409,
        "Conflict",
        "Operation cannot be fulfilled on Deployment.apps \"d\": the ResourceVersion in the precondition (1) does not match \
         the ResourceVersion in record (405). The object might have been modified",
        Some(details),
    );
    let other = ApiError::conflict(deployments, "d", ConflictKind::Other("why".into()));
    assert_eq!(other.to_string(), "Operation cannot be fulfilled on deployments.apps \"d\": why");
}

#[test]
fn expired_errors_name_the_compacted_revision() {
    let expired = |message, continue_token| ApiError::Expired { message, continue_token };
    let watch = ExpiredKind::WatchTooOld { requested: Revision::new(5), oldest: Revision::new(459) };
    for (kind, message) in [
        (ExpiredKind::ListRevision, "The resourceVersion for the provided list is too old."),
        (ExpiredKind::WatchRevision, "The resourceVersion for the provided watch is too old."),
        (watch, "too old resource version: 5 (459)"),
        (
            ExpiredKind::ContinueTokenNoRest,
            "The provided continue parameter is too old to display a consistent list result. You must start a new list \
             without the continue parameter.",
        ),
    ] {
        check(&expired(kind, None), 410, "Expired", message, None);
    }
    let status = expired(ExpiredKind::ContinueToken, Some("token".into())).status();
    assert_eq!(status.metadata.continue_token.as_deref(), Some("token"));
    assert_eq!(
        status.message,
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list."
    );
}

#[test]
fn limits_are_reported() {
    let reason = "RequestEntityTooLarge";
    let limit = "Request entity too large: limit is 3145728";
    check(&ApiError::TooLarge { limit: 3_145_728 }, 413, reason, limit, None);
    check(
        &ApiError::ObjectTooLarge { bytes: 1_600_000, limit: 1_572_864 },
        413,
        reason,
        "Request entity too large: the object takes 1600000 bytes in the store, and --max-object-bytes of the server allows \
         1572864",
        None,
    );
    check(&ApiError::UrlTooLong { limit: 65_534 }, 414, "", "the URL of a request has at most 65534 bytes", None);
    let fields = "the header fields of a request have at most 262144 bytes";
    check(&ApiError::HeadTooLarge { limit: 262_144 }, 431, "", fields, None);
    check(
        &ApiError::InsufficientStorage("the store is full".into()),
        507,
        "InsufficientStorage",
        "the store is full",
        None,
    );
    check(
        &ApiError::PatchTooManyOperations { limit: 10_000, actual: 10_001 },
        413,
        reason,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        None,
    );
}

#[test]
fn invalid_has_a_cause_for_each_fault() {
    let kind = GroupKind { group: "meta.k8s.io".into(), kind: "ListOptions".into() };
    let first = FieldError::forbidden("resourceVersionMatch", "one");
    let second = FieldError::required("name", "");
    check(
        &ApiError::Invalid { kind: kind.clone(), name: String::new(), errors: vec![first, second] },
        422,
        "Invalid",
        "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: one, name: Required value]",
        Some(json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [
            {"reason": "FieldValueForbidden", "message": "Forbidden: one", "field": "resourceVersionMatch"},
            {"reason": "FieldValueRequired", "message": "Required value", "field": "name"},
        ]})),
    );
    let empty = ApiError::Invalid { kind, name: "x".into(), errors: Vec::new() };
    assert_eq!(empty.to_string(), "ListOptions.meta.k8s.io \"x\" is invalid");
}

#[test]
fn server_errors() {
    let revision = |retry| ApiError::RevisionTooLarge {
        requested: Revision::new(1_000_000_000),
        current: Revision::new(359),
        retry,
    };
    let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    let message = "Timeout: Too large resource version: 1000000000, current: 359";
    let details = json!({"causes": causes.clone(), "retryAfterSeconds": 1});
    check(&revision(true), 504, "Timeout", message, Some(details));
    check(&revision(false), 504, "Timeout", message, Some(json!({ "causes": causes })));
    check(
        &ApiError::ServerTimeout { resource: resource("", "pods"), operation: "list".into(), retry_after_seconds: 2 },
        500,
        "ServerTimeout",
        "The list operation against pods could not be completed at this time, please try again.",
        Some(json!({"name": "list", "kind": "pods", "retryAfterSeconds": 2})),
    );
    check(&ApiError::Timeout("slow".into()), 504, "Timeout", "Timeout: slow", Some(json!({})));
    let busy = "Too many requests, please try again later.";
    let retry = json!({"retryAfterSeconds": 3});
    check(&ApiError::TooManyRequests { retry_after_seconds: 3 }, 429, "TooManyRequests", busy, Some(retry.clone()));
    let exceeded = ApiError::ShareExceeded { message: "too many watches".into(), retry_after_seconds: 3 };
    check(&exceeded, 429, "TooManyRequests", "too many watches", Some(retry));
    let create = "resourceVersion should not be set on objects to be created";
    check(&ApiError::RevisionOnCreate, 500, "", create, None);
    check(&ApiError::Unclassified("as it is".into()), 500, "", "as it is", None);
    let details = json!({"causes": [{"message": "boom"}]});
    check(&ApiError::Internal("boom".into()), 500, "InternalError", "Internal error occurred: boom", Some(details));
    let unavailable =
        |retry_after_seconds| ApiError::ServiceUnavailable { message: "down".into(), retry_after_seconds };
    check(&unavailable(None), 503, "ServiceUnavailable", "down", None);
    check(&unavailable(Some(5)), 503, "ServiceUnavailable", "down", Some(json!({"retryAfterSeconds": 5})));
}

#[test]
fn advice_to_wait_goes_with_errors_that_pass() {
    let busy = ApiError::TooManyRequests { retry_after_seconds: 3 };
    assert_eq!((busy.retry_after(), busy.is_retryable()), (Some(3), true));
    assert_eq!((ApiError::UnknownResource.retry_after(), ApiError::UnknownResource.is_retryable()), (None, false));
    assert_eq!(ApiError::Timeout(String::new()).retry_after(), None);
}

#[test]
fn error_texts_are_limited() {
    let cause = StatusCause { reason: "FieldManagerConflict".into(), message: "m".into(), field: "f".into() };
    let conflict = ApiError::ApplyConflict { message: "é".repeat(2_000_000), causes: vec![cause; 20_000] };
    let status = conflict.status();
    assert!(status.message.len() < 513 * 1024 && status.message.ends_with("é..., and 3475712 bytes more"));
    assert_eq!(status.details.unwrap().causes.len(), 1000);
    let short = ApiError::BadRequest("no".to_owned()).status();
    assert_eq!(short.message, "no");
}

#[test]
fn a_503_after_a_long_wait_names_no_time_to_try_again() {
    let away = || ApiError::ServiceUnavailable { message: "away".into(), retry_after_seconds: Some(1) };
    let waited = |error: ApiError, seconds| error.after_waiting(std::time::Duration::from_secs(seconds)).retry_after();
    assert_eq!((waited(away(), 7), waited(away(), 8)), (Some(1), None));
    assert_eq!(waited(ApiError::TooManyRequests { retry_after_seconds: 1 }, 60), Some(1), "it waited for its turn");
}

#[test]
fn control_characters_are_shown_in_each_text_of_a_status() {
    let error = ApiError::NotFound { resource: resource("\u{9b}g", "r\u{202e}"), name: "n\x1b[2J".into() };
    let body = serde_json::to_string(&error.status()).expect("a status serialises");
    assert!(!body.contains(crate::control_characters::acts) && !body.contains("\\u00"), "{body}");
    let details = error.status().details.expect("there are some");
    assert_eq!((&*details.name, &*details.group, &*details.kind), ("n^[[2J", "<U+009B>g", "r<U+202E>"));
}
