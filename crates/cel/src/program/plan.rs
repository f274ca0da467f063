//! Turns a checked expression into steps.
//!
//! Work on constants is done here: conversions of literals, parsing of regular expressions, and building lists of
//! constants.

use super::{CallNode, Constant, FoldNode, Node, RegexNode};
use crate::ast::{Call, Expr, ExprKind, Fold, FoldKind, Literal};
use crate::check::{CheckedExpr, Name};
use crate::environment::Environment;
use crate::library::convert::is_conversion;
use crate::library::regex::{MAX_STATES, Pattern, RegexCall};
use crate::library::{Native, find};
use crate::overloads::CostRule;
use crate::stack::with_room;
use crate::types::Type;
use crate::values::{EvalError, Value};

/// A planned expression.
pub(super) struct Plan {
    /// Its steps.
    pub(super) root: Node,
    /// The variables that it uses.
    pub(super) used: Vec<usize>,
    /// The number of states of its regular expressions.
    pub(super) states: u64,
}

/// Plans the steps of an expression.
pub(super) fn plan(checked: &CheckedExpr, environment: &Environment) -> Result<Plan, EvalError> {
    let mut planner = Planner { checked, environment, locals: Vec::new(), used: Vec::new(), states: 0 };
    let root = planner.node(&checked.expr)?;
    Ok(Plan { root, used: planner.used, states: planner.states })
}

struct Planner<'c> {
    checked: &'c CheckedExpr,
    environment: &'c Environment,
    locals: Vec<String>,
    used: Vec<usize>,
    states: u64,
}

type PlannedProgram = Result<Node, EvalError>;

