// Parses the field paths in errors of server-side apply. They name list items by their keys, and members without
// quotes.

import type { Json } from '../api/types';
import { copied, isMap, isSame, readJson } from './json';
import { own, setOwn } from './own';

type Steps = (string | number)[];

/** The steps of a path in an object, the last of which may be missing there; null where the path leads nowhere. */
export function stepsIn(object: Json, path: string): Steps | null {
  const steps: Steps = [];
  let value: Json | undefined = object;
  let rest = path;
  while (rest !== '') {
    if (value === undefined) return null;
    const [next, length]: [string | number | null, number] = rest.startsWith('[')
      ? item(value, rest)
      : member(value, rest);
    if (next === null) return null;
    steps.push(next);
    rest = rest.slice(length);
    value = Array.isArray(value) ? value[Number(next)] : isMap(value) ? own(value, String(next)) : undefined;
  }
  return steps;
}

/** The name may hold dots, so that the longest one that is there is meant. */
function member(value: Json, rest: string): [string | null, number] {
  if (!isMap(value) || !rest.startsWith('.')) return [null, 0];
  const ends = (name: string) => ['', '.', '['].includes(rest.charAt(1 + name.length));
  const names = Object.keys(value).filter((name) => rest.startsWith(name, 1) && ends(name));
  const longest = names.sort((a, b) => b.length - a.length)[0];
  // The name of a missing member may contain dots too, so it is the whole rest.
  const name = longest ?? rest.slice(1);
  return [name, 1 + name.length];
}

const KEYS = /^\[((?:[\w.-]*=(?:"(?:[^"\\]|\\.)*"|[^,\]"]*),?)+|\d+)\]/;
const KEY = /([\w.-]*)=("(?:[^"\\]|\\.)*"|[^,\]"]*)/g;

function item(value: Json, rest: string): [number | null, number] {
  const match = KEYS.exec(rest);
  const [whole, inner = ''] = match ?? [];
  if (whole === undefined || !Array.isArray(value)) return [null, 0];
  if (/^\d+$/.test(inner)) return [Number(inner), whole.length];
  const wanted = [...inner.matchAll(KEY)].map((one) => [one[1] ?? '', keyValue(one[2] ?? '')] as const);
  const is = (one: Json, name: string, key: Json) =>
    name === '' ? isSame(one, key) : isMap(one) && isSame(own(one, name), key);
  const at = value.findIndex((one) => wanted.every(([name, key]) => is(one, name, key)));
  return [at < 0 ? null : at, whole.length];
}

function keyValue(text: string): Json {
  try {
    return readJson(text) as Json;
  } catch {
    return text;
  }
}

export function valueAt(object: Json, steps: Steps): Json | undefined {
  let value: Json | undefined = object;
  for (const one of steps) {
    value = Array.isArray(value) ? value[Number(one)] : isMap(value) ? own(value, String(one)) : undefined;
  }
  return value;
}

/** The object with another value at a place that there is; undefined takes the last step away. */
export function withValue(object: Json, steps: Steps, value: Json | undefined): Json {
  const made = copied(object);
  const last = steps.at(-1);
  const parent = valueAt(made, steps.slice(0, -1));
  if (Array.isArray(parent)) {
    if (value === undefined) parent.splice(Number(last), 1);
    else parent[Number(last)] = value;
  } else if (isMap(parent)) {
    if (value === undefined) Reflect.deleteProperty(parent, String(last));
    else setOwn(parent, String(last), value);
  }
  return made;
}
