//! Parses regular expressions as Go's `regexp` does, into the form that the library can compile.
//!
//! The parser reads from left to right and keeps open groups on its own stack, so nested groups take no thread stack.
//! For each piece it computes the approximate number of states, the depth, and the product of nested repetitions. It
//! checks the limits before it builds more. Groups do not capture, since no function returns submatches.

use regex_syntax::hir::{Hir, Look, Repetition};

use super::classes::{self, ClassBudget};
use super::code_points::CodePoints;
use super::compiled::MAX_STATES;
use super::counts::{MAX_REPEAT, counts};
use super::syntax_error::{SyntaxError, SyntaxFault};

/// The maximum depth of an expression's tree.
const MAX_HEIGHT: u32 = 1000;

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) hir: Hir,
    /// The approximate number of compiled states.
    pub(super) states: u64,
    /// The depth of its tree.
    pub(super) height: u32,
}

/// Parses an expression.
///
/// # Errors
/// The first error, with Go's text.
pub(super) fn parse(pattern: &str) -> Result<Parsed, SyntaxError> {
    let RegexPiece { node, size, .. } = read(pattern, true)?;
    Ok(Parsed { hir: node.into_hir(), states: size.states, height: size.height })
}

/// Validates an expression without building the form to compile. Returns its approximate number of states.
///
/// # Errors
/// As [`parse`].
pub(super) fn measure(pattern: &str) -> Result<u64, SyntaxError> {
    Ok(read(pattern, false)?.size.states)
}

fn read(pattern: &str, builds: bool) -> Result<RegexPiece, SyntaxError> {
    let mut parser = Parser {
        pattern,
        builds,
        at: 0,
        flags: Flags::default(),
        open: Vec::new(),
        branches: Branches::default(),
        states: 0,
        budget: ClassBudget::default(),
    };
    let mut repeated = None;
    while let Some(c) = parser.peek() {
        repeated = parser.step(c, repeated)?;
    }
    let whole = parser.close()?;
    if !parser.open.is_empty() {
        return Err(SyntaxFault::MissingParenthesis.in_part(pattern));
    }
    Ok(whole)
}

/// The flags that `(?flags)` sets.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// `i`: ignores case.
    folds: bool,
    /// `m`: `^` and `$` match at lines.
    lines: bool,
    /// `s`: `.` matches a line feed.
    dot_all: bool,
    /// `U`: repetitions match as few times as possible.
    lazy: bool,
}

/// The measures of a piece.
#[derive(Clone, Copy, Debug)]
struct Size {
    states: u64,
    height: u32,
    /// The largest product of the counts of nested repetitions.
    repeats: u32,
}

/// The built form of a piece. Adjacent literal texts are joined, since most expressions have many of them.
#[derive(Debug)]
enum Node {
    Text(String),
    Hir(Hir),
    /// Nothing, for an expression that is only measured.
    Unbuilt,
}

/// The kind of a piece, which determines its depth in the enclosing tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One of a set of characters. If all alternatives are of this kind, they are merged into one set.
    Character,
    Sequence,
    Alternatives,
    Other,
}

/// A part of an expression to which a repetition can be applied.
#[derive(Debug)]
struct RegexPiece {
    node: Node,
    shape: Shape,
    size: Size,
}

/// The alternatives of a group: the complete ones, and the current one.
#[derive(Debug, Default)]
struct Branches {
    complete: Vec<RegexPiece>,
    sequence: Vec<RegexPiece>,
}

/// An open group.
#[derive(Debug)]
struct Group {
    flags: Flags,
    captures: bool,
    around: Branches,
}

#[derive(Debug)]
struct Parser<'p> {
    pattern: &'p str,
    /// False if the expression is only measured.
    builds: bool,
    at: usize,
    flags: Flags,
    open: Vec<Group>,
    branches: Branches,
    /// The number of states so far.
    states: u64,
    budget: ClassBudget,
}

impl Node {
    fn into_hir(self) -> Hir {
        match self {
            Self::Text(text) => Hir::literal(text.into_bytes()),
            Self::Hir(hir) => hir,
            Self::Unbuilt => Hir::empty(),
        }
    }
}