impl Planner<'_> {
    fn boxed(&mut self, expr: &Expr) -> Result<Box<Node>, EvalError> {
        self.node(expr).map(Box::new)
    }

    fn nodes(&mut self, exprs: &[Expr]) -> Result<Vec<Node>, EvalError> {
        exprs.iter().map(|expr| self.node(expr)).collect()
    }

    fn name(&mut self, name: &Name) -> PlannedProgram {
        match name {
            Name::Variable(place) => {
                if !self.used.contains(place) {
                    self.used.push(*place);
                }
                Ok(Node::Variable(*place))
            }
            Name::Type(of) => Ok(Node::Constant(Constant::Type(of.runtime_name().into()))),
        }
    }

    fn node(&mut self, expr: &Expr) -> PlannedProgram {
        with_room(|| self.node_within(expr))
    }

    fn node_within(&mut self, expr: &Expr) -> PlannedProgram {
        if let Some(name) = self.checked.names.get(&expr.id)
            && !matches!(expr.kind, ExprKind::Struct(..))
        {
            if let (Name::Type(Type::Duration | Type::Timestamp), ExprKind::Ident(text)) = (name, &expr.kind) {
                return Err(EvalError::new(format!("reference to undefined type: {text}")));
            }
            return self.name(&name.clone());
        }
        Ok(match &expr.kind {
            ExprKind::Error => return Err(EvalError::new("incomplete expression")),
            ExprKind::Literal(literal) => Node::Constant(constant(literal)),
            ExprKind::Ident(name) => {
                let place = self.locals.iter().rposition(|local| local == name);
                Node::Local(place.ok_or_else(|| EvalError::new(format!("undeclared reference to '{name}'")))?)
            }
            ExprKind::Select { operand, field, is_test: true } => {
                Node::Has(self.boxed(operand)?, field.as_str().into())
            }
            ExprKind::Select { operand, field, .. } => Node::Select(self.boxed(operand)?, field.as_str().into()),
            ExprKind::Call(call) => return self.call(expr, call),
            ExprKind::List(elements, optional) => {
                let nodes = self.nodes(elements)?;
                if optional.is_empty()
                    && !nodes.is_empty()
                    && nodes.iter().all(|node| matches!(node, Node::Constant(_)))
                {
                    let constants = nodes.into_iter().filter_map(|node| match node {
                        Node::Constant(constant) => Some(constant),
                        _ => None,
                    });
                    return Ok(Node::Constant(Constant::List(constants.collect())));
                }
                Node::List(nodes.into_iter().enumerate().map(|(at, node)| (node, optional.contains(&at))).collect())
            }
            ExprKind::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| Ok((self.node(&entry.key)?, self.node(&entry.value)?, entry.is_optional)));
                Node::Map(entries.collect::<Result<_, EvalError>>()?)
            }
            ExprKind::Struct(name, fields) => {
                let fields = fields
                    .iter()
                    .map(|field| Ok((field.name.as_str().into(), self.node(&field.value)?, field.is_optional)));
                let name = name.trim_start_matches('.');
                Node::Message(name.into(), fields.collect::<Result<_, EvalError>>()?)
            }
            ExprKind::Fold(fold) => self.fold(fold)?,
        })
    }

    fn fold(&mut self, fold: &Fold) -> PlannedProgram {
        let range = self.node(&fold.range)?;
        let init = self.node(&fold.init)?;
        let slot = self.locals.len();
        self.locals.push(fold.gathered.clone());
        self.locals.push(fold.variable.clone());
        // A loop has slots for two variables, even if it uses only one.
        self.locals.push(fold.second.clone().unwrap_or_default());
        let condition = self.node(&fold.condition)?;
        let step = match fold.shape {
            // Only the predicate is planned. Running the loop joins it with the accumulator.
            FoldKind::All | FoldKind::Exists => match &fold.step.kind {
                ExprKind::Call(Call { args, .. }) if args.len() == 2 => self.node(&args[1])?,
                _ => self.node(&fold.step)?,
            },
            FoldKind::Bind | FoldKind::General => self.step(&fold.step, slot)?,
        };
        self.locals.truncate(slot + 1);
        let result = self.node(&fold.result)?;
        self.locals.truncate(slot);
        let is_double = fold.second.is_some();
        let fold = FoldNode { shape: fold.shape, is_double, slot, range, init, condition, step, result };
        Ok(Node::Fold(Box::new(fold)))
    }

    /// Plans the step of a loop. It adds to the accumulator in place.
    fn step(&mut self, step: &Expr, slot: usize) -> PlannedProgram {
        let is_gathered = |expr: &Expr| expr.as_ident().is_some_and(|name| name == self.locals[slot]);
        if let ExprKind::Call(call) = &step.kind {
            match (call.function.as_str(), call.args.as_slice()) {
                ("_?_:_", [condition, yes, no]) => {
                    let (condition, yes, no) = (self.node(condition)?, self.step(yes, slot)?, self.node(no)?);
                    return Ok(Node::Conditional(Box::new((condition, yes, no))));
                }
                ("_+_", [gathered, Expr { kind: ExprKind::List(elements, optional), .. }])
                    if is_gathered(gathered) && optional.is_empty() && elements.len() == 1 =>
                {
                    return Ok(Node::Append(slot, self.boxed(&elements[0])?));
                }
                ("cel.@mapInsert", [gathered, entries]) if is_gathered(gathered) => {
                    return Ok(Node::Insert(slot, self.boxed(entries)?, None));
                }
                ("cel.@mapInsert", [gathered, key, value]) if is_gathered(gathered) => {
                    return Ok(Node::Insert(slot, self.boxed(key)?, Some(self.boxed(value)?)));
                }
                _ => {}
            }
        }
        self.node(step)
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> PlannedProgram {
        match (call.function.as_str(), call.args.as_slice()) {
            ("_&&_", [left, right]) => return Ok(Node::And(Box::new((self.node(left)?, self.node(right)?)))),
            ("_||_", [left, right]) => return Ok(Node::Or(Box::new((self.node(left)?, self.node(right)?)))),
            ("_?_:_", [condition, yes, no]) => {
                let parts = (self.node(condition)?, self.node(yes)?, self.node(no)?);
                return Ok(Node::Conditional(Box::new(parts)));
            }
            ("@not_strictly_false", [value]) => return Ok(Node::NotFalse(self.boxed(value)?)),
            ("_?._", [operand, field]) => {
                if let Some(Literal::String(field)) = field.as_literal() {
                    return Ok(Node::OptionalSelect(self.boxed(operand)?, field.as_str().into()));
                }
            }
            // These functions evaluate their argument only if it is needed.
            ("or", [other]) | ("orValue", [other]) => {
                if let Some(target) = &call.target {
                    return self.or(expr, call, target, other);
                }
            }
            _ => {}
        }
        let rule = self.rule(expr);
        let qualified = self.qualified(call);
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = call.target.as_ref().filter(|_| qualified.is_none()) {
            args.push(self.node(target)?);
        }
        for arg in &call.args {
            args.push(self.node(arg)?);
        }
        let name = qualified.as_deref().unwrap_or_else(|| call.function.trim_start_matches('.'));
        if let Some(call) = RegexCall::from_name(name) {
            let known = self.pattern(args.get(1))?;
            return Ok(Node::Regex(Box::new(RegexNode { known, call, rule, args })));
        }
        let native = native(name).ok_or_else(|| EvalError::new(format!("no such overload: {name}")))?;
        if let ([Node::Constant(constant)], true) = (args.as_slice(), is_conversion(name)) {
            let made = native(&[constant.value()])?;
            if let Some(made) = Constant::from_value(&made) {
                return Ok(Node::Constant(made));
            }
        }
        Ok(Node::Call(Box::new(CallNode { native, rule, args })))
    }

    /// Plans `or` and `orValue` as a conditional.
    fn or(&mut self, expr: &Expr, call: &Call, target: &Expr, other: &Expr) -> PlannedProgram {
        let name = if call.function == "or" { "or" } else { "orValue" };
        let args = vec![self.node(target)?, self.node(other)?];
        let native = native(name).ok_or_else(EvalError::no_overload)?;
        Ok(Node::Call(Box::new(CallNode { native, rule: self.rule(expr), args })))
    }

    /// The regular expression in an argument, if it is a literal.
    fn pattern(&mut self, arg: Option<&Node>) -> Result<Option<Pattern>, EvalError> {
        let Some(Node::Constant(Constant::String(text))) = arg else {
            self.states = self.states.saturating_add(MAX_STATES);
            return Ok(None);
        };
        let pattern = Pattern::checked(text).map_err(EvalError::new)?;
        self.states = self.states.saturating_add(pattern.states());
        Ok(Some(pattern))
    }

    /// The cost rule of a call: the one on which all possible overloads agree, otherwise one step.
    fn rule(&self, expr: &Expr) -> CostRule {
        let rules = self.checked.calls.get(&expr.id).map_or(&[][..], Vec::as_slice);
        match rules.split_first() {
            Some((first, rest)) if rest.iter().all(|rule| rule == first) => *first,
            _ => CostRule::One,
        }
    }

    /// The function's qualified name, if the call's target is part of it.
    fn qualified(&self, call: &Call) -> Option<String> {
        let target = call.target.as_ref()?.as_qualified_name()?;
        let name = format!("{}.{}", target.trim_start_matches('.'), call.function);
        self.environment.functions().get(&name).is_some().then_some(name)
    }
}

