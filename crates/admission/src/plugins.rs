//! The admission plugins in their order, and the selection of the enabled ones.
//!
//! Names, order and defaults are upstream's. Plugins for kinds that this server does not serve have no effect. Their
//! names are accepted, so that flags for kube-apiserver work.

use std::fmt;
use std::sync::Arc;

use keelson_access_config::ReviewClient;
use keelson_cache::Cache;
use keelson_meta::{ApiError, Random};
use keelson_outbound::Outbound;
use keelson_registry::{Admission, AdmissionChain, BuiltinStagePlugin};

use crate::builtin::{
    AlwaysDeny, AlwaysPullImages, CALL_TIME, CertificateRules, ClusterTrustBundleAttest, DenyServiceExternalIps,
    EventRateLimit, ExtendedResourceToleration, ImagePolicyWebhook, LimitPodHardAntiAffinityTopology, LimitRanger,
    NamespaceExists, NodeDeclaredFeatureValidator, NodeRestriction, OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize, PodNodeSelector, PodResizeValidator, PodSecurity, PodSecurityStats,
    PodTolerationRestriction, PodTopologyLabels, RuntimeClasses, ServiceAccounts, TaintNodesByCondition,
};
use crate::configuration::AdmissionConfiguration;
use crate::manifests::{ManifestPlugin, ManifestSet};
use crate::policies::{MutatingPolicies, PolicyStats, ValidatingPolicies};
use crate::webhooks::{WebhookKind, WebhookStats, Webhooks};
use Built::{Apart, By, Idle, InPart, Inherent, Missing};

/// The plugin that charges quotas.
const QUOTAS: &str = "ResourceQuota";
/// The plugin that creates missing namespaces.
const NAMESPACES: &str = "NamespaceAutoProvision";
/// The plugin that reviews images.
const IMAGES: &str = "ImagePolicyWebhook";

/// The dependencies of the plugins.
pub struct Parts {
    /// The cache of stored objects.
    pub cache: Arc<Cache>,
    /// The client for outgoing calls.
    pub outbound: Arc<Outbound>,
    /// The counts of webhook calls.
    pub webhook_stats: Arc<WebhookStats>,
    /// The counts of policies and match conditions.
    pub policy_stats: Arc<PolicyStats>,
    /// The counts of decisions of pod security.
    pub pod_security_stats: Arc<PodSecurityStats>,
    /// True if the Node authorizer is on. NodeRestriction is then on by default.
    pub has_node_rights: bool,
    /// The client of the image policy backend, if its plugin is on.
    pub image_reviews: Option<Arc<ReviewClient>>,
    /// The source of random names.
    pub random: Arc<dyn Random>,
    /// The settings of the plugins.
    pub configuration: AdmissionConfiguration,
    /// The manifests of webhooks and policies.
    pub manifests: ManifestSet,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// One of upstream's plugins.
struct Plugin {
    name: &'static str,
    is_on: IsOn,
    built: Built,
}

/// The default of a plugin that no flag names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsOn {
    Always,
    Never,
    WithNodeRights,
}

/// Creates a plugin.
type Make = fn(&Parts) -> Result<Arc<dyn Admission>, ApiError>;

/// The implementation of a plugin.
enum Built {
    /// An implementation in this crate.
    By(Make),
    /// A part of the write path of the registry, which skips it if the plugin is off.
    Inherent(BuiltinStagePlugin),
    /// An implementation in this crate, and a part of the write path of the registry.
    InPart(BuiltinStagePlugin, Make),
    /// A part of the transaction of a write in the registry, with a setting of its own.
    Apart,
    /// A plugin without any effect.
    Idle,
    /// A plugin for kinds that this server does not serve.
    Missing,
}

const fn on(name: &'static str, built: Built) -> Plugin {
    Plugin { name, is_on: IsOn::Always, built }
}

const fn off(name: &'static str, built: Built) -> Plugin {
    Plugin { name, is_on: IsOn::Never, built }
}

const fn with_nodes(name: &'static str, built: Built) -> Plugin {
    Plugin { name, is_on: IsOn::WithNodeRights, built }
}

