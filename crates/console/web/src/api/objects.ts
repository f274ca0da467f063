// Requests for one object: reads its present and past states, writes it, and sends dry runs.

import { isMap, jsonText, readJson } from '../lib/json';
import { text } from '../lib/objects';
import { bodyOf, getJson, METADATA_LIST, send } from './client';
import { type Resource } from './discovery';
import { collectionPath, objectPath } from './paths';
import type { JsonObject, KubeObject, ObjectList, Status, WatchEvent } from './types';

export interface Name {
  namespace: string;
  name: string;
}

/** Under which name the console owns what it writes. */
export const MANAGER = 'keelson-console';

export async function readObject(resource: Collection, of: Name, signal?: AbortSignal): Promise<KubeObject> {
  return objectIn(await getJson<unknown>(objectPath(resource, of.namespace, of.name), { signal }));
}

/** A value that is known to be an object. Aggregated servers may send anything. */
function objectIn(value: unknown): KubeObject {
  if (isMap(value) && isMap(value['metadata'])) return value as unknown as KubeObject;
  throw new Error('The server that has these objects answers with something that is no object.');
}

/** Whether an object is the one that was asked for. */
export function isAsked(object: KubeObject, of: Name): boolean {
  return object.metadata.name === of.name && (object.metadata.namespace ?? '') === of.namespace;
}

type Collection = Pick<Resource, 'group' | 'version' | 'plural'>;

/** The object as it was at a revision; null where there was none. */
export async function readAt(
  resource: Collection,
  of: Name,
  revision: string,
  signal?: AbortSignal,
): Promise<KubeObject | null> {
  const params = new URLSearchParams({
    fieldSelector: `metadata.name=${of.name}`,
    resourceVersion: revision,
    resourceVersionMatch: 'Exact',
  });
  const path = `${collectionPath(resource, of.namespace)}?${params.toString()}`;
  const list = await getJson<ObjectList & { apiVersion: string; kind: string }>(path, { signal });
  const [first] = Array.isArray(list.items) ? (list.items as unknown[]) : [];
  if (first === undefined) return null;
  const found = objectIn(first);
  // Items in lists of built-in kinds have no apiVersion and kind.
  return { ...found, apiVersion: text(list.apiVersion), kind: text(list.kind).replace(/List$/, '') };
}

export interface Write {
  resource: Collection;
  of: Name;
  dryRun: boolean;
}

function params(write: Write, more: Record<string, string> = {}): string {
  const search = new URLSearchParams({ fieldManager: MANAGER, ...more });
  if (write.dryRun) search.set('dryRun', 'All');
  return search.toString();
}

async function written(
  path: string,
  call: Parameters<typeof send>[1],
): Promise<{ object: KubeObject; warnings: string[] }> {
  const response = await send(path, call);
  const warnings = [...(response.headers.get('Warning') ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)];
  const object = await bodyOf<KubeObject>(response);
  return { object, warnings: warnings.map((match) => (match[1] ?? '').replaceAll(/\\(.)/g, '$1')) };
}

/** Puts the object in place of the one that has its resourceVersion. */
export async function replace(write: Write, object: JsonObject) {
  const path = objectPath(write.resource, write.of.namespace, write.of.name);
  const search = params(write, { fieldValidation: 'Strict' });
  return written(`${path}?${search}`, { method: 'PUT', body: jsonText(object) });
}

/** Server-side apply of what the object says. */
export async function apply(write: Write, object: JsonObject, force: boolean) {
  const path = objectPath(write.resource, write.of.namespace, write.of.name);
  const search = params(write, { fieldValidation: 'Strict', ...(force ? { force: 'true' } : {}) });
  const contentType = 'application/apply-patch+yaml';
  // JSON is YAML.
  return written(`${path}?${search}`, { method: 'PATCH', body: jsonText(object), contentType });
}

export async function readScale(resource: Collection, of: Name): Promise<number> {
  const path = objectPath(resource, of.namespace, of.name, 'scale');
  const scale = await getJson<{ spec?: { replicas?: number } }>(path);
  return scale.spec?.replicas ?? 0;
}

export async function scale(resource: Collection, of: Name, replicas: number): Promise<void> {
  const path = `${objectPath(resource, of.namespace, of.name, 'scale')}?fieldManager=${MANAGER}`;
  const body = jsonText({ spec: { replicas } });
  await send(path, { method: 'PATCH', body, contentType: 'application/merge-patch+json' });
}

export type Propagation = 'Background' | 'Foreground' | 'Orphan';

/** Deletes this very object, and not one of the same name that came after it. */
export async function remove(resource: Collection, of: Name, uid: string | undefined, how: Propagation): Promise<void> {
  const preconditions = uid === undefined ? undefined : { uid };
  const body = { kind: 'DeleteOptions', apiVersion: 'v1', propagationPolicy: how, preconditions };
  await send(objectPath(resource, of.namespace, of.name), { method: 'DELETE', body: jsonText(body) });
}

export interface Reach {
  oldest: bigint;
  newest: bigint;
}

/** From when on a collection can still be read, found by asking for some revisions. */
export async function oldestRevision(resource: Collection, namespace: string, signal?: AbortSignal): Promise<Reach> {
  const first = await getJson<ObjectList>(`${collectionPath(resource, namespace)}?limit=1`, {
    accept: METADATA_LIST,
    signal,
  });
  const newest = BigInt(first.metadata.resourceVersion ?? '0');
  const isKept = async (revision: bigint) => {
    const search = new URLSearchParams({
      limit: '1',
      resourceVersion: String(revision),
      resourceVersionMatch: 'Exact',
    });
    try {
      await send(`${collectionPath(resource, namespace)}?${search.toString()}`, {
        accept: METADATA_LIST,
        signal,
      });
      return true;
    } catch (error) {
      if (signal?.aborted === true) throw error;
      return false;
    }
  };
  let [gone, kept] = [0n, newest];
  while (kept - gone > 1n) {
    const middle = (gone + kept) / 2n;
    if (await isKept(middle)) kept = middle;
    else gone = middle;
  }
  return { oldest: kept, newest };
}

/** How long what happened is waited for, in seconds: it is told at once. */
const TOLD_WITHIN = 3;
const MOST_VERSIONS = 200;

/** All that the object has been since a revision, the oldest first; the last one is what it is. */
export async function versionsSince(
  resource: Collection,
  of: Name,
  since: string,
  until: string,
  signal?: AbortSignal,
): Promise<KubeObject[]> {
  const first = await readAt(resource, of, since, signal);
  const versions = first === null ? [] : [first];
  if (versions[0]?.metadata.resourceVersion === until) return versions;
  const search = new URLSearchParams({
    watch: '1',
    fieldSelector: `metadata.name=${of.name}`,
    resourceVersion: since,
    timeoutSeconds: String(TOLD_WITHIN),
  });
  const stop = new AbortController();
  signal?.addEventListener('abort', () => stop.abort());
  const path = `${collectionPath(resource, of.namespace)}?${search.toString()}`;
  const response = await send(path, { signal: stop.signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const read = await reader?.read();
    if (read === undefined || read.done) return versions;
    rest += read.value;
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const event = readJson(line) as WatchEvent<KubeObject | Status>;
      if (event.type !== 'ADDED' && event.type !== 'MODIFIED' && event.type !== 'DELETED') continue;
      versions.push(event.object as KubeObject);
      if (event.object.metadata?.resourceVersion === until || versions.length >= MOST_VERSIONS) {
        stop.abort();
        return versions;
      }
    }
  }
}
