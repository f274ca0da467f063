//! Reads and validates `TracingConfiguration`, with upstream's fields and texts.
//!
//! The file names the collector of spans, and the share of requests that are recorded.

use std::io::ErrorKind;
use std::path::Path;

use keelson_access::FileError;
use keelson_meta::field_error::{self, FieldError};
use keelson_meta::go_format::quote;

use crate::document::{CONFIG_GROUP, ConfigurationError, DocumentKind};

const KIND: DocumentKind = DocumentKind {
    what: "tracing",
    kind: "TracingConfiguration",
    groups: &[CONFIG_GROUP],
    versions: &["v1", "v1beta1", "v1alpha1"],
};
/// The largest sampling rate.
const MILLION: i64 = 1_000_000;
/// The collector if the file names none.
const DEFAULT_ENDPOINT: &str = "localhost:4317";

/// The settings of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfiguration {
    /// The collector.
    pub endpoint: CollectorEndpoint,
    /// The number of requests in a million that are recorded if no trusted client decides.
    pub sampling_rate_per_million: u32,
}

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorEndpoint {
    /// A host with a port.
    Tcp(String),
    /// The path of a Unix socket. One that begins with `@` is in Linux's abstract namespace.
    Unix(String),
}

impl TracingConfiguration {
    /// Reads a file.
    ///
    /// # Errors
    /// With upstream's texts.
    pub fn load(file: &Path) -> Result<Self, ConfigurationError> {
        let read = KIND.load(file, &["endpoint", "samplingRatePerMillion"], |fields| Stated {
            endpoint: fields.optional_text("endpoint"),
            rate: fields.integer("samplingRatePerMillion"),
        });
        match read {
            Ok(stated) => stated.validated(),
            Err(error) => Err(ConfigurationError::Unusable(refusal(file, error))),
        }
    }
}

fn refusal(file: &Path, error: ConfigurationError) -> String {
    let shown = file.display();
    match error {
        ConfigurationError::File(FileError::Unreadable(_, why)) if why.kind() == ErrorKind::NotFound => {
            format!("tracing-config-file {shown} does not exist")
        }
        ConfigurationError::File(why) => {
            format!(
                "failed to read tracing config: unable to read tracing configuration from {}: {why}",
                quote(&shown.to_string())
            )
        }
        ConfigurationError::Form { fault, .. } => {
            format!("failed to read tracing config: unable to decode tracing configuration data: {fault}")
        }
        ConfigurationError::Invalid { .. } | ConfigurationError::Unusable(_) => error.to_string(),
    }
}

/// The fields of the file.
struct Stated {
    endpoint: Option<String>,
    rate: Option<i64>,
}

impl Stated {
    fn validated(self) -> Result<TracingConfiguration, ConfigurationError> {
        let mut faults = Vec::new();
        let rate = self.rate.unwrap_or_default();
        let refused = match rate {
            ..0 => Some("sampling rate must be positive"),
            0..=MILLION => None,
            _ => Some("sampling rate per million must be less than or equal to one million"),
        };
        faults.extend(refused.map(|why| FieldError::invalid("samplingRatePerMillion", rate, why)));
        let endpoint = self.endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        let parsed = CollectorEndpoint::parse(&endpoint).map_err(|fault| faults.push(fault));
        match parsed {
            Ok(endpoint) if faults.is_empty() => Ok(TracingConfiguration {
                endpoint,
                sampling_rate_per_million: u32::try_from(rate).unwrap_or_default(),
            }),
            _ => Err(ConfigurationError::Unusable(format!(
                "failed to validate tracing configuration: {}",
                field_error::join(&faults)
            ))),
        }
    }
}

