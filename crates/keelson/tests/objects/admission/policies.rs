//! Tests of policies in CEL: the variables of their expressions, their denials and messages, and the parameters of
//! their bindings.
//!
//! Texts are as recorded.

use std::time::Duration;

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use super::{GROUP, MAPS, MERGE, map};

/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with the namespace `hooked`, and policies for ConfigMaps with a label with the policy's name.
pub(super) struct PolicyServer {
    pub(super) raw: Raw,
    _server: TestServer,
}

impl PolicyServer {
    pub(super) async fn open() -> Self {
        let server = TestServer::start().await;
        let raw = server.raw();
        let namespace = json!({ "metadata": { "name": "hooked", "labels": { "team": "red" } } });
        raw.post("/api/v1/namespaces", &namespace).await.expect(201);
        Self { raw, _server: server }
    }

    /// Creates a validating policy with this name, and its binding.
    pub(super) async fn policy(&self, name: &str, spec: Value, binding: Value) {
        let mut bound = json!({ "validationActions": ["Deny"] });
        merge(&mut bound, binding);
        self.policy_of("validating", name, spec, bound).await;
    }

    /// Creates a mutating policy, and its binding.
    pub(super) async fn mutation(&self, name: &str, mutations: Value, with: Value) {
        self.bound_mutation(name, mutations, with, json!({})).await;
    }

    /// Creates a mutating policy with this binding.
    pub(super) async fn bound_mutation(&self, name: &str, mutations: Value, with: Value, binding: Value) {
        let mut spec = json!({ "mutations": mutations, "reinvocationPolicy": "Never" });
        spec["matchConstraints"] = json!({ "resourceRules": [
            { "operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": ["configmaps", "deployments"] },
        ], "objectSelector": { "matchLabels": { "case": name } } });
        merge(&mut spec, with);
        self.policy_of("mutating", name, spec, binding).await;
    }

    async fn policy_of(&self, kind: &str, name: &str, spec: Value, binding: Value) {
        let rule =
            json!({ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] });
        let selector = json!({ "matchLabels": { "case": name } });
        let mut whole = json!({ "matchConstraints": { "resourceRules": [rule], "objectSelector": selector } });
        merge(&mut whole, spec);
        let policy = json!({ "metadata": { "name": name }, "spec": whole });
        self.raw.post(format!("{GROUP}/{kind}admissionpolicies"), &policy).await.expect(201);
        let mut bound = json!({ "policyName": name });
        merge(&mut bound, binding);
        let binding = json!({ "metadata": { "name": format!("{name}-b") }, "spec": bound });
        self.raw.post(format!("{GROUP}/{kind}admissionpolicybindings"), &binding).await.expect(201);
    }

    /// The response to the create of a ConfigMap with this data, which the policy with this name matches.
    pub(super) async fn asks(&self, name: &str, data: Value) -> Answer {
        let mut sent = map("x");
        sent["metadata"]["labels"] = json!({ "case": name });
        sent["data"] = data;
        self.raw.post(format!("{MAPS}?dryRun=All"), &sent).await
    }

    /// Checks the denial of a ConfigMap with `a: b`.
    pub(super) async fn refuses(&self, name: &str, code: u16, why: &str) {
        let body = self.asks(name, json!({ "a": "b" })).await.expect(code).json();
        let message = format!("ValidatingAdmissionPolicy '{name}' with binding '{name}-b' denied request: {why}");
        assert_eq!(body["message"], format!("configmaps \"x\" is forbidden: {message}"), "{name}");
        assert_eq!(body["details"]["causes"], json!([{ "message": message }]), "{name}");
    }
}

pub(super) fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { return };
    for (field, value) in from {
        into[field] = value;
    }
}

fn valid(expression: &str) -> Value {
    json!({ "validations": [{ "expression": expression }] })
}

