//! The rows of the table: their measurements and goals.
//!
//! The rows run in the order of [`ALL`]: rows with a fresh server first, then those that read the filled one, and last
//! those that add to it.

// SIZE: the table of all rows.

mod access;
mod added;
mod admitted;
mod converted;
mod costs;
mod custom;
pub(crate) mod definitions;
mod elsewhere;
mod ephemeral;
mod fleet;
mod lists;
mod memory;
mod migration;
mod objects;
mod proxied;
mod queries;
mod servers;
mod start;
mod turns;
mod watch;

use anyhow::{Context as _, Error, Result, bail};

use crate::FULL_SIZE;
use crate::bench::Bench;
use crate::figure::{Figure, Observed, Quantity};
use crate::store::BenchStore;
use access::Access;
use added::Added;
use admitted::Admitted;
use custom::Custom;
use definitions::Definitions;
use ephemeral::Ephemeral;
use fleet::Fleet;
use lists::Form;
use proxied::ProxiedFigure;
use queries::{ConcurrentLoad, QueryKind};
use servers::Objects;

/// The largest number of connections of a row, plus a reserve.
pub(crate) const MOST_CONNECTIONS: usize = 6_000;

/// The measurement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Start,
    Ephemeral(Ephemeral),
    MemoryEmpty,
    Create,
    MemoryFilled,
    Update,
    Patch,
    Apply,
    Get,
    List(Form),
    Walk,
    Chunk,
    ListsAtOnce,
    ListsMemory,
    Selector,
    Query(QueryKind, ConcurrentLoad),
    AddedMemory(Added),
    CreateBeside(Added),
    Discovery,
    Watch(usize),
    NodeWatchers,
    SelectorWatchers,
    Restart,
    RestartLoaded,
    Converted,
    Migration,
    Definitions(Definitions),
    DefinedElsewhere,
    Custom(Custom),
    Proxied(ProxiedFigure),
    Access(Access),
    Fleet(Fleet),
    Admitted(Admitted),
    Cost(&'static str),
    TwoServers(Objects),
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    work: Work,
    at_least: Option<Quantity>,
}

const fn row(name: &'static str, what: &'static str, work: Work, at_least: Option<Quantity>) -> Row {
    Row { name, what, work, at_least }
}

