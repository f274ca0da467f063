//! A run: servers, clients, store and network in one thread, driven by the seed.
//!
//! Time advances in ticks. In each tick the faults of that time are applied, segments and late commits arrive, and each
//! machine has one turn, in an order that the seed draws. Machines affect each other only over the network and the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{FutureExt as _, StreamExt as _};
use keelson_meta::Revision;
use keelson_meta::random::SeededRandom;
use keelson_server::{Config, LeadershipTimes, Pki, StoreConfig};
use keelson_storage::memory::MemorySnapshot;
use keelson_storage::{Store as _, Tail};
use parking_lot::Mutex;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::check::{self, Truth, Violation};
use crate::clients::{Shared, Worker};
use crate::dice::Dice;
use crate::host::{Machine, Standing, serve};
use crate::net::{Net, Node};
use crate::plan::{Fault, Kind, Plan, PlannedFault};
use crate::record::Trace;
use crate::store::SimStore;
use crate::watchers::Watcher;
use crate::wire::{self, Client};
use crate::{machine, prepare};

/// The time of one turn.
pub(crate) const TICK_MS: u64 = 5;
/// The time in which servers must be ready after their first start.
const START_MS: u64 = 60_000;
/// The time in which everything must settle after the last fault and the last operation.
const SETTLE_MS: u64 = 90_000;
/// The longest time for the operations, beyond that of the faults.
const OPERATIONS_MS: u64 = 900_000;
/// The time until a process that has ended is started again.
const RESTART_MS: u64 = 1000;
/// The watchers of each kind.
const WATCHERS: usize = 2;

/// The panics of a run.
static PANICS: Mutex<Vec<Violation>> = Mutex::new(Vec::new());

/// Makes each panic of this process a violation.
pub(crate) fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("without a message");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANICS.lock().push(Violation::new("panic", format!("{text} ({place})")));
    }));
}

/// The keys and the store of a new cluster, from which all runs of a process start.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) pki: Pki,
    pub(crate) snapshot: MemorySnapshot,
}

/// The outcome of a run.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: Counts,
    pub(crate) trace: String,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) unanswered: u64,
    pub(crate) lists: u64,
    pub(crate) expired: u64,
    pub(crate) watches: u64,
    pub(crate) events: u64,
    pub(crate) changes: u64,
    pub(crate) faults: u64,
    pub(crate) starts: u64,
    pub(crate) simulated_ms: u64,
    pub(crate) acted: u64,
}

impl Counts {
    /// The names and the numbers.
    pub(crate) fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("requests", self.requests),
            ("unanswered", self.unanswered),
            ("lists", self.lists),
            ("expired", self.expired),
            ("watches", self.watches),
            ("events", self.events),
            ("changes", self.changes),
            ("faults", self.faults),
            ("starts", self.starts),
            ("simulated_ms", self.simulated_ms),
            ("acted", self.acted),
        ]
    }
}

/// A server and its machine.
struct Host {
    machine: Option<Machine>,
    standing: Arc<Mutex<Standing>>,
    stop: CancellationToken,
    is_paused: bool,
    /// The time of its next start, if it is down.
    starts_at: u64,
    shift: i64,
}

/// A simulation.
pub(crate) struct World {
    plan: Plan,
    now: u64,
    net: Net,
    store: SimStore,
    feed: Tail,
    truth: Truth,
    servers: Vec<Host>,
    clients: Machine,
    shared: Shared,
    tls: TlsConnector,
    pki: Pki,
    starts: u64,
    violations: Vec<Violation>,
    /// True while servers create the first objects of a new store.
    is_new: bool,
}

impl World {
    /// A simulation of this plan. Without a snapshot the store is empty.
    pub(crate) fn new(plan: Plan, pki: Pki, snapshot: Option<&MemorySnapshot>) -> anyhow::Result<Self> {
        machine::begin(plan.seed);
        let net = Net::new(plan.seed);
        net.enter();
        let store = SimStore::new(plan.seed, snapshot, plan.mutant);
        let from = snapshot.map_or(Revision::new(1), MemorySnapshot::revision);
        let feed = store.engine().tail(from).now_or_never().context("the engine in memory waits")??;
        let servers = (0..plan.servers).map(|_| Host {
            machine: None,
            standing: Arc::default(),
            stop: CancellationToken::new(),
            is_paused: false,
            starts_at: 0,
            shift: 0,
        });
        let servers = servers.collect();
        let shared = Shared {
            record: Arc::default(),
            trace: Trace::default(),
            processes: Arc::new((0..plan.servers).map(|_| AtomicU64::new(0)).collect()),
        };
        Ok(Self {
            now: 0,
            net,
            store,
            feed,
            truth: Truth::default(),
            servers,
            clients: Machine::new(Duration::ZERO)?,
            shared,
            tls: wire::tls(&pki)?,
            pki,
            starts: 0,
            violations: Vec::new(),
            is_new: snapshot.is_none(),
            plan,
        })
    }

