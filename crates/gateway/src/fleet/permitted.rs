//! The parts of one source: its whole list, or the lists of the namespaces that the caller may see.
//!
//! Namespaces are found in the source's mirrors, and each is asked for as a list of its own. The source decides about
//! each one, so a wrong guess shows nothing. A small source is asked for every namespace. In a large one only the
//! namespaces with a RoleBinding for the caller are tried, since a review for each would be too many.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream;
use keelson_access::User;
use keelson_http::filters::ClientConnection;
use keelson_http::negotiation::MediaType;
use keelson_http::respond;
use keelson_meta::{ApiError, Object, Revision};

use super::Member;
use super::ask::FleetRequest;
use super::parts::{ListShare, Missing, Outcome, Part, PartOutcome};
use crate::mirror::Mirror;

/// The largest number of namespaces that are all tried.
const ALL_TRIED: usize = 64;
/// The largest number of namespaces that are tried.
const MOST_TRIED: usize = 1_000;
/// The number of namespaces that are tried at the same time.
const TRIED_AT_ONCE: usize = 16;
/// The warning of a list over the namespaces with a RoleBinding for the caller.
const GUESSED: &str = "only namespaces with a RoleBinding for the caller were tried";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The result of a source.
pub(super) async fn outcome(
    member: &Member,
    ask: &FleetRequest,
    client: &dyn ClientConnection,
    share: &ListShare,
) -> Outcome {
    let (whole, user) = member.part(ask, (client, share), None, None).await;
    match (whole, user) {
        (PartOutcome::Answered(part), Some(user)) => Outcome::Answered(vec![*part], user),
        (PartOutcome::Missing(Missing::Forbidden), Some(user)) if ask.permitted => {
            // Namespaces cost reviews even if none is permitted.
            match share.take(&member.lists, &user) {
                Ok(()) => by_namespace(member, ask, (client, share), &user).await,
                Err(_) => Outcome::Missing(Missing::Busy),
            }
        }
        (PartOutcome::Answered(_), None) => Outcome::Missing(Missing::Unknown),
        (PartOutcome::Missing(why), _) => Outcome::Missing(why),
        (PartOutcome::Refused(response), _) => Outcome::Refused(response),
    }
}

async fn by_namespace(
    member: &Member,
    ask: &FleetRequest,
    (client, share): (&dyn ClientConnection, &ListShare),
    user: &Arc<User>,
) -> Outcome {
    let info = &ask.info;
    let Some(mirror) = member.mirrors.find(&info.group, &info.version, &info.resource) else {
        return Outcome::Missing(if member.mirrors.is_loaded() { Missing::NotMirrored } else { Missing::Loading });
    };
    let Some((candidates, is_guess)) = candidates(member, user) else { return Outcome::Missing(Missing::Loading) };
    if candidates.len() > MOST_TRIED {
        let why = format!("there are more than {MOST_TRIED} namespaces to try: list some of them by their paths");
        return Outcome::Refused(respond::error(&ApiError::BadRequest(why), MediaType::JSON));
    }
    if ask.is_newest() {
        // A failure shows as the age of the state.
        let _caught_up = mirror.registry().catch_up().await;
    }
    // All namespaces are read at one revision.
    let at = ask.least_revision().map(|least| least.max(mirror.progress.reached()));
    let mut tried = Vec::with_capacity(candidates.len());
    for namespace in &candidates {
        tried.push(member.part(ask, (client, share), Some(namespace), at));
    }
    let mut tried = stream::iter(tried).buffered(TRIED_AT_ONCE);
    let mut parts: Vec<Part> = Vec::new();
    while let Some((outcome, known)) = tried.next().await {
        match outcome {
            PartOutcome::Answered(part) if known.as_ref().is_some_and(|known| known.name == user.name) => {
                parts.push(*part);
            }
            PartOutcome::Answered(_) | PartOutcome::Missing(Missing::Forbidden) => {}
            // A list without a namespace that may be permitted would be incomplete.
            PartOutcome::Missing(why) => return Outcome::Missing(why),
            PartOutcome::Refused(response) => return Outcome::Refused(response),
        }
    }
    let revision = parts.first().map(Part::revision);
    if parts.iter().any(|part| Some(part.revision()) != revision) {
        return Outcome::Missing(Missing::Away);
    }
    if is_guess && let Some(first) = parts.first_mut() {
        first.warnings.push(GUESSED.to_owned());
    }
    if parts.is_empty() { Outcome::Missing(Missing::Forbidden) } else { Outcome::Answered(parts, user.clone()) }
}

/// The namespaces to try, and true if they are those with a RoleBinding; `None` while they are not known.
fn candidates(member: &Member, user: &User) -> Option<(Vec<String>, bool)> {
    let namespaces = member.mirrors.find("", "v1", "namespaces")?;
    let mut all: Vec<String> = objects(&namespaces)?.iter().map(|object| object.name().to_owned()).collect();
    if all.len() <= ALL_TRIED {
        return Some((all, false));
    }
    let bindings = member.mirrors.find(RBAC, "v1", "rolebindings").and_then(|mirror| objects(&mirror));
    let Some(bindings) = bindings else { return Some((all, false)) };
    all = bindings.iter().filter(|binding| names(binding, user)).map(|at| at.namespace().to_owned()).collect();
    all.sort();
    all.dedup();
    Some((all, true))
}

/// Returns true if a RoleBinding may be for a user. The kind of a subject does not matter, since the
/// source decides.
fn names(binding: &Object, user: &User) -> bool {
    let subjects = binding.get(&["subjects"]).and_then(|subjects| subjects.as_array());
    subjects.into_iter().flatten().any(|subject| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        let name = text("name");
        let namespace = if text("namespace").is_empty() { binding.namespace() } else { text("namespace") };
        let is_account = || user.name == format!("system:serviceaccount:{namespace}:{name}");
        user.name == name || user.groups.iter().any(|group| group == name) || is_account()
    })
}

/// The newest mirrored objects.
fn objects(mirror: &Mirror) -> Option<Vec<Object>> {
    let registry = mirror.registry();
    let target = registry.target(&mirror.served.group, &mirror.served.plural).ok()?;
    let collection = registry.collection(&target).ok()?;
    let entries = collection.snapshot();
    Some(entries.range("", None).map(|entry| entry.object().decode(Revision::ZERO)).collect())
}
