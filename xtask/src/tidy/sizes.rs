//! Sizes: a file or function beyond its limit must be split, or have its reason in a `// SIZE: reason` comment.
//!
//! Counts lines of production code: everything before the tests at the end of the file. Functions are found by
//! rustfmt's layout: one ends at the first `}` in the column of its start. Comments have a width limit too.

use super::Finding;

const FILE_AIM: usize = 400;
const FILE_BOUND: usize = 600;
const FUNCTION_BOUND: usize = 70;
/// The largest width of a comment, in columns. rustfmt formats code but not comments.
const COMMENT_BOUND: usize = 140;
/// The prefix of a reason. A file's reason is near its top, a function's inside or directly above it.
const REASON: &str = "// SIZE: ";
const REASON_WITHIN: usize = 20;

pub(super) fn check(place: &str, text: &str) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let production = production_lines(&lines);
    let excused = lines.iter().take(REASON_WITHIN).any(|l| l.starts_with(REASON));
    let mut findings = Vec::new();
    if production > FILE_BOUND && !excused {
        findings.push(Finding::fault(place, format!("{production} lines; split it at {FILE_BOUND} or give a reason")));
    } else if production > FILE_AIM && !excused {
        findings.push(Finding::note(place, format!("{production} lines; {FILE_AIM} is the aim")));
    }
    let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_BOUND;
    findings.extend(lines.iter().enumerate().filter(|(_, line)| is_wide(line)).map(|(number, _)| {
        let text = format!("a comment wider than {COMMENT_BOUND} columns: break the line");
        Finding::fault(format_args!("{place}:{}", number + 1), text)
    }));
    findings.extend(long_functions(&lines).map(|(line, name, length)| {
        let text = format!("fn {name} has {length} lines; split it at {FUNCTION_BOUND} or give a reason");
        Finding::fault(format_args!("{place}:{line}"), text)
    }));
    findings
}

fn production_lines(lines: &[&str]) -> usize {
    let starts_tests = |at: &usize| {
        lines[*at] == "#[cfg(test)]"
            && lines.get(at + 1).is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
    };
    (0..lines.len()).find(starts_tests).unwrap_or(lines.len())
}

/// Each function that is too long without a reason: its line (from 1), name and length.
fn long_functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str, usize)> {
    lines.iter().enumerate().filter_map(|(start, line)| {
        let name = function_name(line)?;
        let end_mark = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let length = lines[start..].iter().position(|l| *l == end_mark)? + 1;
        let around = &lines[start.saturating_sub(2)..start + length];
        let excused = around.iter().any(|l| l.trim_start().starts_with(REASON));
        (length > FUNCTION_BOUND && !excused).then_some((start + 1, name, length))
    })
}

/// The name that a line declares, if the function's body starts on it or later.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(inner) => inner.split_once(')')?.1,
            None => after,
        }
        .trim_start();
    }
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    let complete = line.ends_with(';') || line.ends_with('}');
    (!complete).then(|| name.split(['(', '<']).next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{check, function_name};

    fn function(lines: usize, extra: &str) -> String {
        format!(
            "impl A {{\n    pub(crate) async fn long<T>(&self) {{\n{extra}{}    }}\n}}\n",
            "        a();\n".repeat(lines)
        )
    }

    #[test]
    fn a_long_function_needs_a_reason() {
        assert!(check("a.rs", &function(60, "")).is_empty());
        let found = check("a.rs", &function(70, ""));
        assert_eq!((found.len(), found[0].place.as_str()), (1, "a.rs:2"));
        assert!(found[0].text.contains("fn long has 72 lines"), "{}", found[0].text);
        assert!(check("a.rs", &function(70, "        // SIZE: one match over all of the protocol\n")).is_empty());
    }

    #[test]
    fn a_long_file_needs_a_reason_and_its_tests_do_not_count() {
        assert!(check("a.rs", &"x\n".repeat(400)).is_empty());
        assert!(!check("a.rs", &"x\n".repeat(401))[0].fault);
        assert!(check("a.rs", &"x\n".repeat(601))[0].fault);
        assert!(check("a.rs", &format!("//! Head.\n// SIZE: a table\n{}", "x\n".repeat(700))).is_empty());
        assert!(
            check("a.rs", &format!("{}#[cfg(test)]\nmod tests {{\n{}}}", "x\n".repeat(300), "x\n".repeat(900)))
                .is_empty()
        );
    }

    #[test]
    fn declarations_are_distinguished_from_bodies() {
        assert_eq!(function_name("    fn next(&mut self) -> Item;"), None);
        assert_eq!(function_name("pub const fn new(a: u8) -> Self {"), Some("new"));
        assert_eq!(function_name("    pub async fn start<T>("), Some("start"));
        assert_eq!(function_name("    let fn_name = 1;"), None);
    }
}
