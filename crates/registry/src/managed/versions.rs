//! The facts about a kind that server-side apply needs: the schemas of its versions, the conversion between them, and
//! the fields that the endpoint cannot change.
//!
//! The computation of ownership is synchronous. When it needs a conversion by a webhook, it records the question. The
//! caller fetches the conversion and repeats the computation, until nothing is missing.

use std::borrow::Cow;
use std::cell::RefCell;

use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};
use keelson_patch::fields::{FieldSet, Versions};
use keelson_schema::SchemaRef;

use super::endpoints;
use crate::surface::KindVersion;
use crate::target::Target;
use crate::versions::{convert, convert_now};

/// The largest number of conversions of one write for its owners. An object has a few owners in other versions, and
/// each takes a few.
const MOST_QUESTIONS: usize = 64;

/// The versions of the target's kind, for writes to the target's endpoint.
pub(crate) struct KindVersions<'t> {
    target: &'t Target,
    /// True if only the metadata is needed, which is the same in every version.
    of_metadata: bool,
    known: RefCell<Conversions<'t>>,
}

/// The results so far.
#[derive(Default)]
struct Conversions<'t> {
    /// Objects and their conversions.
    answers: Vec<Answer<'t>>,
    /// The missing conversion: an object and the version.
    question: Option<(Object, &'t GroupVersionKind)>,
    /// The error of a failed conversion.
    fault: Option<ApiError>,
}

struct Answer<'t> {
    object: Value,
    to: &'t GroupVersionKind,
    converted: Value,
}

impl<'t> KindVersions<'t> {
    pub(crate) fn new(target: &'t Target) -> Self {
        Self { target, of_metadata: false, known: RefCell::default() }
    }

    /// The facts for objects of which only the metadata is needed.
    pub(super) fn of_metadata(target: &'t Target) -> Self {
        Self { of_metadata: true, ..Self::new(target) }
    }

    /// The target of the write.
    pub(super) fn target(&self) -> &'t Target {
        self.target
    }

    /// Runs the recorded conversion. Returns true if there was none.
    ///
    /// # Errors
    /// 500 for an object that cannot be converted to a version of its owners.
    pub(super) async fn convert_wanted(&mut self) -> Result<bool, ApiError> {
        let known = self.known.get_mut();
        if let Some(fault) = known.fault.take() {
            return Err(fault);
        }
        let Some((object, to)) = known.question.take() else { return Ok(true) };
        if known.answers.len() == MOST_QUESTIONS {
            return Err(ApiError::Internal("the owners of an object use too many of its versions".to_owned()));
        }
        let mut converted = object.clone();
        convert(self.target, &mut converted, to).await?;
        let answer = Answer { object: object.into_value(), to, converted: converted.into_value() };
        self.known.get_mut().answers.push(answer);
        Ok(false)
    }

    /// The version of this name; `None` for a version that the kind does not have.
    fn version(&self, api_version: &str) -> Option<&'t KindVersion> {
        let (group, version) = GroupVersion::split(api_version)?;
        self.target.resource.version(version).filter(|_| group == self.target.resource.group).map(|known| &**known)
    }

    /// The conversion of an object. If only metadata is needed, only its type changes.
    fn asked(&self, mut object: Object, to: &'t GroupVersionKind) -> Option<Value> {
        if self.of_metadata {
            object.set_type(to);
            return Some(object.into_value());
        }
        let value = object.into_value();
        let mut known = self.known.borrow_mut();
        let mut answers = known.answers.iter();
        if let Some(answer) = answers.find(|answer| answer.to == to && answer.object == value) {
            return Some(answer.converted.clone());
        }
        if known.question.is_none() {
            known.question = Object::from_value(value).map(|object| (object, to));
        }
        None
    }
}

impl<'t> Versions<'t> for KindVersions<'t> {
    type Schema = SchemaRef<'t>;

    fn schema(&self, version: &str) -> Option<SchemaRef<'t>> {
        self.version(version)?.schema()
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        let kind = self.version(version)?.kind();
        let mut object = Object::from_value(object.clone())?;
        match convert_now(self.target, &mut object, kind) {
            Ok(true) => Some(object.into_value()),
            Ok(false) => self.asked(object, kind),
            Err(error) => {
                self.known.borrow_mut().fault.get_or_insert(error);
                None
            }
        }
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        endpoints::kept_fields(self.target)
    }
}
