//! The marks of requests: names by which the watchdog reports the work that blocks a runtime thread.
//!
//! All connections share one name, and each verb has one. A mark is set during a poll.

use std::future::poll_fn;
use std::pin::Pin;

use keelson_resources::Verb;
use keelson_supervision::{Mark, Supervisor};

use crate::request_info::RequestVerb;

/// The name of connections, which read requests and send frames of responses.
const CONNECTION: &str = "connection";
/// The name of requests that are not for a resource.
const PAGE: &str = "request for a page";
/// The names of requests for resources.
const REQUESTS: [(Verb, &str); 8] = [
    (Verb::Create, "create request"),
    (Verb::Delete, "delete request"),
    (Verb::DeleteCollection, "deletecollection request"),
    (Verb::Get, "get request"),
    (Verb::List, "list request"),
    (Verb::Patch, "patch request"),
    (Verb::Update, "update request"),
    (Verb::Watch, "watch request"),
];

/// The marks of one server.
#[derive(Debug)]
pub(crate) struct RequestMarks {
    connection: Mark,
    page: Mark,
    requests: [(Verb, Mark); REQUESTS.len()],
}

impl RequestMarks {
    /// Registers the marks with a supervisor's watchdog.
    pub(crate) fn new(supervisor: &Supervisor) -> Self {
        Self {
            connection: supervisor.mark(CONNECTION),
            page: supervisor.mark(PAGE),
            requests: REQUESTS.map(|(verb, name)| (verb, supervisor.mark(name))),
        }
    }

    /// The mark of a poll of a connection.
    pub(crate) fn connection(&self) -> Mark {
        self.connection
    }

    /// The mark of requests of a verb.
    pub(crate) fn of_verb(&self, verb: &RequestVerb) -> Mark {
        let served = verb.served();
        self.requests.iter().find(|(known, _)| Some(*known) == served).map_or(self.page, |(_, mark)| *mark)
    }
}

/// Polls a future under a mark, if there is one. The future stays where it is: an argument by value would take its place
/// twice in the future of each request.
pub(crate) async fn marked<A: Future>(mark: Option<Mark>, mut answer: Pin<&mut A>) -> A::Output {
    poll_fn(|context| match mark {
        Some(mark) => mark.poll(|| answer.as_mut().poll(context)),
        None => answer.as_mut().poll(context),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;

    /// The longest time until the watchdog must report.
    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_that_holds_its_thread_is_named_by_its_verb() {
        let (supervisor, stopping) = (Supervisor::default(), CancellationToken::new());
        supervisor.watch_threads(&stopping);
        let marks = RequestMarks::new(&supervisor);
        for (verb, expected) in [
            (RequestVerb::Resource(Verb::List), "list request"),
            (RequestVerb::Other("trace".into()), "request for a page"),
        ] {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let (outer, inner) = (marks.connection(), marks.of_verb(&verb));
            let holding = tokio::spawn(async move {
                let work = pin!(async move {
                    let _released = released.recv();
                });
                marked(Some(outer), pin!(marked(Some(inner), work))).await;
            });
            let named = async {
                while supervisor.held_threads().iter().all(|held| held.task != expected) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(PATIENCE, named).await.unwrap_or_else(|_| panic!("{expected} is not noticed"));
            release.send(()).unwrap();
            holding.await.unwrap();
        }
        stopping.cancel();
    }
}
