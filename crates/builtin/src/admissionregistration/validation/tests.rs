//! Tests of webhook configurations and admission policies.
//!
//! Match conditions, rules and parameters are tested in each kind that has them.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::tests::{change, check_below, check_new, object, rules_of, texts};

fn rules() -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}])
}

fn webhook(kind: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "w"}, "webhooks": [{
        "name": "a.example.com", "clientConfig": {"url": "https://example.com/a"}, "rules": rules(), "sideEffects": "None",
        "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, "admissionReviewVersions": ["v1"],
        "namespaceSelector": {}, "objectSelector": {}}]})
}

#[test]
fn names_and_client_configs_of_webhooks_are_validated() {
    let hook = webhook("ValidatingWebhookConfiguration");
    let at = |field: &str| format!("/webhooks/0/{field}");
    check_new(
        &hook,
        &[
            (&at("name"), json!("a.com")),
            (&at("failurePolicy"), json!("Retry")),
            (&at("sideEffects"), Value::Null),
            (&at("timeoutSeconds"), json!(31)),
            (&at("clientConfig"), json!({})),
            (&at("admissionReviewVersions"), json!(["v2", "v2"])),
        ],
        &[
            "webhooks[0].name: Invalid value: \"a.com\": should be a domain with at least three segments separated by dots",
            "webhooks[0].failurePolicy: Unsupported value: \"Retry\": supported values: \"Fail\", \"Ignore\"",
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            "webhooks[0].admissionReviewVersions[1]: Invalid value: \"v2\": duplicate version",
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\",\"v2\"]: must include at least one of v1, v1beta1",
        ],
    );
    check_new(
        &hook,
        &[("/webhooks/-", hook["webhooks"][0].clone())],
        &["webhooks[1].name: Duplicate value: \"a.example.com\""],
    );
    let conditions = json!([{"name": "a", "expression": " "}, {"name": "a", "expression": "true"}]);
    check_new(
        &hook,
        &[(&at("matchConditions"), conditions)],
        &[
            "webhooks[0].matchConditions[0].expression: Required value",
            "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"",
        ],
    );
    check_new(
        &webhook("MutatingWebhookConfiguration"),
        &[(&at("reinvocationPolicy"), json!("Always"))],
        &["webhooks[0].reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\""],
    );
}

#[test]
fn rules_allow_no_entries_beside_a_wildcard() {
    let hook = webhook("ValidatingWebhookConfiguration");
    let at = |field: &str| format!("/webhooks/0/rules/0/{field}");
    check_new(
        &hook,
        &[
            (&at("operations"), json!(["*", "PATCH"])),
            (&at("apiGroups"), json!(["*", "apps"])),
            (&at("apiVersions"), json!([""])),
            (&at("resources"), json!(["*", "pods/*", "pods/status", "pods"])),
            (&at("scope"), json!("All")),
        ],
        &[
            "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"PATCH\"]: if '*' is present, must not specify other \
             operations",
            "webhooks[0].rules[0].operations[1]: Unsupported value: \"PATCH\": supported values: \"*\", \"CONNECT\", \
             \"CREATE\", \"DELETE\", \"UPDATE\"",
            "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"apps\"]: if '*' is present, must not specify other API \
             groups",
            "webhooks[0].rules[0].apiVersions[0]: Required value",
            "webhooks[0].rules[0].resources[2]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify \
             pods/status",
            "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods/*\",\"pods/status\",\"pods\"]: if '*' is present, \
             must not specify other resources without subresources",
            "webhooks[0].rules[0].scope: Unsupported value: \"All\": supported values: \"*\", \"Cluster\", \"Namespaced\"",
        ],
    );
    check_new(
        &hook,
        &[(&at("resources"), json!([])), (&at("operations"), json!([]))],
        &["webhooks[0].rules[0].operations: Required value", "webhooks[0].rules[0].resources: Required value"],
    );
}

fn policy() -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"failurePolicy": "Fail", "validations": [{"expression": "true"}], "matchConstraints": {
            "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": rules()}}})
}

#[test]
fn policies_require_match_constraints_and_validations() {
    check_new(
        &policy(),
        &[("/spec", json!({}))],
        &[
            "spec.failurePolicy: Required value",
            "spec.matchConstraints: Required value",
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
            "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
        ],
    );
    check_new(
        &policy(),
        &[
            ("/spec/paramKind", json!({"apiVersion": "a/b/c", "kind": "A_b"})),
            ("/spec/matchConstraints/resourceRules", json!([])),
            ("/spec/variables", json!([{"name": "in", "expression": ""}])),
            ("/spec/validations/0", json!({"expression": "", "message": "a\nb", "reason": "Odd"})),
        ],
        &[
            "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "spec.paramKind.kind: Invalid value: \"A_b\": may have mixed case, but should otherwise match: a DNS-1035 label \
             must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an \
             alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "spec.matchConstraints.resourceRules: Required value",
            "spec.variables[0].name: Invalid value: \"in\": must be a valid CEL identifier",
            "spec.variables[0].expression: Required value: expression is not specified",
            "spec.validations[0].expression: Required value: expression is not specified",
            "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
            "spec.validations[0].reason: Unsupported value: \"Odd\": supported values: \"Forbidden\", \"Invalid\", \
             \"RequestEntityTooLarge\"",
        ],
    );
    check_new(
        &policy(),
        &[(
            "/spec/auditAnnotations",
            json!([{"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": ""}]),
        )],
        &[
            "spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
            "spec.auditAnnotations[1].key: Duplicate value: \"a\"",
        ],
    );
    check_below(
        Some("status"),
        &policy(),
        &[("/status", json!({"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.validations[0]"}]}}))],
        &["status.typeChecking.expressionWarnings[0].warning: Required value"],
    );
}

