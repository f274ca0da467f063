//! Fills cluster roles that are made of others: those with an `aggregationRule` have the rules of all roles that its
//! selectors find.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::Value;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Stored, collection};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// Who owns the rules that are filled in.
const MANAGER: &str = "clusterrole-aggregation-controller";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// The controller.
pub struct ClusterRoleAggregation {
    registry: Arc<Registry>,
    client: Client,
    /// The verbs for the server itself, by which the bootstrap fills roles before authorizers may answer.
    own: Client,
    roles: Target,
    /// There is one thing to look at: all roles. They are few, and any may be part of any.
    queue: Queue<()>,
}

impl ClusterRoleAggregation {
    /// A controller over a registry.
    ///
    /// # Errors
    /// 500 when the catalogue has no cluster roles.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let roles = collection(&registry, "rbac.authorization.k8s.io", "v1", "clusterroles", None)?;
        let client = Client::of_controller(registry.clone(), MANAGER, MANAGER);
        let own = Client::of_upkeep(registry.clone(), MANAGER);
        Ok(Self { client, own, registry, roles, queue: Queue::new(BACKOFF) })
    }

    /// Runs until the server stops.
    pub async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let following =
            follow(&self.registry, self.client.caller(), &self.roles, FieldSelector::default(), |_| self.queue.add(()));
        let work = self.queue.run(1, |()| self.turn());
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = work => match never {},
        }
    }

    /// Fills all roles, those too that are made of roles that are made of others, as a part of the bootstrap: no authorizer, webhook
    /// or policy is called.
    ///
    /// # Errors
    /// Those of reading and writing roles.
    pub(crate) async fn fill_all(&self) -> Result<(), ApiError> {
        while self.fill(&self.own).await? {}
        Ok(())
    }

    async fn turn(&self) -> Outcome {
        match self.fill(&self.client).await {
            // What was changed is told of, and looked at again.
            Ok(_) => Outcome::Done,
            Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(""; %error, "cluster roles could not be aggregated; trying again");
                Outcome::Again
            }
        }
    }

    /// Fills all roles with what the others hold now; whether that changed any.
    async fn fill(&self, client: &Client) -> Result<bool, ApiError> {
        let mut changed = false;
        let found = client.list(&self.roles, LabelSelector::everything()).await?;
        let mut all: Vec<Object> = found.into_iter().map(|Stored { object, .. }| object).collect();
        all.sort_by(|left, right| left.name().cmp(right.name()));
        for role in &all {
            let Some(rules) = aggregate(role, &all) else { continue };
            if role.get(&["rules"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice) != rules.as_slice() {
                let mut next = role.clone();
                next.0.insert("rules", Value::Array(rules));
                client.update(&self.roles, next).await?;
                changed = true;
            }
        }
        Ok(changed)
    }
}

/// The rules of a role that is made of others; `None` for one that is not, or whose selectors can't be read.
fn aggregate(role: &Object, all: &[Object]) -> Option<Vec<Value>> {
    let selectors = role.get(&["aggregationRule", "clusterRoleSelectors"])?.as_array()?;
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let selector = LabelSelector::of_object(selector)?;
        let parts = all.iter().filter(|part| part.name() != role.name());
        for part in parts.filter(|part| selector.selects(part)) {
            let more = part.get(&["rules"]).and_then(Value::as_array).into_iter().flatten();
            for rule in more {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    #[test]
    fn a_role_has_each_rule_of_those_that_its_selectors_find_once() {
        let rule = |verb: &str| json!({"verbs": [verb]});
        let role = |name: &str, labels: Value, rules: Value| {
            Object::from_value(json!({"metadata": {"name": name, "labels": labels}, "rules": rules})).unwrap()
        };
        let mut sum = role("b", json!({"to": "sum"}), json!([rule("own")]));
        let selectors = json!([{"matchLabels": {"to": "sum"}},
            {"matchExpressions": [{"key": "also", "operator": "In", "values": ["x", "y"]}]}]);
        sum.0.insert("aggregationRule", json!({"clusterRoleSelectors": selectors}));
        let all = [
            role("a", json!({"to": "sum"}), json!([rule("get"), rule("list")])),
            sum.clone(),
            role("c", json!({"also": "y"}), json!([rule("list"), rule("watch")])),
            role("d", json!({"also": "z"}), json!([rule("delete")])),
        ];
        assert_eq!(aggregate(&sum, &all).unwrap(), [rule("get"), rule("list"), rule("watch")]);
        assert_eq!(aggregate(&all[0], &all), None);
    }
}
