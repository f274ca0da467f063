//! Tests of each file of a data directory that is missing, empty, truncated, outdated, or from another server. A loss
//! is refused by name, and a server that starts has lost nothing.
//!
//! The table is that of docs/how-to/stores/sqlite.md. Each cell starts the binary on a copy of a killed server's
//! directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use keelson_testkit::{Endpoint, ProcessServer, Raw};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{CONFIG_MAPS, KEELSON, PATIENCE, items, list, revision, run};

/// The number of cells that run concurrently.
const AT_ONCE: usize = 2;
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The least distance between the revisions before and after an accepted loss.
const ACCEPTED: u64 = 1_000_000_000;

/// The expected outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedStart {
    /// The start is refused with this text; a bar separates alternatives.
    Refused(&'static str),
    /// The server serves all objects, and accepts the earlier kubeconfig and token.
    Whole,
}
use ExpectedStart::{Refused, Whole};

/// A file, with the outcomes when it is missing, empty, truncated, outdated, or from another server.
type Row = (&'static str, [ExpectedStart; 5]);

const LOST: ExpectedStart = Refused("has lost something: ");
const GONE: ExpectedStart = Refused("its store ");
const ALL: [ExpectedStart; 5] = [Whole; 5];

#[rustfmt::skip]
const TABLE: [Row; 20] = [
    // The place of the cut determines whether a page or a row is missing.
    ("keelson.db", [GONE, GONE, Refused("malformed|the store is damaged"), Refused("of different times"), LOST]),
    ("keelson.db-wal", [LOST, LOST, LOST, LOST, Refused("belongs to another store, or to an earlier state")]),
    ("keelson.db-mark", [
        Refused("is missing"), Refused("is damaged"), Refused("is damaged"), Whole, Refused("are of different stores"),
    ]),
    // SQLite recreates it at each start.
    ("keelson.db-shm", ALL),
    ("keelson.lock", ALL),
    ("keelson.store", ALL),
    // It holds no data.
    ("keelson.reserve", ALL),
    ("kubeconfig", ALL),
    ("pki/ca.crt", [
        Refused("ca.crt"), Refused("not the key of"), Refused("not the key of"), Whole, Refused("not the key of"),
    ]),
    ("pki/ca.key", [
        Refused("ca.key is missing"), Refused("not the key of"), Refused("not the key of"), Whole, Refused("not the key of"),
    ]),
    ("pki/sa.key", [
        Refused("sa.key is missing"), Refused("sa.key can't be used"), Refused("sa.key can't be used"), Whole,
        // Operators change keys in this way: `sa.pub` still has the earlier public key.
        Whole,
    ]),
    // The key is derived from `sa.key`, and no other was in use.
    ("pki/sa.pub", [Whole, Whole, Refused("sa.pub can't be used"), Whole, Whole]),
    ("pki/front-proxy-ca.crt", [
        Refused("front-proxy-ca.crt"), Refused("not the key of"), Refused("not the key of"), Whole, Refused("not the key of"),
    ]),
    ("pki/front-proxy-ca.key", [
        Refused("front-proxy-ca.key is missing"), Refused("not the key of"), Refused("not the key of"), Whole,
        Refused("not the key of"),
    ]),
    // No client relies on one of them by itself: they are signed again.
    ("pki/front-proxy-client.crt", ALL),
    ("pki/front-proxy-client.key", ALL),
    ("pki/apiserver.crt", ALL),
    ("pki/apiserver.key", ALL),
    ("pki/admin.crt", ALL),
    ("pki/admin.key", ALL),
];

const DAMAGES: [&str; 5] = ["missing", "empty", "cut", "older", "of another server"];

/// Data directories for the cells.
struct Lab {
    /// The directory of a killed server.
    killed: TempDir,
    /// The directory of the killed server at an earlier stop.
    older: TempDir,
    /// The directory of another killed server.
    foreign: TempDir,
    objects: usize,
    /// The newest acknowledged revision.
    newest: u64,
    /// The credentials of clients of the killed server.
    kubeconfig: String,
    token: String,
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
        let target = to.join(path.file_name().unwrap());
        match kind.is_dir() {
            true => copy_directory(&path, &target),
            false => {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
}

async fn create(raw: &Raw, stem: &str, count: usize) -> u64 {
    let mut newest = 0;
    for number in 0..count {
        let map = json!({"metadata": {"name": format!("{stem}-{number:03}")}, "data": {"text": "x".repeat(2000)}});
        newest = revision(&raw.post(CONFIG_MAPS, &map).await.expect(201).json());
    }
    newest
}

async fn token(raw: &Raw) -> String {
    raw.post(ACCOUNTS, &json!({"metadata": {"name": "web"}})).await.expect(201);
    let token = raw.post(format!("{ACCOUNTS}/web/token"), &json!({"spec": {}})).await.expect(201).json();
    token["status"]["token"].as_str().unwrap().to_owned()
}

impl Lab {
    async fn new() -> Self {
        let [killed, older, foreign] = [(); 3].map(|()| TempDir::new().unwrap());
        let mut server = ProcessServer::builder(KEELSON).data_dir(killed.path().join("data")).start().await;
        create(&server.raw(), "first", 40).await;
        let token = token(&server.raw()).await;
        server.terminate().await;
        copy_directory(&killed.path().join("data"), &older.path().join("data"));
        // The current log does not have everything that the older database lacks.
        server.restart().await;
        create(&server.raw(), "second", 40).await;
        server.terminate().await;
        server.restart().await;
        let newest = create(&server.raw(), "third", 40).await;
        let objects = items(&list(&server.raw(), CONFIG_MAPS, "").await).len();
        server.kill().await;
        let mut other = ProcessServer::builder(KEELSON).data_dir(foreign.path().join("data")).start().await;
        create(&other.raw(), "foreign", 150).await;
        other.kill().await;
        let kubeconfig = fs::read_to_string(killed.path().join("data/kubeconfig")).unwrap();
        Self { killed, older, foreign, objects, newest, kubeconfig, token }
    }

    /// A copy of the killed server's directory.
    fn copy(&self) -> (TempDir, PathBuf) {
        let directory = TempDir::new().unwrap();
        let data = directory.path().join("data");
        copy_directory(&self.killed.path().join("data"), &data);
        (directory, data)
    }

    /// Damages a file of a copy.
    fn damage(&self, data: &Path, file: &str, damage: &str) {
        let path = data.join(file);
        let taken_from = |lab: &TempDir| {
            fs::copy(lab.path().join("data").join(file), &path).unwrap();
        };
        match damage {
            "missing" => fs::remove_file(&path).unwrap(),
            "empty" => fs::write(&path, "").unwrap(),
            "cut" => {
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            }
            // A clean stop leaves none.
            "older" if !self.older.path().join("data").join(file).exists() => fs::remove_file(&path).unwrap(),
            "older" => taken_from(&self.older),
            _ => taken_from(&self.foreign),
        }
    }

    /// Checks that earlier clients find everything that they had.
    async fn check_whole(&self, what: &str, served: &StartedCopy) {
        let log = || format!("{what}; the log:\n{}", served.log());
        let old = served.data.join("kubeconfig-of-before");
        let address = served.url();
        let server = self.kubeconfig.lines().find(|line| line.trim().starts_with("server:")).unwrap();
        fs::write(&old, self.kubeconfig.replace(server.trim(), &format!("server: {address}"))).unwrap();
        let raw = Endpoint::from_kubeconfig(&old).await.unwrap().raw();
        let found = raw.get(CONFIG_MAPS).try_send().await.unwrap_or_else(|error| panic!("{error}: {}", log()));
        let found = found.expect(200).json();
        assert_eq!(items(&found).len(), self.objects, "{}", log());
        let review = raw.post(REVIEWS, &json!({"spec": {"token": self.token}})).await.expect(201).json();
        assert_eq!(review["status"]["authenticated"], true, "{}", log());
    }

    async fn check_cell(&self, file: &str, damage: &str, expected: ExpectedStart) {
        let what = format!("{file} {damage}");
        let (_directory, data) = self.copy();
        self.damage(&data, file, damage);
        match (start(&data, &[]).await, expected) {
            (Err(text), Refused(part)) => {
                assert!(part.split('|').any(|part| text.contains(part)), "{what}: {text}");
                assert!(!text.contains("panicked"), "{what}: {text}");
            }
            (Ok(served), Whole) => {
                self.check_whole(&what, &served).await;
                served.kill().await;
            }
            (Err(text), Whole) => panic!("{what}: it is refused: {text}"),
            (Ok(served), Refused(_)) => panic!("{what}: it starts; the log:\n{}", served.log()),
        }
    }
}

/// A server that has started on a copy. Killed when dropped.
struct StartedCopy {
    child: Child,
    data: PathBuf,
}

fn log_of(data: &Path) -> String {
    fs::read_to_string(data.with_extension("log")).unwrap_or_default()
}

impl StartedCopy {
    fn log(&self) -> String {
        log_of(&self.data)
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    fn url(&self) -> String {
        ready_at(&self.log()).unwrap()
    }

    async fn raw(&self) -> Raw {
        Endpoint::from_kubeconfig(self.data.join("kubeconfig")).await.unwrap().raw()
    }
}

fn ready_at(log: &str) -> Option<String> {
    log.lines().find_map(|line| line.strip_prefix("keelson is ready on ")).map(str::to_owned)
}

/// Starts a server on a directory.
///
/// # Errors
/// The output of the server when it does not start.
async fn start(data: &Path, args: &[&str]) -> Result<StartedCopy, String> {
    let log = fs::File::create(data.with_extension("log")).unwrap();
    let mut command = Command::new(KEELSON);
    command.env("KEELSON_CONTROLLERS", keelson_testkit::CONTROLLERS).kill_on_drop(true);
    command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(data).args(args);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = command.spawn().unwrap();
    let started = async {
        loop {
            if ready_at(&log_of(data)).is_some() {
                return None;
            }
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, started).await.expect("it starts or is refused");
    match ended {
        None => Ok(StartedCopy { child, data: data.to_owned() }),
        Some(status) if status.success() => panic!("it ends well: {}", log_of(data)),
        Some(_) => Err(log_of(data)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_file_of_the_data_directory_is_refused_or_nothing_is_lost() {
    let lab = Lab::new().await;
    let mut files: Vec<_> = TABLE.iter().map(|(file, _)| (*file).to_owned()).collect();
    for directory in ["", "pki"] {
        for entry in fs::read_dir(lab.killed.path().join("data").join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(lab.killed.path().join("data")).unwrap().display().to_string();
            assert!(path.is_dir() || files.contains(&name), "{name} has no row");
            files.retain(|file| *file != name);
        }
    }
    assert!(files.is_empty(), "{files:?} are not there");
    let cells =
        TABLE.iter().flat_map(|(file, row)| DAMAGES.iter().zip(row).map(move |(damage, cell)| (file, damage, cell)));
    let lab = &lab;
    stream::iter(cells)
        .for_each_concurrent(AT_ONCE, |(file, damage, expected)| lab.check_cell(file, damage, *expected))
        .await;
}

/// A loss by name, with the function that causes it.
type Loss<'a> = (&'a str, &'a dyn Fn(&Path));

/// Store and log from the same earlier time match each other; the mark records that there was more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_log_needs_accept_loss_and_raises_the_revision() {
    let lab = Lab::new().await;
    let cut = |data: &Path, parts: usize| {
        let log = data.join("keelson.db-wal");
        let bytes = fs::read(&log).unwrap();
        fs::write(&log, &bytes[..bytes.len() * parts / 3]).unwrap();
    };
    let flip_last = |data: &Path| {
        // The last frame of this log. Frames of an older log follow it.
        let log = data.join("keelson.db-wal");
        let mut bytes = fs::read(&log).unwrap();
        let salts = bytes[16..24].to_vec();
        let frames = bytes[32..].chunks(24 + 4096).take_while(|frame| frame.get(8..16) == Some(&salts[..])).count();
        bytes[32 + (frames - 1) * (24 + 4096) + 100] ^= 1;
        fs::write(&log, bytes).unwrap();
    };
    let without_mark = |data: &Path| {
        // A copy of the database only.
        for name in ["keelson.db-wal", "keelson.db-shm", "keelson.db-mark"] {
            fs::remove_file(data.join(name)).unwrap();
        }
    };
    let older = |data: &Path| {
        for name in ["keelson.db", "keelson.db-wal"] {
            lab.damage(data, name, "older");
        }
    };
    let losses: [Loss<'_>; 5] = [
        ("the log cut to two thirds", &|data| cut(data, 2)),
        ("the log cut to nothing", &|data| cut(data, 0)),
        ("its last frame changed", &flip_last),
        ("the database alone", &without_mark),
        ("database and log older", &older),
    ];
    for (what, lose) in losses {
        let (_directory, data) = lab.copy();
        lose(&data);
        let name = data.to_str().unwrap();
        let refused = start(&data, &[]).await.err().unwrap_or_else(|| panic!("{what}: it starts"));
        assert!(refused.contains("--accept-loss"), "{what}: {refused}");
        let (whole, text) = run(["storage", "check", "--data-dir", name]);
        assert!(!whole && text.contains("has lost something: "), "{what}: {text}");
        let file = data.with_extension("backup");
        let (done, text) = run(["storage", "backup", file.to_str().unwrap(), "--data-dir", name]);
        assert!(!done && !file.exists() && text.contains("has lost something: "), "{what}: {text}");
        let served = start(&data, &["--accept-loss"]).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let raw = served.raw().await;
        let made = create(&raw, "after", 1).await;
        assert!(made > lab.newest + ACCEPTED, "{what}: {made}");
        // Earlier watches must list again.
        let expired = raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", lab.newest)).await.text();
        assert!(expired.contains("\"code\":410"), "{what}: {expired}");
        served.kill().await;
        start(&data, &[]).await.unwrap_or_else(|error| panic!("{what} is asked about twice: {error}")).kill().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_keys_are_replaced_with_accept_loss_and_old_tokens_stay_valid() {
    let lab = Lab::new().await;
    let (_directory, data) = lab.copy();
    let before = fs::read_to_string(data.join("pki/sa.pub")).unwrap();
    fs::remove_file(data.join("pki/sa.key")).unwrap();
    let refused = start(&data, &[]).await.err().expect("it is refused");
    assert!(refused.contains("sa.key is missing though") && refused.contains("start with --accept-loss"), "{refused}");
    assert_eq!(fs::read_to_string(data.join("pki/sa.pub")).unwrap(), before);
    assert!(!data.join("pki/sa.key").exists());
    let served = start(&data, &["--accept-loss"]).await.unwrap();
    lab.check_whole("sa.key recreated", &served).await;
    served.kill().await;
    assert!(fs::read_to_string(data.join("pki/sa.pub")).unwrap().ends_with(&before));
}

/// The kubeconfig may be elsewhere (`--kubeconfig`), so an empty directory of keys is not that of a new server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_directory_of_keys_is_a_loss() {
    let mut server = crate::start().await;
    create(&server.raw(), "kept", 3).await;
    server.terminate().await;
    for leave_directory in [true, false] {
        let copy = TempDir::new().unwrap();
        let data = copy.path().join("data");
        copy_directory(server.data_dir(), &data);
        fs::remove_dir_all(data.join("pki")).unwrap();
        fs::remove_file(data.join("kubeconfig")).unwrap();
        if leave_directory {
            fs::create_dir(data.join("pki")).unwrap();
        }
        let refused = start(&data, &[]).await.err().expect("it is refused");
        assert!(refused.contains("ca.key") && refused.contains("start with --accept-loss"), "{refused}");
        start(&data, &["--accept-loss"]).await.expect("the loss is accepted").kill().await;
    }
}

/// Reading a named pipe would wait for a writer, and a file of 64 GB would be read into memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_and_oversized_files_are_refused() {
    let mut server = crate::start().await;
    create(&server.raw(), "kept", 3).await;
    server.kill().await;
    for file in ["keelson.db-mark", "keelson.store", "kubeconfig", "pki/ca.key", "pki/sa.pub", "pki/admin.crt"] {
        for kind in ["a named pipe", "a huge file"] {
            let copy = TempDir::new().unwrap();
            let data = copy.path().join("data");
            copy_directory(server.data_dir(), &data);
            let path = data.join(file);
            fs::remove_file(&path).unwrap();
            if kind == "a named pipe" {
                assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            } else {
                fs::File::create(&path).unwrap().set_len(1 << 36).unwrap();
            }
            let refused = start(&data, &[]).await.err().unwrap_or_else(|| panic!("{file} as {kind}: it starts"));
            assert!(refused.contains(file.rsplit('/').next().unwrap()), "{file} as {kind}: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readable_private_keys_get_a_warning_with_the_chmod_command() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut server = crate::start().await;
    server.terminate().await;
    let key = server.data_dir().join("pki/ca.key");
    assert!(!server.log().contains("chmod"), "{}", server.log());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    server.restart().await;
    let log = server.log();
    assert!(log.contains(&format!("run: chmod 600 {}", key.display())), "{log}");
}

/// While a file of the store is moved away or replaced, the server refuses writes and serves reads. It recovers when
/// the file is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_refused_while_a_store_file_is_replaced() {
    let server = ProcessServer::builder(KEELSON).start().await;
    let raw = server.raw();
    create(&raw, "kept", 3).await;
    let away = server.data_dir().join("away");
    for (file, finding) in
        [("keelson.db", "was removed"), ("keelson.db", "was replaced"), ("keelson.db-wal", "was removed")]
    {
        let path = server.data_dir().join(file);
        fs::rename(&path, &away).unwrap();
        if finding == "was replaced" {
            fs::copy(&away, &path).unwrap();
        }
        let refused = raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "lost"}})).await.expect(503);
        assert_eq!(refused.header("retry-after"), "1");
        let ready = async |wanted: u16| {
            while raw.get("/readyz").await.status != wanted {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready(500)).await.expect("it is not ready");
        let why = raw.get("/readyz/store").await.expect(500).text();
        assert!(
            why.contains(&format!("{file} {finding}")) && why.contains("put that file back under its name"),
            "{why}"
        );
        let kept = list(&raw, CONFIG_MAPS, "").await;
        assert_eq!(items(&kept).iter().filter(|item| item["metadata"]["name"] != "kube-root-ca.crt").count(), 3);
        fs::rename(&away, &path).unwrap();
        tokio::time::timeout(PATIENCE, ready(200)).await.expect("it is ready again");
    }
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "more"}})).await.expect(201);
    assert!(server.log().contains("while this server has it open: nothing is written"), "{}", server.log());
}

/// A client that starts at the readiness message finds the server ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readiness_message_comes_after_readiness() {
    let directory = TempDir::new().unwrap();
    let served = start(&directory.path().join("data"), &[]).await.unwrap();
    served.raw().await.get("/readyz").await.expect(200);
    served.kill().await;
}
