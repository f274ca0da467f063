// Creates or applies the documents of a YAML text, one by one, with dry runs before.

import { jsonText } from '../lib/json';
import { ApiError, getJson, hasCode, send, bodyOf } from './client';
import { ofKind, type Resource } from './discovery';
import { MANAGER } from './objects';
import { collectionPath, objectPath } from './paths';
import type { JsonObject, KubeObject, ObjectMeta } from './types';

export interface Planned {
  object: JsonObject;
  resource: Resource;
  namespace: string;
  name: string;
}

/** What is to be done with an object of a text; an error says why it can't. */
export function plan(resources: Resource[], object: JsonObject, namespaces: string[]): Planned {
  const { apiVersion, kind, metadata } = object as {
    apiVersion?: unknown;
    kind?: unknown;
    metadata?: Partial<ObjectMeta>;
  };
  if (typeof apiVersion !== 'string' || typeof kind !== 'string') {
    throw new Error('An object needs an apiVersion and a kind.');
  }
  const resource = ofKind(resources, apiVersion, kind);
  if (resource === undefined) throw new Error(`The server has no ${kind} of ${apiVersion}.`);
  const name = metadata?.name ?? '';
  if (name === '' && metadata?.generateName === undefined) {
    throw new Error(`This ${kind} has no name: metadata.name is wanted.`);
  }
  const usual = namespaces.length === 1 ? (namespaces[0] ?? 'default') : 'default';
  return { object, resource, namespace: resource.namespaced ? (metadata?.namespace ?? usual) : '', name };
}

export interface Outcome {
  before: KubeObject | null;
  after: KubeObject;
  warnings: string[];
}

function warningsOf(response: Response): string[] {
  const found = [...(response.headers.get('Warning') ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)];
  return found.map((match) => (match[1] ?? '').replaceAll(/\\(.)/g, '$1'));
}

/** The object as it is now; null where there is none. */
async function present({ resource, namespace, name }: Planned): Promise<KubeObject | null> {
  if (name === '') return null;
  try {
    return await getJson<KubeObject>(objectPath(resource, namespace, name));
  } catch (error) {
    if (hasCode(error, 404)) return null;
    throw error;
  }
}

/** Sends an object: server-side apply, or a creation where its name is made by the server. */
export async function applyOne(one: Planned, dryRun: boolean, force: boolean): Promise<Outcome> {
  const { object, resource, namespace, name } = one;
  const before = await present(one);
  const search = new URLSearchParams({ fieldManager: MANAGER, fieldValidation: 'Strict' });
  if (dryRun) search.set('dryRun', 'All');
  if (name === '') {
    const path = `${collectionPath(resource, namespace)}?${search.toString()}`;
    const response = await send(path, { method: 'POST', body: jsonText(object) });
    return { before, after: await bodyOf<KubeObject>(response), warnings: warningsOf(response) };
  }
  if (force) search.set('force', 'true');
  const path = `${objectPath(resource, namespace, name)}?${search.toString()}`;
  // JSON is YAML.
  const call = { method: 'PATCH', body: jsonText(object), contentType: 'application/apply-patch+yaml' };
  const response = await send(path, call);
  return { before, after: await bodyOf<KubeObject>(response), warnings: warningsOf(response) };
}

/** Whether others own fields that the text says. */
export function isConflict(error: unknown): boolean {
  return (
    error instanceof ApiError &&
    error.code === 409 &&
    error.status?.details?.causes?.[0]?.reason === 'FieldManagerConflict'
  );
}
