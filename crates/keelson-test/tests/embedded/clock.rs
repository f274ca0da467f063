//! The clock: objects with a time to live expire when a test advances it, and the server uses the time of the test.
//!
//! Hours pass in these tests without any wait.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event;
use keelson_test::Keelson;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::{code, config_maps, create};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_token_expires_when_the_clock_is_advanced() {
    let server = Keelson::start().await.unwrap();
    let namespace = server.namespace().await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(), namespace.name());
    let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let made = accounts.create_token_request("default", &PostParams::default(), &request).await.unwrap();
    let mut config = server.config();
    let token = made.status.unwrap().token.unwrap().into();
    config.auth_info = kube::config::AuthInfo { token: Some(token), ..Default::default() };
    let account: Api<SelfSubjectReview> = Api::all(Client::try_from(config).unwrap());
    let review = SelfSubjectReview::default();
    assert!(account.create(&PostParams::default(), &review).await.is_ok());
    server.advance(HOUR / 2).await.unwrap();
    assert!(account.create(&PostParams::default(), &review).await.is_ok());
    server.advance(HOUR).await.unwrap();
    assert_eq!(code(account.create(&PostParams::default(), &review).await), 401);
}

#[tokio::test]
async fn an_event_is_gone_after_its_time_to_live() {
    let server = Keelson::start().await.unwrap();
    let events: Api<Event> = Api::namespaced(server.client(), "default");
    let event: Event = serde_json::from_value(json!({
        "metadata": { "name": "e" }, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Test", "reason": "Test",
        "reportingController": "example.com/test", "reportingInstance": "test", "type": "Normal",
        "regarding": { "kind": "Pod", "namespace": "default", "name": "p" },
    }))
    .unwrap();
    events.create(&PostParams::default(), &event).await.unwrap();
    server.advance(HOUR / 2).await.unwrap();
    assert!(events.get_opt("e").await.unwrap().is_some());
    server.advance(HOUR).await.unwrap();
    assert!(events.get_opt("e").await.unwrap().is_none());
}

#[tokio::test]
async fn objects_bear_the_time_of_a_stopped_clock() {
    let server = Keelson::start().await.unwrap();
    server.clock().unwrap().stop();
    let maps = config_maps(server.client());
    let first = create(&maps, "first").await.metadata.creation_timestamp.unwrap();
    server.advance(24 * HOUR).await.unwrap();
    let second = create(&maps, "second").await.metadata.creation_timestamp.unwrap();
    assert_eq!(second.0.as_second() - first.0.as_second(), 24 * 3600);
    // A fork has its own clock, which begins with the time of the first server.
    let fork = server.fork().await.unwrap();
    fork.advance(HOUR).await.unwrap();
    let third = create(&config_maps(fork.client()), "third").await.metadata.creation_timestamp.unwrap();
    assert_eq!(third.0.as_second() - second.0.as_second(), 3600);
    let fourth = create(&maps, "fourth").await.metadata.creation_timestamp.unwrap();
    assert_eq!(fourth, second);
}
