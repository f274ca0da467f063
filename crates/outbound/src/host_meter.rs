//! Metrics of this server's requests to one host, and of certificates refused for faults that older clients accepted.
//!
//! A meter exists while a client of the host exists, which bounds the number of series.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keelson_meta::metering::{AtomicHistogram, Buckets, Count};
use parking_lot::Mutex;

/// Upper bounds of the duration buckets, in microseconds: those of Kubernetes' client.
static TIME_BUCKETS: Buckets = Buckets::of_durations(&[
    5_000, 25_000, 100_000, 250_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 15_000_000, 30_000_000,
    60_000_000,
]);
/// Upper bounds of the size buckets, in bytes: those of Kubernetes' client.
static SIZE_BUCKETS: Buckets =
    Buckets::of_sizes(&[64, 256, 512, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216]);
/// The code of requests without a response.
pub const NO_RESPONSE: u16 = 0;

/// The counts of the requests to one host, by method.
#[derive(Debug, Default)]
pub struct HostMeter(Mutex<Vec<(Method, Arc<MethodMeter>)>>);

/// The counts of the requests of one method to one host.
#[derive(Debug)]
pub struct MethodMeter {
    /// The times from a request to the end of its response.
    pub times: AtomicHistogram,
    /// The sizes of requests.
    pub request_sizes: AtomicHistogram,
    /// The sizes of responses.
    pub response_sizes: AtomicHistogram,
    /// The responses by code; [`NO_RESPONSE`] for none.
    codes: Mutex<Vec<(u16, u64)>>,
    /// The repeats by the code of the response before them.
    repeats: Mutex<Vec<(u16, u64)>>,
}

impl HostMeter {
    pub(crate) fn for_method(&self, method: &Method) -> Arc<MethodMeter> {
        let mut methods = self.0.lock();
        if let Some((_, known)) = methods.iter().find(|(known, _)| known == method) {
            return known.clone();
        }
        let meter = Arc::new(MethodMeter {
            times: AtomicHistogram::new(&TIME_BUCKETS),
            request_sizes: AtomicHistogram::new(&SIZE_BUCKETS),
            response_sizes: AtomicHistogram::new(&SIZE_BUCKETS),
            codes: Mutex::default(),
            repeats: Mutex::default(),
        });
        methods.push((method.clone(), meter.clone()));
        meter
    }

    /// The counts by method.
    pub fn methods(&self) -> Vec<(Method, Arc<MethodMeter>)> {
        self.0.lock().clone()
    }
}

impl MethodMeter {
    /// Counts a request, with the code and bytes of its response if it has one.
    pub(crate) fn note(&self, request_bytes: usize, response: Option<(u16, usize)>, took: Duration) {
        self.times.observe_duration(took);
        self.request_sizes.observe(request_bytes as u64);
        if let Some((_, bytes)) = response {
            self.response_sizes.observe(bytes as u64);
        }
        add(&self.codes, response.map_or(NO_RESPONSE, |(code, _)| code));
    }

    /// Counts a repeat after a response with this code.
    pub(crate) fn repeated(&self, code: u16) {
        add(&self.repeats, code);
    }

    /// The responses by code.
    pub fn codes(&self) -> Vec<(u16, u64)> {
        self.codes.lock().clone()
    }

    /// The repeats by the code of the response before them.
    pub fn repeats(&self) -> Vec<(u16, u64)> {
        self.repeats.lock().clone()
    }
}

/// Adds one to a code's count. The list is short, since a host returns few different codes.
fn add(counts: &Mutex<Vec<(u16, u64)>>, code: u16) {
    let mut counts = counts.lock();
    match counts.iter_mut().find(|(known, _)| *known == code) {
        Some((_, count)) => *count += 1,
        None => counts.push((code, 1)),
    }
}

/// The number of certificates refused for faults that older clients accepted.
#[derive(Debug, Default)]
pub struct CertificateFaults {
    /// Certificates signed with SHA-1.
    pub insecure_sha1: Count,
    /// Certificates with a common name and no subject alternative name.
    pub missing_san: Count,
}
