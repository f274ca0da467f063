//! Tests of invalid configurations against upstream's error texts.
//!
//! Most of them have one webhook with one fault.

use std::io::Write as _;
use std::path::Path;

use crate::authorization::{AuthorizationSource, AuthorizerKind};

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";

fn read(text: &str) -> Result<Vec<AuthorizerKind>, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(format!("{HEAD}{text}").as_bytes()).unwrap();
    let kinds = AuthorizationSource::File(file.path().to_owned()).kinds();
    kinds.map_err(|error| error.to_string())
}

fn check(text: &str, expected: Result<(), &str>) {
    let expected = expected.map_err(|fault| format!("invalid authorization configuration: {fault}"));
    assert_eq!(read(text).map(drop), expected, "{text}");
}

/// A webhook with some lines replaced.
fn webhook(changed: &[(&str, &str)], kubeconfig: &Path) -> String {
    let stated = [
        ("timeout", "3s"),
        ("subjectAccessReviewVersion", "v1"),
        ("failurePolicy", "NoOpinion"),
        ("connectionInfo", &format!("{{type: KubeConfigFile, kubeConfigFile: {}}}", kubeconfig.display())),
    ];
    let lines = stated.iter().map(|line| {
        let (name, value) = changed.iter().find(|(changed, _)| *changed == line.0).unwrap_or(line);
        format!("    {name}: {value}\n")
    });
    let added = changed.iter().filter(|(name, _)| stated.iter().all(|(stated, _)| stated != name));
    let added = added.map(|(name, value)| format!("    {name}: {value}\n"));
    let lines: String = lines.chain(added).collect();
    format!("authorizers:\n- type: Webhook\n  name: w\n  webhook:\n{lines}")
}

fn of_webhook(changed: &[(&str, &str)], expected: Result<(), &str>) {
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    let expected = expected.map_err(|fault| fault.replace("W.", "authorizers[0]."));
    check(&webhook(changed, kubeconfig.path()), expected.as_ref().copied().map_err(String::as_str));
}

#[test]
fn authorizers_have_unique_types_and_names() {
    let rbac = "{type: RBAC, name: rbac}";
    let both = format!("authorizers: [{{type: Node, name: node}}, {rbac}]\n");
    assert_eq!(read(&both), Ok(vec![AuthorizerKind::Node, AuthorizerKind::Rbac]));
    check("", Err("authorizers: Required value: at least one authorization mode must be defined"));
    check("authorizers: [{name: a}]\n", Err("authorizers[0].type: Required value"));
    let known = r#"supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook""#;
    let unknown = format!("authorizers[0].type: Unsupported value: \"Foo\": {known}");
    check("authorizers: [{type: Foo, name: a}]\n", Err(&unknown));
    check(
        &format!("authorizers: [{rbac}, {{type: RBAC, name: b}}]\n"),
        Err("authorizers[1].type: Duplicate value: \"RBAC\""),
    );
    check(
        &format!("authorizers: [{rbac}, {{type: Node, name: rbac}}]\n"),
        Err("authorizers[1].name: Duplicate value: \"rbac\""),
    );
    check("authorizers: [{type: RBAC}]\n", Err("authorizers[0].name: Required value"));
    assert!(
        read("authorizers: [{type: RBAC, name: A_b}]\n")
            .unwrap_err()
            .contains("authorizer name is invalid: a lowercase RFC 1123")
    );
    check(
        "authorizers: [{type: Webhook, name: a}]\n",
        Err("authorizers[0].webhook: Required value: required when type=Webhook"),
    );
    let null = "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook";
    check("authorizers: [{type: RBAC, name: a, webhook: {}}]\n", Err(null));
}

#[test]
fn webhook_settings_are_validated() {
    of_webhook(&[], Ok(()));
    of_webhook(&[("timeout", "0s")], Err("W.timeout: Required value"));
    of_webhook(&[("timeout", "31s")], Err("W.timeout: Invalid value: \"31s\": must be > 0s and <= 30s"));
    of_webhook(&[("authorizedTTL", "-1s")], Err("W.authorizedTTL: Invalid value: \"-1s\": must be > 0s"));
    of_webhook(&[("subjectAccessReviewVersion", "''")], Err("W.subjectAccessReviewVersion: Required value"));
    let version = "W.subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"";
    of_webhook(&[("subjectAccessReviewVersion", "v2")], Err(version));
    of_webhook(&[("failurePolicy", "''")], Err("W.failurePolicy: Required value"));
    let policy = "W.failurePolicy: Unsupported value: \"Ignore\": supported values: \"NoOpinion\", \"Deny\"";
    of_webhook(&[("failurePolicy", "Ignore")], Err(policy));
}

#[test]
fn connection_info_of_webhooks_is_validated() {
    let of = |connection: &str, expected: &str| of_webhook(&[("connectionInfo", connection)], Err(expected));
    of("{}", "W.connectionInfo.type: Required value");
    let kinds = "supported values: \"InClusterConfig\", \"KubeConfigFile\"";
    of("{type: Foo}", &format!("W.connectionInfo.type: Unsupported value: \"Foo\": {kinds}"));
    of("{type: KubeConfigFile}", "W.connectionInfo.kubeConfigFile: Required value");
    let file = |value: &str, why: &str| format!("W.connectionInfo.kubeConfigFile: Invalid value: {value:?}: {why}");
    of("{type: KubeConfigFile, kubeConfigFile: a}", &file("a", "must be an absolute path"));
    of("{type: KubeConfigFile, kubeConfigFile: /}", &file("/", "must be a regular file"));
    let missing = file("/no/file", "error loading file: stat /no/file: no such file or directory");
    of("{type: KubeConfigFile, kubeConfigFile: /no/file}", &missing);
    let within = file("/a", "can only be set when type=KubeConfigFile");
    of("{type: InClusterConfig, kubeConfigFile: /a}", &within);
}

#[test]
fn conditions_are_of_a_version_and_compile() {
    let of = |conditions: &str, expected: Result<(), &str>| {
        of_webhook(&[("matchConditionSubjectAccessReviewVersion", "v1"), ("matchConditions", conditions)], expected);
    };
    of("[{expression: 'has(request.resourceAttributes)'}]", Ok(()));
    of("[{expression: ' '}]", Err("W.matchConditions[0].expression: Required value"));
    let twice = "W.matchConditions[1].expression: Duplicate value: \"true\"";
    of("[{expression: 'true'}, {expression: 'true'}]", Err(twice));
    of("[{expression: '1'}]", Err("W.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool"));
    let version =
        "W.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified";
    of_webhook(&[("matchConditions", "[{expression: 'true'}]")], Err(version));
}
