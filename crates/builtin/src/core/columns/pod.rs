//! The columns of pods. The status of a pod is computed from the states of its containers, in the order in which they
//! start.
//!
//! The text is upstream's, which `kubectl` users know: a reason if there is one, else the phase.

use std::borrow::Cow;
use std::time::SystemTime;

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::{Printer, RowCondition};
use keelson_tables::text::ratio;

use crate::core::column_docs as docs;

/// The reason of a pod whose node does not respond.
const NODE_LOST: &str = "NodeLost";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

pub(super) const POD: Printer = Printer::marked(COLUMNS, pod, finished);

const COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    Column::text("Status", "The aggregate status of the containers in this pod."),
    Column::text("Restarts", docs::POD_RESTARTS),
    AGE,
    Column::text("IP", docs::POD_IP).wide(),
    Column::text("Node", docs::POD_NODE).wide(),
    Column::text("Nominated Node", docs::POD_NOMINATED_NODE).wide(),
    Column::text("Readiness Gates", docs::POD_READINESS_GATES).wide(),
];

fn pod(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let state = PodState::new(&of);
    let all =
        spec.at("containers").len() + spec.at("initContainers").items().filter(|init| restarts_always(*init)).count();
    vec![
        of.name(),
        ratio(state.ready, i64::try_from(all).unwrap_or(i64::MAX)),
        state.reason.into(),
        state.restarts.cell(&of),
        of.age(),
        status.at("podIPs").nth(0).at("ip").or(status.at("podIP")).cell_unless_empty("<none>"),
        spec.at("nodeName").cell_unless_empty("<none>"),
        status.at("nominatedNodeName").cell_unless_empty("<none>"),
        readiness_gates(spec, status),
    ]
}

/// Row conditions for pods that have finished.
fn finished(pod: Subject<'_>) -> &'static [RowCondition] {
    const fn completed(reason: &'static str, message: &'static str) -> RowCondition {
        RowCondition { kind: "Completed", status: "True", reason, message }
    }
    const DONE: &[RowCondition] = &[completed(SUCCEEDED, "The pod has completed successfully.")];
    const BROKEN: &[RowCondition] = &[completed(FAILED, "The pod failed.")];
    match pod.at("status").at("phase").text() {
        SUCCEEDED => DONE,
        FAILED => BROKEN,
        _ => &[],
    }
}

/// The number of readiness gates that are true.
fn readiness_gates(spec: FieldValue<'_>, status: FieldValue<'_>) -> Value {
    let gates = spec.at("readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = |gate: &FieldValue<'_>| status.at("conditions").condition(gate.at("conditionType").text()).holds();
    format!("{}/{}", gates.items().filter(open).count(), gates.len()).into()
}

/// Returns true for a sidecar: an init container that keeps running beside the others.
fn restarts_always(container: FieldValue<'_>) -> bool {
    container.at("restartPolicy").text() == "Always"
}

/// The computed state of a pod.
struct PodState<'a> {
    reason: Cow<'a, str>,
    ready: i64,
    restarts: Restarts,
}

impl<'a> PodState<'a> {
    fn new(pod: &Subject<'a>) -> Self {
        let status = pod.at("status");
        let mut state = Self { reason: pod_reason(status).into(), ready: 0, restarts: Restarts::default() };
        let sidecars = state.add_init_containers(pod.at("spec"), status);
        match sidecars {
            // The pod is still initializing, so the state of the init containers is shown.
            Init::Waiting(_) if !status.at("conditions").condition("Initialized").holds() => {}
            Init::Waiting(sidecars) | Init::Done(sidecars) => {
                state.restarts = sidecars;
                state.add_containers(status);
            }
        }
        state.consider_deletion(pod);
        state
    }

    /// Checks the init containers, up to the first one that has not finished.
    fn add_init_containers(&mut self, spec: FieldValue<'a>, status: FieldValue<'a>) -> Init {
        let declared = spec.at("initContainers");
        let mut sidecars = Restarts::default();
        for (place, container) in status.at("initContainerStatuses").items().enumerate() {
            self.restarts.add(container);
            let name = container.at("name").text();
            let sidecar = declared.items().any(|init| init.at("name").text() == name && restarts_always(init));
            if sidecar {
                sidecars.add(container);
            }
            let state = container.at("state");
            let terminated = state.at("terminated");
            if terminated.is_set() && terminated.at("exitCode").int() == 0 {
                continue;
            }
            if sidecar && container.at("started").flag() {
                self.ready += i64::from(container.at("ready").flag());
                continue;
            }
            let waiting = state.at("waiting").at("reason").text();
            self.reason = if terminated.is_set() {
                format!("Init:{}", end_reason(terminated)).into()
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}").into()
            } else {
                format!("Init:{place}/{}", declared.len()).into()
            };
            return Init::Waiting(sidecars);
        }
        Init::Done(sidecars)
    }

    /// The first container with a reason determines the reason of the pod, so containers are checked in reverse order.
    fn add_containers(&mut self, status: FieldValue<'a>) {
        let mut any_running = false;
        for container in status.at("containerStatuses").items().rev() {
            self.restarts.add(container);
            let state = container.at("state");
            let (waiting, terminated) = (state.at("waiting").at("reason").text(), state.at("terminated"));
            if !waiting.is_empty() {
                self.reason = waiting.into();
            } else if terminated.is_set() {
                self.reason = end_reason(terminated);
            } else if container.at("ready").flag() && state.at("running").is_set() {
                any_running = true;
                self.ready += 1;
            }
        }
        // One container has completed, but another one still runs.
        if self.reason == "Completed" && any_running {
            let ready = status.at("conditions").items().any(|c| c.at("type").text() == "Ready" && c.holds());
            self.reason = if ready { "Running" } else { "NotReady" }.into();
        }
    }

    fn consider_deletion(&mut self, of: &Subject<'_>) {
        let status = of.at("status");
        if !of.deleting() {
            return;
        }
        if status.at("reason").text() == NODE_LOST {
            self.reason = "Unknown".into();
        } else if ![SUCCEEDED, FAILED].contains(&status.at("phase").text()) {
            self.reason = "Terminating".into();
        }
    }
}

/// The progress of the init containers.
enum Init {
    Waiting(Restarts),
    Done(Restarts),
}

/// The reason of the pod itself, before its containers are checked.
fn pod_reason(status: FieldValue<'_>) -> &str {
    let mut conditions = status.at("conditions").items();
    let gated = "SchedulingGated";
    if conditions.any(|c| c.at("type").text() == "PodScheduled" && c.at("reason").text() == gated) {
        return gated;
    }
    status.at("reason").or(status.at("phase")).text()
}

/// The reason why a container terminated, or its signal or exit code.
fn end_reason(terminated: FieldValue<'_>) -> Cow<'_, str> {
    let reason = terminated.at("reason").text();
    if !reason.is_empty() {
        return reason.into();
    }
    match terminated.at("signal").int() {
        0 => format!("ExitCode:{}", terminated.at("exitCode").int()).into(),
        signal => format!("Signal:{signal}").into(),
    }
}

/// The number of restarts, and the time of the last one.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<SystemTime>,
}

impl Restarts {
    fn add(&mut self, container: FieldValue<'_>) {
        self.count += container.at("restartCount").int();
        self.last = self.last.max(container.at("lastState").at("terminated").at("finishedAt").time());
    }

    /// `0`, or `3 (5m ago)`.
    fn cell(&self, of: &Subject<'_>) -> Value {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, keelson_tables::age::age(Some(last), of.now)).into()
            }
            _ => self.count.to_string().into(),
        }
    }
}
