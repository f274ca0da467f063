//! One evaluation of the expressions of a policy, for one request and one set of parameters.
//!
//! Each variable is evaluated at its first use, and once. Values borrow from objects and are not `Send`, so an
//! evaluation contains no await.

use std::cell::{Cell, OnceCell};

use keelson_cel::values::Fields;
use keelson_cel::{EvalError, Meter, Value as Cel, measured, values};
use keelson_meta::Object;

use super::policy::{Compilation, Compiled};
use crate::conditions::OUT_OF_BUDGET;
use crate::scene::PolicyVariables;

/// The cost limit of all expressions of one kind in a policy, for one request, in upstream's units.
const BUDGET: u64 = 10_000_000;

/// The limits of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// The cost limit.
    cost: u64,
    /// The limit on work that the CEL cost does not count, in nanoseconds.
    work: u64,
}

impl Reach {
    /// The limits on a thread that other requests need. Nearly all expressions stay far below.
    pub(crate) const SHORT: Self = Self { cost: 50_000, work: 1_000_000 };
    /// Upstream's limits.
    pub(crate) const WHOLE: Self = Self { cost: keelson_cel::cost::limits::EVALUATION, work: 1_000_000_000 };
}

/// The inputs of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'s> {
    pub(crate) scene: PolicyVariables<'s>,
    pub(crate) namespace: Option<&'s Object>,
    /// The parameters; `None` if the policy has no variable `params`.
    pub(crate) params: Option<Option<&'s Object>>,
    pub(crate) compiled: &'s Compiled,
    pub(crate) reach: Reach,
}

/// One evaluation of a policy.
pub(crate) struct Run<'s> {
    stage: Stage<'s>,
    cells: Vec<OnceCell<Result<Cel<'s>, EvalError>>>,
    /// The cost of variables since this value was last read.
    spent: Cell<u64>,
    left: Cell<u64>,
    /// True if an evaluation exceeded the short limits, so that the whole limits may suffice.
    is_cut: Cell<bool>,
    own: OnceCell<&'s Run<'s>>,
}

/// The error if the budget is used up; no more expressions are evaluated.
pub(crate) struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

impl<'s> Run<'s> {
    pub(crate) fn new(stage: Stage<'s>) -> Self {
        let cells = stage.compiled.variables.iter().map(|_| OnceCell::new()).collect();
        let (spent, left) = (Cell::new(0), Cell::new(BUDGET));
        Self { stage, cells, spent, left, is_cut: Cell::new(false), own: OnceCell::new() }
    }

    /// Makes the variables available to expressions and to each other.
    pub(crate) fn begin(&'s self) {
        let _ = self.own.set(self);
    }

    /// The expressions of the policy.
    pub(crate) fn compiled(&self) -> &'s Compiled {
        self.stage.compiled
    }

    /// Returns true if an evaluation exceeded the short limits.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Resets the budget.
    pub(crate) fn renew_budget(&self) {
        self.left.set(BUDGET);
    }

    /// The values of the variables for an expression.
    pub(crate) fn variables(&self, authorizer: bool) -> Vec<Cel<'s>> {
        let Stage { scene, namespace, params, compiled, .. } = self.stage;
        let mut variables = scene.variables(authorizer, namespace);
        if let Some(params) = params {
            variables.push(params.map_or(Cel::Null, |params| values::from_map(&params.0, None)));
        }
        if let Some(own) = self.own.get().filter(|_| !compiled.variables.is_empty()) {
            variables.push(Cel::Fields(*own));
        }
        variables
    }

    /// Evaluates an expression.
    pub(crate) fn evaluate(
        &self,
        program: &'s Compilation,
        variables: &[Cel<'s>],
    ) -> Result<Result<Cel<'s>, String>, OutOfBudget> {
        let program = match program {
            Ok(program) => program,
            Err(error) => return Ok(Err(error.clone())),
        };
        let mut meter = self.meter();
        let value = measured::timed(&measured::EVALUATIONS, || program.evaluate(variables, &mut meter));
        if matches!(value, Err(EvalError::TooCostly)) {
            self.is_cut.set(true);
        }
        let used = meter.used().saturating_add(self.spent.take());
        match self.left.get().checked_sub(used) {
            Some(left) => self.left.set(left),
            None => return Err(OutOfBudget),
        }
        Ok(value.map_err(|error| error.to_string()))
    }

    fn meter(&self) -> Meter {
        Meter::new(self.stage.reach.cost).with_work(self.stage.reach.work)
    }

    fn variable(&self, own: &'s Self, place: usize) -> Result<Cel<'s>, EvalError> {
        let (name, program) = &own.stage.compiled.variables[place];
        let failed = |why: &str| EvalError::new(format!("composited variable {name:?} fails to evaluate: {why}"));
        let program = program.as_ref().map_err(|error| failed(error))?;
        let mut meter = self.meter();
        let value = program.evaluate(&own.variables(true), &mut meter);
        self.spent.set(self.spent.get().saturating_add(meter.used()));
        if matches!(value, Err(EvalError::TooCostly)) {
            self.is_cut.set(true);
        }
        value.map_err(|error| failed(&error.to_string()))
    }
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

impl Fields for Run<'_> {
    fn field(&self, name: &str) -> Option<Result<Cel<'_>, EvalError>> {
        let own = *self.own.get()?;
        let place = own.stage.compiled.variables.iter().position(|(known, _)| known == name)?;
        Some(own.cells[place].get_or_init(|| own.variable(own, place)).clone())
    }
}
