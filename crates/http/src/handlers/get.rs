//! `GET` of one object.
//!
//! It is answered in the form that the client accepts best: the object, its metadata alone, or a table of one row.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::options::GetOptions;
use keelson_registry::{Registry, Target};

use super::render::Renderer;
use super::resolve;
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
    let name = resolve::name(target)?;
    let entry = registry.get(target, name, &request.caller, &options).await?;
    renderer.answer(StatusCode::OK, &entry.object, Some(entry.revision)).await
}
