//! The barrier of storage versions (KEP-2339), the fence of server identities, and the end of a migration.
//!
//! A server registers an identity, publishes the version that it writes, and opens the gate for its writes. Every
//! transaction compares the identity. Others delete the identity of a silent server, and then its published version, on
//! the condition that the identity is still absent. A migration reads the agreement, rewrites the objects, and writes its
//! end on the condition that the agreement is unchanged. Its end shortens the versions that the definition lists.
//!
//! Code: `crates/storage/src/fence.rs`, `crates/registry/src/encodings.rs`, and in `crates/controllers/src`
//! `identity.rs` and `storage_versions`.

use stateright::{Model, Property};

/// The number of servers.
const SERVERS: usize = 2;
/// The most registrations of each server.
const REGISTRATIONS: u8 = 2;

/// The rules of the model, or one broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// All rules hold.
    Correct,
    /// Transactions do not compare the identity.
    NoFence,
    /// The gate opens before the version is published.
    OpenBeforePublish,
    /// A server registers again without closing its gate and waiting for its writes.
    NoClosing,
    /// A server changes its version without waiting for the writes under way.
    NoDrain,
    /// A published version is deleted without the condition that the identity is absent.
    CollectWithoutCompare,
    /// A migration ends without the condition that the agreement is unchanged.
    EndWithoutCompare,
    /// A migration looks for old objects before it reads the agreement.
    LookBeforeAgreement,
    /// A version is published without the condition that the definition lists it.
    PublishUnlisted,
}

/// The model of servers, one object, and one migration.
pub struct StorageVersions(pub Variant);

/// A version in which objects are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// The version of the older release.
    Old,
    /// The version of the newer release.
    New,
}

/// A write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    version: Version,
    registration: u8,
}

/// A server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// The version that it would write.
    encodes: Version,
    /// The number of its registration, as it knows it. 0 before the first.
    registration: u8,
    /// False once a compare of the identity has failed, until it registers again.
    has_identity: bool,
    /// The version for which its gate is open.
    gate: Option<Version>,
    write: Option<Write>,
    /// A write of its earlier process, which was killed.
    orphan: Option<Write>,
}

/// The migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Migration {
    /// It has not begun.
    Idle,
    /// It has seen that no object is in another version, before it read the agreement. Only in a broken variant.
    Looked(Version),
    /// It has read the agreement. True while the agreement is unchanged, also below.
    Agreed(Version, bool),
    /// It has seen that no object is in another version.
    Clean(Version, bool),
    /// It has ended.
    Ended(Version, bool),
}

/// A state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The stored identity of each server.
    identities: [Option<u8>; SERVERS],
    /// The published version of each server.
    published: [Option<Version>; SERVERS],
    /// Servers whose identity another server saw absent, and whose published version it will delete.
    found_dead: [bool; SERVERS],
    /// The listed versions, as `[old, new]`.
    listed: [bool; 2],
    object: Version,
    /// True if a write was committed in a version that its server had not published.
    is_unpublished: bool,
    servers: [Server; SERVERS],
    migration: Migration,
}

/// A step of the model. The number is that of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It writes its identity.
    Register(usize),
    /// Others delete its identity.
    Expire(usize),
    /// Another server sees that its identity is absent.
    FindDead(usize),
    /// Another server deletes its published version.
    Collect(usize),
    /// It publishes its version.
    Publish(usize),
    /// It opens its gate.
    Open(usize),
    /// It begins a write.
    Begin(usize),
    /// The store processes its write.
    Commit(usize),
    /// The store processes a write of its earlier process.
    CommitOrphan(usize),
    /// It changes to the other version, without a restart: the definition names another storage version.
    Change(usize),
    /// It is killed, and starts again in the other version.
    Restart(usize),
    /// The definition lists both versions, since its author changes the storage version.
    List,
    /// The migration's next step.
    Migrate,
}

const fn other(version: Version) -> Version {
    match version {
        Version::Old => Version::New,
        Version::New => Version::Old,
    }
}

