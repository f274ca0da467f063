//! CEL expressions in configurations. They are compiled when a file is read, and evaluated for claims, users and
//! requests.
//!
//! Messages are upstream's. All expressions for one token or request share one budget, so that they cannot block a
//! thread.

use std::sync::Arc;

use keelson_cel::ast::{Expr, ExprKind, Literal};
use keelson_cel::decl::Decl;
use keelson_cel::environment::Environment;
use keelson_cel::parser::{self, Macros};
use keelson_cel::source::Source;
use keelson_cel::values::from_tree;
use keelson_cel::{CompileError, EvalError, Meter, Program, Type, Value, environments};
use keelson_meta::field_error::FieldError;
use keelson_meta::json;

/// The limit of evaluation steps for one token or request.
const STEPS: u64 = 1_000_000;
/// The limit on other work for one token or request, in nanoseconds.
const WORK: u64 = 5_000_000;

/// A budget for one token or request.
pub(crate) fn meter() -> Meter {
    Meter::new(STEPS).with_work(WORK)
}

/// The variable that an expression may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `claims`: the claims of a token.
    Claims,
    /// `user`: the user from a token.
    User,
    /// `request`: the request to authorize.
    Request,
}

impl Variable {
    fn environment(self) -> Environment {
        match self {
            Self::Claims => environments::claims(),
            Self::User => environments::user(),
            Self::Request => environments::access_review(),
        }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    program: Program,
    decl: Option<Arc<Decl>>,
    uses_email: bool,
    uses_email_verified: bool,
}

impl Expression {
    /// Compiles an expression. The result of a condition must be a boolean.
    pub(crate) fn compile(text: &str, variable: Variable, is_condition: bool, field: &str) -> Result<Self, FieldError> {
        let environment = variable.environment();
        let invalid = |detail: String| FieldError::invalid(field, text, detail);
        let program = Program::compile(text, &environment).map_err(|error| match error {
            CompileError::Instantiation(_) => FieldError::internal(field, error.to_string()),
            error => invalid(error.to_string()),
        })?;
        if is_condition && *program.result() != Type::Bool {
            return Err(invalid("must evaluate to bool".to_owned()));
        }
        let uses = |name: &str| variable == Variable::Claims && selects(text, name);
        Ok(Self {
            text: text.to_owned(),
            program,
            decl: environment.variables().first().and_then(|variable| variable.decl.clone()),
            uses_email: uses("email"),
            uses_email_verified: uses("email_verified"),
        })
    }

    /// Returns true if the expression reads the claim `email`.
    pub(crate) fn uses_email(&self) -> bool {
        self.uses_email
    }

    /// Returns true if the expression reads the claim `email_verified`.
    pub(crate) fn uses_email_verified(&self) -> bool {
        self.uses_email_verified
    }

    /// Evaluates the expression for a value of its variable, and passes the result to `read`.
    pub(crate) fn with_value<T>(
        &self,
        variable: &json::Value,
        meter: &mut Meter,
        read: impl FnOnce(&Value<'_>) -> T,
    ) -> Result<T, String> {
        let variables = [from_tree(variable, self.decl.as_deref())];
        let value = self.program.evaluate(&variables, meter).map_err(|error| self.failed(&error))?;
        Ok(read(&value))
    }

    /// Evaluates a condition for a value of its variable.
    pub(crate) fn holds(&self, variable: &json::Value, meter: &mut Meter) -> Result<bool, String> {
        let variables = [from_tree(variable, self.decl.as_deref())];
        self.program.holds(&variables, meter).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &EvalError) -> String {
        format!("expression '{}' resulted in error: {error}", self.text)
    }
}

/// The strings in a value: a string, or a list of strings. Empty strings are omitted, and null has none. Returns `None`
/// for other types.
pub(crate) fn texts(value: &Value<'_>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    match value {
        Value::Null => {}
        Value::String(text) => found.push(text.to_string()),
        Value::List(list) => {
            for element in list.iter() {
                let Value::String(text) = element else { return None };
                found.push(text.to_string());
            }
        }
        _ => return None,
    }
    found.retain(|text| !text.is_empty());
    Some(found)
}

/// Returns true if an expression selects a field of `claims`.
fn selects(text: &str, field: &str) -> bool {
    let parsed = parser::parse(&Source::new(text), Macros::default());
    parsed.is_ok_and(|parsed| has_select(&parsed.expr, field))
}

fn is_claims(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Ident(name) if name == "claims")
}

