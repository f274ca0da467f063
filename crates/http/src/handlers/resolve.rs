//! From a request's path to what the registry calls its target.

use keelson_meta::ApiError;
use keelson_registry::Target;
use keelson_resources::Catalogue;

use crate::request_info::RequestInfo;

/// The resource, version, subresource, namespace and name that a request is for.
///
/// # Errors
/// 404 when nothing is served there. Whether the verb is served has been checked by the router.
pub(super) fn target(info: &RequestInfo) -> Result<Target, ApiError> {
    let (resource, version) =
        Catalogue::builtin().lookup(&info.group, &info.version, &info.resource).ok_or(ApiError::UnknownResource)?;
    let subresource = match &info.subresource {
        None => None,
        Some(name) => Some(version.subresource(name).ok_or(ApiError::UnknownResource)?),
    };
    let name = info.name.clone().filter(|_| info.name_in_path);
    // The path of a Namespace object reads like one inside of that namespace.
    let namespace = info.namespace.clone().filter(|_| resource.is_namespaced());
    Ok(Target { resource, version, subresource, namespace, name })
}

/// What a client is to be warned of because the version that it asks for will go.
pub(super) fn deprecation(info: &RequestInfo) -> Option<String> {
    let (resource, version) = Catalogue::builtin().lookup(&info.group, &info.version, &info.resource)?;
    keelson_resources::deprecation(resource.group, version.name, resource.kind)
}

/// The name in the URL.
///
/// # Errors
/// 405 when the request is for a collection.
pub(super) fn name(target: &Target) -> Result<&str, ApiError> {
    target.name.as_deref().ok_or(ApiError::MethodNotAllowed)
}
