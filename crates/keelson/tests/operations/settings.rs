//! Tests of settings that the command line rejects, of the server's messages at the start, and of the limits of its
//! process.
//!
//! A wrong setting must fail at the start, not at the first request.

use std::time::Duration;

use futures::StreamExt as _;
use keelson_testkit::{Call, ProcessServer, ProcessServerBuilder, Raw};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

/// The longest time for a start that must fail.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks that the server ends at once and leaves nothing. Returns its output.
async fn refused(args: &[&str]) -> String {
    refused_on("127.0.0.1:0", args).await
}

/// Checks the same for a server with this address.
async fn refused_on(address: &str, args: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--bind", address, "--data-dir"]).arg(&data).args(args).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("the server does not start").unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?}: {text}");
    assert!(!data.exists(), "{args:?}: a start that was refused has left something behind");
    text
}

/// Checks that the server ends at once, with `expect` in its output.
async fn check_refused(args: &[&str], expect: &str) {
    let text = refused(args).await;
    assert!(text.contains(expect), "{args:?}: {text}");
}

/// A privacy setting with an unknown name would not protect what it should.
#[tokio::test]
async fn a_setting_that_names_nothing_is_refused() {
    let secrets = |name: &str| format!("there is no resource {name:?}; did you mean secrets?");
    check_refused(&["--no-chunking", "secretz"], &secrets("secretz")).await;
    check_refused(&["--no-chunking=configmaps,Secret"], &secrets("Secret")).await;
    check_refused(&["--no-chunking", "roles"], "did you mean roles.rbac.authorization.k8s.io?").await;
    let choices = "\"some\" is none of as-others, none and next-visible";
    check_refused(&["--chunks-for-partial-rights", "some"], choices).await;
    check_refused(&["--tls-san", "bad..name"], "\"bad..name\" is neither a DNS name nor an IP address").await;
    let unknown = "\"deployment-controller\" is not in the list of known controllers: ";
    check_refused(&["--controllers=*,-deployment-controller"], unknown).await;
    let range = "\"10.0.0.0\" is not a range such as 10.96.0.0/12";
    check_refused(&["--service-cluster-ip-range", "10.0.0.0"], range).await;
    let families = "two ranges must be of different IP families";
    check_refused(&["--service-cluster-ip-range", "10.0.0.0/24,10.1.0.0/24"], families).await;
    let ports = "\"9-1\" is not a range of ports such as 30000-32767";
    check_refused(&["--service-node-port-range", "9-1"], ports).await;
    for threads in ["0", "4097"] {
        check_refused(&["--threads", threads], &format!("{threads} is not in 1..=4096")).await;
    }
    check_refused(&["--feature-gates", "Nope=true"], "unrecognized feature gate: Nope").await;
    let locked = "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true";
    check_refused(&["--feature-gates=WatchList=true,DynamicResourceAllocation=false"], locked).await;
    check_refused(&["--emulated-version=1.35"], "emulation version 1.35 is not between [1.36, ").await;
    check_refused(&["--server-id", ""], "a value is required for '--server-id").await;
    let versions = "reading --runtime-config: ";
    for (setting, why) in [
        ("v1=false", "\"v1\" is not of the form group/version or group/version/resource (/v1 is the core group)"),
        ("nothing.example.com/v1=false", "unknown API group \"nothing.example.com\""),
        ("batch/v1,batch/v9=false", "there is no built-in version \"batch/v9\""),
        ("api/all=false", "with api/all=false alone nothing would be served"),
    ] {
        check_refused(&["--runtime-config", setting], &format!("{versions}{why}")).await;
    }
}

/// The URL of a store may contain a password, and the output of a start ends up in logs.
#[tokio::test]
async fn invalid_store_urls_are_refused_without_their_password() {
    for (url, why) in [("mysql://me:hunter2@host/db", "unknown store"), ("postgres://me:hunter2@host", "no database")] {
        let text = refused(&["--store", url]).await;
        assert!(text.contains("reading --store") && text.contains(why) && !text.contains("hunter2"), "{text}");
    }
}

