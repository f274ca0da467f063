//! Counts one request, from its head to the end of its response.
//!
//! The observation lives until the response is sent. A stream is therefore counted while it runs, and is also recorded
//! if its client disconnects. Only names of served resources become label values, which bounds the number of series.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, USER_AGENT};
use http::request::Parts;
use keelson_registry::Target;
use keelson_resources::Verb;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tracing::Span;

use super::Metrics;
use super::filter_times::{FieldValidation, FilterTimes};
use super::further::WatchMeter;
use super::requests::{RequestLabels, Series};
use crate::body::BodyMeter;
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
    /// The names of a request's target.
    pub fn of_target(target: &'a Target) -> Self {
        Self {
            group: &target.resource.group,
            version: &target.version.name,
            resource: &target.resource.plural,
            subresource: target.subresource_name().unwrap_or_default(),
        }
    }
}

/// A request in flight. Dropping it counts the request as ended. If no status code was set by then, the client
/// disconnected before the response, and only the gauges are decremented.
#[derive(Debug)]
pub struct Observation {
    series: Arc<Series>,
    filter_times: Arc<FilterTimes>,
    field_validation: FieldValidation,
    /// The number of such requests in flight.
    in_flight: Gauge,
    started: Instant,
    system_client: &'static str,
    code: Option<StatusCode>,
    /// The time that the request waited for seats and webhooks.
    waited: Duration,
    /// The bytes of the response that were sent.
    sent: u64,
    /// The span of the request, which ends with the response.
    span: Span,
}

impl Observation {
    /// Begins to count a request. `served` is `None` if the path names no served resource.
    pub fn begin(metrics: &Metrics, info: &RequestInfo, parts: &Parts, served: Option<ResourceNames<'_>>) -> Self {
        let ResourceNames { group, version, resource, subresource } = served.unwrap_or_default();
        let (verb, dry_run, scope) = (verb(info), dry_run(parts), scope(info));
        let labels = RequestLabels { verb, dry_run, group, version, resource, subresource, scope };
        let series = metrics.requests.series(labels, info.is_long_running());
        let in_flight = match series.running() {
            Some(running) => running,
            None if info.verb.is_read() => &metrics.reading,
            None => &metrics.writing,
        };
        in_flight.inc();
        let in_flight = in_flight.clone();
        let system_client = system_client(&parts.headers);
        series.further.received(&parts.headers);
        Self {
            series,
            filter_times: metrics.filter_times.clone(),
            field_validation: FieldValidation::from_query(parts.uri.query().unwrap_or_default()),
            in_flight,
            started: Instant::now(),
            system_client,
            code: None,
            waited: Duration::ZERO,
            sent: 0,
            span: Span::none(),
        }
    }

    /// Keeps the span of the request until the response is sent.
    pub fn traced(&mut self, span: &Span) {
        self.span = span.clone();
    }

    /// Adds a time that the request waited for seats or webhooks.
    pub fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Counts the request as one that the server ended to protect itself.
    pub fn terminated(&self, code: StatusCode) {
        self.series.further.terminated(code);
    }

    /// The meter for events, if the request is a watch.
    pub(crate) fn watch_meter(&self) -> Option<WatchMeter> {
        self.series.further.watch_meter(self.started)
    }

    /// Sets the status code of the response.
    pub fn answered(&mut self, code: StatusCode) {
        self.code = Some(code);
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.in_flight.dec();
        if let Some(code) = self.code {
            let took = self.started.elapsed();
            self.series.answered(code, self.system_client, took);
            self.series.further.answered(took.saturating_sub(self.waited), self.sent);
            if self.series.running().is_none() {
                self.filter_times.note_request(self.field_validation, took);
            }
        }
    }
}

impl BodyMeter for Observation {
    fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    fn broken_off(&mut self) {
        self.span.record("error", "the response was broken off");
        self.series.further.aborted();
    }
}

/// The verb label of upstream's metrics: the method, but lists and watches have verbs of their own.
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

/// The value of the parameter `dryRun`.
fn dry_run(parts: &Parts) -> &'static str {
    // Checked first, since few requests have the parameter.
    let query = parts.uri.query().filter(|query| query.contains("dryRun")).unwrap_or_default();
    let mut dry_runs = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "dryRun");
    match dry_runs.next() {
        None => "",
        Some((_, value)) if value == "All" && dry_runs.all(|(_, value)| value == "All") => "All",
        Some(_) => "invalid",
    }
}

/// The system component that sent a request, by its `User-Agent`.
fn system_client(headers: &HeaderMap) -> &'static str {
    const PARTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let program = agent.split_once('/').map_or("", |(program, _)| program);
    PARTS.into_iter().find(|part| *part == program).unwrap_or_default()
}