impl State {
    /// Changes the published version of a server, and so the agreement.
    fn set_published(&mut self, place: usize, version: Option<Version>) {
        if self.published[place] != version {
            self.published[place] = version;
            if let Migration::Agreed(_, stands) | Migration::Clean(_, stands) | Migration::Ended(_, stands) =
                &mut self.migration
            {
                *stands = false;
            }
        }
    }
}

impl StorageVersions {
    /// The version on which all published versions agree.
    fn agreement(state: &State) -> Option<Version> {
        let mut published = state.published.iter().flatten();
        let first = *published.next()?;
        published.all(|version| *version == first).then_some(first)
    }

    /// True if the store accepts a transaction of this registration.
    fn passes_fence(&self, state: &State, server: usize, registration: u8) -> bool {
        self.0 == Variant::NoFence || state.identities[server] == Some(registration)
    }

    fn publish(&self, state: &mut State, place: usize) -> Option<()> {
        let server = &mut state.servers[place];
        if !server.has_identity || (server.write.is_some() && self.0 != Variant::NoDrain) {
            return None;
        }
        let is_listed = state.listed[server.encodes as usize] || self.0 == Variant::PublishUnlisted;
        let (encodes, registration) = (server.encodes, server.registration);
        if !is_listed || state.published[place] == Some(encodes) {
            return None;
        }
        if self.passes_fence(state, place, registration) {
            state.set_published(place, Some(encodes));
        } else {
            state.servers[place].has_identity = false;
        }
        Some(())
    }

    fn open(&self, state: &mut State, place: usize) -> Option<()> {
        let server = &mut state.servers[place];
        let knows = state.published[place] == Some(server.encodes) || self.0 == Variant::OpenBeforePublish;
        if !server.has_identity || !knows || server.gate == Some(server.encodes) {
            return None;
        }
        server.gate = Some(server.encodes);
        Some(())
    }

    fn commit(&self, state: &mut State, place: usize, write: Write) {
        if self.passes_fence(state, place, write.registration) {
            state.object = write.version;
            state.is_unpublished |= state.published[place] != Some(write.version);
        } else if state.servers[place].registration == write.registration {
            state.servers[place].has_identity = false;
        }
    }

    fn register(&self, state: &mut State, place: usize) -> Option<()> {
        let server = &mut state.servers[place];
        let may_keep_gate = self.0 == Variant::NoClosing;
        if server.has_identity || server.registration == REGISTRATIONS || (server.write.is_some() && !may_keep_gate) {
            return None;
        }
        if !may_keep_gate {
            server.gate = None;
        }
        server.registration += 1;
        server.has_identity = true;
        state.identities[place] = Some(server.registration);
        Some(())
    }

    fn change(&self, state: &mut State, place: usize) -> Option<()> {
        let server = &mut state.servers[place];
        if (server.write.is_some() && self.0 != Variant::NoDrain) || !state.listed[other(server.encodes) as usize] {
            return None;
        }
        server.gate = None;
        server.encodes = other(server.encodes);
        Some(())
    }

    fn restart(state: &mut State, place: usize) -> Option<()> {
        let server = &mut state.servers[place];
        if server.orphan.is_some() || server.registration == 0 || server.registration == REGISTRATIONS {
            return None;
        }
        let encodes = other(server.encodes);
        *server = Server { encodes, has_identity: false, gate: None, write: None, orphan: server.write, ..*server };
        Some(())
    }

    fn collect(&self, state: &mut State, place: usize) -> Option<()> {
        if !state.found_dead[place] {
            return None;
        }
        state.found_dead[place] = false;
        if state.identities[place].is_none() || self.0 == Variant::CollectWithoutCompare {
            state.set_published(place, None);
        }
        Some(())
    }

