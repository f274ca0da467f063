//! Tests of a definition's columns in `kubectl get`: every type and form of path, and changes.
//!
//! The texts of cells are upstream's, odd ones included.

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, definition, establish, version};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const COLS: &str = "/apis/columns.example.com/v1/namespaces/default/cols";

/// A kind for any object with these columns: name, type and path.
fn with_columns(columns: &[(&str, &str, &str)]) -> Value {
    let column = |(name, kind, path): &(&str, &str, &str)| json!({ "name": name, "type": kind, "jsonPath": path });
    let mut version = version("v1", true);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    version["additionalPrinterColumns"] = columns.iter().map(column).collect();
    definition("columns.example.com", "cols", "Col", json!([version]))
}

async fn cols(columns: &[(&str, &str, &str)]) -> (TestServer, Raw) {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &with_columns(columns)).await;
    (server, raw)
}

async fn make(raw: &Raw, name: &str, spec: Value) {
    raw.post(COLS, &json!({ "metadata": { "name": name, "labels": { "app.example.com/name": "lab" } }, "spec": spec }))
        .await
        .expect(201);
}

async fn table(raw: &Raw, path: &str) -> Value {
    let answer: Answer = raw.get(path).header("accept", TABLE).await;
    answer.expect(200).json()
}

/// The cells of the first row, after the name.
fn cells(table: &Value) -> &[Value] {
    &table["rows"][0]["cells"].as_array().unwrap()[1..]
}

fn names(table: &Value) -> Vec<&str> {
    table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect()
}

