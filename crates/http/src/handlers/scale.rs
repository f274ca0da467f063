//! The `scale` subresource of workloads.
//!
//! Each request builds the Scale from the workload's fields. A write to it changes those fields alone.

use http::{Response, StatusCode};
use keelson_meta::options::{GetOptions, UpdateOptions};
use keelson_meta::{ApiError, GroupVersionKind};
use keelson_registry::{PatchKind, Registry, Target, WriteOptions, match_name, object_of};
use keelson_resources::Verb;

use super::get::refuse_export;
use super::render::Renderer;
use super::{decode, patch, resolve, writing};
use crate::body::ResponseBody;
use crate::negotiation::Subject;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
    let query = request.query.pairs();
    let name = resolve::name(target)?;
    let headers = &request.parts.headers;
    let scale = match request.info.verb.served() {
        Some(Verb::Get) => {
            refuse_export(query)?;
            let entry = registry.get(target, name, &request.caller, &GetOptions::parse(query)).await?;
            registry.scale(target, &entry).await?
        }
        Some(Verb::Update) => {
            let options = UpdateOptions::parse(query)?;
            let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
            let strictness = options.field_validation;
            let wanted = decode::object(headers, request.body, target, strictness, &caller).await?;
            match_name(name, &wanted)?;
            let options = WriteOptions::Update(&options);
            registry.change_scale(target, name, &caller, options, |_| Ok(wanted.clone())).await?
        }
        Some(Verb::Patch) => {
            let form = patch::kind(headers, target)?;
            let options = patch::options(query, form)?;
            let patch = patch::document(form, request.body, options.field_validation, request.caller.audit()).await?;
            let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
            if form == PatchKind::Apply {
                let applied = registry.apply_scale(target, name, &patch, &caller, &options).await?;
                registry.scale_written(target, &applied).await?
            } else {
                let (kind, patch) = (kind(), patch.compile());
                let schema = target.version.schema_taken_by("scale", &kind);
                let change = |scale| {
                    let patched = object_of(patch.apply(schema, scale)?, "Scale")?;
                    match_name(name, &patched)?;
                    Ok(patched)
                };
                registry.change_scale(target, name, &caller, WriteOptions::Patch(&options), change).await?
            }
        }
        _ => return Err(ApiError::MethodNotAllowed),
    };
    // As upstream, the table of a custom resource's scale has the columns of the definition.
    renderer.answer_unstored(StatusCode::OK, scale, target.version.printer_of_taken("scale"))
}

fn kind() -> GroupVersionKind {
    GroupVersionKind { group: "autoscaling".to_owned(), version: "v1".to_owned(), kind: "Scale".to_owned() }
}
