//! Resources that a contributor adds to a running server, changes and removes, while other requests continue.
//!
//! The tests use the verbs of the registry, so that they can count held values. `keelson/tests/surface` has the same
//! over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use keelson_builtin::collection_specs;
use keelson_cache::{Cache, CacheConfig};
use keelson_meta::clock::ManualClock;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{
    CreateOptions, DeleteOptions, FieldValidation, GetOptions, ListOptions, PatchOptions, Query, UpdateOptions,
};
use keelson_meta::random::SeededRandom;
use keelson_meta::{ApiError, GroupVersionKind, Object, Revision};
use keelson_registry::{
    Caller, Effect, ListItems, Patch, PatchKind, RegistrationError, Registry, RegistryConfig, ResourceRegistration,
    Target, Warnings, WatchOutput, WatchStream, accept,
};
use keelson_resources::{Resource, SelectableField, ServedVersion, Subresource};
use keelson_schema::Schema;
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_tables::{CellType, CustomColumn, Printer};
use tokio::sync::oneshot;

/// The number of resources that the contributor adds.
const RESOURCES: usize = 3_000;
/// Returns true if the test uses every verb of this resource: some of all names and kinds, from the first to the last.
fn is_used(number: usize) -> bool {
    number.is_multiple_of(13)
}

async fn server() -> Arc<Registry> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let cache = Cache::start(store.clone(), collection_specs(), CacheConfig::new(clock.clone())).await.unwrap();
    let registry =
        keelson_builtin::registry(store, cache, clock, Arc::new(SeededRandom::new(1)), RegistryConfig::default());
    registry.ensure_system_namespaces().await.unwrap();
    Arc::new(registry)
}

/// A resource of a group of its own, with these versions, of which the first is stored, and these selectable fields.
fn resource(number: usize, plural: &str, versions: &[&str], fields: &[&'static str]) -> Resource {
    let group = format!("g{number}.example.org");
    let field = |path: &&'static str| SelectableField {
        name: (*path).into(),
        paths: vec![(*path).into()],
        absent: "".into(),
        versions: None,
    };
    let versions = versions.iter().map(|name| ServedVersion::custom((*name).to_owned(), [Subresource::status()]));
    Resource {
        selectable_fields: fields.iter().map(field).collect(),
        create_on_update: makes_on_update(number),
        ..Resource::custom(&group, plural, "Thing", versions.collect())
    }
}

/// Returns true if an update creates a missing object of this resource.
fn makes_on_update(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// The heads of the columns of a version.
fn heads(target: &Target) -> Vec<String> {
    target.version.printer().columns().iter().map(|column| column.name.to_owned()).collect()
}

/// A schema that allows any `spec` and `status`.
fn schema(number: usize) -> Schema {
    let kind = GroupVersionKind { group: format!("g{number}.example.org"), version: "v1".into(), kind: "Thing".into() };
    let anything = serde_json::json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let document = serde_json::json!({ "type": "object", "properties": { "spec": anything, "status": anything } });
    Schema::structural(&kind, &serde_json::from_value(document).unwrap()).unwrap()
}

/// A printer with this column behind the name.
fn printer(name: &str, path: &str) -> Printer {
    let (name, path) = (name.to_owned(), path.to_owned());
    let (kind, format, description) = (CellType::String, String::new(), String::new());
    Printer::custom(vec![CustomColumn { name, kind, format, description, priority: 0, path }]).unwrap()
}

/// The names of built-in resources that verbs once knew by name.
fn plural(number: usize) -> &'static str {
    ["pods", "bindings", "services", "namespaces", "things"][number % 5]
}

fn target(server: &Registry, number: usize, version: &str) -> Target {
    let surface = server.surface();
    let found = surface.lookup(&format!("g{number}.example.org"), version, plural(number));
    found.unwrap_or_else(|| panic!("{number} in {version}")).in_namespace(Some("default"))
}

fn list_options(query: &str) -> ListOptions {
    ListOptions::parse(&Query::parse(query), false).unwrap()
}