/// Checks the cell of each column for one object.
async fn check(spec: Value, expected: &[(&str, &str, Value)]) {
    let labels: Vec<String> = (0..expected.len()).map(|number| format!("C{number}")).collect();
    let columns: Vec<(&str, &str, &str)> =
        labels.iter().zip(expected).map(|(label, (kind, path, _))| (&**label, *kind, *path)).collect();
    let (_server, raw) = cols(&columns).await;
    make(&raw, "a", spec).await;
    let shown = table(&raw, &format!("{COLS}/a")).await;
    for ((kind, path, cell), shown) in expected.iter().zip(cells(&shown)) {
        assert_eq!(shown, cell, "{kind} {path}");
    }
    assert_eq!(cells(&shown).len(), expected.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cell_values_are_converted_to_the_column_type() {
    let spec = json!({ "s": "text", "i": 5, "n": 2.5, "b": true, "l": ["a", "b"], "m": { "k": "v" }, "e": "" });
    check(
        spec,
        &[
            ("string", ".spec.s", json!("text")),
            ("string", ".spec.i", json!("5")),
            ("string", ".spec.n", json!("2.5")),
            ("string", ".spec.b", json!("true")),
            ("string", ".spec.l", json!(r#"["a","b"]"#)),
            ("string", ".spec.m", json!(r#"{"k":"v"}"#)),
            ("string", ".spec.e", json!("")),
            ("string", ".kind", json!("Col")),
            ("integer", ".spec.i", json!(5)),
            ("integer", ".spec.n", json!(2)),
            ("integer", ".spec.s", Value::Null),
            ("number", ".spec.n", json!(2.5)),
            ("number", ".spec.i", json!(5)),
            ("number", ".spec.s", Value::Null),
            ("boolean", ".spec.b", json!(true)),
            ("boolean", ".spec.s", Value::Null),
            ("date", ".spec.s", json!("<invalid>")),
            ("date", ".spec.i", Value::Null),
            ("string", ".spec.nope", Value::Null),
            ("integer", ".spec.nope.deeper", Value::Null),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn column_paths_select_elements_members_and_filtered_items() {
    let conditions = json!([{ "type": "Synced", "status": "True" }, { "type": "Ready", "status": "False" }]);
    let items = json!([{ "name": "x", "n": 1 }, { "name": "y", "n": 2 }]);
    check(
        json!({ "s": "text", "l": ["a", "b", "c"], "conditions": conditions, "items": items }),
        &[
            ("string", ".spec.l[0]", json!("a")),
            ("string", ".spec.l[-1]", json!("c")),
            ("string", ".spec.l[9]", Value::Null),
            ("string", ".spec.l[*]", json!("a")),
            ("string", ".spec.l[1:3]", json!("b")),
            ("string", ".spec.items[*].name", json!("x")),
            ("string", ".spec['s']", json!("text")),
            ("string", r#".spec.conditions[?(@.type=="Ready")].status"#, json!("False")),
            ("string", r#".spec.conditions[?(@.type=="Nope")].status"#, Value::Null),
            ("integer", ".spec.items[?(@.n>1)].n", json!(2)),
            ("string", r".metadata.labels.app\.example\.com/name", json!("lab")),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_are_shown_as_ages() {
    let (_server, raw) = cols(&[("D", "date", ".spec.d"), ("Age", "date", ".metadata.creationTimestamp")]).await;
    for (name, date, expected) in [
        ("old", json!("1999-12-31T00:00:00Z"), "y"),
        ("fraction", json!("1999-12-31T00:00:00.5Z"), "y"),
        ("offset", json!("1999-12-31T00:00:00+02:00"), "y"),
        ("future", json!("2999-12-31T00:00:00Z"), "<invalid>"),
        ("day", json!("1999-12-31"), "<invalid>"),
        ("word", json!("yesterday"), "<invalid>"),
        ("empty", json!(""), "<unknown>"),
    ] {
        make(&raw, name, json!({ "d": date })).await;
        let shown = table(&raw, &format!("{COLS}/{name}")).await;
        let cell = cells(&shown)[0].as_str().unwrap_or_else(|| panic!("{name}: {shown}"));
        assert!(cell.ends_with(expected), "{name}: {cell}");
        assert!(cells(&shown)[1].as_str().unwrap().ends_with('s'), "it was made seconds ago: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_has_the_columns_of_its_definition_and_the_requested_rows() {
    let (_server, raw) = cols(&[]).await;
    make(&raw, "a", json!({ "s": "x" })).await;
    assert_eq!(names(&table(&raw, COLS).await), ["Name", "Age"], "where none are declared");

    let mut definition = with_columns(&[("S", "string", ".spec.s"), ("I", "integer", ".spec.i")]);
    let declared = &mut definition["spec"]["versions"][0]["additionalPrinterColumns"][1];
    (declared["priority"], declared["format"], declared["description"]) =
        (json!(1), json!("int32"), json!("A number."));
    let versions = json!({ "spec": { "versions": definition["spec"]["versions"] } });
    raw.patch(format!("{DEFINITIONS}/cols.columns.example.com"), MERGE, &versions).await.expect(200);
    let wait = async {
        while names(&table(&raw, COLS).await) != ["Name", "S", "I"] {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("the columns change");
    let shown = table(&raw, COLS).await;
    let (s, i) = (&shown["columnDefinitions"][1], &shown["columnDefinitions"][2]);
    assert_eq!(s["description"], "Custom resource definition column (in JSONPath format): .spec.s");
    assert_eq!((&s["priority"], &s["format"]), (&json!(0), &json!("")));
    assert_eq!(
        *i,
        json!({ "name": "I", "type": "integer", "format": "int32", "description": "A number.", "priority": 1 })
    );

    let object = |table: &Value| table["rows"][0]["object"].clone();
    assert_eq!(object(&shown)["kind"], "PartialObjectMetadata");
    let whole = object(&table(&raw, &format!("{COLS}?includeObject=Object")).await);
    assert_eq!((&whole["kind"], &whole["spec"]), (&json!("Col"), &json!({ "s": "x" })));
    assert_eq!(object(&table(&raw, &format!("{COLS}?includeObject=None")).await), Value::Null);
    let refused = raw.get(format!("{COLS}?includeObject=Some")).header("accept", TABLE).await.expect(400).json();
    assert!(refused["message"].as_str().unwrap().contains("must be 'Metadata', 'Object', 'None', or empty"));
    make(&raw, "b", json!({ "s": "y", "i": 1 })).await;
    let chunk = table(&raw, &format!("{COLS}?limit=1")).await;
    assert_eq!((&chunk["metadata"]["remainingItemCount"], cells(&chunk).len()), (&json!(1), 2));
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = raw.get(COLS).header("accept", partial).await.expect(200).json();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("PartialObjectMetadataList"), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_columns_ends_watches() {
    let (_server, raw) = cols(&[("S", "string", ".spec.s")]).await;
    make(&raw, "a", json!({ "s": "x", "i": 1 })).await;
    let mut watch = raw.get(format!("{COLS}?watch=1&resourceVersion=0")).header("accept", TABLE).stream().await;
    let first = watch.next_json().await.unwrap();
    assert_eq!((names(&first["object"]), cells(&first["object"])), (vec!["Name", "S"], &[json!("x")][..]));
    let changed = with_columns(&[("I", "integer", ".spec.i"), ("S", "string", ".spec.s")]);
    let versions = json!({ "spec": { "versions": changed["spec"]["versions"] } });
    raw.patch(format!("{DEFINITIONS}/cols.columns.example.com"), MERGE, &versions).await.expect(200);
    let wait = async {
        while names(&table(&raw, COLS).await) != ["Name", "I", "S"] {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("the columns change");
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), watch.next_json()).await;
    assert_eq!(ended.expect("a watch ends when its definition changes"), None);
    let mut watch = raw.get(format!("{COLS}?watch=1&resourceVersion=0")).header("accept", TABLE).stream().await;
    let first = watch.next_json().await.unwrap();
    assert_eq!(
        (names(&first["object"]), cells(&first["object"])),
        (vec!["Name", "I", "S"], &[json!(1), json!("x")][..])
    );
    make(&raw, "b", json!({ "s": "y", "i": 2 })).await;
    let event = watch.next_json().await.unwrap();
    assert_eq!((&event["type"], cells(&event["object"])), (&json!("ADDED"), &[json!(2), json!("y")][..]));
    assert_eq!(event["object"]["columnDefinitions"], Value::Null, "it has received them");
}

/// A definition has any number of columns, and a path may traverse an object in any number of ways.
#[tokio::test]
async fn the_cost_and_size_of_columns_are_limited() {
    let descents = format!("{}.z", "..a".repeat(50));
    let labels: Vec<String> = (0..1_000).map(|number| format!("C{number}")).collect();
    let mut columns: Vec<(&str, &str, &str)> = vec![("First", "string", ".spec.note")];
    columns.extend(labels.iter().map(|label| (&**label, "string", ".spec")));
    columns.push(("Deep", "string", &descents));
    let (_server, raw) = cols(&columns).await;
    let mut deep = json!(1);
    for _ in 0..90 {
        deep = json!({ "a": deep });
    }
    make(&raw, "a", json!({ "note": "n", "large": "x".repeat(200_000), "deep": deep })).await;
    for path in [format!("{COLS}/a"), COLS.to_owned()] {
        let answer: Answer = raw.get(&path).header("accept", TABLE).await.expect(200);
        let shown = answer.json();
        let cells = cells(&shown);
        assert_eq!((cells.len(), &cells[0], &cells[1_001]), (1_002, &json!("n"), &Value::Null), "{path}");
        assert!(cells[1].as_str().is_some_and(|text| text.len() > 200_000), "{path}");
        assert!(answer.body.len() < 2_000_000, "{path}: {}", answer.body.len());
    }
}
