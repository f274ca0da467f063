//! Tests of `kubectl keelson`, the plugin of this package: queries in kubectl's output format, continued lists, and
//! errors.
//!
//! The tests run it as a program, and once through kubectl.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{Shell, column, words};

const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-keelson");

/// Runs the plugin. Returns true if it succeeded, its output and its errors.
async fn run(shell: &Shell, line: &str) -> (bool, String, String) {
    let kubeconfig = shell.server.data_dir().join("kubeconfig");
    let words = words(line);
    let command = Command::new(PLUGIN).args(words).env("KUBECONFIG", kubeconfig).kill_on_drop(true).output();
    let Output { status, stdout, stderr } =
        tokio::time::timeout(Duration::from_secs(60), command).await.expect("it ends").unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

async fn ok(shell: &Shell, line: &str) -> String {
    let (done, printed, said) = run(shell, line).await;
    assert!(done && said.is_empty(), "{line}: {said}");
    printed
}

async fn shell() -> Shell {
    let shell = Shell::start().await;
    let raw = shell.server.raw();
    for number in 0..7 {
        let pod = json!({
            "metadata": {"name": format!("pod-{number}"), "labels": {"part": if number % 2 == 0 { "web" } else { "db" }}},
            "spec": {"nodeName": format!("node-{}", number % 3), "containers": [{"name": "main", "image": "main"}]},
        });
        raw.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    }
    shell
}

#[tokio::test]
async fn rows_are_those_of_kubectl_in_the_order_of_the_query() {
    let shell = shell().await;
    // Ages differ between runs.
    let without_age = |table: &str| -> Vec<String> {
        table.lines().map(|line| line.rsplit_once(' ').map_or(line, |(rest, _)| rest.trim_end()).to_owned()).collect()
    };
    let plain = ok(&shell, "get pods").await;
    assert_eq!(without_age(&plain), without_age(&shell.ok("get pods").await));
    let all = ok(&shell, "get po -A --no-headers -l part=db").await;
    assert_eq!(without_age(&all), without_age(&shell.ok("get po -A --no-headers -l part=db").await));
    let wide = ok(&shell, "get pod -o wide --field-selector spec.nodeName=node-1").await;
    assert_eq!(column(&wide, 6), ["node-1", "node-1"], "{wide}");

    let sorted = ok(&shell, "get pods --sort-by -.spec.nodeName,-.metadata.name --limit 3 --page 2").await;
    assert_eq!(column(&sorted, 0), ["pod-1", "pod-6", "pod-3"]);
    let chosen =
        "get pods --search pod --filter 'spec.nodeName in (\"node-0\")' --where 'object.metadata.name != \"pod-0\"'";
    assert_eq!(column(&ok(&shell, chosen).await, 0), ["pod-3", "pod-6"]);
    let chunked = ok(&shell, "get pods --sort-by metadata.name --chunk-size 2 -o name").await;
    let names: Vec<String> = (0..7).map(|number| format!("pod/pod-{number}")).collect();
    assert_eq!(chunked.lines().collect::<Vec<_>>(), names);
}

#[tokio::test]
async fn documents_counts_and_groups() {
    let shell = shell().await;
    let lines = ok(&shell, "get pods --chunk-size 3 -o ndjson --fields spec.nodeName --sort-by -metadata.name").await;
    let objects: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = &objects[0];
    assert_eq!((objects.len(), &first["kind"], &first["apiVersion"]), (7, &json!("Pod"), &json!("v1")));
    assert_eq!((&first["metadata"]["name"], &first["spec"]), (&json!("pod-6"), &json!({"nodeName": "node-0"})));

    let printed: Value = serde_json::from_str(&ok(&shell, "get pods --limit 2 -o json").await).unwrap();
    let mut expected = shell.json("get pods -o json").await;
    expected["items"].as_array_mut().unwrap().truncate(2);
    assert_eq!(printed, expected);
    let yaml = ok(&shell, "get pods --limit 1 -o yaml").await;
    assert!(yaml.starts_with("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n"), "{yaml}");

    assert_eq!(ok(&shell, "get pods --count").await, "7\n");
    assert_eq!(ok(&shell, "get pods --count --filter 'metadata.labels.part == \"web\"' -A").await, "4\n");
    let groups = ok(&shell, "get pods --group-by .spec.nodeName").await;
    assert_eq!(groups, "VALUE    COUNT\nnode-0   3\nnode-1   2\nnode-2   2\n");
    let groups = ok(&shell, "get pods --group-by .spec.priorityClassName -o ndjson").await;
    assert_eq!(groups, "{\"count\":7}\n");
}

#[tokio::test]
async fn refusals_are_reported_as_by_kubectl() {
    let shell = shell().await;
    for (line, said) in [
        ("get gadgets", "error: the server doesn't have a resource type \"gadgets\"\n"),
        ("get pods --page 2", "--limit <NUMBER>"),
        ("get pods --sort-by .spec.", "error: Error from server (BadRequest): keelson.io/sortBy: the name of a field"),
        ("get pods --at 2020-01-02T03:04:05Z", "error: Error from server (Expired): "),
        ("get pods --context nowhere", "error: reading the kubeconfig"),
    ] {
        let (done, printed, told) = run(&shell, line).await;
        assert!(!done && printed.is_empty() && told.contains(said), "{line}: {printed}{told}");
    }
    let (done, printed, told) = run(&shell, "get secrets -n default").await;
    assert_eq!((done, &*printed, &*told), (true, "", "No resources found in default namespace.\n"));
}

/// Otherwise the author of an object could retitle the reader's terminal window or erase the screen.
#[tokio::test]
async fn control_characters_of_objects_reach_no_terminal() {
    let shell = Shell::start().await;
    let event = json!({
        "metadata": { "name": "e" },
        "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" },
        "reason": "\x1b]0;owned\x07", "message": "a\x1b[2J\u{9b}31mb\rc", "type": "Normal", "source": { "component": "\u{202e}x" },
    });
    shell.server.raw().post("/api/v1/namespaces/default/events", &event).await.expect(201);
    for line in [
        "get events",
        "get events -o wide",
        "get events -o json",
        "get events -o ndjson",
        "get events -o yaml",
        "get events -o name",
        "get events --group-by .reason",
        "get events --group-by .reason -o ndjson",
        "get events --search owned",
    ] {
        let printed = ok(&shell, line).await;
        let acts = |character| keelson_meta::control_characters::acts(character) && !matches!(character, '\n' | '\t');
        assert!(!printed.contains(acts), "{line}: {printed:?}");
        if line.ends_with("json") && !line.contains("group") {
            let document: Value = serde_json::from_str(&printed).unwrap();
            let stored = document.get("items").map_or(&document, |items| &items[0]);
            assert_eq!((&stored["reason"], &stored["message"]), (&event["reason"], &event["message"]), "{line}");
        }
    }
    let table = ok(&shell, "get events").await;
    assert!(table.contains("^[]0;owned^G") && table.contains("a^[[2J<U+009B>31mb\\rc"), "{table}");
    let yaml = ok(&shell, "get events -o yaml").await;
    assert!(yaml.contains(r#"component: "\u202Ex""#), "{yaml}");
    for line in ["get pods --sort-by \u{9b}2J", "get pods --\u{9b}2J", "get pods --limit \u{202e}"] {
        let (done, _, said) = run(&shell, line).await;
        assert!(!done && !said.contains(['\u{9b}', '\u{202e}']), "{said:?}");
    }
}

#[tokio::test]
async fn the_past_is_shown_and_kubectl_finds_the_plugin() {
    let shell = shell().await;
    let listed = shell.server.raw().get("/api/v1/pods?limit=1").await.expect(200).json();
    let revision = listed["metadata"]["resourceVersion"].as_str().unwrap();
    let pod = "/api/v1/namespaces/default/pods/pod-3?gracePeriodSeconds=0";
    shell.server.raw().delete(pod).await.expect(200);
    let now = ok(&shell, "get pods -o name").await;
    let then = ok(&shell, &format!("get pods -o name --at {revision}")).await;
    assert_eq!((now.lines().count(), then.lines().count()), (6, 7));

    let kubectl = std::env::var("KEELSON_TEST_KUBECTL").unwrap();
    let place = Path::new(PLUGIN).parent().unwrap();
    let output = Command::new(kubectl)
        .args(["keelson", "get", "pods", "--count"])
        .env("PATH", place)
        .env("KUBECONFIG", shell.server.data_dir().join("kubeconfig"))
        .output();
    let Output { stdout, stderr, .. } = output.await.unwrap();
    assert_eq!(String::from_utf8(stdout).unwrap(), "6\n", "{}", String::from_utf8_lossy(&stderr));
}

/// A list whose snapshot has expired continues after the same key.
#[tokio::test]
async fn a_walk_resumes_after_its_snapshot_expired() {
    use keelson_testkit::TestServer;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

    let server = TestServer::builder().history(Duration::from_secs(1)).start().await;
    let raw = server.raw();
    let maps = "/api/v1/namespaces/default/configmaps";
    // The output is so large that the pipe is full long before the end of the list.
    for number in 0..40 {
        let data = json!({"metadata": {"name": format!("map-{number:02}"), "labels": {"of": "walk"}}, "data": {"d": "x".repeat(20_000)}});
        raw.post(maps, &data).await.expect(201);
    }
    let mut walk = Command::new(PLUGIN)
        .args(["get", "configmaps", "-l", "of=walk", "-o", "ndjson", "--chunk-size", "2", "--sort-by", "metadata.name"])
        .env("KUBECONFIG", server.data_dir().join("kubeconfig"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut lines, mut said) = (BufReader::new(walk.stdout.take().unwrap()).lines(), walk.stderr.take().unwrap());
    let mut names = Vec::new();
    let mut add = |line: String| {
        let object: Value = serde_json::from_str(&line).unwrap();
        names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
    };
    add(lines.next_line().await.unwrap().unwrap());
    // The client does not read until the snapshot of the first chunk has expired.
    let revision = raw.get(format!("{maps}?limit=1")).await.expect(200).json()["metadata"]["resourceVersion"].clone();
    let begun = Instant::now();
    loop {
        let old = format!("{maps}?resourceVersionMatch=Exact&resourceVersion={}", revision.as_str().unwrap());
        if raw.get(old).await.status == 410 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "history is never cut");
        raw.post(maps, &json!({"metadata": {"generateName": "other-"}})).await.expect(201);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while let Some(line) = lines.next_line().await.unwrap() {
        add(line);
    }
    let mut notes = String::new();
    said.read_to_string(&mut notes).await.unwrap();
    assert_eq!(names, (0..40).map(|number| format!("map-{number:02}")).collect::<Vec<_>>(), "{notes}");
    // On a slow machine the newer snapshot may have expired too.
    let message = "the snapshot of this list expired: the following objects are from a newer one";
    assert!(!notes.is_empty() && notes.lines().all(|line| line == message), "{notes}");
    assert!(walk.wait().await.unwrap().success());
}
