//! Namespaces on several servers: the cache of one server may be behind the writes of another.
//!
//! Nothing may be created in a namespace that is being deleted, whatever a cache has.

use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, DeleteOptions, GetOptions, PropagationPolicy};
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{Caller, Registry, Target};

use crate::cluster::{Cluster, Engine, Settings, run, target};

const ROUNDS: usize = 50;

async fn create(server: &Registry, target: &Target, name: &str, spec: Option<Value>) -> Result<(), ApiError> {
    let kind = target.kind();
    let mut object =
        json!({"kind": kind.kind, "apiVersion": kind.group_version().to_string(), "metadata": {"name": name}});
    if let Some(spec) = spec {
        object["spec"] = spec;
    }
    let mut object = Object::from_value(object).unwrap();
    if let Some(namespace) = &target.namespace {
        object.set_meta("namespace", namespace.as_str());
    }
    server.create(target, object, &Caller::server(), &CreateOptions::default()).await.map(|_| ())
}

async fn uid(server: &Registry, name: &str) -> String {
    let namespaces = target("namespaces", None);
    let entry = server.get(&namespaces, name, &Caller::server(), &GetOptions::default()).await.unwrap();
    entry.object().uid().into_owned()
}

/// Deletes a namespace and finalizes it, as if it were empty.
async fn end(server: &Registry, name: &str) {
    let namespaces = target("namespaces", None);
    server.delete(&namespaces, name, &Caller::server(), &DeleteOptions::default()).await.unwrap();
    server.finalize_namespace(name, &uid(server, name).await, &Caller::server()).await.unwrap();
}

#[test]
fn a_namespace_recreated_on_another_server_takes_content_at_once() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings { servers: 2, ..Settings::default() }).await;
        let (here, there) = (cluster.server(0), cluster.server(1));
        let namespaces = target("namespaces", None);
        let config_maps = target("configmaps", Some("again"));
        create(there, &namespaces, "again", None).await.unwrap();
        for round in 0..ROUNDS {
            let name = format!("round-{round}");
            create(here, &config_maps, &name, None).await.unwrap();
            there.delete(&config_maps, &name, &Caller::server(), &DeleteOptions::default()).await.unwrap();
            there.delete(&namespaces, "again", &Caller::server(), &DeleteOptions::default()).await.unwrap();
            let refused = create(here, &config_maps, &name, None).await.unwrap_err();
            assert_eq!(refused.code(), 403);
            there.finalize_namespace("again", &uid(there, "again").await, &Caller::server()).await.unwrap();
            create(there, &namespaces, "again", None).await.unwrap();
            create(here, &config_maps, &name, None).await.unwrap();
            there.delete(&config_maps, &name, &Caller::server(), &DeleteOptions::default()).await.unwrap();
        }
    });
}

#[test]
fn a_namespace_is_only_finalized_while_it_is_being_deleted() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let server = cluster.server(0);
        let namespaces = target("namespaces", None);
        create(server, &namespaces, "alive", None).await.unwrap();
        let alive = uid(server, "alive").await;
        assert_eq!(server.finalize_namespace("alive", &alive, &Caller::server()).await.unwrap_err().code(), 404);
        end(server, "alive").await;
        create(server, &namespaces, "alive", None).await.unwrap();
        server.delete(&namespaces, "alive", &Caller::server(), &DeleteOptions::default()).await.unwrap();
        assert_eq!(
            server.finalize_namespace("alive", &alive, &Caller::server()).await.unwrap_err().code(),
            404,
            "that was another one"
        );
    });
}

#[test]
fn a_namespace_is_deleted_only_after_its_content() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let server = cluster.server(0);
        let namespaces = target("namespaces", None);
        for spec in [json!(null), json!([]), json!("x"), json!({"finalizers": "zz"}), json!({"finalizers": {}})] {
            create(server, &namespaces, "odd", Some(spec.clone())).await.unwrap();
            server.delete(&namespaces, "odd", &Caller::server(), &DeleteOptions::default()).await.unwrap();
            let marked = server.get(&namespaces, "odd", &Caller::server(), &GetOptions::default()).await;
            assert!(marked.is_ok_and(|entry| entry.terminating), "{spec}");
            server.finalize_namespace("odd", &uid(server, "odd").await, &Caller::server()).await.unwrap();
            assert!(server.get(&namespaces, "odd", &Caller::server(), &GetOptions::default()).await.is_err(), "{spec}");
        }
    });
}

#[test]
fn a_second_deletion_replaces_the_propagation_policy() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let server = cluster.server(0);
        let namespaces = target("namespaces", None);
        create(server, &namespaces, "team", None).await.unwrap();
        let policies = [
            (PropagationPolicy::Foreground, vec!["foregroundDeletion"]),
            (PropagationPolicy::Orphan, vec!["orphan"]),
            (PropagationPolicy::Background, vec![]),
        ];
        for (policy, expect) in policies {
            let options = DeleteOptions { propagation_policy: Some(policy), ..DeleteOptions::default() };
            let marked = server.delete(&namespaces, "team", &Caller::server(), &options).await.unwrap();
            assert_eq!(marked.object().decode(Revision::ZERO).finalizers(), expect);
        }
    });
}
