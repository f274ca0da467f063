//! Admission webhooks: selects and calls them, and applies their responses.
//!
//! Mutating webhooks are called one after another, sorted by the name of their configuration. Validating webhooks are
//! called concurrently. Configurations are read from the cache and kept up to date. If a webhook fails or returns an
//! invalid response, its failure policy decides: the request fails, or the webhook is skipped. Other requests do not
//! wait.

mod call;
mod hook;
mod noted;
mod patch;
mod review;
mod stats;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use call::{CallFault, Invocation};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
pub(crate) use hook::Hook;
use keelson_access::follow::{Follower, Index, decoded};
use keelson_access_config::HostCredentials;
use keelson_builtin::key_prefix;
use keelson_cache::{Cache, Entry};
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_outbound::Outbound;
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};
use keelson_supervision::RepeatLog;
use patch::Patched;

use crate::conditions::ConditionsResult;
use crate::manifests::Manifests;
use crate::matching::{Endpoint, MatchedPlugin};
use crate::policies::{ConditionKey, PolicyStats};
use crate::request;
use crate::scene::{PolicyVariables, Rights};
use crate::shown::AdmissionObjects;
pub use stats::{Rejection, WebhookKey, WebhookStats, WebhookTimes};

const GROUP: &str = "admissionregistration.k8s.io";
/// The feature gate by which webhooks get no reviews of tokens and accesses.
const WITHOUT_REVIEWS: &str = "ExcludeAdmissionWebhookVirtualResources";

/// The kind of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookKind {
    /// Mutating webhooks.
    Mutating,
    /// Validating webhooks.
    Validating,
}

