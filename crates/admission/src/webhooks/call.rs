//! One call of one webhook.
//!
//! The timeout is that of the webhook or of the request, whichever is shorter. The size of the response is limited.

use std::time::{Duration, Instant};

use http::Method;
use keelson_meta::go_format::quote;
use keelson_meta::{ApiError, Object, Status};
use keelson_outbound::{Call, CallError, call_with_retries, cut, failure_text};
use keelson_registry::AdmissionAttributes;
use keelson_supervision::turns;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug_span};

use super::hook::Hook;
use super::review::{self, Answer, Fault};
use super::{WebhookKey, Webhooks};
use crate::matching::Endpoint;
use crate::request;
use crate::shown::AdmissionObjects;

/// The largest response in bytes. A patch may contain a whole object in base64.
const RESPONSE_BYTES: usize = 8 << 20;
/// Responses above this size in bytes are parsed on another thread, so that no other request waits.
const LARGE_BYTES: usize = 256 << 10;
/// The most bytes of an error text. It may quote the response.
const FAULT_BYTES: usize = 16 << 10;

/// A call of a webhook.
pub(super) struct Invocation<'h> {
    pub(super) hook: &'h Hook,
    /// The kind and resource in which the webhook gets the request.
    pub(super) endpoint: Endpoint,
    pub(super) shown: AdmissionObjects,
}

/// The reason why a call fails.
pub(super) enum CallFault {
    /// The webhook refuses the request.
    Refused(Box<Status>),
    /// The call failed, or the response is invalid.
    Calling(String),
    /// The response cannot be applied.
    Broken(ApiError),
}

impl Webhooks {
    /// Calls a webhook. The call is counted, and its warnings are added to the response of the request.
    pub(super) async fn call(
        &self,
        invocation: &Invocation<'_>,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Object>,
    ) -> Result<Answer, CallFault> {
        let begun = Instant::now();
        let span = self.span(invocation, attributes);
        let answered = self.ask(invocation, attributes, object).instrument(span.clone()).await;
        let answered = answered.map_err(|fault| match fault {
            CallFault::Calling(why) => CallFault::Calling(cut(&why, FAULT_BYTES).to_owned()),
            other => other,
        });
        if let Err(CallFault::Calling(why)) = &answered {
            span.record("error", why.as_str());
        }
        let refused = answered.as_ref().map_or(true, |answer| !answer.allowed);
        let code = match &answered {
            Ok(answer) if answer.allowed => 200,
            Ok(answer) => answer.result.as_ref().map_or(400, |status| status.code.max(400)),
            Err(_) => 0,
        };
        let key = WebhookKey {
            name: invocation.hook.name.clone(),
            kind: self.kind,
            operation: attributes.operation,
            rejected: refused,
        };
        self.stats.called(key, code, begun.elapsed());
        let answer = answered?;
        self.log_success(invocation.hook);
        let name = &invocation.hook.name;
        attributes.caller.warnings().extend(answer.warnings.iter().cloned());
        for (key, value) in &answer.annotations {
            attributes.caller.audit().annotate(format!("{name}/{key}"), value.clone());
        }
        if answer.allowed { Ok(answer) } else { Err(CallFault::Refused(Box::new(refusal(name, answer.result)))) }
    }

    fn span(&self, invocation: &Invocation<'_>, attributes: &AdmissionAttributes<'_>) -> Span {
        let (hook, target) = (invocation.hook, attributes.target);
        debug_span!(
            "webhook",
            configuration = hook.configuration.as_str(),
            webhook = hook.name.as_str(),
            kind = self.kind.as_str(),
            operation = attributes.operation.as_str(),
            group = &*target.resource.group,
            resource = &*target.resource.plural,
            subresource = target.subresource_name(),
            error = Empty,
        )
    }

    async fn ask(
        &self,
        invocation: &Invocation<'_>,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Object>,
    ) -> Result<Answer, CallFault> {
        let Invocation { hook, endpoint, shown } = invocation;
        let version = hook.version.ok_or_else(|| {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            CallFault::Calling(format!("could not create admission objects: {why}"))
        })?;
        let client = hook.rest_client(&self.outbound, self.credentials.as_deref());
        let client = client.map_err(|why| CallFault::Calling(format!("could not get REST client: {why}")))?;
        let uid = self.outbound.random().uuid();
        let (first, last) = (request::members(attributes, endpoint), request::last_members(attributes));
        let (object, old) = (shown.object(object), shown.old(attributes.old));
        let body = review::request(version, &uid, (&first, &last), object, old);
        let time = whole_seconds(hook.time, attributes);
        let effect = hook.effect(attributes.caller.is_dry_run());
        let call = Call { method: Method::POST, body: body.into(), effect, time, response_bytes: RESPONSE_BYTES };
        let failed = |why: String| CallFault::Calling(format!("failed to call webhook: {why}"));
        let answer = call_with_retries(&client, &call).await.map_err(|error| match error {
            // The request itself timed out, so the failure policy does not apply.
            CallError::Late(_) if time < hook.time => {
                CallFault::Broken(ApiError::Timeout("request did not complete within the allotted timeout".to_owned()))
            }
            // Upstream's client for webhooks omits this part of the message.
            CallError::Late(why) => failed(why.replace(" (Client.Timeout exceeded while awaiting headers)", "")),
            error => failed(error.to_string()),
        })?;
        if let Some(why) = failure_text(&answer) {
            return Err(failed(why));
        }
        let is_mutating = self.kind == super::WebhookKind::Mutating;
        let read = move |body: &[u8]| review::answer(version, &uid, is_mutating, body);
        let answer = if answer.body.len() > LARGE_BYTES {
            turns::blocking(move || read(&answer.body)).await
        } else {
            read(&answer.body)
        };
        answer.map_err(|fault| match fault {
            Fault::Unreadable(why) => failed(why),
            Fault::Wrong(why) => CallFault::Calling(format!("received invalid webhook response: {why}")),
        })
    }
}

/// The timeout of a webhook, at most that of the request, rounded to whole seconds for errors.
fn whole_seconds(time: Duration, attributes: &AdmissionAttributes<'_>) -> Duration {
    let Some(deadline) = attributes.caller.deadline() else { return time };
    let left = deadline.saturating_duration_since(tokio::time::Instant::now());
    let left = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
    time.min(left.max(Duration::from_secs(1)))
}

/// The status of a refusal. Like upstream, its code is never a success, whatever the webhook returns, and it has the
/// kind `Status`. Its list metadata is the server's: a continue token of a webhook would be one of this server.
fn refusal(name: &str, result: Option<Status>) -> Status {
    let server = || Status::failure(0, None, String::new());
    let Status { message, reason, details, code, .. } = result.unwrap_or_else(server);
    let denied = format!("admission webhook {} denied the request", quote(name));
    let message = match (message.as_str(), reason.as_deref().filter(|reason| !reason.is_empty())) {
        ("", None) => format!("{denied} without explanation"),
        ("", Some(reason)) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    Status { message, reason, details, code: code.max(400), ..server() }
}
