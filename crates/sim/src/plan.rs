//! The plan of a run: the operations of the clients and the faults, all drawn from the seed before the run.
//!
//! Each operation and each fault has a number, so that a part of a plan can be run alone. The shrinker uses that.

use std::collections::BTreeSet;
use std::fmt;

use crate::dice::Dice;
use crate::mutant::Mutant;

/// The objects of each kind that the clients share.
pub(crate) const OBJECTS: usize = 3;
/// The time in which faults begin, in milliseconds from the start of the clients.
const FAULTS_MS: u64 = 36_000;
/// The operations of each client.
const OPERATIONS: u64 = 55;
/// The times at which several clients write one object at once.
const MEETINGS: u64 = 30;
/// The longest pause before an operation, in milliseconds.
const PAUSE_MS: u64 = 1300;
/// The longest pause within a burst of operations.
const BURST_MS: u64 = 30;

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Lease,
    Widget,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::ConfigMap, Self::Lease, Self::Widget];

    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::ConfigMap => "v1",
            Self::Lease => "coordination.k8s.io/v1",
            Self::Widget => "sim.example.com/v1",
        }
    }

    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Lease => "leases",
            Self::Widget => "widgets",
        }
    }

    /// The path of the collection.
    pub(crate) fn path(self) -> String {
        let root = if self == Self::ConfigMap { "/api" } else { "/apis" };
        format!("{root}/{}/namespaces/sim/{}", self.api_version(), self.plural())
    }
}

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Create,
    /// An update of the version that was read last.
    Update,
    /// An update that names no version.
    UpdateAny,
    Patch,
    Apply,
    Delete,
    /// A deletion of the version that was read last.
    DeleteRead,
    /// A list of the newest state.
    List,
    /// A list of any state (`resourceVersion=0`).
    ListAny,
    /// A list in chunks of this size, each from another server.
    Walk(u8),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) number: usize,
    pub(crate) client: usize,
    /// The time of its begin, if the client has ended the one before, in milliseconds.
    pub(crate) begin_ms: u64,
    pub(crate) server: usize,
    pub(crate) kind: Kind,
    pub(crate) object: usize,
    pub(crate) verb: Verb,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, client, begin_ms, server, kind, object, verb } = self;
        let plural = kind.plural();
        write!(f, "o{number}: at {begin_ms} ms client {client} sends {verb:?} {plural}/{object} to server {server}")
    }
}

/// A fault with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies. Its clients learn of it after some milliseconds.
    Kill { server: usize, silent_ms: u64 },
    /// All processes die.
    KillAll,
    /// The process gets the signal to stop in order.
    Stop { server: usize },
    /// The process does not run for a time, as after SIGSTOP.
    Pause { server: usize },
    /// No segment reaches the server from a client, or from all.
    CutTo { server: usize, client: Option<usize> },
    /// No segment leaves the server for a client, or for all.
    CutFrom { server: usize, client: Option<usize> },
    /// The store does not answer one server.
    StoreDown { server: usize },
    /// The store does not answer any server.
    Outage,
    /// Requests of one server to the store wait.
    StoreStalls { server: usize },
    /// The store is slow for all servers.
    StoreSlow { milliseconds: u64 },
    /// Answers of commits are lost.
    AnswersLost { server: usize, of_thousand: u64 },
    /// The feed of a server breaks.
    FeedBreaks { server: usize },
    /// The feed of a server comes later than the answers to its calls.
    FeedLags { server: usize, milliseconds: u64 },
    /// All history of the store is compacted.
    Compaction,
    /// The wall clock of a server jumps, and jumps back at the end.
    ClockJumps { server: usize, seconds: i64 },
    /// The network is slow.
    NetSlow { milliseconds: u64 },
}

