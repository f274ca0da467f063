//! The settings that must be equal on all servers of a store: publishes this server's, and compares them with the
//! others'.
//!
//! A server with other settings serves its clients differently: it keeps less history, admits objects that others
//! refuse, or allocates other addresses. Each server publishes its settings by name in an annotation of its lease.
//! Short values are published as text, long ones and the contents of files as hashes. Secrets are not published, not
//! even as hashes. Only names that both servers know are compared, so that servers of two releases can run together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keelson_access::read_bounded;
use keelson_access_config::AuthorizationSource;
use keelson_admission::{AdmissionConfiguration, ImagePolicy, NodeSelectors, TolerationSettings};
use keelson_controllers::{RegisteredServers, ServerState};
use keelson_http::metrics::{MetricKind, Sample};
use keelson_registry::RegistryConfig;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// The annotation with the settings.
const ANNOTATION: &str = "keelson.io/settings";
/// The interval of comparisons.
const INTERVAL: Duration = Duration::from_secs(10);
/// A longer value is published as a hash.
const LONGEST: usize = 100;
/// The bytes of a hash that are published.
const HASH_BYTES: usize = 8;
/// The maximum size of a settings file that is hashed, in bytes.
const MOST_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// The maximum number of settings read from another server, and of differences with a sample in the metrics.
const MOST: usize = 500;

/// A setting that release 0.1.0 publishes in Rust's debug format: `AsOthers`, and `Switches { settings: [AllByDefault]
/// }`.
const PARTIAL_RIGHTS: &str = "chunks-for-partial-rights";
const CONTROLLERS: &str = "controllers";

/// Setting values by flag name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(BTreeMap<String, String>);

/// A setting with another value on another server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Difference {
    setting: String,
    own: String,
    other: String,
}

impl Settings {
    /// The settings of a server.
    pub(crate) fn from_config(config: &Config) -> Self {
        let registry = &config.registry;
        let given = |is_given: bool| if is_given { "given" } else { "not given" }.to_owned();
        let authorization = match &config.authorization {
            AuthorizationSource::Flags(entries) => {
                let kinds = entries.iter().map(|entry| entry.kind().map_or("", |kind| kind.name()));
                kinds.collect::<Vec<_>>().join(",")
            }
            AuthorizationSource::File(path) => file(path),
        };
        let authentication = match (&config.authentication.file, &config.authentication.oidc) {
            (Some(path), _) => file(path),
            (None, Some(flags)) => hash(format!("{flags:?}").as_bytes()),
            (None, None) => given(false),
        };
        let addresses = registry.service_ranges.addresses().iter().map(ToString::to_string);
        let all = [
            ("history", format!("{:?}", config.history)),
            ("max-object-bytes", config.max_object_bytes.to_string()),
            ("no-chunking", sorted(registry.unchunked.iter().cloned())),
            (PARTIAL_RIGHTS, registry.partial_rights.to_string()),
            ("limit-at-any-version", registry.limit_at_any_version.to_string()),
            ("skip-unreadable", registry.skip_unreadable.to_string()),
            ("emulated-version", registry.release().to_string()),
            ("feature-gates", registry.gates.to_string()),
            ("feature-gates/APIListChunking", registry.chunking.to_string()),
            ("feature-gates/StorageVersionAPI", registry.storage_version_api.to_string()),
            ("runtime-config/off", sorted(registry.unserved.iter().map(group_version).chain(single(registry, false)))),
            ("runtime-config/on", sorted(registry.demanded.iter().map(group_version).chain(single(registry, true)))),
            ("admission-plugins", config.admission.to_string()),
            ("admission-control-config", admission_control_config(config)),
            ("service-cluster-ip-range", addresses.collect::<Vec<_>>().join(",")),
            ("service-node-port-range", registry.service_ranges.node_ports.to_string()),
            ("authorization-mode", authorization),
            ("authentication-config", authentication),
            ("authentication-token-webhook", given(config.authentication.webhook.is_some())),
            ("anonymous-auth", config.anonymous.map_or_else(|| given(false), |is_on| is_on.to_string())),
            ("token-auth-file", given(config.token_file.is_some())),
            ("token-key-file", given(config.token_key_file.is_some())),
            ("encryption-provider-config", given(config.encryption.file.is_some())),
            ("allow-privileged", registry.allow_privileged.to_string()),
            ("api-audiences", sorted(config.audiences().into_iter())),
            ("enable-bootstrap-token-auth", config.bootstrap_tokens.to_string()),
            ("identity-lease", format!("{:?}", config.identity_duration)),
            (CONTROLLERS, config.controllers.to_string()),
            ("client-ca-file", given(config.pki.client_ca.is_some())),
            ("peer-ca-file", given(config.peer_ca_file.is_some())),
        ];
        Self(all.into_iter().map(|(name, value)| (name.to_owned(), bounded(value))).collect())
    }

