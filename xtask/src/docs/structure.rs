//! Faults of a page that mdBook renders wrongly without an error.
//!
//! The checked faults are tables without a header, rows with another number of cells, open code fences, and titles that
//! differ from the table of contents.
//!
//! The check needs no mdBook, so every run of `cargo xtask docs` has the same result.

use std::collections::BTreeMap;

use super::Page;
use super::links::{CONTENTS, SITE};
use crate::markdown::text_lines;

/// The faults of all pages. Pages outside of the site have tables and fences, but no entry in the contents.
pub(super) fn check(pages: &[Page]) -> Vec<String> {
    let mut faults: Vec<String> = pages.iter().flat_map(|page| tables(page).chain(fences(page))).collect();
    let of_site = |place: &str| pages.iter().find(|page| page.place == place);
    let mut entries: BTreeMap<String, usize> = BTreeMap::new();
    for (line, title, target) in of_site(CONTENTS).into_iter().flat_map(|contents| entries_of(&contents.text)) {
        let place = format!("{SITE}{target}");
        let times = entries.entry(place.clone()).or_default();
        *times += 1;
        if *times > 1 {
            faults.push(format!("{CONTENTS}:{line}: {target} is listed twice"));
        }
        match of_site(&place).map(titles).as_deref() {
            None => {}
            Some([one]) if *one == title => {}
            Some([one]) => faults.push(format!("{CONTENTS}:{line}: {target} has the title {one:?}, not {title:?}")),
            Some(titles) => faults.push(format!("{place}: {} titles, expected one", titles.len())),
        }
    }
    faults
}

/// The entries of the contents: line, title and target.
fn entries_of(contents: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    text_lines(contents).filter_map(|(line, text)| {
        let (_, entry) = text.split_once('[')?;
        let (title, target) = entry.split_once("](")?;
        Some((line, title, target.strip_suffix(')')?))
    })
}

fn titles(page: &Page) -> Vec<&str> {
    text_lines(&page.text).filter_map(|(_, line)| line.strip_prefix("# ")).map(str::trim).collect()
}

/// A table has a delimiter row below its head, and rows with as many cells as the head.
fn tables(page: &Page) -> impl Iterator<Item = String> {
    let mut faults = Vec::new();
    let mut width = None;
    let mut lines = text_lines(&page.text).peekable();
    while let Some((number, line)) = lines.next() {
        if !line.starts_with('|') {
            width = None;
            continue;
        }
        let cells = separators(line);
        match width {
            None if !lines.peek().is_some_and(|(_, next)| is_delimiter(next)) => {
                faults.push(format!("{}:{number}: a table without a head", page.place));
            }
            Some(width) if width != cells => {
                faults.push(format!("{}:{number}: {cells} cells, expected {width}", page.place));
            }
            _ => {}
        }
        width.get_or_insert(cells);
    }
    faults.into_iter()
}

fn is_delimiter(line: &str) -> bool {
    line.starts_with("|") && line.contains('-') && line.bytes().all(|b| matches!(b, b'|' | b'-' | b':' | b' '))
}

/// The number of cells of a row. As in GitHub's Markdown, a pipe in a code span needs a backslash too.
fn separators(row: &str) -> usize {
    let mut escaped = false;
    let pipes = row.trim_end().bytes().filter(|byte| {
        let is_separator = *byte == b'|' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_separator
    });
    pipes.count().saturating_sub(1)
}

fn fences(page: &Page) -> Option<String> {
    let fences = page.text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    (fences % 2 != 0).then(|| format!("{}: a code fence is not closed", page.place))
}

#[cfg(test)]
mod tests {
    use super::{CONTENTS, Page, check};

    fn page(place: &str, text: &str) -> Page {
        Page { place: place.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn whole_pages_have_no_faults() {
        let pages = [
            page(CONTENTS, "# Summary\n\n[One](one.md)\n\n- [Two](a/two.md)"),
            page(
                "docs/one.md",
                "# One\n\n| a | `b\\|c` |\n|:--|--:|\n| 1 | 2 |\n\n```sh\n# no title\n| no table\n```\n",
            ),
            page("docs/a/two.md", "# Two\n"),
        ];
        assert_eq!(check(&pages), [""; 0]);
    }

    #[test]
    fn each_fault_is_named_with_its_line() {
        let pages = [
            page(CONTENTS, "[One](one.md)\n[Two](two.md)\n[One](one.md)"),
            page("docs/one.md", "# One\n# More\n| a | b |\n|---|---|\n| 1 |\n\n| 3 | 4 |\n"),
            page("docs/two.md", "# Too\n```sh\n"),
        ];
        let expected = [
            "docs/one.md:5: 1 cells, expected 2",
            "docs/one.md:7: a table without a head",
            "docs/two.md: a code fence is not closed",
            "docs/one.md: 2 titles, expected one",
            "docs/SUMMARY.md:2: two.md has the title \"Too\", not \"Two\"",
            "docs/SUMMARY.md:3: one.md is listed twice",
            "docs/one.md: 2 titles, expected one",
        ];
        assert_eq!(check(&pages), expected);
    }
}
