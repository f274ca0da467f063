//! Faults occur only at the requested path, the requested number of times, and never for clients of the server itself.
//!
//! Each test observes a fault through a client of kube, as a controller does.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_test::{Fault, Faults, Keelson};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::{code, config_maps, create};

const MAPS: &str = "/api/v1/namespaces/*/configmaps";

async fn start() -> (Keelson, Faults) {
    let server = Keelson::start().await.unwrap();
    let faults = server.faults().await.unwrap();
    (server, faults)
}

async fn label(maps: &Api<ConfigMap>, name: &str, value: &str) -> Result<ConfigMap, kube::Error> {
    let patch = json!({ "metadata": { "labels": { "value": value } } });
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

#[tokio::test]
async fn the_next_update_conflicts_once_and_nothing_else() {
    let (server, faults) = start().await;
    let (maps, direct) = (config_maps(faults.client()), config_maps(server.client()));
    let conflict = faults.inject(Fault::conflict().path(&format!("{MAPS}/a"))).unwrap();
    let mut map = create(&maps, "a").await;
    create(&maps, "b").await;
    assert!(label(&maps, "b", "1").await.is_ok());
    assert!(label(&direct, "a", "0").await.is_ok());
    map.metadata.resource_version = None;
    assert_eq!(code(maps.replace("a", &PostParams::default(), &map).await), 409);
    assert!(maps.replace("a", &PostParams::default(), &map).await.is_ok());
    assert_eq!(conflict.hits(), 1);
}

#[tokio::test]
async fn requests_are_refused_so_often_and_with_the_status_of_the_fault() {
    let (_server, faults) = start().await;
    // kube's client retries after 429 and 503 unless this setting is off.
    let mut config = faults.config();
    config.default_retry = false;
    let maps = config_maps(kube::Client::try_from(config).unwrap());
    let list = ListParams::default();
    faults.inject(Fault::internal_error().methods([Method::GET]).path(MAPS).times(2)).unwrap();
    faults.inject(Fault::too_many_requests(7).path(MAPS)).unwrap();
    assert_eq!(code(maps.list(&list).await), 500);
    assert_eq!(code(maps.list(&list).await), 500);
    match maps.list(&list).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 7));
        }
        other => panic!("{other:?}"),
    }
    assert!(maps.list(&list).await.is_ok());
    let always = faults.inject(Fault::unavailable().always()).unwrap();
    for _ in 0..3 {
        assert_eq!(code(maps.list(&list).await), 503);
    }
    always.remove();
    assert!(maps.list(&list).await.is_ok());
    assert_eq!(always.hits(), 3);
}

#[tokio::test]
async fn latency_holds_only_what_matches() {
    let (_server, faults) = start().await;
    let maps = config_maps(faults.client());
    create(&maps, "a").await;
    faults.inject(Fault::latency(Duration::from_millis(300)).path(&format!("{MAPS}/a")).times(1)).unwrap();
    let begun = Instant::now();
    maps.get("a").await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let fault = faults.inject(Fault::latency(Duration::from_secs(600)).path(&format!("{MAPS}/a"))).unwrap();
    assert!(maps.list(&ListParams::default()).await.is_ok());
    fault.remove();
    assert!(maps.get("a").await.is_ok());
}

#[tokio::test]
async fn a_watch_expires_at_its_start_or_while_it_is_open() {
    let (_server, faults) = start().await;
    let maps = config_maps(faults.client());
    faults.inject(Fault::expired_watch().path(MAPS)).unwrap();
    for open in [false, true] {
        let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        if open {
            while faults.open_watches(MAPS) == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(faults.expire_watches(MAPS), 1);
        }
        let last = loop {
            match watch.try_next().await.unwrap() {
                Some(WatchEvent::Error(status)) => break status,
                Some(_) => {}
                None => panic!("the watch ended without an error"),
            }
        };
        assert_eq!((last.code, &*last.reason), (410, "Expired"));
        assert!(watch.try_next().await.unwrap().is_none());
    }
    assert_eq!(faults.open_watches(MAPS), 0);
}