#[tokio::test]
async fn a_failed_validation_returns_the_message_and_reason_of_the_policy() {
    let judged = PolicyServer::open().await;
    let none = || json!({});
    judged.policy("plain", valid("  object.data.a == 'ok' "), none()).await;
    judged.refuses("plain", 422, "failed expression: object.data.a == 'ok'").await;
    judged.asks("plain", json!({ "a": "ok" })).await.expect(201);
    let messages = [
        ("said", json!({ "message": "a must be ok" }), "a must be ok"),
        ("made", json!({ "messageExpression": "'a is ' + object.data.a", "message": "no" }), "a is b"),
        ("unmade", json!({ "messageExpression": "string(object.data.none)", "message": "the message" }), "the message"),
        ("blank", json!({ "messageExpression": "'  '", "message": "the message" }), "the message"),
    ];
    for (name, with, expected) in messages {
        let mut validation = json!({ "expression": "object.data.a == 'ok'" });
        merge(&mut validation, with);
        judged.policy(name, json!({ "validations": [validation] }), none()).await;
        judged.refuses(name, 422, expected).await;
    }
    for (reason, code) in [("Forbidden", 403), ("RequestEntityTooLarge", 413)] {
        let name = format!("r{code}");
        let validations =
            json!([{ "expression": "true" }, { "expression": "false", "reason": reason }, { "expression": "false" }]);
        judged.policy(&name, json!({ "validations": validations }), none()).await;
        judged.refuses(&name, code, "failed expression: false").await;
    }
    judged.policy("fails", valid("object.data.none == 'x'"), none()).await;
    judged.refuses("fails", 422, "expression 'object.data.none == 'x'' resulted in error: no such key: none").await;
    let open = json!({ "failurePolicy": "Ignore", "validations": [{ "expression": "object.data.none == 'x'" }] });
    judged.policy("open", open, none()).await;
    judged.asks("open", json!({})).await.expect(201);
    let warns = json!({ "validationActions": ["Warn", "Audit"] });
    judged.policy("warns", json!({ "validations": [{ "expression": "false", "message": "soft" }] }), warns).await;
    let told = judged.asks("warns", json!({})).await.expect(201);
    assert_eq!(
        told.header("warning"),
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns-b': soft\""
    );
    judged.raw.delete(format!("{GROUP}/validatingadmissionpolicybindings/plain-b")).await.expect(200);
    judged.asks("plain", json!({ "a": "b" })).await.expect(201);
}

#[tokio::test]
async fn expressions_read_request_namespace_and_lazy_variables() {
    let judged = PolicyServer::open().await;
    let told =
        |expression: &str| json!({ "validations": [{ "expression": "false", "messageExpression": expression }] });
    let check = async |name: &str, spec: Value, expected: &str| {
        judged.policy(name, spec, json!({})).await;
        judged.refuses(name, 422, expected).await;
    };
    let request = "request.operation + ' ' + request.kind.kind + ' ' + request.namespace + '/' + request.name + ' ' + string(request.dryRun)";
    check("request", told(request), "CREATE ConfigMap hooked/x true").await;
    check(
        "namespace",
        told("namespaceObject.metadata.labels.team + ' ' + namespaceObject.metadata.name"),
        "red hooked",
    )
    .await;
    check("old", told("oldObject == null ? 'none' : 'some'"), "none").await;
    let variables = json!([
        { "name": "n", "expression": "size(object.data.a)" },
        { "name": "twice", "expression": "variables.n + variables.n" },
        { "name": "bad", "expression": "object.data.none" },
    ]);
    let mut with = told("string(variables.twice)");
    with["variables"] = variables.clone();
    check("variables", with, "2").await;
    let mut with = valid("variables.bad == 1");
    with["variables"] = variables;
    let bad = "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: none";
    check("bad-variable", with, bad).await;
    check(
        "rights",
        valid("!authorizer.group('').resource('pods').namespace('x').check('list').allowed()"),
        "failed expression: !authorizer.group('').resource('pods').namespace('x').check('list').allowed()",
    )
    .await;
    let conditions = json!([{ "name": "a", "expression": "object.data.a == 'other'" }]);
    judged
        .policy(
            "condition",
            json!({ "matchConditions": conditions, "validations": [{ "expression": "false" }] }),
            json!({}),
        )
        .await;
    judged.asks("condition", json!({ "a": "b" })).await.expect(201);
    judged.asks("condition", json!({ "a": "other" })).await.expect(422);
    // An expression above the cost limit of an evaluation.
    let numbers = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32]";
    let costly = "variables.l.all(a, variables.l.all(b, variables.l.all(c, variables.l.all(d, a + b + c + d >= 0))))";
    let with =
        json!({ "variables": [{ "name": "l", "expression": numbers }], "validations": [{ "expression": costly }] });
    check(
        "costly",
        with,
        &format!("expression '{costly}' resulted in error: operation cancelled: actual cost limit exceeded"),
    )
    .await;
}

