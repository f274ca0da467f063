//! The source text of an expression, positions in it, and the issues found in it.
//!
//! Positions are counted in code points. Reports have the format of upstream's compiler, since users see them in
//! responses when they write definitions.

use std::fmt::Write;

/// The maximum length of an expression in code points.
pub const MAX_CODE_POINTS: usize = 100_000;
/// The maximum number of issues in a report. The report states the number of further issues.
pub const MAX_ISSUES: usize = 100;
/// The maximum bytes of source lines in a report. Each issue repeats its line, which may be long.
const MAX_SHOWN_BYTES: usize = 64 * 1024;
/// The maximum length of a source line in a report, in bytes.
const MAX_SNIPPET_BYTES: usize = 16_384;

/// The source of an expression.
pub struct Source {
    chars: Vec<char>,
    /// The start of each line.
    lines: Vec<usize>,
}

/// A fault at a position of an expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Issue {
    /// The offset in code points. `None` for the whole expression.
    pub offset: Option<u32>,
    /// The message.
    pub message: String,
}

impl Source {
    /// Splits a text into code points and lines.
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

    /// The line and column of an offset. Lines are counted from one, columns from zero.
    fn place(&self, offset: u32) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset as usize);
        (line, offset as usize - self.lines[line - 1])
    }

    fn line(&self, line: usize) -> String {
        let start = self.lines[line - 1];
        let end = self.lines.get(line).map_or(self.chars.len(), |next| next - 1);
        self.chars[start..end].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect()
    }

    /// Formats all issues by position, as upstream does.
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
