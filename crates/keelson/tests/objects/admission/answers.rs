//! Tests of valid and invalid responses of webhooks.
//!
//! Codes and texts are as recorded. The failure policy decides which failures are ignored.

use keelson_testkit::{HookReply, HookRequest};
use serde_json::{Value, json};

use super::{MAPS, WebhookServer, allowed, map, review, warnings};

/// The response that the path selects.
pub(super) fn answer(request: &HookRequest) -> HookReply {
    let path = request.path.split('?').next().unwrap();
    let denied = |status: Value| review(request, json!({ "allowed": false, "status": status }));
    let other = |code: u16, kind: &str, body: &str| {
        HookReply::Other(code, vec![("content-type", kind.to_owned())], body.to_owned())
    };
    let as_is = |review: Value| HookReply::Json(review);
    match path {
        "/denied" => review(request, json!({ "allowed": false })),
        "/message" => denied(json!({ "message": "not on my watch" })),
        "/control" => {
            denied(json!({ "message": "\x1b[2Jgone\u{9b}", "details": { "causes": [{ "message": "\x07" }] } }))
        }
        "/warns-on" => {
            let warnings: Vec<_> = (0..505).map(|number| number.to_string()).collect();
            review(request, json!({ "allowed": true, "warnings": warnings }))
        }
        "/reason" => denied(json!({ "reason": "Because" })),
        "/low" => denied(json!({ "message": "m", "code": 302 })),
        "/details" => denied(
            json!({ "message": "two", "reason": "Invalid", "code": 422, "details": { "name": "n", "causes": [{ "message": "bad", "field": "data.a" }] } }),
        ),
        "/retry" => denied(
            json!({ "message": "later", "reason": "TooManyRequests", "code": 429, "details": { "retryAfterSeconds": 7 } }),
        ),
        "/warns" => review(request, json!({ "allowed": true, "warnings": ["one", "two", "one"] })),
        "/warns-no" => {
            review(request, json!({ "allowed": false, "warnings": ["and yet"], "status": { "message": "no" } }))
        }
        "/uid" => review(request, json!({ "allowed": true, "uid": "other" })),
        "/patch" => review(request, json!({ "allowed": true, "patchType": "JSONPatch", "patch": "W10=" })),
        "/bytes" => review(request, json!({ "allowed": true, "patchType": "JSONPatch", "patch": [91, 300] })),
        "/absent" => as_is(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview" })),
        "/kind" => as_is(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "Other", "response": {} })),
        "/no-kind" => as_is(json!({ "response": { "uid": request.body["request"]["uid"], "allowed": true } })),
        "/beta" => as_is(
            json!({ "apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": { "allowed": true } }),
        ),
        "/text" => review(request, json!({ "allowed": "yes" })),
        "/http-500" => other(500, "text/plain", "broken"),
        "/http-500-empty" => other(500, "text/plain", ""),
        "/http-404" => other(404, "text/plain", "none"),
        "/http-status" => other(
            400,
            "application/json",
            &json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "from the hook" })
                .to_string(),
        ),
        "/empty" => other(200, "application/json", ""),
        "/not-json" => other(200, "application/json", "hello"),
        "/closes" => HookReply::Closes,
        "/hangs" => HookReply::Hangs,
        "/dies" => HookReply::DiesInTheMiddle,
        "/endless" => HookReply::Endless,
        _ => allowed(request),
    }
}

