//! The file of `--admission-control-config-file`: settings of plugins, by their names.
//!
//! It is upstream's `AdmissionConfiguration`. The settings of a plugin are part of this file, or in another file that
//! it names ([`settings`] parses them). Settings of plugins that have none or are off are ignored with a warning. An
//! unknown plugin or field is an error.

mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use keelson_access_config::HostCredentials;
use keelson_codec::yaml;
use keelson_meta::json::{Map, Value};
use keelson_meta::{Clock, FeatureGates};
use keelson_registry::LimitedResource;
use keelson_schema::Schemas;

use crate::builtin::{EventLimit, ImagePolicy, NodeSelectors, PodSecurityConfiguration, TolerationSettings};
use crate::manifests::{ManifestError, ManifestPlugin, ManifestSet, load_all};
use crate::plugins::{Selection, is_known};
use settings::{known_fields, text};

/// The supported versions of the file. The last one predates the API group.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "AdmissionConfiguration";
/// The field of a file with only the settings of PodNodeSelector, a form without apiVersion and kind.
const NODE_SELECTORS: &str = "podNodeSelectorPluginConfig";
/// The field of a file with only the settings of ImagePolicyWebhook.
const IMAGE_POLICY: &str = "imagePolicy";

/// The settings of all plugins that have settings.
#[derive(Clone, Debug, Default)]
pub struct AdmissionConfiguration {
    /// Defaults and exemptions of pod security.
    pub pod_security: PodSecurityConfiguration,
    /// Resources that can only be used under a quota.
    pub limited_resources: Vec<LimitedResource>,
    /// Node selectors of namespaces.
    pub node_selectors: NodeSelectors,
    /// The backend that reviews images.
    pub image_policy: Option<ImagePolicy>,
    /// Default and allowed tolerations of pods.
    pub tolerations: TolerationSettings,
    /// Limits for the rate of events.
    pub event_limits: Vec<EventLimit>,
    /// Credentials for mutating webhooks.
    pub mutating_credentials: Option<Arc<HostCredentials>>,
    /// Credentials for validating webhooks.
    pub validating_credentials: Option<Arc<HostCredentials>>,
    /// The directories with manifests of webhooks and policies.
    pub manifest_directories: BTreeMap<ManifestPlugin, PathBuf>,
}

/// The reason why the file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A file cannot be read.
    #[error("{}: {fault}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        fault: io::Error,
    },
    /// The file has another kind or version.
    #[error("{} is not an {} of {}", file.display(), KIND, VERSIONS[0])]
    OtherKind {
        /// The file.
        file: PathBuf,
    },
    /// A file is no YAML, or has a fault outside of the settings of plugins.
    #[error("{}: {fault}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The fault.
        fault: String,
    },
    /// The file names an unknown plugin.
    #[error("{}: the plugin {plugin:?} is unknown", file.display())]
    UnknownPlugin {
        /// The file.
        file: PathBuf,
        /// The plugin.
        plugin: String,
    },
    /// The settings of a plugin are invalid.
    #[error("{}: {plugin}: {fault}", file.display())]
    InvalidSettings {
        /// The file.
        file: PathBuf,
        /// The plugin.
        plugin: String,
        /// The fault.
        fault: String,
    },
}