/// The options of a watch without initial events.
fn from_now_on() -> ListOptions {
    let query = Query::parse("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    ListOptions::parse(&query, true).unwrap()
}

async fn create(server: &Registry, target: &Target, name: &str, colour: &str) -> Result<Object, ApiError> {
    let sent = json!({ "metadata": { "name": name }, "spec": { "colour": colour }, "status": { "phase": "mine" } });
    let object = accept(target, sent, &[], FieldValidation::Strict, &Warnings::default())?;
    let created = server.create(target, object, &Caller::server(), &CreateOptions::default()).await?;
    Ok(created.object.decode(created.revision.unwrap_or(Revision::ZERO)))
}

async fn names(server: &Registry, target: &Target, query: &str) -> Result<Vec<String>, ApiError> {
    let page = server.list(target, &Caller::server(), &list_options(query)).await?;
    Ok(page.items.into_entries().await?.iter().map(|entry| entry.name().to_owned()).collect())
}

/// Every verb on one of the resources. Its contributed properties apply, and the rules of built-in kinds of the same
/// name do not.
async fn use_every_verb(server: &Registry, number: usize) {
    let target = target(server, number, "v1");
    let made = create(server, &target, "a", "red").await.unwrap();
    assert_eq!(made.api_version(), Some(target.version.api_version()));
    assert_eq!(made.get(&["status"]), None, "a client does not state the status of a new object");
    assert_eq!((made.generation(), made.finalizers()), (Some(1), Vec::new()));
    create(server, &target, "b", "blue").await.unwrap();

    let read = server.get(&target, "a", &Caller::server(), &GetOptions::default()).await.unwrap();
    let mut next = read.object().decode(read.revision);
    next.0.insert("spec", json!({ "colour": "green" }));
    let updated =
        server.update(&target, "a", next.clone(), &Caller::server(), &UpdateOptions::default()).await.unwrap();
    let updated = updated.object.decode(updated.revision.unwrap());
    assert_eq!((updated.get(&["spec", "colour"]), updated.generation()), (Some(&json!("green")), Some(2)));

    let patch = |document: Value, kind| Patch { kind, document, faults: Vec::new() };
    let merge = patch(json!({ "metadata": { "labels": { "size": "big" } } }), PatchKind::Merge);
    server.patch(&target, "a", &merge, &Caller::server(), &PatchOptions::default()).await.unwrap();
    let strategic = patch(json!({ "spec": {} }), PatchKind::Strategic);
    let refused =
        server.patch(&target, "a", &strategic, &Caller::server(), &PatchOptions::default()).await.unwrap_err();
    assert!(matches!(refused, ApiError::UnsupportedPatchType), "{refused}");

    let status = target.clone().below("status");
    let phase = patch(json!({ "spec": { "colour": "no" }, "status": { "phase": "Ready" } }), PatchKind::Merge);
    let written = server.patch(&status, "a", &phase, &Caller::server(), &PatchOptions::default()).await.unwrap();
    let written = written.object.decode(Revision::ZERO);
    assert_eq!(written.get(&["spec", "colour"]), Some(&json!("green")), "below status only the status is written");
    assert_eq!(written.get(&["status", "phase"]), Some(&json!("Ready")));

    assert_eq!(names(server, &target, "").await.unwrap(), ["a", "b"]);
    assert_eq!(names(server, &target, "labelSelector=size%3Dbig").await.unwrap(), ["a"]);
    assert_eq!(names(server, &target, "limit=1").await.unwrap(), ["a"]);
    assert!(
        names(server, &target, "fieldSelector=spec.colour%3Dblue").await.is_err(),
        "nothing of it can be selected yet"
    );

    let mut watch = server.watch(&target, &Caller::server(), &from_now_on()).await.unwrap();
    server.delete(&target, "b", &Caller::server(), &DeleteOptions::default()).await.unwrap();
    let gone = async {
        loop {
            let outputs = watch.next().await.expect("the watch goes on");
            let deleted =
                |output: &WatchOutput| matches!(output, WatchOutput::Event(_, event) if event.current.is_none());
            if outputs.iter().any(deleted) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the deletion is told");
    assert_eq!(names(server, &target, "").await.unwrap(), ["a"]);
    use_verbs_that_make_and_empty(server, number, &target).await;
}

/// An apply, an update of a missing object, and the deletion of selected objects.
async fn use_verbs_that_make_and_empty(server: &Registry, number: usize, target: &Target) {
    let applied = async |colour: &str, manager: &str, force: bool| {
        let document = json!({ "apiVersion": target.version.api_version(), "kind": "Thing",
            "metadata": { "name": "d", "labels": { "made": "later" } }, "spec": { "colour": colour } });
        let patch = Patch { kind: PatchKind::Apply, document, faults: Vec::new() };
        let options =
            PatchOptions { field_manager: Some(manager.to_owned()), force: Some(force), ..PatchOptions::default() };
        let caller = Caller::server().writing(Some(manager), "", false);
        server.apply(target, "d", &patch, &caller, &options).await
    };
    assert_eq!(applied("white", "one", false).await.unwrap().effect, Effect::Created);
    let conflict = applied("black", "two", false).await.unwrap_err();
    assert_eq!(conflict.code(), 409, "{conflict}");
    let taken = applied("black", "two", true).await.unwrap();
    let taken = taken.object.decode(taken.revision.unwrap());
    assert_eq!((taken.get(&["spec", "colour"]), taken.generation()), (Some(&json!("black")), Some(2)));

    let sent = json!({ "apiVersion": target.version.api_version(), "kind": "Thing",
        "metadata": { "name": "e", "namespace": "default", "labels": { "made": "later" } },
        "status": { "phase": "mine" } });
    let sent = Object::from_value(sent).unwrap();
    let upserted = server.update_or_create(target, "e", sent, &Caller::server(), &UpdateOptions::default()).await;
    match upserted {
        Ok(made) => {
            assert!(makes_on_update(number));
            assert_eq!(made.effect, Effect::Created);
            assert_eq!(made.object.decode(Revision::ZERO).get(&["status"]), None);
        }
        Err(missing) => {
            assert!(!makes_on_update(number), "{missing}");
            assert_eq!(missing.code(), 404);
        }
    }

    let later = list_options("labelSelector=made%3Dlater");
    let deleted = server.delete_collection(target, &Caller::server(), &later, &DeleteOptions::default()).await.unwrap();
    assert_eq!(deleted.deleted.len(), if makes_on_update(number) { 2 } else { 1 });
    assert_eq!(names(server, target, "").await.unwrap(), ["a"]);
}

/// The number of concurrent objects of the other writers, which limits their lists.
const KEPT: usize = 20;

fn maps(server: &Registry) -> Target {
    server.surface().target("", "configmaps").unwrap().in_namespace(Some("default"))
}

/// The other writers: they create, list and delete objects of a built-in kind, and each list must be complete. Returns
/// the number of created objects.
async fn write_and_list(server: Arc<Registry>, stop: Arc<AtomicBool>) -> usize {
    let (maps, caller) = (maps(&server), Caller::server());
    let named = |number: usize| format!("m{number:09}");
    for number in 0.. {
        let sent = json!({ "metadata": { "name": named(number) } });
        let object = accept(&maps, sent, &[], FieldValidation::Strict, &Warnings::default()).unwrap();
        server.create(&maps, object, &caller, &CreateOptions::default()).await.unwrap();
        if let Some(oldest) = number.checked_sub(KEPT) {
            server.delete(&maps, &named(oldest), &caller, &DeleteOptions::default()).await.unwrap();
        }
        let page = server.list(&maps, &caller, &list_options("limit=1")).await.unwrap();
        assert!(!matches!(page.items, ListItems::History(_)));
        let there: Vec<String> = (number.saturating_sub(KEPT - 1)..=number).map(named).collect();
        assert_eq!(names(&server, &maps, "").await.unwrap(), there, "no write of others is lost");
        if stop.load(Ordering::Relaxed) {
            return number + 1;
        }
        tokio::task::yield_now().await;
    }
    unreachable!("numbers do not end")
}

/// Follows the changes of these objects in one watch until so many were created: each once and in order.
async fn follow(mut watch: WatchStream, made: oneshot::Receiver<usize>) {
    let (mut added, mut deleted, mut last) = (0, 0, Revision::ZERO);
    let (mut made, mut expected) = (Some(made), None);
    while expected.is_none_or(|made| added < made || deleted + KEPT < made) {
        let outputs = tokio::select! {
            outputs = watch.next() => outputs.expect("a watch of others goes on"),
            number = async { made.as_mut().expect("it is asked once").await }, if made.is_some() => {
                (made, expected) = (None, Some(number.unwrap()));
                continue;
            }
        };
        for output in outputs {
            let WatchOutput::Event(_, event) = output else { panic!("only events were asked for") };
            assert!(event.revision > last, "in order, and none twice");
            last = event.revision;
            let (count, entry) = match &event.current {
                Some(current) => (&mut added, current.clone()),
                None => (&mut deleted, event.previous.clone().unwrap()),
            };
            assert_eq!(entry.name(), format!("m{count:09}"), "none is left out");
            *count += 1;
        }
    }
}

/// Other columns, another version that is stored, and a field to select by.
fn changed(number: usize) -> ResourceRegistration {
    ResourceRegistration::new(resource(number, plural(number), &["v2", "v1"], &["spec.colour"]))
        .with_printer("v1", &printer("Colour", ".spec.colour"))
        .with_printer("v2", &printer("Phase", ".status.phase"))
}

/// Checks a changed resource: its old objects in both versions, with columns and by the new field.
async fn use_what_changed(server: &Registry, number: usize) {
    let (one, two) = (target(server, number, "v1"), target(server, number, "v2"));
    assert_eq!((heads(&one), heads(&two)), (vec!["Name".into(), "Colour".into()], vec!["Name".into(), "Phase".into()]));
    let colour = if is_used(number) { "green" } else { "red" };
    for target in [&one, &two] {
        let entry = server.get(target, "a", &Caller::server(), &GetOptions::default()).await.unwrap();
        let shown = target.view().show_entry(&entry).await.unwrap();
        let shown = target.view().decode(&shown, entry.revision).unwrap();
        assert_eq!(shown.api_version(), Some(target.version.api_version()), "whatever it is stored as");
        let selected = |colour: &str| format!("fieldSelector=spec.colour%3D{colour}");
        assert_eq!(names(server, target, &selected(colour)).await.unwrap(), ["a"]);
        assert!(names(server, target, &selected("blue")).await.unwrap().is_empty());
    }
    let made = create(server, &one, "c", "red").await.unwrap();
    assert_eq!(made.api_version(), Some(two.version.api_version()), "the first version is stored");
}

/// Waits until the removed values are dropped.
async fn let_go(is_let_go: impl Fn() -> bool) {
    let waited = async {
        while !is_let_go() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waited).await.expect("the surface and its collections are let go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_resources_come_change_and_go_while_others_run() {
    let server = server().await;
    let before = server.cache().collections().len();
    let stop = Arc::new(AtomicBool::new(false));
    let (made, of_made) = oneshot::channel();
    let watch = server.watch(&maps(&server), &Caller::server(), &from_now_on()).await.unwrap();
    let follower = tokio::spawn(follow(watch, of_made));
    let writer = tokio::spawn(write_and_list(server.clone(), stop.clone()));

    let plain = |number| {
        let contribution = ResourceRegistration::new(resource(number, plural(number), &["v1"], &[]));
        // Server-side apply needs a schema.
        if is_used(number) { contribution.with_schema("v1", &schema(number)) } else { contribution }
    };
    let added = server.surfaces().put((0..RESOURCES).map(plain).collect()).await.unwrap();
    assert_eq!(added.generation(), 1);
    drop(added);
    assert_eq!(server.cache().collections().len(), before + RESOURCES);
    for number in 0..RESOURCES {
        if is_used(number) {
            use_every_verb(&server, number).await;
        } else {
            create(&server, &target(&server, number, "v1"), "a", "red").await.unwrap();
        }
    }

    // A request keeps the surface that it began with, and a watch of a changed resource ends.
    let old = target(&server, 1, "v1");
    assert_eq!(heads(&old), ["Name", "Created At"]);
    let mut ending = server.watch(&old, &Caller::server(), &from_now_on()).await.unwrap();
    server.surfaces().put((0..RESOURCES).map(changed).collect()).await.unwrap();
    assert_eq!(server.get(&old, "a", &Caller::server(), &GetOptions::default()).await.unwrap().name(), "a");
    assert_eq!(heads(&old), ["Name", "Created At"]);
    let ended = async { while ending.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the watch of what there was ends");
    drop((old, ending));
    for number in (0..RESOURCES).filter(|number| is_used(*number) || is_used(number + 1)) {
        use_what_changed(&server, number).await;
    }

    let taken = server
        .surfaces()
        .put(vec![ResourceRegistration::new(Resource { group: "".into(), ..resource(0, "pods", &["v1"], &[]) })]);
    assert!(matches!(taken.await, Err(RegistrationError::Taken(_))), "built-in resources stay");

    let held: Vec<_> =
        (0..RESOURCES).map(|number| Arc::downgrade(&target(&server, number, "v1").stored().unwrap().cached)).collect();
    let surface = Arc::downgrade(&server.surface());
    let all: Vec<_> =
        (0..RESOURCES).map(|number| resource(number, plural(number), &["v1"], &[]).group_resource()).collect();
    server.surfaces().remove(&all).await;
    assert!(server.surface().lookup("g1.example.org", "v1", plural(1)).is_none());
    assert_eq!(server.cache().collections().len(), before);

    stop.store(true, Ordering::Relaxed);
    let number = writer.await.unwrap();
    made.send(number).unwrap();
    tokio::time::timeout(Duration::from_secs(60), follower).await.expect("all is told").unwrap();
    assert!(number > 10, "others went on meanwhile");

    // The removed values are dropped, and their memory is free.
    let_go(|| surface.strong_count() == 0 && held.iter().all(|collection| collection.strong_count() == 0)).await;

    // Stored objects are served again when the resource is.
    server.surfaces().put(vec![changed(3)]).await.unwrap();
    let expected: &[&str] = if is_used(3) || is_used(4) { &["a", "c"] } else { &["a"] };
    assert_eq!(names(&server, &target(&server, 3, "v2"), "").await.unwrap(), expected);
}

#[tokio::test]
async fn of_two_that_want_the_same_in_one_change_none_is_served() {
    let server = server().await;
    let group = "g1.example.org";
    let named = |plural: &str, kind: &str| {
        ResourceRegistration::new(Resource::custom(
            group,
            plural,
            kind,
            vec![ServedVersion::custom("v1".to_owned(), [])],
        ))
    };
    let taken = server.surfaces().put(vec![named("things", "Thing"), named("others", "Thing")]).await;
    assert_eq!(taken.err().map(|error| error.to_string().contains("others.g1.example.org")), Some(true));
    let taken = server.surfaces().put(vec![named("things", "Thing"), named("things", "Other")]).await;
    assert!(matches!(taken, Err(RegistrationError::Taken(_))));
    assert_eq!(server.surface().generation(), 0, "nothing was changed");
    server.surfaces().put(vec![named("things", "Thing"), named("others", "Other")]).await.unwrap();
}

#[tokio::test]
async fn removals_and_additions_are_one_change() {
    let server = server().await;
    let made = |plural: &str| resource(4, plural, &["v1"], &[]);
    server.surfaces().put(vec![ResourceRegistration::new(made("things"))]).await.unwrap();
    let things = target(&server, 4, "v1");
    create(&server, &things, "a", "red").await.unwrap();
    let followed = things.stored().unwrap().cached.clone();

    // A resource that is defined anew is served throughout, and watches of the old one end.
    let gone = vec![made("things").group_resource()];
    let next = server.surfaces().exchange(gone.clone(), vec![ResourceRegistration::new(made("things"))]).await.unwrap();
    assert_eq!(next.generation(), 2);
    assert!(followed.is_removed());
    assert_eq!(names(&server, &target(&server, 4, "v1"), "").await.unwrap(), ["a"]);

    // The name of its kind is free for another one at the same moment.
    let before = server.cache().collections().len();
    let next = server.surfaces().exchange(gone, vec![ResourceRegistration::new(made("others"))]).await.unwrap();
    assert_eq!(next.generation(), 3);
    assert!(next.lookup("g4.example.org", "v1", "things").is_none());
    assert!(next.lookup("g4.example.org", "v1", "others").is_some());
    assert_eq!(server.cache().collections().len(), before);
}
