// Requests of actions on objects: patches, jobs of cron jobs, and the same for many objects with progress.

import { jsonText } from '../lib/json';
import { getJson, postJson, send } from './client';
import type { Resource } from './discovery';
import { MANAGER, type Name } from './objects';
import { collectionPath, objectPath } from './paths';
import type { JsonObject, KubeObject } from './types';

export type Of = Pick<Resource, 'group' | 'version' | 'plural'>;

export const MERGE = 'application/merge-patch+json';

export async function patch(resource: Of, of: Name, body: JsonObject): Promise<void> {
  const path = `${objectPath(resource, of.namespace, of.name)}?fieldManager=${MANAGER}`;
  await send(path, { method: 'PATCH', body: jsonText(body), contentType: MERGE });
}

export async function create(resource: Of, namespace: string, object: JsonObject): Promise<KubeObject> {
  return postJson<KubeObject>(`${collectionPath(resource, namespace)}?fieldManager=${MANAGER}`, object);
}

export async function readRaw(resource: Of, of: Name): Promise<KubeObject> {
  return getJson<KubeObject>(objectPath(resource, of.namespace, of.name));
}

export interface Progress {
  done: number;
  all: number;
  failed: { name: string; error: unknown }[];
}

/** How many requests of one action on many objects run at a time. */
const AT_ONCE = 4;

/** Does the same for many objects. One that fails does not stop the others. */
export async function forEach<T extends Name>(
  all: T[],
  run: (one: T) => Promise<void>,
  progress: (now: Progress) => void,
): Promise<Progress> {
  const now: Progress = { done: 0, all: all.length, failed: [] };
  const left = [...all];
  const work = async () => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) {
      try {
        await run(one);
      } catch (error) {
        now.failed.push({ name: one.namespace === '' ? one.name : `${one.namespace}/${one.name}`, error });
      }
      now.done += 1;
      progress({ ...now });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return now;
}