fn has_select(expr: &Expr, wanted: &str) -> bool {
    let within = |expr: &Expr| has_select(expr, wanted);
    match &expr.kind {
        ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => false,
        ExprKind::Select { operand, field, .. } => is_claims(operand) && field == wanted || within(operand),
        ExprKind::Call(call) => {
            let is_optional_select = match call.args.as_slice() {
                [operand, name] if call.target.is_none() && call.function == "_?._" => {
                    is_claims(operand)
                        && matches!(&name.kind, ExprKind::Literal(Literal::String(name)) if **name == *wanted)
                }
                _ => false,
            };
            is_optional_select || call.target.as_deref().is_some_and(within) || call.args.iter().any(within)
        }
        ExprKind::List(elements, _) => elements.iter().any(within),
        ExprKind::Map(entries) => entries.iter().any(|entry| within(&entry.key) || within(&entry.value)),
        ExprKind::Struct(_, fields) => fields.iter().any(|field| within(&field.value)),
        ExprKind::Fold(fold) => {
            let parts = [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result];
            parts.into_iter().any(within)
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn compiled(text: &str) -> Expression {
        Expression::compile(text, Variable::Claims, false, "e").unwrap()
    }

    #[test]
    fn uses_of_the_email_claims_are_detected() {
        let check = |text: &str, email: bool, verified: bool| {
            let made = compiled(text);
            assert_eq!((made.uses_email(), made.uses_email_verified()), (email, verified), "{text}");
        };
        check("claims.sub", false, false);
        check("claims.email", true, false);
        check("claims.?email.orValue('x')", true, false);
        check("claims.email_verified == true ? claims.email : claims.sub", true, true);
        check("[claims.a, claims.email_verified]", false, true);
        check("has(claims.email)", true, false);
        check("['a'].map(x, x + claims.email)", true, false);
        check("claims.a.email", false, false);
    }

    #[test]
    fn expressions_return_strings_or_an_error() {
        let claims = json!({ "a": "x", "b": ["y", "", "z"], "n": 1, "nothing": null });
        let of = |text: &str| compiled(text).with_value(&claims, &mut meter(), texts);
        let texts = |texts: &[&str]| Ok(Some(texts.iter().map(ToString::to_string).collect::<Vec<_>>()));
        assert_eq!(of("claims.a"), texts(&["x"]));
        assert_eq!(of("claims.b"), texts(&["y", "z"]));
        assert_eq!(of("claims.nothing"), texts(&[]));
        assert_eq!(of("claims.n"), Ok(None));
        assert_eq!(of("claims.c"), Err("expression 'claims.c' resulted in error: no such key: c".to_owned()));
        let costly = "[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, [1,2,3,4,5,6,7,8].all(c, [1,2,3,4,5,6,7,8].all(d, \
                      [1,2,3,4,5,6,7,8].all(e, [1,2,3,4,5,6,7,8].all(f, [1,2,3,4,5,6,7,8].all(g, claims.a == 'x')))))))";
        assert!(of(costly).unwrap_err().ends_with("actual cost limit exceeded"));
    }

    #[test]
    fn a_condition_is_a_truth_value() {
        let refused = |text: &str| Expression::compile(text, Variable::User, true, "e").unwrap_err().to_string();
        assert_eq!(refused("1"), r#"e: Invalid value: "1": must evaluate to bool"#);
        assert!(refused("user.foo == 1").contains("undefined field 'foo'"));
    }
}
