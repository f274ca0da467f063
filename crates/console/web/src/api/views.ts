// Views of lists that are kept in config maps, so that other users and browsers have them.
//
// Each user has a config map of their own in a namespace. All who may read config maps there may open the views. The
// content belongs to others: it is used only if it is the address of a list.

import { isMap } from '../lib/json';
import { hasCode, getJson } from './client';
import { create, patch } from './actions';
import { collectionPath, objectPath } from './paths';
import type { JsonObject, KubeObject, ObjectList } from './types';

const MAPS = { group: '', version: 'v1', plural: 'configmaps' };
/** The label of config maps that hold views. */
const LABEL = 'console.keelson.io/views';
/** How many views one config map holds, how many are read, and how long their texts are. */
const MOST_KEPT = 50;
const MOST_MAPS = 50;
const LONGEST_NAME = 80;
const LONGEST_ADDRESS = 4096;

export interface SharedView {
  namespace: string;
  map: string;
  key: string;
  name: string;
  /** The address of a list. */
  to: string;
}

/** Whether an address is that of a list, which reads objects and does nothing else. */
export function isListAddress(to: string): boolean {
  return to.length <= LONGEST_ADDRESS && /^\/console\/r\/[^/?#\s]+\/[^/?#\s]+\/[^/?#\s]+(?:\?[^#\s]*)?$/.test(to);
}

/** The view in a value of a config map; null where it is none. */
function viewIn(text: unknown): { name: string; to: string } | null {
  try {
    const value: unknown = typeof text === 'string' ? JSON.parse(text) : null;
    if (!isMap(value)) return null;
    const { name, to } = value;
    if (typeof name !== 'string' || typeof to !== 'string' || !isListAddress(to)) return null;
    return { name: name.slice(0, LONGEST_NAME), to };
  } catch {
    return null;
  }
}

function viewsIn(map: KubeObject): SharedView[] {
  const { namespace = '', name } = map.metadata;
  const entries = Object.entries((map['data'] ?? {}) as Record<string, unknown>).slice(0, MOST_KEPT);
  return entries.flatMap(([key, text]) => {
    const view = viewIn(text);
    return view === null ? [] : [{ namespace, map: name, key, ...view }];
  });
}

/** The views that the user may read in these namespaces, or in all of them where none is named. */
export async function sharedViews(namespaces: string[], signal?: AbortSignal): Promise<SharedView[]> {
  const search = new URLSearchParams({ labelSelector: LABEL, limit: String(MOST_MAPS) });
  const read = async (namespace: string) => {
    const list = await getJson<ObjectList>(`${collectionPath(MAPS, namespace)}?${search.toString()}`, { signal });
    return list.items.flatMap(viewsIn);
  };
  const all = await Promise.all(
    (namespaces.length === 0 ? [''] : namespaces).map((one) => read(one).catch(() => [] as SharedView[])),
  );
  return all.flat();
}

/** A view by the names in its link. */
export async function sharedView(namespace: string, map: string, key: string): Promise<SharedView | null> {
  const found = await getJson<KubeObject>(objectPath(MAPS, namespace, map));
  return viewsIn(found).find((one) => one.key === key) ?? null;
}

/** FNV-1a, so that two users whose names differ in signs alone have two config maps. */
function hashed(text: string): string {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, '0');
}

function simple(text: string, most: number): string {
  const words = text.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  return words.slice(0, most).replaceAll(/^-+|-+$/g, '');
}

/** The name of a user's config map of views. */
export function mapOf(username: string): string {
  const name = simple(username, 60);
  return ['console-views', ...(name === '' ? [] : [name]), hashed(username)].join('-');
}

/** Keeps a view in the user's config map of a namespace, which is made at the first one. */
export async function shareView(
  username: string,
  namespace: string,
  view: { name: string; to: string },
): Promise<SharedView> {
  const map = mapOf(username);
  const key = `${simple(view.name, 40) || 'view'}-${hashed(view.name)}`;
  const data: JsonObject = { [key]: JSON.stringify(view) };
  const of = { namespace, name: map };
  try {
    const before = await getJson<KubeObject>(objectPath(MAPS, namespace, map));
    const kept = Object.keys(before['data'] ?? {}).filter((one) => one !== key).length;
    if (kept >= MOST_KEPT) throw new Error(`At most ${MOST_KEPT} views are kept in one namespace. Remove one first.`);
    await patch(MAPS, of, { metadata: { labels: { [LABEL]: 'true' } }, data });
  } catch (error) {
    if (!hasCode(error, 404)) throw error;
    const metadata = { name: map, labels: { [LABEL]: 'true' } };
    await create(MAPS, namespace, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
  }
  return { namespace, map, key, ...view };
}

export async function removeShared({ namespace, map, key }: SharedView): Promise<void> {
  await patch(MAPS, { namespace, name: map }, { data: { [key]: null } });
}
