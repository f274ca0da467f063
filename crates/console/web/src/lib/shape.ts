// The parts of a kind's schema that merge and apply need: lists whose items have keys, and values that are atomic.

import type { Json, JsonObject } from '../api/types';
import { isMap, isSame, jsonText } from './json';
import { own } from './own';

/** A key of the items of a list, with the value that an item has which does not name one. */
export interface ItemKey {
  name: string;
  usual: Json | undefined;
}

export interface Shape {
  /** The keys of the items, of a list whose items are known by them. */
  keys: ItemKey[];
  /** Whether a list holds each value once. */
  isSet: boolean;
  /** Whether a map is one value. */
  isAtomic: boolean;
  member: (name: string) => Shape;
  item: () => Shape;
}

/** The shape of a value without a schema: maps have members, lists are one value. */
export const UNKNOWN: Shape = { keys: [], isSet: false, isAtomic: false, member: () => UNKNOWN, item: () => UNKNOWN };

const REFERENCE = /^#\/components\/schemas\/(.+)$/;
/** How many references in a row are followed. */
const MOST_REFERENCES = 20;

/** A schema with what it refers to. Extensions beside a reference count too. */
function resolved(schemas: JsonObject, schema: Json | undefined): JsonObject {
  let made: JsonObject = {};
  let next = schema;
  for (let count = 0; isMap(next) && count < MOST_REFERENCES; count += 1) {
    made = { ...next, ...made };
    const all = own(next, 'allOf');
    const [only] = Array.isArray(all) ? all : [];
    const reference = own(next, '$ref') ?? (isMap(only) ? own(only, '$ref') : undefined);
    const name = typeof reference === 'string' ? REFERENCE.exec(reference)?.[1] : undefined;
    next = name === undefined ? undefined : own(schemas, name);
  }
  return made;
}

export function shapeOf(schemas: JsonObject, schema: Json | undefined): Shape {
  const found = resolved(schemas, schema);
  const items = () => resolved(schemas, own(found, 'items'));
  const names = own(found, 'x-kubernetes-list-map-keys');
  const isMapList = own(found, 'x-kubernetes-list-type') === 'map' && Array.isArray(names);
  const usual = (name: string) => {
    const properties = own(items(), 'properties');
    const property = isMap(properties) ? own(properties, name) : undefined;
    return isMap(property) ? own(property, 'default') : undefined;
  };
  return {
    keys: isMapList
      ? names.filter((name) => typeof name === 'string').map((name) => ({ name, usual: usual(name) }))
      : [],
    isSet: own(found, 'x-kubernetes-list-type') === 'set',
    isAtomic: own(found, 'x-kubernetes-map-type') === 'atomic',
    member: (name) => {
      const properties = own(found, 'properties');
      const property = isMap(properties) ? own(properties, name) : undefined;
      const others = own(found, 'additionalProperties');
      return property === undefined && !isMap(others) ? UNKNOWN : shapeOf(schemas, property ?? others);
    },
    item: () => shapeOf(schemas, own(found, 'items')),
  };
}

/** The identity of an item: its keys, or in a set its value. */
export interface ItemId {
  /** Equal for the same item in any list. */
  text: string;
  /** As people read it. */
  shown: string;
  /** As managedFields name it. */
  field: string;
  names: [string, Json][];
}

function idOf(item: Json, shape: Shape): ItemId | null {
  if (shape.isSet) {
    if (isMap(item) || Array.isArray(item)) return null;
    const text = jsonText(item);
    return { text, shown: `[=${text}]`, field: `v:${text}`, names: [] };
  }
  if (!isMap(item) || shape.keys.length === 0) return null;
  const names: [string, Json][] = [];
  for (const { name, usual } of shape.keys) {
    const value = own(item, name) ?? usual;
    if (value === undefined || isMap(value) || Array.isArray(value)) return null;
    names.push([name, value]);
  }
  const text = jsonText(names);
  const shown = `[${names.map(([name, value]) => `${name}=${typeof value === 'string' ? value : jsonText(value)}`).join(',')}]`;
  return { text, shown, field: `k:${jsonText(Object.fromEntries(names))}`, names };
}

export interface Item {
  id: ItemId;
  value: Json;
  at: number;
}

/** The items of a list by identity. Null if an item has none, or two have the same. */
export function itemsOf(list: Json[], shape: Shape): Map<string, Item> | null {
  const found = new Map<string, Item>();
  for (const [at, value] of list.entries()) {
    const id = idOf(value, shape);
    if (id === null || found.has(id.text)) return null;
    found.set(id.text, { id, value, at });
  }
  return found;
}

/** The item that the key of a managed field names. */
export function itemOfField(list: Json[], field: string, shape: Shape): Json | undefined {
  const wanted = readKey(field.slice(2));
  if (field.startsWith('v:')) return list.find((item) => isSame(item, wanted));
  if (!isMap(wanted)) return undefined;
  const usual = (name: string) => shape.keys.find((key) => key.name === name)?.usual;
  const isWanted = (item: Json) =>
    isMap(item) && Object.keys(wanted).every((name) => isSame(own(item, name) ?? usual(name), own(wanted, name)));
  return list.find(isWanted);
}

function readKey(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
