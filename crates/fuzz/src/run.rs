//! One run of one target: the corpus first, then mutated copies of kept inputs, until the budget is spent.
//!
//! An input that panics, violates a property or allocates too much ends the run and is minimized.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::memory::{Cost, measure};
use crate::mutate::{Numbers, mutate};
use crate::targets::Target;

/// The maximum number of kept inputs.
const MAX_KEPT: usize = 4096;
/// The allowed cost of any input in bytes, whatever its length: tables built at first use, and error texts.
const BASE_BYTES: usize = 4 * 1024 * 1024;
/// The allowed bytes held at once for each byte of an input.
const HELD_PER_BYTE: usize = 256;
/// The allowed bytes allocated in total for each byte of an input.
const ASKED_PER_BYTE: usize = 8192;

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// The run ends after this number of inputs, so equal seeds give equal runs.
    Inputs(usize),
    /// A deadline.
    Until(Instant),
}

/// An input that violated a property.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The input.
    pub input: Vec<u8>,
    /// The violation.
    pub why: String,
}

/// The summary of a run.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The number of inputs.
    pub inputs: usize,
    /// The number of different outcomes of the target.
    pub kinds: usize,
    /// The duration of the slowest input, which also depends on the machine.
    pub slowest: Duration,
}

/// Runs a target. Equal seeds and numbers of inputs give equal runs.
///
/// # Errors
/// The first input that violates a property, minimized by removing parts.
pub fn run(target: &Target, seed: u64, budget: Budget) -> Result<Summary, Finding> {
    let mut numbers = Numbers::new(seed);
    let (mut kinds, mut kept) = (HashSet::new(), corpus(target));
    let mut inputs = 0;
    let mut slowest = Duration::ZERO;
    let mut timed = |input: &[u8]| {
        let began = Instant::now();
        let kind = attempt(target, input);
        slowest = slowest.max(began.elapsed());
        kind
    };
    for input in &kept {
        inputs += 1;
        kinds.insert(timed(input)?);
    }
    if kept.is_empty() {
        kept.push(Vec::new());
    }
    let goes_on = |inputs: usize| match budget {
        Budget::Inputs(most) => inputs < most,
        Budget::Until(end) => Instant::now() < end,
    };
    while goes_on(inputs) {
        let input = mutate(&kept[numbers.below(kept.len())], &kept, target.words, &mut numbers);
        inputs += 1;
        if kinds.insert(timed(&input)?) {
            if kept.len() < MAX_KEPT {
                kept.push(input);
            } else {
                let place = numbers.below(kept.len());
                kept[place] = input;
            }
        }
    }
    Ok(Summary { inputs, kinds: kinds.len(), slowest })
}

/// The initial inputs: those of the target, and the files of its corpus in order of names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "corpus", target.name].iter().collect();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let seeds = target.seeds.iter().map(|seed| seed.to_vec());
    seeds.chain(files.into_iter().filter_map(|file| std::fs::read(file).ok())).collect()
}

/// Tries an input, and minimizes one that violates a property.
fn attempt(target: &Target, input: &[u8]) -> Result<u64, Finding> {
    let why = match check(target, input) {
        Ok(kind) => return Ok(kind),
        Err(why) => why,
    };
    let mut finding = Finding { input: input.to_vec(), why };
    let mut length = input.len() / 2;
    while length > 0 {
        let mut place = 0;
        while place + length <= finding.input.len() {
            let mut shorter = finding.input.clone();
            shorter.drain(place..place + length);
            match check(target, &shorter) {
                Err(why) => finding = Finding { input: shorter, why },
                Ok(_) => place += length,
            }
        }
        length /= 2;
    }
    Err(finding)
}

/// Tries an input once.
fn check(target: &Target, input: &[u8]) -> Result<u64, String> {
    let (tried, cost) = measure(|| catch_unwind(AssertUnwindSafe(|| (target.check)(input))));
    let kind = tried.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })?;
    let Cost { peak, asked, held: _ } = cost;
    if peak > BASE_BYTES + HELD_PER_BYTE * input.len() {
        return Err(format!("{} bytes of input made {peak} bytes be held at once", input.len()));
    }
    if asked > BASE_BYTES + ASKED_PER_BYTE * input.len() {
        return Err(format!("{} bytes of input made {asked} bytes be asked for", input.len()));
    }
    Ok(kind)
}
