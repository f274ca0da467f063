//! The syntax of RE2, rewritten for the library that matches, and measured.
//!
//! The library reads nearly the same syntax: where `\d`, `\w`, `\s` and `\b` mean more than ASCII to it, or a bracket inside a class
//! means something, the expression is rewritten. What has no place in RE2 is refused in the words of Go. How large the compiled
//! expression becomes is told by what is repeated how often, before anything is compiled.

/// How often a repetition may repeat, and all that are inside one another together.
const MAX_REPEAT: u32 = 1000;
/// About how many states a class has that holds more than ASCII, of which each character has up to four bytes.
const WIDE_CLASS: u64 = 12;
/// About how many a class of Unicode by its name has.
const NAMED_CLASS: u64 = 450;
/// How many letters are the same as one in upper or lower case, at the most.
const FOLDED: u64 = 4;

/// An expression as the library reads it.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// About how many states it is compiled into.
    pub(super) states: u64,
}

/// Rewrites an expression.
///
/// # Errors
/// What is wrong with it, in the words of Go.
pub(super) fn rewrite(pattern: &str) -> Result<Rewritten, String> {
    let mut rewriter = Rewriter {
        chars: pattern.chars().collect(),
        at: 0,
        out: String::with_capacity(pattern.len()),
        open: Vec::new(),
        current: Sequence::default(),
        folds: false,
    };
    let mut can_repeat = false;
    while let Some(c) = rewriter.peek(0) {
        can_repeat = rewriter.step(c, can_repeat)?;
    }
    if !rewriter.open.is_empty() {
        return Err(format!("missing closing ): `{pattern}`"));
    }
    Ok(Rewritten { text: rewriter.out, states: rewriter.current.whole().states })
}

/// How large a piece is, and how often what is in it is repeated at the most.
#[derive(Clone, Copy, Debug)]
struct Size {
    states: u64,
    repeated: u32,
}

/// The pieces that were read of a group.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    before: Size,
    /// The last one, which may be repeated still.
    last: Size,
}

impl Size {
    const NOTHING: Self = Self { states: 0, repeated: 1 };

    fn with(self, other: Self) -> Self {
        Self { states: self.states.saturating_add(other.states), repeated: self.repeated.max(other.repeated) }
    }
}

impl Default for Sequence {
    fn default() -> Self {
        Self { before: Size::NOTHING, last: Size::NOTHING }
    }
}

impl Sequence {
    fn whole(self) -> Size {
        self.before.with(self.last)
    }

    fn push(&mut self, last: Size) {
        *self = Self { before: self.whole(), last };
    }
}

struct Rewriter {
    chars: Vec<char>,
    at: usize,
    out: String,
    /// The groups around what is read.
    open: Vec<Sequence>,
    current: Sequence,
    /// Whether upper and lower case are the same somewhere.
    folds: bool,
}

impl Rewriter {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn rest(&self, from: usize) -> String {
        self.chars[from.min(self.chars.len())..].iter().collect()
    }

    fn copy(&mut self, count: usize) {
        let end = (self.at + count).min(self.chars.len());
        self.out.extend(&self.chars[self.at..end]);
        self.at = end;
    }

    /// Counts a piece of so many states.
    fn count(&mut self, states: u64) {
        let folded = if self.folds && states <= WIDE_CLASS { FOLDED } else { 1 };
        self.current.push(Size { states: states.saturating_mul(folded), repeated: 1 });
    }

