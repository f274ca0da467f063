//! Checks the literals of an expression before it runs. Finds invalid durations, times, regular expressions and
//! formats, and lists and maps of mixed types.

use super::CheckedExpr;
use crate::ast::{Call, Expr, ExprKind, Literal};
use crate::library::{format, regex, times};
use crate::source::Issue;
use crate::types::Type;

/// Functions whose arguments may be lists of mixed types.
const MIXED: [&str; 1] = ["format"];

/// The faults of the literals of an expression.
pub(super) fn check(checked: &CheckedExpr) -> Vec<Issue> {
    let mut found = Found { checked, issues: Vec::new() };
    checked.expr.walk(&mut |expr, calls| {
        let may_mix = calls.iter().any(|call| MIXED.contains(call));
        match &expr.kind {
            ExprKind::Call(call) => found.call(expr, call),
            ExprKind::List(elements, optional) if !may_mix => found.list(elements, optional),
            ExprKind::Map(entries) if !may_mix => {
                let entries = || entries.iter();
                found.same(entries().map(|entry| (&entry.key, false)), false);
                found.same(entries().map(|entry| (&entry.value, entry.is_optional)), false);
            }
            _ => {}
        }
    });
    found.issues
}

struct Found<'c> {
    checked: &'c CheckedExpr,
    issues: Vec<Issue>,
}

impl Found<'_> {
    fn issue(&mut self, expr: &Expr, message: String) {
        let offset = Some(self.checked.positions[expr.id as usize]);
        self.issues.push(Issue { offset, message });
    }

    fn type_of(&self, expr: &Expr, is_optional: bool) -> Type {
        let found = &self.checked.types[expr.id as usize];
        if is_optional { found.as_optional().unwrap_or(found).clone() } else { found.clone() }
    }

    fn list(&mut self, elements: &[Expr], optional: &[usize]) {
        let elements = elements.iter().enumerate().map(|(at, element)| (element, optional.contains(&at)));
        self.same(elements, true);
    }

    /// Checks that all elements have the type of the first. With `only_first`, only the first mismatch is reported.
    fn same<'e>(&mut self, elements: impl Iterator<Item = (&'e Expr, bool)>, only_first: bool) {
        let mut expected: Option<Type> = None;
        for (element, is_optional) in elements {
            let found = self.type_of(element, is_optional);
            match &expected {
                None => expected = Some(found),
                Some(expected) if !expected.is_equivalent(&found) => {
                    self.issue(element, format!("expected type '{expected}' but found '{found}'"));
                    if only_first {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) {
        let last = call.args.last();
        let literal = last.and_then(Expr::as_literal);
        let is_wrong = match (call.function.as_str(), literal) {
            ("duration", Some(Literal::String(text))) => times::parse_duration(text).is_none(),
            ("timestamp", Some(Literal::String(text))) => times::parse_timestamp(text).is_none(),
            ("timestamp", Some(Literal::Int(seconds))) => times::from_seconds(*seconds).is_none(),
            ("matches", Some(Literal::String(pattern))) => regex::check(pattern).is_err(),
            _ => false,
        };
        if let Some(last) = last.filter(|_| is_wrong) {
            self.issue(last, format!("invalid {} argument", call.function));
        }
        if let ("format", Some(target), [Expr { kind: ExprKind::List(args, _), .. }]) =
            (call.function.as_str(), &call.target, call.args.as_slice())
            && let Some(Literal::String(text)) = target.as_literal()
        {
            self.format(expr, text, args);
        }
    }

    fn format(&mut self, expr: &Expr, text: &str, args: &[Expr]) {
        let mut used = 0;
        for piece in format::pieces(text, args.len()) {
            match piece {
                Err(message) => return self.issue(expr, message),
                Ok(format::FormatPart::Text(_)) => {}
                Ok(format::FormatPart::Value(clause)) => {
                    let ty = self.type_of(&args[used], false);
                    if let Some(fault) = clause.type_fault(&ty) {
                        return self.issue(&args[used], format!("error during formatting: {fault}"));
                    }
                    used += 1;
                }
            }
        }
        if args.len() > used {
            let message = format!("too many arguments supplied to string.format (expected {used}, got {})", args.len());
            self.issue(expr, message);
        }
    }
}
