//! A walk through a result, chunk by chunk, in one snapshot.
//!
//! If the snapshot expires, the walk continues at the same position in the newest state, with a note.

use http::StatusCode;
use keelson_meta::json::Value;

use crate::client::Server;
use crate::output::{Progress, note};
use crate::question::Question;

/// The header with the total number of objects.
const TOTAL_COUNT: &str = "keelson-total-count";
/// The most times that a walk resumes after an expired snapshot, so that it can't run forever.
const MOST_RESUMED: u32 = 100;

/// A walk in progress.
pub(crate) struct Walk<'s> {
    server: &'s Server,
    question: Question,
    accept: &'static str,
    chunk_size: u64,
    /// The number of objects still wanted; `None` for all.
    wanted: Option<u64>,
    token: Option<String>,
    is_over: bool,
    resumed: u32,
    seen: u64,
    progress: Progress,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(
        server: &'s Server,
        question: Question,
        accept: &'static str,
        chunk_size: u64,
        wanted: Option<u64>,
    ) -> Self {
        let progress = Progress::default();
        Self {
            server,
            question,
            accept,
            chunk_size,
            wanted,
            token: None,
            is_over: false,
            resumed: 0,
            seen: 0,
            progress,
        }
    }

    /// The next chunk with the total number of objects; `None` at the end.
    ///
    /// # Errors
    /// The server's refusal.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<(Value, Option<u64>)>> {
        while !self.is_over {
            // A page has at most `limit` objects, and is read in one request.
            let limit = self.wanted.unwrap_or(self.chunk_size);
            let answer = self.server.ask(&self.question.url(limit, self.token.as_deref()), self.accept).await?;
            if answer.status == StatusCode::GONE
                && self.token.is_some()
                && self.resumed < MOST_RESUMED
                && let Some(token) = answer.body["metadata"]["continue"].as_str()
            {
                self.resumed += 1;
                self.progress.clear();
                note("the snapshot of this list expired: the following objects are from a newer one");
                self.token = Some(token.to_owned());
                continue;
            }
            let answer = answer.success()?;
            let total = answer.number(TOTAL_COUNT);
            let count =
                ["items", "rows"].iter().find_map(|name| answer.body[*name].as_array()).map_or(0, Vec::len) as u64;
            self.seen += count;
            self.token =
                answer.body["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
            self.is_over = self.token.is_none() || self.wanted.is_some();
            match total.filter(|_| !self.is_over) {
                Some(total) => self.progress.show(self.seen, total),
                None => self.progress.clear(),
            }
            return Ok(Some((answer.body, total)));
        }
        Ok(None)
    }
}
