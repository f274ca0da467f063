//! `/livez`, `/readyz` and `/healthz`: named checks, and the texts of their results.
//!
//! Checks have upstream's names where upstream has such a check, since clients request them by name. The reason of a
//! failure is in the log, and in the response for the single check, which requires authorization. The three paths
//! themselves need no credentials and never contain it.
//!
//! Several checks may concern one component, such as the store. `exclude` with its name excludes all of them. A load
//! balancer that excludes the store from `/readyz` keeps sending requests to servers that still answer from their
//! caches.

mod results;

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use keelson_supervision::{Failure, Supervisor, warn_repeated};
use tokio_util::sync::CancellationToken;

pub(crate) use results::HealthResults;

/// The result of a check: the reason of its failure, if it fails.
pub type CheckResult = Result<(), String>;

/// Returns checks by name with their results.
type Group = Arc<dyn Fn() -> Vec<(String, CheckResult)> + Send + Sync>;

/// Returns a note on a check that passes, if there is one.
type Note = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Checks by name, in displayed order.
#[derive(Clone, Default)]
pub struct HealthChecks {
    checks: Vec<(String, Arc<dyn Fn() -> CheckResult + Send + Sync>)>,
    /// Pairs of a check, and of another check whose name in `exclude` excludes both.
    included: Vec<(String, String)>,
    /// Checks whose names are known only when they run.
    groups: Vec<Group>,
    /// Notes on checks that pass.
    notes: Vec<(String, Note)>,
}

/// The checks of each endpoint.
#[derive(Debug, Default)]
pub struct Health {
    /// The results of the checks, for metrics.
    pub(crate) results: HealthResults,
    /// `/livez`: fails if the server should be restarted.
    pub live: HealthChecks,
    /// `/readyz`: fails if the server should receive no requests.
    pub ready: HealthChecks,
    /// `/healthz`: the older endpoint from before the two others, deprecated by upstream. Has the checks of `/readyz`
    /// without that for a shutdown.
    pub well: HealthChecks,
}

/// The endpoints.
const ENDPOINTS: [&str; 3] = ["livez", "readyz", "healthz"];

/// Returns true for a health path: `/livez`, or `/readyz/ping`.
pub fn is_health_path(path: &str) -> bool {
    path.strip_prefix('/').and_then(|path| path.split('/').next()).is_some_and(|first| ENDPOINTS.contains(&first))
}

/// An answer in plain text.
#[derive(Debug, PartialEq, Eq)]
pub struct HealthAnswer {
    /// 200, 404 or 500.
    pub code: StatusCode,
    /// The text.
    pub text: String,
}

impl Health {
    /// Readiness requires the checks of `well`, and that the server is not stopping.
    pub fn new(live: HealthChecks, well: HealthChecks, stopping: CancellationToken) -> Self {
        let stops = move || if stopping.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) };
        Self { live, ready: well.clone().add("shutdown", stops), well, results: HealthResults::default() }
    }

    /// Answers a path such as `/readyz` or `/livez/ping`. `None` for any other path.
    pub fn answer(&self, path: &str, query: &str) -> Option<HealthAnswer> {
        let (endpoint, check) = match path.trim_matches('/').split_once('/') {
            Some((endpoint, check)) => (endpoint, Some(check)),
            None => (path.trim_matches('/'), None),
        };
        let checks = match endpoint {
            "livez" => &self.live,
            "readyz" => &self.ready,
            "healthz" => &self.well,
            _ => return None,
        };
        Some(match check {
            Some(name) => checks.one(name),
            None => checks.all(endpoint, query, &self.results),
        })
    }
}

fn log_failure(check: &str, reason: &str) {
    warn_repeated!(check; check, reason, "health check failed");
}

impl HealthChecks {
    /// Contains only `ping`, which never fails.
    #[allow(clippy::new_without_default, reason = "an empty set without `ping` is what Default gives")]
    pub fn new() -> Self {
        Self::default().add("ping", || Ok(()))
    }

    /// Adds a check. It runs for each request, so it must be quick and must not wait.
    #[must_use]
    pub fn add(mut self, name: impl Into<String>, check: impl Fn() -> CheckResult + Send + Sync + 'static) -> Self {
        self.checks.push((name.into(), Arc::new(check)));
        self
    }

    /// Declares that the name `whole` in `exclude` excludes the check `part` too.
    #[must_use]
    pub fn including(mut self, whole: impl Into<String>, part: impl Into<String>) -> Self {
        self.included.push((part.into(), whole.into()));
        self
    }

