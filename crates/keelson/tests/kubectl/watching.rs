//! Tests of `kubectl get -w`.
//!
//! The command prints a row for each event until it is stopped.

use keelson_testkit::KubectlStream;
use serde_json::Value;

use crate::Shell;

#[tokio::test]
async fn a_watch_prints_each_change_as_it_happens() {
    let shell = Shell::start().await;
    shell.ok("create configmap first").await;
    let mut watch = shell.follow("get configmaps -w --output-watch-events").await;
    let mut line = async || watch.next_line().await.unwrap().split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(line().await, "EVENT NAME");
    assert_eq!(line().await, "ADDED first");
    shell.ok("create configmap second").await;
    assert_eq!(line().await, "ADDED second");
    shell.ok("label configmap first a=b").await;
    assert_eq!(line().await, "MODIFIED first");
    shell.ok("delete configmap second").await;
    assert_eq!(line().await, "DELETED second");
    watch.stop().await;
}

#[tokio::test]
async fn a_watch_of_changes_only_starts_with_the_first_one() {
    let shell = Shell::start().await;
    shell.ok("create configmap first").await;
    let mut watch = shell.follow("get configmaps --watch-only -o name").await;
    // A watch misses changes from before it is open, so the test makes changes until the watch shows one.
    let line = tokio::select! {
        line = watch.next_line() => line.unwrap(),
        () = keep_labelling(&shell) => unreachable!("labelling goes on"),
    };
    assert_eq!(line, "configmap/first");
    watch.stop().await;
}

async fn keep_labelling(shell: &Shell) {
    for number in 0.. {
        shell.ok(&format!("label configmap first number={number} --overwrite")).await;
    }
}

#[tokio::test]
async fn a_selected_watch_sees_objects_enter_and_leave() {
    let shell = Shell::start().await;
    shell.ok("create namespace team").await;
    shell.ok("create configmap marker -n team").await;
    shell.ok("label configmap marker -n team tier=web").await;
    let mut watch = shell.follow("get configmaps -A -l tier=web -w --output-watch-events -o json").await;
    assert_eq!(next(&mut watch).await, ("ADDED".to_owned(), "marker".to_owned()));
    shell.ok("create configmap other").await;
    shell.ok("label configmap other tier=web").await;
    assert_eq!(next(&mut watch).await, ("ADDED".to_owned(), "other".to_owned()));
    shell.ok("label configmap other tier-").await;
    assert_eq!(next(&mut watch).await, ("DELETED".to_owned(), "other".to_owned()));
    shell.ok("delete namespace team").await;
    assert_eq!(next(&mut watch).await, ("DELETED".to_owned(), "marker".to_owned()));
    watch.stop().await;
}

/// Reads one event: its type and the name of its object.
async fn next(watch: &mut KubectlStream) -> (String, String) {
    let event: Value = serde_json::from_str(&watch.next_line().await.unwrap()).unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    (word(&event["type"]), word(&event["object"]["metadata"]["name"]))
}
