//! A compiled expression.
//!
//! Names and functions are resolved once, and regular expressions and literals converted once. A program is a tree of
//! steps in which variables are indexes. It holds no state of an evaluation, so many threads can evaluate it at the
//! same time.

mod eval;
mod plan;
mod reads;

use crate::check::{CheckedExpr, check};
use crate::cost::actual::Meter;
use crate::cost::estimate::{Bounds, estimate};
use crate::environment::Environment;
use crate::library::Native;
use crate::library::regex::{Pattern, RegexCall};
use crate::library::times::Timestamp;
use crate::measured;
use crate::overloads::CostRule;
use crate::parser::parse;
use crate::source::Source;
use crate::types::Type;
use crate::values::{EvalError, Outcome, Value};

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    root: Node,
    result: Type,
    cost: Bounds,
    used: Vec<usize>,
    names: Vec<String>,
    states: u64,
}

/// The reason why an expression can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// The faults in the expression, with their places.
    Invalid(String),
    /// The failed conversion of a literal.
    Instantiation(String),
    /// The result has the wrong type. The text names the expected type.
    Result(String),
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(message) => write!(f, "compilation failed: {message}"),
            Self::Instantiation(message) => write!(f, "program instantiation failed: {message}"),
            Self::Result(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for CompileError {}

/// A step.
#[derive(Debug)]
enum Node {
    Constant(Constant),
    /// A variable of the environment.
    Variable(usize),
    /// A variable of a loop.
    Local(usize),
    Select(Box<Node>, Box<str>),
    /// The macro `has` for several nested fields.
    Has(Box<Node>, Box<str>),
    OptionalSelect(Box<Node>, Box<str>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Conditional(Box<(Node, Node, Node)>),
    /// True, unless the value is false. An error counts as true.
    NotFalse(Box<Node>),
    Call(Box<CallNode>),
    Regex(Box<RegexNode>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Message(Box<str>, Vec<(Box<str>, Node, bool)>),
    /// Appends a value to the list in which a loop accumulates its result.
    Append(usize, Box<Node>),
    /// Adds to the map in which a loop accumulates its result: one entry, or all entries of a map.
    Insert(usize, Box<Node>, Option<Box<Node>>),
    Fold(Box<FoldNode>),
}

#[derive(Debug)]
struct CallNode {
    native: Native,
    rule: CostRule,
    args: Vec<Node>,
}

#[derive(Debug)]
struct RegexNode {
    /// The regular expression, if it is a literal.
    known: Option<Pattern>,
    call: RegexCall,
    rule: CostRule,
    args: Vec<Node>,
}

#[derive(Debug)]
struct FoldNode {
    shape: crate::ast::FoldKind,
    /// True if the loop has variables for both key and value.
    is_double: bool,
    /// The slot of the accumulator. The variables are in the slots after it.
    slot: usize,
    range: Node,
    init: Node,
    condition: Node,
    step: Node,
    result: Node,
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
enum Constant {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Vec<u8>),
    Duration(i64),
    Timestamp(Timestamp),
    Type(Box<str>),
    List(Vec<Constant>),
}

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The faults in upstream's words.
    pub fn compile(text: &str, environment: &Environment) -> Result<Self, CompileError> {
        measured::timed(&measured::COMPILATIONS, || Self::compiled(text, environment))
    }

    fn compiled(text: &str, environment: &Environment) -> Result<Self, CompileError> {
        let source = Source::new(text);
        let checked = parse(&source, environment.macros()).and_then(|parsed| check(parsed, environment));
        let checked: CheckedExpr = checked.map_err(|issues| CompileError::Invalid(source.report(&issues)))?;
        let plan::Plan { root, used, states } =
            plan::plan(&checked, environment).map_err(|fault| CompileError::Instantiation(fault.to_string()))?;
        Ok(Self {
            root,
            result: checked.types[checked.expr.id as usize].clone(),
            cost: estimate(&checked, environment),
            used,
            names: environment.variables().iter().map(|variable| variable.name.clone()).collect(),
            states,
        })
    }

    /// Compiles a rule of a custom resource, whose result must be a boolean.
    ///
    /// # Errors
    /// The faults in upstream's words.
    pub fn compile_rule(text: &str, environment: &Environment) -> Result<Self, CompileError> {
        let wrong = || CompileError::Result("cel expression must evaluate to a bool".to_owned());
        Self::compile(text, environment)
            .and_then(|made| if made.result == Type::Bool { Ok(made) } else { Err(wrong()) })
    }

    /// Compiles an expression whose result must have one of these types.
    ///
    /// # Errors
    /// The faults in upstream's words.
    pub fn compile_to(text: &str, environment: &Environment, wanted: &[Type]) -> Result<Self, CompileError> {
        let made = Self::compile(text, environment)?;
        if wanted.contains(&made.result) {
            return Ok(made);
        }
        let names: Vec<String> = wanted.iter().map(type_name).collect();
        let wanted = match names.as_slice() {
            [name] => name.clone(),
            names => format!("one of [{}]", names.join(" ")),
        };
        Err(CompileError::Result(format!("must evaluate to {wanted} but got {}", type_name(&made.result))))
    }

    /// The type of its result.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The estimated minimum and maximum cost.
    pub fn cost(&self) -> Bounds {
        self.cost
    }

    /// The number of states of its regular expressions. One that is not a literal counts with the maximum.
    pub fn regex_states(&self) -> u64 {
        self.states
    }

    /// Returns true if it uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.used.iter().any(|place| self.names[*place] == variable)
    }

    /// Evaluates the program within the limit of the meter. `variables` has the values of the environment's variables,
    /// in their order.
    ///
    /// # Errors
    /// The evaluation failed, or exceeded the limit.
    pub fn evaluate<'a>(&'a self, variables: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
        eval::Run::new(variables, meter).eval(&self.root)
    }

    /// Evaluates the program, whose result must be a boolean.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate). Also if the result has another type.
    pub fn holds<'a>(&'a self, variables: &[Value<'a>], meter: &mut Meter) -> Result<bool, EvalError> {
        match self.evaluate(variables, meter)? {
            Value::Bool(holds) => Ok(holds),
            _ => Err(EvalError::no_overload()),
        }
    }
}

/// A type in upstream's messages about a result of the wrong type: its runtime name, unless it has parameters.
fn type_name(of: &Type) -> String {
    match of {
        Type::Null | Type::Duration | Type::Timestamp => of.runtime_name(),
        _ => of.to_string(),
    }
}
