//! `keelson verify` against one of three servers on each store.
//!
//! The run writes by one server only, while the others renew leases and run controllers on the same store.

use keelson_testkit::check_verified;

use crate::cluster::Cluster;
use crate::engines::{Engine, on_every_engine};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

on_every_engine!(one_of_several_servers_keeps_every_rule);

async fn one_of_several_servers_keeps_every_rule(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    cluster.ready().await;
    let kubeconfig = cluster.servers[1].server.lock().await.kubeconfig().to_owned();
    check_verified(KEELSON, &kubeconfig).await;
}
