//! CEL conditions, for selections that filters can't express: `object.spec.replicas > object.status.readyReplicas`.
//!
//! The variable is `object`. A condition excludes an object if the evaluation fails for it, for example at a missing
//! field. The cost of an evaluation is limited, both by upstream's cost model and for work outside of the model. The
//! condition builds a tree only of the fields that the expression reads, since building the tree is most of the cost.

use std::sync::Arc;

use keelson_cel::{Environment, EvalError, Meter, Program, Type, values};
use keelson_meta::json::Value;

use crate::budget::Budget;
use crate::error::QueryError;
use crate::parts::Part;
use crate::value::Subject;

/// The variable.
const OBJECT: &str = "object";
/// The maximum cost of an evaluation for one object: a tenth of a policy's.
const COST: u64 = keelson_cel::cost::limits::EVALUATION / 10;
/// The maximum work outside of the cost model in nanoseconds.
const WORK: u64 = 2_000_000;

/// The approximate time of a cost unit in nanoseconds.
const STEP: u64 = 20;

/// A condition on objects.
#[derive(Clone, Debug)]
pub struct Condition {
    program: Arc<Program>,
    text: String,
    /// The fields of an object that the condition reads.
    part: Part,
}

/// The outcome of a condition for one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The object is selected or not.
    Holds(bool),
    /// The evaluation failed with this error, so the object is not selected.
    Failed(EvalError),
}

impl Decision {
    /// Returns true if the object is selected.
    pub const fn holds(&self) -> bool {
        matches!(self, Self::Holds(true))
    }
}