#[tokio::test]
async fn updates_and_deletions_are_validated_by_both_objects() {
    let judged = PolicyServer::open().await;
    judged.policy("update", json!({
        "matchConstraints": { "resourceRules": [{ "operations": ["UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }] },
        "validations": [{ "expression": "object != null && object.data.a == oldObject.data.a", "message": "a stays" }],
    }), json!({})).await;
    judged.raw.post(MAPS, &map("x")).await.expect(201);
    judged.raw.patch(format!("{MAPS}/x"), MERGE, &json!({ "data": { "c": "d" } })).await.expect(200);
    judged.raw.patch(format!("{MAPS}/x"), MERGE, &json!({ "data": { "a": "c" } })).await.expect(422);
    judged.raw.delete(format!("{MAPS}/x")).await.expect(422);
    let body = judged.raw.delete(MAPS).await.expect(422).json();
    let expected = "configmaps \"Unknown\" is forbidden: ValidatingAdmissionPolicy 'update' with binding 'update-b' denied request: a stays";
    assert_eq!(body["message"], expected);
    assert_eq!(judged.raw.get(format!("{MAPS}/x")).await.expect(200).json()["data"], json!({ "a": "b", "c": "d" }));
}

#[tokio::test]
async fn parameters_of_any_kind_are_found_where_the_binding_says() {
    let judged = PolicyServer::open().await;
    let raw = &judged.raw;
    let limit = |name: &str, most: &str| json!({ "metadata": { "name": name, "labels": { "limit": "yes" } }, "data": { "most": most } });
    raw.post(MAPS, &limit("small", "2")).await.expect(201);
    raw.post("/api/v1/namespaces/default/configmaps", &limit("tiny", "1")).await.expect(201);
    let spec = |kind: &str| {
        json!({
            "paramKind": { "apiVersion": "v1", "kind": kind },
            "validations": [{ "expression": "params == null || size(object.data.a) <= int(params.data.most)", "messageExpression": "'beyond ' + params.metadata.name" }],
        })
    };
    let reference = |with: Value| {
        let mut reference = json!({ "parameterNotFoundAction": "Deny" });
        merge(&mut reference, with);
        json!({ "paramRef": reference })
    };
    let long = json!({ "a": "bbb" });
    let check = async |name: &str, kind: &str, binding: Value, expected: Option<&str>| {
        judged.policy(name, spec(kind), binding).await;
        let told = judged.asks(name, long.clone()).await;
        let message =
            told.json()["message"].as_str().map(|text| text.split(" denied request: ").last().unwrap().to_owned());
        assert_eq!((told.status, message.as_deref()), (if expected.is_some() { 422 } else { 201 }, expected), "{name}");
    };
    check("named", "ConfigMap", reference(json!({ "name": "small" })), Some("beyond small")).await;
    check("elsewhere", "ConfigMap", reference(json!({ "name": "tiny", "namespace": "default" })), Some("beyond tiny"))
        .await;
    check(
        "selected",
        "ConfigMap",
        reference(json!({ "selector": { "matchLabels": { "limit": "yes" } } })),
        Some("beyond small"),
    )
    .await;
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    check("missing", "ConfigMap", reference(json!({ "name": "none" })), Some(missing)).await;
    let allowed = json!({ "paramRef": { "name": "none", "parameterNotFoundAction": "Allow" } });
    check("allowed", "ConfigMap", allowed, None).await;
    check("unbound", "ConfigMap", json!({}), None).await;
    let unknown = "failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nothing'";
    check("unknown", "Nothing", reference(json!({ "name": "x" })), Some(unknown)).await;
    // A change takes effect when the server's cache has it.
    raw.patch(format!("{MAPS}/small"), MERGE, &json!({ "data": { "most": "9" } })).await.expect(200);
    let seen = async {
        while judged.asks("named", long.clone()).await.status != 201 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.expect("the parameters count");
}

#[tokio::test]
async fn policies_validate_webhook_configurations_but_no_policies() {
    let judged = PolicyServer::open().await;
    let everything = json!({ "resourceRules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"] }] });
    judged
        .policy("all", json!({ "matchConstraints": everything, "validations": [{ "expression": "false" }] }), json!({}))
        .await;
    judged.raw.post(MAPS, &map("x")).await.expect(422);
    let webhooks = json!({ "metadata": { "name": "w" }, "webhooks": [] });
    judged.raw.post(format!("{GROUP}/validatingwebhookconfigurations"), &webhooks).await.expect(422);
    judged.raw.delete(format!("{GROUP}/validatingadmissionpolicies/all")).await.expect(200);
    judged.raw.post(MAPS, &map("x")).await.expect(201);
}

pub(super) fn applies(expression: &str) -> Value {
    json!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } })
}