/// All plugins, in the order of their calls.
const PLUGINS: &[Plugin] = &[
    off("AlwaysAdmit", Idle),
    off(NAMESPACES, Apart),
    on("NamespaceLifecycle", Inherent(BuiltinStagePlugin::NamespaceLifecycle)),
    off("NamespaceExists", By(|_| Ok(Arc::new(NamespaceExists)))),
    off("LimitPodHardAntiAffinityTopology", By(|_| Ok(Arc::new(LimitPodHardAntiAffinityTopology)))),
    on("LimitRanger", By(|_| Ok(Arc::new(LimitRanger)))),
    on("ServiceAccount", By(|parts| Ok(Arc::new(ServiceAccounts::new(parts.random.clone()))))),
    with_nodes("NodeRestriction", By(|parts| Ok(Arc::new(NodeRestriction::new(&parts.cache)?)))),
    on("TaintNodesByCondition", By(|_| Ok(Arc::new(TaintNodesByCondition)))),
    off("AlwaysPullImages", By(|_| Ok(Arc::new(AlwaysPullImages)))),
    off(IMAGES, By(image_policy)),
    on(
        "PodSecurity",
        By(|parts| {
            let (configuration, stats) = (parts.configuration.pod_security.clone(), parts.pod_security_stats.clone());
            Ok(Arc::new(PodSecurity::new(configuration, stats)))
        }),
    ),
    off("PodNodeSelector", By(|parts| Ok(Arc::new(PodNodeSelector::new(parts.configuration.node_selectors.clone()))))),
    on("Priority", Inherent(BuiltinStagePlugin::Priority)),
    on("DefaultTolerationSeconds", Inherent(BuiltinStagePlugin::DefaultTolerationSeconds)),
    off(
        "PodTolerationRestriction",
        By(|parts| Ok(Arc::new(PodTolerationRestriction::new(parts.configuration.tolerations.clone())))),
    ),
    off("EventRateLimit", By(|parts| Ok(Arc::new(EventRateLimit::new(&parts.configuration.event_limits)?)))),
    off("ExtendedResourceToleration", By(|_| Ok(Arc::new(ExtendedResourceToleration)))),
    on("DefaultStorageClass", Inherent(BuiltinStagePlugin::DefaultStorageClass)),
    on("StorageObjectInUseProtection", Inherent(BuiltinStagePlugin::StorageObjectInUseProtection)),
    on("PodGroupProtection", Missing),
    off("OwnerReferencesPermissionEnforcement", By(|_| Ok(Arc::new(OwnerReferencesPermissionEnforcement)))),
    on("PersistentVolumeClaimResize", By(|_| Ok(Arc::new(PersistentVolumeClaimResize)))),
    on("RuntimeClass", By(|_| Ok(Arc::new(RuntimeClasses)))),
    on("CertificateApproval", By(|_| Ok(Arc::new(CertificateRules::Approval)))),
    on("CertificateSigning", By(|_| Ok(Arc::new(CertificateRules::Signing)))),
    on("ClusterTrustBundleAttest", By(|_| Ok(Arc::new(ClusterTrustBundleAttest)))),
    on("CertificateSubjectRestriction", By(|_| Ok(Arc::new(CertificateRules::Subject)))),
    on("DefaultIngressClass", Inherent(BuiltinStagePlugin::DefaultIngressClass)),
    off("DenyServiceExternalIPs", By(|_| Ok(Arc::new(DenyServiceExternalIps)))),
    on("PodTopologyLabels", InPart(BuiltinStagePlugin::PodTopologyLabels, |_| Ok(Arc::new(PodTopologyLabels)))),
    on("PodGroupWorkloadExists", Missing),
    on("NodeDeclaredFeatureValidator", By(|_| Ok(Arc::new(NodeDeclaredFeatureValidator)))),
    on("JobValidation", Missing),
    on("PodResizeValidator", By(|_| Ok(Arc::new(PodResizeValidator)))),
    on(
        "MutatingAdmissionPolicy",
        By(|parts| {
            let manifests = parts.manifests.get(&ManifestPlugin::MutatingPolicy).cloned();
            Ok(Arc::new(MutatingPolicies::new(&parts.cache, parts.policy_stats.clone(), manifests)?))
        }),
    ),
    on("MutatingAdmissionWebhook", By(|parts| webhooks(WebhookKind::Mutating, parts))),
    on(
        "ValidatingAdmissionPolicy",
        By(|parts| {
            let manifests = parts.manifests.get(&ManifestPlugin::ValidatingPolicy).cloned();
            Ok(Arc::new(ValidatingPolicies::new(&parts.cache, parts.policy_stats.clone(), manifests)?))
        }),
    ),
    on("ValidatingAdmissionWebhook", By(|parts| webhooks(WebhookKind::Validating, parts))),
    on(QUOTAS, Apart),
    off("AlwaysDeny", By(|_| Ok(Arc::new(AlwaysDeny)))),
];