    /// The annotation that publishes the settings.
    pub(crate) fn to_annotations(&self) -> BTreeMap<String, String> {
        let value = serde_json::to_string(&self.0).unwrap_or_default();
        BTreeMap::from([(ANNOTATION.to_owned(), value)])
    }

    /// The settings that another server has published. Empty for a server of an older release.
    fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(ANNOTATION).map_or("", String::as_str);
        let read: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
        let texts = read.into_iter().filter_map(|(name, value)| {
            let value = as_flag(&name, value.as_str()?)?;
            Some((name, value))
        });
        Self(texts.take(MOST).collect())
    }

    /// The settings that both servers have, with different values.
    fn differences(&self, other: &Self) -> Vec<Difference> {
        let differ = |(setting, own): (&String, &String)| {
            let other = other.0.get(setting).filter(|other| *other != own)?;
            Some(Difference { setting: setting.clone(), own: own.clone(), other: other.clone() })
        };
        self.0.iter().filter_map(differ).collect()
    }
}

/// The published value in the form of its flag. `None` if release 0.1.0 published a value that has no flag form.
fn as_flag(setting: &str, published: &str) -> Option<String> {
    let value = match (setting, published) {
        (PARTIAL_RIGHTS, "AsOthers") => "as-others",
        (PARTIAL_RIGHTS, "Whole") => "none",
        (PARTIAL_RIGHTS, "NextVisible") => "next-visible",
        (CONTROLLERS, "Switches { settings: [AllByDefault] }") => "*",
        (CONTROLLERS, formatted) if formatted.starts_with("Switches {") => return None,
        (_, other) => other,
    };
    Some(value.to_owned())
}

/// A digest of the settings of admission plugins. The credentials of webhooks are files of each host, and may differ.
fn admission_control_config(config: &Config) -> String {
    let AdmissionConfiguration {
        pod_security,
        limited_resources,
        node_selectors,
        event_limits,
        image_policy,
        tolerations,
        ..
    } = &config.admission_configuration;
    let mut digested = format!("{pod_security:?}");
    if !limited_resources.is_empty() {
        digested.push_str(&format!("{limited_resources:?}"));
    }
    if *node_selectors != NodeSelectors::default() {
        digested.push_str(&format!("{node_selectors:?}"));
    }
    if !event_limits.is_empty() {
        digested.push_str(&format!("{event_limits:?}"));
    }
    if let Some(ImagePolicy { kubeconfig: _, allowed_for, refused_for, retry_wait, allows_on_failure }) = image_policy {
        digested.push_str(&format!("{allowed_for:?}{refused_for:?}{retry_wait:?}{allows_on_failure}"));
    }
    if *tolerations != TolerationSettings::default() {
        digested.push_str(&format!("{tolerations:?}"));
    }
    hash(digested.as_bytes())
}

/// Compares the settings of a server with those of the others on its store.
pub(crate) struct SettingsComparison {
    own: Settings,
    server_id: String,
    servers: Arc<RegisteredServers>,
    /// The differences of the last comparison, by server name.
    found: ArcSwap<BTreeMap<String, Vec<Difference>>>,
}

impl SettingsComparison {
    pub(crate) fn new(config: &Config, servers: Arc<RegisteredServers>) -> Arc<Self> {
        let (own, server_id) = (Settings::from_config(config), config.server_id.clone());
        Arc::new(Self { own, server_id, servers, found: ArcSwap::default() })
    }

    /// Compares settings at intervals until the server stops.
    pub(crate) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let comparing = async {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.compare().await;
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(comparing).await;
    }

    async fn compare(&self) {
        let servers = match self.servers.all().await {
            Ok(servers) => servers,
            Err(error) => {
                tracing::debug!(%error, "comparing the settings of other servers failed");
                return;
            }
        };
        let others = servers.into_iter().filter(|other| other.id != self.server_id && other.life != ServerState::Dead);
        let found: BTreeMap<_, _> =
            others.map(|other| (other.id, self.own.differences(&Settings::read(&other.annotations)))).collect();
        let known = self.found.load();
        for (server_id, differences) in &found {
            let known = known.get(server_id).map_or(&[][..], Vec::as_slice);
            if differences.is_empty() && !known.is_empty() {
                tracing::info!(server_id, "the settings of another server on the store agree again");
            } else if differences != known {
                tracing::warn!(
                    server_id,
                    settings = describe(differences),
                    "another server on the store has other settings; clients are served differently by the two"
                );
            }
        }
        self.found.store(Arc::new(found));
    }

    /// The metric with differences.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let found = self.found.load();
        let each = found.iter().flat_map(|(id, differences)| differences.iter().map(move |one| (id, &one.setting)));
        let sample = |(server_id, setting): (&String, &String)| Sample {
            name: "keelson_settings_differ",
            help: "Settings of another server on the store that differ, by its name",
            kind: MetricKind::Gauge,
            labels: vec![("server_id", server_id.clone()), ("setting", setting.clone())],
            value: 1.0,
        };
        each.take(MOST).map(sample).collect()
    }
}

