//! Background tasks must start through `keelson-supervision`, so that the end of each task is noticed.
//!
//! Production code starts no task or thread by itself, unless its file is listed here with the reason why the task
//! needs no supervision.

use super::{Finding, production};

/// The functions that start tasks, threads and sets of them.
const STARTS: [&str; 12] = [
    "tokio::spawn(",
    // `keelson_supervision::spawn_blocking` needs no thread in a simulation.
    "task::spawn_blocking(",
    "task::spawn(",
    "spawn_local(",
    ".spawn_on(",
    "handle.spawn(",
    "runtime.spawn(",
    "Handle::current().spawn(",
    "thread::spawn(",
    "thread::Builder::new(",
    "JoinSet::new(",
    "TaskTracker::new(",
];

/// Files that may start tasks by themselves, with the reason.
const ALLOWED: [(&str, &str); 31] = [
    ("crates/supervision/", "it is the supervisor"),
    ("crates/etcd-double/", "a program without supervision: its threads serve until the process ends"),
    ("crates/apiserver/src/mirrored_store.rs", "a write to a program's store, whose end and panics go to its caller"),
    ("crates/cache/src/additions.rs", "loads, for which the cache's tail waits: it ends with their panics"),
    (
        "crates/http/src/listener",
        "a task for each connection and stream, which ends with it and concerns no other; the listener ends with its thread",
    ),
    ("crates/outbound/src/exclusive.rs", "closes idle connections; a closed one that stays is noticed at its next use"),
    (
        "crates/outbound/src/node_client.rs",
        "drives one connection, whose end and panics go to the request that waits for it",
    ),
    (
        "crates/outbound/src/egress/konnectivity.rs",
        "carries the bytes of one tunnel, whose end and panics end the connection that uses it",
    ),
    ("crates/server/src/probe.rs", "a thread that a blocked log may block, which it is there to detect"),
    ("crates/registry/src/surface/surfaces.rs", "a change of the surface, whose end and panics go to its caller"),
    (
        "crates/registry/src/watch/chosen.rs",
        "looks at one large object, whose end and panics are those of the watch that waits for it",
    ),
    (
        "crates/registry/src/query/making.rs",
        "looks at a part of the objects, whose end and panics are those of the query that waits for it",
    ),
    (
        "crates/registry/src/query/searching.rs",
        "gathers the texts of a part of the objects, whose end and panics are those of the search that waits for it",
    ),
    (
        "crates/registry/src/view.rs",
        "asks a converter, whose answer and panics are those of the request that waits for it",
    ),
    ("crates/http/src/filters/long_work.rs", "a request, whose panics are those of the one that waits for it"),
    ("crates/http/src/shutdown.rs", "starts none: it counts requests, for whose end a stop waits"),
    ("crates/http/src/body/request.rs", "discards the rest of one body, within a time limit"),
    ("crates/storage-etcd/src/watch.rs", "one write; that it did not happen shows in its not coming back"),
    (
        "crates/storage-sql/src/postgres/session.rs",
        "drives one connection; when it dies, the session is seen to be closed",
    ),
    ("crates/storage-sql/src/sqlite/readers.rs", "a read of a disk, which no simulation has"),
    ("crates/apiserver/src/storage.rs", "opens a disk, which no simulation has"),
    ("crates/apiserver/src/serving_certificate.rs", "reads a disk, which no simulation has"),
    ("crates/gateway/src/copy.rs", "opens a disk, which no simulation has"),
    ("crates/keelson/src/profiling.rs", "a profile of the process"),
    ("crates/keelson/src/serve.rs", "ends the process"),
    ("crates/keelson/src/forks.rs", "a connection for each fork of a server for tests, which ends with it"),
    ("crates/keelson/src/interrupt.rs", "waits for signals in a command that is not a server"),
    ("crates/keelson-test/", "for tests"),
    ("crates/sim/", "for simulations"),
    ("crates/testkit/", "for tests"),
    ("crates/bench/", "for measurements"),
];

/// Code that runs only in tests, though outside of `tests`.
const FOR_TESTS: [&str; 2] = ["crates/storage/src/conformance/", "crates/teststores/"];

pub(super) fn check(place: &str, text: &str) -> Vec<Finding> {
    let listed = ALLOWED.iter().map(|(file, _)| *file).chain(FOR_TESTS).any(|file| place.starts_with(file));
    if listed {
        return Vec::new();
    }
    let started = production(place, text).filter_map(|(number, line)| {
        let word = STARTS.iter().find(|word| line.contains(**word))?;
        let text =
            format!("{word:?} starts an unsupervised task: use keelson-supervision, or list the file with a reason");
        Some(Finding::fault(format_args!("{place}:{number}"), text))
    });
    started.collect()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn unsupervised_tasks_are_refused() {
        let text = "fn run() {\n    tokio::spawn(work());\n}\n";
        let found = check("crates/cache/src/cache.rs", text);
        for start in [
            "task::spawn(work())",
            "tokio::task::spawn_blocking(work)",
            "tasks.spawn_on(work(), runtime)",
            "handle.spawn(work())",
        ] {
            assert_eq!(
                check("crates/cache/src/cache.rs", &format!("fn run() {{\n    {start};\n}}\n")).len(),
                1,
                "{start}"
            );
        }
        assert_eq!((found.len(), found[0].place.as_str()), (1, "crates/cache/src/cache.rs:2"));
        assert!(check("crates/cache/src/cache.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")).is_empty());
        for place in ["crates/cache/tests/tail.rs", "crates/http/src/listener.rs", "xtask/src/main.rs"] {
            assert!(check(place, text).is_empty(), "{place}");
        }
    }
}
