//! The election of the server that runs the controllers, in discrete time.
//!
//! A leader renews its lease. Its deadline counts from the start of its last successful attempt. Another server takes
//! the lease after it has not seen a change for the whole duration, by its own clock. Writes may take any time to reach
//! the store, answers may take any time or get lost, and servers see a lease late. Clocks run at the same speed and
//! show different times.
//!
//! Code: `crates/controllers/src/leadership.rs`.

use stateright::{Model, Property};

/// The validity of a lease without a renewal, in ticks.
const LEASE: u8 = 4;
/// The time limit of a leader's renewals, in ticks.
const RENEWAL: u8 = 3;
/// The last tick of the model.
const END: u8 = 10;
/// The difference between the clocks of the two servers, in ticks.
const SKEW: u8 = 3;
/// The number of servers.
const SERVERS: usize = 2;

/// The rules of the model, or one broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// All rules hold.
    Correct,
    /// A leader's deadline counts from the answer to its renewal.
    DeadlineFromAnswer,
    /// A server compares the time of the renewal in the lease with its own clock.
    StatedTime,
    /// A leader has no deadline, and stops only after a conflict.
    NoDeadline,
    /// A lease is written without a comparison of its revision.
    NoCompare,
}

/// The model of two servers and one lease.
pub struct LeaderElection(pub Variant);

/// A write of the lease that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The tick of its start.
    began: u8,
    /// True while the lease is at the revision that the write replaces.
    is_current: bool,
    /// Its result, once the store has processed it: true if the lease was written.
    result: Option<bool>,
}

/// A server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The tick from which the deadline of its leadership counts.
    leads: Option<u8>,
    /// The tick at which it first saw the lease at its present revision.
    observed: Option<u8>,
    attempt: Option<Attempt>,
    /// The start of a write that it gave up, and that the store has not processed.
    late: Option<u8>,
}

/// A state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    holder: Option<usize>,
    /// The time of the last write of the lease by the holder's clock. 0 in variants that do not read it, since it
    /// multiplies the states.
    stated: u8,
    /// True if a server has taken the lease of another.
    is_taken_over: bool,
    servers: [Server; SERVERS],
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes. A leader whose deadline is reached stops in the same step.
    Tick,
    /// A server reads the lease.
    Observe(usize),
    /// A server begins to write the lease.
    Attempt(usize),
    /// The store processes a server's write.
    Process(usize),
    /// A server gets the answer to its write.
    Answer(usize),
    /// A server gives up its write, whose outcome it does not know.
    GiveUp(usize),
    /// The store processes a write that its server gave up.
    ProcessLate(usize),
}

impl LeaderElection {
    /// The clock of a server.
    fn clock(server: usize, now: u8) -> u8 {
        if server == 0 { now } else { now + SKEW }
    }

    /// True if a server may write the lease now: it holds or leads it, it is free, or it has not changed for its whole
    /// duration.
    fn may_write(&self, state: &State, place: usize) -> bool {
        let Server { leads, observed, attempt, .. } = state.servers[place];
        let is_free = match self.0 {
            Variant::StatedTime => Self::clock(place, state.now) >= state.stated + LEASE,
            _ => observed.is_some_and(|since| state.now >= since + LEASE),
        };
        let is_own = leads.is_some() || state.holder.is_none_or(|holder| holder == place);
        attempt.is_none() && (is_own || (observed.is_some() && is_free))
    }

    /// Writes the lease for a server. All other writes and observations are then of an older revision.
    fn write(&self, state: &mut State, place: usize, began: u8) {
        state.is_taken_over |= state.holder.is_some_and(|holder| holder != place);
        state.holder = Some(place);
        if self.0 == Variant::StatedTime {
            state.stated = Self::clock(place, began);
        }
        for server in &mut state.servers {
            server.observed = None;
            if self.0 == Variant::NoCompare {
                continue;
            }
            server.late = None;
            if let Some(attempt) = &mut server.attempt {
                attempt.is_current = false;
            }
        }
    }

    fn answer(&self, state: &mut State, place: usize) -> Option<()> {
        let now = state.now;
        let server = &mut state.servers[place];
        let attempt = server.attempt.take()?;
        let from = if self.0 == Variant::DeadlineFromAnswer { now } else { attempt.began };
        server.leads = attempt.result?.then_some(from);
        self.stop_late(server, now);
        Some(())
    }

    /// Ends the leadership of a server at its deadline.
    fn stop_late(&self, server: &mut Server, now: u8) {
        if self.0 != Variant::NoDeadline && server.leads.is_some_and(|from| now >= from + RENEWAL) {
            server.leads = None;
        }
    }
}

impl Model for LeaderElection {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let servers = [Server::default(); SERVERS];
        vec![State { now: 0, holder: None, stated: 0, is_taken_over: false, servers }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        for (place, server) in state.servers.iter().enumerate() {
            if server.observed.is_none() {
                actions.push(Action::Observe(place));
            }
            if self.may_write(state, place) {
                actions.push(Action::Attempt(place));
            }
            if let Some(attempt) = server.attempt {
                actions.push(if attempt.result.is_none() { Action::Process(place) } else { Action::Answer(place) });
                if server.late.is_none() {
                    actions.push(Action::GiveUp(place));
                }
            }
            if server.late.is_some() {
                actions.push(Action::ProcessLate(place));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => {
                state.now += 1;
                for server in &mut state.servers {
                    self.stop_late(server, state.now);
                }
            }
            Action::Observe(place) => state.servers[place].observed = Some(state.now),
            Action::Attempt(place) => {
                // A leader that has lost its lease replaces the revision that it knows, and gets a conflict.
                let is_current = last.servers[place].leads.is_none() || last.holder == Some(place);
                state.servers[place].attempt = Some(Attempt { began: state.now, is_current, result: None });
            }
            Action::Process(place) => {
                let attempt = state.servers[place].attempt?;
                let is_written = attempt.is_current || self.0 == Variant::NoCompare;
                if is_written {
                    self.write(&mut state, place, attempt.began);
                }
                state.servers[place].attempt = Some(Attempt { result: Some(is_written), ..attempt });
            }
            Action::Answer(place) => self.answer(&mut state, place)?,
            Action::GiveUp(place) => {
                let server = &mut state.servers[place];
                let attempt = server.attempt.take()?;
                let may_pass = attempt.is_current && attempt.result.is_none();
                server.late = may_pass.then_some(if self.0 == Variant::StatedTime { attempt.began } else { 0 });
            }
            Action::ProcessLate(place) => {
                let began = state.servers[place].late.take()?;
                self.write(&mut state, place, began);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one server leads", |_, state: &State| {
                state.servers.iter().filter(|server| server.leads.is_some()).count() <= 1
            }),
            Property::sometimes("a server leads after another", |_, state: &State| {
                state.is_taken_over && state.servers.iter().any(|server| server.leads.is_some())
            }),
            Property::sometimes("a leader renews its lease", |_, state: &State| {
                state.servers.iter().any(|server| server.leads.is_some_and(|from| from > RENEWAL))
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{assert_broken, assert_holds};

    #[test]
    fn at_most_one_server_leads_in_all_states() {
        assert_holds(LeaderElection(Variant::Correct), 988_728);
    }

    #[test]
    fn each_broken_rule_of_the_election_is_found() {
        for broken in [Variant::DeadlineFromAnswer, Variant::StatedTime, Variant::NoDeadline, Variant::NoCompare] {
            assert_broken(LeaderElection(broken), &format!("{broken:?}"));
        }
    }
}
