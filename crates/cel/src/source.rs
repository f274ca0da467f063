//! The text of an expression, places in it, and what is wrong there.
//!
//! Places are counted in code points, as clients see them; what is said about them has the form that upstream's compiler
//! gives it, because users read it in the answers to their definitions.

use std::fmt::Write;

/// Of how many code points an expression may consist.
pub const MAX_CODE_POINTS: usize = 100_000;
/// Of how many issues is told, and how many there are besides.
pub const MAX_ISSUES: usize = 100;
/// After so many bytes of text no more lines are shown with what is wrong in them: each issue of a long line would repeat it.
const MAX_SHOWN_BYTES: usize = 64 * 1024;
/// A line longer than so many bytes is not shown with what is wrong in it.
const MAX_SNIPPET_BYTES: usize = 16_384;

/// The text of an expression.
pub struct Source {
    chars: Vec<char>,
    /// Where each line starts.
    lines: Vec<usize>,
}

/// What is wrong at a place of an expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Issue {
    /// The offset in code points; none if it concerns the whole.
    pub offset: Option<u32>,
    /// What it is.
    pub message: String,
}

impl Source {
    /// Takes a text apart.
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let starts = chars.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        Self { chars, lines }
    }

    /// The code points.
    pub fn chars(&self) -> &[char] {
        &self.chars
    }

    /// The code points between two offsets.
    pub fn slice(&self, start: u32, end: u32) -> String {
        let end = (end as usize).min(self.chars.len());
        self.chars[(start as usize).min(end)..end].iter().collect()
    }

    /// The line, counted from one, and the column, counted from zero, of an offset.
    fn place(&self, offset: u32) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset as usize);
        (line, offset as usize - self.lines[line - 1])
    }

    fn line(&self, line: usize) -> String {
        let start = self.lines[line - 1];
        let end = self.lines.get(line).map_or(self.chars.len(), |next| next - 1);
        self.chars[start..end].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect()
    }

    /// All that is wrong, in the order of places, as upstream writes it.
    pub fn report(&self, issues: &[Issue]) -> String {
        let mut sorted: Vec<&Issue> = issues.iter().take(MAX_ISSUES).collect();
        sorted.sort_by_key(|issue| issue.offset);
        let mut out = String::new();
        for issue in sorted {
            if !out.is_empty() {
                out.push('\n');
            }
            let shows_line = out.len() < MAX_SHOWN_BYTES;
            out.push_str(&self.report_one(issue, shows_line));
        }
        if let Some(more) = issues.len().checked_sub(MAX_ISSUES).filter(|more| *more > 0) {
            out.push_str(&format!("\n{more} more errors were truncated"));
        }
        out
    }

    fn report_one(&self, issue: &Issue, shows_line: bool) -> String {
        let Some(offset) = issue.offset else { return format!("ERROR: <input>:-1:0: {}", issue.message) };
        let (line, column) = self.place(offset);
        let snippet = self.line(line);
        let mut out = format!("ERROR: <input>:{line}:{}: {}", column + 1, issue.message);
        if shows_line && snippet.len() <= MAX_SNIPPET_BYTES {
            let is_wide = |c: char| c.len_utf8() > 1;
            let dots: String = snippet.chars().take(column).map(|c| if is_wide(c) { '．' } else { '.' }).collect();
            let mark = if snippet.chars().nth(column).is_some_and(is_wide) { '＾' } else { '^' };
            let written = write!(out, "\n | {snippet}\n | {dots}{mark}");
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
        out
    }
}