pub(super) fn patches(expression: &str) -> Value {
    json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } })
}

#[tokio::test]
async fn mutations_are_applied_in_order_without_owners() {
    let judged = PolicyServer::open().await;
    let check = async |name: &str, mutations: Value, with: Value, expected: Value| {
        judged.mutation(name, mutations, with).await;
        let made = judged.asks(name, json!({ "a": "b" })).await.expect(201).json();
        assert_eq!(json!([made["metadata"]["labels"]["added"], made["data"]]), expected, "{name}");
    };
    let none = || json!({});
    check(
        "label",
        json!([applies("Object{metadata: Object.metadata{labels: {'added': 'yes'}}}")]),
        none(),
        json!(["yes", { "a": "b" }]),
    )
    .await;
    let three = json!([
        applies("Object{data: {'one': 'x'}}"),
        applies("Object{data: {'two': object.data.one + 'y'}}"),
        patches("[JSONPatch{op: 'add', path: '/data/three', value: object.data.two + 'z'}]"),
    ]);
    check("three", three, none(), json!([null, { "a": "b", "one": "x", "two": "xy", "three": "xyz" }])).await;
    let moved = "[JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}, JSONPatch{op: 'move', from: '/data/a', path: '/data/m'}]";
    check("moved", json!([patches(moved)]), none(), json!([null, { "c": "b", "m": "b" }])).await;
    let test =
        "[JSONPatch{op: 'test', path: '/data/a', value: 'x'}, JSONPatch{op: 'add', path: '/data/t', value: 'x'}]";
    check("test", json!([patches(test)]), none(), json!([null, { "a": "b" }])).await;
    let named = json!([patches(
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('added'), value: variables.v}]"
    )]);
    check(
        "variable",
        named,
        json!({ "variables": [{ "name": "v", "expression": "namespaceObject.metadata.labels.team" }] }),
        json!(["red", { "a": "b" }]),
    )
    .await;
    let again = json!({ "reinvocationPolicy": "IfNeeded" });
    let counts = json!([applies("Object{data: {'n': (has(object.data.n) ? object.data.n : '') + 'x'}}")]);
    check("again", counts.clone(), again, json!([null, { "a": "b", "n": "xx" }])).await;
    check("once", counts, none(), json!([null, { "a": "b", "n": "x" }])).await;
    let unmet = json!({ "matchConditions": [{ "name": "c", "expression": "object.data.a == 'other'" }] });
    check("unmet", json!([applies("Object{data: {'n': 'x'}}")]), unmet, json!([null, { "a": "b" }])).await;

    let mut sent = map("owned");
    sent["metadata"]["labels"] = json!({ "case": "label" });
    let made = judged.raw.post(MAPS, &sent).await.expect(201).json();
    let labels = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"];
    assert_eq!((labels["f:case"].is_object(), labels["f:added"].is_null()), (true, true), "{labels}");
}

