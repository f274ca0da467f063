//! The file of `--admission-control-config-file`: settings of plugins, by their names.
//!
//! It is upstream's `AdmissionConfiguration`, with the settings of a plugin in it or in a file of their own beside it. Of the plugins
//! here, PodSecurity has settings. Those of other plugins that can be on are refused, since their author counts on them; those of
//! plugins that are never on are passed over, as upstream does with plugins that are off.

use std::fs;
use std::path::Path;

use keelson_codec::yaml;
use keelson_meta::json::Value;

pub use crate::builtin::PodSecurityConfiguration;

use crate::plugins::is_never_on;

/// The versions of the file; the last one is from before the group got its name.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "AdmissionConfiguration";
const POD_SECURITY: &str = "PodSecurity";

impl PodSecurityConfiguration {
    /// Reads the settings of pod security from the file that has those of all plugins.
    ///
    /// # Errors
    /// What is wrong with it, for the operator.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let stated = read(path)?;
        let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = text(&stated, "apiVersion");
        if text(&stated, "kind") != KIND || !VERSIONS.contains(&&*version) {
            return Err(format!("{} is no {KIND} of {}", path.display(), VERSIONS[0]));
        }
        let mut settings = Self::default();
        for plugin in stated.get("plugins").and_then(Value::as_array).into_iter().flatten() {
            let (name, beside) = (text(plugin, "name"), text(plugin, "path"));
            let has_settings = !beside.is_empty() || plugin.get("configuration").is_some_and(|own| !own.is_null());
            if name != POD_SECURITY && is_never_on(&name) {
                tracing::warn!(plugin = name, "the settings of an admission plugin that is off are passed over");
                continue;
            }
            if name != POD_SECURITY && has_settings {
                return Err(format!("{}: the plugin {name:?} has no settings here", path.display()));
            }
            if !has_settings {
                continue;
            }
            let own = match (plugin.get("configuration"), beside.as_str()) {
                (Some(configuration), _) if !configuration.is_null() => configuration.clone(),
                (_, beside) => read(&path.parent().unwrap_or(Path::new("")).join(beside))?,
            };
            settings = Self::read(&own).map_err(|why| format!("{}: {name}: {why}", path.display()))?;
        }
        Ok(settings)
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let parsed = yaml::parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(parsed.value)
}
