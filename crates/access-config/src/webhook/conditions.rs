//! The match conditions of an authorization webhook: CEL expressions about the request.
//!
//! If one condition is false, the webhook is not called. Otherwise, if a condition fails, the result is an error.

use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;

use crate::expressions::{Expression, Variable, meter};

/// The largest number of conditions.
const MOST: usize = 64;

/// Compiled conditions.
#[derive(Debug, Default)]
pub(crate) struct MatchConditions(Vec<Expression>);

impl MatchConditions {
    /// Compiles conditions. `path` is the path of their list, for errors.
    pub(crate) fn compile(expressions: &[String], path: &str, faults: &mut Vec<FieldError>) -> Self {
        if expressions.len() > MOST {
            faults.push(FieldError::too_many(path, expressions.len(), MOST));
            return Self::default();
        }
        let mut compiled = Vec::new();
        for (at, text) in expressions.iter().enumerate() {
            let field = format!("{path}[{at}].expression");
            if text.trim().is_empty() {
                faults.push(FieldError::required(field, ""));
            } else if expressions[..at].contains(text) {
                faults.push(FieldError::duplicate(field, text.as_str()));
            } else {
                match Expression::compile(text, Variable::Request, true, &field) {
                    Ok(expression) => compiled.push(expression),
                    Err(fault) => faults.push(fault),
                }
            }
        }
        Self(compiled)
    }

    /// Returns true if there are no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates all conditions. `request` is the `spec` of a review with all fields of its attributes.
    pub(crate) fn hold(&self, request: &Value) -> Result<bool, String> {
        let mut meter = meter();
        let mut failed = Vec::new();
        for condition in &self.0 {
            match condition.holds(request, &mut meter) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => failed.push(format!("cel evaluation error: {why}")),
            }
        }
        match failed.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn conditions(texts: &[&str]) -> Result<MatchConditions, Vec<String>> {
        let mut faults = Vec::new();
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        let compiled = MatchConditions::compile(&texts, "matchConditions", &mut faults);
        if faults.is_empty() { Ok(compiled) } else { Err(faults.iter().map(ToString::to_string).collect()) }
    }

    #[test]
    fn a_false_condition_outweighs_failing_ones() {
        let request = json!({ "user": "ann", "groups": [], "extra": {} });
        let hold = |texts: &[&str]| conditions(texts).unwrap().hold(&request);
        assert_eq!(hold(&["request.user == 'ann'", "!has(request.resourceAttributes)"]), Ok(true));
        let fails = "request.extra['a'][0] == 'b'";
        assert_eq!(hold(&[fails, "request.user == 'bob'"]), Ok(false));
        let why = "cel evaluation error: expression 'request.extra['a'][0] == 'b'' resulted in error: no such key: a";
        assert_eq!(hold(&["request.user == 'ann'", fails]), Err(why.to_owned()));
    }

    #[test]
    fn conditions_are_validated() {
        assert_eq!(
            conditions(&["", "true", "true", "1"]).unwrap_err(),
            [
                "matchConditions[0].expression: Required value",
                "matchConditions[2].expression: Duplicate value: \"true\"",
                "matchConditions[3].expression: Invalid value: \"1\": must evaluate to bool",
            ]
        );
        assert_eq!(
            conditions(&["true"; 65]).unwrap_err(),
            ["matchConditions: Too many: 65: must have at most 64 items"]
        );
    }
}
