//! Compiles regular expressions at their first use, and caches them within a memory limit.
//!
//! Compiling takes from a few microseconds to a tenth of a second. A compiled expression takes a thousand times the
//! memory of its text. So the expressions of definitions are only parsed when a definition is read. The cache evicts
//! the least recently used entry first. Expressions from objects have a small cache of their own: there may be as many
//! as objects, and they would evict the expressions of programs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use regex_automata::meta::{Config, Regex};

use super::parser::{Parsed, measure, parse};
use super::syntax_error::SyntaxFault;
use crate::stack;

/// The maximum number of states of one expression.
pub const MAX_STATES: u64 = 250_000;
/// The maximum estimated memory of the cached expressions of programs, in bytes.
const KEPT_BYTES: u64 = 128 << 20;
/// The maximum estimated memory of the cached expressions from objects, in bytes.
const PASSING_BYTES: u64 = 16 << 20;
/// The estimated memory of a state in all engines of the library, in bytes.
const STATE_BYTES: u64 = 96;
/// The estimated memory of an expression without its states, in bytes.
const OWN_BYTES: u64 = 16 << 10;
/// The maximum number of states of a small expression.
const SMALL: u64 = 500;
/// The memory in bytes that the library may use while matching, for each concurrent thread: for a small and for a large
/// expression.
const LEARNT_BYTES: [usize; 2] = [128 << 10, 2 << 20];
/// The library's own limit for a compiled expression in bytes. The limit of states is reached before.
const LIBRARY_BYTES: usize = 256 << 20;
/// The depth up to which an expression is compiled on the thread's stack.
const SHALLOW: u32 = 20;

/// A regular expression that is compiled at first use.
#[derive(Debug)]
pub struct Pattern {
    text: Arc<str>,
    states: u64,
    compiled: Mutex<Weak<Compiled>>,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Compiled {
    /// The compiled form.
    pub regex: Regex,
    /// The number of its states.
    pub states: u64,
    /// The number of compilations at the time of the last use.
    asked: AtomicU64,
}

/// Validates an expression. Does not compile it.
///
/// # Errors
/// The fault in Go's words.
pub fn check(pattern: &str) -> Result<(), String> {
    measure(pattern).map(|_| ()).map_err(|error| error.to_string())
}

impl Pattern {
    /// Creates an expression that is compiled at its first use. Its size is checked only then, so that a definition
    /// stays served if another server has accepted it.
    ///
    /// # Errors
    /// The first syntax error of the expression, with Go's text.
    pub fn new(text: &str) -> Result<Self, String> {
        let states = measure(text).or_else(|error| match error.fault {
            SyntaxFault::TooLarge => Ok(MAX_STATES),
            _ => Err(error.to_string()),
        })?;
        Ok(Self::uncompiled(text, states))
    }

    /// Creates an expression that is compiled at its first use. Its size is checked now.
    ///
    /// # Errors
    /// As [`check`].
    pub(crate) fn checked(text: &str) -> Result<Self, String> {
        let states = measure(text).map_err(|error| error.to_string())?;
        Ok(Self::uncompiled(text, states))
    }

    fn uncompiled(text: &str, states: u64) -> Self {
        Self { text: text.into(), states, compiled: Mutex::default() }
    }

