//! The environments of expressions in Kubernetes: the variables of each kind of expression.
//!
//! Requests and namespaces are declared once, for admission, webhooks and other users. The caller passes the values.
//! Type names are upstream's, since messages show them.

use crate::decl::{Decl, ListKind};
use crate::environment::Environment;
use crate::types::Type;
use std::sync::{Arc, LazyLock};

/// The maximum number of characters, elements or entries of a value that states none.
const UNBOUNDED: u64 = 3 * 1024 * 1024;

/// The types of the authorizer and of its resource checks.
const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";

/// The environment of a rule of a custom resource: the value and its old value. With `optional_old_self`, the old value
/// may be absent.
pub fn rule(value: &Arc<Decl>, optional_old_self: bool) -> Environment {
    let environment = Environment::kubernetes().with_declared("self", value);
    if optional_old_self {
        environment.with_optional("oldSelf", value)
    } else {
        environment.with_declared("oldSelf", value)
    }
}

/// The variables of an admission policy in addition to the request and its objects.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// True if the policy has parameters.
    pub params: bool,
    /// True if the authorizer is available.
    pub authorizer: bool,
    /// The variables declared earlier in the policy, as fields of an object.
    pub variables: Option<Arc<Decl>>,
    /// True if patches can be created.
    pub patches: bool,
}

/// The environment of an expression in an admission policy.
pub fn admission(with: &Admission) -> Environment {
    let mut environment = match_condition(with.authorizer);
    if with.params {
        environment = environment.with("params", Type::Dyn);
    }
    if let Some(variables) = &with.variables {
        environment = environment.with_declared("variables", variables);
    }
    if with.patches { environment.with_patches() } else { environment }
}

/// The environment of a match condition of a webhook or a policy.
pub fn match_condition(authorizer: bool) -> Environment {
    let environment = Environment::kubernetes()
        .with("object", Type::Dyn)
        .with("oldObject", Type::Dyn)
        .with_declared("request", &ADMISSION_REQUEST);
    let environment = if authorizer {
        environment
            .with("authorizer", Type::opaque(AUTHORIZER))
            .with("authorizer.requestResource", Type::opaque(RESOURCE_CHECK))
    } else {
        environment
    };
    environment.with_declared("namespaceObject", &NAMESPACE)
}

/// The environment of a validation rule or mapping of a token's claims.
pub fn claims() -> Environment {
    Environment::kubernetes().with("claims", Type::map(Type::String, Type::Dyn))
}

/// The environment of a validation rule for an authenticated user.
pub fn user() -> Environment {
    Environment::kubernetes().with_declared("user", &USER_INFO)
}

/// The environment of a match condition of an authorization webhook.
pub fn access_review() -> Environment {
    Environment::kubernetes().with_declared("request", &ACCESS_REVIEW)
}

/// The environment of a selector of devices.
pub fn device() -> Environment {
    Environment::kubernetes().with_bindings().with_declared("device", &DEVICE)
}

/// The variables of a policy as fields of an object, each with its expression's type.
pub fn variables(declared: impl IntoIterator<Item = (String, Type)>) -> Arc<Decl> {
    Decl::fields("kubernetes.variables", declared.into_iter().map(|(name, ty)| (name, Decl::new(ty))))
}

fn text() -> Arc<Decl> {
    Decl::string(UNBOUNDED)
}

fn texts() -> Arc<Decl> {
    Decl::list(text(), UNBOUNDED, ListKind::Atomic)
}

fn object(name: &str, fields: &[(&str, Arc<Decl>)]) -> Arc<Decl> {
    Decl::fields(name, fields.iter().map(|(name, decl)| ((*name).to_owned(), decl.clone())))
}

fn names(name: &str, fields: &[&str]) -> Arc<Decl> {
    Decl::fields(name, fields.iter().map(|field| ((*field).to_owned(), text())))
}

static USER_INFO: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    object(
        "kubernetes.UserInfo",
        &[("username", text()), ("uid", text()), ("groups", texts()), ("extra", Decl::map(texts(), UNBOUNDED))],
    )
});

/// The declaration of the request under admission.
pub static ADMISSION_REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let kind = names("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = names("kubernetes.GroupVersionResource", &["group", "version", "resource"]);
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", USER_INFO.clone()),
            ("dryRun", Decl::bool()),
            ("options", Decl::any()),
        ],
    )
});

/// The declaration of the namespace of the object under admission.
pub static NAMESPACE: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let time = || Decl::timestamp(UNBOUNDED, 0);
    let pairs = || Decl::map(text(), UNBOUNDED);
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", pairs()),
            ("annotations", pairs()),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", Decl::int()),
            ("deletionTimestamp", time()),
            ("generation", Decl::int()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", texts())]);
    let status = names("kubernetes.NamespaceStatus", &["phase"]);
    object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
});

/// The declaration of a device that a claim may get: attributes and capacities, by domain and name.
pub static DEVICE: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let by_name = |value: Arc<Decl>| Decl::map(Decl::map(value, UNBOUNDED), UNBOUNDED);
    object(
        "kubernetes.DRADevice",
        &[
            ("driver", text()),
            ("attributes", by_name(Decl::any())),
            ("capacity", by_name(Decl::quantity())),
            ("allowMultipleAllocations", Decl::bool()),
        ],
    )
});

/// The declaration of the request to an authorizer.
pub static ACCESS_REVIEW: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let requirement =
        object("kubernetes.SelectorRequirement", &[("key", text()), ("operator", text()), ("values", texts())]);
    let requirements = Decl::list(requirement, UNBOUNDED, ListKind::Atomic);
    let selector = object("kubernetes.SelectorAttributes", &[("rawSelector", text()), ("requirements", requirements)]);
    let resource = object(
        "kubernetes.ResourceAttributes",
        &[
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            ("fieldSelector", selector.clone()),
            ("labelSelector", selector),
        ],
    );
    let path = names("kubernetes.NonResourceAttributes", &["path", "verb"]);
    object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", text()),
            ("groups", texts()),
            ("extra", Decl::map(texts(), UNBOUNDED)),
            ("uid", text()),
        ],
    )
});
