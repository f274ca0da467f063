//! `GET` of one object.
//!
//! The response has the form that the client prefers: the object, its metadata alone, or a table with one row.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::options::{GetOptions, Query};
use keelson_registry::{Registry, Target};

use super::list_body::masked_object;
use super::render::Renderer;
use super::{query, resolve};
use crate::body::ResponseBody;
use crate::negotiation::Subject;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
    let options = GetOptions::parse(request.query.pairs());
    refuse_export(request.query.pairs())?;
    let name = resolve::name(target)?;
    let Some(query) = request.query.extended()? else {
        let entry = registry.get(target, name, &request.caller, &options).await?;
        let object = entry.object().clone();
        return renderer.answer(StatusCode::OK, &object, Some(entry.revision)).await;
    };
    query.check_get().map_err(|error| ApiError::BadRequest(error.to_string()))?;
    target.check_query(query, &request.caller)?;
    let mask = query::mask(Some(query), &renderer)?;
    let entry = registry.get_at(target, name, &request.caller, &options, query).await?;
    let Some(mask) = mask else {
        let object = entry.object().clone();
        return renderer.answer(StatusCode::OK, &object, Some(entry.revision)).await;
    };
    // The mask's paths refer to fields of the requested version.
    let shown = renderer.view().show_entry(&entry).await?;
    let object = masked_object(&entry.key, &shown, &mask)?;
    renderer.answer(StatusCode::OK, &object, Some(entry.revision)).await
}

/// Refuses the parameter `export`, which once removed cluster-specific fields. Without an error a client would take an
/// object with these fields for one without.
///
/// # Errors
/// 400 if it is set.
pub(super) fn refuse_export(query: &Query<'_>) -> Result<(), ApiError> {
    match query.flag("export") {
        Some(true) => {
            let why = "the export parameter, deprecated since v1.14, is no longer supported";
            Err(ApiError::BadRequest(why.to_owned()))
        }
        Some(false) | None => Ok(()),
    }
}
