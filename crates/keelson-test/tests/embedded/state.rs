//! The whole state of a server: snapshots, restores, and forks of snapshots.
//!
//! Forks are real servers with their own ports. They accept the credentials of the server from which they were forked.

use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _};
use keelson_test::Keelson;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, CustomResourceExt as _};
use serde_json::json;

use crate::{Widget, WidgetSpec, code, config_maps, create};

#[tokio::test]
async fn a_restore_brings_objects_back_and_takes_later_ones_away() {
    let server = Keelson::start().await.unwrap();
    let maps = config_maps(server.client());
    let (kept, deleted) = (create(&maps, "kept").await, create(&maps, "deleted").await);
    let before = server.snapshot().unwrap();
    maps.patch("kept", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "b"}}))).await.unwrap();
    maps.delete("deleted", &DeleteParams::default()).await.unwrap();
    let later = create(&maps, "later").await;
    server.restore(&before).unwrap();
    assert!(maps.get("kept").await.unwrap().data.is_none());
    assert_eq!(maps.get("deleted").await.unwrap().metadata.uid, deleted.metadata.uid);
    assert!(maps.get_opt("later").await.unwrap().is_none());
    // Resource versions never decrease.
    let version = |object: &k8s_openapi::api::core::v1::ConfigMap| {
        object.metadata.resource_version.as_deref().unwrap_or_default().parse::<u64>().unwrap()
    };
    assert!(version(&maps.get("kept").await.unwrap()) > version(&later) && version(&kept) < version(&later));
    // A second restore works, and the server continues.
    create(&maps, "later").await;
    server.restore(&before).unwrap();
    assert!(maps.get_opt("later").await.unwrap().is_none());
    create(&maps, "more").await;
}

#[tokio::test]
async fn watches_see_a_restore_as_changes() {
    let server = Keelson::start().await.unwrap();
    let maps = config_maps(server.client());
    let before = server.snapshot().unwrap();
    let made = create(&maps, "later").await;
    let from = made.metadata.resource_version.unwrap();
    let mut watch = maps.watch(&WatchParams::default().fields("metadata.name=later"), &from).await.unwrap().boxed();
    server.restore(&before).unwrap();
    let event = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Deleted(_)), "{event:?}");
}

#[tokio::test]
async fn definitions_go_and_come_back_with_a_restore() {
    let server = Keelson::start().await.unwrap();
    let without = server.snapshot().unwrap();
    server.install::<Widget>().await.unwrap();
    let widgets: Api<Widget> = Api::namespaced(server.client(), "default");
    widgets.create(&PostParams::default(), &Widget::new("w", WidgetSpec { size: 1 })).await.unwrap();
    let with = server.snapshot().unwrap();
    server.restore(&without).unwrap();
    let definitions: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(server.client());
    assert!(definitions.get_opt(Widget::crd_name()).await.unwrap().is_none());
    server.restore(&with).unwrap();
    assert!(definitions.get_opt(Widget::crd_name()).await.unwrap().is_some());
    server.install::<Widget>().await.unwrap();
    assert_eq!(widgets.get("w").await.unwrap().spec.size, 1);
}

#[tokio::test]
async fn a_fork_begins_with_the_state_and_goes_its_own_way() {
    let server = Keelson::start().await.unwrap();
    server.install::<Widget>().await.unwrap();
    let widgets = |client: Client| Api::<Widget>::namespaced(client, "default");
    let user = server.user("dev").can("get", "widgets.example.com").in_namespace("default").await.unwrap();
    widgets(server.client()).create(&PostParams::default(), &Widget::new("w", WidgetSpec { size: 1 })).await.unwrap();
    let fork = server.fork().await.unwrap();
    assert_ne!(fork.url(), server.url());
    assert_eq!(widgets(fork.client()).get("w").await.unwrap().spec.size, 1);
    widgets(fork.client()).delete("w", &DeleteParams::default()).await.unwrap();
    assert!(widgets(server.client()).get_opt("w").await.unwrap().is_some());
    widgets(server.client()).create(&PostParams::default(), &Widget::new("x", WidgetSpec { size: 2 })).await.unwrap();
    assert!(widgets(fork.client()).get_opt("x").await.unwrap().is_none());
    // The certificate of a user of the first server is valid at the fork, with the same rights.
    let mut config = user.config();
    config.cluster_url = fork.url().parse().unwrap();
    let there = widgets(Client::try_from(config).unwrap());
    assert!(there.get_opt("x").await.unwrap().is_none());
    assert_eq!(code(there.delete("x", &DeleteParams::default()).await), 403);
    // Forks of forks, and forks of an earlier snapshot.
    let empty = fork.snapshot().unwrap();
    create(&config_maps(fork.client()), "m").await;
    let (second, third) = (fork.fork().await.unwrap(), fork.fork_from(&empty).await.unwrap());
    assert!(config_maps(second.client()).get_opt("m").await.unwrap().is_some());
    assert!(config_maps(third.client()).get_opt("m").await.unwrap().is_none());
    drop(server);
    assert!(second.client().apiserver_version().await.is_ok());
}

#[tokio::test]
async fn forks_start_side_by_side() {
    let server = Keelson::start().await.unwrap();
    let maps = config_maps(server.client());
    for number in 0..50 {
        create(&maps, &format!("m{number}")).await;
    }
    let (begun, cpu) = (Instant::now(), cpu_ticks());
    let forks = futures::future::try_join_all((0..8).map(|_| server.fork())).await.unwrap();
    println!("8 forks: {:?}, {} ms of CPU each", begun.elapsed(), (cpu_ticks() - cpu) * 10 / 8);
    let begun = Instant::now();
    let fork = server.fork().await.unwrap();
    println!("1 fork: {:?}", begun.elapsed());
    let begun = Instant::now();
    drop(fork);
    println!("its end: {:?}", begun.elapsed());
    for fork in &forks {
        assert!(config_maps(fork.client()).get_opt("m49").await.unwrap().is_some());
    }
}

/// The processor time of this process so far, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}
