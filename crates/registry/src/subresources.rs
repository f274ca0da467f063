//! Subresources. Some are a part of an object, which is written like the object itself. Others are create-only actions,
//! such as a binding or an eviction. Each has its own file. This file has the parts of an object that an endpoint may
//! change.

mod binding;
mod budget;
mod endpoints;
mod eviction;
mod legacy_token;
mod reading;
mod remote;
pub(crate) mod scale;
mod scale_rules;
mod token;

use std::time::SystemTime;

use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersionKind, Object};

use crate::intake::{conform, is_known, object_of, unknown_conversion};
use crate::strategy::AcceptedPart;
use crate::target::Target;
use crate::warnings::Warnings;

pub use endpoints::{
    KubeletEndpoint, NodeAddresses, ProxiedEndpoint, SERVICE_NAME_LABEL, is_reachable, ready_endpoints,
    service_port_name, service_slices,
};
pub use remote::Remote;
pub(crate) use scale_rules::faults as scale_faults;
pub(crate) use token::user_info;
pub use token::{ServiceAccountTokens, TokenFault, TokenTimes, WarnedUser};

/// The part of a sent object that the target's endpoint can change, if it is not just the status or everything else.
/// Also returns true if the result differs from the sent object. Both are in the version of the request.
///
/// # Errors
/// 422 for a change that the endpoint does not permit.
pub(crate) fn confine(
    target: &Target,
    stored: &Object,
    sent: Object,
    now: SystemTime,
) -> Result<(Object, bool), ApiError> {
    let Some(endpoint) = target.subresource_name() else { return Ok((sent, false)) };
    let (confined, errors) = match target.strategy().update.confine(endpoint, stored, sent, now) {
        AcceptedPart::AsSent(sent) => return Ok((sent, false)),
        AcceptedPart::Cut(confined, errors) => (confined, errors),
    };
    if !errors.is_empty() {
        return Err(invalid(target, stored, errors));
    }
    Ok((confined, true))
}

fn invalid(target: &Target, object: &Object, errors: Vec<FieldError>) -> ApiError {
    ApiError::Invalid { kind: target.group_kind(), name: object.name().to_owned(), errors }
}

/// Decodes an object of the kind that the target's subresource accepts, which is not the kind of the resource.
///
/// # Errors
/// As [`accept`](crate::accept).
pub(crate) fn accept(
    target: &Target,
    sent: Value,
    faults: &[String],
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<Object, ApiError> {
    let kind = target.taken_kind();
    let mut object = object_of(sent, &kind.kind)?;
    let stated = (object.api_version().unwrap_or_default(), object.kind().unwrap_or_default());
    let version = kind.group_version().to_string();
    let older = OLDER_VERSIONS.contains(&(stated.0, kind.kind.as_str()));
    if !(stated.0.is_empty() || stated.0 == version || older) || !(stated.1.is_empty() || stated.1 == kind.kind) {
        let why = match stated.1 != kind.kind && is_known(target, stated.0, stated.1) {
            true => unknown_conversion(stated.0, stated.1, &kind),
            false => format!("its apiVersion must be {version}"),
        };
        return Err(ApiError::BadRequest(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            if stated.1.is_empty() { &kind.kind } else { stated.1 },
            stated.0.rsplit('/').next().unwrap_or_default(),
            kind.kind,
        )));
    }
    object.set_type(&kind);
    let minded = conform(target, &kind, &mut object, faults, validation).map_err(|fault| {
        let GroupVersionKind { version, kind, .. } = &kind;
        ApiError::BadRequest(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {fault}"))
    })?;
    warnings.extend(minded);
    if let Some(namespace) = target.namespace.as_deref().filter(|_| target.is_namespaced()) {
        if object.namespace().is_empty() {
            object.set_meta("namespace", namespace);
        } else if object.namespace() != namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::BadRequest(message.to_owned()));
        }
    }
    Ok(object)
}

/// Versions that are no longer served, and in which clients still send objects to subresources.
const OLDER_VERSIONS: [(&str, &str); 1] = [("policy/v1beta1", "Eviction")];