/// Every row, in the order of measurement.
pub(crate) const ALL: [Row; 106] = [
    row("start", "start to ready, empty store", Work::Start, Some(Quantity::millis(100))),
    row("memory-empty", "memory, empty, ready", Work::MemoryEmpty, Some(Quantity::megabytes(40))),
    row("start-memory", "start to ready, in memory", Work::Ephemeral(Ephemeral::Start), Some(Quantity::millis(30))),
    row(
        "memory-ephemeral",
        "memory, in memory, ready",
        Work::Ephemeral(Ephemeral::Memory),
        Some(Quantity::megabytes(20)),
    ),
    row(
        "start-20",
        "20 servers in memory side by side, until all are ready",
        Work::Ephemeral(Ephemeral::SideBySide),
        Some(Quantity::millis(500)),
    ),
    row(
        "memory-20",
        "memory of 20 servers in memory, shared pages counted once",
        Work::Ephemeral(Ephemeral::SideBySideMemory),
        Some(Quantity::megabytes(150)),
    ),
    row("create", "create a pod, 48 in flight, durable", Work::Create, Some(Quantity::Rate(7_000.0))),
    row("memory-pods", "memory with the pods, at rest", Work::MemoryFilled, Some(Quantity::megabytes(600))),
    row("update", "update a pod, 32 in flight, durable", Work::Update, Some(Quantity::Rate(6_000.0))),
    row("patch", "patch a label of a pod, 32 in flight, durable", Work::Patch, Some(Quantity::Rate(6_000.0))),
    row("apply", "apply a pod, 32 in flight, durable", Work::Apply, Some(Quantity::Rate(3_000.0))),
    row("get", "get one pod, 32 in flight", Work::Get, Some(Quantity::Rate(30_000.0))),
    row("list", "whole list, JSON", Work::List(Form::Json), Some(Quantity::millis(500))),
    row("list-gzip", "whole list, gzip accepted", Work::List(Form::Gzip), Some(Quantity::millis(700))),
    row("list-table", "whole list as a Table", Work::List(Form::Table), Some(Quantity::millis(1_000))),
    row("list-metadata", "whole list, metadata alone", Work::List(Form::Metadata), Some(Quantity::millis(500))),
    row("list-protobuf", "whole list, protobuf", Work::List(Form::Protobuf), Some(Quantity::millis(800))),
    row("list-yaml", "whole list, YAML", Work::List(Form::Yaml), Some(Quantity::millis(2_500))),
    row("walk", "walk in chunks of 500", Work::Walk, Some(Quantity::millis(600))),
    row("chunk", "one chunk of 500, median", Work::Chunk, Some(Quantity::micros(2_500))),
    row("lists", "8 whole lists at once", Work::ListsAtOnce, Some(Quantity::millis(4_000))),
    row("lists-memory", "8 whole lists at once, memory added", Work::ListsMemory, Some(Quantity::megabytes(50))),
    row("selector", "label selector, 200 match", Work::Selector, Some(Quantity::millis(1))),
    row(
        "query-page",
        "sorted page of 100, order known",
        Work::Query(QueryKind::SortedPage, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-page-900",
        "jump to page 900 of it",
        Work::Query(QueryKind::DeepPage, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-number-900",
        "jump to page 900 of the unsorted list",
        Work::Query(QueryKind::NumberedPage, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-fields-900",
        "jump to page 900 of the sorted list, with two fields",
        Work::Query(QueryKind::Masked, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-past-900",
        "jump to page 900 of the sorted list at an old revision",
        Work::Query(QueryKind::Past, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-count",
        "count of two terms",
        Work::Query(QueryKind::Count, ConcurrentLoad::Nothing),
        Some(Quantity::millis(1)),
    ),
    row(
        "query-groups",
        "pods by phase, known",
        Work::Query(QueryKind::Groups, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-search",
        "search for a new word",
        Work::Query(QueryKind::Search, ConcurrentLoad::Nothing),
        Some(Quantity::millis(20)),
    ),
    row(
        "query-search-900",
        "jump to page 900 of a search",
        Work::Query(QueryKind::FoundPage, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-scan",
        "filter by an unindexed path",
        Work::Query(QueryKind::Scan, ConcurrentLoad::Nothing),
        Some(Quantity::millis(80)),
    ),
    row(
        "query-filter-900",
        "jump to page 900 of a known filter",
        Work::Query(QueryKind::ChosenPage, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row("query-where", "a new CEL condition", Work::Query(QueryKind::Condition, ConcurrentLoad::Nothing), None),
    row(
        "query-where-900",
        "jump to page 900 of a known condition",
        Work::Query(QueryKind::ConditionPage, ConcurrentLoad::Nothing),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-page-writes",
        "sorted page of 100, order known, with 1,000 writes per second",
        Work::Query(QueryKind::SortedPage, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-page-900-writes",
        "jump to page 900 of it, with 1,000 writes per second",
        Work::Query(QueryKind::DeepPage, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-number-900-writes",
        "jump to page 900 of the unsorted list, with 1,000 writes per second",
        Work::Query(QueryKind::NumberedPage, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-fields-900-writes",
        "jump to page 900 of the sorted list, with two fields, with 1,000 writes per second",
        Work::Query(QueryKind::Masked, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-past-900-writes",
        "jump to page 900 of the sorted list at an old revision, with 1,000 writes per second",
        Work::Query(QueryKind::Past, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-count-writes",
        "count of two terms, with 1,000 writes per second",
        Work::Query(QueryKind::Count, ConcurrentLoad::Writes),
        Some(Quantity::millis(1)),
    ),
    row(
        "query-groups-writes",
        "pods by phase, known, with 1,000 writes per second",
        Work::Query(QueryKind::Groups, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-search-writes",
        "search for a new word, with 1,000 writes per second",
        Work::Query(QueryKind::Search, ConcurrentLoad::Writes),
        Some(Quantity::millis(20)),
    ),
    row(
        "query-search-900-writes",
        "jump to page 900 of a search, with 1,000 writes per second",
        Work::Query(QueryKind::FoundPage, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-scan-writes",
        "filter by an unindexed path, with 1,000 writes per second",
        Work::Query(QueryKind::Scan, ConcurrentLoad::Writes),
        Some(Quantity::millis(80)),
    ),
    row(
        "query-filter-900-writes",
        "jump to page 900 of a known filter, with 1,000 writes per second",
        Work::Query(QueryKind::ChosenPage, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row(
        "query-where-writes",
        "a new CEL condition, with 1,000 writes per second",
        Work::Query(QueryKind::Condition, ConcurrentLoad::Writes),
        None,
    ),
    row(
        "query-where-900-writes",
        "jump to page 900 of a known condition, with 1,000 writes per second",
        Work::Query(QueryKind::ConditionPage, ConcurrentLoad::Writes),
        Some(Quantity::millis(2)),
    ),
    row("discovery", "aggregated discovery, 32 in flight", Work::Discovery, Some(Quantity::Rate(25_000.0))),
    row("watch-500", "500 watchers, server CPU an event", Work::Watch(500), Some(Quantity::micros(3))),
    row("watch-2000", "2,000 watchers, server CPU an event", Work::Watch(2_000), Some(Quantity::micros(3))),
    row(
        "node-watchers",
        "pod create, 4,000 watchers of one node each, CPU",
        Work::NodeWatchers,
        Some(Quantity::micros(300)),
    ),
    row(
        "selector-watchers",
        "update that matches one of 2,000 watchers of one label each, CPU",
        Work::SelectorWatchers,
        Some(Quantity::micros(400)),
    ),
    row(
        "fleet-mirror",
        "start of a gateway until its mirror serves the pods",
        Work::Fleet(Fleet::Cold),
        Some(Quantity::millis(3_000)),
    ),
    row("fleet-restart", "restart of it, from its copy", Work::Fleet(Fleet::Restart), Some(Quantity::millis(1_000))),
    row("fleet-memory", "memory of a gateway with the pods", Work::Fleet(Fleet::Memory), None),
    row("fleet-list", "list of 10,000 pods from it", Work::Fleet(Fleet::List), Some(Quantity::millis(60))),
    row("fleet-page", "sorted page of 50 from it", Work::Fleet(Fleet::FirstPage), Some(Quantity::millis(5))),
    row(
        "fleet-page-last",
        "jump to the last page of that order",
        Work::Fleet(Fleet::DeepPage),
        Some(Quantity::millis(5)),
    ),
    row("fleet-search", "search for a new word in it", Work::Fleet(Fleet::Search), Some(Quantity::millis(50))),
    row(
        "fleet-merged-page",
        "sorted page of 50 over two clusters",
        Work::Fleet(Fleet::MergedPage),
        Some(Quantity::millis(5)),
    ),
    row(
        "fleet-merged-page-last",
        "jump to the last page over two clusters",
        Work::Fleet(Fleet::MergedDeepPage),
        Some(Quantity::millis(5)),
    ),
    row("restart", "start to ready with the pods", Work::Restart, Some(Quantity::millis(2_000))),
    row(
        "restart-loaded",
        "start to ready with the pods, after many writes",
        Work::RestartLoaded,
        Some(Quantity::millis(6_000)),
    ),
    row("order-memory", "memory added by a sorted index of the pods", Work::AddedMemory(Added::Order), None),
    row("index-memory", "memory added by an index of a field", Work::AddedMemory(Added::Index), None),
    row("search-memory", "memory added by the search index", Work::AddedMemory(Added::Search), None),
    row(
        "order-create",
        "create a pod with a sorted index in use, relative to none",
        Work::CreateBeside(Added::Order),
        Some(Quantity::Ratio(0.8)),
    ),
    row(
        "index-create",
        "create a pod with an index in use, relative to none",
        Work::CreateBeside(Added::Index),
        Some(Quantity::Ratio(0.8)),
    ),
    row(
        "search-create",
        "create a pod with the search index in use, relative to none",
        Work::CreateBeside(Added::Search),
        Some(Quantity::Ratio(0.8)),
    ),
    row("list-converted", "list of 20,000 autoscalers in v1, stored in v2", Work::Converted, None),
    row(
        "definitions",
        "3,000 definitions, until all are discovered",
        Work::Definitions(Definitions::Discovered),
        Some(Quantity::millis(10_000)),
    ),
    row(
        "definitions-memory",
        "memory added by 3,000 definitions",
        Work::Definitions(Definitions::Memory),
        Some(Quantity::megabytes(300)),
    ),
    row(
        "definition",
        "one more definition, until its objects are served, p99",
        Work::Definitions(Definitions::Served),
        Some(Quantity::millis(200)),
    ),
    row(
        "definition-cpu",
        "server CPU of one more definition, without requests",
        Work::Definitions(Definitions::Cpu),
        Some(Quantity::millis(2)),
    ),
    row(
        "definitions-document",
        "discovery with them, compressed, 2 in flight",
        Work::Definitions(Definitions::Document),
        Some(Quantity::Rate(3_000.0)),
    ),
    row("definitions-get", "get one object while they are created, p99", Work::Definitions(Definitions::Others), None),
    row(
        "definitions-start",
        "start to ready with them",
        Work::Definitions(Definitions::Start),
        Some(Quantity::millis(1_000)),
    ),
    row(
        "custom-create",
        "create a custom resource with 5 rules, relative to a config map of its size",
        Work::Custom(Custom::Create),
        Some(Quantity::Ratio(0.8)),
    ),
    row("custom-list", "whole list of custom resources, JSON", Work::Custom(Custom::List), Some(Quantity::millis(500))),
    row("custom-chunk", "one chunk of 500 of them, median", Work::Custom(Custom::Chunk), Some(Quantity::micros(2_500))),
    row(
        "custom-watch",
        "500 watchers of them, server CPU an event",
        Work::Custom(Custom::Watch),
        Some(Quantity::micros(3)),
    ),
    row(
        "migration",
        "rewrite as many autoscalers as pods in another version, with a client",
        Work::Migration,
        Some(Quantity::millis(30_000)),
    ),
    row(
        "proxied-added",
        "latency added by proxying a get to an aggregated server, median",
        Work::Proxied(ProxiedFigure::Added),
        Some(Quantity::micros(150)),
    ),
    row("proxied-get", "proxied gets, 32 in flight", Work::Proxied(ProxiedFigure::Get), None),
    row("proxied-list", "proxied lists of 4 MB, 4 in flight", Work::Proxied(ProxiedFigure::List), None),
    row(
        "proxied-stream",
        "one proxied body, MB per second",
        Work::Proxied(ProxiedFigure::Stream),
        Some(Quantity::Rate(1_000.0)),
    ),
    row(
        "proxied-copied",
        "one body copied between two TLS connections, MB per second",
        Work::Proxied(ProxiedFigure::Copied),
        None,
    ),
    row(
        "roles-create",
        "create a pod as a user with a role among 5,000 bindings, relative to AlwaysAllow",
        Work::Access(Access::RolesCreate),
        Some(Quantity::Ratio(0.97)),
    ),
    row(
        "roles-get",
        "get a pod as a user with a role among 5,000 bindings, relative to AlwaysAllow",
        Work::Access(Access::RolesGet),
        Some(Quantity::Ratio(0.97)),
    ),
    row(
        "roles-audit-create",
        "that create with audit at Metadata, relative to AlwaysAllow without audit",
        Work::Access(Access::AuditedCreate),
        Some(Quantity::Ratio(0.92)),
    ),
    row(
        "roles-audit-get",
        "that get with audit at Metadata, relative to AlwaysAllow without audit",
        Work::Access(Access::AuditedGet),
        Some(Quantity::Ratio(0.92)),
    ),
    row(
        "policies-create",
        "create a pod with five policies, relative to none",
        Work::Admitted(Admitted::Policies),
        Some(Quantity::Ratio(0.9)),
    ),
    row(
        "webhook-create",
        "create a pod, changed by a webhook on this machine",
        Work::Admitted(Admitted::Webhook),
        Some(Quantity::Rate(2_500.0)),
    ),
    row(
        "quota-create",
        "create a pod in one namespace with a quota",
        Work::Admitted(Admitted::Quota),
        Some(Quantity::Rate(2_000.0)),
    ),
    row(
        "unasked-create",
        "create a pod without policies and webhooks, relative to a server without these plugins",
        Work::Admitted(Admitted::Unasked),
        Some(Quantity::Ratio(0.97)),
    ),
    row(
        "fork",
        "fork of a server in memory with 500 objects, until it is ready",
        Work::Cost("fork"),
        Some(Quantity::millis(5)),
    ),
    row(
        "fork-stop",
        "stop of a server in the process of a test, with an open watch",
        Work::Cost("stop"),
        Some(Quantity::millis(100)),
    ),
    row("expression", "a simple policy expression on a pod", Work::Cost("expression"), Some(Quantity::micros(5))),
    row(
        "decision",
        "an authorization decision, with 5,000 bindings and 2,000 roles",
        Work::Cost("decision"),
        Some(Quantity::micros(2)),
    ),
    row("walker", "walk a pod of 4.9 KB by its schema", Work::Cost("walk"), Some(Quantity::micros(50))),
    row("lacks", "find missing defaults in a stored pod", Work::Cost("lacks"), Some(Quantity::micros(5))),
    row(
        "definition-elsewhere",
        "one more than 3,000 definitions, until another server's document has it, p99 (PostgreSQL)",
        Work::DefinedElsewhere,
        Some(Quantity::millis(200)),
    ),
    row(
        "two-servers-create",
        "pod creates through two servers, relative to direct inserts of 16 rows (PostgreSQL)",
        Work::TwoServers(Objects::Pods),
        Some(Quantity::Ratio(0.5)),
    ),
    row(
        "two-servers-config-maps",
        "config map creates of that size, relative to direct inserts",
        Work::TwoServers(Objects::ConfigMaps),
        Some(Quantity::Ratio(0.5)),
    ),
];

/// The selected rows.
pub(crate) struct Rows(Vec<&'static Row>);

impl Rows {
    /// The selected rows. A name selects the row of this name, or else all rows whose names begin with it and a dash.
    /// Without names, all rows that depend on the store.
    pub(crate) fn chosen(names: &[String], store: &BenchStore) -> Result<Self> {
        let is_of = |row: &Row, name: &str| {
            let is_group = ALL.iter().all(|row| row.name != name);
            row.name == name || (is_group && row.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')))
        };
        if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|row| is_of(row, name))) {
            bail!("there is no row {unknown:?}; --rows help prints them");
        }
        let is_told = |row: &&Row| match row.work {
            Work::TwoServers(_) | Work::DefinedElsewhere => store.is_postgres(),
            Work::Cost(_) | Work::Ephemeral(_) => store.is_embedded(),
            _ => true,
        };
        let is_named = |row: &&Row| names.iter().any(|name| is_of(row, name));
        Ok(Self(ALL.iter().filter(|row| if names.is_empty() { is_told(row) } else { is_named(row) }).collect()))
    }

    /// Measures the rows in order. An error contains the figures measured before it.
    pub(crate) async fn measure(&self, bench: &mut Bench) -> Result<Vec<Figure>, (Vec<Figure>, Error)> {
        let mut figures = Vec::new();
        for row in &self.0 {
            eprintln!("measuring {}", row.name);
            match measure(row.work, bench).await.with_context(|| format!("row {}", row.name)) {
                Ok((value, seen)) => figures.push(row.figure(value, seen, bench)),
                Err(error) => return Err((figures, error)),
            }
        }
        Ok(figures)
    }
}

impl Row {
    fn figure(&self, value: Quantity, seen: Observed, bench: &Bench) -> Figure {
        // Goals apply only to the default number of pods and the embedded store.
        let is_stated = match self.work {
            Work::TwoServers(_) | Work::DefinedElsewhere => true,
            _ => bench.pods.count == FULL_SIZE && bench.store.is_embedded(),
        };
        let at_least = self.at_least.filter(|_| is_stated);
        Figure { name: self.name, what: self.what.to_owned(), value, at_least, seen }
    }
}

async fn measure(work: Work, bench: &mut Bench) -> Result<(Quantity, Observed)> {
    match work {
        Work::Start => start::start(bench).await,
        Work::Ephemeral(which) => ephemeral::figure(bench, which).await,
        Work::Restart => start::restart(bench).await,
        Work::RestartLoaded => start::restart_loaded(bench).await,
        Work::MemoryEmpty => memory::empty(bench).await,
        Work::MemoryFilled => memory::filled(bench).await,
        Work::Create => bench.fill().await,
        Work::Update => objects::update(bench).await,
        Work::Patch => objects::patch(bench).await,
        Work::Apply => objects::apply(bench).await,
        Work::Get => objects::get(bench).await,
        Work::Discovery => objects::discovery(bench).await,
        Work::List(form) => lists::whole(bench, form).await,
        Work::Walk => lists::walk(bench).await,
        Work::Chunk => lists::chunk(bench).await,
        Work::ListsAtOnce => lists::at_once(bench).await,
        Work::ListsMemory => lists::memory_at_once(bench).await,
        Work::Selector => lists::selector(bench).await,
        Work::Query(asked, beside) => queries::asked(bench, asked, beside).await,
        Work::AddedMemory(added) => added::memory(bench, added).await,
        Work::CreateBeside(added) => added::create(bench, added).await,
        Work::Watch(watchers) => watch::fan_out(bench, watchers).await,
        Work::NodeWatchers => watch::node_watchers(bench).await,
        Work::SelectorWatchers => watch::selector_watchers(bench).await,
        Work::Converted => converted::list(bench).await,
        Work::Migration => migration::figure(bench).await,
        Work::Definitions(which) => definitions::figure(bench, which).await,
        Work::Custom(which) => custom::figure(bench, which).await,
        Work::Proxied(which) => proxied::figure(bench, which).await,
        Work::Fleet(which) => fleet::figure(bench, which).await,
        Work::Access(which) => access::figure(bench, which).await,
        Work::Admitted(which) => admitted::figure(bench, which).await,
        Work::Cost(step) => costs::measure_step(bench, step).await,
        Work::DefinedElsewhere => elsewhere::figure(bench).await,
        Work::TwoServers(objects) => servers::create(bench, objects).await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{ALL, Rows};
    use crate::store::BenchStore;

    #[test]
    fn rows_are_chosen_by_distinct_names() {
        assert_eq!(ALL.iter().map(|row| row.name).collect::<HashSet<_>>().len(), ALL.len());
        let chosen = |names: &[String], store| Rows::chosen(names, &store);
        let names = |rows: &Rows| rows.0.iter().map(|row| row.name).collect::<Vec<_>>();
        let embedded = names(&chosen(&[], BenchStore::Embedded).unwrap());
        assert!(embedded.contains(&"walker") && !embedded.contains(&"two-servers-create"));
        let postgres = names(&chosen(&[], BenchStore::Given("postgres://db/keelson".into())).unwrap());
        assert!(!postgres.contains(&"walker") && postgres.contains(&"two-servers-create"));
        assert!(chosen(&["nonsense".into()], BenchStore::Embedded).is_err());
        let chosen = chosen(&["walk".into(), "get".into()], BenchStore::Embedded).unwrap();
        assert_eq!(names(&chosen), ["get", "walk"]);
        let fleet = Rows::chosen(&["fleet".into()], &BenchStore::Embedded).unwrap();
        assert!(names(&fleet).len() == 9 && names(&fleet).iter().all(|name| name.starts_with("fleet-")));
    }
}