impl WebhookKind {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }

    fn plugin(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingAdmissionWebhook",
            Self::Validating => "ValidatingAdmissionWebhook",
        }
    }

    fn configurations(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// The webhooks of all configurations of one kind.
#[derive(Default)]
struct Hooks {
    by_configuration: BTreeMap<String, Vec<Arc<Hook>>>,
    /// All webhooks, in their order.
    all: Arc<[Arc<Hook>]>,
}

impl Hooks {
    fn arrange(&mut self) {
        self.all = self.by_configuration.values().flatten().cloned().collect();
    }
}

impl Index for Hooks {
    type Kind = ();

    fn clear(&mut self, (): ()) {
        *self = Self::default();
    }

    fn put(&mut self, (): (), entry: &Entry) {
        let configuration = decoded(entry);
        let webhooks = configuration.0.get("webhooks").unwrap_or(&Value::Null);
        let hooks =
            Hook::all_of(MatchedPlugin::Webhook, configuration.name(), webhooks).into_iter().map(Arc::new).collect();
        self.by_configuration.insert(entry.key.to_string(), hooks);
        self.arrange();
    }

    fn remove(&mut self, (): (), key: &str) {
        self.by_configuration.remove(key);
        self.arrange();
    }
}

/// The admission plugin.
pub(crate) struct Webhooks {
    kind: WebhookKind,
    hooks: Follower<Hooks>,
    /// The webhooks of manifests, if there is a directory.
    manifests: Option<Arc<Manifests>>,
    outbound: Arc<Outbound>,
    /// The credentials for webhooks, by host.
    credentials: Option<Arc<HostCredentials>>,
    stats: Arc<WebhookStats>,
    /// The counts of match conditions.
    conditions: Arc<PolicyStats>,
    failures: RepeatLog,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Webhooks {
    pub(crate) fn new(
        kind: WebhookKind,
        (cache, manifests): (&Arc<Cache>, Option<Arc<Manifests>>),
        outbound: &Arc<Outbound>,
        credentials: Option<Arc<HostCredentials>>,
        (stats, conditions): (&Arc<WebhookStats>, &Arc<PolicyStats>),
    ) -> Result<Self, ApiError> {
        let prefix = key_prefix(GROUP, kind.configurations())?;
        let hooks = Follower::new(cache.clone(), [((), prefix.as_str())]);
        let hooks = hooks.map_err(|error| ApiError::Internal(error.to_string()))?;
        let (outbound, stats, conditions) = (outbound.clone(), stats.clone(), conditions.clone());
        Ok(Self { kind, hooks, manifests, outbound, credentials, stats, conditions, failures: RepeatLog::new() })
    }

    /// The webhooks of manifests, and then those of the API.
    fn hooks(&self) -> Vec<Arc<Hook>> {
        let of_manifests = self.manifests.as_ref().map(|manifests| manifests.hooks()).unwrap_or_default();
        let of_api = self.hooks.current(|hooks| hooks.all.clone());
        of_manifests.iter().chain(of_api.iter()).cloned().collect()
    }

    /// The call of a webhook for a request; `None` if the webhook does not match.
    ///
    /// # Errors
    /// Matching failed.
    async fn invocation<'a>(
        &self,
        hook: &'a Hook,
        attributes: &AdmissionAttributes<'a>,
        object: Option<&Object>,
    ) -> Result<Option<Invocation<'a>>, ApiError> {
        let Some(endpoint) = hook.matching.endpoint(attributes) else { return Ok(None) };
        if !hook.matching.selects(attributes, object)? {
            return Ok(None);
        }
        let shown = AdmissionObjects::new(attributes, &endpoint, object).await?;
        match self.is_met(hook, attributes, &endpoint, &shown, object) {
            ConditionsResult::Yes => {}
            ConditionsResult::No => return Ok(None),
            ConditionsResult::Unknown(_) if hook.fails_open => return Ok(None),
            ConditionsResult::Unknown(why) => return Err(attributes.refused(why)),
        }
        if attributes.caller.is_dry_run() && !hook.takes_dry_run() {
            let name = quote(&hook.name);
            return Err(ApiError::BadRequest(format!("admission webhook {name} does not support dry run")));
        }
        Ok(Some(Invocation { hook, endpoint, shown }))
    }

    fn is_met(
        &self,
        hook: &Hook,
        attributes: &AdmissionAttributes<'_>,
        endpoint: &Endpoint,
        shown: &AdmissionObjects,
        object: Option<&Object>,
    ) -> ConditionsResult {
        if hook.conditions.is_empty() {
            return ConditionsResult::Yes;
        }
        let request = request::for_expressions(attributes, endpoint);
        let rights = Rights::new(attributes, endpoint);
        let (object, old) = (shown.object(object), shown.old(attributes.old));
        let scene = PolicyVariables { object, old, request: &request, rights: &rights };
        // Like upstream, conditions may use the variable for the namespace, but it is always null.
        let key = ConditionKey {
            name: hook.name.clone(),
            kind: "webhook",
            stage: self.kind.as_str(),
            operation: attributes.operation,
        };
        let met = self.conditions.timed(&key, || hook.conditions.are_met(&scene.variables(true, None)));
        if met == ConditionsResult::No {
            self.stats.excluded(&hook.name, self.kind, attributes.operation);
        }
        met
    }

    /// Calls all mutating webhooks, one after another.
    async fn change(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Option<&mut Object>,
    ) -> Result<Mutation, ApiError> {
        let (plugin, passages) = (self.kind.plugin(), attributes.reinvocation);
        let mut mutation = Mutation::Unchanged;
        passages.compare(plugin, object.as_deref());
        for (place, hook) in self.hooks().iter().enumerate() {
            let Some(invocation) = self.invocation(hook, attributes, object.as_deref()).await? else { continue };
            // Like upstream, the second pass only calls webhooks that were called in the first.
            if passages.is_again() && !passages.is_due(plugin, &hook.id) {
                continue;
            }
            let changed = self.change_by(&invocation, attributes, object.as_deref_mut(), place).await?;
            if changed {
                mutation = Mutation::Changed;
                passages.changed(plugin);
            }
            if hook.is_reinvoked {
                passages.add(plugin, &hook.id);
            }
        }
        passages.leave(plugin, object.as_deref());
        Ok(mutation)
    }

    /// Calls one mutating webhook, and returns true if it changed the object.
    async fn change_by(
        &self,
        invocation: &Invocation<'_>,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&mut Object>,
        place: usize,
    ) -> Result<bool, ApiError> {
        let (hook, audit) = (invocation.hook, attributes.caller.audit());
        let turn = (usize::from(attributes.reinvocation.is_again()), place);
        let begun = Instant::now();
        let answered = self.call(invocation, attributes, object.as_deref()).await;
        attributes.caller.warnings().note_called_others(begun.elapsed());
        let applied = match answered {
            Ok(answer) => match answer.patch {
                None => Ok(Patched::Nothing),
                Some(patch) => {
                    patch::apply(&hook.name, patch, invocation.shown.object(object.as_deref()).cloned()).await
                }
            },
            Err(fault) => Err(fault),
        };
        let changed = match (applied, object) {
            (Ok(Patched::Object(changed, patch)), Some(object)) => self
                .take(invocation, attributes, changed, object)
                .await
                .inspect(|_| noted::patch(audit, hook, turn, patch)),
            (Ok(_), _) => Ok(false),
            (Err(fault), _) => self.failed(hook, attributes, fault, turn).map(|()| false),
        };
        noted::mutation(audit, hook, turn, *changed.as_ref().unwrap_or(&false));
        changed
    }

    /// Replaces the object with the patched one, and returns true if they differ.
    async fn take(
        &self,
        invocation: &Invocation<'_>,
        attributes: &AdmissionAttributes<'_>,
        mut made: Object,
        object: &mut Object,
    ) -> Result<bool, ApiError> {
        check_kind(&invocation.endpoint, &made)?;
        attributes.fit(&invocation.endpoint.kind, &mut made).map_err(ApiError::Internal)?;
        if invocation.shown.object(Some(object)) == Some(&made) {
            return Ok(false);
        }
        *object = invocation.shown.taken_back(attributes, made).await?;
        Ok(true)
    }

    /// Calls all validating webhooks concurrently. All calls finish before the first refusal is returned.
    async fn judge(&self, attributes: &AdmissionAttributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        let hooks = self.hooks();
        let mut invocations = Vec::new();
        for hook in hooks.iter() {
            invocations.extend(self.invocation(hook, attributes, object).await?);
        }
        // Like upstream, the index counts only webhooks that match.
        let asked = invocations.iter().enumerate().map(|(place, invocation)| async move {
            match self.call(invocation, attributes, object).await {
                Ok(_) => Ok(()),
                Err(fault) => self.failed(invocation.hook, attributes, fault, (0, place)),
            }
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut refused = Ok(());
        let begun = Instant::now();
        while let Some(judged) = asked.next().await {
            refused = refused.and(judged);
        }
        if !invocations.is_empty() {
            attributes.caller.warnings().note_called_others(begun.elapsed());
        }
        refused
    }

    fn log_failure(&self, hook: &Hook, why: &str) {
        let Some(due) = self.failures.failed(&hook.id) else { return };
        let (name, configuration, repeats) = (&hook.name, &hook.configuration, due.repeats);
        if hook.fails_open {
            tracing::warn!(name, configuration, repeats, why, "a webhook failed, and requests go on without it");
        } else {
            tracing::warn!(name, configuration, repeats, why, "a webhook failed, and requests with it");
        }
    }

    fn log_success(&self, hook: &Hook) {
        if let Some(due) = self.failures.worked(&hook.id) {
            let (name, configuration, repeats) = (&hook.name, &hook.configuration, due.repeats);
            tracing::info!(name, configuration, repeats, "a webhook that failed works again");
        }
    }

    /// The result for a request when a webhook fails or refuses it.
    fn failed(
        &self,
        hook: &Hook,
        attributes: &AdmissionAttributes<'_>,
        fault: CallFault,
        (round, place): (usize, usize),
    ) -> Result<(), ApiError> {
        match fault {
            CallFault::Refused(status) => {
                self.stats.rejected(hook, self.kind, attributes.operation, "no_error", status.code);
                Err(ApiError::Answered(status))
            }
            CallFault::Broken(error) => {
                self.stats.rejected(hook, self.kind, attributes.operation, "apiserver_internal_error", 0);
                Err(error)
            }
            CallFault::Calling(why) if hook.fails_open => {
                self.log_failure(hook, &why);
                self.stats.failed_open(&hook.name, self.kind);
                noted::failed_open(attributes.caller.audit(), self.kind, hook, (round, place));
                Ok(())
            }
            CallFault::Calling(why) => {
                self.stats.rejected(hook, self.kind, attributes.operation, "calling_webhook_error", 0);
                self.log_failure(hook, &why);
                Err(ApiError::Internal(format!("failed calling webhook {}: {why}", quote(&hook.name))))
            }
        }
    }
}

/// Checks that a patched object still has its kind.
///
/// # Errors
/// 500 if it does not, with upstream's message.
fn check_kind(endpoint: &Endpoint, changed: &Object) -> Result<(), ApiError> {
    let (version, kind) = (changed.api_version().unwrap_or_default(), changed.kind().unwrap_or_default());
    if kind == endpoint.kind.kind && version == endpoint.kind.group_version().to_string() {
        return Ok(());
    }
    let version = version.rsplit('/').next().unwrap_or_default();
    Err(ApiError::Internal(format!(
        "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        quote(kind),
        quote(version)
    )))
}

impl Admission for Webhooks {
    fn name(&self) -> &'static str {
        self.kind.plugin()
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if attributes.target.resource.is_review() && attributes.registry.config().gates.is_on(WITHOUT_REVIEWS) {
            return AttributesNeeded::None;
        }
        let is_asked = |hook: &Arc<Hook>| hook.matching.concerns(attributes);
        if self.hooks().iter().any(is_asked) { AttributesNeeded::Whole } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            match self.kind {
                WebhookKind::Mutating => self.change(attributes, object).await,
                WebhookKind::Validating => Ok(Mutation::Unchanged),
            }
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            match self.kind {
                WebhookKind::Mutating => Ok(()),
                WebhookKind::Validating => self.judge(attributes, object).await,
            }
        })
    }
}