impl CollectorEndpoint {
    fn parse(endpoint: &str) -> Result<Self, FieldError> {
        let (scheme, rest) = match endpoint.split_once("//") {
            Some((scheme, rest)) => (scheme.trim_end_matches(':'), rest),
            None => match endpoint.split_once(':') {
                Some((scheme @ ("unix" | "unix-abstract"), rest)) => (scheme, rest),
                _ => ("dns", endpoint),
            },
        };
        let refused = |why: String| FieldError::invalid("endpoint", endpoint, why);
        match scheme {
            // `dns://SERVER/HOST` names a name server, which the system's resolver does not use.
            "dns" => match rest.rsplit('/').next().unwrap_or_default() {
                "" => Err(refused("there is no host".to_owned())),
                host if http::uri::Authority::try_from(host).is_err() => {
                    Err(refused(format!("invalid host {}", quote(host))))
                }
                host if has_port(host) => Ok(Self::Tcp(host.to_owned())),
                host => Ok(Self::Tcp(format!("{host}:443"))),
            },
            "unix" if !rest.is_empty() => Ok(Self::Unix(rest.to_owned())),
            "unix-abstract" if !rest.is_empty() => Ok(Self::Unix(format!("@{rest}"))),
            _ => Err(refused(format!(
                "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See \
                 https://github.com/grpc/grpc/blob/master/doc/naming.md"
            ))),
        }
    }
}

fn has_port(host: &str) -> bool {
    http::uri::Authority::try_from(host).is_ok_and(|authority| authority.port_u16().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expect: Result<(CollectorEndpoint, u32), &str>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let read = TracingConfiguration::load(file.path()).map_err(|error| error.to_string());
        let read = read.map(|read| (read.endpoint, read.sampling_rate_per_million));
        assert_eq!(read, expect.map_err(str::to_owned), "{content}");
    }

    fn tracing_configuration(version: &str, rest: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/{version}\nkind: TracingConfiguration\n{rest}")
    }

    fn tcp(host: &str) -> CollectorEndpoint {
        CollectorEndpoint::Tcp(host.to_owned())
    }

    fn unix(path: &str) -> CollectorEndpoint {
        CollectorEndpoint::Unix(path.to_owned())
    }

    #[test]
    fn every_version_and_form_of_endpoint_is_read() {
        for version in ["v1", "v1beta1", "v1alpha1"] {
            check(&tracing_configuration(version, ""), Ok((tcp("localhost:4317"), 0)));
        }
        check(
            &tracing_configuration("v1", "endpoint: a.example:1\nsamplingRatePerMillion: 1000000\n"),
            Ok((tcp("a.example:1"), 1_000_000)),
        );
        check(&tracing_configuration("v1", "endpoint: dns://8.8.8.8/a.example:1\n"), Ok((tcp("a.example:1"), 0)));
        check(&tracing_configuration("v1", "endpoint: dns:///[::1]:4317\n"), Ok((tcp("[::1]:4317"), 0)));
        check(&tracing_configuration("v1", "endpoint: unix:///run/otel.sock\n"), Ok((unix("/run/otel.sock"), 0)));
        check(&tracing_configuration("v1", "endpoint: unix-abstract://otel\n"), Ok((unix("@otel"), 0)));
    }

    #[test]
    fn faults_have_upstreams_texts() {
        let undecoded = "failed to read tracing config: unable to decode tracing configuration data: ";
        check(
            "kind: Other\napiVersion: v1\n",
            Err(&format!("{undecoded}no kind \"Other\" is registered for version \"v1\"")),
        );
        check(
            &tracing_configuration("v1", "rate: 1\n"),
            Err(&format!("{undecoded}strict decoding error: unknown field \"rate\"")),
        );
        check(
            &tracing_configuration("v1", "samplingRatePerMillion: x\n"),
            Err(&format!(
                "{undecoded}strict decoding error: field \"samplingRatePerMillion\" must be of type integer, not string"
            )),
        );
        let invalid = "failed to validate tracing configuration: ";
        check(
            &tracing_configuration("v1", "samplingRatePerMillion: -1\n"),
            Err(&format!("{invalid}samplingRatePerMillion: Invalid value: -1: sampling rate must be positive")),
        );
        check(
            &tracing_configuration("v1", "samplingRatePerMillion: 1000001\nendpoint: https://a:1\n"),
            Err(&format!(
                "{invalid}[samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one \
                 million, endpoint: Invalid value: \"https://a:1\": unsupported scheme: https.  Options are none, dns, unix, or \
                 unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md]"
            )),
        );
        let missing = TracingConfiguration::load(Path::new("/nowhere/x")).unwrap_err();
        assert_eq!(missing.to_string(), "tracing-config-file /nowhere/x does not exist");
    }
}