impl AdmissionConfiguration {
    /// Reads the file, and the files that it names for the plugins that are on.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn from_file(path: &Path, plugins: &Selection) -> Result<Self, ConfigurationError> {
        let document = read(path)?;
        let wrong = |fault: String| ConfigurationError::Invalid { file: path.to_owned(), fault };
        let stated = document.as_object().ok_or_else(|| wrong(format!("it is not an {KIND}")))?;
        let mut configuration = Self::default();
        if text(stated, "kind").is_empty() && stated.get(NODE_SELECTORS).is_some() {
            configuration.node_selectors = settings::node_selectors(&document).map_err(wrong)?;
            return Ok(configuration);
        }
        if text(stated, "kind").is_empty() && stated.get(IMAGE_POLICY).is_some() {
            configuration.image_policy = Some(settings::image_policy(&document).map_err(wrong)?);
            return Ok(configuration);
        }
        if text(stated, "kind") != KIND || !VERSIONS.contains(&text(stated, "apiVersion")) {
            return Err(ConfigurationError::OtherKind { file: path.to_owned() });
        }
        known_fields(stated, "", &["apiVersion", "kind", "plugins"]).map_err(wrong)?;
        let mut seen = BTreeSet::new();
        for plugin in stated.get("plugins").and_then(Value::as_array).into_iter().flatten() {
            let plugin = plugin.as_object().ok_or_else(|| wrong("a plugin is not an object".to_owned()))?;
            known_fields(plugin, "plugins[].", &["name", "path", "configuration"]).map_err(wrong)?;
            let name = text(plugin, "name");
            // Like upstream, the first entry of a plugin applies.
            if !seen.insert(name) {
                warn_of_unused(name);
                continue;
            }
            configuration.take(path, name, plugin, plugins)?;
        }
        Ok(configuration)
    }

    /// The credentials whose files are reloaded while the server runs.
    pub fn credentials(&self) -> impl Iterator<Item = &Arc<HostCredentials>> {
        [&self.mutating_credentials, &self.validating_credentials].into_iter().flatten()
    }

    /// Reads the manifests of webhooks and policies.
    ///
    /// # Errors
    /// The feature gate is off, or a manifest is invalid.
    pub fn manifests(
        &self,
        gates: &FeatureGates,
        schemas: &'static Schemas,
        clock: &Arc<dyn Clock>,
    ) -> Result<ManifestSet, ManifestError> {
        load_all(&self.manifest_directories, gates, schemas, clock)
    }

    /// Applies the settings of one plugin.
    fn take(&mut self, path: &Path, name: &str, plugin: &Map, plugins: &Selection) -> Result<(), ConfigurationError> {
        let (file, of) = (|| path.to_owned(), || name.to_owned());
        let wrong = |fault: String| ConfigurationError::InvalidSettings { file: file(), plugin: of(), fault };
        let beside = text(plugin, "path");
        let stated = plugin.get("configuration").filter(|stated| !stated.is_null());
        if !is_known(name) {
            return Err(ConfigurationError::UnknownPlugin { file: file(), plugin: of() });
        }
        if stated.is_none() && beside.is_empty() {
            return Ok(());
        }
        if !settings::HAVE_SETTINGS.contains(&name) || !plugins.may_use(name) {
            warn_of_unused(name);
            return Ok(());
        }
        let stated = match stated {
            Some(stated) => stated.clone(),
            None => read(&path.parent().unwrap_or(Path::new("")).join(beside))?,
        };
        match name {
            "PodSecurity" => self.pod_security = PodSecurityConfiguration::read(&stated).map_err(wrong)?,
            "ResourceQuota" => self.limited_resources = settings::limited_resources(&stated).map_err(wrong)?,
            "EventRateLimit" => self.event_limits = settings::event_limits(&stated).map_err(wrong)?,
            "ImagePolicyWebhook" => self.image_policy = Some(settings::image_policy(&stated).map_err(wrong)?),
            "PodTolerationRestriction" => self.tolerations = settings::tolerations(&stated).map_err(wrong)?,
            "PodNodeSelector" => self.node_selectors = settings::node_selectors(&stated).map_err(wrong)?,
            "MutatingAdmissionWebhook" => {
                self.mutating_credentials = self.webhooks(ManifestPlugin::MutatingWebhook, &stated).map_err(wrong)?;
            }
            "MutatingAdmissionPolicy" => self.policies(ManifestPlugin::MutatingPolicy, &stated).map_err(wrong)?,
            "ValidatingAdmissionPolicy" => self.policies(ManifestPlugin::ValidatingPolicy, &stated).map_err(wrong)?,
            _ => {
                self.validating_credentials =
                    self.webhooks(ManifestPlugin::ValidatingWebhook, &stated).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Applies the settings of webhooks, and returns their credentials.
    fn webhooks(&mut self, plugin: ManifestPlugin, stated: &Value) -> Result<Option<Arc<HostCredentials>>, String> {
        let (kubeconfig, directory) = settings::webhooks(stated)?;
        self.manifest_directories.extend(directory.map(|directory| (plugin, directory)));
        let credentials = kubeconfig.map(|file| HostCredentials::of_file(&file).map(Arc::new)).transpose();
        credentials.map_err(|error| error.to_string())
    }

    fn policies(&mut self, plugin: ManifestPlugin, stated: &Value) -> Result<(), String> {
        let directory = settings::policies(stated, &format!("{}Configuration", plugin.name()))?;
        self.manifest_directories.extend(directory.map(|directory| (plugin, directory)));
        Ok(())
    }
}

fn warn_of_unused(plugin: &str) {
    tracing::warn!(plugin, "settings of an admission plugin are not used");
}

fn read(path: &Path) -> Result<Value, ConfigurationError> {
    let file = || path.to_owned();
    let bytes = fs::read(path).map_err(|fault| ConfigurationError::Unreadable { file: file(), fault })?;
    let parsed = yaml::parse(&bytes);
    let invalid = |fault: String| ConfigurationError::Invalid { file: file(), fault };
    Ok(parsed.map_err(|error| invalid(error.to_string()))?.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";

    fn configuration(text: &str) -> Result<AdmissionConfiguration, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("admission.yaml");
        let hooks = directory.path().join("hooks.kubeconfig");
        std::fs::write(&hooks, "users: [{name: '*', user: {token: t}}]\n").unwrap();
        std::fs::write(&file, text.replace("HOOKS", &hooks.display().to_string())).unwrap();
        let beside = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b, team: 'c=d,a=b'}\n";
        std::fs::write(directory.path().join("selectors.yaml"), beside).unwrap();
        let plugins = Selection::new(settings::HAVE_SETTINGS.map(str::to_owned).to_vec(), Vec::new()).unwrap();
        AdmissionConfiguration::from_file(&file, &plugins).map_err(|error| error.to_string())
    }

    #[test]
    fn each_plugin_has_its_settings_in_every_version_of_them() {
        let webhooks = |plugin: &str, version: &str, kind: &str| {
            let own = format!("{{apiVersion: {version}, kind: {kind}, kubeConfigFile: HOOKS}}");
            configuration(&format!("{HEAD}plugins: [{{name: {plugin}, configuration: {own}}}]\n")).unwrap()
        };
        let v1 = ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration");
        let only_mutating = webhooks("MutatingAdmissionWebhook", v1.0, v1.1);
        assert!(only_mutating.mutating_credentials.is_some() && only_mutating.validating_credentials.is_none());
        let only_validating =
            webhooks("ValidatingAdmissionWebhook", "apiserver.config.k8s.io/v1alpha1", "WebhookAdmission");
        assert!(only_validating.validating_credentials.is_some() && only_validating.mutating_credentials.is_none());
        for (version, kind) in [
            ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
            ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
            ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
        ] {
            let own = format!("{{apiVersion: {version}, kind: {kind}, limitedResources: [{{resource: pods}}]}}");
            let text = format!("{HEAD}plugins: [{{name: ResourceQuota, configuration: {own}}}]\n");
            assert_eq!(configuration(&text).unwrap().limited_resources.len(), 1, "{version}");
        }
        let own = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 5, burst: 7}]}";
        let limits =
            configuration(&format!("{HEAD}plugins: [{{name: EventRateLimit, configuration: {own}}}]\n")).unwrap();
        assert_eq!((limits.event_limits[0].qps, limits.event_limits[0].burst), (5, 7));
        let selectors = format!("{HEAD}plugins: [{{name: PodNodeSelector, path: selectors.yaml}}]\n");
        let old = selectors.replace("apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1");
        let bare = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b, team: 'c=d,a=b'}\n";
        let stated = configuration(&selectors).unwrap().node_selectors;
        assert_ne!(stated, NodeSelectors::default());
        for same in [&*old, bare] {
            assert_eq!(configuration(same).unwrap().node_selectors, stated, "{same}");
        }
        // The first of several entries applies.
        let twice = selectors.replace("}]", "}, {name: PodNodeSelector, configuration: {}}]");
        assert_eq!(configuration(&twice).unwrap().node_selectors, stated);
    }

    #[test]
    fn webhooks_and_policies_may_have_directories_of_manifests() {
        let of = |plugin: &str, kind: &str, rest: &str| {
            let own = format!("{{apiVersion: apiserver.config.k8s.io/v1, kind: {kind}{rest}}}");
            configuration(&format!("{HEAD}plugins: [{{name: {plugin}, configuration: {own}}}]\n")).unwrap()
        };
        let directory = ", staticManifestsDir: /manifests";
        for (plugin, name, kind) in [
            (ManifestPlugin::MutatingPolicy, "MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration"),
            (ManifestPlugin::MutatingWebhook, "MutatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
            (ManifestPlugin::ValidatingPolicy, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration"),
            (ManifestPlugin::ValidatingWebhook, "ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
        ] {
            let read = of(name, kind, directory);
            assert_eq!(read.manifest_directories, BTreeMap::from([(plugin, PathBuf::from("/manifests"))]));
            assert!(read.mutating_credentials.is_none() && read.validating_credentials.is_none());
        }
        let both = of(
            "MutatingAdmissionWebhook",
            "WebhookAdmissionConfiguration",
            &format!("{directory}, kubeConfigFile: HOOKS"),
        );
        assert!(both.mutating_credentials.is_some() && both.manifest_directories.len() == 1);
        let neither = of("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration", "");
        assert!(neither.manifest_directories.is_empty());
    }

    #[test]
    fn image_policies_and_tolerations_have_their_settings() {
        let images =
            |of: &str| format!("{HEAD}plugins: [{{name: ImagePolicyWebhook, configuration: {{imagePolicy: {of}}}}}]\n");
        let of = |text: &str| configuration(text).map(|read| read.image_policy.unwrap());
        let usual = of(&images("{kubeConfigFile: /backend}")).unwrap();
        assert_eq!(usual, ImagePolicy::new("/backend".into()));
        let stated = "{kubeConfigFile: /backend, allowTTL: 60, denyTTL: -1, retryBackoff: 7, defaultAllow: true}";
        let second = std::time::Duration::from_secs(1);
        let expected = ImagePolicy {
            allowed_for: 60 * second,
            refused_for: std::time::Duration::ZERO,
            retry_wait: second * 7 / 1000,
            allows_on_failure: true,
            ..usual
        };
        assert_eq!(of(&images(stated)), Ok(expected.clone()));
        assert_eq!(of(&format!("imagePolicy: {stated}\n")), Ok(expected), "the file is the settings");
        let check = |text: &str, expected: &str| {
            let error = configuration(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check(&images("{}"), "imagePolicy.kubeConfigFile: Required value");
        check(&images("{kubeConfigFile: /b, allowTTL: 1801}"), "valid value is between 1s and 30m0s, got 1801s");
        check(&images("{kubeConfigFile: /b, denyTTL: -2}"), "valid value is between 1s and 30m0s, got -2s");
        check(&images("{kubeConfigFile: /b, retryBackoff: 300001}"), "between 1ns and 5m0s, got 300001ms");
        check(&images("{kubeConfigFile: /b, defaultAllow: 'yes'}"), "imagePolicy.defaultAllow is not a boolean");
        check(&images("{kubeConfigFile: /b, ttl: 1}"), "unknown field \"imagePolicy.ttl\"");

        let tolerations = |of: &str| {
            let kind = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration";
            format!("{HEAD}plugins: [{{name: PodTolerationRestriction, configuration: {{{kind}{of}}}}}]\n")
        };
        let read = configuration(&tolerations(", default: [{key: a, operator: Exists}], whitelist: []")).unwrap();
        assert_eq!((read.tolerations.defaults.len(), read.tolerations.allowed.len()), (1, 0));
        check(&tolerations(", default: [{key: a, operator: Is}]"), "podtolerationrestriction.default[0].operator");
        check(&tolerations(", whitelist: [{operator: Equal}]"), "podtolerationrestriction.whitelist[0].operator");
        check(&tolerations(", whitelist: [{key: '-'}]"), "podtolerationrestriction.whitelist[0].key");
        check(&tolerations(", allowed: []"), "unknown field \"allowed\"");
    }

    #[test]
    fn settings_that_can_not_be_used_say_why() {
        let check = |plugins: &str, expected: &str| {
            let error = configuration(&format!("{HEAD}plugins: [{plugins}]\n")).unwrap_err();
            assert!(error.contains(expected), "{plugins}: {error}");
        };
        let hook = |rest: &str| {
            format!(
                "{{name: ValidatingAdmissionWebhook, configuration: {{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration{rest}}}}}"
            )
        };
        let absolute = "kubeConfigFile: Invalid value: \"\": must be an absolute file path";
        check(&hook(""), absolute);
        check(&hook(", kubeConfigFile: hooks.kubeconfig"), "must be an absolute file path");
        check(&hook(", kubeConfigFile: /none/there"), "/none/there");
        let manifests = "staticManifestsDir: Invalid value: \"x\": must be an absolute file path";
        check(&hook(", staticManifestsDir: x"), manifests);
        check(
            &hook(", staticManifestsDir: /x")
                .replace("k8s.io/v1, kind: WebhookAdmissionConfiguration", "k8s.io/v1alpha1, kind: WebhookAdmission"),
            "unknown field \"staticManifestsDir\"",
        );
        let policies = |rest: &str| {
            let kind = "apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration";
            format!("{{name: MutatingAdmissionPolicy, configuration: {{{kind}{rest}}}}}")
        };
        check(&policies(", staticManifestsDir: x"), manifests);
        check(&policies(", kubeConfigFile: /x"), "unknown field \"kubeConfigFile\"");
        check(&policies("").replace("Mutating", "Validating").replacen("Validating", "Mutating", 1), "no kind");
        check(
            &hook("").replace("config.k8s.io/v1", "config.k8s.io/v1alpha1"),
            "no kind \"WebhookAdmissionConfiguration\"",
        );
        check("{name: ValidatingAdmissionWebhook, configuration: {}}", "Object 'Kind' is missing");
        let quota = |rest: &str| {
            format!(
                "{{name: ResourceQuota, configuration: {{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{rest}]}}}}"
            )
        };
        check(&quota("{apiGroup: apps}"), "limitedResources[0].resource: Required value");
        check(&quota("{resource: pods, matchContains: [1]}"), "limitedResources[0].matchContains");
        check(&quota("{resource: pods, limit: 1}"), "unknown field \"limitedResources[0].limit\"");
        check(
            &quota("{resource: pods, matchScopes: [{scope: x}]}"),
            "unknown field \"limitedResources[0].matchScopes[0].scope\"",
        );
        let events = |limits: &str| {
            format!(
                "{{name: EventRateLimit, configuration: {{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: {limits}}}}}"
            )
        };
        check(&events("[]"), "limits: Invalid value: []: must not be empty");
        check(&events("[{type: Pod, qps: 1, burst: 1}]"), "limits[0].type: Unsupported value: \"Pod\"");
        check(&events("[{type: Server, qps: 1}]"), "limits[0].burst: Invalid value: 0: must be positive");
        check(&events("[{type: Server, qps: -1, burst: 1}]"), "limits[0].qps: Invalid value: -1: must be positive");
        check(&events("[{type: User, qps: 1, burst: 1, cacheSize: -1}]"), "limits[0].cacheSize: Invalid value: -1");
        let selectors =
            |of: &str| format!("{{name: PodNodeSelector, configuration: {{podNodeSelectorPluginConfig: {of}}}}}");
        check(&selectors("{team: a}"), "podNodeSelectorPluginConfig[team]: invalid selector: a");
        check(&selectors("{team: 5}"), "podNodeSelectorPluginConfig[team]");
        check("{name: Nothing}", "the plugin \"Nothing\" is unknown");
        check("{name: PodSecurity, setting: x}", "unknown field \"plugins[].setting\"");
        // Settings for plugins without settings are ignored.
        for plugin in ["ResourceQuota", "LimitRanger, configuration: {a: b}"] {
            configuration(&format!("{HEAD}plugins: [{{name: {plugin}}}]\n")).unwrap();
        }
        assert!(
            configuration("kind: Other\napiVersion: v1\n").unwrap_err().contains("is not an AdmissionConfiguration")
        );
    }
}
