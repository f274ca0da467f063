//! Tests of errors as kubectl prints them.
//!
//! A user sees only these lines, so they are compared completely.

use serde_json::json;

use crate::Shell;

#[tokio::test]
async fn kubectl_prints_the_reason_of_each_refusal() {
    let shell = Shell::start().await;
    shell.ok("create configmap taken").await;
    let refusals = [
        ("get configmap nobody", "Error from server (NotFound): configmaps \"nobody\" not found\n"),
        ("get nonsense", "error: the server doesn't have a resource type \"nonsense\"\n"),
        ("get --raw /nonsense", "Error from server (NotFound): the server could not find the requested resource\n"),
        ("get configmap taken nobody -o name", "Error from server (NotFound): configmaps \"nobody\" not found\n"),
        ("create configmap taken", "error: failed to create configmap: configmaps \"taken\" already exists\n"),
        ("create namespace default", "Error from server (AlreadyExists): namespaces \"default\" already exists\n"),
        ("create configmap lost -n nowhere", "error: failed to create configmap: namespaces \"nowhere\" not found\n"),
        ("delete pod nobody", "Error from server (NotFound): pods \"nobody\" not found\n"),
        (
            "get pods --field-selector colour=red",
            "Error from server (BadRequest): Unable to find \"/v1, Resource=pods\" that match label selector \"\", field \
             selector \"colour=red\": field label not supported: colour\n",
        ),
        (
            "get configmaps -l 'a in ('",
            "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"a in \
             (\", field selector \"\": unable to parse requirement: found '', expected: ',', ')' or identifier\n",
        ),
        (
            "create configmap Loud",
            "error: failed to create configmap: ConfigMap \"Loud\" is invalid: metadata.name: Invalid value: \"Loud\": a \
             lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n",
        ),
        (
            "create namespace a.b",
            "The Namespace \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": must not contain dots\n",
        ),
        (
            "label configmap taken 'bad key=1'",
            "The ConfigMap \"taken\" is invalid: metadata.labels: Invalid value: \"bad key\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
             'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\n",
        ),
    ];
    for (line, said) in refusals {
        assert_eq!(shell.refused(line).await, said, "kubectl {line}");
    }
}

#[tokio::test]
async fn one_refused_object_does_not_stop_the_others() {
    let shell = Shell::start().await;
    shell.ok("create configmap second").await;
    let item = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
    let output = shell.kubectl("create -f -").stdin(["first", "second", "third"].map(item).join("\n")).await;
    assert_eq!(output.stdout, "configmap/first created\nconfigmap/third created\n");
    assert_eq!(
        output.refused(),
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"second\" already exists\n"
    );
}

#[tokio::test]
async fn an_unauthenticated_user_gets_the_login_message() {
    let shell = Shell::start().await;
    // A client with an unknown token is not authenticated.
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: '{}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: a, user: {{token: nonsense}}}}]\n",
        shell.server.url()
    );
    let path = shell.server.data_dir().join("stranger");
    std::fs::write(&path, config).unwrap();
    let said = shell.refused(&format!("get --raw /api/v1/namespaces --kubeconfig {}", path.display())).await;
    assert_eq!(said, "error: You must be logged in to the server (Unauthorized)\n");
}
