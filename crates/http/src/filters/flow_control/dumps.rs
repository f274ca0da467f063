//! The debug tables of upstream's flow control: current levels, queues and requests, for operators.
//!
//! Requests are authorized before: the `nonResourceURLs` of a role must name these paths.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{Response, StatusCode};
use keelson_fairness::{Distinguisher, LevelKind, QueueState};
use keelson_meta::clock::rfc3339;

use super::FlowControl;
use super::level::{RequestSummary, State};
use super::numbers::Rejection;
use crate::body::ResponseBody;
use crate::request_info::RequestInfo;
use crate::respond;

/// The beginning of the paths. Their requests are long work.
pub(super) const PATH: &str = "/debug/api_priority_and_fairness/dump_";
/// The parameter for the details of requests.
const DETAILS: &str = "includeRequestDetails";
/// The most rows of a table.
const MOST_ROWS: usize = 100_000;
/// The least width of a column.
const LEAST_WIDTH: usize = 8;
/// The start time that upstream shows for a waiting request.
const NEVER: &str = "0001-01-01T00:00:00Z";

const LEVELS: [&str; 10] = [
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
];
const QUEUES: [&str; 9] = [
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
];
/// The spelling of each column is upstream's, with its mistakes.
const REQUESTS: [&str; 10] = [
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
    "StartTime",
];
const REQUEST_DETAILS: [&str; 8] =
    ["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"];

/// The response for a path of one of the tables. `None` for another path, or without priority and fairness.
pub(in crate::filters) fn answer(control: &FlowControl, path: &str, parts: &Parts) -> Option<Response<ResponseBody>> {
    let table = path.strip_prefix(PATH).filter(|_| control.is_fair())?;
    let rows = match table {
        "priority_levels" => levels(control),
        "queues" => queues(control),
        "requests" => {
            let query = parts.uri.query().unwrap_or_default();
            let has_details =
                form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == DETAILS && !value.is_empty());
            requests(control, has_details)
        }
        _ => return None,
    };
    Some(respond::text(StatusCode::OK, text(&rows)))
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn levels(control: &FlowControl) -> Vec<Vec<String>> {
    let mut rows = vec![heads(&LEVELS)];
    for level in control.levels().iter().take(MOST_ROWS) {
        let state = level.lock();
        let totals = state.queues.totals();
        let rejected = |reasons: &[Rejection]| -> u64 {
            state.flows().flat_map(|(_, numbers)| reasons.iter().map(|why| numbers.rejected(*why))).sum()
        };
        let all = Rejection::ALL.map(|(why, _)| why);
        let dispatched: u64 = state.flows().map(|(_, numbers)| numbers.dispatched).sum();
        rows.push(vec![
            level.name.clone(),
            state.queues.queues().iter().filter(|queue| queue.waiting > 0).count().to_string(),
            state.queues.is_idle().to_string(),
            state.is_quiescing.to_string(),
            totals.waiting.to_string(),
            totals.executing.to_string(),
            dispatched.to_string(),
            rejected(&all).to_string(),
            rejected(&[Rejection::TimedOut]).to_string(),
            rejected(&[Rejection::Cancelled]).to_string(),
        ]);
    }
    rows
}

fn queues(control: &FlowControl) -> Vec<Vec<String>> {
    let mut rows = vec![heads(&QUEUES)];
    for level in control.levels() {
        let state = level.lock();
        if !matches!(state.spec.kind, LevelKind::Queue(_)) {
            continue;
        }
        let in_use = state.queues.queues();
        let mut in_use = in_use.iter().peekable();
        let last = in_use.clone().last().map_or(0, |queue| queue.queue + 1).max(state.queues.limits().queues);
        for number in 0..last {
            if rows.len() > MOST_ROWS {
                return rows;
            }
            rows.push(queue(&level.name, number, in_use.next_if(|queue| queue.queue == number)));
        }
    }
    rows
}

fn queue(level: &str, number: u32, state: Option<&QueueState>) -> Vec<String> {
    let count = |of: fn(&QueueState) -> usize| state.map_or(0, of).to_string();
    let waiting_seats = count(|state| state.waiting_seats);
    // Each seat counts as three milliseconds of work.
    let work = state.map_or(0.0, |state| state.waiting_seats as f64 * 0.003);
    vec![
        level.to_owned(),
        number.to_string(),
        count(|state| state.waiting),
        count(|state| state.executing),
        count(|state| state.seats_in_use),
        format!("{:.8}ss", state.map_or(0.0, |state| state.next_start)),
        waiting_seats.clone(),
        waiting_seats,
        format!("{work:.8}ss"),
    ]
}