    /// Adds a note to the response for a single check: a reason to act while the check still passes.
    #[must_use]
    pub fn note(mut self, check: impl Into<String>, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.notes.push((check.into(), Arc::new(note)));
        self
    }

    fn note_of(&self, name: &str) -> Option<String> {
        self.notes.iter().filter(|(check, _)| check == name).find_map(|(_, note)| note())
    }

    /// Adds checks that come and go, such as one for each background task. Each has a path with its name. The list of
    /// all checks shows only those that fail, after the others, since the set differs between servers.
    #[must_use]
    pub fn add_each(mut self, checks: impl Fn() -> Vec<(String, CheckResult)> + Send + Sync + 'static) -> Self {
        self.groups.push(Arc::new(checks));
        self
    }

    /// Adds a check for each background task, named `task/NAME`. The server is alive only if all of them are.
    #[must_use]
    pub fn add_tasks(self, supervisor: Supervisor) -> Self {
        let result = |failure: Option<Failure>| failure.map_or(Ok(()), |failure| Err(failure.to_string()));
        self.add_each(move || {
            supervisor.tasks().into_iter().map(|(task, failure)| (format!("task/{task}"), result(failure))).collect()
        })
    }

    /// Adds `runtime`, which fails while a task or request holds a thread of the runtime.
    #[must_use]
    pub fn add_runtime(self, supervisor: Supervisor) -> Self {
        self.add("runtime", move || {
            let held = supervisor.held_threads().into_iter();
            let held: Vec<String> = held.map(|it| format!("{} has held a thread for {:?}", it.task, it.held)).collect();
            if held.is_empty() { Ok(()) } else { Err(held.join(", ")) }
        })
    }

    /// The names of the checks that fail now.
    pub fn failing(&self) -> Vec<String> {
        let asked = self.ask(|_| true).into_iter();
        asked.filter(|(_, result)| matches!(result, Some(Err(_)))).map(|(name, _)| name).collect()
    }

    /// Runs all checks for whose names `is_wanted` returns true.
    fn ask(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(String, Option<CheckResult>)> {
        let own = self.checks.iter().map(|(name, check)| (name.clone(), is_wanted(name).then(|| check())));
        let of_groups = self.groups.iter().flat_map(|group| group());
        own.chain(of_groups.map(|(name, result)| {
            let result = is_wanted(&name).then_some(result);
            (name, result)
        }))
        .collect()
    }

    fn is_told(&self, name: &str, result: Option<&CheckResult>) -> bool {
        matches!(result, Some(Err(_))) || self.checks.iter().any(|(own, _)| own == name)
    }

    fn one(&self, name: &str) -> HealthAnswer {
        match self.ask(|asked| asked == name).into_iter().find_map(|(_, result)| result) {
            None => HealthAnswer { code: StatusCode::NOT_FOUND, text: "404 page not found\n".to_owned() },
            Some(result) => match result {
                Ok(()) => {
                    let note = self.note_of(name).map(|note| format!("\nwarning: {note}\n"));
                    HealthAnswer { code: StatusCode::OK, text: format!("ok{}", note.unwrap_or_default()) }
                }
                Err(reason) => {
                    log_failure(name, &reason);
                    let text = format!("internal server error: {reason}\n");
                    HealthAnswer { code: StatusCode::INTERNAL_SERVER_ERROR, text }
                }
            },
        }
    }

    fn all(&self, endpoint: &str, query: &str, results: &HealthResults) -> HealthAnswer {
        let parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let verbose = parameters.iter().any(|(key, _)| key == "verbose");
        let mut excluded: Vec<&str> =
            parameters.iter().filter(|(key, _)| key == "exclude").map(|(_, value)| value.as_ref()).collect();
        excluded.sort_unstable();
        excluded.dedup();
        let (mut text, mut healthy) = (String::new(), true);
        let whole = |name: &str| self.included.iter().find(|(part, _)| part == name).map(|(_, whole)| whole.as_str());
        let is_excluded = |name: &str| excluded.contains(&name) || whole(name).is_some_and(|it| excluded.contains(&it));
        let asked = self.ask(|name| !is_excluded(name));
        let own = asked.iter().take(self.checks.len());
        results.note(endpoint, own.filter_map(|(name, result)| Some((name.as_str(), result.as_ref()?.is_ok()))));
        for (name, result) in asked.iter().filter(|(name, result)| self.is_told(name, result.as_ref())) {
            let line = match result {
                None => format!("[+]{name} excluded: ok\n"),
                Some(Ok(())) => format!("[+]{name} ok\n"),
                Some(Err(reason)) => {
                    log_failure(name, reason);
                    healthy = false;
                    format!("[-]{name} failed: reason withheld\n")
                }
            };
            text.push_str(&line);
        }
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|excluded| !asked.iter().any(|(name, _)| name == *excluded))
            .map(|excluded| format!("\"{excluded}\""))
            .collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {unknown}");
        }
        let has_warning = |name: &&String| verbose && !is_excluded(name) && self.note_of(name).is_some();
        for name in asked.iter().map(|(name, _)| name).filter(has_warning) {
            let _ = writeln!(text, "warn: {name} has a warning: ask /{endpoint}/{name}");
        }
        match (healthy, verbose) {
            (false, _) => {
                let text = format!("{text}{endpoint} check failed\n");
                HealthAnswer { code: StatusCode::INTERNAL_SERVER_ERROR, text }
            }
            (true, true) => HealthAnswer { code: StatusCode::OK, text: format!("{text}{endpoint} check passed\n") },
            (true, false) => HealthAnswer { code: StatusCode::OK, text: "ok".to_owned() },
        }
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.checks.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(ready: HealthChecks) -> Health {
        Health { live: HealthChecks::new(), well: ready.clone(), ready, results: HealthResults::default() }
    }

