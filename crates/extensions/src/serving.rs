//! The served definitions, and their updates: one change of the surface for each batch.
//!
//! Of definitions with the same kind, which servers may have accepted concurrently, the oldest is served.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use keelson_cache::Collection;
use keelson_meta::{GroupResource, SERVER_GROUP};
use keelson_outbound::Outbound;
use keelson_registry::{RegistrationError, Registry, ResourceRegistration, ServedApis};
use keelson_schema::ProgramCache;
use keelson_supervision::{outcome, warn_repeated};
use tokio::sync::Mutex;

use crate::by_group::ByGroup;
use crate::contribution;
use crate::definition::Definition;
use crate::extensions::KnownDefinition;
use crate::names::oldest_of_each_kind;
use crate::regenerations::{Regeneration, Regenerations};

/// The total size up to which definitions are compiled inline, at about a tenth of a millisecond for each KiB.
const SMALL_BYTES: usize = 8 << 10;

/// The served definitions.
#[derive(Default)]
pub(crate) struct Serving {
    served: Mutex<ByGroup<Arc<Definition>>>,
    /// The resources served unless a definition replaces them.
    supplied: Vec<ResourceRegistration>,
    /// The compiled expressions of their schemas.
    pub(crate) programs: Arc<ProgramCache>,
    /// The counts of changes of the OpenAPI documents.
    pub(crate) regenerations: Regenerations,
}

impl Serving {
    /// Has only the supplied resources, which are served already.
    pub(crate) fn new(supplied: Vec<ResourceRegistration>) -> Self {
        Self { supplied, ..Self::default() }
    }

    /// Begins with the definitions of another server whose resources this server serves already.
    pub(crate) fn inheriting(
        supplied: Vec<ResourceRegistration>,
        definitions: &[Arc<Definition>],
        programs: Arc<ProgramCache>,
        registry: &Registry,
    ) -> Self {
        let surface = registry.surface();
        let is_served = |definition: &&Arc<Definition>| {
            let GroupResource { group, resource } = resource_of(definition);
            let served = surface.resource(&group, &resource).and_then(|served| served.definition());
            served.is_some_and(|served| served.uid == definition.uid)
        };
        let mut served = ByGroup::default();
        for definition in definitions.iter().filter(is_served) {
            served.insert(&definition.name, definition.clone());
        }
        Self { served: Mutex::new(served), supplied, programs, regenerations: Regenerations::default() }
    }

    /// The served definitions, and the surface with their resources.
    pub(crate) async fn state(&self, registry: &Registry) -> (Vec<Arc<Definition>>, Arc<ServedApis>) {
        // The lock excludes changes of the surface.
        let served = self.served.lock().await;
        (served.values().cloned().collect(), registry.surface())
    }

    /// Returns true if the resource of a definition is served.
    pub(crate) async fn serves(&self, definition: &Definition) -> bool {
        self.served.lock().await.get(&definition.name).is_some_and(|served| served.uid == definition.uid)
    }

