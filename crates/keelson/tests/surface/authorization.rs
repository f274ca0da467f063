//! Tests that every request is authorized: each served resource, subresource and verb, including custom and aggregated
//! ones, and every other path. A user without the right gets an error that names this right, and a user with the right
//! does not.
//!
//! The test reads the served resources from the server, so a new resource or path without a case fails.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use http::Method;
use keelson_testkit::{TestServer, definition, definition_version};
use serde_json::{Value, json};
use tempfile::TempDir;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const AGGREGATED_GROUP: &str = "away.example.org";
/// The longest time until a defined resource is served.
const PATIENCE: Duration = Duration::from_secs(60);

/// The users who may read a path without a role of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Everybody,
    /// Every authenticated user.
    Known,
    Nobody,
}

/// The users for each path. A path that ends in `*` matches all with this prefix. The first match counts.
const PATHS: [(&str, Who); 19] = [
    ("/healthz", Who::Everybody),
    ("/livez", Who::Everybody),
    ("/readyz", Who::Everybody),
    ("/version", Who::Everybody),
    ("/api", Who::Known),
    ("/api/*", Who::Known),
    ("/apis", Who::Known),
    ("/apis/*", Who::Known),
    ("/openapi/*", Who::Known),
    // The page for the login.
    ("/console", Who::Everybody),
    ("/console/*", Who::Everybody),
    // A path that is not served.
    ("/nowhere", Who::Nobody),
    ("/", Who::Nobody),
    ("/metrics", Who::Nobody),
    ("/metrics/slis", Who::Nobody),
    ("/healthz/*", Who::Nobody),
    ("/livez/*", Who::Nobody),
    ("/readyz/*", Who::Nobody),
    // Service accounts may read it by a role.
    ("/.well-known/openid-configuration", Who::Nobody),
];
/// The keys of the issuer are as public as its document.
const KEY_SET: &str = "/openid/v1/jwks";

/// The reviews that every authenticated user may create about itself.
const OWN_QUESTIONS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// A served resource or subresource.
#[derive(Clone, Debug)]
struct ServedPath {
    group: String,
    version: String,
    /// With its subresource.
    resource: String,
    namespaced: bool,
    verbs: Vec<String>,
}

impl ServedPath {
    fn path(&self, is_named: bool) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let place = if self.namespaced { "/namespaces/a" } else { "" };
        let (plural, below) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let name = if is_named || !below.is_empty() { "/x" } else { "" };
        let below = if below.is_empty() { String::new() } else { format!("/{below}") };
        format!("{root}/{}{place}/{plural}{name}{below}", self.version)
    }

    /// The request for a verb, which changes nothing. The last value is true if it names an object.
    fn request(&self, verb: &str) -> (Method, String, bool) {
        let (method, is_named, query) = match verb {
            "get" => (Method::GET, true, ""),
            "list" => (Method::GET, false, "?limit=1"),
            // The watch ends at once, since the revision is invalid.
            "watch" => (Method::GET, false, "?watch=1&resourceVersion=x"),
            "create" => (Method::POST, self.resource.contains('/'), "?dryRun=All"),
            "update" => (Method::PUT, true, "?dryRun=All"),
            "patch" => (Method::PATCH, true, "?dryRun=All"),
            "delete" => (Method::DELETE, true, "?dryRun=All"),
            "deletecollection" => (Method::DELETE, false, "?dryRun=All"),
            other => panic!("the verb {other} of {self:?} has no case"),
        };
        (method, format!("{}{query}", self.path(is_named)), is_named)
    }

    /// The expected error for a user without the right.
    fn refusal(&self, verb: &str, is_named: bool) -> String {
        let Self { group, resource, .. } = self;
        let plural = resource.split('/').next().unwrap_or_default();
        let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let name = if is_named { " \"x\"" } else { "" };
        let scope = match (self.namespaced, plural, is_named) {
            (true, ..) => "in the namespace \"a\"".to_owned(),
            (false, "namespaces", true) => "in the namespace \"x\"".to_owned(),
            _ => "at the cluster scope".to_owned(),
        };
        format!(
            "{qualified}{name} is forbidden: User \"bob\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}"
        )
    }
}

/// All served resources according to discovery.
async fn served(server: &TestServer) -> Vec<ServedPath> {
    let raw = server.raw();
    let mut versions = vec![(String::new(), "v1".to_owned())];
    for group in raw.get("/apis").await.expect(200).json()["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap().to_owned();
        let of_group = group["versions"].as_array().unwrap().iter();
        versions.extend(of_group.map(|version| (name.clone(), version["version"].as_str().unwrap().to_owned())));
    }
    let mut all = Vec::new();
    for (group, version) in versions.into_iter().filter(|(group, _)| group != AGGREGATED_GROUP) {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let list = raw.get(path).await.expect(200).json();
        for resource in list["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap().to_owned());
            all.push(ServedPath {
                group: group.clone(),
                version: version.clone(),
                resource: resource["name"].as_str().unwrap().to_owned(),
                namespaced: resource["namespaced"] == true,
                verbs: verbs.collect(),
            });
        }
    }
    // The resources of an unavailable aggregated server are not in discovery, but requests for them are still
    // authorized.
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    all.push(ServedPath {
        group: AGGREGATED_GROUP.to_owned(),
        version: "v1".to_owned(),
        resource: "things".to_owned(),
        namespaced: true,
        verbs: verbs.map(str::to_owned).to_vec(),
    });
    all
}

