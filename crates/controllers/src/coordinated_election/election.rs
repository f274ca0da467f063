//! The rules of an election: the next step by the candidates and the lease. They are kube-apiserver's.
//!
//! Nothing is read or written here, so that the rules are tested without a server.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use keelson_meta::Object;
use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::Value;

use crate::leases;

/// The strategy of this controller: the least emulation version, then the least binary version, then the oldest.
pub(super) const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";
/// The time that candidates have for a renewal after a ping.
pub(super) const ELECTION: Duration = Duration::from_secs(5);
/// A candidate without a renewal for this time is removed. After half of it an election is held.
pub(super) const VALID: Duration = Duration::from_secs(30 * 60);

/// The next step of an election.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The holder is the best candidate, or the candidates still have time to answer.
    Nothing,
    /// The indexes of the candidates that must renew their leases first.
    Ping(Vec<usize>),
    /// The lease gets this holder; none if another controller has the strategy.
    Elect { holder: Option<String>, strategy: String },
}

/// A candidate.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) emulation_version: String,
    pub(super) binary_version: String,
    pub(super) strategy: String,
    pub(super) renewed: Option<SystemTime>,
    pub(super) pinged: Option<SystemTime>,
    pub(super) created: Option<SystemTime>,
}

/// The lease of an election.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldLease {
    pub(super) holder: Option<String>,
    /// The end of its validity, if it states one.
    pub(super) end: Option<SystemTime>,
}

impl Candidate {
    pub(super) fn of(object: &Object) -> Self {
        let text = |field: &str| object.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
        let created = object.get(&["metadata", "creationTimestamp"]).and_then(Value::as_str);
        Self {
            name: object.name().to_owned(),
            emulation_version: text("emulationVersion").to_owned(),
            binary_version: text("binaryVersion").to_owned(),
            strategy: text("strategy").to_owned(),
            renewed: parse_rfc3339(text("renewTime")),
            pinged: parse_rfc3339(text("pingTime")),
            created: created.and_then(parse_rfc3339),
        }
    }

    /// Returns true if the candidate is to be removed. One that was never renewed counts from its creation.
    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.renewed.or(self.created).is_none_or(|renewed| renewed + VALID < now)
    }

    fn was_renewed_within(&self, time: Duration, now: SystemTime) -> bool {
        self.renewed.is_some_and(|renewed| renewed + time > now)
    }

    /// Returns true if the candidate was pinged less than the time of an election ago and has not answered.
    fn may_still_answer(&self, now: SystemTime) -> bool {
        self.pinged.is_some_and(|pinged| pinged + ELECTION > now && self.renewed.is_none_or(|renewed| renewed < pinged))
    }

    /// Returns true if the candidate was never pinged, or has answered an earlier ping.
    fn can_be_pinged(&self, now: SystemTime) -> bool {
        self.pinged.is_none_or(|pinged| pinged + ELECTION < now && self.renewed.is_some_and(|renewed| pinged < renewed))
    }

    fn versions(&self) -> Option<[Version; 2]> {
        Some([Version::parse(&self.emulation_version)?, Version::parse(&self.binary_version)?])
    }
}

impl HeldLease {
    pub(super) fn of(lease: &Object) -> Self {
        let holder = leases::holder(lease);
        Self { holder: (!holder.is_empty()).then(|| holder.to_owned()), end: leases::end(lease) }
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.end.is_none_or(|end| end < now)
    }
}

