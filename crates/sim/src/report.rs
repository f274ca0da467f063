//! The report of a run, and the totals of many.
//!
//! The process of a run passes the report as text to the process that started it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::check::Violation;
use crate::plan::Plan;
use crate::world::Outcome;

/// The violations that a report shows.
const SHOWN: usize = 5;
/// The characters of each.
const SHOWN_CHARACTERS: usize = 3000;

/// The text of an outcome.
pub(crate) fn to_text(outcome: anyhow::Result<Outcome>) -> String {
    let report = match outcome {
        Ok(outcome) => {
            let counts: BTreeMap<_, _> = outcome.counts.named().into_iter().collect();
            let violations: Vec<Value> = outcome
                .violations
                .iter()
                .map(|violation| {
                    json!([violation.rule, violation.why.chars().take(SHOWN_CHARACTERS).collect::<String>()])
                })
                .collect();
            json!({"digest": outcome.digest(), "counts": counts, "violations": violations})
        }
        Err(error) => json!({"violations": [["simulation", format!("{error:#}")]]}),
    };
    report.to_string()
}

/// The report of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    digest: u64,
    counts: BTreeMap<String, u64>,
    violations: Vec<Violation>,
}

impl Report {
    /// Reads the text of an outcome, or the reason for which there is none.
    pub(crate) fn read(text: Result<String, String>) -> Self {
        let parsed = text.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|error| error.to_string()));
        let report = match parsed {
            Ok(report) => report,
            Err(why) => return Self { violations: vec![Violation::new("simulation", why)], ..Self::default() },
        };
        let strings = |pair: &Value| [0, 1].map(|place| pair[place].as_str().unwrap_or_default().to_owned());
        let violations = report["violations"].as_array().into_iter().flatten().map(strings);
        let counts = report["counts"].as_object().into_iter().flatten();
        Self {
            digest: report["digest"].as_u64().unwrap_or_default(),
            counts: counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())).collect(),
            violations: violations.map(|[rule, why]| Violation { rule, why }).collect(),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        !self.violations.is_empty()
    }

    /// The first broken rule.
    pub(crate) fn rule(&self) -> Option<&str> {
        self.violations.first().map(|violation| violation.rule.as_str())
    }

    /// True if this rule is among the broken ones.
    pub(crate) fn breaks(&self, rule: &str) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }

    /// One line about the run.
    pub(crate) fn line(&self, plan: &Plan) -> String {
        let count = |name: &str| self.counts.get(name).copied().unwrap_or_default();
        let verdict = self.rule().map_or_else(|| "ok".to_owned(), |rule| format!("BROKEN {rule}"));
        format!(
            "seed {} {verdict}: trace {:016x}, {} servers, {} starts, {} faults, {} requests ({} unanswered), {} lists ({} \
             expired), {} watches with {} events, {} changes, {} ms simulated, mutant acted {} times",
            plan.seed,
            self.digest,
            plan.servers,
            count("starts"),
            count("faults"),
            count("requests"),
            count("unanswered"),
            count("lists"),
            count("expired"),
            count("watches"),
            count("events"),
            count("changes"),
            count("simulated_ms"),
            count("acted"),
        )
    }

    /// The broken rules.
    pub(crate) fn violations(&self) -> String {
        let mut text = String::new();
        for violation in self.violations.iter().take(SHOWN) {
            let _ = writeln!(text, "  {}: {}", violation.rule, violation.why);
        }
        if let Some(more @ 1..) = self.violations.len().checked_sub(SHOWN) {
            let _ = writeln!(text, "  and {more} more");
        }
        text
    }
}

/// The faults and operations of a plan, one on each line.
pub(crate) fn history(plan: &Plan) -> String {
    let faults = plan.faults.iter().map(|fault| format!("  {fault}\n"));
    faults.chain(plan.steps.iter().map(|step| format!("  {step}\n"))).collect()
}

/// The sums over many runs.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    runs: u64,
    pub(crate) broken: u64,
    counts: BTreeMap<String, u64>,
}

impl Totals {
    pub(crate) fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.broken += u64::from(report.is_broken());
        for (name, count) in &report.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs, {} broken", self.runs, self.broken)?;
        self.counts.iter().try_for_each(|(name, count)| write!(f, ", {count} {name}"))
    }
}