fn requests(control: &FlowControl, has_details: bool) -> Vec<Vec<String>> {
    let mut head = heads(&REQUESTS);
    if has_details {
        head.extend(heads(&REQUEST_DETAILS));
    }
    let mut rows = vec![head];
    let (now, wall) = (control.now(), SystemTime::now());
    let time = |since: Duration| rfc3339(wall.checked_sub(now.saturating_sub(since)).unwrap_or(wall));
    let flows = control.distinguishers();
    for level in control.levels() {
        let state = level.lock();
        let is_queued = matches!(state.spec.kind, LevelKind::Queue(_));
        let requests = copies(&state, is_queued, MOST_ROWS + 1 - rows.len());
        drop(state);
        for request in requests {
            let by = flows.get(&(level.name.clone(), request.slot)).copied().flatten().filter(|_| is_queued);
            let number = |number: Option<usize>| number.map_or_else(|| "-1".to_owned(), |number| number.to_string());
            let mut row = vec![
                level.name.clone(),
                request.flow,
                number(request.queue.map(|queue| queue as usize)),
                number(request.place),
                distinguisher(&request.about, by),
                time(request.arrived),
                request.seats.to_string(),
                "0".to_owned(),
                "0s".to_owned(),
                request.begun.map_or_else(|| NEVER.to_owned(), time),
            ];
            if has_details {
                row.extend(details(&request.about));
            }
            rows.push(row);
        }
    }
    rows
}

/// A waiting or executing request. It is copied under the lock of its level, and its row is written without the lock.
struct RequestCopy {
    about: RequestSummary,
    slot: usize,
    flow: String,
    /// The number of its queue. Absent for an executing request of a level without queues.
    queue: Option<u32>,
    /// The position of the request in its queue. Absent for an executing request.
    place: Option<usize>,
    seats: usize,
    arrived: Duration,
    /// Absent for a waiting request.
    begun: Option<Duration>,
}

fn copies(state: &State, is_queued: bool, most: usize) -> Vec<RequestCopy> {
    let waiting = state.queues.waiting().map(|(queue, place, seats, waiting)| RequestCopy {
        about: waiting.asked.about.clone(),
        slot: waiting.asked.slot,
        flow: state.flow_name(waiting.asked.slot).to_owned(),
        queue: Some(queue),
        place: Some(place),
        seats,
        arrived: waiting.arrived,
        begun: None,
    });
    let executing = state.executing().map(|executing| RequestCopy {
        about: executing.about.clone(),
        slot: executing.slot,
        flow: state.flow_name(executing.slot).to_owned(),
        queue: is_queued.then_some(executing.seat.queue()),
        place: None,
        seats: executing.seat.seats(),
        arrived: executing.arrived,
        begun: Some(executing.seat.begun()),
    });
    waiting.chain(executing).take(most).collect()
}

fn distinguisher(about: &RequestSummary, by: Option<Distinguisher>) -> String {
    match by {
        None => String::new(),
        Some(Distinguisher::ByUser) => about.user.name.clone(),
        Some(Distinguisher::ByNamespace) => RequestInfo::parse(&about.method, &about.uri).namespace.unwrap_or_default(),
    }
}

fn details(about: &RequestSummary) -> [String; 8] {
    let info = RequestInfo::parse(&about.method, &about.uri);
    let version = match (info.group.as_str(), info.version.as_str()) {
        ("", version) => version.to_owned(),
        (group, version) => format!("{group}/{version}"),
    };
    [
        about.user.name.clone(),
        info.verb.as_str().to_owned(),
        info.path,
        info.namespace.unwrap_or_default(),
        info.name.unwrap_or_default(),
        version,
        info.resource,
        info.subresource.unwrap_or_default(),
    ]
}

/// The rows as a table whose columns end with commas. Line breaks in user names become blanks.
fn text(rows: &[Vec<String>]) -> String {
    let clean = |cell: &str| cell.replace(|letter: char| letter.is_control(), " ");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widest = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count() + 2).max();
        widest.unwrap_or_default().max(LEAST_WIDTH)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths).take(columns.saturating_sub(1)) {
            let _ = write!(text, "{:<width$}", format!("{cell},"));
        }
        text.push_str(row.last().map(String::as_str).unwrap_or_default());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_width_of_their_longest_cell() {
        let rows = [["Name", "Is", "Last"], ["catch-all\n", "true", "0"]].map(|row| heads(&row)).to_vec();
        assert_eq!(text(&rows), "Name,       Is,     Last\ncatch-all , true,   0\n");
    }
}