struct Cluster {
    server: TestServer,
    _files: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let tokens = files.path().join("tokens.csv");
        fs::write(&tokens, "bob,bob,\n").unwrap();
        let server = TestServer::builder().configure(move |config| config.token_file = Some(tokens)).start().await;
        let admin = server.raw();
        admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await.expect(201);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut version = definition_version("v1", true, schema);
        version["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
        let boats = definition("fleet.example.org", "boats", "Boat", json!([version]));
        admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &boats).await.expect(201);
        let service = json!({"namespace": "a", "name": "away"});
        let spec = json!({"group": AGGREGATED_GROUP, "version": "v1", "service": service, "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100, "versionPriority": 10});
        let name = format!("v1.{AGGREGATED_GROUP}");
        let registration = json!({"metadata": {"name": name}, "spec": spec});
        admin.post("/apis/apiregistration.k8s.io/v1/apiservices", &registration).await.expect(201);
        let begun = std::time::Instant::now();
        while admin.get("/apis/fleet.example.org/v1").await.status != 200 {
            assert!(begun.elapsed() < PATIENCE, "the definition is not served");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { server, _files: files }
    }

    /// The code and the message of the response to bob.
    async fn ask(&self, method: Method, path: &str) -> (u16, String) {
        // A deletion reads its options from the body, so it has none here.
        let is_write = ![Method::GET, Method::DELETE].contains(&method);
        let call = self.server.anonymous().call(method, path).header("authorization", "Bearer bob");
        let call = if is_write { call.json(&json!({})) } else { call };
        let answer = call.await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        (answer.status, body["message"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_of_every_resource_takes_the_right_to_just_that() {
    let cluster = Cluster::start().await;
    let all = served(&cluster.server).await;
    assert!(all.len() > 120 && all.iter().any(|one| one.group == "fleet.example.org"), "{}", all.len());
    for one in &all {
        for verb in &one.verbs {
            let (method, path, is_named) = one.request(verb);
            let (status, message) = cluster.ask(method, &path).await;
            if OWN_QUESTIONS.contains(&(&one.group, &one.resource)) {
                assert_ne!(status, 403, "{verb} {path}");
                continue;
            }
            assert_eq!((status, message), (403, one.refusal(verb, is_named)), "{verb} {path}");
        }
    }
    let admin = cluster.server.raw();
    let role = json!({"metadata": {"name": "exact"}, "rules": []});
    admin.post(format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "exact"});
    let binding =
        json!({"metadata": {"name": "exact"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "bob"}]});
    admin.post(format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    let resources: BTreeSet<(&str, &str)> = all.iter().map(|one| (&*one.group, &*one.resource)).collect();
    for (group, resource) in resources {
        let served = all.iter().filter(|one| one.group == group && one.resource == resource);
        let verbs: BTreeSet<&String> = served.clone().flat_map(|one| &one.verbs).collect();
        let rules = json!({"rules": [{"verbs": verbs, "apiGroups": [group], "resources": [resource]}]});
        let patch = "application/merge-patch+json";
        admin.patch(format!("{RBAC}/clusterroles/exact"), patch, &rules).await.expect(200);
        for one in served {
            for verb in &one.verbs {
                let (method, path, is_named) = one.request(verb);
                let (status, message) = cluster.ask(method, &path).await;
                assert_ne!(message, one.refusal(verb, is_named), "{verb} {path}: {status}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_and_anonymous_paths_are_open() {
    let cluster = Cluster::start().await;
    let paths = cluster.server.raw().get("/").await.expect(200).json()["paths"].clone();
    let listed = paths.as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned());
    let more = ["/", "/metrics", KEY_SET, "/.well-known/openid-configuration", "/nowhere"];
    let of_console = ["/console", "/console/", "/console/r/core/v1/pods", "/console/assets/nothing.js"];
    let more = more.into_iter().chain(of_console).map(str::to_owned);
    let all: BTreeSet<String> = listed.chain(more).collect();
    for path in &all {
        let case = PATHS.into_iter().chain([(KEY_SET, Who::Nobody)]).find(|(known, _)| match known.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == known,
        });
        let (_, who) = case.unwrap_or_else(|| panic!("{path} has no case: who may ask for it?"));
        let anonymous = cluster.server.anonymous().get(path.as_str()).await.status;
        let (known, message) = cluster.ask(Method::GET, path).await;
        assert_eq!(anonymous != 403, who == Who::Everybody, "{path}: {anonymous}");
        assert_eq!(known != 403, who != Who::Nobody, "{path}: {known}");
        if who == Who::Nobody {
            assert_eq!(message, format!("forbidden: User \"bob\" cannot get path \"{path}\""));
        }
        let (written, _) = cluster.ask(Method::POST, path).await;
        assert_eq!(written, 403, "{path}: nobody may post there without a role");
    }
    // Only users with the right get a 404.
    let admin = cluster.server.raw();
    for path in ["/nowhere", "/console/assets/nothing.js"] {
        admin.get(path).await.expect(404);
    }
}
