//! Conversion webhooks: whoever a definition says converts its objects.
//!
//! A call takes a batch of objects. What was answered is checked by the registry, which knows what conversion may not change; here
//! it is only read. A webhook whose configuration can't be used is one that always fails: its definition is served all the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::Method;
use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_registry::{CALL_TIME, ConversionBatch, Converter, ConverterError};
use keelson_supervision::outcome;

use crate::client_config::ClientConfig;
use crate::fault::CallError;
use crate::outbound::Outbound;
use crate::peer::{Answer, Call, Peer};
use crate::rest::{patiently, text_of};
use crate::review::{self, ReviewVersion};
use crate::stats::{ConversionKey, FailureKind, OfDefinition};

/// How many bytes an answer may have: more than the objects that are accepted of it, with room for how it is written.
const ANSWER_BYTES: usize = 32 << 20;
/// Larger answers are read on a thread of their own.
const LARGE_BYTES: usize = 64 << 10;

/// What a definition says of who converts its objects.
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
    peer: Result<Peer, String>,
    form: Option<ReviewVersion>,
    stats: Arc<OfDefinition>,
}

impl ConversionWebhook {
    /// The webhook of a definition, which is called when there is something to convert.
    pub fn new(outbound: &Arc<Outbound>, conversion: WebhookConversion<'_>) -> Self {
        let webhook = conversion.webhook;
        Self {
            outbound: outbound.clone(),
            peer: ClientConfig::of(&webhook["clientConfig"]).and_then(|config| outbound.peer(&config)),
            form: ReviewVersion::of(&webhook["conversionReviewVersions"]),
            stats: outbound.stats().of_definition(conversion.definition),
        }
    }

    /// Whoever converts the objects of a definition by its `spec.conversion`; `None` where its versions differ by name alone.
    pub fn of(outbound: &Arc<Outbound>, definition: &str, conversion: &Value) -> Option<Arc<dyn Converter>> {
        let called = conversion["strategy"] == "Webhook";
        let conversion = WebhookConversion { definition, webhook: &conversion["webhook"] };
        called.then(|| Arc::new(Self::new(outbound, conversion)) as Arc<dyn Converter>)
    }

    async fn ask(&self, batch: &ConversionBatch<'_>) -> Result<Vec<Object>, (FailureKind, ConverterError)> {
        let failed = |kind: FailureKind| move |why: String| (kind, ConverterError::Call(why));
        let call = failed(FailureKind::Call);
        let peer = self.peer.as_ref().map_err(|why| call(why.clone()))?;
        let form = self.form.ok_or_else(|| call("no supported conversion review versions".to_owned()))?;
        let uid = self.outbound.random().uuid();
        let body = review::request(form, &uid, batch.to, batch.objects).await;
        let asked = Call { method: Method::POST, body: body.into(), time: CALL_TIME, answer_bytes: ANSWER_BYTES };
        let answer = patiently(peer, &asked).await.map_err(|error| match error {
            CallError::Busy { .. } => (FailureKind::Call, ConverterError::Busy),
            CallError::Late(why) | CallError::Failed(why) => call(why),
        })?;
        if let Some(why) = text_of(&answer) {
            return Err(call(why));
        }
        read(answer, form, uid).await.map_err(failed(FailureKind::MalformedResponse))
    }
}

/// The objects of an answer, read where that keeps nobody waiting.
async fn read(answer: Answer, form: ReviewVersion, uid: String) -> Result<Vec<Object>, String> {
    if answer.body.len() <= LARGE_BYTES {
        return review::answer(form, &uid, &answer.body);
    }
    outcome(tokio::task::spawn_blocking(move || review::answer(form, &uid, &answer.body))).await
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
