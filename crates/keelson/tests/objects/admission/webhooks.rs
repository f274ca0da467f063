//! Tests of webhooks with valid responses: the writes and the order in which they are called, the objects that they
//! get, and the effect of their patches.
//!
//! Each webhook has its own path.

use keelson_testkit::{HookReply, HookRequest, HookServer};
use serde_json::{Value, json};

use super::{MAPS, MERGE, WebhookServer, allowed, map, patched, review, warnings};

#[tokio::test]
async fn a_webhook_is_shown_the_write_as_it_will_be_stored() {
    let hooked = WebhookServer::open(allowed).await;
    hooked.configure("validating", "v", vec![hooked.webhook("seen", json!({}))]).await;
    let raw = &hooked.raw;
    let made = raw.post(format!("{MAPS}?fieldManager=me"), &map("a")).await.expect(201).json();
    let (_, create) = hooked.asked().pop().expect("it counts for the next request");
    let object = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    assert_eq!((&create["kind"], &create["requestKind"]), (&object, &object));
    assert_eq!((&create["resource"], &create["requestResource"]), (&resource, &resource));
    assert_eq!(
        (&create["name"], &create["namespace"], &create["operation"]),
        (&json!("a"), &json!("hooked"), &json!("CREATE"))
    );
    assert_eq!(create["userInfo"]["groups"][0], "system:masters");
    assert_eq!((&create["dryRun"], &create["oldObject"]), (&json!(false), &Value::Null));
    assert_eq!(
        create["options"],
        json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me" })
    );
    assert_eq!(create["object"]["metadata"]["uid"], made["metadata"]["uid"], "it has its uid");
    assert_eq!(create["object"]["metadata"]["managedFields"][0]["manager"], "me");
    let order: Vec<&str> = create.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "uid kind resource requestKind requestResource name namespace operation userInfo object oldObject dryRun options";
    assert_eq!(order.join(" "), expected);

    raw.patch(format!("{MAPS}/a"), MERGE, &json!({ "data": { "b": "c" } })).await.expect(200);
    let (_, update) = hooked.asked().pop().unwrap();
    assert_eq!((&update["operation"], &update["options"]["kind"]), (&json!("UPDATE"), &json!("UpdateOptions")));
    assert_eq!((&update["object"]["data"]["b"], &update["oldObject"]["data"]), (&json!("c"), &json!({ "a": "b" })));
    for object in ["object", "oldObject"] {
        assert_eq!(update[object]["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"], "{object}");
    }

    raw.delete(format!("{MAPS}/a?dryRun=All&gracePeriodSeconds=0")).await.expect(200);
    let (_, delete) = hooked.asked().pop().unwrap();
    assert_eq!(
        (&delete["operation"], &delete["object"], &delete["dryRun"]),
        (&json!("DELETE"), &Value::Null, &json!(true))
    );
    assert_eq!(delete["oldObject"]["data"], json!({ "a": "b", "b": "c" }));
    let options =
        json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0, "dryRun": ["All"] });
    assert_eq!(delete["options"], options);

    raw.delete(MAPS).await.expect(200);
    let collection = hooked.asked();
    assert_eq!(collection.len(), 1);
    assert_eq!(collection[0].1["name"], Value::Null, "a collection names none");

    raw.post(MAPS, &json!({ "metadata": { "generateName": "g-" } })).await.expect(201);
    let (_, named) = hooked.asked().pop().unwrap();
    assert!(named["name"].as_str().unwrap().starts_with("g-") && named["object"]["metadata"]["name"] == named["name"]);
}

