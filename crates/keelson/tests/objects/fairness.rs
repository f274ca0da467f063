//! Tests of priority and fairness: the flow of each request, seats, rejections, and the status of the objects.
//!
//! `fairness/recorded.json` has kube-apiserver's responses to the same requests.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::Method;
use keelson_testkit::{Answer, Call, Raw, TestServer};
use serde_json::{Value, json};

use super::rights::binding;

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const MERGE: &str = "application/merge-patch+json";
const MAPS: &str = "/api/v1/namespaces/flow/configmaps";
const SCHEMA_HEADER: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_HEADER: &str = "x-kubernetes-pf-prioritylevel-uid";
/// The time until a changed object takes effect.
const SOON: Duration = Duration::from_secs(1);
/// The timeout on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn recorded() -> Value {
    serde_json::from_str(include_str!("fairness/recorded.json")).unwrap()
}

/// A request that impersonates a user.
fn named(call: Call, user: &str, groups: &[&str]) -> Call {
    groups
        .iter()
        .fold(call.header("impersonate-user", user), |call, group| call.also_header("impersonate-group", *group))
}

/// A request of a user of the recording; `None` for users that do not exist here.
fn of_recorded(server: &TestServer, user: &str, request: &str) -> Option<Call> {
    let (method, path) = request.split_once(' ').unwrap();
    let method: Method = method.parse().unwrap();
    let call = server.raw().call(method.clone(), path);
    let of = |name: &str, groups: &[&str]| Some(named(server.raw().call(method.clone(), path), name, groups));
    let accounts = "system:serviceaccounts";
    match user {
        "alice (devs)" => of("alice", &["devs"]),
        "alice" => of("alice", &[]),
        "system:node:n1 (system:nodes)" => of("system:node:n1", &["system:nodes"]),
        "bob (system:nodes)" => of("bob", &["system:nodes"]),
        "carol (system:masters)" => of("carol", &["system:masters"]),
        "mixed (system:nodes, system:masters)" => of("mixed", &["system:nodes", "system:masters"]),
        "system:kube-scheduler " | "system:kube-controller-manager " => of(user.trim(), &[]),
        "a service account of a namespace" => {
            of("system:serviceaccount:flow:a", &[accounts, "system:serviceaccounts:flow"])
        }
        "the service account robot" => of("system:serviceaccount:flow:robot", &[accounts]),
        "a service account of kube-system" => of("system:serviceaccount:kube-system:a", &[accounts]),
        "nobody" => Some(server.anonymous().call(method, path)),
        "a wrong token" => Some(server.anonymous().call(method, path).header("authorization", "Bearer wrong")),
        "the administrator" => Some(call),
        "the administrator, impersonating alice" => of("alice", &[]),
        "the administrator, impersonating the scheduler" => of("system:kube-scheduler", &[]),
        "the administrator, impersonating without a user" => Some(call.header("impersonate-group", "a")),
        "alice, impersonating without rights" => None,
        other => panic!("{other}"),
    }
}

/// The names of flow schemas and levels by uid.
async fn names(raw: &Raw) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        let list = raw.get(format!("{FLOW}/{plural}")).await.expect(200).json();
        for item in list["items"].as_array().unwrap() {
            let field = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
            names.insert(field("uid"), field("name"));
        }
    }
    names
}

/// The flow schema and the priority level of a response.
fn flow(answer: &Answer, names: &HashMap<String, String>) -> (Value, Value) {
    let name = |header: &str| {
        let uid = answer.headers.get(header).map(|value| value.to_str().unwrap());
        uid.map_or(Value::Null, |uid| names.get(uid).map_or(json!(uid), |name| json!(name)))
    };
    (name(SCHEMA_HEADER), name(LEVEL_HEADER))
}

