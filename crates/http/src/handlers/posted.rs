//! Bodies that are posted to acts and reviews, of which nothing is stored: read alike for all, and answered alike.
//!
//! An act is a binding, an eviction or a token; a review asks who somebody is or what they may do. What they do is in the
//! registry, in files of the same names.

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

/// An act or a review.
pub(super) struct Posted {
    /// What was sent.
    pub(super) object: Object,
    /// Who sent it.
    pub(super) caller: Caller,
    /// How it is answered.
    pub(super) answer: AnswerForm,
}

/// How an act or a review is answered.
pub(super) struct AnswerForm {
    renderer: Renderer,
}

impl Posted {
    /// Reads what a request sends to its target.
    ///
    /// # Errors
    /// 406 for a form that can't be made, 422 for options that are not allowed; otherwise as [`decode::object`].
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
    /// The answer to an act that leaves nothing to show.
    pub(super) fn done(&self) -> Response<ResponseBody> {
        respond::done(self.renderer.media())
    }

    /// The answer that an object is.
    ///
    /// # Errors
    /// 500 when it does not fit its message in protobuf.
    pub(super) fn with(&self, object: Object) -> Result<Response<ResponseBody>, ApiError> {
        // It is never shown as a row.
        self.renderer.answer_unstored(StatusCode::CREATED, object, &Printer::generic())
    }
}
