//! The plugins in their order, and which of them are asked.
//!
//! Names, order and which are on are upstream's. Plugins of kinds that are not served here can be named and do nothing, so that settings
//! which are meant for kube-apiserver are accepted.

use std::fmt;
use std::sync::Arc;

use keelson_access_config::ReviewClient;
use keelson_cache::Cache;
use keelson_meta::{ApiError, Random};
use keelson_outbound::Outbound;
use keelson_registry::{Admission, AdmissionChain, InherentPlugin};

use crate::builtin::{
    AlwaysDeny, AlwaysPullImages, CALL_TIME, CertificateRules, ClusterTrustBundleAttest, DenyServiceExternalIps,
    EventRateLimit, ExtendedResourceToleration, ImagePolicyWebhook, LimitPodHardAntiAffinityTopology, LimitRanger,
    NamespaceExists, NodeDeclaredFeatureValidator, NodeRestriction, OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize, PodNodeSelector, PodResizeValidator, PodSecurity, PodSecurityStats,
    PodTolerationRestriction, PodTopologyLabels, RuntimeClasses, ServiceAccounts, TaintNodesByCondition,
};
use crate::configuration::AdmissionConfiguration;
use crate::policies::{MutatingPolicies, PolicyStats, ValidatingPolicies};
use crate::webhooks::{WebhookKind, WebhookStats, Webhooks};
use Built::{Apart, By, Idle, InPart, Inherent, Missing};

/// The plugin that charges quotas.
const QUOTAS: &str = "ResourceQuota";
/// The plugin that makes missing namespaces.
const NAMESPACES: &str = "NamespaceAutoProvision";
/// The plugin that has images reviewed.
const IMAGES: &str = "ImagePolicyWebhook";

/// What plugins are made of.
pub struct Parts {
    /// What is stored.
    pub cache: Arc<Cache>,
    /// By which others are called.
    pub outbound: Arc<Outbound>,
    /// Where calls of webhooks are counted.
    pub webhook_stats: Arc<WebhookStats>,
    /// The counts of policies, and of match conditions.
    pub policy_stats: Arc<PolicyStats>,
    /// The counts of decisions of pod security.
    pub pod_security_stats: Arc<PodSecurityStats>,
    /// Whether nodes have rights of their own, so that what they write is confined unless that is switched off.
    pub has_node_rights: bool,
    /// The backend that reviews images, where its plugin is on.
    pub image_reviews: Option<Arc<ReviewClient>>,
    /// By which names are generated.
    pub random: Arc<dyn Random>,
    /// The settings of the plugins.
    pub configuration: AdmissionConfiguration,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// A plugin that upstream has.
struct Plugin {
    name: &'static str,
    is_on: IsOn,
    built: Built,
}

/// Whether a plugin is asked where nothing is said of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsOn {
    Always,
    Never,
    WithNodeRights,
}

/// What makes a plugin.
type Make = fn(&Parts) -> Result<Arc<dyn Admission>, ApiError>;

/// How a plugin is made.
enum Built {
    /// So.
    By(Make),
    /// Not at all: what it does belongs to how objects are written here, as far as the registry is not told to leave it out.
    Inherent(InherentPlugin),
    /// So, and a part of it belongs to how objects are written, as with those that are inherent.
    InPart(InherentPlugin, Make),
    /// In the registry, with the transaction of a write, as far as it is told so.
    Apart,
    /// Not at all: it does nothing anywhere.
    Idle,
    /// Not at all: its kinds are not served here.
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

/// All of them, in the order in which they are asked.
const PLUGINS: &[Plugin] = &[
    off("AlwaysAdmit", Idle),
    off(NAMESPACES, Apart),
    on("NamespaceLifecycle", Inherent(InherentPlugin::NamespaceLifecycle)),
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
    on("Priority", Inherent(InherentPlugin::Priority)),
    on("DefaultTolerationSeconds", Inherent(InherentPlugin::DefaultTolerationSeconds)),
    off(
        "PodTolerationRestriction",
        By(|parts| Ok(Arc::new(PodTolerationRestriction::new(parts.configuration.tolerations.clone())))),
    ),
    off("EventRateLimit", By(|parts| Ok(Arc::new(EventRateLimit::new(&parts.configuration.event_limits)?)))),
    off("ExtendedResourceToleration", By(|_| Ok(Arc::new(ExtendedResourceToleration)))),
    on("DefaultStorageClass", Inherent(InherentPlugin::DefaultStorageClass)),
    on("StorageObjectInUseProtection", Inherent(InherentPlugin::StorageObjectInUseProtection)),
    on("PodGroupProtection", Missing),
    off("OwnerReferencesPermissionEnforcement", By(|_| Ok(Arc::new(OwnerReferencesPermissionEnforcement)))),
    on("PersistentVolumeClaimResize", By(|_| Ok(Arc::new(PersistentVolumeClaimResize)))),
    on("RuntimeClass", By(|_| Ok(Arc::new(RuntimeClasses)))),
    on("CertificateApproval", By(|_| Ok(Arc::new(CertificateRules::Approval)))),
    on("CertificateSigning", By(|_| Ok(Arc::new(CertificateRules::Signing)))),
    on("ClusterTrustBundleAttest", By(|_| Ok(Arc::new(ClusterTrustBundleAttest)))),
    on("CertificateSubjectRestriction", By(|_| Ok(Arc::new(CertificateRules::Subject)))),
    on("DefaultIngressClass", Inherent(InherentPlugin::DefaultIngressClass)),
    off("DenyServiceExternalIPs", By(|_| Ok(Arc::new(DenyServiceExternalIps)))),
    on("PodTopologyLabels", InPart(InherentPlugin::PodTopologyLabels, |_| Ok(Arc::new(PodTopologyLabels)))),
    on("PodGroupWorkloadExists", Missing),
    on("NodeDeclaredFeatureValidator", By(|_| Ok(Arc::new(NodeDeclaredFeatureValidator)))),
    on("JobValidation", Missing),
    on("PodResizeValidator", By(|_| Ok(Arc::new(PodResizeValidator)))),
    on(
        "MutatingAdmissionPolicy",
        By(|parts| Ok(Arc::new(MutatingPolicies::new(&parts.cache, parts.policy_stats.clone())?))),
    ),
    on("MutatingAdmissionWebhook", By(|parts| webhooks(WebhookKind::Mutating, parts))),
    on(
        "ValidatingAdmissionPolicy",
        By(|parts| Ok(Arc::new(ValidatingPolicies::new(&parts.cache, parts.policy_stats.clone())?))),
    ),
    on("ValidatingAdmissionWebhook", By(|parts| webhooks(WebhookKind::Validating, parts))),
    on(QUOTAS, Apart),
    off("AlwaysDeny", By(|_| Ok(Arc::new(AlwaysDeny)))),
];

fn webhooks(kind: WebhookKind, parts: &Parts) -> Result<Arc<dyn Admission>, ApiError> {
    let credentials = match kind {
        WebhookKind::Mutating => &parts.configuration.mutating_credentials,
        WebhookKind::Validating => &parts.configuration.validating_credentials,
    };
    let stats = (&parts.webhook_stats, &parts.policy_stats);
    Ok(Arc::new(Webhooks::new(kind, &parts.cache, &parts.outbound, credentials.clone(), stats)?))
}

fn image_policy(parts: &Parts) -> Result<Arc<dyn Admission>, ApiError> {
    let (settings, client) = (&parts.configuration.image_policy, &parts.image_reviews);
    match settings.clone().zip(client.clone()) {
        Some((settings, client)) => Ok(Arc::new(ImagePolicyWebhook::new(settings, client))),
        None => Err(ApiError::Internal(without_settings(IMAGES))),
    }
}

/// Why a plugin that can do nothing without settings keeps the server from starting.
fn without_settings(plugin: &str) -> String {
    format!("the plugin {plugin} has no settings: give them with --admission-control-config-file")
}

/// Which plugins are switched on and off by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    enabled: Vec<String>,
    disabled: Vec<String>,
}

