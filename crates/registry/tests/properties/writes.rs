//! Writes: invariants 15 and 19, retries that lose nothing, dry runs that write nothing, and deletion.
//!
//! Single rules of writes are tested beside their verbs.

use std::sync::Arc;

use futures::future::join_all;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions, UpdateOptions};
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{Caller, Deleted, Patch, PatchKind, Registry, Target, WriteResult};
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

const WRITERS: usize = 48;

fn threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

async fn two_servers(engine: Engine) -> Cluster {
    Cluster::start(engine, Settings { servers: 2, ..Settings::default() }).await
}

fn configmap(name: &str, data: &Value) -> Object {
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "q"}, "data": data,
    });
    Object::from_value(object).unwrap()
}

fn named(name: &str) -> Target {
    Target { name: Some(name.to_owned()), ..target("configmaps", Some("q")) }
}

async fn create(server: &Registry, object: Object) -> Result<WriteResult, ApiError> {
    server.create(&target("configmaps", Some("q")), object, &Caller::server(), &CreateOptions::default()).await
}

async fn read(server: &Registry, name: &str) -> Result<Object, ApiError> {
    let entry = server.get(&named(name), name, &Caller::server(), &GetOptions::default()).await?;
    Ok(entry.object().decode(entry.revision))
}

