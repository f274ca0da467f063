//! Strategies of webhook configurations, admission policies and their bindings.
//!
//! A write applies to all requests that arrive after its response.
//!
//! The server reads the parameters of policies with its own rights. Results of expressions reach every client whose
//! request matches. So a policy with `paramKind` requires the right to read all objects of that kind. A binding with
//! `paramRef` requires the right to read the objects that it refers to. Rules and messages are upstream's, but refusals
//! contain only the name of the user.

use futures::future::BoxFuture;
use keelson_access::ResourceAttributes;
use keelson_access::user::MASTERS;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupVersion, Object};
use keelson_registry::rights::is_allowed;
use keelson_registry::strategy::{FieldPath, Strategies, UpdateStrategy, WriteStrategy, metadata_of_status};
use keelson_registry::{Registry, WriteRequest};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "mutatingadmissionpolicies" | "validatingadmissionpolicies" => {
            &const { Strategies::ORDINARY.write(&AdmissionRules::Policies).update(&AdmissionRules::Policies) }
        }
        "mutatingadmissionpolicybindings" => {
            &const { Strategies::ORDINARY.write(&MUTATING_BINDINGS).update(&MUTATING_BINDINGS) }
        }
        "validatingadmissionpolicybindings" => {
            &const { Strategies::ORDINARY.write(&VALIDATING_BINDINGS).update(&VALIDATING_BINDINGS) }
        }
        _ => &const { Strategies::ORDINARY.write(&AdmissionRules::Webhooks).update(&AdmissionRules::Webhooks) },
    }
}

const GROUP: &str = "admissionregistration.k8s.io";
/// Matches any group, version, resource, namespace or name.
const ANY: &str = "*";

/// The strategies of the kinds in this group.
pub(super) enum AdmissionRules {
    /// Webhook configurations, which need no further rights.
    Webhooks,
    /// Policies, which name the kind of their parameters.
    Policies,
    /// Bindings, which name the parameter objects.
    Bindings {
        /// The plural of the policies.
        policies: &'static str,
        /// The verb that a selector for parameters requires. It differs between upstream's two kinds of bindings.
        selecting: &'static str,
    },
}

pub(super) const VALIDATING_BINDINGS: AdmissionRules =
    AdmissionRules::Bindings { policies: "validatingadmissionpolicies", selecting: "get" };
pub(super) const MUTATING_BINDINGS: AdmissionRules =
    AdmissionRules::Bindings { policies: "mutatingadmissionpolicies", selecting: "list" };

impl WriteStrategy for AdmissionRules {
    fn counts_at_once(&self) -> bool {
        true
    }

    fn grants_rights(&self) -> bool {
        !matches!(self, Self::Webhooks)
    }

    fn check_grant<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a WriteRequest<'a>,
        before: Option<&'a Object>,
        after: &'a Object,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if request.caller.user().is_in(MASTERS) {
                return Ok(());
            }
            match self {
                Self::Webhooks => Ok(()),
                Self::Policies => check_policy(registry, request, before, after).await,
                Self::Bindings { policies, selecting } => {
                    check_binding(registry, request, (before, after), policies, selecting).await
                }
            }
        })
    }
}

impl UpdateStrategy for AdmissionRules {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

/// Refuses a policy if the user may not read all objects of its parameters' kind. Updates that keep the kind are not
/// checked.
async fn check_policy(
    registry: &Registry,
    request: &WriteRequest<'_>,
    before: Option<&Object>,
    after: &Object,
) -> Result<(), ApiError> {
    let Some(kind) = ParamKind::of_policy(after) else { return Ok(()) };
    if before.and_then(ParamKind::of_policy).is_some_and(|before| before == kind) {
        return Ok(());
    }
    let place = Place::for_kind(registry, kind);
    let asked = ResourceAttributes { verb: "get", namespace: Some(ANY), name: Some(ANY), ..place.attributes() };
    if is_allowed(request.caller, asked).await {
        return Ok(());
    }
    let (user, ParamKind { api_version, kind }) = (&request.caller.user().name, kind);
    let detail = format!(
        "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={api_version})"
    );
    Err(refused(request, after, "spec.paramKind", detail))
}

/// Refuses a binding if the user may not read its parameters. Updates that keep the specification are not checked.
async fn check_binding(
    registry: &Registry,
    request: &WriteRequest<'_>,
    (before, after): (Option<&Object>, &Object),
    policies: &str,
    selecting: &str,
) -> Result<(), ApiError> {
    let Some(reference) = after.get(&["spec", "paramRef"]).filter(|reference| reference.is_object()) else {
        return Ok(());
    };
    if before.is_some_and(|before| before.0.get("spec") == after.0.get("spec")) {
        return Ok(());
    }
    let policy = after.get(&["spec", "policyName"]).and_then(Value::as_str).unwrap_or_default();
    let policy = stored_policy(registry, policies, policy).await?;
    let kind = policy.as_ref().and_then(ParamKind::of_policy);
    let place = kind.map_or_else(Place::anywhere, |kind| Place::for_kind(registry, kind));
    let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
    let (namespace, name) = (text("namespace"), text("name"));
    let verb = if name.is_some() { "get" } else { selecting };
    if is_allowed(request.caller, ResourceAttributes { verb, namespace, name, ..place.attributes() }).await {
        return Ok(());
    }
    let user = &request.caller.user().name;
    let detail = format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef");
    Err(refused(request, after, "spec.paramRef", detail))
}

/// The newest state of a policy; `None` if it does not exist.
async fn stored_policy(registry: &Registry, policies: &str, name: &str) -> Result<Option<Object>, ApiError> {
    registry.catch_up().await?;
    let collection = registry.collection(&registry.target(GROUP, policies)?)?;
    Ok(collection.get(name).map(|entry| entry.object().decode(entry.revision)))
}

fn refused(request: &WriteRequest<'_>, object: &Object, field: &str, detail: String) -> ApiError {
    let (kind, name) = (request.target.group_kind(), object.name().to_owned());
    ApiError::Invalid { kind, name, errors: vec![FieldError::forbidden(field, detail)] }
}

/// The kind of a policy's parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ParamKind<'o> {
    api_version: &'o str,
    kind: &'o str,
}

impl<'o> ParamKind<'o> {
    fn of_policy(policy: &'o Object) -> Option<Self> {
        let stated = policy.get(&["spec", "paramKind"]).filter(|stated| stated.is_object())?;
        let text = |field: &str| stated[field].as_str().unwrap_or_default();
        Some(Self { api_version: text("apiVersion"), kind: text("kind") })
    }
}

/// The resource of the parameters. Unknown parts are `*`, since a kind that is not served may later become any
/// resource.
struct Place {
    group: String,
    version: String,
    resource: String,
}

impl Place {
    fn anywhere() -> Self {
        let any = || ANY.to_owned();
        Self { group: any(), version: any(), resource: any() }
    }

    fn for_kind(registry: &Registry, ParamKind { api_version, kind }: ParamKind<'_>) -> Self {
        let Some(GroupVersion { group, version }) = GroupVersion::parse(api_version) else { return Self::anywhere() };
        let surface = registry.surface();
        let served = surface.by_kind(&group, kind).and_then(|served| surface.lookup(&group, &version, &served.plural));
        let resource = served.map_or_else(|| ANY.to_owned(), |target| target.resource.plural.to_string());
        Self { group, version, resource }
    }

    fn attributes(&self) -> ResourceAttributes<'_> {
        let Self { group, version, resource } = self;
        ResourceAttributes { group, version, resource, ..ResourceAttributes::default() }
    }
}
