//! `keelson verify` against a gateway, which answers reads from its mirrors and passes writes on.
//!
//! A write must be visible to the next read through the gateway, although the mirror learns of it by a watch.

use keelson_testkit::check_verified;

use super::lab::{Gateway, source};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_keeps_every_rule() {
    let source = source().start().await;
    let gateway = Gateway::before(&source).await;
    check_verified(KEELSON, gateway.endpoint.kubeconfig()).await;
    gateway.stop().await;
}
