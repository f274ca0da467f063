//! Tests of `--runtime-config`: the served versions of built-in groups, by default and with settings.
//!
//! Objects of a version that is off are kept.

use keelson_server::Config;
use keelson_testkit::{ProcessServer, ProcessServerBuilder, TestServer};
use serde_json::json;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

/// Starts a server with these settings, and compares the codes of its pages.
async fn check_served(settings: &[&str], expected: &[(&str, u16)]) -> ProcessServer {
    let flags = settings.iter().flat_map(|setting| ["--runtime-config", setting]);
    let server = flags.fold(ProcessServer::builder(KEELSON), ProcessServerBuilder::arg).start().await;
    for (version, status) in expected {
        assert_eq!(server.raw().get(format!("/apis/{version}")).await.status, *status, "{settings:?} {version}");
    }
    server
}

#[tokio::test]
async fn alpha_and_beta_versions_are_served_on_demand() {
    let server = check_served(
        &[],
        &[
            ("apps/v1", 200),
            ("admissionregistration.k8s.io/v1beta1", 404),
            ("certificates.k8s.io/v1beta1", 404),
            ("coordination.k8s.io/v1beta1", 404),
            ("networking.k8s.io/v1beta1", 404),
            ("resource.k8s.io/v1beta2", 404),
            ("resource.k8s.io/v1alpha3", 404),
            ("storage.k8s.io/v1beta1", 404),
            ("internal.apiserver.k8s.io/v1alpha1", 200),
            ("storagemigration.k8s.io/v1beta1", 200),
            ("migration.k8s.io/v1alpha1", 404),
        ],
    )
    .await;
    let index = server.raw().get("/openapi/v3").await.expect(200).json();
    let pages = index["paths"].as_object().unwrap();
    let is_there = |path: &str| pages.contains_key(path);
    assert!(is_there("apis/resource.k8s.io/v1") && !is_there("apis/resource.k8s.io/v1beta1"), "{index}");
    let settings = ["api/beta=true", "resource.k8s.io/v1beta1=false", "resource.k8s.io/v1alpha3/devicetaintrules"];
    let server = check_served(
        &settings,
        &[
            ("coordination.k8s.io/v1beta1", 200),
            ("resource.k8s.io/v1beta1", 404),
            ("resource.k8s.io/v1beta2", 200),
            ("resource.k8s.io/v1alpha3", 200),
            ("coordination.k8s.io/v1alpha2", 404),
        ],
    )
    .await;
    let raw = server.raw();
    raw.get("/apis/resource.k8s.io/v1alpha3/devicetaintrules").await.expect(200);
    raw.get("/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests").await.expect(404);
}

#[tokio::test]
async fn versions_that_are_switched_off_are_not_found() {
    let off = [
        "api/beta=false,api/alpha=false,batch/v1=false,apps/v1/daemonsets=false,storagemigration.k8s.io/v1beta1=true",
        "extensions/v1beta1=true",
    ];
    let server = check_served(
        &off,
        &[
            ("batch/v1", 404),
            ("internal.apiserver.k8s.io/v1alpha1", 404),
            ("storagemigration.k8s.io/v1beta1", 200),
            ("apps/v1", 200),
            ("apps/v1/deployments", 200),
            ("apps/v1/daemonsets", 404),
            ("extensions/v1beta1", 404),
        ],
    )
    .await;
    let warned = "--runtime-config names versions of which this server has no resources";
    assert!(server.log().contains(warned), "{}", server.log());
    check_served(&["migration.k8s.io/v1alpha1=true"], &[("migration.k8s.io/v1alpha1/storagestates", 200)]).await;
}

#[tokio::test]
async fn objects_of_a_version_that_is_switched_off_are_kept() {
    const CANDIDATES: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates";
    let mut server = TestServer::builder().sqlite().every_version().start().await;
    let candidate = json!({
        "metadata": { "name": "kept" },
        "spec": {
            "leaseName": "lock", "binaryVersion": "1.36.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion",
        },
    });
    let made = server.raw().post(CANDIDATES, &candidate).await.expect(201).json();
    let serve = |setting: &'static str| {
        move |config: &mut Config| {
            config.registry.serve(keelson_server::catalogue(), &[setting]).unwrap();
        }
    };
    server.change(serve("coordination.k8s.io/v1beta1=false"));
    server.change(serve("coordination.k8s.io/v1alpha2=false"));
    server.restart().await;
    server.raw().get(CANDIDATES).await.expect(404);
    server.change(serve("coordination.k8s.io/v1beta1=true"));
    server.restart().await;
    let found = server.raw().get(format!("{CANDIDATES}/kept")).await.expect(200).json();
    assert_eq!(found, made);
    server.stop().await;
}
