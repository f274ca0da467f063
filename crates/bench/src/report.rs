//! The table of figures, for a terminal and as Markdown.
//!
//! Both forms have the same cells. This module must not know the measurements.

use std::time::Duration;

use crate::figure::{Figure, duration, memory};

const HEAD: [&str; 12] =
    ["row", "work", "measured", "at least", "", "first byte", "p50", "p99", "MB/s", "server CPU", "peak", "growth"];

/// The table in aligned columns.
pub(crate) fn text(figures: &[Figure]) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(head()).chain(figures.iter().map(cells)).collect();
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        // Names are left-aligned, numbers right-aligned.
        let aligned = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(aligned.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    for figure in figures {
        if let Some(note) = &figure.seen.note {
            text.push_str(&format!("{}: {note}\n", figure.name));
        }
    }
    text
}

/// A document with the figures and the machine.
pub(crate) fn markdown(figures: &[Figure], machine: &str, store: &str, pods: usize) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("Measured on {machine}. {pods} pods on {store}; client and server on the same machine.\n\n");
    text.push_str(&line(head()));
    text.push_str(&line(HEAD.iter().enumerate().map(|(c, _)| if c < 2 { "---" } else { "--:" }.to_owned()).collect()));
    for figure in figures {
        text.push_str(&line(cells(figure)));
    }
    let notes: Vec<String> =
        figures.iter().filter_map(|f| Some(format!("- {}: {}\n", f.name, f.seen.note.as_ref()?))).collect();
    if !notes.is_empty() {
        text.push_str(&format!("\n{}", notes.concat()));
    }
    text
}

fn head() -> Vec<String> {
    HEAD.map(str::to_owned).to_vec()
}

fn cells(figure: &Figure) -> Vec<String> {
    let time = |value: Option<Duration>| value.map_or_else(String::new, duration);
    let bytes = |value: Option<u64>| value.map_or_else(String::new, memory);
    let seen = &figure.seen;
    let verdict = figure.at_least.map_or("", |target| if figure.value.reaches(target) { "ok" } else { "MISSED" });
    vec![
        figure.name.to_owned(),
        figure.what.clone(),
        figure.value.to_string(),
        figure.at_least.map_or_else(String::new, |target| target.to_string()),
        verdict.to_owned(),
        time(seen.first_byte),
        time(seen.p50),
        time(seen.p99),
        seen.bytes_per_second.map_or_else(String::new, |rate| format!("{:.0}", rate / 1e6)),
        time(seen.cpu),
        bytes(seen.peak),
        bytes(seen.growth),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Duration, Figure, markdown, text};
    use crate::figure::{Observed, Quantity};

    fn figure() -> Figure {
        let seen =
            Observed { p50: Some(Duration::from_micros(1500)), note: Some("seen".into()), ..Observed::default() };
        let at_least = Some(Quantity::Rate(5.0));
        Figure { name: "get", what: "get one".into(), value: Quantity::Rate(7.4), at_least, seen }
    }

    #[test]
    fn columns_are_aligned_and_notes_follow() {
        let table = text(&[figure()]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["get", "get", "one", "7", "/s", "5", "/s", "ok", "1.5", "ms"]
        );
        assert_eq!(lines[0].find("measured").map(|at| at + 8), lines[1].find("/s").map(|at| at + 2));
        assert_eq!(lines[2], "get: seen");
    }

    #[test]
    fn markdown_has_one_line_for_a_figure() {
        let table = markdown(&[figure()], "a machine", "a store", 10);
        assert!(table.starts_with("Measured on a machine. 10 pods on a store;"));
        assert!(table.contains("| get | get one | 7 /s | 5 /s | ok |  | 1.5 ms |"), "{table}");
    }
}