/// Late errors also leave no keys ([`refused`] checks this), which would belong to a cluster that never existed.
#[tokio::test]
async fn invalid_settings_stop_the_start() {
    let files = TempDir::new().unwrap();
    let nonsense = files.path().join("nonsense");
    std::fs::write(&nonsense, "nonsense").unwrap();
    let nonsense = nonsense.to_str().unwrap();
    let pair = ["--tls-cert-file", nonsense, "--tls-private-key-file", nonsense];
    check_refused(&pair, "the serving certificate is not usable PEM: it holds no certificate").await;
    check_refused(&["--client-ca-file", "/nowhere/ca.crt"], "/nowhere/ca.crt: No such file").await;
    let damaged = files.path().join("damaged");
    std::fs::write(&damaged, "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n").unwrap();
    let damaged = damaged.to_str().unwrap();
    for (flag, what) in [
        ("--client-ca-file", "the client CA"),
        ("--requestheader-client-ca-file", "the CA of front proxies"),
        ("--peer-ca-file", "the CA of peers"),
    ] {
        let why = format!("{nonsense}: {what} is not usable PEM: it holds no certificate");
        check_refused(&[flag, nonsense], &why).await;
        check_refused(&[flag, damaged], &format!("{damaged}: {what} is not usable PEM: ")).await;
    }
    let etcd = format!("etcd://127.0.0.1:1?ca={nonsense}");
    check_refused(&["--store", &etcd], &format!("{nonsense} can't be used: it holds no certificate")).await;
    let postgres = format!("postgres://keelson@127.0.0.1:1/keelson?sslmode=verify-ca&sslrootcert={nonsense}");
    check_refused(&["--store", &postgres], &format!("{nonsense}: it holds no certificate")).await;
    let text = refused(&["--store", "sqlite:/proc/x"]).await;
    assert_eq!(text, "keelson: opening the store: /proc/x: No such file or directory (os error 2)\n");
    // No server listens at this address.
    check_refused(&["--store", "etcd://127.0.0.1:1"], "opening the store in etcd").await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = refused_on(&taken.local_addr().unwrap().to_string(), &[]).await;
    assert!(text.contains("choose another address with --bind if it is in use"), "{text}");
}

