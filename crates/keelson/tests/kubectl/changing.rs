//! Tests of `kubectl replace`, `patch`, `label` and `annotate`.
//!
//! The tested commands change several fields or a whole object. Commands for a single field are in `editing.rs`.

use serde_json::{Value, json};

use crate::Shell;

async fn shell() -> Shell {
    let shell = Shell::start().await;
    shell.ok("create configmap settings --from-literal=colour=red").await;
    shell
}

async fn settings(shell: &Shell) -> Value {
    shell.json("get configmap settings -o json").await
}

#[tokio::test]
async fn a_replace_with_an_old_revision_conflicts() {
    let shell = shell().await;
    let mut read = settings(&shell).await;
    read["data"]["colour"] = json!("blue");
    assert_eq!(shell.feed("replace -f -", read.to_string()).await, "configmap/settings replaced\n");
    let written = settings(&shell).await;
    assert_eq!(written["data"], json!({"colour": "blue"}));
    assert_eq!(written["metadata"]["uid"], read["metadata"]["uid"]);
    read["data"]["colour"] = json!("green");
    assert_eq!(
        shell.kubectl("replace -f -").stdin(read.to_string()).await.refused(),
        "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on configmaps \
         \"settings\": the object has been modified; please apply your changes to the latest version and try again\n"
    );
    // Without a revision, the last write wins.
    read["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    shell.feed("replace -f -", read.to_string()).await;
    assert_eq!(settings(&shell).await["data"]["colour"], "green");
}

#[tokio::test]
async fn a_forced_replace_makes_a_new_object() {
    let shell = shell().await;
    let before = settings(&shell).await;
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}});
    let printed = shell.feed("replace --force -f -", manifest.to_string()).await;
    assert_eq!(printed, "configmap \"settings\" deleted from default namespace\nconfigmap/settings replaced\n");
    let after = settings(&shell).await;
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after.get("data"), None);
}

#[tokio::test]
async fn patches_of_each_type_change_the_named_fields() {
    let shell = shell().await;
    let session = [
        (r#"patch configmap settings --type=merge -p '{"data":{"size":"1"}}'"#, "configmap/settings patched\n"),
        (
            r#"patch configmap settings --type=merge -p '{"data":{"size":"1"}}'"#,
            "configmap/settings patched (no change)\n",
        ),
        (
            r#"patch cm settings --type=json -p '[{"op":"test","path":"/data/size","value":"1"},{"op":"move","from":"/data/size","path":"/data/width"}]'"#,
            "configmap/settings patched\n",
        ),
        (r#"patch cm settings --type=merge -p '{"data":{"colour":null}}' -o jsonpath={.data}"#, r#"{"width":"1"}"#),
        (
            r#"patch cm settings --type=merge -p '{"data":{"lost":"1"}}' --dry-run=server"#,
            "configmap/settings patched\n",
        ),
        ("get cm settings -o jsonpath={.data}", r#"{"width":"1"}"#),
        (r#"patch ns default --type=merge -p '{"metadata":{"labels":{"a":"b"}}}'"#, "namespace/default patched\n"),
    ];
    shell.check(&session).await;
    let refused = [
        (
            r#"patch cm settings --type=json -p '[{"op":"test","path":"/data/width","value":"2"}]'"#,
            "The request is invalid: the server rejected our request due to an error in our request\n",
        ),
        (r#"patch cm nobody --type=merge -p '{}'"#, "Error from server (NotFound): configmaps \"nobody\" not found\n"),
        (
            r#"patch cm settings --type=merge -p '{"metadata":{"resourceVersion":"1"}}'"#,
            "Error from server (Conflict): Operation cannot be fulfilled on configmaps \"settings\": the object has been \
             modified; please apply your changes to the latest version and try again\n",
        ),
    ];
    for (line, said) in refused {
        assert_eq!(shell.refused(line).await, said, "kubectl {line}");
    }
}

#[tokio::test]
async fn a_status_is_changed_through_its_subresource_only() {
    let shell = Shell::start().await;
    shell.ok("run shell --image=tool").await;
    let patch = r#"-p '{"status":{"phase":"Running","message":"up"},"metadata":{"labels":{"not":"here"}}}'"#;
    shell.ok(&format!("patch pod shell --type=merge {patch}")).await;
    assert_eq!(shell.ok("get pod shell -o jsonpath={.status.message}").await, "");
    shell.ok(&format!("patch pod shell --subresource=status --type=merge {patch}")).await;
    assert_eq!(shell.ok("get pod shell -o jsonpath={.status.phase}").await, "Running");
    assert_eq!(shell.ok("get pods --field-selector status.phase=Running -o name").await, "pod/shell\n");
    let read = shell.json("get pod shell --subresource=status -o json").await;
    assert_eq!(read["status"]["message"], "up");
}

#[tokio::test]
async fn labels_and_annotations_are_added_and_removed() {
    let shell = shell().await;
    shell.ok("create configmap other").await;
    let session = [
        ("label configmap settings tier=web", "configmap/settings labeled\n"),
        ("label configmap settings tier=web", "configmap/settings not labeled\n"),
        ("label configmap settings tier=db --overwrite", "configmap/settings labeled\n"),
        ("get configmaps -l tier=db -o name", "configmap/settings\n"),
        ("label configmaps --all env=prod", "configmap/other labeled\nconfigmap/settings labeled\n"),
        ("label configmaps -l tier=db env-", "configmap/settings unlabeled\n"),
        ("label configmap settings --list", "tier=db\n"),
        ("get configmaps -l env=prod -o name", "configmap/other\n"),
        ("annotate configmap settings note='two words'", "configmap/settings annotated\n"),
        ("get configmap settings -o jsonpath={.metadata.annotations.note}", "two words"),
        ("annotate configmap settings note-", "configmap/settings annotated\n"),
        ("get configmap settings -o jsonpath={.metadata.annotations}", ""),
        ("label namespace default colour=red", "namespace/default labeled\n"),
        ("get namespaces -l colour=red -o name", "namespace/default\n"),
    ];
    shell.check(&session).await;
    let refused = [
        (
            "label configmap settings tier=web",
            "error: 'tier' already has a value (db), and --overwrite is false\n".to_owned(),
        ),
        (
            "label configmap settings a=b --resource-version=1",
            "Error from server (Conflict): Operation cannot be fulfilled on configmaps \"settings\": the object has been \
             modified; please apply your changes to the latest version and try again\n"
                .to_owned(),
        ),
    ];
    for (line, said) in refused {
        assert_eq!(shell.refused(line).await, said, "kubectl {line}");
    }
}
