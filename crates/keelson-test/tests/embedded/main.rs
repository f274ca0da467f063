//! Tests of servers in this process, as a controller's tests use them: life, users, definitions, state, clock and
//! faults.
//!
//! Each test has its own server, since it changes the state of the whole server.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod clock;
mod definitions;
mod faults;
mod life;
mod state;
mod users;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A custom resource of these tests.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
pub(crate) struct WidgetSpec {
    pub(crate) size: u32,
}

pub(crate) fn config_maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

pub(crate) async fn create(maps: &Api<ConfigMap>, name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    maps.create(&PostParams::default(), &map).await.expect("a config map can be created")
}

/// The status code of a rejected request.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused by the server: {other:?}"),
    }
}