fn webhooks(kind: WebhookKind, parts: &Parts) -> Result<Arc<dyn Admission>, ApiError> {
    let (credentials, plugin) = match kind {
        WebhookKind::Mutating => (&parts.configuration.mutating_credentials, ManifestPlugin::MutatingWebhook),
        WebhookKind::Validating => (&parts.configuration.validating_credentials, ManifestPlugin::ValidatingWebhook),
    };
    let (stats, manifests) = ((&parts.webhook_stats, &parts.policy_stats), parts.manifests.get(&plugin).cloned());
    Ok(Arc::new(Webhooks::new(kind, (&parts.cache, manifests), &parts.outbound, credentials.clone(), stats)?))
}

fn image_policy(parts: &Parts) -> Result<Arc<dyn Admission>, ApiError> {
    let (settings, client) = (&parts.configuration.image_policy, &parts.image_reviews);
    match settings.clone().zip(client.clone()) {
        Some((settings, client)) => Ok(Arc::new(ImagePolicyWebhook::new(settings, client))),
        None => Err(ApiError::Internal(without_settings(IMAGES))),
    }
}

/// The error for an enabled plugin without the settings that it needs.
fn without_settings(plugin: &str) -> String {
    format!("the plugin {plugin} has no settings: give them with --admission-control-config-file")
}

/// The reason why a selection of plugins is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// A plugin is unknown.
    #[error("{flag} plugin {plugin:?} is unknown")]
    Unknown {
        /// The flag that names it.
        flag: &'static str,
        /// The plugin.
        plugin: String,
    },
    /// Plugins are both enabled and disabled.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", plugins.join(" "))]
    Both {
        /// The plugins, sorted.
        plugins: Vec<String>,
    },
}

/// The plugins that flags enable and disable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    enabled: Vec<String>,
    disabled: Vec<String>,
}

/// The names, sorted: `+` marks those that are enabled, `-` those that are disabled.
impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marked = [('+', &self.enabled), ('-', &self.disabled)];
        let mut names: Vec<String> = marked
            .into_iter()
            .flat_map(|(mark, names)| names.iter().map(move |name| format!("{mark}{name}")))
            .collect();
        names.sort_unstable();
        names.dedup();
        f.write_str(&names.join(","))
    }
}