#[tokio::test]
async fn rules_and_selectors_choose_the_webhooks() {
    let hooked = WebhookServer::open(allowed).await;
    let rule = |operations: &str, group: &str, resources: &str, scope: &str| json!({ "rules": [{ "operations": [operations], "apiGroups": [group], "apiVersions": ["*"], "resources": [resources], "scope": scope }] });
    let selects = |labels: Value| json!({ "objectSelector": labels });
    let hooks = [
        ("any", rule("*", "*", "*", "*")),
        ("all", rule("*", "*", "*/*", "*")),
        ("create", rule("CREATE", "", "configmaps", "*")),
        ("apps", rule("*", "apps", "deployments", "Namespaced")),
        ("scale", rule("UPDATE", "*", "deployments/scale", "*")),
        ("cluster", rule("*", "*", "*", "Cluster")),
        ("on", selects(json!({ "matchLabels": { "x": "on" } }))),
    ];
    let webhooks = hooks.iter().map(|(name, with)| hooked.webhook(name, with.clone())).collect();
    hooked.configure("validating", "v", webhooks).await;
    let raw = &hooked.raw;
    let check = |what: &str, expected: &[&str]| {
        let mut paths = hooked.paths();
        paths.sort();
        let expected: Vec<String> = expected.iter().map(|name| format!("/{name}")).collect();
        assert_eq!(paths, expected, "{what}");
    };
    raw.post(MAPS, &map("a")).await.expect(201);
    check("a config map", &["all", "any", "create"]);
    raw.patch(format!("{MAPS}/a"), MERGE, &json!({ "metadata": { "labels": { "x": "on" } } })).await.expect(200);
    check("the new object is selected", &["all", "any", "on"]);
    raw.patch(format!("{MAPS}/a"), MERGE, &json!({ "metadata": { "labels": null } })).await.expect(200);
    check("the old object is selected", &["all", "any", "on"]);
    let containers = json!([{ "name": "c", "image": "i" }]);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": containers } });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let deployments = "/apis/apps/v1/namespaces/hooked/deployments";
    raw.post(deployments, &json!({ "metadata": { "name": "d" }, "spec": spec })).await.expect(201);
    check("a deployment", &["all", "any", "apps"]);
    raw.patch(format!("{deployments}/d/scale"), MERGE, &json!({ "spec": { "replicas": 2 } })).await.expect(200);
    check("its scale", &["all", "scale"]);
    raw.post("/api/v1/namespaces/default/configmaps", &map("a")).await.expect(201);
    check("another namespace", &[]);
    raw.patch("/api/v1/namespaces/hooked", MERGE, &json!({ "metadata": { "labels": { "more": "1" } } }))
        .await
        .expect(200);
    check("the namespace itself", &["all", "any", "cluster"]);
    let class = json!({ "metadata": { "name": "s" }, "provisioner": "x" });
    raw.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.expect(201);
    check("what is in no namespace", &["all", "any", "cluster"]);
    raw.get(format!("{MAPS}/a")).await.expect(200);
    raw.delete(format!("{MAPS}/none")).await.expect(404);
    raw.post(MAPS, &json!({ "metadata": { "name": "Bad_Name" } })).await.expect(422);
    check("what is read, is missing, or not valid", &[]);
    hooked.forget("validating", "v").await;
    check("what configures webhooks", &[]);
    raw.post(MAPS, &map("b")).await.expect(201);
    check("the configuration is gone", &[]);
}

