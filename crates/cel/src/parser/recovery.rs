//! Error recovery of the parser: it reports an error and finds the token at which parsing can continue.
//!
//! An error is reported once. Errors that follow from it are not reported until a token matches.

use super::Parser;
use crate::lexer::{Token, TokenKind, shown};
use crate::source::Issue;

/// The maximum number of recoveries.
const MAX_RECOVERIES: u32 = 30;

/// The tokens that start an operand.
const OPERAND: [TokenKind; 15] = [
    TokenKind::LeftBracket,
    TokenKind::LeftBrace,
    TokenKind::LeftParen,
    TokenKind::Dot,
    TokenKind::Minus,
    TokenKind::Not,
    TokenKind::True,
    TokenKind::False,
    TokenKind::Null,
    TokenKind::Float,
    TokenKind::Int,
    TokenKind::Uint,
    TokenKind::String,
    TokenKind::Bytes,
    TokenKind::Ident,
];

/// The tokens that may follow an expression in its context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    End,
    Paren,
    Arguments,
    Bracket,
    Brackets,
    Braces,
    Colon,
}

impl Follow {
    fn has(self, kind: TokenKind) -> bool {
        match self {
            Self::End => kind == TokenKind::End,
            Self::Paren => kind == TokenKind::RightParen,
            Self::Arguments => matches!(kind, TokenKind::RightParen | TokenKind::Comma),
            Self::Bracket => kind == TokenKind::RightBracket,
            Self::Brackets => matches!(kind, TokenKind::RightBracket | TokenKind::Comma),
            Self::Braces => matches!(kind, TokenKind::RightBrace | TokenKind::Comma),
            Self::Colon => kind == TokenKind::Colon,
        }
    }
}

impl TokenKind {
    /// Returns true if an operand may start with this token.
    pub(super) fn starts_operand(self) -> bool {
        OPERAND.contains(&self)
    }
}

fn is_operator(kind: TokenKind) -> bool {
    super::operator(kind).is_some() || kind == TokenKind::Question
}

