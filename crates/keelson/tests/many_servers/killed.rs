//! Tests of server processes of two builds. They are killed one after another (kill -9), and each is started again at
//! once with the other build.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use keelson_storage::Store;
use keelson_testkit::{ProcessServer, ProcessServerBuilder, Raw};
use tempfile::TempDir;

use crate::cluster::{SERVERS, fill, stored_at};
use crate::engines::{Engine, on_engine};
use crate::walks::{OBJECTS, Walk, keys};
use crate::watches::{Watcher, history};
use crate::{CONFIG_MAPS, Progress, config_map, mixed, revision, write};

/// The smallest number of kills.
const KILLS: usize = 4;

on_engine!(postgres, postgres: inv05_walks_and_watches_go_on_while_servers_are_killed);
on_engine!(etcd, etcd: inv05_walks_and_watches_go_on_while_servers_are_killed);

/// Kills one server after the other until it is stopped. It kills the next one when the one before is back.
async fn kill(
    mut servers: Vec<ProcessServer>,
    start: impl Fn(usize, usize) -> ProcessServerBuilder,
    (kills, enough): (Arc<AtomicUsize>, Arc<AtomicBool>),
) -> Vec<ProcessServer> {
    while !enough.load(Ordering::SeqCst) {
        let done = kills.load(Ordering::SeqCst);
        let number = done % SERVERS;
        let server = &mut servers[number];
        server.kill().await;
        server.change(start(number, done / SERVERS + 1));
        server.restart().await;
        kills.fetch_add(1, Ordering::SeqCst);
    }
    servers
}

/// Reads the list in chunks. Each chunk comes from another server, or from the next one if that is gone.
async fn walk(clients: &[Raw], store: &dyn Store) {
    let (mut walk, mut tries) = (Walk::default(), 0);
    loop {
        tries += 1;
        assert!(tries < 10_000, "a walk ends");
        match walk.try_chunk(&clients[tries % clients.len()]).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    }
    let at = walk.revision.unwrap();
    assert_eq!(keys(&walk.found), stored_at(store, at).await, "the walk is what the store holds at {at}");
}

async fn inv05_walks_and_watches_go_on_while_servers_are_killed(engine: Engine) {
    let store = engine.open().await;
    fill(&*store, OBJECTS).await;
    let certificates = TempDir::new().unwrap();
    let (url, data) = (engine.url().to_owned(), certificates.path().to_owned());
    let start = move |number, time| mixed::server(&url, &data, number, time);
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        servers.push(start(number, 0).start().await);
    }
    let clients: Vec<Raw> = servers.iter().map(|server| server.raw()).collect();
    mixed::begin(&clients, &*store).await;
    let mut watchers = Vec::new();
    for number in 0..3 {
        let watcher = Watcher::begin(&clients, number).await;
        watchers.push(tokio::spawn(watcher.follow(clients.clone(), usize::MAX, "zz-last")));
    }
    let progress = Arc::new(Progress::default());
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (clients, progress) = (clients.clone(), progress.clone());
            tokio::spawn(async move { write(&clients, &progress, writer).await })
        })
        .collect();
    let scaler = tokio::spawn({
        let (clients, progress) = (clients.clone(), progress.clone());
        async move { mixed::scale(&clients, &progress).await }
    });
    let (kills, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let killer = tokio::spawn(kill(servers, start, (kills.clone(), enough.clone())));
    while kills.load(Ordering::SeqCst) < KILLS {
        walk(&clients, &*store).await;
    }
    enough.store(true, Ordering::SeqCst);
    let _servers = killer.await.unwrap();
    progress.done.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    mixed::end(&clients, &scaler.await.unwrap()).await;
    walk(&clients, &*store).await;
    let last = clients[0].post(CONFIG_MAPS, &config_map("zz-last", 0)).await.expect(201).json();
    for watcher in watchers {
        let watcher = watcher.await.unwrap();
        let mut expected = history(&*store, watcher.begun).await;
        expected.retain(|(at, ..)| *at <= revision(&last));
        assert!(watcher.told == expected, "nothing is lost or told twice, and nobody is told 410");
        assert_eq!(watcher.copy.into_iter().collect::<Vec<_>>(), stored_at(&*store, revision(&last)).await);
    }
    assert!(progress.acknowledged.load(Ordering::SeqCst) > 20, "there were writers");
}
