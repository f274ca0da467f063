//! The chain of authorizers from a configuration. It is rebuilt when the file changes.
//!
//! Members of `system:masters` are always allowed. If a file is invalid, the previous chain stays in force. A new chain
//! applies to all requests that arrive after the file was read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use futures::future::{BoxFuture, Either, join_all, ready};
use keelson_access::{
    Abac, AlwaysAllow, Attributes, Authorizer, AuthorizerChain, Decision, HeldRules, PendingVerdict, PrivilegedGroup,
    User, Verdict,
};
use keelson_meta::metering::AtomicHistogram;
use keelson_meta::{Clock, Random};
use keelson_outbound::Outbound;
use parking_lot::Mutex;

use super::config::{AuthorizationConfiguration, AuthorizerEntry, AuthorizerKind, ConnectionInfo};
use super::decisions::{CountedAuthorizer, DecisionCounts, Decisions};
use crate::document::{ConfigurationError, hash_of_file};
use crate::followed::{self, FollowedFile};
use crate::reloads::Reloads;
use crate::webhook::{Counters, MatchConditions, WebhookAuthorizer, WebhookCounts};

/// The source of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationSource {
    /// A file.
    File(PathBuf),
    /// Flags.
    Flags(Vec<AuthorizerEntry>),
}

/// The authorizers that use stored objects. A configuration that names an absent one is refused.
#[derive(Clone, Debug, Default)]
pub struct LocalAuthorizers {
    /// The Node authorizer.
    pub nodes: Option<Arc<dyn Authorizer>>,
    /// The RBAC authorizer.
    pub rbac: Option<Arc<dyn Authorizer>>,
}

/// The authorizers of a configuration.
pub struct ConfiguredAuthorizers {
    file: Option<PathBuf>,
    local: LocalAuthorizers,
    current: ArcSwap<Current>,
    outbound: OnceLock<Arc<Outbound>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// The counts of each webhook, by its name.
    counters: Mutex<BTreeMap<String, Arc<Counters>>>,
    /// The counts of each authorizer, by its kind and name.
    decisions: Mutex<BTreeMap<(String, String), Arc<Decisions>>>,
    reloads: Reloads,
}

/// One version of the configuration: the chain of authorizers.
pub(crate) struct Current {
    configuration: AuthorizationConfiguration,
    chain: AuthorizerChain,
    /// The webhooks of the chain.
    webhooks: Vec<Arc<WebhookAuthorizer>>,
    /// The hash of the file.
    hash: Option<String>,
}

/// A validated configuration.
struct ValidatedChain {
    configuration: AuthorizationConfiguration,
    conditions: Vec<MatchConditions>,
    /// The policies of ABAC, if it is an authorizer.
    policies: Option<Arc<Abac>>,
    /// The hash of the file.
    hash: Option<String>,
}

impl AuthorizationSource {
    fn judged(&self) -> Result<ValidatedChain, ConfigurationError> {
        let (configuration, hash) = match self {
            Self::File(file) => (AuthorizationConfiguration::load(file)?, hash_of_file(file)),
            Self::Flags(authorizers) => (AuthorizationConfiguration { authorizers: authorizers.clone() }, None),
        };
        let conditions =
            configuration.compile().map_err(|faults| ConfigurationError::Invalid { what: "authorization", faults })?;
        let abac = configuration.authorizers.iter().find(|entry| entry.kind() == Some(AuthorizerKind::Abac));
        let policies = abac.map(|abac| {
            // As upstream, a file of authorizers cannot name a policy file.
            Abac::read(abac.policy_file.as_deref().unwrap_or(Path::new(""))).map(Arc::new)
        });
        let policies = policies.transpose().map_err(|error| ConfigurationError::Unusable(error.to_string()))?;
        Ok(ValidatedChain { configuration, conditions, policies, hash })
    }

    /// The kinds of authorizers that the configuration names.
    ///
    /// # Errors
    /// The configuration cannot be read or is invalid.
    pub fn kinds(&self) -> Result<Vec<AuthorizerKind>, ConfigurationError> {
        Ok(self.judged()?.configuration.authorizers.iter().filter_map(AuthorizerEntry::kind).collect())
    }
}

