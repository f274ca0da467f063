//! Tests of the families of `/metrics`: the page that describes them, and the alerts and the dashboard that use them.
//!
//! For a family that the page lacks, the test prints the row to add.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use keelson_testkit::{DEFINITIONS, HookReply, HookServer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::metrics::metrics;

/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// Labels that Prometheus adds, and the label of histogram buckets.
const ADDED: [&str; 3] = ["job", "instance", "le"];
/// The page that describes all families.
const PAGE: &str = "docs/reference/metrics.md";
/// The prefixes of the names of families.
const PREFIXES: [&str; 18] = [
    "aggregator_",
    "apiextensions_",
    "apiserver_",
    "authenticated_",
    "authentication_",
    "authorization_",
    "etcd_",
    "field_validation_",
    "keelson_",
    "kube_apiserver_",
    "kubernetes_",
    "node_authorizer_",
    "pod_security_",
    "process_",
    "rest_client_",
    "serviceaccount_",
    "watch_cache_",
    "workqueue_",
];

/// The stable and beta families of kube-apiserver, with their labels.
const STABLE: [(&str, &str); 29] = [
    ("apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds", "apiserver_id_hash status"),
    ("apiserver_authentication_config_controller_automatic_reloads_total", "apiserver_id_hash status"),
    ("apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds", "apiserver_id_hash status"),
    ("apiserver_authorization_config_controller_automatic_reloads_total", "apiserver_id_hash status"),
    ("apiserver_cel_compilation_duration_seconds", ""),
    ("apiserver_cel_evaluation_duration_seconds", ""),
    ("apiserver_flowcontrol_current_executing_requests", "flow_schema priority_level"),
    ("apiserver_flowcontrol_current_executing_seats", "flow_schema priority_level"),
    ("apiserver_flowcontrol_current_inqueue_requests", "flow_schema priority_level"),
    ("apiserver_flowcontrol_dispatched_requests_total", "flow_schema priority_level"),
    ("apiserver_flowcontrol_nominal_limit_seats", "priority_level"),
    ("apiserver_flowcontrol_rejected_requests_total", "flow_schema priority_level reason"),
    ("apiserver_flowcontrol_request_wait_duration_seconds", "execute flow_schema priority_level"),
    (
        "apiserver_validating_admission_policy_check_duration_seconds",
        "enforcement_action error_type policy policy_binding",
    ),
    ("apiserver_validating_admission_policy_check_total", "enforcement_action error_type policy policy_binding"),
    ("kubernetes_feature_enabled", "name stage"),
    ("apiserver_admission_controller_admission_duration_seconds", "name operation rejected type"),
    ("apiserver_admission_step_admission_duration_seconds", "operation rejected type"),
    ("apiserver_admission_webhook_admission_duration_seconds", "name operation rejected type"),
    ("apiserver_current_inflight_requests", "request_kind"),
    ("apiserver_longrunning_requests", "component group resource scope subresource verb version"),
    ("apiserver_request_duration_seconds", "component dry_run group resource scope subresource verb version"),
    ("apiserver_request_total", "code component dry_run group resource scope subresource system_client verb version"),
    ("apiserver_requested_deprecated_apis", "group removed_release resource subresource version"),
    ("apiserver_response_sizes", "component group resource scope subresource verb version"),
    ("apiserver_storage_objects", "resource"),
    ("apiserver_storage_size_bytes", "storage_cluster_id"),
    ("kubernetes_healthcheck", "name type"),
    ("kubernetes_healthchecks_total", "name status type"),
];

/// A family in a scrape or in the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The families of a scrape in the classic format.
fn scraped(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            current = name.to_owned();
            families.entry(current.clone()).or_default().kind = kind.to_owned();
        } else if !line.starts_with('#') {
            let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            families.get_mut(&current).unwrap().labels.extend(label_names(labels));
        }
    }
    families
}

/// The names of the labels between the braces of a sample or a selector.
fn label_names(labels: &str) -> BTreeSet<String> {
    let (mut names, mut name, mut is_quoted, mut is_escaped) = (BTreeSet::new(), String::new(), false, false);
    for letter in labels.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '=' | '!' | '~' | ',' | ' ' | '\n' => {
                if !name.is_empty() {
                    names.insert(std::mem::take(&mut name));
                }
            }
            letter => name.push(letter),
        }
    }
    names.remove("le");
    names
}

/// The families of the page: a row for each, with the name, the type and the labels.
fn described() -> BTreeMap<String, Family> {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.trim_end_matches('|').split(" | ");
        let name = cells.next().unwrap().trim_end_matches('`').to_owned();
        let kind = cells.next().unwrap_or_else(|| panic!("{name} has no type")).to_owned();
        let labels = cells.next().unwrap_or_else(|| panic!("{name} has no labels"));
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        (name, Family { kind, labels: labels.filter(|label| !label.is_empty()).collect() })
    })
    .collect()
}

