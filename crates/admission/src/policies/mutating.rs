//! The plugin for mutating policies: applies their mutations to an object, one after another.
//!
//! An apply configuration is merged like server-side apply, but without a field owner. It may not change parts of
//! atomic values. If mutations fail, all failures are reported together and no mutation has an effect.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use keelson_access::follow::Follower;
use keelson_cache::Cache;
use keelson_cel::values::to_json;
use keelson_meta::json::{Map, Value};
use keelson_meta::status::{StatusCause, StatusDetails};
use keelson_meta::{ApiError, Object, Status};
use keelson_patch::PatchError;
use keelson_patch::fields::{Duplicates, FieldSchema, Granularity, Member, merge, validate};
use keelson_patch::json_patch::{Limits, Operations};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation as Changed, Operation};
use tracing::{Instrument as _, debug_span};

use super::parameters::{self, Decoded};
use super::policy::{Binding, Mutation, Policy};
use super::seen::PolicyInput;
use super::stats::{PolicyError, PolicyKey, PolicyStats};
use super::{Bound, Policies, PolicyLists, follow, interest, is_about, policy_lists};
use crate::manifests::Manifests;
use crate::matching::Endpoint;
use crate::shown::AdmissionObjects;
use crate::told::{told_name, told_of_patch};

/// The error for a patch value that JSON cannot represent.
const NO_JSON: &str = "JSONPath valueExpression evaluated to a type that could not marshal to JSON";

const PLUGIN: &str = "MutatingAdmissionPolicy";

/// The admission plugin.
pub(crate) struct MutatingPolicies {
    policies: Follower<Policies>,
    /// The policies of manifests, if there is a directory.
    manifests: Option<Arc<Manifests>>,
    decoded: Decoded,
    stats: Arc<PolicyStats>,
}

impl fmt::Debug for MutatingPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutatingPolicies").finish_non_exhaustive()
    }
}

impl MutatingPolicies {
    pub(crate) fn new(
        cache: &Arc<Cache>,
        stats: Arc<PolicyStats>,
        manifests: Option<Arc<Manifests>>,
    ) -> Result<Self, ApiError> {
        let policies = follow(cache, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")?;
        Ok(Self { policies, manifests, decoded: Decoded::default(), stats })
    }

    fn bound(&self) -> PolicyLists {
        policy_lists(self.manifests.as_ref(), &self.policies)
    }
}

impl Admission for MutatingPolicies {
    fn name(&self) -> &'static str {
        PLUGIN
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        match attributes.operation {
            Operation::Create | Operation::Update => interest(&self.bound(), attributes),
            Operation::Delete | Operation::Connect => AttributesNeeded::None,
        }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Changed, ApiError>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(Changed::Unchanged) };
            let passages = attributes.reinvocation;
            passages.compare(PLUGIN, Some(object));
            let (decoded, stats) = (&self.decoded, &*self.stats);
            let mut mutating = Mutating { attributes, decoded, stats, is_changed: false, failures: Vec::new() };
            for bound in self.bound().iter().flat_map(|list| list.iter()) {
                mutating.policy(bound, object).await?;
            }
            passages.leave(PLUGIN, Some(object));
            mutating.end(object)
        })
    }
}

/// One request, while all policies are applied to it.
struct Mutating<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    decoded: &'a Decoded,
    stats: &'a PolicyStats,
    is_changed: bool,
    failures: Vec<Failure>,
}

/// The error of one failed mutation.
struct Failure {
    reason: &'static str,
    message: String,
}

/// The error of a policy.
enum Fault {
    /// The policy cannot be evaluated.
    Configuration(String),
    /// A mutation failed.
    Mutation(String),
    /// The mutated object is invalid.
    Broken(ApiError),
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        Self::Configuration(error.to_string())
    }
}

