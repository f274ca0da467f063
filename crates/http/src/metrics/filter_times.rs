//! Durations of the filters before a handler, and of requests by their level of field validation.
//!
//! Names, labels and buckets are kube-apiserver's. A duration that another metric needs too is measured only once.

use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets};

use super::source::HistogramSample;

/// From a tenth of a millisecond to half a minute.
static FILTER_BUCKETS: Buckets = Buckets::of_durations(&[
    100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 5_000_000, 10_000_000, 15_000_000, 30_000_000,
]);
/// From 50 ms to a minute.
static REQUEST_BUCKETS: Buckets = Buckets::of_durations(&[
    50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_250_000, 1_500_000, 2_000_000, 3_000_000,
    4_000_000, 5_000_000, 6_000_000, 8_000_000, 10_000_000, 15_000_000, 20_000_000, 30_000_000, 45_000_000, 60_000_000,
]);

/// A filter that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Authentication,
    Audit,
    Impersonation,
    Authorization,
    PriorityAndFairness,
}

impl Filter {
    const ALL: [Self; 5] =
        [Self::Authentication, Self::Audit, Self::Impersonation, Self::Authorization, Self::PriorityAndFairness];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Audit => "audit",
            Self::Impersonation => "impersonation",
            Self::Authorization => "authorization",
            Self::PriorityAndFairness => "priorityandfairness",
        }
    }
}

/// The field validation that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    None,
    Ignore,
    Warn,
    Strict,
    Invalid,
}

impl FieldValidation {
    const ALL: [Self; 5] = [Self::None, Self::Ignore, Self::Warn, Self::Strict, Self::Invalid];

    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
            Self::Invalid => "invalid",
        }
    }

    /// The level in a query.
    pub(super) fn from_query(query: &str) -> Self {
        // Checked first, since few requests have the parameter.
        if !query.contains("fieldValidation") {
            return Self::None;
        }
        let mut stated = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "fieldValidation");
        match (stated.next(), stated.next()) {
            (None, _) => Self::None,
            (Some((_, value)), None) => {
                Self::ALL[1..4].iter().find(|known| known.as_str() == value).copied().unwrap_or(Self::Invalid)
            }
            (Some(_), Some(_)) => Self::Invalid,
        }
    }
}

/// The durations of a server.
#[derive(Debug)]
pub(crate) struct FilterTimes {
    filters: [AtomicHistogram; Filter::ALL.len()],
    requests: [AtomicHistogram; FieldValidation::ALL.len()],
}

impl Default for FilterTimes {
    fn default() -> Self {
        Self {
            filters: Filter::ALL.map(|_| AtomicHistogram::new(&FILTER_BUCKETS)),
            requests: FieldValidation::ALL.map(|_| AtomicHistogram::new(&REQUEST_BUCKETS)),
        }
    }
}

impl FilterTimes {
    /// Records the duration of a filter.
    pub(crate) fn note(&self, filter: Filter, took: Duration) {
        self.filters[filter as usize].observe_duration(took);
    }

    /// Records the duration of a request.
    pub(super) fn note_request(&self, validation: FieldValidation, took: Duration) {
        self.requests[validation as usize].observe_duration(took);
    }

    pub(super) fn histograms(&self) -> Vec<HistogramSample> {
        let name = "apiserver_request_filter_duration_seconds";
        let help = "Duration of a filter of a request, in seconds, by filter";
        let filters = Filter::ALL.into_iter().zip(&self.filters).filter_map(|(filter, times)| {
            let labels = vec![("filter", filter.as_str().to_owned())];
            Some(HistogramSample::sum(&[times], name, help)?.with(labels))
        });
        let name = "field_validation_request_duration_seconds";
        let help = "Duration of requests, in seconds, by their level of field validation";
        let requests = FieldValidation::ALL.into_iter().zip(&self.requests).filter_map(|(validation, times)| {
            let labels = vec![("field_validation", validation.as_str().to_owned())];
            Some(HistogramSample::sum(&[times], name, help)?.with(labels))
        });
        filters.chain(requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_validation_that_a_query_requests_is_read_as_upstream_reads_it() {
        for (query, expected) in [
            ("", FieldValidation::None),
            ("a=fieldValidation", FieldValidation::None),
            ("fieldValidation=Strict", FieldValidation::Strict),
            ("x=y&fieldValidation=Warn", FieldValidation::Warn),
            ("fieldValidation=Ignore", FieldValidation::Ignore),
            ("fieldValidation=", FieldValidation::Invalid),
            ("fieldValidation=strict", FieldValidation::Invalid),
            ("fieldValidation=Warn&fieldValidation=Warn", FieldValidation::Invalid),
        ] {
            assert_eq!(FieldValidation::from_query(query), expected, "{query}");
        }
    }
}
