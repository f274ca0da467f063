//! Parses an expression.
//!
//! Published parsers report errors in their own words. Users know upstream's messages, which depend on how its
//! generated parser recovers from errors. That parser deletes one token, inserts one, or skips tokens until one that
//! may follow. Nesting and size are limited, so that no text can exhaust the stack or the memory.

mod literals;
mod macros;
mod recovery;

use crate::ast::{Call, Expr, ExprKind, Literal, MapEntry, StructField};
use crate::lexer::{Token, TokenKind, tokens};
use crate::source::{Issue, MAX_CODE_POINTS, MAX_ISSUES, Source};
use crate::stack::with_room;
use recovery::Follow;

/// The maximum nesting of each rule of the grammar.
const MAX_DEPTH: u32 = 250;
/// The maximum depth of the tree. Only nested macros come near it.
const MAX_TREE_DEPTH: u32 = 800;
/// The maximum number of nodes. Macros copy their targets, so a short text could have many.
const MAX_NODES: usize = 200_000;

/// A parsed expression.
#[derive(Debug)]
pub struct Parsed {
    /// The tree.
    pub expr: Expr,
    /// The position of each node, by id.
    pub positions: Vec<u32>,
}

/// The macros that an environment may enable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Macros {
    /// `cel.bind`.
    pub bind: bool,
}

/// Parses an expression.
///
/// # Errors
/// All faults in the expression.
pub fn parse(source: &Source, macros: Macros) -> Result<Parsed, Vec<Issue>> {
    let size = source.chars().len();
    if size > MAX_CODE_POINTS {
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}");
        return Err(vec![Issue { offset: None, message }]);
    }
    let mut issues = Vec::new();
    let tokens = tokens(source, &mut issues);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        issues,
        positions: Vec::new(),
        macros,
        depth: Depth::default(),
        follow: Vec::new(),
        is_recovering: false,
        recoveries: 0,
        stop: None,
    };
    let expr = parser.expression(Follow::End);
    parser.expect_end();
    if let Some(message) = parser.stop {
        return Err(vec![Issue { offset: None, message }]);
    }
    if !parser.issues.is_empty() {
        parser.issues.truncate(MAX_ISSUES);
        return Err(parser.issues);
    }
    if depth(&expr, MAX_TREE_DEPTH).is_none() {
        return Err(vec![Issue { offset: None, message: too_deep() }]);
    }
    Ok(Parsed { expr, positions: parser.positions })
}

fn too_deep() -> String {
    format!("expression recursion limit exceeded: {MAX_DEPTH}")
}

