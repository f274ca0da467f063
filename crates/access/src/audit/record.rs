//! The audit record of one request, with the content of its events.
//!
//! Filters add the user, handlers the sent object, authorization and admission their decisions. The context of a
//! request holds the record ([`AuditRecord`]). If the request is not audited, the record is empty and its methods do
//! nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::event::{self, AuditEvent, Body, Occurrence, RequestDetails, SharedMembers};
use super::policy::{Level, Stage};
use super::queue::OfferedForm;
use super::request::AuditRequest;
use crate::authorize::{Attributes, ResourceAttributes};
use crate::shared_text::SharedText;
use crate::user::User;

/// The limit of a request's annotations in bytes, including names. Annotations beyond it are dropped.
const ANNOTATION_BYTES: usize = 64 << 10;
/// The limit of the number of a request's annotations. Annotations beyond it are dropped.
const ANNOTATIONS: usize = 512;

/// A shared handle to the record of a request. Clones share the record. The default is empty.
#[derive(Clone, Default)]
pub struct AuditRecord(Option<Arc<RecordHandle>>);

struct RecordHandle {
    request: AuditRequest,
    noted: Mutex<RequestDetails>,
}

/// An event that is passed on, with the locked details of its record.
pub(super) struct EmittedEvent<'r> {
    noting: &'r Arc<RecordHandle>,
    /// The details; `None` at the first stage, when there are none.
    noted: Option<MutexGuard<'r, RequestDetails>>,
    occurred: &'r Occurrence,
}

/// An event that the worker serializes later.
pub(super) struct DeferredEvent {
    noting: Arc<RecordHandle>,
    noted: RequestDetails,
    occurred: Occurrence,
}

impl AuditRecord {
    /// The record of a request.
    pub fn new(request: AuditRequest) -> Self {
        Self(Some(Arc::new(RecordHandle { request, noted: Mutex::default() })))
    }

    /// Returns true if the request is audited.
    pub fn is_read(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true if the request is for a resource.
    pub fn is_about_objects(&self) -> bool {
        self.0.as_ref().is_some_and(|noting| noting.request.is_for_resource())
    }

    /// The level of the request.
    pub fn level(&self) -> Level {
        self.0.as_ref().map_or(Level::None, |noting| noting.request.audited.level)
    }

    /// Returns true if a stage of the request is recorded.
    pub fn has(&self, stage: Stage) -> bool {
        self.0.as_ref().is_some_and(|noting| noting.request.audited.has(stage))
    }

    /// Adds an annotation to all later events, such as `authorization.k8s.io/reason`. Like upstream, the first value of
    /// a name stays. Names start with a domain.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<SharedText>) {
        let Some(noting) = &self.0 else { return };
        let (key, value) = (key.into(), value.into());
        let mut noted = noting.noted.lock();
        let is_taken = noted.decided.is_some() && matches!(&*key, event::DECISION | event::REASON);
        if is_taken
            || noted.annotations.len() >= ANNOTATIONS
            || noted.annotation_bytes() + key.len() + value.len() > ANNOTATION_BYTES
        {
            return;
        }
        event::put(&mut noted.annotations, key, value);
    }

    /// Records the authorization decision, `allow` or `forbid`, and its reason.
    pub fn decides(&self, decision: &'static str, reason: SharedText) {
        // A reason beyond the size limit is dropped, like other annotations.
        if event::DECISION.len() + decision.len() + event::REASON.len() + reason.len() > ANNOTATION_BYTES {
            return self.annotate(event::DECISION, decision);
        }
        if let Some(noting) = &self.0 {
            noting.noted.lock().decided.get_or_insert((decision, reason));
        }
    }

    /// Records the impersonated user, and the verb that allowed a constrained impersonation.
    pub fn impersonates(&self, user: &Arc<User>, constraint: Option<&'static str>) {
        if let Some(noting) = &self.0 {
            let mut noted = noting.noted.lock();
            (noted.impersonated, noted.constraint) = (Some(user.clone()), constraint);
        }
    }

    /// Records names from the sent object that the path does not have.
    pub fn names<'a>(&self, namespace: &'a str, name: &'a str, uid: &'a str, resource_version: &'a str) {
        let Some(noting) = &self.0 else { return };
        let Attributes::Resource(about) = noting.request.attributes() else { return };
        let ResourceAttributes { namespace: in_path, name: name_in_path, .. } = about;
        let mut noted = noting.noted.lock();
        let named = noted.named.get_or_insert_default();
        let said = [
            (&mut named.namespace, namespace, in_path.is_none()),
            (&mut named.name, name, name_in_path.is_none()),
            (&mut named.uid, uid, true),
            (&mut named.resource_version, resource_version, true),
        ];
        for (known, said, is_unknown) in said {
            if is_unknown && known.is_empty() {
                said.clone_into(known);
            }
        }
    }

    /// Records the sent object, if the level includes it. `body` is called only then.
    pub fn sent(&self, body: impl FnOnce() -> Body) {
        if self.level() < Level::Request {
            return;
        }
        if let Some(noting) = &self.0 {
            noting.noted.lock().request_object.get_or_insert(body());
        }
    }

    /// The event of a stage; `None` if the policy does not record the stage.
    pub(super) fn telling<'r>(&'r self, occurred: &'r Occurrence) -> Option<EmittedEvent<'r>> {
        let noting = self.0.as_ref().filter(|_| self.has(occurred.stage))?;
        let noted = (occurred.stage != Stage::RequestReceived).then(|| noting.noted.lock());
        Some(EmittedEvent { noting, noted, occurred })
    }
}

