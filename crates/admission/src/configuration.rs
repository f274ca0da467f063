//! The file of `--admission-control-config-file`: settings of plugins, by their names.
//!
//! It is upstream's `AdmissionConfiguration`, with the settings of a plugin in it or in a file of their own beside it. Of the plugins
//! here, PodSecurity has settings; those of others are refused, since whoever writes them counts on them.

use std::fs;
use std::path::Path;

use keelson_codec::yaml;
use keelson_meta::json::Value;

pub use crate::builtin::PodSecurityConfiguration;

const GROUP: &str = "apiserver.config.k8s.io/";
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
        if text(&stated, "kind") != KIND || !matches!(version.strip_prefix(GROUP), Some("v1" | "v1alpha1")) {
            return Err(format!("{} is no {KIND} of {GROUP}v1", path.display()));
        }
        let mut settings = Self::default();
        for plugin in stated.get("plugins").and_then(Value::as_array).into_iter().flatten() {
            let (name, beside) = (text(plugin, "name"), text(plugin, "path"));
            if name != POD_SECURITY {
                return Err(format!("{}: the plugin {name:?} has no settings here", path.display()));
            }
            let own = match (plugin.get("configuration"), beside.as_str()) {
                (Some(configuration), _) if !configuration.is_null() => configuration.clone(),
                (_, "") => continue,
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