/// An evaluation exceeded a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostExceeded {
    /// The limit for one object.
    ForObject,
    /// The budget of the query for all objects.
    ForQuery,
}

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The faults in upstream's words, with their positions.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let program =
            Program::compile_to(text, &Environment::kubernetes().with(OBJECT, Type::Dyn), &[Type::Bool, Type::Dyn])
                .map_err(|error| QueryError::Expression { name: parameter, why: error.to_string() })?;
        let part = Part::from_ways(program.reads(OBJECT).iter().map(Vec::as_slice));
        Ok(Self { program: Arc::new(program), text: text.trim().to_owned(), part })
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The members of an object that the condition reads. Empty if it reads the whole object.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &str> {
        self.part.names()
    }

    /// The paths of the fields that the condition reads. An empty path is the whole object.
    pub fn reads(&self) -> Vec<Vec<&str>> {
        self.program.reads(OBJECT)
    }

    /// Evaluates the condition for an object. `whole` builds the complete tree if the condition needs it. The cost is
    /// charged to `budget`.
    ///
    /// # Errors
    /// The evaluation exceeded a limit.
    pub fn holds(
        &self,
        subject: &Subject<'_>,
        whole: impl FnOnce() -> Value,
        budget: Option<&Budget>,
    ) -> Result<Decision, CostExceeded> {
        self.holds_of(&self.part.read(subject).unwrap_or_else(whole), budget)
    }

    fn holds_of(&self, object: &Value, budget: Option<&Budget>) -> Result<Decision, CostExceeded> {
        let mut meter = Meter::new(COST).with_work(WORK);
        let outcome = self.program.holds(&[values::from_tree(object, None)], &mut meter);
        if let Some(budget) = budget {
            budget.spend(meter.used().saturating_mul(STEP).saturating_add(meter.work()))?;
        }
        match outcome {
            Ok(holds) => Ok(Decision::Holds(holds)),
            Err(EvalError::TooCostly) => Err(CostExceeded::ForObject),
            Err(why) => Ok(Decision::Failed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_codec::StoredObject;
    use keelson_meta::Revision;
    use keelson_meta::json::json;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expressions_decide() {
        let object = json!({"spec": {"replicas": 3, "image": "nginx"}, "metadata": {"labels": {"a": "b"}}});
        let check = |text: &str, expect: bool| {
            let condition = Condition::parse("w", text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(condition.holds_of(&object, None).map(|decision| decision.holds()), Ok(expect), "{text}");
        };
        let fails = |text: &str| {
            let decision = Condition::parse("w", text).unwrap().holds_of(&object, None);
            assert!(matches!(decision, Ok(Decision::Failed(_))), "{text}: {decision:?}");
        };
        check("object.spec.replicas > 2", true);
        check("object.spec.replicas > 2 && object.spec.image.startsWith('redis')", false);
        check("has(object.metadata.labels.a)", true);
        check("quantity('1Gi').isGreaterThan(quantity('500Mi'))", true);
        // A failed evaluation does not fail the request.
        fails("object.status.phase == 'Running'");
        fails("object.spec.image > 5");
        fails("object.spec.replicas");
    }

    /// Expressions that read parts of the objects of [`any_object`], and expressions that read whole objects.
    const READING: [&str; 16] = [
        "object.spec.a == 1",
        "object.spec.a.b == 'x'",
        "!has(object.spec.a.b)",
        "has(object.spec.a) && object.status.a != null",
        "object.spec.a.b == object.status.a.b || object.spec.b.a == 1",
        "object.spec.size() > 1",
        "object.spec.a.all(item, item == object.status.a)",
        "!(object.status.a.exists(item, item.b == 1))",
        "object.metadata.resourceVersion == '7'",
        "has(object.metadata.resourceVersion) && object.metadata.size() == 3",
        "object.metadata.name.startsWith('w') && object.kind == 'Pod'",
        "object.?spec.?a.?b.hasValue()",
        "object.size() == 4",
        "object['spec'].a == 1",
        "type(object.spec.b) == list",
        "object.status.b > 0 ? object.spec.a == 1 : !has(object.spec.b)",
    ];

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(1)),
            Just(json!("x")),
            Just(json!("a\"\\{")),
            Just(json!([])),
            Just(json!({}))
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[abc]", inner, 0..3).prop_map(|members| json!(members)),
            ]
        })
    }

    proptest! {
        /// The result does not depend on unread fields or on known offsets.
        #[test]
        fn conditions_on_partial_reads_equal_those_on_whole_objects(spec in any_value(), status in any_value(), data in any_value()) {
            let [spec, status, data] = [spec, status, data].map(|value| keelson_codec::json::to_vec(&value));
            let text = [
                &br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","labels":{"a":"b"}},"data":"#[..], &data,
                br#","spec":"#, &spec, br#","status":"#, &status, b"}",
            ];
            let text = text.concat();
            let stored = StoredObject::parse(text.into()).unwrap();
            let marks = stored.summary(&[]).unwrap().marks;
            let whole = stored.decode(Revision::new(7)).into_value();
            for expression in READING {
                let condition = Condition::parse("w", expression).unwrap_or_else(|error| panic!("{error}"));
                let expected = condition.holds_of(&whole, None);
                for marks in [Default::default(), marks] {
                    let subject = Subject::new(stored.skeleton(), Revision::new(7)).marked(marks);
                    prop_assert_eq!(condition.holds(&subject, || whole.clone(), None), expected.clone(), "{} of {}", expression, stored.text());
                }
            }
        }
    }

    #[test]
    fn invalid_or_costly_expressions_are_refused() {
        let wrong = Condition::parse("keelson.io/where", "object.spec.").unwrap_err().to_string();
        assert!(wrong.starts_with("keelson.io/where: compilation failed: "), "{wrong}");
        let wrong = Condition::parse("keelson.io/where", "'a'").unwrap_err().to_string();
        assert!(wrong.contains("must evaluate to"), "{wrong}");
        let items: Vec<u32> = (0..3000).collect();
        let object = json!({"items": items});
        let costly = Condition::parse("w", "object.items.all(a, object.items.exists(b, a == b))").unwrap();
        assert_eq!(costly.holds_of(&object, None), Err(CostExceeded::ForObject));
    }

    #[test]
    fn a_pattern_of_each_object_is_paid_of_the_budget_of_all() {
        let condition = Condition::parse("w", "object.data.k.matches(object.data.k)").unwrap();
        let budget = Budget::default();
        let objects = (0..3000).map(|number| json!({"data": {"k": format!("{number}-{}", "a?".repeat(500))}}));
        let outcomes: Vec<_> =
            objects.map_while(|object| condition.holds_of(&object, Some(&budget)).ok()).take(2999).collect();
        assert!(!outcomes.is_empty() && outcomes.len() < 2000, "{} were affordable", outcomes.len());
        // Equal patterns are compiled once.
        let (budget, equal) = (Budget::default(), json!({"data": {"k": "a{1,20}b?c"}}));
        assert!((0..20_000).all(|_| condition.holds_of(&equal, Some(&budget)) == Ok(Decision::Holds(false))));
    }
}
