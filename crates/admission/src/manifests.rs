//! Webhooks and policies from manifests in a directory (KEP-5793). They apply from the first request on, no client can
//! change them, and they see admission configuration objects too.
//!
//! A start fails if a manifest is invalid. A running server reads the directory again from time to time. If a manifest
//! is invalid then, all earlier ones stay. `manifests/reading.rs` reads the files.

mod reading;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keelson_access_config::Reloads;
use keelson_meta::json::Value;
use keelson_meta::{Clock, FeatureGates, Object};
use keelson_schema::Schemas;
use keelson_supervision::RepeatLog;
use parking_lot::RwLock;

use crate::matching::MatchedPlugin;
use crate::policies::{Binding, Bound, Policy};
use crate::webhooks::Hook;
pub use reading::ManifestError;
use reading::{ManifestFiles, ManifestObjects};

/// The gate of the feature.
const GATE: &str = "ManifestBasedAdmissionControlConfig";
/// The time between two readings of a directory.
const INTERVAL: Duration = Duration::from_secs(10);

/// A plugin that takes manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManifestPlugin {
    /// Mutating policies and their bindings.
    MutatingPolicy,
    /// Configurations of mutating webhooks.
    MutatingWebhook,
    /// Validating policies and their bindings.
    ValidatingPolicy,
    /// Configurations of validating webhooks.
    ValidatingWebhook,
}

impl ManifestPlugin {
    /// The name of the plugin.
    pub fn name(self) -> &'static str {
        match self {
            Self::MutatingPolicy => "MutatingAdmissionPolicy",
            Self::MutatingWebhook => "MutatingAdmissionWebhook",
            Self::ValidatingPolicy => "ValidatingAdmissionPolicy",
            Self::ValidatingWebhook => "ValidatingAdmissionWebhook",
        }
    }

    /// The kinds of its manifests.
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::MutatingPolicy => &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
            Self::MutatingWebhook => &["MutatingWebhookConfiguration"],
            Self::ValidatingPolicy => &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
            Self::ValidatingWebhook => &["ValidatingWebhookConfiguration"],
        }
    }
}

/// The manifests of one plugin, as they were read last without an error.
pub struct Manifests {
    plugin: ManifestPlugin,
    directory: PathBuf,
    /// The schemas of the kinds.
    schemas: &'static Schemas,
    current: RwLock<Arc<Loaded>>,
    clock: Arc<dyn Clock>,
    reloads: Reloads,
    failures: RepeatLog,
}

/// The webhooks and policies of one reading.
#[derive(Default)]
struct Loaded {
    /// The hash of all files; empty if there are none.
    hash: String,
    hooks: Arc<[Arc<Hook>]>,
    policies: Arc<[Bound]>,
}

/// The manifests of all plugins that have a directory.
pub type ManifestSet = BTreeMap<ManifestPlugin, Arc<Manifests>>;

impl fmt::Debug for Manifests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifests").field("plugin", &self.plugin).field("directory", &self.directory).finish()
    }
}

/// Reads the manifests in these directories.
///
/// # Errors
/// The feature gate is off, a directory cannot be read, or a manifest is invalid.
pub(crate) fn load_all(
    directories: &BTreeMap<ManifestPlugin, PathBuf>,
    gates: &FeatureGates,
    schemas: &'static Schemas,
    clock: &Arc<dyn Clock>,
) -> Result<ManifestSet, ManifestError> {
    let load = |(plugin, directory): (&ManifestPlugin, &PathBuf)| {
        if !gates.is_on(GATE) {
            return Err(ManifestError::GateIsOff { directory: directory.clone() });
        }
        Ok((*plugin, Arc::new(Manifests::load(*plugin, directory, schemas, clock.clone())?)))
    };
    directories.iter().map(load).collect()
}

