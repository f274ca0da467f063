//! A webhook of a configuration.
//!
//! Stored configurations have all defaults. Values that validation would refuse today are read as upstream reads them.

use std::sync::Arc;
use std::time::Duration;

use keelson_access_config::{HostCredentials, WebhookUsers};
use keelson_meta::json::Value;
use keelson_outbound::{ClientConfig, Effect, Outbound, RestClient};
use parking_lot::Mutex;

use crate::conditions::{Conditions, ConditionsOf};
use crate::matching::{MatchedPlugin, Matching};

/// The default timeout, in seconds.
const DEFAULT_TIME: u64 = 10;

/// The version of reviews that a webhook accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// The side effects that a webhook declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideEffects {
    None,
    NoneOnDryRun,
    Some,
}

impl SideEffects {
    fn from_value(stated: &Value) -> Self {
        match stated.as_str() {
            Some("None") => Self::None,
            Some("NoneOnDryRun") => Self::NoneOnDryRun,
            Some(_) | None => Self::Some,
        }
    }
}

/// A webhook.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The name of the configuration.
    pub(crate) configuration: String,
    pub(crate) name: String,
    /// A unique id of the webhook.
    pub(crate) id: String,
    pub(crate) matching: Matching,
    pub(crate) conditions: Conditions,
    /// True if requests pass when the webhook fails (`failurePolicy: Ignore`).
    pub(crate) fails_open: bool,
    side_effects: SideEffects,
    pub(crate) time: Duration,
    pub(crate) version: Option<ReviewVersion>,
    /// True if the webhook is called again after later changes.
    pub(crate) is_reinvoked: bool,
    client: Value,
    rest_client: Mutex<Option<HookClient>>,
}

/// A client, and the credentials with which it was created.
#[derive(Debug)]
struct HookClient {
    users: Option<Arc<WebhookUsers>>,
    client: Result<RestClient, String>,
}

impl Hook {
    /// Parses the webhooks of a configuration, in their order.
    pub(crate) fn all_of(matched: MatchedPlugin, configuration: &str, webhooks: &Value) -> Vec<Self> {
        let webhooks = webhooks.as_array().into_iter().flatten().enumerate();
        webhooks.map(|(place, webhook)| Self::new(matched, configuration, place, webhook)).collect()
    }

    fn new(matched: MatchedPlugin, configuration: &str, place: usize, webhook: &Value) -> Self {
        let name = webhook["name"].as_str().unwrap_or_default().to_owned();
        let versions = webhook["admissionReviewVersions"].as_array().into_iter().flatten();
        let version = versions.filter_map(Value::as_str).find_map(|version| match version {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1Beta1),
            _ => None,
        });
        Self {
            configuration: configuration.to_owned(),
            id: format!("{configuration}/{name}/{place}"),
            name,
            matching: Matching::new(matched, webhook, "rules"),
            conditions: Conditions::new(ConditionsOf::Webhook, &webhook["matchConditions"]),
            fails_open: webhook["failurePolicy"] == "Ignore",
            side_effects: SideEffects::from_value(&webhook["sideEffects"]),
            time: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIME)),
            version,
            is_reinvoked: webhook["reinvocationPolicy"] == "IfNeeded",
            client: webhook["clientConfig"].clone(),
            rest_client: Mutex::new(None),
        }
    }

    /// Returns true if the webhook may be called for dry runs.
    pub(crate) fn takes_dry_run(&self) -> bool {
        self.side_effects != SideEffects::Some
    }

    /// The effect of calling the webhook twice for one request.
    pub(crate) fn effect(&self, is_dry_run: bool) -> Effect {
        match self.side_effects {
            SideEffects::None => Effect::Idempotent,
            SideEffects::NoneOnDryRun if is_dry_run => Effect::Idempotent,
            SideEffects::NoneOnDryRun | SideEffects::Some => Effect::Once,
        }
    }

    /// Returns the client of the webhook, with the credentials for its host.
    ///
    /// # Errors
    /// The configuration has no valid destination.
    pub(crate) fn rest_client(
        &self,
        outbound: &Outbound,
        credentials: Option<&HostCredentials>,
    ) -> Result<RestClient, String> {
        let users = credentials.map(HostCredentials::current);
        let is_current = |made: &HookClient| match (&made.users, &users) {
            (None, None) => true,
            (Some(made), Some(users)) => Arc::ptr_eq(made, users),
            _ => false,
        };
        let mut rest_client = self.rest_client.lock();
        if let Some(made) = rest_client.as_ref().filter(|made| is_current(made)) {
            return made.client.clone();
        }
        let client = self.make_client(outbound, users.as_deref());
        *rest_client = Some(HookClient { users, client: client.clone() });
        client
    }

    fn make_client(&self, outbound: &Outbound, users: Option<&WebhookUsers>) -> Result<RestClient, String> {
        let config = ClientConfig::from_value(&self.client)?;
        let Some(users) = users else { return outbound.client(&config) };
        let (host, port) = config.host_and_port()?;
        match users.for_host(&host, port) {
            Some(credentials) => outbound.client_with(&config, credentials),
            None => outbound.client(&config),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_review_may_be_sent_twice_to_a_webhook_without_side_effects() {
        use Effect::{Idempotent, Once};
        for (stated, effects) in [
            ("None", [Idempotent, Idempotent]),
            ("NoneOnDryRun", [Once, Idempotent]),
            ("Some", [Once, Once]),
            ("Unknown", [Once, Once]),
        ] {
            let hook = Hook::new(MatchedPlugin::Webhook, "c", 0, &json!({ "name": "a", "sideEffects": stated }));
            assert_eq!([hook.effect(false), hook.effect(true)], effects, "{stated}");
            assert_eq!(hook.takes_dry_run(), effects[1] == Idempotent, "{stated}");
        }
    }
}
