//! Literals: numbers, strings, bytes.
//!
//! The lexer has validated the form of literals. This module converts them and checks their range.

use super::Parser;
use crate::ast::{Expr, ExprKind, Literal};
use crate::lexer::{Token, TokenKind};

impl Parser<'_> {
    /// A literal with its sign.
    pub(super) fn literal(&mut self) -> Expr {
        let first = self.peek_token();
        let is_negative = first.kind == TokenKind::Minus;
        if is_negative {
            self.advance();
        }
        let token = self.peek_token();
        if is_negative && !matches!(token.kind, TokenKind::Int | TokenKind::Float) {
            self.no_alternative(0);
            return self.node(first.start, ExprKind::Error);
        }
        self.advance();
        match self.value(token, is_negative) {
            Ok(literal) => self.node(first.start, ExprKind::Literal(literal)),
            Err(message) => {
                self.issue(first.start, message);
                self.node(first.start, ExprKind::Error)
            }
        }
    }

    fn value(&self, token: Token, is_negative: bool) -> Result<Literal, &'static str> {
        let text = self.text(token);
        let sign = if is_negative { "-" } else { "" };
        Ok(match token.kind {
            TokenKind::True => Literal::Bool(true),
            TokenKind::False => Literal::Bool(false),
            TokenKind::Int => {
                let parsed = match text.strip_prefix("0x") {
                    Some(digits) => i64::from_str_radix(&format!("{sign}{digits}"), 16),
                    None => format!("{sign}{text}").parse(),
                };
                Literal::Int(parsed.map_err(|_| "invalid int literal")?)
            }
            TokenKind::Uint => {
                let text = text.trim_end_matches(['u', 'U']);
                let parsed = match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => text.parse(),
                };
                Literal::Uint(parsed.map_err(|_| "invalid uint literal")?)
            }
            TokenKind::Float => {
                let number: f64 = format!("{sign}{text}").parse().map_err(|_| "invalid double literal")?;
                if number.is_infinite() {
                    return Err("invalid double literal");
                }
                Literal::Double(number)
            }
            TokenKind::String => {
                // The grammar lets no other fault pass.
                let fault = "invalid unicode code point";
                Literal::String(String::from_utf8(unescape(&text, false).ok_or(fault)?).map_err(|_| fault)?)
            }
            TokenKind::Bytes => Literal::Bytes(unescape(&text[1..], true).ok_or("invalid bytes literal")?),
            _ => Literal::Null,
        })
    }
}

/// The content of a quoted literal. In a bytes literal, an escape stands for a byte, not for a character.
fn unescape(text: &str, is_bytes: bool) -> Option<Vec<u8>> {
    let (text, is_raw) = text.strip_prefix(['r', 'R']).map_or((text, false), |rest| (rest, true));
    let quotes = if text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\"")) { 3 } else { 1 };
    let inner = text.get(quotes..text.len() - quotes)?;
    // Every line break becomes a line feed.
    let inner = inner.replace("\r\n", "\n").replace('\r', "\n");
    if is_raw {
        return Some(inner.into_bytes());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = rest.next()?;
        let code = match escape {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            'x' | 'X' => digits(&mut rest, 0, 2, 16)?,
            'u' => digits(&mut rest, 0, 4, 16)?,
            'U' => digits(&mut rest, 0, 8, 16)?,
            '0'..='3' => digits(&mut rest, escape.to_digit(8)?, 2, 8)?,
            c => u32::from(c),
        };
        if is_bytes && !matches!(escape, 'u' | 'U') {
            out.push(u8::try_from(code).ok()?);
        } else if is_bytes {
            return None;
        } else {
            out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(out)
}

fn digits(rest: &mut std::str::Chars<'_>, first: u32, count: u32, radix: u32) -> Option<u32> {
    (0..count).try_fold(first, |code, _| Some(code.checked_mul(radix)? + rest.next()?.to_digit(radix)?))
}