async fn until(what: &str, raw: &Raw, is_there: impl Fn(&str) -> bool) {
    let waited = async {
        while !is_there(&metrics(raw).await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("{what} is not counted"));
}

/// The metrics of a server after requests that cause every family.
async fn exercised() -> String {
    let files = TempDir::new().unwrap();
    let (policy, log) = (files.path().join("policy.yaml"), files.path().join("audit.log"));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
    let server = TestServer::builder().every_version().sqlite().configure(move |config| {
        config.audit.policy_file = Some(policy);
        config.audit.log.path = Some(log);
    });
    let server = server.start().await;
    let raw = server.raw();
    // The webhook answers the first call, and the second fails open.
    let hook = HookServer::start(&["127.0.0.1"], |request| {
        let allowed = json!({ "uid": request.body["request"]["uid"], "allowed": request.path.contains("allows") });
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": allowed });
        std::future::ready(if request.path.contains("fails") { HookReply::Closes } else { HookReply::Json(review) })
    })
    .await;
    let rule =
        json!({ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] });
    let webhook = |name: &str, policy: &str| {
        json!({
            "name": format!("{name}.example.org"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": policy, "rules": [rule],
            "clientConfig": { "url": hook.url(&format!("/{name}")), "caBundle": hook.ca_bundle() },
            "objectSelector": { "matchLabels": { "hook": name } },
            "matchConditions": [{ "name": "named", "expression": "object.metadata.name != 'excluded'" }],
        })
    };
    let webhooks = [webhook("allows", "Fail"), webhook("denies", "Fail"), webhook("fails-open", "Ignore")];
    let configuration = json!({ "metadata": { "name": "counted" }, "webhooks": webhooks });
    raw.post(format!("{ADMISSION}/validatingwebhookconfigurations"), &configuration).await.expect(201);
    policies(&raw, &rule).await;
    let map = |name: &str, label: &str| json!({ "metadata": { "name": name, "labels": { "hook": label } } });
    // Admission reads its configuration from the cache, which may lag.
    for (number, hook) in ["allows", "denies", "fails-open", "allows"].into_iter().enumerate() {
        raw.post(MAPS, &map(&format!("map-{number}"), hook)).await;
    }
    raw.post(MAPS, &map("excluded", "allows")).await.expect(201);
    until("a webhook that fails", &raw, |text| text.contains("apiserver_admission_webhook_fail_open_count")).await;
    until("a policy", &raw, |text| text.contains("apiserver_mutating_admission_policy_check_total")).await;
    events(&raw).await;
    metrics(&raw).await
}

/// Creates a policy of each kind for ConfigMaps.
async fn policies(raw: &Raw, rule: &Value) {
    let constraints = json!({ "resourceRules": [rule] });
    let validating = json!({
        "metadata": { "name": "counted" },
        "spec": {
            "matchConstraints": constraints,
            "matchConditions": [{ "name": "named", "expression": "object.metadata.name != 'excluded'" }],
            "validations": [{ "expression": "object.metadata.name != 'forbidden'" }],
        },
    });
    raw.post(format!("{ADMISSION}/validatingadmissionpolicies"), &validating).await.expect(201);
    let binding = json!({ "metadata": { "name": "counted" }, "spec": { "policyName": "counted", "validationActions": ["Deny"] } });
    raw.post(format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await.expect(201);
    let expression = "Object{metadata: Object.metadata{labels: {'counted': 'yes'}}}";
    let mutating = json!({
        "metadata": { "name": "counted" },
        "spec": {
            "matchConstraints": constraints, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } }],
        },
    });
    raw.post(format!("{ADMISSION}/mutatingadmissionpolicies"), &mutating).await.expect(201);
    let binding = json!({ "metadata": { "name": "counted" }, "spec": { "policyName": "counted" } });
    raw.post(format!("{ADMISSION}/mutatingadmissionpolicybindings"), &binding).await.expect(201);
}

