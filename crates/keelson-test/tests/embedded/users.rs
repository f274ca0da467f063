//! Users: their names and groups at the server, and only the rights that were granted.
//!
//! The server's own authorizer decides, so the refusals come from real requests.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use keelson_test::Keelson;
use kube::api::{Api, ListParams, PostParams};

use crate::code;

#[tokio::test]
async fn a_user_has_its_rights_where_they_were_given_and_no_others() {
    let server = Keelson::start().await.unwrap();
    let (a, b) = (server.namespace().await.unwrap(), server.namespace().await.unwrap());
    let developer = server.user("dev").can("get,list", "pods").in_namespace(a.name()).await.unwrap();
    let list = ListParams::default();
    let pods = |namespace: &str| Api::<Pod>::namespaced(developer.client(), namespace);
    assert!(pods(a.name()).list(&list).await.is_ok());
    assert_eq!(code(pods(b.name()).list(&list).await), 403);
    assert_eq!(code(Api::<Pod>::all(developer.client()).list(&list).await), 403);
    assert_eq!(code(pods(a.name()).delete("p", &Default::default()).await), 403);
    assert_eq!(code(Api::<Secret>::namespaced(developer.client(), a.name()).list(&list).await), 403);
}

#[tokio::test]
async fn a_user_has_its_name_and_all_its_groups() {
    let server = Keelson::start().await.unwrap();
    let user = server.user("jane@example.com").group("team-a").group("team-b").group("team-c").await.unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(user.client());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let info = review.status.unwrap().user_info.unwrap();
    assert_eq!(info.username.as_deref(), Some("jane@example.com"));
    let groups = info.groups.unwrap();
    for group in ["team-a", "team-b", "team-c", "system:authenticated"] {
        assert!(groups.iter().any(|found| found == group), "{group} {groups:?}");
    }
}

#[tokio::test]
async fn a_user_takes_cluster_roles_and_rights_in_several_namespaces() {
    let server = Keelson::start().await.unwrap();
    let (a, b) = (server.namespace().await.unwrap(), server.namespace().await.unwrap());
    let user = server.user("u").role("view").can("create", "configmaps").in_namespace(a.name()).in_namespace(b.name());
    let user = user.await.unwrap();
    let map =
        |name: &str| serde_json::from_value::<ConfigMap>(serde_json::json!({ "metadata": { "name": name } })).unwrap();
    for namespace in [a.name(), b.name()] {
        let maps: Api<ConfigMap> = Api::namespaced(user.client(), namespace);
        maps.create(&PostParams::default(), &map("m")).await.unwrap();
        assert!(maps.get("m").await.is_ok());
    }
    let elsewhere: Api<ConfigMap> = Api::namespaced(user.client(), "default");
    assert_eq!(code(elsewhere.create(&PostParams::default(), &map("m")).await), 403);
}

#[tokio::test]
async fn a_group_of_administrators_is_not_handed_out() {
    let server = Keelson::start().await.unwrap();
    let refused = server.user("intruder").group("system:masters").await;
    assert!(refused.is_err(), "{refused:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_kubeconfig_is_for_its_user_alone_and_works() {
    use std::os::unix::fs::PermissionsExt as _;

    let server = Keelson::start().await.unwrap();
    let user = server.user("dev").can("list", "pods").in_namespace("default").await.unwrap();
    let file = user.kubeconfig().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let read = kube::config::Kubeconfig::read_from(&file).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_from(config).unwrap(), "default");
    assert!(pods.list(&ListParams::default()).await.is_ok());
    assert_eq!(code(pods.delete("p", &Default::default()).await), 403);
    drop(user);
    assert!(!file.exists());
}
