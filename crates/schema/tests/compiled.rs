//! Schemas that are compiled at run time, as for custom resources.
//!
//! The schemas must behave like the tables of the built-in kinds, which are compiled when the crate is built.

use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_schema::builder::{Builder, FieldSpec, NodeId, NodeSpec};
use keelson_schema::layout::{NULLABLE, OMIT_ZERO, REQUIRED};
use keelson_schema::{ListType, MapType, Schema, SchemaRef, Schemas, Type, WalkOptions, WalkReport};

fn field(name: &str, node: NodeId, flags: u32) -> FieldSpec {
    FieldSpec {
        name: name.to_owned(),
        node,
        flags,
        description: String::new(),
        default: String::new(),
        patch: 0,
        merge_key: String::new(),
        embedded_in: String::new(),
        map_type: MapType::Unset,
    }
}

fn schemas(root: impl FnOnce(&mut Builder) -> NodeSpec) -> Schemas {
    let mut builder = Builder::default();
    let spec = root(&mut builder);
    let node = builder.add(spec);
    builder.kind("example.org", "v1", "Widget", node);
    Schemas::from_compiled(builder.finish())
}

fn object(fields: Vec<FieldSpec>) -> NodeSpec {
    NodeSpec { fields, ..NodeSpec::leaf(Type::Object, "v1.Widget") }
}

fn walk(schemas: &Schemas, value: Value, options: WalkOptions) -> (Value, WalkReport) {
    let mut object = Object::from_value(value).expect("a widget is an object");
    let mut report = WalkReport::default();
    let widget = schemas.kind("example.org", "v1", "Widget").expect("the kind was added");
    widget.walk(&mut object, &mut report, options);
    (object.into_value(), report)
}

#[test]
fn definitions_may_refer_to_themselves() {
    let schemas = schemas(|builder| {
        let (tree, new) = builder.reserve("Tree");
        assert!(new);
        let branches = builder.add(NodeSpec { child: Some(tree), ..NodeSpec::leaf(Type::Array, "[]v1.Tree") });
        let spec = object(vec![field("branches", branches, OMIT_ZERO)]);
        builder.define(tree, NodeSpec { name: "Tree".to_owned(), ..spec });
        assert_eq!(builder.reserve("Tree"), (tree, false));
        object(vec![field("tree", tree, OMIT_ZERO)])
    });
    let given = json!({"tree": {"branches": [{"branches": [{"leaf": 1}]}]}});
    let (walked, report) = walk(&schemas, given, WalkOptions { prune: true, ..WalkOptions::CHECK });
    assert_eq!(report.unknown_fields(), ["tree.branches[0].branches[0].leaf"]);
    assert_eq!(walked, json!({"tree": {"branches": [{"branches": [{}]}]}}));
    assert!(schemas.definition("Tree").is_some() && schemas.definition("Bush").is_none());
}

#[test]
fn field_names_with_common_prefixes_and_suffixes_are_distinguished() {
    let names = ["abcdXefgh", "abcdYefgh", "abcdZefgh", "a", "b", ""];
    let schemas = schemas(|builder| {
        let text = builder.add(NodeSpec::leaf(Type::String, "string"));
        object(names[..5].iter().map(|name| field(name, text, OMIT_ZERO)).collect())
    });
    let widget = schemas.kind("example.org", "v1", "Widget").expect("the kind was added");
    for name in &names[..5] {
        assert_eq!(widget.field(name).map(SchemaRef::field_name), Some(*name));
    }
    assert!(widget.field("abcdWefgh").is_none() && widget.field("").is_none());
}

#[test]
fn unknown_fields_are_kept_where_the_schema_says_so() {
    let schemas = schemas(|_| object(Vec::new()).preserving_unknown_fields());
    let given = json!({"z": 1, "a": {"b": null}});
    let (walked, report) = walk(&schemas, given.clone(), WalkOptions::STORE);
    assert!(report.is_clean());
    assert_eq!(walked.to_string(), given.to_string());
}

#[test]
fn null_stays_where_it_is_a_value() {
    let schemas = schemas(|builder| {
        let nullable = builder.add(NodeSpec { flags: NULLABLE, ..NodeSpec::leaf(Type::String, "string") });
        let plain = builder.add(NodeSpec::leaf(Type::String, "string"));
        object(vec![field("nullable", nullable, REQUIRED), field("plain", plain, REQUIRED)])
    });
    let (walked, _) = walk(&schemas, json!({"nullable": null, "plain": null}), WalkOptions::STORE);
    assert_eq!(walked, json!({"nullable": null, "plain": ""}));
}

#[test]
fn facts_of_a_schema_are_read_back() {
    let schemas = schemas(|builder| {
        let text = NodeSpec { allowed: vec!["a".to_owned(), "b".to_owned()], ..NodeSpec::leaf(Type::String, "string") };
        let text = builder.add(text);
        let list = NodeSpec {
            child: Some(text),
            list_type: ListType::Map,
            list_keys: vec!["x".to_owned(), "y".to_owned()],
            ..NodeSpec::leaf(Type::Array, "[]string")
        };
        let list = builder.add(list);
        let described =
            FieldSpec { description: "A list.".to_owned(), default: "[]".to_owned(), ..field("list", list, 0) };
        object(vec![described])
    });
    let widget = schemas.kind("example.org", "v1", "Widget").expect("the kind was added");
    let list = widget.field("list").expect("the field was added");
    assert_eq!((list.description(), list.default_json(), list.list_type()), ("A list.", Some("[]"), ListType::Map));
    assert_eq!(list.list_keys().collect::<Vec<_>>(), ["x", "y"]);
    let items = list.items().expect("a list has items");
    assert_eq!(items.allowed_values().collect::<Vec<_>>(), ["a", "b"]);
    assert!(!items.required() && !items.nullable() && items.merge_key().is_none());
}

#[test]
fn a_kept_schema_outlives_the_set_that_it_was_taken_from() {
    let set = std::sync::Arc::new(schemas(|builder| {
        let text = builder.add(NodeSpec::leaf(Type::String, "string"));
        object(vec![
            field("kind", text, OMIT_ZERO),
            field("apiVersion", text, OMIT_ZERO),
            field("size", text, OMIT_ZERO),
        ])
    }));
    let kept = Schema::of_kind(&set, "example.org", "v1", "Widget").expect("the kind was added");
    drop(set);
    assert_eq!(kept.get().field("size").map(SchemaRef::value_type), Some(Type::String));
    let builtin = Schema::builtin("", "v1", "Pod").expect("a built-in kind");
    assert_eq!(builtin.clone().get().go_type(), "v1.Pod");
    assert!(Schema::builtin("", "v1", "Widget").is_none());
}