/// The names with a mark each, in order: those that are switched on beside the default, and those that are switched off.
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
    /// Those of two settings.
    ///
    /// # Errors
    /// When there is no plugin of a name, or it is switched both on and off.
    pub fn new(enabled: Vec<String>, disabled: Vec<String>) -> Result<Self, String> {
        for (names, setting) in [(&enabled, "enable"), (&disabled, "disable")] {
            for name in names {
                if !is_known(name) {
                    return Err(format!("{setting}-admission-plugins plugin {name:?} is unknown"));
                }
            }
        }
        let mut both: Vec<&str> = enabled.iter().filter(|name| disabled.contains(name)).map(String::as_str).collect();
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            return Err(format!(
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                both.join(" ")
            ));
        }
        Ok(Self { enabled, disabled })
    }

    /// Whether what is written is charged to quotas.
    pub fn has_quotas(&self) -> bool {
        !self.disabled.iter().any(|name| name == QUOTAS)
    }

    /// Whether missing namespaces are made.
    pub fn provides_namespaces(&self) -> bool {
        self.names(NAMESPACES)
    }

    /// The client of the backend that reviews images; `None` where no plugin needs it.
    ///
    /// # Errors
    /// Its plugin is on and has no settings, or its kubeconfig can't be used.
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
        let is_default = PLUGINS.iter().any(|known| known.name == plugin && !matches!(known.is_on, IsOn::Never));
        let is_disabled = self.disabled.iter().any(|name| name == plugin);
        self.names(plugin) || is_default && !is_disabled
    }

    /// Whether a plugin that is off by default is switched on.
    fn names(&self, plugin: &str) -> bool {
        let has = |names: &[String]| names.iter().any(|name| name == plugin);
        has(&self.enabled) && !has(&self.disabled)
    }

    /// What the registry leaves out: the plugins that are switched off and are a part of how it writes.
    pub fn left_out(&self) -> Vec<InherentPlugin> {
        let off = PLUGINS.iter().filter(|plugin| self.disabled.iter().any(|name| name == plugin.name));
        let inherent = off.filter_map(|plugin| match plugin.built {
            Inherent(inherent) | InPart(inherent, _) => Some(inherent),
            By(_) | Apart | Idle | Missing => None,
        });
        inherent.collect()
    }

    fn has(&self, plugin: &Plugin, parts: &Parts) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| name == plugin.name);
        let is_on = match plugin.is_on {
            IsOn::Always => true,
            IsOn::Never => false,
            IsOn::WithNodeRights => parts.has_node_rights,
        };
        (is_on || is_named(&self.enabled)) && !is_named(&self.disabled)
    }
}

/// Returns whether upstream has a plugin of this name.
pub(crate) fn is_known(name: &str) -> bool {
    PLUGINS.iter().any(|plugin| plugin.name == name)
}

/// The plugins that are switched on, in their order.
///
/// # Errors
/// 500 when the cache does not hold what one of them judges by.
pub fn chain(selection: &Selection, parts: &Parts) -> Result<AdmissionChain, ApiError> {
    let made = PLUGINS.iter().filter(|plugin| selection.has(plugin, parts)).filter_map(|plugin| match plugin.built {
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
            Selection::new(names(enabled), names(disabled)).err()
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
    fn the_plugins_that_change_and_judge_by_stored_rules_come_last_and_quotas_behind_them() {
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
