//! The syntax tree of an expression, with its macros expanded.
//!
//! Every node has an id. Maps beside the tree hold, for each id, the position of the node, its type, and the meaning of
//! its name.

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Its id, unique in the tree.
    pub id: u32,
    /// Its kind.
    pub kind: ExprKind,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A part of the text with a syntax error.
    Error,
    /// A literal.
    Literal(Literal),
    /// A variable or a type.
    Ident(String),
    /// A field of a value, or the test whether the value has the field.
    Select {
        /// The value.
        operand: Box<Expr>,
        /// The name of the field.
        field: String,
        /// True for `has()`.
        is_test: bool,
    },
    /// A function, operator or method.
    Call(Call),
    /// A list, and the indexes of its optional elements. An optional element without a value is left out.
    List(Vec<Expr>, Vec<usize>),
    /// A map.
    Map(Vec<MapEntry>),
    /// A message.
    Struct(String, Vec<StructField>),
    /// A loop.
    Fold(Box<Fold>),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function's name. Operators have names such as `_+_`.
    pub function: String,
    /// The value before the dot.
    pub target: Option<Box<Expr>>,
    /// The arguments.
    pub args: Vec<Expr>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The id of the entry.
    pub id: u32,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// True if the entry is left out when its optional value is absent.
    pub is_optional: bool,
}

/// A field of a created message.
#[derive(Clone, Debug, PartialEq)]
pub struct StructField {
    /// The id of the field.
    pub id: u32,
    /// The field's name.
    pub name: String,
    /// The value.
    pub value: Expr,
    /// True if the field is left out when its optional value is absent.
    pub is_optional: bool,
}

/// A loop over a list or a map. Macros with variables are expanded to loops.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// The kind of loop. Some kinds run without the general algorithm.
    pub shape: FoldKind,
    /// The variable for the element of a list or the key of a map. With two variables, the variable for the index or
    /// key.
    pub variable: String,
    /// The variable for the value, if there are two.
    pub second: Option<String>,
    /// The range of the loop.
    pub range: Expr,
    /// The accumulator variable.
    pub gathered: String,
    /// The initial value of the accumulator.
    pub init: Expr,
    /// The condition for another step.
    pub condition: Expr,
    /// The accumulator after the step.
    pub step: Expr,
    /// The result of the loop.
    pub result: Expr,
}

/// The kinds of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldKind {
    /// The macro `all`.
    All,
    /// The macro `exists`.
    Exists,
    /// No loop: a value is bound to a name.
    Bind,
    /// Any other.
    General,
}

/// A literal.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // They are the names of CEL's types.
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl Expr {
    /// The name, for an identifier.
    pub fn as_ident(&self) -> Option<&str> {
        if let ExprKind::Ident(name) = &self.kind { Some(name) } else { None }
    }

    /// The literal, for a literal.
    pub fn as_literal(&self) -> Option<&Literal> {
        if let ExprKind::Literal(literal) = &self.kind { Some(literal) } else { None }
    }

    /// The dotted name, if the expression is an identifier or a chain of field selections.
    pub fn as_qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select { operand, field, is_test: false } => {
                Some(format!("{}.{field}", operand.as_qualified_name()?))
            }
            _ => None,
        }
    }

    /// Calls `visit` with each node, parents first, and with the functions in whose arguments the node is.
    pub fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Expr, &[&'e str])) {
        self.walk_in(&mut Vec::new(), visit);
    }

    fn walk_in<'e>(&'e self, calls: &mut Vec<&'e str>, visit: &mut impl FnMut(&'e Expr, &[&'e str])) {
        visit(self, calls);
        if let ExprKind::Call(call) = &self.kind {
            calls.push(&call.function);
        }
        self.for_each_child(|child| child.walk_in(calls, visit));
        if let ExprKind::Call(_) = &self.kind {
            calls.pop();
        }
    }

    fn for_each_child<'e>(&'e self, mut show: impl FnMut(&'e Expr)) {
        match &self.kind {
            ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => show(operand),
            ExprKind::Call(call) => {
                call.target.iter().for_each(|target| show(target));
                call.args.iter().for_each(show);
            }
            ExprKind::List(elements, _) => elements.iter().for_each(show),
            ExprKind::Map(entries) => entries.iter().for_each(|entry| {
                show(&entry.key);
                show(&entry.value);
            }),
            ExprKind::Struct(_, fields) => fields.iter().for_each(|field| show(&field.value)),
            ExprKind::Fold(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter().for_each(show);
            }
        }
    }
}
