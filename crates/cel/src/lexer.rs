//! Splits an expression into tokens.
//!
//! As in upstream's generated lexer, text that is not a token is reported and skipped.

use crate::source::{Issue, Source};

/// The kinds of tokens, in the order in which upstream lists expected tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // The names say which characters each has.
pub(crate) enum TokenKind {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscapedIdent,
    End,
}

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// Its kind.
    pub kind: TokenKind,
    /// Its first code point.
    pub start: u32,
    /// The code point after its last.
    pub end: u32,
}

/// The operators and marks, longer ones first.
const MARKS: [(&str, TokenKind); 24] = [
    ("==", TokenKind::Equals),
    ("!=", TokenKind::NotEquals),
    ("<=", TokenKind::LessEquals),
    (">=", TokenKind::GreaterEquals),
    ("&&", TokenKind::And),
    ("||", TokenKind::Or),
    ("<", TokenKind::Less),
    (">", TokenKind::Greater),
    ("[", TokenKind::LeftBracket),
    ("]", TokenKind::RightBracket),
    ("{", TokenKind::LeftBrace),
    ("}", TokenKind::RightBrace),
    ("(", TokenKind::LeftParen),
    (")", TokenKind::RightParen),
    (".", TokenKind::Dot),
    (",", TokenKind::Comma),
    ("-", TokenKind::Minus),
    ("!", TokenKind::Not),
    ("?", TokenKind::Question),
    (":", TokenKind::Colon),
    ("+", TokenKind::Plus),
    ("*", TokenKind::Star),
    ("/", TokenKind::Slash),
    ("%", TokenKind::Percent),
];

impl TokenKind {
    /// Upstream's name for the token in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::In => "'in'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Ident => "IDENTIFIER",
            Self::EscapedIdent => "ESC_IDENTIFIER",
            Self::End => "<EOF>",
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LeftBracket => "'['",
            Self::RightBracket => "']'",
            Self::LeftBrace => "'{'",
            Self::RightBrace => "'}'",
            Self::LeftParen => "'('",
            Self::RightParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Not => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
        }
    }
}

