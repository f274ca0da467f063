//! The stores that are kept in the repository: a directory for each engine and format, with the store and its record.
//!
//! They are never made anew, since no release that wrote them is built here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::test_store::{Engine, TestStore};

/// How each path answered when the store was written.
pub(crate) type Record = BTreeMap<String, Value>;

/// One store of some format.
pub(crate) struct Fixture {
    directory: PathBuf,
}

impl Fixture {
    pub(crate) fn of(engine: Engine, format: u32) -> Self {
        Self { directory: root().join(format!("{}-{format}", engine.name())) }
    }

    /// Those of all formats, the first format first.
    pub(crate) fn all(engine: Engine) -> Vec<Self> {
        let all = (1..).map(|format| Self::of(engine, format));
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

    /// Writes a new one, of a store whose server has stopped.
    pub(crate) fn make(&self, place: &TestStore, record: &Record) {
        fs::create_dir_all(&self.directory).unwrap();
        place.save(self);
        self.write(record);
    }

    /// What was recorded. With `KEELSON_UPDATE=1` this is what is `found` today: a release may show more of an object than the
    /// one that wrote it.
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
