// A search over the objects of all kinds that the user may list.
//
// The server searches its own resources in one request. Resources of aggregated servers, and all resources of a server
// without that request, are searched one by one: some requests at a time, the likely kinds first.

import { getJson, isAborted, METADATA_LIST } from './client';
import { fullName, type Resource } from './discovery';
import { searchPath } from './extension';
import { collectionPath } from './paths';
import type { ObjectList } from './types';

export interface FoundObject {
  resource: Resource;
  namespace: string;
  name: string;
  /** How well it fits; the largest first. */
  rate: number;
}

/** How many objects of a kind fit. */
export interface FoundCount {
  resource: Resource;
  namespace: string;
  count: number;
}

export interface Found {
  objects: FoundObject[];
  counts: FoundCount[];
}

/** The answer of the server's own search. */
interface Answer {
  items?: Item[];
  counts?: (Named & { count?: number })[];
  /** The groups whose resources were searched. */
  groups?: string[];
}

interface Named {
  group?: string;
  version?: string;
  resource?: string;
  namespace?: string;
}

interface Item extends Named {
  name?: string;
  score?: number;
  isSimilar?: boolean;
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
/** The rate of a name that is the text. The server's score of such a name is 300. */
const WHOLE = 100;
const AT_ONCE = 8;
const OF_EACH = 5;
const OF_ALL = 20;
/** The most namespaces of one search. */
const NAMESPACES = 16;

function rateOf(name: string, labels: Record<string, string>, text: string): number {
  if (name === text) return WHOLE;
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

function resourceOf(resources: Resource[], of: Named): Resource | undefined {
  const all = resources.filter((one) => one.group === of.group && one.plural === of.resource);
  return all.find((one) => one.preferred) ?? all[0];
}

function foundIn(answer: Answer, resources: Resource[], text: string): Found {
  const objects = (answer.items ?? []).flatMap((item): FoundObject[] => {
    const resource = resourceOf(resources, item);
    const { name = '', namespace = '', score = 0 } = item;
    if (resource === undefined || name === '') return [];
    const rate = name === text ? WHOLE : item.isSimilar === true ? SIMILAR : SIMILAR + Math.min(75, score / 3);
    return [{ resource, namespace, name, rate }];
  });
  const counts = (answer.counts ?? []).flatMap((one): FoundCount[] => {
    const resource = resourceOf(resources, one);
    return resource === undefined ? [] : [{ resource, namespace: one.namespace ?? '', count: one.count ?? 0 }];
  });
  return { objects, counts };
}

/** Asks the server's own search. Returns the resources that it has not searched. */
async function searchServer(
  resources: Resource[],
  namespaces: string[],
  text: string,
  found: (more: Found) => void,
  signal: AbortSignal,
): Promise<Resource[]> {
  const path = await searchPath();
  if (path === '') return resources;
  const params = new URLSearchParams({ q: text, limit: String(OF_ALL), except: SELDOM.join(',') });
  if (namespaces.length > 0) params.set('namespaces', namespaces.slice(0, NAMESPACES).join(','));
  try {
    const answer = await getJson<Answer>(`${path}?${params.toString()}`, { signal });
    const own = new Set(answer.groups ?? []);
    if (!signal.aborted) found(foundIn(answer, resources, text));
    return resources.filter((one) => !own.has(one.group));
  } catch (error) {
    if (isAborted(error)) throw error;
    return resources;
  }
}

/** Finds objects in all kinds, and tells of those of each kind when it has answered. */
export async function searchObjects(
  resources: Resource[],
  namespaces: string[],
  text: string,
  found: (more: Found) => void,
  signal: AbortSignal,
): Promise<void> {
  const left = ordered(await searchServer(resources, namespaces, text, found, signal));
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
    if (objects.length > 0 && !signal.aborted) found({ objects, counts: [] });
  };
  const run = async () => {
    for (let next = left.shift(); next !== undefined && !signal.aborted; next = left.shift()) {
      await one(next).catch(() => undefined);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
}
