//! Runs the steps of the tutorial of tasks in a browser, among 20,000 pods.
//!
//! The sentences of the steps are the commands: Press, Type, Choose, and what the page shows.

use std::time::Instant;

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{ADMIN, Lab, with_pods};

const TUTORIAL: &str = include_str!("../../../../../docs/tutorials/console-tasks.md");
const HARBOUR: &str = "/apis/apps/v1/namespaces/harbour/deployments";
const MERGE: &str = "application/merge-patch+json";

/// One command of a step.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Press(String),
    /// Text, and the label of its field, if one is named.
    Type(String, Option<String>),
    Choose(String),
    Shows(String),
}

/// A task: its heading and commands.
type Task = (String, Vec<Command>);

/// The tasks of the tutorial.
fn tasks(page: &str) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut steps = String::new();
    for line in page.lines().chain(["## "]) {
        if let Some(heading) = line.strip_prefix("## ") {
            if let Some((_, commands)) = tasks.last_mut() {
                *commands = commands_of(&std::mem::take(&mut steps));
            }
            tasks.push((heading.to_owned(), Vec::new()));
        } else if !tasks.is_empty() {
            steps.push_str(line);
            steps.push(' ');
        }
    }
    tasks.retain(|(heading, _)| !heading.is_empty());
    tasks
}

fn commands_of(text: &str) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut rest = text;
    let marks = [("ress `", "`"), ("ype `", "`"), ("hoose **", "**"), ("hows **", "**")];
    loop {
        let found = marks.iter().filter_map(|(begin, end)| Some((rest.find(begin)?, *begin, *end))).min();
        let Some((at, begin, end)) = found else { return commands };
        let behind = &rest[at + begin.len()..];
        let (word, after) = behind.split_once(end).expect("a mark has an end");
        let word = word.to_owned();
        rest = after;
        commands.push(match begin {
            "ress `" => Command::Press(word),
            "ype `" => {
                let field = after.strip_prefix(" into **").and_then(|field| field.split_once("**"));
                Command::Type(word, field.map(|(field, _)| field.to_owned()))
            }
            "hoose **" => Command::Choose(word),
            _ => Command::Shows(word),
        });
    }
}

/// The objects of the tutorial.
async fn prepare(raw: &Raw) {
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "harbour"}})).await.expect(201);
    for name in ["ferry", "pilot", "crane"] {
        let labels = json!({"app": name});
        let containers = json!([{"name": name, "image": format!("harbour/{name}:1")}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
        raw.post(HARBOUR, &json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await.expect(201);
    }
    let container = json!({"name": "pilot-5d8c", "image": "harbour/pilot:1"});
    let pod = json!({"metadata": {"name": "pilot-5d8c"}, "spec": {"containers": [container]}});
    raw.post("/api/v1/namespaces/harbour/pods", &pod).await.expect(201);
    let waiting = json!({"name": "pilot-5d8c", "image": "harbour/pilot:1", "imageID": "", "ready": false, "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [waiting]}});
    raw.patch("/api/v1/namespaces/harbour/pods/pilot-5d8c/status", MERGE, &status).await.expect(200);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/harbour";
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}]);
    raw.post(format!("{rbac}/roles"), &json!({"metadata": {"name": "secret-keeper"}, "rules": rules}))
        .await
        .expect(201);
    let binding = json!({
        "metadata": {"name": "robots"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "secret-keeper"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "harbour"}],
    });
    raw.post(format!("{rbac}/rolebindings"), &binding).await.expect(201);
    let containers = json!([{"name": "ferry", "image": "harbour/ferry:broken"}]);
    let bad = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    raw.patch(format!("{HARBOUR}/ferry"), MERGE, &bad).await.expect(200);
}

async fn run(lab: &Lab, command: &Command) {
    match command {
        Command::Press(keys) if keys.contains(' ') => {
            for key in keys.split(' ') {
                lab.browser.press(key).await;
            }
        }
        Command::Press(key) => lab.browser.press(key).await,
        Command::Type(text, None) => lab.browser.press(text).await,
        Command::Type(text, Some(label)) => {
            let field = format!(
                "[...document.querySelectorAll('label')].find(one => one.innerText.trim() === {})?.querySelector('input')",
                json!(label)
            );
            lab.browser.until(&format!("{field} !== undefined && {field} !== null")).await;
            lab.browser.value(&format!("({field}.focus(), {field}.select())")).await;
            lab.browser.press(text).await;
        }
        Command::Choose(text) => {
            // The shortest text is that of the thing itself, and not of what holds it.
            let choice = format!(
                "[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button, a, [role^=menuitem], [role=option]')]\
                 .filter(one => one.offsetParent !== null && !one.disabled && one.innerText.includes({}))\
                 .sort((a, b) => a.innerText.length - b.innerText.length)[0]",
                json!(text)
            );
            lab.browser.until(&format!("{choice} !== undefined")).await;
            lab.browser.value(&format!("void {choice}.click()")).await;
        }
        Command::Shows(text) => lab.shows(text).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_of_the_tutorial_of_tasks_lead_to_their_ends() {
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(20_000).await)).await else { return };
    let raw = lab.raw();
    prepare(&raw).await;
    lab.log_in(ADMIN).await;
    let all = tasks(TUTORIAL);
    assert_eq!(all.len(), 5);
    for (heading, commands) in &all {
        assert!(commands.len() >= 5, "{heading}: {commands:?}");
        lab.open("").await;
        lab.browser.until("document.querySelector('.readiness') !== null").await;
        let begun = Instant::now();
        for command in commands {
            run(&lab, command).await;
        }
        eprintln!("task: {heading}: {} commands, {:?}", commands.len(), begun.elapsed());
    }
    // The tasks have had their effects.
    let stored = |name: &str| raw.get(format!("{HARBOUR}/{name}"));
    let ferry: Value = stored("ferry").await.expect(200).json();
    assert_eq!(ferry["spec"]["template"]["spec"]["containers"][0]["image"], "harbour/ferry:1");
    for name in ["ferry", "pilot", "crane"] {
        assert_eq!(stored(name).await.expect(200).json()["spec"]["replicas"], 5, "{name}");
    }
    lab.ends_without_complaints(&["a status of 410"]).await;
}

#[test]
fn sentences_are_commands() {
    let page = "# Title\n\n## A\n\n1. Choose **b**. Press `g d`\n   and `x`. The page shows **c d**.\n2. Type `e` into **F**. Type `g`.\n";
    let word = str::to_owned;
    let expected = vec![
        Command::Choose(word("b")),
        Command::Press(word("g d")),
        Command::Shows(word("c d")),
        Command::Type(word("e"), Some(word("F"))),
        Command::Type(word("g"), None),
    ];
    assert_eq!(tasks(page), [("A".to_owned(), expected)]);
}