impl Mutating<'_> {
    async fn policy(&mut self, bound: &Bound, object: &mut Object) -> Result<(), ApiError> {
        let span = debug_span!("policy", policy = bound.policy.name.as_str(), stage = "admit");
        self.bindings(bound, object).instrument(span).await
    }

    async fn bindings(&mut self, bound: &Bound, object: &mut Object) -> Result<(), ApiError> {
        let policy = &*bound.policy;
        let Some(endpoint) = policy.matching.endpoint(self.attributes) else { return Ok(()) };
        for binding in &bound.bindings {
            match self.binding(policy, &endpoint, binding, object).await {
                Ok(()) => {}
                Err(Fault::Broken(error)) => return Err(error),
                Err(Fault::Mutation(why)) => self.fail(policy, binding, "Invalid", &why),
                Err(Fault::Configuration(why)) => {
                    self.fail(policy, binding, "Forbidden", &format!("failed to configure binding: {why}"));
                }
            }
        }
        Ok(())
    }

    /// Applies a policy to an object for one binding: once for each parameter object.
    async fn binding(
        &mut self,
        policy: &Policy,
        endpoint: &Endpoint,
        binding: &Binding,
        object: &mut Object,
    ) -> Result<(), Fault> {
        let attributes = self.attributes;
        if !policy.matching.selects(attributes, Some(object))? || !is_about(binding, attributes, Some(object))? {
            return Ok(());
        }
        let target = parameters::place(attributes, policy).map_err(Fault::Configuration)?;
        let params = parameters::collect(attributes, target.as_ref(), binding, self.decoded).await;
        let seen = PolicyInput::new(attributes, endpoint, self.decoded, self.stats).await?;
        for params in params.map_err(Fault::Configuration)? {
            let params = params.as_deref();
            let key = format!("{}/{}/{}", policy.name, binding.name, params.map_or_else(String::new, named));
            let passages = attributes.reinvocation;
            if passages.is_again() && !passages.is_due(PLUGIN, &key) {
                continue;
            }
            let before = object.clone();
            for place in 0..policy.compiled().mutations.len() {
                let begun = Instant::now();
                let changed = self.mutation(policy, (place, endpoint), &seen, params, object).await;
                let error = match (&changed, &policy.compiled().mutations[place].program) {
                    (Ok(()), _) => PolicyError::None,
                    (Err(_), Err(_)) => PolicyError::Compile,
                    (Err(_), Ok(_)) => PolicyError::Invalid,
                };
                let (policy_name, binding_name) = (policy.name.clone(), binding.name.clone());
                let key = PolicyKey { policy: policy_name, binding: binding_name, error, action: "" };
                self.stats.mutated(&key, begun.elapsed());
                match changed {
                    Ok(()) => {}
                    Err(Fault::Mutation(why)) => self.fail(policy, binding, "Invalid", &why),
                    Err(other) => return Err(other),
                }
            }
            // Like upstream, a policy with reinvocation is also called again after its own change.
            if policy.is_reinvoked {
                passages.add(PLUGIN, &key);
            }
            if *object != before {
                self.is_changed = true;
                passages.changed(PLUGIN);
            }
        }
        Ok(())
    }

    /// Applies one mutation to an object.
    async fn mutation(
        &self,
        policy: &Policy,
        (place, endpoint): (usize, &Endpoint),
        seen: &PolicyInput<'_>,
        params: Option<&Object>,
        object: &mut Object,
    ) -> Result<(), Fault> {
        let attributes = self.attributes;
        let shown = AdmissionObjects::new(attributes, endpoint, Some(object)).await?;
        let objects = (Some(&*object), attributes.old);
        let made = seen.run(policy, &shown, objects, params, |run| {
            let mutation = &run.compiled().mutations[place];
            match run.evaluate(&mutation.program, &run.variables(true)) {
                Ok(Ok(value)) if mutation.is_json_patch => to_json(&value).map_err(|why| format!("{NO_JSON}: {why}")),
                Ok(Ok(value)) => to_json(&value),
                Ok(Err(error)) => Err(format!("expression '{}' resulted in error: {error}", mutation.text)),
                Err(budget) => Err(budget.to_string()),
            }
        });
        let Some(made) = made.map_err(Fault::Mutation)? else { return Ok(()) };
        let made = made.map_err(Fault::Mutation)?;
        let before = shown.object(Some(object)).cloned().unwrap_or_default();
        let changed = match &policy.compiled().mutations[place] {
            Mutation { is_json_patch: true, .. } => json_patched(before, &made).map_err(Fault::Mutation)?,
            Mutation { .. } => {
                let applied = applied(attributes, endpoint, before, made);
                Some(applied.map_err(|why| Fault::Mutation(format!("error applying patch: {why}")))?)
            }
        };
        let Some(mut changed) = changed else { return Ok(()) };
        let fitted = attributes.fit(&endpoint.kind, &mut changed);
        fitted.map_err(|why| Fault::Broken(ApiError::Internal(why)))?;
        *object = shown.taken_back(attributes, changed).await.map_err(Fault::Broken)?;
        Ok(())
    }

    fn fail(&mut self, policy: &Policy, binding: &Binding, reason: &'static str, why: &str) {
        if !policy.fails_open {
            let (policy, binding) = (&policy.name, &binding.name);
            let message = format!("policy '{policy}' with binding '{binding}' denied request: {why}");
            self.failures.push(Failure { reason, message });
        }
    }

    fn end(self, object: &Object) -> Result<Changed, ApiError> {
        let Some(first) = self.failures.first() else {
            return Ok(if self.is_changed { Changed::Changed } else { Changed::Unchanged });
        };
        let mut status = Status::failure(403, Some(first.reason), first.message.clone());
        let resource = self.attributes.target.group_resource();
        let causes = self.failures.iter();
        let causes = causes.map(|failure| StatusCause { message: failure.message.clone(), ..StatusCause::default() });
        status.details = Some(StatusDetails {
            name: told_name(self.attributes.name, Some(object)),
            group: resource.group,
            kind: resource.resource,
            causes: causes.collect(),
            ..StatusDetails::default()
        });
        Err(ApiError::Answered(Box::new(status)))
    }
}

