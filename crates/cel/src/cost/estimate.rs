//! Estimates the minimum and maximum cost of an expression from the declared sizes.
//!
//! Oddities of upstream's model are kept, since they decide which rules are refused. For example, the element of a
//! literal list counts as the root of the data, and so does a field of a value outside of the data.

mod calls;

use super::{MAKE_LIST, MAKE_MAP, MAKE_MESSAGE, STEP, times};
use crate::ast::{Call, Expr, ExprKind, Fold, FoldKind, Literal};
use crate::check::CheckedExpr;
use crate::decl::{Decl, DeclKind};
use crate::environment::Environment;
use crate::overloads::CostRule;
use crate::stack::with_room;
use crate::types::Type;
use std::collections::HashMap;

/// The minimum and maximum of a cost or a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The minimum.
    pub min: u64,
    /// The maximum.
    pub max: u64,
}

impl Bounds {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    /// A cost or size that is exactly known.
    pub const fn exactly(count: u64) -> Self {
        Self { min: count, max: count }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn by(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scaled(self, factor: f64) -> Self {
        Self { min: times(self.min, factor), max: times(self.max, factor) }
    }

    fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The estimated cost of a checked expression.
pub fn estimate(checked: &CheckedExpr, environment: &Environment) -> Bounds {
    let root = environment.variables().iter().find_map(|variable| variable.decl.as_deref());
    let mut estimator = Estimator {
        checked,
        environment,
        root,
        places: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(&checked.expr)
}

/// The place in the declared data that a value comes from.
#[derive(Clone, Copy)]
enum Origin<'e> {
    /// The value does not come from the data.
    Nowhere,
    /// The value comes from a part of the data without a declaration.
    Undeclared,
    /// The value is a map key, whose size is not counted.
    Key,
    /// The value comes from the part of the data with this declaration.
    Declared(&'e Decl),
}

/// The sizes of the contents of a list or map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Bounds,
    value: Bounds,
}

impl Entries {
    fn or(self, other: Self) -> Self {
        Self { is_list: self.is_list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

struct Local<'e> {
    name: &'e str,
    place: Origin<'e>,
    size: Option<Bounds>,
    entries: Option<Entries>,
}

struct Estimator<'e> {
    checked: &'e CheckedExpr,
    environment: &'e Environment,
    root: Option<&'e Decl>,
    places: HashMap<u32, Origin<'e>>,
    sizes: HashMap<u32, Bounds>,
    entries: HashMap<u32, Entries>,
    locals: Vec<Local<'e>>,
}

impl<'e> Estimator<'e> {
    fn type_of(&self, expr: &Expr) -> &'e Type {
        &self.checked.types[expr.id as usize]
    }

    fn local(&self, name: &str) -> Option<&Local<'e>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn place(&self, expr: &Expr) -> Origin<'e> {
        if let Some(local) = expr.as_ident().and_then(|name| self.local(name)) {
            return local.place;
        }
        self.places.get(&expr.id).copied().unwrap_or(Origin::Nowhere)
    }

    /// The place one step below another.
    fn below(&self, place: Origin<'e>, step: impl Fn(&'e Decl) -> Origin<'e>) -> Origin<'e> {
        match place {
            // As upstream, the first step of a path starts at the root of the data, whatever the variable.
            Origin::Nowhere => self.root.map_or(Origin::Undeclared, Origin::Declared),
            Origin::Declared(decl) => step(decl),
            Origin::Undeclared | Origin::Key => Origin::Undeclared,
        }
    }

    fn element(&self, place: Origin<'e>) -> Origin<'e> {
        self.below(place, |decl| decl.element().map_or(Origin::Undeclared, |element| Origin::Declared(element)))
    }

    /// The size of a value, if known.
    fn size(&self, expr: &Expr) -> Option<Bounds> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let written = match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text.chars().count()),
            ExprKind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            ExprKind::Literal(_) => Some(1),
            ExprKind::List(elements, _) => Some(elements.len()),
            ExprKind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(written) = written {
            return Some(Bounds::exactly(written as u64));
        }
        if let Some(declared) = declared_size(self.place(expr)) {
            return Some(declared);
        }
        if self.type_of(expr).is_scalar() {
            return Some(Bounds::exactly(1));
        }
        self.local(expr.as_ident()?)?.size
    }

    fn size_or_unknown(&self, expr: &Expr) -> Bounds {
        self.size(expr).unwrap_or(Bounds::UNKNOWN)
    }

    fn entries(&self, expr: &Expr) -> Option<Entries> {
        self.entries.get(&expr.id).copied().or_else(|| self.local(expr.as_ident()?)?.entries)
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn cost(&mut self, expr: &'e Expr) -> Bounds {
        with_room(|| self.cost_within(expr))
    }

    fn cost_within(&mut self, expr: &'e Expr) -> Bounds {
        match &expr.kind {
            ExprKind::Error | ExprKind::Literal(_) => Bounds::default(),
            ExprKind::Ident(name) => {
                // Any other name counts as the root of the data, even the name of a type.
                let root = self.root.map_or(Origin::Undeclared, Origin::Declared);
                let place = self.local(name).map_or(root, |local| local.place);
                self.places.insert(expr.id, place);
                Bounds::exactly(STEP)
            }
            ExprKind::Select { operand, field, is_test } => {
                if self.checked.names.contains_key(&expr.id) {
                    return Bounds::exactly(STEP);
                }
                let cost = self.cost(operand);
                if *is_test {
                    return cost;
                }
                let place = self.below(self.place(operand), |decl| {
                    decl.field(field).map_or(Origin::Undeclared, |field| Origin::Declared(&field.decl))
                });
                self.places.insert(expr.id, place);
                match self.type_of(operand) {
                    Type::Map(_) | Type::Object(_) => cost.plus(Bounds::exactly(STEP)),
                    _ => cost,
                }
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements, _) => {
                let mut cost = Bounds::exactly(MAKE_LIST);
                let mut value = nothing(elements.is_empty());
                for element in elements {
                    cost = cost.plus(self.cost(element));
                    value = value.or(self.size_or_unknown(element));
                }
                self.entries.insert(expr.id, Entries { is_list: true, key: Bounds::exactly(1), value });
                cost
            }
            ExprKind::Map(made) => {
                let mut cost = Bounds::exactly(MAKE_MAP);
                let (mut key, mut value) = (nothing(made.is_empty()), nothing(made.is_empty()));
                for entry in made {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.or(self.size_or_unknown(&entry.key));
                    value = value.or(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, Entries { is_list: false, key, value });
                cost
            }
            ExprKind::Struct(_, fields) => {
                let cost = |cost: Bounds, value| cost.plus(self.cost(value));
                fields.iter().map(|field| &field.value).fold(Bounds::exactly(MAKE_MESSAGE), cost)
            }
            ExprKind::Fold(fold) if fold.shape == FoldKind::Bind => self.bind(expr, fold),
            ExprKind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn bind(&mut self, expr: &'e Expr, fold: &'e Fold) -> Bounds {
        let cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let (place, size, entries) = (self.place(&fold.init), self.size(&fold.init), self.entries(&fold.init));
        self.locals.push(Local { name: &fold.gathered, place, size, entries });
        let cost = cost.plus(self.cost(&fold.result));
        self.copy_sizes(expr, &fold.result);
        self.locals.pop();
        cost
    }

    fn fold(&mut self, expr: &'e Expr, fold: &'e Fold) -> Bounds {
        let cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let (place, size, entries) = (self.place(&fold.init), self.size(&fold.init), self.entries(&fold.init));
        self.locals.push(Local { name: &fold.gathered, place, size, entries });
        let outside = self.locals.len();
        self.push_variables(fold);
        let step = self.cost(&fold.condition).plus(self.cost(&fold.step));
        let step_entries = self.entries(&fold.step);
        self.locals.truncate(outside);
        let cost = cost.plus(self.cost(&fold.result));
        let init_size = self.size(&fold.init);
        self.locals.pop();
        let count = self.size_or_unknown(&fold.range);
        match &fold.init.kind {
            ExprKind::Literal(_) => {
                self.sizes.extend(init_size.map(|size| (expr.id, size)));
            }
            ExprKind::List(..) | ExprKind::Map(_) => {
                self.sizes.insert(expr.id, count);
                self.entries.extend(step_entries.map(|entries| (expr.id, entries)));
            }
            _ => {}
        }
        cost.plus(count.by(step))
    }

    fn push_variables(&mut self, fold: &'e Fold) {
        let entries = self.entries(&fold.range);
        let is_list = entries.map_or(matches!(self.type_of(&fold.range), Type::List(_)), |entries| entries.is_list);
        let range = self.place(&fold.range);
        let key = self.below(range, |decl| match &decl.kind {
            DeclKind::Map(_) => Origin::Key,
            _ => Origin::Undeclared,
        });
        let value = self.element(range);
        let (key_size, value_size) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        let mut push = |name: &'e str, place, size| self.locals.push(Local { name, place, size, entries: None });
        match &fold.second {
            Some(second) => {
                push(&fold.variable, key, key_size);
                push(second, value, value_size);
            }
            None if is_list => push(&fold.variable, value, value_size),
            None => push(&fold.variable, key, key_size),
        }
    }

    fn call(&mut self, expr: &'e Expr, call: &'e Call) -> Bounds {
        if call.function == "dyn"
            && let [arg] = call.args.as_slice()
        {
            let cost = self.cost(arg).plus(Bounds::exactly(STEP));
            self.copy_sizes(expr, arg);
            return cost;
        }
        let args: Vec<Bounds> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let Some(rules) = self.checked.calls.get(&expr.id) else { return Bounds::default() };
        let is_method = call.target.is_some() && !self.is_namespaced(call);
        let target = match &call.target {
            Some(target) if is_method => self.cost(target),
            _ => Bounds::default(),
        };
        let target_expr = call.target.as_deref().filter(|_| is_method);
        let mut cost: Option<Bounds> = None;
        let mut result: Option<Bounds> = None;
        for rule in rules {
            let (of_rule, size) = self.rule(*rule, expr, target_expr, &call.args, &args);
            cost = Some(cost.map_or(of_rule, |cost| cost.or(of_rule)));
            result = match (result, size) {
                (Some(before), Some(size)) => Some(before.or(size)),
                (before, size) => size.or(before),
            };
            if matches!(rule, CostRule::IndexList | CostRule::IndexMap)
                && let Some(indexed) = call.args.first()
            {
                result = self.entries(indexed).map(|entries| entries.value);
                self.places.insert(expr.id, self.element(self.place(indexed)));
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(result) = result {
            self.sizes.insert(expr.id, result);
        }
        target.plus(cost.unwrap_or_default())
    }

    /// Returns true if the call's target is part of the function's qualified name.
    fn is_namespaced(&self, call: &Call) -> bool {
        let Some(qualified) = call.target.as_ref().and_then(|target| target.as_qualified_name()) else { return false };
        let name = format!("{}.{}", qualified.trim_start_matches('.'), call.function);
        self.environment.functions().get(&name).is_some()
    }
}

/// The sizes in an empty list or map. Each element then widens them.
fn nothing(is_empty: bool) -> Bounds {
    Bounds { min: if is_empty { 0 } else { u64::MAX }, max: 0 }
}

fn declared_size(place: Origin<'_>) -> Option<Bounds> {
    match place {
        Origin::Nowhere | Origin::Undeclared => None,
        Origin::Key => Some(Bounds::default()),
        Origin::Declared(decl) => Some(Bounds { min: 0, max: decl.max_elements }),
    }
}