/// Waits until a request gets this flow schema.
async fn until_schema(call: impl Fn() -> Call, uid: &Value, time: Duration) {
    let begun = Instant::now();
    loop {
        let answer = call().await;
        if answer.headers.get(SCHEMA_HEADER).is_some_and(|found| found.to_str().unwrap() == uid.as_str().unwrap()) {
            return;
        }
        assert!(begun.elapsed() < time, "{uid} does not count after {time:?}: {:?}", answer.headers);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn check_flows(server: &TestServer, rows: &Value) {
    let names = names(&server.raw()).await;
    for row in rows.as_array().unwrap() {
        let (user, request) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let Some(call) = of_recorded(server, user, request) else { continue };
        let answer = call.await;
        assert_eq!(flow(&answer, &names), (row[3].clone(), row[4].clone()), "{user}: {request}");
    }
}

fn level(name: &str, limited: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "type": "Limited", "limited": limited } })
}

/// A flow schema that assigns all requests of a user to a level of the same name.
fn schema(name: &str, user: &str, precedence: u32) -> Value {
    let rule = json!({
        "subjects": [{ "kind": "User", "user": { "name": user } }],
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
        }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    });
    let spec = json!({
        "priorityLevelConfiguration": { "name": name },
        "matchingPrecedence": precedence,
        "distinguisherMethod": { "type": "ByUser" },
        "rules": [rule],
    });
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// Creates a level and its flow schema for a user with all rights, and waits until they take effect.
async fn with_level(server: &TestServer, name: &str, user: &'static str, limited: &Value) {
    let raw = server.raw();
    let _made_before = raw.post(BINDINGS, &binding(user, "cluster:cluster-admin", ("User", user))).await;
    raw.post(format!("{FLOW}/prioritylevelconfigurations"), &level(name, limited)).await.expect(201);
    let made = raw.post(format!("{FLOW}/flowschemas"), &schema(name, user, 500)).await.expect(201).json();
    until_schema(|| named(raw.get("/version"), user, &[]), &made["metadata"]["uid"], PATIENCE).await;
}

async fn with_namespace() -> TestServer {
    let server = TestServer::start().await;
    server.raw().post("/api/v1/namespaces", &json!({ "metadata": { "name": "flow" } })).await.expect(201);
    server
}

/// A request that holds a seat for some seconds: it waits for a revision that never comes.
fn long_read(server: &TestServer, user: &'static str) -> tokio::task::JoinHandle<Answer> {
    let call = named(server.raw().get(format!("{MAPS}?resourceVersion=999999999")), user, &[]);
    tokio::spawn(async move { call.await })
}

/// Holds a seat with one long read after the other; between two of them the seat is free for a moment.
fn long_reads(server: &TestServer, user: &'static str) -> tokio::task::JoinHandle<()> {
    let raw = server.raw();
    tokio::spawn(async move {
        loop {
            named(raw.get(format!("{MAPS}?resourceVersion=999999999")), user, &[]).await;
        }
    })
}

