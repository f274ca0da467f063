//! The whole state of a server: snapshots, restores, and forks of snapshots.
//!
//! Forks are real servers with their own ports. They accept the credentials of the server from which they were forked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_test::Keelson;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
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
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
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
async fn definitions_of_a_fork_go_their_own_way() {
    let server = Keelson::start().await.unwrap();
    server.install::<Widget>().await.unwrap();
    let widgets = |server: &Keelson| Api::<Widget>::namespaced(server.client(), "default");
    let widget = |name: &str| Widget::new(name, WidgetSpec { size: 1 });
    let served = async |server: &Keelson| -> Vec<String> {
        let list = server.client().list_api_group_resources("example.com/v1").await;
        list.map(|list| list.resources.into_iter().map(|resource| resource.name).collect()).unwrap_or_default()
    };
    assert_eq!(served(&server).await, ["widgets"]);
    let (fork, other) = (server.fork().await.unwrap(), server.fork().await.unwrap());
    assert_eq!(served(&fork).await, ["widgets"]);
    widgets(&fork).create(&PostParams::default(), &widget("w")).await.unwrap();

    // Another version of the schema in one fork alone.
    let mut definition = serde_json::to_value(Widget::crd()).unwrap();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["maximum"] = 1.into();
    fork.install_definitions([definition]).await.unwrap();
    let large = Widget::new("large", WidgetSpec { size: 2 });
    assert_eq!(code(widgets(&fork).create(&PostParams::default(), &large).await), 422);
    assert!(widgets(&other).create(&PostParams::default(), &large).await.is_ok());
    assert_eq!(widgets(&fork).get("w").await.unwrap().spec.size, 1);

    // A deleted definition, and one that is created later with the same name.
    let definitions = |server: &Keelson| Api::<CustomResourceDefinition>::all(server.client());
    definitions(&fork).delete(Widget::crd_name(), &DeleteParams::default()).await.unwrap();
    while definitions(&fork).get_opt(Widget::crd_name()).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(served(&fork).await.is_empty());
    assert_eq!(served(&other).await, ["widgets"]);
    let without = fork.fork().await.unwrap();
    assert!(served(&without).await.is_empty());
    without.install::<Widget>().await.unwrap();
    assert!(widgets(&without).get_opt("w").await.unwrap().is_none());
    widgets(&without).create(&PostParams::default(), &large).await.unwrap();
    assert_eq!((served(&without).await.len(), served(&fork).await.len()), (1, 0));
    assert!(widgets(&server).list(&ListParams::default()).await.unwrap().items.is_empty());
}

/// The state of a fork is that of one moment, whatever is written meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_during_writes_has_the_state_of_one_moment() {
    const WRITES: usize = 300;
    let server = Keelson::start().await.unwrap();
    let maps = config_maps(server.client());
    let written = Arc::new(AtomicUsize::new(0));
    let writing = {
        let (maps, written) = (maps.clone(), written.clone());
        tokio::spawn(async move {
            for number in 0..WRITES {
                create(&maps, &format!("m{number}")).await;
                written.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    let mut seen = 0;
    while seen < WRITES {
        let least = written.load(Ordering::SeqCst);
        let fork = server.fork().await.unwrap();
        let list = config_maps(fork.client()).list(&ListParams::default()).await.unwrap();
        let found: BTreeSet<String> = list.items.into_iter().filter_map(|map| map.metadata.name).collect();
        seen = (0..WRITES).take_while(|number| found.contains(&format!("m{number}"))).count();
        let others = found.iter().filter(|name| name.starts_with('m')).count();
        assert!(seen >= least && others == seen, "{seen} of {others}, at least {least}");
        // The fork continues from there.
        create(&config_maps(fork.client()), "own").await;
        fork.stop().await;
    }
    writing.await.unwrap();
    assert!(maps.get_opt("own").await.unwrap().is_none());
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
