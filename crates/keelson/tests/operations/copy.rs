//! Tests of `keelson storage copy`. All objects are copied from one kind of store to the next and back, and each copy
//! is served. Other tests check rejected copies.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use keelson_storage::{Store, StoreKey, Transaction};
use keelson_storage_sql::{PostgresConfig, PostgresStore, SqliteConfig, SqliteStore};
use keelson_testkit::{EtcdServer, PostgresServer, ProcessServer, Raw};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The key that marks a store as the target of an unfinished copy.
const MARK: &str = "/registry/keelson/unfinished-copy";

/// The compared collections. Leases and endpoints belong to the running servers.
const COLLECTIONS: [&str; 8] = [
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/services",
    "/api/v1/events",
    "/apis/apps/v1/deployments",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
];

/// Starts a server on a store. All servers share a directory of certificates.
async fn serve(store: &str, data: &Path) -> ProcessServer {
    ProcessServer::builder(KEELSON).data_dir(data).arg("--store").arg(store).start().await
}

async fn keelson(args: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = Command::new(KEELSON).args(args).output().await.unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

async fn copy(from: &str, to: &str) -> (bool, String) {
    keelson(&["storage", "copy", from, to]).await
}

fn sqlite(directory: &TempDir) -> String {
    format!("sqlite:{}", directory.path().display())
}

async fn make_objects(raw: &Raw) {
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let made = [
        (CONFIG_MAPS, json!({"data": {"sky": "blue"}})),
        ("/api/v1/namespaces/default/secrets", json!({"stringData": {"password": "swordfish"}})),
        ("/api/v1/namespaces/default/services", json!({"spec": {"ports": [{"port": 80}]}})),
        (
            "/api/v1/namespaces/default/events",
            json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "Started"}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}}),
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": target}}),
        ),
    ];
    for (collection, mut body) in made {
        body["metadata"]["name"] = json!("copied");
        raw.post(format!("{collection}?fieldManager=maker"), &body).await.expect(201);
    }
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "gone"}})).await.expect(201);
    raw.delete(format!("{CONFIG_MAPS}/gone")).await.expect(200);
}

