//! A compiled expression.
//!
//! Names are resolved, functions found, regular expressions and literals made once; what runs is a tree of steps in which a
//! variable is a place in a list. A program holds nothing of any request and can be run by many threads at once.

mod eval;
mod plan;
mod reads;

use crate::check::{Checked, check};
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

/// Why an expression can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// What is wrong with it, place for place.
    Invalid(String),
    /// What failed when its literals were converted.
    Instantiation(String),
    /// What it should have come to.
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
    /// The same of several fields one below the other.
    Has(Box<Node>, Box<str>),
    OptionalSelect(Box<Node>, Box<str>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Conditional(Box<(Node, Node, Node)>),
    /// True where the value is false neither nor an error.
    NotFalse(Box<Node>),
    Call(Box<CallNode>),
    Regex(Box<RegexNode>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Message(Box<str>, Vec<(Box<str>, Node, bool)>),
    /// Adds to the list that a loop gathers.
    Append(usize, Box<Node>),
    /// Adds to the map that a loop gathers: an entry, or all entries of a map.
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
    /// The expression, where it is written in the program.
    known: Option<Pattern>,
    call: RegexCall,
    rule: CostRule,
    args: Vec<Node>,
}

#[derive(Debug)]
struct FoldNode {
    shape: crate::ast::FoldKind,
    /// Whether there are variables for both the key and the value.
    is_double: bool,
    /// The place of the gathered value; the variables are behind it.
    slot: usize,
    range: Node,
    init: Node,
    condition: Node,
    step: Node,
    result: Node,
}

/// A value that is known when an expression is compiled.
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
    /// What is wrong with it, in upstream's words.
    pub fn compile(text: &str, environment: &Environment) -> Result<Self, CompileError> {
        measured::timed(&measured::COMPILATIONS, || Self::compiled(text, environment))
    }

    fn compiled(text: &str, environment: &Environment) -> Result<Self, CompileError> {
        let source = Source::new(text);
        let checked = parse(&source, environment.macros()).and_then(|parsed| check(parsed, environment));
        let checked: Checked = checked.map_err(|issues| CompileError::Invalid(source.report(&issues)))?;
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

    /// Compiles a rule of a custom resource, which says whether a value is valid.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words.
    pub fn compile_rule(text: &str, environment: &Environment) -> Result<Self, CompileError> {
        let wrong = || CompileError::Result("cel expression must evaluate to a bool".to_owned());
        Self::compile(text, environment)
            .and_then(|made| if made.result == Type::Bool { Ok(made) } else { Err(wrong()) })
    }

    /// Compiles an expression that comes to a value of one of these types.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words.
    pub fn compile_to(text: &str, environment: &Environment, wanted: &[Type]) -> Result<Self, CompileError> {
        let made = Self::compile(text, environment)?;
        if wanted.contains(&made.result) {
            return Ok(made);
        }
        let names: Vec<String> = wanted.iter().map(told).collect();
        let wanted = match names.as_slice() {
            [name] => name.clone(),
            names => format!("one of [{}]", names.join(" ")),
        };
        Err(CompileError::Result(format!("must evaluate to {wanted} but got {}", told(&made.result))))
    }

    /// The type of its value.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// What it costs at least and at most.
    pub fn cost(&self) -> Bounds {
        self.cost
    }

    /// How many states its regular expressions have together: as many as there can be where they are only known when it runs.
    pub fn regex_states(&self) -> u64 {
        self.states
    }

    /// Whether it uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.used.iter().any(|place| self.names[*place] == variable)
    }

    /// Its value for these values of the environment's variables, in their order, as long as it costs no more than the meter
    /// allows.
    ///
    /// # Errors
    /// Why it has none.
    pub fn evaluate<'a>(&'a self, variables: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
        eval::Run::new(variables, meter).eval(&self.root)
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// Why it has no value, or that this is no truth value.
    pub fn holds<'a>(&'a self, variables: &[Value<'a>], meter: &mut Meter) -> Result<bool, EvalError> {
        match self.evaluate(variables, meter)? {
            Value::Bool(holds) => Ok(holds),
            _ => Err(EvalError::no_overload()),
        }
    }
}

/// A type as upstream names it where an expression comes to a wrong one: by its name at run time unless it has parameters.
fn told(of: &Type) -> String {
    match of {
        Type::Null | Type::Duration | Type::Timestamp => of.runtime_name(),
        _ => of.to_string(),
    }
}