impl RegexPiece {
    fn new(node: Node, states: u64) -> Self {
        Self { node, shape: Shape::Other, size: Size { states, height: 1, repeats: 1 } }
    }

    /// The depth of the piece within a piece of this shape. A piece of the same shape is merged and adds no depth.
    fn height_in(&self, shape: Shape) -> u32 {
        self.size.height - u32::from(self.shape == shape)
    }
}

impl<'p> Parser<'p> {
    /// The form of a piece; `Unbuilt` if the expression is only measured.
    fn node(&self, hir: impl FnOnce() -> Hir) -> Node {
        if self.builds { Node::Hir(hir()) } else { Node::Unbuilt }
    }

    /// Joins several pieces.
    fn joined(&self, pieces: Vec<RegexPiece>, shape: Shape) -> RegexPiece {
        let mut size = Size { states: 0, height: 0, repeats: 1 };
        for piece in &pieces {
            size.states = size.states.saturating_add(piece.size.states);
            size.height = size.height.max(piece.height_in(shape));
            size.repeats = size.repeats.max(piece.size.repeats);
        }
        size.height += 1;
        let node = self.node(|| {
            let hirs = pieces.into_iter().map(|piece| piece.node.into_hir()).collect();
            if shape == Shape::Sequence { Hir::concat(hirs) } else { Hir::alternation(hirs) }
        });
        RegexPiece { node, shape, size }
    }

