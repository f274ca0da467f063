//! The record of one request: all that its events say, put together by those who have a part in it.
//!
//! The filters note who asks, the handlers what was sent, authorization and admission why they decided as they did. A caller carries the
//! note ([`AuditRecord`]); where nothing is audited it carries none, and nothing is noted, copied or looked for.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::event::{Annotations, AuditEvent, AuditRequest, AuditStatus, Body, ObjectNames};
use super::policy::{Level, Stage};
use crate::user::User;

/// How many bytes the annotations of a request may have together, names included. Whatever comes then is left out.
const ANNOTATION_BYTES: usize = 64 << 10;

/// A note of what the events of a request say. A clone is the same note, and the default is none.
#[derive(Clone, Default)]
pub struct AuditRecord(Option<Arc<Noting>>);

struct Noting {
    request: Arc<AuditRequest>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    impersonated: Option<Arc<User>>,
    object: Option<Arc<ObjectNames>>,
    request_object: Option<Body>,
    annotations: Arc<Annotations>,
    annotation_bytes: usize,
}

impl AuditRecord {
    /// The note of a request.
    pub fn of(request: AuditRequest) -> Self {
        let noted = Noted { object: request.object.clone(), ..Noted::default() };
        Self(Some(Arc::new(Noting { request: Arc::new(request), noted: Mutex::new(noted) })))
    }

    /// Whether anything is written down.
    pub fn is_read(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the request is for a resource.
    pub fn is_about_objects(&self) -> bool {
        self.0.as_ref().is_some_and(|noting| noting.request.object.is_some())
    }

    /// How much of the request is written down.
    pub fn level(&self) -> Level {
        self.0.as_ref().map_or(Level::None, |noting| noting.request.audited.level)
    }

    /// Whether a stage of the request is written down.
    pub fn has(&self, stage: Stage) -> bool {
        self.0.as_ref().is_some_and(|noting| noting.request.audited.has(stage))
    }

    /// Adds an annotation to the events that follow, such as `authorization.k8s.io/reason`. What was said of a key first stands, as
    /// upstream has it. Names end in a domain of whoever says it.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let Some(noting) = &self.0 else { return };
        let (key, value) = (key.into(), value.into());
        let mut noted = noting.noted.lock();
        let bytes = noted.annotation_bytes + key.len() + value.len();
        if bytes > ANNOTATION_BYTES || noted.annotations.contains_key(&key) {
            return;
        }
        noted.annotation_bytes = bytes;
        Arc::make_mut(&mut noted.annotations).insert(key, value);
    }

    /// Notes in whose name the request is made.
    pub fn impersonates(&self, user: &Arc<User>) {
        if let Some(noting) = &self.0 {
            noting.noted.lock().impersonated = Some(user.clone());
        }
    }

    /// Notes what the object that was sent says of itself, where the path does not say it.
    pub fn names<'a>(&self, namespace: &'a str, name: &'a str, uid: &'a str, resource_version: &'a str) {
        let Some(noting) = &self.0 else { return };
        let mut noted = noting.noted.lock();
        let Some(object) = noted.object.as_mut().map(Arc::make_mut) else { return };
        let said = [
            (&mut object.namespace, namespace),
            (&mut object.name, name),
            (&mut object.uid, uid),
            (&mut object.resource_version, resource_version),
        ];
        for (known, said) in said {
            if known.is_empty() {
                said.clone_into(known);
            }
        }
    }

    /// Notes what was sent, where that is written down. It is asked for only then.
    pub fn sent(&self, body: impl FnOnce() -> Body) {
        if self.level() < Level::Request {
            return;
        }
        if let Some(noting) = &self.0 {
            noting.noted.lock().request_object.get_or_insert(body());
        }
    }

    /// The event of a stage; `None` where nothing is written of it.
    pub fn event(
        &self,
        stage: Stage,
        at: SystemTime,
        status: Option<AuditStatus>,
        response_object: Option<Body>,
    ) -> Option<AuditEvent> {
        let noting = self.0.as_ref().filter(|_| self.has(stage))?;
        let noted = noting.noted.lock();
        Some(AuditEvent {
            request: noting.request.clone(),
            stage,
            at,
            impersonated: noted.impersonated.clone(),
            object: noted.object.clone(),
            status,
            request_object: noted.request_object.clone(),
            response_object,
            annotations: noted.annotations.clone(),
        })
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

    use super::super::event::tests::event;
    use super::*;

    fn record(level: &str) -> AuditRecord {
        AuditRecord::of((*event(level).request).clone())
    }

    fn told(record: &AuditRecord) -> AuditEvent {
        record.event(Stage::ResponseComplete, SystemTime::UNIX_EPOCH, None, None).unwrap()
    }

    #[test]
    fn what_was_said_first_stands_and_what_is_too_long_is_left_out() {
        let record = record("Metadata");
        record.annotate("a", "1");
        record.clone().annotate("a", "2");
        record.annotate("b", "x".repeat(ANNOTATION_BYTES));
        record.annotate("c", "3");
        let annotations = told(&record).annotations;
        assert_eq!(
            annotations.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>(),
            [("a", "1"), ("c", "3")]
        );
    }

    #[test]
    fn an_object_names_what_the_path_does_not_and_is_kept_only_where_it_is_written_down() {
        for (level, is_kept) in [("Metadata", false), ("Request", true)] {
            let record = record(level);
            record.names("n", "one", "", "7");
            record.names("m", "two", "u", "");
            record.sent(|| {
                assert!(is_kept, "nothing is copied that is not written down");
                Body::new(Bytes::from_static(b"{}"), |bytes, _| Some(bytes.to_vec()))
            });
            let event = told(&record);
            let object = event.object.unwrap();
            assert_eq!(
                (&*object.namespace, &*object.name, &*object.uid, &*object.resource_version),
                ("n", "one", "u", "7")
            );
            assert_eq!(event.request_object.is_some(), is_kept);
        }
    }

    #[test]
    fn without_audit_nothing_is_noted() {
        let nobody = AuditRecord::default();
        nobody.annotate("a", "b");
        nobody.sent(|| unreachable!("nothing is copied"));
        assert!(nobody.event(Stage::ResponseComplete, SystemTime::UNIX_EPOCH, None, None).is_none());
        assert!(record("None").event(Stage::ResponseComplete, SystemTime::UNIX_EPOCH, None, None).is_none());
    }
}
