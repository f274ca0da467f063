//! Create-only subresources and reviews, which are not stored: decodes the posted object and builds the response.
//!
//! The subresources are bindings, evictions and tokens. A review returns an identity or permissions. Files of the same
//! names in the registry process them.

use http::{Response, StatusCode};
use keelson_meta::options::CreateOptions;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Caller, Registry, Target};
use keelson_tables::Printer;

use super::render::Renderer;
use super::{decode, writing};
use crate::body::ResponseBody;
use crate::negotiation::Subject;
use crate::respond;
use crate::service::ApiRequest;

/// A posted object that is not stored.
pub(super) struct CreateOnly {
    /// The decoded object.
    pub(super) object: Object,
    /// The caller.
    pub(super) caller: Caller,
    /// The form of the response.
    pub(super) answer: AnswerForm,
}

/// The form of the response to a create-only subresource or review.
pub(super) struct AnswerForm {
    renderer: Renderer,
}

impl CreateOnly {
    /// Decodes the object of a request for its target.
    ///
    /// # Errors
    /// 406 for an unsupported form, 422 for invalid options, and otherwise as [`decode::object`].
    pub(super) async fn read(registry: &Registry, target: &Target, request: Box<ApiRequest>) -> Result<Self, ApiError> {
        let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
        let ApiRequest { parts, query, body, caller, .. } = *request;
        let options = CreateOptions::parse(query.pairs())?;
        let caller = writing(caller, &parts, options.field_manager.as_deref(), options.dry_run);
        let strictness = options.field_validation;
        let object = decode::object(&parts.headers, body, target, strictness, &caller).await?;
        Ok(Self { object, caller, answer: AnswerForm { renderer } })
    }
}

impl AnswerForm {
    /// The response to a subresource without an object to return.
    pub(super) fn done(&self) -> Response<ResponseBody> {
        respond::done(self.renderer.media())
    }

    /// The response with an object.
    ///
    /// # Errors
    /// 500 when it does not fit its message in protobuf.
    pub(super) fn with(&self, object: Object) -> Result<Response<ResponseBody>, ApiError> {
        // The object of a create-only subresource is never returned as a table row.
        self.renderer.answer_unstored(StatusCode::CREATED, object, &Printer::generic())
    }
}
