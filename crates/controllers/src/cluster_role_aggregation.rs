//! Aggregates cluster roles: a role with an `aggregationRule` gets the rules of all roles that its selectors match,
//! aggregated ones included.
//!
//! Only rules of roles without an `aggregationRule` are copied. So roles that select each other in a cycle end with the
//! same rules. If each role copied the other's last result, the roles would alternate forever.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::Value;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::{outcome, spawn_blocking, warn_repeated};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, RevisedObject, collection};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// The field manager of aggregated rules.
const MANAGER: &str = "clusterrole-aggregation-controller";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// The controller.
pub struct ClusterRoleAggregation {
    registry: Arc<Registry>,
    client: Client,
    /// The server's own client. The bootstrap uses it at a time when no authorizer may answer yet.
    own: Client,
    roles: Target,
    /// A queue with a single key for all roles. They are few, and each may be part of any other.
    queue: Queue<()>,
}

impl ClusterRoleAggregation {
    /// Creates a controller over a registry.
    ///
    /// # Errors
    /// 500 when cluster roles are not served.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let roles = collection(&registry, "rbac.authorization.k8s.io", "v1", "clusterroles", None)?;
        let client = Client::of_controller(registry.clone(), MANAGER, MANAGER);
        let own = Client::of_upkeep(registry.clone(), MANAGER);
        Ok(Self { client, own, registry, roles, queue: Queue::new("ClusterRoleAggregator", BACKOFF) })
    }

    /// Runs until the server stops.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self: Arc<Self>, stopping: CancellationToken) {
        let following =
            follow(&self.registry, self.client.caller(), &self.roles, FieldSelector::default(), |_| self.queue.add(()));
        let work = self.queue.run(1, |()| self.turn());
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = work => match never {},
        }
    }

    /// Fills all aggregated roles, nested ones included, as a step of the bootstrap. No authorizer, webhook or policy
    /// is called.
    ///
    /// # Errors
    /// Errors of reading and writing roles.
    pub(crate) async fn fill_all(&self) -> Result<(), ApiError> {
        self.fill(&self.own).await
    }

    async fn turn(&self) -> Outcome {
        match self.fill(&self.client).await {
            Ok(()) => Outcome::Done,
            Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(""; %error, "aggregating cluster roles failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Fills all aggregated roles from the current rules of the others.
    async fn fill(&self, client: &Client) -> Result<(), ApiError> {
        let found = client.list(&self.roles, LabelSelector::everything()).await?;
        let mut all: Vec<Object> = found.into_iter().map(|RevisedObject { object, .. }| object).collect();
        all.sort_by(|left, right| left.name().cmp(right.name()));
        // Users who may create roles control the number of rules.
        let aggregated = spawn_blocking(move || {
            let filled = aggregate(&all);
            (all, filled)
        });
        let (all, filled) = outcome(aggregated).await;
        // A role that can't be written, because its rules have become too large, does not keep the others from being
        // written.
        let mut failed = Ok(());
        for (place, rules) in filled {
            if stated(&all[place]) != rules.as_slice() {
                let mut next = all[place].clone();
                next.0.insert("rules", Value::Array(rules));
                failed = failed.and(client.update(&self.roles, next).await.map(|_| ()));
            }
        }
        failed
    }
}

/// The role's current rules.
fn stated(role: &Object) -> &[Value] {
    role.get(&["rules"]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The rules of each aggregated role, by its position in `all`. Roles with invalid selectors are left out.
///
/// Cost: two passes over the aggregated roles, and one for each level of nesting. Each pass serializes every rule once.
fn aggregate(all: &[Object]) -> BTreeMap<usize, Vec<Value>> {
    let parts: Vec<(usize, Vec<usize>)> =
        all.iter().enumerate().filter_map(|(place, role)| Some((place, parts(place, role, all)?))).collect();
    let mut filled: BTreeMap<usize, Vec<Value>> = parts.iter().map(|(place, _)| (*place, Vec::new())).collect();
    // The set of rules only grows, so some pass adds none.
    loop {
        let mut grew = false;
        for (place, parts) in &parts {
            let (mut rules, mut known) = (Vec::new(), HashSet::new());
            for part in parts {
                for rule in filled.get(part).map_or_else(|| stated(&all[*part]), Vec::as_slice) {
                    if known.insert(rule.to_string()) {
                        rules.push(rule.clone());
                    }
                }
            }
            grew |= filled.insert(*place, rules).map(|before| before.len()) != filled.get(place).map(Vec::len);
        }
        if !grew {
            return filled;
        }
    }
}

/// The positions of the roles that a role aggregates, in the order of its selectors; `None` for a role without an
/// `aggregationRule`.
fn parts(place: usize, role: &Object, all: &[Object]) -> Option<Vec<usize>> {
    let selectors = role.get(&["aggregationRule", "clusterRoleSelectors"])?.as_array()?;
    let mut found = Vec::new();
    for selector in selectors {
        let selector = LabelSelector::of_object(selector)?;
        found.extend(
            all.iter().enumerate().filter(|(at, part)| *at != place && selector.selects(part)).map(|(at, _)| at),
        );
    }
    Some(found)
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
        assert_eq!(aggregate(&all), BTreeMap::from([(1, vec![rule("get"), rule("list"), rule("watch")])]));
    }

    #[test]
    fn roles_that_aggregate_each_other_have_the_rules_of_all_others() {
        let rule = |verb: &str| json!({"verbs": [verb]});
        let role = |name: &str, to: &str, of: &str, rules: Value| {
            let rule = (!of.is_empty()).then(|| json!({"clusterRoleSelectors": [{"matchLabels": {"to": of}}]}));
            let metadata = json!({"name": name, "labels": {"to": to}});
            Object::from_value(json!({"metadata": metadata, "aggregationRule": rule, "rules": rules})).unwrap()
        };
        // Each role starts with other rules.
        let mut all = [
            role("a", "b", "a", json!([rule("x")])),
            role("b", "c", "b", json!([rule("y")])),
            role("c", "a", "c", json!([rule("z")])),
            role("d", "a", "", json!([rule("get")])),
        ];
        let same = |rules: &[Value]| (0..3).map(|place| (place, rules.to_vec())).collect::<BTreeMap<_, _>>();
        assert_eq!(aggregate(&all), same(&[rule("get")]));
        all[3] = role("d", "none", "", json!([rule("get")]));
        assert_eq!(aggregate(&all), same(&[]));
    }
}