impl Parser<'_> {
    pub(super) fn peek_token(&self) -> Token {
        self.tokens[self.at]
    }

    pub(super) fn peek(&self) -> TokenKind {
        self.tokens[self.at].kind
    }

    pub(super) fn peek_behind(&self, ahead: usize) -> TokenKind {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)].kind
    }

    /// Consumes the next token.
    pub(super) fn advance(&mut self) -> Token {
        self.is_recovering = false;
        let token = self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn text(&self, token: Token) -> String {
        if token.kind == TokenKind::End { "<EOF>".to_owned() } else { self.source.slice(token.start, token.end) }
    }

    pub(super) fn issue(&mut self, offset: u32, message: &str) {
        self.issues.push(Issue { offset: Some(offset), message: message.to_owned() });
    }

    /// Reports an error at the next token, unless an earlier report covers it.
    fn syntax_error(&mut self, message: &str) {
        if !self.is_recovering && self.stop.is_none() {
            let offset = self.peek_token().start;
            self.issue(offset, &format!("Syntax error: {message}"));
        }
        self.is_recovering = true;
    }

    fn quoted(&self) -> String {
        let text = self.text(self.peek_token());
        format!("'{}'", text.chars().flat_map(shown).collect::<String>())
    }

    /// Returns true if the next token starts an operand or is one of `others`. If it does not, one token may be dropped
    /// first.
    pub(super) fn expect_operand(&mut self, others: &[TokenKind]) -> bool {
        let fits = |kind: TokenKind| kind.starts_operand() || others.contains(&kind);
        if fits(self.peek()) {
            return true;
        }
        let mut expected = OPERAND.to_vec();
        expected.extend(others);
        if !self.is_recovering && fits(self.peek_behind(1)) && self.peek() != TokenKind::End {
            self.extraneous(&expected);
            return true;
        }
        self.mismatch(&expected);
        false
    }

    fn extraneous(&mut self, expected: &[TokenKind]) {
        self.syntax_error(&format!("extraneous input {} expecting {}", self.quoted(), names(expected)));
        self.at += 1;
    }

    /// Reports the expected tokens, and skips to one that may follow.
    pub(super) fn mismatch(&mut self, expected: &[TokenKind]) {
        self.syntax_error(&format!("mismatched input {} expecting {}", self.quoted(), names(expected)));
        self.recover();
    }

    /// Reports that the tokens from here to the token `ahead` fit no alternative.
    pub(super) fn no_alternative(&mut self, ahead: usize) {
        let first = self.peek_token();
        let last = (self.at + ahead).min(self.tokens.len() - 1);
        let text = self.source_between(first, self.tokens[last]);
        self.at = last;
        self.syntax_error(&format!("no viable alternative at input '{text}'"));
        self.recover();
    }

    /// The source between two tokens, without text that is not a token.
    fn source_between(&self, first: Token, last: Token) -> String {
        let mut out = self.source.slice(first.start, first.end);
        let gap = self.source.slice(first.end, last.start);
        out.extend(gap.chars().filter(char::is_ascii_whitespace).flat_map(shown));
        out.push_str(&self.source.slice(last.start, last.end));
        out
    }

    fn recover(&mut self) {
        self.recoveries += 1;
        if self.recoveries > MAX_RECOVERIES {
            let offset = self.peek_token().start;
            self.issue(offset, &format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}"));
            self.at = self.tokens.len() - 1;
        }
        while self.peek() != TokenKind::End
            && !is_operator(self.peek())
            && !self.follow.iter().any(|follow| follow.has(self.peek()))
        {
            self.at += 1;
        }
    }

    /// Consumes a token of this kind. If it is missing, one token may be dropped. If the token that would follow it is
    /// next, the missing token is assumed.
    pub(super) fn expect(&mut self, kind: TokenKind, follows: impl Fn(TokenKind) -> bool) -> bool {
        if self.peek() == kind {
            self.advance();
            return true;
        }
        if self.peek() != TokenKind::End && self.peek_behind(1) == kind {
            self.extraneous(&[kind]);
            self.advance();
            return true;
        }
        if follows(self.peek()) {
            self.syntax_error(&format!("missing {} at {}", kind.name(), self.quoted()));
            return true;
        }
        self.mismatch(&[kind]);
        false
    }

    /// Consumes the closing token of a construct.
    pub(super) fn expect_close(&mut self, kind: TokenKind) -> bool {
        let enclosing = self.follow.last().copied().unwrap_or(Follow::End);
        self.expect(kind, |next| {
            is_operator(next) || matches!(next, TokenKind::Dot | TokenKind::LeftBracket) || enclosing.has(next)
        })
    }

    /// After an element: returns true if another element follows.
    pub(super) fn separated(&mut self, close: TokenKind) -> bool {
        let fits = |kind: TokenKind| kind == TokenKind::Comma || kind == close;
        if !fits(self.peek()) && !self.is_recovering {
            if self.peek() != TokenKind::End && fits(self.peek_behind(1)) {
                self.extraneous(&[close, TokenKind::Comma]);
            } else {
                self.mismatch(&[close, TokenKind::Comma]);
                return false;
            }
        }
        if self.peek() == TokenKind::Comma {
            self.advance();
            return true;
        }
        false
    }

    /// Consumes the closing token of a list or map, unless it was already reported as missing.
    pub(super) fn close(&mut self, close: TokenKind) {
        if self.peek() == close {
            self.advance();
        } else if !self.is_recovering {
            self.expect_close(close);
        }
    }

    /// Checks that nothing follows the expression.
    pub(super) fn expect_end(&mut self) {
        if self.peek() != TokenKind::End {
            self.expect(TokenKind::End, |_| false);
        }
    }
}

fn names(kinds: &[TokenKind]) -> String {
    let mut kinds = kinds.to_vec();
    kinds.sort_unstable();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    if names.len() == 1 { names[0].to_owned() } else { format!("{{{}}}", names.join(", ")) }
}
