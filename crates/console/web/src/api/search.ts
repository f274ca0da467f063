// A search over the objects of all kinds that the user may list: some requests at a time, the likely kinds first.

import { getJson, isAborted, METADATA_LIST } from './client';
import { fullName, type Resource } from './discovery';
import { collectionPath } from './paths';
import type { ObjectList } from './types';

export interface FoundObject {
  resource: Resource;
  namespace: string;
  name: string;
  /** How well it fits; the largest first. */
  rate: number;
}

/** The kinds that people look for most, which are asked first. */
const LIKELY = [
  'pods',
  'deployments.apps',
  'services',
  'configmaps',
  'secrets',
  'nodes',
  'namespaces',
  'statefulsets.apps',
  'daemonsets.apps',
  'jobs.batch',
  'cronjobs.batch',
  'ingresses.networking.k8s.io',
  'persistentvolumeclaims',
  'serviceaccounts',
];
/** Kinds of many short-lived objects that tell of others. */
const SELDOM = ['events', 'events.events.k8s.io', 'leases.coordination.k8s.io', 'componentstatuses'];
/** The rate of an object in which the text is not found as it is. */
export const SIMILAR = 20;
const AT_ONCE = 8;
const OF_EACH = 5;

function rateOf(name: string, labels: Record<string, string>, text: string): number {
  if (name === text) return 100;
  if (name.startsWith(text)) return 80;
  if (name.includes(text)) return 60;
  return Object.values(labels).some((value) => value.includes(text)) ? 40 : SIMILAR;
}

function ordered(resources: Resource[]): Resource[] {
  const placeOf = (one: Resource) => {
    const at = LIKELY.indexOf(fullName(one));
    return at < 0 ? LIKELY.length : at;
  };
  return resources
    .filter((one) => one.preferred && !one.stale && one.verbs.includes('list') && !SELDOM.includes(fullName(one)))
    .sort((a, b) => placeOf(a) - placeOf(b));
}

/** Finds objects in all kinds, and tells of those of each kind when it has answered. */
export async function searchObjects(
  resources: Resource[],
  namespaces: string[],
  text: string,
  found: (objects: FoundObject[]) => void,
  signal: AbortSignal,
): Promise<void> {
  const left = ordered(resources);
  const search = new URLSearchParams({ limit: String(OF_EACH), 'keelson.io/search': text });
  const ask = async (resource: Resource, namespace: string) => {
    const path = `${collectionPath(resource, namespace)}?${search.toString()}`;
    return (await getJson<ObjectList>(path, { accept: METADATA_LIST, signal })).items;
  };
  const one = async (resource: Resource) => {
    const own = resource.namespaced ? namespaces : [];
    // A user who may not list all namespaces at once may list the chosen ones.
    const items = await ask(resource, '').catch(async (error: unknown) => {
      if (isAborted(error)) throw error;
      const answers = await Promise.all(own.map((namespace) => ask(resource, namespace).catch(() => [])));
      return answers.flat();
    });
    const objects = items.map(({ metadata }) => ({
      resource,
      namespace: metadata.namespace ?? '',
      name: metadata.name,
      rate: rateOf(metadata.name, metadata.labels ?? {}, text),
    }));
    if (objects.length > 0 && !signal.aborted) found(objects);
  };
  const run = async () => {
    for (let next = left.shift(); next !== undefined && !signal.aborted; next = left.shift()) {
      await one(next).catch(() => undefined);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
}
