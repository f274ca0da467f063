//! Several sources behind one gateway: each has its own paths, objects, users and failures.
//!
//! The sources are servers in this process.

use std::time::{Duration, Instant};

use keelson_gateway::SourceSettings;
use serde_json::json;

use super::lab::{Gateway, as_user, certificate, create_maps, names, source};
use super::rights::let_read;

const MAPS: &str = "/api/v1/namespaces/data/configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn each_source_has_its_paths_its_users_and_its_failures() {
    let (one, mut two) = (source().start().await, source().start().await);
    create_maps(&one, "data", 3).await;
    create_maps(&two, "data", 5).await;
    let_read(&one, "ann", "data").await;
    let settings = |name: &str, server: &keelson_testkit::TestServer| SourceSettings {
        impersonates: true,
        ..SourceSettings::new(name, server.kubeconfig())
    };
    let gateway = Gateway::of(vec![settings("one", &one), settings("two", &two)]).await;
    gateway.loaded().await;
    let at = |name: &str| format!("/clusters/{name}{MAPS}");
    for (name, count) in [("one", 3), ("two", 5)] {
        let list = gateway.get(at(name)).await.expect(200);
        assert!(!list.header("keelson-lag").is_empty());
        assert_eq!(names(&list.json()).len(), count);
        let sorted = gateway.get(format!("{}?keelson.io/sortBy=-metadata.name&limit=1", at(name))).await.expect(200);
        assert_eq!(sorted.header("keelson-total-count"), count.to_string());
    }
    // Rights at one source are none at the other.
    gateway.get_as("ann", at("one")).await.expect(200);
    gateway.get_as("ann", at("two")).await.expect(403);
    // A certificate of one authority must not count at the other source, so certificates count at none of several.
    let pem = certificate(&one, "ann").await;
    for name in ["one", "two"] {
        let status = gateway.raw().presenting(&pem).get(at(name)).await.status;
        assert!([401, 403].contains(&status), "{name}: {status}");
        let status = gateway.raw().presenting(&pem).get(format!("{}/m0001", at(name))).await.status;
        assert!([401, 403].contains(&status), "{name}: {status}");
    }
    // Writes go to the source of the path.
    as_user(gateway.raw().post(at("one"), &json!({"metadata": {"name": "new"}})), "root").await.expect(201);
    one.raw().get(format!("{MAPS}/new")).await.expect(200);
    two.raw().get(format!("{MAPS}/new")).await.expect(404);
    // There is nothing but health checks outside of sources.
    for path in [MAPS, "/api", "/apis", "/clusters/three/api", "/clusters/", "/clusters/..%2Fone/api"] {
        let status = gateway.get(path).await.status;
        assert!([401, 403, 404].contains(&status), "{path}: {status}");
    }
    gateway.raw().get("/readyz").await.expect(200);

    two.stop().await;
    let stale = gateway.until(&at("two"), |answer| !answer.header("keelson-as-of").is_empty()).await.expect(200);
    assert_eq!(names(&stale.json()).len(), 5);
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.get(at("one")).await.expect(200).header("keelson-as-of"), "");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    gateway.stop().await;
}