    /// Rewrites what is next, and tells whether that can be repeated.
    fn step(&mut self, c: char, can_repeat: bool) -> Result<bool, String> {
        match c {
            '\\' => {
                let states = self.escape(false)?;
                self.count(states);
                Ok(true)
            }
            '[' => {
                let states = self.class()?;
                self.count(states);
                Ok(true)
            }
            '(' => {
                self.group()?;
                self.open.push(std::mem::take(&mut self.current));
                Ok(false)
            }
            ')' => {
                let Some(around) = self.open.pop() else {
                    return Err(format!("unexpected ): `{}`", self.rest(0)));
                };
                let group = std::mem::replace(&mut self.current, around).whole();
                // Where a group begins and ends are states too.
                self.current.push(Size { states: group.states.saturating_add(2), ..group });
                self.copy(1);
                Ok(true)
            }
            '*' | '+' | '?' => {
                if !can_repeat {
                    return Err(format!("missing argument to repetition operator: `{c}`"));
                }
                self.current.last.states = self.current.last.states.saturating_add(1);
                self.copy(1);
                if self.peek(0) == Some('?') {
                    self.copy(1);
                }
                if let Some(next) = self.peek(0).filter(|next| matches!(next, '*' | '+' | '?')) {
                    return Err(format!("invalid nested repetition operator: `{c}{next}`"));
                }
                Ok(false)
            }
            '{' => self.repeat(can_repeat),
            '|' => {
                self.count(1);
                self.copy(1);
                Ok(false)
            }
            '.' => {
                self.count(WIDE_CLASS);
                self.copy(1);
                Ok(true)
            }
            // These mean something only in a mode that RE2 does not have.
            '#' | '&' | '~' | '-' | '}' | ']' => {
                self.out.push('\\');
                self.count(1);
                self.copy(1);
                Ok(true)
            }
            _ => {
                self.count(c.len_utf8() as u64);
                self.copy(1);
                Ok(true)
            }
        }
    }

    fn group(&mut self) -> Result<(), String> {
        if self.peek(1) != Some('?') {
            self.copy(1);
            return Ok(());
        }
        let start = self.at;
        let is_named =
            self.peek(2) == Some('P') || (self.peek(2) == Some('<') && !matches!(self.peek(3), Some('=' | '!')));
        if is_named {
            self.copy(2);
            return Ok(());
        }
        let mut end = 2;
        while let Some(c) = self.peek(end).filter(|c| "imsU-".contains(*c)) {
            self.folds |= c == 'i';
            end += 1;
        }
        match self.peek(end) {
            Some(':') => self.copy(end + 1),
            Some(')') => self.copy(end),
            None => return Err(format!("missing closing ): `{}`", self.rest(0))),
            Some(_) => {
                let shown: String = self.chars[start..start + end + 1].iter().collect();
                return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
            }
        }
        Ok(())
    }

    /// A repetition in braces, or a brace that is just that.
    fn repeat(&mut self, can_repeat: bool) -> Result<bool, String> {
        let text: String = self.chars[self.at + 1..].iter().take_while(|c| **c != '}').collect();
        let is_closed = self.peek(1 + text.chars().count()) == Some('}');
        let (least, most) = text.split_once(',').map_or((text.as_str(), None), |(least, most)| (least, Some(most)));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_closed || !is_number(least) || !most.is_none_or(|most| most.is_empty() || is_number(most)) {
            self.out.push('\\');
            self.count(1);
            self.copy(1);
            return Ok(true);
        }
        let shown = format!("{{{text}}}");
        if !can_repeat {
            return Err(format!("missing argument to repetition operator: `{shown}`"));
        }
        let bound = |text: &str| text.parse().ok().filter(|count: &u32| *count <= MAX_REPEAT);
        let invalid = || format!("invalid repeat count: `{shown}`");
        let least = bound(least).ok_or_else(invalid)?;
        let most = match most {
            None => Some(least),
            Some("") => None,
            Some(most) => Some(bound(most).filter(|most| *most >= least).ok_or_else(invalid)?),
        };
        let times = most.unwrap_or(least).max(1);
        let last = &mut self.current.last;
        if times > 1 && last.repeated.saturating_mul(times) > MAX_REPEAT {
            return Err(invalid());
        }
        last.repeated = last.repeated.saturating_mul(times);
        // What may be left out has a state for that.
        last.states = last.states.saturating_add(1).saturating_mul(u64::from(times)).saturating_add(1);
        self.copy(shown.chars().count());
        if self.peek(0) == Some('?') {
            self.copy(1);
        }
        Ok(false)
    }

