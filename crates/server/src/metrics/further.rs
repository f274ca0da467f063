//! Metrics of single components of the registry: service account tokens, comparisons of objects, issued certificates,
//! addresses and ports of services.
//!
//! Names and labels are kube-apiserver's. The counts are for the whole process.

use keelson_access::GRAPH_CHANGES;
use keelson_builtin::{
    ADDRESS_ALLOCATIONS, AddressUse, AllocationScope, Allocations, ISSUED_CERTIFICATES, IssuedCertificates,
    PORT_ALLOCATIONS, address_use,
};
use keelson_http::metrics::{HistogramSample, Sample};
use keelson_meta::metering::AtomicHistogram;
use keelson_registry::{COMPARISONS, Registry, TOKEN_USES};

use super::{counter, gauge};

/// The numbers of uses of service account tokens.
pub(crate) fn token_use_samples() -> Vec<Sample> {
    vec![
        counter(
            "serviceaccount_legacy_tokens_total",
            "Uses of service account tokens that are kept in secrets",
            TOKEN_USES.automatic.get() + TOKEN_USES.manual.get(),
        ),
        counter(
            "serviceaccount_legacy_auto_token_uses_total",
            "Uses of such tokens that a controller made",
            TOKEN_USES.automatic.get(),
        ),
        counter(
            "serviceaccount_legacy_manual_token_uses_total",
            "Uses of such tokens that a user made",
            TOKEN_USES.manual.get(),
        ),
        counter(
            "serviceaccount_stale_tokens_total",
            "Uses of bound service account tokens after the time at which their program should have read a newer one",
            TOKEN_USES.stale.get(),
        ),
        counter(
            "serviceaccount_valid_tokens_total",
            "Uses of bound service account tokens before that time",
            TOKEN_USES.valid.get(),
        ),
    ]
}

/// The numbers of issued certificates whose requests asked for a duration.
pub(crate) fn issued_certificate_samples() -> Vec<Sample> {
    let all = ISSUED_CERTIFICATES.all();
    let of = |name, help, number: fn(&IssuedCertificates) -> u64| {
        all.iter().map(move |(signer, counts)| Sample {
            labels: vec![("signerName", signer.clone())],
            ..counter(name, help, number(counts))
        })
    };
    let help = "Issued certificates whose request asked for a duration, by signer";
    let requested = of("apiserver_certificates_registry_csr_requested_duration_total", help, |of| of.all.get());
    let help = "Issued certificates with the duration that their request asked for, by signer";
    let honored = of("apiserver_certificates_registry_csr_honored_duration_total", help, |of| of.honored.get());
    requested.chain(honored).collect()
}

/// The durations of comparisons that find out if a write changes more than timestamps.
pub(crate) fn comparison_times() -> Vec<HistogramSample> {
    let (name, help) = (
        "apiserver_request_timestamp_comparison_time",
        "Duration of the check that a write changes more than times of owners, in seconds, by outcome",
    );
    measured(COMPARISONS.all(), name, help, "code_path")
}

/// The durations of changes of the node authorizer's graph.
pub(crate) fn graph_times() -> Vec<HistogramSample> {
    let (name, help) = (
        "node_authorizer_graph_actions_duration_seconds",
        "Duration of changes of the graph of objects that nodes may use, in seconds, by change",
    );
    measured(GRAPH_CHANGES.all(), name, help, "operation")
}

/// The histograms that have observations, each with its value of a label.
fn measured<'h>(
    all: impl Iterator<Item = (&'static str, &'h AtomicHistogram)>,
    name: &'static str,
    help: &'static str,
    label: &'static str,
) -> Vec<HistogramSample> {
    let sample = |(value, times): (&str, &AtomicHistogram)| {
        Some(HistogramSample::sum(&[times], name, help)?.with(vec![(label, value.to_owned())]))
    };
    all.filter(|(_, times)| times.count() > 0).filter_map(sample).collect()
}

/// The addresses and node ports of services.
pub(crate) fn allocation_samples(registry: &Registry) -> Vec<Sample> {
    // A server without services has no addresses.
    let addresses = address_use(registry).unwrap_or_default();
    let of_range = |name, help, number: fn(&AddressUse) -> f64| {
        addresses.iter().map(move |of: &AddressUse| Sample {
            labels: vec![("cidr", of.range.clone())],
            value: number(of),
            ..gauge(name, help, 0)
        })
    };
    let help = "Addresses of a range that services have";
    let taken = of_range("kube_apiserver_clusterip_allocator_allocated_ips", help, |of| of.taken as f64);
    let help = "Addresses of a range that are left";
    let left = of_range("kube_apiserver_clusterip_allocator_available_ips", help, |of| of.left);
    let allocations = ADDRESS_ALLOCATIONS.all();
    let of_addresses = |name, help, number: fn(&Allocations) -> u64| {
        allocations.iter().map(move |((range, scope), counts)| Sample {
            labels: vec![("cidr", range.clone()), ("scope", scope.name().to_owned())],
            ..counter(name, help, number(counts))
        })
    };
    let help = "Addresses that were chosen for services, by range and whether the service named the address";
    let chosen = of_addresses("kube_apiserver_clusterip_allocator_allocation_total", help, |of| of.allocated.get());
    let help = "Addresses that services could not get, by range and whether the service named the address";
    let failed = of_addresses("kube_apiserver_clusterip_allocator_allocation_errors_total", help, |of| of.failed.get());
    let of_ports = |name, help, number: fn(&Allocations) -> u64| {
        AllocationScope::ALL.into_iter().zip(&PORT_ALLOCATIONS).map(move |(scope, counts)| Sample {
            labels: vec![("scope", scope.name().to_owned())],
            ..counter(name, help, number(counts))
        })
    };
    let help = "Node ports that were chosen for services, by whether the service named the port";
    let ports = of_ports("kube_apiserver_nodeport_allocator_allocation_total", help, |of| of.allocated.get());
    let help = "Node ports that services could not get, by whether the service named the port";
    let no_ports = of_ports("kube_apiserver_nodeport_allocator_allocation_errors_total", help, |of| of.failed.get());
    taken.chain(left).chain(chosen).chain(failed).chain(ports).chain(no_ports).collect()
}
