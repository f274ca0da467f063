//! Match conditions (`matchConditions`): CEL expressions that must be true for a request before a webhook or policy is
//! called.
//!
//! Conditions are compiled at their first use. If one condition is false, errors of the others do not matter.

use std::sync::OnceLock;

use keelson_cel::cost::limits;
use keelson_cel::environments::{self, Admission};
use keelson_cel::{Environment, Meter, Program, Value as Cel};
use keelson_meta::json::Value;

/// The cost limit of all conditions of one webhook or policy.
const COST: u64 = 2_500_000;
/// The limit on work that the CEL cost does not count, in approximate nanoseconds.
const WORK: u64 = 20_000_000;
/// The error if the conditions exceed the cost limit.
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The kind of object that has the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionsOf {
    Webhook,
    Policy { has_params: bool },
}

impl ConditionsOf {
    fn environment(self) -> Environment {
        match self {
            Self::Webhook => environments::match_condition(true),
            Self::Policy { has_params } => {
                environments::admission(&Admission { params: has_params, authorizer: true, ..Admission::default() })
            }
        }
    }
}

/// The match conditions of one webhook or policy.
#[derive(Debug)]
pub(crate) struct Conditions {
    of: ConditionsOf,
    texts: Vec<String>,
    compiled: OnceLock<Vec<Result<Program, String>>>,
}

/// The result of evaluating all conditions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConditionsResult {
    Yes,
    No,
    /// A condition failed, with the reason, and none is false.
    Unknown(String),
}

impl Conditions {
    pub(crate) fn new(of: ConditionsOf, stated: &Value) -> Self {
        let texts = stated.as_array().into_iter().flatten();
        let texts = texts.filter_map(|condition| condition["expression"].as_str()).map(|text| text.trim().to_owned());
        Self { of, texts: texts.collect(), compiled: OnceLock::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Evaluates all conditions with these variables.
    pub(crate) fn are_met(&self, variables: &[Cel<'_>]) -> ConditionsResult {
        if self.is_empty() {
            return ConditionsResult::Yes;
        }
        let compiled = self.compiled.get_or_init(|| {
            let environment = self.of.environment();
            let compile = |text: &String| Program::compile(text, &environment).map_err(|error| error.to_string());
            self.texts.iter().map(compile).collect()
        });
        let (mut faults, mut left) = (Vec::new(), COST);
        for (text, program) in self.texts.iter().zip(compiled) {
            let mut meter = Meter::new(limits::EVALUATION).with_work(WORK);
            let holds = match program {
                Ok(program) => program.holds(variables, &mut meter).map_err(|error| error.to_string()),
                Err(error) => Err(error.clone()),
            };
            match left.checked_sub(meter.used()) {
                Some(rest) => left = rest,
                None => return ConditionsResult::Unknown(OUT_OF_BUDGET.to_owned()),
            }
            match holds {
                Ok(true) => {}
                Ok(false) => return ConditionsResult::No,
                Err(error) => faults.push(format!("expression '{text}' resulted in error: {error}")),
            }
        }
        match faults.as_slice() {
            [] => ConditionsResult::Yes,
            [one] => ConditionsResult::Unknown(one.clone()),
            many => ConditionsResult::Unknown(format!("[{}]", many.join(", "))),
        }
    }
}