#[tokio::test]
async fn watches_are_dropped_on_request_and_after_events() {
    let (_server, faults) = start().await;
    let maps = config_maps(faults.client());
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    faults.inject(Fault::dropped_watch(1)).unwrap();
    let watch = maps.watch(&WatchParams::default(), &version).await.unwrap();
    for name in ["a", "b"] {
        create(&maps, name).await;
    }
    assert_eq!(drain(watch).await, ["a"]);
    // The next watch is complete until it is cut, and loses no event.
    let watch = maps.watch(&WatchParams::default(), &version).await.unwrap();
    let cut = async {
        while faults.open_watches(MAPS) == 0 {
            tokio::task::yield_now().await;
        }
        // Both events have arrived by then.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(faults.drop_watches("/api/v1/namespaces/other/configmaps"), 0);
        assert_eq!(faults.drop_watches("/**"), 1);
    };
    let (seen, ()) = tokio::join!(drain(watch), cut);
    assert_eq!(seen, ["a", "b"]);
}

/// The names of the objects in the watch's events until its end, which the client shows as an error or hides.
async fn drain(watch: impl futures::Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>>) -> Vec<String> {
    let mut watch = watch.boxed_local();
    let mut names = Vec::new();
    loop {
        match watch.try_next().await {
            Ok(Some(WatchEvent::Added(map))) => names.extend(map.metadata.name),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return names,
        }
    }
}

#[tokio::test]
async fn a_lost_response_leaves_the_write_in_place() {
    let (server, faults) = start().await;
    let maps = config_maps(faults.client());
    let lost = faults.inject(Fault::lost_response().methods([Method::POST]).path(MAPS)).unwrap();
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    let refused = maps.create(&PostParams::default(), &map).await;
    assert!(matches!(refused, Err(ref error) if !matches!(error, kube::Error::Api(_))), "{refused:?}");
    assert!(config_maps(server.client()).get_opt("a").await.unwrap().is_some());
    lost.reached(1).await;
}

#[tokio::test]
async fn users_keep_their_rights_behind_the_layer() {
    let (server, faults) = start().await;
    let user = server.user("dev").can("get", "configmaps").in_namespace("default").await.unwrap();
    let user = faults.user(&user).await.unwrap();
    let maps = config_maps(user.client());
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(code(maps.list(&ListParams::default()).await), 403);
    // Requests stay unauthenticated: with no token, with a wrong one, and with headers of a front proxy.
    let mut config = faults.config();
    config.auth_info = Default::default();
    let anonymous = kube::Client::try_from(config.clone()).unwrap();
    assert_eq!(code(config_maps(anonymous).list(&ListParams::default()).await), 403);
    config.auth_info.token = Some("wrong".to_owned().into());
    let wrong = kube::Client::try_from(config.clone()).unwrap();
    assert_eq!(code(config_maps(wrong).list(&ListParams::default()).await), 401);
    config.auth_info = Default::default();
    let header = |name: &'static str, value: &'static str| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    };
    config.headers = vec![header("x-remote-user", "keelson-admin"), header("x-remote-group", "system:masters")];
    let forged = kube::Client::try_from(config).unwrap();
    assert_eq!(code(config_maps(forged).list(&ListParams::default()).await), 403);
}

#[tokio::test]
async fn wrong_faults_are_refused() {
    let (_server, faults) = start().await;
    assert!(faults.inject(Fault::internal_error().path("api/v1")).is_err());
    for _ in 0..1000 {
        faults.inject(Fault::internal_error().path("/nowhere")).unwrap();
    }
    assert!(faults.inject(Fault::internal_error()).is_err());
    faults.clear();
    assert!(faults.client().apiserver_version().await.is_ok());
}
