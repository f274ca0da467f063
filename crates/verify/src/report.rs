//! The report of a run: text for a terminal, HTML for people, JUnit's XML for machines.
//!
//! Everything that the server said is escaped: it is untrusted text.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use keelson_meta::control_characters::acts;
use quick_junit::{NonSuccessKind, Report as JunitReport, TestCase, TestCaseStatus, TestSuite};

use crate::args::Verify;
use crate::rules::Rule;
use crate::server::Exchange;

/// The result of one rule.
pub(crate) struct Outcome {
    pub(crate) rule: &'static Rule,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

/// The finding for a rule.
pub(crate) enum Verdict {
    Kept,
    Broken {
        why: String,
        exchanges: Vec<Exchange>,
    },
    /// The server gave no answer.
    Unanswered {
        why: String,
        exchanges: Vec<Exchange>,
    },
    /// The rule could not be checked on this server.
    Skipped(String),
}

impl Verdict {
    const fn word(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Broken { .. } => "BROKEN",
            Self::Unanswered { .. } => "NO ANSWER",
            Self::Skipped(_) => "skipped",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Kept => None,
            Self::Broken { why, .. } | Self::Unanswered { why, .. } | Self::Skipped(why) => Some(why),
        }
    }

    /// The requests and responses of a broken rule.
    fn exchanges(&self) -> String {
        match self {
            Self::Kept | Self::Skipped(_) => String::new(),
            Self::Broken { exchanges, .. } | Self::Unanswered { exchanges, .. } => {
                exchanges.iter().map(|exchange| format!("{exchange}\n")).collect()
            }
        }
    }

    const fn is_fault(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::Unanswered { .. })
    }
}

/// The results of a run.
pub(crate) struct Report {
    /// The version that the server reports.
    pub(crate) server: String,
    pub(crate) seed: u64,
    pub(crate) outcomes: Vec<Outcome>,
    /// The namespace that the run could not delete.
    pub(crate) left_behind: Option<String>,
}

impl Report {
    /// Returns true if no rule is broken and nothing is left behind.
    pub(crate) fn is_clean(&self) -> bool {
        self.left_behind.is_none() && !self.outcomes.iter().any(|outcome| outcome.verdict.is_fault())
    }

    /// Writes the text to standard output, and the files that the arguments name.
    ///
    /// # Errors
    /// Something can't be written.
    pub(crate) fn write(&self, args: &Verify) -> anyhow::Result<()> {
        io::stdout().lock().write_all(self.text().as_bytes()).context("writing the report")?;
        if let Some(file) = &args.html {
            std::fs::write(file, self.html()).with_context(|| format!("writing {}", file.display()))?;
        }
        if let Some(file) = &args.junit {
            let report = self.junit().to_string().context("encoding the JUnit report")?;
            std::fs::write(file, report).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Outcome { rule, verdict, .. } in &self.outcomes {
            let _ = writeln!(text, "{:<10} {:<26} {}", verdict.word(), rule.id, rule.text);
            if let Some(why) = verdict.why() {
                let _ = writeln!(text, "           {}", visible(why));
            }
            for line in verdict.exchanges().lines() {
                let _ = writeln!(text, "             {}", visible(line));
            }
        }
        if let Some(left) = &self.left_behind {
            let _ = writeln!(text, "{}", visible(left));
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    fn summary(&self) -> String {
        let count = |word: &str| self.outcomes.iter().filter(|outcome| outcome.verdict.word() == word).count();
        let counts: Vec<String> = ["kept", "BROKEN", "NO ANSWER", "skipped"]
            .into_iter()
            .filter(|word| count(word) > 0)
            .map(|word| format!("{} {}", count(word), word.to_lowercase()))
            .collect();
        format!(
            "{} rules, server {}, seed {}: {}",
            self.outcomes.len(),
            visible(&self.server),
            self.seed,
            counts.join(", ")
        )
    }

    fn html(&self) -> String {
        let mut page = String::from(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>keelson verify</title><style>\
             body{font:15px/1.5 sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}\
             table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;\
             border-bottom:1px solid #ccc}pre{white-space:pre-wrap;overflow-wrap:anywhere}.kept{color:#176639}\
             .BROKEN,.NO{color:#a11}</style><h1>keelson verify</h1>",
        );
        let _ = write!(page, "<p>{}</p>", escaped(&self.summary()));
        if let Some(left) = &self.left_behind {
            let _ = write!(page, "<p class=\"BROKEN\">{}</p>", escaped(left));
        }
        page.push_str("<table><tr><th>Result<th>Rule<th>Promise<th>Source<th>Time");
        for Outcome { rule, verdict, took } in &self.outcomes {
            let word = verdict.word();
            let _ = write!(
                page,
                "<tr><td class=\"{word}\">{word}<td>{}<td>{}<td>{}<td>{} ms",
                escaped(rule.id),
                escaped(rule.text),
                escaped(rule.source),
                took.as_millis()
            );
            if let Some(why) = verdict.why() {
                let exchanges = verdict.exchanges();
                let _ = write!(page, "<tr><td><td colspan=\"4\">{}<pre>{}</pre>", escaped(why), escaped(&exchanges));
            }
        }
        page.push_str("</table></html>\n");
        page
    }

    fn junit(&self) -> JunitReport {
        let mut suite = TestSuite::new("keelson verify");
        for Outcome { rule, verdict, took } in &self.outcomes {
            let mut status = match verdict {
                Verdict::Kept => TestCaseStatus::success(),
                Verdict::Broken { .. } => TestCaseStatus::non_success(NonSuccessKind::Failure),
                Verdict::Unanswered { .. } => TestCaseStatus::non_success(NonSuccessKind::Error),
                Verdict::Skipped(_) => TestCaseStatus::skipped(),
            };
            if let Some(why) = verdict.why() {
                status.set_message(why).set_description(verdict.exchanges());
            }
            let mut case = TestCase::new(rule.id, status);
            case.set_classname(rule.text).set_time(*took);
            suite.add_test_case(case);
        }
        let mut report = JunitReport::new(format!("keelson verify of {}", self.server));
        report.add_test_suite(suite);
        report
    }
}

/// A text on one line, with escaped control characters.
fn visible(text: &str) -> String {
    text.chars().map(|one| if acts(one) { one.escape_debug().to_string() } else { one.to_string() }).collect()
}

/// A text in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let rule = crate::rules::all().next().unwrap();
        let broken = Verdict::Broken { why: "<b>\u{1b}[31m".to_owned(), exchanges: Vec::new() };
        let outcomes = [Verdict::Kept, broken, Verdict::Skipped("read-only".to_owned())];
        let outcomes = outcomes.map(|verdict| Outcome { rule, verdict, took: Duration::from_millis(5) });
        Report { server: "v1.36.0".to_owned(), seed: 7, outcomes: outcomes.into(), left_behind: None }
    }

    #[test]
    fn reports_escape_texts_of_the_server() {
        let report = report();
        assert!(!report.is_clean());
        let (text, html) = (report.text(), report.html());
        assert!(text.contains("\\u{1b}") && !text.contains('\u{1b}'), "{text}");
        assert!(html.contains("&lt;b&gt;") && !html.contains("<b>"), "{html}");
        assert!(text.ends_with("3 rules, server v1.36.0, seed 7: 1 kept, 1 broken, 1 skipped\n"), "{text}");
    }

    #[test]
    fn junit_counts_failures_and_skips() {
        let xml = report().junit().to_string().unwrap();
        assert!(xml.contains("tests=\"3\"") && xml.contains("failures=\"1\""), "{xml}");
    }
}
