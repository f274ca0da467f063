//! Conditions in the Common Expression Language, for what filters can't say: `object.spec.replicas > object.status.readyReplicas`.
//!
//! The variable is `object`. An object for which the expression has no value, because a field is missing or is something else, is not in
//! the answer. What an evaluation may cost is bounded, in upstream's measure and in work that this leaves out.

use std::sync::Arc;

use keelson_cel::{Environment, EvalError, Meter, Program, Type, values};
use keelson_meta::json::Value;

use crate::error::QueryError;

/// What the evaluation for one object may cost: a tenth of what one of a policy may.
const COST: u64 = keelson_cel::cost::limits::EVALUATION / 10;
/// How much work it may do beside that, in nanoseconds.
const WORK: u64 = 2_000_000;

/// A condition on objects.
#[derive(Clone, Debug)]
pub struct Condition {
    program: Arc<Program>,
    text: String,
}

/// The evaluation for an object cost more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooCostly;

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words, with the place.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let program =
            Program::compile_to(text, &Environment::kubernetes().with("object", Type::Dyn), &[Type::Bool, Type::Dyn])
                .map_err(|error| QueryError::Expression { name: parameter, why: error.to_string() })?;
        Ok(Self { program: Arc::new(program), text: text.trim().to_owned() })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether an object is in the answer.
    ///
    /// # Errors
    /// When that costs too much to be found out.
    pub fn holds(&self, object: &Value) -> Result<bool, TooCostly> {
        let mut meter = Meter::new(COST).with_work(WORK);
        match self.program.holds(&[values::from_tree(object, None)], &mut meter) {
            Ok(holds) => Ok(holds),
            Err(EvalError::TooCostly) => Err(TooCostly),
            Err(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn expressions_decide() {
        let object = json!({"spec": {"replicas": 3, "image": "nginx"}, "metadata": {"labels": {"a": "b"}}});
        let check = |text: &str, expect: bool| {
            let condition = Condition::parse("w", text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(condition.holds(&object), Ok(expect), "{text}");
        };
        check("object.spec.replicas > 2", true);
        check("object.spec.replicas > 2 && object.spec.image.startsWith('redis')", false);
        check("has(object.metadata.labels.a)", true);
        check("quantity('1Gi').isGreaterThan(quantity('500Mi'))", true);
        // What is missing is no error of whoever asks.
        check("object.status.phase == 'Running'", false);
        check("object.spec.image > 5", false);
        check("object.spec.replicas", false);
    }

    #[test]
    fn what_can_not_be_compiled_or_costs_too_much_is_refused() {
        let wrong = Condition::parse("keelson.io/where", "object.spec.").unwrap_err().to_string();
        assert!(wrong.starts_with("keelson.io/where: compilation failed: "), "{wrong}");
        let wrong = Condition::parse("keelson.io/where", "'a'").unwrap_err().to_string();
        assert!(wrong.contains("must evaluate to"), "{wrong}");
        let items: Vec<u32> = (0..3000).collect();
        let object = json!({"items": items});
        let costly = Condition::parse("w", "object.items.all(a, object.items.exists(b, a == b))").unwrap();
        assert_eq!(costly.holds(&object), Err(TooCostly));
    }
}