#[tokio::test]
async fn a_mutated_pod_is_defaulted_and_checked_again() {
    let judged = PolicyServer::open().await;
    let rule = json!({ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"] });
    let asks = async |name: &str, mutation: Value| {
        let matched = json!({ "resourceRules": [rule], "objectSelector": { "matchLabels": { "case": name } } });
        judged.mutation(name, json!([mutation]), json!({ "matchConstraints": matched })).await;
        let pod = json!({ "metadata": { "name": "p", "labels": { "case": name } },
            "spec": { "containers": [{ "name": "c", "image": "i:1" }] } });
        judged.raw.post("/api/v1/namespaces/hooked/pods?dryRun=All", &pod).await
    };
    let told = async |name: &str, mutation: Value| asks(name, mutation).await.expect(403).json()["message"].clone();
    let classed = applies("Object{spec: Object.spec{priorityClassName: 'system-node-critical'}}");
    let expected = "pods \"p\" is forbidden: the integer value of priority (0) must not be provided in pod spec; priority \
                    admission controller computed 2000001000 from the given PriorityClass name";
    assert_eq!(told("classed", classed).await, expected);
    let unknown = "[JSONPatch{op: 'remove', path: '/spec/priority'}, \
                   JSONPatch{op: 'add', path: '/spec/priorityClassName', value: 'nope'}]";
    let expected = "pods \"p\" is forbidden: no PriorityClass with name nope was found";
    assert_eq!(told("unknown", patches(unknown)).await, expected);
    let bare = "['priority', 'preemptionPolicy', 'tolerations'].map(f, JSONPatch{op: 'remove', path: '/spec/' + f})";
    let spec = asks("bare", patches(bare)).await.expect(201).json()["spec"].clone();
    let tolerated: Vec<&str> =
        spec["tolerations"].as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(tolerated, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
}

#[tokio::test]
async fn mutations_that_fail_are_reported_together_unless_they_may_be_ignored() {
    let judged = PolicyServer::open().await;
    let check = async |name: &str, mutations: Value, expected: &[&str]| {
        judged.mutation(name, mutations.clone(), json!({})).await;
        let body = judged.asks(name, json!({ "a": "b" })).await.expect(403).json();
        let message =
            |why: &&str| json!({ "message": format!("policy '{name}' with binding '{name}-b' denied request: {why}") });
        let causes: Vec<Value> = expected.iter().map(message).collect();
        assert_eq!((&body["message"], &body["details"]["causes"]), (&causes[0]["message"], &json!(causes)), "{name}");
        assert_eq!((&body["reason"], &body["details"]["name"]), (&json!("Invalid"), &json!("x")), "{name}");
        let ignored = format!("{name}-open");
        judged.mutation(&ignored, mutations, json!({ "failurePolicy": "Ignore" })).await;
        judged.asks(&ignored, json!({ "a": "b" })).await.expect(201);
    };
    let two = json!([
        applies("Object{data: {'two': object.data.none}}"),
        applies("Object{data: {'three': object.data.other}}")
    ]);
    let told = |text: &str, key: &str| format!("expression '{text}' resulted in error: no such key: {key}");
    let (one, other) = (
        told("Object{data: {'two': object.data.none}}", "none"),
        told("Object{data: {'three': object.data.other}}", "other"),
    );
    check("two", two, &[&one, &other]).await;
    let bogus =
        "error applying patch: failed to convert patch object to typed object: .bogus: field not declared in schema";
    check("bogus", json!([applies("Object{bogus: 'x'}")]), &[bogus]).await;
    let missing =
        "JSON Patch: add operation does not apply: doc is missing path: \"/metadata/annotations/x\": missing value";
    check(
        "missing",
        json!([patches("[JSONPatch{op: 'add', path: '/metadata/annotations/x', value: 'y'}]")]),
        &[missing],
    )
    .await;

    judged
        .mutation(
            "atomic",
            json!([applies("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'c'}}}}")]),
            json!({}),
        )
        .await;
    let containers = json!([{ "name": "c", "image": "i" }]);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": containers } });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let deployment = json!({ "metadata": { "name": "d", "labels": { "case": "atomic" } }, "spec": spec });
    let body = judged.raw.post("/apis/apps/v1/namespaces/hooked/deployments", &deployment).await.expect(403).json();
    let message = "policy 'atomic' with binding 'atomic-b' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector";
    assert_eq!(body["message"], message);

    let image = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'c', image: 'j'}, Object.spec.template.spec.containers{name: 'side', image: 's'}]}}}}";
    judged.mutation("merged", json!([applies(image)]), json!({})).await;
    let mut deployment = deployment;
    deployment["metadata"]["labels"]["case"] = json!("merged");
    let made = judged.raw.post("/apis/apps/v1/namespaces/hooked/deployments", &deployment).await.expect(201).json();
    let containers = made["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let images: Vec<_> = containers
        .iter()
        .map(|container| (&container["name"], &container["image"], &container["imagePullPolicy"]))
        .collect();
    let row = |name: &'static str, image: &'static str| (json!(name), json!(image), json!("Always"));
    let expected = [row("c", "j"), row("side", "s")];
    assert_eq!(images, expected.iter().map(|(name, image, policy)| (name, image, policy)).collect::<Vec<_>>());
}

