//! Tests of the pages for diagnosis: their rights, their forms, profiles with their limits, and the log's verbosity.
//!
//! The tests run the real binary, since only that has a profiler and a log of its own.

use std::io::Read as _;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use futures::future::join_all;
use http::Method;
use keelson_testkit::{Answer, Call, ProcessServer, ProcessServerBuilder};
use serde_json::Value;
use tempfile::TempDir;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// Every page for diagnosis with its method.
const PAGES: [(Method, &str); 9] = [
    (Method::GET, "/statusz"),
    (Method::GET, "/flagz"),
    (Method::GET, "/debug/pprof"),
    (Method::GET, "/debug/pprof/"),
    (Method::GET, "/debug/pprof/profile?seconds=1"),
    (Method::GET, "/debug/pprof/heap"),
    (Method::GET, "/debug/flags/"),
    (Method::GET, "/debug/flags/v"),
    (Method::PUT, "/debug/flags/v"),
];

struct Diagnosed {
    server: ProcessServer,
    _tokens: TempDir,
}

impl Diagnosed {
    async fn start(with: impl FnOnce(ProcessServerBuilder) -> ProcessServerBuilder) -> Self {
        let tokens = TempDir::new().unwrap();
        let file = tokens.path().join("tokens");
        std::fs::write(&file, "ann-token,ann,1,developers\nmon-token,mon,2,system:monitoring\n").unwrap();
        let builder = ProcessServer::builder(KEELSON).arg("--token-auth-file").arg(file);
        Self { server: with(builder).start().await, _tokens: tokens }
    }