fn native(name: &str) -> Option<Native> {
    match name {
        "or" => Some(|args| match args {
            [value @ Value::Optional(Some(_)), _] => Ok(value.clone()),
            [Value::Optional(None), other] => Ok(other.clone()),
            _ => Err(EvalError::no_overload()),
        }),
        "orValue" => Some(|args| match args {
            [Value::Optional(Some(value)), _] => Ok((**value).clone()),
            [Value::Optional(None), other] => Ok(other.clone()),
            _ => Err(EvalError::no_overload()),
        }),
        // Loops extend their accumulators in place. These functions serve other calls of the same form.
        "cel.@mapInsert" => None,
        name => find(name),
    }
}

fn constant(literal: &Literal) -> Constant {
    match literal {
        Literal::Null => Constant::Null,
        Literal::Bool(value) => Constant::Bool(*value),
        Literal::Int(value) => Constant::Int(*value),
        Literal::Uint(value) => Constant::Uint(*value),
        Literal::Double(value) => Constant::Double(*value),
        Literal::String(value) => Constant::String(value.as_str().into()),
        Literal::Bytes(value) => Constant::Bytes(value.clone()),
    }
}

impl Constant {
    fn from_value(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::Double(value) => Self::Double(*value),
            Value::String(text) => Self::String((**text).into()),
            Value::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Value::Duration(nanos) => Self::Duration(*nanos),
            Value::Timestamp(time) => Self::Timestamp(*time),
            _ => return None,
        })
    }

    /// The value, borrowed from the program.
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(value) => Value::Double(*value),
            Self::String(text) => Value::text(text),
            Self::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
            Self::Duration(nanos) => Value::Duration(*nanos),
            Self::Timestamp(time) => Value::Timestamp(*time),
            Self::Type(name) => Value::Type(crate::values::Text::Borrowed(name)),
            Self::List(constants) => Value::list(constants.iter().map(Self::value).collect()),
        }
    }
}