/// The next step of the election for a lease.
///
/// # Errors
/// The candidates disagree on the strategy, or none has answered.
pub(super) fn step(candidates: &[Candidate], lease: Option<&HeldLease>, now: SystemTime) -> Result<Step, String> {
    if candidates.is_empty() || !is_needed(candidates, lease, now)? {
        return Ok(Step::Nothing);
    }
    let waiting = candidates.iter().any(|candidate| candidate.may_still_answer(now));
    let asked = |candidate: &Candidate| {
        !candidate.may_still_answer(now) && !candidate.was_renewed_within(ELECTION, now) && candidate.can_be_pinged(now)
    };
    let asked: Vec<usize> =
        candidates.iter().enumerate().filter(|(_, candidate)| asked(candidate)).map(|(number, _)| number).collect();
    if !asked.is_empty() {
        return Ok(Step::Ping(asked));
    }
    if waiting {
        return Ok(Step::Nothing);
    }
    let answered: Vec<&Candidate> =
        candidates.iter().filter(|candidate| candidate.was_renewed_within(ELECTION, now)).collect();
    if answered.is_empty() {
        return Err("no available candidates".to_owned());
    }
    let strategy = strategy(&answered)?.to_owned();
    let holder = if strategy == OLDEST_EMULATION_VERSION {
        Some(best(&answered).ok_or("no candidate has valid versions")?.name.clone())
    } else {
        None
    };
    Ok(Step::Elect { holder, strategy })
}

/// Returns true if the lease needs a holder or another one, or if candidates have not answered for long.
fn is_needed(candidates: &[Candidate], lease: Option<&HeldLease>, now: SystemTime) -> Result<bool, String> {
    let Some((lease, holder)) = lease.and_then(|lease| Some((lease, lease.holder.as_ref()?))) else { return Ok(true) };
    if lease.is_expired(now) || candidates.iter().any(|candidate| !candidate.was_renewed_within(VALID / 2, now)) {
        return Ok(true);
    }
    let all: Vec<&Candidate> = candidates.iter().collect();
    if strategy(&all)? != OLDEST_EMULATION_VERSION {
        return Ok(false);
    }
    Ok(best(&all).is_some_and(|best| best.name != *holder))
}

/// The strategy of the candidates with the newest binary version.
fn strategy<'c>(candidates: &[&'c Candidate]) -> Result<&'c str, String> {
    let version = |candidate: &Candidate| Version::parse(&candidate.binary_version).unwrap_or_default();
    let newest = candidates.iter().map(|candidate| version(candidate)).max().unwrap_or_default();
    let mut newest = candidates.iter().filter(|candidate| version(candidate) == newest);
    let first = newest.next().ok_or("no candidates")?;
    match newest.find(|other| other.strategy != first.strategy) {
        None => Ok(&first.strategy),
        Some(other) => Err(format!(
            "candidates {:?}, {:?} at same binary version but received differing strategies {}, {}",
            first.name, other.name, first.strategy, other.strategy
        )),
    }
}

/// The best candidate by [`OLDEST_EMULATION_VERSION`].
fn best<'c>(candidates: &[&'c Candidate]) -> Option<&'c Candidate> {
    let valid = candidates.iter().filter_map(|candidate| Some((candidate.versions()?, candidate.created, *candidate)));
    valid.min_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1))).map(|(.., candidate)| candidate)
}

