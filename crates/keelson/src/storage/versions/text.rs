//! Formats a report: a table of resources, followed by the problems. During a wait the report is one line with a
//! progress bar.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::{Migration, Report, Resource};

/// The width of a progress bar, in characters.
const BAR: usize = 30;
/// From this number of further resources with the same reason on, only the first resource is named.
const ALIKE: usize = 4;
const HEADS: [&str; 5] = ["RESOURCE", "ENCODED AS", "AGREED", "STORED", "OLDER"];

/// The full report, without a line break at the end.
pub(super) fn report(report: &Report) -> String {
    let mut text = table(&report.resources);
    let mut say = |line: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{line}");
    };
    say(format_args!("\nservers: {}", report.servers.join(", ")));
    for server in &report.silent {
        say(format_args!(
            "{server} has a lease and publishes no storage versions, as a kube-apiserver or a keelson with StorageVersionAPI switched \
             off: nothing is migrated as long as it is there"
        ));
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (resource, why) in report.disagreements() {
        reasons.entry(why).or_default().push(resource);
    }
    if !reasons.is_empty() {
        say(format_args!("\nno agreement:"));
    }
    for (why, resources) in reasons {
        match &resources[..] {
            // The table names all of them.
            [first, others @ ..] if others.len() >= ALIKE => {
                say(format_args!("  {first} and {} more: {why}", others.len()));
            }
            few => few.iter().for_each(|resource| say(format_args!("  {resource}: {why}"))),
        }
    }
    if !report.migrations.is_empty() {
        say(format_args!("\nmigrations:"));
    }
    for migration in &report.migrations {
        say(format_args!("  {}", one_migration(migration)));
    }
    for unmanaged in &report.unmanaged {
        say(format_args!(
            "not managed: {} is served by {}, which publishes no storage versions",
            unmanaged.version, unmanaged.service
        ));
    }
    text
}

/// The condition for which a migration waits: an agreement, or the message of a migration without progress.
pub(super) fn waits_for(report: &Report) -> Option<String> {
    match report.disagreements().next() {
        Some((resource, why)) => Some(format!("no agreement on {resource}: {why}")),
        None => report.migrations.iter().find_map(hindrance).map(ToOwned::to_owned),
    }
}

/// The reasons why the migration is not complete.
pub(super) fn what_is_left(report: &Report) -> String {
    let disagreements = report.disagreements().count();
    let mut all = Vec::new();
    if let Some((resource, why)) = report.disagreements().next() {
        all.push(format!("there is no agreement on {disagreements} resources, such as {resource}: {why}"));
    }
    if report.older() > 0 {
        all.push(format!("{} objects are stored in older encodings", report.older()));
    }
    all.extend(report.migrations.iter().map(one_migration));
    all.join("; ")
}