/// Runs as many tasks at once as there are writers, spread over the servers.
async fn all_at_once<T, F>(cluster: &Cluster, task: impl Fn(usize, Arc<Registry>) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks = (0..WRITERS).map(|number| tokio::spawn(task(number, cluster.server(number).clone())));
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

async fn update_from_one_revision(engine: Engine) {
    let cluster = two_servers(engine).await;
    create(cluster.server(0), configmap("one", &json!({}))).await.unwrap();
    for round in 0..6 {
        let current = read(cluster.server(round), "one").await.unwrap();
        let outcomes = all_at_once(&cluster, |number, server| {
            let mut next = current.clone();
            next.0.insert("data", json!({"round": round.to_string(), "by": number.to_string()}));
            async move { server.update(&named("one"), "one", next, &Caller::server(), &UpdateOptions::default()).await }
        })
        .await;
        let won: Vec<usize> = (0..WRITERS).filter(|number| outcomes[*number].is_ok()).collect();
        assert_eq!(won.len(), 1, "of updates from one revision one succeeds");
        let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        refused.for_each(|error| assert_eq!(error.code(), 409, "{error}"));
        let left = read(cluster.server(round + 1), "one").await.unwrap();
        assert_eq!(left.get(&["data", "by"]), Some(&json!(won[0].to_string())));
        assert_eq!(left.resource_version(), outcomes[won[0]].as_ref().unwrap().revision.unwrap().to_string());
    }
}

#[test]
fn of_concurrent_updates_from_one_revision_exactly_one_succeeds() {
    threads().block_on(update_from_one_revision(Engine::Memory));
    threads().block_on(update_from_one_revision(Engine::Sqlite));
}

async fn create_one_name(engine: Engine) {
    let cluster = two_servers(engine).await;
    let outcomes = all_at_once(&cluster, |number, server| async move {
        create(&server, configmap("same", &json!({"by": number.to_string()}))).await
    })
    .await;
    let won: Vec<usize> = (0..WRITERS).filter(|number| outcomes[*number].is_ok()).collect();
    assert_eq!(won.len(), 1);
    let left = read(cluster.server(1), "same").await.unwrap();
    assert_eq!(left.get(&["data", "by"]), Some(&json!(won[0].to_string())));
    let deleted = all_at_once(&cluster, |_, server| async move {
        server.delete(&named("same"), "same", &Caller::server(), &DeleteOptions::default()).await
    })
    .await;
    assert_eq!(deleted.iter().filter(|outcome| matches!(outcome, Ok(Deleted::Gone(_)))).count(), 1);
    let refused = deleted.iter().filter_map(|outcome| outcome.as_ref().err());
    refused.for_each(|error| assert_eq!(error.code(), 404, "{error}"));
}

#[test]
fn one_of_many_concurrent_creates_and_deletes_succeeds() {
    threads().block_on(create_one_name(Engine::Memory));
    threads().block_on(create_one_name(Engine::Sqlite));
}

/// A patch has no revision, so it never conflicts: it is applied to the result of other writes, however many there are.
async fn patch_one_object(engine: Engine) {
    const ROUNDS: usize = 3;
    let cluster = two_servers(engine).await;
    create(cluster.server(0), configmap("one", &json!({"list": "start"}))).await.unwrap();
    let outcomes = all_at_once(&cluster, |number, server| async move {
        for round in 0..ROUNDS {
            let key = format!("by-{number}-{round}");
            let patch = if round % 2 == 0 {
                Patch { kind: PatchKind::Merge, document: json!({"data": {key: "x"}}), faults: Vec::new() }
            } else {
                let path = format!("/data/{key}");
                Patch {
                    kind: PatchKind::Json,
                    document: json!([{"op": "add", "path": path, "value": "x"}]),
                    faults: Vec::new(),
                }
            };
            server.patch(&named("one"), "one", &patch, &Caller::server(), &PatchOptions::default()).await?;
        }
        Ok::<(), ApiError>(())
    })
    .await;
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    let left = read(cluster.server(0), "one").await.unwrap();
    let data = left.get(&["data"]).and_then(Value::as_object).unwrap();
    assert_eq!(data.len(), 1 + WRITERS * ROUNDS, "every acknowledged patch is there");
}

#[test]
fn patches_of_many_at_once_lose_nothing_and_never_conflict() {
    threads().block_on(patch_one_object(Engine::Memory));
    threads().block_on(patch_one_object(Engine::Sqlite));
}

#[test]
fn reads_on_any_server_see_acknowledged_writes() {
    threads().block_on(async {
        let cluster = two_servers(Engine::Memory).await;
        all_at_once(&cluster, |number, server| {
            let other = cluster.server(number + 1).clone();
            async move {
                let name = format!("own-{number}");
                let created = create(&server, configmap(&name, &json!({}))).await.unwrap();
                assert!(read(&other, &name).await.is_ok());
                let page = other.list(&target("configmaps", None), &Caller::server(), &options("")).await.unwrap();
                assert!(Some(page.revision) >= created.revision);
                let selected = format!("fieldSelector=metadata.name={name}");
                let page =
                    other.list(&target("configmaps", None), &Caller::server(), &options(&selected)).await.unwrap();
                assert!(matches!(page.items, keelson_registry::ListItems::Chosen(found) if found.len() == 1));
                server.delete(&named(&name), &name, &Caller::server(), &DeleteOptions::default()).await.unwrap();
                assert_eq!(read(&other, &name).await.unwrap_err().code(), 404);
            }
        })
        .await;
    });
}

/// After a namespace is marked nothing is created in it, so an emptied namespace stays empty.
#[test]
fn nothing_is_created_in_a_namespace_after_it_was_marked() {
    threads().block_on(async {
        let cluster = two_servers(Engine::Memory).await;
        let outcomes = all_at_once(&cluster, |number, server| async move {
            if number == WRITERS / 2 {
                let target = target("namespaces", None).named("q");
                let deleted = server.delete(&target, "q", &Caller::server(), &DeleteOptions::default()).await.unwrap();
                let Deleted::Pending(marked) = deleted else { panic!("a namespace is marked first") };
                return Err(marked.revision.unwrap());
            }
            let mut acknowledged = Vec::new();
            for round in 0..20 {
                match create(&server, configmap(&format!("c-{number}-{round}"), &json!({}))).await {
                    Ok(created) => acknowledged.push(created.revision.unwrap()),
                    Err(error) => assert_eq!(error.code(), 403, "{error}"),
                }
            }
            Ok(acknowledged)
        })
        .await;
        let marked: Vec<Revision> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err().copied()).collect();
        assert!(outcomes.iter().flatten().flatten().all(|created| *created < marked[0]));
        let refused = create(cluster.server(0), configmap("late", &json!({}))).await.unwrap_err();
        assert_eq!(refused.code(), 403);
    });
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_taken() {
    run(async {
        let cluster = two_servers(Engine::Memory).await;
        let mut object = configmap("held", &json!({}));
        object.set_meta("finalizers", json!(["example.com/one", "example.com/two"]));
        create(cluster.server(0), object).await.unwrap();
        for server in 0..2 {
            let target = named("held");
            let deleted = cluster
                .server(server)
                .delete(&target, "held", &Caller::server(), &DeleteOptions::default())
                .await
                .unwrap();
            assert!(matches!(deleted, Deleted::Pending(_)), "deleting again changes nothing");
        }
        let marked = read(cluster.server(0), "held").await.unwrap();
        assert!(marked.deletion_timestamp().is_some());
        for (server, left) in [json!(["example.com/two"]), json!([])].into_iter().enumerate() {
            let patch = Patch {
                kind: PatchKind::Merge,
                document: json!({"metadata": {"finalizers": left}}),
                faults: Vec::new(),
            };
            cluster
                .server(server)
                .patch(&named("held"), "held", &patch, &Caller::server(), &PatchOptions::default())
                .await
                .unwrap();
        }
        assert_eq!(read(cluster.server(0), "held").await.unwrap_err().code(), 404);
    });
}

async fn dry_run(writes: Vec<(Write, bool)>) {
    let cluster = two_servers(Engine::Memory).await;
    let mut model = Model::default();
    for (write, rehearsed) in writes {
        let write = write.settled(&model);
        if rehearsed {
            let before = cluster.revision().await;
            let rehearsal = write.apply(cluster.server(0), true).await;
            assert_eq!(cluster.revision().await, before, "a dry run writes nothing");
            let page = list(cluster.server(1), RequestPath::Everywhere, "").await.unwrap();
            assert_eq!(page.items, model.listed(before, RequestPath::Everywhere, &Selector::default()));
            let exists = model.newest().contains_key(&write.key);
            let creates = matches!(write.action, Action::Create(_));
            match rehearsal {
                Ok(_) => assert_ne!(exists, creates, "a dry run succeeds where the write would"),
                Err(code) => assert_eq!((exists, code), (creates, if creates { 409 } else { 404 })),
            }
        }
        cluster.write(&mut model, 0, &write).await;
    }
}

async fn delete_selected(writes: Vec<Write>, place: RequestPath, selector: Selector) {
    let cluster = two_servers(Engine::Memory).await;
    let mut model = Model::default();
    for write in &writes {
        cluster.write(&mut model, 0, write).await;
    }
    let everything = model.listed(u64::MAX, RequestPath::Everywhere, &Selector::default());
    let selected = model.listed(u64::MAX, place, &selector);
    let page = cluster
        .server(0)
        .delete_collection(
            &pods(cluster.server(0), place.namespace()),
            &Caller::server(),
            &options(&selector.query()),
            &at_once(),
        )
        .await
        .unwrap();
    assert_eq!(page.deleted.iter().map(|entry| read_entry(entry)).collect::<Vec<_>>(), selected);
    let left = list(cluster.server(1), RequestPath::Everywhere, "").await.unwrap().items;
    let expected: Vec<_> = everything.into_iter().filter(|pod| !selected.contains(pod)).collect();
    assert_eq!(left, expected);
}

proptest! {
    #![proptest_config(cases(48))]
    #[test]
    fn a_dry_run_writes_nothing_and_returns_the_same_result(
        writes in prop::collection::vec((any_write(), any::<bool>()), 1..60),
    ) {
        run(dry_run(writes));
    }

    #[test]
    fn a_collection_delete_removes_exactly_the_selected_objects(
        writes in prop::collection::vec(any_write(), 1..60),
        place in any_place(),
        selector in any_selector(),
    ) {
        run(delete_selected(writes, place, selector));
    }
}