    fn migrate(&self, state: &mut State) -> Option<()> {
        let early = self.0 == Variant::LookBeforeAgreement;
        state.migration = match state.migration {
            Migration::Idle if early => Migration::Looked(state.object),
            Migration::Idle => Migration::Agreed(Self::agreement(state)?, true),
            Migration::Looked(version) if Self::agreement(state)? == version => Migration::Clean(version, true),
            Migration::Looked(_) => Migration::Idle,
            Migration::Agreed(version, stands) if state.object == version => Migration::Clean(version, stands),
            Migration::Agreed(version, stands) => {
                // A rewrite is a write of a server with an open gate.
                let writer =
                    state.servers.iter().position(|server| server.has_identity && server.gate == Some(version))?;
                let registration = state.servers[writer].registration;
                self.commit(state, writer, Write { version, registration });
                Migration::Agreed(version, stands)
            }
            Migration::Clean(version, stands) if stands || self.0 == Variant::EndWithoutCompare => {
                state.listed = [version == Version::Old, version == Version::New];
                Migration::Ended(version, true)
            }
            Migration::Clean(..) => Migration::Idle,
            Migration::Ended(..) => return None,
        };
        Some(())
    }
}

impl Model for StorageVersions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = Server {
            encodes: Version::Old,
            registration: 0,
            has_identity: false,
            gate: None,
            write: None,
            orphan: None,
        };
        vec![State {
            identities: [None; SERVERS],
            published: [None; SERVERS],
            found_dead: [false; SERVERS],
            listed: [true, false],
            object: Version::Old,
            is_unpublished: false,
            servers: [server; SERVERS],
            migration: Migration::Idle,
        }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::List, Action::Migrate]);
        for server in 0..SERVERS {
            actions.extend([
                Action::Register(server),
                Action::Expire(server),
                Action::FindDead(server),
                Action::Collect(server),
                Action::Publish(server),
                Action::Open(server),
                Action::Begin(server),
                Action::Commit(server),
                Action::CommitOrphan(server),
                Action::Change(server),
                Action::Restart(server),
            ]);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Register(place) => self.register(&mut state, place)?,
            Action::Expire(place) => drop(state.identities[place].take()?),
            Action::FindDead(place) => {
                let is_dead = state.identities[place].is_none() && state.published[place].is_some();
                state.found_dead[place] = (is_dead && !last.found_dead[place]).then_some(true)?;
            }
            Action::Collect(place) => self.collect(&mut state, place)?,
            Action::Publish(place) => self.publish(&mut state, place)?,
            Action::Open(place) => self.open(&mut state, place)?,
            Action::Begin(place) => {
                let server = &mut state.servers[place];
                let (version, registration) = (server.gate?, server.registration);
                server.write = server.write.is_none().then_some(Some(Write { version, registration }))?;
            }
            Action::Commit(place) => {
                let write = state.servers[place].write.take()?;
                self.commit(&mut state, place, write);
            }
            Action::CommitOrphan(place) => {
                let write = state.servers[place].orphan.take()?;
                self.commit(&mut state, place, write);
            }
            Action::Change(place) => self.change(&mut state, place)?,
            Action::Restart(place) => Self::restart(&mut state, place)?,
            Action::List => state.listed = [true, true],
            Action::Migrate => self.migrate(&mut state)?,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no object is stored in a version that its server has not published",
                |_, state: &State| !state.is_unpublished,
            ),
            Property::always(
                "while the agreement of an ended migration stands, no object is old",
                |_, state: &State| match state.migration {
                    Migration::Ended(version, stands) => !stands || state.object == version,
                    _ => true,
                },
            ),
            Property::always("the definition lists the version of each object", |_, state: &State| {
                state.listed[state.object as usize]
            }),
            Property::sometimes("a migration ends in the new version", |_, state: &State| {
                matches!(state.migration, Migration::Ended(Version::New, _))
            }),
            Property::sometimes("a server that was declared dead writes again", |_, state: &State| {
                state.servers.iter().any(|server| server.registration == REGISTRATIONS && server.gate.is_some())
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{assert_broken, assert_holds};

    #[test]
    fn the_barrier_of_versions_holds_in_all_states() {
        assert_holds(StorageVersions(Variant::Correct), 1_290_554);
    }

    #[test]
    fn each_broken_rule_of_the_barrier_is_found() {
        for broken in [
            Variant::NoFence,
            Variant::OpenBeforePublish,
            Variant::NoClosing,
            Variant::NoDrain,
            Variant::CollectWithoutCompare,
            Variant::EndWithoutCompare,
            Variant::LookBeforeAgreement,
            Variant::PublishUnlisted,
        ] {
            assert_broken(StorageVersions(broken), &format!("{broken:?}"));
        }
    }
}