/// A semantic version, which may lack parts. A version before a release is smaller than the release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    before_release: Option<String>,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let text = text.split_once('+').map_or(text, |(version, _)| version);
        let (numbers, before_release) = match text.split_once('-') {
            Some((numbers, before)) => (numbers, Some(before.to_owned())),
            None => (text, None),
        };
        let mut parsed = [0; 3];
        let mut parts = numbers.split('.');
        for (place, part) in parsed.iter_mut().zip(parts.by_ref()) {
            *place = part.parse().ok()?;
        }
        parts.next().is_none().then_some(Self { numbers: parsed, before_release })
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let before = match (&self.before_release, &other.before_release) {
            (None, None) => Ordering::Equal,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.cmp(other),
        };
        self.numbers.cmp(&other.numbers).then(before)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn at(offset: i64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.saturating_add_signed(offset))
    }

    fn candidate(name: &str, versions: &str, renewed: i64) -> Candidate {
        let (emulation, binary) = versions.split_once('/').unwrap();
        Candidate {
            name: name.to_owned(),
            emulation_version: emulation.to_owned(),
            binary_version: binary.to_owned(),
            strategy: OLDEST_EMULATION_VERSION.to_owned(),
            renewed: Some(at(renewed)),
            pinged: None,
            created: Some(at(-1000)),
        }
    }

    fn held(holder: &str, end: i64) -> HeldLease {
        HeldLease { holder: Some(holder.to_owned()), end: Some(at(end)) }
    }

    fn elect(holder: &str) -> Result<Step, String> {
        Ok(Step::Elect { holder: Some(holder.to_owned()), strategy: OLDEST_EMULATION_VERSION.to_owned() })
    }

    #[test]
    fn candidates_are_pinged_before_the_best_one_is_elected() {
        let old = candidate("old", "1.35.0/1.36.0", -100);
        let new = candidate("new", "1.36.0/1.36.0", -1);
        assert_eq!(step(&[old.clone(), new.clone()], None, at(0)), Ok(Step::Ping(vec![0])), "new has just answered");
        let asked = Candidate { pinged: Some(at(-2)), ..old.clone() };
        assert_eq!(step(&[asked, new.clone()], None, at(0)), Ok(Step::Nothing), "it may still answer");
        let silent = Candidate { pinged: Some(at(-6)), ..old.clone() };
        assert_eq!(step(&[silent.clone(), new.clone()], None, at(0)), elect("new"));
        let answered = Candidate { pinged: Some(at(-2)), renewed: Some(at(-1)), ..old };
        assert_eq!(step(&[answered, new], None, at(0)), elect("old"));
        assert!(step(&[silent], None, at(0)).unwrap_err().contains("no available candidates"));
        assert_eq!(step(&[], None, at(0)), Ok(Step::Nothing));
    }

    #[test]
    fn a_lease_with_the_best_holder_needs_no_election() {
        let all = [candidate("one", "1.36.0/1.36.1", -60), candidate("two", "1.36.0/1.36.0", -60)];
        assert_eq!(step(&all, Some(&held("two", 10)), at(0)), Ok(Step::Nothing));
        assert_eq!(step(&all, Some(&held("one", 10)), at(0)), Ok(Step::Ping(vec![0, 1])));
        assert_eq!(step(&all, Some(&held("two", -1)), at(0)), Ok(Step::Ping(vec![0, 1])), "it has expired");
        assert_eq!(step(&all, Some(&HeldLease::default()), at(0)), Ok(Step::Ping(vec![0, 1])));
        let stale = [candidate("two", "1.36.0/1.36.0", -1000)];
        assert_eq!(step(&stale, Some(&held("two", 10)), at(0)), Ok(Step::Ping(vec![0])), "half of its time is over");
    }

    #[test]
    fn the_newest_binaries_choose_the_strategy() {
        let other = |name: &str, versions: &str| Candidate {
            strategy: "example.com/mine".to_owned(),
            ..candidate(name, versions, -1)
        };
        let mixed = [candidate("old", "1.35.0/1.35.0", -1), other("new", "1.36.0/1.36.0")];
        let expect = Step::Elect { holder: None, strategy: "example.com/mine".to_owned() };
        assert_eq!(step(&mixed, None, at(0)), Ok(expect));
        assert_eq!(step(&mixed, Some(&held("new", 10)), at(0)), Ok(Step::Nothing));
        let same = [candidate("one", "1.36.0/1.36.0", -1), other("two", "1.36.0/1.36.0")];
        let refused = step(&same, None, at(0)).unwrap_err();
        assert!(refused.contains("at same binary version but received differing strategies"), "{refused}");
    }

    #[test]
    fn versions_are_semantic() {
        let sorted = ["1.9", "v1.10.0-alpha.1", "1.10.0-rc.0", "1.10.0", "1.10.1+build", "2.0"];
        let parsed: Vec<Version> = sorted.iter().map(|text| Version::parse(text).unwrap()).collect();
        assert!(parsed.is_sorted_by(|one, other| one < other));
        for bad in ["", "x", "1.x", "1.2.3.4", "-1"] {
            assert!(Version::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn candidates_expire_after_half_an_hour() {
        assert!(
            !candidate("c", "1.0/1.0", -1799).is_expired(at(0)) && candidate("c", "1.0/1.0", -1801).is_expired(at(0))
        );
        let fresh = Candidate { renewed: None, ..candidate("c", "1.0/1.0", 0) };
        assert!(!fresh.is_expired(at(0)) && fresh.is_expired(at(801)));
    }
}
