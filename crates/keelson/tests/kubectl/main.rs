//! Tests of kubectl on a running server, with the commands that a new user types.
//!
//! Each module tests one subject. Outputs are compared as printed, except for parts that differ between runs.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod applying;
mod changing;
mod cluster;
mod creating;
mod credentials;
mod custom;
mod deleting;
mod editing;
mod field;
mod installing;
mod nodes;
mod packaging;
mod plugin;
mod reading;
mod refusals;
mod rights;
mod rollouts;
mod server_side;
mod watching;

use keelson_testkit::{Kubectl, KubectlStream, TestServer};
use serde_json::Value;

/// A server, and commands for it without the word `kubectl`. Blanks separate words, and `'single quotes'` keep words
/// together.
struct Shell {
    server: TestServer,
}

impl Shell {
    async fn start() -> Self {
        Self { server: TestServer::start().await }
    }

    fn kubectl(&self, line: &str) -> Kubectl {
        self.server.kubectl(words(line))
    }

    /// The output of a command that must succeed.
    async fn ok(&self, line: &str) -> String {
        self.kubectl(line).await.ok()
    }

    /// The output of a command that gets this standard input.
    async fn feed(&self, line: &str, stdin: impl Into<String>) -> String {
        self.kubectl(line).stdin(stdin).await.ok()
    }

    /// The JSON output of a command.
    async fn json(&self, line: &str) -> Value {
        self.kubectl(line).await.json()
    }

    /// The error of a command that must fail.
    async fn refused(&self, line: &str) -> String {
        self.kubectl(line).await.refused()
    }

    /// Starts a command that keeps running.
    async fn follow(&self, line: &str) -> KubectlStream {
        self.kubectl(line).spawn().await
    }

    /// Waits until a definition is established. `--for condition` would fail while `status.conditions` is still null,
    /// as on any server.
    async fn is_established(&self, definition: &str) {
        let path = "{.status.conditions[?(@.type==\"Established\")].status}";
        self.ok(&format!("wait --for 'jsonpath={path}=True' --timeout=60s crd/{definition}")).await;
    }

    /// Runs commands and compares the output of each.
    async fn check(&self, session: &[(&str, &str)]) {
        for (line, printed) in session {
            assert_eq!(self.ok(line).await, *printed, "kubectl {line}");
        }
    }
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// A column of a printed table, without its heading.
fn column(table: &str, number: usize) -> Vec<&str> {
    table.lines().skip(1).map(|row| row.split_whitespace().nth(number).unwrap_or_default()).collect()
}
