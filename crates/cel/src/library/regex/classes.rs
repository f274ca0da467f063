//! Character classes and escapes: `[...]`, `[:name:]`, `\d`, `\p{...}`, `\x{...}`.
//!
//! A class is a set of code points. The total number of ranges in the classes of an expression is limited.

use super::code_points::{CodePoints, Range};
use super::syntax_error::{SyntaxError, SyntaxFault};
use super::unicode::{self, Table};

/// The maximum number of ranges of all classes of an expression.
const MAX_RANGES: usize = 2_000_000;

/// The number of ranges that the classes of an expression may still use.
#[derive(Debug)]
pub(super) struct ClassBudget {
    left: usize,
}

impl Default for ClassBudget {
    fn default() -> Self {
        Self { left: MAX_RANGES }
    }
}

impl ClassBudget {
    fn spend(&mut self, ranges: usize) -> Result<(), SyntaxError> {
        self.left = self.left.checked_sub(ranges).ok_or_else(|| SyntaxFault::TooLarge.in_part(""))?;
        Ok(())
    }
}

/// A named class, or its complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamedClass {
    of: Source,
    negated: bool,
}

/// The source of a class's code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Ascii(&'static [Range]),
    Unicode(Table),
}

impl Source {
    fn ranges(self) -> &'static [Range] {
        match self {
            Self::Ascii(ranges) => ranges,
            Self::Unicode(table) => table.code_points().ranges(),
        }
    }
}

/// A class under construction.
#[derive(Default)]
struct Builder {
    /// The characters and ranges that the class lists, before case folding.
    stated: CodePoints,
    /// The code points of negated classes.
    negated: CodePoints,
    /// The named classes in the class, each once.
    names: Vec<NamedClass>,
}

impl Builder {
    fn add(&mut self, named: NamedClass, folds: bool, budget: &mut ClassBudget) -> Result<(), SyntaxError> {
        if self.names.contains(&named) {
            return Ok(());
        }
        self.names.push(named);
        let ranges = named.of.ranges();
        budget.spend(ranges.len() + 1)?;
        if named.negated {
            let mut set = CodePoints::of_table(ranges);
            if folds {
                set.fold();
            }
            self.negated.extend(set.negated().ranges());
        }
        Ok(())
    }

    fn finish(self, folds: bool) -> CodePoints {
        let Self { mut stated, negated, names } = self;
        let tables = || names.iter().filter(|named| !named.negated).map(|named| named.of.ranges());
        // If a table has the same code points, it is borrowed, because it has hundreds of ranges.
        if !folds
            && negated.ranges().is_empty()
            && let Some(largest) = tables().max_by_key(|ranges| ranges.len()).map(CodePoints::of_table)
            && tables().flatten().copied().chain(stated.ranges().iter().copied()).all(|range| largest.contains(range))
        {
            return largest;
        }
        tables().for_each(|ranges| stated.extend(ranges));
        stated.normalize();
        if folds {
            stated.fold();
        }
        if !negated.ranges().is_empty() {
            stated.extend(negated.ranges());
            stated.normalize();
        }
        stated
    }
}

/// Reads a bracketed class at the start of a text. Returns the class and the rest of the text.
pub(super) fn bracketed<'p>(
    text: &'p str,
    folds: bool,
    budget: &mut ClassBudget,
) -> Result<(CodePoints, &'p str), SyntaxError> {
    let inside = &text[1..];
    let (is_negated, mut rest) = inside.strip_prefix('^').map_or((false, inside), |rest| (true, rest));
    let mut builder = Builder::default();
    let mut is_first = true;
    // A closing bracket at the first place is an ordinary character.
    while is_first || !rest.starts_with(']') {
        is_first = false;
        if let Some((named, after)) = posix(rest)? {
            builder.add(named, folds, budget)?;
            rest = after;
            continue;
        }
        if let Some((named, after)) = named_escape(rest)? {
            builder.add(named, folds, budget)?;
            rest = after;
            continue;
        }
        let start = rest;
        let (first, after) = class_character(rest, text)?;
        rest = after;
        let mut last = first;
        if rest.len() >= 2 && rest.starts_with('-') && !rest.starts_with("-]") {
            (last, rest) = class_character(&rest[1..], text)?;
            if last < first {
                return Err(SyntaxFault::ClassRange.in_part(&start[..start.len() - rest.len()]));
            }
        }
        budget.spend(1)?;
        builder.stated.push(first, last);
    }
    let set = builder.finish(folds);
    budget.spend(set.ranges().len())?;
    Ok((if is_negated { set.negated() } else { set }, &rest[1..]))
}

/// Reads an escaped class at the start of a text, if there is one. Returns the class and the rest of the text.
pub(super) fn escaped<'p>(
    text: &'p str,
    folds: bool,
    budget: &mut ClassBudget,
) -> Result<Option<(CodePoints, &'p str)>, SyntaxError> {
    let Some((named, rest)) = named_escape(text)? else { return Ok(None) };
    let mut builder = Builder::default();
    builder.add(named, folds, budget)?;
    let set = builder.finish(folds);
    budget.spend(set.ranges().len())?;
    Ok(Some((set, rest)))
}

const DIGIT: &[Range] = &[(0x30, 0x39)];
const SPACE: &[Range] = &[(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)];
const WORD: &[Range] = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];