/// A fault of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedFault {
    pub(crate) number: usize,
    pub(crate) begin_ms: u64,
    pub(crate) end_ms: u64,
    pub(crate) fault: Fault,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, begin_ms, end_ms, fault } = self;
        write!(f, "f{number}: {fault:?} from {begin_ms} to {end_ms} ms")
    }
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) servers: usize,
    pub(crate) clients: usize,
    pub(crate) steps: Vec<Step>,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) mutant: Option<Mutant>,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut dice = Dice::new(seed, "plan", 0);
        let (servers, clients) = (2 + dice.index(2), 3 + dice.index(2));
        let mut dice = Dice::new(seed, "meetings", 0);
        let meetings: Vec<(u64, Kind, usize)> =
            (0..MEETINGS).map(|_| (dice.within(0..FAULTS_MS), Kind::ALL[dice.index(3)], dice.index(OBJECTS))).collect();
        let mut steps = Vec::new();
        for client in 0..clients {
            let mut dice = Dice::new(seed, "client", client as u64);
            // A client prefers one kind, so that some objects are contended.
            let preferred = Kind::ALL[dice.index(3)];
            let mut begin_ms = 0;
            for _ in 0..OPERATIONS {
                let kind = if dice.chance(500) { preferred } else { Kind::ALL[dice.index(3)] };
                begin_ms += if dice.chance(400) { dice.within(0..BURST_MS) } else { dice.within(0..PAUSE_MS) };
                let step = Step {
                    number: 0,
                    client,
                    begin_ms,
                    server: dice.index(servers),
                    kind,
                    object: dice.index(OBJECTS),
                    verb: verb(&mut dice),
                };
                steps.push(step);
            }
            for (begin_ms, kind, object) in &meetings {
                if dice.chance(700) {
                    let (server, verb) = (dice.index(servers), writing_verb(&mut dice));
                    let (begin_ms, kind, object) = (*begin_ms, *kind, *object);
                    steps.push(Step { number: 0, client, begin_ms, server, kind, object, verb });
                }
            }
        }
        steps.sort_by_key(|step| (step.client, step.begin_ms));
        (0..).zip(&mut steps).for_each(|(number, step)| step.number = number);
        let mut dice = Dice::new(seed, "faults", 0);
        let count = dice.within(2..14) as usize;
        let mut faults: Vec<PlannedFault> = (0..count).map(|_| fault(&mut dice, servers, clients)).collect();
        faults.sort_by_key(|fault| fault.begin_ms);
        (0..).zip(&mut faults).for_each(|(number, fault)| fault.number = number);
        Self { seed, servers, clients, steps, faults, mutant }
    }

    /// The names of all parts.
    pub(crate) fn parts(&self) -> Vec<String> {
        let faults = self.faults.iter().map(|fault| format!("f{}", fault.number));
        faults.chain(self.steps.iter().map(|step| format!("o{}", step.number))).collect()
    }

    /// The plan with only these parts.
    pub(crate) fn only(&self, parts: &BTreeSet<String>) -> Self {
        let mut plan = self.clone();
        plan.faults.retain(|fault| parts.contains(&format!("f{}", fault.number)));
        plan.steps.retain(|step| parts.contains(&format!("o{}", step.number)));
        plan
    }

    /// The time after which no fault is left, in milliseconds.
    pub(crate) fn healed_ms(&self) -> u64 {
        self.faults.iter().map(|fault| fault.end_ms).max().unwrap_or(0)
    }
}

fn verb(dice: &mut Dice) -> Verb {
    match dice.within(0..100) {
        0..20 => Verb::Get,
        20..32 => Verb::Create,
        32..46 => Verb::Update,
        46..52 => Verb::UpdateAny,
        52..60 => Verb::Patch,
        60..68 => Verb::Apply,
        68..73 => Verb::Delete,
        73..78 => Verb::DeleteRead,
        78..86 => Verb::List,
        86..91 => Verb::ListAny,
        _ => Verb::Walk(1 + dice.index(2) as u8),
    }
}

fn writing_verb(dice: &mut Dice) -> Verb {
    loop {
        match verb(dice) {
            Verb::Get | Verb::List | Verb::ListAny | Verb::Walk(_) => {}
            verb => return verb,
        }
    }
}

fn fault(dice: &mut Dice, servers: usize, clients: usize) -> PlannedFault {
    let begin_ms = dice.within(500..FAULTS_MS);
    let server = dice.index(servers);
    let client = dice.chance(500).then(|| dice.index(clients));
    let (fault, longest_ms) = match dice.within(0..16) {
        0 if dice.chance(300) => (Fault::KillAll, 3000),
        0 | 1 => (Fault::Kill { server, silent_ms: if dice.chance(700) { 5 } else { dice.within(1000..8000) } }, 6000),
        2 => (Fault::Stop { server }, 6000),
        // Longer than the leases of servers and of their controllers.
        3 => (Fault::Pause { server }, 20_000),
        4 => (Fault::CutTo { server, client }, 9000),
        5 => (Fault::CutFrom { server, client }, 9000),
        6 => (Fault::StoreDown { server }, 15_000),
        7 if dice.chance(500) => (Fault::Outage, 5000),
        7 => (Fault::FeedBreaks { server }, 100),
        8 => (Fault::StoreStalls { server }, 15_000),
        9 => (Fault::StoreSlow { milliseconds: dice.within(20..400) }, 15_000),
        10 => (Fault::AnswersLost { server, of_thousand: dice.within(50..600) }, 15_000),
        11 => (Fault::Compaction, 100),
        12 | 13 => (Fault::FeedLags { server, milliseconds: dice.within(50..2500) }, 20_000),
        14 => (Fault::ClockJumps { server, seconds: [-7200, -30, 45, 7200][dice.index(4)] }, 15_000),
        _ => (Fault::NetSlow { milliseconds: dice.within(20..700) }, 9000),
    };
    PlannedFault { number: 0, begin_ms, end_ms: begin_ms + dice.within(50..longest_ms.max(51)), fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_parts_can_be_left_out() {
        let plan = Plan::new(7, None);
        assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::new(7, None)));
        assert_ne!(format!("{plan:?}"), format!("{:?}", Plan::new(8, None)));
        let parts: BTreeSet<String> = ["f1", "o3", "o40"].map(str::to_owned).into();
        let part = plan.only(&parts);
        assert_eq!((part.faults.len(), part.steps.len()), (1, 2));
        assert_eq!(part.parts(), ["f1", "o3", "o40"]);
    }
}