    /// Rewrites an escape, and tells how many states it is about.
    fn escape(&mut self, in_class: bool) -> Result<u64, String> {
        let Some(c) = self.peek(1) else { return Err("trailing backslash at end of expression: ``".to_owned()) };
        let states = if matches!(c, 'D' | 'W' | 'S') { WIDE_CLASS } else { 1 };
        let written = match (c, in_class) {
            ('d', false) => "[0-9]",
            ('d', true) => "0-9",
            ('D', _) => "[^0-9]",
            ('w', false) => "[0-9A-Za-z_]",
            ('w', true) => "0-9A-Za-z_",
            ('W', _) => "[^0-9A-Za-z_]",
            ('s', false) => "[\\t\\n\\f\\r ]",
            ('s', true) => "\\t\\n\\f\\r ",
            ('S', _) => "[^\\t\\n\\f\\r ]",
            ('b', false) => "(?-u:\\b)",
            ('B', false) => "(?-u:\\B)",
            ('Q', _) => return Ok(self.quoted()),
            ('p' | 'P' | 'x', _) => {
                self.copy(2);
                if self.peek(0) == Some('{') {
                    let end = self.chars[self.at..].iter().position(|c| *c == '}').map_or(1, |end| end + 1);
                    self.copy(end);
                } else {
                    // A letter for a class, or two digits.
                    self.copy(if c == 'x' { 2 } else { 1 });
                }
                return Ok(if c == 'x' { WIDE_CLASS } else { NAMED_CLASS });
            }
            ('A' | 'z', false) | ('a' | 'f' | 't' | 'n' | 'r' | 'v', _) => {
                self.copy(2);
                return Ok(1);
            }
            ('0'..='7', _) => return self.octal(),
            (c, _) if c.is_ascii_punctuation() => {
                self.copy(2);
                return Ok(1);
            }
            (c, _) => return Err(format!("invalid escape sequence: `\\{c}`")),
        };
        self.out.push_str(written);
        self.at += 2;
        Ok(states)
    }

    fn octal(&mut self) -> Result<u64, String> {
        let digits: String = self.chars[self.at + 1..].iter().take(3).take_while(|c| c.is_digit(8)).collect();
        if !digits.starts_with('0') && digits.len() < 2 {
            return Err(format!("invalid escape sequence: `\\{digits}`"));
        }
        let code = u32::from_str_radix(&digits, 8).unwrap_or(0);
        self.out.push_str(&format!("\\x{{{code:x}}}"));
        self.at += 1 + digits.len();
        Ok(1)
    }

    fn quoted(&mut self) -> u64 {
        self.at += 2;
        let start = self.out.len();
        while let Some(c) = self.peek(0) {
            if c == '\\' && self.peek(1) == Some('E') {
                self.at += 2;
                break;
            }
            self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
            self.at += 1;
        }
        (self.out.len() - start) as u64
    }

    /// Rewrites a class, and tells how many states it is about.
    fn class(&mut self) -> Result<u64, String> {
        let start = self.at;
        let mut states = 1;
        self.copy(1);
        if self.peek(0) == Some('^') {
            states = WIDE_CLASS;
            self.copy(1);
        }
        let mut is_first = true;
        loop {
            match self.peek(0) {
                None => return Err(format!("missing closing ]: `{}`", self.rest(start))),
                Some(']') if !is_first => {
                    self.copy(1);
                    return Ok(states);
                }
                Some('\\') => states = self.escape(true)?.max(states),
                Some('[') if self.peek(1) == Some(':') => {
                    let end = self.chars[self.at + 2..].windows(2).position(|pair| pair == [':', ']']);
                    let Some(end) = end else { return Err(format!("missing closing ]: `{}`", self.rest(start))) };
                    self.copy(end + 4);
                }
                Some('[' | ']' | '&' | '~') => {
                    self.out.push('\\');
                    self.copy(1);
                }
                // A dash at the start or the end is just that; two of them would mean a difference.
                Some('-') if is_first || matches!(self.peek(1), Some(']' | '-')) => {
                    self.out.push('\\');
                    self.copy(1);
                }
                Some(c) => {
                    if !c.is_ascii() {
                        // It has states of its own for its bytes.
                        states = states.max(WIDE_CLASS) + c.len_utf8() as u64 * 2;
                    }
                    self.copy(1);
                }
            }
            is_first = false;
        }
    }
}