impl Manifests {
    fn load(
        plugin: ManifestPlugin,
        directory: &Path,
        schemas: &'static Schemas,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ManifestError> {
        let files = ManifestFiles::read(directory)?;
        let objects = ManifestObjects::decode(plugin, &files, schemas)?;
        let reloads = Reloads::default();
        reloads.note(true, clock.now());
        Ok(Self {
            plugin,
            directory: directory.to_owned(),
            schemas,
            current: RwLock::new(Arc::new(Loaded::new(files.hash, objects))),
            clock,
            reloads,
            failures: RepeatLog::new(),
        })
    }

    /// Reads the directory again and again. Does not return.
    pub async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let this = self.clone();
            // Reading files and compiling expressions takes time.
            let read = keelson_supervision::spawn_blocking(move || this.reload()).await;
            if let Err(error) = read {
                tracing::error!(%error, directory = %self.directory.display(), "reading admission manifests failed");
            }
        }
    }

    /// Reads the directory, and applies it if its content changed and is valid. Files that have not changed are not
    /// decoded again.
    pub fn reload(&self) {
        let (plugin, directory) = (self.plugin.name(), self.directory.display());
        let changed = || -> Result<_, ManifestError> {
            let files = ManifestFiles::read(&self.directory)?;
            if files.hash == self.hash() {
                return Ok(None);
            }
            let objects = ManifestObjects::decode(self.plugin, &files, self.schemas)?;
            Ok(Some((files.hash, objects)))
        };
        match changed() {
            Ok(None) => {
                self.failures.worked(plugin);
            }
            Ok(Some((hash, objects))) => {
                let count = objects.count();
                *self.current.write() = Arc::new(Loaded::new(hash, objects));
                self.reloads.note(true, self.clock.now());
                self.failures.worked(plugin);
                tracing::info!(plugin, %directory, count, "admission manifests were read again");
            }
            Err(error) => {
                self.reloads.note(false, self.clock.now());
                if let Some(due) = self.failures.failed(plugin) {
                    let repeats = due.repeats;
                    tracing::warn!(plugin, %directory, repeats, %error, "admission manifests are invalid; the earlier ones stay");
                }
            }
        }
    }

    /// The plugin that the manifests are for.
    pub fn plugin(&self) -> ManifestPlugin {
        self.plugin
    }

    /// The counts of readings of the directory that changed something or failed.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// The hash of the files that are applied; empty if there are none.
    pub fn hash(&self) -> String {
        self.current.read().hash.clone()
    }

    /// The webhooks.
    pub(crate) fn hooks(&self) -> Arc<[Arc<Hook>]> {
        self.current.read().hooks.clone()
    }

    /// The policies with their bindings.
    pub(crate) fn policies(&self) -> Arc<[Bound]> {
        self.current.read().policies.clone()
    }
}

impl Loaded {
    fn new(hash: String, objects: ManifestObjects) -> Self {
        let spec = |object: &Object| object.0.get("spec").cloned().unwrap_or(Value::Null);
        let ManifestObjects { configurations, policies, bindings } = objects;
        let hooks = configurations.iter().flat_map(|configuration| {
            let webhooks = configuration.0.get("webhooks").unwrap_or(&Value::Null);
            Hook::all_of(MatchedPlugin::ManifestWebhook, configuration.name(), webhooks)
        });
        let bindings: Vec<Arc<Binding>> = bindings
            .iter()
            .map(|object| Arc::new(Binding::new(MatchedPlugin::ManifestPolicy, object.name(), &spec(object))))
            .collect();
        let bound = policies.iter().map(|object| {
            let policy = Policy::new(MatchedPlugin::ManifestPolicy, object.name(), &spec(object));
            let bindings = bindings.iter().filter(|binding| binding.policy == policy.name).cloned().collect();
            Bound { policy: Arc::new(policy), bindings }
        });
        let policies = bound.filter(|bound| !bound.bindings.is_empty()).collect();
        Self { hash, hooks: hooks.map(Arc::new).collect(), policies }
    }
}