    /// The source.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The approximate number of its states.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// Returns the compiled expression. The flag is true if this call compiled it.
    ///
    /// # Errors
    /// The reason why it can't be compiled.
    pub fn compiled(&self) -> Result<(Arc<Compiled>, bool), String> {
        let mut held = self.compiled.lock();
        if let Some(compiled) = held.upgrade() {
            compiled.asked.store(KEPT.clock.load(Ordering::Relaxed), Ordering::Relaxed);
            return Ok((compiled, false));
        }
        let (compiled, is_new) = compiled(&self.text)?;
        *held = Arc::downgrade(&compiled);
        Ok((compiled, is_new))
    }
}

/// Returns the compiled expression of a pattern. The flag is true if this call compiled it.
///
/// # Errors
/// The fault in Go's words.
pub fn compiled(pattern: &str) -> Result<(Arc<Compiled>, bool), String> {
    if let Some(kept) = KEPT.get(pattern) {
        return Ok((kept, false));
    }
    let compiled = compile(pattern)?;
    KEPT.put(pattern, &compiled);
    Ok((compiled, true))
}

/// As [`compiled`], for an expression from an object.
///
/// # Errors
/// As [`compiled`].
pub(super) fn compiled_of_object(pattern: &str) -> Result<(Arc<Compiled>, bool), String> {
    if let Some(kept) = KEPT.get(pattern).or_else(|| PASSING.get(pattern)) {
        return Ok((kept, false));
    }
    let compiled = compile(pattern)?;
    PASSING.put(pattern, &compiled);
    Ok((compiled, true))
}

fn compile(pattern: &str) -> Result<Arc<Compiled>, String> {
    let Parsed { hir, states, height } = parse(pattern).map_err(|error| error.to_string())?;
    debug_assert!(states <= MAX_STATES, "the parser stops at the limit");
    let config = Config::new().nfa_size_limit(Some(LIBRARY_BYTES)).hybrid_cache_capacity(learnt(states));
    let build = || Regex::builder().configure(config).build_from_hir(&hir).ok();
    let built = if height > SHALLOW { stack::with_deep_room(build) } else { build() };
    let regex = built.ok_or_else(|| SyntaxFault::TooLarge.in_part(pattern).to_string())?;
    Ok(Arc::new(Compiled { regex, states, asked: AtomicU64::default() }))
}

fn learnt(states: u64) -> usize {
    LEARNT_BYTES[usize::from(states > SMALL)]
}

/// The cache of expressions.
struct ExpressionCache {
    by_text: Mutex<ByText>,
    most_bytes: u64,
    /// The number of compilations.
    clock: AtomicU64,
}

#[derive(Default)]
struct ByText {
    compiled: HashMap<Arc<str>, Arc<Compiled>>,
    bytes: u64,
}

static KEPT: LazyLock<ExpressionCache> = LazyLock::new(|| ExpressionCache::new(KEPT_BYTES));
static PASSING: LazyLock<ExpressionCache> = LazyLock::new(|| ExpressionCache::new(PASSING_BYTES));

impl ExpressionCache {
    fn new(most_bytes: u64) -> Self {
        Self { by_text: Mutex::default(), most_bytes, clock: AtomicU64::default() }
    }

    fn get(&self, pattern: &str) -> Option<Arc<Compiled>> {
        let found = self.by_text.lock().compiled.get(pattern).cloned()?;
        found.asked.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(found)
    }

