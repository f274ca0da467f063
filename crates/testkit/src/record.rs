//! Records: requests with expected responses in text files (`*.wire`), readable by people and checked against a server.
//!
//! A file is a sequence of steps on one server, each with a title, a request and the expected response. Values that
//! differ between runs are placeholders: `{time}`, and `{uid1}`, `{rv1}`, `{name1}`, `{token1}`, numbered by first
//! appearance, so that equal numbers mean equal values. An ETag is one where the record writes `{tag1}`. Requests may
//! use placeholders of earlier responses and of further servers. Notes after a title state differences from the
//! reference server, or another way of execution. `KEELSON_UPDATE=1` rewrites the file with the server's responses.

mod normalise;
mod step;
mod written;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;

use crate::raw::PATIENCE;
use crate::{Answer, Endpoint};
use normalise::Names;
use step::{ExpectedResponse, Step};

const UPDATE: &str = "KEELSON_UPDATE";
/// The headers that are recorded for a step without an expected response, if the response has them.
const TELLING_HEADERS: [&str; 6] = ["content-type", "cache-control", "retry-after", "warning", "etag", "vary"];
/// The prefix of named ETags, which may change with the content of their documents.
const TAG_NAME: &str = "{tag";
/// The beginning of the placeholder of a uid in a header.
const UID_NAME: &str = "{uid";
/// The pause between two attempts of a step that waits for something.
const POLL: Duration = Duration::from_millis(20);

/// A server that a test runs in addition. In the record `{NAME}` is its address, `{NAME.port}` its port and `{NAME.ca}`
/// its bundle.
#[derive(Clone, Debug)]
pub struct RecordedServer {
    /// The name in the record.
    pub name: &'static str,
    /// The port on `localhost`.
    pub port: u16,
    /// The authorities of its certificate, as in an APIService.
    pub ca_bundle: String,
}

/// Runs every step of a record against the server and compares the responses.
///
/// # Panics
/// The file can't be read, or a response differs. The text shows the first difference of each step.
pub async fn check_record(path: impl AsRef<Path>, server: &Endpoint) {
    check_record_beside(path, server, &[]).await;
}

/// Runs a record that names these further servers.
///
/// # Panics
/// As [`check_record`].
pub async fn check_record_beside(path: impl AsRef<Path>, server: &Endpoint, beside: &[RecordedServer]) {
    let path = path.as_ref();
    let (preamble, steps) = read(path);
    let (raw, nobody) = (server.raw(), server.anonymous());
    let mut names = Names::of_server(server.url().trim_start_matches("https://"));
    beside.iter().for_each(|server| names.add_server(server));
    let mut differences = Vec::new();
    let mut seen = Vec::new();
    for step in steps {
        let answer = answered(if step.notes.anonymous { &nobody } else { &raw }, &step, &names).await;
        let actual = expected_of(&step, &answer, &mut names);
        if actual != step.expected {
            differences.push(format!("### {}\n{}", step.title, difference(&step.expected, &actual)));
        }
        seen.push(Step { expected: actual, ..step });
    }
    if differences.is_empty() {
        return;
    }
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        let text = step::render(&preamble, &seen);
        std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return;
    }
    let differences = differences.join("\n");
    panic!("{}: the server answers differently ({UPDATE}=1 rewrites the record)\n{differences}", path.display());
}

/// Runs every record of a directory on one server, sorted by name.
///
/// # Panics
/// As [`check_record`], and when the directory holds no record.
pub async fn check_records(directory: impl AsRef<Path>, server: &Endpoint) {
    for path in records(directory.as_ref()) {
        check_record(path, server).await;
    }
}

/// The documented differences from the reference server in the records of a directory: the name of each, with the
/// titles of its steps.
///
/// # Panics
/// The directory holds no record, or an unreadable one.
pub fn differences_shown(directory: impl AsRef<Path>) -> BTreeMap<String, Vec<String>> {
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for step in records(directory.as_ref()).iter().flat_map(|path| read(path).1) {
        if let Some(id) = step.notes.difference {
            shown.entry(id).or_default().push(step.title);
        }
    }
    shown
}

fn records(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|error| panic!("cannot read {}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "wire"));
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no record", directory.display());
    paths
}

fn read(path: &Path) -> (String, Vec<Step>) {
    let written =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    step::parse(&written).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()))
}

/// Sends the step; repeats it if the step waits for a condition.
async fn answered(raw: &crate::Raw, step: &Step, names: &Names) -> Answer {
    let Some(wanted) = &step.notes.until else { return send(raw, step, names).await };
    let until = async {
        loop {
            let answer = send(raw, step, names).await;
            if answer.status == wanted.status && answer.text().contains(&wanted.text) {
                return answer;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, until).await;
    waited.unwrap_or_else(|_| panic!("{}: no answer with {wanted:?} within {PATIENCE:?}", step.title))
}

async fn send(raw: &crate::Raw, step: &Step, names: &Names) -> Answer {
    let method =
        Method::from_bytes(step.method.as_bytes()).unwrap_or_else(|_| panic!("{:?} is no method", step.method));
    let mut call = raw.call(method, names.fill(&step.path)).body(names.fill(&step.body));
    for (name, value) in &step.headers {
        call = call.also_header(name, names.fill(value));
    }
    call.await
}

/// The response in the form of a record. It has only the headers that the record lists.
fn expected_of(step: &Step, answer: &Answer, names: &mut Names) -> ExpectedResponse {
    let body = names.normalise(&answer.text(), step.notes.only.as_deref());
    let chosen: Vec<&str> = match step.expected.headers.as_slice() {
        [] if step.expected.status == 0 => {
            TELLING_HEADERS.into_iter().filter(|name| answer.headers.contains_key(*name)).collect()
        }
        headers => headers.iter().map(|(name, _)| name.as_str()).collect(),
    };
    let written = |name: &str| step.expected.headers.iter().find(|(written, _)| written == name);
    let mut headers = Vec::new();
    for name in chosen {
        let value = answer.header(name);
        let shown = match written(name) {
            Some((_, written)) if written.starts_with(TAG_NAME) => names.tag(value),
            Some((_, written)) if written.starts_with(UID_NAME) => names.uid(value),
            _ => names.hide(value),
        };
        headers.push((name.to_owned(), shown));
    }
    ExpectedResponse { status: answer.status, headers, body }
}

fn difference(expected: &ExpectedResponse, actual: &ExpectedResponse) -> String {
    let (expected, actual) = (expected.to_string(), actual.to_string());
    let (left, right): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let same = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
    let tail = left[same..].iter().rev().zip(right[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let context = left[same.saturating_sub(3)..same].iter().map(|line| format!("    {line}\n"));
    let gone = left[same..left.len() - tail].iter().map(|line| format!("  - {line}\n"));
    let come = right[same..right.len() - tail].iter().map(|line| format!("  + {line}\n"));
    context.chain(gone).chain(come).collect()
}

#[cfg(test)]
mod tests {
    use super::{ExpectedResponse, difference};

    #[test]
    fn a_difference_shows_only_the_lines_that_differ() {
        let expected = ExpectedResponse { status: 200, headers: vec![], body: "a\nb\nc".into() };
        let actual = ExpectedResponse { status: 200, headers: vec![], body: "a\nx\nc".into() };
        assert_eq!(difference(&expected, &actual), "    < 200\n    \n    a\n  - b\n  + x\n");
    }
}