impl ConfiguredAuthorizers {
    /// Reads the configuration. Until [`Self::connect`] is called, only members of `system:masters` are allowed.
    pub fn new(
        source: &AuthorizationSource,
        local: LocalAuthorizers,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ConfigurationError> {
        let ValidatedChain { configuration, hash, .. } = source.judged()?;
        let chain = AuthorizerChain::new(vec![Arc::new(PrivilegedGroup)]);
        let file = match source {
            AuthorizationSource::File(file) => Some(file.clone()),
            AuthorizationSource::Flags(_) => None,
        };
        Ok(Self {
            file,
            local,
            current: ArcSwap::from_pointee(Current { configuration, chain, webhooks: Vec::new(), hash }),
            outbound: OnceLock::new(),
            clock,
            random,
            counters: Mutex::default(),
            decisions: Mutex::default(),
            reloads: Reloads::default(),
        })
    }

    /// Builds the chain of all authorizers.
    ///
    /// # Errors
    /// A webhook cannot be set up, or an authorizer is absent that the configuration names.
    pub fn connect(&self, outbound: &Arc<Outbound>) -> Result<(), ConfigurationError> {
        let outbound = self.outbound.get_or_init(|| outbound.clone());
        let source = match &self.file {
            Some(file) => AuthorizationSource::File(file.clone()),
            None => AuthorizationSource::Flags(self.current.load().configuration.authorizers.clone()),
        };
        self.current.store(Arc::new(self.made_of(source.judged()?, outbound)?));
        Ok(())
    }

    fn made_of(&self, judged: ValidatedChain, outbound: &Arc<Outbound>) -> Result<Current, ConfigurationError> {
        let ValidatedChain { configuration, conditions, policies, hash } = judged;
        let mut chain: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        let mut webhooks = Vec::new();
        for (entry, conditions) in configuration.authorizers.iter().zip(conditions) {
            let missing = || {
                let why = "is not allowed if it was not enabled at initial server startup";
                ConfigurationError::Unusable(format!("authorizer type {} {why}", entry.kind))
            };
            let authorizer: Arc<dyn Authorizer> = match entry.kind() {
                Some(AuthorizerKind::Node) => self.local.nodes.clone().ok_or_else(missing)?,
                Some(AuthorizerKind::Rbac) => self.local.rbac.clone().ok_or_else(missing)?,
                Some(AuthorizerKind::Abac) => {
                    let policies = policies.clone().ok_or_else(missing)?;
                    if policies.unversioned_lines() > 0 {
                        tracing::warn!(
                            lines = policies.unversioned_lines(),
                            "the file of --authorization-policy-file contains unversioned rules"
                        );
                    }
                    policies
                }
                Some(AuthorizerKind::AlwaysAllow) => Arc::new(AlwaysAllow),
                Some(AuthorizerKind::AlwaysDeny) => Arc::new(AlwaysDeny),
                Some(AuthorizerKind::Webhook) => {
                    let webhook = Arc::new(self.webhook(entry, conditions, outbound)?);
                    webhooks.push(webhook.clone());
                    webhook
                }
                None => return Err(missing()),
            };
            let name = (entry.kind.clone(), entry.name.clone());
            let decisions = self.decisions.lock().entry(name).or_default().clone();
            chain.push(Arc::new(CountedAuthorizer { authorizer, decisions }));
        }
        Ok(Current { configuration, chain: AuthorizerChain::new(chain), webhooks, hash })
    }

    fn webhook(
        &self,
        entry: &AuthorizerEntry,
        conditions: MatchConditions,
        outbound: &Arc<Outbound>,
    ) -> Result<WebhookAuthorizer, ConfigurationError> {
        let unusable = |why: &str| ConfigurationError::Unusable(format!("authorizer {:?}: {why}", entry.name));
        let settings = entry.webhook.as_ref().ok_or_else(|| unusable("it has no webhook"))?;
        if settings.connection.kind == ConnectionInfo::IN_CLUSTER {
            return Err(unusable(
                "connectionInfo.type InClusterConfig is for servers within a cluster, not for its own",
            ));
        }
        let file = settings.connection.kubeconfig.as_ref().ok_or_else(|| unusable("it has no kubeConfigFile"))?;
        let counters = self.counters.lock().entry(entry.name.clone()).or_default().clone();
        WebhookAuthorizer::new(
            &entry.name,
            file.as_ref(),
            settings,
            conditions,
            counters,
            outbound,
            self.random.clone(),
        )
    }

    /// The numbers of reloads.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// The hash of the file in force; `None` if the configuration comes from flags.
    pub fn hash(&self) -> Option<String> {
        self.current.load().hash.clone()
    }

    /// The counts of each webhook.
    pub fn webhook_counts(&self) -> Vec<WebhookCounts> {
        self.counters.lock().iter().map(|(name, counters)| counters.snapshot(name)).collect()
    }

    /// The durations of evaluations of the conditions of each webhook, by its name.
    pub fn matching_times(&self) -> Vec<(String, Arc<AtomicHistogram>)> {
        self.counters.lock().iter().map(|(name, counters)| (name.clone(), counters.matching())).collect()
    }

    /// The decisions of each authorizer.
    pub fn decision_counts(&self) -> Vec<DecisionCounts> {
        let decisions = self.decisions.lock();
        decisions.iter().map(|((kind, name), decisions)| decisions.snapshot(kind, name)).collect()
    }

    /// Reloads the file after changes, and the files of the webhooks. Never returns.
    pub async fn follow(self: Arc<Self>) {
        followed::follow(self).await;
    }
}

impl FollowedFile for ConfiguredAuthorizers {
    const NAME: &'static str = "authorization";
    type Current = Current;

    fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn current(&self) -> &ArcSwap<Current> {
        &self.current
    }

    fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    fn now(&self) -> SystemTime {
        self.clock.now()
    }

    fn read(&self) -> Result<Option<Current>, ConfigurationError> {
        let (Some(file), Some(outbound)) = (&self.file, self.outbound.get()) else { return Ok(None) };
        let judged = AuthorizationSource::File(file.clone()).judged()?;
        if judged.configuration == self.current.load().configuration {
            return Ok(None);
        }
        self.made_of(judged, outbound).map(Some)
    }

    async fn keep_up(current: &Current) {
        join_all(current.webhooks.iter().map(|webhook| webhook.follow())).await;
    }
}

impl Authorizer for ConfiguredAuthorizers {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let current = self.current.load();
        if let Either::Left(decided) = current.chain.authorize(user, attributes) {
            return Either::Left(decided);
        }
        // The decision needs a call to a webhook, so the future keeps the current chain. No webhook has been called
        // yet: the call starts when the future is first polled.
        let current = arc_swap::Guard::into_inner(current);
        Either::Right(Box::pin(async move { current.chain.authorize(user, attributes).await }))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        let current = self.current.load_full();
        Box::pin(async move { current.chain.rules(user, namespace).await })
    }
}

/// An authorizer that allows nothing. Like upstream, it returns no opinion instead of a denial.
#[derive(Debug)]
struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _user: &'a User, _attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        Either::Left(ready(Verdict::new(Decision::NoOpinion, "Everything is forbidden.")))
    }
}

impl fmt::Debug for ConfiguredAuthorizers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredAuthorizers").field("file", &self.file).finish_non_exhaustive()
    }
}