#[tokio::test]
async fn a_server_is_known_by_its_name() {
    let args = ["--server-id", "east-1", "--no-chunking", "secrets,roles.rbac.authorization.k8s.io"];
    let server = args.into_iter().fold(ProcessServer::builder(KEELSON), ProcessServerBuilder::arg).start().await;
    let metrics = server.raw().get("/metrics").await.expect(200);
    let metrics = metrics.text();
    let info = metrics.lines().find(|line| line.starts_with("keelson_server_info{")).unwrap();
    assert!(info.contains("server_id=\"east-1\"") && info.ends_with(" 1.0"), "{info}");
    let told = async {
        // The server answers a moment before it prints this.
        while !server.log().contains("server id:  east-1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the server tells its name");
}

#[tokio::test]
async fn a_log_that_is_no_terminal_has_no_colours() {
    let server = ProcessServer::builder(KEELSON).start().await;
    let log = server.log();
    assert!(log.contains(" INFO ") && !log.contains('\u{1b}'), "{log}");
}

#[tokio::test]
async fn a_server_has_the_threads_that_it_is_given() {
    let of = async |threads: &str| {
        let server = ProcessServer::builder(KEELSON).arg("--threads").arg(threads).start().await;
        let made = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        server.raw().post("/api/v1/namespaces/default/configmaps", &made).await.expect(201);
        let one = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=a";
        let listed = server.raw().get(one).await.expect(200).json();
        assert_eq!(listed["items"][0]["data"], json!({"k": "v"}));
        std::fs::read_dir(format!("/proc/{}/task", server.pid().unwrap())).unwrap().count()
    };
    let (one, many) = (of("1").await, of("60").await);
    // The number of other threads, such as those of the store, varies.
    assert!(many >= 60 && one < 60, "{one} threads, {many} threads");
}

#[tokio::test]
async fn services_and_controllers_are_as_they_are_set() {
    let args = [
        "--service-cluster-ip-range=10.9.0.0/24,fd00:9::/112",
        "--service-node-port-range=30500-30501",
        "--controllers=-serviceaccount-controller,*",
        "--advertise-address=192.0.2.9",
    ];
    let server = args.into_iter().fold(ProcessServer::builder(KEELSON), ProcessServerBuilder::arg).start().await;
    let raw = server.raw();
    let done = async {
        while raw.get("/readyz").await.status != 200
            || raw.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").await.status != 200
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("the server becomes ready");
    let range = raw.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.expect(200).json();
    assert_eq!(range["spec"]["cidrs"], json!(["10.9.0.0/24", "fd00:9::/112"]));
    let ports = json!([{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]);
    let service = json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": ports}});
    let made = raw.post("/api/v1/namespaces/default/services", &service).await.expect(201).json();
    let mut ports: Vec<u64> = (0..2).map(|port| made["spec"]["ports"][port]["nodePort"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [30_500, 30_501]);
    let endpoints = raw.get("/api/v1/namespaces/default/endpoints/kubernetes").await.expect(200).json();
    assert_eq!(endpoints["subsets"][0]["addresses"], json!([{"ip": "192.0.2.9"}]));
    raw.get("/api/v1/namespaces/default/serviceaccounts/default").await.expect(404);
}

/// As in kube-apiserver: endpoints can't have such an address. The server still serves clients that know its address.
#[tokio::test]
async fn an_address_that_no_client_can_reach_is_not_advertised() {
    for (address, is_told) in [("127.0.0.1", true), ("169.254.1.1", true), ("0.0.0.0", false)] {
        let server = ProcessServer::builder(KEELSON).arg("--advertise-address").arg(address).start().await;
        let raw = server.raw();
        let message = format!(
            "other hosts can't reach --advertise-address, so the service default/kubernetes has no endpoint for this server address={address}"
        );
        assert_eq!(server.log().contains(&message), is_told, "{}", server.log());
        let endpoints = raw.get("/api/v1/namespaces/default/endpoints?fieldSelector=metadata.name=kubernetes").await;
        let listed = endpoints.expect(200).text();
        assert!(!listed.contains(&format!("\"ip\":\"{address}\"")), "{listed}");
        assert!(!server.log().contains("is invalid"), "{}", server.log());
    }
}

/// A server that is started by a shell with lower limits.
fn limited(directory: &TempDir, limits: &str) -> ProcessServerBuilder {
    use std::os::unix::fs::PermissionsExt as _;
    let script = directory.path().join("limited");
    std::fs::write(&script, format!("#!/bin/sh\n{limits}\nexec {KEELSON} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    ProcessServer::builder(script)
}

async fn metric(server: &ProcessServer, name: &str) -> f64 {
    let metrics = server.raw().get("/metrics").await.expect(200).text();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

/// Opens this number of connections without sending anything.
async fn idle_connections(server: &ProcessServer, count: usize) -> Vec<tokio::net::TcpStream> {
    let url = server.url();
    let address = url.trim_start_matches("https://");
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    open
}

#[tokio::test]
async fn the_soft_limit_of_descriptors_is_raised() {
    let directory = TempDir::new().unwrap();
    let server = limited(&directory, "ulimit -Sn 100; ulimit -Hn 2000").start().await;
    assert_eq!(metric(&server, "process_max_fds").await, 2000.0);
    let _idle = idle_connections(&server, 200).await;
    server.raw().clone().get("/api/v1/namespaces").await.expect(200);
}

#[tokio::test]
async fn idle_connections_use_up_no_descriptors() {
    let directory = TempDir::new().unwrap();
    let server = limited(&directory, "ulimit -n 400").start().await;
    let _idle = idle_connections(&server, 600).await;
    for _ in 0..3 {
        let raw = server.raw().clone();
        raw.post("/api/v1/namespaces", &json!({"metadata": {"generateName": "a-"}})).await.expect(201);
    }
    assert!(metric(&server, "keelson_connections_evicted_total").await > 100.0);
    assert!(metric(&server, "process_open_fds").await < 300.0);
    // Hundreds of connections were closed, which is logged once.
    assert_eq!(server.log().matches("more connections come").count(), 1, "{}", server.log());
}

/// The longest time, in seconds, for which a request may occupy a runtime thread at once. A build without optimization
/// takes many times as long. There the limit only detects work of seconds.
const LONGEST_POLL: &str = if cfg!(debug_assertions) { "1" } else { "0.01" };
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn config_map(name: &str, keys: usize) -> Value {
    let data: serde_json::Map<_, _> = (0..keys).map(|key| (format!("key-{key}"), json!("value"))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A pod with this number of volumes, all of them mounted.
fn pod_of_volumes(count: usize) -> Value {
    let volumes: Vec<_> = (0..count).map(|number| json!({"name": format!("v{number}"), "emptyDir": {}})).collect();
    let mounts: Vec<_> =
        (0..count).map(|number| json!({"name": format!("v{number}"), "mountPath": format!("/{number}")})).collect();
    let containers = json!([{"name": "c", "image": "i", "volumeMounts": mounts}]);
    json!({"metadata": {"name": format!("p{count}")}, "spec": {"containers": containers, "volumes": volumes}})
}

fn bad_labels(name: &str, count: usize) -> Value {
    let labels: serde_json::Map<_, _> = (0..count).map(|label| (format!("-{label}"), json!("!"))).collect();
    json!({"metadata": {"name": name, "labels": labels}})
}

/// Writes the bodies that cost most for their length, at the largest size that the runtime's own threads handle.
async fn write_the_worst(raw: &Raw) {
    for (name, keys) in [("large", 12_000), ("small", 2_800)] {
        let object = format!("{CONFIG_MAPS}/{name}");
        let map = config_map(name, keys);
        raw.post(CONFIG_MAPS, &map).await.expect(201);
        raw.put(&object, &map).await.expect(200);
        raw.patch(&object, MERGE_PATCH, &json!({"data": {"key-1": "other"}})).await.expect(200);
        let tests: Vec<_> = (2..keys.min(9_000))
            .map(|key| json!({"op": "test", "path": format!("/data/key-{key}"), "value": "value"}))
            .collect();
        raw.patch(&object, JSON_PATCH, &json!(tests)).await.expect(200);
        let mut applied = map;
        applied["metadata"]["name"] = json!(format!("{name}-applied"));
        raw.patch(format!("{object}-applied?fieldManager=a&force=true"), APPLY, &applied).await.expect(201);
        raw.get(format!("{object}?pretty=1")).await.expect(200);
        raw.get(&object).header("accept", "application/yaml").await.expect(200);
    }
    // A few bytes that expand to a large object.
    let copies: Vec<_> =
        (0..3).map(|copy| json!({"op": "copy", "from": "/data/key-1", "path": format!("/data/copy-{copy}")})).collect();
    let grown = [vec![json!({"op": "add", "path": "/data/key-1", "value": "x".repeat(60_000)})], copies].concat();
    raw.patch(format!("{CONFIG_MAPS}/small"), JSON_PATCH, &json!(grown)).await.expect(200);
    for volumes in [10_000, 900] {
        raw.post(format!("{PODS}?dryRun=All"), &pod_of_volumes(volumes)).await.expect(201);
    }
    for labels in [50_000, 4_500] {
        raw.post(CONFIG_MAPS, &bad_labels("bad", labels)).await.expect(422);
    }
}

/// Reads these objects in every format, by lists and watches, as fast as the connection allows.
async fn read_the_worst(raw: &Raw) {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for form in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", table] {
        for encoding in ["gzip", "identity"] {
            for path in [CONFIG_MAPS, "/api/v1/configmaps?limit=500&labelSelector=!x", "/api/v1/events"] {
                raw.get(path).header("accept", form).header("accept-encoding", encoding).await.expect(200);
            }
        }
        if form != "application/yaml" {
            let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion=1");
            raw.get(watch).header("accept", form).await.expect(200);
            let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
            let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1{initial}");
            raw.get(watch).header("accept", form).await.expect(200);
        }
    }
    for count in [5_000, 500] {
        let terms: Vec<_> = (0..count).map(|term| format!("a!=b{term}")).collect();
        raw.get(format!("{CONFIG_MAPS}?labelSelector={}", terms.join(","))).await.expect(200);
        raw.get(format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&labelSelector={}", terms.join(","))).await.expect(200);
    }
    for page in ["/openapi/v2", "/openapi/v3", "/apis", "/api/v1", "/metrics"] {
        raw.get(page).await.expect(200);
    }
}

/// Sends the queries that take longest for one object.
async fn query_the_worst(raw: &Raw) {
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let args: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let labels = json!({"app": "many"});
    let image = ["word"; 20_000].join(" ");
    let containers = json!([{"name": "main", "image": image, "args": args}]);
    let deployment = json!({
        "metadata": {"name": "many"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    raw.post(deployments, &deployment).await.expect(201);
    let path = "spec.template.spec.containers[*].args[*]";
    let among: Vec<String> = (0..200).map(|number| format!("quantity({number}Mi)")).collect();
    let filter = format!("keelson.io/filter={path}+in+({})", among.join(","));
    let search = "keelson.io/search=wxxxwxxx+wyyywyyy+wzzzwzzz";
    let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for query in [filter.as_str(), search] {
        raw.get(format!("{deployments}?{query}")).await.expect(200);
        raw.get(format!("{deployments}?watch=1&timeoutSeconds=1&{query}{initial}")).await.expect(200);
        // The cached view advances to the changed object.
        raw.patch(format!("{deployments}/many"), MERGE_PATCH, &json!({"spec": {"paused": true}})).await.expect(200);
        raw.get(format!("{deployments}?{query}")).await.expect(200);
        raw.patch(format!("{deployments}/many"), MERGE_PATCH, &json!({"spec": {"paused": false}})).await.expect(200);
    }
    raw.get(format!("{deployments}?keelson.io/groupBy={path}")).await.expect(400);
    raw.delete(format!("{deployments}/many")).await.expect(200);
}

/// Sends a request, and checks whether the threads for long work answered it.
async fn check_long(raw: &Raw, what: &str, call: Call, code: u16, expect: bool) {
    let begun = async || -> u64 {
        let metrics = raw.get("/metrics").await.expect(200).text();
        let value = metrics.lines().find_map(|line| line.strip_prefix("keelson_long_work_requests_total "));
        value.unwrap_or_else(|| panic!("no count in {metrics}")).parse::<f64>().unwrap() as u64
    };
    let before = begun().await;
    call.await.expect(code);
    // A request for metrics is long work too.
    let given = begun().await - before - 1;
    assert_eq!(given, u64::from(expect), "{what}: {given} requests were given to other threads");
}

/// Checks that long work is recognized in advance: by the sent body, the stored objects, and the query.
async fn check_all_long(raw: &Raw) {
    let (large, small) = (config_map("kept", 12_000), config_map("kept", 30));
    let object = format!("{CONFIG_MAPS}/kept");
    let tests = |count| -> Vec<_> {
        (2..count).map(|key| json!({"op": "test", "path": format!("/data/key-{key}"), "value": "value"})).collect()
    };
    let volumes = |count| raw.post(format!("{PODS}?dryRun=All"), &pod_of_volumes(count));
    let labels = |count| raw.post(CONFIG_MAPS, &bad_labels("bad", count));
    let selector = |count| -> String { (0..count).map(|term| format!("a!=b{term},")).collect::<String>() + "x" };
    let select = |count| raw.get(format!("{CONFIG_MAPS}?labelSelector={}", selector(count)));
    let change = json!({"data": {"key-1": "other"}});
    let grow = json!([{"op": "copy", "from": "/data/key-1", "path": "/data/copy"}]);
    let yaml = |call: Call| call.header("accept", "application/yaml");
    check_long(raw, "a create", raw.post(CONFIG_MAPS, &small), 201, false).await;
    check_long(raw, "a get", raw.get(&object), 200, false).await;
    check_long(raw, "YAML", yaml(raw.get(&object)), 200, false).await;
    check_long(raw, "a patch", raw.patch(&object, JSON_PATCH, &json!(tests(20))), 200, false).await;
    check_long(raw, "a patch that copies", raw.patch(&object, JSON_PATCH, &grow), 200, true).await;
    check_long(raw, "a pod", volumes(10), 201, false).await;
    check_long(raw, "a pod of many volumes", volumes(5_000), 201, true).await;
    check_long(raw, "bad labels", labels(10), 422, false).await;
    check_long(raw, "many bad labels", labels(50_000), 422, true).await;
    check_long(raw, "a selector", select(10), 200, false).await;
    check_long(raw, "a selector of many terms", select(1_000), 200, true).await;
    check_long(raw, "an update of much", raw.put(&object, &large), 200, true).await;
    // The estimate uses the cache, which has the update when a read is answered.
    raw.get(&object).await.expect(200);
    check_long(raw, "a change of much", raw.patch(&object, MERGE_PATCH, &change), 200, true).await;
    check_long(raw, "many steps", raw.patch(&object, JSON_PATCH, &json!(tests(9_000))), 200, true).await;
    check_long(raw, "much that is indented", raw.get(format!("{object}?pretty=1")), 200, true).await;
    check_long(raw, "much as YAML", yaml(raw.get(&object)), 200, true).await;
    check_long(raw, "the schemas of all kinds", raw.get("/openapi/v2"), 200, true).await;
    raw.delete(&object).await.expect(200);
}

/// A selection scans all objects, independent of its result.
async fn check_scans(raw: &Raw) {
    const FEW: usize = 4_900;
    const MANY: usize = 5_100;
    let make = async |from: usize, to: usize| {
        let made = futures::stream::iter(from..to).map(|number| async move {
            let map = config_map(&format!("scanned-{number}"), 1);
            raw.post("/api/v1/namespaces/kube-public/configmaps", &map).await.expect(201);
        });
        made.buffer_unordered(64).collect::<()>().await;
    };
    let select = || raw.get("/api/v1/namespaces/kube-public/configmaps?labelSelector=a%21%3Db,c%21%3Dd&limit=1");
    make(0, FEW).await;
    check_long(raw, "a selection from few", select(), 200, false).await;
    make(FEW, MANY).await;
    check_long(raw, "a selection from many", select(), 200, true).await;
    let all = "/api/v1/namespaces/kube-public/configmaps?labelSelector=a%21%3Db";
    check_long(raw, "a deletion of a selection from many", raw.delete(all), 200, true).await;
}

/// Long requests run on separate threads, not on those that all requests share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_work_holds_no_thread_of_the_runtime() {
    // The service accounts of pods are created after the start.
    let server = ProcessServer::builder(KEELSON).arg("--disable-admission-plugins=ServiceAccount").start().await;
    for raw in [server.raw(), server.raw().http2()] {
        check_all_long(&raw).await;
        write_the_worst(&raw).await;
        for number in 0..300 {
            let mut map = config_map(&format!("map-{number}"), 30);
            map["metadata"]["labels"] = json!({"number": number.to_string()});
            raw.post(CONFIG_MAPS, &map).await.expect(201);
        }
        read_the_worst(&raw).await;
        query_the_worst(&raw).await;
        check_scans(&raw).await;
        // All values come from one scrape, since each scrape adds polls. Time in which the system does not run a thread
        // does not count.
        let metrics = raw.get("/metrics").await.expect(200).text();
        let value = |name: &str| -> f64 {
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
        };
        let all = value("keelson_request_poll_cpu_seconds_count");
        let short = value(&format!("keelson_request_poll_cpu_seconds_bucket{{le=\"{LONGEST_POLL}\"}}"));
        let polls: Vec<&str> = metrics.lines().filter(|line| line.starts_with("keelson_request_poll_")).collect();
        assert_eq!(all - short, 0.0, "some polls worked for more than {LONGEST_POLL} s:\n{}", polls.join("\n"));
        raw.delete(CONFIG_MAPS).await.expect(200);
    }
}

/// The published storage version of autoscalers.
async fn stored_as(raw: &Raw) -> Value {
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/autoscaling.horizontalpodautoscalers";
    raw.get(path).await.expect(200).json()["status"]["commonEncodingVersion"].clone()
}

#[tokio::test]
async fn storage_versions_are_read_again_from_their_file() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("storage-versions");
    let flag = file.to_str().unwrap();
    check_refused(&["--storage-version-file", flag], "of --storage-version-file: No such file").await;
    std::fs::write(&file, "autoscalers=v1\n").unwrap();
    check_refused(&["--storage-version-file", flag], "there is no resource \"autoscalers\"").await;

    std::fs::write(&file, "# as the release before\nhorizontalpodautoscalers.autoscaling=v1\n").unwrap();
    let server = ProcessServer::builder(KEELSON).arg("--storage-version-file").arg(&file).start().await;
    let raw = server.raw();
    assert_eq!(stored_as(&raw).await, "autoscaling/v1");
    std::fs::write(&file, "horizontalpodautoscalers.autoscaling=v7\n").unwrap();
    server.signal("-HUP").await;
    let said = || server.log().contains("the storage versions stay as they are");
    while !said() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(stored_as(&raw).await, "autoscaling/v1");
    std::fs::write(&file, "").unwrap();
    server.signal("-HUP").await;
    while stored_as(&raw).await != "autoscaling/v2" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
