//! Measures a change of OpenAPI documents among 3,000 custom group versions: `cargo run --release -p keelson-openapi
//! --example openapi_assembly`.
//!
//! Each group version has one resource, in addition to the built-in ones. A change renders one document of version 3
//! for the index. The large document of version 2 is assembled on demand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Value, json};
use keelson_openapi::{
    CustomKind, Descriptions, DocumentEncoding, DocumentId, Fragment, ResourceDescription, SharedDefinitions,
    VersionDescription,
};
use keelson_resources::Verb;
use keelson_schema::{SchemaDocument, Schemas};

const MANY: usize = 3000;
/// The number of measurements. Their median is printed.
const RUNS: usize = 11;

/// A schema of 0.3 KB.
#[derive(Debug)]
struct WidgetSchema;

impl SchemaDocument for WidgetSchema {
    fn read(&self) -> Option<Value> {
        let spec = json!({
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": { "type": "integer", "minimum": 1, "maximum": 10, "default": 3 },
                "colour": { "type": "string", "description": "What it looks like.", "enum": ["red", "green", "blue"] },
            },
        });
        Some(json!({ "type": "object", "properties": { "spec": spec } }))
    }
}

fn fragment(number: usize, verbs: &[Verb]) -> Arc<Fragment> {
    let group = format!("group-{number:04}.example.org");
    Fragment::new(VersionDescription {
        group: group.clone(),
        version: "v1".to_owned(),
        resources: vec![ResourceDescription {
            plural: "widgets".to_owned(),
            kind: GroupVersionKind { group, version: "v1".to_owned(), kind: "Widget".to_owned() },
            namespaced: true,
            verbs: verbs.to_vec(),
            subresources: vec![],
            returns_deleted: false,
            custom: Some(CustomKind {
                list_kind: "WidgetList".to_owned(),
                selectable_fields: vec![],
                schema: Some(Arc::new(WidgetSchema)),
            }),
        }],
    })
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let done = work();
    (done, started.elapsed())
}

#[expect(clippy::print_stdout, reason = "the example prints its results")]
fn main() {
    let all = [Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
    let builtin = VersionDescription::all(keelson_builtin::catalogue());
    let shared = SharedDefinitions::new(Schemas::builtin(), &builtin, "v1");
    let mut fragments: Vec<_> = builtin.into_iter().map(Fragment::new).collect();
    let first = fragments.len();
    fragments.extend((0..MANY).map(|number| fragment(number, &all)));
    let length = |descriptions: &Descriptions, wanted: &DocumentId| {
        descriptions.document(wanted).map_or(0, |document| document.length())
    };
    println!("{MANY} group versions beside the built-in ones");
    let v2 = DocumentId::V2(DocumentEncoding::Json);
    for (name, wanted) in [("index of version 3", &DocumentId::V3Index), ("version 2", &v2)] {
        let descriptions = Descriptions::assemble(&shared, &fragments);
        let (bytes, taken) = timed(|| length(&descriptions, wanted));
        println!("{name}, the first time: {taken:?}, {bytes} bytes");
        let mut changes: Vec<[Duration; 2]> = (0..RUNS)
            .map(|run| {
                fragments[first + MANY / 2] = fragment(MANY / 2, &all[..=run % all.len()]);
                let (changed, assembling) = timed(|| Descriptions::assemble(&shared, &fragments));
                [assembling, timed(|| length(&changed, wanted)).1]
            })
            .collect();
        changes.sort();
        let [assembling, asking] = changes[RUNS / 2];
        println!("{name}, one changed: {assembling:?}, and when it is asked for: {asking:?}");
    }
}