    /// Serves the definitions of these groups. `known_now` returns them under the lock that excludes concurrent changes
    /// of the surface.
    ///
    /// Cost: a few comparisons for each definition of the groups, compiling the changed ones, and one copy of the
    /// surface's tables.
    ///
    /// # Errors
    /// Objects can't be loaded. Some of the changes may be applied then.
    pub(crate) async fn adjust(
        &self,
        registry: &Registry,
        definitions: &Arc<Collection>,
        outbound: &Arc<Outbound>,
        groups: &HashSet<&str>,
        known_now: impl FnOnce() -> Vec<KnownDefinition>,
    ) -> Result<(), RegistrationError> {
        let mut served = self.served.lock().await;
        let surface = registry.surface();
        let (gone, wanted) = differences(&served, &surface, groups, &known_now());
        if gone.is_empty() && wanted.is_empty() {
            return Ok(());
        }
        let (giving_way, back) = self.supplied_changes(&served, groups, &gone, &wanted);
        let resources = gone.iter().filter_map(|name| served.get(name)).map(|definition| resource_of(definition));
        let resources: Vec<GroupResource> = resources.chain(giving_way).collect();
        let mut contributions = compiled(&wanted, surface.clone(), definitions, outbound, &self.programs).await;
        self.count(&served, &surface, &gone, (&wanted, &contributions));
        contributions.extend(back);
        // One change, so that a recreated definition is served without interruption.
        let changed = registry.surfaces().exchange(resources.clone(), contributions.clone()).await;
        if changed.is_err() {
            registry.surfaces().remove(&resources).await;
        }
        gone.iter().for_each(|name| drop(served.remove(name)));
        match changed {
            Ok(_) => wanted.into_iter().for_each(|known| drop(served.insert(&known.read.name, known.read.clone()))),
            Err(RegistrationError::Taken(_)) => {
                // A definition that cannot be served must not affect the others.
                for (known, contribution) in wanted.into_iter().zip(contributions) {
                    match registry.surfaces().put(vec![contribution]).await {
                        Ok(_) => drop(served.insert(&known.read.name, known.read.clone())),
                        Err(error @ RegistrationError::Taken(_)) => {
                            warn_repeated!(&known.read.name; definition = known.read.name, %error, "a definition is not served");
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Serving {
    /// Counts the changes of the OpenAPI documents.
    fn count(
        &self,
        served: &ByGroup<Arc<Definition>>,
        surface: &ServedApis,
        gone: &[String],
        (wanted, contributions): (&[KnownDefinition], &[ResourceRegistration]),
    ) {
        for definition in gone.iter().filter_map(|name| served.get(name)) {
            let resource = surface.by_kind(&definition.group, &definition.accepted.kind);
            let versions = resource.iter().flat_map(|resource| &resource.versions).map(|version| &*version.name);
            self.regenerations.note((&definition.name, &definition.group), versions, Regeneration::Remove);
        }
        for (KnownDefinition { read, .. }, contribution) in wanted.iter().zip(contributions) {
            let is_known = served.get(&read.name).is_some() && !gone.contains(&read.name);
            let reason = if is_known { Regeneration::Update } else { Regeneration::Add };
            let versions = contribution.resource().versions.iter().map(|version| &*version.name);
            self.regenerations.note((&read.name, &read.group), versions, reason);
        }
    }

    /// The supplied resources to remove and to restore for the definitions `gone` and `wanted`.
    fn supplied_changes(
        &self,
        served: &ByGroup<Arc<Definition>>,
        groups: &HashSet<&str>,
        gone: &[String],
        wanted: &[KnownDefinition],
    ) -> (Vec<GroupResource>, Vec<ResourceRegistration>) {
        let (mut giving_way, mut back) = (Vec::new(), Vec::new());
        for supplied in self.supplied.iter().filter(|supplied| groups.contains(&*supplied.resource().group)) {
            let before: Vec<_> = served.in_group(&supplied.resource().group).collect();
            let was_taken = before.iter().any(|definition| is_in_place_of(definition, supplied));
            let stays = before.iter().filter(|definition| !gone.contains(&definition.name));
            let is_taken = stays
                .map(|definition| &**definition)
                .chain(wanted.iter().map(|known| &known.read))
                .any(|definition| is_in_place_of(definition, supplied));
            match (was_taken, is_taken) {
                (false, true) => giving_way.push(supplied.resource().group_resource()),
                (true, false) => back.push(supplied.clone()),
                (true, true) | (false, false) => {}
            }
        }
        (giving_way, back)
    }
}

/// Returns true if a definition requests the name or kind of a contribution.
fn is_in_place_of(definition: &Definition, contribution: &ResourceRegistration) -> bool {
    let resource = contribution.resource();
    definition.group == *resource.group
        && (definition.requested.plural == *resource.plural || definition.accepted.kind == *resource.kind)
}

/// The definitions that are no longer served, and those that are new or changed.
fn differences(
    served: &ByGroup<Arc<Definition>>,
    surface: &ServedApis,
    groups: &HashSet<&str>,
    known: &[KnownDefinition],
) -> (Vec<String>, Vec<KnownDefinition>) {
    let candidates: Vec<&KnownDefinition> =
        known.iter().filter(|known| known.read.is_served() && !is_builtin(surface, &known.read)).collect();
    let chosen = oldest_of_each_kind(candidates.iter().map(|known| &*known.read));
    let chosen: HashSet<&str> = chosen.values().map(|definition| definition.name.as_str()).collect();
    let by_name: HashMap<&str, &KnownDefinition> = candidates
        .iter()
        .filter(|known| chosen.contains(known.read.name.as_str()))
        .map(|known| (known.read.name.as_str(), *known))
        .collect();
    let stays = |definition: &Definition| {
        by_name.get(definition.name.as_str()).is_some_and(|known| known.read.uid == definition.uid)
    };
    let in_groups = groups.iter().flat_map(|group| served.in_group(group));
    let gone = in_groups.filter(|definition| !stays(definition)).map(|definition| definition.name.clone()).collect();
    let is_new =
        |known: &&&KnownDefinition| served.get(&known.read.name).is_none_or(|it| !it.is_served_alike(&known.read));
    let wanted = by_name.values().filter(is_new).map(|known| (*known).clone()).collect();
    (gone, wanted)
}

/// Returns true for a definition that requests the name or kind of a built-in resource, or the server's own group.
fn is_builtin(surface: &ServedApis, definition: &Definition) -> bool {
    if definition.group == SERVER_GROUP {
        return true;
    }
    let GroupResource { group, resource } = resource_of(definition);
    let same = [surface.resource(&group, &resource), surface.by_kind(&group, &definition.accepted.kind)];
    same.into_iter().flatten().any(|served| served.is_builtin())
}

/// The resource of a definition. Its plural name never changes.
pub(crate) fn resource_of(definition: &Definition) -> GroupResource {
    GroupResource { group: definition.group.clone(), resource: definition.requested.plural.clone() }
}

/// The contributions of definitions. Large schemas are compiled on another thread, small ones inline, which is faster.
async fn compiled(
    wanted: &[KnownDefinition],
    surface: Arc<ServedApis>,
    definitions: &Arc<Collection>,
    outbound: &Arc<Outbound>,
    programs: &Arc<ProgramCache>,
) -> Vec<ResourceRegistration> {
    let (definitions, outbound, programs) = (definitions.clone(), outbound.clone(), programs.clone());
    let bytes: usize = wanted.iter().map(|known| known.entry.object().bytes().len()).sum();
    let wanted = wanted.to_vec();
    let compile = move || {
        let contributed = |known| contribution::contribution(known, &surface, &definitions, &outbound, &programs);
        wanted.iter().map(contributed).collect()
    };
    if bytes <= SMALL_BYTES { compile() } else { outcome(keelson_supervision::spawn_blocking(compile)).await }
}