    /// Creates the first objects of a new cluster. Returns its store.
    pub(crate) fn prepare(mut self) -> anyhow::Result<MemorySnapshot> {
        self.start_all()?;
        let client = Client::new(self.net.clone(), self.tls.clone(), 0, 1);
        let prepared = Arc::new(Mutex::new(None));
        let told = prepared.clone();
        self.clients.spawn(async move {
            let done = prepare::objects(client).await;
            *told.lock() = Some(done);
        });
        self.run_until(START_MS, |_| prepared.lock().is_some())?;
        match prepared.lock().take() {
            Some(Ok(())) => {}
            Some(Err(error)) => bail!("preparing the first objects: {error}"),
            None => bail!("the first objects were not prepared in time"),
        }
        self.servers[0].stop.cancel();
        self.run_until(START_MS, |world| world.servers[0].standing.lock().ended.is_some())?;
        Ok(self.store.engine().snapshot())
    }

    /// Runs the plan.
    pub(crate) fn run(mut self) -> anyhow::Result<Outcome> {
        self.start_all()?;
        let begun = self.now;
        self.start_clients();
        let (mut to_begin, mut to_end) = (self.plan.faults.clone(), self.plan.faults.clone());
        to_begin.sort_by_key(|fault| std::cmp::Reverse((fault.begin_ms, fault.number)));
        to_end.sort_by_key(|fault| std::cmp::Reverse((fault.end_ms, fault.number)));
        let last = begun + self.plan.healed_ms() + OPERATIONS_MS;
        loop {
            let since = self.now - begun;
            while let Some(fault) = to_begin.pop_if(|fault| fault.begin_ms <= since) {
                self.fault(&fault, true);
            }
            while let Some(fault) = to_end.pop_if(|fault| fault.end_ms <= since) {
                self.fault(&fault, false);
            }
            let is_done = self.shared.record.lock().ended >= self.plan.clients;
            if to_end.is_empty() && is_done {
                break;
            }
            if self.now > last {
                self.violations.push(Violation::new("liveness", "the operations do not end"));
                break;
            }
            self.tick()?;
        }
        self.settle()?;
        Ok(self.outcome())
    }

    fn outcome(mut self) -> Outcome {
        let record = std::mem::take(&mut *self.shared.record.lock());
        let mut violations = std::mem::take(&mut self.violations);
        violations.extend(std::mem::take(&mut *PANICS.lock()));
        violations.extend(check::all(&record, &self.truth));
        let counts = Counts {
            requests: record.requests.len() as u64,
            unanswered: record.unanswered,
            lists: record.lists.len() as u64,
            expired: record.expired,
            watches: record.watches.len() as u64,
            events: record.watches.iter().map(|watch| watch.steps.len() as u64).sum(),
            changes: self.truth.len() as u64,
            faults: self.plan.faults.len() as u64,
            starts: self.starts,
            simulated_ms: self.now,
            acted: self.store.acted(),
        };
        let delivered = self.net.delivered();
        self.shared.trace.line(format_args!("end: {counts:?}, {delivered} segments"));
        violations.iter().for_each(|violation| self.shared.trace.line(format_args!("! {violation:?}")));
        Outcome { violations, counts, trace: self.shared.trace.text() }
    }

    /// Starts all servers, and waits until they are ready.
    fn start_all(&mut self) -> anyhow::Result<()> {
        self.run_until(START_MS, |world| world.servers.iter().all(|host| host.standing.lock().is_ready))?;
        if self.servers.iter().any(|host| !host.standing.lock().is_ready) {
            bail!("the servers were not ready in time");
        }
        Ok(())
    }

    fn start_clients(&mut self) {
        let (servers, clients) = (self.plan.servers, self.plan.clients);
        for number in 0..clients {
            let steps = self.plan.steps.iter().filter(|step| step.client == number).copied().collect();
            let worker = Worker::new(number, self.client(number), self.shared.clone());
            self.clients.spawn(worker.run(steps));
        }
        for (place, kind) in Kind::ALL.iter().enumerate() {
            for number in place * WATCHERS..(place + 1) * WATCHERS {
                let client = Client::new(self.net.clone(), self.tls.clone(), number % clients, servers);
                let dice = Dice::new(self.plan.seed, "watcher", number as u64);
                let watcher = Watcher { number, kind: *kind, client, shared: self.shared.clone(), dice };
                self.clients.spawn(watcher.run());
            }
        }
    }

