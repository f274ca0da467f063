//! Tests of forks: fresh servers that an ephemeral server starts for its owner at a socket.
//!
//! A fork comes with the administrator's credentials, so the tests try to get one in every way that must not work.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_test::{Error, Form, Keelson};
use keelson_testkit::Endpoint;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// The timeout for everything.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// A user without rights.
const NOBODY: u32 = 65_534;

async fn start() -> Keelson {
    Keelson::builder().form(Form::Process(PathBuf::from(KEELSON))).start().await.unwrap()
}

fn config_maps(server: &Keelson) -> Api<ConfigMap> {
    Api::default_namespaced(server.client())
}

async fn create(server: &Keelson, name: &str) {
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    config_maps(server).create(&PostParams::default(), &map).await.unwrap();
}

async fn names(server: &Keelson) -> BTreeSet<String> {
    let found = config_maps(server).list(&ListParams::default()).await.unwrap().items;
    let names = found.into_iter().filter_map(|map| map.metadata.name);
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forks_begin_with_the_objects_of_their_origin_and_see_no_later_writes() {
    let server = start().await;
    create(&server, "fixture").await;
    let forks = try_join_all((0..8).map(|_| server.fork())).await.unwrap();
    let urls: BTreeSet<String> = forks.iter().chain([&server]).map(Keelson::url).collect();
    assert_eq!(urls.len(), 9);
    join_all(forks.iter().enumerate().map(|(at, fork)| async move { create(fork, &format!("of-{at}")).await })).await;
    create(&server, "later").await;
    config_maps(&server).delete("fixture", &DeleteParams::default()).await.unwrap();
    for (at, fork) in forks.iter().enumerate() {
        assert_eq!(names(fork).await, set(&["fixture", &format!("of-{at}")]));
    }
    assert_eq!(names(&server).await, set(&["later"]));

    // Forks of forks, which outlive the fork that they began with.
    let child = forks[3].fork().await.unwrap();
    config_maps(&child).delete("fixture", &DeleteParams::default()).await.unwrap();
    let grandchild = child.fork().await.unwrap();
    create(&grandchild, "deep").await;
    drop(child);
    assert_eq!(names(&grandchild).await, set(&["deep", "of-3"]));
    assert_eq!(names(&forks[3]).await, set(&["fixture", "of-3"]));
    assert!(matches!(server.snapshot(), Err(Error::NeedsEmbedded(_))));
    assert_eq!(grandchild.pid(), server.pid());

    // The process ends with the last of them.
    let pid = server.pid().unwrap();
    drop((server, forks));
    assert_eq!(names(&grandchild).await, set(&["deep", "of-3"]));
    drop(grandchild);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// A server of this test, with its socket for forks.
struct Origin {
    _child: Child,
    directory: PathBuf,
    line: Value,
}

impl Origin {
    async fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(KEELSON);
        command.args(["serve", "--bind", "127.0.0.1:0", "--output", "json"]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        tokio::time::timeout(PATIENCE, output.read_line(&mut line)).await.expect("it is ready in time").unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let directory = PathBuf::from(line["dataDirectory"].as_str().unwrap());
        Self { _child: child, directory, line }
    }

    fn socket(&self) -> PathBuf {
        PathBuf::from(self.line["forkSocket"].as_str().expect("it has a socket"))
    }

    /// Sends bytes to the socket, and returns the connection with the line of the response.
    async fn send(&self, bytes: &[u8]) -> (UnixStream, Value) {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"\n") {
            let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut text)).await.expect("it answers").unwrap();
            assert!(read > 0, "no response to {bytes:?}");
        }
        (stream, serde_json::from_slice(&text).unwrap())
    }

    async fn refusal(&self, bytes: &[u8]) -> String {
        let (mut stream, response) = self.send(bytes).await;
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the connection ends");
        response["error"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

fn is_open(url: &str) -> bool {
    std::net::TcpStream::connect(url.trim_start_matches("https://")).is_ok()
}

#[tokio::test]
async fn a_fork_lives_as_long_as_its_connection() {
    let origin = Origin::start(&["--ephemeral"]).await;
    let (stream, response) = origin.send(b"{}\n").await;
    let (url, kubeconfig) = (response["url"].as_str().unwrap(), response["kubeconfig"].as_str().unwrap());
    let fork = Endpoint::from_kubeconfig(kubeconfig).await.unwrap();
    assert_eq!(fork.url(), url);
    fork.raw().get("/api/v1/namespaces/default").await.expect(200);
    drop(stream);
    until("the fork outlives its connection", || !is_open(url)).await;
    until("its kubeconfig remains", || !Path::new(kubeconfig).exists()).await;
    assert!(is_open(origin.line["url"].as_str().unwrap()));
}

#[tokio::test]
async fn only_ephemeral_servers_have_a_socket_for_forks() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let kept = Origin::start(&["--data-dir", data.to_str().unwrap(), "--max-forks=5"]).await;
    let without = Origin::start(&["--ephemeral", "--max-forks=0"]).await;
    for server in [&kept, &without] {
        assert!(server.line.get("forkSocket").is_none(), "{}", server.line);
        let files = std::fs::read_dir(&server.directory).unwrap().flatten();
        let sockets: Vec<_> = files.filter(|file| file.file_name().to_string_lossy().contains("fork")).collect();
        assert!(sockets.is_empty(), "{sockets:?}");
    }
    // No path of any server leads to a fork.
    let ephemeral = Origin::start(&["--ephemeral"]).await;
    for server in [&kept, &ephemeral] {
        let endpoint = Endpoint::from_kubeconfig(server.line["kubeconfig"].as_str().unwrap()).await.unwrap();
        for path in ["/fork", "/forks", "/keelson/forks", "/apis/keelson/forks"] {
            endpoint.raw().post(path, &json!({})).await.expect(404);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_gets_no_fork() {
    let origin = Origin::start(&["--ephemeral"]).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&origin.directory), mode(&origin.socket())), (0o700, 0o600));
    if std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() != 0 {
        println!("not run: only root can take another user's place");
        return;
    }
    let script = r#"socket(S, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!"; connect(S, sockaddr_un($ARGV[0])) or die "refused: $!";
        syswrite(S, "{}\n"); sysread(S, my $line, 4096); print "response: $line""#;
    let attempt = |uid: u32| {
        let mut perl = std::process::Command::new("perl");
        perl.args(["-MSocket", "-e", script]).arg(origin.socket()).uid(uid).gid(uid).current_dir("/");
        perl.stdin(Stdio::null()).output()
    };
    let Ok(refused) = attempt(NOBODY) else {
        println!("not run: there is no perl");
        return;
    };
    assert!(String::from_utf8_lossy(&refused.stderr).contains("refused: Permission denied"), "{refused:?}");
    // Even where the permissions of the files are changed.
    for (path, mode) in [(origin.directory.clone(), 0o755), (origin.socket(), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let refused = tokio::task::block_in_place(|| attempt(NOBODY)).unwrap();
    assert_eq!(refused.stdout, b"response: ", "{refused:?}");
    let own = tokio::task::block_in_place(|| attempt(0)).unwrap();
    assert!(own.stdout.starts_with(b"response: {\"fork\":"), "{own:?}");
}

#[tokio::test]
async fn requests_that_are_none_are_refused_and_harm_nothing() {
    let origin = Origin::start(&["--ephemeral", "--max-forks=2"]).await;
    assert!(origin.refusal(b"GET / HTTP/1.1\r\n").await.contains("not JSON"));
    assert!(origin.refusal(b"[]\n").await.contains("a request is"));
    assert!(origin.refusal(b"{\"args\":[\"--anonymous\"]}\n").await.contains("a request is"));
    assert!(origin.refusal(b"{\"of\":\"7\"}\n").await.contains("no fork"));
    assert!(origin.refusal(b"{\"of\":\"../../7\"}\n").await.contains("no fork"));
    assert!(origin.refusal(&[b'{'; 1024]).await.contains("at most 1024 bytes"));
    assert!(origin.refusal(b"").await.contains("no complete request"));
    // The limit counts forks of forks, and a fork that has ended leaves its place to the next.
    let (first, response) = origin.send(b"{}\n").await;
    let of = format!("{{\"of\":{}}}\n", response["fork"]);
    let (second, _) = origin.send(of.as_bytes()).await;
    assert!(origin.refusal(b"{}\n").await.contains("--max-forks"));
    let url = response["url"].as_str().unwrap().to_owned();
    drop(first);
    until("the fork outlives its connection", || !is_open(&url)).await;
    let begun = Instant::now();
    let third = loop {
        match origin.send(b"{}\n").await {
            (stream, response) if response.get("error").is_none() => break stream,
            _ => assert!(begun.elapsed() < PATIENCE, "the place remains taken"),
        }
    };
    assert!(origin.refusal(of.as_bytes()).await.contains("no fork"));
    drop((second, third));
    let endpoint = Endpoint::from_kubeconfig(origin.line["kubeconfig"].as_str().unwrap()).await.unwrap();
    endpoint.raw().get("/readyz").await.expect(200);
}
