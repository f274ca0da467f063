//! Tests of the compilation of definitions' expressions: once, and not before an object is validated with them.
//!
//! Compiling all expressions at the start would make a start with thousands of definitions slow.

use std::time::Duration;

use keelson_testkit::{Raw, TestServer};
use serde_json::json;

use super::{MERGE, definition, establish, version};

const GROUP: &str = "rules.example.com";
const DEFINED: usize = 20;

fn place(number: usize) -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/ruled{number}s")
}

/// The number of compilations, and of schemas with compiled expressions.
async fn compiled(raw: &Raw) -> (u32, u32) {
    let metrics = raw.get("/metrics").await.expect(200).text();
    let number = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).trim_end_matches(".0").parse().unwrap()
    };
    (number("keelson_cel_programs_compiled_total"), number("keelson_cel_programs_schemas"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_are_compiled_once_by_the_first_write() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    for number in 0..DEFINED {
        let mut version = version("v1", true);
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["x-kubernetes-validations"] =
            json!([{ "rule": "!has(self.n) || self.n < 5", "message": "n is too large" }]);
        let (plural, kind) = (format!("ruled{number}s"), format!("Ruled{number}"));
        establish(&raw, &definition(GROUP, &plural, &kind, json!([version]))).await;
    }
    assert_eq!(compiled(&raw).await, (0, 0), "no object has been written yet");

    server.restart().await;
    let raw = server.raw();
    raw.get(place(0)).await.expect(200);
    assert_eq!(compiled(&raw).await, (0, 0), "a start and reads need none");
    for (name, n, code) in [("a", 1, 201), ("b", 9, 422), ("c", 2, 201)] {
        let object = json!({ "metadata": { "name": name }, "spec": { "n": n } });
        raw.post(place(3), &object).await.expect(code);
    }
    let refused = raw.patch(format!("{}/a", place(3)), MERGE, &json!({ "spec": { "n": 7 } })).await.expect(422).json();
    assert_eq!(refused["details"]["causes"][0]["message"], "Invalid value: n is too large");
    assert_eq!(compiled(&raw).await, (1, 1));
    raw.post(place(4), &json!({ "metadata": { "name": "a" }, "spec": { "n": 6 } })).await.expect(422);
    assert_eq!(compiled(&raw).await, (2, 2));

    // A changed definition is validated by its new expressions.
    let name = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ruled3s.{GROUP}");
    let rules = json!([{ "rule": "!has(self.n) || self.n < 50" }]);
    let mut version = version("v1", true);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = rules;
    raw.patch(&*name, MERGE, &json!({ "spec": { "versions": [version] } })).await.expect(200);
    let rehearsal = json!({ "metadata": { "name": "d" }, "spec": { "n": 9 } });
    let taken = async {
        while raw.post(format!("{}?dryRun=All", place(3)), &rehearsal).await.status != 201 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), taken).await.expect("the new rule is asked");
    assert_eq!(compiled(&raw).await.0, 3);
}
