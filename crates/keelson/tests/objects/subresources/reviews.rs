//! Tests of reviews, which are not stored: the response is the sent object with a status.
//!
//! The authorizer decides about the rights in question.

use keelson_meta::clock::parse_rfc3339;
use serde_json::json;

use super::Lab;

#[tokio::test]
async fn reviews_return_their_spec_with_a_status() {
    let lab = Lab::start().await;
    let group = "/apis/authorization.k8s.io/v1";
    let asked = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let answer = lab.raw.post(format!("{group}/selfsubjectaccessreviews"), &json!({"spec": asked})).await;
    let expected = json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": asked,
        "status": {"allowed": true},
    });
    assert_eq!(answer.expect(201).json(), expected);
    let other = json!({"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}});
    let path = format!("{group}/subjectaccessreviews");
    let answer = lab.raw.post(path.as_str(), &json!({ "spec": other })).await.expect(201).json();
    assert_eq!((&answer["metadata"], &answer["spec"]), (&json!({}), &other));
    let named = json!({"metadata": {"name": "a"}, "spec": other});
    let refused = lab.raw.post(path, &named).await.expect(422).json()["message"].clone();
    let fault = r#".authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"a"}: must be empty"#;
    assert_eq!(refused, fault);
    assert_eq!(answer["status"]["allowed"], false);
}

#[tokio::test]
async fn self_subject_reviews_return_the_user() {
    let lab = Lab::start().await;
    let sent = json!({"metadata": {"name": "a", "labels": {"b": "c"}}});
    let answer = lab.raw.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &sent).await.expect(201).json();
    let metadata = answer["metadata"].as_object().unwrap();
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["creationTimestamp"], "{answer}");
    assert!(parse_rfc3339(metadata["creationTimestamp"].as_str().unwrap()).is_some(), "{answer}");
    assert!(answer["status"]["userInfo"]["groups"].as_array().unwrap().contains(&json!("system:masters")), "{answer}");
}

#[tokio::test]
async fn invalid_selectors_are_omitted_from_reviews_and_reported() {
    let lab = Lab::start().await;
    let selected = |requirements: serde_json::Value| {
        json!({"spec": {"user": "jane", "uid": "7", "extra": {"scopes": ["a"]}, "resourceAttributes": {
            "verb": "list", "resource": "pods", "labelSelector": {"requirements": requirements}}}})
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let known = json!({"key": "a", "operator": "Exists"});
    let answer = lab.raw.post(path, &selected(json!([known]))).await.expect(201).json();
    assert_eq!(answer["status"], json!({"allowed": false}));
    let answer = lab.raw.post(path, &selected(json!([known, {"key": "b"}]))).await.expect(201).json();
    let fault = "spec.resourceAttributes.labelSelector partially ignored due to parse error";
    assert_eq!(answer["status"], json!({"allowed": false, "evaluationError": fault}));
}
