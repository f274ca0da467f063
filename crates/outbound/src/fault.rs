//! Failures of calls, in the words of Kubernetes' own client, which operators know and search for.
//!
//! The libraries used here have other texts. This module inspects the causes of an error and returns the text of Go's
//! `net`, `net/http` or `crypto/tls`.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use rustls::AlertDescription;
use thiserror::Error;

/// The reason why a call has no usable response.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// The limit of concurrent calls to this host and the limit of waiting calls are both reached.
    #[error("too many calls to {host} are under way")]
    Busy {
        /// Host and port.
        host: String,
    },
    /// The call timed out. Its outcome is unknown.
    #[error("{0}")]
    Late(String),
    /// The call failed, with the text of upstream's client. The peer has not processed it, or it can be repeated
    /// without effect.
    #[error("{0}")]
    Failed(String),
    /// The call was sent and has no response, with the same kind of text. The peer may have processed it, and a repeat
    /// may have another effect.
    #[error("{0}")]
    Unknown(String),
}

impl CallError {
    /// Returns true if the peer may have processed the call.
    pub const fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Late(_) | Self::Unknown(_) => true,
            Self::Busy { .. } | Self::Failed(_) => false,
        }
    }
}

/// The reason why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    /// The service has no usable address.
    #[error("{0}")]
    Service(String),
    /// The name can't be resolved.
    #[error("dial tcp: lookup {host}: {why}")]
    Lookup { host: String, why: String },
    /// The connection was not accepted.
    #[error("dial tcp {address}: {}", connect_text(.why))]
    Connect { address: String, why: io::Error },
    /// The Unix socket of a proxy was not connected to.
    #[error("dial unix {path}: {}", connect_text(.why))]
    Unix { path: String, why: io::Error },
    /// The TLS handshake failed.
    #[error("{}", tls_text(.0))]
    Tls(io::Error),
    /// The peer answered in plain HTTP, without TLS.
    #[error("http: server gave HTTP response to HTTPS client")]
    PlainHttp,
    /// The proxy refused the tunnel.
    #[error("{0}")]
    Proxy(String),
    /// TLS could not be set up.
    #[error("{0}")]
    Setup(String),
}

impl DialError {
    /// Returns true if the peer supports none of the offered protocols.
    pub(crate) fn is_refused_protocol(&self) -> bool {
        let Self::Tls(error) = self else { return false };
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        matches!(inner, Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)))
    }
}

fn connect_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => format!("connect: {}", system_text(error)),
    }
}

/// The text of a system error as in Go: lower case, without the number.
fn system_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            text.to_lowercase()
        }
    }
}

fn tls_text(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(fault)) => {
            let text = match fault {
                rustls::CertificateError::Other(other) => other.0.to_string(),
                rustls::CertificateError::BadEncoding => "x509: malformed certificate".to_owned(),
                other => format!("x509: {other}"),
            };
            format!("tls: failed to verify certificate: {text}")
        }
        Some(rustls::Error::InvalidMessage(_)) => "tls: first record does not look like a TLS handshake".to_owned(),
        // In TLS 1.3 a server may refuse the client certificate after the handshake. Then a read fails.
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {}", alert_text(*alert)),
        Some(rustls::Error::PeerIncompatible(_)) => "remote error: tls: protocol version not supported".to_owned(),
        Some(other) => format!("tls: {other}"),
        None => io_text(error),
    }
}

/// The name of an alert in Go.
fn alert_text(alert: rustls::AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => return "unknown certificate authority".to_owned(),
        AlertDescription::BadRecordMac => return "bad record MAC".to_owned(),
        AlertDescription::DecodeError => return "error decoding message".to_owned(),
        AlertDescription::DecryptError => return "error decrypting message".to_owned(),
        AlertDescription::ProtocolVersion => return "protocol version not supported".to_owned(),
        AlertDescription::InsufficientSecurity => return "insufficient security level".to_owned(),
        _ => {}
    }
    let name = format!("{alert:?}");
    let mut text = String::with_capacity(name.len() + 4);
    for (place, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            text.push(' ');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        _ if matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>()) => tls_text(error),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
        _ => format!("read: {}", system_text(error)),
    }
}

/// The text of a failed request, whichever library reported the failure.
pub(crate) fn text(error: &(dyn StdError + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |error| (*error).source());
    if let Some(dial) = causes().find_map(|cause| cause.downcast_ref::<DialError>()) {
        return dial.to_string();
    }
    let http = causes().find_map(|cause| cause.downcast_ref::<hyper::Error>());
    if http.is_some_and(hyper::Error::is_incomplete_message) {
        return "EOF".to_owned();
    }
    if let Some(io) = causes().find_map(|cause| cause.downcast_ref::<io::Error>()) {
        return io_text(io);
    }
    match http {
        Some(error) if error.is_parse() => format!("net/http: HTTP/1.x transport connection broken: {error}"),
        _ => causes().last().map(ToString::to_string).unwrap_or_default(),
    }
}

/// The text of a call without a response header in time.
pub(crate) const NO_HEAD: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
/// The text of a call whose response did not end in time.
pub(crate) const NO_END: &str = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// Go's form of a duration of whole seconds.
pub(crate) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        minutes if minutes >= 60 => format!("{}m{}s", minutes / 60, minutes % 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_as_upstreams_do() {
        let refused = DialError::Connect {
            address: "127.0.0.1:1".to_owned(),
            why: io::Error::from(io::ErrorKind::ConnectionRefused),
        };
        assert_eq!(refused.to_string(), "dial tcp 127.0.0.1:1: connect: connection refused");
        let late =
            DialError::Connect { address: "10.0.0.1:443".to_owned(), why: io::Error::from(io::ErrorKind::TimedOut) };
        assert_eq!(late.to_string(), "dial tcp 10.0.0.1:443: i/o timeout");
        let tls = |error: rustls::Error| tls_text(&io::Error::new(io::ErrorKind::InvalidData, error));
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
        assert_eq!(tls(alert), "remote error: tls: handshake failure");
        let stranger = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
        let stranger = io::Error::new(io::ErrorKind::InvalidData, stranger);
        assert_eq!(text(&stranger), "remote error: tls: unknown certificate authority");
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert_eq!(tls(plain), "tls: first record does not look like a TLS handshake");
        assert_eq!(text(&io::Error::from(io::ErrorKind::UnexpectedEof)), "EOF");
        assert_eq!(seconds(Duration::from_secs(30)), "30s");
        assert_eq!(seconds(Duration::from_secs(90)), "1m30s");
    }
}
