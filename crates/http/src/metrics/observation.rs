//! Counting one request, from its head to the end of its answer.
//!
//! It lives as long as the answer is sent, so that a stream counts while it runs, and is counted also where its client goes
//! away. Only names of served resources become labels, which bounds the number of series.

use std::sync::Arc;

use http::StatusCode;
use keelson_registry::Target;
use keelson_resources::Verb;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::Metrics;
use super::requests::{RequestLabels, Series};
use crate::request_info::{RequestInfo, RequestVerb};

/// The names of a resource that is served. Only these become label values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceNames<'a> {
    /// The group, empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
}

impl<'a> ResourceNames<'a> {
    /// The names of what a request is for.
    pub fn of(target: &'a Target) -> Self {
        Self {
            group: &target.resource.group,
            version: &target.version.name,
            resource: &target.resource.plural,
            subresource: target.subresource_name().unwrap_or_default(),
        }
    }
}

/// A request that is being answered. Counted as done when dropped; if no code was set by then, the client went away before
/// there was an answer, and only the gauges are set back.
#[derive(Debug)]
pub struct Observation {
    series: Arc<Series>,
    /// How many like it there are now.
    in_flight: Gauge,
    started: Instant,
    code: Option<StatusCode>,
}

impl Observation {
    /// Begins to count a request. `served` is `None` when the path names no resource that is served.
    pub fn begin(metrics: &Metrics, info: &RequestInfo, served: Option<ResourceNames<'_>>) -> Self {
        let ResourceNames { group, version, resource, subresource } = served.unwrap_or_default();
        let labels = RequestLabels { verb: verb(info), group, version, resource, subresource, scope: scope(info) };
        let series = metrics.requests.series(labels, info.is_long_running());
        let in_flight = match series.running() {
            Some(running) => running,
            None if info.verb.is_read() => &metrics.reading,
            None => &metrics.writing,
        };
        in_flight.inc();
        let in_flight = in_flight.clone();
        Self { series, in_flight, started: Instant::now(), code: None }
    }

    /// Notes the code of the answer.
    pub fn answered(&mut self, code: StatusCode) {
        self.code = Some(code);
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.in_flight.dec();
        if let Some(code) = self.code {
            self.series.answered(code, self.started.elapsed());
        }
    }
}

/// The verb in the words of the field's dashboards: methods, with lists and watches told apart.
fn verb(info: &RequestInfo) -> &'static str {
    match &info.verb {
        RequestVerb::Resource(verb) => match verb {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        },
        RequestVerb::Other(method) => match &**method {
            "get" => "GET",
            "head" => "HEAD",
            "post" => "POST",
            "put" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "options" => "OPTIONS",
            _ => "OTHER",
        },
    }
}

/// What a request reaches: one object, a namespace, the cluster, or nothing of these.
fn scope(info: &RequestInfo) -> &'static str {
    match info {
        RequestInfo { is_resource_request: false, .. } => "",
        RequestInfo { name: Some(_), .. } | RequestInfo { verb: RequestVerb::Resource(Verb::Create), .. } => "resource",
        RequestInfo { namespace: Some(_), .. } => "namespace",
        RequestInfo { .. } => "cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MetricKind, Sample};
    use super::*;
    use http::Method;

    const PODS: ResourceNames<'_> = ResourceNames { group: "", version: "v1", resource: "pods", subresource: "" };

    fn observe(metrics: &Arc<Metrics>, target: &str, served: Option<ResourceNames<'_>>, code: StatusCode) {
        let info = RequestInfo::parse(&Method::GET, &target.parse().unwrap());
        let mut observation = Observation::begin(metrics, &info, served);
        observation.answered(code);
    }

    #[test]
    fn names_come_out_as_the_field_has_them() {
        let metrics = Arc::new(Metrics::new());
        metrics.add_source(|| {
            let labels = vec![("resource", "pods".to_owned())];
            let objects = Sample {
                name: "apiserver_storage_objects",
                help: "Objects",
                kind: MetricKind::Gauge,
                labels,
                value: 7.0,
            };
            let lists = Sample {
                name: "keelson_lists_total",
                help: "L",
                kind: MetricKind::Counter,
                labels: vec![],
                value: 3.0,
            };
            vec![objects, lists]
        });
        observe(&metrics, "/api/v1/namespaces/a/pods", Some(PODS), StatusCode::GONE);
        let text = metrics.classic().unwrap();
        for line in [
            "# TYPE apiserver_request_total counter",
            r#"apiserver_request_total{verb="LIST",group="",version="v1",resource="pods",subresource="",scope="namespace",code="410"} 1"#,
            r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#,
            r#"apiserver_request_duration_seconds_count{verb="LIST",group="",version="v1",resource="pods",subresource="",scope="namespace"} 1"#,
            r#"apiserver_storage_objects{resource="pods"} 7.0"#,
            "keelson_lists_total 3.0",
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn names_that_clients_make_up_never_become_labels() {
        let metrics = Arc::new(Metrics::new());
        observe(&metrics, "/api/v1/concocted", None, StatusCode::NOT_FOUND);
        observe(&metrics, "/concocted/name", None, StatusCode::NOT_FOUND);
        assert!(!metrics.classic().unwrap().contains("concocted"));
    }

    #[test]
    fn what_is_served_no_more_is_forgotten() {
        let metrics = Arc::new(Metrics::new());
        metrics.serve(|_, version, resource| (version, resource) == ("v1", "pods"));
        for number in 0..3_000 {
            let resource = format!("gone{number}");
            let gone = ResourceNames { resource: &resource, ..PODS };
            observe(&metrics, "/api/v1/gone", Some(gone), StatusCode::OK);
            assert!(metrics.requests.len() <= 1_002, "nobody looks, and they do not add up");
        }
        observe(&metrics, "/api/v1/pods", Some(PODS), StatusCode::OK);
        observe(&metrics, "/elsewhere", None, StatusCode::NOT_FOUND);
        let text = metrics.classic().unwrap();
        assert!(text.contains(r#"resource="pods""#) && text.contains(r#"resource="""#) && !text.contains("gone"));
    }

    #[test]
    fn a_watch_counts_as_long_running_while_it_lasts() {
        let metrics = Arc::new(Metrics::new());
        let info = RequestInfo::parse(&Method::GET, &"/api/v1/pods?watch=1".parse().unwrap());
        let line = |count: u8| {
            format!(
                r#"apiserver_longrunning_requests{{verb="WATCH",group="",version="v1",resource="pods",subresource="",scope="cluster"}} {count}"#
            )
        };
        let observation = Observation::begin(&metrics, &info, Some(PODS));
        assert!(metrics.classic().unwrap().contains(&line(1)));
        drop(observation);
        assert!(metrics.classic().unwrap().contains(&line(0)));
    }
}
