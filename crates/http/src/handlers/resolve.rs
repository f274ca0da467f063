//! From a request's path to the resource it is for.

use keelson_meta::ApiError;
use keelson_registry::Target;
use keelson_resources::{Catalogue, Verb as ServedVerb};

use crate::request_info::{RequestInfo, Verb};

/// The resource, version, subresource, namespace and name that a request is for.
///
/// # Errors
/// 404 when nothing is served there, 405 when the verb is not.
pub(super) fn target(info: &RequestInfo) -> Result<Target, ApiError> {
    let (resource, version) = Catalogue::builtin()
        .lookup(&info.group, &info.version, &info.resource)
        .ok_or(ApiError::UnknownResource)?;
    let subresource = match &info.subresource {
        None => None,
        Some(name) => Some(version.subresource(name).ok_or(ApiError::UnknownResource)?),
    };
    let name = info.name.clone().filter(|_| info.name_in_path);
    let namespace = if resource.is_namespaced() {
        info.namespace.clone()
    } else {
        // The path of a Namespace object reads like one inside of that namespace.
        let own = (resource.group, resource.plural) == ("", "namespaces");
        if info.namespace.is_some() && !own {
            return Err(ApiError::UnknownResource);
        }
        None
    };
    if resource.is_namespaced() && namespace.is_none() && name.is_some() {
        return Err(ApiError::UnknownResource);
    }
    let target = Target { resource, version, subresource, namespace, name };
    if allows(&target, &info.verb) { Ok(target) } else { Err(ApiError::MethodNotAllowed) }
}

/// The name in the URL.
///
/// # Errors
/// 405 when the request is for a collection.
pub(super) fn name(target: &Target) -> Result<&str, ApiError> {
    target.name.as_deref().ok_or(ApiError::MethodNotAllowed)
}

/// Lets through what is about the object itself or its status; the other subresources are not served yet.
///
/// # Errors
/// 405 for any other subresource.
pub(super) fn only_status(target: &Target) -> Result<(), ApiError> {
    match target.subresource_name() {
        None | Some("status") => Ok(()),
        Some(_) => Err(ApiError::MethodNotAllowed),
    }
}

fn allows(target: &Target, verb: &Verb) -> bool {
    let Some(served) = served(verb) else {
        return false;
    };
    let offered = match target.subresource {
        Some(subresource) => subresource.allows(served),
        None => target.version.allows(served),
    };
    let one_namespace = !target.is_namespaced() || target.namespace.is_some();
    offered
        && match verb {
            Verb::Create => one_namespace && (target.name.is_none() || target.subresource.is_some()),
            Verb::DeleteCollection => one_namespace,
            Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => target.name.is_some(),
            Verb::List | Verb::Watch => true,
            Verb::Other(_) => false,
        }
}

fn served(verb: &Verb) -> Option<ServedVerb> {
    match verb {
        Verb::Get => Some(ServedVerb::Get),
        Verb::List => Some(ServedVerb::List),
        Verb::Watch => Some(ServedVerb::Watch),
        Verb::Create => Some(ServedVerb::Create),
        Verb::Update => Some(ServedVerb::Update),
        Verb::Patch => Some(ServedVerb::Patch),
        Verb::Delete => Some(ServedVerb::Delete),
        Verb::DeleteCollection => Some(ServedVerb::DeleteCollection),
        Verb::Other(_) => None,
    }
}
