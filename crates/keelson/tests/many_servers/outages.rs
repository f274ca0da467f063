//! Tests of a store that fails under load and recovers: no acknowledged write is lost, and all clients continue.
//!
//! `verbs.rs` tests the responses during the outage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keelson_storage::faulty::Fault;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_testkit::{EtcdServer, PostgresServer, Raw, TestServer};
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::engines::{Engine, on_every_engine};
use crate::{CONFIG_MAPS, Progress, STORED, config_map, is_ours, items, name, next_of, revision, until, write};

on_every_engine!(
    mortal: inv18_what_was_acknowledged_outlives_a_store_that_goes_and_comes,
    a_store_that_is_compacted_while_it_is_away_ends_watches_and_nothing_else,
);

/// Creates its own objects, and repeats each create until the object is known to exist. Returns their names.
async fn create(raw: Raw, progress: Arc<Progress>, client: usize) -> Vec<String> {
    let mut created = Vec::new();
    for number in 0.. {
        if progress.done.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("kept-{client}-{number:05}");
        // A repeated create gets 409 if the response of the first one was lost.
        loop {
            let answer = raw.post(CONFIG_MAPS, &config_map(&name, number)).await;
            match answer.status {
                201 | 409 => break,
                _ => {
                    // With 504 the outcome of the create is unknown.
                    assert!([503, 504].contains(&answer.status), "{}", answer.text());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        progress.acknowledged.fetch_add(1, Ordering::SeqCst);
        created.push(name);
    }
    created
}

/// Copies the collection by list and watch, as a careful client does: it resumes a broken watch, and lists again after
/// 410. It ends when `last` exists.
async fn copy(raw: Raw, last: &str) -> BTreeMap<String, u64> {
    loop {
        let Some(list) = until_listed(&raw).await else { continue };
        let mut copy: BTreeMap<String, u64> =
            items(&list).iter().map(|object| (name(object).to_owned(), revision(object))).collect();
        let mut seen = revision(&list);
        'watching: loop {
            if copy.contains_key(last) {
                return copy;
            }
            let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={seen}&timeoutSeconds=2");
            let mut stream = raw.get(path).stream().await;
            while let Some(event) = stream.next_json().await {
                let object: &Value = &event["object"];
                match event["type"].as_str() {
                    Some("ERROR") => {
                        assert_eq!(object["code"], 410, "{event}");
                        break 'watching;
                    }
                    Some("DELETED") => drop(copy.remove(name(object))),
                    _ => drop(copy.insert(name(object).to_owned(), revision(object))),
                }
                assert!(revision(object) > seen, "{event} after {seen}");
                seen = revision(object);
            }
        }
    }
}

async fn until_listed(raw: &Raw) -> Option<Value> {
    let answer = raw.get(CONFIG_MAPS).await;
    if answer.status == 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        return None;
    }
    Some(answer.expect(200).json())
}

async fn inv18_what_was_acknowledged_outlives_a_store_that_goes_and_comes(engine: Engine) {
    let cluster = Arc::new(Cluster::start(engine).await);
    let progress = Arc::new(Progress::default());
    let creators: Vec<_> =
        (0..6).map(|client| tokio::spawn(create(cluster.raw(client), progress.clone(), client))).collect();
    let copies: Vec<_> = (0..3).map(|client| tokio::spawn(copy(cluster.raw(client), "zz-last"))).collect();
    let writer = {
        let (servers, progress) = (cluster.clients(), progress.clone());
        tokio::spawn(async move { write(&servers, &progress, 0).await })
    };
    for (round, fault) in [Fault::Error, Fault::Hang, Fault::Error].into_iter().enumerate() {
        let enough = 60 * (round as u64 + 1);
        until("writes", || async { progress.acknowledged.load(Ordering::SeqCst) >= enough }).await;
        // The connection breaks after the write and before its response, which is the worst moment.
        cluster.servers.iter().for_each(|member| member.way.lose_answers(STORED, 1));
        let killed = fault == Fault::Error && cluster.engine.kill().await;
        if !killed {
            cluster.set(fault);
        }
        let raw = cluster.raw(round);
        until("the outage", || async { raw.get(CONFIG_MAPS).await.status == 503 }).await;
        if killed {
            cluster.engine.start_again().await;
        }
        cluster.set(Fault::None);
        cluster.ready().await;
    }
    progress.done.store(true, Ordering::SeqCst);
    writer.await.unwrap();
    let mut kept = Vec::new();
    for creator in creators {
        kept.extend(creator.await.unwrap());
    }
    cluster.raw(0).post(CONFIG_MAPS, &config_map("zz-last", 0)).await.expect(201);
    let newest = cluster.store.current_revision().await.unwrap().get();
    let mut stored: BTreeMap<String, u64> = cluster.stored_at(newest).await.into_iter().collect();
    stored.retain(|name, _| is_ours(name));
    assert!(kept.len() > 100 && kept.iter().all(|name| stored.contains_key(name)));
    for copy in copies {
        let mut copy = copy.await.unwrap();
        copy.retain(|name, _| is_ours(name));
        assert_eq!(copy, stored, "whoever followed has what the store has");
    }
    for number in 0..3 {
        let list = cluster.raw(number).get(CONFIG_MAPS).await.expect(200).json();
        assert_eq!(items(&list).iter().filter(|object| is_ours(name(object))).count(), stored.len());
    }
}

async fn a_store_that_is_compacted_while_it_is_away_ends_watches_and_nothing_else(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    let first = cluster.raw(0).post(CONFIG_MAPS, &config_map("first", 0)).await.expect(201).json();
    until("the first write", || async {
        cluster.raw(2).get(format!("{CONFIG_MAPS}/first?resourceVersion=0")).await.status == 200
    })
    .await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&first));
    let mut cut_off = cluster.raw(2).get(path.clone()).stream().await;
    let mut not_cut_off = cluster.raw(1).get(path).stream().await;
    cluster.servers[2].way.set(Fault::Error);
    // Only the first server is connected, and its writes are compacted at once.
    cluster.raw(0).delete(format!("{CONFIG_MAPS}/first")).await.expect(200);
    cluster.raw(0).post(CONFIG_MAPS, &config_map("second", 0)).await.expect(201);
    assert_eq!(next_of(&mut not_cut_off, "first").await["type"], "DELETED");
    assert_eq!(next_of(&mut not_cut_off, "second").await["type"], "ADDED");
    let newest = cluster.store.current_revision().await.unwrap();
    cluster.store.compact(newest).await.unwrap();
    cluster.servers[2].way.set(Fault::None);
    let mut gone = cut_off.next_json().await.unwrap();
    while gone["type"] != "ERROR" {
        assert!(!["first", "second"].contains(&name(&gone["object"])), "{gone}");
        gone = cut_off.next_json().await.unwrap();
    }
    assert_eq!(gone["object"]["code"], 410, "{gone}");
    assert_eq!(cut_off.next_json().await, None, "nothing follows an error");
    let list = cluster.raw(2).get(CONFIG_MAPS).await.expect(200).json();
    let names: Vec<&str> = items(&list).iter().map(name).collect();
    assert!(names.contains(&"second") && !names.contains(&"first"), "{names:?}");
    cluster.ready().await;
}

