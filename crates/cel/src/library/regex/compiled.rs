//! Compiled expressions: made when they are first asked, shared by all who ask the same, and kept within a bound.
//!
//! To compile an expression costs from some microseconds to a tenth of a second, and what is compiled takes a thousand times the memory
//! of its text. So an expression is only read where it is stated. What was not asked for longest goes first when the room is needed, and
//! is compiled again when it is asked again. Expressions that objects contain, rather than programs, have a small room of their own: there
//! may be as many as there are objects, and they would push out the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};

use super::syntax::rewrite;

/// How many states an expression may have.
pub const MAX_STATES: u64 = 250_000;
/// How many bytes all compiled expressions may take that are kept, by what each is counted.
const KEPT_BYTES: u64 = 128 << 20;
/// The limit for expressions that objects contain, in bytes.
const PASSING_BYTES: u64 = 16 << 20;
/// How many bytes a state takes, with the instructions of each of the engines.
const STATE_BYTES: u64 = 96;
/// How many bytes an expression takes without its states.
const OWN_BYTES: u64 = 16 << 10;
/// Up to how many states an expression is small.
const SMALL: u64 = 500;
/// How many bytes of what matching has learnt a small and a large expression may keep, for each thread that matches at the same time.
const LEARNT_BYTES: [usize; 2] = [128 << 10, 2 << 20];
/// A bound for what the library makes of an expression, above that for the states.
const LIBRARY_BYTES: usize = 256 << 20;

/// A regular expression, which is compiled when it is asked.
#[derive(Debug)]
pub struct Pattern {
    text: Arc<str>,
    states: u64,
    compiled: Mutex<Weak<Compiled>>,
}

/// An expression that is compiled.
#[derive(Debug)]
pub struct Compiled {
    /// What matches.
    pub regex: Regex,
    /// How many states it has.
    pub states: u64,
    /// When it was asked last, by the count of what was compiled.
    asked: AtomicU64,
}

/// Judges an expression, without compiling it.
///
/// # Errors
/// What is wrong with it, in the words of Go.
pub fn check(pattern: &str) -> Result<(), String> {
    let rewritten = rewrite(pattern).map_err(|what| fault(&what))?;
    regex_syntax::parse(&rewritten.text).map_err(|_| unreadable(pattern))?;
    if rewritten.states > MAX_STATES { Err(too_large()) } else { Ok(()) }
}

impl Pattern {
    /// An expression that was judged by [`check`], or is when it is asked.
    ///
    /// # Errors
    /// What is wrong with it, as far as that shows at a glance.
    pub fn new(text: &str) -> Result<Self, String> {
        let states = rewrite(text).map_err(|what| fault(&what))?.states;
        Ok(Self { text: text.into(), states, compiled: Mutex::default() })
    }

    /// As it is stated.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// About how many states it has.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// What matches, and whether it was compiled only now.
    ///
    /// # Errors
    /// Why it can't be compiled.
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

/// What matches an expression, and whether it was compiled only now.
///
/// # Errors
/// What is wrong with it, in the words of Go.
pub fn compiled(pattern: &str) -> Result<(Arc<Compiled>, bool), String> {
    if let Some(kept) = KEPT.get(pattern) {
        return Ok((kept, false));
    }
    let compiled = compile(pattern)?;
    KEPT.put(pattern, &compiled);
    Ok((compiled, true))
}

/// Compiles an expression that an object contains, or finds it compiled.
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
    let rewritten = rewrite(pattern).map_err(|what| fault(&what))?;
    if rewritten.states > MAX_STATES {
        return Err(too_large());
    }
    let regex = RegexBuilder::new(&rewritten.text)
        .size_limit(LIBRARY_BYTES)
        .dfa_size_limit(learnt(rewritten.states))
        .build()
        .map_err(|fault| match fault {
            regex::Error::CompiledTooBig(_) => too_large(),
            _ => unreadable(pattern),
        })?;
    Ok(Arc::new(Compiled { regex, states: rewritten.states, asked: AtomicU64::default() }))
}

fn fault(what: &str) -> String {
    format!("error parsing regexp: {what}")
}

fn unreadable(pattern: &str) -> String {
    fault(&format!("invalid or unsupported Perl syntax: `{pattern}`"))
}

fn too_large() -> String {
    fault("expression too large")
}

fn learnt(states: u64) -> usize {
    LEARNT_BYTES[usize::from(states > SMALL)]
}

/// The expressions that are kept.
struct ExpressionCache {
    by_text: Mutex<ByText>,
    most_bytes: u64,
    /// How many were compiled.
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
    /// Cost: a look at each that is kept for each that has to go.
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

/// What a compiled expression is counted as.
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
    fn what_was_not_asked_for_longest_goes_when_there_is_no_room() {
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
        assert!(kept.bytes < KEPT_BYTES / 2, "what takes the place of another is counted once");
    }

    /// Pieces of expressions, some of which are wrong.
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
        fn what_is_judged_as_good_is_compiled_within_what_it_is_counted_as(pattern in pieces()) {
            let (judged, made) = (check(&pattern), compiled(&pattern));
            prop_assert_eq!(judged.is_ok(), made.is_ok(), "{} {:?} {:?}", pattern, judged, made);
            if let Ok((compiled, _)) = made {
                let text = rewrite(&pattern).map(|rewritten| rewritten.text).unwrap_or_default();
                let most = usize::try_from(OWN_BYTES + compiled.states * STATE_BYTES).unwrap_or(usize::MAX);
                prop_assert!(RegexBuilder::new(&text).size_limit(most).build().is_ok(), "{} {}", pattern, most);
            }
        }
    }

    #[test]
    fn a_large_expression_is_judged_without_being_compiled() {
        let large = r"\pL{300}".repeat(3);
        assert_eq!(check(&large).unwrap_err(), "error parsing regexp: expression too large");
        assert_eq!(compiled(&large).unwrap_err(), "error parsing regexp: expression too large");
        assert_eq!(check(r"^\pL{1,63}$"), Ok(()));
        assert_eq!(check("[b-a]").unwrap_err(), "error parsing regexp: invalid or unsupported Perl syntax: `[b-a]`");
    }
}
