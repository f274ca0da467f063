// The owners of fields, from metadata.managedFields. Its keys are converted to paths.

import type { Json, JsonObject, KubeObject, ManagedFields } from '../api/types';
import { isMap, isSame, readJson } from './json';
import { own } from './own';
import { step } from './paths';

export interface Owner {
  manager: string;
  operation: string;
  subresource: string;
  time: string;
  paths: string[];
}

function indexOf(list: Json | undefined, key: string): number {
  if (!Array.isArray(list)) return -1;
  const wanted = readJson(key.slice(2)) as Json;
  if (key.startsWith('v:')) return list.findIndex((item) => isSame(item, wanted));
  if (key.startsWith('i:')) return Number(wanted);
  if (!isMap(wanted)) return -1;
  return list.findIndex(
    (item) => isMap(item) && Object.entries(wanted).every(([name, value]) => isSame(own(item, name), value)),
  );
}

function walk(fields: JsonObject, value: Json | undefined, path: string, found: string[]): void {
  const members = Object.entries(fields).filter(([key]) => key !== '.');
  if (members.length === 0) found.push(path);
  for (const [key, below] of members) {
    const inner = isMap(below) ? below : {};
    if (key.startsWith('f:')) {
      const name = key.slice(2);
      walk(inner, isMap(value) ? own(value, name) : undefined, path + step(name), found);
    } else {
      const at = indexOf(value, key);
      if (at < 0) found.push(`${path}[${key.slice(2)}]`);
      else walk(inner, Array.isArray(value) ? value[at] : undefined, `${path}[${at}]`, found);
    }
  }
}

function ownerOf(entry: ManagedFields, object: KubeObject): Owner {
  const paths: string[] = [];
  walk(entry.fieldsV1 ?? {}, object as unknown as Json, '', paths);
  return {
    manager: entry.manager ?? '',
    operation: entry.operation ?? '',
    subresource: entry.subresource ?? '',
    time: entry.time ?? '',
    paths: paths.filter((path) => path !== ''),
  };
}

export function ownersOf(object: KubeObject): Owner[] {
  return (object.metadata.managedFields ?? []).map((entry) => ownerOf(entry, object));
}

const isBelow = (path: string, above: string) =>
  path === above || (path.startsWith(above) && ['.', '['].includes(path.charAt(above.length)));

/** Those who own a field, or something in it, or what it is in; the last writer first. */
export function ownersAt(owners: Owner[], path: string): Owner[] {
  const found = owners.filter((owner) => owner.paths.some((own) => isBelow(own, path) || isBelow(path, own)));
  return found.sort((a, b) => b.time.localeCompare(a.time));
}