#[tokio::test]
async fn refusals_carry_the_message_and_warnings_of_the_webhook() {
    let hooked = WebhookServer::open(answer).await;
    for kind in ["validating", "mutating"] {
        let check = async |path: &str, code: u16, message: &str, warning: &str| {
            hooked.configure(kind, "c", vec![hooked.webhook(path, json!({}))]).await;
            let response = hooked.raw.post(format!("{MAPS}?dryRun=All"), &map("x")).await;
            let warned = warnings(&response).join(", ");
            assert_eq!((response.status, warned.as_str()), (code, warning), "{path}");
            let status = response.json();
            assert_eq!(status["message"].as_str().unwrap_or_default(), message, "{path}");
            hooked.forget(kind, "c").await;
            status
        };
        let denied =
            |path: &str, rest: &str| format!("admission webhook \"{path}.example.org\" denied the request{rest}");
        check("fine", 201, "", "").await;
        let plain = check("denied", 400, &denied("denied", " without explanation"), "").await;
        assert_eq!((&plain["reason"], &plain["code"]), (&Value::Null, &json!(400)));
        check("message", 400, &denied("message", ": not on my watch"), "").await;
        let control = check("control", 400, &denied("control", ": ^[[2Jgone<U+009B>"), "").await;
        assert_eq!(control["details"]["causes"][0]["message"], "^G");
        // HTTP clients of several languages read at most 100 header fields.
        let many: Vec<_> = (0..64).map(|number| format!("299 - \"{number}\"")).collect();
        check("warns-on", 201, "", &many.join(", ")).await;
        let reason = check("reason", 400, &denied("reason", ": Because"), "").await;
        assert_eq!(reason["reason"], "Because");
        check("low", 400, &denied("low", ": m"), "").await;
        let details = check("details", 422, &denied("details", ": two"), "").await;
        assert_eq!(details["details"], json!({ "name": "n", "causes": [{ "message": "bad", "field": "data.a" }] }));
        check("retry", 429, &denied("retry", ": later"), "").await;
        check("warns-no", 400, &denied("warns-no", ": no"), "299 - \"and yet\"").await;
        check("warns", 201, "", "299 - \"one\", 299 - \"two\"").await;
    }
}

#[tokio::test]
async fn the_failure_policy_decides_on_invalid_responses() {
    let hooked = WebhookServer::open(answer).await;
    let check = async |path: &str, message: &str| {
        for (policy, code) in [("Fail", 500), ("Ignore", 201)] {
            let with = json!({ "failurePolicy": policy, "timeoutSeconds": if path == "hangs" { 1 } else { 30 } });
            hooked.configure("validating", "c", vec![hooked.webhook(path, with)]).await;
            let body = hooked.raw.post(format!("{MAPS}?dryRun=All"), &map("x")).await.expect(code).json();
            if policy == "Fail" {
                let uid = hooked.asked().pop().map(|(_, request)| request["uid"].clone()).unwrap_or_default();
                let message = message.replace("<uid>", uid.as_str().unwrap_or_default());
                let message = message.replace("<url>", &hooked.hook.url(&format!("/{path}")));
                let expected =
                    format!("Internal error occurred: failed calling webhook \"{path}.example.org\": {message}");
                assert_eq!((&body["message"], &body["reason"]), (&json!(expected), &json!("InternalError")), "{path}");
            }
            hooked.forget("validating", "c").await;
        }
    };
    let invalid = |why: &str| format!("received invalid webhook response: {why}");
    let failed = |why: &str| format!("failed to call webhook: {why}");
    check("uid", &invalid("expected response.uid=\"<uid>\", got \"other\"")).await;
    check("patch", &invalid("validating webhook may not return response.patch")).await;
    let wrong = "json: cannot unmarshal array into Go struct field AdmissionResponse.response.patch of type []uint8";
    check("bytes", &format!("failed to call webhook: {wrong}")).await;
    check("absent", &invalid("webhook response was absent")).await;
    check("no-kind", &invalid("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="))
        .await;
    let scheme = "k8s.io/apiserver/pkg/util/webhook/client.go:71";
    check(
        "kind",
        &failed(&format!("no kind \"Other\" is registered for version \"admission.k8s.io/v1\" in scheme \"{scheme}\"")),
    )
    .await;
    check("beta", &failed("converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion")).await;
    check(
        "text",
        &failed("json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"),
    )
    .await;
    check("http-500", &failed("an error on the server (\"broken\") has prevented the request from succeeding")).await;
    check("http-500-empty", &failed("an error on the server (\"unknown\") has prevented the request from succeeding"))
        .await;
    check("http-404", &failed("the server could not find the requested resource")).await;
    check("http-status", &failed("from the hook")).await;
    check("empty", &failed("0-length response with status code: 200 and content type: application/json")).await;
    check("closes", &failed("Post \"<url>?timeout=30s\": EOF")).await;
    check("hangs", &failed("Post \"<url>?timeout=1s\": context deadline exceeded")).await;
    check("dies", &failed("unexpected error when reading response body. Please retry. Original error: unexpected EOF"))
        .await;
    check("endless", &failed("unexpected error when reading response body. Please retry. Original error: the answer is longer than 8388608 bytes")).await;
}

