//! Tests of contributed columns in tables: each version has its own columns, independent of the storage version.
//!
//! `custom_resources/columns.rs` tests the columns of definitions.

use keelson_registry::ResourceRegistration;
use keelson_tables::{CellType, CustomColumn, Printer};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::resource;

const BERTHS: &str = "/apis/harbour.example.org/v1/namespaces/default/berths";
const OTHER: &str = "/apis/harbour.example.org/v2/namespaces/default/berths";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn column(name: &str, kind: CellType, path: &str) -> CustomColumn {
    let (name, path) = (name.to_owned(), path.to_owned());
    CustomColumn { name, kind, format: String::new(), description: String::new(), priority: 0, path }
}

/// The names of the columns, and the cells of each row.
fn columns_and_cells(table: &Value) -> (Vec<&Value>, Vec<&Value>) {
    assert_eq!(table["kind"], "Table", "{table}");
    let of = |list: &'static str, member: &'static str| {
        table[list].as_array().unwrap().iter().map(move |item| &item[member]).collect()
    };
    (of("columnDefinitions", "name"), of("rows", "cells"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_version_is_shown_by_the_columns_that_its_contributor_brings() {
    let server = TestServer::start().await;
    let raw = server.raw();
    // No column of a built-in kind shows a command.
    let first = vec![
        column("Host", CellType::String, ".spec.host"),
        column("Port", CellType::Integer, ".spec.port"),
        column("Command", CellType::String, ".spec.command[0]"),
        CustomColumn {
            format: "password".to_owned(),
            description: "Whether it is ready.".to_owned(),
            priority: 1,
            ..column("Ready", CellType::String, r#".status.conditions[?(@.type=="Ready")].status"#)
        },
    ];
    let second = vec![
        column("Deep", CellType::Boolean, ".spec.deep"),
        column("Depth", CellType::Number, ".spec.depth"),
        column("Due", CellType::Date, ".spec.due"),
    ];
    let berths = ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"]))
        .with_printer("v1", &Printer::custom(first).unwrap())
        .with_printer("v2", &Printer::custom(second).unwrap());
    server.running().registry().surfaces().put(vec![berths]).await.expect("it can be served");
    let spec = json!({ "host": "h", "port": 80, "command": ["moor"], "deep": true, "depth": 2.5, "due": "late" });
    raw.post(BERTHS, &json!({ "metadata": { "name": "a" }, "spec": spec })).await.expect(201);
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    raw.patch(format!("{BERTHS}/a/status"), "application/merge-patch+json", &status).await.expect(200);
    raw.post(BERTHS, &json!({ "metadata": { "name": "b" }, "spec": { "host": 7, "port": "no" } })).await.expect(201);

    let table = raw.get(BERTHS).header("accept", TABLE).await.expect(200).json();
    let (heads, cells) = columns_and_cells(&table);
    assert_eq!(heads, ["Name", "Host", "Port", "Command", "Ready"]);
    assert_eq!(cells, [&json!(["a", "h", 80, "moor", "True"]), &json!(["b", "7", null, null, null])]);
    let ready = &table["columnDefinitions"][4];
    let expected = json!({ "name": "Ready", "type": "string", "format": "password",
        "description": "Whether it is ready.", "priority": 1 });
    assert_eq!(ready, &expected);
    let described = "Custom resource definition column (in JSONPath format): .spec.host";
    assert_eq!(table["columnDefinitions"][1]["description"], described);

    let table = raw.get(OTHER).header("accept", TABLE).await.expect(200).json();
    let (heads, cells) = columns_and_cells(&table);
    assert_eq!(heads, ["Name", "Deep", "Depth", "Due"]);
    assert_eq!(cells, [&json!(["a", true, 2.5, "<invalid>"]), &json!(["b", null, null, null])]);

    let one = raw.get(format!("{OTHER}/a")).header("accept", TABLE).await.expect(200).json();
    assert_eq!(columns_and_cells(&one), (heads, vec![&json!(["a", true, 2.5, "<invalid>"])]));
    let mut watch = raw.get(format!("{BERTHS}?watch=1&resourceVersion=0")).header("accept", TABLE).stream().await;
    let event = watch.next_json().await.unwrap();
    assert_eq!(columns_and_cells(&event["object"]).0, ["Name", "Host", "Port", "Command", "Ready"]);
}