#[test]
fn expressions_of_policies_and_webhooks_compile() {
    let undeclared = |at: &str, name: &str, shown: &str| {
        format!(
            "{at}: Invalid value: \"{shown}\": compilation failed: ERROR: <input>:1:1: undeclared reference to '{name}' (in \
             container '')\n | {shown}\n | ^"
        )
    };
    let check = |object: &Value, changes: &[(&str, Value)], expected: &[String]| {
        check_new(object, changes, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let hook = webhook("ValidatingWebhookConfiguration");
    let conditions = json!([{"name": "a", "expression": "params.x"}, {"name": "b", "expression": "request.name"}]);
    check(
        &hook,
        &[("/webhooks/0/matchConditions", conditions)],
        &[
            undeclared("webhooks[0].matchConditions[0].expression", "params", "params.x"),
            "webhooks[0].matchConditions[1].expression: Invalid value: \"request.name\": must evaluate to bool but got string"
                .to_owned(),
        ],
    );
    // Later variables and the expressions of the policy can use a variable, with the type of its result.
    let variables = json!([{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 1"}]);
    let asks = |expression: &str, message: &str| json!([{"expression": expression, "messageExpression": message}]);
    let with = |validations: Value| [("/spec/variables", variables.clone()), ("/spec/validations", validations)];
    check(&policy(), &with(asks("variables.b > 1", "'more than %d'.format([variables.a])")), &[]);
    check(
        &policy(),
        &with(asks("variables.b", "authorizer.path('/').check('get').reason()")),
        &[
            "spec.validations[0].expression: Invalid value: \"variables.b\": must evaluate to bool but got int"
                .to_owned(),
            undeclared(
                "spec.validations[0].messageExpression",
                "authorizer",
                "authorizer.path('/').check('get').reason()",
            ),
        ],
    );
    check(
        &policy(),
        &[
            ("/spec/paramKind", json!({"apiVersion": "v1", "kind": "ConfigMap"})),
            ("/spec/validations", asks("params.a == 1", "'m'")),
        ],
        &[],
    );
    check(
        &policy(),
        &[("/spec/validations", asks("params.a == 1", "'m'"))],
        &[undeclared("spec.validations[0].expression", "params", "params.a == 1")],
    );
    // An invalid stored expression is accepted as long as the policy is unchanged.
    let before = change(&policy(), &[("/spec/validations/0/expression", json!("nope"))]);
    let labelled = change(&before, &[("/metadata/labels", json!({"a": "b"}))]);
    let update = |old: &Value, new: &Value| texts(rules_of(&object(old)).update(None, &object(old), &object(new)));
    assert_eq!(update(&before, &labelled), [""; 0]);
    assert_eq!(update(&before, &change(&before, &[("/spec/failurePolicy", json!("Ignore"))])).len(), 1);
}

#[test]
fn mutations_of_policies_are_validated() {
    let patch = "[JSONPatch{op: 'add', path: '/a', value: 'b'}]";
    let mutating = change(
        &policy(),
        &[
            ("/apiVersion", json!("admissionregistration.k8s.io/v1beta1")),
            ("/kind", json!("MutatingAdmissionPolicy")),
            ("/spec/validations", Value::Null),
            ("/spec/reinvocationPolicy", json!("Never")),
            ("/spec/mutations", json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}])),
        ],
    );
    // The type of an empty list is unknown.
    check_new(
        &mutating,
        &[("/spec/mutations/0/jsonPatch/expression", json!("[]"))],
        &[
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"[]\": must evaluate to list(JSONPatch) but got list(dyn)",
        ],
    );
    check_new(
        &mutating,
        &[
            ("/spec/matchConstraints/resourceRules/0/operations", json!(["DELETE"])),
            ("/spec/mutations/0", json!({"patchType": "JSONPatch", "applyConfiguration": {}})),
            ("/spec/reinvocationPolicy", Value::Null),
        ],
        &[
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \
             \"CONNECT\", \"CREATE\", \"UPDATE\"",
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when \
             patchType is JSONPatch",
            "spec.reinvocationPolicy: Required value",
        ],
    );
}

#[test]
fn bindings_require_a_policy_name_and_valid_actions() {
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    check_new(
        &binding,
        &[
            ("/spec/policyName", json!("")),
            ("/spec/paramRef", json!({"name": "a", "selector": {}})),
            ("/spec/validationActions", json!(["Deny", "Warn", "Cry"])),
        ],
        &[
            "spec.policyName: Required value",
            "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.parameterNotFoundAction: Required value",
            "spec.validationActions[2]: Unsupported value: \"Cry\": supported values: \"Audit\", \"Deny\", \"Warn\"",
            "spec.validationActions: Invalid value: [\"Deny\",\"Warn\",\"Cry\"]: must not contain both Deny and Warn \
             (repeating the same validation failure information in the API response and headers serves no purpose)",
        ],
    );
    check_new(
        &binding,
        &[("/spec/validationActions", json!([]))],
        &["spec.validationActions: Required value: at least one validation action is required"],
    );
}