/// Reads `\d`, `\pL` and the like. Also returns the rest of the text.
fn named_escape(text: &str) -> Result<Option<(NamedClass, &str)>, SyntaxError> {
    let Some(escape) = text.strip_prefix('\\').and_then(|rest| rest.chars().next()) else { return Ok(None) };
    let of = match escape {
        'd' | 'D' => Source::Ascii(DIGIT),
        's' | 'S' => Source::Ascii(SPACE),
        'w' | 'W' => Source::Ascii(WORD),
        'p' | 'P' => return unicode_class(text, escape == 'P').map(Some),
        _ => return Ok(None),
    };
    Ok(Some((NamedClass { of, negated: escape.is_ascii_uppercase() }, &text[2..])))
}

/// Reads `\pL` or `\p{Name}`. Also returns the rest of the text.
fn unicode_class(text: &str, is_upper: bool) -> Result<(NamedClass, &str), SyntaxError> {
    let after = &text[2..];
    let (name, rest) = if after.starts_with('{') {
        let Some(end) = after.find('}') else { return Err(SyntaxFault::ClassRange.in_part(text)) };
        (&after[1..end], &after[end + 1..])
    } else {
        after.split_at(after.chars().next().map_or(0, char::len_utf8))
    };
    let (is_opposite, plain) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    let Some(table) = unicode::table(plain) else {
        return Err(SyntaxFault::ClassRange.in_part(&text[..text.len() - rest.len()]));
    };
    Ok((NamedClass { of: Source::Unicode(table), negated: is_upper != is_opposite }, rest))
}

/// Reads `[:name:]`. Also returns the rest of the text. If `:]` is missing, the start is an ordinary character.
fn posix(text: &str) -> Result<Option<(NamedClass, &str)>, SyntaxError> {
    let Some(inside) = text.strip_prefix("[:") else { return Ok(None) };
    let Some((name, rest)) = inside.split_once(":]") else { return Ok(None) };
    let (negated, plain) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    let ranges: &[Range] = match plain {
        "alnum" => &[(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)],
        "alpha" => &[(0x41, 0x5A), (0x61, 0x7A)],
        "ascii" => &[(0x00, 0x7F)],
        "blank" => &[(0x09, 0x09), (0x20, 0x20)],
        "cntrl" => &[(0x00, 0x1F), (0x7F, 0x7F)],
        "digit" => DIGIT,
        "graph" => &[(0x21, 0x7E)],
        "lower" => &[(0x61, 0x7A)],
        "print" => &[(0x20, 0x7E)],
        "punct" => &[(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
        "space" => &[(0x09, 0x0D), (0x20, 0x20)],
        "upper" => &[(0x41, 0x5A)],
        "word" => WORD,
        "xdigit" => &[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
        _ => return Err(SyntaxFault::ClassRange.in_part(&text[..text.len() - rest.len()])),
    };
    Ok(Some((NamedClass { of: Source::Ascii(ranges), negated }, rest)))
}

/// Reads a character of a class. Also returns the rest of the text.
fn class_character<'p>(text: &'p str, class: &str) -> Result<(u32, &'p str), SyntaxError> {
    match text.chars().next() {
        None => Err(SyntaxFault::MissingBracket.in_part(class)),
        Some('\\') => escaped_character(text),
        Some(c) => Ok((u32::from(c), &text[c.len_utf8()..])),
    }
}

/// Reads an escaped character. Also returns the rest of the text.
///
/// # Errors
/// The escape up to the fault.
pub(super) fn escaped_character(text: &str) -> Result<(u32, &str), SyntaxError> {
    let mut rest = text[1..].chars();
    let Some(c) = rest.next() else { return Err(SyntaxFault::TrailingBackslash.in_part("")) };
    let code = match c {
        'a' => Some(0x07),
        'f' => Some(0x0C),
        'n' => Some(0x0A),
        'r' => Some(0x0D),
        't' => Some(0x09),
        'v' => Some(0x0B),
        'x' => hexadecimal(&mut rest),
        '0'..='7' => octal(c, &mut rest),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
        _ => None,
    };
    let rest = rest.as_str();
    code.map(|code| (code, rest)).ok_or_else(|| SyntaxFault::Escape.in_part(&text[..text.len() - rest.len()]))
}

/// Reads up to three octal digits, of which the first is given. A single digit other than zero would be a back
/// reference, so it is refused.
fn octal(first: char, rest: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut code = first.to_digit(8)?;
    let mut count = 1;
    while let Some(digit) = rest.clone().next().and_then(|c| c.to_digit(8)).filter(|_| count < 3) {
        code = code * 8 + digit;
        count += 1;
        rest.next();
    }
    (first == '0' || count > 1).then_some(code)
}

/// Reads two hexadecimal digits, or any number in braces.
fn hexadecimal(rest: &mut std::str::Chars<'_>) -> Option<u32> {
    let first = rest.next()?;
    if first != '{' {
        let last = rest.next();
        return Some(first.to_digit(16)? * 16 + last?.to_digit(16)?);
    }
    let mut code = None;
    loop {
        let c = rest.next()?;
        if c == '}' {
            return code;
        }
        let next = code.unwrap_or(0) * 16 + c.to_digit(16)?;
        if next > super::code_points::LAST {
            return None;
        }
        code = Some(next);
    }
}
