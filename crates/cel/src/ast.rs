//! The tree of an expression, with its macros expanded.
//!
//! Every node has a number, under which its place in the text, its type and what its name means are kept beside the tree.

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Its number, unique in the tree.
    pub id: u32,
    /// What it is.
    pub kind: ExprKind,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// Nothing, because the text there is wrong.
    Error,
    /// A value that is written out.
    Literal(Literal),
    /// A variable or a type.
    Ident(String),
    /// A field of a value, or whether there is such a field.
    Select {
        /// The value.
        operand: Box<Expr>,
        /// The name of the field.
        field: String,
        /// Whether it is only asked for.
        is_test: bool,
    },
    /// A function, operator or method.
    Call(Call),
    /// A list; the second part says which elements are left out if they are optional without value.
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
    /// The function's name; operators are `_+_` and the like.
    pub function: String,
    /// The value before the dot.
    pub target: Option<Box<Expr>>,
    /// What stands in the parentheses.
    pub args: Vec<Expr>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The number of the entry.
    pub id: u32,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether it is left out if the value is optional without value.
    pub is_optional: bool,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct StructField {
    /// The number of the field.
    pub id: u32,
    /// The field's name.
    pub name: String,
    /// The value.
    pub value: Expr,
    /// Whether it is left out if the value is optional without value.
    pub is_optional: bool,
}

/// A loop over a list or a map, which is what the macros with variables become.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// The macro that it was, as far as it can be done without the general loop.
    pub shape: FoldKind,
    /// The variable for the element, the key, or the index where there are two.
    pub variable: String,
    /// The variable for the value where there are two.
    pub second: Option<String>,
    /// What it ranges over.
    pub range: Expr,
    /// The variable for what has been gathered.
    pub gathered: String,
    /// What is gathered before the first step.
    pub init: Expr,
    /// Whether there is another step.
    pub condition: Expr,
    /// What is gathered after the step.
    pub step: Expr,
    /// What the whole is.
    pub result: Expr,
}

/// The macro that a loop was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldKind {
    /// Whether the predicate holds for all.
    All,
    /// Whether it holds for one.
    Exists,
    /// A value under a name: nothing is looped over.
    Bind,
    /// Any other.
    General,
}

/// A value that is written out.
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
    /// The name, if it is one.
    pub fn as_ident(&self) -> Option<&str> {
        if let ExprKind::Ident(name) = &self.kind { Some(name) } else { None }
    }

    /// The literal, if it is one.
    pub fn as_literal(&self) -> Option<&Literal> {
        if let ExprKind::Literal(literal) = &self.kind { Some(literal) } else { None }
    }

    /// Names with dots between them, if it is that.
    pub fn as_qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select { operand, field, is_test: false } => {
                Some(format!("{}.{field}", operand.as_qualified_name()?))
            }
            _ => None,
        }
    }

    /// Shows each node to `visit`, those above before those below, with the functions whose arguments it is in.
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