    fn call_as(&self, user: &str, method: &Method, path: &str) -> Call {
        let call = self.server.anonymous().call(method.clone(), path).body("2");
        if user.is_empty() { call } else { call.header("authorization", format!("Bearer {user}-token")) }
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_with_the_right_see_pages_for_diagnosis() {
    let diagnosed = Diagnosed::start(|builder| builder).await;
    for (method, path) in &PAGES {
        for user in ["", "ann"] {
            let refused = diagnosed.call_as(user, method, path).await.expect(403);
            assert!(text(&refused).contains("forbidden"), "{path}: {}", text(&refused));
        }
        let may = ["/statusz", "/flagz"].contains(path);
        diagnosed.call_as("mon", method, path).await.expect(if may { 200 } else { 403 });
    }
    let verbosity = diagnosed.server.raw().get("/debug/flags/v").await.expect(200);
    assert_eq!(text(&verbosity), "0\n", "a refused request changes nothing");
    // A path that only looks like another one.
    for path in ["/debug/pprof/../../version", "/debug/pprof/%2e%2e/flagz", "//debug/pprof/heap", "/flagz/x"] {
        let answer = diagnosed.call_as("mon", &Method::GET, path).await;
        assert_eq!(answer.status, 403, "{path}: {}", text(&answer));
    }
    let role = serde_json::json!({
        "metadata": { "name": "profiling" },
        "rules": [{ "nonResourceURLs": ["/debug/pprof/*"], "verbs": ["get"] }],
    });
    let raw = diagnosed.server.raw();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    raw.post(format!("{rbac}/clusterroles"), &role).await.expect(201);
    let binding = serde_json::json!({
        "metadata": { "name": "profiling" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "profiling" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" }],
    });
    raw.post(format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);
    diagnosed.call_as("ann", &Method::GET, "/debug/pprof/").await.expect(200);
    diagnosed.call_as("ann", &Method::GET, "/debug/flags/v").await.expect(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_is_text_or_an_object() {
    let diagnosed = Diagnosed::start(|builder| builder).await;
    let raw = diagnosed.server.raw();
    let page = raw.get("/statusz").await.expect(200);
    assert_eq!(page.header("content-type"), "text/plain; charset=utf-8");
    let shown = text(&page);
    assert!(
        shown.starts_with("\napiserver statusz\nWarning: ") && shown.contains("\nBinary version: 1.37."),
        "{shown}"
    );
    assert!(shown.contains("/metrics") && !shown.contains("/apis"), "{shown}");
    raw.get("/statusz").header("accept", "*/*").await.expect(200);
    for (version, is_deprecated) in [("v1beta1", false), ("v1alpha1", true)] {
        let accept = format!("application/json;v={version};g=config.k8s.io;as=Statusz");
        let object = raw.get("/statusz").header("accept", accept).await.expect(200);
        assert_eq!(object.header("content-type"), format!("application/json;g=config.k8s.io;v={version};as=Statusz"));
        assert_eq!(object.header("warning").contains("deprecated"), is_deprecated);
        let object = object.json();
        assert_eq!((&object["kind"], &object["metadata"]["name"]), (&"Statusz".into(), &"apiserver".into()));
        assert_eq!((&object["emulationVersion"], object["uptimeSeconds"].is_u64()), (&"1.37".into(), true));
    }
    let yaml = raw.get("/statusz").header("accept", "application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz");
    assert!(text(&yaml.await.expect(200)).contains("kind: Statusz"));
    for accept in [
        "application/json",
        "application/vnd.kubernetes.protobuf;v=v1beta1;g=config.k8s.io;as=Statusz",
        "application/json;v=v9;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
        "text/plain;v=v1beta1;g=config.k8s.io;as=Statusz",
    ] {
        let refused = raw.get("/statusz").header("accept", accept).await.expect(406).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with("accepted: application/json, application/yaml, text/plain"), "{accept}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_are_shown_without_secrets() {
    let diagnosed = Diagnosed::start(|builder| {
        builder.args(["--service-account-issuer", "https://ann:hunter2@issuer.example.org"])
    })
    .await;
    let raw = diagnosed.server.raw();
    let page = text(&raw.get("/flagz").await.expect(200));
    let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
    let object = raw.get("/flagz").header("accept", accept).await.expect(200).json();
    let flags = &object["flags"];
    assert_eq!((&flags["profiling"], &flags["service-account-issuer"]), (&"true".into(), &"CLASSIFIED".into()));
    assert!(
        page.contains("\nprofiling=true\n") && !page.contains("hunter2") && !object.to_string().contains("hunter2")
    );
    let listed = raw.get("/").await.expect(200).json();
    let paths: Vec<&str> = listed["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(paths.contains(&"/flagz") && paths.contains(&"/statusz"), "{paths:?}");
    assert!(!paths.iter().any(|path| path.starts_with("/debug")), "{paths:?}");
}

/// The bytes of a profile.
fn unpacked(answer: &Answer) -> Vec<u8> {
    let mut profile = Vec::new();
    GzDecoder::new(&answer.body[..]).read_to_end(&mut profile).unwrap();
    profile
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_profile_at_a_time_for_a_bounded_time() {
    let diagnosed = Diagnosed::start(|builder| builder).await;
    let raw = diagnosed.server.raw();
    for seconds in ["301", "1000000000", "99999999999999999999"] {
        let refused = raw.get(format!("/debug/pprof/profile?seconds={seconds}")).await.expect(400);
        assert!(text(&refused).contains("at most 300 seconds"), "{}", text(&refused));
    }
    let begun = Instant::now();
    let load = async {
        // For as long as the profile, so that it has samples.
        while begun.elapsed() < Duration::from_secs(2) {
            raw.get("/api/v1/namespaces").await.expect(200);
        }
    };
    let profiles = (0..100).map(|_| {
        let raw = diagnosed.server.raw();
        async move { raw.get("/debug/pprof/profile?seconds=2").await }
    });
    let (answers, ()) = tokio::join!(join_all(profiles), load);
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((made.len(), refused.len()), (1, 99));
    for answer in &refused {
        assert_eq!((answer.status, answer.header("x-go-pprof")), (500, "1"));
        assert!(text(answer).contains("cpu profiling already in use"), "{}", text(answer));
    }
    assert_eq!(made[0].header("content-type"), "application/octet-stream");
    assert_eq!(made[0].header("content-disposition"), "attachment; filename=\"profile\"");
    let profile = unpacked(&made[0]);
    let names = String::from_utf8_lossy(&profile).into_owned();
    assert!(names.contains("nanoseconds") && names.contains("keelson"), "{} bytes", profile.len());
    // A client that goes away ends its profile.
    drop(tokio::time::timeout(Duration::from_millis(500), raw.get("/debug/pprof/profile?seconds=60").try_send()).await);
    let end = Instant::now() + Duration::from_secs(30);
    while diagnosed.server.raw().get("/debug/pprof/profile?seconds=1").await.status != 200 {
        assert!(Instant::now() < end, "the profile of a lost client goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_shown_if_the_allocator_samples_it() {
    let plain = Diagnosed::start(|builder| builder).await;
    let refused = plain.server.raw().get("/debug/pprof/heap").await.expect(500);
    assert!(text(&refused).contains("MALLOC_CONF=prof:true"), "{}", text(&refused));
    let sampled = Diagnosed::start(|builder| builder.env("MALLOC_CONF", "prof:true,lg_prof_sample:12")).await;
    let profile = unpacked(&sampled.server.raw().get("/debug/pprof/heap").await.expect(200));
    assert!(profile.len() > 1000, "{} bytes", profile.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_for_diagnosis_can_be_off() {
    for gates in ["ComponentStatusz=false,ComponentFlagz=false", "AllBeta=false"] {
        let diagnosed = Diagnosed::start(|builder| builder.args(["--profiling=false", "--feature-gates", gates])).await;
        let raw = diagnosed.server.raw();
        for (method, path) in &PAGES {
            raw.call(method.clone(), *path).body("9").await.expect(404);
        }
        assert!(!text(&raw.get("/").await.expect(200)).contains("statusz"), "{gates}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verbosity_changes_while_the_server_runs() {
    let diagnosed = Diagnosed::start(|builder| builder.env("KEELSON_LOG_FORMAT", "json")).await;
    let raw = diagnosed.server.raw();
    let put = |body: &str| raw.call(Method::PUT, "/debug/flags/v").body(body.to_owned());
    let has_debug = || diagnosed.server.log().lines().any(|line| line.contains("\"DEBUG\""));
    assert!(!has_debug(), "{}", diagnosed.server.log());
    assert_eq!(text(&put("5").await.expect(200)), "successfully set klog.logging.verbosity to 5");
    assert_eq!(text(&raw.get("/debug/flags/v").await.expect(200)), "5\n");
    let end = Instant::now() + Duration::from_secs(30);
    while !has_debug() {
        assert!(Instant::now() < end, "{}", diagnosed.server.log());
        raw.get("/api/v1/nodes").await.expect(200);
    }
    let log = diagnosed.server.log();
    // The last line may not be complete yet.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    // Standard output has the announcement.
    let mut lines = whole.lines().filter(|line| line.contains("timestamp"));
    assert!(lines.all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
    for (body, why) in [
        ("x", "strconv.ParseUint: parsing \"x\": invalid syntax"),
        ("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ("4294967296", "strconv.ParseUint: parsing \"4294967296\": value out of range"),
    ] {
        assert_eq!(text(&put(body).await.expect(400)), why);
    }
    put(&"9".repeat(100_000)).await.expect(400);
    raw.call(Method::POST, "/debug/flags/v").body("1").await.expect(406);
    put("0").await.expect(200);
    assert_eq!(text(&raw.get("/debug/flags/v").await.expect(200)), "0\n");
}