/// The differences as a text for operators, such as `history is 300s here and 60s there`.
fn describe(differences: &[Difference]) -> String {
    let value = |text: &str| {
        let is_plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        if is_plain { text.to_owned() } else { format!("{text:?}") }
    };
    let each = differences.iter().map(|one| {
        let (own, other) = (value(&one.own), value(&one.other));
        format!("{} is {own} here and {other} there", one.setting)
    });
    each.collect::<Vec<_>>().join("; ")
}

fn group_version((group, version): &(String, String)) -> String {
    format!("{group}/{version}")
}

/// The resources that are enabled or disabled individually.
fn single(registry: &RegistryConfig, on: bool) -> impl Iterator<Item = String> {
    let switched = registry.single_resources.iter().filter(move |(_, is_on)| **is_on == on);
    switched.map(|((group, version, plural), _)| format!("{group}/{version}/{plural}"))
}

fn sorted(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<_> = texts.collect();
    texts.sort_unstable();
    texts.join(",")
}

fn bounded(text: String) -> String {
    if text.len() > LONGEST { hash(text.as_bytes()) } else { text }
}

/// The hash of a file's content.
fn file(path: &Path) -> String {
    read_bounded(path, MOST_FILE_BYTES).map_or_else(|_| "unreadable".to_owned(), |bytes| hash(&bytes))
}

fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let shown: String = digest.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Config), expect: &[&str]) {
        let (one, mut config) = (Config::default(), Config::default());
        change(&mut config);
        let (one, other) = (Settings::from_config(&one), Settings::from_config(&config));
        let read = Settings::read(&other.to_annotations());
        assert_eq!(read, other);
        let names: Vec<_> = one.differences(&read).into_iter().map(|difference| difference.setting).collect();
        assert_eq!(names, expect);
    }

    #[test]
    fn settings_that_differ_are_named() {
        check(|_| {}, &[]);
        check(|config| config.server_id = "other".to_owned(), &[]);
        check(|config| config.history = Duration::from_secs(1), &["history"]);
        check(|config| config.registry.chunking = false, &["feature-gates/APIListChunking"]);
        check(|config| config.registry.unchunked = ["secrets".to_owned()].into(), &["no-chunking"]);
        let plugins = keelson_admission::Selection::new(Vec::new(), vec!["PodSecurity".to_owned()]).unwrap();
        check(|config| config.admission = plugins, &["admission-plugins"]);
        check(|config| config.authorization = AuthorizationSource::File("/none".into()), &["authorization-mode"]);
        check(|config| config.token_key_file = Some("/none".into()), &["token-key-file"]);
    }

    #[test]
    fn values_are_shown_as_an_operator_writes_them() {
        let mut config = Config {
            controllers: keelson_controllers::Switches::parse(["*", "-serviceaccount-controller"]).unwrap(),
            history: Duration::from_secs(60),
            ..Config::default()
        };
        config.registry.partial_rights = keelson_registry::PartialRights::NextVisible;
        config.registry.unchunked = ["secrets".to_owned()].into();
        let (own, other) = (Settings::from_config(&Config::default()), Settings::from_config(&config));
        let told = describe(&own.differences(&other));
        assert_eq!(
            told,
            "chunks-for-partial-rights is as-others here and next-visible there; \
             controllers is * here and *,-serviceaccount-controller there; history is 300s here and 60s there; \
             no-chunking is \"\" here and secrets there"
        );
        // No setting is published in Rust's debug format.
        for (setting, value) in own.0.iter().chain(&other.0) {
            let is_rust =
                value.contains(['{', '[', '"']) || value.starts_with(char::is_uppercase) && !value.contains(',');
            assert!(!is_rust || setting == "authorization-mode", "{setting}: {value}");
        }
    }

    #[test]
    fn settings_of_the_first_release_are_read_in_their_form_of_then() {
        let own = Settings::from_config(&Config::default());
        let before = |partial: &str, controllers: &str| {
            let published = serde_json::json!({"chunks-for-partial-rights": partial, "controllers": controllers});
            own.differences(&Settings::read(&BTreeMap::from([(ANNOTATION.to_owned(), published.to_string())])))
        };
        assert_eq!(before("AsOthers", "Switches { settings: [AllByDefault] }"), []);
        assert_eq!(before("Whole", "Switches { settings: [On(Namespace)] }").len(), 1);
    }

    #[test]
    fn servers_of_other_releases_are_compared_by_common_settings() {
        let own = Settings::from_config(&Config::default());
        let other = |value: &str| Settings::read(&BTreeMap::from([(ANNOTATION.to_owned(), value.to_owned())]));
        for unknown in ["", "{", r#"{"coming":"1"}"#, r#"{"history":5}"#] {
            assert_eq!(own.differences(&other(unknown)), [], "{unknown}");
        }
        assert_eq!(own.differences(&other(r#"{"history":"1s","coming":"1"}"#)).len(), 1);
    }
}