/// The scope of a request: one object, a namespace, the cluster, or empty.
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
    use http::{Method, Request};

    const PODS: ResourceNames<'_> = ResourceNames { group: "", version: "v1", resource: "pods", subresource: "" };

    fn begin(
        metrics: &Arc<Metrics>,
        (method, target, agent): (Method, &str, &str),
        served: Option<ResourceNames<'_>>,
    ) -> Observation {
        let request = Request::builder().method(method).uri(target).header("user-agent", agent);
        let parts = request.body(()).unwrap().into_parts().0;
        Observation::begin(metrics, &RequestInfo::parse(&parts.method, &parts.uri), &parts, served)
    }

    fn observe(metrics: &Arc<Metrics>, target: &str, served: Option<ResourceNames<'_>>, code: StatusCode) {
        begin(metrics, (Method::GET, target, "kubectl/v1"), served).answered(code);
    }

    #[test]
    fn metric_families_have_upstream_names() {
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
        let path = "/api/v1/namespaces/a/pods?dryRun=All";
        begin(&metrics, (Method::POST, path, "kube-scheduler/v1 (linux)"), Some(PODS)).answered(StatusCode::CREATED);
        let text = metrics.classic().unwrap();
        for line in [
            "# TYPE apiserver_request_total counter",
            r#"apiserver_request_total{verb="LIST",group="",version="v1",resource="pods",subresource="",scope="namespace",component="apiserver",dry_run="",system_client="",code="410"} 1"#,
            r#"apiserver_request_total{verb="POST",group="",version="v1",resource="pods",subresource="",scope="resource",component="apiserver",dry_run="All",system_client="kube-scheduler",code="201"} 1"#,
            r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#,
            r#"apiserver_request_duration_seconds_count{verb="LIST",group="",version="v1",resource="pods",subresource="",scope="namespace",component="apiserver",dry_run=""} 1"#,
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
    fn unserved_resources_are_removed() {
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

    #[tokio::test(start_paused = true)]
    async fn series_are_dropped_after_their_resources_without_a_scrape() {
        let metrics = Arc::new(Metrics::new());
        metrics.serve(|_, _, resource| resource == "pods");
        let (generation, changes) = tokio::sync::watch::channel(0);
        let following = tokio::spawn(metrics.clone().follow(changes));
        observe(&metrics, "/api/v1/gone", Some(ResourceNames { resource: "gone", ..PODS }), StatusCode::OK);
        observe(&metrics, "/api/v1/pods", Some(PODS), StatusCode::OK);
        assert_eq!(metrics.requests.len(), 2);
        generation.send(1).unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(metrics.requests.len(), 1);
        drop(generation);
        following.await.unwrap();
    }

    #[test]
    fn sizes_cuts_and_the_servers_own_time_are_counted() {
        let metrics = Arc::new(Metrics::new());
        metrics.deprecate(|_, _, resource| {
            (resource == "pods").then(|| "v1 Pod is deprecated in v1.30+, unavailable in v1.40+".to_owned())
        });
        let list = (Method::GET, "/api/v1/pods", "kubectl/v1");
        let mut observation = begin(&metrics, list.clone(), Some(PODS));
        observation.answered(StatusCode::OK);
        observation.sent(900);
        observation.sent(200);
        observation.broken_off();
        observation.waited(Duration::from_secs(3600));
        drop(observation);
        let mut refused = begin(&metrics, list, Some(PODS));
        refused.terminated(StatusCode::TOO_MANY_REQUESTS);
        refused.answered(StatusCode::TOO_MANY_REQUESTS);
        drop(refused);
        let watch = begin(&metrics, (Method::GET, "/api/v1/pods?watch=1", "kubectl/v1"), Some(PODS));
        watch.watch_meter().expect("a meter").sent(3000);
        let text = metrics.classic().unwrap();
        let labels = r#"group="",version="v1",resource="pods",subresource="""#;
        for line in [
            format!(
                r#"apiserver_response_sizes_bucket{{le="1000",verb="LIST",{labels},scope="cluster",component="apiserver"}} 1"#
            ),
            format!(
                r#"apiserver_response_sizes_sum{{verb="LIST",{labels},scope="cluster",component="apiserver"}} 1100.0"#
            ),
            format!(
                r#"apiserver_request_sli_duration_seconds_bucket{{le="0.05",verb="LIST",{labels},scope="cluster",component="apiserver"}} 2"#
            ),
            format!(
                r#"apiserver_request_terminations_total{{verb="LIST",{labels},scope="cluster",component="apiserver",code="429"}} 1"#
            ),
            format!(
                r#"apiserver_request_aborts_total{{verb="LIST",{labels},scope="cluster",component="apiserver"}} 1"#
            ),
            format!(r#"apiserver_requested_deprecated_apis{{{labels},removed_release="1.40"}} 1"#),
            r#"apiserver_watch_events_total{group="",version="v1",resource="pods"} 1"#.to_owned(),
            r#"apiserver_watch_events_sizes_bucket{le="4096",group="",version="v1",resource="pods"} 1"#.to_owned(),
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_watch_counts_as_long_running_while_it_lasts() {
        let metrics = Arc::new(Metrics::new());
        let line = |count: u8| {
            format!(
                r#"apiserver_longrunning_requests{{verb="WATCH",group="",version="v1",resource="pods",subresource="",scope="cluster",component="apiserver"}} {count}"#
            )
        };
        let observation = begin(&metrics, (Method::GET, "/api/v1/pods?watch=1", ""), Some(PODS));
        assert!(metrics.classic().unwrap().contains(&line(1)));
        let with_dry_run = begin(&metrics, (Method::GET, "/api/v1/pods?watch=1&dryRun=All", ""), Some(PODS));
        assert!(metrics.classic().unwrap().contains(&line(2)), "both are in one series");
        drop((observation, with_dry_run));
        assert!(metrics.classic().unwrap().contains(&line(0)));
    }
}
