//! The wire forms of tables and partial metadata, byte by byte.
//!
//! kubectl and client-go read them, in JSON and in protobuf.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use keelson_codec::list::write_head;
use keelson_meta::json::json;
use keelson_meta::{ListHead, ListMeta, Revision};
use keelson_tables::wire::{END, IncludeObject, MetaVersion, Row, TAIL, TableHead, write_partial};
use keelson_tables::{Column, RowCondition};

fn page() -> ListMeta<'static> {
    ListMeta {
        revision: Revision::new(9),
        position: None,
        continue_token: Some("tok\"en"),
        remaining: Some(3),
        shard: None,
    }
}

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).unwrap()
}

/// Appends a constant text.
fn put(text: &str) -> impl FnOnce(&mut Vec<u8>) {
    move |out| out.extend_from_slice(text.as_bytes())
}

#[test]
fn a_table_is_head_rows_and_tail() {
    let columns = [Column::text("Name", "The name.").named(), Column::integer("Size", "").wide()];
    let head = TableHead { version: MetaVersion::V1, meta: page(), columns: Some(&columns) };
    let mut out = Vec::new();
    head.write(&mut out);
    let cells = [json!("a"), json!(1)];
    Row { cells: &cells, conditions: &[] }.write(put("null"), &mut out);
    out.extend_from_slice(TAIL);
    let expected = concat!(
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","#,
        r#""metadata":{"resourceVersion":"9","continue":"tok\"en","remainingItemCount":3},"#,
        r#""columnDefinitions":["#,
        r#"{"name":"Name","type":"string","format":"name","description":"The name.","priority":0},"#,
        r#"{"name":"Size","type":"integer","format":"","description":"","priority":1}],"#,
        r#""rows":[{"cells":["a",1],"object":null}]}"#,
        "\n"
    );
    assert_eq!(text(out), expected);
}

#[test]
fn later_tables_of_a_watch_have_no_columns() {
    let mut out = Vec::new();
    let meta = ListMeta::at(Revision::new(5));
    TableHead { version: MetaVersion::V1Beta1, meta, columns: None }.write(&mut out);
    out.extend_from_slice(END);
    let expected = concat!(
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"5"},"#,
        r#""columnDefinitions":null,"rows":[]}"#
    );
    assert_eq!(text(out), expected);
}

#[test]
fn marks_stand_between_cells_and_object() {
    let mut out = Vec::new();
    let failed = RowCondition { kind: "Completed", status: "True", reason: "Failed", message: "The pod failed." };
    Row { cells: &[], conditions: &[failed] }.write(put("{}"), &mut out);
    let expected = concat!(
        r#"{"cells":[],"conditions":[{"type":"Completed","status":"True","reason":"Failed","#,
        r#""message":"The pod failed."}],"object":{}}"#
    );
    assert_eq!(text(out), expected);
}

#[test]
fn a_list_of_metadata_names_the_kind_of_each_item() {
    let mut out = Vec::new();
    let version = MetaVersion::V1Beta1;
    let meta = ListMeta::at(Revision::new(7));
    write_head(&ListHead { kind: "PartialObjectMetadataList", api_version: version.api_version(), meta }, &mut out);
    write_partial(version, put(r#"{"name":"a","resourceVersion":"5"}"#), &mut out);
    out.push(b',');
    write_partial(version, put("{}"), &mut out);
    out.extend_from_slice(TAIL);
    let expected = concat!(
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"7"},"#,
        r#""items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","#,
        r#""metadata":{"name":"a","resourceVersion":"5"}},"#,
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{}}]}"#,
        "\n"
    );
    assert_eq!(text(out), expected);
}

#[test]
fn include_object_values_are_exact() {
    assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("Metadata"), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("None"), Ok(IncludeObject::None));
    assert_eq!(IncludeObject::parse("Object"), Ok(IncludeObject::Object));
    let wrong = IncludeObject::parse("object").unwrap_err();
    let expected = "Unable to convert to Table as requested: includeObject: Invalid value: \"object\": \
        must be 'Metadata', 'Object', 'None', or empty";
    assert_eq!(wrong, expected);
}
