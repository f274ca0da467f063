//! A cache of the compiled CEL rules of schemas. They are compiled at the first validation, and their memory is
//! limited.
//!
//! At any time, clients write objects of only a few among thousands of definitions, and compiled rules take a multiple
//! of their text. So a schema keeps a reference to its document, and all schemas of a server share [`ProgramCache`]. A
//! running validation holds an `Arc`, so an eviction does not affect it. The cache must not know how rules are compiled
//! or run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::expressions::Checks;
use crate::document::SchemaDocument;

/// The maximum memory of compiled rules in bytes. The rules of the schema used last do not count.
pub const PROGRAMS_BYTES: usize = 64 << 20;

/// The compiled rules of all schemas of a server.
#[derive(Debug)]
pub struct ProgramCache {
    bound: usize,
    kept: Mutex<CompiledSchemas>,
    schemas: AtomicU64,
    compiled: AtomicU64,
}

/// Statistics of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// The number of schemas with cached rules.
    pub schemas: usize,
    /// Their estimated memory in bytes.
    pub bytes: usize,
    /// The number of compilations since the start.
    pub compiled: u64,
}

/// ORDER: this lock is taken last, and not held while compiling.
#[derive(Debug, Default)]
struct CompiledSchemas {
    by_schema: HashMap<u64, Programs>,
    /// Candidates for eviction in order. A candidate that was used since is skipped.
    turns: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Programs {
    checks: Arc<Checks>,
    bytes: usize,
    is_asked: bool,
}

impl Default for ProgramCache {
    fn default() -> Self {
        Self::within(PROGRAMS_BYTES)
    }
}

impl ProgramCache {
    /// A cache of at most `bound` bytes.
    pub fn within(bound: usize) -> Self {
        Self { bound, kept: Mutex::default(), schemas: AtomicU64::new(0), compiled: AtomicU64::new(0) }
    }

    /// The current statistics.
    pub fn stats(&self) -> ProgramStats {
        let kept = self.kept.lock();
        let compiled = self.compiled.load(Ordering::Relaxed);
        ProgramStats { schemas: kept.by_schema.len(), bytes: kept.bytes, compiled }
    }

    fn get(&self, schema: u64) -> Option<Arc<Checks>> {
        let mut kept = self.kept.lock();
        let programs = kept.by_schema.get_mut(&schema)?;
        programs.is_asked = true;
        Some(programs.checks.clone())
    }

    fn keep(&self, schema: u64, checks: &Arc<Checks>) {
        let bytes = checks.estimated_bytes();
        let mut kept = self.kept.lock();
        kept.make_room(self.bound.saturating_sub(bytes));
        kept.bytes += bytes;
        kept.by_schema.insert(schema, Programs { checks: checks.clone(), bytes, is_asked: false });
        kept.turns.push_back(schema);
    }

    fn forget(&self, schema: u64) {
        let mut kept = self.kept.lock();
        if kept.remove(schema) {
            kept.turns.retain(|other| *other != schema);
        }
    }
}

impl CompiledSchemas {
    /// Evicts the rules that were used longest ago, approximately, until at most `left` bytes remain.
    fn make_room(&mut self, left: usize) {
        while self.bytes > left {
            let Some(schema) = self.turns.pop_front() else { return };
            match self.by_schema.get_mut(&schema) {
                Some(programs) if programs.is_asked => {
                    programs.is_asked = false;
                    self.turns.push_back(schema);
                }
                _ => drop(self.remove(schema)),
            }
        }
    }

    fn remove(&mut self, schema: u64) -> bool {
        let gone = self.by_schema.remove(&schema);
        self.bytes -= gone.as_ref().map_or(0, |programs| programs.bytes);
        gone.is_some()
    }
}

/// The CEL rules of a schema, which are compiled at their first use.
#[derive(Debug)]
pub(super) struct LazyPrograms {
    schema: u64,
    document: Arc<dyn SchemaDocument>,
    programs: Arc<ProgramCache>,
    /// ORDER: this lock is held while compiling, so that concurrent callers compile once.
    compiling: Mutex<()>,
}

impl LazyPrograms {
    pub(super) fn new(document: Arc<dyn SchemaDocument>, programs: &Arc<ProgramCache>) -> Self {
        let schema = programs.schemas.fetch_add(1, Ordering::Relaxed);
        Self { schema, document, programs: programs.clone(), compiling: Mutex::new(()) }
    }

    /// The compiled rules, if they are in the cache.
    pub(super) fn kept(&self) -> Option<Arc<Checks>> {
        self.programs.get(self.schema)
    }

    /// The compiled rules.
    ///
    /// Cost: one compilation, unless they are in the cache.
    pub(super) fn compiled(&self) -> Arc<Checks> {
        if let Some(kept) = self.kept() {
            return kept;
        }
        let _compiling = self.compiling.lock();
        if let Some(kept) = self.kept() {
            return kept;
        }
        let document = self.document.read().expect("stored bytes have the schema that was found in them before");
        let checks = Arc::new(Checks::compile(&document, true).unwrap_or_default());
        self.programs.compiled.fetch_add(1, Ordering::Relaxed);
        self.programs.keep(self.schema, &checks);
        checks
    }
}

impl Drop for LazyPrograms {
    fn drop(&mut self) {
        self.programs.forget(self.schema);
    }
}
