//! A store of a test, whose format and contents the test reads and writes without keelson's code.
//!
//! keelson's handling of the store is under test, so its code can't verify the result.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use keelson_testkit::{EtcdServer, PostgresServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::Fixture;

/// The bytes of a SQLite file with the format number of the application (`PRAGMA user_version`).
const USER_VERSION: std::ops::Range<usize> = 60..64;
/// The key of the format in etcd. The first format does not have it.
const ETCD_FORMAT: &str = "/registry/.keelson/format";
/// A key that servers of the first format write in addition to objects. Fixtures omit it.
const ETCD_TICK: &str = "/registry/.keelson/tick";
/// All tables of the first format.
const TABLES: [&str; 4] = ["keelson_history", "keelson_expiry", "keelson_state", "keelson_sweep"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    Etcd,
}

impl Engine {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
        }
    }
}

/// A store, empty at first.
pub(crate) enum TestStore {
    Sqlite(TempDir),
    /// A database of the PostgreSQL that all tests share.
    Postgres(&'static PostgresServer, String),
    Etcd(EtcdServer),
}

impl TestStore {
    /// An empty store. `None` if this machine lacks the engine.
    pub(crate) fn empty(engine: Engine) -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Some(match engine {
            Engine::Sqlite => Self::Sqlite(TempDir::new().unwrap()),
            Engine::Postgres => {
                let name = format!("upgrades{}", NEXT.fetch_add(1, Ordering::Relaxed));
                let server = PostgresServer::shared()?;
                server.create_database(&name);
                Self::Postgres(server, name)
            }
            Engine::Etcd => Self::Etcd(EtcdServer::start()?),
        })
    }

    /// The URL for `--store`.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(directory) => format!("sqlite:{}", directory.path().display()),
            Self::Postgres(server, database) => server.url_of(database),
            Self::Etcd(server) => format!("etcd://{}", server.endpoint()),
        }
    }

    /// The format number in the store. No server may run on it.
    pub(crate) fn format(&self) -> u32 {
        match self {
            Self::Sqlite(directory) => {
                let file = fs::read(database(directory)).unwrap();
                u32::from_be_bytes(file[USER_VERSION].try_into().unwrap())
            }
            Self::Postgres(server, database) => {
                server.sql(database, "SELECT format FROM keelson_state").parse().unwrap()
            }
            Self::Etcd(server) => {
                let found = entries(server).into_iter().find(|(key, _)| key == ETCD_FORMAT);
                found.map_or(1, |(_, format)| format.parse().unwrap())
            }
        }
    }

    /// Sets the format number in the store.
    pub(crate) fn set_format(&self, format: u32) {
        match self {
            Self::Sqlite(directory) => {
                let mut file = fs::read(database(directory)).unwrap();
                file[USER_VERSION].copy_from_slice(&format.to_be_bytes());
                fs::write(database(directory), file).unwrap();
            }
            Self::Postgres(server, database) => {
                server.sql(database, &format!("UPDATE keelson_state SET format = {format}"));
            }
            Self::Etcd(server) => put(server, ETCD_FORMAT, &format.to_string()),
        }
    }

    /// The whole content of the store, for comparisons.
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Sqlite(directory) => vec![fs::read(database(directory)).unwrap()],
            Self::Postgres(server, database) => {
                let rows = |table| server.sql(database, &format!("SELECT * FROM {table} ORDER BY 1")).into_bytes();
                TABLES.into_iter().map(rows).collect()
            }
            Self::Etcd(server) => vec![everything(server).into_bytes()],
        }
    }

    /// Loads a fixture into the empty store.
    pub(crate) fn load(&self, fixture: &Fixture) {
        match self {
            Self::Sqlite(directory) => {
                let mut file = Vec::new();
                GzDecoder::new(File::open(fixture.file("keelson.db.gz")).unwrap()).read_to_end(&mut file).unwrap();
                fs::write(database(directory), file).unwrap();
            }
            Self::Postgres(server, database) => {
                let mut psql = server.program("psql");
                psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"]).arg(server.url_of(database));
                let output = psql.arg("-f").arg(fixture.file("dump.sql")).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
            Self::Etcd(server) => {
                for line in fs::read_to_string(fixture.file("keys.txt")).unwrap().lines() {
                    let (key, value) = line.split_once(' ').unwrap();
                    put(server, key, value);
                }
            }
        }
    }

    /// Writes the store's files of a fixture.
    pub(crate) fn save(&self, fixture: &Fixture) {
        match self {
            Self::Sqlite(directory) => {
                let file = File::create(fixture.file("keelson.db.gz")).unwrap();
                let mut packed = GzEncoder::new(file, Compression::best());
                packed.write_all(&fs::read(database(directory)).unwrap()).unwrap();
                packed.finish().unwrap();
            }
            Self::Postgres(server, database) => {
                let mut dump = server.program("pg_dump");
                // Values are text, so that the file is readable.
                dump.env("PGOPTIONS", "-c bytea_output=escape");
                dump.args(["--no-owner", "--no-privileges", "--no-toast-compression", "-d"]);
                let output = dump.arg(server.url_of(database)).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let text = String::from_utf8(output.stdout).unwrap();
                // Excludes lines that only some versions of psql and of the server support.
                let is_for_all = |line: &&str| {
                    !["\\restrict", "\\unrestrict", "SET transaction_timeout"].iter().any(|no| line.starts_with(no))
                };
                let lines: Vec<&str> = text.lines().filter(is_for_all).collect();
                fs::write(fixture.file("dump.sql"), lines.join("\n") + "\n").unwrap();
            }
            Self::Etcd(server) => {
                let lines = entries(server).into_iter().filter(|(key, _)| key != ETCD_TICK);
                let text: String = lines.map(|(key, value)| format!("{key} {value}\n")).collect();
                fs::write(fixture.file("keys.txt"), text).unwrap();
            }
        }
    }
}

fn database(directory: &TempDir) -> PathBuf {
    directory.path().join("keelson.db")
}

fn put(server: &EtcdServer, key: &str, value: &str) {
    let body = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
    server.ask("/v3/kv/put", &body.to_string());
}

/// etcd's response to a request for all keys that begin with a slash.
fn everything(server: &EtcdServer) -> String {
    let body = json!({"key": STANDARD.encode("/"), "range_end": STANDARD.encode("0")});
    let answer: Value = serde_json::from_str(&server.ask("/v3/kv/range", &body.to_string())).unwrap();
    // The rest of the response contains the number of leader changes, which varies.
    answer["kvs"].to_string()
}

fn entries(server: &EtcdServer) -> Vec<(String, String)> {
    let found: Value = serde_json::from_str(&everything(server)).unwrap();
    let text = |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
    found.as_array().unwrap().iter().map(|entry| (text(&entry["key"]), text(&entry["value"]))).collect()
}
