// The served resources, from aggregated discovery. It takes two requests for any number of resources.

import { getJson } from './client';
import { store } from '../state/store';

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

export async function discover(): Promise<void> {
  try {
    const [core, groups] = await Promise.all(
      ['/api', '/apis'].map((path) => getJson<DiscoveryList>(path, { accept: ACCEPT })),
    );
    const resources = [core, groups].flatMap((list) => (list === undefined ? [] : readGroups(list)));
    discovery.set({ resources, error: null, loaded: true });
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

const BUILT_IN = [
  'admissionregistration',
  'apiextensions',
  'apiregistration',
  'authentication',
  'authorization',
  'certificates',
  'coordination',
  'discovery',
  'events',
  'flowcontrol.apiserver',
  'internal.apiserver',
  'migration',
  'networking',
  'node',
  'rbac.authorization',
  'resource',
  'scheduling',
  'storage',
  'storagemigration',
].map((name) => `${name}.k8s.io`);

/** Whether a group is one of Kubernetes itself, which nobody defines. */
export function isBuiltIn(group: string): boolean {
  return !group.includes('.') || BUILT_IN.includes(group);
}

/** `pods`, or `deployments.apps`. */
export function fullName(of: { group: string; plural: string }): string {
  return of.group === '' ? of.plural : `${of.plural}.${of.group}`;
}
