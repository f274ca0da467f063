//! Tests of access to etcd: TLS, client certificates, users, and errors for the operator.
//!
//! Each error is a sentence that names the setting to check.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{PATIENCE, commit, everything, follow, key, put};
use futures::StreamExt as _;
use http::uri::PathAndQuery;
use keelson_storage::{CommitError, Store, StoreError, Transaction, Write};
use keelson_storage_etcd::{EtcdConfig, EtcdStore, OpenError};
use keelson_teststores::{EtcdCluster, EtcdServer, EtcdServerBuilder};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

async fn open(url: &str) -> Result<EtcdStore, OpenError> {
    EtcdStore::open(EtcdConfig::from_url(url).unwrap()).await
}

#[track_caller]
fn refused(opened: Result<EtcdStore, OpenError>, words: &[&str]) {
    let text = opened.err().expect("this must not open").to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Certificate files: an authority, a server of 127.0.0.1, a client, and another authority.
struct Pki {
    directory: TempDir,
}

impl Pki {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        write("ca.pem", authority.self_signed(&key).unwrap().pem());
        let other = KeyPair::generate().unwrap();
        write("other-ca.pem", authority.self_signed(&other).unwrap().pem());
        let issuer = Issuer::new(authority, key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned(), "etcd.internal".to_owned()]).unwrap();
            leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            write(&format!("{name}.pem"), leaf.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}-key.pem"), key.serialize_pem());
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn arg(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_requires_client_certificates_and_errors_name_the_cause() {
    let pki = Pki::new();
    let builder = EtcdServer::builder()
        .tls()
        .arg(pki.arg("cert-file", "server.pem"))
        .arg(pki.arg("key-file", "server-key.pem"))
        .arg(pki.arg("trusted-ca-file", "ca.pem"))
        .arg("--client-cert-auth");
    let Some(server) = builder.start() else { return };
    let file = |name: &str| pki.path(name).display().to_string();
    let (ca, cert, client_key) = (file("ca.pem"), file("client.pem"), file("client-key.pem"));
    let at = format!("etcd://{}", server.endpoint());

    let store = open(&format!("{at}?ca={ca}&cert={cert}&key={client_key}")).await.unwrap();
    let start = store.current_revision().await.unwrap();
    let end = commit(&store, put("a", "1")).await;
    assert_eq!(follow(&store, start, end).await.len(), 1);

    let short = "timeout=1";
    let other = file("other-ca.pem");
    refused(
        open(&format!("{at}?{short}&ca={other}&cert={cert}&key={client_key}")).await,
        &["no etcd answers at https://127.0.0.1:", "invalid peer certificate: "],
    );
    let misnamed = format!("{at}?{short}&ca={ca}&cert={cert}&key={client_key}&server-name=elsewhere.internal");
    refused(open(&misnamed).await, &["invalid peer certificate: certificate not valid for name"]);
    refused(open(&format!("{at}?{short}&ca={ca}")).await, &["no etcd answers at https://127.0.0.1:"]);
    refused(open(&format!("{at}?{short}")).await, &["no etcd answers at http://127.0.0.1:"]);
    refused(open(&format!("{at}?ca=nowhere.pem")).await, &["the CA certificate nowhere.pem can't be used: "]);
    let named = format!("{at}?ca={ca}&cert={cert}&key={client_key}&server-name=etcd.internal");
    assert!(open(&named).await.is_ok());
}

#[tokio::test]
async fn errors_for_an_unreachable_etcd_name_its_address() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    refused(
        open(&format!("etcd://{dead}?timeout=1")).await,
        &[&format!("no etcd answers at http://{dead}: "), "Connection refused"],
    );
}

#[derive(Clone, PartialEq, Message)]
struct Two {
    #[prost(string, tag = "1")]
    first: String,
    #[prost(string, tag = "2")]
    second: String,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(string, tag = "1")]
    role: String,
    #[prost(message, optional, tag = "2")]
    permission: Option<Permission>,
}

#[derive(Clone, PartialEq, Message)]
struct Permission {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(string, tag = "3")]
    range_end: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Nothing {}

/// Calls a method like etcdctl.
async fn administer<Q: Message + 'static>(server: &EtcdServer, method: &'static str, request: Q) {
    let url = format!("http://{}", server.endpoint());
    let channel = tonic::transport::Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    let mut service = tonic::client::Grpc::new(channel);
    service.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    let codec = tonic_prost::ProstCodec::<Q, Nothing>::default();
    service.unary(tonic::Request::new(request), path, codec).await.unwrap();
}

/// Creates `root`, and `keelson` with the documented permissions.
async fn enable_users(server: &EtcdServer) {
    let two = |first: &str, second: &str| Two { first: first.to_owned(), second: second.to_owned() };
    let grant = |key: &str, range_end: &str| Grant {
        role: "keelson".to_owned(),
        permission: Some(Permission { kind: 2, key: key.to_owned(), range_end: range_end.to_owned() }),
    };
    for name in ["root", "keelson"] {
        administer(server, "/etcdserverpb.Auth/UserAdd", two(name, "correct horse")).await;
        administer(server, "/etcdserverpb.Auth/RoleAdd", two(name, "")).await;
        administer(server, "/etcdserverpb.Auth/UserGrantRole", two(name, name)).await;
    }
    administer(server, "/etcdserverpb.Auth/RoleGrantPermission", grant("/registry/", "/registry0")).await;
    administer(server, "/etcdserverpb.Auth/RoleGrantPermission", grant("compact_rev_key", "")).await;
    administer(server, "/etcdserverpb.Auth/AuthEnable", Nothing {}).await;
}