#[tokio::test]
async fn equivalent_versions_match_with_conversion_unless_exact() {
    let hooked = WebhookServer::open(|request| match request.path.split('?').next().unwrap() {
        "/changes" => patched(
            request,
            &json!([{ "op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": 33 }]),
        ),
        _ => allowed(request),
    })
    .await;
    let on = |version: &str, policy: &str| {
        json!({ "matchPolicy": policy, "rules": [{
            "operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": [version], "resources": ["horizontalpodautoscalers"],
        }] })
    };
    hooked.configure("mutating", "m", vec![hooked.webhook("changes", on("v2", "Equivalent"))]).await;
    let judges = [
        ("like-v1", "v1", "Equivalent"),
        ("like-v2", "v2", "Equivalent"),
        ("just-v1", "v1", "Exact"),
        ("just-v2", "v2", "Exact"),
    ];
    let judges = judges.iter().map(|(name, version, policy)| hooked.webhook(name, on(version, policy))).collect();
    hooked.configure("validating", "v", judges).await;
    let scaler = json!({ "metadata": { "name": "h" }, "spec": {
        "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" },
    } });
    let made =
        hooked.raw.post("/apis/autoscaling/v1/namespaces/hooked/horizontalpodautoscalers", &scaler).await.expect(201);
    assert_eq!(
        made.json()["spec"]["targetCPUUtilizationPercentage"],
        33,
        "it is led back to the version of the request"
    );
    let mut asked = hooked.asked();
    asked.sort_by(|one, other| one.0.cmp(&other.0));
    let told: Vec<_> = asked
        .iter()
        .map(|(path, request)| {
            let version = |member: &str| request[member]["version"].as_str().unwrap().to_owned();
            (
                path.as_str(),
                version("kind"),
                version("requestKind"),
                request["object"]["apiVersion"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let row =
        |path: &'static str, shown: &str| (path, shown.to_owned(), "v1".to_owned(), format!("autoscaling/{shown}"));
    assert_eq!(told, [row("/changes", "v2"), row("/just-v1", "v1"), row("/like-v1", "v1"), row("/like-v2", "v2")]);
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "namespace": "hooked" }, "reason": "r", "message": "m" });
    let events = json!({ "rules": [{ "operations": ["*"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"] }] });
    hooked.configure("validating", "w", vec![hooked.webhook("events", events)]).await;
    hooked.raw.post("/api/v1/namespaces/hooked/events", &event).await.expect(201);
    let (path, request) = hooked.asked().pop().unwrap();
    assert_eq!((path.as_str(), &request["object"]["apiVersion"]), ("/events", &json!("events.k8s.io/v1")));
    assert_eq!(request["object"]["note"], "m", "in the words of the other group");
}

/// Adds the last segment of the path to the data as a key.
fn adds(request: &HookRequest) -> HookReply {
    let path = request.path.split('?').next().unwrap().trim_start_matches('/').to_owned();
    let data = &request.body["request"]["object"]["data"];
    let Some(key) = path.strip_prefix("adds-") else { return allowed(request) };
    let before = data[key].as_str().unwrap_or_default();
    patched(request, &json!([{ "op": "add", "path": format!("/data/{key}"), "value": format!("{before}x") }]))
}

#[tokio::test]
async fn webhooks_are_called_in_order_and_reinvoked_after_changes() {
    let hooked = WebhookServer::open(adds).await;
    let again = json!({ "reinvocationPolicy": "IfNeeded" });
    let never = json!({});
    let check = async |what: &str, hooks: &[(&str, &Value)], expected: &[&str], data: Value| {
        // The names of configurations determine the order, not their creation.
        for (place, (name, with)) in hooks.iter().enumerate().rev() {
            hooked.configure("mutating", &format!("m{place}"), vec![hooked.webhook(name, (*with).clone())]).await;
        }
        hooked.asked();
        let made = hooked.raw.post(format!("{MAPS}?dryRun=All"), &map("x")).await.expect(201).json();
        let expected: Vec<String> = expected.iter().map(|name| format!("/{name}")).collect();
        assert_eq!((hooked.paths(), &made["data"]), (expected, &data), "{what}");
        for place in 0..hooks.len() {
            hooked.forget("mutating", &format!("m{place}")).await;
        }
    };
    hooked.configure("validating", "a", vec![hooked.webhook("judges", json!({}))]).await;
    let twice = ["adds-one", "adds-two", "adds-one", "judges"];
    check(
        "the first again",
        &[("adds-one", &again), ("adds-two", &never)],
        &twice,
        json!({ "a": "b", "one": "xx", "two": "x" }),
    )
    .await;
    check(
        "not the first",
        &[("adds-one", &never), ("adds-two", &never)],
        &["adds-one", "adds-two", "judges"],
        json!({ "a": "b", "one": "x", "two": "x" }),
    )
    .await;
    check(
        "nothing behind it",
        &[("adds-one", &again), ("plain", &again)],
        &["adds-one", "plain", "judges"],
        json!({ "a": "b", "one": "x" }),
    )
    .await;
    let both = ["adds-one", "adds-two", "adds-one", "adds-two", "judges"];
    check(
        "both once more",
        &[("adds-one", &again), ("adds-two", &again)],
        &both,
        json!({ "a": "b", "one": "xx", "two": "xx" }),
    )
    .await;
    let first = ["plain", "adds-two", "plain", "judges"];
    check(
        "not for its own change",
        &[("plain", &again), ("adds-two", &again)],
        &first,
        json!({ "a": "b", "two": "x" }),
    )
    .await;
}

#[tokio::test]
async fn webhook_changes_are_normalized_and_get_no_owner() {
    let hooked = WebhookServer::open(|request| {
        let case = request.body["request"]["object"]["metadata"]["labels"]["case"].as_str().unwrap_or_default();
        let patch = match case {
            "unknown" => json!([{ "op": "add", "path": "/bogus", "value": 1 }]),
            "replaced" => json!([{ "op": "replace", "path": "/data/none", "value": "y" }]),
            "name" => json!([{ "op": "replace", "path": "/metadata/name", "value": "renamed" }]),
            "namespace" => json!([{ "op": "replace", "path": "/metadata/namespace", "value": "default" }]),
            "type" => json!([{ "op": "add", "path": "/data/n", "value": 1 }]),
            "missing" => json!([{ "op": "add", "path": "/metadata/annotations/x", "value": "y" }]),
            "test" => json!([{ "op": "test", "path": "/data/a", "value": "other" }]),
            "kind" => json!([{ "op": "frobnicate", "path": "/data/a" }]),
            "invalid" => json!([{ "op": "add", "path": "/data/a b", "value": "y" }]),
            "list" => json!({ "op": "add" }),
            "whole" => json!([{ "op": "replace", "path": "", "value": null }]),
            _ => json!([{ "op": "add", "path": "/data/hook", "value": "h" }]),
        };
        patched(request, &patch)
    })
    .await;
    hooked.configure("mutating", "m", vec![hooked.webhook("m", json!({}))]).await;
    let check = async |case: &str, code: u16, expected: Value| {
        let mut sent = map("x");
        sent["metadata"]["labels"] = json!({ "case": case });
        let response_body = hooked.raw.post(format!("{MAPS}?dryRun=All"), &sent).await.expect(code).json();
        let found = if code == 201 {
            json!([response_body["metadata"]["name"], response_body["data"]])
        } else {
            response_body["message"].clone()
        };
        assert_eq!(found, expected, "{case}");
    };
    check("plain", 201, json!(["x", { "a": "b", "hook": "h" }])).await;
    check("unknown", 201, json!(["x", { "a": "b" }])).await;
    check("replaced", 201, json!(["x", { "a": "b", "none": "y" }])).await;
    check("name", 201, json!(["renamed", { "a": "b" }])).await;
    let other = "the namespace of the provided object does not match the namespace sent on the request";
    check("namespace", 400, json!(other)).await;
    let internal = |why: &str| json!(format!("Internal error occurred: {why}"));
    check("type", 500, internal("json: cannot unmarshal number into Go struct field ConfigMap.data of type string"))
        .await;
    check(
        "missing",
        500,
        internal("add operation does not apply: doc is missing path: \"/metadata/annotations/x\": missing value"),
    )
    .await;
    check("test", 500, internal("testing value /data/a failed: test failed")).await;
    check("kind", 500, internal("Unexpected kind: frobnicate")).await;
    check("whole", 500, internal("replace operation value must be object or array: %!w(<nil>)")).await;
    let failed = "failed calling webhook \"m.example.org\": received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch";
    check("list", 500, internal(failed)).await;
    let told = hooked
        .raw
        .post(MAPS, &json!({ "metadata": { "name": "i", "labels": { "case": "invalid" } }, "data": { "a": "b" } }))
        .await;
    assert!(told.expect(422).json()["message"].as_str().unwrap().contains("data[a b]"), "it is validated");

    let made = hooked.raw.post(MAPS, &map("owned")).await.expect(201).json();
    let owned = made["metadata"]["managedFields"][0]["fieldsV1"]["f:data"].clone();
    assert_eq!((owned["f:a"].is_object(), owned["f:hook"].is_null()), (true, true), "{owned}");
    let patched = hooked.raw.delete(format!("{MAPS}/owned")).await.expect(500).json();
    let message = "Internal error occurred: admission webhook \"m.example.org\" attempted to modify the object, which is not supported for this operation";
    assert_eq!(patched["message"], message);
}

#[tokio::test]
async fn conditions_decide_whether_a_webhook_is_called() {
    let hooked =
        WebhookServer::open(|request| review(request, json!({ "allowed": false, "status": { "message": "asked" } })))
            .await;
    let check = async |expressions: &[&str], policy: &str, expected: (u16, &str)| {
        let conditions: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(place, expression)| json!({ "name": format!("c{place}"), "expression": expression }))
            .collect();
        let with = json!({ "matchConditions": conditions, "failurePolicy": policy });
        hooked.configure("validating", "v", vec![hooked.webhook("v", with)]).await;
        let response = hooked.raw.post(format!("{MAPS}?dryRun=All"), &map("x")).await;
        let message = response.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((response.status, message.as_str()), expected, "{expressions:?}");
        hooked.forget("validating", "v").await;
    };
    const ASKED: (u16, &str) = (400, "admission webhook \"v.example.org\" denied the request: asked");
    const NOT: (u16, &str) = (201, "");
    check(&["true"], "Fail", ASKED).await;
    check(&["true", "false"], "Fail", NOT).await;
    check(&["object.data.a == 'b' && oldObject == null"], "Fail", ASKED).await;
    check(&["request.operation == 'CREATE' && request.dryRun && request.namespace == 'hooked'"], "Fail", ASKED).await;
    check(&["has(request.options) && request.options.kind == 'CreateOptions'"], "Fail", ASKED).await;
    check(&["'system:masters' in request.userInfo.groups"], "Fail", ASKED).await;
    check(&["authorizer.group('').resource('secrets').namespace('x').check('get').allowed()"], "Fail", ASKED).await;
    check(&["namespaceObject == null"], "Fail", ASKED).await;
    check(&["!authorizer.requestResource.check('update').allowed()"], "Fail", NOT).await;
    let fault =
        "configmaps \"x\" is forbidden: expression 'object.data.none == 'x'' resulted in error: no such key: none";
    check(&["object.data.none == 'x'"], "Fail", (403, fault)).await;
    check(&["object.data.none == 'x'"], "Ignore", NOT).await;
    check(&["object.data.none == 'x'", "false"], "Fail", NOT).await;
}

#[tokio::test]
async fn subresource_creates_and_connects_are_admitted_as_such() {
    let hooked = WebhookServer::open(|request| {
        let is_connection = request.body["request"]["operation"] == "CONNECT";
        review(request, json!({ "allowed": !is_connection, "status": { "message": "no" } }))
    })
    .await;
    let raw = &hooked.raw;
    let containers = json!([{ "name": "c", "image": "i" }]);
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": containers } });
    raw.post("/api/v1/namespaces/hooked/pods", &pod).await.expect(201);
    raw.post("/api/v1/namespaces/hooked/serviceaccounts", &json!({ "metadata": { "name": "sa" } })).await.expect(201);
    let rules =
        json!({ "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"] }] });
    hooked.configure("validating", "v", vec![hooked.webhook("any", rules)]).await;
    let asked = || {
        let (_, request) = hooked.asked().pop().expect("it was asked");
        let text = |member: &str| request[member].as_str().unwrap_or_default().to_owned();
        (
            format!(
                "{} {}/{}",
                text("operation"),
                request["resource"]["resource"].as_str().unwrap(),
                text("subResource")
            ),
            request,
        )
    };
    let path = "/api/v1/namespaces/hooked/pods/p/exec?command=ls&command=-l&container=c&stdin=true&stdout=true";
    let response_body = raw.post(path, &json!({})).await.expect(400).json();
    assert_eq!(response_body["message"], "admission webhook \"any.example.org\" denied the request: no");
    let (what, request) = asked();
    assert_eq!((what.as_str(), &request["options"]), ("CONNECT pods/exec", &Value::Null));
    let object = json!({
        "kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "stdout": true, "container": "c", "command": ["ls", "-l"],
    });
    assert_eq!((&request["object"], &request["kind"]["kind"]), (&object, &json!("PodExecOptions")));

    let token = json!({ "spec": { "audiences": ["x"], "expirationSeconds": 3600 } });
    raw.post("/api/v1/namespaces/hooked/serviceaccounts/sa/token", &token).await.expect(201);
    let (what, request) = asked();
    assert_eq!((what.as_str(), &request["kind"]["kind"]), ("CREATE serviceaccounts/token", &json!("TokenRequest")));
    assert_eq!((&request["name"], &request["object"]["spec"]["audiences"]), (&json!("sa"), &json!(["x"])));
    let account = raw.get("/api/v1/namespaces/hooked/serviceaccounts/sa").await.expect(200).json();
    let shown = ["name", "namespace", "uid"].map(|field| &request["object"]["metadata"][field]);
    assert_eq!(shown, [&json!("sa"), &json!("hooked"), &account["metadata"]["uid"]], "as it is answered");
    let eviction = json!({ "metadata": { "name": "p" } });
    raw.post("/api/v1/namespaces/hooked/pods/p/eviction", &eviction).await.expect(201);
    assert_eq!(asked().0, "CREATE pods/eviction", "no deletion follows");
}

#[tokio::test]
async fn a_request_for_a_token_is_changed_before_it_is_answered() {
    let audience = |request: &HookRequest| {
        patched(request, &json!([{ "op": "replace", "path": "/spec/audiences", "value": ["hook"] }]))
    };
    let hooked = WebhookServer::open(audience).await;
    let account = "/api/v1/namespaces/hooked/serviceaccounts";
    hooked.raw.post(account, &json!({ "metadata": { "name": "sa" } })).await.expect(201);
    let token = json!({ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["serviceaccounts/token"] });
    hooked.configure("mutating", "m", vec![hooked.webhook("m", json!({ "rules": [token] }))]).await;
    let asked = json!({ "spec": { "audiences": ["x"] } });
    let made = hooked.raw.post(format!("{account}/sa/token"), &asked).await.expect(201).json();
    assert_eq!((&made["spec"]["audiences"], &made["metadata"]["name"]), (&json!(["hook"]), &json!("sa")));
}

#[tokio::test]
async fn invalid_managed_fields_from_a_webhook_are_undone() {
    let owns = |request: &HookRequest| {
        let object = &request.body["request"]["object"];
        let there = object["metadata"]["managedFields"].is_array();
        let change = match object["data"]["fields"].as_str() {
            None if there => json!([{ "op": "remove", "path": "/metadata/managedFields" }]),
            None => json!([]),
            Some(fields) => {
                let fields: Value = serde_json::from_str(fields).unwrap();
                let entry = json!({ "manager": "h", "operation": "Update", "apiVersion": "v1",
                    "time": "2020-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": fields });
                json!([{ "op": "add", "path": "/metadata/managedFields", "value": [entry] }])
            }
        };
        patched(request, &change)
    };
    let hooked = WebhookServer::open(owns).await;
    hooked.configure("mutating", "m", vec![hooked.webhook("m", json!({}))]).await;
    let made = hooked.raw.post(MAPS, &map("x")).await.expect(201).json();
    assert_eq!(made["metadata"]["managedFields"], Value::Null, "the webhook took them away");
    let owned = async |fields: Value| {
        let changed = json!({ "data": { "fields": fields.to_string() } });
        hooked.raw.patch(format!("{MAPS}/x"), MERGE, &changed).await.expect(200)
    };
    let answer = owned(json!("nope")).await;
    assert_eq!(answer.json()["metadata"]["managedFields"], Value::Null);
    let told = warnings(&answer).join(", ");
    assert!(told.contains(".metadata.managedFields was in an invalid state after admission"), "{told}");
    let answer = owned(json!({ "f:data": {} })).await;
    assert_eq!(
        (answer.json()["metadata"]["managedFields"][0]["manager"].as_str(), warnings(&answer)),
        (Some("h"), vec![])
    );
}

#[tokio::test]
async fn validating_webhooks_get_the_effective_delete_options() {
    let hooked = WebhookServer::open(allowed).await;
    let raw = &hooked.raw;
    let pods = "/api/v1/namespaces/hooked/pods";
    let containers = json!([{ "name": "c", "image": "i" }]);
    for (name, node) in [("bound", "n"), ("free", "")] {
        let spec = json!({ "containers": containers, "nodeName": node, "terminationGracePeriodSeconds": 20 });
        raw.post(pods, &json!({ "metadata": { "name": name }, "spec": spec })).await.expect(201);
    }
    let rules = |resources: [&str; 2]| {
        let rule =
            json!({ "operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources });
        json!({ "rules": [rule] })
    };
    let resources = ["pods", "namespaces"];
    hooked.configure("mutating", "m", vec![hooked.webhook("changes", rules(resources))]).await;
    hooked.configure("validating", "v", vec![hooked.webhook("judges", rules(resources))]).await;
    let told = |place: &str, options: Value| {
        let mut whole = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        options.as_object().unwrap().iter().for_each(|(field, value)| whole[field] = value.clone());
        (place.to_owned(), whole)
    };
    let asked = || -> Vec<(String, Value)> {
        hooked.asked().into_iter().map(|(path, request)| (path, request["options"].clone())).collect()
    };

    raw.delete(format!("{pods}/bound")).await.expect(200);
    assert_eq!(asked(), [told("/changes", json!({})), told("/judges", json!({ "gracePeriodSeconds": 20 }))]);
    raw.delete(format!("{pods}/bound")).await.expect(200);
    assert_eq!(asked(), [told("/changes", json!({}))], "it is being deleted already, and will be no sooner");
    let at_once = json!({ "gracePeriodSeconds": 0 });
    raw.delete(format!("{pods}/bound?gracePeriodSeconds=0")).await.expect(200);
    assert_eq!(asked(), [told("/changes", at_once.clone()), told("/judges", at_once.clone())]);
    raw.delete(format!("{pods}/free?gracePeriodSeconds=9")).await.expect(200);
    assert_eq!(asked()[1], told("/judges", at_once), "nothing of it runs");

    let namespace = raw.get("/api/v1/namespaces/hooked").await.expect(200).json();
    raw.delete("/api/v1/namespaces/hooked?dryRun=All").await.expect(200);
    let by_uid = json!({ "preconditions": { "uid": namespace["metadata"]["uid"] }, "dryRun": ["All"] });
    assert_eq!(asked(), [told("/changes", json!({ "dryRun": ["All"] })), told("/judges", by_uid)]);
}

/// The message names the origin of each of two equal owner references.
#[tokio::test]
async fn duplicate_owner_references_are_merged_with_a_warning() {
    let owner = || json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1" });
    let hooked = WebhookServer::open(|request| {
        let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1" });
        patched(request, &json!([{ "op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner] }]))
    })
    .await;
    let raw = &hooked.raw;
    let told = |when: &str| {
        vec![format!(
            "299 - \".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject \
             such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1\""
        )]
    };
    let by_admission = told(" after mutating admission happens");
    let mut sent = map("a");
    sent["metadata"]["ownerReferences"] = json!([owner(), owner()]);
    // The owner does not exist, so the finalizer prevents the collection of the object.
    sent["metadata"]["finalizers"] = json!(["example.com/held"]);
    let made = raw.post(MAPS, &sent).await.expect(201);
    assert_eq!(warnings(&made), told(""));
    let mut made = made.json();
    assert_eq!(made["metadata"]["ownerReferences"], json!([owner()]));
    made["metadata"]["ownerReferences"] = sent["metadata"]["ownerReferences"].clone();
    made["metadata"]["resourceVersion"] = Value::Null;
    let put = raw.put(format!("{MAPS}/a"), &made).await.expect(200);
    assert_eq!((warnings(&put), &put.json()["metadata"]["ownerReferences"]), (told(""), &json!([owner()])));
    let other = json!({ "apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "1" });
    let patch = json!({ "metadata": { "ownerReferences": [owner(), other, owner()] } });
    let patched = raw.patch(format!("{MAPS}/a"), MERGE, &patch).await.expect(200);
    assert_eq!(warnings(&patched), by_admission);
    assert_eq!(patched.json()["metadata"]["ownerReferences"], json!([owner(), other]), "another one is no repetition");

    hooked.configure("mutating", "m", vec![hooked.webhook("owners", json!({}))]).await;
    let made = raw.post(MAPS, &map("b")).await.expect(201);
    assert_eq!((warnings(&made), &made.json()["metadata"]["ownerReferences"]), (by_admission, &json!([owner()])));
}

#[tokio::test]
async fn calls_to_a_url_share_a_connection_where_the_host_speaks_http2() {
    let hooked = WebhookServer::open(allowed).await;
    let hook = HookServer::start_http2(&["127.0.0.1"], |request: HookRequest| {
        let reply = allowed(&request);
        async move { reply }
    })
    .await;
    let client = json!({ "url": hook.url("/shared"), "caBundle": hook.ca_bundle() });
    let webhook = hooked.webhook("shared", json!({ "clientConfig": client, "failurePolicy": "Fail" }));
    hooked.configure("validating", "shared", vec![webhook]).await;
    hooked.raw.post(MAPS, &map("first")).await.expect(201);
    let posted = (0..20).map(|number| {
        let raw = hooked.raw.clone();
        async move { raw.post(MAPS, &map(&format!("m{number}"))).await.expect(201) }
    });
    futures::future::join_all(posted).await;
    assert_eq!(hook.connections(), 1);
}