fn named(object: &Object) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

/// Applies a JSON patch to an object. Returns `None` if a `test` operation does not match, which is not an error.
fn json_patched(object: Object, patch: &Value) -> Result<Option<Object>, String> {
    let operations = Operations::read(patch, Limits::default()).map_err(|error| format!("JSON Patch: {error}"))?;
    match operations.apply(object.into_value()) {
        Ok(patched) => Ok(Object::from_value(patched)),
        Err(PatchError::TestFailed { .. }) => Ok(None),
        Err(error) => Err(format!("JSON Patch: {}", told_of_patch(&error, patch))),
    }
}

/// Applies the result of an expression to an object.
fn applied(
    attributes: &AdmissionAttributes<'_>,
    endpoint: &Endpoint,
    object: Object,
    made: Value,
) -> Result<Object, String> {
    let kind = &endpoint.kind;
    let unknown = || {
        let of = kind.group_version();
        format!("failed to convert patch object to typed object: no corresponding type for {of}, Kind={}", kind.kind)
    };
    let surface = &attributes.target.surface;
    let version = surface.by_kind(&kind.group, &kind.kind).and_then(|resource| resource.version(&kind.version));
    let schema = version.and_then(|version| version.schema()).ok_or_else(unknown)?;
    let mut applied = Object(match made {
        Value::Object(made) => made,
        _ => Map::default(),
    });
    // The result always has the kind of the object, regardless of the expression.
    applied.set_type(kind);
    let applied = applied.into_value();
    validate(schema, &applied, Duplicates::Refused)
        .map_err(|faults| format!("failed to convert patch object to typed object: {faults}"))?;
    let mut atomic = Vec::new();
    find_atomic(schema, &applied, &mut String::new(), &mut atomic);
    if !atomic.is_empty() {
        let atomic = atomic.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomic}"));
    }
    let merged = merge(schema, &object.into_value(), &applied);
    Object::from_value(merged).ok_or_else(|| "the merged value is not an object".to_owned())
}

/// Collects the paths of atomic lists and objects.
fn find_atomic<'a>(schema: impl FieldSchema<'a>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let begun = path.len();
    match (schema.form(), value) {
        (Granularity::AtomicList, Value::Array(_)) | (Granularity::AtomicMap, Value::Object(_)) => {
            found.push(path.clone());
        }
        (Granularity::Map, Value::Object(members)) => {
            for (name, member) in members.iter() {
                if let Member::Field(schema) | Member::Entry(schema) = schema.member(name) {
                    path.push('.');
                    path.push_str(name);
                    find_atomic(schema, member, path, found);
                    path.truncate(begun);
                }
            }
        }
        (Granularity::KeyedList, Value::Array(items)) => {
            let Some(schema) = schema.items() else { return };
            for (place, item) in items.iter().enumerate() {
                path.push_str(&format!("[{place}]"));
                find_atomic(schema, item, path, found);
                path.truncate(begun);
            }
        }
        _ => {}
    }
}