fn password_file(directory: &Path) -> String {
    let path = directory.join("password");
    std::fs::write(&path, "correct horse\n").unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_least_rights_can_do_everything_and_others_nothing() {
    use_with_the_least_rights(EtcdServer::builder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_least_rights_can_work_on_the_newest_etcd() {
    use_with_the_least_rights(EtcdServer::builder().newest()).await;
}

async fn use_with_the_least_rights(builder: EtcdServerBuilder) {
    let Some(mut server) = builder.start() else { return };
    enable_users(&server).await;
    let (endpoint, directory) = (server.endpoint(), TempDir::new().unwrap());
    refused(open(&format!("etcd://{endpoint}")).await, &["refuses us: user name is empty"]);
    refused(
        open(&format!("etcd://keelson:wrong@{endpoint}")).await,
        &["refuses user \"keelson\": authentication failed, invalid user ID or password"],
    );
    let login = format!("user=keelson&password-file={}", password_file(directory.path()));
    refused(
        open(&format!("etcd://{endpoint}/elsewhere?{login}")).await,
        &["refuses user \"keelson\": permission denied"],
    );

    let store = open(&format!("etcd://{endpoint}?{login}")).await.unwrap();
    let start = store.current_revision().await.unwrap();
    let ends = SystemTime::now();
    let write = Write::Put { key: key("events/a"), value: "x".into(), expires: Some(ends) };
    commit(&store, Transaction { writes: vec![write], ..Transaction::default() }).await;
    assert_eq!(store.expire(ends).await.unwrap(), 1);
    let end = commit(&store, put("a", "1")).await;
    assert_eq!(follow(&store, start, end).await.len(), 3);
    // Newer etcds allow only root to compact. The store does not treat that as an error.
    store.compact(end).await.unwrap();
    let root = open(&format!("etcd://root:correct%20horse@{endpoint}")).await.unwrap();
    root.compact(end).await.unwrap();
    assert_eq!(store.oldest_revision().await.unwrap(), end);

    // etcd forgets its tokens at a restart.
    server.kill();
    server.start_again();
    let next = tokio::time::timeout(PATIENCE, async {
        loop {
            match store.commit(put("a", "2")).await {
                Ok(committed) => return committed.revisions[0],
                Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let next = next.await.expect("the token is fetched again");
    assert!(store.stats().logins >= 2);
    assert_eq!(follow(&store, end, next).await.last().unwrap().revision, next);
    assert_eq!(store.count(everything(None)).await.unwrap(), 1);
}

/// The number of calls that use an expired token at once.
const CALLERS: usize = 60;
/// The time after which a token of one second has expired. etcd checks every second.
const TOKEN_END: Duration = Duration::from_secs(3);

async fn read_by_many(store: &EtcdStore) {
    let (name, everything) = (key("a"), everything(None));
    let reads = (0..CALLERS).map(|_| async {
        let (got, counted) = tokio::join!(store.get(&name), store.count(everything.clone()));
        assert!(got.is_ok() && counted.is_ok(), "{got:?} {counted:?}");
    });
    futures::future::join_all(reads).await;
}

/// Checking a password costs CPU time of etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_with_an_expired_token_share_one_login() {
    // Tokens expire a second after their last use; older etcds have no such flag.
    let Some(server) = EtcdServer::builder().newest().arg("--auth-token-ttl=1").start() else { return };
    enable_users(&server).await;
    let directory = TempDir::new().unwrap();
    let login = format!("user=keelson&password-file={}", password_file(directory.path()));
    let store = open(&format!("etcd://{}?{login}", server.endpoint())).await.unwrap();
    let clone = store.clone();
    let mut end = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(end).await.unwrap();
    assert_eq!(store.stats().logins, 1);
    // Token expiry runs on real time.
    tokio::time::sleep(TOKEN_END).await;
    tokio::join!(read_by_many(&store), read_by_many(&clone));
    assert_eq!(store.stats().logins, 2);
    // A watch continues after the token of its start has expired.
    end = commit(&store, put("a", "2")).await;
    assert_eq!(tail.next().await.unwrap().unwrap().watermark, end);
    assert_eq!((store.stats().logins, store.stats().watches_broken), (2, 0));
    // A new watch needs a valid token.
    tokio::time::sleep(TOKEN_END).await;
    let mut late = store.tail(end).await.unwrap();
    end = commit(&store, put("a", "3")).await;
    assert_eq!(late.next().await.unwrap().unwrap().watermark, end);
    assert_eq!(store.stats().logins, 3);
}

/// A token of one member is valid on the others. After it expires, there is one login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_outlives_the_member_that_it_was_made_on() {
    let Some(mut cluster) = EtcdCluster::start() else { return };
    enable_users(&cluster.members()[0]).await;
    let directory = TempDir::new().unwrap();
    let login = format!("user=keelson&order=given&password-file={}", password_file(directory.path()));
    let store = open(&format!("etcd://{}?{login}", cluster.endpoints())).await.unwrap();
    let start = commit(&store, put("a", "1")).await;
    for lost in 0..2 {
        cluster.member(lost).kill();
        read_by_many(&store).await;
        cluster.member(lost).start_again();
    }
    let end = commit(&store, put("a", "2")).await;
    assert_eq!(follow(&store, start, end).await.last().unwrap().revision, end);
    let stats = store.stats();
    assert!((1..=3).contains(&stats.logins) && stats.failovers >= 2, "{stats:?}");
}