/// The value of a metric.
async fn metric(raw: &Raw, series: &str) -> Option<f64> {
    let text = raw.get("/metrics").await.expect(200).text();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Waits until a metric has a value that is expected.
async fn until_metric(raw: &Raw, series: &str, is_expected: impl Fn(f64) -> bool) {
    let begun = Instant::now();
    loop {
        let value = metric(raw, series).await;
        if value.is_some_and(&is_expected) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{series} is {value:?}");
    }
}

/// Waits until this number of requests of a level have seats.
async fn until_executing(raw: &Raw, name: &str, count: f64) {
    let series =
        format!("apiserver_flowcontrol_current_executing_requests{{priority_level=\"{name}\",flow_schema=\"{name}\"}}");
    until_metric(raw, &series, |value| value == count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_classified_as_by_the_reference_server() {
    let server = with_namespace().await;
    check_flows(&server, &recorded()["classified"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_match_as_on_the_reference_server() {
    let server = with_namespace().await;
    let (raw, recorded) = (server.raw(), recorded());
    let shares = json!({ "nominalConcurrencyShares": 5, "limitResponse": { "type": "Reject" } });
    raw.post(format!("{FLOW}/prioritylevelconfigurations"), &level("lab", &shares)).await.expect(201);
    let mut last = Value::Null;
    for (name, spec) in recorded["schemas"].as_object().unwrap() {
        let made =
            raw.post(format!("{FLOW}/flowschemas"), &json!({ "metadata": { "name": name }, "spec": spec })).await;
        let made = made.expect(201).json();
        if name == "group-star" {
            last = made["metadata"]["uid"].clone();
        }
    }
    until_schema(|| server.anonymous().get("/anygroup"), &last, PATIENCE).await;
    tokio::time::sleep(SOON).await;
    check_flows(&server, &recorded["matched"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_have_the_seats_of_the_reference_server() {
    let server = TestServer::start().await;
    for (level, seats) in recorded()["nominal"].as_object().unwrap() {
        let series = format!("apiserver_flowcontrol_nominal_limit_seats{{priority_level=\"{level}\"}}");
        until_metric(&server.raw(), &series, |value| Some(value) == seats.as_f64()).await;
    }
}

/// The conformance test "should ensure that requests can be classified by adding FlowSchema and
/// PriorityLevelConfiguration".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_classified_by_an_added_flow_schema_and_level() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let limited = json!({ "nominalConcurrencyShares": 1, "limitResponse": { "type": "Reject" } });
    let level =
        raw.post(format!("{FLOW}/prioritylevelconfigurations"), &level("added", &limited)).await.expect(201).json();
    let schema = raw.post(format!("{FLOW}/flowschemas"), &schema("added", "noxu", 1000)).await.expect(201).json();
    let call = || named(raw.get("/version"), "noxu", &[]);
    until_schema(call, &schema["metadata"]["uid"], SOON).await;
    let answer = call().await;
    assert_eq!(answer.headers[LEVEL_HEADER], level["metadata"]["uid"].as_str().unwrap());
    let other = named(raw.get("/version"), "other", &[]).await;
    assert_ne!(other.headers[SCHEMA_HEADER], answer.headers[SCHEMA_HEADER]);

    // Another flow schema with a lower precedence comes first. A flow schema with a missing level has no effect.
    let mut earlier = schema.clone();
    earlier["metadata"] = json!({ "name": "first" });
    earlier["spec"]["matchingPrecedence"] = json!(999);
    let earlier = raw.post(format!("{FLOW}/flowschemas"), &earlier).await.expect(201).json();
    until_schema(call, &earlier["metadata"]["uid"], SOON).await;
    let names = names(&raw).await;
    raw.delete(format!("{FLOW}/prioritylevelconfigurations/added")).await.expect(200);
    let begun = Instant::now();
    while flow(&call().await, &names) != (json!("global-default"), json!("global-default")) {
        assert!(begun.elapsed() < SOON, "a schema of a missing level counts");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_level_without_seats_refuses_as_the_reference_server_does() {
    let server = with_namespace().await;
    let raw = server.raw();
    let limited = json!({
        "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": { "type": "Reject" },
    });
    with_level(&server, "closed", "tight", &limited).await;
    let lone = named(raw.get(format!("{MAPS}?limit=1")), "tight", &[]).await;
    lone.expect(200);
    let names = names(&raw).await;
    for row in recorded()["refused"].as_array().unwrap() {
        let held = long_reads(&server, "tight");
        until_executing(&raw, "closed", 1.0).await;
        let text = |field: &str| row[field].as_str().unwrap_or_default();
        let what = format!("{} {}", text("method"), text("path"));
        let begun = Instant::now();
        let answer = loop {
            let call = raw.call(text("method").parse().unwrap(), text("path")).header("accept", text("accept"));
            let call = if row["body"].is_null() { call } else { call.json(&row["body"]) };
            let answer = named(call, "tight", &[]).await;
            if json!(answer.status) == row["status"] {
                break answer;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", answer.text());
        };
        assert_eq!(flow(&answer, &names).0, row["flowSchema"], "{what}");
        if answer.status == 429 {
            assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8", "{what}");
            let seconds: u32 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((1..=32).contains(&seconds), "{what}: {seconds}");
            assert_eq!(answer.text(), text("text"), "{what}");
        }
        held.abort();
        until_executing(&raw, "closed", 0.0).await;
    }
    let series = "apiserver_flowcontrol_rejected_requests_total{priority_level=\"closed\",flow_schema=\"closed\",reason=\"concurrency-limit\"}";
    assert!(metric(&raw, series).await.is_some_and(|count| count >= 8.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_a_quarter_of_its_time_in_a_bounded_queue() {
    let server = with_namespace().await;
    let raw = server.raw();
    let limited = json!({
        "nominalConcurrencyShares": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": { "type": "Queue", "queuing": { "queues": 1, "handSize": 1, "queueLengthLimit": 1 } },
    });
    with_level(&server, "waiting", "queued", &limited).await;
    let held = long_read(&server, "queued");
    until_executing(&raw, "waiting", 1.0).await;
    let begun = Instant::now();
    let waits = named(raw.http2().get(format!("{MAPS}?timeout=4s")), "queued", &[]);
    let waits = tokio::spawn(async move { waits.await });
    let inqueue = "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"waiting\",flow_schema=\"waiting\"}";
    while metric(&raw, inqueue).await != Some(1.0) {
        assert!(begun.elapsed() < PATIENCE && !waits.is_finished());
    }
    let full = named(raw.get(MAPS), "queued", &[]).await;
    assert_eq!(full.status, 429, "the queue is full");
    let refused = waits.await.unwrap();
    assert_eq!(refused.status, 429);
    assert!(begun.elapsed() >= Duration::from_millis(990), "{:?}", begun.elapsed());
    for reason in ["queue-full", "time-out"] {
        let series = format!(
            "apiserver_flowcontrol_rejected_requests_total{{priority_level=\"waiting\",flow_schema=\"waiting\",reason=\"{reason}\"}}"
        );
        assert_eq!(metric(&raw, &series).await, Some(1.0), "{reason}");
    }
    for phase in ["waiting", "executing"] {
        let sum = "apiserver_flowcontrol_priority_level_request_utilization_sum";
        let series = format!("{sum}{{priority_level=\"waiting\",phase=\"{phase}\"}}");
        assert!(metric(&raw, &series).await.is_some_and(|nanoseconds| nanoseconds > 0.), "{phase}");
    }
    // A queued request continues when the seat is free.
    named(raw.get(MAPS), "queued", &[]).await.expect(200);
    drop(held);
}

/// Reduces numbers, times and blanks of a table, as in the recording.
fn reduced(text: &str) -> String {
    let cell = |cell: &str| {
        let cell = cell.trim();
        if !cell.is_empty() && cell.trim_start_matches('-').chars().all(|letter| letter.is_ascii_digit()) {
            "<n>".to_owned()
        } else if cell.ends_with('Z') && cell.contains('T') && cell.contains(':') {
            "<time>".to_owned()
        } else if cell.ends_with("ss") || cell == "0s" {
            "<duration>".to_owned()
        } else {
            cell.to_owned()
        }
    };
    let line = |line: &str| line.split(',').map(cell).collect::<Vec<_>>().join(", ").trim().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_levels_queues_and_requests() {
    let server = TestServer::start().await;
    let (raw, recorded) = (server.raw(), recorded());
    for (path, expect) in recorded["dumps"].as_object().unwrap() {
        let answer = raw.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        let text = answer.text();
        let (found, expect) = (reduced(&text), expect.as_str().unwrap());
        assert_eq!(found.lines().next(), expect.lines().next(), "{path}");
        // The recorded server had additional levels, with one queue each.
        for line in expect.lines().filter(|line| !line.starts_with("closed") && !line.starts_with("narrow")) {
            let line = line.replace("admin, get", "keelson-admin, get");
            let is_own = line.starts_with("waiting");
            assert!(is_own || found.lines().any(|known| known == line.trim()), "{path}: {line} in\n{found}");
        }
    }
    let path = "/debug/api_priority_and_fairness/dump_priority_levels";
    raw.call(Method::POST, path).await.expect(200);
    assert_eq!(named(raw.get(path), "alice", &[]).await.status, 403);
    assert_eq!(server.anonymous().get(path).await.status, 403);
    assert_eq!(raw.get("/debug/api_priority_and_fairness/dump_foo").await.status, 404);
    // The right to read the path suffices.
    let role = json!({
        "metadata": { "name": "dumps" },
        "rules": [{ "verbs": ["get"], "nonResourceURLs": ["/debug/api_priority_and_fairness/*"] }],
    });
    raw.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    raw.post(BINDINGS, &binding("dumps", "cluster:dumps", ("User", "alice"))).await.expect(201);
    named(raw.get(path), "alice", &[]).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fairness_two_numbers_limit_requests() {
    let off = TestServer::builder().configure(|config| {
        config.flow.is_fair = false;
        (config.flow.requests, config.flow.mutating) = (1, 1);
    });
    let server = off.start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "flow" } })).await.expect(201);
    let answer = raw.get("/version").await;
    assert!(!answer.headers.contains_key(SCHEMA_HEADER) && !answer.headers.contains_key(LEVEL_HEADER));
    assert_eq!(raw.get("/debug/api_priority_and_fairness/dump_requests").await.status, 404);
    raw.get(format!("{FLOW}/flowschemas/exempt")).await.expect(200);
    raw.post(BINDINGS, &binding("late", "cluster:cluster-admin", ("User", "late"))).await.expect(201);
    let held = long_reads(&server, "late");
    let begun = Instant::now();
    while named(raw.get("/version"), "late", &[]).await.status != 429 {
        assert!(begun.elapsed() < PATIENCE);
    }
    let map = json!({ "metadata": { "name": "w" } });
    named(raw.post(MAPS, &map), "late", &[]).await.expect(201);
    raw.get(format!("{MAPS}?limit=1")).await.expect(200);
    held.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_objects_are_kept_unless_they_are_the_operators() {
    let server = TestServer::builder().configure(|config| config.flow_object_interval = Duration::from_millis(300));
    let server = server.start().await;
    let raw = server.raw();
    let path = |plural: &str, name: &str| format!("{FLOW}/{plural}/{name}");
    let schema = |name: &str| path("flowschemas", name);
    let mark = |value: Value| json!({ "metadata": { "annotations": { "apf.kubernetes.io/autoupdate-spec": value } } });
    let precedence = |number: u32| json!({ "spec": { "matchingPrecedence": number } });
    raw.patch(schema("service-accounts"), MERGE, &mark(json!("false"))).await.expect(200);
    raw.patch(schema("service-accounts"), MERGE, &precedence(8800)).await.expect(200);
    raw.patch(schema("global-default"), MERGE, &precedence(9800)).await.expect(200);
    raw.patch(schema("catch-all"), MERGE, &mark(Value::Null)).await.expect(200);
    raw.delete(schema("probes")).await.expect(200);
    raw.delete(path("prioritylevelconfigurations", "leader-election")).await.expect(200);
    let shares = json!({ "spec": { "exempt": { "nominalConcurrencyShares": 9 } } });
    raw.patch(path("prioritylevelconfigurations", "exempt"), MERGE, &shares).await.expect(200);
    let until = async |path: String, pointer: &str, expect: Value| {
        let begun = Instant::now();
        loop {
            let found = raw.get(&*path).await;
            if found.status == 200 && found.json().pointer(pointer) == Some(&expect) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {}", found.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let annotation = "/metadata/annotations/apf.kubernetes.io~1autoupdate-spec";
    until(schema("global-default"), "/spec/matchingPrecedence", json!(9900)).await;
    until(schema("catch-all"), annotation, json!("true")).await;
    until(schema("probes"), "/spec/matchingPrecedence", json!(2)).await;
    until(path("prioritylevelconfigurations", "leader-election"), "/spec/limited/nominalConcurrencyShares", json!(10))
        .await;
    until(schema("service-accounts"), "/spec/matchingPrecedence", json!(8800)).await;
    until(path("prioritylevelconfigurations", "exempt"), "/spec/exempt/nominalConcurrencyShares", json!(9)).await;
}

/// The lists of one tenant fill all queues of its level while another tenant uses the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tenant_with_many_lists_does_not_starve_the_gets_of_another() {
    let few = TestServer::builder().configure(|config| (config.flow.requests, config.flow.mutating) = (60, 0));
    let server = few.start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "flow" } })).await.expect(201);
    for number in 0..60 {
        let map = json!({ "metadata": { "name": format!("m{number}") }, "data": { "a": "x".repeat(100_000) } });
        raw.post(MAPS, &map).await.expect(201);
    }
    let everyone = binding("everyone", "cluster:cluster-admin", ("Group", "system:authenticated"));
    raw.post(BINDINGS, &everyone).await.expect(201);
    let lists = (0..40).map(|_| {
        let raw = server.raw();
        tokio::spawn(async move {
            loop {
                let _whole = named(raw.get(MAPS), "noisy", &[]).try_send().await;
            }
        })
    });
    let lists: Vec<_> = lists.collect();
    let inqueue = "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"global-default\",flow_schema=\"global-default\"}";
    until_metric(&raw, inqueue, |lists| lists >= 10.0).await;
    let quiet = server.raw();
    let mut times = Vec::new();
    for number in 0..100 {
        let begun = Instant::now();
        named(quiet.get(format!("{MAPS}/m{}", number % 60)), "quiet", &[]).await.expect(200);
        times.push(begun.elapsed());
    }
    lists.iter().for_each(tokio::task::JoinHandle::abort);
    times.sort();
    // Each list takes about a second of this machine, and 40 of them wait.
    assert!(times[95] < Duration::from_secs(2), "{times:?}");
}

/// A user who may write flow schemas and levels can neither lock out administrators nor slow down all requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_schemas_of_a_user_lock_no_administrator_out() {
    let server = with_namespace().await;
    let raw = server.raw();
    let limited =
        json!({ "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": { "type": "Reject" } });
    raw.post(format!("{FLOW}/prioritylevelconfigurations"), &level("trap", &limited)).await.expect(201);
    let everyone = |name: &str, precedence: u32, count: usize| {
        let mut made = schema("trap", "*", precedence);
        made["metadata"]["name"] = json!(name);
        let mut subjects = vec![json!({ "kind": "Group", "group": { "name": "*" } })];
        subjects.extend((0..count).map(|number| json!({ "kind": "User", "user": { "name": format!("u{number}") } })));
        made["spec"]["rules"][0]["subjects"] = json!(subjects);
        made
    };
    // Precedence 1 is reserved for administrators.
    raw.post(format!("{FLOW}/flowschemas"), &everyone("one", 1, 0)).await.expect(422);
    raw.post(format!("{FLOW}/flowschemas"), &everyone(&"a".repeat(254), 2, 0)).await.expect(422);
    for number in 0..300 {
        let name = format!("{}-{number}", "a".repeat(240));
        raw.post(format!("{FLOW}/flowschemas"), &everyone(&name, 2, 0)).await.expect(201);
    }
    raw.post(format!("{FLOW}/flowschemas"), &everyone("many-subjects", 2, 5_000)).await.expect(201);
    let begun = Instant::now();
    let names = names(&raw).await;
    while flow(&named(raw.get("/version"), "ann", &[]).await, &names).1 != json!("trap") {
        assert!(begun.elapsed() < PATIENCE);
    }
    let answer = raw.get("/version").await;
    assert_eq!(flow(&answer, &names), (json!("exempt"), json!("exempt")));
    raw.delete(format!("{FLOW}/flowschemas")).await.expect(200);
    raw.delete(format!("{FLOW}/prioritylevelconfigurations")).await.expect(200);
    let begun = Instant::now();
    while flow(&named(raw.get("/version"), "ann", &[]).await, &names).1 == json!("trap") {
        assert!(begun.elapsed() < PATIENCE);
    }
    raw.get("/version").await.expect(200);
}