/// All objects, without their revisions, and the newest revision.
async fn objects(raw: &Raw) -> (BTreeMap<String, Value>, u64) {
    let (mut found, mut newest) = (BTreeMap::new(), 0);
    for collection in COLLECTIONS {
        let list = raw.get(collection).await.expect(200).json();
        newest = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        for object in list["items"].as_array().unwrap() {
            let mut object = object.clone();
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion").unwrap();
            found.insert(format!("{collection} {}", object["metadata"]["uid"]), object);
        }
    }
    (found, newest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_the_same_in_every_store_that_they_are_copied_to() {
    let (Some(postgres), Some(etcd)) = (PostgresServer::start(), EtcdServer::start()) else { return };
    let (data, first, last) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let stores = [sqlite(&first), postgres.url(), format!("etcd://{}", etcd.endpoint()), sqlite(&last)];
    let mut server = serve(&stores[0], data.path()).await;
    make_objects(&server.raw()).await;
    let (made, mut newest) = objects(&server.raw()).await;
    assert!(made.values().any(|object| object["metadata"]["managedFields"][0]["manager"] == "maker"));
    assert!(server.terminate().await.success());
    for pair in stores.windows(2) {
        let (done, text) = copy(&pair[0], &pair[1]).await;
        assert!(done && text.contains("and found them equal"), "{text}");
        assert!(!text.contains("swordfish"), "{text}");
        server = serve(&pair[1], data.path()).await;
        let (found, revision) = objects(&server.raw()).await;
        assert_eq!(found, made, "{}", pair[1]);
        // Revisions of etcd only count its writes.
        assert!(revision > newest || pair[1].starts_with("etcd:"), "{revision} after {newest} in {}", pair[1]);
        newest = revision;
        server.raw().get(format!("{CONFIG_MAPS}/gone")).await.expect(404);
        assert!(server.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_copy_is_not_served() {
    let (data, source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut server = serve(&sqlite(&source), data.path()).await;
    make_objects(&server.raw()).await;
    let (made, _) = objects(&server.raw()).await;
    assert!(server.terminate().await.success());
    // The state that a killed copy leaves.
    let store = SqliteStore::open(SqliteConfig::directory(target.path())).unwrap();
    store.commit(Transaction::default().put(StoreKey::new(MARK), "not finished")).await.unwrap();
    drop(store);
    let target_url = sqlite(&target);
    let data_dir = data.path().to_str().unwrap();
    let serve_it = ["serve", "--bind", "127.0.0.1:0", "--data-dir", data_dir, "--store", &target_url];
    let (done, text) = keelson(&serve_it).await;
    assert!(
        !done && text.contains("a copy into this store did not finish: give `keelson storage copy` again"),
        "{text}"
    );
    let elsewhere = TempDir::new().unwrap();
    let (done, text) = copy(&target_url, &sqlite(&elsewhere)).await;
    assert!(!done && text.contains("the source is itself an unfinished copy: finish that one first"), "{text}");
    let (done, text) = copy(&sqlite(&source), &target_url).await;
    assert!(done, "{text}");
    let server = serve(&target_url, data.path()).await;
    assert_eq!(objects(&server.raw()).await.0, made);
}

/// A copy is interrupted and killed as soon as it has written something. No server takes the remaining store for a new
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_killed_at_its_beginning_leaves_no_empty_store() {
    let (data, source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = SqliteStore::open(SqliteConfig::directory(source.path())).unwrap();
    for thousand in 0..20 {
        let key = |number| StoreKey::new(format!("/registry/configmaps/default/{thousand:02}-{number:03}"));
        let puts = (0..1000).fold(Transaction::default(), |puts, number| puts.put(key(number), "{}"));
        from.commit(puts).await.unwrap();
    }
    drop(from);
    let (file, to) = (target.path().join("keelson.db"), sqlite(&target));
    let begin = async || {
        let mut copy = Command::new(KEELSON);
        let copying = copy.args(["storage", "copy", &sqlite(&source), &to]).stderr(Stdio::piped()).spawn().unwrap();
        while file.metadata().map_or(0, |found| found.len()) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        copying
    };
    let interrupted = begin().await;
    let pid = interrupted.id().and_then(|id| Pid::from_raw(id.cast_signed())).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = interrupted.wait_with_output().await.unwrap();
    let why = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{why}");
    assert!(why.ends_with("repeat the command to continue the copy; no server starts on it before\n"), "{why}");
    begin().await.kill().await.unwrap();
    let data_dir = data.path().to_str().unwrap();
    let (done, text) = keelson(&["serve", "--bind", "127.0.0.1:0", "--data-dir", data_dir, "--store", &to]).await;
    assert!(
        !done && text.contains("a copy into this store did not finish: give `keelson storage copy` again"),
        "{text}"
    );
    let (done, text) = copy(&sqlite(&source), &to).await;
    assert!(done && text.contains("copied 20000 objects"), "{text}");
}

/// A database that is created for a copy gets the mark together with its tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_target_of_a_copy_is_marked_unfinished_from_the_start() {
    let Some(postgres) = PostgresServer::shared() else { return };
    let (url, data) = (postgres.create_database("unfinished"), TempDir::new().unwrap());
    let mut config = PostgresConfig::from_url(&url).unwrap();
    config.first = Some(keelson_storage::copy::unfinished());
    // The state that a copy leaves if it is killed right after that.
    drop(PostgresStore::open(config.clone()).await.unwrap());
    let serve = ["serve", "--bind", "127.0.0.1:0", "--data-dir", data.path().to_str().unwrap(), "--store", &url];
    let (done, text) = keelson(&serve).await;
    assert!(!done && text.contains("a copy into this store did not finish"), "{text}");
    // The mark is written once.
    let store = PostgresStore::open(config).await.unwrap();
    assert_eq!(store.current_revision().await.unwrap().get(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_copied_over_objects_or_from_a_store_in_use() {
    let (data, source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let (from, to) = (sqlite(&source), sqlite(&target));
    let other_data = TempDir::new().unwrap();
    for (store, name, data) in [(&from, "source", &other_data), (&to, "target", &data)] {
        let mut server = serve(store, data.path()).await;
        server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).await.expect(201);
        assert!(server.terminate().await.success());
    }
    let (done, text) = copy(&from, &to).await;
    assert!(!done && text.contains("the target holds objects already: copy into an empty store"), "{text}");
    let server = serve(&to, data.path()).await;
    server.raw().get(format!("{CONFIG_MAPS}/target")).await.expect(200);
    server.raw().get(format!("{CONFIG_MAPS}/source")).await.expect(404);
    let elsewhere = TempDir::new().unwrap();
    let (done, text) = copy(&to, &sqlite(&elsewhere)).await;
    assert!(
        !done && text.contains("opening the source") && text.contains("is in use by another keelson server"),
        "{text}"
    );
}

/// A rejected copy does not even raise the revisions of its target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_refused_leaves_its_target_as_it_was() {
    let (source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let postgres = PostgresServer::shared().map(|server| server.create_database("refused"));
    // A program that another test starts inherits all open files, with this lock, until it has executed its binary.
    let open = |directory: &TempDir| loop {
        match SqliteStore::open(SqliteConfig::directory(directory.path())) {
            Err(error) if error.to_string().contains("in use") => std::thread::sleep(Duration::from_millis(10)),
            opened => break opened.unwrap(),
        }
    };
    let object = || Transaction::default().put(StoreKey::new("/registry/configmaps/default/a"), "{}");
    open(&source).commit(object()).await.unwrap();
    open(&target).commit(object()).await.unwrap();
    for to in [Some(sqlite(&target)), postgres].into_iter().flatten() {
        let state = async || -> (u64, u64) {
            let store: Box<dyn Store> = match to.starts_with("sqlite:") {
                true => Box::new(open(&target)),
                false => Box::new(PostgresStore::open(PostgresConfig::from_url(&to).unwrap()).await.unwrap()),
            };
            if store.get(&StoreKey::new("/registry/configmaps/default/a")).await.unwrap().is_none() {
                store.commit(object()).await.unwrap();
            }
            (store.current_revision().await.unwrap().get(), store.oldest_revision().await.unwrap().get())
        };
        let before = state().await;
        let (done, text) = copy(&sqlite(&source), &to).await;
        assert!(!done && text.contains("the target holds objects already"), "{text}");
        assert_eq!(state().await, before, "{to}");
    }
    let (unfinished, nowhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    open(&unfinished).commit(Transaction::default().put(StoreKey::new(MARK), "not finished")).await.unwrap();
    let (done, text) = copy(&sqlite(&unfinished), &sqlite(&nowhere)).await;
    assert!(!done && text.contains("the source is itself an unfinished copy"), "{text}");
    assert_eq!(std::fs::read_dir(nowhere.path()).unwrap().count(), 0, "nothing is made where nothing is copied to");
}

/// A mistyped source must not count as an empty store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_refuses_missing_or_empty_sources_by_default() {
    let (source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let nothing = || [&source, &target].iter().all(|place| std::fs::read_dir(place.path()).unwrap().count() == 0);
    let typo = format!("{}/typo", sqlite(&source));
    for from in [typo.as_str(), &sqlite(&source)] {
        let (done, text) = copy(from, &sqlite(&target)).await;
        assert!(!done && text.contains("there is no embedded store in "), "{text}");
        assert!(nothing(), "{from}");
    }
    for (from, to) in [("memory:", sqlite(&target)), (&typo, "memory:".to_owned())] {
        let (done, text) = copy(from, &to).await;
        assert!(!done && text.contains("the store memory: lasts as long as the command"), "{text}");
        assert!(nothing(), "{from}");
    }
    let postgres = PostgresServer::shared().map(|server| server.create_database("no_store"));
    if let Some(postgres) = &postgres {
        for _ in 0..2 {
            let (done, text) = copy(postgres, &sqlite(&target)).await;
            assert!(!done && text.contains("there is no keelson store in the database"), "{text}");
        }
        assert!(nothing(), "and no tables are there for the second copy");
    }
    drop(SqliteStore::open(SqliteConfig::directory(source.path())).unwrap());
    let (done, text) = copy(&sqlite(&source), &sqlite(&target)).await;
    assert!(!done && text.contains("holds no objects") && text.contains("--allow-empty"), "{text}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    let (done, text) = keelson(&["storage", "copy", "--allow-empty", &sqlite(&source), &sqlite(&target)]).await;
    assert!(done && text.contains("copied 0 objects"), "{text}");
}

/// Commands for the embedded store name the store that the servers of the directory use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_an_external_store_names_the_right_tool() {
    let (Some(postgres), Some(etcd)) = (PostgresServer::shared(), EtcdServer::start()) else { return };
    let etcd = format!("etcd://{}", etcd.endpoint());
    for (url, named) in [
        (postgres.create_database("backups"), "pg_dump"),
        (etcd, "etcdctl snapshot save"),
        ("memory:".to_owned(), "kubectl get"),
    ] {
        let (data, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (name, file) = (data.path().to_str().unwrap(), files.path().join("backup"));
        let mut server = serve(&url, data.path()).await;
        assert!(server.terminate().await.success());
        for earlier in [false, true] {
            if earlier {
                drop(SqliteStore::open(SqliteConfig::directory(data.path())).unwrap());
            }
            for command in [&["backup", file.to_str().unwrap()][..], &["check"]] {
                let (done, text) = keelson(&[&["storage"], command, &["--data-dir", name]].concat()).await;
                assert!(!done && text.contains(named) && text.contains("keep their objects in "), "{text}");
                assert_eq!(text.contains("is an earlier one"), earlier, "{text}");
                assert!(!text.contains("Error code") && !file.exists(), "{text}");
            }
        }
    }
    let nowhere = TempDir::new().unwrap();
    let typo = nowhere.path().join("typo");
    let (done, text) = keelson(&["storage", "check", "--data-dir", typo.to_str().unwrap()]).await;
    assert!(!done && text.contains("there is no embedded store in") && text.contains("--data-dir names"), "{text}");
    assert!(!typo.exists());
}

/// The store that a server used must exist at its next start, also if it is outside of the data directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_external_store_is_recreated_only_with_accept_loss() {
    let (Some(postgres), Some(etcd)) = (PostgresServer::shared(), EtcdServer::start()) else { return };
    let elsewhere = TempDir::new().unwrap();
    let (database, etcd_url) = (postgres.create_database("gone"), format!("etcd://{}", etcd.endpoint()));
    let drop_tables = || drop(postgres.sql("gone", "DROP SCHEMA public CASCADE; CREATE SCHEMA public"));
    let drop_file = || {
        for name in ["keelson.db", "keelson.db-wal", "keelson.db-shm", "keelson.db-mark"] {
            let _ = std::fs::remove_file(elsewhere.path().join(name));
        }
    };
    let file = sqlite(&elsewhere);
    let losses: [(&str, &dyn Fn()); 2] = [(&database, &drop_tables), (&file, &drop_file)];
    for (url, lose) in losses {
        let data = TempDir::new().unwrap();
        let mut server = serve(url, data.path()).await;
        assert!(server.terminate().await.success());
        lose();
        let name = data.path().to_str().unwrap();
        let again = ["serve", "--bind", "127.0.0.1:0", "--data-dir", name, "--store", url];
        for _ in 0..2 {
            let (done, text) = keelson(&again).await;
            assert!(!done && text.contains("and it holds none: restore a backup there"), "{text}");
        }
        let accepting =
            ProcessServer::builder(KEELSON).data_dir(data.path()).arg("--store").arg(url).arg("--accept-loss");
        let server = accepting.start().await;
        let made = server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(201).json();
        let revision: u64 = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(revision > 1_000_000_000, "{made}");
    }
    // A mistyped store is rejected too, and nothing is created there.
    let data = TempDir::new().unwrap();
    let mut server = serve(&file, data.path()).await;
    assert!(server.terminate().await.success());
    let (name, typo) = (data.path().to_str().unwrap(), elsewhere.path().join("typo"));
    let typed = format!("sqlite:{}", typo.display());
    for other in [typed.as_str(), &postgres.create_database("typo"), &format!("{etcd_url}/typo")] {
        let (done, text) = keelson(&["serve", "--bind", "127.0.0.1:0", "--data-dir", name, "--store", other]).await;
        assert!(!done && text.contains("holds none: name that store with --store, or copy its objects"), "{text}");
    }
    assert!(!typo.exists());
    // Opening an etcd creates nothing; another prefix is another store.
    let data = TempDir::new().unwrap();
    let name = data.path().to_str().unwrap();
    let mut server = serve(&etcd_url, data.path()).await;
    assert!(server.terminate().await.success());
    std::fs::write(data.path().join("keelson.store"), format!("etcd {}/empty\n", etcd.endpoint())).unwrap();
    let other = format!("{etcd_url}/empty");
    let (done, text) = keelson(&["serve", "--bind", "127.0.0.1:0", "--data-dir", name, "--store", &other]).await;
    assert!(!done && text.contains("and it holds none"), "{text}");
}

#[tokio::test]
async fn the_help_lists_store_urls_and_explains_copying() {
    let (done, text) = keelson(&["storage", "copy", "--help"]).await;
    assert!(done && text.contains("Copy all objects from one store to another, empty one"), "{text}");
    assert!(text.contains("Stop the servers of the source first") && text.contains("<FROM> <TO>"), "{text}");
    let (done, text) = keelson(&["serve", "--help"]).await;
    assert!(done, "{text}");
    for kind in ["sqlite:DIRECTORY", "memory:", "postgres://", "etcd://"] {
        assert!(text.contains(kind), "{kind} in {text}");
    }
    let (done, text) = copy("nonsense", "sqlite:nowhere").await;
    assert!(!done && text.contains("unknown store; known are memory:, sqlite:DIRECTORY"), "{text}");
}
