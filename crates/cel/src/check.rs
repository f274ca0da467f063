//! Infers the type of every node and resolves its names. Reports the faults if that is not possible.
//!
//! As in upstream's checker, an unknown type is a variable until it is unified with another type. `dyn` is assignable
//! to and from every type.

mod literals;

use crate::ast::{Call, Expr, ExprKind, Fold, Literal};
use crate::environment::Environment;
use crate::overloads::{CostRule, Overload};
use crate::parser::Parsed;
use crate::source::Issue;
use crate::stack::with_room;
use crate::types::{Type, Unifier, most_general};
use std::collections::HashMap;

/// A valid expression, and the types of its nodes.
#[derive(Debug)]
pub struct CheckedExpr {
    /// The tree.
    pub expr: Expr,
    /// The position of each node.
    pub positions: Vec<u32>,
    /// The type of each node.
    pub types: Vec<Type>,
    /// Resolved names, by the id of their node.
    pub names: HashMap<u32, Name>,
    /// The possible overloads of each call.
    pub calls: HashMap<u32, Vec<CostRule>>,
}

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Name {
    /// The variable with this index in the environment.
    Variable(usize),
    /// A type.
    Type(Type),
}

/// Checks the types of an expression.
///
/// # Errors
/// All faults in the expression.
pub fn check(parsed: Parsed, environment: &Environment) -> Result<CheckedExpr, Vec<Issue>> {
    let count = parsed.positions.len();
    let mut checker = Checker {
        environment,
        positions: &parsed.positions,
        types: vec![Type::Error; count],
        names: HashMap::new(),
        calls: HashMap::new(),
        unifier: Unifier::default(),
        locals: Vec::new(),
        issues: Vec::new(),
    };
    checker.check(&parsed.expr);
    let Checker { types, names, calls, unifier, issues, .. } = checker;
    if !issues.is_empty() {
        return Err(issues);
    }
    let types = types.iter().map(|of| unifier.resolve(of, true)).collect();
    let checked = CheckedExpr { expr: parsed.expr, positions: parsed.positions, types, names, calls };
    let issues = literals::check(&checked);
    if issues.is_empty() { Ok(checked) } else { Err(issues) }
}

