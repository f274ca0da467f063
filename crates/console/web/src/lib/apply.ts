// Builds the object for a server-side apply: the changed fields, and those that the console applied before. It owns no
// others.

import type { Json, JsonObject, KubeObject } from '../api/types';
import { isMap, isSame } from './json';
import { wanted } from './objects';
import { own, setOwn } from './own';
import { step } from './paths';
import { itemOfField, itemsOf, type Shape } from './shape';

/** Fields by their names in managedFields. */
interface Fields {
  /** Whether it is the value as it is, with all that is in it. */
  whole: boolean;
  members: Map<string, Fields>;
}

export interface Applied {
  object: JsonObject;
  /** Changes that can't be said by an apply, with the reason. */
  unsayable: { path: string; why: string }[];
}

const some = (of: Fields): Fields | null => (of.members.size === 0 ? null : of);
const fields = (whole = false): Fields => ({ whole, members: new Map() });

/** The object by which `manager`, who owns fields of `now`, turns `base` into `mine`. */
export function applied(base: KubeObject, mine: JsonObject, now: KubeObject, manager: string, shape: Shape): Applied {
  const owned = ownedBy(now, manager);
  const differ = new Differ(owned);
  const before = wanted(base as unknown as JsonObject);
  const after = wanted(mine);
  const changed = differ.fields(before, after, shape, { path: '', keys: [] }) ?? fields();
  const object = picked(after, union(changed, owned), shape);
  const made: JsonObject = isMap(object) ? object : {};
  for (const name of ['apiVersion', 'kind']) setOwn(made, name, own(mine, name) ?? null);
  const metadata = own(made, 'metadata');
  const identity: JsonObject = {};
  const named = own(mine, 'metadata');
  for (const name of ['name', 'namespace']) {
    const value = isMap(named) ? own(named, name) : undefined;
    if (value !== undefined) setOwn(identity, name, value);
  }
  setOwn(made, 'metadata', { ...(isMap(metadata) ? metadata : {}), ...identity });
  return { object: made, unsayable: differ.unsayable };
}

function ownedBy(object: KubeObject, manager: string): Fields {
  const entries = (object.metadata.managedFields ?? []).filter(
    (one) => one.manager === manager && one.operation === 'Apply' && (one.subresource ?? '') === '',
  );
  return entries.map((one) => read(one.fieldsV1 ?? {})).reduce(union, fields());
}

function read(of: JsonObject): Fields {
  const made = fields();
  for (const [key, below] of Object.entries(of)) {
    if (key !== '.') made.members.set(key, isMap(below) ? read(below) : fields());
  }
  return made;
}

function union(a: Fields, b: Fields): Fields {
  const made = { whole: a.whole || b.whole, members: new Map(a.members) };
  for (const [key, below] of b.members) {
    const other = made.members.get(key);
    made.members.set(key, other === undefined ? below : union(other, below));
  }
  return made;
}

interface Place {
  path: string;
  /** The way in managedFields. */
  keys: string[];
}

class Differ {
  readonly unsayable: Applied['unsayable'] = [];

  constructor(private readonly owned: Fields) {}

  /** The fields in which `after` is not as `before`; null where it is. */
  fields(before: Json | undefined, after: Json, shape: Shape, place: Place): Fields | null {
    if (isSame(before, after)) return null;
    const isNew = before === undefined;
    if (isMap(after) && (isNew || isMap(before)) && !shape.isAtomic && (Object.keys(after).length > 0 || !isNew)) {
      return some(this.members(before ?? {}, after, shape, place));
    }
    if (Array.isArray(after) && (isNew || Array.isArray(before)) && (after.length > 0 || !isNew)) {
      const found = this.items(before ?? [], after, shape, place);
      if (found !== null) return some(found);
    }
    return fields(true);
  }

  private members(before: JsonObject, after: JsonObject, shape: Shape, place: Place): Fields {
    const made = fields();
    for (const [name, value] of Object.entries(after)) {
      const below = { path: place.path + step(name), keys: [...place.keys, `f:${name}`] };
      const found = this.fields(own(before, name), value, shape.member(name), below);
      if (found !== null) made.members.set(`f:${name}`, found);
    }
    for (const name of Object.keys(before)) {
      if (Object.hasOwn(after, name)) continue;
      this.isRemoved({ path: place.path + step(name), keys: [...place.keys, `f:${name}`] });
    }
    return made;
  }

  private items(before: Json[], after: Json[], shape: Shape, place: Place): Fields | null {
    const [old, now] = [itemsOf(before, shape), itemsOf(after, shape)];
    if (old === null || now === null) return null;
    const made = fields();
    for (const [key, { id, value }] of now) {
      const below = { path: place.path + id.shown, keys: [...place.keys, id.field] };
      const found = shape.isSet
        ? old.has(key)
          ? null
          : fields()
        : this.fields(old.get(key)?.value, value, shape.item(), below);
      if (found !== null) made.members.set(id.field, found);
    }
    for (const [key, { id }] of old) {
      if (!now.has(key)) this.isRemoved({ path: place.path + id.shown, keys: [...place.keys, id.field] });
    }
    const common = (list: Iterable<string>, other: Map<string, unknown>) => [...list].filter((key) => other.has(key));
    if (!isSame(common(old.keys(), now), common(now.keys(), old))) {
      this.unsayable.push({ path: place.path, why: 'an apply does not change the order of items' });
    }
    return made;
  }

  private isRemoved({ path, keys }: Place): void {
    let at: Fields | undefined = this.owned;
    for (const key of keys) at = at?.members.get(key);
    if (at === undefined) this.unsayable.push({ path, why: 'an apply removes only fields that it has set before' });
  }
}

/** The part of a value that these fields are. */
function picked(value: Json, of: Fields, shape: Shape): Json {
  if (of.whole || (!isMap(value) && !Array.isArray(value))) return value;
  if (isMap(value)) {
    if (shape.isAtomic) return value;
    const made: JsonObject = {};
    for (const [key, below] of of.members) {
      const name = key.slice(2);
      const member = key.startsWith('f:') ? own(value, name) : undefined;
      if (member !== undefined) setOwn(made, name, picked(member, below, shape.member(name)));
    }
    return made;
  }
  const isOne = shape.keys.length === 0 && !shape.isSet;
  return isOne ? value : pickedItems(value, of, shape);
}

function pickedItems(list: Json[], of: Fields, shape: Shape): Json[] {
  const made = new Map<Json, Json>();
  for (const [key, below] of of.members) {
    const item = itemOfField(list, key, shape);
    if (item === undefined) continue;
    if (!isMap(item)) {
      made.set(item, item);
      continue;
    }
    const names: JsonObject = {};
    for (const { name } of shape.keys) {
      const value = own(item, name);
      if (value !== undefined) setOwn(names, name, value);
    }
    const part = picked(item, below, shape.item());
    made.set(item, { ...names, ...(isMap(part) ? part : {}) });
  }
  return list.flatMap((item) => made.get(item) ?? []);
}