/// Sends watches with and without a mark after their initial events, a rejected pod, and a request with impersonation.
async fn events(raw: &Raw) {
    let path =
        format!("{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan");
    let mut watch = raw.get(path).stream().await;
    loop {
        let event = watch.next_json().await.expect("a bookmark at the end of the first objects");
        if event["type"] == "BOOKMARK" {
            break;
        }
    }
    raw.get(format!("{MAPS}?labelSelector=counted%3Dyes")).await.expect(200);
    raw.get("/apis/resource.k8s.io/v1beta1/deviceclasses").await.expect(200);
    raw.get(MAPS).header("impersonate-user", "ann").await.expect(403);
    let definition = json!({
        "metadata": { "name": "berths.counted.example.org" },
        "spec": {
            "group": "counted.example.org", "scope": "Cluster", "names": { "plural": "berths", "kind": "Berth" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    });
    raw.post(DEFINITIONS, &definition).await.expect(201);
    until("a definition", raw, |text| text.contains("apiextensions_openapi_v3_regeneration_count")).await;
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "confined", "labels": labels } })).await.expect(201);
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    raw.post("/api/v1/namespaces/confined/pods", &pod).await.expect(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_alerts_and_dashboard_name_existing_metrics() {
    let text = exercised().await;
    let (found, described) = (scraped(&text), described());
    let mut faults = Vec::new();
    for (name, family) in &found {
        match described.get(name) {
            None => faults.push(format!("{PAGE} lacks: | `{name}` | {} | {:?} |", family.kind, family.labels)),
            Some(known) if known.kind != family.kind => faults.push(format!("{name} is a {}", family.kind)),
            Some(known) if !family.labels.is_subset(&known.labels) => {
                faults.push(format!("{name} has the labels {:?}", family.labels));
            }
            Some(_) => {}
        }
    }
    for (name, labels) in STABLE {
        let labels: BTreeSet<String> = labels.split_whitespace().map(str::to_owned).collect();
        for (place, family) in [("page", described.get(name)), ("scrape", found.get(name))] {
            let is_equal = family.is_some_and(|family| family.labels == labels);
            // A family without a sample has no labels.
            if !is_equal && (place == "page" || family.is_some_and(|family| !family.labels.is_empty())) {
                faults.push(format!("{name} has other labels in the {place} than {labels:?}"));
            }
        }
    }
    for (file, expression) in expressions() {
        faults.extend(faults_of(&expression, &found).into_iter().map(|fault| format!("{file}: {fault}: {expression}")));
    }
    assert!(faults.is_empty(), "{}\n{text}", faults.join("\n"));
}

/// Families that a scrape rarely shows, such as those of other stores, are still named in the sources.
#[test]
fn each_family_of_the_page_is_in_the_sources() {
    let mut sources = String::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let is_named = |name: &str| {
        let bare = name.strip_suffix("_total").unwrap_or(name);
        let behind_prefix = bare.strip_prefix("aggregator_discovery_").unwrap_or(bare);
        [name, bare, behind_prefix].iter().any(|name| sources.contains(&format!("\"{name}\"")))
    };
    let unknown: Vec<String> = described().into_keys().filter(|name| !is_named(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The expressions of the alerts and of the dashboard, with their files.
fn expressions() -> Vec<(&'static str, String)> {
    let read = |file: &str| fs::read_to_string(root().join("packaging/monitoring").join(file)).unwrap();
    let rules = read("alerts.yaml");
    let mut found = Vec::new();
    let mut lines = rules.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((indent, stated)) = line.split_once("expr: ") else { continue };
        let mut expression = stated.to_owned();
        if stated == "|" {
            // The lines of a block have a larger indentation than its key.
            let is_of_block = |line: &&str| line.len() - line.trim_start().len() > indent.len();
            expression.clear();
            while let Some(line) = lines.next_if(is_of_block) {
                expression.push_str(line);
            }
        }
        found.push(("alerts.yaml", expression));
    }
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push(("dashboard.json", target["expr"].as_str().unwrap().to_owned()));
        }
    }
    assert!(found.len() > 50, "{found:?}");
    found
}

/// The families and labels of an expression that are missing in a scrape.
fn faults_of(expression: &str, found: &BTreeMap<String, Family>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut labels: BTreeSet<String> = ADDED.map(str::to_owned).into();
    let mut grouped = BTreeSet::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_alphabetic() || letter == '_') {
        let length = rest[start..].find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let (word, behind) = rest[start..].split_at(length.unwrap_or(rest.len() - start));
        rest = behind;
        let selector = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
        if let Some((selector, behind)) = selector {
            rest = behind;
            let stated = label_names(selector);
            if word == "up" {
                continue;
            }
            let family = found.get(word).or_else(|| {
                let histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end))?;
                found.get(histogram).filter(|family| family.kind == "histogram")
            });
            let Some(family) = family else {
                faults.push(format!("there is no {word}"));
                continue;
            };
            let unknown: Vec<_> =
                stated.iter().filter(|label| !family.labels.contains(*label) && !ADDED.contains(&&***label)).collect();
            if !unknown.is_empty() {
                faults.push(format!("{word} has no {unknown:?}"));
            }
            labels.extend(family.labels.iter().cloned());
        } else if PREFIXES.iter().any(|prefix| word.starts_with(prefix)) && found.contains_key(word) {
            faults.push(format!("{word} selects no job"));
        } else if word == "by" || word == "on" {
            let (inner, behind) = behind.trim_start().strip_prefix('(').unwrap().split_once(')').unwrap();
            grouped.extend(inner.split(',').map(|label| label.trim().to_owned()));
            rest = behind;
        }
    }
    faults.extend(grouped.difference(&labels).map(|label| format!("nothing has the label {label}")));
    let count = |letter: char| expression.matches(letter).count();
    if count('(') != count(')') || count('{') != count('}') {
        faults.push("brackets do not match".to_owned());
    }
    faults
}

/// If promtool is installed, it checks the rules and runs their tests.
#[test]
fn promtool_takes_the_alerts_and_their_cases() {
    let folder = root().join("packaging/monitoring");
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts-test.yaml"]] {
        let Ok(output) = Command::new("promtool").args(arguments).current_dir(&folder).output() else { return };
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }
}