    fn check(path: &str, query: &str, expect: Option<(u16, &str)>) {
        let ready = HealthChecks::new().add("log", || Ok(())).add("storage", || Err("no disk".to_owned()));
        let health = health(ready);
        let answer = health.answer(path, query).map(|answer| (answer.code.as_u16(), answer.text));
        assert_eq!(answer, expect.map(|(code, text)| (code, text.to_owned())), "{path}?{query}");
    }

    #[test]
    fn passing_checks_answer_ok() {
        check("/livez", "", Some((200, "ok")));
        check("/livez", "verbose", Some((200, "[+]ping ok\nlivez check passed\n")));
        check("/livez/ping", "", Some((200, "ok")));
        check("/readyz", "exclude=storage", Some((200, "ok")));
        check(
            "/healthz",
            "verbose=true&exclude=storage",
            Some((200, "[+]ping ok\n[+]log ok\n[+]storage excluded: ok\nhealthz check passed\n")),
        );
    }

    #[test]
    fn health_warnings_appear_only_on_their_check_path() {
        let well = HealthChecks::new().add("store", || Ok(())).note("store", || Some("it is full".to_owned()));
        let health = health(well.clone());
        let answer = |path: &str, query: &str| health.answer(path, query).unwrap();
        assert_eq!(answer("/readyz", "").text, "ok");
        let verbose = "[+]ping ok\n[+]store ok\nwarn: store has a warning: ask /readyz/store\nreadyz check passed\n";
        assert_eq!(answer("/readyz", "verbose").text, verbose);
        let own = answer("/readyz/store", "");
        assert_eq!((own.code.as_u16(), &*own.text), (200, "ok\nwarning: it is full\n"));
        assert!(well.failing().is_empty());
        assert_eq!(well.add("disk", || Err("gone".to_owned())).failing(), ["disk"]);
    }

    #[test]
    fn related_checks_are_excluded_together() {
        let away = || Err("away".to_owned());
        let ready = HealthChecks::new().add("store", away).add("etcd", away).including("store", "etcd");
        let health = health(ready);
        let answer = |query: &str| health.answer("/readyz", query).map(|answer| (answer.code.as_u16(), answer.text));
        let excluded = "[+]ping ok\n[+]store excluded: ok\n[+]etcd excluded: ok\nreadyz check passed\n";
        assert_eq!(answer("exclude=store&verbose"), Some((200, excluded.to_owned())));
        assert_eq!(answer("exclude=etcd").map(|(code, _)| code), Some(500));
    }

    #[test]
    fn a_failure_is_reported_without_its_reason() {
        let text = "[+]ping ok\n[+]log ok\n[-]storage failed: reason withheld\nreadyz check failed\n";
        check("/readyz", "", Some((500, text)));
        check("/readyz/storage", "", Some((500, "internal server error: no disk\n")));
    }

    #[test]
    fn unknown_exclusions_are_reported() {
        let text = "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"x\", \"y\"\n\
                    livez check passed\n";
        check("/livez", "verbose&exclude=y&exclude=x&exclude=y", Some((200, text)));
    }

    #[test]
    fn unknown_checks_and_other_paths() {
        check("/livez/nope", "", Some((404, "404 page not found\n")));
        check("/nope", "", None);
    }
}
