//! The stores in the repository: a directory for each engine and format, with the store and its record.
//!
//! The fixtures are never regenerated, since the releases that wrote them are not built here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::test_store::{Engine, TestStore};

/// The response of each path when the store was written.
pub(crate) type Record = BTreeMap<String, Value>;

/// A store of one format.
pub(crate) struct Fixture {
    directory: PathBuf,
}

impl Fixture {
    pub(crate) fn new(engine: Engine, format: u32) -> Self {
        Self { directory: root().join(format!("{}-{format}", engine.name())) }
    }

    /// The fixtures of all formats of an engine, oldest first.
    pub(crate) fn all(engine: Engine) -> Vec<Self> {
        let all = (1..).map(|format| Self::new(engine, format));
        let found: Vec<Self> = all.take_while(Self::is_there).collect();
        assert!(!found.is_empty(), "there is at least the first format of {}", engine.name());
        found
    }

    pub(crate) fn name(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.directory.is_dir()
    }

    /// A file of the fixture.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a new fixture from the store of a stopped server.
    pub(crate) fn make(&self, place: &TestStore, record: &Record) {
        fs::create_dir_all(&self.directory).unwrap();
        place.save(self);
        self.write(record);
    }

    /// The recorded responses. With `KEELSON_UPDATE=1` the record is replaced with the responses of `found`, since a
    /// release may show more fields of an object than the one that wrote it.
    pub(crate) async fn record<F: Future<Output = Record>>(&self, found: impl FnOnce() -> F) -> Record {
        if std::env::var_os("KEELSON_UPDATE").is_some() {
            self.write(&found().await);
        }
        serde_json::from_slice(&fs::read(self.file("objects.json")).unwrap()).unwrap()
    }

    fn write(&self, record: &Record) {
        let text = serde_json::to_string_pretty(record).unwrap();
        fs::write(self.file("objects.json"), text + "\n").unwrap();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrades/fixtures")
}