struct Checker<'e> {
    environment: &'e Environment,
    positions: &'e [u32],
    types: Vec<Type>,
    names: HashMap<u32, Name>,
    calls: HashMap<u32, Vec<CostRule>>,
    unifier: Unifier,
    /// The variables of the enclosing loops.
    locals: Vec<(String, Type)>,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn issue(&mut self, id: u32, message: String) {
        self.issues.push(Issue { offset: Some(self.positions[id as usize]), message });
    }

    fn set(&mut self, expr: &Expr, ty: Type) {
        self.types[expr.id as usize] = ty;
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types[expr.id as usize].clone()
    }

    fn undeclared(&mut self, id: u32, name: &str) {
        self.issue(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn mismatch(&mut self, id: u32, expected: &Type, found: &Type) {
        let (expected, found) = (self.unifier.resolve(expected, true), self.unifier.resolve(found, true));
        self.issue(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn assert(&mut self, expr: &Expr, expected: &Type) {
        let found = self.type_of(expr);
        if !self.unifier.assign(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }

    fn check(&mut self, expr: &Expr) {
        with_room(|| self.check_within(expr));
    }

    fn check_within(&mut self, expr: &Expr) {
        let ty = match &expr.kind {
            ExprKind::Error => Type::Error,
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => self.ident(expr.id, name),
            ExprKind::Select { operand, field, is_test } => self.select(expr, operand, field, *is_test),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements, optional) => self.list(elements, optional),
            ExprKind::Map(entries) => {
                let (mut key_type, mut value_type) = (None, None);
                for entry in entries {
                    self.check(&entry.key);
                    key_type = Some(self.join(key_type, self.type_of(&entry.key)));
                    self.check(&entry.value);
                    let value = self.unwrapped(&entry.value, entry.is_optional);
                    value_type = Some(self.join(value_type, value));
                }
                let key_type = key_type.unwrap_or_else(|| self.unifier.fresh());
                let value_type = value_type.unwrap_or_else(|| self.unifier.fresh());
                Type::map(key_type, value_type)
            }
            ExprKind::Struct(name, _) => self.message(expr, name),
            ExprKind::Fold(fold) => self.fold(fold),
        };
        // A type with too many parts is shortened before it becomes part of another type.
        let ty = if matches!(ty, Type::Map(_) | Type::List(_)) { self.unifier.resolve(&ty, false) } else { ty };
        self.set(expr, ty);
    }

    fn ident(&mut self, id: u32, name: &str) -> Type {
        let is_global = name.starts_with('.');
        let name = name.trim_start_matches('.');
        if !is_global && let Some((_, ty)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return ty.clone();
        }
        self.global(id, name).unwrap_or_else(|| {
            self.undeclared(id, name);
            Type::Error
        })
    }

    /// The type of a variable, or of a type's name.
    fn global(&mut self, id: u32, name: &str) -> Option<Type> {
        if let Some((place, variable)) = self.environment.variable(name) {
            self.names.insert(id, Name::Variable(place));
            return Some(variable.ty.clone());
        }
        let named = self.environment.named_type(name)?;
        self.names.insert(id, Name::Type(named.clone()));
        Some(Type::Type(named.into()))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, is_test: bool) -> Type {
        if let Some(name) = expr.as_qualified_name() {
            let root = name.split('.').next().unwrap_or_default();
            let is_local = self.locals.iter().any(|(local, _)| local == root);
            if !is_local && let Some(found) = self.global(expr.id, name.trim_start_matches('.')) {
                return found;
            }
        }
        self.check(operand);
        let found = self.field(expr.id, operand, field, false);
        if is_test { Type::Bool } else { found }
    }

    /// The type of a field of a value.
    fn field(&mut self, id: u32, operand: &Expr, field: &str, is_optional: bool) -> Type {
        let of = self.unifier.resolve(&self.type_of(operand), false);
        let target = of.as_optional().unwrap_or(&of).clone();
        let found = match &target {
            Type::Map(of) => of.1.clone(),
            Type::Object(object) => match object.field(field) {
                Some(found) => found.decl.ty.clone(),
                None => {
                    self.issue(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Var(_) => {
                self.unifier.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.issue(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional || of.as_optional().is_some() { Type::optional(found) } else { found }
    }

    fn unwrapped(&mut self, expr: &Expr, is_optional: bool) -> Type {
        let found = self.type_of(expr);
        if !is_optional {
            return found;
        }
        let resolved = self.unifier.resolve(&found, false);
        match resolved.as_optional() {
            Some(inner) => inner.clone(),
            None if resolved.is_dyn_or_error() => Type::Dyn,
            None => {
                let expected = Type::optional(resolved.clone());
                self.mismatch(expr.id, &expected, &resolved);
                resolved
            }
        }
    }

    fn list(&mut self, elements: &[Expr], optional: &[usize]) -> Type {
        let mut element_type = None;
        for (at, element) in elements.iter().enumerate() {
            self.check(element);
            let found = self.unwrapped(element, optional.contains(&at));
            element_type = Some(self.join(element_type, found));
        }
        Type::list(element_type.unwrap_or_else(|| self.unifier.fresh()))
    }

    /// Returns the common type of two elements. `literals` checks whether mixed types are allowed.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.unifier.assign(&previous, &current) => most_general(&previous, &current),
            Some(_) => Type::Dyn,
        }
    }

    fn message(&mut self, expr: &Expr, name: &str) -> Type {
        let ExprKind::Struct(_, fields) = &expr.kind else { return Type::Error };
        let plain = name.trim_start_matches('.');
        let Some(message) = self.environment.message(plain) else {
            match self.environment.named_type(plain) {
                Some(_) => self.issue(expr.id, format!("'{name}' is not a message type")),
                None => self.undeclared(expr.id, name),
            }
            return Type::Error;
        };
        for field in fields {
            self.check(&field.value);
            let found = self.unwrapped(&field.value, field.is_optional);
            let Some(expected) = message.field(&field.name) else {
                self.issue(field.id, format!("undefined field '{}'", field.name));
                continue;
            };
            if !self.unifier.assign(&expected, &found) {
                let found = self.unifier.resolve(&found, true);
                let message =
                    format!("expected type of field '{}' is '{expected}' but provided type is '{found}'", field.name);
                self.issue(field.id, message);
            }
        }
        message.result
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        self.check(&fold.range);
        self.check(&fold.init);
        let range = self.unifier.resolve(&self.type_of(&fold.range), false);
        let gathered = self.type_of(&fold.init);
        let (first, second) = match &range {
            Type::List(element) if fold.second.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(of) => (of.0.clone(), of.1.clone()),
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.unifier.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.locals.len();
        self.locals.push((fold.gathered.clone(), gathered.clone()));
        let inside = self.locals.len();
        self.locals.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.locals.push((name.clone(), second));
        }
        self.check(&fold.condition);
        self.assert(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.assert(&fold.step, &gathered);
        self.locals.truncate(inside);
        self.check(&fold.result);
        self.locals.truncate(outside);
        self.unifier.resolve(&self.type_of(&fold.result), false)
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Type {
        if call.function == "_?._" {
            return self.optional_select(expr, call);
        }
        for arg in &call.args {
            self.check(arg);
        }
        let Some(target) = &call.target else {
            let name = call.function.trim_start_matches('.');
            let Some(overloads) = self.environment.functions().get(name) else {
                self.undeclared(expr.id, name);
                return Type::Error;
            };
            return self.resolve(expr, name, overloads, &call.args.iter().collect::<Vec<_>>(), false);
        };
        if let Some(qualified) = self.qualified_function(call)
            && let Some(overloads) = self.environment.functions().get(&qualified)
        {
            return self.resolve(expr, &qualified, overloads, &call.args.iter().collect::<Vec<_>>(), false);
        }
        self.check(target);
        let Some(overloads) = self.environment.functions().get(&call.function) else {
            self.undeclared(expr.id, &call.function);
            return Type::Error;
        };
        let args: Vec<&Expr> = std::iter::once(&**target).chain(&call.args).collect();
        self.resolve(expr, &call.function, overloads, &args, true)
    }

    fn qualified_function(&self, call: &Call) -> Option<String> {
        let target = call.target.as_ref()?.as_qualified_name()?;
        Some(format!("{}.{}", target.trim_start_matches('.'), call.function))
    }

    fn optional_select(&mut self, expr: &Expr, call: &Call) -> Type {
        let [operand, field] = call.args.as_slice() else { return Type::Error };
        self.check(operand);
        self.set(field, Type::String);
        let Some(Literal::String(name)) = field.as_literal() else { return Type::Error };
        self.calls.insert(expr.id, vec![CostRule::One]);
        self.field(expr.id, operand, name, true)
    }

    fn resolve(&mut self, expr: &Expr, name: &str, overloads: &[Overload], args: &[&Expr], is_method: bool) -> Type {
        let types: Vec<Type> = args.iter().map(|arg| self.type_of(arg)).collect();
        if matches!(name, "_&&_" | "_||_") {
            for (arg, found) in args.iter().zip(&types) {
                if !self.unifier.assign(found, &Type::Bool) {
                    self.mismatch(arg.id, &Type::Bool, found);
                }
            }
            self.calls.insert(expr.id, vec![CostRule::Logic]);
            return Type::Bool;
        }
        let mut rules = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.is_method == is_method) {
            if overload.args.len() != types.len() {
                continue;
            }
            let fresh: Vec<(char, Type)> = overload.params.iter().map(|param| (*param, self.unifier.fresh())).collect();
            let wanted: Vec<Type> = overload.args.iter().map(|arg| instantiated(arg, &fresh)).collect();
            if !self.unifier.assign_all(&types, &wanted) {
                continue;
            }
            rules.push(overload.cost);
            let found = self.unifier.resolve(&instantiated(&overload.result, &fresh), false);
            result = Some(match result {
                Some(before) if !before.is_dyn_or_error() && before != found => Type::Dyn,
                Some(before) => before,
                None => found,
            });
        }
        let Some(result) = result else {
            let types: Vec<String> = types.iter().map(|of| self.unifier.resolve(of, true).to_string()).collect();
            let applied = if is_method {
                format!("{}.({})", types[0], types[1..].join(", "))
            } else {
                format!("({})", types.join(", "))
            };
            self.issue(expr.id, format!("found no matching overload for '{name}' applied to '{applied}'"));
            return Type::Error;
        };
        self.calls.insert(expr.id, rules);
        result
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// Returns a declared type with fresh type variables in place of its parameters.
fn instantiated(of: &Type, fresh: &[(char, Type)]) -> Type {
    match of {
        Type::Param(name) => {
            fresh.iter().find(|(param, _)| param == name).map_or(Type::Dyn, |(_, fresh)| fresh.clone())
        }
        Type::List(element) => Type::list(instantiated(element, fresh)),
        Type::Map(of) => Type::map(instantiated(&of.0, fresh), instantiated(&of.1, fresh)),
        Type::Type(of) => Type::Type(instantiated(of, fresh).into()),
        Type::Opaque(name, params) if !params.is_empty() => {
            Type::Opaque(name.clone(), params.iter().map(|param| instantiated(param, fresh)).collect())
        }
        other => other.clone(),
    }
}
