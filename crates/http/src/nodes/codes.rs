//! The codes of sessions that this server translates or tunnels, for upstream's metrics.
//!
//! A session is counted when its code is known: at a refusal, or at the end of a translated session.

use std::collections::BTreeMap;

use keelson_codec::json::{Parsed, parse};
use keelson_meta::json::Value;
use parking_lot::Mutex;

use crate::metrics::{MetricKind, Sample};

/// The numbers of sessions by code. HTTP has at most 900 codes.
#[derive(Debug, Default)]
pub(super) struct Codes(Mutex<BTreeMap<u16, u64>>);

impl Codes {
    pub(super) fn count(&self, code: u16) {
        *self.0.lock().entry(code.clamp(100, 999)).or_default() += 1;
    }

    pub(super) fn samples(&self, name: &'static str, help: &'static str) -> Vec<Sample> {
        let sample = |(code, count): (&u16, &u64)| Sample {
            name,
            help,
            kind: MetricKind::Counter,
            labels: vec![("code", code.to_string())],
            value: *count as f64,
        };
        self.0.lock().iter().map(sample).collect()
    }
}

/// The code of a session that ended with this `Status`. As upstream, a command that ends with a code of its own has run,
/// so its session is a success.
pub(super) fn of_status(status: &[u8]) -> u16 {
    let Ok(Parsed { value: status, .. }) = parse(status) else { return 500 };
    let text = |field: &str| status.get(field).and_then(Value::as_str);
    if text("status") == Some("Success") || text("reason") == Some("NonZeroExitCode") {
        return 200;
    }
    let code = status.get("code").and_then(Value::as_i64).and_then(|code| u16::try_from(code).ok());
    code.filter(|code| (400..600).contains(code)).unwrap_or(500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_code() {
        for (status, code) in [
            (r#"{"metadata":{},"status":"Success"}"#, 200),
            (r#"{"status":"Failure","reason":"NonZeroExitCode"}"#, 200),
            (r#"{"status":"Failure","reason":"InternalError","code":503}"#, 503),
            (r#"{"status":"Failure","code":200}"#, 500),
            (r#"{"status":"Failure","code":70000}"#, 500),
            ("broken", 500),
        ] {
            assert_eq!(of_status(status.as_bytes()), code, "{status}");
        }
    }
}