    fn client(&self, number: usize) -> Client {
        Client::new(self.net.clone(), self.tls.clone(), number, self.plan.servers)
    }

    /// After the faults: every server serves, and every watcher sees the last change.
    fn settle(&mut self) -> anyhow::Result<()> {
        self.shared.trace.line(format_args!("settling"));
        let probe = Worker::new(0, self.client(0), self.shared.clone());
        self.clients.spawn(probe.probe(self.plan.servers));
        self.run_until(SETTLE_MS, |world| world.unsettled().is_none())?;
        if let Some(why) = self.unsettled() {
            self.violations.push(Violation::new("liveness", why));
        }
        Ok(())
    }

    /// The reason for which the world has not settled.
    fn unsettled(&self) -> Option<String> {
        let record = self.shared.record.lock();
        if record.probed == 0 {
            return Some("a server does not serve after the faults".to_owned());
        }
        if let Some(number) = self.servers.iter().position(|host| !host.standing.lock().is_ready) {
            return Some(format!("server {number} is not ready after the faults"));
        }
        (0..Kind::ALL.len() * WATCHERS).find_map(|number| {
            let Some((kind, position)) = record.positions.get(&number) else {
                return Some(format!("watcher {number} has not begun"));
            };
            let last = self.truth.last(*kind);
            (*position < last).then(|| format!("watcher {number} of {kind:?} is at {position} of {last}"))
        })
    }