    fn put(&self, pattern: &str, compiled: &Arc<Compiled>) {
        compiled.asked.store(self.clock.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.by_text.lock().put(pattern, compiled, self.most_bytes);
    }
}

impl ByText {
    /// Cost: a scan of the whole cache for each evicted entry.
    fn put(&mut self, pattern: &str, compiled: &Arc<Compiled>, most_bytes: u64) {
        self.bytes += bytes(pattern, compiled);
        if let Some(other) = self.compiled.insert(pattern.into(), compiled.clone()) {
            self.bytes -= bytes(pattern, &other);
        }
        while self.bytes > most_bytes {
            let oldest = self.compiled.iter().min_by_key(|(_, compiled)| compiled.asked.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(text, _)| text.clone()) else { return };
            if let Some(gone) = self.compiled.remove(&oldest) {
                self.bytes -= bytes(&oldest, &gone);
            }
        }
    }
}

/// The estimated memory of a compiled expression in bytes.
fn bytes(pattern: &str, compiled: &Compiled) -> u64 {
    pattern.len() as u64 + OWN_BYTES + compiled.states * STATE_BYTES + learnt(compiled.states) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_expressions_are_compiled_once() {
        let [one, other] = [0, 1].map(|_| Pattern::new("^once-[a-z]{3}$").unwrap());
        let (first, is_new) = one.compiled().unwrap();
        assert!(is_new && first.regex.is_match("once-abc"));
        for pattern in [&one, &other, &other] {
            let (again, is_new) = pattern.compiled().unwrap();
            assert!(!is_new && Arc::ptr_eq(&again, &first));
        }
    }

    #[test]
    fn expressions_of_objects_push_out_no_others() {
        let stated = Pattern::new("^stated-[a-z]{3}$").unwrap();
        let (first, _) = stated.compiled().unwrap();
        for number in 0..200 {
            let (_, is_new) = compiled_of_object(&format!("^passing-{number}-[a-z]{{300}}$")).unwrap();
            assert!(is_new);
        }
        assert!(PASSING.by_text.lock().bytes <= PASSING_BYTES);
        assert!(!compiled_of_object("^passing-199-[a-z]{300}$").unwrap().1, "the newest is kept");
        let (again, is_new) = compiled_of_object("^stated-[a-z]{3}$").unwrap();
        assert!(!is_new && Arc::ptr_eq(&again, &first));
    }

    #[test]
    fn a_full_cache_evicts_the_least_recently_used() {
        let compiled =
            |states| Arc::new(Compiled { regex: Regex::new("a").unwrap(), states, asked: AtomicU64::default() });
        let large = KEPT_BYTES / 3 / STATE_BYTES;
        let mut kept = ByText::default();
        for (asked, text) in ["a", "b", "c"].into_iter().enumerate() {
            let one = compiled(large);
            one.asked.store(asked as u64 + 10, Ordering::Relaxed);
            kept.put(text, &one, KEPT_BYTES);
        }
        let mut texts: Vec<_> = kept.compiled.keys().map(|text| &**text).collect();
        texts.sort_unstable();
        assert_eq!(texts, ["b", "c"], "three have no room beside one another");
        assert!(kept.bytes <= KEPT_BYTES && kept.bytes > KEPT_BYTES / 2);
        kept.put("b", &compiled(1), KEPT_BYTES);
        assert!(kept.bytes < KEPT_BYTES / 2, "a replaced entry is counted once");
    }

    /// Generates pieces of expressions, some of them invalid.
    fn pieces() -> impl Strategy<Value = String> {
        let atom = prop::sample::select(vec![
            "a",
            "é",
            ".",
            "[a-z]",
            "[^a]",
            "[b-a]",
            "[[:alpha:]]",
            "[é-ü]",
            r"\d",
            r"\W",
            r"\pL",
            r"\p{Greek}",
            r"\P{Lu}",
            r"\b",
            "^",
            "$",
            r"\x41",
            r"\Qa.b\E",
            "(?i)",
            "(?i:[k-s])",
            r"[\x{0}-\x{10ffff}]",
            "(?P<n>a)",
            "|",
            "{",
            r"[\p{L}\d_]",
            "[",
        ])
        .prop_map(str::to_owned);
        atom.prop_recursive(4, 24, 4, |inner| {
            let repeat = prop::sample::select(vec!["", "*", "+?", "?", "{3}", "{0,20}", "{2,}", "{30}"]);
            (prop::collection::vec(inner, 1..4), repeat)
                .prop_map(|(parts, repeat)| format!("({}){repeat}", parts.concat()))
        })
    }

    proptest! {
        #[test]
        fn a_checked_expression_is_compiled_within_its_counted_bytes(pattern in pieces()) {
            let (checked, made) = (check(&pattern), compiled(&pattern));
            prop_assert_eq!(checked.is_ok(), made.is_ok(), "{} {:?} {:?}", pattern, checked, made);
            let measured = measure(&pattern);
            if let Ok(Parsed { hir, states, .. }) = parse(&pattern) {
                prop_assert_eq!(measured, Ok(states), "{}", pattern);
                let most = usize::try_from(OWN_BYTES + states * STATE_BYTES).unwrap_or(usize::MAX);
                let config = Config::new().nfa_size_limit(Some(most));
                prop_assert!(Regex::builder().configure(config).build_from_hir(&hir).is_ok(), "{} {}", pattern, most);
            }
        }
    }

    #[test]
    fn every_class_is_compiled_within_its_counted_bytes() {
        for name in
            ["L", "N", "P", "S", "M", "Lu", "Ll", "Lo", "Cn", "Assigned", "Any", "Han", "Greek", "Latin", "Zs", "So"]
        {
            for pattern in [
                format!(r"\p{{{name}}}"),
                format!(r"\P{{{name}}}"),
                format!(r"(?i)\p{{{name}}}"),
                format!(r"[^a\p{{{name}}}]"),
            ] {
                let Parsed { hir, states, .. } = parse(&format!("(?:{pattern}){{20}}")).unwrap();
                let most = usize::try_from(states * STATE_BYTES).unwrap();
                let built = |most| {
                    Regex::builder().configure(Config::new().nfa_size_limit(Some(most))).build_from_hir(&hir).is_ok()
                };
                assert!(built(most), "{pattern} takes more than {most} bytes");
                assert!(states < 2000 || !built(most / 6), "{pattern} takes far less than {most} bytes");
            }
        }
    }

    #[test]
    fn a_large_expression_is_refused_without_being_compiled() {
        let large = r"\pL{400}".repeat(3);
        let fault = format!("error parsing regexp: expression too large: `{large}`");
        assert_eq!(check(&large), Err(fault.clone()));
        assert_eq!(compiled(&large).unwrap_err(), fault);
        let kept = Pattern::new(&large).unwrap();
        assert_eq!((kept.states(), kept.compiled().unwrap_err()), (MAX_STATES, fault));
        assert_eq!(check(r"^\pL{1,63}$"), Ok(()));
        assert_eq!(check(r"^[\p{L}\p{N}_-]{1,253}$"), Ok(()), "a name of letters and digits");
    }

    #[test]
    fn the_deepest_expression_is_compiled_on_a_small_stack() {
        let nested = |open: &str, close: &str| format!("{}a{}", open.repeat(990), close.repeat(990));
        let patterns = [
            nested("(", ")"),
            nested("(?:", ")*"),
            nested("(?:x|", "y)?").replacen("(?:x|", "(", 600),
            nested("(x", ")+"),
        ];
        let compile = move || patterns.iter().filter(|pattern| compiled(pattern).is_ok()).count();
        let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(compile).unwrap();
        assert!(thread.join().unwrap() >= 2);
    }
}
