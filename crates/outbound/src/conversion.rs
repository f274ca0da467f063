//! Conversion webhooks of custom resource definitions.
//!
//! A call converts a batch of objects. The response is only parsed here; the registry checks it, since it knows which
//! fields a conversion may not change. A webhook with an unusable configuration fails every call, but its definition is
//! still served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::Method;
use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_registry::{BATCH_OBJECTS, CALL_TIME, CONVERTED_BYTES, ConversionBatch, Converter, ConverterError};
use keelson_supervision::outcome;

use crate::client_config::ClientConfig;
use crate::fault::CallError;
use crate::measured::{ResponseContent, measure};
use crate::outbound::Outbound;
use crate::repeat::Effect;
use crate::response_status::{call_with_retries, failure_text};
use crate::rest_client::{Call, RestClient, RestResponse};
use crate::review::{self, ReviewVersion};
use crate::stats::{ConversionKey, DefinitionStats, FailureKind};

/// The most bytes of a response: more than the accepted objects, with room for formatting.
const RESPONSE_BYTES: usize = 32 << 20;
/// The size in bytes above which responses are parsed on a blocking thread.
const LARGE_BYTES: usize = 64 << 10;
/// The number of excess objects that are still parsed, since upstream reports other faults of a response before their
/// number.
const READ_TOO_MANY: usize = BATCH_OBJECTS;

/// The conversion webhook in a definition.
#[derive(Clone, Copy, Debug)]
pub struct WebhookConversion<'d> {
    /// The name of the definition: `PLURAL.GROUP`.
    pub definition: &'d str,
    /// Its `spec.conversion.webhook`.
    pub webhook: &'d Value,
}

/// A webhook that converts the objects of a definition.
#[derive(Debug)]
pub struct ConversionWebhook {
    outbound: Arc<Outbound>,
    client: Result<RestClient, String>,
    form: Option<ReviewVersion>,
    stats: Arc<DefinitionStats>,
}

impl ConversionWebhook {
    /// Creates the webhook of a definition. It is called only when there are objects to convert.
    pub fn new(outbound: &Arc<Outbound>, conversion: WebhookConversion<'_>) -> Self {
        let webhook = conversion.webhook;
        Self {
            outbound: outbound.clone(),
            client: ClientConfig::from_value(&webhook["clientConfig"]).and_then(|config| outbound.client(&config)),
            form: ReviewVersion::from_value(&webhook["conversionReviewVersions"]),
            stats: outbound.stats().of_definition(conversion.definition),
        }
    }

    /// The converter for a definition's `spec.conversion`; `None` if versions differ only by name.
    pub fn from_conversion(
        outbound: &Arc<Outbound>,
        definition: &str,
        conversion: &Value,
    ) -> Option<Arc<dyn Converter>> {
        let called = conversion["strategy"] == "Webhook";
        let conversion = WebhookConversion { definition, webhook: &conversion["webhook"] };
        called.then(|| Arc::new(Self::new(outbound, conversion)) as Arc<dyn Converter>)
    }

    async fn ask(&self, batch: &ConversionBatch<'_>) -> Result<Vec<Object>, (FailureKind, ConverterError)> {
        let call = |why: String| (FailureKind::Call, ConverterError::Call(why));
        let client = self.client.as_ref().map_err(|why| call(why.clone()))?;
        let form = self.form.ok_or_else(|| call("no supported conversion review versions".to_owned()))?;
        let uid = self.outbound.random().uuid();
        let body = review::request(form, &uid, batch.to, batch.objects).await;
        let expected = ResponseLimits { objects: batch.objects.len(), bytes: CONVERTED_BYTES.max(2 * body.len()) };
        // A conversion has no side effect, so a call may be repeated.
        let (effect, response_bytes) = (Effect::Idempotent, RESPONSE_BYTES);
        let asked = Call { method: Method::POST, body: body.into(), effect, time: CALL_TIME, response_bytes };
        let answer = call_with_retries(client, &asked).await.map_err(|error| match error {
            CallError::Busy { .. } => (FailureKind::Call, ConverterError::Busy),
            CallError::Late(why) | CallError::Failed(why) | CallError::Unknown(why) => call(why),
        })?;
        if let Some(why) = failure_text(&answer) {
            return Err(call(why));
        }
        let malformed = |error| (FailureKind::MalformedResponse, error);
        if answer.body.len() <= LARGE_BYTES {
            return read(&answer, form, &uid, expected).map_err(malformed);
        }
        outcome(keelson_supervision::spawn_blocking(move || read(&answer, form, &uid, expected)))
            .await
            .map_err(malformed)
    }
}

/// The limits of a response.
#[derive(Clone, Copy)]
struct ResponseLimits {
    objects: usize,
    bytes: usize,
}

/// Parses the objects in a response. A response far above the limits is not parsed at all.
fn read(
    answer: &RestResponse,
    form: ReviewVersion,
    uid: &str,
    expected: ResponseLimits,
) -> Result<Vec<Object>, ConverterError> {
    let ResponseContent { objects, bytes } = measure(&answer.body);
    if objects > expected.objects + READ_TOO_MANY {
        return Err(ConverterError::Count(objects));
    }
    if bytes > expected.bytes {
        return Err(ConverterError::Size { bytes, most: expected.bytes });
    }
    review::answer(form, uid, &answer.body).map_err(ConverterError::Call)
}

#[async_trait]
impl Converter for ConversionWebhook {
    async fn convert(&self, batch: ConversionBatch<'_>) -> Result<Vec<Object>, ConverterError> {
        let begun = Instant::now();
        let asked = self.ask(&batch).await;
        let took: Duration = begun.elapsed();
        let key = ConversionKey {
            from: batch.from.version.to_string(),
            to: batch.to.version.to_string(),
            succeeded: asked.is_ok(),
        };
        self.stats.note(key, took);
        self.outbound.stats().note_conversion(asked.as_ref().err().map(|(kind, _)| *kind), took);
        asked.map_err(|(_, error)| error)
    }
}