    fn rest(&self) -> &'p str {
        &self.pattern[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Reads the next part. `repeated` is the start of the repetition before it, if there is one. Returns the same for
    /// the next part.
    fn step(&mut self, c: char, repeated: Option<usize>) -> Result<Option<usize>, SyntaxError> {
        match c {
            '(' => self.open_group()?,
            ')' => self.close_group()?,
            '|' => {
                self.at += 1;
                self.count(1)?;
                self.close_branch()?;
            }
            '*' | '+' | '?' => {
                let start = self.at;
                self.at += 1;
                let (least, most) = match c {
                    '*' => (0, None),
                    '+' => (1, None),
                    _ => (0, Some(1)),
                };
                return self.repeat(least, most, start, repeated).map(Some);
            }
            '{' => {
                let start = self.at;
                let Some((least, most, rest)) = counts(self.rest()) else {
                    self.at += 1;
                    self.character(u32::from('{'))?;
                    return Ok(None);
                };
                self.at = self.pattern.len() - rest.len();
                let Some(least) = least.filter(|least| most.is_none_or(|most| *least <= most)) else {
                    return Err(self.error(SyntaxFault::RepeatCount, start));
                };
                return self.repeat(least, most, start, repeated).map(Some);
            }
            '^' => self.look(1, if self.flags.lines { Look::StartLF } else { Look::Start })?,
            '$' => self.look(1, if self.flags.lines { Look::EndLF } else { Look::End })?,
            '.' => {
                self.at += 1;
                let excluded: &[_] = if self.flags.dot_all { &[] } else { &[(0x0A, 0x0A)] };
                self.set(CodePoints::new(excluded).negated())?;
            }
            '[' => {
                let (set, rest) = classes::bracketed(self.rest(), self.flags.folds, &mut self.budget)
                    .map_err(|fault| self.whole(fault))?;
                self.at = self.pattern.len() - rest.len();
                self.set(set)?;
            }
            '\\' => self.escape()?,
            c => {
                self.at += c.len_utf8();
                self.character(u32::from(c))?;
            }
        }
        Ok(None)
    }

    /// An error about the text from `start` to here.
    fn error(&self, fault: SyntaxFault, start: usize) -> SyntaxError {
        fault.in_part(&self.pattern[start..self.at])
    }

    /// Converts the error of a class. If the class is too large, the error is about the whole expression.
    fn whole(&self, error: SyntaxError) -> SyntaxError {
        if error.fault == SyntaxFault::TooLarge { SyntaxFault::TooLarge.in_part(self.pattern) } else { error }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        let rest = self.rest();
        match rest[1..].chars().next() {
            Some('A') => return self.look(2, Look::Start),
            Some('z') => return self.look(2, Look::End),
            Some('b') => return self.look(2, Look::WordAscii),
            Some('B') => return self.look(2, Look::WordAsciiNegate),
            Some('Q') => {
                let (text, end) = match rest[2..].split_once(r"\E") {
                    Some((text, after)) => (text, self.pattern.len() - after.len()),
                    None => (&rest[2..], self.pattern.len()),
                };
                self.at = end;
                return text.chars().try_for_each(|c| self.character(u32::from(c)));
            }
            _ => {}
        }
        if let Some((set, rest)) =
            classes::escaped(rest, self.flags.folds, &mut self.budget).map_err(|fault| self.whole(fault))?
        {
            self.at = self.pattern.len() - rest.len();
            return self.set(set);
        }
        let (code, rest) = classes::escaped_character(rest)?;
        self.at = self.pattern.len() - rest.len();
        self.character(code)
    }

    fn look(&mut self, length: usize, look: Look) -> Result<(), SyntaxError> {
        self.at += length;
        self.push(RegexPiece::new(self.node(|| Hir::look(look)), 1))
    }

    fn set(&mut self, set: CodePoints) -> Result<(), SyntaxError> {
        let states = set.states();
        let node = self.node(|| set.into_hir());
        self.push(RegexPiece { shape: Shape::Character, ..RegexPiece::new(node, states) })
    }

    fn character(&mut self, code: u32) -> Result<(), SyntaxError> {
        if self.flags.folds {
            let set = CodePoints::folded(code);
            if set.ranges() != [(code, code)] {
                return self.set(set);
            }
        }
        // The code point is a surrogate, which no text contains.
        let Some(c) = char::from_u32(code) else { return self.set(CodePoints::default()) };
        let size = Size { states: c.len_utf8() as u64, height: 1, repeats: 1 };
        self.push(RegexPiece { node: Node::Text(c.into()), shape: Shape::Character, size })
    }

    /// Adds to the number of states.
    fn count(&mut self, states: u64) -> Result<(), SyntaxError> {
        self.states = self.states.saturating_add(states);
        if self.states > MAX_STATES { Err(SyntaxFault::TooLarge.in_part(self.pattern)) } else { Ok(()) }
    }

    fn push(&mut self, piece: RegexPiece) -> Result<(), SyntaxError> {
        self.count(piece.size.states)?;
        self.add(piece)
    }

    /// Adds a piece, and counts its states.
    fn add(&mut self, piece: RegexPiece) -> Result<(), SyntaxError> {
        if piece.size.height > MAX_HEIGHT {
            return Err(SyntaxFault::TooDeep.in_part(self.pattern));
        }
        self.gather_text();
        self.branches.sequence.push(piece);
        Ok(())
    }

    /// Joins the last two pieces if both are literal text. Called when no repetition can follow them any more.
    fn gather_text(&mut self) {
        let sequence = &mut self.branches.sequence;
        if let [
            ..,
            RegexPiece { node: Node::Text(before), shape, size },
            RegexPiece { node: Node::Text(last), size: of_last, .. },
        ] = sequence.as_mut_slice()
        {
            before.push_str(last);
            size.states += of_last.states;
            *shape = Shape::Other;
            sequence.pop();
        }
    }

    /// Ends the current alternative.
    fn close_branch(&mut self) -> Result<(), SyntaxError> {
        self.gather_text();
        let mut sequence = std::mem::take(&mut self.branches.sequence);
        let piece = match (sequence.pop(), sequence.is_empty()) {
            (None, _) => {
                self.count(1)?;
                RegexPiece::new(self.node(Hir::empty), 1)
            }
            (Some(one), true) => one,
            (Some(last), false) => {
                sequence.push(last);
                self.joined(sequence, Shape::Sequence)
            }
        };
        if piece.size.height > MAX_HEIGHT {
            return Err(SyntaxFault::TooDeep.in_part(self.pattern));
        }
        self.branches.complete.push(piece);
        Ok(())
    }

    /// Ends the alternatives of a group or of the whole expression.
    fn close(&mut self) -> Result<RegexPiece, SyntaxError> {
        self.close_branch()?;
        let mut complete = std::mem::take(&mut self.branches.complete);
        if complete.len() == 1
            && let Some(only) = complete.pop()
        {
            return Ok(only);
        }
        let are_characters = complete.iter().all(|piece| piece.shape == Shape::Character);
        // Each alternative after the first needs one more state for the choice.
        let choices = complete.len() as u64 - 1;
        let mut piece = self.joined(complete, Shape::Alternatives);
        piece.size.states = piece.size.states.saturating_add(choices);
        if are_characters {
            (piece.shape, piece.size.height) = (Shape::Character, 1);
        }
        if piece.size.height > MAX_HEIGHT {
            return Err(SyntaxFault::TooDeep.in_part(self.pattern));
        }
        Ok(piece)
    }

    fn open_group(&mut self) -> Result<(), SyntaxError> {
        let mut group = Group { flags: self.flags, captures: true, around: Branches::default() };
        if self.rest().starts_with("(?") {
            match self.group_flags()? {
                GroupStart::Named => {}
                GroupStart::Flags(flags) => {
                    self.flags = flags;
                    return Ok(());
                }
                GroupStart::Plain(flags) => {
                    self.flags = flags;
                    group.captures = false;
                }
            }
        } else {
            self.at += 1;
        }
        group.around = std::mem::take(&mut self.branches);
        self.open.push(group);
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), SyntaxError> {
        let mut piece = self.close()?;
        let Some(Group { flags, captures, around }) = self.open.pop() else {
            return Err(SyntaxFault::UnexpectedParenthesis.in_part(self.pattern));
        };
        self.at += 1;
        self.flags = flags;
        self.branches = around;
        if captures {
            piece.size.height += 1;
            piece.shape = Shape::Other;
            // Text in a group is not joined with the text outside of it, so that the group counts for the depth.
            let node = piece.node;
            piece.node = self.node(|| node.into_hir());
        }
        self.add(piece)
    }

    /// Reads the start of a group that begins with `(?`.
    fn group_flags(&mut self) -> Result<GroupStart, SyntaxError> {
        let (start, rest) = (self.at, self.rest());
        let named =
            [("(?P<", 5), ("(?<", 4)].into_iter().find(|(form, least)| rest.starts_with(form) && rest.len() >= *least);
        if let Some((form, _)) = named {
            let Some(end) = rest.find('>') else { return Err(SyntaxFault::NamedCapture.in_part(rest)) };
            self.at += end + 1;
            // In `(?<>`, the name is empty.
            let name = rest.get(form.len()..end).unwrap_or_default();
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err(self.error(SyntaxFault::NamedCapture, start));
            }
            return Ok(GroupStart::Named);
        }
        self.at += 2;
        let mut flags = self.flags;
        let (mut sets, mut has_flag) = (true, false);
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            let flag = match c {
                'i' => &mut flags.folds,
                'm' => &mut flags.lines,
                's' => &mut flags.dot_all,
                'U' => &mut flags.lazy,
                '-' if sets => {
                    (sets, has_flag) = (false, false);
                    continue;
                }
                ':' if sets || has_flag => return Ok(GroupStart::Plain(flags)),
                ')' if sets || has_flag => return Ok(GroupStart::Flags(flags)),
                _ => break,
            };
            *flag = sets;
            has_flag = true;
        }
        Err(self.error(SyntaxFault::PerlSyntax, start))
    }

    /// Applies a repetition that begins at `start` to the piece before it. Returns the start of the repetition.
    fn repeat(
        &mut self,
        least: u32,
        most: Option<u32>,
        start: usize,
        repeated: Option<usize>,
    ) -> Result<usize, SyntaxError> {
        let mut lazy = self.flags.lazy;
        if self.rest().starts_with('?') {
            self.at += 1;
            lazy = !lazy;
        }
        if let Some(before) = repeated {
            return Err(self.error(SyntaxFault::NestedRepetition, before));
        }
        let Some(RegexPiece { node, size, .. }) = self.branches.sequence.pop() else {
            return Err(self.error(SyntaxFault::MissingRepeatArgument, start));
        };
        // Each repetition needs a state to end. One more state is for several repetitions, or for `*` after a piece
        // that may be empty.
        let times = most.unwrap_or(least).max(1);
        let more = u64::from(times > 1 || (least, most) == (0, None));
        let states = size.states.saturating_add(1).saturating_mul(times.into()).saturating_add(more);
        self.count(states.saturating_sub(size.states))?;
        let height = size.height + 1;
        if height > MAX_HEIGHT {
            return Err(SyntaxFault::TooDeep.in_part(self.pattern));
        }
        let repeats = if most == Some(0) { 1 } else { size.repeats.saturating_mul(times) };
        if times >= 2 && repeats > MAX_REPEAT {
            return Err(self.error(SyntaxFault::RepeatCount, start));
        }
        let node = self.node(|| {
            let sub = Box::new(node.into_hir());
            Hir::repetition(Repetition { min: least, max: most, greedy: !lazy, sub })
        });
        self.branches.sequence.push(RegexPiece { node, shape: Shape::Other, size: Size { states, height, repeats } });
        Ok(start)
    }
}

