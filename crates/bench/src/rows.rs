//! The rows of the table: their measurements and goals.
//!
//! The rows run in the order of [`ALL`]: rows with a fresh server first, then those that read the filled one, and last
//! those that add to it.

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
mod table;
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
pub(crate) use table::ALL;

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