fn table(resources: &[Resource]) -> String {
    let rows = std::iter::once(HEADS.map(str::to_owned)).chain(resources.iter().map(row));
    let rows: Vec<[String; 5]> = rows.collect();
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(resource: &Resource) -> [String; 5] {
    let first = resource.entries.first().map(|entry| &entry.encoding);
    let encoded = match first {
        Some(first) if resource.entries.iter().all(|entry| entry.encoding == *first) => first.clone(),
        _ => {
            let each = resource.entries.iter().map(|entry| format!("{}={}", entry.server, entry.encoding));
            each.collect::<Vec<_>>().join(",")
        }
    };
    let stored = resource.stored.as_ref().map(|stored| stored.values().sum::<usize>().to_string());
    let older = match (&resource.stored, resource.older()) {
        (_, Some(older)) => older.to_string(),
        // Without an agreed version no object counts as older.
        (Some(stored), None) if !stored.is_empty() => {
            let each = stored.iter().filter(|(_, count)| **count > 0);
            each.map(|(encoding, count)| format!("{encoding}: {count}")).collect::<Vec<_>>().join(", ")
        }
        (_, None) => "-".to_owned(),
    };
    let agreed = if resource.agreed.is_ok() { "yes" } else { "no" };
    [resource.name.clone(), encoded, agreed.to_owned(), stored.unwrap_or_else(|| "-".to_owned()), older]
}

fn one_migration(migration: &Migration) -> String {
    let Migration { name, resource, is_running, done, total, .. } = migration;
    let state = if *is_running { bar(*done, *total) } else { "it has not begun".to_owned() };
    let hindrance = hindrance(migration).map(|hindrance| format!("; {hindrance}")).unwrap_or_default();
    format!("{name} of {resource}: {state}{hindrance}")
}

/// The reason why a migration makes no progress, if its message has one.
fn hindrance(migration: &Migration) -> Option<&str> {
    migration.message.split_once("is running: ").map(|(_, hindrance)| hindrance)
}

fn bar(done: usize, total: usize) -> String {
    let done = done.min(total);
    // Any client may have written these numbers, so they may have any size.
    let share = |of: usize| (done as u128 * of as u128).checked_div(total as u128).map_or(of, |share| share as usize);
    let full = share(BAR);
    format!("[{}{}] {:3}% ({done} of {total} objects)", "#".repeat(full), ".".repeat(BAR - full), share(100))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::storage::versions::report::Entry;

    fn entry(server: &str, encoding: &str) -> Entry {
        Entry { server: server.to_owned(), encoding: encoding.to_owned() }
    }

    fn sample_report() -> Report {
        let stored = BTreeMap::from([("autoscaling/v1".to_owned(), 3), ("autoscaling/v2".to_owned(), 4)]);
        let scalers = Resource {
            name: "horizontalpodautoscalers.autoscaling".to_owned(),
            entries: vec![entry("a", "autoscaling/v1"), entry("b", "autoscaling/v2")],
            agreed: Err("a stores autoscaling/v1, b stores autoscaling/v2".to_owned()),
            stored: Some(stored.clone()),
        };
        let pods = Resource {
            name: "pods".to_owned(),
            entries: vec![entry("a", "v1"), entry("b", "v1")],
            agreed: Ok("v1".to_owned()),
            stored: Some(BTreeMap::from([("v1".to_owned(), 5), ("v1 in protobuf".to_owned(), 2)])),
        };
        let migration = Migration {
            name: "pods-x".to_owned(),
            resource: "pods".to_owned(),
            is_running: true,
            message: "The migration is running: 1 objects could not be written".to_owned(),
            done: 2,
            total: 4,
        };
        let (servers, silent) = (vec!["a".to_owned(), "b".to_owned()], Vec::new());
        Report { servers, silent, resources: vec![scalers, pods], migrations: vec![migration], unmanaged: Vec::new() }
    }

    #[test]
    fn a_report_has_tables_for_resources_and_migrations() {
        let expected = "\
RESOURCE                              ENCODED AS                         AGREED  STORED  OLDER
horizontalpodautoscalers.autoscaling  a=autoscaling/v1,b=autoscaling/v2  no      7       autoscaling/v1: 3, autoscaling/v2: 4
pods                                  v1                                 yes     7       2

servers: a, b

no agreement:
  horizontalpodautoscalers.autoscaling: a stores autoscaling/v1, b stores autoscaling/v2

migrations:
  pods-x of pods: [###############...............]  50% (2 of 4 objects); 1 objects could not be written";
        assert_eq!(report(&sample_report()), expected);
    }

    #[test]
    fn a_shared_reason_is_printed_once() {
        let mut found = sample_report();
        let alike = |name: &str| Resource {
            name: name.to_owned(),
            entries: vec![entry("a", "v1")],
            agreed: Err("c has a lease and no entry here: its version is not known".to_owned()),
            stored: None,
        };
        found.resources.extend(["p", "q", "r", "s", "t"].map(alike));
        let text = report(&found);
        let part = "
no agreement:
  horizontalpodautoscalers.autoscaling: a stores autoscaling/v1, b stores autoscaling/v2
  p and 4 more: c has a lease and no entry here: its version is not known
";
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn a_wait_names_its_condition() {
        let mut found = sample_report();
        assert!(waits_for(&found).unwrap().starts_with("no agreement on hor"));
        found.resources.remove(0);
        assert_eq!(waits_for(&found).as_deref(), Some("1 objects could not be written"));
        assert!(what_is_left(&found).starts_with("2 objects are stored in older encodings; pods-x of pods: ["));
        assert_eq!(bar(0, 0), format!("[{}] 100% (0 of 0 objects)", "#".repeat(BAR)));
        assert!(bar(usize::MAX, usize::MAX).contains(" 100% "));
    }
}