/// A replica without the last commits takes over. Clients that have seen these commits must list again, on every
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_failover_that_loses_commits_has_all_clients_list_again() {
    let Some(mut first) = PostgresServer::start() else { return };
    let second = first.asynchronous_replica();
    let url = format!("postgres://keelson@127.0.0.1:{},127.0.0.1:{}/keelson", first.port(), second.port());
    let certificates = TempDir::new().unwrap();
    let mut servers = Vec::new();
    for number in 0..2 {
        let store = PostgresStore::open(PostgresConfig::from_url(&url).unwrap()).await.unwrap();
        let server = TestServer::builder().shared_store(Arc::new(store)).configure(|config| {
            config.data_dir = Some(certificates.path().to_owned());
            config.server_id = format!("server-{number}");
        });
        servers.push(server.start().await);
    }
    let [writer, reader] = [servers[0].raw(), servers[1].raw()];
    let kept = writer.post(CONFIG_MAPS, &config_map("kept", 1)).await.expect(201).json();
    tokio::task::block_in_place(|| first.leave_behind(&second));
    let lost = writer.post(CONFIG_MAPS, &config_map("lost", 1)).await.expect(201).json();
    let watch = |raw: &Raw, at: u64| raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={at}")).stream();
    let mut watches = [watch(&writer, revision(&kept)).await, watch(&reader, revision(&kept)).await];
    for watch in &mut watches {
        assert_eq!(next_of(watch, "lost").await["type"], "ADDED");
    }
    let chunk = reader.get(format!("{CONFIG_MAPS}?limit=1")).await.expect(200).json();
    tokio::task::block_in_place(|| {
        first.kill();
        second.promote();
    });
    for watch in &mut watches {
        let told = watch.next_json().await.unwrap();
        assert_eq!((&told["type"], &told["object"]["code"]), (&"ERROR".into(), &410.into()), "{told}");
    }
    for raw in [&writer, &reader] {
        until("a list", || async { raw.get(CONFIG_MAPS).await.status == 200 }).await;
        let list = raw.get(CONFIG_MAPS).await.expect(200).json();
        let names: Vec<&str> = items(&list).iter().map(name).filter(|name| is_ours(name)).collect();
        assert_eq!(names, ["kept"]);
        assert!(revision(&list) > revision(&lost));
        let told = watch(raw, revision(&lost)).await.next_json().await.unwrap();
        assert_eq!(told["object"]["code"], 410, "{told}");
        let token = chunk["metadata"]["continue"].as_str().unwrap();
        raw.get(format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.expect(410);
        raw.get(format!("{CONFIG_MAPS}/lost")).await.expect(404);
    }
    until("a write", || async { reader.post(CONFIG_MAPS, &config_map("lost", 2)).await.status == 201 }).await;
    for raw in [&writer, &reader] {
        raw.get(format!("{CONFIG_MAPS}/lost")).await.expect(200);
        raw.get("/readyz").await.expect(200);
    }
}

/// A snapshot of the store's volume is restored under running servers. No client gets lost state, and none misses a
/// later change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_an_etcd_that_was_set_back_has_all_clients_list_again() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let url = format!("etcd://{}", etcd.endpoint());
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let server = TestServer::builder().shared_store(Arc::new(store)).start().await;
    let raw = server.raw();
    let kept = raw.post(CONFIG_MAPS, &config_map("kept", 1)).await.expect(201).json();
    tokio::task::block_in_place(|| {
        etcd.kill();
        etcd.copy_data();
        etcd.start_again();
    });
    let is_ready = || async { raw.get("/readyz").await.status == 200 };
    until("the server follows on", is_ready).await;
    let mut lost = kept.clone();
    for number in 0..20 {
        let made = || async { raw.post(CONFIG_MAPS, &config_map(&format!("lost-{number}"), number)).await };
        until("a write", || async { [201, 409].contains(&made().await.status) }).await;
        lost = raw.get(format!("{CONFIG_MAPS}/lost-{number}")).await.expect(200).json();
    }
    let mut watch = raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&lost))).stream().await;
    let chunk = raw.get(format!("{CONFIG_MAPS}?limit=1")).await.expect(200).json();
    tokio::task::block_in_place(|| {
        etcd.kill();
        etcd.put_data_back();
        etcd.start_again();
    });
    let told = watch.next_json().await.unwrap();
    assert_eq!((&told["type"], &told["object"]["code"]), (&"ERROR".into(), &410.into()), "{told}");
    until("a list", || async { raw.get(CONFIG_MAPS).await.status == 200 }).await;
    let list = raw.get(CONFIG_MAPS).await.expect(200).json();
    let names: Vec<&str> = items(&list).iter().map(name).filter(|name| is_ours(name)).collect();
    assert_eq!(names, ["kept"]);
    assert!(revision(&list) > revision(&lost));
    let told = raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&lost)));
    assert_eq!(told.stream().await.next_json().await.unwrap()["object"]["code"], 410);
    let token = chunk["metadata"]["continue"].as_str().unwrap();
    raw.get(format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.expect(410);
    raw.get(format!("{CONFIG_MAPS}/lost-0?resourceVersion=0")).await.expect(404);
    // Later writes are visible at once.
    let mut watch = raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&list))).stream().await;
    until("a write", || async { raw.post(CONFIG_MAPS, &config_map("lost-0", 2)).await.status == 201 }).await;
    let told = next_of(&mut watch, "lost-0").await;
    assert_eq!(told["type"], "ADDED");
    assert!(revision(&told["object"]) > revision(&list));
    until("the server is ready", is_ready).await;
}