#[tokio::test]
async fn v1beta1_reviews_are_supported_with_fewer_response_checks() {
    let hooked = WebhookServer::open(|request| {
        assert_eq!(request.body["apiVersion"], "admission.k8s.io/v1beta1");
        match request.path.split('?').next().unwrap() {
            "/uid" => review(request, json!({ "allowed": true, "uid": "other" })),
            // [{"op":"add","path":"/data/beta","value":"x"}] without a type.
            "/patch" => review(
                request,
                json!({ "allowed": true, "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYmV0YSIsInZhbHVlIjoieCJ9XQ==" }),
            ),
            _ => HookReply::Json(json!({ "response": { "allowed": true } })),
        }
    })
    .await;
    let beta = json!({ "admissionReviewVersions": ["v2", "v1beta1", "v1"] });
    let hooks = ["uid", "patch", "bare"].map(|name| hooked.webhook(name, beta.clone())).to_vec();
    hooked.configure("mutating", "m", hooks).await;
    let made = hooked.raw.post(MAPS, &map("x")).await.expect(201).json();
    assert_eq!(made["data"], json!({ "a": "b", "beta": "x" }));
}

#[tokio::test]
async fn all_validating_webhooks_are_awaited_and_none_runs_after_a_refusal() {
    let hooked = WebhookServer::open(answer).await;
    let judges = ["warns-no", "warns", "fine"].map(|name| hooked.webhook(name, json!({}))).to_vec();
    hooked.configure("validating", "v", judges).await;
    let response = hooked.raw.post(MAPS, &map("x")).await.expect(400);
    let mut warned = warnings(&response);
    warned.sort_unstable();
    assert_eq!(warned, ["299 - \"and yet\"", "299 - \"one\"", "299 - \"two\""]);
    assert_eq!(hooked.paths().len(), 3);
    hooked.configure("mutating", "m", ["message", "fine"].map(|name| hooked.webhook(name, json!({}))).to_vec()).await;
    hooked.raw.post(MAPS, &map("x")).await.expect(400);
    assert_eq!(hooked.paths(), ["/message"]);
    hooked.raw.get(format!("{MAPS}/x")).await.expect(404);
}

#[tokio::test]
async fn a_request_deadline_limits_webhook_calls() {
    let hooked = WebhookServer::open(answer).await;
    hooked.configure("validating", "v", vec![hooked.webhook("hangs", json!({ "failurePolicy": "Ignore" }))]).await;
    let body = hooked.raw.post(format!("{MAPS}?timeout=1s"), &map("x")).await.expect(504).json();
    assert_eq!(body["reason"], "Timeout");
    hooked.raw.get(format!("{MAPS}/x")).await.expect(404);
}

#[tokio::test]
async fn webhook_metrics_have_upstream_names() {
    let hooked = WebhookServer::open(answer).await;
    let hooks =
        vec![hooked.webhook("details", json!({})), hooked.webhook("http-500", json!({ "failurePolicy": "Ignore" }))];
    hooked.configure("validating", "v", hooks).await;
    hooked.raw.post(MAPS, &map("x")).await.expect(422);
    let metrics = hooked.raw.get("/metrics").await.expect(200).text();
    let lines = [
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"details.example.org\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"} 1",
        "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"details.example.org\",operation=\"CREATE\",rejection_code=\"422\",type=\"validating\"} 1",
        "apiserver_admission_webhook_fail_open_count{name=\"http-500.example.org\",type=\"validating\"} 1",
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"ValidatingAdmissionWebhook\",operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 1",
    ];
    for line in lines {
        assert!(metrics.lines().any(|found| found == line || found == format!("{line}.0")), "{line}");
    }
}
