//! Errors of regular expressions, with Go's texts.
//!
//! Each error names the part of the expression that has the error.

use std::fmt;

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyntaxFault {
    ClassRange,
    Escape,
    NamedCapture,
    PerlSyntax,
    NestedRepetition,
    RepeatCount,
    MissingBracket,
    MissingParenthesis,
    MissingRepeatArgument,
    TrailingBackslash,
    UnexpectedParenthesis,
    TooDeep,
    TooLarge,
}

/// An error of a regular expression: its kind, and the part that has the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) fault: SyntaxFault,
    part: String,
}

impl SyntaxFault {
    /// The error of this kind in a part of an expression.
    pub(super) fn in_part(self, part: &str) -> SyntaxError {
        SyntaxError { fault: self, part: part.to_owned() }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::ClassRange => "invalid character class range",
            Self::Escape => "invalid escape sequence",
            Self::NamedCapture => "invalid named capture",
            Self::PerlSyntax => "invalid or unsupported Perl syntax",
            Self::NestedRepetition => "invalid nested repetition operator",
            Self::RepeatCount => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParenthesis => "missing closing )",
            Self::MissingRepeatArgument => "missing argument to repetition operator",
            Self::TrailingBackslash => "trailing backslash at end of expression",
            Self::UnexpectedParenthesis => "unexpected )",
            Self::TooDeep => "expression nests too deeply",
            Self::TooLarge => "expression too large",
        }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.fault.text(), self.part)
    }
}