/// The start of a group that begins with `(?`.
enum GroupStart {
    /// `(?P<name>`
    Named,
    /// `(?flags)`. This sets flags and opens no group.
    Flags(Flags),
    /// `(?flags:`
    Plain(Flags),
}

#[cfg(test)]
mod tests {
    use super::super::code_points::LAST;
    use super::*;

    #[track_caller]
    fn refused(pattern: &str, fault: &str) {
        assert_eq!(
            parse(pattern).map(|parsed| parsed.states).map_err(|fault| fault.to_string()),
            Err(format!("error parsing regexp: {fault}"))
        );
    }

    #[test]
    fn nesting_is_limited_as_in_go() {
        let nested = |open: &str, close: &str, times| format!("{}a{}", open.repeat(times), close.repeat(times));
        for (open, close) in [("(", ")"), ("(?:", ")*"), ("(x", ")"), ("(?:x|", "y)")] {
            let deep = nested(open, close, 1200);
            refused(&deep, &format!("expression nests too deeply: `{deep}`"));
        }
        assert_eq!(parse(&nested("(", ")", 999)).map(|parsed| parsed.height), Ok(1000));
        assert!(parse(&nested("(?:", ")", 50_000)).is_ok(), "groups that do nothing are not nested");
    }

    #[test]
    fn large_expressions_are_refused_before_they_are_built() {
        for pattern in [
            r"\pL".repeat(400_000),
            "a".repeat(300_000),
            r"(?i)[^a]".repeat(200_000),
            r"\pL{300}".repeat(3),
            "()".repeat(400_000),
            "a|".repeat(400_000),
        ] {
            let parsed = parse(&pattern).map(|parsed| parsed.states).map_err(|error| error.fault);
            assert_eq!(parsed, Err(SyntaxFault::TooLarge), "{}", &pattern[..8]);
        }
        let class = format!("[{}]", r"\pL\p{^L}\d".repeat(200_000));
        assert!(parse(&class).is_ok(), "a table is added to a class once");
    }

    #[test]
    fn characters_that_a_table_has_already_add_nothing_to_a_class() {
        let table = parse(r"\pL").unwrap();
        for pattern in [r"[\pL]", r"[a-z\p{L}]", r"[\p{Lu}\pL\x{e9}]"] {
            let class = parse(pattern).unwrap();
            assert_eq!((class.hir, class.states), (table.hir.clone(), table.states), "{pattern}");
        }
        assert_ne!(parse(r"[_\pL]").unwrap().hir, table.hir);
    }

    #[test]
    fn each_repetition_operator_adds_one_state() {
        for pattern in ["a?", "a+", "a{0,1}"] {
            assert_eq!(measure(&pattern.repeat(500)), Ok(1000), "{pattern}");
        }
    }

    #[test]
    fn the_set_of_all_characters_is_any() {
        let all = CodePoints::new(&[(0, LAST)]);
        assert_eq!(CodePoints::default().negated(), all);
        for pattern in ["(?s).", r"[\d\D]", r"\p{Any}", r"[\x00-\x{10FFFF}]"] {
            assert_eq!(parse(pattern).unwrap().hir, all.clone().into_hir(), "{pattern}");
        }
    }
}
