//! Macros: calls that the parser expands, mostly to loops over their target.
//!
//! Expansions use variables whose names can't be written in an expression.

use super::{MAX_NODES, Parser};
use crate::ast::{Call, Expr, ExprKind, Fold, FoldKind, Literal, MapEntry, StructField};

/// The variable in which a loop accumulates its result. Expressions can't contain this name.
const GATHERED: &str = "@result";
/// The variable of a loop over an empty list.
const UNUSED: &str = "#unused";
/// The variable that holds the input of `sortBy`.
const SORTED: &str = "@__sortBy_input__";

type Expansion = Result<Expr, (u32, String)>;

impl Parser<'_> {
    /// Creates a function call, or the expansion of the macro with this name.
    pub(super) fn function(&mut self, position: u32, name: &str, mut args: Vec<Expr>) -> Expr {
        if name == "has" && args.len() == 1 {
            let argument = args.remove(0);
            return match argument.kind {
                ExprKind::Select { operand, field, is_test: false } => {
                    self.node(position, ExprKind::Select { operand, field, is_test: true })
                }
                ExprKind::Error => argument,
                _ => self.refuse(argument.id, "invalid argument to has() macro"),
            };
        }
        self.call(position, name, None, args)
    }

    /// Creates a method call, or the expansion of the macro with this name.
    pub(super) fn method(&mut self, position: u32, target: Expr, name: &str, args: Vec<Expr>) -> Expr {
        let expanded = match (name, args.len()) {
            ("all" | "exists" | "exists_one" | "existsOne", 2 | 3) => self.quantifier(position, target, name, args),
            ("map", 2 | 3) | ("filter", 2) => self.map_or_filter(position, target, name == "filter", args),
            ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
                self.transform(position, target, name, args)
            }
            ("optMap" | "optFlatMap", 2) => self.optional_map(position, &target, name == "optFlatMap", args),
            ("sortBy", 2) => self.sort_by(position, target, args),
            ("bind", 3) if self.macros.bind && target.as_ident() == Some("cel") => self.bind(position, args),
            _ => return self.call(position, name, Some(target), args),
        };
        expanded.unwrap_or_else(|(id, message)| self.refuse(id, &message))
    }

    fn refuse(&mut self, id: u32, message: &str) -> Expr {
        let position = self.positions.get(id as usize).copied().unwrap_or(0);
        self.issue(position, message);
        self.node(position, ExprKind::Error)
    }

    fn ident(&mut self, position: u32, name: &str) -> Expr {
        self.node(position, ExprKind::Ident(name.to_owned()))
    }

    fn constant(&mut self, position: u32, literal: Literal) -> Expr {
        self.node(position, ExprKind::Literal(literal))
    }

    fn gathered(&mut self, position: u32) -> Expr {
        self.ident(position, GATHERED)
    }

    fn fold(&mut self, position: u32, variables: Variables, range: Expr, parts: FoldBody) -> Expr {
        let FoldBody { shape, init, condition, step, result } = parts;
        let Variables { first, second } = variables;
        let gathered = GATHERED.to_owned();
        let fold = Fold { shape, variable: first, second, range, gathered, init, condition, step, result };
        self.node(position, ExprKind::Fold(Box::new(fold)))
    }

    fn quantifier(&mut self, position: u32, target: Expr, name: &str, mut args: Vec<Expr>) -> Expansion {
        let predicate = args.pop().unwrap_or(Expr { id: 0, kind: ExprKind::Error });
        let variables = Variables::new(&args, "argument must be a simple name")?;
        let parts = match name {
            "all" => {
                let seen = self.gathered(position);
                FoldBody {
                    shape: FoldKind::All,
                    init: self.constant(position, Literal::Bool(true)),
                    condition: self.call(position, "@not_strictly_false", None, vec![seen]),
                    step: self.with_gathered(position, "_&&_", predicate),
                    result: self.gathered(position),
                }
            }
            "exists" => {
                let seen = self.gathered(position);
                let unseen = self.call(position, "!_", None, vec![seen]);
                FoldBody {
                    shape: FoldKind::Exists,
                    init: self.constant(position, Literal::Bool(false)),
                    condition: self.call(position, "@not_strictly_false", None, vec![unseen]),
                    step: self.with_gathered(position, "_||_", predicate),
                    result: self.gathered(position),
                }
            }
            _ => {
                let one = self.constant(position, Literal::Int(1));
                let counted = self.with_gathered(position, "_+_", one);
                let (count, one) = (self.gathered(position), self.constant(position, Literal::Int(1)));
                FoldBody {
                    shape: FoldKind::General,
                    init: self.constant(position, Literal::Int(0)),
                    condition: self.constant(position, Literal::Bool(true)),
                    step: self.if_holds(position, predicate, counted),
                    result: self.call(position, "_==_", None, vec![count, one]),
                }
            }
        };
        Ok(self.fold(position, variables, target, parts))
    }

    fn with_gathered(&mut self, position: u32, function: &str, operand: Expr) -> Expr {
        let gathered = self.gathered(position);
        self.call(position, function, None, vec![gathered, operand])
    }

    /// A conditional: the step if the predicate holds, otherwise the unchanged accumulator.
    fn if_holds(&mut self, position: u32, predicate: Expr, step: Expr) -> Expr {
        let gathered = self.gathered(position);
        self.call(position, "_?_:_", None, vec![predicate, step, gathered])
    }

    fn append(&mut self, position: u32, element: Expr) -> Expr {
        let list = self.node(position, ExprKind::List(vec![element], Vec::new()));
        self.with_gathered(position, "_+_", list)
    }

    fn gathering(&mut self, position: u32, init: ExprKind, predicate: Option<Expr>, step: Expr) -> FoldBody {
        let step = match predicate {
            Some(predicate) => self.if_holds(position, predicate, step),
            None => step,
        };
        FoldBody {
            shape: FoldKind::General,
            init: self.node(position, init),
            condition: self.constant(position, Literal::Bool(true)),
            step,
            result: self.gathered(position),
        }
    }

    fn map_or_filter(&mut self, position: u32, target: Expr, is_filter: bool, mut args: Vec<Expr>) -> Expansion {
        let Some(name) = args[0].as_ident().map(str::to_owned) else {
            return Err((args[0].id, "argument is not an identifier".to_owned()));
        };
        let last = args.pop().unwrap_or(Expr { id: 0, kind: ExprKind::Error });
        let (predicate, step) = if is_filter {
            let element = self.ident(position, &name);
            (Some(last), self.append(position, element))
        } else {
            let predicate = (args.len() == 2).then(|| args.pop()).flatten();
            (predicate, self.append(position, last))
        };
        let parts = self.gathering(position, ExprKind::List(Vec::new(), Vec::new()), predicate, step);
        Ok(self.fold(position, Variables { first: name, second: None }, target, parts))
    }

    fn transform(&mut self, position: u32, target: Expr, name: &str, mut args: Vec<Expr>) -> Expansion {
        let last = args.pop().unwrap_or(Expr { id: 0, kind: ExprKind::Error });
        let predicate = (args.len() == 3).then(|| args.pop()).flatten();
        let variables = Variables::new(&args, "argument must be a simple name")?;
        let (init, step) = match name {
            "transformList" => (ExprKind::List(Vec::new(), Vec::new()), self.append(position, last)),
            "transformMap" => {
                let (gathered, key) = (self.gathered(position), self.ident(position, &variables.first));
                let step = self.call(position, "cel.@mapInsert", None, vec![gathered, key, last]);
                (ExprKind::Map(Vec::new()), step)
            }
            _ => (ExprKind::Map(Vec::new()), self.with_gathered(position, "cel.@mapInsert", last)),
        };
        let parts = self.gathering(position, init, predicate, step);
        Ok(self.fold(position, variables, target, parts))
    }

    /// The expansion of a bound value: a loop over an empty list.
    fn bound(&mut self, position: u32, name: &str, value: Expr, result: Expr) -> Expr {
        let fold = Fold {
            shape: FoldKind::Bind,
            variable: UNUSED.to_owned(),
            second: None,
            range: self.node(position, ExprKind::List(Vec::new(), Vec::new())),
            gathered: name.to_owned(),
            init: value,
            condition: self.constant(position, Literal::Bool(false)),
            step: self.ident(position, name),
            result,
        };
        self.node(position, ExprKind::Fold(Box::new(fold)))
    }

    fn bind(&mut self, position: u32, mut args: Vec<Expr>) -> Expansion {
        let (Some(result), Some(value), Some(name)) = (args.pop(), args.pop(), args.pop()) else {
            return Err((0, "cel.bind() needs three arguments".to_owned()));
        };
        let Some(text) = name.as_ident() else {
            return Err((name.id, "cel.bind() variable names must be simple identifiers".to_owned()));
        };
        Ok(self.bound(position, text, value, result))
    }

    fn optional_map(&mut self, position: u32, target: &Expr, is_flat: bool, mut args: Vec<Expr>) -> Expansion {
        let result = args.pop().unwrap_or(Expr { id: 0, kind: ExprKind::Error });
        let Some(name) = args[0].as_ident().map(str::to_owned) else {
            let macro_name = if is_flat { "optFlatMap" } else { "optMap" };
            return Err((args[0].id, format!("{macro_name}() variable name must be a simple identifier")));
        };
        let tested = self.copied(target);
        let tested = self.call(position, "hasValue", Some(tested), Vec::new());
        let taken = self.copied(target);
        let taken = self.call(position, "value", Some(taken), Vec::new());
        let mapped = self.bound(position, &name, taken, result);
        let mapped = if is_flat { mapped } else { self.call(position, "optional.of", None, vec![mapped]) };
        let none = self.call(position, "optional.none", None, Vec::new());
        Ok(self.call(position, "_?_:_", None, vec![tested, mapped, none]))
    }

    fn sort_by(&mut self, position: u32, target: Expr, args: Vec<Expr>) -> Expansion {
        let is_range = matches!(
            target.kind,
            ExprKind::List(..) | ExprKind::Ident(_) | ExprKind::Fold(_) | ExprKind::Call(_) | ExprKind::Select { .. }
        );
        if !is_range {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.id, message.to_owned()));
        }
        let range = self.ident(position, SORTED);
        let keys = self.map_or_filter(position, range, false, args)?;
        let input = self.ident(position, SORTED);
        let sorted = self.call(position, "@sortByAssociatedKeys", Some(input), vec![keys]);
        Ok(self.bound(position, SORTED, target, sorted))
    }

    /// Returns a copy of the tree with new ids.
    fn copied(&mut self, expr: &Expr) -> Expr {
        if self.positions.len() >= MAX_NODES {
            return self.node(0, ExprKind::Error);
        }
        let boxed = |parser: &mut Self, expr: &Expr| Box::new(parser.copied(expr));
        let kind = match &expr.kind {
            ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => expr.kind.clone(),
            ExprKind::Select { operand, field, is_test } => {
                ExprKind::Select { operand: boxed(self, operand), field: field.clone(), is_test: *is_test }
            }
            ExprKind::Call(call) => ExprKind::Call(Call {
                function: call.function.clone(),
                target: call.target.as_ref().map(|target| boxed(self, target)),
                args: call.args.iter().map(|arg| self.copied(arg)).collect(),
            }),
            ExprKind::List(elements, optional) => {
                ExprKind::List(elements.iter().map(|element| self.copied(element)).collect(), optional.clone())
            }
            ExprKind::Map(entries) => ExprKind::Map(entries.iter().map(|entry| self.copied_entry(entry)).collect()),
            ExprKind::Struct(name, fields) => {
                ExprKind::Struct(name.clone(), fields.iter().map(|field| self.copied_field(field)).collect())
            }
            ExprKind::Fold(fold) => ExprKind::Fold(Box::new(Fold {
                shape: fold.shape,
                variable: fold.variable.clone(),
                second: fold.second.clone(),
                range: self.copied(&fold.range),
                gathered: fold.gathered.clone(),
                init: self.copied(&fold.init),
                condition: self.copied(&fold.condition),
                step: self.copied(&fold.step),
                result: self.copied(&fold.result),
            })),
        };
        let position = self.positions[expr.id as usize];
        self.node(position, kind)
    }

    fn copied_entry(&mut self, entry: &MapEntry) -> MapEntry {
        let (key, value) = (self.copied(&entry.key), self.copied(&entry.value));
        let position = self.positions[entry.id as usize];
        MapEntry { id: self.node(position, ExprKind::Error).id, key, value, is_optional: entry.is_optional }
    }

    fn copied_field(&mut self, field: &StructField) -> StructField {
        let value = self.copied(&field.value);
        let position = self.positions[field.id as usize];
        let id = self.node(position, ExprKind::Error).id;
        StructField { id, name: field.name.clone(), value, is_optional: field.is_optional }
    }
}

/// The variables of a loop.
struct Variables {
    first: String,
    second: Option<String>,
}

impl Variables {
    /// Reads one or two names from the arguments.
    fn new(args: &[Expr], fault: &str) -> Result<Self, (u32, String)> {
        let name = |arg: &Expr| arg.as_ident().map(str::to_owned).ok_or_else(|| (arg.id, fault.to_owned()));
        let first = name(&args[0])?;
        let second = args.get(1).map(name).transpose()?;
        match (second, args.get(1)) {
            (Some(second), Some(arg)) if second == first => Err((arg.id, format!("duplicate variable name: {second}"))),
            (second, _) => Ok(Self { first, second }),
        }
    }
}

/// A loop without its range.
struct FoldBody {
    shape: FoldKind,
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}