/// The tokens of a text, with a last one for its end. Faults are added to `issues`.
pub(crate) fn tokens(source: &Source, issues: &mut Vec<Issue>) -> Vec<Token> {
    let mut lexer = Lexer { chars: source.chars(), at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        if start == lexer.chars.len() {
            tokens.push(Token { kind: TokenKind::End, start: offset(start), end: offset(start) });
            return tokens;
        }
        match lexer.next() {
            Ok(kind) => tokens.push(Token { kind, start: offset(start), end: offset(lexer.at) }),
            Err(failed) => {
                lexer.at = (failed + 1).min(lexer.chars.len());
                let text: String = lexer.chars[start..lexer.at].iter().flat_map(|c| shown(*c)).collect();
                let message = format!("Syntax error: token recognition error at: '{text}'");
                issues.push(Issue { offset: Some(offset(start)), message });
            }
        }
    }
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A character as messages print it.
pub(crate) fn shown(c: char) -> Vec<char> {
    match c {
        '\n' => vec!['\\', 'n'],
        '\r' => vec!['\\', 'r'],
        '\t' => vec!['\\', 't'],
        c => vec![c],
    }
}

struct Lexer<'s> {
    chars: &'s [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek(0) {
                Some('\t' | ' ' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Reads a token, or returns the index of the first character that does not fit into one.
    fn next(&mut self) -> Result<TokenKind, usize> {
        let first = self.chars[self.at];
        if first == '`' {
            return self.escaped_ident();
        }
        if let Some(text) = self.text() {
            return text;
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return Ok(self.number());
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(self.word());
        }
        for (mark, kind) in MARKS {
            if mark.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c)) {
                self.at += mark.len();
                return Ok(kind);
            }
        }
        // A single first character of `==`, `&&` or `||` is reported together with the character after it.
        Err(if "=&|".contains(first) { self.at + 1 } else { self.at })
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        match word.as_str() {
            "in" => TokenKind::In,
            "true" => TokenKind::True,
            "false" => TokenKind::False,
            "null" => TokenKind::Null,
            _ => TokenKind::Ident,
        }
    }

    fn escaped_ident(&mut self) -> Result<TokenKind, usize> {
        let mut end = self.at + 1;
        while self.chars.get(end).is_some_and(|c| c.is_ascii_alphanumeric() || "_.-/ ".contains(*c)) {
            end += 1;
        }
        if self.chars.get(end) != Some(&'`') || end == self.at + 1 {
            return Err(end);
        }
        self.at = end + 1;
        Ok(TokenKind::EscapedIdent)
    }

    fn number(&mut self) -> TokenKind {
        if self.peek(0) == Some('0') && self.peek(1) == Some('x') && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit())
        {
            self.at += 2;
            self.skip_while(|c| c.is_ascii_hexdigit());
            return self.whole();
        }
        self.skip_while(|c| c.is_ascii_digit());
        let mut is_float = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            is_float = true;
            self.at += 1;
            self.skip_while(|c| c.is_ascii_digit());
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                is_float = true;
                self.at += 1 + sign;
                self.skip_while(|c| c.is_ascii_digit());
            }
        }
        if is_float { TokenKind::Float } else { self.whole() }
    }

    fn whole(&mut self) -> TokenKind {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return TokenKind::Uint;
        }
        TokenKind::Int
    }

    fn skip_while(&mut self, accept: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&accept) {
            self.at += 1;
        }
    }

    /// Reads a string or bytes literal. `None` if there is none here.
    fn text(&mut self) -> Option<Result<TokenKind, usize>> {
        let mut ahead = 0;
        let mut is_bytes = false;
        if matches!(self.peek(ahead), Some('b' | 'B')) {
            is_bytes = true;
            ahead += 1;
        }
        let is_raw = matches!(self.peek(ahead), Some('r' | 'R'));
        ahead += usize::from(is_raw);
        let quote = self.peek(ahead).filter(|c| matches!(c, '"' | '\''))?;
        match self.quoted(self.at + ahead, quote, is_raw) {
            Ok(end) => {
                self.at = end;
                Some(Ok(if is_bytes { TokenKind::Bytes } else { TokenKind::String }))
            }
            // If the string has no end, its prefix is an identifier.
            Err(failed) => {
                if ahead == 0 {
                    Some(Err(failed))
                } else {
                    None
                }
            }
        }
    }

    /// Finds the end of a string that starts with this quote.
    fn quoted(&self, start: usize, quote: char, is_raw: bool) -> Result<usize, usize> {
        let at = |place: usize| self.chars.get(place).copied();
        let is_triple = at(start + 1) == Some(quote) && at(start + 2) == Some(quote);
        if is_triple {
            let found =
                self.text_end(start + 3, is_raw, |place| (0..3).all(|ahead| at(place + ahead) == Some(quote)), true);
            // Two quotes are an empty string, unless a third one follows and starts a triple-quoted string.
            return Ok(found.map_or(start + 2, |end| end + 3));
        }
        self.text_end(start + 1, is_raw, |place| at(place) == Some(quote), false).map(|end| end + 1)
    }

    fn text_end(
        &self,
        mut place: usize,
        is_raw: bool,
        is_end: impl Fn(usize) -> bool,
        lines: bool,
    ) -> Result<usize, usize> {
        loop {
            if is_end(place) {
                return Ok(place);
            }
            match self.chars.get(place) {
                None => return Err(place),
                Some('\n' | '\r') if !lines => return Err(place),
                Some('\\') if !is_raw => place = self.escape_end(place + 1)?,
                Some(_) => place += 1,
            }
        }
    }

    /// Finds the end of an escape. `place` is the character after the backslash.
    fn escape_end(&self, place: usize) -> Result<usize, usize> {
        let (skip, digits, radix) = match self.chars.get(place) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => return Ok(place + 1),
            Some('x' | 'X') => (1, 2, 16),
            Some('u') => (1, 4, 16),
            Some('U') => (1, 8, 16),
            Some('0'..='3') => (0, 3, 8),
            _ => return Err(place),
        };
        for ahead in skip..skip + digits {
            if !self.chars.get(place + ahead).is_some_and(|c| c.is_digit(radix)) {
                return Err(place + ahead);
            }
        }
        Ok(place + skip + digits)
    }
}