#[tokio::test]
async fn invalid_expressions_are_reported_at_write_or_evaluation() {
    let judged = PolicyServer::open().await;
    let added = |value: &str| format!("[JSONPatch{{op: 'add', path: '/data/c', value: {value}}}]");
    let unwritten = [
        ("int('x')", "program instantiation failed: type conversion error from 'string' to 'int'"),
        ("uint(-1)", "program instantiation failed: unsigned integer overflow"),
    ];
    for (value, why) in unwritten {
        let rule =
            json!({ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] });
        let spec = json!({
            "matchConstraints": { "resourceRules": [rule] },
            "mutations": [patches(&added(value))],
            "reinvocationPolicy": "Never",
        });
        let policy = json!({ "metadata": { "name": "unwritten" }, "spec": spec });
        let body = judged.raw.post(format!("{GROUP}/mutatingadmissionpolicies"), &policy).await.expect(422).json();
        let cause = json!({
            "reason": "InternalError",
            "message": format!("Internal error: {why}"),
            "field": "spec.mutations[0].jsonPatch.expression",
        });
        assert_eq!(body["details"]["causes"], json!([cause]), "{value}");
    }
    let unfit = [
        (
            "1.0 / 0.0",
            "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: invalid +Inf value",
        ),
        ("quantity('1Gi')", "type conversion error from 'Quantity' to '*structpb.Value'"),
        ("optional.none()", "optional.none() dereference"),
    ];
    for (place, (value, why)) in unfit.into_iter().enumerate() {
        let name = format!("unfit-{place}");
        judged.mutation(&name, json!([patches(&added(value))]), json!({})).await;
        let body = judged.asks(&name, json!({ "a": "b" })).await.expect(403).json();
        let marshalled = format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}");
        let message = format!("policy '{name}' with binding '{name}-b' denied request: {marshalled}");
        assert_eq!(body["message"], message, "{value}");
    }
}

#[tokio::test]
async fn namespaces_match_themselves_and_connects_have_full_names() {
    let judged = PolicyServer::open().await;
    let spec = |operation: &str, resource: &str, expression: &str| {
        let rule =
            json!({ "operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource] });
        let constraints = json!({ "resourceRules": [rule], "objectSelector": {} });
        json!({ "matchConstraints": constraints, "validations": [{ "expression": expression }] })
    };
    let own =
        "request.namespace == request.name && request.namespace == object.metadata.name && request.name == 'inside'";
    judged.policy("own", spec("CREATE", "namespaces", own), json!({})).await;
    judged.policy("whole", spec("CONNECT", "services/proxy", "request.name == 'https:s:80'"), json!({})).await;
    let create =
        async |name: &str| judged.raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await;
    create("inside").await.expect(201);
    create("outside").await.expect(422);
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    judged.raw.post("/api/v1/namespaces/hooked/services", &service).await.expect(201);
    let connect = async |name: &str| judged.raw.get(format!("/api/v1/namespaces/hooked/services/{name}/proxy/")).await;
    let passed = connect("https:s:80").await.expect(503);
    assert!(!passed.text().contains("failed expression"), "{}", passed.text());
    let denied = connect("s").await.expect(422);
    assert!(denied.text().contains("failed expression: request.name == 'https:s:80'"), "{}", denied.text());
}
