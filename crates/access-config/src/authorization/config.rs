//! Parses `AuthorizationConfiguration`, with the fields of upstream's file.
//!
//! Fills in upstream's defaults. Values are not validated here.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::document::{CONFIG_GROUP, ConfigurationError, DocumentKind, Fields, Seconds};
use crate::webhook::ReviewVersion;

const KIND: DocumentKind = DocumentKind {
    what: "authorization",
    kind: "AuthorizationConfiguration",
    groups: &[CONFIG_GROUP],
    versions: &["v1", "v1beta1", "v1alpha1"],
};

const WEBHOOK: [&str; 10] = [
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];

/// The list of authorizers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuthorizationConfiguration {
    /// The authorizers, in the order of their calls.
    pub(crate) authorizers: Vec<AuthorizerEntry>,
}

/// One authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizerEntry {
    pub(crate) kind: String,
    /// The name of the authorizer, for metrics.
    pub(crate) name: String,
    /// The settings of a webhook, for that kind.
    pub(crate) webhook: Option<WebhookSettings>,
    /// The policy file of ABAC. Only flags set it.
    pub(crate) policy_file: Option<PathBuf>,
}

/// A kind of authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizerKind {
    /// The Node authorizer: nodes may read the objects that their pods use, and write their own.
    Node,
    /// ABAC: the policies of a file decide.
    Abac,
    /// RBAC: the stored roles and bindings decide.
    Rbac,
    /// A webhook decides.
    Webhook,
    /// Every request is allowed.
    AlwaysAllow,
    /// No request is allowed.
    AlwaysDeny,
}

/// The settings of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookSettings {
    pub(crate) authorized_ttl: Seconds,
    pub(crate) cache_authorized: bool,
    pub(crate) unauthorized_ttl: Seconds,
    pub(crate) cache_unauthorized: bool,
    pub(crate) timeout: Seconds,
    pub(crate) review_version: String,
    pub(crate) condition_version: String,
    pub(crate) failure_policy: String,
    pub(crate) connection: ConnectionInfo,
    pub(crate) match_conditions: Vec<String>,
}

/// The address of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionInfo {
    pub(crate) kind: String,
    pub(crate) kubeconfig: Option<String>,
}

/// The decision if the webhook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    /// The next authorizer decides.
    NoOpinion,
    /// The request is denied.
    Deny,
}

impl AuthorizerKind {
    /// All kinds by their names upstream.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("ABAC", Self::Abac),
        ("AlwaysAllow", Self::AlwaysAllow),
        ("AlwaysDeny", Self::AlwaysDeny),
        ("Node", Self::Node),
        ("RBAC", Self::Rbac),
        ("Webhook", Self::Webhook),
    ];

    /// The kind of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for AuthorizerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::NAMED.map(|(name, _)| name).join(", ");
        Self::named(name).ok_or_else(|| format!("unknown authorization mode {name:?}; known modes are {names}"))
    }
}

impl AuthorizationConfiguration {
    /// Reads a file. Checks its form, but not its values.
    pub(crate) fn load(file: &Path) -> Result<Self, ConfigurationError> {
        KIND.load(file, &["authorizers"], |fields| {
            let authorizers = fields.objects("authorizers", &["type", "name", "webhook"]);
            Self { authorizers: authorizers.iter().map(AuthorizerEntry::read).collect() }
        })
    }
}

impl AuthorizerEntry {
    /// An authorizer of a kind, named after the kind.
    pub fn new(kind: AuthorizerKind) -> Self {
        Self { kind: kind.name().to_owned(), name: kind.name().to_ascii_lowercase(), ..Self::default() }
    }

    /// ABAC with the policies of a file.
    pub fn abac(file: &Path) -> Self {
        Self { policy_file: Some(file.to_owned()), ..Self::new(AuthorizerKind::Abac) }
    }

    /// A webhook that is configured by flags.
    pub fn webhook(file: &Path, version: ReviewVersion, authorized: Duration, unauthorized: Duration) -> Self {
        let seconds = |time: Duration| Seconds { nanos: i64::try_from(time.as_nanos()).unwrap_or(i64::MAX) };
        let settings = WebhookSettings {
            authorized_ttl: seconds(authorized),
            unauthorized_ttl: seconds(unauthorized),
            timeout: seconds(WebhookSettings::LONGEST),
            review_version: version.name().to_owned(),
            failure_policy: "NoOpinion".to_owned(),
            connection: ConnectionInfo {
                kind: ConnectionInfo::KUBECONFIG.to_owned(),
                kubeconfig: Some(file.display().to_string()),
            },
            ..WebhookSettings::default()
        };
        Self { name: "default".to_owned(), webhook: Some(settings), ..Self::new(AuthorizerKind::Webhook) }
    }

    /// The kind of the authorizer.
    pub fn kind(&self) -> Option<AuthorizerKind> {
        AuthorizerKind::named(&self.kind)
    }

    fn read(fields: &Fields<'_>) -> Self {
        let webhook = fields.optional_object("webhook", &WEBHOOK).as_ref().map(WebhookSettings::read);
        Self { kind: fields.text("type"), name: fields.text("name"), webhook, policy_file: None }
    }
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            authorized_ttl: Seconds { nanos: 300_000_000_000 },
            cache_authorized: true,
            unauthorized_ttl: Seconds { nanos: 30_000_000_000 },
            cache_unauthorized: true,
            timeout: Seconds::default(),
            review_version: String::new(),
            condition_version: String::new(),
            failure_policy: String::new(),
            connection: ConnectionInfo::default(),
            match_conditions: Vec::new(),
        }
    }
}

impl WebhookSettings {
    /// The longest timeout of a webhook that is accepted.
    pub(crate) const LONGEST: Duration = Duration::from_secs(30);

    fn read(fields: &Fields<'_>) -> Self {
        let default = Self::default();
        // Like upstream, a missing value or 0 means the default.
        let ttl = |name: &str, default: Seconds| fields.duration(name).filter(|ttl| ttl.nanos != 0).unwrap_or(default);
        let connection = fields.object("connectionInfo", &["type", "kubeConfigFile"]);
        let conditions = fields.objects("matchConditions", &["expression"]);
        Self {
            authorized_ttl: ttl("authorizedTTL", default.authorized_ttl),
            cache_authorized: fields.flag("cacheAuthorizedRequests").unwrap_or(true),
            unauthorized_ttl: ttl("unauthorizedTTL", default.unauthorized_ttl),
            cache_unauthorized: fields.flag("cacheUnauthorizedRequests").unwrap_or(true),
            timeout: fields.duration("timeout").unwrap_or_default(),
            review_version: fields.text("subjectAccessReviewVersion"),
            condition_version: fields.text("matchConditionSubjectAccessReviewVersion"),
            failure_policy: fields.text("failurePolicy"),
            connection: ConnectionInfo {
                kind: connection.text("type"),
                kubeconfig: connection.optional_text("kubeConfigFile"),
            },
            match_conditions: conditions.iter().map(|one| one.text("expression")).collect(),
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.positive().unwrap_or(Self::LONGEST)
    }

    pub(crate) fn version(&self) -> ReviewVersion {
        ReviewVersion::named(&self.review_version).unwrap_or(ReviewVersion::V1)
    }

    pub(crate) fn failure_policy(&self) -> FailurePolicy {
        if self.failure_policy == "NoOpinion" { FailurePolicy::NoOpinion } else { FailurePolicy::Deny }
    }
}

impl ConnectionInfo {
    pub(crate) const KUBECONFIG: &str = "KubeConfigFile";
    pub(crate) const IN_CLUSTER: &str = "InClusterConfig";
}