    /// Runs until a condition holds, for at most this time.
    fn run_until(&mut self, milliseconds: u64, is_met: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let end = self.now + milliseconds;
        while self.now < end && !is_met(self) {
            self.tick()?;
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.now += TICK_MS;
        let (now, step) = (Duration::from_millis(self.now), Duration::from_millis(TICK_MS));
        machine::set(now, 0);
        self.shared.trace.set(self.now);
        self.net.advance(self.now);
        self.store.advance(self.now);
        self.look()?;
        let count = self.servers.len();
        let first = Dice::at(self.plan.seed, "turns", self.now, 0).index(count + 1);
        for place in (0..=count).map(|place| (first + place) % (count + 1)) {
            match self.servers.get_mut(place) {
                None => self.clients.run_to(now, step),
                Some(host) if host.is_paused => {}
                Some(host) => {
                    if let Some(machine) = &mut host.machine {
                        machine.shift = host.shift;
                        machine.run_to(now, step);
                    }
                }
            }
            self.follow_store();
        }
        machine::set(now, 0);
        Ok(())
    }

    /// Notices servers that have ended, and starts those that are due.
    fn look(&mut self) -> anyhow::Result<()> {
        for number in 0..self.servers.len() {
            let host = &mut self.servers[number];
            let (ended, failed) = {
                let mut standing = host.standing.lock();
                (standing.ended.take(), standing.failed.take())
            };
            if let Some(why) = failed {
                self.violations.push(Violation::new("server", format!("server {number} has failed: {why}")));
            }
            if let Some(why) = ended {
                self.shared.trace.line(format_args!("server {number} has ended: {why}"));
                if !self.is_new {
                    let starts_at = host.starts_at.max(self.now + RESTART_MS);
                    self.end_process(number, 1, starts_at);
                } else {
                    // The preparation waits for this end.
                    host.standing.lock().ended = Some(why);
                }
            }
            let host = &self.servers[number];
            if host.machine.is_none() && host.starts_at <= self.now {
                self.start(number)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize) -> anyhow::Result<()> {
        self.starts += 1;
        self.shared.processes[number].store(self.starts, Ordering::Relaxed);
        self.shared.trace.line(format_args!("server {number} starts as process {}", self.starts));
        let config = self.config(number);
        let host = &mut self.servers[number];
        host.standing = Arc::default();
        host.stop = CancellationToken::new();
        machine::set(Duration::from_millis(self.now), host.shift);
        let machine = Machine::new(Duration::from_millis(self.now))?;
        machine.spawn(serve(config, host.standing.clone(), host.stop.clone()));
        host.machine = Some(machine);
        Ok(())
    }

    fn config(&self, number: usize) -> Config {
        let mut config = Config {
            transport: Some(self.net.listen(Node::Server(number))),
            store: StoreConfig::Shared(Arc::new(self.store.reached_by(number))),
            made_pki: Some(self.pki.clone()),
            server_id: format!("server-{number}"),
            bootstrapped: !self.is_new,
            identity_duration: Duration::from_secs(12),
            identity_interval: Duration::from_secs(3),
            history: Duration::from_secs(25),
            leadership: LeadershipTimes {
                lease: Duration::from_secs(6),
                renewal: Duration::from_secs(4),
                interval: Duration::from_secs(1),
            },
            shutdown_grace: Duration::from_secs(3),
            console: false,
            random: Arc::new(SeededRandom::new(self.plan.seed ^ self.starts.wrapping_mul(0x9e37_79b9))),
            ..Config::default()
        };
        config.registry.storage_version_api = false;
        config
    }

    /// Ends the process of a server. Its clients learn of it after a time.
    fn end_process(&mut self, number: usize, silent_ms: u64, starts_at: u64) {
        let host = &mut self.servers[number];
        host.standing.lock().is_ready = false;
        (host.starts_at, host.is_paused) = (starts_at, false);
        self.net.down(Node::Server(number), silent_ms);
        if let Some(machine) = host.machine.take() {
            machine.kill();
            machine::set(Duration::from_millis(self.now), 0);
            self.store.server_died(number);
        }
    }

    /// Reads what the store has committed.
    fn follow_store(&mut self) {
        while let Some(Some(batch)) = self.feed.next().now_or_never() {
            let events = match batch {
                Ok(batch) => batch.events,
                Err(error) => return self.violations.push(Violation::new("simulation", error.to_string())),
            };
            for event in events {
                let revision = event.revision.get();
                match self.truth.add(&event) {
                    Some(change) => self.shared.trace.line(format_args!("store {revision} {change}")),
                    None => self.shared.trace.line(format_args!("store {revision} {}", event.key)),
                }
            }
        }
    }

    fn fault(&mut self, planned: &PlannedFault, begins: bool) {
        let verb = if begins { "begins" } else { "ends" };
        self.shared.trace.line(format_args!("{planned} {verb}"));
        let end = self.now + planned.end_ms.saturating_sub(planned.begin_ms);
        match planned.fault {
            Fault::Kill { server, silent_ms } if begins => self.end_process(server, silent_ms, end),
            Fault::KillAll if begins => (0..self.servers.len()).for_each(|server| self.end_process(server, 5, end)),
            Fault::Stop { server } if begins => {
                self.servers[server].starts_at = end;
                self.servers[server].stop.cancel();
            }
            Fault::Pause { server } => {
                self.servers[server].is_paused = begins && self.servers[server].machine.is_some();
            }
            Fault::CutTo { server, client } => self.cut(server, client, begins, true),
            Fault::CutFrom { server, client } => self.cut(server, client, begins, false),
            Fault::StoreDown { server } => self.store.change(server, |way| way.is_down = begins),
            Fault::Outage => self.change_all(|way| way.is_down = begins),
            Fault::StoreStalls { server } => self.store.change(server, |way| way.is_stalled = begins),
            Fault::StoreSlow { milliseconds } => {
                self.change_all(|way| way.slow_ms = if begins { milliseconds } else { 0 });
            }
            Fault::AnswersLost { server, of_thousand } => {
                self.store.change(server, |way| way.lost = if begins { of_thousand } else { 0 });
            }
            Fault::FeedBreaks { server } if begins => self.store.change(server, |way| way.breaks += 1),
            Fault::FeedLags { server, milliseconds } => {
                self.store.change(server, |way| way.lag_ms = if begins { milliseconds } else { 0 });
            }
            Fault::Compaction if begins => {
                self.follow_store();
                self.store.compact_all();
            }
            Fault::ClockJumps { server, seconds } => self.servers[server].shift = if begins { seconds } else { 0 },
            Fault::NetSlow { milliseconds } => self.net.slow(if begins { milliseconds } else { 0 }),
            Fault::Kill { .. } | Fault::KillAll | Fault::Stop { .. } | Fault::FeedBreaks { .. } | Fault::Compaction => {
            }
        }
    }

    fn change_all(&self, change: impl Fn(&mut crate::store::Way)) {
        (0..self.plan.servers).for_each(|server| self.store.change(server, &change));
    }

    fn cut(&self, server: usize, client: Option<usize>, is_cut: bool, to: bool) {
        let server = Node::Server(server);
        for client in client.map_or(0..self.plan.clients, |client| client..client + 1).map(Node::Client) {
            let (from, to) = if to { (client, server) } else { (server, client) };
            self.net.cut(from, to, is_cut);
        }
    }
}

impl Outcome {
    /// The number by which traces are compared.
    pub(crate) fn digest(&self) -> u64 {
        keelson_meta::fnv1a(&self.trace)
    }
}