/// The part of the depth limit `left` that remains below a tree. `None` if the tree is deeper.
fn depth(expr: &Expr, left: u32) -> Option<u32> {
    let left = left.checked_sub(1)?;
    let of = |mut exprs: &mut dyn Iterator<Item = &Expr>| {
        Iterator::try_fold(&mut exprs, left, |least, expr| Some(least.min(depth(expr, left)?)))
    };
    match &expr.kind {
        ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => Some(left),
        ExprKind::Select { operand, .. } => depth(operand, left),
        ExprKind::Call(call) => of(&mut call.target.as_deref().into_iter().chain(&call.args)),
        ExprKind::List(elements, _) => of(&mut elements.iter()),
        ExprKind::Map(entries) => of(&mut entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
        ExprKind::Struct(_, fields) => of(&mut fields.iter().map(|field| &field.value)),
        ExprKind::Fold(fold) => {
            of(&mut [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter())
        }
    }
}

/// The current nesting depth of each rule of the grammar.
#[derive(Clone, Copy, Default)]
struct Depth {
    expression: u32,
    relation: u32,
    calculation: u32,
    member: u32,
}

struct Parser<'s> {
    source: &'s Source,
    tokens: Vec<Token>,
    at: usize,
    issues: Vec<Issue>,
    positions: Vec<u32>,
    macros: Macros,
    depth: Depth,
    /// The tokens that may follow the open constructs.
    follow: Vec<Follow>,
    /// True from the report of an error until a token matches.
    is_recovering: bool,
    recoveries: u32,
    /// The reason why parsing stopped.
    stop: Option<String>,
}

/// The precedence of operators, lowest first.
const OR: u32 = 1;
const AND: u32 = 2;
const RELATION: u32 = 3;
const SUM: u32 = 4;
const PRODUCT: u32 = 5;

fn operator(kind: TokenKind) -> Option<(u32, &'static str)> {
    Some(match kind {
        TokenKind::Or => (OR, "_||_"),
        TokenKind::And => (AND, "_&&_"),
        TokenKind::Equals => (RELATION, "_==_"),
        TokenKind::NotEquals => (RELATION, "_!=_"),
        TokenKind::Less => (RELATION, "_<_"),
        TokenKind::LessEquals => (RELATION, "_<=_"),
        TokenKind::Greater => (RELATION, "_>_"),
        TokenKind::GreaterEquals => (RELATION, "_>=_"),
        TokenKind::In => (RELATION, "@in"),
        TokenKind::Plus => (SUM, "_+_"),
        TokenKind::Minus => (SUM, "_-_"),
        TokenKind::Star => (PRODUCT, "_*_"),
        TokenKind::Slash => (PRODUCT, "_/_"),
        TokenKind::Percent => (PRODUCT, "_%_"),
        _ => return None,
    })
}

/// Reserved words, which can't be the names of variables.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

impl Parser<'_> {
    fn node(&mut self, position: u32, kind: ExprKind) -> Expr {
        let id = u32::try_from(self.positions.len()).unwrap_or(u32::MAX);
        if self.positions.len() >= MAX_NODES {
            self.stop_with(format!("expression node count exceeds limit: {MAX_NODES}"));
            return Expr { id: id - 1, kind: ExprKind::Error };
        }
        self.positions.push(position);
        Expr { id, kind }
    }

    fn call(&mut self, position: u32, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        let call = Call { function: function.to_owned(), target: target.map(Box::new), args };
        self.node(position, ExprKind::Call(call))
    }

    /// Stops parsing, and treats the rest of the text as empty.
    fn stop_with(&mut self, message: String) {
        self.stop.get_or_insert(message);
        self.at = self.tokens.len() - 1;
    }

    /// Enters a rule. If it is nested too deep, stops parsing and returns false.
    fn enter(&mut self, depth: impl Fn(&mut Depth) -> &mut u32) -> bool {
        let depth = depth(&mut self.depth);
        *depth += 1;
        if *depth > MAX_DEPTH {
            self.stop_with(too_deep());
        }
        self.stop.is_none()
    }

    fn expression(&mut self, follow: Follow) -> Expr {
        with_room(|| self.expression_within(follow))
    }

    fn expression_within(&mut self, follow: Follow) -> Expr {
        if !self.enter(|depth| &mut depth.expression) {
            self.depth.expression -= 1;
            return self.node(0, ExprKind::Error);
        }
        self.follow.push(follow);
        let mut expr = self.binary(OR);
        if self.peek() == TokenKind::Question {
            let position = self.advance().start;
            self.follow.push(Follow::Colon);
            let yes = self.binary(OR);
            self.follow.pop();
            if self.expect(TokenKind::Colon, TokenKind::starts_operand) {
                let no = self.expression(follow);
                expr = self.call(position, "_?_:_", None, vec![expr, yes, no]);
            }
        }
        self.follow.pop();
        self.depth.expression -= 1;
        expr
    }

    fn binary(&mut self, tightness: u32) -> Expr {
        let before = self.depth;
        self.enter(|depth| &mut depth.relation);
        self.enter(|depth| &mut depth.calculation);
        let mut left = self.unary();
        while let Some((level, function)) = operator(self.peek()).filter(|(level, _)| *level >= tightness) {
            if level <= AND {
                left = self.logical(left, level, function);
                continue;
            }
            if level == RELATION {
                self.enter(|depth| &mut depth.relation);
            } else {
                self.enter(|depth| &mut depth.calculation);
            }
            let position = self.advance().start;
            let right = self.binary(level + 1);
            left = self.call(position, function, None, vec![left, right]);
        }
        self.depth = Depth { expression: self.depth.expression, member: self.depth.member, ..before };
        left
    }

    /// Parses a chain of `&&` or `||` into a balanced tree.
    fn logical(&mut self, first: Expr, level: u32, function: &str) -> Expr {
        let mut terms = vec![Some(first)];
        let mut positions = Vec::new();
        while operator(self.peek()).is_some_and(|(found, _)| found == level) {
            positions.push(self.advance().start);
            let term = self.binary(level + 1);
            terms.push(Some(term));
        }
        self.balanced(function, &mut terms, &positions, 0)
    }

    /// Builds the tree of the operators at these positions and of the terms from `first` on.
    fn balanced(&mut self, function: &str, terms: &mut [Option<Expr>], positions: &[u32], first: usize) -> Expr {
        let Some(middle) = positions.len().checked_sub(1).map(|last| last.div_ceil(2)) else {
            return terms[first].take().unwrap_or(Expr { id: 0, kind: ExprKind::Error });
        };
        let left = self.balanced(function, terms, &positions[..middle], first);
        let right = self.balanced(function, terms, &positions[middle + 1..], first + middle + 1);
        self.call(positions[middle], function, None, vec![left, right])
    }

    fn unary(&mut self) -> Expr {
        let kind = self.peek();
        let is_number = |kind: TokenKind| matches!(kind, TokenKind::Int | TokenKind::Float);
        if kind == TokenKind::Not || (kind == TokenKind::Minus && !is_number(self.peek_behind(1))) {
            let position = self.peek_token().start;
            let mut count = 0;
            while self.peek() == kind && !(kind == TokenKind::Minus && is_number(self.peek_behind(1))) {
                self.advance();
                count += 1;
            }
            let operand = self.member();
            let function = if kind == TokenKind::Not { "!_" } else { "-_" };
            return if count % 2 == 0 { operand } else { self.call(position, function, None, vec![operand]) };
        }
        self.member()
    }

    fn member(&mut self) -> Expr {
        let before = self.depth.member;
        self.enter(|depth| &mut depth.member);
        let mut expr = self.primary();
        loop {
            let is_member = match self.peek() {
                TokenKind::Dot => self.dot(&mut expr),
                TokenKind::LeftBracket => self.index(&mut expr),
                _ => false,
            };
            if !is_member {
                break;
            }
            self.enter(|depth| &mut depth.member);
        }
        self.depth.member = before;
        expr
    }

    /// Parses a field or a method of `expr`, after the dot.
    fn dot(&mut self, expr: &mut Expr) -> bool {
        let dot = self.peek_token();
        let is_optional = self.peek_behind(1) == TokenKind::Question;
        let name_at = 1 + usize::from(is_optional);
        if !matches!(self.peek_behind(name_at), TokenKind::Ident | TokenKind::EscapedIdent) {
            self.no_alternative(name_at);
            return false;
        }
        for _ in 0..name_at {
            self.advance();
        }
        let name = self.advance();
        let text = self.text(name);
        if name.kind == TokenKind::EscapedIdent {
            self.issue(name.start, "unsupported syntax: '`'");
        }
        let operand = std::mem::replace(expr, Expr { id: 0, kind: ExprKind::Error });
        *expr = if self.peek() == TokenKind::LeftParen && !is_optional && name.kind == TokenKind::Ident {
            let position = self.advance().start;
            let args = self.arguments();
            self.method(position, operand, &text, args)
        } else if is_optional {
            let field = self.node(name.start, ExprKind::Literal(Literal::String(text)));
            self.call(dot.start, "_?._", None, vec![operand, field])
        } else {
            let kind = ExprKind::Select { operand: Box::new(operand), field: text, is_test: false };
            self.node(dot.start, kind)
        };
        true
    }

    fn index(&mut self, expr: &mut Expr) -> bool {
        let position = self.advance().start;
        let is_optional = self.accept_question();
        let index = self.expression(Follow::Bracket);
        let operand = std::mem::replace(expr, Expr { id: 0, kind: ExprKind::Error });
        let function = if is_optional { "_[?_]" } else { "_[_]" };
        *expr = self.call(position, function, None, vec![operand, index]);
        self.expect_close(TokenKind::RightBracket)
    }

    fn accept_question(&mut self) -> bool {
        let found = self.peek() == TokenKind::Question;
        if found {
            self.advance();
        }
        found
    }

    /// Parses the arguments after an opening parenthesis.
    fn arguments(&mut self) -> Vec<Expr> {
        let mut args = Vec::new();
        if self.peek() == TokenKind::RightParen {
            self.advance();
            return args;
        }
        if !self.expect_operand(&[TokenKind::RightParen]) {
            return args;
        }
        while self.stop.is_none() {
            args.push(self.expression(Follow::Arguments));
            if self.peek() != TokenKind::Comma {
                break;
            }
            self.advance();
        }
        self.expect_close(TokenKind::RightParen);
        args
    }

    fn primary(&mut self) -> Expr {
        if !self.expect_operand(&[]) {
            return self.node(0, ExprKind::Error);
        }
        let token = self.peek_token();
        match token.kind {
            TokenKind::Ident => self.name(),
            TokenKind::Dot if self.peek_behind(1) == TokenKind::Ident => self.name(),
            TokenKind::Dot => {
                self.no_alternative(1);
                self.node(token.start, ExprKind::Error)
            }
            TokenKind::LeftParen => {
                self.advance();
                let expr = self.expression(Follow::Paren);
                self.expect_close(TokenKind::RightParen);
                expr
            }
            TokenKind::LeftBracket => self.list(),
            TokenKind::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// Parses a variable, a function or a message.
    fn name(&mut self) -> Expr {
        let lead = if self.peek() == TokenKind::Dot { self.advance().kind == TokenKind::Dot } else { false };
        if let Some(names) = self.message_name() {
            return self.message(names, lead);
        }
        let token = self.advance();
        let text = self.text(token);
        let is_reserved = RESERVED.contains(&text.as_str());
        if is_reserved {
            self.issue(token.start, &format!("reserved identifier: {text}"));
        }
        let name = if lead { format!(".{text}") } else { text };
        if self.peek() == TokenKind::LeftParen {
            let position = self.advance().start;
            let args = self.arguments();
            return if is_reserved {
                self.node(token.start, ExprKind::Error)
            } else {
                self.function(position, &name, args)
            };
        }
        self.node(token.start, if is_reserved { ExprKind::Error } else { ExprKind::Ident(name) })
    }

    /// The number of tokens in the name of a message. `None` if the next tokens are no such name.
    fn message_name(&self) -> Option<usize> {
        let mut words = 1;
        while self.peek_behind(words) == TokenKind::Dot && self.peek_behind(words + 1) == TokenKind::Ident {
            words += 2;
        }
        (self.peek_behind(words) == TokenKind::LeftBrace).then_some(words)
    }

    fn message(&mut self, words: usize, lead: bool) -> Expr {
        let mut name = if lead { ".".to_owned() } else { String::new() };
        for _ in 0..words {
            let word = self.advance();
            name.push_str(&self.text(word));
        }
        let position = self.advance().start;
        let mut fields = Vec::new();
        while self.peek() != TokenKind::RightBrace && self.stop.is_none() {
            let is_optional = self.accept_question();
            let token = self.peek_token();
            if !matches!(token.kind, TokenKind::Ident | TokenKind::EscapedIdent) {
                let mut expected =
                    vec![TokenKind::Ident, TokenKind::EscapedIdent, TokenKind::RightBrace, TokenKind::Comma];
                expected.extend((!is_optional).then_some(TokenKind::Question));
                self.mismatch(&expected);
                break;
            }
            self.advance();
            let field = self.text(token);
            if token.kind == TokenKind::EscapedIdent {
                self.issue(token.start, "unsupported syntax: '`'");
            }
            let colon = self.peek_token().start;
            if !self.expect(TokenKind::Colon, TokenKind::starts_operand) {
                break;
            }
            let value = self.expression(Follow::Braces);
            let id = self.node(colon, ExprKind::Error).id;
            fields.push(StructField { id, name: field, value, is_optional });
            if !self.separated(TokenKind::RightBrace) {
                break;
            }
        }
        self.close(TokenKind::RightBrace);
        self.node(position, ExprKind::Struct(name, fields))
    }

    fn list(&mut self) -> Expr {
        let position = self.advance().start;
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        let start = [TokenKind::Question, TokenKind::Comma, TokenKind::RightBracket];
        if self.peek() == TokenKind::Comma || (self.peek() != TokenKind::RightBracket && !self.expect_operand(&start)) {
            self.separated(TokenKind::RightBracket);
        } else {
            while self.peek() != TokenKind::RightBracket && self.stop.is_none() {
                if self.accept_question() {
                    optional.push(elements.len());
                }
                elements.push(self.expression(Follow::Brackets));
                if !self.separated(TokenKind::RightBracket) {
                    break;
                }
            }
        }
        self.close(TokenKind::RightBracket);
        self.node(position, ExprKind::List(elements, optional))
    }

    fn map(&mut self) -> Expr {
        let position = self.advance().start;
        let mut entries = Vec::new();
        let start = [TokenKind::Question, TokenKind::Comma, TokenKind::RightBrace];
        if self.peek() == TokenKind::Comma || (self.peek() != TokenKind::RightBrace && !self.expect_operand(&start)) {
            self.separated(TokenKind::RightBrace);
        } else {
            while self.peek() != TokenKind::RightBrace && self.stop.is_none() {
                let is_optional = self.accept_question();
                let key = self.expression(Follow::Colon);
                let colon = self.peek_token().start;
                if !self.expect(TokenKind::Colon, TokenKind::starts_operand) {
                    break;
                }
                let value = self.expression(Follow::Braces);
                let id = self.node(colon, ExprKind::Error).id;
                entries.push(MapEntry { id, key, value, is_optional });
                if !self.separated(TokenKind::RightBrace) {
                    break;
                }
            }
        }
        self.close(TokenKind::RightBrace);
        self.node(position, ExprKind::Map(entries))
    }
}
