// The served resources, from aggregated discovery. It takes two requests for any number of resources.

import { getJson, hasCode, METADATA_LIST } from './client';
import { store } from '../state/store';
import { collectionPath } from './paths';
import type { ObjectList } from './types';
import { follow } from './watch';

export interface Resource {
  /** Empty for the core group. */
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  shortNames: string[];
  categories: string[];
  verbs: string[];
  subresources: string[];
  /** Whether it is the version that its group prefers. */
  preferred: boolean;
  /** Whether the server that serves it was away when it was asked last. */
  stale: boolean;
}

interface DiscoveredResource {
  resource: string;
  responseKind?: { kind?: string };
  scope?: string;
  shortNames?: string[];
  categories?: string[];
  verbs?: string[];
  subresources?: { subresource: string }[];
}

interface DiscoveryList {
  items: {
    metadata?: { name?: string };
    versions?: { version: string; freshness?: string; resources?: DiscoveredResource[] }[];
  }[];
}

const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';

function readGroups(list: DiscoveryList): Resource[] {
  return list.items.flatMap((item) => {
    const seen = new Set<string>();
    return (item.versions ?? []).flatMap((version) =>
      (version.resources ?? []).map((found): Resource => {
        const preferred = !seen.has(found.resource);
        seen.add(found.resource);
        return {
          group: item.metadata?.name ?? '',
          version: version.version,
          plural: found.resource,
          kind: found.responseKind?.kind ?? found.resource,
          namespaced: found.scope === 'Namespaced',
          shortNames: found.shortNames ?? [],
          categories: found.categories ?? [],
          verbs: found.verbs ?? [],
          subresources: (found.subresources ?? []).map((below) => below.subresource),
          preferred,
          stale: version.freshness === 'Stale',
        };
      }),
    );
  });
}

export interface Discovery {
  resources: Resource[];
  error: unknown;
  loaded: boolean;
}

export const discovery = store<Discovery>({ resources: [], error: null, loaded: false });

let last = '';

/** The resources that define others: definitions of custom resources, and registrations of aggregated servers. */
const DEFINERS = [
  { group: 'apiextensions.k8s.io', version: 'v1', plural: 'customresourcedefinitions' },
  { group: 'apiregistration.k8s.io', version: 'v1', plural: 'apiservices' },
];
/** How long changes of them are gathered, and how often resources are read where they can't be watched, in milliseconds. */
const GATHERED = 400;
const AGAIN = 60_000;

/** Reads the resources, and again whenever something defines others, until the signal says to stop. */
export async function followDiscovery(signal: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const soon = (wait: number) => {
    clearTimeout(timer);
    if (!signal.aborted) timer = setTimeout(() => void discover(), wait);
  };
  signal.addEventListener('abort', () => clearTimeout(timer));
  await discover();
  for (const definer of DEFINERS) void followOne(definer, soon, signal);
}

async function followOne(of: (typeof DEFINERS)[number], soon: (wait: number) => void, signal: AbortSignal) {
  const path = collectionPath(of);
  while (!signal.aborted) {
    try {
      const { metadata } = await getJson<ObjectList>(`${path}?limit=1`, { accept: METADATA_LIST, signal });
      const again = () => soon(GATHERED);
      const follower = { changed: again, lost: again };
      await follow(path, new URLSearchParams(), metadata.resourceVersion ?? '', follower, signal);
      again();
    } catch (error) {
      if (!hasCode(error, 403) && !hasCode(error, 404)) soon(GATHERED);
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
    // Aggregated servers announce no change, and some users may not watch.
    if (!document.hidden) soon(0);
  }
}

export async function discover(): Promise<void> {
  try {
    const [core, groups] = await Promise.all(
      ['/api', '/apis'].map((path) => getJson<DiscoveryList>(path, { accept: ACCEPT })),
    );
    const resources = [core, groups].flatMap((list) => (list === undefined ? [] : readGroups(list)));
    const text = JSON.stringify(resources);
    // Equal resources stay the same value, so that nothing is computed anew from them.
    if (text !== last || discovery.get().error !== null) discovery.set({ resources, error: null, loaded: true });
    last = text;
  } catch (error) {
    discovery.set({ ...discovery.get(), error, loaded: true });
  }
}

export function findResource(resources: Resource[], group: string, version: string, plural: string) {
  return resources.find((one) => one.plural === plural && one.group === group && one.version === version);
}

/** The resource of an object that names its kind, in that version or the preferred one. */
export function ofKind(resources: Resource[], apiVersion: string, kind: string): Resource | undefined {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion];
  const all = resources.filter((one) => one.group === group && one.kind === kind);
  return all.find((one) => one.version === version) ?? all.find((one) => one.preferred);
}

/** The resource of a plural name in the version that its group prefers. */
export function preferredResource(resources: Resource[], group: string, plural: string): Resource | undefined {
  return resources.find((one) => one.group === group && one.plural === plural && one.preferred);
}

/** `pods`, or `deployments.apps`. */
export function fullName(of: { group: string; plural: string }): string {
  return of.group === '' ? of.plural : `${of.plural}.${of.group}`;
}