impl EmittedEvent<'_> {
    /// The event, with the shared members of its request.
    pub(super) fn event<'e>(&'e self, shown: &'e SharedMembers) -> AuditEvent<'e> {
        AuditEvent {
            shown: Some(shown),
            request: &self.noting.request,
            noted: self.noted.as_deref().map_or_else(|| Cow::Owned(RequestDetails::default()), Cow::Borrowed),
            occurred: Cow::Borrowed(self.occurred),
        }
    }

    /// The request of the event. All events that are passed on together have the same one.
    pub(super) fn request(&self) -> &AuditRequest {
        &self.noting.request
    }

    /// Returns true if the event has an object, so that serializing it takes long.
    pub(super) fn is_heavy(&self) -> bool {
        is_heavy(self.noted.as_deref(), self.occurred)
    }

    /// Copies the event for later serialization.
    pub(super) fn held(&self) -> OfferedForm {
        let noted = self.noted.as_deref().cloned().unwrap_or_default();
        let held = DeferredEvent { noting: self.noting.clone(), noted, occurred: self.occurred.clone() };
        let weight = held.event().weight();
        OfferedForm::Held(Box::new(held), weight)
    }
}

fn is_heavy(noted: Option<&RequestDetails>, occurred: &Occurrence) -> bool {
    occurred.response_object.is_some() || noted.is_some_and(|noted| noted.request_object.is_some())
}

impl DeferredEvent {
    /// Returns true if the event has an object, so that serializing it takes long.
    pub(super) fn is_heavy(&self) -> bool {
        is_heavy(Some(&self.noted), &self.occurred)
    }

    pub(super) fn event(&self) -> AuditEvent<'_> {
        AuditEvent {
            shown: None,
            request: &self.noting.request,
            noted: Cow::Borrowed(&self.noted),
            occurred: Cow::Borrowed(&self.occurred),
        }
    }
}

impl fmt::Debug for AuditRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditRecord").field(&self.level()).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::event::tests::{json_of, occurrence, request};
    use super::*;

    fn record(level: &str) -> AuditRecord {
        AuditRecord::new(request(level))
    }

    /// The JSON of the last event of a request.
    fn event_json(record: &AuditRecord) -> String {
        let occurred = Occurrence { response_object: None, ..occurrence() };
        let OfferedForm::Held(held, _) = record.telling(&occurred).unwrap().held() else { unreachable!() };
        json_of(&held.event(), false)
    }

    #[test]
    fn the_first_annotation_wins_and_too_long_ones_are_omitted() {
        let record = record("Metadata");
        record.annotate("a", "1");
        record.clone().annotate("a", "2");
        record.annotate("b", "x".repeat(ANNOTATION_BYTES));
        record.annotate("c", "3");
        let told = event_json(&record);
        assert!(told.ends_with(r#""annotations":{"a":"1","c":"3"}}"#), "{told}");
    }

    #[test]
    fn too_long_reasons_are_omitted_and_long_ones_use_up_the_space() {
        let decided = |reason: usize| {
            let record = record("Metadata");
            record.decides("allow", "x".repeat(reason).into());
            record.annotate("z", "y".repeat(100));
            event_json(&record)
        };
        assert!(decided(10).contains(r#""authorization.k8s.io/reason":"xxxxxxxxxx","z":"y"#));
        let too_long = decided(ANNOTATION_BYTES);
        assert!(too_long.contains(r#""annotations":{"authorization.k8s.io/decision":"allow","z":"y"#), "{too_long}");
        let long = decided(ANNOTATION_BYTES - 100);
        assert!(long.contains("authorization.k8s.io/reason") && !long.contains(r#""z":"#));
    }

    #[test]
    fn an_object_supplies_missing_names_and_is_kept_only_if_logged() {
        for (level, is_kept) in [("Metadata", false), ("Request", true)] {
            let record = record(level);
            record.names("n", "one", "", "7");
            record.names("m", "two", "u", "");
            record.sent(|| {
                assert!(is_kept, "nothing is copied that is not written down");
                Body::new(Bytes::from_static(b"{}"), |bytes, _| Some(bytes.to_vec()))
            });
            let told = event_json(&record);
            let names =
                r#"{"resource":"pods","namespace":"n","name":"one","uid":"u","apiVersion":"v1","resourceVersion":"7"}"#;
            assert!(told.contains(names), "{told}");
            assert_eq!(told.contains("requestObject"), is_kept);
        }
    }

    #[test]
    fn requests_without_audit_record_nothing() {
        let nobody = AuditRecord::default();
        nobody.annotate("a", "b");
        nobody.sent(|| unreachable!("nothing is copied"));
        assert!(nobody.telling(&occurrence()).is_none());
        assert!(record("None").telling(&occurrence()).is_none());
    }
}
