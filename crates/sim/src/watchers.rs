//! The watchers of a run: each follows a collection over all faults, and resumes at another server.
//!
//! A watcher lists only at its begin and after 410. Every other stream begins at the end of the one before.

use std::time::Duration;

use http::{Method, StatusCode};
use keelson_verify::history::State;
use serde_json::Value;
use tokio::time::sleep;

use crate::clients::Shared;
use crate::dice::Dice;
use crate::plan::Kind;
use crate::record::{WatchStep, Watched, mark_of, text, version_of};
use crate::wire::Client;

/// The wait after a failed request.
const RETRY: Duration = Duration::from_millis(300);
/// The longest watch request, in seconds.
const LONGEST_SECONDS: u64 = 25;

/// A watcher.
pub(crate) struct Watcher {
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    pub(crate) client: Client,
    pub(crate) shared: Shared,
    pub(crate) dice: Dice,
}

impl Watcher {
    /// Lists, then watches until the run ends.
    pub(crate) async fn run(mut self) {
        let servers = self.shared.processes.len();
        let mut server = self.dice.index(servers);
        let mut position = None;
        loop {
            let next = match position {
                Some(from) => self.follow(server, from).await,
                None => self.list(server).await,
            };
            position = next;
            if let Some(position) = position {
                self.shared.record.lock().positions.insert(self.number, (self.kind, position));
            }
            server = self.dice.index(servers);
            sleep(RETRY).await;
        }
    }

    async fn list(&mut self, server: usize) -> Option<u64> {
        let answer = self.client.send(server, Method::GET, &self.kind.path(), None).await.ok()?;
        (answer.status == StatusCode::OK).then(|| version_of(&answer.body)).flatten()
    }

    /// Watches once. Returns the position to resume at, or `None` if it is too old.
    async fn follow(&mut self, server: usize, from: u64) -> Option<u64> {
        let seconds = self.dice.within(3..LONGEST_SECONDS);
        let query = format!("watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        let path = format!("{}?{query}", self.kind.path());
        let Ok(mut lines) = self.client.watch(server, &path).await else { return Some(from) };
        match lines.status() {
            StatusCode::OK => {}
            StatusCode::GONE => return None,
            _ => return Some(from),
        }
        let text = format!("watcher {} of {} at server {server} from {from}", self.number, self.kind.plural());
        self.shared.trace.line(format_args!("~ {text} begins"));
        let place = {
            let mut record = self.shared.record.lock();
            record.watches.push(Watched { text: text.clone(), kind: self.kind, start: from, steps: Vec::new() });
            record.watches.len() - 1
        };
        let mut position = from;
        while let Some(event) = lines.next().await {
            if event["type"] == "ERROR" {
                self.shared.trace.line(format_args!("~ {text}: {}", event["object"]["code"]));
                return (event["object"]["code"] != 410).then_some(position);
            }
            let Some(step) = step_of(&event) else { continue };
            position = step.revision();
            self.shared.trace.line(format_args!("~ {text}: {step:?}"));
            let mut record = self.shared.record.lock();
            record.positions.insert(self.number, (self.kind, position));
            record.watches[place].steps.push(step);
        }
        self.shared.trace.line(format_args!("~ {text} ends"));
        Some(position)
    }
}

fn step_of(event: &Value) -> Option<WatchStep> {
    let (kind, object) = (text(&event["type"]), &event["object"]);
    let revision = version_of(object)?;
    Some(match kind.as_str() {
        "BOOKMARK" => WatchStep::Bookmark(revision),
        "DELETED" => {
            let state = State::Deleted(text(&object["metadata"]["uid"]));
            WatchStep::Event { kind, name: text(&object["metadata"]["name"]), revision, state }
        }
        _ => {
            let state = State::Written(mark_of(object));
            WatchStep::Event { kind, name: text(&object["metadata"]["name"]), revision, state }
        }
    })
}