impl Selection {
    /// Creates a selection from the values of the two flags.
    ///
    /// # Errors
    /// A name is unknown, or is both enabled and disabled.
    pub fn new(enabled: Vec<String>, disabled: Vec<String>) -> Result<Self, SelectionError> {
        for (names, flag) in [(&enabled, "enable-admission-plugins"), (&disabled, "disable-admission-plugins")] {
            for name in names {
                if !is_known(name) {
                    return Err(SelectionError::Unknown { flag, plugin: name.clone() });
                }
            }
        }
        let mut both: Vec<String> = enabled.iter().filter(|name| disabled.contains(name)).cloned().collect();
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            return Err(SelectionError::Both { plugins: both });
        }
        Ok(Self { enabled, disabled })
    }

    /// Returns true if writes are charged to quotas.
    pub fn has_quotas(&self) -> bool {
        !self.disabled.iter().any(|name| name == QUOTAS)
    }

    /// Returns true if missing namespaces are created.
    pub fn provides_namespaces(&self) -> bool {
        self.names(NAMESPACES)
    }

    /// The client of the image policy backend; `None` if its plugin is off.
    ///
    /// # Errors
    /// The plugin is on and has no settings, or its kubeconfig is invalid.
    pub fn image_reviews(
        &self,
        configuration: &AdmissionConfiguration,
        outbound: &Arc<Outbound>,
        random: &Arc<dyn Random>,
    ) -> Result<Option<Arc<ReviewClient>>, String> {
        if !self.names(IMAGES) {
            return Ok(None);
        }
        let settings = configuration.image_policy.as_ref().ok_or_else(|| without_settings(IMAGES))?;
        let client = ReviewClient::of_file(&settings.kubeconfig, CALL_TIME, outbound, random.clone());
        let client = client.map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(client.waiting(settings.retry_wait))))
    }

    /// Returns whether a plugin can be on: by default, or because it is enabled by name. False for disabled plugins.
    pub(crate) fn may_use(&self, plugin: &str) -> bool {
        self.has(plugin, PLUGINS.iter().any(|known| known.name == plugin && known.is_on != IsOn::Never))
    }

    /// Returns true if a plugin that is off by default is enabled.
    fn names(&self, plugin: &str) -> bool {
        self.has(plugin, false)
    }

    /// Returns true if a plugin with this default is on.
    fn has(&self, plugin: &str, by_default: bool) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| name == plugin);
        (by_default || is_named(&self.enabled)) && !is_named(&self.disabled)
    }

    /// The disabled plugins that are part of the registry's write path.
    pub fn left_out(&self) -> Vec<BuiltinStagePlugin> {
        let off = PLUGINS.iter().filter(|plugin| self.disabled.iter().any(|name| name == plugin.name));
        let inherent = off.filter_map(|plugin| match plugin.built {
            Inherent(inherent) | InPart(inherent, _) => Some(inherent),
            By(_) | Apart | Idle | Missing => None,
        });
        inherent.collect()
    }
}

/// Returns true if upstream has a plugin of this name.
pub(crate) fn is_known(name: &str) -> bool {
    PLUGINS.iter().any(|plugin| plugin.name == name)
}

/// The enabled plugins, in order.
///
/// # Errors
/// 500 if the cache lacks a kind that a plugin reads.
pub fn chain(selection: &Selection, parts: &Parts) -> Result<AdmissionChain, ApiError> {
    let is_on = |plugin: &&Plugin| {
        let by_default = match plugin.is_on {
            IsOn::Always => true,
            IsOn::Never => false,
            IsOn::WithNodeRights => parts.has_node_rights,
        };
        selection.has(plugin.name, by_default)
    };
    let made = PLUGINS.iter().filter(is_on).filter_map(|plugin| match plugin.built {
        By(make) | InPart(_, make) => Some(make(parts)),
        Apart | Inherent(_) | Idle | Missing => None,
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_switched_on_and_off_by_upstreams_name() {
        let of = |enabled: &[&str], disabled: &[&str]| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Selection::new(names(enabled), names(disabled)).err().map(|error| error.to_string())
        };
        let check = |enabled: &[&str], disabled: &[&str], expected: Option<&str>| {
            assert_eq!(of(enabled, disabled).as_deref(), expected, "{enabled:?} {disabled:?}");
        };
        check(&[], &["ServiceAccount"], None);
        check(&["NodeRestriction", "ValidatingAdmissionWebhook"], &[], None);
        check(&["AlwaysAdmit", "AlwaysDeny"], &["NamespaceLifecycle", "Priority", "ImagePolicyWebhook"], None);
        check(&["ImagePolicyWebhook", "NamespaceAutoProvision", "PodTolerationRestriction"], &[], None);
        check(&["Nothing"], &[], Some("enable-admission-plugins plugin \"Nothing\" is unknown"));
        check(&[], &["nodeRestriction"], Some("disable-admission-plugins plugin \"nodeRestriction\" is unknown"));
        let both = "[CertificateSigning] in enable-admission-plugins and disable-admission-plugins overlapped";
        check(&["CertificateSigning"], &["CertificateSigning"], Some(both));
    }

    #[test]
    fn policy_plugins_run_after_builtin_ones_and_quotas_last() {
        let place = |name: &str| PLUGINS.iter().position(|plugin| plugin.name == name).unwrap();
        let order = [
            "Priority",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionWebhook",
            "ResourceQuota",
        ];
        assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])));
    }
}
